// SPDX-License-Identifier: Apache-2.0
#include "fleet/processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::fleet {

namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The value of `--name VALUE` or `--name=VALUE`; empty: not there.
std::string option_value(const std::vector<std::string>& argv, const std::string& option) {
  for (std::size_t i = 0; i < argv.size(); ++i) {
    if (argv[i] == option && i + 1 < argv.size()) return argv[i + 1];
    if (argv[i].starts_with(option + "=")) return argv[i].substr(option.size() + 1);
  }
  return "";
}

Result<void> wait_for_end(const Fd& pidfd, pid_t pid, std::chrono::milliseconds limit) {
  pollfd poll_fd{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  do ready = ::poll(&poll_fd, 1, static_cast<int>(limit.count()));
  while (ready < 0 && errno == EINTR);
  if (ready > 0) return {};
  return fail(Code::Unavailable, fmt::format("process {} is still there after {} ms", pid, limit.count()));
}

char state_of(pid_t pid) {
  auto text = read_file(fmt::format("/proc/{}/stat", pid), 64_KiB);
  if (!text) return 'X';
  const auto close = text->rfind(')');
  return close == std::string::npos || close + 2 >= text->size() ? 'X' : (*text)[close + 2];
}

}  // namespace

std::optional<SiteProcess> classify_process(const Site& site, const std::vector<std::string>& argv) {
  if (argv.empty()) return std::nullopt;
  const auto program = base_name(argv[0]);
  if (program == "fairlead-agent" && argv.size() > 1 && argv[1] == "node-init") {
    const std::string config = option_value(argv, "--config");
    const std::string prefix = site.nodes() + "/";
    if (!config.starts_with(prefix)) return std::nullopt;
    const std::string rest = config.substr(prefix.size());
    const auto slash = rest.find('/');
    if (slash == std::string::npos || slash == 0) return std::nullopt;
    return SiteProcess{.identity = {}, .role = Role::Node, .node = rest.substr(0, slash)};
  }
  if (program == "fairlead-server") {
    const std::string dir = option_value(argv, "--state-dir");
    if (dir.empty() || site_of(dir).dir != site.dir) return std::nullopt;
    return SiteProcess{.identity = {}, .role = Role::Server, .node = ""};
  }
  return std::nullopt;
}

std::vector<SiteProcess> find_site_processes(const Site& site) {
  std::vector<SiteProcess> found;
  auto names = list_dir("/proc");
  if (!names) return found;
  for (const auto& name : *names) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size() || pid == ::getpid()) continue;
    // Identity before and after: the command line read in between is of that very process.
    auto identity = identify(pid);
    if (!identity) continue;
    auto text = read_file("/proc/" + name + "/cmdline", 1_MiB);
    if (!text || text->empty()) continue;  // kernel threads and zombies have none
    if (text->back() == '\0') text->pop_back();
    auto process = classify_process(site, split(*text, '\0'));
    if (!process || !is_alive(*identity)) continue;
    process->identity = *identity;
    found.push_back(std::move(*process));
  }
  return found;
}

bool is_alive(const ProcessIdentity& identity) {
  auto pidfd = open_process(identity);
  if (!pidfd) return false;
  const char state = state_of(identity.pid);
  return state != 'Z' && state != 'X';
}

Result<bool> lives(const ProcessIdentity& identity) {
  auto pidfd = open_process(identity);
  if (!pidfd && pidfd.error().code == Code::NotFound) return false;
  if (!pidfd) return std::unexpected(std::move(pidfd.error()));
  auto text = read_file(fmt::format("/proc/{}/stat", identity.pid), 64_KiB);
  if (!text && text.error().code == Code::NotFound) return false;
  if (!text) return std::unexpected(std::move(text.error()));
  const auto close = text->rfind(')');
  if (close == std::string::npos || close + 2 >= text->size()) return fail(Code::Internal, fmt::format("process {}: unreadable stat", identity.pid));
  const char state = (*text)[close + 2];
  return state != 'Z' && state != 'X';
}

Result<void> kill_process(const ProcessIdentity& identity, std::chrono::milliseconds limit) {
  auto pidfd = open_process(identity);
  if (!pidfd) return {};
  if (::syscall(SYS_pidfd_send_signal, pidfd->get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH) return fail_errno(errno, fmt::format("kill process {}", identity.pid));
  return wait_for_end(*pidfd, identity.pid, limit);
}

Result<void> stop_process(const ProcessIdentity& identity, std::chrono::milliseconds grace, std::chrono::milliseconds limit) {
  auto pidfd = open_process(identity);
  if (!pidfd) return {};
  if (::syscall(SYS_pidfd_send_signal, pidfd->get(), SIGTERM, nullptr, 0) == 0 && wait_for_end(*pidfd, identity.pid, grace)) return {};
  return kill_process(identity, limit);
}

std::vector<std::string> mounts_below(std::string_view mountinfo, std::string_view dir) {
  std::vector<std::string> mounts;
  for (const auto& line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    if (fields.size() < 5) continue;
    std::string point;  // blanks and the like stand there as \040
    for (std::size_t i = 0; i < fields[4].size(); ++i) {
      const auto octal = fields[4].substr(i + 1, 3);
      int code = 0;
      if (fields[4][i] == '\\' && octal.size() == 3 && std::from_chars(octal.data(), octal.data() + 3, code, 8).ptr == octal.data() + 3) {
        point += static_cast<char>(code);
        i += 3;
      } else {
        point += fields[4][i];
      }
    }
    if (point == dir || point.starts_with(std::string(dir) + "/")) mounts.push_back(std::move(point));
  }
  std::stable_sort(mounts.begin(), mounts.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return mounts;
}

}  // namespace fairlead::fleet
