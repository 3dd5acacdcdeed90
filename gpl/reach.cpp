// SPDX-License-Identifier: GPL-3.0-or-later
#include "reach.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

constexpr std::size_t kAtOnce = 512;  // descriptors

Fd begin(const sockaddr_in& peer, bool& answered) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool done = socket && (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0 || errno == ECONNREFUSED);
  answered = done;
  return socket;
}

// What is left of these after one try each.
std::vector<sockaddr_in> silent_of(const std::vector<sockaddr_in>& peers, std::chrono::milliseconds limit) {
  std::vector<sockaddr_in> silent;
  std::vector<Fd> sockets;
  std::vector<pollfd> watched;
  std::vector<const sockaddr_in*> waiting;
  for (const auto& peer : peers) {
    bool answered = false;
    Fd socket = begin(peer, answered);
    if (answered) continue;
    if (!socket) {
      silent.push_back(peer);
      continue;
    }
    watched.push_back({socket.get(), POLLOUT, 0});
    sockets.push_back(std::move(socket));
    waiting.push_back(&peer);
  }
  const SystemClock clock;
  const auto until = clock.monotonic() + limit;
  std::size_t open = watched.size();
  while (open > 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock.monotonic()).count();
    if (left <= 0 || ::poll(watched.data(), watched.size(), static_cast<int>(left)) <= 0) break;
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      const bool known = ::getsockopt(watched[i].fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0;
      if (!known || (error != 0 && error != ECONNREFUSED)) silent.push_back(*waiting[i]);
      watched[i].fd = -1;
      --open;
    }
  }
  for (std::size_t i = 0; i < watched.size(); ++i)
    if (watched[i].fd >= 0) silent.push_back(*waiting[i]);
  return silent;
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

bool reachable(const std::string& host, const std::string& port) {
  const auto addresses = addresses_of(host, static_cast<std::uint16_t>(std::atoi(port.c_str())));
  if (addresses.empty()) return false;
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&addresses[0]), sizeof addresses[0]) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd watched{socket.get(), POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  return ::poll(&watched, 1, 2000) == 1 && ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

std::vector<sockaddr_in> silent_peers(std::vector<sockaddr_in> peers, std::chrono::milliseconds limit) {
  const SystemClock clock;
  const auto until = clock.monotonic() + limit;
  while (!peers.empty()) {
    std::vector<sockaddr_in> silent;
    for (std::size_t from = 0; from < peers.size(); from += kAtOnce) {
      const std::vector<sockaddr_in> some(peers.begin() + static_cast<std::ptrdiff_t>(from), peers.begin() + static_cast<std::ptrdiff_t>(std::min(peers.size(), from + kAtOnce)));
      const auto left = silent_of(some, 300ms);
      silent.insert(silent.end(), left.begin(), left.end());
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
