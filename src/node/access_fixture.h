// SPDX-License-Identifier: Apache-2.0
// For tests of what a node is asked: real containers behind real HTTPS, and a client that speaks SPDY.
#pragma once
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "http/client.h"
#include "http/pki.h"
#include "node/node_fixture.h"
#include "node/pod_access.h"
#include "node/spdy.h"

namespace fairlead::node {

class PodAccessTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (HasFatalFailure()) return;
    open_runtime();
    access_ = std::make_unique<PodAccess>(*runtime_, clock_, "n1");
    ca_ = *http::make_ca("test", clock_.now());
    auto pair = *http::issue(ca_, {.common_name = "system:node:n1", .ip_addresses = {"127.0.0.1"}, .server = true, .client = true}, clock_.now());
    for (const auto& [name, text] : {std::pair("ca", &ca_.certificate_pem), std::pair("crt", &pair.certificate_pem), std::pair("key", &pair.key_pem)})
      ASSERT_TRUE(write_file_atomically(root_ + "/" + name, *text, 0600));
    auto server = http::Server::start(
        {.tls = http::TlsFiles{.certificate = root_ + "/crt", .key = root_ + "/key", .client_ca = root_ + "/ca"}},
        [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { access_->handle(std::move(request), std::move(exchange)); });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    client_ = client("fairlead-server");
  }
  void TearDown() override {
    client_.reset();
    access_.reset();
    server_.reset();
    NodeTest::TearDown();
  }
  std::shared_ptr<http::Client> client(const std::string& name) {
    http::ClientOptions options{.host = "127.0.0.1", .port = server_->port(), .ca_pem = ca_.certificate_pem};
    if (!name.empty()) {
      const auto pair = *http::issue(ca_, {.common_name = name, .client = true}, clock_.now());
      options.certificate_pem = pair.certificate_pem;
      options.key_pem = pair.key_pem;
    }
    return *http::Client::make(options);
  }
  // `change`: what is unusual about its only container.
  void run_pod(const std::string& script, const std::function<void(ContainerSpec&)>& change = {}) {
    ASSERT_TRUE(runtime_->accept({.uid = "u", .space = "default", .name = "p", .accepted = clock_.now()}));
    auto sandbox = runtime_->ensure_sandbox({.pod_uid = "u", .hostname = "p", .limits = {}});
    ASSERT_TRUE(sandbox) << sandbox.error().message;
    ContainerSpec spec;
    spec.pod_uid = "u";
    spec.name = "main";
    spec.id = container_id("u", "main", 0);
    spec.image = *find_image(images_dir(), busybox());
    spec.argv = {"/bin/sh", "-c", script};
    spec.env = {"PATH=/bin:/usr/bin"};
    if (change) change(spec);
    ASSERT_TRUE(runtime_->start(spec));
  }
  struct Outcome {
    std::string out, err, status;
  };
  Outcome drain(http::ClientWebSocket& socket) {
    Outcome seen;
    while (true) {
      auto message = socket.receive();
      if (!message) seen.status += message.error().message;
      if (!message || !*message) return seen;
      if ((*message)->empty()) continue;
      const char channel = (**message)[0];
      (channel == 1 ? seen.out : channel == 2 ? seen.err : seen.status) += (*message)->substr(1);
    }
  }
  http::KeyPair ca_;
  std::unique_ptr<PodAccess> access_;
  std::unique_ptr<http::Server> server_;
  std::shared_ptr<http::Client> client_;
};

// A client that speaks SPDY/3.1 as kube-apiserver does, over a plain connection to the same handler.
class SpdyClient {
 public:
  explicit SpdyClient(PodAccess& access) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    auto server = http::Server::start({}, [&access](http::Request request, std::shared_ptr<http::Exchange> exchange) {
      request.peer.common_name = "fairlead-server";
      access.handle(std::move(request), std::move(exchange));
    });
    EXPECT_TRUE(server);
    server_ = std::move(*server);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_->port());
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // The head of the answer.
  std::string ask(const std::string& target) {
    send("POST " + target +
         " HTTP/1.1\r\nHost: n1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v5.channel.k8s.io, "
         "v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n");
    std::string head;
    char c = 0;
    while (!head.ends_with("\r\n\r\n") && ::recv(fd_.get(), &c, 1, 0) == 1) head += c;
    return head;
  }
  void open(const std::vector<std::string>& types) {
    for (const std::string& type : types) {
      streams_[type] = next_;
      send(writer_.open(next_, {{"streamtype", type}}, false));
      next_ += 2;
    }
  }
  void send(const std::string& bytes) { EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size())); }
  void write(const std::string& type, const std::string& bytes, bool last) { send(SpdyWriter::data(streams_.at(type), bytes, last)); }
  // Until `enough` or the end of the connection: what came, by stream.
  const std::map<std::string, std::string>& read(const std::function<bool(const std::map<std::string, std::string>&)>& enough = [](const auto&) {
    return false;
  }) {
    char chunk[64 * 1024];
    while (!enough(came_)) {
      const ssize_t n = ::recv(fd_.get(), chunk, sizeof chunk, 0);
      if (n <= 0) break;
      auto fine = reader_.feed({chunk, static_cast<std::size_t>(n)}, [&](const SpdyEvent& event) {
        for (const auto& [type, stream] : streams_)
          if (stream == event.stream && event.kind == SpdyEvent::Kind::Data) came_[type] += event.bytes;
      });
      EXPECT_TRUE(fine) << fine.error().message;
      if (!fine) break;
    }
    return came_;
  }

 private:
  Fd fd_;
  std::unique_ptr<http::Server> server_;
  SpdyReader reader_;
  SpdyWriter writer_;
  std::uint32_t next_ = 1;
  std::map<std::string, std::uint32_t> streams_;
  std::map<std::string, std::string> came_;
};

}  // namespace fairlead::node
