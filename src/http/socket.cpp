// SPDX-License-Identifier: Apache-2.0
#include "http/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>

namespace fairlead::http {
namespace {

constexpr int queue_of_kernel = 4096;  // connections that wait for accept

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
};

// By the resolver for its interface names ("fe80::1%eth0"); old spellings of IPv4 addresses ("127.1") are not taken.
Result<Endpoint> parse_endpoint(const std::string& address, unsigned short port) {
  Endpoint out;
  auto* const ip4 = reinterpret_cast<sockaddr_in*>(&out.address);
  if (::inet_pton(AF_INET, address.c_str(), &ip4->sin_addr) == 1) {
    ip4->sin_family = AF_INET;
    ip4->sin_port = htons(port);
    out.size = sizeof *ip4;
    return out;
  }
  addrinfo wanted{};
  wanted.ai_family = AF_INET6;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return fail(Code::Invalid, "not an IP address");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  *reinterpret_cast<sockaddr_in6*>(&out.address) = *reinterpret_cast<const sockaddr_in6*>(found->ai_addr);
  out.size = found->ai_addrlen;
  return out;
}

}  // namespace

Result<Listening> listen_tcp(const std::string& address, unsigned short port) {
  const std::string doing = fmt::format("listen on {}:{}", address, port);
  auto endpoint = parse_endpoint(address, port);
  if (!endpoint) return pass(std::move(endpoint.error()), doing);
  auto* const name = reinterpret_cast<sockaddr*>(&endpoint->address);
  Listening out{.fd = Fd(::socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), .family = name->sa_family};
  if (!out.fd) return fail_errno(errno, doing);
  const int on = 1;
  ::setsockopt(out.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(out.fd.get(), name, endpoint->size) != 0 || ::listen(out.fd.get(), queue_of_kernel) != 0) {
    const int cause = errno;
    if (cause == EADDRINUSE) return fail(Code::Unavailable, doing + ": the port is taken by another program");
    return fail_errno(cause, doing);
  }
  socklen_t size = sizeof endpoint->address;
  if (::getsockname(out.fd.get(), name, &size) != 0) return fail_errno(errno, doing);
  out.port = ntohs(out.family == AF_INET ? reinterpret_cast<sockaddr_in*>(name)->sin_port : reinterpret_cast<sockaddr_in6*>(name)->sin6_port);
  return out;
}

Result<Listening> listen_unix(const std::string& path) {
  const std::string doing = fmt::format("listen on {}", path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(Code::Invalid, doing + ": the path is longer than 107 characters");
  path.copy(address.sun_path, path.size());
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  Listening out{.fd = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), .family = AF_UNIX};
  if (!out.fd) return fail_errno(errno, doing);
  // A socket file that nobody listens on is left from a process that was killed.
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe) return fail_errno(errno, doing);
  if (::connect(probe.get(), name, sizeof address) == 0) return fail(Code::Unavailable, doing + ": another program listens there");
  if (errno == ECONNREFUSED) ::unlink(path.c_str());
  if (::bind(out.fd.get(), name, sizeof address) != 0) return fail_errno(errno, doing);
  // Nobody can connect before listen, so there is no moment with a wider mode.
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(out.fd.get(), queue_of_kernel) != 0) return fail_errno(errno, doing);
  return out;
}

std::string peer_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(fd, name, &size) != 0) return {};
  if (address.ss_family == AF_UNIX) return "unix";
  // Who comes by IPv4 to a socket of both families is told as who he is.
  if (const auto* const six = reinterpret_cast<const sockaddr_in6*>(name); address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
    char four[INET_ADDRSTRLEN] = "";
    return ::inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, four, sizeof four) == nullptr ? "" : four;
  }
  // Without the interface of a link-local address: who asks is what counts.
  char text[INET6_ADDRSTRLEN] = "";
  const void* const bytes = address.ss_family == AF_INET ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(name)->sin_addr)
                                                         : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(name)->sin6_addr);
  if (::inet_ntop(address.ss_family, bytes, text, sizeof text) == nullptr) return {};
  return text;
}

void keep_alive(int tcp, const KeepAlive& rules) {
  const int on = 1, idle = static_cast<int>(rules.idle.count()), every = static_cast<int>(rules.every.count());
  ::setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(tcp, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(tcp, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(tcp, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
  ::setsockopt(tcp, IPPROTO_TCP, TCP_KEEPCNT, &rules.count, sizeof rules.count);
}

}  // namespace fairlead::http
