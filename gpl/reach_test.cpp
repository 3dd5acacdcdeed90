// SPDX-License-Identifier: GPL-3.0-or-later
#include "reach.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <thread>

#include "base/clock.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

std::string text(const sockaddr_in& address) {
  char out[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address.sin_addr, out, sizeof out);
  return std::string(out) + ":" + std::to_string(ntohs(address.sin_port));
}

TEST(LiveNodes, OthersThatSlurmBelievesAlive) {
  const std::string lines =
      "NodeName=worker-0 Arch=x86_64 NodeAddr=10.88.1.2 NodeHostName=worker-0 State=IDLE+DYNAMIC_NORM ThreadsPerCore=1\n"
      "NodeName=worker-1 NodeAddr=10.88.1.3 NodeHostName=worker-1 State=MIXED+DYNAMIC_NORM ThreadsPerCore=1\n"
      "NodeName=worker-2 NodeAddr=10.88.1.4 NodeHostName=worker-2 State=IDLE*+DYNAMIC_NORM\n"
      "NodeName=worker-3 NodeAddr=10.88.1.5 NodeHostName=worker-3 State=DOWN+DYNAMIC_NORM\n"
      "NodeName=worker-4 NodeAddr=worker-4 NodeHostName=worker-4 State=IDLE\n"
      "NodeName=worker-5 NodeAddr=10.88.1.7 NodeHostName=worker-5 State=UNKNOWN\n"
      "\n";
  std::vector<std::string> found;
  for (const auto& node : live_nodes(lines, "worker-0", 6818)) found.push_back(text(node));
  EXPECT_THAT(found, testing::ElementsAre("10.88.1.3:6818"));
  EXPECT_TRUE(live_nodes("slurm_load_node error: Unable to contact slurm controller\n", "worker-0", 6818).empty());
}

sockaddr_in own_address(const Fd& socket) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return address;
}

// One that accepts, one that refuses (bound and not listening: nobody else's), and one whose queue is full: it drops what comes, as a packet filter or a missing machine does.
struct Peers {
  Fd open{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, closed{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, full{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in accepts = own_address(open), refuses = own_address(closed), silent = own_address(full);
  std::vector<Fd> fill;
  Peers() {
    EXPECT_EQ(::listen(open.get(), 128), 0);
    EXPECT_EQ(::listen(full.get(), 1), 0);
    for (int i = 0; i < 4; ++i) {
      fill.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)::connect(fill.back().get(), reinterpret_cast<const sockaddr*>(&silent), sizeof silent);
    }
  }
};

TEST(Accepting, AnswersInOrderAlsoBehindMoreSilentOnesThanAreTriedAtOnce) {
  const Peers peers;
  EXPECT_THAT(accepting({}, 1s), testing::IsEmpty());
  EXPECT_THAT(accepting({peers.refuses, peers.accepts, peers.refuses}, 1h), testing::ElementsAre(false, true, false));
  std::vector<sockaddr_in> many(600, peers.silent);
  many.push_back(peers.accepts);
  many.push_back(peers.refuses);
  const auto answers = accepting(many, 100ms);
  ASSERT_EQ(answers.size(), many.size());
  for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], i == 600) << i;
}

// The silent one, first in the list, answers only once the other one has been called: whoever waits for one after the other waits an hour here.
TEST(Accepting, NobodyWaitsForAnother) {
  Peers peers;
  std::jthread other([&peers] {
    const Fd called(::accept4(peers.open.get(), nullptr, nullptr, SOCK_CLOEXEC));
    peers.full.reset();
  });
  EXPECT_THAT(accepting({peers.silent, peers.accepts}, 1h), testing::ElementsAre(false, true));
}

TEST(SilentPeers, ARefusalIsAnAnswer) {
  const Peers peers;
  EXPECT_THAT(silent_peers({peers.accepts, peers.refuses}, 10s), testing::IsEmpty());
  const auto silent = silent_peers({peers.accepts, peers.silent, peers.refuses}, 0ms);
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(text(silent[0]), text(peers.silent));
}

// No way there at all: connect() itself fails, and nothing came back.
TEST(SilentPeers, AnAddressWithoutARouteIsSilent) {
  sockaddr_in nowhere{};
  nowhere.sin_family = AF_INET;
  nowhere.sin_port = htons(9);
  nowhere.sin_addr.s_addr = htonl(0xffffffff);
  EXPECT_EQ(silent_peers({nowhere}, 0ms).size(), 1u);
  EXPECT_THAT(accepting({nowhere}, 1s), testing::ElementsAre(false));
}

TEST(Reach, TheOwnAddressIsTheOneTowardsTheHost) {
  EXPECT_EQ(companion::own_address("127.0.0.1", "6817"), "127.0.0.1");
  EXPECT_EQ(companion::own_address("127.0.0.7", "6817"), "127.0.0.1");
  EXPECT_EQ(companion::own_address("nobody.invalid", "6817"), "");
}

}  // namespace
}  // namespace fairlead::companion
