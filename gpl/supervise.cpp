// SPDX-License-Identifier: GPL-3.0-or-later
#include "supervise.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/log.h"

namespace fairlead::companion {

void reap_orphans(std::initializer_list<pid_t> ours) {
  while (true) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 || std::find(ours.begin(), ours.end(), info.si_pid) != ours.end()) return;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

int supervise(Supervised supervised) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD}) sigaddset(&set, signal);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &set, &before);
  const Fd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  // The daemon gets the mask that we were started with.
  supervised.command.before_exec = [before] { return sigprocmask(SIG_SETMASK, &before, nullptr) == 0 ? 0 : errno; };
  const SystemClock clock;

  while (true) {
    while (supervised.kept && supervised.kept(false)) {
      pollfd watched{signals.get(), POLLIN, 0};
      ::poll(&watched, 1, 500);
      signalfd_siginfo info;
      while (::read(signals.get(), &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) return 0;
      reap_orphans({});
    }
    if (supervised.before_start) supervised.before_start();
    if (supervised.prepare)
      if (auto ready = supervised.prepare(supervised.command); !ready) {
        log_error("the daemon is not started", {{"program", supervised.command.argv[0]}, {"error", ready.error().message}});
        return 1;
      }
    const auto started = clock.monotonic();
    auto child = Child::start(supervised.command);
    if (!child) {
      log_error("the daemon could not be started", {{"program", supervised.command.argv[0]}, {"error", child.error().message}});
      return 127;
    }
    log_info("daemon started", {{"program", supervised.command.argv[0]}, {"pid", std::to_string(child->pid())}});
    bool stopping = false, pausing = false;  // for good; only for a while
    std::chrono::nanoseconds kill_at{};
    std::optional<Exit> exit;
    while (!exit) {
      pollfd watched[2] = {{child->pidfd(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
      ::poll(watched, 2, stopping || pausing ? 200 : supervised.kept ? 500 : 60'000);
      signalfd_siginfo info;
      while (::read(signals.get(), &info, sizeof info) == sizeof info) {
        const int signal = static_cast<int>(info.ssi_signo);
        if (signal == SIGCHLD) continue;
        if ((signal == SIGTERM || signal == SIGINT) && !stopping) {
          stopping = true;
          kill_at = clock.monotonic() + supervised.stop_limit;
        }
        (void)child->signal(signal == SIGINT ? SIGTERM : signal);
      }
      if (!stopping && !pausing && supervised.kept && supervised.kept(true)) {
        pausing = true;
        kill_at = clock.monotonic() + supervised.stop_limit;
        (void)child->signal(SIGTERM);
      }
      if ((stopping || pausing) && clock.monotonic() > kill_at) (void)child->signal(SIGKILL);
      auto waited = child->wait(std::chrono::milliseconds(0));
      if (!waited) {
        log_error("waiting for the daemon failed", {{"error", waited.error().message}});
        return 125;
      }
      exit = *waited;
      reap_orphans({child->pid()});
    }
    log_info("daemon ended", {{"program", supervised.command.argv[0]}, {"code", std::to_string(exit->code)}, {"signal", std::to_string(exit->signal)}});
    if (supervised.after_end) supervised.after_end();
    if (stopping) return exit->code == 143 ? 0 : exit->code;
    if (pausing) continue;
    if (!supervised.restart_in_place || clock.monotonic() - started < supervised.steady_after) return exit->code == 0 ? 1 : exit->code;
  }
}

}  // namespace fairlead::companion
