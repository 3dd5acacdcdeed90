// SPDX-License-Identifier: GPL-3.0-or-later
// A head that stands by passes on to the one that serves what comes to its own name. Programs that began while it was the only head know no other: slurmstepd and srun keep the configuration that they began with for as
// long as they live, and a step whose end nobody hears stays in COMPLETING, and keeps its node.
#pragma once
#include <netinet/in.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::companion {

// TCP over IPv4, byte for byte; who speaks proves himself to the other end, as without it. On a thread of its own. At most kMost connections at a time, others wait; one that is silent for kIdle is ended.
class Relay {
 public:
  static constexpr std::size_t kMost = 128;
  static constexpr std::chrono::seconds kIdle{60};

  // Listens on nothing yet. The thread has the signal mask and priority of the caller.
  static Result<std::unique_ptr<Relay>> start(std::uint16_t port);
  ~Relay();  // ends every connection

  // Where to, from here on; nothing: nowhere. Then the port can be listened on at once by others (who set SO_REUSEADDR, as slurmctld does), and what was under way is ended. Never blocks; cheap where it is the same as before.
  // While somebody else listens on the port nothing is passed on; it is tried again.
  void to(const std::optional<sockaddr_in>& where);
  bool listens() const;

 private:
  class Pair;
  Relay(std::uint16_t port, Fd bell) : port_(port), bell_(std::move(bell)) {}
  void run(const std::stop_token& stop);
  bool open_listener();  // under mutex_; false: it could not be
  std::optional<std::pair<Fd, sockaddr_in>> accept();  // and where it is to be passed on to

  const std::uint16_t port_;
  const Fd bell_;  // eventfd: `where_` changed, or the end
  mutable std::mutex mutex_;
  std::optional<sockaddr_in> where_;
  Fd listener_;
  bool shut_ = false;  // the listener is: it is to be closed
  std::jthread thread_;
};

}  // namespace fairlead::companion
