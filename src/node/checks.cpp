// SPDX-License-Identifier: Apache-2.0
#include "node/checks.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fd.h"

namespace fairlead::node {
namespace {
using Steady = std::chrono::steady_clock;

Result<void> wait_for(int fd, short events, Steady::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Steady::now()).count();
    if (left <= 0) return fail(Code::Unavailable, "no answer in time");
    pollfd ready{.fd = fd, .events = events, .revents = 0};
    const int n = ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, 1 << 30)));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return fail_errno(errno, "wait");
  }
}

Result<Fd> connect_to(const std::string& ip, int port, Steady::time_point deadline) {
  sockaddr_storage address{};
  socklen_t size = 0;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (::inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof *v6;
  } else {
    return fail(Code::Invalid, "\"" + ip + "\" is not an address");
  }
  const std::string doing = fmt::format("connect to {} port {}", ip, port);
  Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, doing);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 && errno != EINPROGRESS) return fail_errno(errno, doing);
  if (auto ready = wait_for(fd.get(), POLLOUT, deadline); !ready) return pass(std::move(ready.error()), doing);
  int error = 0;
  socklen_t error_size = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &error_size) != 0) return fail_errno(errno, doing);
  if (error != 0) return fail_errno(error, doing);
  return fd;
}

// A connection with or without TLS, every step before the deadline.
class Wire {
 public:
  Wire(Fd fd, Steady::time_point deadline) : fd_(std::move(fd)), deadline_(deadline) {}
  Result<void> start_tls() {
    context_.reset(::SSL_CTX_new(::TLS_client_method()));
    if (context_) tls_.reset(::SSL_new(context_.get()));
    if (!tls_ || ::SSL_set_fd(tls_.get(), fd_.get()) != 1) return fail(Code::Internal, "no TLS");
    while (true) {
      const int code = ::SSL_connect(tls_.get());
      if (code == 1) return {};
      if (auto ready = wait(code); !ready) return pass(std::move(ready.error()), "TLS handshake");
    }
  }
  Result<void> send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n =
          tls_ ? ::SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size())) : ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0)
        bytes.remove_prefix(static_cast<std::size_t>(n));
      else if (auto ready = wait(static_cast<int>(n), POLLOUT); !ready)
        return ready;
    }
    return {};
  }
  // Empty: the end.
  Result<std::string> receive() {
    char chunk[4096];
    while (true) {
      const auto n = tls_ ? ::SSL_read(tls_.get(), chunk, sizeof chunk) : ::recv(fd_.get(), chunk, sizeof chunk, 0);
      if (n > 0) return std::string(chunk, static_cast<std::size_t>(n));
      if (n == 0 && !tls_) return std::string();
      if (tls_ && ::SSL_get_error(tls_.get(), static_cast<int>(n)) == SSL_ERROR_ZERO_RETURN) return std::string();
      if (auto ready = wait(static_cast<int>(n), POLLIN); !ready) return std::unexpected(std::move(ready.error()));
    }
  }

 private:
  Result<void> wait(int code, short events = POLLIN) {
    if (tls_) {
      const int why = ::SSL_get_error(tls_.get(), code);
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return fail(Code::Unavailable, "the connection broke");
      events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    } else if (errno != EAGAIN && errno != EINTR) {
      return fail_errno(errno, "the connection broke");
    }
    return wait_for(fd_.get(), events, deadline_);
  }
  struct Free {
    void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
    void operator()(SSL* tls) const { ::SSL_free(tls); }
  };
  Fd fd_;
  Steady::time_point deadline_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> tls_;
};

void put_frame(std::string& out, unsigned char type, unsigned char flags, std::uint32_t stream, std::string_view body) {
  const auto size = static_cast<std::uint32_t>(body.size());
  for (const int shift : {16, 8, 0}) out += static_cast<char>(size >> shift & 0xFFU);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(stream >> shift & 0xFFU);
  out += body;
}

