// SPDX-License-Identifier: Apache-2.0
// Logs and exec over real sockets: client - API - agent, the agent played by an http::Server with the site's certificates.
#include "apiserver/proxy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>

#include "apiserver/api_test_kit.h"
#include "http/test_site.h"

namespace fairlead::apiserver {
namespace {

using testing_kit::Api;

TEST(ProxyContainer, IsChosenAsKubernetesDoes) {
  const auto pod = [](const char* spec, const char* annotations = "{}") {
    return *kube::parse_json(fmt::format(R"({{"metadata":{{"name":"p","annotations":{}}},"spec":{}}})", annotations, spec));
  };
  const char* one = R"({"containers":[{"name":"a"}]})";
  const char* two = R"({"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}]})";
  EXPECT_EQ(*choose_container(pod(one), ""), "a");
  EXPECT_EQ(*choose_container(pod(two), "b"), "b");
  EXPECT_EQ(*choose_container(pod(two), "i"), "i");
  EXPECT_EQ(*choose_container(pod(two, R"({"kubectl.kubernetes.io/default-container":"b"})"), ""), "b");
  EXPECT_EQ(choose_container(pod(two), "").error().message, "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]");
  EXPECT_EQ(choose_container(pod(two), "x").error().message, "container x is not valid for pod p");
}

TEST(ProxySubprotocol, PrefersTheNewest) {
  EXPECT_EQ(choose_subprotocol("v4.channel.k8s.io, v5.channel.k8s.io"), "v5.channel.k8s.io");
  EXPECT_EQ(choose_subprotocol("v4.channel.k8s.io,v3.channel.k8s.io,channel.k8s.io"), "v4.channel.k8s.io");
  EXPECT_EQ(choose_subprotocol("SPDY/3.1+portforward.k8s.io"), "");
}

