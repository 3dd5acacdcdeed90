// SPDX-License-Identifier: Apache-2.0
// The server on Asio and Beast. One coroutine per connection on a strand of its own: it reads a request, calls the handler, sleeps until an answer
// is there, writes it. Other threads reach a connection only through its Link, which outlives it.
#ifdef __SANITIZE_THREAD__
#pragma GCC diagnostic ignored "-Wtsan"  // Asio has fences, which the sanitizer does not see; its mutexes order the same things
#endif

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket.hpp>
#include <atomic>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <variant>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "http/server.h"
#include "http/wire.h"

namespace fairlead::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace ssl = boost::asio::ssl;
namespace websocket = boost::beast::websocket;
using boost::system::error_code;
using Strand = asio::strand<asio::io_context::executor_type>;
using Task = asio::awaitable<void, Strand>;
template <class T>
using Coroutine = asio::awaitable<T, Strand>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Strand>;
using ServerWire = Wire<Strand>;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol, Strand>;
using Parser = beast::http::request_parser<beast::http::string_body>;
constexpr asio::use_awaitable_t<Strand> use_task;

constexpr std::uint32_t header_limit = 64 << 10;
constexpr std::size_t websocket_message_limit = 4 << 20;
constexpr auto sweep_every = 250ms;
constexpr auto body_timeout = 60s;
constexpr auto linger_timeout = 2s;
constexpr std::int64_t slowest_bytes_a_second = 64 << 10;  // a response is given 60 s and the time that this rate takes

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
using Answer = std::variant<std::monostate, Response, StreamStart, WebSocketStart, UpgradeStart>;

class Connection;

// The part of a connection that other threads reach: answer and outbox. Held by exchanges, streams and sockets, so it may outlive the connection
// and even the server; `strand_` is empty from the end of the connection on, and nothing is posted then.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(Strand strand, Connection* connection, std::size_t queue_limit) : strand_(std::move(strand)), connection_(connection), queue_limit_(queue_limit) {}

  // Any thread.
  void answer(Answer answer);
  bool write(Buffer piece);
  bool open() const;
  std::size_t waiting() const;
  void finish();  // the outbox is complete: send what waits, then end
  void set_on_close(std::function<void()> callback);
  void start(std::function<void(std::string)> on_message, std::function<void()> on_close);
  void forget_callbacks();
  void abort();

  // On the strand.
  Answer take_answer();
  struct Batch {
    std::vector<Buffer> pieces;
    std::size_t bytes = 0;
    bool finished = false;
  };
  Batch take_batch();
  void sent(std::size_t bytes);
  bool started() const;
  std::shared_ptr<std::function<void(std::string)>> message_callback() const;
  void end();  // the connection is over: calls on_close

 private:
  enum class Wake { Sleeper, Always };
  void wake_locked(Wake whom = Wake::Sleeper);
  mutable std::mutex mutex_;
  std::optional<Strand> strand_;
  Connection* connection_;
  const std::size_t queue_limit_;
  bool sleeping_ = false;  // the coroutine found nothing to do and waits for a wake
  bool woken_ = false, abort_ = false, finished_ = false, closed_ = false, started_ = false;
  Answer answer_;
  std::vector<Buffer> queue_;
  std::size_t waiting_bytes_ = 0;  // in the queue and being written
  std::function<void()> on_close_;
  std::shared_ptr<std::function<void(std::string)>> on_message_;
};

struct Core {
  ServerOptions options;
  Handler handler;
  std::optional<ssl::context> tls;
  asio::io_context io;
  std::mutex mutex;
  bool stopping = false;                        // under mutex, as the set
  std::unordered_set<Connection*> connections;  // open ones

  Core(ServerOptions o, Handler h) : options(std::move(o)), handler(std::move(h)), io(std::max(1, options.threads)) {}
};

