// SPDX-License-Identifier: GPL-3.0-or-later
#include "reach.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

constexpr std::size_t kAtOnce = 512;  // descriptors

enum class Outcome { Silent, Refused, Accepted };
Outcome outcome_of(int error) { return error == 0 ? Outcome::Accepted : error == ECONNREFUSED ? Outcome::Refused : Outcome::Silent; }

// One try each, all begun before any is waited for; what has not come back within `limit` is silent. At most kAtOnce peers.
std::vector<Outcome> try_each(std::span<const sockaddr_in> peers, std::chrono::nanoseconds limit) {
  std::vector<Outcome> outcomes(peers.size(), Outcome::Silent);
  std::vector<Fd> sockets;
  std::vector<pollfd> watched;
  std::vector<std::size_t> of;  // whose each of them is
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    const int error = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peers[i]), sizeof peers[i]) == 0 ? 0 : errno;
    if (error != EINPROGRESS) {
      outcomes[i] = outcome_of(error);
      continue;
    }
    watched.push_back({socket.get(), POLLOUT, 0});
    sockets.push_back(std::move(socket));
    of.push_back(i);
  }
  const SystemClock clock;
  const auto until = clock.monotonic() + limit;
  std::size_t open = watched.size();
  while (open > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock.monotonic()).count();
    if (left <= 0 || ::poll(watched.data(), watched.size(), static_cast<int>(left)) <= 0) break;
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      if (::getsockopt(watched[i].fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0) outcomes[of[i]] = outcome_of(error);
      watched[i].fd = -1;
      --open;
    }
  }
  return outcomes;
}

}  // namespace

std::vector<sockaddr_in> addresses_of(const std::string& host, std::uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  std::vector<sockaddr_in> addresses;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    auto address = *reinterpret_cast<const sockaddr_in*>(at->ai_addr);
    address.sin_port = htons(port);
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

std::string own_address(const std::string& host, const std::string& port) {
  for (const sockaddr_in& there : addresses_of(host, static_cast<std::uint16_t>(std::atoi(port.c_str())))) {
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    socklen_t size = sizeof own;
    char text[INET_ADDRSTRLEN] = "";
    if (socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0 && ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof text))
      return text;
  }
  return {};
}

bool reachable(const std::string& host, const std::string& port) {
  const auto addresses = addresses_of(host, static_cast<std::uint16_t>(std::atoi(port.c_str())));
  return !addresses.empty() && accepting({addresses.begin(), addresses.begin() + 1}, 2s)[0];
}

std::vector<bool> accepting(const std::vector<sockaddr_in>& peers, std::chrono::milliseconds limit) {
  const SystemClock clock;
  const auto until = clock.monotonic() + limit;
  const std::span<const sockaddr_in> all(peers);
  std::vector<bool> out;
  while (out.size() < peers.size()) {
    const auto some = all.subspan(out.size(), std::min(kAtOnce, peers.size() - out.size()));
    // Those that come later must not find the time used up by silent ones before them.
    const auto rounds = static_cast<std::int64_t>((peers.size() - out.size() + kAtOnce - 1) / kAtOnce);
    for (const Outcome outcome : try_each(some, (until - clock.monotonic()) / rounds)) out.push_back(outcome == Outcome::Accepted);
  }
  return out;
}

std::vector<sockaddr_in> silent_peers(std::vector<sockaddr_in> peers, std::chrono::milliseconds limit) {
  const SystemClock clock;
  const auto until = clock.monotonic() + limit;
  while (!peers.empty()) {
    std::vector<sockaddr_in> silent;
    const std::span<const sockaddr_in> all(peers);
    for (std::size_t from = 0; from < peers.size(); from += kAtOnce) {
      const auto some = all.subspan(from, std::min(kAtOnce, peers.size() - from));
      const auto outcomes = try_each(some, 300ms);
      for (std::size_t i = 0; i < some.size(); ++i)
        if (outcomes[i] == Outcome::Silent) silent.push_back(some[i]);
    }
    peers = std::move(silent);
    if (clock.monotonic() >= until) break;
    if (!peers.empty()) std::this_thread::sleep_for(50ms);
  }
  return peers;
}

std::vector<sockaddr_in> live_nodes(const std::string& lines, const std::string& own, std::uint16_t port) {
  std::vector<sockaddr_in> nodes;
  for (const auto& line : split(lines, '\n')) {
    const auto value = [&line](std::string_view key) -> std::string {
      // Each key stands after a space, but the first.
      for (auto at = line.find(key); at != std::string::npos; at = line.find(key, at + 1))
        if (at == 0 || line[at - 1] == ' ') {
          const auto begin = at + key.size();
          return line.substr(begin, line.find(' ', begin) - begin);
        }
      return "";
    };
    const std::string state = value("State=");
    if (line.empty() || value("NodeName=") == own || state.find('*') != std::string::npos || state.find("DOWN") != std::string::npos || state.find("UNKNOWN") != std::string::npos) continue;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (::inet_pton(AF_INET, value("NodeAddr=").c_str(), &address.sin_addr) == 1) nodes.push_back(address);
  }
  return nodes;
}

}  // namespace fairlead::companion
