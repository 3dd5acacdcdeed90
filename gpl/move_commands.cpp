// SPDX-License-Identifier: GPL-3.0-or-later
#include "move_commands.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "cluster_move.h"

namespace fairlead::companion {
namespace {

constexpr std::uint64_t kMaxPiece = std::uint64_t{64} << 20;

Result<std::string> new_code() {
  std::string bytes(32, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return fail_errno(errno, "make a code");
  return hex(bytes);
}

ExportCluster export_options(const Settings& settings, Instant now, const std::string& version) {
  return {.folder = settings.folder, .state = settings.state, .cluster = settings.cluster,
          .make = [settings, now, version] {
            Settings without = settings;  // the shared root stays where it is, or is moved by who can move volumes
            std::erase(without.parts, "jail");
            return make_one(without, now, version);
          },
          .new_code = new_code, .on_step = {}, .now = now};
}

Result<void> unpack(const std::string& archive, const std::string& to) {
  auto done = run_checked({.argv = {"tar", "--extract", "--file", archive, "--directory", to, "--numeric-owner", "--same-owner", "--preserve-permissions", "--xattrs", "--xattrs-include=*"}}, std::chrono::hours(2));
  if (!done) return std::unexpected(std::move(done.error()));
  return {};
}

ImportCluster import_options(const Settings& settings, Instant now) {
  return {.folder = settings.folder, .state = settings.state, .cluster = settings.cluster, .unpack = unpack, .on_step = {}, .restore = restore_options(settings, now), .restore_id = new_id(now)};
}

std::string fields_of(const Card& card, std::initializer_list<const char*> names) {
  std::string out;
  for (const char* name : names)
    if (const std::string value = value_of(card, name); !value.empty()) out += fmt::format("{}{}:{}", out.empty() ? "" : ",", quoted(name), quoted(value));
  return "{" + out + "}";
}
std::string export_json(const Card& card) { return fields_of(card, {"id", "cluster", "step", "began", "sum", "set", "next-id", "error", "ended"}); }
std::string import_json(const Card& card) { return fields_of(card, {"id", "cluster", "step", "sum", "set", "bytes"}); }

Result<std::string> all_of_stdin() {
  std::string out;
  char buffer[65536];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read stdin");
    if (n == 0) return out;
    out.append(buffer, static_cast<std::size_t>(n));
    if (out.size() > kMaxPiece) return fail(Code::Exhausted, "that is too much at once");
  }
}

int tell(const std::string& text) {
  std::fputs((text + "\n").c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int read_out(const Settings& settings) {
  auto card = read_export(settings.folder);
  if (!card) return refuse("no export of this cluster is under way");
  const std::string set = value_of(*card, "set"), step = value_of(*card, "step");
  if (set.empty() || (step != "ready" && step != "moving" && step != "moved")) return refuse("the export is not ready: step " + step);
  if (auto info = read_set(settings.folder, set); !info) return refuse(info.error().message);
  const std::string sets = settings.folder + "/sets";
  ::execlp("tar", "tar", "--create", "--file", "-", "--directory", sets.c_str(), "--numeric-owner", "--format=posix", "--xattrs", "--sort=name", set.c_str(), nullptr);
  return refuse("tar: " + fail_errno(errno, "start tar").error().message);
}

int abort_and_wait(const Settings& settings, const ExportCluster& options) {
  auto card = read_export(settings.folder);
  if (auto aborted = abort_export(options); !aborted) return refuse(aborted.error().message);
  const std::string id = card ? value_of(*card, "id") : "";
  for (int i = 0; i < 600; ++i) {
    if (!exists(settings.folder + "/export")) return tell("export " + id + " is aborted: its code is destroyed, and slurmctld may run");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return refuse("the export is being aborted, and that goes on by itself");
}

}  // namespace

bool carry_on_moves(const Settings& settings, Instant now, const std::string& version) {
  static std::string told;
  if (auto there = read_export(settings.folder); there || there.error().code != Code::NotFound) {
    auto done = there ? carry_on_export(export_options(settings, now, version)) : Result<bool>(std::unexpected(there.error()));
    const std::string why = done ? "" : done.error().message;
    if (!why.empty() && why != told) log_info("the export of this cluster goes on", {{"waits", why}});
    told = why;
    return true;
  }
  if (auto there = read_import(settings.folder); there || there.error().code != Code::NotFound) return !there || value_of(*there, "step") != "open";
  return false;
}

std::string moves_json(const Settings& settings) {
  std::string out;
  if (auto card = read_export(settings.folder)) out += ",\"export\":" + export_json(*card);
  if (auto card = read_import(settings.folder)) out += ",\"import\":" + import_json(*card);
  return out;
}

bool is_move_command(const std::string& command) {
  for (const char* one : {"export-begin", "export-status", "export-abort", "export-hand-over", "export-read", "import-begin", "import-put", "import-fill", "import-open"})
    if (command == one) return true;
  return false;
}

int run_move_command(const Settings& settings, const std::vector<std::string>& arguments) {
  const std::string& command = arguments[0];
  const Instant now = SystemClock().now();
  const auto argument = [&](std::size_t i) { return i < arguments.size() ? arguments[i] : std::string(); };
  if (command.starts_with("export-")) {
    const ExportCluster options = export_options(settings, now, "");
    if (command == "export-read") return read_out(settings);
    if (command == "export-abort") return abort_and_wait(settings, options);
    if (command == "export-hand-over") {
      auto code = hand_over(options);
      return code ? tell(*code) : refuse(code.error().message);
    }
    auto card = command == "export-begin" ? begin_export(options, new_id(now)) : read_export(settings.folder);
    if (!card && command == "export-status" && card.error().code == Code::NotFound) card = read_export_outcome(settings.folder, argument(1));
    return card ? tell(export_json(*card)) : refuse(card.error().message);
  }
  const ImportCluster options = import_options(settings, now);
  if (command == "import-begin") {
    auto card = begin_import(options, {.id = argument(1), .cluster = argument(2), .sum = argument(3), .set = argument(4), .bytes = std::strtoull(argument(5).c_str(), nullptr, 10)});
    return card ? tell(import_json(*card)) : refuse(card.error().message);
  }
  if (command == "import-fill") {
    auto done = fill_import(options, argument(1));
    if (done) return tell("filled");
    if (done.error().code == Code::Unavailable) return tell("waits: " + done.error().message);
    return refuse(done.error().message);
  }
  auto bytes = all_of_stdin();
  if (!bytes) return refuse(bytes.error().message);
  auto done = command == "import-put" ? put_import(options, argument(1), std::strtoull(argument(2).c_str(), nullptr, 10), *bytes) : open_import(options, std::string(trim(*bytes)));
  return done ? 0 : refuse(done.error().message);
}

}  // namespace fairlead::companion
