// SPDX-License-Identifier: GPL-3.0-or-later
#include "relay.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <list>
#include <vector>

namespace fairlead::companion {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kLookMs = 200;  // how often idle connections and a port that is in use are looked at

bool same(const std::optional<sockaddr_in>& a, const std::optional<sockaddr_in>& b) {
  return a.has_value() == b.has_value() && (!a || (a->sin_addr.s_addr == b->sin_addr.s_addr && a->sin_port == b->sin_port));
}

// What one end said and the other has not taken yet.
struct Way {
  std::array<char, 16384> bytes;
  std::size_t from = 0, to = 0, moved = 0;
  bool ended = false, told = false;  // the end of it was read; was passed on

  bool empty() const { return from == to; }
  bool over() const { return ended && empty(); }
  short wants_in() const { return !ended && empty() ? POLLIN : 0; }
  short wants_out() const { return !empty() ? POLLOUT : 0; }
  // False: broken.
  bool read(int fd) {
    if (ended || !empty()) return true;
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    from = 0, to = static_cast<std::size_t>(got), moved += to;
    ended = got == 0;
    return true;
  }
  bool write(int fd) {
    if (!empty()) {
      const ssize_t sent = ::send(fd, bytes.data() + from, to - from, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      from += static_cast<std::size_t>(sent), moved += static_cast<std::size_t>(sent);
    }
    if (over() && !told) told = true, (void)::shutdown(fd, SHUT_WR);
    return true;
  }
};

}  // namespace

class Relay::Pair {
 public:
  Pair(Fd client, const sockaddr_in& where) : client_(std::move(client)), server_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    broken_ = !server_ || (::connect(server_.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 && errno != EINPROGRESS);
  }
  void watch(std::vector<pollfd>& out) const {
    // Who is waited for neither way is not looked at: that he hung up would be told again and again.
    const auto look = [&](const Fd& fd, int events) { out.push_back({events != 0 ? fd.get() : -1, static_cast<short>(events), 0}); };
    look(client_, connected_ ? there_.wants_in() | back_.wants_out() : 0);
    look(server_, connected_ ? back_.wants_in() | there_.wants_out() : POLLOUT);
  }
  void move(const pollfd& client, const pollfd& server, Clock::time_point now) {
    const std::size_t before = there_.moved + back_.moved;
    if (!connected_ && server.revents != 0) {
      int error = 0;
      socklen_t size = sizeof error;
      broken_ = ::getsockopt(server_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0;
      connected_ = !broken_;
    }
    if (broken_ || !connected_) return;
    // What both ends have said before one of them was gone is passed on still; an end that takes no more breaks it.
    broken_ = !there_.read(client_.get()) || !back_.read(server_.get()) || !there_.write(server_.get()) || !back_.write(client_.get()) || ((client.revents | server.revents) & (POLLERR | POLLNVAL)) != 0;
    if (there_.moved + back_.moved != before) moved_ = now;
  }
  bool over(Clock::time_point now) const { return broken_ || (there_.over() && back_.over()) || now - moved_ > kIdle; }

 private:
  Fd client_, server_;
  bool connected_ = false, broken_ = false;
  Clock::time_point moved_ = Clock::now();
  Way there_, back_;  // from the client, to it
};

Result<std::unique_ptr<Relay>> Relay::start(std::uint16_t port) {
  Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) return fail_errno(errno, "make an event");
  auto relay = std::unique_ptr<Relay>(new Relay(port, std::move(bell)));
  relay->thread_ = std::jthread([at = relay.get()](const std::stop_token& stop) { at->run(stop); });
  return relay;
}

Relay::~Relay() {
  thread_.request_stop();
  (void)::eventfd_write(bell_.get(), 1);
}

void Relay::to(const std::optional<sockaddr_in>& where) {
  const std::lock_guard lock(mutex_);
  if (same(where_, where)) return;
  where_ = where;
  if (!where_ && listener_) {
    // Closing it would not do: the thread may be waiting on it, which keeps it open. One that was shut down does not listen, and keeps nobody from the port.
    (void)::shutdown(listener_.get(), SHUT_RDWR);
    shut_ = true;
  }
  (void)::eventfd_write(bell_.get(), 1);
}

bool Relay::listens() const {
  const std::lock_guard lock(mutex_);
  return listener_ && !shut_;
}

bool Relay::open_listener() {
  if (listener_ || !where_) return true;
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port_);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || ::listen(socket.get(), 64) != 0) return false;
  listener_ = std::move(socket);
  return true;
}

std::optional<std::pair<Fd, sockaddr_in>> Relay::accept() {
  const std::lock_guard lock(mutex_);
  if (!listener_ || shut_ || !where_) return std::nullopt;
  Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client) return std::nullopt;
  return std::pair(std::move(client), *where_);
}

void Relay::run(const std::stop_token& stop) {
  std::list<Pair> pairs;
  std::vector<pollfd> watched;
  while (!stop.stop_requested()) {
    bool open = false;
    watched.assign(1, {bell_.get(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(shut_, false)) {
        listener_.reset();
        pairs.clear();
      }
      open = open_listener();
      watched.push_back({listener_ && pairs.size() < kMost ? listener_.get() : -1, POLLIN, 0});
    }
    for (const Pair& pair : pairs) pair.watch(watched);
    ::poll(watched.data(), watched.size(), pairs.empty() && open ? -1 : kLookMs);
    eventfd_t rung = 0;
    (void)::eventfd_read(bell_.get(), &rung);
    auto at = watched.begin() + 2;
    const auto now = Clock::now();
    for (auto pair = pairs.begin(); pair != pairs.end(); at += 2) {
      pair->move(at[0], at[1], now);
      pair = pair->over(now) ? pairs.erase(pair) : std::next(pair);
    }
    if (watched[1].revents != 0)
      if (auto client = accept()) pairs.emplace_back(std::move(client->first), client->second);
  }
}

}  // namespace fairlead::companion