// What happened at the agent, waited for.
class Notes {
 public:
  void add(std::string note) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(std::move(note));
    changed_.notify_all();
  }
  bool wait_for(const std::string& note) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [&] { return std::find(notes_.begin(), notes_.end(), note) != notes_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

class ProxyFixture : public testing::Test {
 protected:
  void SetUp() override {
    auto started = http::Server::start({.tls = site.files()}, [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { agent(std::move(request), std::move(exchange)); });
    ASSERT_TRUE(started) << started.error().message;
    agent_server = std::move(*started);
    options = {.ca_pem = site.ca.certificate_pem, .client_certificate_pem = site.client.certificate_pem, .client_key_pem = site.client.key_pem};
    api = std::make_unique<Api>(options);
    auto serving = http::Server::start({}, [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { api->handler->handle(std::move(request), std::move(exchange)); });
    ASSERT_TRUE(serving) << serving.error().message;
    api_server = std::move(*serving);
    client = *http::Client::make({.host = "127.0.0.1", .port = api_server->port(), .tls = false});

    ASSERT_EQ(api->ask("POST", "/api/v1/nodes", R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"w0"}})").status, 201);
    make_pod("p", "w0");
    point_node_at(agent_server->port());
  }
  void TearDown() override {
    held.clear();
    api->handler->drain();
    api_server.reset();
    agent_server.reset();
  }

  void make_pod(const std::string& name, const std::string& node) {
    const std::string where = node.empty() ? "" : fmt::format(R"("nodeName":"{}",)", node);
    const std::string body = fmt::format(R"({{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{}"}},"spec":{{{}"containers":[{{"name":"c","image":"i"}}]}}}})", name, where);
    ASSERT_EQ(api->ask("POST", "/api/v1/namespaces/default/pods", body).status, 201);
  }
  void point_node_at(unsigned short port) {
    const std::string status =
        fmt::format(R"({{"status":{{"addresses":[{{"type":"Hostname","address":"w0"}},{{"type":"InternalIP","address":"127.0.0.1"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{}}}}}}}}})", port);
    ASSERT_EQ(api->ask("PATCH", "/api/v1/nodes/w0/status", status, {{"Content-Type", "application/merge-patch+json"}}).status, 200);
  }

  std::atomic<bool> broken = false;  // it cannot open a log
  // The agent: /containerLogs, /exec and /attach by what the query asks.
  void agent(http::Request request, std::shared_ptr<http::Exchange> exchange) {
    notes.add(fmt::format("{} by {}", request.target.path, request.peer.common_name));
    const http::Query& query = request.target.query;
    if (request.target.segments.at(0) == "containerLogs") {
      if (broken) return exchange->respond({.status = 500, .body = "failed to open log file\n"});
      if (http::find(query, "previous") == "true") return exchange->respond({.status = 400, .body = "previous terminated container \"c\" in pod \"p\" not found\n"});
      if (http::find(query, "follow") != "true") return exchange->respond({.body = fmt::format("tail {}\n", http::find(query, "tailLines"))});
      auto stream = exchange->stream(200, {{"Content-Type", "text/plain"}});
      stream->on_close([this] { notes.add("log closed"); });
      stream->write(std::make_shared<const std::string>("first\n"));
      held.push_back(stream);
      return;
    }
    const bool spdy = http::find(request.headers, "Upgrade") == "SPDY/3.1";
    const std::string protocol(http::find(request.headers, spdy ? "X-Stream-Protocol-Version" : "Sec-WebSocket-Protocol"));
    auto accepted = spdy ? exchange->accept_upgrade("SPDY/3.1", {{"X-Stream-Protocol-Version", protocol}}) : exchange->accept_websocket(protocol);
    if (spdy) notes.add("SPDY " + protocol);
    if (!accepted) return exchange->respond({.status = 400, .body = accepted.error().message});
    auto socket = *accepted;
    const std::string command(http::find(query, "command"));
    notes.add("command " + command);
    if (request.target.segments.at(0) == "attach") {
      socket->start([socket](const std::string& message) { socket->send("\x01" + message.substr(1)); }, [this] { notes.add("attach closed"); });
      socket->send("\x02" + std::string(http::find(query, "stdin")) + std::string(http::find(query, "tty")) + std::string(http::find(query, "stdout")));
      held.push_back(socket);
      return;
    }
    socket->start(
        [socket, command](std::string message) {
          if (command == "cat" && message[0] == '\0') return void(socket->send("\x01" + message.substr(1)));
          if (message == std::string("\xff\x00", 2)) {
            socket->send(std::string("\x02") + "warning");
            socket->send(std::string("\x03") + R"({"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"7"}]}})");
            return socket->close();
          }
        },
        [this] { notes.add("exec closed"); });
    if (command == "true") {
      socket->send(std::string("\x03") + R"({"status":"Success"})");
      socket->close();
    }
    held.push_back(socket);
  }

  http::ClientRequest get(const std::string& target) { return {.target = target, .headers = {{"Authorization", "Bearer admin-token"}}}; }
  const std::string pod = "/api/v1/namespaces/default/pods/p";

  http::TestSite site;
  HandlerOptions options;
  Notes notes;
  std::vector<std::shared_ptr<void>> held;
  std::unique_ptr<Api> api;
  std::unique_ptr<http::Server> agent_server, api_server;
  std::shared_ptr<http::Client> client;
};

TEST_F(ProxyFixture, LogsComeFromTheAgentWithTheirOptions) {
  const auto response = client->request(get(pod + "/log?tailLines=5&container=c&pretty=true"));
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->body, "tail 5\n");
  EXPECT_TRUE(notes.wait_for("/containerLogs/default/p/c by alice"));
}

TEST_F(ProxyFixture, AFollowedLogEndsAtTheAgentWhenTheReaderLeaves) {
  auto reader = client->open(get(pod + "/log?follow=true"));
  ASSERT_TRUE(reader) << reader.error().message;
  auto first = (*reader)->read(10s);
  ASSERT_TRUE(first && *first);
  EXPECT_EQ(**first, "first\n");
  reader->reset();
  EXPECT_TRUE(notes.wait_for("log closed"));
}

