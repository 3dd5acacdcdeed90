// SPDX-License-Identifier: GPL-3.0-or-later
// Datagrams between the voters of a cluster. Names are looked up beside, so that a slow name server holds up nothing; an answer goes where its question came from.
#pragma once
#include <netinet/in.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/quorum_wire.h"
#include "base/result.h"

namespace fairlead::companion {

class Channel {
 public:
  // `voters`: HOST:PORT by number. Listens on the port of `self`, on every address.
  static Result<std::unique_ptr<Channel>> open(std::vector<std::string> voters, std::uint8_t self, quorum::Group group);

  int fd() const { return socket_.get(); }
  void send(const quorum::Message& message);
  void send(const std::vector<quorum::Message>& messages) {
    for (const auto& message : messages) send(message);
  }
  // Where a voter is, as far as it is known; the port is that of its voting.
  std::optional<sockaddr_in> address_of(std::uint8_t voter);
  // The next that is of this quorum; nothing: none is waiting.
  std::optional<quorum::Message> receive();

 private:
  struct Voter {
    std::string host, port;
    std::optional<sockaddr_in> address;  // by its name
    std::optional<sockaddr_in> source;   // of its last question: where the answer goes, and all while its name is not known
  };
  Channel(std::vector<Voter> voters, quorum::Group group, Fd socket) : voters_(std::move(voters)), group_(std::move(group)), socket_(std::move(socket)) {}
  void look_up(const std::stop_token& stop);

  std::mutex mutex_;
  std::vector<Voter> voters_;  // addresses under mutex_
  const quorum::Group group_;
  const Fd socket_;
  std::jthread lookup_;
};

}  // namespace fairlead::companion
