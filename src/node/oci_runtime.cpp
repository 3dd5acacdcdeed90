// SPDX-License-Identifier: Apache-2.0
// The sandbox and the life of attempts. How one attempt is started and wiped: oci_start.cpp; exec: oci_exec.cpp.
#include "node/oci_runtime.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rng.h"
#include "node/mounts.h"
#include "node/oci_records.h"

namespace fairlead::node {
namespace {

std::optional<int> number(const std::string& text) {
  if (text.empty() || text.size() > 9 || !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); })) return std::nullopt;
  return std::atoi(text.c_str());
}

Result<void> touch(const std::string& path, mode_t mode) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode));
  if (!fd) return fail_errno(errno, "make " + path);
  ::fchmod(fd.get(), mode);
  return {};
}

// In the child of in_child: system calls only.
int raise_loopback() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  if (::ioctl(fd, SIOCGIFFLAGS, &request) != 0) return errno;
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
  if (::ioctl(fd, SIOCSIFFLAGS, &request) != 0) return errno;
  return 0;
}

// Likewise. A setting of IPv6 in the network namespace that the process is in.
int switch_off(const char* setting) {
  char path[96] = "/proc/sys/net/ipv6/conf/";
  ::strcat(path, setting);
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = ::write(fd, "0", 1) == 1 ? 0 : errno;
  ::close(fd);
  return error;
}

// The first process of a pod's process namespace: reaps what is left to it, until it is killed. In a child of in_child, so system calls only.
// Its number on the node is written to `number_path`.
int hold_processes(const char* number_path, const char* pin) {
  if (::unshare(CLONE_NEWPID) != 0) return errno;
  ::prctl(PR_SET_NAME, "fairlead-pause");  // inherited: whoever finds the number can tell
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    ::setsid();
    ::syscall(SYS_close_range, 0U, ~0U, 0U);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(number, SIG_IGN);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    ::sigprocmask(SIG_SETMASK, &children, nullptr);
    while (true) {
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      int number = 0;
      ::sigwait(&children, &number);
    }
  }
  char digits[16];
  int at = sizeof digits;
  for (pid_t rest = child; rest > 0; rest /= 10) digits[--at] = static_cast<char>('0' + rest % 10);
  const int fd = ::open(number_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int error = fd < 0 || ::write(fd, digits + at, sizeof digits - static_cast<std::size_t>(at)) < 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  char space[64] = "/proc/";
  std::memcpy(space + 6, digits + at, sizeof digits - static_cast<std::size_t>(at));
  std::memcpy(space + 6 + sizeof digits - static_cast<std::size_t>(at), "/ns/pid", 8);
  if (error == 0 && ::mount(space, pin, nullptr, MS_BIND, nullptr) != 0) error = errno;
  if (error != 0) ::kill(child, SIGKILL);
  return error;
}

// Ends the process that holds a pod's process namespace, and with it everything inside.
void end_held_processes(const std::string& dir) {
  const auto text = read_file(dir + "/pause", 4_KiB);
  const pid_t pid = text ? std::atoi(text->c_str()) : 0;
  if (pid <= 1) return;
  // The number may belong to another process by now (only after a cut-off start; the folder is gone after a restart of the node).
  const auto name = read_file(fmt::format("/proc/{}/comm", pid), 4_KiB);
  if (!name || trim(*name) != "fairlead-pause") return;
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  ::poll(&ended, 1, 5'000);
  ::waitpid(pid, nullptr, WNOHANG);
}

// A process that has ended but was not reaped yet still has its entry in /proc: its pidfd tells.
std::optional<Fd> open_living(const ProcessIdentity& identity) {
  auto process = open_process(identity);
  if (!process) return std::nullopt;
  pollfd ended{.fd = process->get(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, 0) != 0) return std::nullopt;
  return std::move(*process);
}

// The namespace's file, if it still is one: an unmounted pin leaves an empty file.
std::string pinned_network(const std::string& dir) {
  const auto mounted = is_mount_point(dir + "/net");
  return mounted && *mounted ? dir + "/net" : "";
}

// The end of a file of lines in the CRI log format, without the prefixes.
std::string last_log_text(const std::string& path, std::size_t limit) {
  auto text = read_file(path, 64_MiB);
  if (!text) return {};
  if (text->size() > 64 * 1024) text->erase(0, text->size() - 64 * 1024);
  std::string out;
  for (const std::string& line : split(*text, '\n')) {
    std::size_t at = 0;
    for (int blanks = 0; blanks < 3 && at != std::string::npos; ++blanks) at = line.find(' ', at == 0 ? 0 : at + 1);
    if (at != std::string::npos) out += line.substr(at + 1) + "\n";
  }
  return out.size() > limit ? out.substr(out.size() - limit) : out;
}

}  // namespace

