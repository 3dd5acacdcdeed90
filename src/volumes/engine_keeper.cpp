// SPDX-License-Identifier: Apache-2.0
#include "volumes/engine_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"

namespace fairlead::volumes {
namespace {

using namespace std::chrono_literals;

constexpr auto kStart = 30s;          // an engine has begun by then, or it has failed
constexpr std::size_t kMostOrders = 16;  // under way at once
constexpr std::size_t kMostArguments = 64, kMostSaid = 8 << 10;

Result<sockaddr_un> address_of(const std::string& socket) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  if (socket.empty() || socket.size() >= sizeof out.sun_path) return fail(Code::Invalid, fmt::format("{}: a path of 1 to {} bytes is expected", socket, sizeof out.sun_path - 1));
  std::memcpy(out.sun_path, socket.c_str(), socket.size() + 1);
  return out;
}

Result<Fd> connect_to(const std::string& socket) {
  const auto address = address_of(socket);
  if (!address) return std::unexpected(address.error());
  Fd out(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!out) return fail_errno(errno, "make a socket");
  if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) return fail(Code::Unavailable, fmt::format("nobody keeps engines at {}: {}", socket, std::strerror(errno)));
  return out;
}

void limit_waits(const Fd& socket, std::chrono::milliseconds limit) {
  const timeval time{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  for (const int which : {SO_RCVTIMEO, SO_SNDTIMEO}) (void)::setsockopt(socket.get(), SOL_SOCKET, which, &time, sizeof time);
}

class Keeper final : public EngineKeeper {
 public:
  Keeper(Fd listening, std::string socket, std::string program) : listening_(std::move(listening)), socket_(std::move(socket)), program_(std::move(program)) {
    accepting_ = std::jthread([this](const std::stop_token& stop) { accept(stop); });
    reaping_ = std::jthread([this](const std::stop_token& stop) { reap(stop); });
  }
  ~Keeper() override {
    close();
    reaping_.request_stop();
    reaping_.join();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return orders_ == 0; });
  }
  void close() override {
    if (!accepting_.joinable()) return;
    accepting_.request_stop();
    accepting_.join();
    (void)::unlink(socket_.c_str());
    listening_.reset();
  }
  bool keeps() const override {
    siginfo_t one{};
    return ::waitid(P_ALL, 0, &one, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
  }

 private:
  void accept(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd ready{.fd = listening_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      Fd from(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!from) continue;
      {
        std::unique_lock lock(mutex_);
        if (!done_.wait_for(lock, 1s, [&] { return orders_ < kMostOrders; })) continue;  // who asked is told by the end of the connection, and asks again
        ++orders_;
      }
      std::thread([this, from = std::move(from)] {
        answer(from);
        const std::lock_guard lock(mutex_);
        --orders_;
        done_.notify_all();
      }).detach();
    }
  }

  void answer(const Fd& from) {
    limit_waits(from, 5s);
    ucred who{};
    socklen_t size = sizeof who;
    // The socket is root's; this holds as well where its folder was made readable by mistake.
    if (::getsockopt(from.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != ::geteuid()) return;
    std::string packet(kMostOrder, '\0');
    std::array<char, CMSG_SPACE(2 * sizeof(int))> room{};
    iovec part{.iov_base = packet.data(), .iov_len = packet.size()};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = room.data(), message.msg_controllen = room.size();
    const ssize_t got = ::recvmsg(from.get(), &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return;
    std::vector<Fd> streams;
    for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
      if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t i = 0; i < (one->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(one) + i * sizeof(int), sizeof fd);
        streams.emplace_back(fd);
      }
    }
    packet.resize(static_cast<std::size_t>(got));
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || streams.size() != 2) return;
    const auto complain = [&](const std::string& why) {
      const std::string text = "fairlead-volumes: " + why + "\n";
      (void)write_without_sigpipe(streams[1].get(), text.data(), text.size());
      return 1;
    };
    const auto order = read_order(packet);
    const std::string status = std::to_string(order ? run(*order, streams, complain) : complain(order.error().message));
    (void)::send(from.get(), status.data(), status.size(), MSG_NOSIGNAL);
  }

  template <class Complain>
  int run(const std::vector<std::string>& arguments, const std::vector<Fd>& streams, const Complain& complain) {
    Command command;
    command.argv = {program_};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    command.stdin_fd = streams[0].get(), command.stderr_fd = streams[1].get();
    auto child = [&] {
      // Nobody reaps it in between.
      const std::lock_guard lock(mutex_);
      auto out = Child::start(command);
      if (out) own_.insert(out->pid());
      return out;
    }();
    if (!child) return complain(child.error().message);
    const auto ended = child->wait(std::chrono::duration_cast<std::chrono::milliseconds>(kStart));
    const pid_t pid = child->pid();
    const int status = !ended ? complain(ended.error().message) : *ended ? (*ended)->code : complain("the engine has not begun within 30 s");
    const std::lock_guard lock(mutex_);
    own_.erase(pid);
    return status;
  }

  // Engines are nobody's children once their first process has ended, and so this one's: of a container it is the first, and elsewhere it asks for them.
  void reap(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      siginfo_t one{};
      {
        const std::lock_guard lock(mutex_);
        if (::waitid(P_ALL, 0, &one, WEXITED | WNOHANG | WNOWAIT) == 0 && one.si_pid != 0 && !own_.contains(one.si_pid)) {
          (void)::waitid(P_PID, static_cast<id_t>(one.si_pid), nullptr, WEXITED);
          log_info("an engine has ended", {{"pid", std::to_string(one.si_pid)}, {"status", std::to_string(one.si_status)}});
          continue;
        }
      }
      std::this_thread::sleep_for(100ms);
    }
  }

  Fd listening_;
  const std::string socket_, program_;
  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::size_t orders_ = 0;
  std::set<pid_t> own_;  // that somebody waits for
  std::jthread accepting_, reaping_;
};

}  // namespace

