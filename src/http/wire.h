// SPDX-License-Identifier: Apache-2.0
// A socket, with TLS or without: one type for both, so that everything above it is compiled once. Private to server_beast.cpp and client_beast.cpp.
#pragma once
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "http/tls_engine.h"

namespace boost::beast {
enum class role_type;
}

namespace fairlead::http {

// A TLS stream over a socket, both used on the socket's executor alone. One reading and one writing operation may be under way at a time. It must outlive them.
template <class Socket>
class TlsStream {
 public:
  using error_code = boost::system::error_code;
  using executor_type = typename Socket::executor_type;

  TlsStream(Socket& socket, boost::asio::ssl::context& context) : socket_(socket), engine_(context.native_handle()) {}
  SSL* native_handle() const { return engine_.native_handle(); }
  executor_type get_executor() { return socket_.get_executor(); }

  template <class Token>
  auto async_handshake(boost::asio::ssl::stream_base::handshake_type as, Token&& token) {
    return start<void(error_code)>([this, as](std::size_t&) { return engine_.handshake(socket_.native_handle(), as); }, std::forward<Token>(token));
  }
  template <class Token>
  auto async_shutdown(Token&& token) {
    return start<void(error_code)>([this](std::size_t&) { return engine_.shutdown(socket_.native_handle()); }, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& into, Token&& token) {
    boost::asio::mutable_buffer space;
    for (auto at = boost::asio::buffer_sequence_begin(into); at != boost::asio::buffer_sequence_end(into) && space.size() == 0; ++at) space = *at;
    return start<void(error_code, std::size_t)>(
        [this, space](std::size_t& done) {
          if (space.size() == 0) return TlsEngine::Step{};
          const auto step = engine_.read(socket_.native_handle(), space.data(), space.size());
          done = step.bytes;
          return step;
        },
        std::forward<Token>(token));
  }
  // What goes out at once, without waiting and without a turn of the loop; more than the socket takes is left to async_write_some, which must begin where this ended.
  template <class Buffers>
  std::size_t write_now(const Buffers& from, error_code& error) {
    std::size_t done = 0;
    if (!socket_.is_open()) error = boost::asio::error::operation_aborted;
    else error = write(from, done).error;
    return done;
  }
  // Writes as much as the socket takes, whole records where there is enough for them.
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return start<void(error_code, std::size_t)>([this, from](std::size_t& done) { return write(from, done); }, std::forward<Token>(token));
  }

 private:
  static constexpr std::size_t record = TlsEngine::largest_record;

  template <class Buffers>
  TlsEngine::Step write(const Buffers& from, std::size_t& done) {
    char* const joined = TlsEngine::scratch();  // small pieces go out in one record; used only within the call below
    const std::size_t all = boost::asio::buffer_size(from);
    while (done < all) {
      // A record that was begun must be asked for again with the same bytes and no fewer, while the caller may have fewer at hand now: Asio's async_write hands over 16 pieces at a time, write_now all.
      const auto [bytes, size] = begun_.empty() ? next_record(from, done, joined) : std::pair<const void*, std::size_t>(begun_.data(), begun_.size());
      const auto step = engine_.write(socket_.native_handle(), bytes, size);
      if (step.error || step.want == TlsEngine::Want::Nothing) begun_ = {};
      else if (begun_.empty()) begun_.assign(static_cast<const char*>(bytes), static_cast<const char*>(bytes) + size);
      if (step.error || step.want != TlsEngine::Want::Nothing) {
        // What went out counts; the rest is asked for again.
        if (!step.error && done > 0) return {};
        return step;
      }
      done += step.bytes;
    }
    return {};
  }
  // The bytes after the first `skip`: in place if the first piece fills a record or is the last, else joined.
  template <class Buffers>
  static std::pair<const void*, std::size_t> next_record(const Buffers& from, std::size_t skip, char* joined) {
    std::size_t size = 0;
    const auto end = boost::asio::buffer_sequence_end(from);
    for (auto at = boost::asio::buffer_sequence_begin(from); at != end && size < record; ++at) {
      boost::asio::const_buffer piece = *at;
      const std::size_t skipped = std::min(skip, piece.size());
      piece += skipped;
      skip -= skipped;
      if (piece.size() == 0) continue;
      if (size == 0 && (piece.size() >= record || std::next(at) == end)) return {piece.data(), std::min(piece.size(), record)};
      size += boost::asio::buffer_copy(boost::asio::buffer(joined + size, record - size), piece);
    }
    return {joined, size};
  }

  // Calls `act` until it wants nothing, waiting for the socket between. Never completes within the call that starts it.
  template <class Act, class Signature>
  struct Operation;
  template <class Act>
  struct Operation<Act, void(error_code)> {
    TlsStream& stream;
    Act act;
    std::size_t done = 0;
    bool started = false, over = false;
    error_code result;
    template <class Self>
    void operator()(Self& self, error_code error = {}) {
      if (over) return self.complete(result);
      if (stream.goes_on(*this, self, error)) self.complete(result);
    }
  };
  template <class Act>
  struct Operation<Act, void(error_code, std::size_t)> {
    TlsStream& stream;
    Act act;
    std::size_t done = 0;
    bool started = false, over = false;
    error_code result;
    template <class Self>
    void operator()(Self& self, error_code error = {}) {
      if (over) return self.complete(result, done);
      if (stream.goes_on(*this, self, error)) self.complete(result, done);
    }
  };

  // One more attempt. True: it is over, and may be completed here.
  template <class Op, class Self>
  bool goes_on(Op& operation, Self& self, error_code error) {
    const bool first = !std::exchange(operation.started, true);
    TlsEngine::Step step;
    if (error) {
      step.error = error;
    } else if (!socket_.is_open()) {
      step.error = boost::asio::error::operation_aborted;
    } else {
      step = operation.act(operation.done);
    }
    if (!step.error && step.want != TlsEngine::Want::Nothing) {
      const auto ready = step.want == TlsEngine::Want::Read ? boost::asio::socket_base::wait_read : boost::asio::socket_base::wait_write;
      socket_.async_wait(ready, std::move(self));
      return false;
    }
    operation.result = step.error;
    operation.over = true;
    if (!first) return true;
    const auto executor = socket_.get_executor();
    boost::asio::post(executor, std::move(self));
    return false;
  }

  template <class Signature, class Act, class Token>
  auto start(Act act, Token&& token) {
    return boost::asio::async_compose<Token, Signature>(Operation<Act, Signature>{*this, std::move(act)}, token, socket_);
  }

  Socket& socket_;
  TlsEngine engine_;
  std::vector<char> begun_;  // of the record that the socket has not taken yet: what the caller asks for begins with these bytes
};

// An AsyncReadStream and AsyncWriteStream of Asio over TCP or a Unix socket. Not movable: TLS holds a reference to the socket.
template <class Executor>
class Wire {
 public:
  using executor_type = Executor;
  using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Executor>;
  using Tls = TlsStream<Socket>;
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
