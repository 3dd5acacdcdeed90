// SPDX-License-Identifier: Apache-2.0
// The server seen from raw sockets: what it sends byte for byte, what it refuses, and that nothing is left behind.
#include "http/server.h"

#include <gmock/gmock.h>
#include <sys/un.h>

#include <future>
#include <mutex>
#include <thread>

#include "http/test_site.h"

namespace fairlead::http {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::unique_ptr<Server> serve(Handler handler, ServerOptions options = {}) {
  auto server = Server::start(std::move(options), std::move(handler));
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}

void echo(Request request, std::shared_ptr<Exchange> exchange) {
  exchange->respond({.headers = {{"X-Method", request.method}}, .body = request.target.path + " " + request.body});
}

template <class T>
T get(std::future<T> future) {
  if (future.wait_for(20s) != std::future_status::ready) throw std::runtime_error("nothing came in 20 s");
  return future.get();
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  const auto server = serve(echo);
  RawSocket socket(server->port());
  socket.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcPUT /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
              "GET /4 HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(socket.read_to("/1 "), AllOf(StartsWith("HTTP/1.1 200 OK\r\nDate: "), HasSubstr("X-Method: GET\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\n/1 ")));
  EXPECT_THAT(socket.read_to("/2 abc"), HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(socket.read_to("/3 def"), HasSubstr("X-Method: PUT\r\n"));
  EXPECT_THAT(socket.read_to_end(), EndsWith("Connection: close\r\n\r\n/4 (closed)"));
}

TEST(Server, ReadsARequestThatComesByteByByte) {
  const auto server = serve(echo);
  RawSocket socket(server->port());
  for (const char c : std::string("POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok")) socket.send({&c, 1});
  EXPECT_THAT(socket.read_to("/slow ok"), HasSubstr("200 OK"));
}

TEST(Server, SendsPartsWithoutJoiningAndNoBodyWhereNoneBelongs) {
  const auto server = serve([](Request request, std::shared_ptr<Exchange> exchange) {
    if (request.target.path == "/none") return exchange->respond({.status = 204});
    std::vector<BodyPart> parts;
    for (int i = 0; i < 1000; ++i) parts.push_back(std::make_shared<const std::string>(std::to_string(i) + ","));
    exchange->respond({.body = "unused", .parts = std::move(parts)});
  });
  std::string want;
  for (int i = 0; i < 1000; ++i) want += std::to_string(i) + ",";
  RawSocket socket(server->port());
  socket.send("HEAD / HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(socket.read_to("\r\n\r\n"), HasSubstr("Content-Length: " + std::to_string(want.size())));
  EXPECT_THAT(socket.read_to("\r\n\r\n"), AllOf(StartsWith("HTTP/1.1 204"), Not(HasSubstr("Content-Length"))));
  socket.read_to("\r\n\r\n");
  EXPECT_EQ(socket.read_to_end(), want + "(closed)");
}

struct Refused {
  const char* name;
  std::string request;
  const char* want;
};
class Refusal : public testing::TestWithParam<Refused> {};
TEST_P(Refusal, SaysWhyAndCloses) {
  const auto server = serve(echo, {.body_limit = 1_KiB});
  RawSocket socket(server->port());
  socket.send(GetParam().request);
  EXPECT_THAT(socket.read_to_end(), AllOf(StartsWith(GetParam().want), HasSubstr("Connection: close"), EndsWith("(closed)")));
}
INSTANTIATE_TEST_SUITE_P(All, Refusal,
                         testing::Values(Refused{"body_announced_too_large", "POST / HTTP/1.1\r\nContent-Length: 1025\r\n\r\n" + std::string(1025, 'x'), "HTTP/1.1 413 "},
                                         Refused{"chunks_too_large", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n401\r\n" + std::string(1025, 'x') + "\r\n0\r\n\r\n",
                                                 "HTTP/1.1 413 "},
                                         Refused{"header_too_large", "GET / HTTP/1.1\r\nX: " + std::string(66'000, 'x') + "\r\n\r\n", "HTTP/1.1 431 "},
                                         Refused{"not_http", "hello\r\n\r\n", "HTTP/1.1 400 "}, Refused{"bad_target", "GET /%zz HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
                                         Refused{"two_lengths", "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400 "}),
                         [](const auto& row) { return row.param.name; });

TEST(Server, AsksForTheBodyWhenTheClientWaitsForThat) {
  const auto server = serve(echo);
  RawSocket socket(server->port());
  socket.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(socket.read_to("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.send("ok");
  EXPECT_THAT(socket.read_to("/ ok"), HasSubstr("200 OK"));
}

TEST(Server, AnUnansweredExchangeGives500) {
  const auto server = serve([](Request request, std::shared_ptr<Exchange>) {
    if (request.target.path == "/throw") throw std::runtime_error("defect");
  });
  RawSocket socket(server->port());
  socket.send("GET /drop HTTP/1.1\r\n\r\nGET /throw HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(socket.read_to("answered\n"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(socket.read_to("answered\n"), StartsWith("HTTP/1.1 500 "));
}

TEST(Server, AHandlerCannotBreakTheHeader) {
  const auto server = serve([](Request, std::shared_ptr<Exchange> exchange) {
    exchange->respond({.headers = {{"X-Name", "a\r\nSet-Cookie: b"}, {"Content-Length", "7"}, {"connection", "upgrade"}}, .body = "!"});
  });
  RawSocket socket(server->port());
  socket.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(socket.read_to_end(), AllOf(HasSubstr("X-Name: a  Set-Cookie: b\r\nContent-Length: 1\r\nConnection: close\r\n\r\n!(closed)")));
}

TEST(Server, AnAnswerMayComeLaterFromAnotherThreadOrAfterTheServer) {
  std::promise<std::shared_ptr<Exchange>> first, second;
  int calls = 0;
  auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) { (calls++ == 0 ? first : second).set_value(std::move(exchange)); });
  RawSocket socket(server->port());
  socket.send("GET / HTTP/1.1\r\n\r\n");
  std::thread([exchange = get(first.get_future())] { exchange->respond({.body = "later"}); }).join();
  EXPECT_THAT(socket.read_to("later"), StartsWith("HTTP/1.1 200"));
  socket.send("GET / HTTP/1.1\r\n\r\n");
  const auto late = get(second.get_future());
  server.reset();
  EXPECT_EQ(socket.read_to_end(), "(closed)");
  late->respond({.body = "too late"});
}

TEST(Server, StreamsPiecesInOrderAndEndsWhenDropped) {
  std::promise<std::shared_ptr<Stream>> opened;
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) { opened.set_value(exchange->stream(200, {{"Content-Type", "application/json"}})); });
  RawSocket socket(server->port());
  socket.send("GET /watch HTTP/1.1\r\n\r\n");
  EXPECT_THAT(socket.read_to("\r\n\r\n"), AllOf(HasSubstr("Transfer-Encoding: chunked\r\n"), HasSubstr("Content-Type: application/json\r\n")));
  auto stream = get(opened.get_future());
  EXPECT_TRUE(stream->write(std::make_shared<const std::string>("one\n")));
  EXPECT_EQ(socket.read_to("\n\r\n"), "4\r\none\n\r\n");
  EXPECT_TRUE(stream->write(std::make_shared<const std::string>()));  // an empty piece does not end the body
  EXPECT_TRUE(stream->write(std::make_shared<const std::string>(std::string(20, 'x'))));
  EXPECT_EQ(socket.read_to("x\r\n"), "14\r\n" + std::string(20, 'x') + "\r\n");
  EXPECT_TRUE(stream->open());
  stream.reset();
  EXPECT_EQ(socket.read_to_end(), "0\r\n\r\n(closed)");
}

TEST(Server, NoticesThatAStreamsClientIsGone) {
  std::promise<std::shared_ptr<Stream>> opened;
  std::promise<void> closed;
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) {
    auto stream = exchange->stream(200, {});
    stream->on_close([&] { closed.set_value(); });
    opened.set_value(std::move(stream));
  });
  RawSocket socket(server->port());
  socket.send("GET /watch HTTP/1.1\r\n\r\n");
  const auto stream = get(opened.get_future());
  socket.read_to("\r\n\r\n");
  socket.close();
  get(closed.get_future());
  EXPECT_FALSE(stream->open());
  EXPECT_FALSE(stream->write(std::make_shared<const std::string>("x")));
  std::promise<void> at_once;
  stream->on_close([&] { at_once.set_value(); });
  get(at_once.get_future());
}

TEST(Server, CutsAReaderThatIsTooSlow) {
  std::promise<std::shared_ptr<Stream>> opened;
  std::promise<void> closed;
  const auto server = serve(
      [&](Request, std::shared_ptr<Exchange> exchange) {
        auto stream = exchange->stream(200, {});
        stream->on_close([&] { closed.set_value(); });
        opened.set_value(std::move(stream));
      },
      {.stream_queue = 1_MiB});
  RawSocket socket(server->port(), 4096);
  socket.send("GET /watch HTTP/1.1\r\n\r\n");
  const auto stream = get(opened.get_future());
  const auto piece = std::make_shared<const std::string>(std::string(64 << 10, 'x'));
  int written = 0;
  while (stream->write(piece) && written < 100'000) ++written;  // the reader reads nothing
  EXPECT_GE(written, 16);
  EXPECT_LT(written, 1'000);  // the queue and what the kernel takes
  get(closed.get_future());
  EXPECT_FALSE(stream->open());
}

TEST(Server, HoldsAThousandIdleStreamsAndClosesThemAtTheEnd) {
  constexpr int count = 1000;
  std::mutex mutex;
  std::vector<std::shared_ptr<Stream>> streams;
  std::promise<void> all_open;
  std::atomic<int> closed{0};
  auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) {
    auto stream = exchange->stream(200, {});
    stream->on_close([&] { ++closed; });
    const std::lock_guard lock(mutex);
    streams.push_back(std::move(stream));
    if (streams.size() == count) all_open.set_value();
  });
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(server->port()));
    sockets.back()->send("GET /watch HTTP/1.1\r\n\r\n");
  }
  get(all_open.get_future());
  const auto piece = std::make_shared<const std::string>("event\n");
  for (const auto& stream : streams) EXPECT_TRUE(stream->write(piece));
  for (const auto& socket : sockets) EXPECT_THAT(socket->read_to("event\n"), EndsWith("event\n"));
  EXPECT_EQ(closed, 0);
  server.reset();
  EXPECT_EQ(closed, count);  // every callback ran before the destructor returned
  for (const auto& stream : streams) EXPECT_FALSE(stream->write(piece));
}

TEST(Server, HandsOverAConnectionForAnotherProtocol) {
  std::promise<std::shared_ptr<WebSocket>> opened;
  std::promise<void> closed;
  const auto server = serve([&](Request, std::shared_ptr<Exchange> exchange) {
    EXPECT_EQ(exchange->accept_upgrade("other", {}).error().code, Code::Invalid);
    auto socket = exchange->accept_upgrade("SPDY/3.1", {{"X-More", "1"}});
    ASSERT_TRUE(socket) << socket.error().message;
    (*socket)->start([socket = socket->get()](std::string bytes) { socket->send("<" + bytes + ">"); }, [&] { closed.set_value(); });
    opened.set_value(*socket);
  });
  RawSocket socket(server->port());
  // What follows the request at once belongs to the new protocol.
  socket.send("POST /exec HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nearly");
  const std::string head = socket.read_to("<early>");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 101 Switching Protocols\r\n"));
  EXPECT_THAT(head, HasSubstr("Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n<early>"));
  EXPECT_THAT(head, HasSubstr("X-More: 1\r\n"));
  auto held = get(opened.get_future());
  socket.send("late");
  EXPECT_THAT(socket.read_to("<late>"), HasSubstr("<late>"));
  held->close();
  EXPECT_EQ(socket.read_to_end(), "(closed)");
  get(closed.get_future());
}

TEST(Server, SaysThatThePortIsTaken) {
  const auto server = serve(echo);
  const auto second = Server::start({.port = server->port()}, echo);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::Unavailable);
  EXPECT_EQ(second.error().message, "listen on 127.0.0.1:" + std::to_string(server->port()) + ": the port is taken by another program");
}

