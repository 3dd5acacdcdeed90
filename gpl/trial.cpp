// SPDX-License-Identifier: GPL-3.0-or-later
#include "trial.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"
#include "prepare.h"

namespace fairlead::companion {
namespace {

constexpr const char* kFolder = "/run/slurm/trial";  // in memory, of this container alone
constexpr auto kLimit = std::chrono::seconds(20);
constexpr int kPace = 100;  // ms
constexpr const char* kBegins = "Running as primary controller";
constexpr std::size_t kMaxInput = 4 << 20, kMaxLog = 1 << 20;

Result<int> free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return fail_errno(errno, "find a free port");
  return ntohs(address.sin_port);
}

// The name of the user, so that the daemon starts as whom it is to run: a process that changes its user later forgets to end with its parent.
Result<passwd> user_slurm() {
  const passwd* entry = ::getpwnam("slurm");
  if (!entry) return fail(Code::NotFound, "the image has no user slurm");
  return *entry;
}

std::string missing_plugin(const std::string& slurm_conf) {
  for (const auto& [key, file] : worker_plugins(slurm_conf)) {
    bool folder = false, there = false;
    for (const char* place : {"/usr/lib/*/slurm-wlm/", "/usr/lib/*/slurm/", "/usr/lib64/slurm/", "/usr/lib/slurm/"}) {
      glob_t found{};
      folder = ::glob((std::string(place) + "task_*.so").c_str(), 0, nullptr, &found) == 0 || folder;
      ::globfree(&found);
      there = ::glob((place + file).c_str(), 0, nullptr, &found) == 0 || there;
      ::globfree(&found);
    }
    if (folder && !there) return fmt::format("{}: this image has no plug-in {}, and slurmd would not start", key, file);
  }
  return "";
}

struct Ended {
  bool serves = false, timed_out = false;
  Exit exit;
  std::string log;
};

Result<Ended> run_daemon(const std::string& conf_path, const passwd& user) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  const Fd out(ends[0]);
  Fd in(ends[1]);
  const pid_t self = ::getpid();
  const uid_t uid = user.pw_uid;
  const gid_t gid = user.pw_gid;
  const bool root = ::geteuid() == 0;
  const char* path = std::getenv("PATH");
  const std::map<std::string, std::string> environment = {{"PATH", path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"}, {"SLURM_CONF", conf_path}};
  auto child = Child::start({.argv = {"slurmctld", "-D"},
                             .environment = environment,
                             .stderr_fd = in.get(),
                             .die_with_parent = true,
                             .before_exec = [=] {
                               if (root && (::setgroups(0, nullptr) != 0 || ::setgid(gid) != 0 || ::setuid(uid) != 0)) return errno;
                               if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
                               return ::getppid() == self ? 0 : ECANCELED;  // killed meanwhile: nobody would end it
                             }});
  if (!child) return std::unexpected(std::move(child.error()));
  in.reset();
  const SystemClock clock;
  const auto until = clock.monotonic() + kLimit;
  Ended ended;
  while (true) {
    if (clock.monotonic() > until) {
      ended.timed_out = true;
      break;
    }
    pollfd watched{out.get(), POLLIN, 0};
    const int ready = ::poll(&watched, 1, kPace);
    if (ready < 0 || (ready == 0 && ended.log.find(kBegins) == std::string::npos)) continue;
    if (ready > 0) {
      char buffer[4096];
      const ssize_t n = ::read(out.get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;  // it has ended
      if (ended.log.size() < kMaxLog) ended.log.append(buffer, static_cast<std::size_t>(n));
      continue;
    }
    // It says so before it has loaded the plug-ins for priorities and submissions. Once it answers it has all of them.
    auto answer = run({.argv = {"scontrol", "ping"}, .environment = environment}, std::chrono::seconds(3));
    if (answer && answer->exit.code == 0 && answer->out.find("is UP") != std::string::npos) {
      ended.serves = true;
      break;
    }
  }
  if (ended.serves || ended.timed_out) (void)child->signal(SIGKILL);  // nothing of it is worth saving
  auto exit = child->wait(std::chrono::seconds(5));
  if (exit && *exit) ended.exit = **exit;
  return ended;
}

Result<Ended> try_files(const std::map<std::string, std::string>& files) {
  const std::string folder = kFolder;
  const Fd lock(::open("/run/slurm/trial.lock", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return fail_errno(errno, "another trial is under way");
  auto user = user_slurm();
  if (!user) return std::unexpected(std::move(user.error()));
  if (exists(folder))  // of one that was killed
    if (auto gone = remove_tree(folder); !gone) return std::unexpected(std::move(gone.error()));
  struct Cleanup {
    std::string folder;
    ~Cleanup() { (void)remove_tree(folder); }
  } cleanup{folder};
  if (auto made = make_dirs(folder, 0755); !made) return std::unexpected(std::move(made.error()));
  if (auto made = owned_dir(folder + "/state", "slurm", 0700); !made) return std::unexpected(std::move(made.error()));
  char key[64];
  if (::getrandom(key, sizeof key, 0) != sizeof key) return fail_errno(errno, "make a key");
  if (auto written = write_for_slurm(folder + "/" + kTrialKey, std::string(key, sizeof key), 0400); !written) return std::unexpected(std::move(written.error()));
  auto port = free_port();
  if (!port) return std::unexpected(std::move(port.error()));
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) return fail_errno(errno, "learn this machine's name");
  for (const auto& [name, content] : files) {
    const std::string text = name == "slurm.conf" ? conf_for_trial(content, std::string(host).substr(0, std::string(host).find('.')), *port, folder) : content;
    if (auto written = write_file_atomically(folder + "/" + name, text, 0644); !written) return std::unexpected(std::move(written.error()));
  }
  return run_daemon(folder + "/slurm.conf", *user);
}

}  // namespace

Result<std::string> read_input() {
  std::string out;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(0, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read the files");
    if (n == 0) return out;
    out.append(buffer, static_cast<std::size_t>(n));
    if (out.size() > kMaxInput) return fail(Code::Exhausted, "the files are larger than 4 MiB");
  }
}

int run_trial() {
  const auto unknown = [](const Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    return 3;
  };
  auto input = read_input();
  if (!input) return unknown(input.error());
  auto files = read_trial_files(*input);
  if (!files) return unknown(files.error());
  if (const std::string missing = missing_plugin(files->at("slurm.conf")); !missing.empty()) {
    std::fprintf(stderr, "%s\n", missing.c_str());
    return 1;
  }
  auto ended = try_files(*files);
  if (!ended) return unknown(ended.error());
  if (ended->serves) return 0;
  const std::string words = words_of_daemon(ended->log, kFolder);
  if (ended->timed_out) return unknown({Code::Unavailable, fmt::format("slurmctld did not come to serve within {} s: {}", kLimit.count(), words)});
  if (ended->exit.signal != 0 || words.empty()) return unknown({Code::Unavailable, fmt::format("slurmctld ended with status {} (signal {}): {}", ended->exit.code, ended->exit.signal, words)});
  std::fprintf(stderr, "%s\n", words.c_str());
  return 1;
}

}  // namespace fairlead::companion
