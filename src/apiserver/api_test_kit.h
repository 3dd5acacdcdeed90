// SPDX-License-Identifier: Apache-2.0
// For tests of the HTTP face: a registry in memory, the handler over it, and an exchange that keeps what it was answered. Real code all the way but for the wire.
#pragma once
#include <condition_variable>
#include <mutex>

#include "apiserver/api_handler.h"
#include "apiserver/registry_bytes.h"
#include "apiserver/rbac_defaults.h"
#include "apiserver/store/store.h"
#include "base/encoding.h"
#include "http/server.h"

namespace fairlead::apiserver::testing_kit {

class RecordedStream final : public http::Stream {
 public:
  bool write(http::Buffer piece) override {
    const std::lock_guard lock(mutex_);
    if (!open_) return false;
    text_ += *piece;
    if (stuck_) waiting_ += piece->size();
    changed_.notify_all();
    return true;
  }
  std::size_t waiting() const override {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }
  bool open() const override {
    const std::lock_guard lock(mutex_);
    return open_;
  }
  void on_close(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    on_close_ = std::move(callback);
  }
  void client_leaves() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      open_ = false;
      callback.swap(on_close_);
    }
    if (callback) callback();
  }
  void get_stuck() {
    const std::lock_guard lock(mutex_);
    stuck_ = true;
  }
  void get_unstuck() {
    const std::lock_guard lock(mutex_);
    stuck_ = false;
    waiting_ = 0;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // Waits until `done` holds for what was written; false after ten seconds.
  bool wait_for(const std::function<bool(const std::string&)>& done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return done(text_); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::size_t waiting_ = 0;
  bool open_ = true, stuck_ = false;
  std::function<void()> on_close_;
};

class RecordedExchange final : public http::Exchange {
 public:
  void respond(http::Response response) override {
    const std::lock_guard lock(mutex_);
    for (const auto& part : response.parts) response.body += part.bytes;
    response_ = std::move(response);
    changed_.notify_all();
  }
  std::shared_ptr<http::Stream> stream(int status, http::Headers) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    auto stream = std::make_shared<RecordedStream>();
    stream_ = stream;
    kept_stream_ = stream;
    changed_.notify_all();
    return stream;
  }
  Result<std::shared_ptr<http::WebSocket>> accept_websocket(std::string_view) override { return fail(Code::Invalid, "no WebSocket in this test"); }

  http::Response wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(10), [&] { return response_.has_value(); })) return {.status = 0};
    return *response_;
  }
  std::shared_ptr<RecordedStream> wait_stream() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return kept_stream_ != nullptr || response_.has_value(); });
    return kept_stream_;
  }
  // The handler has let go of the stream: the body is over.
  bool wait_ended(std::chrono::seconds limit = std::chrono::seconds(10)) {
    wait_stream();
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      kept_stream_.reset();
      if (stream_.expired()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<http::Response> response_;
  std::weak_ptr<RecordedStream> stream_;
  std::shared_ptr<RecordedStream> kept_stream_;
  int status_ = 0;
};

// An API with an administrator ("admin-token"), a node w0 ("node-token") and a stranger ("eve-token").
struct Api {
  SystemClock clock;
  std::unique_ptr<Store> store = make_memory_store({}, common_parts);
  std::unique_ptr<Registry> registry;
  std::unique_ptr<ApiHandler> handler;

  explicit Api(HandlerOptions options = {}) {
    auto opened = Registry::open(*store, clock, {.secret_key = std::string(32, 'k')});
    INVARIANT(opened.has_value());
    registry = std::move(*opened);
    INVARIANT(reconcile_default_objects(*registry).has_value());
    options.tokens = {{sha256("admin-token"), "admin", {"system:masters"}}, {sha256("node-token"), "system:node:w0", {"system:nodes"}}, {sha256("eve-token"), "eve", {}}};
    handler = ApiHandler::make(*registry, clock, std::move(options));
  }

  std::shared_ptr<RecordedExchange> send(const std::string& method, const std::string& target, const std::string& body = "", http::Headers headers = {}, const std::string& token = "admin-token") {
    auto exchange = std::make_shared<RecordedExchange>();
    auto parsed = http::parse_target(target);
    INVARIANT(parsed.has_value());
    if (!token.empty()) headers.emplace_back("Authorization", "Bearer " + token);
    handler->handle({.method = method, .target = std::move(*parsed), .headers = std::move(headers), .body = body}, exchange);
    return exchange;
  }
  http::Response ask(const std::string& method, const std::string& target, const std::string& body = "", http::Headers headers = {}, const std::string& token = "admin-token") {
    return send(method, target, body, std::move(headers), token)->wait();
  }
  kube::Json json(const std::string& method, const std::string& target, const std::string& body = "", http::Headers headers = {}) {
    const auto parsed = kube::parse_json(ask(method, target, body, std::move(headers)).body);
    return parsed ? *parsed : kube::Json();
  }
};

}  // namespace fairlead::apiserver::testing_kit
