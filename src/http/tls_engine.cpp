// SPDX-License-Identifier: Apache-2.0
#include "http/tls_engine.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cerrno>
#include <limits>

#include "base/result.h"

namespace fairlead::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

TlsEngine::Line& line_of(BIO* bio) { return *static_cast<TlsEngine::Line*>(BIO_get_data(bio)); }

// Interrupted or not ready: again later. Anything else is kept for the caller.
int failed(BIO* bio, bool reading) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    if (reading) BIO_set_retry_read(bio);
    else BIO_set_retry_write(bio);
  } else {
    line_of(bio).error = errno;
  }
  return -1;
}

int send_bytes(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const auto sent = ::send(line_of(bio).fd, bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent < 0 ? failed(bio, false) : static_cast<int>(sent);
}

int receive_bytes(BIO* bio, char* into, int size) {
  BIO_clear_retry_flags(bio);
  const auto got = ::recv(line_of(bio).fd, into, static_cast<std::size_t>(size), MSG_DONTWAIT);
  if (got == 0) line_of(bio).ended = true;
  return got < 0 ? failed(bio, true) : static_cast<int>(got);
}

long control(BIO* bio, int what, long, void*) {
  if (what == BIO_CTRL_FLUSH) return 1;
  if (what == BIO_CTRL_EOF) return line_of(bio).ended ? 1 : 0;
  return 0;
}

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket that does not block");
    INVARIANT(made != nullptr);
    BIO_meth_set_write(made, send_bytes);
    BIO_meth_set_read(made, receive_bytes);
    BIO_meth_set_ctrl(made, control);
    BIO_meth_set_create(made, [](BIO* bio) {
      BIO_set_init(bio, 1);
      return 1;
    });
    return made;
  }();
  return method;
}

int clamped(std::size_t size) { return static_cast<int>(std::min<std::size_t>(size, std::numeric_limits<int>::max())); }

}  // namespace

TlsEngine::TlsEngine(SSL_CTX* context) : ssl_(SSL_new(context)), line_(std::make_unique<Line>()) {
  BIO* const bio = BIO_new(socket_method());
  INVARIANT(ssl_ != nullptr && bio != nullptr);
  BIO_set_data(bio, line_.get());
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_set_read_ahead(ssl_, 1);  // header and body of a record with one call of the kernel
}

TlsEngine::~TlsEngine() { SSL_free(ssl_); }

char* TlsEngine::scratch() {
  static thread_local std::unique_ptr<char[]> room;
  if (!room) room.reset(new char[largest_record]);
  return room.get();
}

void TlsEngine::begin(int fd) {
  line_->fd = fd;
  line_->error = 0;
  ERR_clear_error();
}

TlsEngine::Step TlsEngine::step(int result) {
  if (result > 0) return {.want = Want::Nothing, .error = {}, .bytes = static_cast<std::size_t>(result)};
  const int why = SSL_get_error(ssl_, result);
  if (why == SSL_ERROR_WANT_READ) return {.want = Want::Read, .error = {}};
  if (why == SSL_ERROR_WANT_WRITE) return {.want = Want::Write, .error = {}};
  if (why == SSL_ERROR_ZERO_RETURN) return {.want = Want::Nothing, .error = asio::error::eof};
  const unsigned long reason = ERR_get_error();
  // First: OpenSSL answers such an end with an alert, which may fail in turn.
  if (line_->ended && (reason == 0 || ERR_GET_REASON(reason) == SSL_R_UNEXPECTED_EOF_WHILE_READING)) return {.want = Want::Nothing, .error = asio::ssl::error::stream_truncated};
  if (line_->error != 0) return {.want = Want::Nothing, .error = error_code(line_->error, boost::system::system_category())};
  if (reason != 0) return {.want = Want::Nothing, .error = error_code(static_cast<int>(reason), asio::error::get_ssl_category())};
  return {.want = Want::Nothing, .error = asio::ssl::error::unexpected_result};
}

TlsEngine::Step TlsEngine::handshake(int fd, asio::ssl::stream_base::handshake_type as) {
  begin(fd);
  return step(as == asio::ssl::stream_base::server ? SSL_accept(ssl_) : SSL_connect(ssl_));
}

TlsEngine::Step TlsEngine::read(int fd, void* into, std::size_t size) {
  begin(fd);
  return step(SSL_read(ssl_, into, clamped(size)));
}

TlsEngine::Step TlsEngine::write(int fd, const void* from, std::size_t size) {
  begin(fd);
  return step(SSL_write(ssl_, from, clamped(size)));
}

// Ends when the peer has said goodbye, too.
TlsEngine::Step TlsEngine::shutdown(int fd) {
  begin(fd);
  int result = SSL_shutdown(ssl_);
  if (result == 0) result = SSL_shutdown(ssl_);
  return step(result);
}

}  // namespace fairlead::http
