// SPDX-License-Identifier: Apache-2.0
// The client on Asio and Beast. Each connection has an event loop of its own that runs while a caller waits for it, up to the caller's time limit;
// so calls block, time-outs hold everywhere, and close() from another thread is a posted event. A WebSocket's loop has a thread.
#ifdef __SANITIZE_THREAD__
#pragma GCC diagnostic ignored "-Wtsan"  // Asio has fences, which the sanitizer does not see; its mutexes order the same things
#endif

#include <fmt/format.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket.hpp>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "http/client_queues.h"
#include "http/client_rules.h"
#include "http/tls.h"
#include "http/wire.h"

namespace fairlead::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace ssl = boost::asio::ssl;
namespace websocket = boost::beast::websocket;
using boost::system::error_code;
using ClientWire = Wire<asio::io_context::executor_type>;
using Parser = beast::http::response_parser<beast::http::string_body>;
using Time = std::chrono::nanoseconds;  // monotonic

Time monotonic() { return SystemClock{}.monotonic(); }

Headers headers_of(const beast::http::fields& fields) {
  Headers out;
  for (const auto& field : fields) out.emplace_back(field.name_string(), field.value());
  return out;
}

class Connection {
 public:
  explicit Connection(const ClientOptions& options) : peer_(where(options)), io_(1), wire_(ClientWire::Socket(io_)) {}

  Result<void> open(const ClientOptions& options, const std::optional<Proxy>& proxy, ssl::context* tls, Time deadline);
  // Sends and reads to the end of the answer's header, past interim answers (1xx).
  Result<void> begin(Parser& parser, std::string_view head, const std::string& body, Time deadline);
  // Reads to the end of the answer.
  Result<void> finish(Parser& parser, Time deadline);
  Result<void> parse(Parser& parser);       // what has been read
  void start_read();                        // no-op while one is under way
  bool wait_read(Time deadline) { return wait(reading_, deadline); }
  // The failure of the last read: end of the connection; for a body that ends with the connection that is its end.
  Result<void> read_failed(Parser& parser);
  bool read_error() const { return static_cast<bool>(read_error_); }

  // What has been read and belongs to no answer.
  std::string take_rest() {
    std::string out = beast::buffers_to_string(buffer_.data());
    buffer_.consume(buffer_.size());
    return out;
  }
  bool clean() const { return buffer_.size() == 0 && !reading_ && !read_error_; }
  bool answer_begun() const { return answer_begun_; }
  bool stale() const;
  void close();  // any thread
  bool closed() const { return closed_.load(); }
  asio::io_context& io() { return io_; }
  ClientWire& wire() { return wire_; }
  // Runs the loop until `busy` is false. False: the time is up.
  bool wait(const bool& busy, Time deadline);
  // The same for an operation that refers to the caller's frame: on time-out the socket is closed and the operation's end awaited. Unavailable: the time was up.
  Result<void> finish_operation(const bool& busy, Time deadline, std::string_view doing);
  std::unexpected<Error> failed(std::string_view doing, const error_code& error) const;

  Time kept_since{};

 private:
  Result<void> connect_to(const asio::generic::stream_protocol::endpoint& endpoint, Time deadline);
  Result<void> pass_proxy(const ClientOptions& options, const Proxy& proxy, Time deadline);
  Result<void> handshake(const ClientOptions& options, ssl::context& tls, Time deadline);
  Result<void> write(std::string_view head, const std::string& body, Time deadline);

  const std::string peer_;
  asio::io_context io_;  // before what uses it: destroyed last
  ClientWire wire_;
  beast::flat_buffer buffer_;
  bool reading_ = false, writing_ = false, answer_begun_ = false;
  error_code read_error_;
  std::atomic<bool> closed_{false};
};

std::unexpected<Error> Connection::failed(std::string_view doing, const error_code& error) const {
  if (closed_) return fail(Code::Unavailable, fmt::format("{} {}: closed by us", doing, peer_));
  const std::string why = error == asio::error::eof || error == ssl::error::stream_truncated ? "the server closed the connection" : error.message();
  return fail(Code::Unavailable, fmt::format("{} {}: {}", doing, peer_, why));
}