// Everything here runs on the connection's strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Core& core, ServerWire::Socket socket) : core_(core), wire_(std::move(socket)), wake_(wire_.get_executor()) {
    link_ = std::make_shared<Link>(wire_.get_executor(), this, static_cast<std::size_t>(core.options.stream_queue.value));
  }
  static Task run(std::shared_ptr<Connection> self);
  void poke(bool abort_now) {
    if (abort_now) abort();
    wake_.cancel();
  }
  bool late(std::chrono::nanoseconds now) const {
    const auto deadline = deadline_.load(std::memory_order_relaxed);
    return deadline != 0 && now.count() > deadline;
  }
  Link& link() { return *link_; }
  void start_tls() { wire_.start_tls(*core_.tls); }

 private:
  enum class Read { Done, Gone, HeaderTooLarge, BodyTooLarge, Malformed };
  Task serve();
  Coroutine<Read> read_request();
  Coroutine<bool> fill();
  Coroutine<bool> write_response(Response response, bool keep_alive);
  Task refuse(int status, std::string why);
  Task run_stream(StreamStart start);
  Task run_websocket(WebSocketStart start);
  Task run_upgrade(UpgradeStart start);
  Task shut_down();
  Task wait_for_wake();
  Request take_request(Target target);
  void read_peer_name();
  void read_peer_address();
  void watch_peer();
  void read_message();
  void read_raw();
  void abort();
  void limit(std::chrono::nanoseconds time) { deadline_.store((SystemClock{}.monotonic() + time).count(), std::memory_order_relaxed); }
  void no_limit() { deadline_.store(0, std::memory_order_relaxed); }

  Core& core_;
  ServerWire wire_;
  Timer wake_;  // never expires: cancelled to wake the coroutine
  std::shared_ptr<Link> link_;
  std::optional<Parser> parser_;
  std::optional<websocket::stream<ServerWire&, false>> socket_;
  beast::flat_buffer buffer_;
  beast::flat_buffer message_;
  std::array<char, 512> ignored_;
  std::string raw_;  // of an upgraded connection: where its next bytes go
  Peer peer_;
  std::atomic<std::int64_t> deadline_{0};  // monotonic nanoseconds; 0: none
  bool lost_ = false;                      // the peer is gone or was cut off
  bool reading_ = false;                   // a read runs beside the coroutine
  bool stop_reading_ = false;              // and shall not be followed by another
};

// ---- Link

void Link::wake_locked(Wake whom) {
  if (!strand_ || woken_ || (whom == Wake::Sleeper && !sleeping_)) return;
  sleeping_ = false;
  woken_ = true;
  asio::post(*strand_, [self = shared_from_this()] {
    Connection* connection = nullptr;
    bool abort_now = false;
    {
      const std::lock_guard lock(self->mutex_);
      self->woken_ = false;
      connection = self->connection_;  // cleared on this strand, so it stays valid below
      abort_now = self->abort_;
    }
    if (connection != nullptr) connection->poke(abort_now);
  });
}

void Link::answer(Answer answer) {
  const std::lock_guard lock(mutex_);
  if (!strand_) return;
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
    wake_locked(Wake::Always);
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
  wake_locked(Wake::Always);
}

void Link::set_on_close(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (strand_) {
      on_close_ = std::move(callback);
      return;
    }
  }
  if (callback) callback();
}