OciRuntime::OciRuntime(OciRuntimeOptions options, const Clock& clock, CgroupTree cgroups)
    : options_(std::move(options)), clock_(clock), cgroups_(std::move(cgroups)), cni_([this] {
        CniOptions cni = options_.cni;
        cni.state_dir = options_.run_dir + "/cni";
        return cni;
      }()) {}

Result<std::unique_ptr<OciRuntime>> OciRuntime::open(OciRuntimeOptions options, const Clock& clock) {
  for (const std::string& folder : {options.state_dir + "/pods", options.run_dir + "/pods", options.run_dir + "/containers",
                                    options.run_dir + "/exits", options.run_dir + "/crun", options.run_dir + "/cni", options.logs_dir})
    if (auto made = make_dirs(folder, 0711); !made) return std::unexpected(std::move(made.error()));
  for (const std::string& program : {options.conmon, options.crun, options.cni.plugins_dir + "/ptp", options.cni.plugins_dir + "/host-local"})
    if (!exists(program)) return fail(Code::NotFound, program + " is missing: install conmon, crun and containernetworking-plugins");
  auto cgroups = CgroupTree::open();
  if (!cgroups) return std::unexpected(std::move(cgroups.error()));
  if (auto made = cgroups->make(options.cgroup_parent, {}); !made) return std::unexpected(std::move(made.error()));
  return std::unique_ptr<OciRuntime>(new OciRuntime(std::move(options), clock, std::move(*cgroups)));
}

std::string OciRuntime::attempt_dir(const std::string& uid, const std::string& container, int attempt) const {
  return fmt::format("{}/containers/{}/{}", pod_dir(uid), container, attempt);
}

std::string OciRuntime::log_path(const PodRecord& record, const std::string& container, int attempt) const {
  return fmt::format("{}/{}_{}_{}/{}/{}.log", options_.logs_dir, record.space, record.name, record.uid, container, attempt);
}

Result<PodRecord> OciRuntime::read_pod(const std::string& uid) const {
  auto text = read_file(pod_dir(uid) + "/pod.json");
  if (!text) return std::unexpected(std::move(text.error()));
  return parse_pod_record(*text);
}

Result<Attempt> OciRuntime::read_attempt(const std::string& uid, const std::string& container, int attempt) const {
  auto text = read_file(attempt_dir(uid, container, attempt) + "/record.json");
  if (!text) return std::unexpected(std::move(text.error()));
  return parse_attempt(*text);
}

Result<void> OciRuntime::write_attempt(const std::string& uid, const std::string& container, const Attempt& attempt) const {
  const std::string dir = attempt_dir(uid, container, attempt.number);
  if (auto made = make_dirs(dir, 0711); !made) return made;
  return write_file_atomically(dir + "/record.json", print_attempt(attempt), 0600);
}

Result<Sandbox> OciRuntime::read_sandbox(const std::string& uid) const {
  auto text = read_file(pod_run_dir(uid) + "/sandbox.json");
  if (!text) return std::unexpected(std::move(text.error()));
  return parse_sandbox(*text);
}

Result<std::vector<std::pair<std::string, std::vector<int>>>> OciRuntime::attempts(const std::string& uid) const {
  std::vector<std::pair<std::string, std::vector<int>>> out;
  auto containers = list_dir(pod_dir(uid) + "/containers");
  if (!containers) {
    if (containers.error().code == Code::NotFound) return out;
    return std::unexpected(std::move(containers.error()));
  }
  for (const std::string& container : *containers) {
    auto names = list_dir(pod_dir(uid) + "/containers/" + container);
    if (!names) continue;
    std::vector<int> numbers;
    for (const std::string& name : *names)
      if (const auto value = number(name)) numbers.push_back(*value);
    std::sort(numbers.begin(), numbers.end());
    out.emplace_back(container, std::move(numbers));
  }
  return out;
}

Result<PodRecord> OciRuntime::accept(const PodRecord& record) {
  if (auto known = read_pod(record.uid)) return known;
  if (auto made = make_dirs(pod_dir(record.uid), 0711); !made) return std::unexpected(std::move(made.error()));
  if (auto written = write_file_durably(pod_dir(record.uid) + "/pod.json", print_pod_record(record), 0600); !written)
    return std::unexpected(std::move(written.error()));
  step("accepted");
  return record;
}