bool Connection::wait(const bool& busy, Time deadline) {
  while (busy) {
    const Time left = deadline - monotonic();
    if (left <= Time::zero()) return false;
    io_.restart();
    io_.run_one_for(left);
  }
  return true;
}

Result<void> Connection::finish_operation(const bool& busy, Time deadline, std::string_view doing) {
  if (wait(busy, deadline)) return {};
  error_code ignored;
  wire_.socket().close(ignored);
  io_.restart();
  while (busy) io_.run_one();
  return fail(Code::Unavailable, fmt::format("{} {}: timed out", doing, peer_));
}

Result<void> Connection::connect_to(const asio::generic::stream_protocol::endpoint& endpoint, Time deadline) {
  const int family = endpoint.protocol().family();
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "connect to " + peer_);
  if (family != AF_UNIX) keep_alive(fd.get(), client_keep_alive);
  error_code error;
  if (wire_.socket().is_open()) wire_.socket().close(error);
  wire_.socket().assign(endpoint.protocol(), fd.get(), error);
  if (error) return failed("connect to", error);
  fd.release();
  bool busy = true;
  wire_.socket().async_connect(endpoint, [&](error_code result) {
    error = result;
    busy = false;
  });
  if (auto done = finish_operation(busy, deadline, "connect to"); !done) return done;
  if (error) return failed("connect to", error);
  return {};
}

Result<void> Connection::handshake(const ClientOptions& options, ssl::context& context, Time deadline) {
  auto& tls = wire_.start_tls(context);
  SSL* const raw = tls.native_handle();
  const std::string& name = options.server_name.empty() ? options.host : options.server_name;
  if (auto expected = expect_server(raw, name); !expected) return pass(std::move(expected.error()), "TLS with " + peer_);
  error_code error;
  bool busy = true;
  tls.async_handshake(ssl::stream_base::client, [&](error_code result) {
    error = result;
    busy = false;
  });
  if (auto done = finish_operation(busy, deadline, "TLS with"); !done) return done;
  if (!error) {
    if (options.server_key.empty()) return {};
    auto trusted = check_server_key(raw, options.server_key);
    if (!trusted) return pass(std::move(trusted.error()), "TLS with " + peer_);
    return {};
  }
  if (const long verdict = SSL_get_verify_result(raw); verdict != X509_V_OK) {
    return fail(Code::Unavailable, fmt::format("TLS with {}: its certificate is not trusted for \"{}\": {}", peer_, name, X509_verify_cert_error_string(verdict)));
  }
  return failed("TLS with", error);
}

// From its end on the connection's bytes are the server's.
Result<void> Connection::pass_proxy(const ClientOptions& options, const Proxy& proxy, Time deadline) {
  const std::string name = name_of(proxy);
  static const std::string nothing;
  if (auto sent = write(connect_head(proxy, where(options)), nothing, deadline); !sent) return pass(std::move(sent.error()), name);
  std::string answer;
  while (answer.find("\r\n\r\n") == std::string::npos) {
    if (answer.size() > client_header_limit) return fail(Code::Unavailable, name + ": its answer has no end");
    start_read();
    if (!wait_read(deadline)) return fail(Code::Unavailable, fmt::format("{}: no answer in time", name));
    if (read_error_ && buffer_.size() == 0) return fail(Code::Unavailable, name + " closed the connection");
    answer += beast::buffers_to_string(buffer_.data());
    buffer_.consume(buffer_.size());
  }
  answer_begun_ = false;
  return check_connect_answer(proxy, where(options), answer);
}

