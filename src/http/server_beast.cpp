// SPDX-License-Identifier: Apache-2.0
// The server on Asio and Beast. One coroutine per connection on a strand of its own: it reads a request, calls the handler, sleeps until an answer
// is there, writes it. Other threads reach a connection only through its Link (server_link.h), which outlives it.
#ifdef __SANITIZE_THREAD__
#pragma GCC diagnostic ignored "-Wtsan"  // Asio has fences, which the sanitizer does not see; its mutexes order the same things
#endif

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
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
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_set>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "http/server_link.h"
#include "http/server_rules.h"
#include "http/tls.h"
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

constexpr auto sweep_every = 250ms;

class Connection;

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
class Connection final : public std::enable_shared_from_this<Connection>, public LinkOwner {
 public:
  Connection(Core& core, ServerWire::Socket socket) : core_(core), wire_(std::move(socket)), wake_(wire_.get_executor()) {
    auto wake = [strand = wire_.get_executor()](std::shared_ptr<Link> link) { asio::post(strand, [link = std::move(link)] { link->woken(); }); };
    link_ = std::make_shared<Link>(std::move(wake), *this, static_cast<std::size_t>(core.options.stream_queue.value));
  }
  static Task run(std::shared_ptr<Connection> self);
  bool late(std::chrono::nanoseconds now) const {
    const auto deadline = deadline_.load(std::memory_order_relaxed);
    return deadline != 0 && now.count() > deadline;
  }
  Link& link() { return *link_; }
  void start_tls() { wire_.start_tls(*core_.tls); }

 private:
  void poke(bool abort_now) override {
    if (abort_now) abort();
    wake_.cancel();
  }
  struct Read {
    enum class End { Done, Gone, Bad } end;
    BadRequest why = BadRequest::Malformed;  // of Bad
  };
  Task serve();
  Coroutine<Read> read_request();
  Coroutine<bool> fill(std::size_t at_most = 16 << 10);
  Coroutine<bool> send_answer(bool keep_alive);
  bool send_now(std::vector<asio::const_buffer>& buffers, error_code& error);
  Coroutine<bool> write_response(Response response, bool keep_alive);
  Coroutine<bool> write_batch(std::vector<asio::const_buffer> buffers, Link::Batch batch);
  Task refuse(Response response);
  Task run_stream(StreamStart start);
  Task run_websocket(WebSocketStart start);
  Task run_upgrade(UpgradeStart start);
  Task stop_reading_and_shut_down();
  Task shut_down();
  Task wait_for_wake();
  Request take_request(Target target);
  void call_handler(Target target);
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
  int sent_in_a_row_ = 0;                  // writes without a turn of the loop
};

// ---- Connection

