// SPDX-License-Identifier: Apache-2.0
// Clients that join running containers: real ones, under conmon.
#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "node/access_fixture.h"
#include "node/exec_session.h"

namespace fairlead::node {
namespace {
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr const char* echo_lines = "echo before; while read line; do echo got $line; done; echo end >&2; touch /done; sleep 600";

void with_stdin(ContainerSpec& spec) { spec.in = true; }
void with_stdin_once(ContainerSpec& spec) { spec.in = spec.in_once = true; }
void with_terminal(ContainerSpec& spec) { spec.in = spec.in_once = spec.terminal = true; }

class AttachTest : public PodAccessTest {
 protected:
  std::unique_ptr<http::ClientWebSocket> attach(const std::string& query) {
    auto socket = client_->open_websocket({.target = "/attach/default/p/main?" + query}, {"v5.channel.k8s.io"});
    EXPECT_TRUE(socket) << socket.error().message;
    return socket ? std::move(*socket) : nullptr;
  }
  static void type(http::ClientWebSocket& socket, const std::string& text) { EXPECT_TRUE(socket.send(std::string(1, '\0') + text)); }
  static void end_input(http::ClientWebSocket& socket) { EXPECT_TRUE(socket.send(std::string("\xff\0", 2))); }
  // What comes on all channels until `text` is among it, or to the end.
  static std::string read_to(http::ClientWebSocket& socket, const std::string& text) {
    std::string seen;
    while (seen.find(text) == std::string::npos) {
      auto message = socket.receive();
      if (!message || !*message) break;
      seen += (**message).substr(1);
    }
    return seen;
  }
  bool in_container(const std::string& script) {
    auto output = run_in_container(*runtime_, "u", "main", {"/bin/sh", "-c", script}, 10s);
    EXPECT_TRUE(output) << output.error().message;
    return output && output->exit.code == 0;
  }
  bool in_container_at_last(const std::string& script) {
    for (int i = 0; i < 500; ++i)
      if (in_container(script)) return true;
    return false;
  }
};

TEST_F(AttachTest, TheOnlyClientsEndOfInputIsTheContainers) {
  run_pod("while read line; do echo got $line; done; echo end >&2", with_stdin_once);
  SpdyClient spdy(*access_);
  EXPECT_THAT(spdy.ask("/attach/default/p/main?input=1&output=1&error=1"), HasSubstr("101"));
  spdy.open({"error", "stdin", "stdout", "stderr"});
  spdy.write("stdin", "one\n", false);
  (void)spdy.read([](const auto& came) { return came.contains("stdout") && came.at("stdout") == "got one\n"; });
  spdy.write("stdin", "two\n", true);
  const auto& came = spdy.read();
  EXPECT_EQ(came.at("stdout"), "got one\ngot two\n");
  EXPECT_EQ(came.at("stderr"), "end\n");
  EXPECT_THAT(came.at("error"), HasSubstr(R"("status":"Success")"));
}

TEST_F(AttachTest, TheEndOfAContainerEndsItsClients) {
  run_pod("read line; echo got $line; exit 3", with_stdin);
  auto socket = attach("stdin=true&stdout=true&stderr=true");
  ASSERT_TRUE(socket);
  type(*socket, "x\n");
  const Outcome seen = drain(*socket);
  EXPECT_EQ(seen.out, "got x\n");
  // As a kubelet has it: the session went well. What became of the container is in the pod's status.
  EXPECT_THAT(seen.status, HasSubstr(R"("status":"Success")"));
}

TEST_F(AttachTest, EveryClientSeesWhatComesFromThenOn) {
  run_pod(echo_lines, with_stdin);
  auto first = attach("stdin=true&stdout=true&stderr=true"), watcher = attach("stdout=true&stderr=true");
  ASSERT_TRUE(first && watcher);
  type(*first, "one\n");
  EXPECT_THAT(read_to(*first, "got one\n"), HasSubstr("got one\n"));
  EXPECT_THAT(read_to(*watcher, "got one\n"), HasSubstr("got one\n"));
  first->close();  // stdin is not for one client: it stays open
  auto second = attach("stdin=true&stdout=true&stderr=true");
  ASSERT_TRUE(second);
  type(*second, "two\n");
  EXPECT_EQ(read_to(*second, "got two\n"), "got two\n");
  EXPECT_EQ(read_to(*watcher, "got two\n"), "got two\n");
  end_input(*second);
  auto third = attach("stdin=true&stdout=true");
  ASSERT_TRUE(third);
  type(*third, "three\n");
  EXPECT_EQ(read_to(*watcher, "three\n"), "got three\n");
  EXPECT_EQ(read_to(*second, "three\n"), "got three\n");  // its half of the output goes on
}

TEST_F(AttachTest, AClientOfOutputAloneThatLeavesDoesNotEndTheStdin) {
  run_pod(echo_lines, with_stdin_once);
  auto watcher = attach("stdout=true&stderr=true");
  ASSERT_TRUE(watcher);
  watcher.reset();
  access_.reset();  // its session is over, not only its connection
  access_ = std::make_unique<PodAccess>(*runtime_, clock_, "n1");
  auto socket = attach("stdin=true&stdout=true&stderr=true");
  ASSERT_TRUE(socket);
  type(*socket, "one\n");
  EXPECT_THAT(read_to(*socket, "got one\n"), HasSubstr("got one\n"));
  EXPECT_FALSE(in_container("test -e /done"));
  socket->close();  // the one client: its leaving ends the stdin
  EXPECT_TRUE(in_container_at_last("test -e /done"));
}

TEST_F(AttachTest, AContainerWithoutStdinGivesItsOutput) {
  run_pod("while ! test -e /go; do sleep 0.02; done; echo out; echo err >&2; printf tail");
  auto socket = attach("stdin=true&stdout=true&stderr=true");
  ASSERT_TRUE(socket);
  type(*socket, "nobody reads this\n");
  ASSERT_TRUE(in_container("touch /go"));
  // The container's end is seen once it is settled.
  std::jthread settling([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)runtime_->look("u");
      std::this_thread::sleep_for(20ms);
    }
  });
  const Outcome seen = drain(*socket);
  EXPECT_EQ(seen.out, "out\ntail");
  EXPECT_EQ(seen.err, "err\n");
  EXPECT_THAT(seen.status, HasSubstr(R"("status":"Success")"));
  settling.request_stop();
  settling.join();
  auto late = attach("stdout=true");
  ASSERT_TRUE(late);
  EXPECT_THAT(drain(*late).status, HasSubstr("container main is not running"));
}