void Link::start(std::function<void(std::string)> on_message, std::function<void()> on_close) {
  {
    const std::lock_guard lock(mutex_);
    if (strand_) {
      on_message_ = std::make_shared<std::function<void(std::string)>>(std::move(on_message));
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
  std::shared_ptr<std::function<void(std::string)>> on_message;
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

std::shared_ptr<std::function<void(std::string)>> Link::message_callback() const {
  const std::lock_guard lock(mutex_);
  return on_message_;
}

void Link::end() {
  std::function<void()> on_close;
  std::shared_ptr<std::function<void(std::string)>> on_message;
  std::vector<Buffer> queue;
  {
    const std::lock_guard lock(mutex_);
    strand_.reset();
    connection_ = nullptr;
    closed_ = true;
    on_close.swap(on_close_);
    on_message.swap(on_message_);
    queue.swap(queue_);
  }
  if (on_close) on_close();
}

// ---- what handlers hold

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
  LinkExchange(std::shared_ptr<Link> link, bool websocket, std::string upgrade)
      : link_(std::move(link)), websocket_(websocket), upgrade_(std::move(upgrade)) {}
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
    if (!websocket_) return fail(Code::Invalid, "the request does not ask for a WebSocket");
    INVARIANT(first());
    std::shared_ptr<WebSocket> socket = std::make_shared<LinkWebSocket>(link_);
    link_->answer(WebSocketStart{std::string(subprotocol)});
    return socket;
  }
  Result<std::shared_ptr<WebSocket>> accept_upgrade(std::string_view protocol, Headers headers) override {
    if (!beast::iequals(upgrade_, beast::string_view(protocol.data(), protocol.size())))
      return fail(Code::Invalid, fmt::format("the request does not ask for an upgrade to {}", protocol));
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
  const bool websocket_;
  const std::string upgrade_;  // the protocol that is asked for; empty: none
  std::atomic<bool> answered_{false};
};

// ---- texts

std::string http_date() {
  const std::time_t now = std::chrono::floor<std::chrono::seconds>(SystemClock{}.now()).time_since_epoch().count();
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

bool is(std::string_view a, std::string_view b) { return beast::iequals(beast::string_view(a.data(), a.size()), beast::string_view(b.data(), b.size())); }

// Status line and the handler's headers. What the server decides itself is left out, and no value can begin a new line.
std::string header_text(int status, const Headers& headers) {
  const auto reason = beast::http::obsolete_reason(static_cast<beast::http::status>(status));
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, std::string_view(reason.data(), reason.size()), http_date());
  for (const auto& [name, value] : headers) {
    if (is(name, "Content-Length") || is(name, "Transfer-Encoding") || is(name, "Connection") || is(name, "Date")) continue;
    const auto at = out.size();
    out += name;
    out += ": ";
    out += value;
    for (auto i = at; i < out.size(); ++i) {
      if (out[i] == '\r' || out[i] == '\n' || out[i] == '\0') out[i] = ' ';
    }
    out += "\r\n";
  }
  return out;
}

std::vector<std::string> name_entries(X509_NAME* name, int nid) {
  std::vector<std::string> out;
  for (int at = -1; (at = X509_NAME_get_index_by_NID(name, nid, at)) >= 0;) {
    unsigned char* text = nullptr;
    const int size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
    if (size < 0) continue;
    out.emplace_back(reinterpret_cast<char*>(text), static_cast<std::size_t>(size));
    OPENSSL_free(text);
  }
  return out;
}

// ---- Connection

Task Connection::run(std::shared_ptr<Connection> self) {
  self->read_peer_address();
  try {
    co_await self->serve();
  } catch (const std::exception& problem) {
    log_error("connection failed", {{"peer", self->peer_.address}, {"reason", problem.what()}});
  }
  self->abort();
  while (self->reading_) co_await self->wait_for_wake();
  {
    const std::lock_guard lock(self->core_.mutex);
    self->core_.connections.erase(self.get());
  }
  self->link_->end();
}

void Connection::abort() {
  lost_ = true;
  error_code ignored;
  wire_.socket().close(ignored);
}

Task Connection::wait_for_wake() {
  error_code ignored;
  wake_.expires_at(std::chrono::steady_clock::time_point::max());
  auto token = asio::redirect_error(use_task, ignored);
  co_await wake_.async_wait(token);
}

void Connection::read_peer_address() {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const int fd = wire_.socket().native_handle();
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
  if (address.ss_family == AF_UNIX) {
    peer_.address = "unix";
    return;
  }
  const auto* const ip4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* const ip6 = reinterpret_cast<const sockaddr_in6*>(&address);
  if (address.ss_family == AF_INET) {
    peer_.address = asio::ip::address_v4(ntohl(ip4->sin_addr.s_addr)).to_string();
  } else {
    asio::ip::address_v6::bytes_type bytes;
    std::copy_n(ip6->sin6_addr.s6_addr, bytes.size(), bytes.begin());
    peer_.address = asio::ip::address_v6(bytes).to_string();
  }
  // A peer that vanishes without a word is noticed after about two minutes, also below an idle watch.
  const int on = 1, idle = 60, every = 15, count = 4;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

// The handshake has verified the certificate if one was shown.
void Connection::read_peer_name() {
  SSL* const tls = wire_.tls()->native_handle();
  X509* const certificate = SSL_get1_peer_certificate(tls);
  if (certificate == nullptr) return;
  if (SSL_get_verify_result(tls) == X509_V_OK) {
    X509_NAME* const subject = X509_get_subject_name(certificate);
    const auto names = name_entries(subject, NID_commonName);
    if (names.size() == 1) {
      peer_.common_name = names[0];
      peer_.organizations = name_entries(subject, NID_organizationName);
    }
  }
  X509_free(certificate);
}

// Reads more into buffer_. False: the peer is gone.
Coroutine<bool> Connection::fill() {
  error_code error;
  auto token = asio::redirect_error(use_task, error);
  const asio::mutable_buffer space = buffer_.prepare(16 << 10);
  const std::size_t size = co_await wire_.async_read_some(space, token);
  buffer_.commit(size);
  co_return !error && !lost_;
}

Coroutine<Connection::Read> Connection::read_request() {
  parser_.emplace();
  parser_->header_limit(header_limit);
  parser_->body_limit(static_cast<std::uint64_t>(core_.options.body_limit.value));
  parser_->eager(true);
  bool asked_to_continue = false;
  bool in_body = false;
  if (buffer_.size() == 0) {
    limit(core_.options.idle_timeout);
    if (!co_await fill()) co_return Read::Gone;
  }
  limit(core_.options.handshake_timeout);
  for (;;) {
    std::size_t used = 0;
    if (buffer_.size() > 0) {
      error_code error;
      used = parser_->put(buffer_.data(), error);
      buffer_.consume(used);
      if (error == beast::http::error::header_limit) co_return Read::HeaderTooLarge;
      if (error == beast::http::error::body_limit) co_return Read::BodyTooLarge;
      if (error && error != beast::http::error::need_more) co_return Read::Malformed;
      if (parser_->is_done()) co_return Read::Done;
      if (parser_->is_header_done() && !in_body) {
        in_body = true;
        limit(body_timeout);
      }
      if (!error && used > 0 && buffer_.size() > 0) continue;
    }
    if (in_body && !asked_to_continue && beast::iequals(parser_->get()[beast::http::field::expect], "100-continue")) {
      asked_to_continue = true;
      static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      error_code error;
      auto token = asio::redirect_error(use_task, error);
      const asio::const_buffer text(go_on.data(), go_on.size());
      co_await asio::async_write(wire_, text, token);
      if (error) co_return Read::Gone;
    }
    if (!co_await fill()) co_return Read::Gone;
  }
}

Request Connection::take_request(Target target) {
  auto& message = parser_->get();
  Request request;
  request.method = std::string(message.method_string());
  request.target = std::move(target);
  for (const auto& field : message) request.headers.emplace_back(field.name_string(), field.value());
  request.body = std::move(message.body());
  request.peer = peer_;
  return request;
}

Task Connection::serve() {
  if (wire_.tls() != nullptr) {
    limit(core_.options.handshake_timeout);
    error_code error;
    auto token = asio::redirect_error(use_task, error);
    co_await wire_.tls()->async_handshake(ssl::stream_base::server, token);
    if (error || lost_) co_return;
    read_peer_name();
  }
  for (;;) {
    const Read read = co_await read_request();
    if (read == Read::Gone || lost_) co_return;
    if (read != Read::Done) {
      const int status = read == Read::BodyTooLarge ? 413 : read == Read::HeaderTooLarge ? 431 : 400;
      std::string why = read == Read::BodyTooLarge     ? fmt::format("the body is larger than {} bytes\n", core_.options.body_limit.value)
                        : read == Read::HeaderTooLarge ? fmt::format("the header is larger than {} bytes\n", header_limit)
                                                       : std::string("this is not HTTP/1.1\n");
      co_await refuse(status, std::move(why));
      co_return;
    }
    no_limit();
    const auto sent_target = parser_->get().target();
    auto target = parse_target({sent_target.data(), sent_target.size()});
    if (!target) {
      co_await refuse(400, target.error().message + "\n");
      co_return;
    }
    const bool keep_alive = parser_->keep_alive();
    {
      const auto& head = parser_->get();
      const bool upgrade = beast::http::token_list(head[beast::http::field::connection]).exists("upgrade");
      auto exchange =
          std::make_shared<LinkExchange>(link_, websocket::is_upgrade(head), upgrade ? std::string(head[beast::http::field::upgrade]) : std::string());
      Request request = take_request(std::move(*target));
      try {
        core_.handler(std::move(request), std::move(exchange));
      } catch (const std::exception& problem) {
        log_error("handler failed", {{"reason", problem.what()}});  // the dropped exchange answers 500
      }
    }
    Answer answer = link_->take_answer();
    while (answer.index() == 0) {
      if (lost_) co_return;
      co_await wait_for_wake();
      answer = link_->take_answer();
    }
    if (auto* const response = std::get_if<Response>(&answer)) {
      Response out = std::move(*response);
      const bool written = co_await write_response(std::move(out), keep_alive);
      if (!written) co_return;
      if (!keep_alive) {
        co_await shut_down();
        co_return;
      }
    } else if (auto* const stream = std::get_if<StreamStart>(&answer)) {
      StreamStart start = std::move(*stream);
      co_await run_stream(std::move(start));
      co_return;
    } else if (auto* const upgrade = std::get_if<UpgradeStart>(&answer)) {
      UpgradeStart start = std::move(*upgrade);
      co_await run_upgrade(std::move(start));
      co_return;
    } else {
      WebSocketStart start = std::move(std::get<WebSocketStart>(answer));
      co_await run_websocket(std::move(start));
      co_return;
    }
  }
}

Coroutine<bool> Connection::write_response(Response response, bool keep_alive) {
  std::size_t length = response.body.size();
  if (!response.parts.empty()) {
    length = 0;
    for (const auto& part : response.parts) length += part ? part->size() : 0;
  }
  std::string header = header_text(response.status, response.headers);
  const bool bodiless = response.status == 204 || response.status == 304 || response.status < 200;
  if (!bodiless) header += fmt::format("Content-Length: {}\r\n", length);
  header += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(1 + std::max<std::size_t>(1, response.parts.size()));
  buffers.emplace_back(header.data(), header.size());
  if (!bodiless && parser_->get().method() != beast::http::verb::head) {
    if (response.parts.empty()) {
      buffers.emplace_back(response.body.data(), response.body.size());
    } else {
      for (const auto& part : response.parts) {
        if (part && !part->empty()) buffers.emplace_back(part->data(), part->size());
      }
    }
  }
  limit(body_timeout + std::chrono::seconds(static_cast<std::int64_t>(length) / slowest_bytes_a_second));
  error_code error;
  auto token = asio::redirect_error(use_task, error);
  co_await asio::async_write(wire_, buffers, token);
  co_return !error && !lost_;
}

// Answers what was not a request and reads on for a moment: closing with unread bytes would reset the connection before the peer has read why.
Task Connection::refuse(int status, std::string why) {
  Response response{.status = status, .headers = {{"Content-Type", "text/plain"}}, .body = std::move(why)};
  const bool written = co_await write_response(std::move(response), false);
  if (!written) co_return;
  error_code ignored;
  wire_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  limit(linger_timeout);
  for (std::size_t rounds = 0; rounds < 4096; ++rounds) {
    buffer_.clear();
    if (!co_await fill()) co_return;
  }
}

// Reads beside the coroutine while a body is streamed: this is how we notice that the peer has gone. Whatever else comes is ignored, since the
// connection ends with the body.
void Connection::watch_peer() {
  reading_ = true;
  wire_.async_read_some(asio::buffer(ignored_), [self = shared_from_this()](error_code error, std::size_t) {
    if (!error && !self->lost_ && !self->stop_reading_) return self->watch_peer();
    self->reading_ = false;
    if (error && error != asio::error::operation_aborted) self->abort();
    self->wake_.cancel();
  });
}

Task Connection::run_stream(StreamStart start) {
  const bool chunked = parser_->get().version() >= 11;
  const bool bodiless = parser_->get().method() == beast::http::verb::head;
  std::string header = header_text(start.status, start.headers);
  if (chunked) header += "Transfer-Encoding: chunked\r\n";
  header += "Connection: close\r\n\r\n";
  watch_peer();
  for (;;) {
    if (lost_) co_return;
    const Link::Batch batch = link_->take_batch();
    if (header.empty() && batch.pieces.empty() && !batch.finished) {
      co_await wait_for_wake();
      continue;
    }
    std::string size_line;
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(batch.pieces.size() + 4);
    buffers.emplace_back(header.data(), header.size());
    if (!bodiless && batch.bytes > 0) {
      if (chunked) {
        size_line = fmt::format("{:x}\r\n", batch.bytes);
        buffers.emplace_back(size_line.data(), size_line.size());
      }
      for (const auto& piece : batch.pieces) buffers.emplace_back(piece->data(), piece->size());
      if (chunked) buffers.emplace_back("\r\n", 2);
    }
    if (!bodiless && chunked && batch.finished) buffers.emplace_back("0\r\n\r\n", 5);
    error_code error;
    auto token = asio::redirect_error(use_task, error);
    if (batch.finished) limit(body_timeout + std::chrono::seconds(static_cast<std::int64_t>(batch.bytes) / slowest_bytes_a_second));
    co_await asio::async_write(wire_, buffers, token);
    link_->sent(batch.bytes);
    if (error || lost_) co_return;
    header.clear();
    if (batch.finished) break;
  }
  error_code ignored;
  stop_reading_ = true;
  wire_.socket().cancel(ignored);
  while (reading_) co_await wait_for_wake();
  if (!lost_) co_await shut_down();
}

// Ends in order: TLS says goodbye, then the socket.
Task Connection::shut_down() {
  limit(linger_timeout);
  error_code ignored;
  if (wire_.tls() != nullptr) {
    auto token = asio::redirect_error(use_task, ignored);
    co_await wire_.tls()->async_shutdown(token);
  } else {
    wire_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  }
}

void Connection::read_message() {
  reading_ = true;
  socket_->async_read(message_, [self = shared_from_this()](error_code error, std::size_t) {
    if (error || self->lost_) {
      self->reading_ = false;
      self->lost_ = true;
      self->wake_.cancel();
      return;
    }
    std::string text = beast::buffers_to_string(self->message_.data());
    self->message_.clear();
    if (const auto callback = self->link_->message_callback(); callback && *callback) (*callback)(std::move(text));
    self->read_message();
  });
}

Task Connection::run_websocket(WebSocketStart start) {
  socket_.emplace(wire_);
  // No pings: TCP keep-alive notices a dead peer, and Beast's ping would be an operation that nobody waits for at the end of the connection.
  websocket::stream_base::timeout timeouts{core_.options.handshake_timeout, websocket::stream_base::none(), false};
  socket_->set_option(timeouts);
  socket_->set_option(websocket::stream_base::decorator([name = std::move(start.subprotocol)](websocket::response_type& response) {
    if (!name.empty()) response.set(beast::http::field::sec_websocket_protocol, name);
  }));
  socket_->read_message_max(websocket_message_limit);
  socket_->auto_fragment(false);
  socket_->binary(true);
  error_code error;
  {
    auto token = asio::redirect_error(use_task, error);
    co_await socket_->async_accept(parser_->get(), token);
    if (error || lost_) co_return;
  }
  for (;;) {
    if (lost_) co_return;
    const Link::Batch batch = link_->take_batch();
    if (!reading_ && link_->started()) read_message();
    for (const auto& piece : batch.pieces) {
      auto token = asio::redirect_error(use_task, error);
      const asio::const_buffer bytes(piece->data(), piece->size());
      co_await socket_->async_write(bytes, token);
      link_->sent(piece->size());
      if (error || lost_) co_return;
    }
    if (batch.finished) break;
    if (batch.pieces.empty()) co_await wait_for_wake();
  }
  limit(linger_timeout);
  auto token = asio::redirect_error(use_task, error);
  co_await socket_->async_close(websocket::close_code::normal, token);
}

void Connection::read_raw() {
  reading_ = true;
  raw_.resize(16 << 10);
  wire_.async_read_some(asio::buffer(raw_), [self = shared_from_this()](error_code error, std::size_t size) {
    if (error || self->lost_ || self->stop_reading_) {
      self->reading_ = false;
      if (!self->stop_reading_) self->lost_ = true;
      self->wake_.cancel();
      return;
    }
    if (const auto callback = self->link_->message_callback(); callback && *callback) (*callback)(self->raw_.substr(0, size));
    self->read_raw();
  });
}

Task Connection::run_upgrade(UpgradeStart start) {
  std::string header = header_text(101, start.headers);
  header += fmt::format("Connection: Upgrade\r\nUpgrade: {}\r\n\r\n", start.protocol);
  for (;;) {
    if (lost_) co_return;
    const Link::Batch batch = link_->take_batch();
    if (!reading_ && link_->started()) {
      if (buffer_.size() > 0) {  // came right behind the request
        std::string early = beast::buffers_to_string(buffer_.data());
        buffer_.clear();
        if (const auto callback = link_->message_callback(); callback && *callback) (*callback)(std::move(early));
      }
      read_raw();
    }
    if (header.empty() && batch.pieces.empty() && !batch.finished) {
      co_await wait_for_wake();
      continue;
    }
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(batch.pieces.size() + 1);
    buffers.emplace_back(header.data(), header.size());
    for (const auto& piece : batch.pieces) buffers.emplace_back(piece->data(), piece->size());
    error_code error;
    auto token = asio::redirect_error(use_task, error);
    if (batch.finished) limit(body_timeout + std::chrono::seconds(static_cast<std::int64_t>(batch.bytes) / slowest_bytes_a_second));
    co_await asio::async_write(wire_, buffers, token);
    link_->sent(batch.bytes);
    if (error || lost_) co_return;
    header.clear();
    if (batch.finished) break;
  }
  error_code ignored;
  stop_reading_ = true;
  wire_.socket().cancel(ignored);
  while (reading_) co_await wait_for_wake();
  if (!lost_) co_await shut_down();
}

// ---- Server

struct Listening {
  Fd fd;
  unsigned short port = 0;
};

Result<Listening> listen_tcp(const std::string& address, unsigned short port) {
  const std::string doing = fmt::format("listen on {}:{}", address, port);
  error_code error;
  const auto ip = asio::ip::make_address(address, error);
  if (error) return fail(Code::Invalid, doing + ": not an IP address");
  asio::ip::tcp::endpoint endpoint(ip, port);
  Listening out{.fd = Fd(::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!out.fd) return fail_errno(errno, doing);
  const int on = 1;
  ::setsockopt(out.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(out.fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 || ::listen(out.fd.get(), 4096) != 0) {
    const int cause = errno;
    if (cause == EADDRINUSE) return fail(Code::Unavailable, doing + ": the port is taken by another program");
    return fail_errno(cause, doing);
  }
  socklen_t size = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(out.fd.get(), endpoint.data(), &size) != 0) return fail_errno(errno, doing);
  out.port = endpoint.port();
  return out;
}

Result<Fd> listen_unix(const std::string& path) {
  const std::string doing = fmt::format("listen on {}", path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(Code::Invalid, doing + ": the path is longer than 107 characters");
  path.copy(address.sun_path, path.size());
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, doing);
  // A socket file that nobody listens on is left from a process that was killed.
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(probe.get(), name, sizeof address) == 0) return fail(Code::Unavailable, doing + ": another program listens there");
  if (errno == ECONNREFUSED) ::unlink(path.c_str());
  if (::bind(fd.get(), name, sizeof address) != 0) return fail_errno(errno, doing);
  // Nobody can connect before listen, so there is no moment with a wider mode.
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), 4096) != 0) return fail_errno(errno, doing);
  return fd;
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size, void*) {
  static constexpr unsigned char ours[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, ours, sizeof ours - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Result<ssl::context> make_tls(const TlsFiles& files) {
  ssl::context context(ssl::context::tls_server);
  SSL_CTX* const raw = context.native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  // No resumption: every connection proves its certificate anew.
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  error_code error;
  context.use_certificate_chain_file(files.certificate, error);
  if (error) return fail(Code::Invalid, fmt::format("certificate {}: {}", files.certificate, error.message()));
  context.use_private_key_file(files.key, ssl::context::pem, error);
  if (error) return fail(Code::Invalid, fmt::format("key {}: {}", files.key, error.message()));
  if (!files.client_ca.empty()) {
    context.load_verify_file(files.client_ca, error);
    if (error) return fail(Code::Invalid, fmt::format("client certificate authority {}: {}", files.client_ca, error.message()));
    SSL_CTX_set_client_CA_list(raw, SSL_load_client_CA_file(files.client_ca.c_str()));
    context.set_verify_mode(ssl::verify_peer);  // asked for; none shown is allowed
  }
  read_extensions_now(raw);
  return context;
}

// Asio's own accept would leave the descriptor open in children that are started meanwhile.
Task accept_all(Core& core, std::shared_ptr<Acceptor> acceptor, asio::generic::stream_protocol protocol, bool with_tls) {
  acceptor->native_non_blocking(true);
  while (acceptor->is_open()) {
    error_code error;
    auto token = asio::redirect_error(use_task, error);
    co_await acceptor->async_wait(asio::socket_base::wait_read, token);
    if (error || !acceptor->is_open()) co_return;
    Fd fd(::accept4(acceptor->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) continue;
      // Out of descriptors or memory: connections wait in the kernel's queue until some are free.
      log_warn("cannot accept connections for a moment", {{"reason", std::generic_category().message(errno)}});
      Timer pause(acceptor->get_executor());
      pause.expires_after(100ms);
      auto pause_token = asio::redirect_error(use_task, error);
      co_await pause.async_wait(pause_token);
      continue;
    }
    Strand strand(core.io.get_executor());
    ServerWire::Socket socket(strand);
    socket.assign(protocol, fd.release(), error);
    if (error) continue;
    auto connection = std::make_shared<Connection>(core, std::move(socket));
    if (with_tls) connection->start_tls();
    {
      const std::lock_guard lock(core.mutex);
      if (core.stopping) co_return;
      if (core.connections.size() >= core.options.connection_limit) continue;  // dropping it closes it
      core.connections.insert(connection.get());
    }
    asio::co_spawn(strand, Connection::run(std::move(connection)), asio::detached);
  }
}

// Cuts connections whose time is up. One timer for all of them: setting a deadline costs one store.
Task sweep(Core& core, std::shared_ptr<Timer> timer) {
  for (;;) {
    error_code error;
    auto token = asio::redirect_error(use_task, error);
    timer->expires_after(sweep_every);
    co_await timer->async_wait(token);
    const auto now = SystemClock{}.monotonic();
    const std::lock_guard lock(core.mutex);
    if (core.stopping) co_return;
    for (Connection* const connection : core.connections) {
      if (connection->late(now)) connection->link().abort();
    }
  }
}

class BeastServer final : public Server {
 public:
  BeastServer(ServerOptions options, Handler handler) : core_(std::move(options), std::move(handler)), work_(core_.io.get_executor()) {}
  Result<void> start();
  ~BeastServer() override;
  unsigned short port() const override { return port_; }
  Result<void> also_listen(const std::string& address, unsigned short port) override;

 private:
  void accept_on(Fd fd, int family, bool with_tls);
  Core core_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  unsigned short port_ = 0;
  std::string unix_path_;
  std::shared_ptr<Timer> sweeper_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
  std::vector<std::thread> threads_;
};

Result<void> BeastServer::start() {
  if (core_.options.tls) {
    auto tls = make_tls(*core_.options.tls);
    if (!tls) return std::unexpected(std::move(tls.error()));
    core_.tls.emplace(std::move(*tls));
  }
  if (!core_.options.unix_socket.empty()) {
    auto fd = listen_unix(core_.options.unix_socket);
    if (!fd) return std::unexpected(std::move(fd.error()));
    unix_path_ = core_.options.unix_socket;
    accept_on(std::move(*fd), AF_UNIX, false);
  } else {
    auto listening = listen_tcp(core_.options.address, core_.options.port);
    if (!listening) return std::unexpected(std::move(listening.error()));
    port_ = listening->port;
    accept_on(std::move(listening->fd), core_.options.address.find(':') == std::string::npos ? AF_INET : AF_INET6, core_.tls.has_value());
  }
  Strand strand(core_.io.get_executor());
  sweeper_ = std::make_shared<Timer>(strand);
  asio::co_spawn(strand, sweep(core_, sweeper_), asio::detached);
  for (int i = 0; i < std::max(1, core_.options.threads); ++i) threads_.emplace_back([this] { core_.io.run(); });
  return {};
}

void BeastServer::accept_on(Fd fd, int family, bool with_tls) {
  Strand strand(core_.io.get_executor());
  const asio::generic::stream_protocol protocol(family, family == AF_UNIX ? 0 : IPPROTO_TCP);
  auto acceptor = std::make_shared<Acceptor>(strand, protocol, fd.release());
  acceptors_.push_back(acceptor);
  asio::co_spawn(strand, accept_all(core_, std::move(acceptor), protocol, with_tls), asio::detached);
}

Result<void> BeastServer::also_listen(const std::string& address, unsigned short port) {
  auto listening = listen_tcp(address, port);
  if (!listening) return std::unexpected(std::move(listening.error()));
  accept_on(std::move(listening->fd), address.find(':') == std::string::npos ? AF_INET : AF_INET6, core_.tls.has_value());
  return {};
}

BeastServer::~BeastServer() {
  {
    const std::lock_guard lock(core_.mutex);
    core_.stopping = true;
    for (Connection* const connection : core_.connections) connection->link().abort();
  }
  for (const auto& acceptor : acceptors_) {
    asio::post(acceptor->get_executor(), [acceptor] {
      error_code ignored;
      acceptor->close(ignored);
    });
  }
  if (sweeper_) asio::post(sweeper_->get_executor(), [timer = sweeper_] { timer->cancel(); });
  work_.reset();
  for (auto& thread : threads_) thread.join();  // ends when the last connection has
  if (!unix_path_.empty()) ::unlink(unix_path_.c_str());
}

}  // namespace

Result<std::shared_ptr<WebSocket>> Exchange::accept_upgrade(std::string_view protocol, Headers) {
  return fail(Code::Invalid, fmt::format("no upgrade to {} here", protocol));
}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Handler handler) {
  auto server = std::make_unique<BeastServer>(std::move(options), std::move(handler));
  if (auto started = server->start(); !started) return std::unexpected(std::move(started.error()));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace fairlead::http
