// SPDX-License-Identifier: Apache-2.0
// Logs and exec over real HTTPS and WebSockets, from real containers.
#include "node/pod_access.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>

#include "base/encoding.h"
#include "node/access_fixture.h"
#include "node/exec_session.h"
#include "node/log_reader.h"

namespace fairlead::node {
namespace {
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(LogEntries, AreReadAsConmonWritesThem) {
  const auto entry = parse_log_entry("2026-01-02T03:04:05.1+00:00 stderr P half a line");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->stream, "stderr");
  EXPECT_EQ(entry->text, "half a line");
  EXPECT_TRUE(entry->partial);
  EXPECT_EQ(parse_log_entry("t stdout F ")->text, "");
  EXPECT_EQ(parse_log_entry("t stdout F")->text, "");
  for (const char* bad : {"", "t", "t stdout", "t stdin F x", "t stdout X x", "t stdout Fx"}) EXPECT_FALSE(parse_log_entry(bad)) << bad;
}

TEST(TerminalSizes, AreReadFromClients) {
  EXPECT_EQ(parse_terminal_size(R"({"Width":80,"Height":24})")->height, 24);
  for (const char* bad : {"", "{}", R"({"Width":0,"Height":24})", R"({"Width":99999,"Height":24})", "[]"})
    EXPECT_FALSE(parse_terminal_size(bad)) << bad;
}

class LogReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/fl-log.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    path_ = root_ + "/0.log";
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(root_)); }
  static std::string lines(int from, int to) {
    std::string out;
    for (int i = from; i < to; ++i)
      out += "2026-01-02T03:04:" + std::string(i < 10 ? "0" : "") + std::to_string(i) + ".5+00:00 stdout F line " + std::to_string(i) + "\n";
    return out;
  }
  void put(const std::string& suffix, const std::string& text) { ASSERT_TRUE(write_file_atomically(path_ + suffix, text, 0644)); }
  std::string all(const LogQuery& query) {
    LogReader reader(path_, query);
    std::string out;
    while (true) {
      auto piece = reader.next();
      EXPECT_TRUE(piece);
      if (!piece || piece->empty()) return out;
      out += *piece;
    }
  }
  std::string root_, path_;
};

TEST_F(LogReaderTest, GivesRotatedFilesInOrderAndTheTailAcrossThem) {
  put(".2", lines(0, 2));
  put(".1", lines(2, 4));
  put("", lines(4, 6));
  EXPECT_EQ(all({}), "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\n");
  EXPECT_EQ(all({.tail_lines = 1}), "line 5\n");
  EXPECT_EQ(all({.tail_lines = 2}), "line 4\nline 5\n");
  EXPECT_EQ(all({.tail_lines = 3}), "line 3\nline 4\nline 5\n");
  EXPECT_EQ(all({.tail_lines = 4}), "line 2\nline 3\nline 4\nline 5\n");
  EXPECT_EQ(all({.tail_lines = 100}), all({}));
  EXPECT_EQ(all({.tail_lines = 0}), "");
}

TEST_F(LogReaderTest, PartialEntriesAreOneLine) {
  put("", "t1 stdout P hel\nt2 stdout F lo\nt3 stderr F x\n");
  EXPECT_EQ(all({}), "hello\nx\n");
  EXPECT_EQ(all({.timestamps = true}), "t1 hello\nt3 x\n");
}

TEST_F(LogReaderTest, SinceLimitAndTimestamps) {
  put("", lines(0, 20));
  EXPECT_EQ(all({.since = parse_time("2026-01-02T03:04:19Z").value()}), "line 19\n");
  EXPECT_EQ(all({.limit_bytes = 10}), "line 0\nlin");
  EXPECT_EQ(all({.timestamps = true, .tail_lines = 1}), "2026-01-02T03:04:19.5Z line 19\n");
}

TEST_F(LogReaderTest, FollowsAcrossARotation) {
  put("", lines(0, 1));
  LogReader reader(path_, {});
  EXPECT_EQ(*reader.next(), "line 0\n");
  EXPECT_EQ(*reader.next(), "");
  Fd old(::open(path_.c_str(), O_WRONLY | O_APPEND));
  ASSERT_EQ(::rename(path_.c_str(), (path_ + ".1").c_str()), 0);
  const std::string late = lines(1, 2);
  ASSERT_GT(::write(old.get(), late.data(), late.size()), 0);
  put("", lines(2, 3));
  std::string seen;
  for (int i = 0; i < 4; ++i) seen += *reader.next();
  EXPECT_EQ(seen, "line 1\nline 2\n");
}