Result<void> Connection::open(const ClientOptions& options, const std::optional<Proxy>& proxy, ssl::context* tls, Time deadline) {
  Result<void> connected = fail(Code::Unavailable, fmt::format("connect to {}: no address", peer_));
  if (!options.unix_socket.empty()) {
    if (options.unix_socket.size() > 107) return fail(Code::Invalid, fmt::format("{} is too long for a socket's path", options.unix_socket));
    connected = connect_to(asio::local::stream_protocol::endpoint(options.unix_socket), deadline);
  } else {
    error_code error;
    asio::ip::tcp::resolver resolver(io_);
    const std::string& host = proxy ? proxy->host : options.host;
    const std::string port = std::to_string(proxy ? proxy->port : options.port);
    const auto found = resolver.resolve(host, port, asio::ip::tcp::resolver::numeric_service, error);
    if (error) return fail(Code::Unavailable, fmt::format("connect to {}: {}: {}", peer_, host, error.message()));
    for (const auto& entry : found) {
      if (options.may_connect && !proxy) {
        connected = options.may_connect(entry.endpoint().address().to_string());
        if (!connected) continue;
      }
      connected = connect_to(entry.endpoint(), deadline);
      if (connected) break;
    }
  }
  if (!connected && proxy) return pass(std::move(connected.error()), name_of(*proxy));
  if (!connected) return connected;
  if (proxy)
    if (auto passed = pass_proxy(options, *proxy, deadline); !passed) return passed;
  return tls == nullptr ? Result<void>() : handshake(options, *tls, deadline);
}

bool Connection::stale() const {
  char byte = 0;
  const auto got = ::recv(const_cast<ClientWire&>(wire_).socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);  // closed, or bytes that nobody asked for
}

void Connection::close() {
  closed_ = true;
  asio::post(io_, [this] {
    error_code ignored;
    wire_.socket().close(ignored);
  });
}

Result<void> Connection::write(std::string_view head, const std::string& body, Time deadline) {
  const std::array<asio::const_buffer, 2> buffers = {asio::buffer(head.data(), head.size()), asio::buffer(body)};
  error_code error;
  writing_ = true;
  asio::async_write(wire_, buffers, [&](error_code result, std::size_t) {
    error = result;
    writing_ = false;
  });
  if (auto done = finish_operation(writing_, deadline, "send to"); !done) return done;
  if (error) return failed("send to", error);
  return {};
}

void Connection::start_read() {
  if (reading_ || read_error_) return;
  reading_ = true;
  wire_.async_read_some(buffer_.prepare(32 << 10), [this](error_code error, std::size_t size) {
    buffer_.commit(size);
    if (size > 0) answer_begun_ = true;
    read_error_ = error;
    reading_ = false;
  });
}

Result<void> Connection::parse(Parser& parser) {
  while (buffer_.size() > 0 && !parser.is_done()) {
    error_code error;
    const auto used = parser.put(buffer_.data(), error);
    buffer_.consume(used);
    if (error == beast::http::error::need_more) break;
    if (error) return fail(Code::Unavailable, fmt::format("answer of {}: {}", peer_, error.message()));
    if (used == 0) break;
  }
  return {};
}

Result<void> Connection::read_failed(Parser& parser) {
  if (read_error_ == asio::error::eof && parser.is_header_done() && parser.need_eof()) {
    error_code error;
    parser.put_eof(error);
    if (!error) return {};
  }
  return failed("read from", read_error_);
}

Result<void> Connection::begin(Parser& parser, std::string_view head, const std::string& body, Time deadline) {
  answer_begun_ = false;
  // A server may refuse a large body before it has read all of it: then its answer counts and not our failed write.
  auto written = write(head, body, deadline);
  if (!written && monotonic() >= deadline) return written;
  for (;;) {
    if (auto parsed = parse(parser); !parsed) return parsed;
    if (parser.is_header_done()) return {};
    start_read();
    if (!wait_read(deadline)) return fail(Code::Unavailable, fmt::format("no answer of {} in time", peer_));
    if (read_error_ && buffer_.size() == 0) {
      if (!written) return written;
      return failed("read from", read_error_);
    }
  }
}

Result<void> Connection::finish(Parser& parser, Time deadline) {
  for (;;) {
    if (auto parsed = parse(parser); !parsed) return parsed;
    if (parser.is_done()) return {};
    if (read_error_) {
      if (auto ended = read_failed(parser); !ended) return ended;
      continue;
    }
    start_read();
    if (!wait_read(deadline)) return fail(Code::Unavailable, fmt::format("the answer of {} did not end in time", peer_));
  }
}

