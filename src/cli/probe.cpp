// SPDX-License-Identifier: Apache-2.0
#include "cli/probe.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::cli {

namespace {

std::string unquote(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'')) text = text.substr(1, text.size() - 2);
  return std::string(text);
}

// The nearest folder that exists: the state folder may have to be made yet.
std::string existing_part(std::string path) {
  while (!path.empty() && !exists(path)) path = path.substr(0, path.rfind('/'));
  return path.empty() ? "/" : path;
}

bool port_is_taken(unsigned short port) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno == EADDRINUSE;
}

// "nginx (process 12)": the owner of the listening socket's inode, found among all descriptors (root sees all).
std::string holder_of_port(unsigned short port) {
  std::string inode;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    auto text = read_file(file);
    if (!text) continue;
    for (const auto& line : split(*text, '\n')) {
      std::vector<std::string> fields;
      for (auto& field : split(line, ' '))
        if (!field.empty()) fields.push_back(field);
      if (fields.size() < 10 || fields[3] != "0A") continue;
      if (fields[1].ends_with(fmt::format(":{:04X}", port))) inode = "socket:[" + fields[9] + "]";
    }
  }
  if (inode.empty()) return "";
  auto names = list_dir("/proc");
  if (!names) return "";
  for (const auto& name : *names) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    auto fds = list_dir("/proc/" + name + "/fd");
    if (!fds) continue;
    for (const auto& fd : *fds) {
      char target[64];
      const ssize_t n = ::readlink(("/proc/" + name + "/fd/" + fd).c_str(), target, sizeof target);
      if (n > 0 && std::string_view(target, static_cast<std::size_t>(n)) == inode) {
        auto comm = read_file("/proc/" + name + "/comm");
        return fmt::format("{} (process {})", comm ? std::string(trim(*comm)) : "a program", name);
      }
    }
  }
  return "";
}

bool in_path(const std::string& program) {
  for (const char* dir : {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"})
    if (::access((dir + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

MachineFacts probe_machine(const Context& context, const SiteSettings& settings) {
  MachineFacts facts;
  const std::string& dir = context.globals.state_dir;
  facts.root = ::geteuid() == 0;
  if (auto text = read_file("/etc/os-release"))
    for (const auto& line : split(*text, '\n')) {
      const auto equals = line.find('=');
      if (equals == std::string::npos) continue;
      const std::string key = line.substr(0, equals), value = unquote(line.substr(equals + 1));
      if (key == "ID") facts.os_id = value;
      if (key == "ID_LIKE") facts.os_like = value;
      if (key == "VERSION_ID") facts.os_version = value;
      if (key == "PRETTY_NAME") facts.os_name = value;
    }
  utsname names{};
  if (::uname(&names) == 0) facts.architecture = names.machine;
  struct statvfs disk {};
  if (::statvfs(existing_part(dir).c_str(), &disk) == 0) {
    facts.disk_free_bytes = static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
    facts.state_dir_read_only = (disk.f_flag & ST_RDONLY) != 0;
  }
  if (auto text = read_file("/proc/meminfo"))
    for (const auto& line : split(*text, '\n'))
      if (line.starts_with("MemTotal:")) facts.memory_bytes = std::atoll(line.c_str() + 9) * 1024;
  facts.cores = static_cast<int>(std::thread::hardware_concurrency());

  if (!running_server(dir) && port_is_taken(settings.port)) {
    facts.port_taken = true;
    facts.port_holder = holder_of_port(settings.port);
  }
  for (const char* program : {"crun", "conmon", "ip"})
    if (!in_path(program)) facts.missing_programs.emplace_back(program);
  if (!exists("/usr/lib/cni/bridge") && !exists("/opt/cni/bin/bridge")) facts.missing_programs.emplace_back("the CNI plug-ins");
  if (auto text = read_file("/proc/filesystems"))
    if (text->find("overlay") == std::string::npos && ::access("/sys/module/overlay", F_OK) != 0 && !exists(fmt::format("/lib/modules/{}/kernel/fs/overlayfs", names.release))) facts.missing_features.emplace_back("overlayfs");
  if (!exists("/sys/fs/cgroup")) facts.missing_features.emplace_back("cgroups");
  if (context.hooks.network_conflict) facts.network_conflict = context.hooks.network_conflict(dir, settings.node_range, settings.pod_range);
  if (auto entries = list_dir(dir); entries && !entries->empty()) {
    facts.state_dir_is_foreign = true;
    for (const char* ours : {"site.json", "pki", "images", "nodes", "run", "store.db"})
      if (exists(dir + "/" + ours)) facts.state_dir_is_foreign = false;
  }
  return facts;
}

}  // namespace fairlead::cli
