// SPDX-License-Identifier: Apache-2.0
// Child processes held by pidfd and reaped by one owner. No shell anywhere: arguments are a vector.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead {

struct Exit {
  int code = 0;    // exit status; 128 + signal when killed by one, as shells say
  int signal = 0;  // 0: it exited by itself
  friend bool operator==(const Exit&, const Exit&) = default;
};

struct Command {
  std::vector<std::string> argv;                       // argv[0] is looked up in PATH when it holds no slash
  std::optional<std::map<std::string, std::string>> environment;  // whole environment; none: our own
  std::string working_directory;                       // empty: ours
  int stdin_fd = -1, stdout_fd = -1, stderr_fd = -1;   // -1: /dev/null; borrowed for the call
  std::vector<std::pair<int, int>> pass;               // {ours, number in the child}: inherited beside the three
  bool new_session = false;                            // setsid: survives our terminal
  bool die_with_parent = false;                        // PR_SET_PDEATHSIG SIGKILL
  // Runs in the child before exec: async-signal-safe calls only; return errno (0: go on). For unshare, setns, chroot.
  std::function<int()> before_exec;
};

class Child {
 public:
  // Starts the program. NotFound: no such program. The error of exec itself is reported here, not as exit 127.
  static Result<Child> start(const Command& command);
  Child(Child&&) noexcept = default;
  Child& operator=(Child&&) noexcept;
  ~Child();  // kills and reaps if still running and not detached

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable when it has exited
  // Waits up to `limit`; empty: still running. Reaps once; later calls give the same answer.
  Result<std::optional<Exit>> wait(std::chrono::milliseconds limit);
  Result<void> signal(int number) const;  // by pidfd: never hits a reused pid
  void detach();                          // leaves it running; somebody else reaps (or our init)

 private:
  Child(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid_ = -1;
  Fd pidfd_;
  std::optional<Exit> exit_;
  bool detached_ = false;
};

struct Output {
  Exit exit;
  std::string out, err;  // each cut at `limit_bytes`
};
// As write(2); where nobody reads the pipe any more it gives EPIPE, whatever the program did about SIGPIPE.
ssize_t write_without_sigpipe(int fd, const char* data, std::size_t size);

// Runs to the end with captured output. Unavailable: not finished in `limit` (it is killed).
// `input` goes to stdin. stdin_fd, stdout_fd, stderr_fd of the command are ignored.
Result<Output> run(Command command, std::chrono::milliseconds limit, std::string_view input = {}, std::size_t limit_bytes = 8 << 20);
// The same, where anything but exit 0 is an error that shows the command's last lines of stderr.
Result<std::string> run_checked(Command command, std::chrono::milliseconds limit, std::string_view input = {});

// Is process `pid` alive, and the same one? Field 22 of /proc/PID/stat (start time in ticks since boot) tells a reused pid.
struct ProcessIdentity {
  pid_t pid = -1;
  std::uint64_t start_ticks = 0;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
Result<ProcessIdentity> identify(pid_t pid);  // NotFound: no such process
// A pidfd of exactly that process. NotFound: it is gone (or the number belongs to another now).
Result<Fd> open_process(const ProcessIdentity& identity);

}  // namespace fairlead