TEST_F(ProxyFixture, ErrorsOfTheAgentBecomeStatuses) {
  const auto refused = client->request(get(pod + "/log?previous=true"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ((*kube::parse_json(refused->body))["message"].string(), "previous terminated container \"c\" in pod \"p\" not found");
  EXPECT_EQ(client->request(get(pod + "/log?container=x"))->status, 400);
  agent_server.reset();
  const auto down = client->request(get(pod + "/log"));
  ASSERT_TRUE(down);
  EXPECT_EQ(down->status, 500);
  EXPECT_THAT(down->body, testing::HasSubstr("error dialing backend"));
}

TEST_F(ProxyFixture, APodWithoutANodeHasNoOutputAndTakesNoCommand) {
  make_pod("waits", "");
  const auto log = client->request(get("/api/v1/namespaces/default/pods/waits/log"));
  ASSERT_TRUE(log);
  EXPECT_EQ(log->status, 204);
  EXPECT_EQ(log->body, "");
  const auto exec = client->request(get("/api/v1/namespaces/default/pods/waits/exec?command=true"));
  ASSERT_TRUE(exec);
  EXPECT_EQ(exec->status, 400);
  EXPECT_THAT(exec->body, testing::HasSubstr("pod waits does not have a host assigned"));
}

TEST_F(ProxyFixture, ExecPassesBytesBothWays) {
  for (const char* protocol : {"v5.channel.k8s.io", "v4.channel.k8s.io"}) {
    auto socket = client->open_websocket(get(pod + "/exec?command=cat&stdin=true&stdout=true&container=c"), {protocol});
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_EQ((*socket)->subprotocol(), protocol);
    std::string bytes(1, '\0');
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
    for (int round = 0; round < 100; ++round) {
      ASSERT_TRUE((*socket)->send(bytes));
      auto back = (*socket)->receive();
      ASSERT_TRUE(back && *back);
      EXPECT_EQ((*back)->substr(1), bytes.substr(1));
      EXPECT_EQ((**back)[0], 1);
    }
    (*socket)->close();
    EXPECT_TRUE(notes.wait_for("exec closed"));
  }
}

TEST_F(ProxyFixture, ExecEndsForTheClientWhenTheAgentEndsIt) {
  auto socket = client->open_websocket(get(pod + "/exec?command=true&stdout=true"), {"v5.channel.k8s.io"});
  ASSERT_TRUE(socket) << socket.error().message;
  auto status = (*socket)->receive();
  ASSERT_TRUE(status && *status);
  EXPECT_THAT(**status, testing::HasSubstr("Success"));
  auto end = (*socket)->receive();
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_FALSE(end->has_value());
}

TEST_F(ProxyFixture, ExecRefusesWhatIsNoWebSocket) {
  const auto plain = client->request(get(pod + "/exec?command=true"));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->status, 400);
  EXPECT_THAT(plain->body, testing::HasSubstr("Upgrade request required"));
  EXPECT_FALSE(client->open_websocket(get(pod + "/exec?command=true"), {"v1.unknown"}));
  EXPECT_FALSE(client->open_websocket(get(pod + "/exec"), {"v5.channel.k8s.io"}));
}

TEST_F(ProxyFixture, AttachJoinsTheClientAndTheAgent) {
  for (const char* protocol : {"v5.channel.k8s.io", "v4.channel.k8s.io"}) {
    auto socket = client->open_websocket(get(pod + "/attach?stdin=true&tty=true&container=c"), {protocol});
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_EQ((*socket)->subprotocol(), protocol);
    EXPECT_EQ((*socket)->receive()->value(), "\x02truetrue");
    ASSERT_TRUE((*socket)->send(std::string("\0typed", 6)));
    EXPECT_EQ((*socket)->receive()->value(), "\x01typed");
    (*socket)->close();
    EXPECT_TRUE(notes.wait_for("attach closed"));
  }
  EXPECT_TRUE(notes.wait_for("/attach/default/p/c by alice"));
}

TEST_F(ProxyFixture, ClientsOfSpdyTalkToTheAgentItself) {
  http::ClientRequest ask = get(pod + "/attach?stdin=true&stdout=true");
  ask.method = "POST";
  for (const char* version : {"v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"}) ask.headers.emplace_back("X-Stream-Protocol-Version", version);
  auto socket = client->open_upgrade(ask, "SPDY/3.1");
  ASSERT_TRUE(socket) << socket.error().message;
  EXPECT_TRUE(notes.wait_for("SPDY v4.channel.k8s.io"));
  const auto read = [&](const std::string& whole) {
    std::string seen;
    while (seen.size() < whole.size()) {
      auto piece = (*socket)->receive();
      if (!piece || !*piece) break;
      seen += **piece;
    }
    EXPECT_EQ(seen, whole);
  };
  read("\x02truetrue");
  ASSERT_TRUE((*socket)->send("?bytes"));
  read("\x01" "bytes");
  (*socket)->close();
  EXPECT_TRUE(notes.wait_for("attach closed"));
  http::ClientRequest old = get(pod + "/exec?command=true");
  old.headers.emplace_back("X-Stream-Protocol-Version", "channel.k8s.io");
  EXPECT_THAT(client->open_upgrade(old, "SPDY/3.1").error().message, testing::HasSubstr("no known subprotocol was offered"));
  EXPECT_THAT(client->open_upgrade(old, "h2c").error().message, testing::HasSubstr("exec is served over WebSocket and SPDY/3.1, not over h2c"));
}

TEST_F(ProxyFixture, AttachRefusesWhatCannotBe) {
  make_pod("waits", "");
  const auto refusal = [&](const std::string& name, const std::string& query) {
    const auto answer = client->request(get("/api/v1/namespaces/default/pods/" + name + "/attach" + query));
    EXPECT_TRUE(answer);
    return fmt::format("{} {}", answer->status, (*kube::parse_json(answer->body))["message"].string());
  };
  EXPECT_EQ(refusal("p", ""), "400 Upgrade request required");
  EXPECT_EQ(refusal("waits", ""), "400 pod waits does not have a host assigned");
  EXPECT_EQ(refusal("p", "?container=x"), "400 container x is not valid for pod p");
  EXPECT_EQ(refusal("none", ""), "404 pods \"none\" not found");
  EXPECT_EQ(api->ask("GET", pod + "/attach", "", {}, "eve-token").status, 403);
  EXPECT_EQ(api->ask("POST", pod + "/attach", "", {}, "node-token").status, 403);
  EXPECT_FALSE(client->open_websocket(get(pod + "/attach"), {"v1.unknown"}));
  EXPECT_EQ(api->ask("DELETE", pod + "/attach", "").status, 405);
}

TEST_F(ProxyFixture, ExecInProcessCollectsOutputAndExitStatus) {
  const auto exec = make_agent_exec(*api->registry, options);
  const auto object = api->json("GET", pod);
  const auto result = exec(object, "", {"cat"}, "hello", 10s);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->out, "hello");
  EXPECT_EQ(result->err, "warning");
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(exec(object, "", {"true"}, "", 10s)->exit_code, 0);
  EXPECT_EQ(exec(object, "", {"cat"}, std::string(1 << 20, 'o'), 10s)->out.size(), 1u << 20);
  const auto more = exec(object, "", {"cat"}, std::string((1 << 20) + 1, 'o'), 10s);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error(), (Error{Code::Unsupported, "exec in pod default/p: the command wrote more than 1048576 bytes"}));
  const auto late = exec(object, "", {"sleep"}, "", 200ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::Unavailable);
  EXPECT_THAT(late.error().message, testing::HasSubstr("not finished within 200 ms"));
}

