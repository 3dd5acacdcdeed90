// SPDX-License-Identifier: GPL-3.0-or-later
#include "reach.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

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

TEST(SilentPeers, ARefusalIsAnAnswer) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), closed(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::vector<sockaddr_in> peers;
  for (const int socket : {listener.get(), closed.get()}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);  // bound and not listening: nobody else's, and it refuses
    ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
    peers.push_back(address);
  }
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_TRUE(silent_peers(peers, 10s).empty());


  // One whose queue is full drops what comes, as a packet filter does.
  std::vector<Fd> fill;
  for (int i = 0; i < 4; ++i) {
    fill.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(fill.back().get(), reinterpret_cast<const sockaddr*>(peers.data()), sizeof peers[0]);
  }
  const auto silent = silent_peers(peers, 0ms);
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(text(silent[0]), text(peers[0]));
}

}  // namespace
}  // namespace fairlead::companion
