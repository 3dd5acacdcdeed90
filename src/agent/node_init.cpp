// SPDX-License-Identifier: Apache-2.0
#include "agent/node_init.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "kube/json.h"
#include "node/cgroup.h"
#include "node/netlink.h"

namespace fairlead::agent {
namespace {
using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr const char* run_dir = "/run/fairlead";

// A folder or file that a fresh tmpfs on /run would hide.
struct Kept {
  std::string path;
  Fd fd;
};

Result<void> mount_own_run(const node::NodeConfig& config) {
  std::vector<Kept> kept;
  for (const std::string& path : {config.node_dir, config.images_dir, config.volumes_dir}) {
    char resolved[4096];
    if (::realpath(path.c_str(), resolved) == nullptr || !std::string(resolved).starts_with("/run/")) continue;
    Fd fd(::open(resolved, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (fd) kept.push_back({.path = resolved, .fd = std::move(fd)});
  }
  char resolv[4096];
  const bool resolv_in_run = ::realpath("/etc/resolv.conf", resolv) != nullptr && std::string(resolv).starts_with("/run/");
  const auto resolv_text = read_file("/etc/resolv.conf", 1_MiB);
  if (::mount("run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=256m") != 0) return fail_errno(errno, "mount /run");
  for (const Kept& one : kept) {
    if (auto made = make_dirs(one.path); !made) return made;
    if (::mount(fmt::format("/proc/self/fd/{}", one.fd.get()).c_str(), one.path.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
      return fail_errno(errno, "mount " + one.path);
  }
  if (resolv_in_run && resolv_text) {
    const std::string path = resolv;
    if (auto made = make_dirs(path.substr(0, path.find_last_of('/'))); !made) return made;
    if (auto written = write_file_atomically(path, *resolv_text, 0644); !written) return written;
  }
  for (const char* folder : {"/run/lock", run_dir})
    if (auto made = make_dirs(folder); !made) return made;
  return {};
}

Result<void> set_up_mounts(const node::NodeConfig& config) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return fail_errno(errno, "make mounts private");
  // /proc first: until it is of our process namespace, /proc/self means another process.
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) return fail_errno(errno, "mount /proc");
  if (auto run = mount_own_run(config); !run) return run;
  // crun refuses a version 1 set-up that also has a version 2 mount; it makes folders where that mount was, so they get a place that vanishes with
  // us.
  if (exists("/sys/fs/cgroup/unified/cgroup.procs")) {
    if (::umount2("/sys/fs/cgroup/unified", MNT_DETACH) != 0) return fail_errno(errno, "unmount cgroup2");
    if (::mount("none", "/sys/fs/cgroup/unified", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") != 0)
      return fail_errno(errno, "mount over cgroup2");
  }
  return {};
}

Result<void> set_up(const node::NodeConfig& config) {
  if (auto done = set_up_mounts(config); !done) return done;
  auto cgroups = node::CgroupTree::open();
  if (!cgroups) return std::unexpected(std::move(cgroups.error()));
  // A group of its own for us and the agent: with version 2 a group that hands controllers down may hold no processes.
  const std::string own = config.cgroup_parent + "/agent";
  if (auto made = cgroups->make(own, {}); !made) return made;
  if (auto entered = cgroups->enter(own, ::getpid()); !entered) return entered;
  if (::sethostname(config.node_name.c_str(), config.node_name.size()) != 0) return fail_errno(errno, "set the host name");
  if (auto up = node::set_link_up("lo"); !up) return up;
  for (const char* setting : {"/proc/sys/net/ipv4/ip_forward"}) {
    const Fd fd(::open(setting, O_WRONLY | O_CLOEXEC));
    if (!fd || ::write(fd.get(), "1", 1) != 1) return fail_errno(errno, std::string("set ") + setting);
  }
  if (!config.pod_cidr6.empty()) return node::route_ipv6();
  return {};
}

// pid 1 of the node after its set-up.
class FirstProcess {
 public:
  FirstProcess(const node::NodeConfig& config, std::string program, std::string config_path)
      : config_(config), program_(std::move(program)), config_path_(std::move(config_path)) {}

  [[noreturn]] void run() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&wanted, number);
    ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
    signals_ = Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    links_ = Fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR;
    if (!signals_ || !links_ || ::bind(links_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      log_error("first process cannot listen", {{"reason", fail_errno(errno, "listen").error().message}});
      ::_exit(1);
    }
    while (true) {
      int wait = -1;
      if (stopping_)
        wait = stop_step();
      else if (agent_ <= 0)
        wait = start_step();
      pollfd waits[2] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}, {.fd = links_.get(), .events = POLLIN, .revents = 0}};
      ::poll(waits, 2, wait);
      char drained[8192];
      while (::recv(links_.get(), drained, sizeof drained, 0) > 0) {
      }
      signalfd_siginfo info{};
      while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        if (info.ssi_signo != SIGCHLD && !stopping_) begin_stop();
      reap();
    }
  }

 private:
  // Starts the agent if it is time and the link is there; how long to wait otherwise.
  int start_step() {
    const auto now = Steady::now();
    if (now < start_at_) return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(start_at_ - now).count());
    auto address = node::address_of(config_.fabric_interface);
    if (!address || *address != config_.node_ip) return -1;  // the kernel tells when that changes
    auto child = Child::start({.argv = {program_, "run", "--config", config_path_, "--run-dir", run_dir},
                               .environment = {},
                               .working_directory = "/",
                               .stdout_fd = 1,
                               .stderr_fd = 2});
    started_ = now;
    if (!child) {
      log_error("the agent cannot be started", {{"reason", child.error().message}});
      back_off();
      return 0;
    }
    agent_ = child->pid();
    child->detach();  // reaped below, like everyone
    return -1;
  }

  void back_off() {
    pause_ = Steady::now() - started_ > 30s ? 200ms : std::min<std::chrono::milliseconds>(pause_ * 2, 5000ms);
    start_at_ = Steady::now() + pause_;
  }

  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != agent_) continue;
      agent_ = -1;
      if (stopping_) continue;
      back_off();
      log_warn("the agent ended and is started again", {{"status", std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status))},
                                                        {"pause_ms", std::to_string(pause_.count())}});
    }
  }

  void begin_stop() {
    stopping_ = true;
    stop_since_ = Steady::now();
    // The agent first, so that it does not start again what ends now.
    if (agent_ > 0) ::kill(agent_, SIGKILL);
    log_info("the node stops");
  }

  int stop_step() {
    if (agent_ > 0) return 100;
    if (!told_) {
      ::kill(-1, SIGTERM);
      told_ = true;
    }
    auto names = list_dir("/proc");
    const auto processes =
        names ? std::count_if(names->begin(), names->end(), [](const std::string& name) { return name[0] >= '0' && name[0] <= '9'; }) : 0;
    // Ends with us in any case: the kernel kills what is left of the process namespace.
    if (processes <= 1 || Steady::now() - stop_since_ > 5s) ::_exit(0);
    return 50;
  }

  const node::NodeConfig& config_;
  const std::string program_, config_path_;
  Fd signals_, links_;
  pid_t agent_ = -1;
  Steady::time_point started_{}, start_at_{}, stop_since_{};
  std::chrono::milliseconds pause_{100};
  bool stopping_ = false, told_ = false;
};

}  // namespace