TEST_F(ProxyFixture, LogsInProcessAreHandedOnUntilTheirEndOrWhoeverAsksHasEnough) {
  const auto log = make_agent_log(*api->registry, options);
  const auto object = api->json("GET", pod);
  std::string text;
  const auto take = [&](std::string_view piece) {
    text += piece;
    return text.size() < 5;
  };
  ASSERT_TRUE(log(object, {.container = "c", .previous = false, .since = {}}, 10s, take));
  EXPECT_EQ(text, "tail \n");
  EXPECT_EQ(log(object, {.container = "c", .previous = true, .since = {}}, 10s, take).error(), (Error{Code::Invalid, "previous terminated container \"c\" in pod \"p\" not found"}));
  EXPECT_EQ(log(object, {.container = "none", .previous = false, .since = {}}, 10s, take).error().code, Code::Invalid);
  // It answers: that says nothing of others.
  broken = true;
  EXPECT_EQ(log(object, {.container = "c", .previous = false, .since = {}}, 10s, take).error(), (Error{Code::Internal, "failed to open log file"}));
  agent_server.reset();
  EXPECT_EQ(log(object, {.container = "c", .previous = false, .since = {}}, 10s, take).error().code, Code::Unavailable);
}

TEST_F(ProxyFixture, DrainingEndsSessions) {
  auto socket = client->open_websocket(get(pod + "/exec?command=cat&stdin=true"), {"v5.channel.k8s.io"});
  ASSERT_TRUE(socket) << socket.error().message;
  auto reader = client->open(get(pod + "/log?follow=true"));
  ASSERT_TRUE(reader);
  ASSERT_TRUE((*reader)->read(10s));
  api->handler->drain();
  EXPECT_TRUE(notes.wait_for("exec closed"));
  EXPECT_TRUE(notes.wait_for("log closed"));
}

}  // namespace
}  // namespace fairlead::apiserver