// A parser whose answer is not an interim one. Beast parsers cannot be used twice, so each interim answer costs one.
Result<std::unique_ptr<Parser>> begin_answer(Connection& connection, std::string_view head, const ClientRequest& request, bool limited, Time deadline) {
  static const std::string nothing;
  bool sent = false;
  for (int interim = 0; interim < 16; ++interim) {
    auto parser = std::make_unique<Parser>();
    parser->header_limit(client_header_limit);
    if (limited) {
      parser->body_limit(client_body_limit);
    } else {
      parser->body_limit(boost::none);
    }
    parser->eager(true);
    if (request.method == "HEAD") parser->skip(true);
    auto begun = connection.begin(*parser, sent ? std::string_view() : head, sent ? nothing : request.body, deadline);
    if (!begun) return std::unexpected(std::move(begun.error()));
    sent = true;
    if (parser->get().result_int() >= 200 || parser->get().result_int() == 101) return parser;
  }
  return fail(Code::Unavailable, "the server sends interim answers without end");
}

class BeastBodyReader final : public BodyReader {
 public:
  BeastBodyReader(std::unique_ptr<Connection> connection, std::unique_ptr<Parser> parser)
      : connection_(std::move(connection)), parser_(std::move(parser)), status_(parser_->get().result_int()), headers_(headers_of(parser_->get().base())) {}
  int status() const override { return static_cast<int>(status_); }
  const Headers& headers() const override { return headers_; }
  Result<std::optional<std::string>> read(std::chrono::milliseconds limit) override {
    const Time deadline = monotonic() + limit;
    for (;;) {
      if (auto parsed = connection_->parse(*parser_); !parsed) return std::unexpected(std::move(parsed.error()));
      if (std::string& body = parser_->get().body(); !body.empty()) return std::exchange(body, {});
      if (parser_->is_done()) return std::string();
      if (connection_->read_error()) {
        if (auto ended = connection_->read_failed(*parser_); !ended) return std::unexpected(std::move(ended.error()));
        continue;
      }
      if (connection_->closed()) {
        connection_->io().restart();
        connection_->io().poll();  // the posted close
        return fail(Code::Unavailable, "closed by us");
      }
      connection_->start_read();
      if (!connection_->wait_read(deadline)) return std::optional<std::string>();
    }
  }
  void close() override { connection_->close(); }

 private:
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Parser> parser_;
  const unsigned status_;
  const Headers headers_;
};

// Also of an upgrade to another protocol: then messages are raw bytes. Reading and writing happen on a thread of its own; callers meet it at the queues.
class BeastClientWebSocket final : public ClientWebSocket {
 public:
  explicit BeastClientWebSocket(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)), io_(connection_->io()), socket_(connection_->wire()), linger_(io_), work_(io_.get_executor()) {}
  ~BeastClientWebSocket() override {
    close();
    if (thread_.joinable()) thread_.join();
  }
  Result<void> open(const ClientOptions& options, const ClientRequest& request, const std::vector<std::string>& subprotocols, Time deadline);
  Result<void> upgrade(const ClientOptions& options, ClientRequest request, const std::string& protocol, Time deadline);
  const std::string& subprotocol() const override { return subprotocol_; }
  Result<void> send(std::string message) override;
  Result<std::optional<std::string>> receive() override;
  void close() override;

 private:
  void begin();
  // On the loop's thread.
  void read();
  void arrived(const error_code& error);
  void write();
  void say_goodbye();
  void end(const error_code& error);
  std::optional<Error> reason(const error_code& error) const;

  std::unique_ptr<Connection> connection_;
  asio::io_context& io_;
  websocket::stream<ClientWire&, false> socket_;
  asio::steady_timer linger_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  beast::flat_buffer message_;
  std::string subprotocol_;
  bool raw_ = false, writing_ = false, goodbye_sent_ = false;
  ClientQueues queues_{8 << 20};
  std::thread thread_;
};

