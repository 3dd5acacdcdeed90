// SPDX-License-Identifier: Apache-2.0
#include "node/exec_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>

#include "base/encoding.h"
#include "kube/json.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;

constexpr std::size_t input_limit = 4 << 20;    // waiting for the command
constexpr std::size_t output_window = 1 << 20;  // waiting for the client
constexpr std::size_t attach_window = 256 << 10;  // less: what is not read there is seen sooner

// What came from the client, shared by its thread and ours.
struct Inbox {
  std::mutex mutex;
  std::condition_variable taken;
  std::string input;
  bool input_ends = false, gone = false;
  bool deaf = false;  // nobody reads input any more
  std::optional<TerminalSize> size;
  Fd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  void ring() const {
    const std::uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
  }
  void quiet() const {
    std::uint64_t count = 0;
    (void)!::read(wake.get(), &count, sizeof count);
  }
  void leave() {
    {
      const std::lock_guard lock(mutex);
      gone = true;
    }
    taken.notify_all();
    ring();
  }
  // No more input is wanted: what waits and what comes is thrown away, so that nobody waits for room.
  void stop_listening() {
    const std::lock_guard lock(mutex);
    deaf = true;
    input.clear();
    taken.notify_all();
  }
};

ExecChannels::Listener listener_for(const std::shared_ptr<Inbox>& inbox) {
  return {.input =
              [inbox](std::string_view bytes) {
                {
                  std::unique_lock lock(inbox->mutex);
                  // The pause here is the back-pressure on the client's sending. Bounded, for this thread serves others too.
                  inbox->taken.wait_for(lock, 10s, [&] { return inbox->gone || inbox->deaf || inbox->input.size() < input_limit; });
                  if (inbox->deaf || inbox->gone) return;
                  inbox->input.append(bytes);
                }
                inbox->ring();
              },
          .input_ends =
              [inbox] {
                {
                  const std::lock_guard lock(inbox->mutex);
                  inbox->input_ends = true;
                }
                inbox->ring();
              },
          .resize =
              [inbox](TerminalSize size) {
                {
                  const std::lock_guard lock(inbox->mutex);
                  inbox->size = size;
                }
                inbox->ring();
              },
          .gone = [inbox] { inbox->leave(); }};
}

// A write to a pipe that nobody reads must not kill us.
void block_pipe_signal() {
  sigset_t pipe_only;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_only, nullptr);
}

void set_nonblocking(const Fd& fd) {
  if (fd) ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// Watches that a client goes on reading, while nothing more is sent to it.
class Progress {
 public:
  // How long it has taken nothing.
  std::chrono::nanoseconds stuck_for(std::size_t waiting) {
    const auto now = std::chrono::steady_clock::now();
    if (waiting < least_) moved_ = now;
    least_ = std::min(least_, waiting);
    return now - moved_;
  }

 private:
  std::size_t least_ = SIZE_MAX;
  std::chrono::steady_clock::time_point moved_ = std::chrono::steady_clock::now();
};

// The connection is closed only when the client has taken everything, or takes nothing for half a minute.
void say_goodbye(Inbox& inbox, ExecChannels& channels, const Json& status, const std::stop_token& stop) {
  channels.finish(status);
  inbox.stop_listening();
  Progress progress;
  while (channels.open() && channels.waiting() > 0 && !stop.stop_requested() && progress.stuck_for(channels.waiting()) < 30s) {
    pollfd wake{.fd = inbox.wake.get(), .events = POLLIN, .revents = 0};
    ::poll(&wake, 1, 10);
    inbox.quiet();
    const std::lock_guard lock(inbox.mutex);
    if (inbox.gone) break;
  }
  channels.close();
}

}  // namespace

Json exec_status(int exit_code, const std::string& why) {
  Json status = Json::object({{"metadata", Json::object()}, {"status", exit_code == 0 && why.empty() ? "Success" : "Failure"}});
  if (!why.empty()) {
    status.set("reason", "InternalError").set("message", why).set("code", 500);
  } else if (exit_code != 0) {
    Json cause = Json::object({{"reason", "ExitCode"}, {"message", std::to_string(exit_code)}});
    status.set("reason", "NonZeroExitCode")
        .set("message", fmt::format("command terminated with non-zero exit code: exit status {}", exit_code))
        .set("details", Json::object({{"causes", Json::array({std::move(cause)})}}));
  }
  return status;
}

