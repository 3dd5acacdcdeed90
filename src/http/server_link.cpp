// SPDX-License-Identifier: Apache-2.0
#include "http/server_link.h"

#include <fmt/format.h>
#include <strings.h>

#include <atomic>

#include "base/log.h"

namespace fairlead::http {

void Link::wake_locked(Whom whom) {
  if (!wake_ || woken_ || (whom == Whom::Sleeper && !sleeping_)) return;
  sleeping_ = false;
  woken_ = true;
  wake_(shared_from_this());
}

void Link::woken() {
  LinkOwner* owner = nullptr;
  bool abort_now = false;
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    owner = owner_;  // cleared on this strand, so it stays valid below
    abort_now = abort_;
  }
  if (owner != nullptr) owner->poke(abort_now);
}

void Link::answer(Answer answer) {
  const std::lock_guard lock(mutex_);
  if (!wake_) return;
  answer_ = std::move(answer);
  wake_locked();
}

Answer Link::take_answer() {
  const std::lock_guard lock(mutex_);
  sleeping_ = answer_.index() == 0;
  return std::exchange(answer_, Answer{});
}

bool Link::write(Buffer piece) {
  if (!piece || piece->empty()) return open();
  const std::lock_guard lock(mutex_);
  if (closed_ || finished_) return false;
  if (waiting_bytes_ + piece->size() > queue_limit_) {
    closed_ = true;
    abort_ = true;
    queue_.clear();
    wake_locked(Whom::Anyone);
    return false;
  }
  waiting_bytes_ += piece->size();
  queue_.push_back(std::move(piece));
  wake_locked();
  return true;
}

bool Link::open() const {
  const std::lock_guard lock(mutex_);
  return !closed_;
}

std::size_t Link::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_;
}

void Link::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  wake_locked();
}

void Link::abort() {
  const std::lock_guard lock(mutex_);
  abort_ = true;
  wake_locked(Whom::Anyone);
}

void Link::set_on_close(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (wake_) {
      on_close_ = std::move(callback);
      return;
    }
  }
  if (callback) callback();
}

void Link::start(Message on_message, std::function<void()> on_close) {
  {
    const std::lock_guard lock(mutex_);
    if (wake_) {
      on_message_ = std::make_shared<Message>(std::move(on_message));
      on_close_ = std::move(on_close);
      started_ = true;
      wake_locked();
      return;
    }
  }
  if (on_close) on_close();
}

void Link::forget_callbacks() {
  std::function<void()> on_close;  // destroyed outside the lock: they may own anything
  std::shared_ptr<Message> on_message;
  const std::lock_guard lock(mutex_);
  on_close.swap(on_close_);
  on_message.swap(on_message_);
}

Link::Batch Link::take_batch() {
  const std::lock_guard lock(mutex_);
  Batch batch{.pieces = std::exchange(queue_, {}), .finished = finished_};
  for (const auto& piece : batch.pieces) batch.bytes += piece->size();
  sleeping_ = batch.pieces.empty() && !batch.finished;
  return batch;
}

void Link::sent(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  waiting_bytes_ -= std::min(bytes, waiting_bytes_);
}

bool Link::started() const {
  const std::lock_guard lock(mutex_);
  return started_;
}

void Link::deliver(std::string message) const {
  std::shared_ptr<Message> callback;
  {
    const std::lock_guard lock(mutex_);
    callback = on_message_;
  }
  if (callback && *callback) (*callback)(std::move(message));
}

void Link::end() {
  std::function<void()> on_close;
  std::shared_ptr<Message> on_message;
  std::vector<Buffer> queue;
  {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
    owner_ = nullptr;
    closed_ = true;
    on_close.swap(on_close_);
    on_message.swap(on_message_);
    queue.swap(queue_);
  }
  if (on_close) on_close();
}

namespace {

bool same_name(const std::string& a, std::string_view b) { return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), b.size()) == 0; }

class LinkStream final : public Stream {
 public:
  explicit LinkStream(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  ~LinkStream() override {
    link_->forget_callbacks();
    link_->finish();
  }
  bool write(Buffer piece) override { return link_->write(std::move(piece)); }
  std::size_t waiting() const override { return link_->waiting(); }
  bool open() const override { return link_->open(); }
  void on_close(std::function<void()> callback) override { link_->set_on_close(std::move(callback)); }

 private:
  std::shared_ptr<Link> link_;
};

class LinkWebSocket final : public WebSocket {
 public:
  explicit LinkWebSocket(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  ~LinkWebSocket() override {
    link_->forget_callbacks();
    link_->finish();
  }
  bool send(std::string message) override { return link_->write(std::make_shared<const std::string>(std::move(message))); }
  std::size_t waiting() const override { return link_->waiting(); }
  bool open() const override { return link_->open(); }
  void start(std::function<void(std::string)> on_message, std::function<void()> on_close) override {
    link_->start(std::move(on_message), std::move(on_close));
  }
  void close() override { link_->finish(); }

 private:
  std::shared_ptr<Link> link_;
};

class LinkExchange final : public Exchange {
 public:
  LinkExchange(std::shared_ptr<Link> link, Wishes wishes) : link_(std::move(link)), wishes_(std::move(wishes)) {}
  ~LinkExchange() override {
    if (!answered_.exchange(true)) link_->answer(Response{.status = 500, .headers = {{"Content-Type", "text/plain"}}, .body = "the request was not answered\n"});
  }
  void respond(Response response) override {
    if (first()) link_->answer(std::move(response));
  }
  std::shared_ptr<Stream> stream(int status, Headers headers) override {
    INVARIANT(first());
    auto stream = std::make_shared<LinkStream>(link_);
    link_->answer(StreamStart{status, std::move(headers)});
    return stream;
  }
  Result<std::shared_ptr<WebSocket>> accept_websocket(std::string_view subprotocol) override {
    if (!wishes_.websocket) return fail(Code::Invalid, "the request does not ask for a WebSocket");
    INVARIANT(first());
    std::shared_ptr<WebSocket> socket = std::make_shared<LinkWebSocket>(link_);
    link_->answer(WebSocketStart{std::string(subprotocol)});
    return socket;
  }
  Result<std::shared_ptr<WebSocket>> accept_upgrade(std::string_view protocol, Headers headers) override {
    if (!same_name(wishes_.upgrade, protocol)) return fail(Code::Invalid, fmt::format("the request does not ask for an upgrade to {}", protocol));
    INVARIANT(first());
    std::shared_ptr<WebSocket> socket = std::make_shared<LinkWebSocket>(link_);
    link_->answer(UpgradeStart{std::string(protocol), std::move(headers)});
    return socket;
  }

 private:
  bool first() {
    if (!answered_.exchange(true)) return true;
    log_error("a request was answered twice");
    return false;
  }
  std::shared_ptr<Link> link_;
  const Wishes wishes_;
  std::atomic<bool> answered_{false};
};

}  // namespace

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Link> link, Wishes wishes) { return std::make_shared<LinkExchange>(std::move(link), std::move(wishes)); }

Result<std::shared_ptr<WebSocket>> Exchange::accept_upgrade(std::string_view protocol, Headers) {
  return fail(Code::Invalid, fmt::format("no upgrade to {} here", protocol));
}

}  // namespace fairlead::http