Result<void> BeastClientWebSocket::open(const ClientOptions& options, const ClientRequest& request, const std::vector<std::string>& subprotocols, Time deadline) {
  std::string wanted;
  for (const auto& name : subprotocols) wanted += (wanted.empty() ? "" : ", ") + name;
  socket_.set_option(websocket::stream_base::timeout{websocket::stream_base::none(), websocket::stream_base::none(), false});
  socket_.set_option(websocket::stream_base::decorator([wanted, headers = request.headers](websocket::request_type& out) {
    for (const auto& [name, value] : headers) out.set(name, value);
    if (!wanted.empty()) out.set(beast::http::field::sec_websocket_protocol, wanted);
  }));
  socket_.read_message_max(client_message_limit);
  socket_.auto_fragment(false);
  socket_.binary(true);
  websocket::response_type response;
  error_code error;
  bool busy = true;
  socket_.async_handshake(response, host_header(options), request.target, [&](error_code result) {
    error = result;
    busy = false;
  });
  if (auto done = connection_->finish_operation(busy, deadline, "WebSocket with"); !done) return done;
  if (error == websocket::error::upgrade_declined) {
    // The body alone when there is one: callers know how to read it (a Kubernetes Status).
    if (!response.body().empty()) return fail(code_of_status(response.result_int()), response.body());
    return fail(code_of_status(response.result_int()), fmt::format("the server answered {} {}", response.result_int(), std::string_view(response.reason())));
  }
  if (error) return connection_->failed("WebSocket with", error);
  subprotocol_ = std::string(response[beast::http::field::sec_websocket_protocol]);
  begin();
  return {};
}

Result<void> BeastClientWebSocket::upgrade(const ClientOptions& options, ClientRequest request, const std::string& protocol, Time deadline) {
  request.headers.emplace_back("Connection", "Upgrade");
  request.headers.emplace_back("Upgrade", protocol);
  auto head = request_head(options, request);
  if (!head) return std::unexpected(std::move(head.error()));
  auto parser = begin_answer(*connection_, *head, request, true, deadline);
  if (!parser) return std::unexpected(std::move(parser.error()));
  auto& answer = (*parser)->get();
  if (answer.result_int() != 101) {
    if (auto finished = connection_->finish(**parser, deadline); !finished) return finished;
    if (!answer.body().empty()) return fail(code_of_status(answer.result_int()), answer.body());
    return fail(code_of_status(answer.result_int()), fmt::format("the server answered {} {}", answer.result_int(), std::string_view(answer.reason())));
  }
  raw_ = true;
  // What came at once behind the answer.
  if (std::string early = connection_->take_rest(); !early.empty()) (void)queues_.arrived(std::move(early));
  begin();
  return {};
}

void BeastClientWebSocket::begin() {
  thread_ = std::thread([this] {
    io_.restart();
    read();
    io_.run();
  });
}

Result<void> BeastClientWebSocket::send(std::string message) {
  if (auto queued = queues_.put(std::move(message)); !queued) return queued;
  asio::post(io_, [this] { write(); });
  return {};
}

Result<std::optional<std::string>> BeastClientWebSocket::receive() {
  auto taken = queues_.take();
  if (!taken) return std::unexpected(std::move(taken.error()));
  if (taken->read_on) asio::post(io_, [this] { read(); });
  return std::move(taken->message);
}

void BeastClientWebSocket::close() {
  if (!queues_.close() || queues_.ended() || !thread_.joinable()) return;
  asio::post(io_, [this] { say_goodbye(); });
}

void BeastClientWebSocket::say_goodbye() {
  linger_.expires_after(goodbye_time);
  linger_.async_wait([this](error_code error) {
    error_code ignored;
    if (!error) connection_->wire().socket().close(ignored);
  });
  if (queues_.resume()) read();  // the peer's close frame is behind what we did not read
  write();
}

void BeastClientWebSocket::read() {
  if (!raw_) return socket_.async_read(message_, [this](error_code error, std::size_t) { arrived(error); });
  connection_->wire().async_read_some(message_.prepare(64 << 10), [this](error_code error, std::size_t size) {
    message_.commit(size);
    arrived(error);
  });
}

