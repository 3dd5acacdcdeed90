// SPDX-License-Identifier: Apache-2.0
// The client against our server, with TLS, and against sockets that misbehave.
#include "http/client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/encoding.h"
#include "http/test_site.h"

namespace fairlead::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::unique_ptr<Server> serve(Handler handler, ServerOptions options = {}) {
  auto server = Server::start(std::move(options), std::move(handler));
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}
std::shared_ptr<Client> plain_client(unsigned short port) { return *Client::make({.host = "127.0.0.1", .port = port, .tls = false}); }

template <class T>
T get(std::future<T> future) {
  if (future.wait_for(20s) != std::future_status::ready) throw std::runtime_error("nothing came in 20 s");
  return future.get();
}

// Accepts connections one after the other and answers the requests on each with the next script's parts (split by |), whatever is asked; then closes.
class Script {
 public:
  explicit Script(std::vector<std::string> answers) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const auto& answer : answers) {
        const Fd connection(::accept(listener_.get(), nullptr, nullptr));
        for (const auto& part : split(answer, '|')) {
          std::string request;
          char buffer[4096];
          while (request.find("\r\n\r\n") == std::string::npos) {
            const auto got = ::recv(connection.get(), buffer, sizeof buffer, 0);
            if (got <= 0) break;
            request.append(buffer, static_cast<std::size_t>(got));
          }
          ++requests_;
          ::send(connection.get(), part.data(), part.size(), MSG_NOSIGNAL);
        }
        ::shutdown(connection.get(), SHUT_WR);
      }
    });
  }
  ~Script() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  unsigned short port() const { return port_; }
  int requests() const { return requests_; }

 private:
  Fd listener_;
  unsigned short port_ = 0;
  std::atomic<int> requests_{0};
  std::thread thread_;
};

TEST(Client, SpeaksTlsAndShowsItsCertificate) {
  const TestSite site;
  const auto server = serve(
      [](Request request, std::shared_ptr<Exchange> exchange) {
        std::string who = request.peer.common_name;
        for (const auto& organization : request.peer.organizations) who += "," + organization;
        exchange->respond({.status = 201, .headers = {{"X-Who", who}}, .body = request.method + " " + request.body});
      },
      {.tls = site.files()});
  const auto client = Client::make(site.options(server->port()));
  ASSERT_TRUE(client) << client.error().message;
  const std::string body(3 << 20, 'b');
  const auto response = (*client)->request({.method = "POST", .target = "/x?y=z", .headers = {{"Accept", "a/b"}}, .body = body});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 201);
  EXPECT_EQ(find(response->headers, "x-who"), "alice,staff,system:masters");
  EXPECT_TRUE(response->body == "POST " + body);

  auto anonymous = site.options(server->port());
  anonymous.certificate_pem.clear();
  const auto unnamed = (*Client::make(anonymous))->request({.target = "/"});
  ASSERT_TRUE(unnamed) << unnamed.error().message;
  EXPECT_EQ(find(unnamed->headers, "x-who"), "");
}

TEST(Client, TrustsNoOtherAuthorityAndNoOtherName) {
  const TestSite site, other;
  const auto server = serve([](Request, std::shared_ptr<Exchange> exchange) { exchange->respond({}); }, {.tls = site.files()});
  auto options = site.options(server->port());
  options.ca_pem = other.ca.certificate_pem;
  const auto untrusted = (*Client::make(options))->request({.target = "/"});
  ASSERT_FALSE(untrusted);
  EXPECT_THAT(untrusted.error().message, HasSubstr("not trusted"));

  options = site.options(server->port());
  options.server_name = "elsewhere";
  const auto misnamed = (*Client::make(options))->request({.target = "/"});
  ASSERT_FALSE(misnamed);
  EXPECT_THAT(misnamed.error().message, HasSubstr("hostname mismatch"));
  options.server_name = "localhost";
  EXPECT_TRUE((*Client::make(options))->request({.target = "/"}));

  options = site.options(server->port());  // and the server trusts no client of another authority
  options.certificate_pem = other.client.certificate_pem;
  options.key_pem = other.client.key_pem;
  EXPECT_FALSE((*Client::make(options))->request({.target = "/"}));

  options.key_pem = site.client.key_pem;
  EXPECT_EQ(Client::make(options).error().code, Code::Invalid);
}

