// SPDX-License-Identifier: Apache-2.0
// For tests: a site's certificates as files and values, and raw sockets that say what no well-behaved client says.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "http/client.h"
#include "http/pki.h"
#include "http/server.h"

namespace fairlead::http {

class TestFolder {
 public:
  TestFolder() {
    char name[] = "/tmp/fairlead-http-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestSite {
  TestFolder folder;
  KeyPair ca = *make_ca("test-ca", SystemClock{}.now());
  KeyPair server = *issue(ca, {.common_name = "server", .dns_names = {"localhost"}, .ip_addresses = {"127.0.0.1"}, .server = true}, SystemClock{}.now());
  KeyPair client = *issue(ca, {.common_name = "alice", .organizations = {"staff", "system:masters"}, .client = true}, SystemClock{}.now());
  TlsFiles files() const {
    return {folder.write("server.crt", server.certificate_pem), folder.write("server.key", server.key_pem), folder.write("ca.crt", ca.certificate_pem)};
  }
  ClientOptions options(unsigned short port) const {
    return {.host = "127.0.0.1", .port = port, .ca_pem = ca.certificate_pem, .certificate_pem = client.certificate_pem, .key_pem = client.key_pem};
  }
};

class RawSocket {
 public:
  explicit RawSocket(unsigned short port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void send(std::string_view text) { EXPECT_EQ(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size())); }
  // Reads until `mark` has been seen or the peer closes; all that was read since the last call.
  std::string read_to(std::string_view mark) {
    std::string out = std::exchange(rest_, {});
    for (;;) {
      if (const auto at = out.find(mark); !mark.empty() && at != std::string::npos) {
        rest_ = out.substr(at + mark.size());
        return out.substr(0, at + mark.size());
      }
      pollfd wait{fd_.get(), POLLIN, 0};
      if (::poll(&wait, 1, 20'000) != 1) return out + "(nothing more in 20 s)";
      char buffer[4096];
      const auto got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
      if (got <= 0) return out + "(closed)";
      out.append(buffer, static_cast<std::size_t>(got));
    }
  }
  std::string read_to_end() { return read_to(""); }
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  std::string rest_;
};

}  // namespace fairlead::http