Result<Sandbox> OciRuntime::ensure_sandbox(const SandboxSpec& spec) {
  const std::string dir = pod_run_dir(spec.pod_uid);
  if (auto known = read_sandbox(spec.pod_uid)) return known;
  // Whatever an unfinished attempt left.
  const std::string intent = dir + "/intent";
  if (auto old = read_file(intent)) {
    if (auto removed = cni_.remove(*old, pinned_network(dir)); !removed) return std::unexpected(std::move(removed.error()));
  }
  end_held_processes(dir);
  if (auto unmounted = unmount_below(dir); !unmounted) return std::unexpected(std::move(unmounted.error()));
  if (auto removed = remove_tree(dir); !removed) return std::unexpected(std::move(removed.error()));
  if (auto made = make_dirs(dir + "/shm", 0711); !made) return std::unexpected(std::move(made.error()));

  Sandbox sandbox{.id = hex(secret_bytes(8)), .ip = {}};
  if (auto written = write_file_atomically(intent, sandbox.id, 0600); !written) return std::unexpected(std::move(written.error()));
  if (auto made = cgroups_.make(pod_cgroup(spec.pod_uid), spec.limits); !made) return std::unexpected(std::move(made.error()));
  step("cgroup");

  const std::string net = dir + "/net", ipc = dir + "/ipc", uts = dir + "/uts";
  for (const std::string& pin : {net, ipc, uts})
    if (auto made = touch(pin, 0600); !made) return std::unexpected(std::move(made.error()));
  const bool own_network = !spec.host_network, own_ipc = !spec.host_ipc;
  const int flags = (own_network ? CLONE_NEWNET | CLONE_NEWUTS : 0) | (own_ipc ? CLONE_NEWIPC : 0);
  const bool six = own_network && !options_.cni.pod_cidr6.empty();
  const char* hostname = spec.hostname.c_str();
  const std::size_t hostname_size = spec.hostname.size();
  const char *net_path = net.c_str(), *ipc_path = ipc.c_str(), *uts_path = uts.c_str();
  auto pinned = in_child("make the pod's namespaces", [=]() -> int {
    if (::unshare(flags) != 0) return errno;
    if (own_network) {
      if (::sethostname(hostname, hostname_size) != 0) return errno;
      if (const int error = raise_loopback(); error != 0) return error;
      // The node gives addresses out and is the only neighbour: they count at once, and nobody else announces ways.
      if (six)
        for (const char* setting : {"all/accept_dad", "default/accept_dad", "all/accept_ra", "default/accept_ra"})
          if (const int error = switch_off(setting); error != 0) return error;
      if (::mount("/proc/self/ns/net", net_path, nullptr, MS_BIND, nullptr) != 0) return errno;
      if (::mount("/proc/self/ns/uts", uts_path, nullptr, MS_BIND, nullptr) != 0) return errno;
    }
    if (own_ipc && ::mount("/proc/self/ns/ipc", ipc_path, nullptr, MS_BIND, nullptr) != 0) return errno;
    return 0;
  });
  if (!pinned) return std::unexpected(std::move(pinned.error()));
  auto shm = own_ipc ? ScopedMount::make("tmpfs", "shm", dir + "/shm", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=64m")
                     : ScopedMount::bind("/dev/shm", dir + "/shm");
  if (!shm) return std::unexpected(std::move(shm.error()));
  std::move(*shm).keep();
  if (spec.share_processes) {
    const std::string number_path = dir + "/pause", pin = dir + "/pid";
    if (auto made = touch(pin, 0600); !made) return std::unexpected(std::move(made.error()));
    const char *number_text = number_path.c_str(), *pin_text = pin.c_str();
    auto held = in_child("make the pod's process namespace", [=] { return hold_processes(number_text, pin_text); });
    if (!held) return std::unexpected(std::move(held.error()));
    auto text = read_file(number_path, 4_KiB);
    if (!text) return std::unexpected(std::move(text.error()));
    // A leaf of its own: with version 2 a group that has groups below takes no process. No container can have this name.
    const std::string leaf = pod_cgroup(spec.pod_uid) + "/_processes";
    if (auto made = cgroups_.make(leaf, {}); !made) return std::unexpected(std::move(made.error()));
    if (auto moved = cgroups_.enter(leaf, std::atoi(text->c_str())); !moved) return std::unexpected(std::move(moved.error()));
  }
  step("namespaces");

  if (own_network) {
    auto ip = cni_.add(sandbox.id, net);
    if (!ip) return std::unexpected(std::move(ip.error()));
    sandbox.ip = *ip;
  }
  step("network");
  if (auto written = write_file_atomically(dir + "/sandbox.json", print_sandbox(sandbox), 0600); !written)
    return std::unexpected(std::move(written.error()));
  step("sandbox");
  return sandbox;
}

std::string OciRuntime::termination_message(const PodRecord& pod, const std::string& container, const Attempt& attempt) const {
  const std::string dir = attempt_dir(pod.uid, container, attempt.number);
  auto text = read_file(dir + "/termination-log", 1_MiB);
  if (text && !text->empty()) return text->substr(0, 4096);
  if (exists(dir + "/message-from-log") && attempt.end && attempt.end->code != 0)
    return last_log_text(log_path(pod, container, attempt.number), 2048);
  return {};
}

Result<void> OciRuntime::end(const PodRecord& pod, const std::string& container, Attempt& attempt, Attempt::End how) {
  attempt.end = std::move(how);
  if (cgroups_.oom_kills(pod_cgroup(pod.uid) + "/" + container) > 0) attempt.end->reason = "OOMKilled";
  if (attempt.end->message.empty()) attempt.end->message = termination_message(pod, container, attempt);
  if (auto written = write_attempt(pod.uid, container, attempt); !written) return written;
  log_info("container ended", {{"pod", pod.space + "/" + pod.name},
                               {"container", container},
                               {"attempt", std::to_string(attempt.number)},
                               {"exit_code", std::to_string(attempt.end->code)},
                               {"reason", attempt.end->reason}});
  step("ended");
  return wipe_bundle(pod.uid, container, attempt.id);
}

Result<void> OciRuntime::settle(const PodRecord& pod, const std::string& container, Attempt& attempt) {
  const std::string here = bundle(attempt.id), exit_file = options_.run_dir + "/exits/" + attempt.id;
  if (attempt.end) return exists(here) ? wipe_bundle(pod.uid, container, attempt.id) : Result<void>();
  const auto from_exit_file = [&]() -> std::optional<Attempt::End> {
    auto text = read_file(exit_file, 4_KiB);
    struct stat info{};
    if (!text || text->empty() || ::stat(exit_file.c_str(), &info) != 0) return std::nullopt;
    const int code = std::atoi(text->c_str());
    return Attempt::End{.code = code,
                        .signal = 0,
                        .at = Instant(std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::nanoseconds(info.st_mtim.tv_nsec)),
                        .reason = code == 0 ? "Completed" : "Error",
                        .message = {}};
  };
  const auto unknown = [&](const char* why) {
    return Attempt::End{.code = 137, .signal = 0, .at = clock_.now(), .reason = "ContainerStatusUnknown", .message = why};
  };
  auto told = read_file(here + "/process.json", 4_KiB);
  auto processes = told ? parse_processes(*told) : Result<ContainerProcesses>(fail(Code::NotFound, ""));
  if (!attempt.started) {
    // A start that was cut off after the container began to run counts as done.
    if (auto exited = from_exit_file()) {
      attempt.started = attempt.created;
      return end(pod, container, attempt, std::move(*exited));
    }
    if (!processes || !open_living(processes->container)) return {};
    auto state = fairlead::run({.argv = {options_.crun, "--root=" + options_.run_dir + "/crun", "state", attempt.id}}, std::chrono::seconds(10));
    if (!state || state->exit.code != 0) return {};
    auto json = kube::parse_json(state->out);
    if (!json || (*json)["status"].string() != "running") return {};
    attempt.started = clock_.now();
    return write_attempt(pod.uid, container, attempt);
  }
  if (auto exited = from_exit_file()) return end(pod, container, attempt, std::move(*exited));
  if (!processes) return end(pod, container, attempt, unknown("The node was restarted while the container ran"));
  const bool monitored = open_living(processes->monitor).has_value();
  auto container_process = open_living(processes->container);
  if (monitored) return {};  // running, or its exit file is about to come
  if (container_process) ::syscall(SYS_pidfd_send_signal, container_process->get(), SIGKILL, nullptr, 0);
  // The monitor may have written the file just before its end.
  if (auto exited = from_exit_file()) return end(pod, container, attempt, std::move(*exited));
  return end(pod, container, attempt, unknown("The process that watched the container is gone"));
}

Result<PodOnNode> OciRuntime::look(const std::string& pod_uid) { return read_all(pod_uid, Settling::Yes); }
Result<PodOnNode> OciRuntime::peek(const std::string& pod_uid) { return read_all(pod_uid, Settling::No); }

Result<PodOnNode> OciRuntime::read_all(const std::string& pod_uid, Settling settling) {
  auto record = read_pod(pod_uid);
  if (!record) return std::unexpected(std::move(record.error()));
  PodOnNode out{.record = *record, .sandbox = {}, .containers = {}};
  if (auto sandbox = read_sandbox(pod_uid)) out.sandbox = *sandbox;
  auto all = attempts(pod_uid);
  if (!all) return std::unexpected(std::move(all.error()));
  for (const auto& [container, numbers] : *all) {
    PodOnNode::Container& seen = out.containers[container];
    for (auto it = numbers.rbegin(); it != numbers.rend(); ++it) {
      auto attempt = read_attempt(pod_uid, container, *it);
      // Cut off before its record was written: nothing of it exists. One that cannot be read for want of a descriptor is none of these.
      if (!attempt && attempt.error().code != Code::NotFound && attempt.error().code != Code::Invalid) return std::unexpected(std::move(attempt.error()));
      if (!attempt) continue;
      if (exists(bundle(attempt->id))) seen.held.push_back(*attempt);
      if (!seen.latest) {
        if (settling == Settling::Yes)
          if (auto settled = settle(*record, container, *attempt); !settled) return std::unexpected(std::move(settled.error()));
        seen.latest = std::move(*attempt);
      } else if (!seen.previous) {
        seen.previous = std::move(*attempt);
      }
    }
  }
  return out;
}

Result<std::vector<std::string>> OciRuntime::list() { return list_dir(options_.state_dir + "/pods"); }

Result<void> OciRuntime::signal(const std::string& pod_uid, const std::string& container, int number) {
  auto all = attempts(pod_uid);
  if (!all) return std::unexpected(std::move(all.error()));
  for (const auto& [name, numbers] : *all) {
    if (name != container || numbers.empty()) continue;
    auto attempt = read_attempt(pod_uid, container, numbers.back());
    if (!attempt || !attempt->running()) break;
    auto text = read_file(bundle(attempt->id) + "/process.json", 4_KiB);
    if (!text) break;
    auto processes = parse_processes(*text);
    if (!processes) return std::unexpected(std::move(processes.error()));
    auto process = open_living(processes->container);
    if (!process) break;
    if (::syscall(SYS_pidfd_send_signal, process->get(), number, nullptr, 0) != 0) return fail_errno(errno, "signal container " + container);
    return {};
  }
  return fail(Code::NotFound, "container " + container + " is not running");
}

Result<void> OciRuntime::release_sandbox(const std::string& pod_uid) {
  auto record = read_pod(pod_uid);
  if (!record) return record.error().code == Code::NotFound ? Result<void>() : Result<void>(std::unexpected(std::move(record.error())));
  auto all = attempts(pod_uid);
  if (!all) return std::unexpected(std::move(all.error()));
  for (const auto& [container, numbers] : *all) {
    for (const int attempt_number : numbers) {
      auto attempt = read_attempt(pod_uid, container, attempt_number);
      if (!attempt) continue;
      if (attempt->end || !attempt->started) {
        if (auto wiped = wipe_bundle(pod_uid, container, attempt->id); !wiped) return wiped;
        continue;
      }
      (void)signal(pod_uid, container, SIGKILL);
      if (auto ended = end(*record, container, *attempt, {.code = 137, .signal = SIGKILL, .at = clock_.now(), .reason = "Error", .message = {}});
          !ended)
        return ended;
    }
  }
  const std::string dir = pod_run_dir(pod_uid);
  // First it stops being a sandbox, then its parts go: half of one must never be taken for a whole.
  if (::unlink((dir + "/sandbox.json").c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "release the sandbox");
  step("sandbox closed");
  if (auto id = read_file(dir + "/intent")) {
    if (auto removed = cni_.remove(*id, pinned_network(dir)); !removed) return removed;
  }
  step("network released");
  end_held_processes(dir);
  if (auto unmounted = unmount_below(pod_dir(pod_uid)); !unmounted) return unmounted;
  if (auto unmounted = unmount_below(dir); !unmounted) return unmounted;
  step("unmounted");
  if (auto removed = cgroups_.remove(pod_cgroup(pod_uid)); !removed) return removed;
  return remove_tree(dir);
}

Result<void> OciRuntime::forget(const std::string& pod_uid) {
  auto record = read_pod(pod_uid);
  if (!record && record.error().code != Code::NotFound) return std::unexpected(std::move(record.error()));
  if (record) {
    if (auto released = release_sandbox(pod_uid); !released) return released;
    if (auto removed = remove_tree(fmt::format("{}/{}_{}_{}", options_.logs_dir, record->space, record->name, record->uid)); !removed) return removed;
  }
  // The record goes last: until then a new process knows that there is something to remove.
  auto names = list_dir(pod_dir(pod_uid));
  if (!names) return names.error().code == Code::NotFound ? Result<void>() : Result<void>(std::unexpected(std::move(names.error())));
  for (const std::string& name : *names)
    if (name != "pod.json")
      if (auto removed = remove_tree(pod_dir(pod_uid) + "/" + name); !removed) return removed;
  step("forgotten");
  return remove_tree(pod_dir(pod_uid));
}

void OciRuntime::rotate_logs() {
  auto uids = list();
  if (!uids) return;
  for (const std::string& uid : *uids) {
    auto record = read_pod(uid);
    auto all = attempts(uid);
    if (!record || !all) continue;
    for (const auto& [container, numbers] : *all) {
      if (numbers.empty()) continue;
      const std::string log = log_path(*record, container, numbers.back());
      struct stat info{};
      if (::stat(log.c_str(), &info) != 0 || info.st_size < options_.log_file_size.value) continue;
      auto attempt = read_attempt(uid, container, numbers.back());
      if (!attempt || !attempt->running()) continue;
      for (int i = options_.log_files - 1; i > 1; --i) ::rename(fmt::format("{}.{}", log, i - 1).c_str(), fmt::format("{}.{}", log, i).c_str());
      if (::rename(log.c_str(), (log + ".1").c_str()) != 0) continue;
      // conmon writes on into the renamed file until this message makes it open the name anew: nothing is lost in between.
      const Fd control(::open((bundle(attempt->id) + "/ctl").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
      constexpr std::string_view reopen = "2 0 0\n";
      if (!control || ::write(control.get(), reopen.data(), reopen.size()) < 0) log_warn("log could not be rotated", {{"log", log}});
    }
  }
}

std::vector<ContainerUsage> OciRuntime::usage() {
  std::vector<ContainerUsage> out;
  auto uids = list();
  if (!uids) return out;
  for (const std::string& uid : *uids) {
    auto all = attempts(uid);
    if (!all) continue;
    for (const auto& [container, numbers] : *all) {
      if (numbers.empty()) continue;
      auto attempt = read_attempt(uid, container, numbers.back());
      if (!attempt || !attempt->running()) continue;
      const auto used = cgroups_.usage(pod_cgroup(uid) + "/" + container);
      out.push_back(
          {.pod_uid = uid, .container = container, .memory_bytes = used.memory_bytes, .cpu_nanoseconds = used.cpu_nanoseconds, .pids = used.pids});
    }
  }
  return out;
}

std::vector<std::string> held_capabilities() {
  std::vector<std::string> out;
  for (cap_value_t value = 0; value <= cap_max_bits(); ++value) {
    if (cap_get_bound(value) != 1) continue;
    char* name = cap_to_name(value);
    if (name == nullptr) continue;
    std::string text = name;
    cap_free(name);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (text.starts_with("CAP_")) out.push_back(std::move(text));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Device> host_devices() {
  std::vector<Device> out;
  const std::function<void(const std::string&, int)> walk = [&](const std::string& folder, int depth) {
    auto names = list_dir(folder);
    if (!names || depth > 3) return;
    for (const std::string& name : *names) {
      const std::string path = folder + "/" + name;
      struct stat info{};
      if (::lstat(path.c_str(), &info) != 0) continue;
      // The container has its own of these.
      if (path == "/dev/pts" || path == "/dev/shm" || path == "/dev/mqueue" || path == "/dev/ptmx" || path == "/dev/console" || path == "/dev/tty")
        continue;
      if (path == "/dev/null" || path == "/dev/zero" || path == "/dev/full" || path == "/dev/random" || path == "/dev/urandom") continue;
      if (S_ISDIR(info.st_mode)) walk(path, depth + 1);
      if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode))
        out.push_back({.path = path,
                       .type = S_ISBLK(info.st_mode) ? 'b' : 'c',
                       .major = major(info.st_rdev),
                       .minor = minor(info.st_rdev),
                       .mode = info.st_mode & 0777U});
    }
  };
  walk("/dev", 0);
  return out;
}

}  // namespace fairlead::node