// Of devices that sign for themselves, under any name.
TEST(Client, TrustsExactlyTheKeyThatItWasTold) {
  const TestSite site;
  std::atomic<int> asked = 0;
  const auto server = serve([&](Request, auto exchange) { ++asked; exchange->respond(Response{.body = "well"}); }, {.tls = site.files()});
  const std::string key = *fingerprint_of_certificate(site.server.certificate_pem);
  ClientOptions options{.host = "127.0.0.1", .port = server->port(), .server_name = "another.name", .server_key = key};
  auto answer = (*Client::make(options))->request({.target = "/"});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, "well");
  options.server_key = std::string(64, '0');
  answer = (*Client::make(options))->request({.target = "/"});
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, testing::AllOf(HasSubstr(key), HasSubstr("not the one that is trusted")));
  EXPECT_EQ(asked, 1);
}

TEST(Client, KeepsConnectionsAndFindsClosedOnes) {
  auto handler = [](Request request, std::shared_ptr<Exchange> exchange) {
    exchange->respond({.headers = {{"Connection", "x"}}, .body = request.target.path});
  };
  auto server = serve(handler);
  const unsigned short port = server->port();
  const auto client = plain_client(port);
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*client->request({.target = "/" + std::to_string(i)})).body, "/" + std::to_string(i));
  server.reset();
  EXPECT_EQ(client->request({.target = "/down"}).error().code, Code::Unavailable);
  server = serve(handler, {.port = port});
  EXPECT_EQ((*client->request({.target = "/again"})).body, "/again");
}

TEST(Client, SendsOnceMoreOnlyWhereAKeptConnectionWasClosed) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  const Script script({"", ok});
  const auto client = plain_client(script.port());
  EXPECT_FALSE(client->request({.target = "/"}));  // new connection, closed without an answer: not repeated
  EXPECT_EQ(script.requests(), 1);
  EXPECT_EQ((*client->request({.target = "/"})).body, "ok");

  const Script closing({ok + "|", ok});  // reads the second request on the kept connection and closes without a word
  const auto second = plain_client(closing.port());
  EXPECT_EQ((*second->request({.target = "/"})).body, "ok");
  EXPECT_EQ((*second->request({.method = "POST", .target = "/"})).body, "ok");
  EXPECT_EQ(closing.requests(), 3);
}

TEST(Client, ReadsEveryWayToEndABody) {
  const Script script({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nuntil the end",
                       "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncut",
                       "garbage\r\n\r\n", "HTTP/1.1 304 Not Modified\r\n\r\n"});
  const auto client = plain_client(script.port());
  EXPECT_EQ((*client->request({.target = "/"})).body, "abc");
  EXPECT_EQ((*client->request({.target = "/"})).body, "until the end");
  EXPECT_EQ((*client->request({.target = "/"})).body, "!");
  EXPECT_EQ(client->request({.target = "/"}).error().code, Code::Unavailable);
  EXPECT_EQ(client->request({.target = "/"}).error().code, Code::Unavailable);
  EXPECT_EQ((*client->request({.target = "/"})).status, 304);
}

TEST(Client, GivesUpInTime) {
  std::promise<std::shared_ptr<Exchange>> kept;
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) { kept.set_value(std::move(exchange)); });
  const auto client = *Client::make({.host = "127.0.0.1", .port = server->port(), .tls = false, .request_timeout = std::chrono::milliseconds(50)});
  const auto response = client->request({.target = "/"});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("no answer"));
  const auto refused = plain_client(1)->request({.target = "/"});
  EXPECT_THAT(refused.error().message, HasSubstr("connect to 127.0.0.1:1: Connection refused"));
}

TEST(Client, RefusesWhatWouldBreakTheRequest) {
  const auto client = plain_client(1);
  EXPECT_EQ(client->request({.target = "/a b"}).error().code, Code::Invalid);
  EXPECT_EQ(client->request({.target = "/\r\nX: y"}).error().code, Code::Invalid);
  EXPECT_EQ(client->request({.target = "/", .headers = {{"A", "b\r\nC: d"}}}).error().code, Code::Invalid);
}

TEST(Client, IsUsedByManyThreads) {
  const TestSite site;
  const auto server = serve([](Request request, std::shared_ptr<Exchange> exchange) { exchange->respond({.body = request.body}); }, {.tls = site.files()});
  const auto client = *Client::make(site.options(server->port()));
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string body = std::to_string(t * 1000 + i);
        const auto response = client->request({.method = "POST", .target = "/", .body = body});
        if (response && response->body == body) ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
}