void run_exec_session(ExecProcess process, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop) {
  block_pipe_signal();
  auto inbox = std::make_shared<Inbox>();
  const std::stop_callback stopping(stop, [inbox] { inbox->leave(); });
  if (!channels->start(listener_for(inbox), stop)) return channels->close();
  const bool terminal = static_cast<bool>(process.terminal);
  Fd& out = terminal ? process.terminal : process.out;
  Fd& in = terminal ? process.terminal : process.in;
  for (const Fd* fd : {&process.in, &process.out, &process.err, &process.terminal}) set_nonblocking(*fd);

  std::string pending;  // input on its way to the command
  bool input_ends = false, exited = false;
  // Reads what is there; false: the end, or nothing for now.
  const auto pump = [&](Fd& fd, ExecChannels::Output output) {
    char chunk[32 * 1024];
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n > 0) {
      channels->send(output, {chunk, static_cast<std::size_t>(n)});
      return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    // A terminal gives EIO when its last user is gone.
    fd.reset();
    return false;
  };
  while (true) {
    if (!in) inbox->stop_listening();
    {
      const std::lock_guard lock(inbox->mutex);
      if (inbox->gone) return;  // the destructor kills the command
      if (inbox->size && process.terminal) {
        const winsize size{.ws_row = inbox->size->height, .ws_col = inbox->size->width, .ws_xpixel = 0, .ws_ypixel = 0};
        ::ioctl(process.terminal.get(), TIOCSWINSZ, &size);
      }
      inbox->size.reset();
      if (pending.empty()) pending.swap(inbox->input);
      input_ends = inbox->input_ends;
    }
    inbox->taken.notify_all();
    if (!in) pending.clear();
    if (input_ends && pending.empty() && !terminal) process.in.reset();
    const bool slow_client = channels->waiting() > output_window;
    if (exited && !slow_client) {
      // All that the command wrote is in the pipes by now; a child of it that still holds them is not waited for.
      while (out && pump(out, ExecChannels::Output::Out)) {
      }
      while (process.err && pump(process.err, ExecChannels::Output::Err)) {
      }
      break;
    }
    pollfd waits[5] = {{.fd = inbox->wake.get(), .events = POLLIN, .revents = 0},
                       {.fd = exited ? -1 : process.child.pidfd(), .events = POLLIN, .revents = 0},
                       {.fd = slow_client ? -1 : out.get(), .events = POLLIN, .revents = 0},
                       {.fd = slow_client ? -1 : process.err.get(), .events = POLLIN, .revents = 0},
                       {.fd = pending.empty() ? -1 : in.get(), .events = POLLOUT, .revents = 0}};
    if (::poll(waits, 5, slow_client ? 20 : -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) inbox->quiet();
    if (waits[1].revents != 0) exited = true;
    if (waits[2].revents != 0) pump(out, ExecChannels::Output::Out);
    if (waits[3].revents != 0) pump(process.err, ExecChannels::Output::Err);
    if (waits[4].revents != 0 && in) {
      const ssize_t n = ::write(in.get(), pending.data(), pending.size());
      if (n > 0)
        pending.erase(0, static_cast<std::size_t>(n));
      else if (n < 0 && errno != EAGAIN && errno != EINTR)
        process.in.reset();
    }
  }
  auto exit = process.child.wait(10s);
  say_goodbye(*inbox, *channels, exec_status(exit && *exit ? (*exit)->code : 1), stop);
}

void run_attach_session(const std::function<Result<Attachment>()>& join, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop,
                        std::chrono::milliseconds patience) {
  block_pipe_signal();
  auto inbox = std::make_shared<Inbox>();
  const std::stop_callback stopping(stop, [inbox] { inbox->leave(); });
  if (!channels->start(listener_for(inbox), stop)) return channels->close();
  auto joined = join();
  if (!joined) return say_goodbye(*inbox, *channels, exec_status(126, joined.error().message), stop);
  Attachment attachment = std::move(*joined);
  set_nonblocking(attachment.socket);
  std::string pending;
  bool input_open = true, output_ends = false, resize_waits = false;
  Progress progress;
  while (!output_ends) {
    if (!input_open) inbox->stop_listening();
    bool input_ends = false;
    {
      const std::lock_guard lock(inbox->mutex);
      if (inbox->gone) return;
      // kubectl tells two sizes at once. The monitor sets a size before it reads again: an empty pipe will do.
      int unread = 0;
      resize_waits = inbox->size && attachment.window && ::ioctl(attachment.window.get(), FIONREAD, &unread) == 0 && unread > 0;
      if (inbox->size && attachment.window && !resize_waits) {
        const std::string message = fmt::format("{} {}\n", inbox->size->height, inbox->size->width);
        (void)!::write(attachment.window.get(), message.data(), message.size());
      }
      if (!resize_waits) inbox->size.reset();
      if (pending.empty()) pending.swap(inbox->input);
      input_ends = inbox->input_ends && inbox->input.empty();
    }
    inbox->taken.notify_all();
    if (!input_open) pending.clear();
    if (input_open && input_ends && pending.empty()) {
      ::shutdown(attachment.socket.get(), SHUT_WR);
      input_open = false;
    }
    const bool slow_client = channels->waiting() > attach_window;
    if (!slow_client) progress = Progress();
    if (slow_client && progress.stuck_for(channels->waiting()) > patience) {
      attachment.socket.reset();
      return say_goodbye(*inbox, *channels, exec_status(126, "attach: the client took no output, so the container goes on without it; its log has all of it"), stop);
    }
    const auto events = static_cast<short>((slow_client ? 0 : POLLIN) | (pending.empty() ? 0 : POLLOUT));
    // Not asked at all when nothing is wanted of it: the end of the container would be told again and again.
    pollfd waits[2] = {{.fd = inbox->wake.get(), .events = POLLIN, .revents = 0}, {.fd = events == 0 ? -1 : attachment.socket.get(), .events = events, .revents = 0}};
    if (::poll(waits, 2, resize_waits ? 2 : slow_client ? 20 : -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) inbox->quiet();
    if ((waits[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !slow_client) {
      // One packet: a byte that tells the stream (2: out, 3: err), then what was written.
      char packet[64 * 1024];
      const ssize_t n = ::recv(attachment.socket.get(), packet, sizeof packet, 0);
      if (n > 1)
        channels->send(packet[0] == 3 ? ExecChannels::Output::Err : ExecChannels::Output::Out, {packet + 1, static_cast<std::size_t>(n) - 1});
      else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNRESET))
        output_ends = true;  // ECONNRESET is told once, when the monitor ended before it read our input: what it had sent is still to come
    }
    if ((waits[1].revents & POLLOUT) != 0 && !pending.empty()) {
      // The monitor reads at most 32 KiB of a packet.
      const ssize_t n = ::send(attachment.socket.get(), pending.data(), std::min<std::size_t>(pending.size(), 8 << 10), MSG_NOSIGNAL);
      if (n > 0)
        pending.erase(0, static_cast<std::size_t>(n));
      else if (n < 0 && errno != EAGAIN && errno != EINTR)
        input_open = false;
    }
  }
  say_goodbye(*inbox, *channels, exec_status(0), stop);
}

void run_output_session(LogReader& log, const std::function<bool()>& running, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop) {
  auto inbox = std::make_shared<Inbox>();
  const std::stop_callback stopping(stop, [inbox] { inbox->leave(); });
  if (!channels->start(listener_for(inbox), stop)) return channels->close();
  inbox->stop_listening();
  bool ended = false;
  while (true) {
    {
      const std::lock_guard lock(inbox->mutex);
      if (inbox->gone) return;
    }
    bool more = false;
    if (channels->waiting() <= output_window) {
      auto read = log.next_entries([&](const LogEntry& entry) {
        std::string text(entry.text);
        if (!entry.partial) text += '\n';
        if (!text.empty()) channels->send(entry.stream == "stderr" ? ExecChannels::Output::Err : ExecChannels::Output::Out, text);
      });
      if (!read) return say_goodbye(*inbox, *channels, exec_status(126, read.error().message), stop);
      more = *read;
      if (!more && ended) break;
      // Looked at before the last read: what was written until then is seen.
      if (!more) ended = !running();
    }
    if (more || ended) continue;
    // Looked for at this pace: the monitor's writes cannot be waited for across rotations any cheaper.
    pollfd wake{.fd = inbox->wake.get(), .events = POLLIN, .revents = 0};
    ::poll(&wake, 1, 50);
    inbox->quiet();
  }
  say_goodbye(*inbox, *channels, exec_status(0), stop);
}

void tell_failure(const Error& error, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop) {
  run_attach_session([&]() -> Result<Attachment> { return std::unexpected(error); }, channels, stop);
}

}  // namespace fairlead::node