TEST_F(LogReaderTest, AFileThatDoesNotExistYetIsEmpty) { EXPECT_EQ(all({}), ""); }

TEST_F(PodAccessTest, OnlyTheServerIsLetIn) {
  EXPECT_EQ(client_->request({.target = "/healthz"})->body, "ok");
  EXPECT_EQ(client("")->request({.target = "/healthz"})->status, 401);
  EXPECT_EQ(client("system:node:other")->request({.target = "/healthz"})->status, 403);
  EXPECT_EQ(client_->request({.target = "/etc/passwd"})->status, 404);
  EXPECT_EQ(client_->request({.target = "/containerLogs/default/none/main"})->status, 404);
}

TEST_F(PodAccessTest, LogsComeWholeAndFollowed) {
  run_pod("echo one; echo two; while ! test -e /go; do sleep 0.02; done; echo three");
  auto reader = client_->open({.target = "/containerLogs/default/p/main?follow=true"});
  ASSERT_TRUE(reader) << reader.error().message;
  std::string seen;
  while (seen.find("two") == std::string::npos) {
    auto piece = (*reader)->read(10s);
    ASSERT_TRUE(piece && *piece && !(*piece)->empty());
    seen += **piece;
  }
  ASSERT_TRUE(run_in_container(*runtime_, "u", "main", {"touch", "/go"}, 10s));
  // The container's end ends the body once it is settled.
  std::jthread settling([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)runtime_->look("u");
      ::poll(nullptr, 0, 20);
    }
  });
  while (true) {
    auto piece = (*reader)->read(10s);
    ASSERT_TRUE(piece && *piece);
    if ((*piece)->empty()) break;
    seen += **piece;
  }
  EXPECT_EQ(seen, "one\ntwo\nthree\n");
  EXPECT_EQ(client_->request({.target = "/containerLogs/default/p/main?tailLines=1"})->body, "three\n");
  EXPECT_EQ(client_->request({.target = "/containerLogs/default/p/main?previous=true"})->status, 400);
  EXPECT_EQ(client_->request({.target = "/containerLogs/default/p/none"})->status, 400);
}

TEST_F(PodAccessTest, ExecSeparatesOutputsAndTellsTheStatus) {
  run_pod("sleep 600");
  for (const char* protocol : {"v5.channel.k8s.io", "v4.channel.k8s.io"}) {
    auto socket = client_->open_websocket(
        {.target = "/exec/default/p/main?command=sh&command=-c&command=echo%20o%3B%20echo%20e%20%3E%262%3B%20exit%203&stdout=true&stderr=true"},
        {protocol});
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_EQ((*socket)->subprotocol(), protocol);
    const Outcome seen = drain(**socket);
    EXPECT_EQ(seen.out, "o\n");
    EXPECT_EQ(seen.err, "e\n");
    EXPECT_THAT(seen.status, testing::AllOf(HasSubstr("NonZeroExitCode"), HasSubstr(R"("message":"3")")));
  }
}

TEST_F(PodAccessTest, WhyACommandCannotRunIsToldOnTheStatusChannel) {
  run_pod("sleep 600");
  for (const char* target :
       {"/exec/default/none/main?command=true", "/exec/default/p/none?command=true", "/exec/default/p/main?command=/no/such&tty=true"}) {
    auto socket = client_->open_websocket({.target = target}, {"v5.channel.k8s.io"});
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_THAT(drain(**socket).status, HasSubstr("Failure")) << target;
  }
  EXPECT_EQ(client_->request({.target = "/exec/default/p/main?command=true"})->status, 400);  // no WebSocket
}