TEST(BodyReader, GivesPiecesAsTheyComeAndTheEnd) {
  const TestSite site;
  std::promise<std::shared_ptr<Stream>> opened;
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) { opened.set_value(exchange->stream(200, {{"X", "y"}})); }, {.tls = site.files()});
  const auto client = *Client::make(site.options(server->port()));
  const auto reader = client->open({.target = "/watch"});
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ((*reader)->status(), 200);
  EXPECT_EQ(find((*reader)->headers(), "x"), "y");
  auto stream = get(opened.get_future());
  EXPECT_EQ((*reader)->read(1ms)->has_value(), false);
  stream->write(std::make_shared<const std::string>("one"));
  EXPECT_EQ(**(*reader)->read(20s), "one");
  stream->write(std::make_shared<const std::string>("two"));
  stream.reset();
  EXPECT_EQ(**(*reader)->read(20s), "two");
  EXPECT_EQ(**(*reader)->read(20s), "");
  EXPECT_EQ(**(*reader)->read(20s), "");
}

TEST(BodyReader, AStreamThatBreaksIsAnError) {
  std::promise<std::shared_ptr<Stream>> opened;
  auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) { opened.set_value(exchange->stream(200, {})); });
  const auto reader = plain_client(server->port())->open({.target = "/watch"});
  ASSERT_TRUE(reader);
  const auto stream = get(opened.get_future());
  server.reset();
  EXPECT_EQ((*reader)->read(20s).error().code, Code::Unavailable);
}

TEST(BodyReader, CloseFromAnotherThreadEndsABlockedRead) {
  std::promise<void> gone;
  std::shared_ptr<Stream> stream;
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) {
    stream = exchange->stream(200, {});
    stream->on_close([&] { gone.set_value(); });
  });
  const auto reader = plain_client(server->port())->open({.target = "/watch"});
  ASSERT_TRUE(reader);
  std::thread closer([&] { (*reader)->close(); });
  EXPECT_EQ((*reader)->read(20s).error().code, Code::Unavailable);
  closer.join();
  get(gone.get_future());
}

// Echoes each message back; "bye" closes.
void echo_socket(Request, std::shared_ptr<Exchange> exchange) {
  auto socket = exchange->accept_websocket("v5.channel.k8s.io");
  if (!socket) return exchange->respond({.status = 400, .body = socket.error().message});
  (*socket)->start(
      [keep = *socket](std::string message) {
        if (message == "bye") return keep->close();
        keep->send("echo " + message);
      },
      [] {});
}

TEST(WebSocket, EchoesOverTlsAndClosesInOrder) {
  const TestSite site;
  const auto server = serve(echo_socket, {.tls = site.files()});
  const auto client = *Client::make(site.options(server->port()));
  const auto socket = client->open_websocket({.target = "/exec"}, {"v5.channel.k8s.io", "v4.channel.k8s.io"});
  ASSERT_TRUE(socket) << socket.error().message;
  EXPECT_EQ((*socket)->subprotocol(), "v5.channel.k8s.io");
  const std::string large(1 << 20, 'l');
  EXPECT_TRUE((*socket)->send("one"));
  EXPECT_TRUE((*socket)->send(large));
  EXPECT_EQ(**(*socket)->receive(), "echo one");
  EXPECT_TRUE(**(*socket)->receive() == "echo " + large);
  EXPECT_TRUE((*socket)->send("bye"));
  const auto end = (*socket)->receive();
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_FALSE(end->has_value());
  EXPECT_FALSE((*socket)->send("more"));
}

TEST(WebSocket, ManyMessagesBothWaysKeepTheirOrder) {
  const auto server = serve(echo_socket);
  const auto socket = plain_client(server->port())->open_websocket({.target = "/"}, {"v5.channel.k8s.io"});
  ASSERT_TRUE(socket);
  std::thread sender([&] {
    for (int i = 0; i < 2000; ++i) EXPECT_TRUE((*socket)->send(std::to_string(i)));
  });
  int wrong = 0;
  for (int i = 0; i < 2000; ++i) wrong += **(*socket)->receive() != "echo " + std::to_string(i);
  sender.join();
  EXPECT_EQ(wrong, 0);
}

TEST(WebSocket, ServerNoticesThatTheClientClosed) {
  std::promise<void> closed;
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) {
    auto socket = *exchange->accept_websocket("");
    socket->start([keep = socket](std::string) {}, [&] { closed.set_value(); });
  });
  auto socket = plain_client(server->port())->open_websocket({.target = "/"}, {});
  ASSERT_TRUE(socket) << socket.error().message;
  socket->reset();
  get(closed.get_future());
}

