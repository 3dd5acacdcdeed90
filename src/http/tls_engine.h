// SPDX-License-Identifier: Apache-2.0
// TLS straight over a socket that does not block: OpenSSL reads from the kernel and writes to it, with no copies and no buffers of ours between them. A connection that
// rests holds no buffers at all, so that thousands of watches are cheap. Private to wire.h.
#pragma once
#include <openssl/ssl.h>

#include <boost/asio/ssl/stream_base.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>

namespace fairlead::http {

// One thread at a time. Calls never block; each is repeated, with the same bytes, until it does not want anything.
class TlsEngine {
 public:
  // What a call came to. Read, Write: call again when the socket is ready for that.
  enum class Want { Nothing, Read, Write };
  struct Step {
    Want want = Want::Nothing;
    boost::system::error_code error;  // asio::error::eof: the peer said goodbye; ssl::error::stream_truncated: it went without
    std::size_t bytes = 0;
  };

  // Invariant: OpenSSL has memory.
  explicit TlsEngine(SSL_CTX* context);
  ~TlsEngine();
  TlsEngine(const TlsEngine&) = delete;
  TlsEngine& operator=(const TlsEngine&) = delete;

  SSL* native_handle() const { return ssl_; }
  // `fd` is told anew each time: a closed socket's number may belong to somebody else by now.
  Step handshake(int fd, boost::asio::ssl::stream_base::handshake_type as);
  Step read(int fd, void* into, std::size_t size);
  Step write(int fd, const void* from, std::size_t size);
  Step shutdown(int fd);

  static constexpr std::size_t largest_record = 16 << 10;  // bytes that one record of TLS holds at most
  // Room for one record, the same for all of a thread; made when it is first asked for.
  static char* scratch();

  // The socket as OpenSSL's BIO sees it.
  struct Line {
    int fd = -1;
    int error = 0;  // errno of the last failure
    bool ended = false;
  };

 private:
  void begin(int fd);
  Step step(int result);
  SSL* ssl_;
  std::unique_ptr<Line> line_;
};

}  // namespace fairlead::http
