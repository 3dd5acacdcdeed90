// SPDX-License-Identifier: Apache-2.0
#include "agent/host_facts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "api/instance_types.h"
#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "node/cdi_files.h"

namespace fairlead::agent {

namespace {

// "Model:  NVIDIA H100 80GB HBM3"
std::string field_of(const std::string& text, std::string_view name) {
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') return std::string(trim(std::string_view(line).substr(name.size() + 1)));
  return "";
}

std::string os_of(const HostFiles& files) {
  auto text = read_file(files.root + "/etc/os-release", 64_KiB);
  if (!text) return "";
  for (const std::string& line : split(*text, '\n'))
    if (line.starts_with("PRETTY_NAME=")) {
      std::string out = line.substr(12);
      std::erase(out, '"');
      return out;
    }
  return "";
}

// What pods may have is what CDI's files give out: what the machine has besides is told, and counts for nothing.
void look_for_devices(api::HostFacts& out, const HostFiles& files) {
  for (const node::CdiKind& kind : node::read_cdi(files.cdi_dirs))
    if (kind.kind == api::kGpuResource || kind.kind == api::kNeuronResource)
      if (const std::size_t many = node::handed_out(kind).size(); many > 0) out.devices[kind.kind] = static_cast<std::int64_t>(many);
  std::vector<std::string> has;
  const auto tell = [&](std::int64_t count, const std::string& what, const char* resource) {
    const auto given = out.devices.find(resource);
    has.push_back(fmt::format("{} x {}{}", count, what, given == out.devices.end() ? " (which no CDI file names)" : given->second == count ? "" : fmt::format(" (CDI files name {})", given->second)));
  };
  if (auto cards = list_dir(files.root + "/proc/driver/nvidia/gpus"); cards && !cards->empty()) {
    auto about = read_file(fmt::format("{}/proc/driver/nvidia/gpus/{}/information", files.root, cards->front()), 64_KiB);
    const std::string model = about ? field_of(*about, "Model") : "";
    tell(static_cast<std::int64_t>(cards->size()), model.empty() ? "NVIDIA GPU" : model, api::kGpuResource);
  }
  if (auto devices = list_dir(files.root + "/dev")) {
    const auto many = std::ranges::count_if(*devices, [](const std::string& name) { return name.starts_with("neuron") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos; });
    if (many > 0) tell(many, "AWS Neuron", api::kNeuronResource);
  }
  if (has.empty())
    for (const auto& [resource, count] : out.devices) has.push_back(fmt::format("{} x {}", count, resource));
  out.devices_text = fmt::format("{}", fmt::join(has, ", ")).substr(0, 256);
}

bool has_program(const HostFiles& files, const std::string& name) {
  return std::ranges::any_of(files.path, [&](const std::string& folder) { return ::access((files.root + folder + "/" + name).c_str(), X_OK) == 0; });
}

}  // namespace

Result<api::HostFacts> look_at_host(const std::string& address, const HostFiles& files) {
  api::HostFacts out{.cpus = get_nprocs(), .address = address, .os = os_of(files), .version = FAIRLEAD_VERSION};
  auto memory = read_file(files.root + "/proc/meminfo", 64_KiB);
  if (!memory) return pass(std::move(memory.error()), "look at this machine's memory");
  const std::string total = field_of(*memory, "MemTotal");
  out.memory_mib = std::atoll(total.c_str()) / 1024;
  if (out.memory_mib <= 0) return fail(Code::Unavailable, "look at this machine's memory: /proc/meminfo tells no MemTotal");
  utsname names{};
  ::uname(&names);
  out.kernel = names.release;
  out.architecture = names.machine;
  look_for_devices(out, files);
  return out;
}

std::vector<Lack> what_host_lacks(const HostFiles& files) {
  std::vector<Lack> out;
  struct Program {
    const char *name, *package;
  };
  for (const auto& [name, package] : {Program{"crun", "crun"}, Program{"conmon", "conmon"}, Program{"nft", "nftables"}})
    if (!has_program(files, name)) out.push_back({fmt::format("the program {} is not there", name), fmt::format("apt install {}", package)});
  for (const char* const plugin : {"ptp", "host-local"})
    if (::access((files.root + "/usr/lib/cni/" + plugin).c_str(), X_OK) != 0) out.push_back({fmt::format("the CNI plug-in /usr/lib/cni/{} is not there", plugin), "apt install containernetworking-plugins"});
  if (auto known = read_file(files.root + "/proc/filesystems", 64_KiB); known && known->find("\toverlay\n") == std::string::npos) out.push_back({"the kernel has no overlay file system", "modprobe overlay"});
  if (exists(files.root + "/sys/fs/cgroup/unified/cgroup.procs"))
    out.push_back({"both versions of cgroups are mounted, which crun refuses", "boot with systemd.unified_cgroup_hierarchy=1, or umount /sys/fs/cgroup/unified"});
  else if (!exists(files.root + "/sys/fs/cgroup/cgroup.controllers") && !exists(files.root + "/sys/fs/cgroup/memory"))
    out.push_back({"no cgroups are mounted at /sys/fs/cgroup", "mount -t cgroup2 none /sys/fs/cgroup"});
  return out;
}

Result<std::string> address_towards(const std::string& server) {
  constexpr std::string_view scheme = "https://";
  if (!server.starts_with(scheme)) return fail(Code::Invalid, server + " is not the URL of a server");
  const std::string rest = server.substr(scheme.size());
  const std::string host = rest.substr(0, rest.find_first_of(":/"));
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), "443", &hints, &found); error != 0) return fail(Code::Unavailable, fmt::format("{}: {}", host, ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t size = sizeof own;
  // Nothing is sent: the kernel tells which address it would send from.
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return fail_errno(errno, "find the way to " + host);
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
  return std::string(text);
}

}  // namespace fairlead::agent