// HPACK (RFC 7541, 6.2.2): a literal that is not to be indexed, with a literal name, without Huffman codes.
void put_header(std::string& out, std::string_view name, std::string_view value) {
  out += '\0';
  for (const std::string_view text : {name, value}) {
    // An integer with a prefix of 7 bits.
    std::size_t rest = text.size();
    if (rest < 127) {
      out += static_cast<char>(rest);
    } else {
      out += static_cast<char>(127);
      for (rest -= 127; rest >= 128; rest /= 128) out += static_cast<char>(rest % 128 + 128);
      out += static_cast<char>(rest);
    }
    out += text;
  }
}

}  // namespace

Result<void> check_tcp(const std::string& ip, int port, std::chrono::milliseconds limit) {
  auto fd = connect_to(ip, port, Steady::now() + limit);
  if (!fd) return std::unexpected(std::move(fd.error()));
  return {};
}

Result<int> check_http(const HttpCheck& check, std::chrono::milliseconds limit) {
  // Of a pod's specification: nothing of it begins another line, or another request, of the node's.
  const auto plain = [](std::string_view text) { return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }); };
  if (!plain(check.path) || !std::all_of(check.headers.begin(), check.headers.end(), [&](const auto& one) { return plain(one.first) && plain(one.second); })) return fail(Code::Invalid, "path and headers of a probe have no control characters");
  const auto deadline = Steady::now() + limit;
  auto fd = connect_to(check.ip, check.port, deadline);
  if (!fd) return std::unexpected(std::move(fd.error()));
  Wire wire(std::move(*fd), deadline);
  if (check.tls)
    if (auto started = wire.start_tls(); !started) return std::unexpected(std::move(started.error()));
  const auto has = [&](std::string_view name) {
    for (const auto& [key, value] : check.headers)
      if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0) return true;
    return false;
  };
  std::string request = fmt::format("GET {} HTTP/1.1\r\n", check.path);
  const std::string host = check.ip.find(':') == std::string::npos ? check.ip : "[" + check.ip + "]";
  if (!has("Host")) request += fmt::format("Host: {}:{}\r\n", host, check.port);
  if (!has("User-Agent")) request += "User-Agent: kube-probe/fairlead\r\n";
  if (!has("Accept")) request += "Accept: */*\r\n";
  for (const auto& [name, value] : check.headers) request += fmt::format("{}: {}\r\n", name, value);
  request += "Connection: close\r\n\r\n";
  if (auto sent = wire.send(request); !sent) return std::unexpected(std::move(sent.error()));
  std::string answer;
  while (answer.size() < 12) {
    auto piece = wire.receive();
    if (!piece) return std::unexpected(std::move(piece.error()));
    if (piece->empty()) break;
    answer += *piece;
  }
  // "HTTP/1.1 200 OK"
  const bool fine = answer.size() >= 12 && answer.starts_with("HTTP/1.") && answer[8] == ' ';
  int code = 0;
  for (int i = 9; fine && i < 12; ++i)
    code = answer[static_cast<std::size_t>(i)] >= '0' && answer[static_cast<std::size_t>(i)] <= '9'
               ? code * 10 + (answer[static_cast<std::size_t>(i)] - '0')
               : -1000;
  if (!fine || code < 100) return fail(Code::Unavailable, "the answer is not HTTP/1.1");
  return code;
}

std::string grpc_health_request(const std::string& authority, const std::string& service) {
  std::string out = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  put_frame(out, 4, 0, 0, {});  // SETTINGS: the defaults
  std::string headers;
  put_header(headers, ":method", "POST");
  put_header(headers, ":scheme", "http");
  put_header(headers, ":path", "/grpc.health.v1.Health/Check");
  put_header(headers, ":authority", authority);
  put_header(headers, "te", "trailers");
  put_header(headers, "content-type", "application/grpc");
  put_header(headers, "user-agent", "kube-probe/fairlead");
  put_frame(out, 1, 0x4, 1, headers);  // END_HEADERS
  // HealthCheckRequest { string service = 1; } after five bytes: not compressed, size.
  std::string message;
  if (!service.empty()) {
    message = "\x0a";
    std::size_t rest = service.size();
    for (; rest >= 128; rest /= 128) message += static_cast<char>(rest % 128 + 128);
    message += static_cast<char>(rest);
    message += service;
  }
  std::string data(1, '\0');
  for (const int shift : {24, 16, 8, 0}) data += static_cast<char>(message.size() >> shift & 0xFFU);
  put_frame(out, 0, 0x1, 1, data + message);  // END_STREAM
  return out;
}

