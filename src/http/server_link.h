// SPDX-License-Identifier: Apache-2.0
// The part of a connection that other threads reach: its answer and its outbox. It outlives the connection and even the server, and knows no event loop: it is given a way to
// wake the connection's own. Private to server_beast.cpp and its tests.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "http/server.h"

namespace fairlead::http {

struct StreamStart {
  int status;
  Headers headers;
};
struct WebSocketStart {
  std::string subprotocol;
};
struct UpgradeStart {
  std::string protocol;
  Headers headers;
};
using Answer = std::variant<std::monostate, Response, StreamStart, WebSocketStart, UpgradeStart>;  // monostate: none yet

// Who sleeps until there is something to do. Called on the connection's strand only.
class LinkOwner {
 public:
  virtual void poke(bool abort_now) = 0;

 protected:
  ~LinkOwner() = default;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  using Message = std::function<void(std::string)>;
  // Has woken() called on the connection's strand, later. Called under the link's lock; from end() on never again.
  using Wake = std::function<void(std::shared_ptr<Link>)>;

  Link(Wake wake, LinkOwner& owner, std::size_t queue_limit) : wake_(std::move(wake)), owner_(&owner), queue_limit_(queue_limit) {}

  // Any thread.
  void answer(Answer answer);
  bool write(Buffer piece);  // as Stream::write
  bool open() const;
  std::size_t waiting() const;
  void finish();  // the outbox is complete: send what waits, then end
  void set_on_close(std::function<void()> callback);
  void start(Message on_message, std::function<void()> on_close);
  void forget_callbacks();
  void abort();

  // On the strand.
  void woken();
  Answer take_answer();
  struct Batch {
    std::vector<Buffer> pieces;
    std::size_t bytes = 0;
    bool finished = false;
  };
  Batch take_batch();
  void sent(std::size_t bytes);
  bool started() const;
  void deliver(std::string message) const;  // to who reads, if somebody does
  void end();                               // the connection is over: calls on_close

 private:
  enum class Whom { Sleeper, Anyone };
  void wake_locked(Whom whom = Whom::Sleeper);
  mutable std::mutex mutex_;
  Wake wake_;  // empty from the end of the connection on
  LinkOwner* owner_;
  const std::size_t queue_limit_;
  bool sleeping_ = false;  // the coroutine found nothing to do and waits for a wake
  bool woken_ = false, abort_ = false, finished_ = false, closed_ = false, started_ = false;
  Answer answer_;
  std::vector<Buffer> queue_;
  std::size_t waiting_bytes_ = 0;  // in the queue and being written
  std::function<void()> on_close_;
  std::shared_ptr<Message> on_message_;
};

// What a request asks for besides an answer.
struct Wishes {
  bool websocket = false;
  std::string upgrade;  // the protocol; empty: none
};
// What a handler gets. Dropped without an answer it answers 500.
std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Link> link, Wishes wishes);

}  // namespace fairlead::http
