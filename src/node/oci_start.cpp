// SPDX-License-Identifier: Apache-2.0
// How one attempt comes to run, step by step, and how every trace of it is wiped.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "blocks/block_devices.h"
#include "node/mounts.h"
#include "node/oci_records.h"
#include "node/oci_runtime.h"
#include "node/plan/oci_spec.h"
#include "node/seccomp.h"

namespace fairlead::node {
namespace {

// Processes that have `id` as an argument or as the end of one: conmon and crun of a container, also when cut off before they wrote a pid file.
std::vector<ProcessIdentity> processes_naming(const std::string& id) {
  std::vector<ProcessIdentity> out;
  auto names = list_dir("/proc");
  if (!names) return out;
  for (const std::string& name : *names) {
    if (name[0] < '0' || name[0] > '9') continue;
    const auto pid = static_cast<pid_t>(std::atoi(name.c_str()));
    if (pid == ::getpid()) continue;
    auto arguments = read_file("/proc/" + name + "/cmdline", 1_MiB);
    if (!arguments) continue;
    const auto parts = split(*arguments, '\0');
    if (std::none_of(parts.begin(), parts.end(), [&](const std::string& part) { return part == id; })) continue;
    if (auto identity = identify(pid)) out.push_back(*identity);
  }
  return out;
}

// `patience`: how long it may take to end by itself.
void kill_and_wait(const ProcessIdentity& identity, std::chrono::milliseconds patience = std::chrono::milliseconds(0)) {
  auto process = open_process(identity);
  if (!process) return;
  pollfd by_itself{.fd = process->get(), .events = POLLIN, .revents = 0};
  if (patience.count() > 0 && ::poll(&by_itself, 1, static_cast<int>(patience.count())) == 1) return;
  ::syscall(SYS_pidfd_send_signal, process->get(), SIGKILL, nullptr, 0);
  pollfd ended{.fd = process->get(), .events = POLLIN, .revents = 0};
  ::poll(&ended, 1, 5'000);
}

// What conmon reports on its sync pipe: {"data": PID} or {"data": -1, "message": "..."}.
Result<pid_t> read_report(int fd) {
  std::string text;
  char chunk[4096];
  while (text.find('\n') == std::string::npos) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int n = ::poll(&ready, 1, 60'000);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(Code::Unavailable, "conmon did not report within a minute");
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(chunk, static_cast<std::size_t>(got));
  }
  auto json = kube::parse_json(trim(text));
  if (!json) return fail(Code::Unavailable, "conmon ended without a report");
  const auto pid = (*json)["data"].integer(-1);
  if (pid <= 0) return fail(Code::Invalid, std::string(trim((*json)["message"].string_or("the container could not be created"))));
  return static_cast<pid_t>(pid);
}

}  // namespace

Result<void> OciRuntime::wipe_bundle(const std::string& uid, const std::string& container, const std::string& id) {
  const std::string here = bundle(id), state = options_.run_dir + "/crun";
  const std::string exit_file = options_.run_dir + "/exits/" + id;
  if (exists(here)) {
    auto text = read_file(here + "/process.json", 4_KiB);
    auto processes = text ? parse_processes(*text) : Result<ContainerProcesses>(fail(Code::NotFound, ""));
    if (processes) {
      kill_and_wait(processes->container);
      // The monitor then writes the exit file and ends. It is given the time, so as not to leave half a file.
      kill_and_wait(processes->monitor, std::chrono::seconds(2));
    } else {
      for (const ProcessIdentity& process : processes_naming(id)) kill_and_wait(process);
    }
  }
  if (exists(state + "/" + id)) {
    auto deleted = fairlead::run({.argv = {options_.crun, "--root=" + state, "delete", "--force", id}}, std::chrono::seconds(30));
    if (!deleted) return std::unexpected(std::move(deleted.error()));
    if (auto removed = remove_tree(state + "/" + id); !removed) return removed;
  }
  if (exists(here)) {
    if (auto unmounted = unmount_below(here); !unmounted) return unmounted;
    if (auto removed = cgroups_.remove(pod_cgroup(uid) + "/" + container); !removed) return removed;
    if (auto removed = remove_tree(here); !removed) return removed;
  }
  ::unlink(exit_file.c_str());
  // "ID.XXXXXX" of a monitor that was killed while it wrote.
  if (auto names = list_dir(options_.run_dir + "/exits"))
    for (const std::string& name : *names)
      if (name.starts_with(id + ".")) ::unlink((options_.run_dir + "/exits/" + name).c_str());
  return {};
}

Result<void> OciRuntime::prepare_root(const ContainerSpec& spec, const std::string& dir) {
  const std::string here = bundle(spec.id);
  for (const std::string& folder : {dir + "/upper", dir + "/work", here + "/rootfs"})
    if (auto made = make_dirs(folder, 0755); !made) return made;
  const std::string options = fmt::format("lowerdir={},upperdir={}/upper,workdir={}/work", spec.image.rootfs, dir, dir);
  auto root = ScopedMount::make("overlay", "overlay", here + "/rootfs", 0, options);
  if (!root) return std::unexpected(std::move(root.error()));
  std::move(*root).keep();
  // The working directory is made if the image lacks it, as other runtimes do. A path that leads out of the root fails at the start, with a message.
  std::string part;
  for (const std::string& name : split(spec.cwd, '/')) {
    if (name.empty()) continue;
    auto parent = open_beneath(here + "/rootfs", part, O_PATH | O_DIRECTORY);
    if (!parent) break;
    if (::mkdirat(parent->get(), name.c_str(), 0755) != 0 && errno != EEXIST) break;
    part += (part.empty() ? "" : "/") + name;
  }
  return {};
}

Result<void> OciRuntime::run_conmon(const ContainerSpec& spec, const std::string& log) {
  const std::string here = bundle(spec.id);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  const Fd report(ends[0]);
  Fd report_out(ends[1]);
  Command conmon{.argv = {options_.conmon,
                          "--api-version",
                          "1",
                          "-c",
                          spec.id,
                          "-u",
                          spec.id,
                          "-n",
                          spec.name,
                          "-r",
                          options_.crun,
                          "-b",
                          here,
                          "-p",
                          here + "/pid",
                          "-P",
                          here + "/conmon.pid",
                          "--exit-dir",
                          options_.run_dir + "/exits",
                          "-l",
                          "k8s-file:" + log,
                          "--full-attach",
                          "--no-sync-log",
                          "--runtime-arg",
                          "--root=" + options_.run_dir + "/crun"},
                 .environment = {{{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}, {"_OCI_SYNCPIPE", "3"}}},
                 .working_directory = here};
  if (spec.terminal) conmon.argv.emplace_back("-t");
  if (spec.in) conmon.argv.emplace_back("-i");
  // The terminal of a container outlives its clients: conmon would close it, and the container would be hung up.
  if (spec.in && (!spec.in_once || spec.terminal)) conmon.argv.emplace_back("--leave-stdin-open");
  conmon.pass = {{report_out.get(), 3}};
  // Open as long as the monitor lives, and it outlives every process of the container: till then the device's number is not given to another volume, whoever detaches this one.
  std::vector<blocks::OpenDevice> held;
  for (const Device& device : spec.devices) {
    if (device.volume.empty()) continue;
    auto open = blocks::open_device(device.volume, blocks::device_path(device.major, device.minor));
    if (!open) return std::unexpected(std::move(open.error()));
    if (open->device.major != device.major || open->device.minor != device.minor) return fail(Code::Unavailable, fmt::format("volume {} is at another device by now", device.volume));
    held.push_back(std::move(*open));
    conmon.pass.emplace_back(held.back().open.get(), 3 + static_cast<int>(held.size()));
  }
  auto child = Child::start(conmon);
  if (!child) return std::unexpected(std::move(child.error()));
  report_out.reset();
  step("conmon");
  auto pid = read_report(report.get());
  // The process that we started has forked the monitor and ends.
  (void)child->wait(std::chrono::seconds(10));
  child->detach();
  if (!pid) return std::unexpected(std::move(pid.error()));
  auto monitor = read_file(here + "/conmon.pid", 4_KiB);
  if (!monitor) return std::unexpected(std::move(monitor.error()));
  auto container_identity = identify(*pid);
  if (!container_identity) return fail(Code::Invalid, "the container ended before it was started");
  auto monitor_identity = identify(static_cast<pid_t>(std::atoi(monitor->c_str())));
  if (!monitor_identity) return fail(Code::Unavailable, "conmon ended early");
  step("created");
  return write_file_atomically(here + "/process.json", print_processes({.container = *container_identity, .monitor = *monitor_identity}), 0600);
}

Result<void> OciRuntime::start(const ContainerSpec& spec) {
  auto pod = read_pod(spec.pod_uid);
  if (!pod) return std::unexpected(std::move(pod.error()));
  auto sandbox = read_sandbox(spec.pod_uid);
  if (!sandbox) return pass(std::move(sandbox.error()), "start " + spec.name);
  const std::string dir = attempt_dir(spec.pod_uid, spec.name, spec.attempt), here = bundle(spec.id);
  if (auto known = read_attempt(spec.pod_uid, spec.name, spec.attempt)) {
    if (known->started || known->end) return {};
    if (auto wiped = wipe_bundle(spec.pod_uid, spec.name, spec.id); !wiped) return wiped;
    if (auto removed = remove_tree(dir); !removed) return removed;
  }
  // Two attempts are told about; older ones and their logs go.
  if (auto all = attempts(spec.pod_uid)) {
    for (const auto& [container, numbers] : *all)
      for (const int number : numbers)
        if (container == spec.name && number < spec.attempt - 1) {
          if (auto removed = remove_tree(attempt_dir(spec.pod_uid, container, number)); !removed) return removed;
          const std::string old = log_path(*pod, container, number);
          ::unlink(old.c_str());
          for (int i = 1; i < options_.log_files; ++i) ::unlink(fmt::format("{}.{}", old, i).c_str());
        }
  }
  Attempt attempt{.number = spec.attempt,
                  .id = spec.id,
                  .sandbox = sandbox->id,
                  .image = spec.image.reference,
                  .image_id = spec.image.id,
                  .created = clock_.now(),
                  .started = {},
                  .backoff_seconds = spec.backoff_seconds,
                  .devices = spec.granted,
                  .end = {}};
  if (auto written = write_attempt(spec.pod_uid, spec.name, attempt); !written) return written;
  step("recorded");

  const auto start_steps = [&]() -> Result<void> {
    if (auto prepared = prepare_root(spec, dir); !prepared) return prepared;
    step("root");
    ContainerSpec full = spec;
    if (!spec.termination_path.empty()) {
      if (auto written = write_file_atomically(dir + "/termination-log", "", 0666); !written) return written;
      full.mounts.push_back({.source = dir + "/termination-log", .target = spec.termination_path, .type = "bind", .options = {"rbind", "rw"}});
    }
    if (spec.termination_from_log)
      if (auto written = write_file_atomically(dir + "/message-from-log", "", 0600); !written) return written;
    const std::string run = pod_run_dir(spec.pod_uid);
    const SandboxPaths paths{.network = spec.host_network ? "" : run + "/net",
                             .ipc = spec.host_ipc ? "" : run + "/ipc",
                             .uts = spec.host_network ? "" : run + "/uts",
                             .pid = spec.share_processes ? run + "/pid" : "",
                             .shm = run + "/shm",
                             .cgroup = pod_cgroup(spec.pod_uid) + "/" + spec.name};
    const kube::Json config = make_oci_config(full, paths, here + "/rootfs", spec.seccomp ? default_seccomp(spec.capabilities) : kube::Json());
    if (auto written = write_file_atomically(here + "/config.json", kube::print_json(config), 0600); !written) return written;
    step("config");
    const std::string log = log_path(*pod, spec.name, spec.attempt);
    if (auto made = make_dirs(log.substr(0, log.find_last_of('/')), 0711); !made) return made;
    if (auto created = run_conmon(spec, log); !created) return created;
    step("process");
    auto started = run_checked({.argv = {options_.crun, "--root=" + options_.run_dir + "/crun", "start", spec.id}}, std::chrono::seconds(60));
    if (!started) return fail(Code::Invalid, started.error().message);
    step("running");
    return {};
  };
  auto done = start_steps();
  if (!done) {
    attempt.started.reset();
    attempt.end = Attempt::End{.code = 128, .signal = 0, .at = clock_.now(), .reason = "StartError", .message = done.error().message};
    if (auto written = write_attempt(spec.pod_uid, spec.name, attempt); !written) return written;
    (void)wipe_bundle(spec.pod_uid, spec.name, spec.id);
    return std::unexpected(std::move(done.error()));
  }
  attempt.started = clock_.now();
  if (auto written = write_attempt(spec.pod_uid, spec.name, attempt); !written) return written;
  step("started");
  log_info("container started", {{"pod", pod->space + "/" + pod->name}, {"container", spec.name}, {"attempt", std::to_string(spec.attempt)}});
  return {};
}

}  // namespace fairlead::node
