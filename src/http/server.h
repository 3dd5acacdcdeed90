// SPDX-License-Identifier: Apache-2.0
// An HTTPS/1.1 and WebSocket server: few threads, one coroutine per connection, so that thousands of idle watches are cheap.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/units.h"
#include "http/message.h"

namespace fairlead::http {

// A response that is sent piece by piece (watch, log follow), chunked. Thread-safe. Dropping it ends the body.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues one piece; each queued batch goes out as it can. False: the client is gone, or it reads so slowly that more than
  // `ServerOptions::stream_queue` bytes wait; the connection is then cut and nothing more is sent. Never blocks.
  virtual bool write(Buffer piece) = 0;
  // Bytes queued or being sent: who has much to say waits until this is small.
  virtual std::size_t waiting() const = 0;
  virtual bool open() const = 0;
  // Called once, on a server thread, when the connection is lost or cut. Set it right after the stream was obtained;
  // called at once if that has happened already.
  virtual void on_close(std::function<void()> callback) = 0;
};

// Binary messages both ways. Thread-safe. Dropping it closes with 1000.
class WebSocket {
 public:
  virtual ~WebSocket() = default;
  virtual bool send(std::string message) = 0;  // as Stream::write
  virtual std::size_t waiting() const = 0;     // as Stream::waiting
  virtual bool open() const = 0;
  // Both are called on a server thread, never at the same time, after start(). A message callback must not block long:
  // reading from the socket pauses while it runs (that is the back-pressure).
  virtual void start(std::function<void(std::string)> on_message, std::function<void()> on_close) = 0;
  virtual void close() = 0;
};

// One request's answer. Thread-safe; exactly one of the three is called once; an exchange dropped unanswered gives 500.
// It may be kept and answered later from any thread (a write waits for its commit without holding a server thread).
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(Response response) = 0;
  virtual std::shared_ptr<Stream> stream(int status, Headers headers) = 0;
  // Completes the WebSocket handshake with this subprotocol. Invalid: the request asks for no upgrade.
  virtual Result<std::shared_ptr<WebSocket>> accept_websocket(std::string_view subprotocol) = 0;
  // Answers 101 to a request that asks for an upgrade to this protocol ("SPDY/3.1"); from then on the connection carries raw bytes: what comes is
  // handed on in pieces of any size, what is sent goes out as it is. Invalid: the request asks for no such upgrade.
  virtual Result<std::shared_ptr<WebSocket>> accept_upgrade(std::string_view protocol, Headers headers);
};

// Runs on a server thread and must not block: slow work goes to a thread of its own with the exchange.
using Handler = std::function<void(Request, std::shared_ptr<Exchange>)>;

struct TlsFiles {
  std::string certificate;  // PEM file: own certificate (and chain)
  std::string key;          // PEM file
  std::string client_ca;    // PEM file: client certificates are asked for and, if shown, must verify against this; empty: not asked
  bool strangers = false;   // whose certificate does not verify is served as if he had shown none
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  unsigned short port = 0;  // 0: any free one
  std::string unix_socket;  // not empty: listens there without TLS instead (mode 0600)
  std::optional<TlsFiles> tls;  // none: plain HTTP (tests and unix sockets only)
  int threads = 2;
  Bytes body_limit = 8_MiB;      // more gives 413
  Bytes stream_queue = 8_MiB;
  std::chrono::seconds idle_timeout{300};      // between requests
  std::chrono::seconds handshake_timeout{10};  // TLS and request header
  std::size_t connection_limit = 15'000;       // more are closed at once
  // Rewrites what the server answers by itself (400, 413, 431: status and a text of one line), so that clients read one form of error. None: text/plain.
  std::function<Response(Response)> refusal;
};

class Server {
 public:
  // Listens and serves until destroyed. Unavailable with the address in the message: port taken.
  static Result<std::unique_ptr<Server>> start(ServerOptions options, Handler handler);
  virtual ~Server() = default;  // closes all connections; returns when no handler and no callback runs
  virtual unsigned short port() const = 0;
  // Also listens on a further address with the same handler and TLS.
  virtual Result<void> also_listen(const std::string& address, unsigned short port) = 0;
};

}  // namespace fairlead::http