void BeastClientWebSocket::arrived(const error_code& error) {
  if (error) return end(error);
  std::string message = beast::buffers_to_string(message_.data());
  message_.clear();
  if (queues_.arrived(std::move(message))) read();
}

void BeastClientWebSocket::write() {
  if (writing_) return;
  const ClientQueues::Next next = queues_.next();
  if (next.message != nullptr) {
    writing_ = true;
    const auto written = [this](error_code error, std::size_t) {
      writing_ = false;
      queues_.sent();
      if (!error) write();  // a failed one shows in the read as well
    };
    if (raw_)
      asio::async_write(connection_->wire(), asio::buffer(*next.message), written);
    else
      socket_.async_write(asio::buffer(*next.message), written);
  } else if (next.goodbye && !goodbye_sent_) {
    goodbye_sent_ = true;
    if (raw_) {  // the peer reads to the end and closes; the read sees that
      error_code ignored;
      connection_->wire().socket().shutdown(asio::socket_base::shutdown_send, ignored);
      return;
    }
    writing_ = true;
    socket_.async_close(websocket::close_code::normal, [this](error_code error) { end(error); });
  }
}

std::optional<Error> BeastClientWebSocket::reason(const error_code& error) const {
  if (raw_ && (error == asio::error::eof || error == ssl::error::stream_truncated)) return std::nullopt;
  if (error != websocket::error::closed) return connection_->failed("read from", error).error();
  const auto& given = socket_.reason();
  if (given.code == websocket::close_code::normal || given.code == websocket::close_code::none) return std::nullopt;
  return Error{Code::Unavailable, fmt::format("the WebSocket was closed with code {}: {}", static_cast<int>(given.code), std::string_view(given.reason))};
}

void BeastClientWebSocket::end(const error_code& error) {
  if (!queues_.end(reason(error))) return;
  linger_.cancel();
  error_code ignored;
  connection_->wire().socket().close(ignored);
  work_.reset();
}

class BeastClient final : public Client {
 public:
  BeastClient(ClientOptions options, std::optional<Proxy> proxy, std::shared_ptr<ssl::context> tls)
      : options_(std::move(options)), proxy_(std::move(proxy)), tls_(std::move(tls)) {}
  Result<Response> request(const ClientRequest& request) override;
  Result<std::unique_ptr<BodyReader>> open(const ClientRequest& request) override;
  Result<std::unique_ptr<ClientWebSocket>> open_websocket(const ClientRequest& request, std::vector<std::string> subprotocols) override;
  Result<std::unique_ptr<ClientWebSocket>> open_upgrade(const ClientRequest& request, const std::string& protocol) override;

 private:
  Result<std::unique_ptr<Connection>> connect();
  std::unique_ptr<Connection> take_kept();
  void keep(std::unique_ptr<Connection> connection);
  Result<Response> exchange(Connection& connection, const std::string& head, const ClientRequest& request, bool& reusable);

  const ClientOptions options_;
  const std::optional<Proxy> proxy_;
  const std::shared_ptr<ssl::context> tls_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> kept_;  // under mutex_; last used last
};

Result<std::unique_ptr<Connection>> BeastClient::connect() {
  auto connection = std::make_unique<Connection>(options_);
  auto opened = connection->open(options_, proxy_, tls_.get(), monotonic() + options_.connect_timeout);
  if (!opened) return std::unexpected(std::move(opened.error()));
  return connection;
}

std::unique_ptr<Connection> BeastClient::take_kept() {
  std::vector<std::unique_ptr<Connection>> dropped;  // closed outside the lock
  const std::lock_guard lock(mutex_);
  while (!kept_.empty()) {
    auto connection = std::move(kept_.back());
    kept_.pop_back();
    if (monotonic() - connection->kept_since < kept_for && !connection->stale()) return connection;
    dropped.push_back(std::move(connection));
  }
  return nullptr;
}

