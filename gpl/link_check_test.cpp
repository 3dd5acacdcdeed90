// SPDX-License-Identifier: GPL-3.0-or-later
#include "link_check.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::uint16_t port_of(const Fd& socket) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

struct LinkCheck : testing::Test {
  LinkCheck() {
    char name[] = "/tmp/fairlead-link-XXXXXX";
    folder = ::mkdtemp(name);
    options.limit = std::chrono::milliseconds(400);
    options.patience = std::chrono::seconds(10);  // a machine that is busy is no link that is silent
    options.token = "meeting-1";
    options.last_word = folder + "/last";
    auto made = link_socket(0);
    EXPECT_TRUE(made) << made.error().message;
    socket = std::move(*made);
    options.port = port_of(socket);
  }
  ~LinkCheck() override {
    ::shutdown(socket.get(), SHUT_RDWR);
    server = {};
    std::filesystem::remove_all(folder);
  }
  void serve(const std::string& token) {
    server = std::jthread([this, token] { serve_links(socket, token); });
  }
  // Another way to answer: one connection.
  void answer(std::function<void(int)> how) {
    server = std::jthread([this, how = std::move(how)] {
      const Fd link(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (link) how(link.get());
    });
  }
  std::string check() {
    EXPECT_EQ(run_link_check(options), 0);
    return *read_file(options.last_word);
  }
  static void greet(int link) {
    char said[64];
    EXPECT_GT(::recv(link, said, sizeof said, 0), 0);
    EXPECT_EQ(::send(link, "fairlead-link\n", 14, 0), 14);
  }
  std::string folder;
  Fd socket;
  LinkCheckOptions options;
  std::jthread server;
};

TEST_F(LinkCheck, AWellLinkSaysHowFastItIs) {
  serve("meeting-1");
  options.peers = {{"i-1", "127.0.0.1"}, {"i-2", "::1"}};
  EXPECT_THAT(check(), MatchesRegex("i-1 ok [0-9]+ MB/s each way, answers in [0-9.]+ ms\ni-2 ok [0-9]+ MB/s each way, answers in [0-9.]+ ms\n"));
}

TEST_F(LinkCheck, BytesThatDifferAreAFaultOfTheLink) {
  answer([](int link) {
    greet(link);
    std::vector<char> block(4096);
    for (ssize_t got, total = 0; (got = ::recv(link, block.data(), block.size(), 0)) > 0; total += got) {
      if (total <= 300'000 && total + got > 300'000) block[static_cast<std::size_t>(300'000 - total)] ^= 4;
      for (ssize_t done = 0, put = 0; done < got && (put = ::send(link, block.data() + done, static_cast<std::size_t>(got - done), MSG_NOSIGNAL)) > 0;) done += put;
    }
  });
  options.peers = {{"i-1", "127.0.0.1"}};
  EXPECT_THAT(check(), MatchesRegex("i-1 fault what came back differs .*\n"));
}

TEST_F(LinkCheck, SilenceIsAFaultOfTheLink) {
  options.patience = std::chrono::seconds(2);
  std::atomic<bool> done = false;
  answer([&](int link) {
    greet(link);
    while (!done) ::usleep(10'000);
  });
  options.peers = {{"i-1", "127.0.0.1"}};
  const std::string told = check();
  done = true;
  server = {};
  EXPECT_THAT(told, MatchesRegex("i-1 fault nothing came for .*\n"));
}

// A queue of connections that is full drops what comes, as a dead link does.
TEST_F(LinkCheck, AConnectionThatDoesNotComeIsAFaultOfTheLink) {
  ASSERT_EQ(::listen(socket.get(), 0), 0);
  std::vector<Fd> held;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(options.port);
  ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  for (int i = 0; i < 4; ++i) {
    held.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(held.back().get(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  ::usleep(50'000);
  options.peers = {{"i-1", "127.0.0.1"}};
  options.patience = std::chrono::milliseconds(600);
  EXPECT_THAT(check(), MatchesRegex("i-1 fault no connection in .*\n"));
}

TEST_F(LinkCheck, NobodyThereAnotherThereOrOneThatWentIsNoFault) {
  options.peers = {{"i-1", "127.0.0.1"}};
  serve("another-meeting");
  EXPECT_THAT(check(), MatchesRegex("i-1 unknown another answers there\n"));
  ::shutdown(socket.get(), SHUT_RDWR);
  server = {};
  socket = {};
  options.patience = std::chrono::milliseconds(600);
  EXPECT_THAT(check(), MatchesRegex("i-1 unknown nobody listens there\n"));
  options.patience = std::chrono::seconds(10);
  socket = *link_socket(options.port);
  answer([](int link) {
    greet(link);
    char some[1000];
    (void)::recv(link, some, sizeof some, 0);
  });
  EXPECT_THAT(check(), HasSubstr("i-1 unknown"));
}

TEST_F(LinkCheck, OneThatComesLateIsWaitedFor) {
  options.peers = {{"i-1", "127.0.0.1"}};
  const std::uint16_t port = options.port;
  socket = {};
  server = std::jthread([&] {
    ::usleep(300'000);
    socket = *link_socket(port);
    serve_links(socket, "meeting-1");
  });
  EXPECT_THAT(check(), HasSubstr("i-1 ok"));
}

TEST_F(LinkCheck, ResultsThatNobodyCouldReadAreNone) {
  options.last_word = folder + "/nowhere/last";
  EXPECT_EQ(run_link_check(options), 125);
}

TEST(LinkCheckOptions, AreReadStrictly) {
  const auto read = link_check_options({{"FAIRLEAD_CHECK_TOKEN", "t"}, {"FAIRLEAD_CHECK_SECONDS", "7"}, {"FAIRLEAD_CHECK_PEERS", "i-1=10.0.0.1 i-2=fd00::1"}});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->limit, std::chrono::seconds(7));
  ASSERT_EQ(read->peers.size(), 2U);
  EXPECT_EQ(read->peers[1].address, "fd00::1");
  const auto wrong = [](std::map<std::string, std::string> with) {
    with.emplace("FAIRLEAD_CHECK_TOKEN", "t");
    const auto out = link_check_options(with);
    return out ? std::string() : out.error().message;
  };
  EXPECT_THAT(wrong({{"FAIRLEAD_CHECK_TOKEN", ""}}), HasSubstr("FAIRLEAD_CHECK_TOKEN"));
  EXPECT_THAT(wrong({{"FAIRLEAD_CHECK_TOKEN", "a\nb"}}), HasSubstr("FAIRLEAD_CHECK_TOKEN"));
  EXPECT_THAT(wrong({{"FAIRLEAD_CHECK_PEERS", "i-1"}}), HasSubstr("not ID=ADDRESS"));
  EXPECT_THAT(wrong({{"FAIRLEAD_CHECK_PEERS", "i-1=host"}}), HasSubstr("not ID=ADDRESS"));
  EXPECT_THAT(wrong({{"FAIRLEAD_CHECK_SECONDS", "0"}}), HasSubstr("FAIRLEAD_CHECK_SECONDS"));
  EXPECT_THAT(wrong({{"FAIRLEAD_CHECK_PORT", "70000"}}), HasSubstr("FAIRLEAD_CHECK_PORT"));
}

}  // namespace
}  // namespace fairlead::companion
