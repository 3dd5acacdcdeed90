// SPDX-License-Identifier: Apache-2.0
#include "http/client_queues.h"

#include <utility>

namespace fairlead::http {

Result<void> ClientQueues::put(std::string message) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || closing_ || outbox_bytes_ < limit_; });
  if (ended_ || closing_) return fail(Code::Unavailable, "the WebSocket is closed");
  outbox_bytes_ += message.size();
  outbox_.push_back(std::move(message));
  return {};
}

Result<ClientQueues::Taken> ClientQueues::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || !inbox_.empty(); });
  if (inbox_.empty()) {
    if (error_) return std::unexpected(*error_);
    return Taken{};
  }
  Taken out{.message = std::move(inbox_.front())};
  inbox_.pop_front();
  inbox_bytes_ -= out.message->size();
  if (!ended_ && inbox_bytes_ < limit_) out.read_on = std::exchange(reading_paused_, false);
  return out;
}

bool ClientQueues::close() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(closing_, true)) return false;
  changed_.notify_all();
  return true;
}

bool ClientQueues::arrived(std::string message) {
  const std::lock_guard lock(mutex_);
  if (closing_) return true;  // read on: the peer's goodbye is behind it
  inbox_bytes_ += message.size();
  inbox_.push_back(std::move(message));
  changed_.notify_all();
  reading_paused_ = inbox_bytes_ >= limit_;
  return !reading_paused_;
}

bool ClientQueues::resume() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reading_paused_, false);
}

ClientQueues::Next ClientQueues::next() const {
  const std::lock_guard lock(mutex_);
  if (ended_) return {};
  if (!outbox_.empty()) return {.message = &outbox_.front()};
  return {.goodbye = closing_};
}

void ClientQueues::sent() {
  const std::lock_guard lock(mutex_);
  outbox_bytes_ -= outbox_.front().size();
  outbox_.pop_front();
  changed_.notify_all();
}

bool ClientQueues::end(std::optional<Error> why) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return false;
  error_ = closing_ ? Error{Code::Unavailable, "the WebSocket was closed by us"} : std::move(why);
  changed_.notify_all();
  return true;
}

bool ClientQueues::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

}  // namespace fairlead::http