Result<void> start_node(const node::NodeConfig& config, const std::string& program, const std::string& config_path) {
  int go[2], report[2];
  if (::pipe2(go, O_CLOEXEC) != 0 || ::pipe2(report, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  const Fd go_in(go[0]), report_in(report[0]);
  Fd go_out(go[1]), report_out(report[1]);
  if (::unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID) != 0) return fail_errno(errno, "enter new namespaces");
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork the first process");
  if (pid == 0) {
    ::setsid();
    go_out.reset();
    // Not before we are written down: a first process that nobody knows of could never be ended.
    char byte = 0;
    if (::read(go_in.get(), &byte, 1) != 1) ::_exit(1);
    auto done = set_up(config);
    const std::string text = done ? "ok" : done.error().message;
    (void)!::write(report_out.get(), text.data(), text.size());
    report_out.reset();
    if (!done) ::_exit(1);
    FirstProcess(config, program, config_path).run();
  }
  report_out.reset();
  const auto give_up = [&](std::string why) -> Result<void> {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::unlink((config.node_dir + "/init.json").c_str());
    return fail(Code::Internal, std::move(why));
  };
  auto identity = identify(pid);
  if (!identity) return give_up(identity.error().message);
  const kube::Json record =
      kube::Json::object({{"pid", static_cast<std::int64_t>(identity->pid)}, {"start_ticks", static_cast<std::int64_t>(identity->start_ticks)}});
  if (auto written = write_file_durably(config.node_dir + "/init.json", kube::print_json(record) + "\n", 0644); !written)
    return give_up(written.error().message);
  if (::write(go_out.get(), "g", 1) != 1) return give_up("the first process ended at once");
  std::string told;
  char chunk[4096];
  for (ssize_t n; (n = ::read(report_in.get(), chunk, sizeof chunk)) != 0;) {
    if (n < 0 && errno != EINTR) break;
    if (n > 0) told.append(chunk, static_cast<std::size_t>(n));
  }
  if (told != "ok") return give_up(told.empty() ? "the first process ended during its set-up" : told);
  return {};
}

}  // namespace fairlead::agent