Result<std::vector<std::string>> read_order(std::string_view packet) {
  if (packet.empty() || packet.back() != '\0') return fail(Code::Invalid, "an order of arguments, each ended by a zero byte, is expected");
  packet.remove_suffix(1);
  std::vector<std::string> out;
  for (const std::string_view one : split(packet, '\0')) out.emplace_back(one);
  if (out.size() > kMostArguments) return fail(Code::Invalid, fmt::format("{} arguments at most", kMostArguments));
  if (out.front() != "serve") return fail(Code::Invalid, "engines are started here, and nothing else");
  return out;
}

std::string print_order(const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& one : arguments) out.append(one).push_back('\0');
  return out;
}

Result<std::unique_ptr<EngineKeeper>> EngineKeeper::start(const std::string& socket, const std::string& program) {
  if (keeper_answers(socket)) return fail(Code::Conflict, fmt::format("another process keeps engines at {}", socket));
  const auto address = address_of(socket);
  if (!address) return std::unexpected(address.error());
  (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
  (void)::unlink(socket.c_str());
  Fd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!listening) return fail_errno(errno, "make a socket");
  // Closed to others before anybody can connect.
  const mode_t before = ::umask(0077);
  const int bound = ::bind(listening.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address), error = errno;
  ::umask(before);
  if (bound != 0) return fail_errno(error, "listen at " + socket);
  if (::listen(listening.get(), 16) != 0) return fail_errno(errno, "listen at " + socket);
  return std::make_unique<Keeper>(std::move(listening), socket, program);
}

bool keeper_answers(const std::string& socket) { return connect_to(socket).has_value(); }

Result<void> ask_keeper(const std::string& socket, const std::vector<std::string>& arguments, std::chrono::milliseconds limit, std::string_view input) {
  auto to = connect_to(socket);
  if (!to) return std::unexpected(std::move(to.error()));
  limit_waits(*to, limit);
  int in[2] = {-1, -1}, said[2] = {-1, -1};
  if (::pipe2(in, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  const Fd read_in(in[0]);
  Fd write_in(in[1]);
  if (::pipe2(said, O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno(errno, "make a pipe");
  const Fd read_said(said[0]), write_said(said[1]);
  // A pipe holds 64 KiB: this does not wait for who reads it.
  if (input.size() > 4096) return fail(Code::Invalid, "input of 4 KiB at most");
  if (!input.empty() && write_without_sigpipe(write_in.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size())) return fail_errno(errno, "write to a pipe");
  write_in.reset();
  std::string packet = print_order(arguments);
  if (packet.size() > kMostOrder) return fail(Code::Invalid, "too many arguments");
  const int streams[2] = {read_in.get(), write_said.get()};
  std::array<char, CMSG_SPACE(sizeof streams)> room{};
  iovec part{.iov_base = packet.data(), .iov_len = packet.size()};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = room.data(), message.msg_controllen = room.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(rights), streams, sizeof streams);
  const auto gone = [&](const char* what) { return fail(Code::Unavailable, fmt::format("who keeps engines at {} {}", socket, what)); };
  if (::sendmsg(to->get(), &message, MSG_NOSIGNAL) < 0) return gone("takes no order");
  char status[16] = {};
  const ssize_t got = ::recv(to->get(), status, sizeof status - 1, 0);
  if (got <= 0) return gone(got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? "has not answered in time" : "has gone");
  int code = -1;
  if (const auto [end, error] = std::from_chars(status, status + got, code); error != std::errc() || end != status + got) return gone("answers as no keeper does");
  if (code == 0) return {};
  std::string text(kMostSaid, '\0');
  const ssize_t n = ::read(read_said.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return fail(Code::Internal, fmt::format("it exited with {}: {}", code, std::string(trim(text))));
}

}  // namespace fairlead::volumes
