// SPDX-License-Identifier: Apache-2.0
// Checks against servers that are played on loopback.
#include "node/checks.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/fd.h"
#include "base/files.h"
#include "http/pki.h"
#include "http/server.h"

namespace fairlead::node {
namespace {
using namespace std::chrono_literals;
using testing::HasSubstr;
using State = GrpcHealthReader::State;

// Accepts one connection, answers with these bytes once something came, and waits for the other side to leave.
class Once {
 public:
  explicit Once(std::string answer, int family = AF_INET) : listener_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = family == AF_INET ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
    socklen_t size = family == AF_INET ? sizeof v4 : sizeof v6;
    EXPECT_EQ(::bind(listener_.get(), address, size), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    ::getsockname(listener_.get(), address, &size);
    port_ = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    thread_ = std::thread([this, answer = std::move(answer)] {
      const Fd connection(::accept(listener_.get(), nullptr, nullptr));
      char buffer[4096];
      const ssize_t n = ::recv(connection.get(), buffer, sizeof buffer, 0);
      if (n > 0) asked_.assign(buffer, static_cast<std::size_t>(n));
      ::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      ::shutdown(connection.get(), SHUT_WR);
      while (::recv(connection.get(), buffer, sizeof buffer, 0) > 0) {
      }
    });
  }
  ~Once() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  int port() const { return port_; }
  std::string asked() {
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([] {});
    return asked_;
  }

 private:
  Fd listener_;
  int port_ = 0;
  std::string asked_;
  std::thread thread_;
};

TEST(HttpCheck, TellsTheStatusAndSendsWhatWasAsked) {
  Once server("HTTP/1.1 404 Not Found\r\n\r\n");
  auto code = check_http({.ip = "127.0.0.1", .port = server.port(), .path = "/ready?x=1", .headers = {{"host", "other"}, {"X-A", "b"}}}, 5s);
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 404);
  const std::string asked = server.asked();
  EXPECT_THAT(asked, HasSubstr("GET /ready?x=1 HTTP/1.1\r\n"));
  EXPECT_THAT(asked, HasSubstr("host: other\r\n"));
  EXPECT_THAT(asked, testing::Not(HasSubstr("Host: 127")));
}

TEST(HttpCheck, SpeaksIpv6AndRefusesWhatIsNotHttp) {
  Once six("HTTP/1.1 200 OK\r\n\r\n", AF_INET6);
  // Nothing of a pod's specification begins another line or request of the node's.
  for (const HttpCheck& bad : {HttpCheck{.ip = "::1", .port = six.port(), .path = "/x HTTP/1.1\r\n\r\nPUT /y"}, HttpCheck{.ip = "::1", .port = six.port(), .headers = {{"X-A", "b\r\n\r\nPUT /y HTTP/1.1"}}}, HttpCheck{.ip = "::1", .port = six.port(), .headers = {{"X-A\n", "b"}}}}) {
    const auto no = check_http(bad, 5s);
    ASSERT_FALSE(no);
    EXPECT_EQ(no.error().code, Code::Invalid);
  }
  EXPECT_EQ(check_http({.ip = "::1", .port = six.port()}, 5s).value_or(0), 200);
  for (const char* answer : {"SSH-2.0-OpenSSH\r\n", "HTTP/1.1 2x0 OK", "", "HTTP/1.1"}) {
    Once server(answer);
    EXPECT_FALSE(check_http({.ip = "127.0.0.1", .port = server.port()}, 5s)) << answer;
  }
  EXPECT_FALSE(check_tcp("127.0.0.1", 1, 1s));
  EXPECT_FALSE(check_tcp("host", 1, 1s));
}

TEST(HttpCheck, TakesAnyCertificate) {
  char name[] = "/tmp/fl-check.XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string root = name;
  const auto ca = *http::make_ca("other", SystemClock().now());
  const auto pair = *http::issue(ca, {.common_name = "x", .dns_names = {"elsewhere"}, .server = true}, SystemClock().now());
  ASSERT_TRUE(write_file_atomically(root + "/crt", pair.certificate_pem, 0600));
  ASSERT_TRUE(write_file_atomically(root + "/key", pair.key_pem, 0600));
  {
    auto server = http::Server::start({.tls = http::TlsFiles{.certificate = root + "/crt", .key = root + "/key", .client_ca = {}}},
                                      [](http::Request, std::shared_ptr<http::Exchange> exchange) { exchange->respond({.status = 503}); });
    ASSERT_TRUE(server);
    EXPECT_EQ(check_http({.ip = "127.0.0.1", .port = (*server)->port(), .tls = true}, 5s).value_or(0), 503);
    EXPECT_FALSE(check_http({.ip = "127.0.0.1", .port = (*server)->port(), .tls = false}, 5s).value_or(0) == 503);
  }
  ASSERT_TRUE(remove_tree(root));
}

// Frames: SETTINGS, HEADERS of stream 1, DATA of stream 1 with this message.
std::string grpc_answer(const std::string& message) {
  std::string out("\0\0\0\4\0\0\0\0\0", 9);
  out += std::string("\0\0\1\1\4\0\0\0\1", 9) + "\x88";
  out += std::string("\0\0", 2) + static_cast<char>(message.size()) + std::string("\0\0\0\0\0\1", 6) + message;
  return out;
}
const std::string serving("\0\0\0\0\2\x08\1", 7), not_serving("\0\0\0\0\2\x08\2", 7), unknown("\0\0\0\0\0", 5);

TEST(GrpcCheck, ReadsTheAnswer) {
  for (const auto& [message, want] : {std::pair(serving, State::Serving), std::pair(not_serving, State::NotServing),
                                      std::pair(unknown, State::NotServing), std::pair(std::string("\1\0\0\0\2\x08\1", 7), State::Broken)}) {
    const std::string bytes = grpc_answer(message);
    GrpcHealthReader whole, pieces;
    std::string reply, ignored;
    EXPECT_EQ(whole.feed(bytes, reply), want);
    EXPECT_EQ(reply, std::string("\0\0\0\4\1\0\0\0\0", 9));  // the settings are acknowledged
    State last = State::More;
    for (const char c : bytes) last = pieces.feed({&c, 1}, ignored);
    EXPECT_EQ(last, want);
  }
  // The server knows no such method: headers that end the stream.
  GrpcHealthReader reader;
  std::string reply;
  EXPECT_EQ(reader.feed(std::string("\0\0\1\1\5\0\0\0\1\x88", 10), reply), State::NotServing);
}

TEST(GrpcCheck, AsksAServer) {
  Once good(grpc_answer(serving)), bad(grpc_answer(not_serving));
  auto fine = check_grpc("127.0.0.1", good.port(), "my.Service", 5s);
  EXPECT_TRUE(fine) << fine.error().message;
  EXPECT_FALSE(check_grpc("127.0.0.1", bad.port(), "", 5s));
  const std::string asked = good.asked();
  EXPECT_THAT(asked, HasSubstr("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  EXPECT_THAT(asked, HasSubstr("/grpc.health.v1.Health/Check"));
  EXPECT_THAT(asked, HasSubstr("my.Service"));
}

}  // namespace
}  // namespace fairlead::node
