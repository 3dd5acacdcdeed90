// SPDX-License-Identifier: GPL-3.0-or-later
#include "submit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/process.h"
#include "base/rng.h"

namespace fairlead::companion {
namespace {

constexpr const char* kUsage =
    "usage: fairlead-slurm submit [--key K] [--for SECONDS] [--comment TEXT] [--] SBATCH-ARGUMENTS\n"
    "Submits a job by sbatch and tries again until there is an answer, through a failover of the controller too. It makes one job, however often it is tried:\n"
    "the key K (1 to 128 letters, digits or ._:/@+=-) is that of this submission, and where the user has a job with it, the answer is its id. Say the same command with the same key\n"
    "again after a crash of your own. Without --key each call has one of its own.\n"
    "  --for SECONDS   give up after that long (120)\n"
    "The script is a file or --wrap: from its input it could not be read twice. The id is printed as by sbatch --parsable. Plain sbatch does the same once: sbatch --comment=submit-key=K ...\n";

}  // namespace

Result<Submission> read_submission(const std::vector<std::string>& arguments, const std::string& key_of_our_own) {
  Submission out;
  std::string comment;
  std::size_t at = 0;
  const auto value = [&](const std::string& name) -> std::optional<std::string> {
    if (arguments[at].starts_with(name + "=")) return arguments[at].substr(name.size() + 1);
    if (arguments[at] == name && at + 1 < arguments.size()) return arguments[++at];
    return {};
  };
  for (; at < arguments.size(); ++at) {
    if (arguments[at] == "--help" || arguments[at] == "-h") {
      out.help = true;
      return out;
    }
    if (arguments[at] == "--") {
      ++at;
      break;
    }
    if (const auto key = value("--key")) out.key = *key;
    else if (const auto text = value("--comment")) comment = *text;
    else if (const auto limit = value("--for")) {
      const auto [end, error] = std::from_chars(limit->data(), limit->data() + limit->size(), out.limit_seconds);
      if (error != std::errc() || end != limit->data() + limit->size() || out.limit_seconds < 1 || out.limit_seconds > 86'400) return fail(Code::Invalid, "--for takes seconds, 1 to 86400, not \"" + *limit + "\"");
    } else if (arguments[at] == "--key" || arguments[at] == "--for" || arguments[at] == "--comment") {
      return fail(Code::Invalid, arguments[at] + " needs a value");
    } else {
      break;
    }
  }
  if (out.key.empty()) out.key = key_of_our_own;
  if (out.key.size() > 128 || out.key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+=-") != std::string::npos)
    return fail(Code::Invalid, "--key is 1 to 128 letters, digits or ._:/@+=-, not \"" + out.key + "\"");
  out.sbatch = {"--parsable", "--comment=" + (comment.empty() ? "" : comment + " ") + "submit-key=" + out.key};
  out.sbatch.insert(out.sbatch.end(), arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  // A second one would take the place of ours, and the key with it. What stands behind the script is the script's.
  for (; at < arguments.size() && arguments[at].starts_with("-"); ++at)
    if (arguments[at].starts_with("--com")) return fail(Code::Invalid, "give --comment before the options of sbatch: it holds the key, too");
  return out;
}

bool may_try_again(std::string_view said) {
  // Of the messages of Slurm's library and of sbatch: those after which it is not known what became of it, or that it will be taken later.
  static constexpr std::array kUnknown = std::to_array<std::string_view>(
      {"Unable to contact slurm controller", "Unexpected message received", "Communication connection failure", "Message send failure", "Message receive failure", "Communication shutdown failure", "Insane message length",
       "missing socket error", "Can't find an address", "standby mode", "Received zero length message", "Received message length < 0", "Failed to send entire message", "Header lengths are longer than data received",
       "Socket timed out", "Zero Bytes were transmitted", "Transport endpoint", "Connection refused", "Connection reset", "Connection timed out", "Broken pipe", "No route to host", "Network is unreachable",
       "Name or service not known", "Unspecified error", "temporarily", "try again", "ask again"});
  return std::any_of(kUnknown.begin(), kUnknown.end(), [&](std::string_view one) { return said.find(one) != std::string_view::npos; });
}

int run_submit(const std::vector<std::string>& arguments) {
  auto wanted = read_submission(arguments, "once-" + hex(secret_bytes(16)));
  if (!wanted) {
    std::fprintf(stderr, "fairlead-slurm submit: %s\n%s", wanted.error().message.c_str(), kUsage);
    return 2;
  }
  if (wanted->help || arguments.empty()) {
    std::fputs(kUsage, wanted->help ? stdout : stderr);
    return wanted->help ? 0 : 2;
  }
  const SystemClock clock;
  const auto end = clock.monotonic() + std::chrono::seconds(wanted->limit_seconds);
  for (auto pause = std::chrono::milliseconds(200);; pause = std::min(pause * 2, std::chrono::milliseconds(3000))) {
    std::vector<std::string> argv = {"sbatch"};
    argv.insert(argv.end(), wanted->sbatch.begin(), wanted->sbatch.end());
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.monotonic());
    auto ran = run({.argv = std::move(argv)}, std::clamp(left, std::chrono::milliseconds(1000), std::chrono::milliseconds(30'000)));
    if (ran && ran->exit.code == 0) {
      std::fputs(ran->out.c_str(), stdout);
      std::fputs(ran->err.c_str(), stderr);
      return 0;
    }
    // One that did not end in time is like one without an answer.
    if (ran && ran->exit.signal == 0 && !may_try_again(ran->err)) {
      std::fputs(ran->err.c_str(), stderr);
      return ran->exit.code;
    }
    if (clock.monotonic() + pause >= end) {
      std::fprintf(stderr, "%sfairlead-slurm submit: no answer within %d s. Whether there is a job is not known; the same command with --key %s makes no second one\n", ran ? ran->err.c_str() : "", wanted->limit_seconds, wanted->key.c_str());
      return 75;
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace fairlead::companion