TEST(Server, AlsoListens) {
  const auto server = serve(echo);
  const auto probe = serve(echo);
  const unsigned short port = probe->port();
  EXPECT_EQ(server->also_listen("127.0.0.1", port).error().code, Code::Unavailable);
  EXPECT_TRUE(server->also_listen("127.0.0.2", port));
  EXPECT_EQ(server->also_listen("host", 1).error().code, Code::Invalid);
}

TEST(Server, ClosesConnectionsAboveTheLimitAndIdleOnes) {
  const auto server = serve(echo, {.idle_timeout = std::chrono::seconds(1), .connection_limit = 1});
  RawSocket first(server->port());
  first.send("GET /1 HTTP/1.1\r\n\r\n");
  first.read_to("/1 ");
  RawSocket second(server->port());
  EXPECT_EQ(second.read_to_end(), "(closed)");
  EXPECT_EQ(first.read_to_end(), "(closed)");  // nothing was asked for a second
}

TEST(Server, UnixSocketForItsOwnerAlone) {
  const TestFolder folder;
  const std::string path = folder.path() + "/s";
  {
    const Fd left(::socket(AF_UNIX, SOCK_STREAM, 0));  // bound by a process that is gone
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    ASSERT_EQ(::bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  std::string peer;
  auto server = serve(
      [&](Request request, std::shared_ptr<Exchange> exchange) {
        peer = request.peer.address;
        echo(std::move(request), std::move(exchange));
      },
      {.unix_socket = path});
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(Server::start({.unix_socket = path}, echo).error().code, Code::Unavailable);
  const auto client = Client::make({.host = "fairlead", .unix_socket = path});
  const auto response = (*client)->request({.target = "/u"});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "/u ");
  EXPECT_EQ(peer, "unix");
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace fairlead::http
