// SPDX-License-Identifier: Apache-2.0
#include "cli/site_volumes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"

namespace fairlead::cli {
namespace {

using namespace std::chrono_literals;

struct Places {
  std::string folder, image, pid, log;
};
// The pid file outlives run/, which goes with the nodes: the daemon is ended after them.
Places places_of(const std::string& dir) { return {dir + "/pool", dir + "/pool.img", dir + "/pool.pid", dir + "/run/volumes.log"}; }

// Who was started, if it runs still: a number that was given out again is not it.
std::optional<ProcessIdentity> running(const Places& places) {
  const auto text = read_file(places.pid, 64_KiB);
  if (!text) return std::nullopt;
  const auto words = split(trim(*text), ' ');
  ProcessIdentity told;
  if (words.size() != 2 || std::from_chars(words[0].data(), words[0].data() + words[0].size(), told.pid).ec != std::errc() || std::from_chars(words[1].data(), words[1].data() + words[1].size(), told.start_ticks).ec != std::errc()) return std::nullopt;
  // One that has ended and that nobody has reaped yet has no command line.
  const auto command = read_file(fmt::format("/proc/{}/cmdline", told.pid), 1_MiB);
  if (!command || command->find("fairlead-volumes") == std::string::npos) return std::nullopt;
  const auto now = identify(told.pid);
  return now && *now == told ? std::optional(told) : std::nullopt;
}

}  // namespace

Result<std::string> start_volumes(Context& context, const SiteSettings& settings, Progress& progress) {
  const std::string& dir = context.globals.state_dir;
  const Places places = places_of(dir);
  if (running(places)) return std::string("runs already");
  const std::string program = find_sibling(context.own_dir, "fairlead-volumes");
  if (program.empty()) return fail(Code::NotFound, fmt::format("fairlead-volumes is not beside fairlead in {}: install the package fairlead-volumes", context.own_dir));
  if (auto made = make_dirs(dir + "/run", 0755); !made) return std::unexpected(std::move(made.error()));
  const Fd log(::open(places.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!log) return fail_errno(errno, "open " + places.log);
  std::vector<std::string> argv{program, "run", "--folder", places.folder, "--image", places.image, "--name", kLocalPool, "--nodes", "!fairlead.dev/host", "--kubeconfig", dir + "/pki/admin.kubeconfig"};
  if (!settings.volumes.empty()) argv.insert(argv.end(), {"--size", settings.volumes});
  auto child = Child::start({.argv = std::move(argv), .environment = {}, .working_directory = "/", .stdout_fd = log.get(), .stderr_fd = log.get(), .new_session = true});
  if (!child) return std::unexpected(std::move(child.error()));
  const auto who = identify(child->pid());
  if (!who) return std::unexpected(who.error());
  if (auto written = write_file_atomically(places.pid, fmt::format("{} {}\n", who->pid, who->start_ticks), 0644); !written) return std::unexpected(std::move(written.error()));
  const auto deadline = context.clock.monotonic() + 120s;
  for (;;) {
    auto exit = child->wait(50ms);
    if (!exit) return std::unexpected(std::move(exit.error()));
    const auto said = read_file(places.log, 1_MiB);
    if (*exit) return fail(Code::Unavailable, fmt::format("fairlead-volumes ended with status {}: {}", (*exit)->code, said ? clean(trim(*said)).substr(0, 2000) : "see " + places.log));
    if (said && said->find("serving a pool") != std::string::npos) break;
    if (context.clock.monotonic() > deadline) return fail(Code::Unavailable, fmt::format("fairlead-volumes does not serve after two minutes; see {}", places.log));
    progress.redraw();
  }
  child->detach();
  return settings.volumes.empty() ? "as they were" : settings.volumes;
}

Result<void> end_volumes(Context& context, bool keep) {
  const Places places = places_of(context.globals.state_dir);
  if (const auto who = running(places)) {
    auto process = open_process(*who);
    if (!process && process.error().code != Code::NotFound) return std::unexpected(std::move(process.error()));
    if (process) {
      if (::syscall(SYS_pidfd_send_signal, process->get(), SIGTERM, nullptr, 0) != 0 && errno != ESRCH) return fail_errno(errno, fmt::format("end fairlead-volumes (process {})", who->pid));
      pollfd ended{.fd = process->get(), .events = POLLIN, .revents = 0};
      if (::poll(&ended, 1, 30'000) <= 0) return fail(Code::Unavailable, fmt::format("fairlead-volumes (process {}) has not ended after half a minute", who->pid));
    }
  }
  ::unlink(places.pid.c_str());
  if (!exists(places.image)) {
    // One that somebody set up there by hand is not unmounted under his feet.
    struct stat own {}, over {};
    if (::stat(places.folder.c_str(), &own) == 0 && ::stat(context.globals.state_dir.c_str(), &over) == 0 && own.st_dev != over.st_dev) return fail(Code::Conflict, fmt::format("a pool of volumes is mounted at {} that `up --volumes` did not make: stop its daemon, and unmount it", places.folder));
    return {};
  }
  const std::string program = find_sibling(context.own_dir, "fairlead-volumes");
  if (program.empty()) return fail(Code::NotFound, fmt::format("{} is there, and fairlead-volumes, which takes it away, is not beside fairlead", places.image));
  auto done = run_checked({.argv = {program, keep ? "release" : "destroy", "--folder", places.folder, "--image", places.image, "--yes"}}, 120s);
  if (!done) return pass(std::move(done.error()), "take the pool of volumes away");
  return {};
}

}  // namespace fairlead::cli
