// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;
// Process edges talk of real time: a time-out here is about a real child.
SteadyTime steady_now() { return std::chrono::steady_clock::now(); }

int milliseconds_until(SteadyTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

SteadyTime deadline_in(std::chrono::milliseconds limit) {
  return steady_now() + std::min<std::chrono::milliseconds>(limit, std::chrono::hours(24 * 365));
}

int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

Result<std::string> find_program(const std::string& name) {
  if (name.empty()) return fail(Code::Invalid, "start a program: no name");
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  for (const std::string& folder :
       split(path != nullptr && *path != '\0' ? path : "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", ':')) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return fail(Code::NotFound, "start " + name + ": no such program in PATH");
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// What the child needs, all allocated before fork: after it only async-signal-safe calls are allowed.
struct Plan {
  std::string program;
  std::vector<char*> argv, environment;
  std::vector<std::pair<int, int>> descriptors;  // {ours, the child's}; ours -1: /dev/null
  int first_free = 3;
  pid_t parent = 0;
};

[[noreturn]] void child_main(const Command& command, Plan& plan, int report) {
  const auto give_up = [&](int error) {
    [[maybe_unused]] const ssize_t n = ::write(report, &error, sizeof error);
    ::_exit(127);
  };
  for (int number = 1; number < NSIG; ++number) {
    if (number == SIGKILL || number == SIGSTOP) continue;
    ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (command.die_with_parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(errno);
    if (::getppid() != plan.parent) give_up(ESRCH);  // it died before prctl
  }
  if (command.new_session && ::setsid() < 0) give_up(errno);
  // Out of the way first: a source number may be another one's target.
  report = ::fcntl(report, F_DUPFD_CLOEXEC, plan.first_free);
  if (report < 0) ::_exit(127);
  for (auto& [ours, theirs] : plan.descriptors) {
    int from = ours;
    if (from < 0) {
      from = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      if (from < 0) give_up(errno);
    }
    const int moved = ::fcntl(from, F_DUPFD_CLOEXEC, plan.first_free);
    if (moved < 0) give_up(errno);
    ours = moved;
  }
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up(errno);
  for (const auto& [ours, theirs] : plan.descriptors)
    if (::dup2(ours, theirs) < 0) give_up(errno);
  if (!command.working_directory.empty() && ::chdir(command.working_directory.c_str()) != 0) give_up(errno);
  if (command.before_exec)
    if (const int error = command.before_exec(); error != 0) give_up(error);
  ::execve(plan.program.c_str(), plan.argv.data(), plan.environment.data());
  give_up(errno);
  ::_exit(127);
}

Exit exit_of(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.code = info.si_status, .signal = 0};
  return {.code = 128 + info.si_status, .signal = info.si_status};
}

Result<std::pair<Fd, Fd>> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

// Reads what is there. False: end of file.
bool drain(int fd, std::string& into, std::size_t limit) {
  char chunk[64 * 1024];
  while (true) {
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    if (into.size() < limit) into.append(chunk, std::min(static_cast<std::size_t>(n), limit - into.size()));
  }
}

std::string last_lines(std::string_view text, std::size_t limit = 2000) {
  text = trim(text);
  return std::string(text.size() > limit ? text.substr(text.size() - limit) : text);
}

}  // namespace

ssize_t write_without_sigpipe(int fd, const char* data, std::size_t size) {
  sigset_t pipe_only, before;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
  const ssize_t n = ::write(fd, data, size);
  const int error = errno;
  if (n < 0 && error == EPIPE && sigismember(&before, SIGPIPE) == 0) {
    const timespec now{};
    while (::sigtimedwait(&pipe_only, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return n;
}

Result<Child> Child::start(const Command& command) {
  if (command.argv.empty()) return fail(Code::Invalid, "start a program: no name");
  Plan plan;
  auto program = find_program(command.argv[0]);
  if (!program) return std::unexpected(std::move(program.error()));
  plan.program = std::move(*program);
  plan.argv = pointers(command.argv);
  std::vector<std::string> variables;
  if (command.environment) {
    for (const auto& [key, value] : *command.environment) variables.push_back(key + "=" + value);
    plan.environment = pointers(variables);
  } else {
    for (char** at = environ; *at != nullptr; ++at) plan.environment.push_back(*at);
    plan.environment.push_back(nullptr);
  }
  plan.descriptors = {{command.stdin_fd, 0}, {command.stdout_fd, 1}, {command.stderr_fd, 2}};
  for (const auto& [ours, theirs] : command.pass) {
    if (theirs < 3) return fail(Code::Invalid, fmt::format("start {}: descriptor {} cannot be passed", command.argv[0], theirs));
    plan.descriptors.emplace_back(ours, theirs);
    plan.first_free = std::max(plan.first_free, theirs + 1);
  }
  plan.parent = ::getpid();

  auto ends = make_pipe();
  if (!ends) return pass(std::move(ends.error()), "start " + command.argv[0]);
  auto& [report_in, report_out] = *ends;
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "start " + command.argv[0]);
  if (pid == 0) child_main(command, plan, report_out.get());
  Fd pidfd(pidfd_open(pid));
  const int pidfd_error = errno;
  report_out.reset();
  int error = 0;
  ssize_t n = 0;
  do n = ::read(report_in.get(), &error, sizeof error);
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof error) || !pidfd) {
    if (!pidfd) {
      ::kill(pid, SIGKILL);  // ours and not reaped yet: the number is still its
      error = pidfd_error;
    }
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return fail_errno(error, "start " + command.argv[0]);
  }
  return Child(pid, std::move(pidfd));
}

Child& Child::operator=(Child&& other) noexcept {
  if (this == &other) return *this;
  this->~Child();
  return *new (this) Child(std::move(other));
}

Child::~Child() {
  if (!pidfd_ || exit_ || detached_) return;
  if (auto sent = signal(SIGKILL); !sent && sent.error().code != Code::NotFound) return;
  (void)wait(std::chrono::hours(24));
}

Result<std::optional<Exit>> Child::wait(std::chrono::milliseconds limit) {
  if (exit_) return exit_;
  if (!pidfd_) return fail(Code::Invalid, "wait for a process: none is held");
  const SteadyTime deadline = deadline_in(limit);
  while (true) {
    pollfd poll_fd{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poll_fd, 1, milliseconds_until(deadline));
    if (ready < 0 && errno != EINTR) return fail_errno(errno, fmt::format("wait for process {}", pid_));
    if (ready > 0) break;
    if (ready == 0 && steady_now() >= deadline) return std::optional<Exit>();
  }
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0)
    if (errno != EINTR) return fail_errno(errno, fmt::format("wait for process {}", pid_));
  exit_ = exit_of(info);
  return exit_;
}