TEST_F(PodAccessTest, InputReachesTheCommandAndItsEndToo) {
  run_pod("sleep 600");
  auto socket =
      client_->open_websocket({.target = "/exec/default/p/main?command=sha256sum&stdin=true&stdout=true&stderr=true"}, {"v5.channel.k8s.io"});
  ASSERT_TRUE(socket) << socket.error().message;
  std::string all;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(32 * 1024, static_cast<char>('a' + i % 26));
    all += piece;
    auto sent = (*socket)->send(std::string(1, '\0') + piece);
    ASSERT_TRUE(sent) << i << ": " << sent.error().message << drain(**socket).status;
  }
  ASSERT_TRUE((*socket)->send(std::string("\xff\0", 2)));
  const Outcome seen = drain(**socket);
  EXPECT_THAT(seen.out, testing::StartsWith(hex(sha256(all))));
  EXPECT_THAT(seen.status, HasSubstr("Success"));
}

TEST_F(PodAccessTest, MuchOutputArrivesWhole) {
  run_pod("sleep 600");
  auto socket = client_->open_websocket({.target = "/exec/default/p/main?command=head&command=-c&command=30000000&command=/dev/zero&stdout=true"},
                                        {"v5.channel.k8s.io"});
  ASSERT_TRUE(socket);
  const Outcome seen = drain(**socket);
  EXPECT_EQ(seen.out.size(), 30'000'000U) << seen.status << seen.err;
}

TEST_F(PodAccessTest, ATerminalEchoesAndIsResized) {
  run_pod("sleep 600");
  auto socket = client_->open_websocket({.target = "/exec/default/p/main?command=sh&stdin=true&stdout=true&tty=true"}, {"v5.channel.k8s.io"});
  ASSERT_TRUE(socket) << socket.error().message;
  ASSERT_TRUE((*socket)->send(std::string("\x04", 1) + R"({"Width":91,"Height":33})"));
  ASSERT_TRUE((*socket)->send(std::string(1, '\0') + "test -t 0 && stty size; exit 4\n"));
  const Outcome seen = drain(**socket);
  EXPECT_THAT(seen.out, HasSubstr("33 91"));
  EXPECT_THAT(seen.status, HasSubstr(R"("message":"4")"));
}

TEST_F(PodAccessTest, AClientThatLeavesEndsItsCommand) {
  run_pod("sleep 600");
  {
    auto socket = client_->open_websocket({.target = "/exec/default/p/main?command=sleep&command=77&stdout=true"}, {"v5.channel.k8s.io"});
    ASSERT_TRUE(socket);
    for (int i = 0; i < 500; ++i) {
      auto running = run_in_container(*runtime_, "u", "main", {"/bin/sh", "-c", "ps | grep -q '[s]leep 77'"}, 10s);
      ASSERT_TRUE(running);
      if (running->exit.code == 0) break;
    }
    (*socket)->close();
  }
  bool gone = false;
  for (int i = 0; i < 500 && !gone; ++i)
    gone = run_in_container(*runtime_, "u", "main", {"/bin/sh", "-c", "ps | grep -q '[s]leep 77'"}, 10s)->exit.code != 0;
  EXPECT_TRUE(gone);
}

// On a busy machine crun tells the number of the process long after that runs.
TEST_F(PodAccessTest, ACommandIsEndedThatCrunHasNotToldOfYet) {
  const std::string slow = root_ + "/slow-crun";
  ASSERT_TRUE(write_file_atomically(slow, R"(#!/bin/bash
arguments=() file=
for one in "$@"; do
  case $one in
    --pid-file=*/exec-*) file=${one#--pid-file=}; arguments+=("$one.late") ;;
    *) arguments+=("$one") ;;
  esac
done
[ -z "$file" ] || { until [ -s "$file.late" ]; do read -rt 0.01 <> <(:); done; read -rt 0.5 <> <(:); mv "$file.late" "$file"; } < /dev/null > /dev/null 2>&1 &
exec /usr/bin/crun "${arguments[@]}"
)", 0755));
  access_.reset();
  runtime_.reset();
  OciRuntimeOptions with_slow = options();
  with_slow.crun = slow;
  auto runtime = OciRuntime::open(with_slow, clock_);
  ASSERT_TRUE(runtime) << runtime.error().message;
  runtime_ = std::move(*runtime);
  run_pod("sleep 600");
  const auto runs = [this] { return run_in_container(*runtime_, "u", "main", {"/bin/sh", "-c", "ps | grep -q '[s]leep 78'"}, 10s)->exit.code == 0; };
  {
    auto process = runtime_->exec("u", "main", {.argv = {"sleep", "78"}, .in = false, .terminal = false});
    ASSERT_TRUE(process) << process.error().message;
    for (int i = 0; i < 500 && !runs(); ++i) {
    }
  }
  EXPECT_FALSE(runs());
}