void BeastClient::keep(std::unique_ptr<Connection> connection) {
  connection->kept_since = monotonic();
  std::unique_ptr<Connection> dropped;
  const std::lock_guard lock(mutex_);
  if (kept_.size() < options_.kept_connections) {
    kept_.push_back(std::move(connection));
  } else {
    dropped = std::move(connection);
  }
}

Result<Response> BeastClient::exchange(Connection& connection, const std::string& head, const ClientRequest& request, bool& reusable) {
  const Time deadline = monotonic() + options_.request_timeout;
  auto parser = begin_answer(connection, head, request, true, deadline);
  if (!parser) return std::unexpected(std::move(parser.error()));
  if (auto finished = connection.finish(**parser, deadline); !finished) return std::unexpected(std::move(finished.error()));
  auto& message = (*parser)->get();
  reusable = (*parser)->keep_alive() && connection.clean();
  return Response{.status = static_cast<int>(message.result_int()), .headers = headers_of(message.base()), .body = std::move(message.body())};
}

Result<Response> BeastClient::request(const ClientRequest& request) {
  auto head = request_head(options_, request);
  if (!head) return std::unexpected(std::move(head.error()));
  bool reusable = false;
  if (auto connection = take_kept()) {
    const Time deadline = monotonic() + options_.request_timeout;
    auto response = exchange(*connection, *head, request, reusable);
    if (response && reusable) keep(std::move(connection));
    if (response || connection->answer_begun() || monotonic() >= deadline) return response;
    // The server closed it between two requests: once more on a new one.
  }
  auto connection = connect();
  if (!connection) return std::unexpected(std::move(connection.error()));
  auto response = exchange(**connection, *head, request, reusable);
  if (response && reusable) keep(std::move(*connection));
  return response;
}

Result<std::unique_ptr<BodyReader>> BeastClient::open(const ClientRequest& request) {
  auto head = request_head(options_, request);
  if (!head) return std::unexpected(std::move(head.error()));
  auto connection = connect();
  if (!connection) return std::unexpected(std::move(connection.error()));
  auto parser = begin_answer(**connection, *head, request, false, monotonic() + options_.request_timeout);
  if (!parser) return std::unexpected(std::move(parser.error()));
  return std::make_unique<BeastBodyReader>(std::move(*connection), std::move(*parser));
}

Result<std::unique_ptr<ClientWebSocket>> BeastClient::open_websocket(const ClientRequest& request, std::vector<std::string> subprotocols) {
  if (auto checked = request_head(options_, request); !checked) return std::unexpected(std::move(checked.error()));
  auto connection = connect();
  if (!connection) return std::unexpected(std::move(connection.error()));
  auto socket = std::make_unique<BeastClientWebSocket>(std::move(*connection));
  auto opened = socket->open(options_, request, subprotocols, monotonic() + options_.request_timeout);
  if (!opened) return std::unexpected(std::move(opened.error()));
  return socket;
}

Result<std::unique_ptr<ClientWebSocket>> BeastClient::open_upgrade(const ClientRequest& request, const std::string& protocol) {
  auto connection = connect();
  if (!connection) return std::unexpected(std::move(connection.error()));
  auto socket = std::make_unique<BeastClientWebSocket>(std::move(*connection));
  auto opened = socket->upgrade(options_, request, protocol, monotonic() + options_.request_timeout);
  if (!opened) return std::unexpected(std::move(opened.error()));
  return socket;
}

}  // namespace

Result<std::shared_ptr<Client>> Client::make(ClientOptions options) {
  std::shared_ptr<ssl::context> tls;
  if (options.tls && options.unix_socket.empty()) {
    auto made = make_client_tls(options);
    if (!made) return std::unexpected(std::move(made.error()));
    tls = std::move(*made);
  }
  std::optional<Proxy> proxy;
  if (!options.proxy.empty() && options.unix_socket.empty()) {
    auto parsed = parse_proxy(options.proxy);
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    proxy = std::move(*parsed);
  }
  return std::make_shared<BeastClient>(std::move(options), std::move(proxy), std::move(tls));
}

}  // namespace fairlead::http