TEST_F(AttachTest, ATerminalIsJoinedResizedLeftAndJoinedAgain) {
  run_pod("stty -echo; while read line; do eval \"$line\"; done", with_terminal);
  const char* const query = "stdin=true&stdout=true&tty=true";
  {
    auto socket = attach(query);
    ASSERT_TRUE(socket);
    ASSERT_TRUE(socket->send(std::string("\x04", 1) + R"({"Width":91,"Height":33})"));
    // The monitor hears of the size on another way than the input takes.
    type(*socket, "while ! stty size | grep -q '33 91'; do sleep 0.02; done; test -t 0 -a -t 1 && stty size; kept=here\n");
    EXPECT_THAT(read_to(*socket, "33 91\r\n"), HasSubstr("33 91\r\n"));  // typed before the container switched the echo off, the line itself comes back, too
    end_input(*socket);
  }
  auto again = attach(query);
  ASSERT_TRUE(again);
  type(*again, "echo $kept; exit\n");
  const Outcome seen = drain(*again);
  EXPECT_THAT(seen.out, HasSubstr("here\r\n"));
  EXPECT_THAT(seen.status, HasSubstr("Success"));
}

TEST_F(AttachTest, OfSeveralSizesTheLastStays) {
  run_pod("stty -echo; while read line; do eval \"$line\"; done", with_terminal);
  auto socket = attach("stdin=true&stdout=true&tty=true");
  ASSERT_TRUE(socket);
  // kubectl tells two at once. One that stays too large stays for good, so each round is a chance for it.
  for (int rows = 30; rows < 330; ++rows) {
    for (int more = 1; more >= 0; --more) {
      ASSERT_TRUE(socket->send("\x04" + fmt::format(R"({{"Width":{},"Height":{}}})", 90 + more, rows + more)));
      std::this_thread::sleep_for(std::chrono::microseconds(2 * (rows - 30)));
    }
    type(*socket, fmt::format("for try in 1 2 3 4 5 6 7 8 9; do stty size | grep -q '{0} 90' && break; sleep 0.02; done; stty size; echo ro''und\n", rows));
    ASSERT_THAT(read_to(*socket, "round\r\n"), HasSubstr(fmt::format("{} 90\r\n", rows)));
  }
}

TEST_F(AttachTest, AnAgentThatStartsAnewFindsTheStreams) {
  run_pod(echo_lines, with_stdin);
  {
    auto socket = attach("stdin=true&stdout=true&stderr=true");
    ASSERT_TRUE(socket);
    type(*socket, "one\n");
    EXPECT_THAT(read_to(*socket, "got one\n"), HasSubstr("got one\n"));
  }
  access_.reset();
  runtime_.reset();
  open_runtime();
  access_ = std::make_unique<PodAccess>(*runtime_, clock_, "n1");
  auto socket = attach("stdin=true&stdout=true&stderr=true");
  ASSERT_TRUE(socket);
  type(*socket, "two\n");
  EXPECT_EQ(read_to(*socket, "got two\n"), "got two\n");
}

