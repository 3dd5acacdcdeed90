// SPDX-License-Identifier: Apache-2.0
// A socket, with TLS or without: one type for both, so that everything above it is compiled once. Private to server_beast.cpp and client_beast.cpp.
#pragma once
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <utility>

namespace boost::beast {
enum class role_type;
}

namespace fairlead::http {

// An AsyncReadStream and AsyncWriteStream of Asio over TCP or a Unix socket. Not movable: TLS holds a reference to the socket.
template <class Executor>
class Wire {
 public:
  using executor_type = Executor;
  using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Executor>;
  using Tls = boost::asio::ssl::stream<Socket&>;
  using next_layer_type = Socket;

  explicit Wire(Socket socket) : socket_(std::move(socket)) {}
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  Socket& next_layer() { return socket_; }
  const Socket& next_layer() const { return socket_; }
  Tls& start_tls(boost::asio::ssl::context& context) { return tls_.emplace(socket_, context); }
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& into, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        [this](auto handler, const auto& buffers) {
          if (tls_) {
            tls_->async_read_some(buffers, std::move(handler));
          } else {
            socket_.async_read_some(buffers, std::move(handler));
          }
        },
        token, into);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        [this](auto handler, const auto& buffers) {
          if (tls_) {
            tls_->async_write_some(buffers, std::move(handler));
          } else {
            socket_.async_write_some(buffers, std::move(handler));
          }
        },
        token, from);
  }

 private:
  Socket socket_;
  std::optional<Tls> tls_;
};

// Beast asks this of a stream below a WebSocket. The peer has had its close frame by now; the owner closes the socket itself.
template <class Executor, class Handler>
void async_teardown(boost::beast::role_type, Wire<Executor>& wire, Handler&& handler) {
  boost::asio::post(wire.get_executor(), [handler = std::forward<Handler>(handler)]() mutable { handler(boost::system::error_code{}); });
}

}  // namespace fairlead::http