Task Connection::run(std::shared_ptr<Connection> self) {
  const int fd = self->wire_.socket().native_handle();
  self->peer_.address = peer_address(fd);
  if (self->peer_.address != "unix") keep_alive(fd, server_keep_alive);
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

// Reads more into buffer_. False: the peer is gone.
Coroutine<bool> Connection::fill(std::size_t at_most) {
  error_code error;
  auto token = asio::redirect_error(use_task, error);
  const asio::mutable_buffer space = buffer_.prepare(at_most);
  const std::size_t size = co_await wire_.async_read_some(space, token);
  buffer_.commit(size);
  co_return !error && !lost_;
}

Coroutine<Connection::Read> Connection::read_request() {
  parser_.emplace();
  parser_->header_limit(server_header_limit);
  parser_->body_limit(static_cast<std::uint64_t>(core_.options.body_limit.value));
  parser_->eager(true);
  bool asked_to_continue = false;
  bool in_body = false;
  if (buffer_.size() == 0) {
    limit(core_.options.idle_timeout);
    // Most requests are small, and most connections rest most of the time.
    if (!co_await fill(4 << 10)) co_return Read{Read::End::Gone};
  }
  limit(core_.options.handshake_timeout);
  for (;;) {
    std::size_t used = 0;
    if (buffer_.size() > 0) {
      error_code error;
      used = parser_->put(buffer_.data(), error);
      buffer_.consume(used);
      if (error == beast::http::error::header_limit) co_return Read{Read::End::Bad, BadRequest::HeaderTooLarge};
      if (error == beast::http::error::body_limit) co_return Read{Read::End::Bad, BadRequest::BodyTooLarge};
      if (error && error != beast::http::error::need_more) co_return Read{Read::End::Bad, BadRequest::Malformed};
      if (parser_->is_done()) co_return Read{Read::End::Done};
      if (parser_->is_header_done() && !in_body) {
        in_body = true;
        limit(body_time);
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
      if (error) co_return Read{Read::End::Gone};
    }
    if (!co_await fill()) co_return Read{Read::End::Gone};
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

void Connection::call_handler(Target target) {
  const auto& head = parser_->get();
  Wishes wishes{.websocket = websocket::is_upgrade(head)};
  if (beast::http::token_list(head[beast::http::field::connection]).exists("upgrade")) wishes.upgrade = std::string(head[beast::http::field::upgrade]);
  auto exchange = make_exchange(link_, std::move(wishes));
  try {
    core_.handler(take_request(std::move(target)), std::move(exchange));
  } catch (const std::exception& problem) {
    log_error("handler failed", {{"reason", problem.what()}});  // the dropped exchange answers 500
  }
}

Task Connection::serve() {
  if (wire_.tls() != nullptr) {
    limit(core_.options.handshake_timeout);
    error_code error;
    auto token = asio::redirect_error(use_task, error);
    co_await wire_.tls()->async_handshake(ssl::stream_base::server, token);
    if (error || lost_) co_return;
    read_peer_name(wire_.tls()->native_handle(), peer_);
  }
  for (;;) {
    const Read read = co_await read_request();
    if (read.end == Read::End::Gone || lost_) co_return;
    if (read.end == Read::End::Bad) {
      Response no = refusal(read.why, core_.options.body_limit);
      co_await refuse(std::move(no));
      co_return;
    }
    no_limit();
    const auto sent_target = parser_->get().target();
    auto target = parse_target({sent_target.data(), sent_target.size()});
    if (!target) {
      Response no = refusal(std::move(target.error().message));
      co_await refuse(std::move(no));
      co_return;
    }
    const bool keep_alive = parser_->keep_alive();
    call_handler(std::move(*target));
    const bool goes_on = co_await send_answer(keep_alive);
    if (!goes_on) co_return;
  }
}

// Waits for the handler's answer and sends it. False: the connection ends with it.
Coroutine<bool> Connection::send_answer(bool keep_alive) {
  Answer answer = link_->take_answer();
  while (answer.index() == 0) {
    if (lost_) co_return false;
    co_await wait_for_wake();
    answer = link_->take_answer();
  }
  if (auto* const response = std::get_if<Response>(&answer)) {
    Response out = std::move(*response);
    const bool written = co_await write_response(std::move(out), keep_alive);
    if (written && !keep_alive) co_await shut_down();
    co_return written && keep_alive;
  }
  if (auto* const stream = std::get_if<StreamStart>(&answer)) {
    StreamStart start = std::move(*stream);
    co_await run_stream(std::move(start));
  } else if (auto* const upgrade = std::get_if<UpgradeStart>(&answer)) {
    UpgradeStart start = std::move(*upgrade);
    co_await run_upgrade(std::move(start));
  } else {
    WebSocketStart start = std::move(std::get<WebSocketStart>(answer));
    co_await run_websocket(std::move(start));
  }
  co_return false;
}

std::string reason_of(int status) { return std::string(beast::http::obsolete_reason(static_cast<beast::http::status>(status))); }

// Sends what is small at once, as far as the socket takes it: an event to a thousand watchers is then a thousand calls of the kernel and no more turns of the loop than
// it takes to wake them. Returns whether nothing is left in `buffers`.
bool Connection::send_now(std::vector<asio::const_buffer>& buffers, error_code& error) {
  constexpr std::size_t small = 64 << 10;
  constexpr int most_in_a_row = 16;  // then the others get their turn
  if (wire_.tls() == nullptr || asio::buffer_size(buffers) > small) return false;
  if (++sent_in_a_row_ > most_in_a_row) {
    sent_in_a_row_ = 0;
    return false;
  }
  std::size_t sent = wire_.tls()->write_now(buffers, error);
  std::size_t gone = 0;
  while (gone < buffers.size() && sent >= buffers[gone].size()) sent -= buffers[gone++].size();
  buffers.erase(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(gone));
  if (!buffers.empty()) buffers.front() += sent;
  return buffers.empty() || error;
}

Coroutine<bool> Connection::write_response(Response response, bool keep_alive) {
  const std::size_t length = body_bytes(response);
  std::string header = answer_head(response.status, reason_of(response.status), response.headers, SystemClock{}.now());
  header += body_head(has_body(response.status) ? Body::Sized : Body::Absent, length, keep_alive);
  std::vector<asio::const_buffer> buffers{{header.data(), header.size()}};
  if (has_body(response.status) && parser_->get().method() != beast::http::verb::head) {
    const auto pieces = body_pieces(response);
    for (const std::string_view piece : pieces) buffers.emplace_back(piece.data(), piece.size());
  }
  limit(sending_time(length));
  error_code error;
  if (!send_now(buffers, error)) {
    auto token = asio::redirect_error(use_task, error);
    co_await asio::async_write(wire_, buffers, token);
  }
  co_return !error && !lost_;
}

// Writes buffers that hold this batch. Only the last batch has a limit: a watch may rest for hours, and who reads too slowly is cut by the size of its queue.
Coroutine<bool> Connection::write_batch(std::vector<asio::const_buffer> buffers, Link::Batch batch) {
  if (batch.finished) limit(sending_time(batch.bytes));
  error_code error;
  if (!send_now(buffers, error)) {
    auto token = asio::redirect_error(use_task, error);
    co_await asio::async_write(wire_, buffers, token);
  }
  link_->sent(batch.bytes);
  co_return !error && !lost_;
}

// Answers what was not a request and reads on for a moment: closing with unread bytes would reset the connection before the peer has read why.
Task Connection::refuse(Response response) {
  if (core_.options.refusal) response = core_.options.refusal(std::move(response));
  const bool written = co_await write_response(std::move(response), false);
  if (!written) co_return;
  error_code ignored;
  wire_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  limit(linger_time);
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
  std::string header = answer_head(start.status, reason_of(start.status), start.headers, SystemClock{}.now());
  header += body_head(chunked ? Body::Chunked : Body::ToTheEnd, 0, false);
  // The last answer of this connection, and maybe a long one: nothing is read any more.
  parser_.reset();
  buffer_.clear();
  buffer_.shrink_to_fit();
  watch_peer();
  for (bool finished = false; !finished;) {
    if (lost_) co_return;
    Link::Batch batch = link_->take_batch();
    finished = batch.finished;
    if (header.empty() && batch.pieces.empty() && !finished) {
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
    if (!bodiless && chunked && finished) buffers.emplace_back("0\r\n\r\n", 5);
    const bool written = co_await write_batch(std::move(buffers), std::move(batch));
    if (!written) co_return;
    header = std::string();  // frees it
  }
  co_await stop_reading_and_shut_down();
}

// For connections that were read beside the coroutine.
Task Connection::stop_reading_and_shut_down() {
  error_code ignored;
  stop_reading_ = true;
  wire_.socket().cancel(ignored);
  while (reading_) co_await wait_for_wake();
  if (!lost_) co_await shut_down();
}

// Ends in order: TLS says goodbye, then the socket.
Task Connection::shut_down() {
  limit(linger_time);
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
    self->link_->deliver(std::move(text));
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
  socket_->read_message_max(server_message_limit);
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
  limit(linger_time);
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
    self->link_->deliver(self->raw_.substr(0, size));
    self->read_raw();
  });
}

Task Connection::run_upgrade(UpgradeStart start) {
  std::string header = answer_head(101, reason_of(101), start.headers, SystemClock{}.now());
  header += fmt::format("Connection: Upgrade\r\nUpgrade: {}\r\n\r\n", start.protocol);
  for (bool finished = false; !finished;) {
    if (lost_) co_return;
    Link::Batch batch = link_->take_batch();
    finished = batch.finished;
    if (!reading_ && link_->started()) {
      if (buffer_.size() > 0) {  // came right behind the request
        std::string early = beast::buffers_to_string(buffer_.data());
        buffer_.clear();
        link_->deliver(std::move(early));
      }
      read_raw();
    }
    if (header.empty() && batch.pieces.empty() && !finished) {
      co_await wait_for_wake();
      continue;
    }
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(batch.pieces.size() + 1);
    buffers.emplace_back(header.data(), header.size());
    for (const auto& piece : batch.pieces) buffers.emplace_back(piece->data(), piece->size());
    const bool written = co_await write_batch(std::move(buffers), std::move(batch));
    if (!written) co_return;
    header.clear();
  }
  co_await stop_reading_and_shut_down();
}

// ---- Server

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
  void accept_on(Listening listening);
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
    auto tls = make_server_tls(*core_.options.tls);
    if (!tls) return std::unexpected(std::move(tls.error()));
    core_.tls.emplace(std::move(*tls));
  }
  const bool local = !core_.options.unix_socket.empty();
  auto listening = local ? listen_unix(core_.options.unix_socket) : listen_tcp(core_.options.address, core_.options.port);
  if (!listening) return std::unexpected(std::move(listening.error()));
  port_ = listening->port;
  if (local) unix_path_ = core_.options.unix_socket;
  accept_on(std::move(*listening));
  Strand strand(core_.io.get_executor());
  sweeper_ = std::make_shared<Timer>(strand);
  asio::co_spawn(strand, sweep(core_, sweeper_), asio::detached);
  for (int i = 0; i < std::max(1, core_.options.threads); ++i) threads_.emplace_back([this] { core_.io.run(); });
  return {};
}

void BeastServer::accept_on(Listening listening) {
  Strand strand(core_.io.get_executor());
  const bool local = listening.family == AF_UNIX;
  const asio::generic::stream_protocol protocol(listening.family, local ? 0 : IPPROTO_TCP);
  auto acceptor = std::make_shared<Acceptor>(strand, protocol, listening.fd.release());
  acceptors_.push_back(acceptor);
  asio::co_spawn(strand, accept_all(core_, std::move(acceptor), protocol, !local && core_.tls.has_value()), asio::detached);
}

Result<void> BeastServer::also_listen(const std::string& address, unsigned short port) {
  auto listening = listen_tcp(address, port);
  if (!listening) return std::unexpected(std::move(listening.error()));
  accept_on(std::move(*listening));
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

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Handler handler) {
  auto server = std::make_unique<BeastServer>(std::move(options), std::move(handler));
  if (auto started = server->start(); !started) return std::unexpected(std::move(started.error()));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace fairlead::http
