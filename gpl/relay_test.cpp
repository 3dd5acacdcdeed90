// SPDX-License-Identifier: GPL-3.0-or-later
#include "relay.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <thread>

namespace fairlead::companion {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}
std::uint16_t port_of(const Fd& socket) {
  sockaddr_in out{};
  socklen_t size = sizeof out;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&out), &size);
  return ntohs(out.sin_port);
}
// As slurmctld does. Nothing: somebody listens there.
Fd listen_on(std::uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in at = loopback(port);
  at.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 || ::listen(socket.get(), 16) != 0) socket.reset();
  return socket;
}
std::uint16_t free_port() { return port_of(listen_on(0)); }
Fd connect_to(std::uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const sockaddr_in at = loopback(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) socket.reset();
  return socket;
}
void say(const Fd& socket, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t sent = ::send(socket.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return;
    done += static_cast<std::size_t>(sent);
  }
}
std::string hear(const Fd& socket) { // to its end
  std::string out;
  char bytes[65536];
  for (ssize_t got; (got = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;) out.append(bytes, static_cast<std::size_t>(got));
  return out;
}
bool comes_true(const std::function<bool()>& what) {
  for (int n = 0; n < 2000 && !what(); ++n) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return what();
}

// Reads what a client says to its end, and answers with its own name and that.
class Server {
 public:
  explicit Server(std::string name) : name_(std::move(name)), listener_(listen_on(0)), thread_([this] {
    while (true) {
      const Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      say(client, name_ + hear(client));
    }
  }) {}
  ~Server() { ::shutdown(listener_.get(), SHUT_RDWR); }
  sockaddr_in where() const { return loopback(port_of(listener_)); }

 private:
  const std::string name_;
  const Fd listener_;
  std::jthread thread_;
};

std::string ask(std::uint16_t port, const std::string& text) {
  const Fd client = connect_to(port);
  if (!client) return "nobody";
  say(client, text);
  ::shutdown(client.get(), SHUT_WR);
  return hear(client);
}

TEST(Relay, PassesOnBothWaysToWhomItIsTold) {
  const Server one("one:"), two("two:");
  const std::uint16_t port = free_port();
  auto relay = Relay::start(port);
  ASSERT_TRUE(relay) << relay.error().message;
  EXPECT_EQ(ask(port, "x"), "nobody") << "it was told nobody yet";
  (*relay)->to(one.where());
  ASSERT_TRUE(comes_true([&] { return (*relay)->listens(); }));
  EXPECT_EQ(ask(port, "x"), "one:x");
  (*relay)->to(two.where());
  EXPECT_EQ(ask(port, "y"), "two:y");
  const std::string much(8 << 20, 'm');
  EXPECT_TRUE(ask(port, much) == "two:" + much);
  std::vector<std::jthread> clients;
  std::atomic<int> right{0};
  for (int n = 0; n < 20; ++n) clients.emplace_back([&, n] { right += ask(port, std::to_string(n)) == "two:" + std::to_string(n) ? 1 : 0; });
  clients.clear();
  EXPECT_EQ(right, 20);
}

TEST(Relay, LeavesThePortAtOnceToWhoIsToServe) {
  const Server other("other:");
  const std::uint16_t port = free_port();
  auto relay = Relay::start(port);
  ASSERT_TRUE(relay);
  for (int round = 0; round < 50; ++round) {
    (*relay)->to(other.where());
    ASSERT_TRUE(comes_true([&] { return (*relay)->listens(); }));
    const Fd under_way = connect_to(port);
    ASSERT_TRUE(under_way);
    (*relay)->to(std::nullopt);
    const Fd own = listen_on(port);
    ASSERT_TRUE(own) << "in round " << round << ": " << std::strerror(errno);
    EXPECT_EQ(hear(under_way), "") << "what was under way is ended";
  }
}

TEST(Relay, WaitsForAPortThatIsInUse) {
  const Server other("other:");
  Fd own = listen_on(0);
  const std::uint16_t port = port_of(own);
  auto relay = Relay::start(port);
  ASSERT_TRUE(relay);
  (*relay)->to(other.where());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE((*relay)->listens());
  own.reset();
  ASSERT_TRUE(comes_true([&] { return (*relay)->listens(); }));
  EXPECT_EQ(ask(port, "x"), "other:x");
}

TEST(Relay, EndsAConnectionWhoseOtherEndIsGone) {
  const std::uint16_t nobody = free_port(), port = free_port();
  auto relay = Relay::start(port);
  ASSERT_TRUE(relay);
  (*relay)->to(loopback(nobody));
  ASSERT_TRUE(comes_true([&] { return (*relay)->listens(); }));
  EXPECT_EQ(ask(port, "x"), "");
  // One that is there, and goes in the midst.
  Fd server = listen_on(0);
  (*relay)->to(loopback(port_of(server)));
  const Fd client = connect_to(port);
  Fd at(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(at);
  say(client, "half a message");
  at.reset();
  EXPECT_EQ(hear(client), "");
}

TEST(Relay, EndsWithConnectionsUnderWay) {
  const Fd server = listen_on(0);
  const std::uint16_t port = free_port();
  auto relay = Relay::start(port);
  ASSERT_TRUE(relay);
  (*relay)->to(loopback(port_of(server)));
  ASSERT_TRUE(comes_true([&] { return (*relay)->listens(); }));
  const Fd client = connect_to(port);
  relay->reset();
  EXPECT_EQ(hear(client), "");
}

}  // namespace
}  // namespace fairlead::companion