Result<void> Child::signal(int number) const {
  if (exit_) return fail(Code::NotFound, fmt::format("signal process {}: it has exited", pid_));
  if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0) != 0) return fail_errno(errno, fmt::format("signal process {}", pid_));
  return {};
}

void Child::detach() { detached_ = true; }

Result<Output> run(Command command, std::chrono::milliseconds limit, std::string_view input, std::size_t limit_bytes) {
  const std::string name = command.argv.empty() ? "" : command.argv[0];
  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  if (!in || !out || !err) return fail(Code::Exhausted, "run " + name + ": no pipe");
  command.stdin_fd = in->first.get();
  command.stdout_fd = out->second.get();
  command.stderr_fd = err->second.get();
  auto child = Child::start(command);
  if (!child) return std::unexpected(std::move(child.error()));
  in->first.reset();
  out->second.reset();
  err->second.reset();
  for (const int fd : {in->second.get(), out->first.get(), err->first.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  if (input.empty()) in->second.reset();

  Output output;
  const SteadyTime deadline = deadline_in(limit);
  bool exited = false;
  while (!exited) {
    pollfd fds[4] = {{.fd = child->pidfd(), .events = POLLIN, .revents = 0},
                     {.fd = out->first.get(), .events = POLLIN, .revents = 0},
                     {.fd = err->first.get(), .events = POLLIN, .revents = 0},
                     {.fd = in->second.get(), .events = POLLOUT, .revents = 0}};
    const int ready = ::poll(fds, 4, milliseconds_until(deadline));
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "run " + name);
    if (ready == 0 && steady_now() >= deadline)
      return fail(Code::Unavailable, fmt::format("run {}: not finished after {} ms", name, limit.count()));  // the child's destructor kills it
    if (ready <= 0) continue;
    exited = fds[0].revents != 0;
    if (fds[3].revents != 0) {
      const ssize_t n = write_without_sigpipe(in->second.get(), input.data(), input.size());
      if (n > 0) input.remove_prefix(static_cast<std::size_t>(n));
      if (input.empty() || (n < 0 && errno != EAGAIN && errno != EINTR)) in->second.reset();
    }
    // Also after the exit: what it wrote is in the pipe. A grandchild that holds the pipe open is not waited for.
    if ((fds[1].revents != 0 || exited) && out->first && !drain(out->first.get(), output.out, limit_bytes)) out->first.reset();
    if ((fds[2].revents != 0 || exited) && err->first && !drain(err->first.get(), output.err, limit_bytes)) err->first.reset();
  }
  auto exit = child->wait(std::chrono::hours(1));
  if (!exit) return std::unexpected(std::move(exit.error()));
  INVARIANT(exit->has_value());
  output.exit = **exit;
  return output;
}

Result<std::string> run_checked(Command command, std::chrono::milliseconds limit, std::string_view input) {
  const std::string name = command.argv.empty() ? "" : command.argv[0];
  auto output = run(std::move(command), limit, input);
  if (!output) return std::unexpected(std::move(output.error()));
  if (output->exit.code == 0) return std::move(output->out);
  const std::string how =
      output->exit.signal != 0 ? fmt::format("killed by signal {}", output->exit.signal) : fmt::format("exit status {}", output->exit.code);
  const std::string why = last_lines(output->err.empty() ? output->out : output->err);
  return fail(Code::Internal, why.empty() ? fmt::format("{}: {}", name, how) : fmt::format("{}: {}: {}", name, how, why));
}

Result<ProcessIdentity> identify(pid_t pid) {
  auto text = read_file(fmt::format("/proc/{}/stat", pid), 64_KiB);
  if (!text && text.error().code != Code::NotFound) return pass(std::move(text.error()), fmt::format("look at process {}", pid));  // no answer is not a death
  if (!text) return fail(Code::NotFound, fmt::format("process {}: there is none", pid));
  // The second field is the name in parentheses and may hold blanks and parentheses itself.
  const auto close = text->rfind(')');
  if (close == std::string::npos) return fail(Code::Internal, fmt::format("process {}: unreadable stat", pid));
  const auto fields = split(trim(std::string_view(*text).substr(close + 1)), ' ');
  if (fields.size() < 20) return fail(Code::Internal, fmt::format("process {}: unreadable stat", pid));
  return ProcessIdentity{.pid = pid, .start_ticks = std::strtoull(fields[19].c_str(), nullptr, 10)};
}

Result<Fd> open_process(const ProcessIdentity& identity) {
  Fd pidfd(identity.pid > 0 ? pidfd_open(identity.pid) : -1);
  if (!pidfd && identity.pid > 0 && errno != ESRCH) return fail_errno(errno, fmt::format("open process {}", identity.pid));
  if (!pidfd) return fail(Code::NotFound, fmt::format("process {}: it is gone", identity.pid));
  // Opened first, compared after: from here on the descriptor cannot change its process.
  auto now = identify(identity.pid);
  if (!now) return std::unexpected(std::move(now.error()));
  if (*now != identity) return fail(Code::NotFound, fmt::format("process {}: it is gone, its number belongs to another", identity.pid));
  return pidfd;
}

}  // namespace fairlead
