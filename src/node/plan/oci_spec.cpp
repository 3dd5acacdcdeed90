// SPDX-License-Identifier: Apache-2.0
#include "node/plan/oci_spec.h"

namespace fairlead::node {
namespace {
using kube::Json;

Json texts(const std::vector<std::string>& items) {
  Json out = Json::array();
  for (const std::string& item : items) out.push(item);
  return out;
}

Json mount(const char* target, const char* type, const char* source, std::vector<std::string> options) {
  return Json::object({{"destination", target}, {"type", type}, {"source", source}, {"options", texts(options)}});
}

Json resources(const ContainerSpec& spec) {
  Json out = Json::object();
  Json cpu = Json::object();
  if (spec.limits.cpu_shares) cpu.set("shares", *spec.limits.cpu_shares);
  if (spec.limits.cpu) cpu.set("quota", std::max<std::int64_t>(spec.limits.cpu->value * 100, 1000)).set("period", 100'000);
  if (!cpu.members().empty()) out.set("cpu", std::move(cpu));
  // Swap equal to memory: a container does not swap its way past the limit.
  if (spec.limits.memory) out.set("memory", Json::object({{"limit", spec.limits.memory->value}, {"swap", spec.limits.memory->value}}));
  if (spec.limits.pids) out.set("pids", Json::object({{"limit", *spec.limits.pids}}));
  Json devices = Json::array();
  devices.push(Json::object({{"allow", spec.privileged}, {"access", "rwm"}}));
  if (!spec.privileged) {
    // mknod of anything is harmless: opening is what counts. Then the usual ones: mem (null, zero, full, random, urandom), tty, ptmx, pts.
    devices.push(Json::object({{"allow", true}, {"type", "c"}, {"access", "m"}}));
    devices.push(Json::object({{"allow", true}, {"type", "b"}, {"access", "m"}}));
    for (const auto& [major, minor] : std::vector<std::pair<int, int>>{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}})
      devices.push(Json::object({{"allow", true}, {"type", "c"}, {"major", major}, {"minor", minor}, {"access", "rwm"}}));
    devices.push(Json::object({{"allow", true}, {"type", "c"}, {"major", 136}, {"access", "rwm"}}));
    for (const Device& device : spec.devices)
      devices.push(Json::object(
          {{"allow", true}, {"type", std::string(1, device.type)}, {"major", device.major}, {"minor", device.minor}, {"access", device.permissions}}));
  }
  out.set("devices", std::move(devices));
  return out;
}

}  // namespace

Json make_oci_config(const ContainerSpec& spec, const SandboxPaths& sandbox, const std::string& rootfs, const Json& seccomp) {
  Json user = Json::object({{"uid", spec.uid}, {"gid", spec.gid}});
  if (!spec.groups.empty()) {
    Json groups = Json::array();
    for (const std::int64_t gid : spec.groups) groups.push(gid);
    user.set("additionalGids", std::move(groups));
  }
  Json capabilities = Json::object();
  // A user that is not root gets its capabilities by the bounding set only, as a file's capabilities may raise them.
  for (const char* set : {"bounding", "effective", "permitted"})
    capabilities.set(set, spec.uid == 0 || std::string_view(set) == "bounding" ? texts(spec.capabilities) : Json::array());
  Json process = Json::object({{"terminal", spec.terminal},
                               {"user", std::move(user)},
                               {"args", texts(spec.argv)},
                               {"env", texts(spec.env)},
                               {"cwd", spec.cwd},
                               {"capabilities", std::move(capabilities)},
                               {"noNewPrivileges", spec.no_new_privileges}});

  Json mounts = Json::array();
  mounts.push(mount("/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}));
  mounts.push(mount("/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"}));
  mounts.push(mount("/dev/pts", "devpts", "devpts", {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}));
  mounts.push(mount("/dev/mqueue", "mqueue", "mqueue", {"nosuid", "noexec", "nodev"}));
  mounts.push(mount("/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", spec.privileged ? "rw" : "ro"}));
  mounts.push(mount("/sys/fs/cgroup", "cgroup", "cgroup", {"nosuid", "noexec", "nodev", "relatime", spec.privileged ? "rw" : "ro"}));
  if (!sandbox.shm.empty()) mounts.push(mount("/dev/shm", "bind", sandbox.shm.c_str(), {"rbind", "rw", "nosuid", "nodev"}));
  for (const MountSpec& one : spec.mounts)
    mounts.push(Json::object({{"destination", one.target}, {"type", one.type}, {"source", one.source}, {"options", texts(one.options)}}));

  Json namespaces = Json::array();
  namespaces.push(Json::object({{"type", "mount"}}));
  namespaces.push(Json::object({{"type", "cgroup"}}));
  if (!sandbox.pid.empty())
    namespaces.push(Json::object({{"type", "pid"}, {"path", sandbox.pid}}));
  else if (!spec.host_pid)
    namespaces.push(Json::object({{"type", "pid"}}));
  if (!sandbox.network.empty()) namespaces.push(Json::object({{"type", "network"}, {"path", sandbox.network}}));
  if (!sandbox.ipc.empty()) namespaces.push(Json::object({{"type", "ipc"}, {"path", sandbox.ipc}}));
  if (!sandbox.uts.empty()) namespaces.push(Json::object({{"type", "uts"}, {"path", sandbox.uts}}));

  Json linux = Json::object(
      {{"cgroupsPath", sandbox.cgroup}, {"namespaces", std::move(namespaces)}, {"resources", resources(spec)}, {"rootfsPropagation", "rslave"}});
  if (!spec.unmasked_proc) {
    linux.set("maskedPaths", texts({"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                                    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"}));
    linux.set("readonlyPaths", texts({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}));
  }
  if (!spec.sysctls.empty()) {
    Json sysctl = Json::object();
    for (const auto& [key, value] : spec.sysctls) sysctl.set(key, value);
    linux.set("sysctl", std::move(sysctl));
  }
  if (!spec.devices.empty()) {
    Json devices = Json::array();
    for (const Device& device : spec.devices)
      devices.push(Json::object({{"path", device.path},
                                 {"type", std::string(1, device.type)},
                                 {"major", device.major},
                                 {"minor", device.minor},
                                 {"fileMode", static_cast<std::int64_t>(device.mode)},
                                 {"uid", device.uid},
                                 {"gid", device.gid}}));
    linux.set("devices", std::move(devices));
  }
  if (spec.seccomp) linux.set("seccomp", seccomp);

  Json hooks = Json::object();
  for (const ContainerHook& hook : spec.hooks) {
    // As execv has them: the first of args is the program's own name.
    Json one = Json::object({{"path", hook.path}, {"args", texts(hook.args.empty() ? std::vector<std::string>{hook.path} : hook.args)}});
    if (!hook.env.empty()) one.set("env", texts(hook.env));
    if (hook.timeout_seconds > 0) one.set("timeout", hook.timeout_seconds);
    hooks.child(hook.stage).push(std::move(one));
  }

  Json annotations = Json::object();
  if (spec.in) annotations.set("fairlead.dev/stdin", "true");
  Json out = Json::object({{"ociVersion", "1.0.2"},
                       {"annotations", std::move(annotations)},
                       {"process", std::move(process)},
                       {"root", Json::object({{"path", rootfs}, {"readonly", spec.read_only_root}})},
                       {"mounts", std::move(mounts)},
                       {"linux", std::move(linux)}});
  if (!spec.hooks.empty()) out.set("hooks", std::move(hooks));
  return out;
}

}  // namespace fairlead::node
