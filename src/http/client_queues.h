// SPDX-License-Identifier: Apache-2.0
// Where the callers of a client's WebSocket and its event loop meet: two bounded queues of messages, and how it ended. Knows no event loop. Thread-safe.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace fairlead::http {

class ClientQueues {
 public:
  explicit ClientQueues(std::size_t limit) : limit_(limit) {}  // bytes, of each queue; one message may go beyond it

  // Callers. put blocks while the queue is full; Unavailable: closed or ended.
  Result<void> put(std::string message);
  // Blocks until there is a message or the end. `read_on`: the loop had paused reading for this queue and shall go on.
  struct Taken {
    std::optional<std::string> message;  // nullopt: ended in order
    bool read_on = false;
  };
  Result<Taken> take();
  // False: closed before. From now on put fails and what arrives is dropped.
  bool close();

  // The loop. True: there is room for more; false: do not read until take() or resume() say so.
  bool arrived(std::string message);
  bool resume();  // true: reading was paused; it is not any more
  struct Next {
    const std::string* message = nullptr;  // stays at its address until sent()
    bool goodbye = false;                  // closed, and all is sent
  };
  Next next() const;
  void sent();
  // The first call counts: it returns true. `why`: what take() says once the queue is empty; nullopt: the peer ended in order. Where we closed it ourselves, that is the reason.
  bool end(std::optional<Error> why);
  bool ended() const;

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> inbox_, outbox_;
  std::size_t inbox_bytes_ = 0, outbox_bytes_ = 0;
  bool reading_paused_ = false, closing_ = false, ended_ = false;
  std::optional<Error> error_;
};

}  // namespace fairlead::http
