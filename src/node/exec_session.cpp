// SPDX-License-Identifier: Apache-2.0
#include "node/exec_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "kube/json.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;

constexpr std::size_t input_limit = 4 << 20;    // waiting for the command
constexpr std::size_t output_window = 1 << 20;  // waiting for the client

// What came from the client, shared by its thread and ours.
struct Inbox {
  std::mutex mutex;
  std::condition_variable taken;
  std::string input;
  bool input_ends = false, gone = false;
  std::optional<TerminalSize> size;
  Fd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  void ring() const {
    const std::uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
  }
};

void receive(Inbox& inbox, const std::string& message, bool v5) {
  if (message.empty()) return;
  const auto channel = static_cast<unsigned char>(message[0]);
  std::unique_lock lock(inbox.mutex);
  if (channel == 0) {
    // The pause here is the back-pressure on the client's sending. Bounded, for this thread serves others too.
    inbox.taken.wait_for(lock, 10s, [&] { return inbox.gone || inbox.input.size() < input_limit; });
    inbox.input.append(message, 1);
  } else if (channel == 4) {
    if (auto size = parse_terminal_size(std::string_view(message).substr(1))) inbox.size = size;
  } else if (channel == 255 && v5 && message.size() > 1 && message[1] == 0) {
    inbox.input_ends = true;
  }
  lock.unlock();
  inbox.ring();
}

// A write that cannot kill us: SIGPIPE stays blocked on this thread.
ssize_t write_some(int fd, std::string_view bytes) { return ::write(fd, bytes.data(), bytes.size()); }

}  // namespace

std::string exec_status(int exit_code, const std::string& why) {
  Json status = Json::object({{"metadata", Json::object()}, {"status", exit_code == 0 && why.empty() ? "Success" : "Failure"}});
  if (!why.empty()) {
    status.set("reason", "InternalError").set("message", why).set("code", 500);
  } else if (exit_code != 0) {
    Json cause = Json::object({{"reason", "ExitCode"}, {"message", std::to_string(exit_code)}});
    status.set("reason", "NonZeroExitCode")
        .set("message", fmt::format("command terminated with non-zero exit code: exit status {}", exit_code))
        .set("details", Json::object({{"causes", Json::array({std::move(cause)})}}));
  }
  return "\x03" + kube::print_json(status);
}

std::optional<TerminalSize> parse_terminal_size(std::string_view text) {
  auto json = kube::parse_json(text);
  if (!json) return std::nullopt;
  const auto width = (*json)["Width"].integer(-1), height = (*json)["Height"].integer(-1);
  if (width < 1 || height < 1 || width > 65535 || height > 65535) return std::nullopt;
  return TerminalSize{.width = static_cast<unsigned short>(width), .height = static_cast<unsigned short>(height)};
}

void run_exec_session(ExecProcess process, const std::shared_ptr<http::WebSocket>& socket, bool v5, const std::stop_token& stop) {
  sigset_t pipe_only;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_only, nullptr);

  auto inbox = std::make_shared<Inbox>();
  socket->start([inbox, v5](const std::string& message) { receive(*inbox, message, v5); },
                [inbox] {
                  {
                    const std::lock_guard lock(inbox->mutex);
                    inbox->gone = true;
                  }
                  inbox->taken.notify_all();
                  inbox->ring();
                });
  const std::stop_callback stopping(stop, [inbox] {
    {
      const std::lock_guard lock(inbox->mutex);
      inbox->gone = true;
    }
    inbox->taken.notify_all();
    inbox->ring();
  });
  const bool terminal = static_cast<bool>(process.terminal);
  Fd& out = terminal ? process.terminal : process.out;
  for (const int fd : {process.in.get(), process.out.get(), process.err.get(), process.terminal.get()})
    if (fd >= 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);

  std::string pending;  // input on its way to the command
  bool input_ends = false, exited = false;
  // Reads what is there; false: the end.
  const auto pump = [&](Fd& fd, char channel) {
    char chunk[32 * 1024];
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n > 0) {
      std::string message(1, channel);
      message.append(chunk, static_cast<std::size_t>(n));
      socket->send(std::move(message));
      return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    // A terminal gives EIO when its last user is gone.
    fd.reset();
    return false;
  };
  while (true) {
    {
      const std::lock_guard lock(inbox->mutex);
      if (inbox->gone) return;  // the destructor kills the command
      if (inbox->size && terminal) {
        const winsize size{.ws_row = inbox->size->height, .ws_col = inbox->size->width, .ws_xpixel = 0, .ws_ypixel = 0};
        ::ioctl(process.terminal.get(), TIOCSWINSZ, &size);
        inbox->size.reset();
      }
      if (pending.empty()) pending.swap(inbox->input);
      input_ends = inbox->input_ends;
    }
    inbox->taken.notify_all();
    Fd& in = terminal ? process.terminal : process.in;
    if (!in) pending.clear();
    if (input_ends && pending.empty() && !terminal) process.in.reset();
    const bool slow_client = socket->waiting() > output_window;
    if (exited && !slow_client) {
      // All that the command wrote is in the pipes by now; a child of it that still holds them is not waited for.
      while (out && pump(out, 1)) {
      }
      while (process.err && pump(process.err, 2)) {
      }
      break;
    }
    pollfd waits[5] = {{.fd = inbox->wake.get(), .events = POLLIN, .revents = 0},
                       {.fd = exited ? -1 : process.child.pidfd(), .events = POLLIN, .revents = 0},
                       {.fd = slow_client ? -1 : out.get(), .events = POLLIN, .revents = 0},
                       {.fd = slow_client ? -1 : process.err.get(), .events = POLLIN, .revents = 0},
                       {.fd = pending.empty() ? -1 : in.get(), .events = POLLOUT, .revents = 0}};
    if (::poll(waits, 5, slow_client ? 20 : -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) {
      std::uint64_t count = 0;
      (void)!::read(inbox->wake.get(), &count, sizeof count);
    }
    if (waits[1].revents != 0) exited = true;
    if (waits[2].revents != 0) pump(out, 1);
    if (waits[3].revents != 0) pump(process.err, 2);
    if (waits[4].revents != 0 && in) {
      const ssize_t n = write_some(in.get(), pending);
      if (n > 0)
        pending.erase(0, static_cast<std::size_t>(n));
      else if (n < 0 && errno != EAGAIN && errno != EINTR)
        process.in.reset();
    }
  }
  auto exit = process.child.wait(10s);
  socket->send(exec_status(exit && *exit ? (*exit)->code : 1));
  // Closed only when the client has taken everything.
  while (socket->open() && socket->waiting() > 0 && !stop.stop_requested()) {
    pollfd wake{.fd = inbox->wake.get(), .events = POLLIN, .revents = 0};
    ::poll(&wake, 1, 10);
    std::uint64_t count = 0;
    (void)!::read(inbox->wake.get(), &count, sizeof count);
  }
  socket->close();
}

}  // namespace fairlead::node