TEST_F(AttachTest, InputThatNobodyReadsHoldsUpOnlyItself) {
  run_pod("while ! test -e /go; do sleep 0.02; done; echo goes on; wc -c; sleep 600", with_stdin_once);
  auto socket = attach("stdin=true&stdout=true&stderr=true");
  ASSERT_TRUE(socket);
  const std::string piece(32 << 10, 'x');
  for (int i = 0; i < 64; ++i) type(*socket, piece);
  end_input(*socket);
  ASSERT_TRUE(in_container("touch /go"));
  EXPECT_EQ(read_to(*socket, std::to_string(64 * piece.size()) + "\n"), "goes on\n" + std::to_string(64 * piece.size()) + "\n");
}

TEST_F(AttachTest, WhatIsNotThereIsToldOnTheStatusChannel) {
  run_pod("sleep 600");
  for (const char* target : {"/attach/default/none/main?stdout=true", "/attach/default/p/none?stdin=true"}) {
    auto socket = client_->open_websocket({.target = target}, {"v5.channel.k8s.io"});
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_THAT(drain(**socket).status, HasSubstr("Failure")) << target;
  }
  EXPECT_EQ(client_->request({.target = "/attach/default/p/main?stdout=true"})->status, 400);  // no WebSocket
  EXPECT_EQ(runtime_->attach("u", "main").error().code, Code::Unsupported);
  EXPECT_EQ(runtime_->attach("u", "none").error().code, Code::NotFound);
}

// A client whose reading the test decides about.
class PacedClient : public ExecChannels {
 public:
  // `pace`: bytes that are taken each time somebody asks what waits; 0: it reads nothing.
  explicit PacedClient(std::size_t pace) : pace_(pace) {}
  bool start(Listener listener, const std::stop_token&) override {
    listener_ = std::move(listener);
    listener_.input("go\n");
    return true;
  }
  void send(Output, std::string_view bytes) override {
    waiting_ += bytes.size();
    came += bytes;
  }
  void finish(const kube::Json& status) override {
    told = kube::print_json(status);
    waiting_ = 0;
  }
  std::size_t waiting() const override {
    most = std::max(most, waiting_.load());
    waiting_ -= std::min(pace_, waiting_.load());
    return waiting_;
  }
  bool open() const override { return true; }
  void close() override {}
  std::string came, told;
  mutable std::size_t most = 0;

 private:
  const std::size_t pace_;
  mutable std::atomic<std::size_t> waiting_ = 0;
  Listener listener_;
};

constexpr const char* much = "read line; head -c 3000000 /dev/zero | tr '\\0' x; touch /done; read line; sleep 600";

TEST_F(AttachTest, AClientThatReadsNothingIsLeftForTheContainersSake) {
  run_pod(much, with_stdin);
  auto client = std::make_shared<PacedClient>(0);
  run_attach_session([&] { return runtime_->attach("u", "main"); }, client, {}, 50ms);
  EXPECT_THAT(client->told, HasSubstr("the client took no output"));
  EXPECT_LT(client->most, 1U << 20);
  EXPECT_TRUE(in_container_at_last("test -e /done"));
}

TEST_F(AttachTest, AClientThatReadsSlowlyGetsEverything) {
  run_pod(std::string("read line; head -c 3000000 /dev/zero | tr '\\0' x"), with_stdin);
  auto client = std::make_shared<PacedClient>(16 << 10);
  run_attach_session([&] { return runtime_->attach("u", "main"); }, client, {}, 10s);
  EXPECT_EQ(client->came.size(), 3'000'000U);
  EXPECT_THAT(client->told, HasSubstr("Success"));
  EXPECT_LT(client->most, 1U << 20);
}

TEST_F(AttachTest, AClientOfOutputAloneNeverHoldsUpTheContainer) {
  run_pod("while ! test -e /go; do sleep 0.02; done; head -c 3000000 /dev/zero | tr '\\0' x; touch /done; sleep 600");
  std::stop_source stop;
  auto pod = runtime_->peek("u");
  ASSERT_TRUE(pod);
  LogReader log(runtime_->log_path(pod->record, "main", 0), {.tail_lines = 0});
  auto client = std::make_shared<PacedClient>(0);
  std::jthread session([&] { run_output_session(log, [] { return true; }, client, stop.get_token()); });
  ASSERT_TRUE(in_container("touch /go"));
  EXPECT_TRUE(in_container_at_last("test -e /done"));
  stop.request_stop();
  session.join();
  EXPECT_LT(client->came.size(), 2U << 20);
}

}  // namespace
}  // namespace fairlead::node