TEST(WebSocket, DroppedByTheServerBeforeStart) {
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) { (*exchange->accept_websocket("x"))->send("only this"); });
  const auto socket = plain_client(server->port())->open_websocket({.target = "/"}, {"x"});
  ASSERT_TRUE(socket);
  EXPECT_EQ(**(*socket)->receive(), "only this");
  EXPECT_FALSE((*socket)->receive()->has_value());
}

TEST(WebSocket, ServerDestroyedWithOpenSockets) {
  std::promise<void> closed;
  auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) {
    auto socket = *exchange->accept_websocket("");
    socket->start([keep = socket](std::string) {}, [&] { closed.set_value(); });
  });
  const auto socket = plain_client(server->port())->open_websocket({.target = "/"}, {});
  ASSERT_TRUE(socket);
  server.reset();
  get(closed.get_future());
  EXPECT_EQ((*socket)->receive().error().code, Code::Unavailable);
}

TEST(WebSocket, ADeclinedUpgradeCarriesTheAnswer) {
  const auto server = serve([](Request, std::shared_ptr<Exchange> exchange) { exchange->respond({.status = 404, .body = "no such pod"}); });
  const auto socket = plain_client(server->port())->open_websocket({.target = "/"}, {});
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error(), (Error{Code::NotFound, "no such pod"}));
}

TEST(WebSocket, AnOrdinaryRequestIsNoUpgrade) {
  const auto server = serve(echo_socket);
  EXPECT_EQ((*plain_client(server->port())->request({.target = "/"})).status, 400);
}

TEST(Client, GoesThroughAProxyByConnect) {
  const Script proxy({"HTTP/1.1 200 Connection established\r\n\r\n|HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"});
  const auto client = *Client::make({.host = "server.example", .port = 6443, .tls = false, .proxy = fmt::format("http://me:secret@127.0.0.1:{}", proxy.port()), .kept_connections = 0});
  const auto first = client->request({.target = "/"});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->body, "hi");
  const auto second = client->request({.target = "/"});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::Unavailable);
  EXPECT_THAT(second.error().message, testing::AllOf(HasSubstr("refuses to connect to server.example:6443: 407"), testing::Not(HasSubstr("secret"))));
  EXPECT_EQ(proxy.requests(), 3);
  EXPECT_EQ(Client::make({.host = "h", .proxy = "socks5://h:1"}).error().code, Code::Unsupported);
}

TEST(Upgrade, CarriesRawBytesBothWays) {
  TestSite site;
  std::promise<void> closed;
  auto server = Server::start({.tls = site.files()}, [&](const Request& request, std::shared_ptr<Exchange> exchange) {
    if (request.target.path == "/no") return exchange->respond({.status = 403, .body = "not you"});
    auto socket = exchange->accept_upgrade("SPDY/3.1", {});
    ASSERT_TRUE(socket) << socket.error().message;
    const auto held = *socket;
    held->send("early ");  // may come in one piece with the answer
    held->start(
        [held](const std::string& bytes) {
          held->send(bytes);
          if (bytes.ends_with("end")) held->close();
        },
        [&] { closed.set_value(); });
  });
  ASSERT_TRUE(server) << server.error().message;
  auto client = Client::make({.host = "127.0.0.1", .port = (*server)->port(), .ca_pem = site.ca.certificate_pem, .certificate_pem = site.client.certificate_pem, .key_pem = site.client.key_pem});
  ASSERT_TRUE(client);
  EXPECT_EQ((*client)->open_upgrade({.method = "POST", .target = "/no"}, "SPDY/3.1").error().message, "not you");
  auto socket = (*client)->open_upgrade({.method = "POST", .target = "/yes"}, "SPDY/3.1");
  ASSERT_TRUE(socket) << socket.error().message;
  std::string sent = "early ", seen;
  for (int i = 0; i < 200; ++i) {
    const std::string piece(1 + static_cast<std::size_t>(i) * 37, static_cast<char>('a' + i % 26));
    sent += piece;
    ASSERT_TRUE((*socket)->send(piece));
  }
  while (seen.size() < sent.size()) {
    auto piece = (*socket)->receive();
    ASSERT_TRUE(piece && *piece);
    seen += **piece;
  }
  EXPECT_EQ(seen, sent);
  ASSERT_TRUE((*socket)->send("end"));
  std::string last;
  while (true) {
    auto piece = (*socket)->receive();
    ASSERT_TRUE(piece) << piece.error().message;
    if (!*piece) break;  // ended in order
    last += **piece;
  }
  EXPECT_EQ(last, "end");
  closed.get_future().wait();
}

}  // namespace
}  // namespace fairlead::http
