// SPDX-License-Identifier: Apache-2.0
#include "fleet/netns.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <net/if.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"

namespace fairlead::fleet {

namespace {

constexpr auto kIpLimit = std::chrono::milliseconds(15'000);

// In the child, before exec: async-signal-safe calls only. The files speak of the namespace of whoever opens them.
int write_setting(const char* path, const char* value) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const ssize_t n = ::write(fd, value, std::strlen(value));
  const int error = n < 0 ? errno : 0;
  ::close(fd);
  return error;
}

Command ip_command(const Fd& space, std::vector<std::string> arguments) {
  Command command{.argv = {"ip"}, .environment = {}, .working_directory = {}};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  if (space)
    command.before_exec = [fd = space.get()] { return ::setns(fd, CLONE_NEWNET) == 0 ? 0 : errno; };
  return command;
}

}  // namespace

bool is_pinned(const std::string& path) {
  struct statfs about {};
  return ::statfs(path.c_str(), &about) == 0 && about.f_type == NSFS_MAGIC;
}

Result<void> pin_new_namespace(const std::string& path) {
  if (is_pinned(path)) return {};
  if (auto made = make_dirs(path.substr(0, path.rfind('/')), 0700); !made) return made;
  if (auto made = write_file_atomically(path, "", 0600); !made) return made;
  Command command{.argv = {"true"}, .environment = {}, .working_directory = {}};
  command.before_exec = [&path]() -> int {
    if (::unshare(CLONE_NEWNET) != 0) return errno;
    if (const int error = write_setting("/proc/sys/net/ipv4/ip_forward", "1"); error != 0) return error;
    // All nodes hang on one link, so a router would keep telling them of shorter ways; and replies may take another way than questions.
    for (const char* setting : {"/proc/sys/net/ipv4/conf/all/send_redirects", "/proc/sys/net/ipv4/conf/default/send_redirects", "/proc/sys/net/ipv4/conf/all/rp_filter",
                                "/proc/sys/net/ipv4/conf/default/rp_filter"})
      if (const int error = write_setting(setting, "0"); error != 0) return error;
    for (const char* setting : {"/proc/sys/net/ipv6/conf/all/disable_ipv6", "/proc/sys/net/ipv6/conf/default/disable_ipv6"}) (void)write_setting(setting, "1");
    return ::mount("/proc/self/ns/net", path.c_str(), "", MS_BIND, nullptr) == 0 ? 0 : errno;
  };
  if (auto done = run_checked(std::move(command), kIpLimit); !done) return pass(std::move(done.error()), "make a network namespace at " + path);
  return {};
}

Result<void> route_ipv6(const Fd& space) {
  INVARIANT(space);
  Command command{.argv = {"true"}, .environment = {}, .working_directory = {}};
  command.before_exec = [fd = space.get()]() -> int {
    if (::setns(fd, CLONE_NEWNET) != 0) return errno;
    for (const auto& [setting, value] : {std::pair("all/disable_ipv6", "0"), {"default/disable_ipv6", "0"}, {"all/accept_dad", "0"}, {"default/accept_dad", "0"}, {"all/accept_ra", "0"},
                                         {"default/accept_ra", "0"}, {"all/forwarding", "1"}, {"default/forwarding", "1"}}) {
      // Between fork and exec: no memory may be asked for.
      char path[96] = "/proc/sys/net/ipv6/conf/";
      ::strcat(path, setting);
      if (const int error = write_setting(path, value); error != 0) return error;
    }
    return 0;
  };
  if (auto done = run_checked(std::move(command), kIpLimit); !done) return pass(std::move(done.error()), "set up IPv6 in a network namespace");
  return {};
}

Result<void> allow_ipv6(const std::string& link) {
  for (const auto& [setting, value] : {std::pair("disable_ipv6", "0"), {"accept_ra", "0"}})
    if (const int error = write_setting(fmt::format("/proc/sys/net/ipv6/conf/{}/{}", link, setting).c_str(), value); error != 0)
      return fail_errno(error, fmt::format("set {} of {}", setting, link));
  return {};
}

Result<void> unpin(const std::string& path) {
  // Once for every time that it was mounted.
  while (is_pinned(path))
    if (::umount2(path.c_str(), MNT_DETACH) != 0) return fail_errno(errno, "unpin the network namespace " + path);
  ::unlink(path.c_str());
  return {};
}

Result<Fd> open_namespace(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open the network namespace " + path);
  return fd;
}

Result<void> ip_batch(const Fd& space, const std::vector<std::string>& lines) {
  std::string input;
  for (const auto& line : lines) input += line + "\n";
  auto done = run_checked(ip_command(space, {"-batch", "-"}), kIpLimit, input);
  if (!done) return std::unexpected(std::move(done.error()));
  return {};
}

void ip_try(const Fd& space, const std::vector<std::string>& lines) {
  std::string input;
  for (const auto& line : lines) input += line + "\n";
  (void)run(ip_command(space, {"-force", "-batch", "-"}), kIpLimit, input);
}

Result<std::vector<LinkFlag>> list_links(const Fd& space) {
  auto text = run_checked(ip_command(space, {"-j", "link", "show"}), kIpLimit);
  if (!text) return std::unexpected(std::move(text.error()));
  auto json = kube::parse_json(*text);
  if (!json) return pass(std::move(json.error()), "read the answer of ip -j link show");
  std::vector<LinkFlag> links;
  for (const auto& link : json->items()) {
    const auto& flags = link["flags"].items();
    links.push_back({.name = link["ifname"].string(), .up = std::any_of(flags.begin(), flags.end(), [](const auto& flag) { return flag.string() == "UP"; })});
  }
  return links;
}

bool has_link(const std::string& name) { return if_nametoindex(name.c_str()) != 0; }

}  // namespace fairlead::fleet
