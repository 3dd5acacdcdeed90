// SPDX-License-Identifier: Apache-2.0
// A blocking HTTPS/1.1 and WebSocket client with kept connections. Thread-safe.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "http/message.h"

namespace fairlead::http {

struct ClientOptions {
  std::string host;  // name or address; with unix_socket only for the Host header
  unsigned short port = 443;
  std::string unix_socket;      // not empty: connects there
  bool tls = true;
  std::string ca_pem;           // trust exactly this; empty with tls: the system's
  std::string certificate_pem;  // client certificate and key, or empty
  std::string key_pem;
  std::string proxy;            // "http://user:password@proxy:3128": connections are made through it by CONNECT (http/proxy.h); empty: straight
  std::string server_name;      // checked against the certificate and sent as SNI; empty: host
  std::function<Result<void>(const std::string& address)> may_connect;  // asked of each address that the host turned out to have, as digits; none: all. A proxy's are not asked for
  std::string server_key;       // not empty: exactly the server whose certificate has this public key is trusted (fingerprint_of_certificate), whatever name or signer it has. Of one with another key the error tells which it has
  bool trust_any_server = false;  // no check of the server's certificate at all: only where a user has asked for exactly that
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds request_timeout{60'000};
  std::size_t kept_connections = 8;
};

struct ClientRequest {
  std::string method = "GET";
  std::string target;  // escaped path and query
  Headers headers;
  std::string body;
};

// The body of an answer as it comes. One reader; close() may come from another thread and ends a blocked read.
class BodyReader {
 public:
  virtual ~BodyReader() = default;
  virtual int status() const = 0;
  virtual const Headers& headers() const = 0;
  // Some bytes; empty string: end of body; nullopt: nothing within `limit`.
  virtual Result<std::optional<std::string>> read(std::chrono::milliseconds limit) = 0;
  virtual void close() = 0;
};

class ClientWebSocket {
 public:
  virtual ~ClientWebSocket() = default;
  virtual const std::string& subprotocol() const = 0;
  virtual Result<void> send(std::string message) = 0;  // binary; from any thread
  virtual Result<std::optional<std::string>> receive() = 0;  // one message; nullopt: closed by the peer in order
  virtual void close() = 0;
};

class Client {
 public:
  // Invalid, Unsupported: certificates or the proxy's URL.
  static Result<std::shared_ptr<Client>> make(ClientOptions options);
  virtual ~Client() = default;
  // The whole answer. A status of 400 and above is an answer, not an error. Unavailable: no connection, time-out. A request on a kept
  // connection that turns out to be closed is sent once more on a new one if nothing of an answer had come.
  virtual Result<Response> request(const ClientRequest& request) = 0;
  virtual Result<std::unique_ptr<BodyReader>> open(const ClientRequest& request) = 0;  // a connection of its own
  virtual Result<std::unique_ptr<ClientWebSocket>> open_websocket(const ClientRequest& request, std::vector<std::string> subprotocols) = 0;
  // Asks for an upgrade to this protocol ("SPDY/3.1"); from then on the connection carries raw bytes: what is sent goes out as it is, what is received
  // are pieces of any size, and close() sends what waits before it ends. A refusal is an error as of open_websocket.
  virtual Result<std::unique_ptr<ClientWebSocket>> open_upgrade(const ClientRequest& request, const std::string& protocol) = 0;
};

}  // namespace fairlead::http