GrpcHealthReader::State GrpcHealthReader::message() {
  if (data_.size() < 5) return State::More;
  const auto byte = [&](std::size_t at) { return static_cast<std::uint32_t>(static_cast<unsigned char>(data_[at])); };
  const std::uint32_t size = byte(1) << 24 | byte(2) << 16 | byte(3) << 8 | byte(4);
  if (data_[0] != 0 || size > 4096) return State::Broken;
  if (data_.size() < 5 + size) return State::More;
  // HealthCheckResponse { ServingStatus status = 1; }: absent is 0 (UNKNOWN), 1 is SERVING.
  if (size == 0) return State::NotServing;
  if (data_[5] != 0x08 || size < 2) return State::Broken;
  return data_[6] == 1 ? State::Serving : State::NotServing;
}

GrpcHealthReader::State GrpcHealthReader::feed(std::string_view bytes, std::string& reply) {
  if (state_ != State::More) return state_;
  pending_ += bytes;
  while (pending_.size() >= 9) {
    const auto byte = [&](std::size_t at) { return static_cast<std::uint32_t>(static_cast<unsigned char>(pending_[at])); };
    const std::uint32_t size = byte(0) << 16 | byte(1) << 8 | byte(2), type = byte(3), flags = byte(4);
    // The default of SETTINGS_MAX_FRAME_SIZE, which was not raised.
    if (size > 16384) return state_ = State::Broken;
    if (pending_.size() < 9 + size) return State::More;
    std::string body = pending_.substr(9, size);
    const std::uint32_t stream = (byte(5) & 0x7FU) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    pending_.erase(0, 9 + size);
    if (type == 4 && (flags & 1U) == 0) put_frame(reply, 4, 1, 0, {});
    if (type == 6 && (flags & 1U) == 0) put_frame(reply, 6, 1, 0, body);
    if (type == 3 || type == 7) return state_ = State::NotServing;  // RST_STREAM, GOAWAY
    if (stream != 1) continue;
    if (type == 0) {
      if ((flags & 0x8U) != 0) {  // padded
        if (body.empty() || static_cast<unsigned char>(body[0]) + 1U > body.size()) return state_ = State::Broken;
        body = body.substr(1, body.size() - 1 - static_cast<unsigned char>(body[0]));
      }
      data_ += body;
      if (data_.size() > 8192) return state_ = State::Broken;
      if (const State now = message(); now != State::More) return state_ = now;
    }
    // The end of the stream without a message: an error of gRPC, such as UNIMPLEMENTED.
    if ((type == 0 || type == 1) && (flags & 1U) != 0) return state_ = State::NotServing;
  }
  return State::More;
}

Result<void> check_grpc(const std::string& ip, int port, const std::string& service, std::chrono::milliseconds limit) {
  const auto deadline = Steady::now() + limit;
  auto fd = connect_to(ip, port, deadline);
  if (!fd) return std::unexpected(std::move(fd.error()));
  Wire wire(std::move(*fd), deadline);
  if (auto sent = wire.send(grpc_health_request(fmt::format("{}:{}", ip, port), service)); !sent) return sent;
  GrpcHealthReader reader;
  while (true) {
    auto piece = wire.receive();
    if (!piece) return std::unexpected(std::move(piece.error()));
    if (piece->empty()) return fail(Code::Unavailable, "the connection ended without an answer");
    std::string reply;
    const auto state = reader.feed(*piece, reply);
    if (state == GrpcHealthReader::State::Serving) return {};
    if (state == GrpcHealthReader::State::NotServing) return fail(Code::Unavailable, "the service is not serving");
    if (state == GrpcHealthReader::State::Broken) return fail(Code::Unavailable, "the answer is not gRPC");
    if (!reply.empty())
      if (auto sent = wire.send(reply); !sent) return sent;
  }
}

}  // namespace fairlead::node
