// SPDX-License-Identifier: GPL-3.0-or-later
#include "channel.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace fairlead::companion {
namespace {

std::optional<sockaddr_in> look_up_address(const std::string& host, const std::string& port) {
  const addrinfo hints{.ai_flags = AI_NUMERICSERV, .ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0 || !found) return std::nullopt;
  sockaddr_in out{};
  std::memcpy(&out, found->ai_addr, sizeof out);
  ::freeaddrinfo(found);
  return out;
}

}  // namespace

Result<std::unique_ptr<Channel>> Channel::open(std::vector<std::string> voters, std::uint8_t self, quorum::Group group) {
  std::vector<Voter> list;
  for (const std::string& voter : voters) {
    const auto colon = voter.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == voter.size()) return fail(Code::Invalid, fmt::format("voter \"{}\": give HOST:PORT", voter));
    list.push_back({voter.substr(0, colon), voter.substr(colon + 1), std::nullopt});
  }
  if (self >= list.size() || list.size() > 15) return fail(Code::Invalid, fmt::format("{} voters, and this is number {}", list.size(), self));
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "make a socket");
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(std::atoi(list[self].port.c_str())));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) return fail_errno(errno, "listen on UDP port " + list[self].port);
  auto channel = std::unique_ptr<Channel>(new Channel(std::move(list), std::move(group), std::move(socket)));
  channel->lookup_ = std::jthread([at = channel.get()](const std::stop_token& stop) { at->look_up(stop); });
  return channel;
}

void Channel::look_up(const std::stop_token& stop) {
  std::mutex idle;
  std::condition_variable_any never;
  while (!stop.stop_requested()) {
    for (Voter& voter : voters_) {
      const auto address = look_up_address(voter.host, voter.port);
      if (!address) continue;  // the one before may still be right
      const std::lock_guard lock(mutex_);
      voter.address = *address;
    }
    // Pods get new addresses when they are made anew; those that wait for one are looked at more often.
    bool all = true;
    {
      const std::lock_guard lock(mutex_);
      for (const Voter& voter : voters_) all = all && voter.address;
    }
    std::unique_lock lock(idle);
    never.wait_for(lock, stop, std::chrono::milliseconds(all ? 1000 : 200), [] { return false; });
  }
}

void Channel::send(const quorum::Message& message) {
  if (message.to >= voters_.size()) return;
  std::optional<sockaddr_in> to;
  {
    const std::lock_guard lock(mutex_);
    const Voter& voter = voters_[message.to];
    const bool answer = message.kind == quorum::Kind::Grant || message.kind == quorum::Kind::Refuse;
    to = (answer && voter.source) || !voter.address ? voter.source : voter.address;
  }
  if (!to) return;
  const std::string datagram = quorum::encode(message, group_);
  // What cannot be sent is lost, as on any network.
  (void)::sendto(socket_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&*to), sizeof *to);
}

std::optional<sockaddr_in> Channel::address_of(std::uint8_t voter) {
  if (voter >= voters_.size()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return voters_[voter].address ? voters_[voter].address : voters_[voter].source;
}

std::optional<quorum::Message> Channel::receive() {
  char buffer[quorum::datagram_size + 1];
  // At most so many of strangers at once: the owner has other things to do.
  for (int i = 0; i < 64; ++i) {
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const ssize_t got = ::recvfrom(socket_.get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (got < 0) {
      if (errno == ECONNREFUSED || errno == EINTR) continue;  // told of something sent before
      return std::nullopt;
    }
    auto message = quorum::decode({buffer, static_cast<std::size_t>(got)}, group_);
    if (!message || message->from >= voters_.size()) continue;
    if (message->kind == quorum::Kind::Ask) {
      const std::lock_guard lock(mutex_);
      voters_[message->from].source = from;
    }
    return message;
  }
  return std::nullopt;
}

}  // namespace fairlead::companion