TEST_F(PodAccessTest, ExecOverSpdy) {
  run_pod("sleep 600");
  SpdyClient spdy(*access_);
  EXPECT_THAT(spdy.ask("/exec/default/p/main?command=sh&command=-c&command=cat;echo+no+%3E%262;exit+3&input=1&output=1&error=1"),
              testing::AllOf(HasSubstr("101 Switching Protocols"), HasSubstr("X-Stream-Protocol-Version: v4.channel.k8s.io")));
  spdy.open({"error", "stdin", "stdout", "stderr"});
  std::string much(3 << 20, 'x');
  for (std::size_t at = 0; at < much.size(); at += 64 << 10) spdy.write("stdin", much.substr(at, 64 << 10), at + (64 << 10) >= much.size());
  const auto& came = spdy.read();
  EXPECT_EQ(came.at("stdout"), much);
  EXPECT_EQ(came.at("stderr"), "no\n");
  EXPECT_THAT(came.at("error"), HasSubstr(R"("reason":"ExitCode","message":"3")"));
}

TEST_F(PodAccessTest, SpdyThatIsWrongIsRefused) {
  run_pod("sleep 600");
  {
    SpdyClient none(*access_);
    EXPECT_THAT(none.ask("/exec/default/other/main?command=true&output=1"), HasSubstr("101"));
    none.open({"error", "stdout"});
    EXPECT_THAT(none.read().at("error"), HasSubstr("is not on node n1"));
  }
  SpdyClient garbled(*access_);
  EXPECT_THAT(garbled.ask("/exec/default/p/main?command=true&output=1"), HasSubstr("101"));
  garbled.send(std::string("\x80\x02\0\1\0\0\0\0", 8));
  EXPECT_TRUE(garbled.read().empty());  // and the connection is cut
}

TEST_F(PodAccessTest, InputForACommandWithoutStdinIsThrownAwayHoweverMuchItIs) {
  run_pod("sleep 600");
  auto socket = client_->open_websocket(
      {.target = "/exec/default/p/main?command=sh&command=-c&command=while+!+test+-e+/go;do+sleep+0.05;done;echo+done&stdout=true"},
      {"v5.channel.k8s.io"});
  ASSERT_TRUE(socket) << socket.error().message;
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 80; ++i) ASSERT_TRUE((*socket)->send(std::string(1, '\0') + piece)) << i;
  ASSERT_TRUE(run_in_container(*runtime_, "u", "main", {"touch", "/go"}, 10s));
  EXPECT_EQ(drain(**socket).out, "done\n");
}

TEST_F(PodAccessTest, WhoMayAskIsAskedOfTheApi) {
  std::vector<std::string> asked;
  PodAccess access(*runtime_, clock_, "n1", [&](const http::Peer& peer) {
    asked.push_back(peer.common_name);
    return peer.common_name == "kube-apiserver";
  });
  auto server = http::Server::start({}, [&](http::Request request, std::shared_ptr<http::Exchange> exchange) {
    request.peer.common_name = std::string(http::find(request.headers, "X-Who"));
    access.handle(std::move(request), std::move(exchange));
  });
  ASSERT_TRUE(server);
  auto plain = *http::Client::make({.host = "127.0.0.1", .port = (*server)->port(), .tls = false});
  const auto ask = [&](const char* who, const char* target) { return plain->request({.target = target, .headers = {{"X-Who", who}}})->status; };
  EXPECT_EQ(ask("kube-apiserver", "/pods"), 200);
  EXPECT_EQ(ask("somebody", "/pods"), 403);
  EXPECT_EQ(ask("somebody", "/healthz"), 403);
  EXPECT_EQ(ask("", "/healthz"), 401);
  EXPECT_EQ(ask("fairlead-server", "/healthz"), 200);
  EXPECT_THAT(asked, ElementsAre("kube-apiserver", "somebody", "somebody"));
}

}  // namespace
}  // namespace fairlead::node
