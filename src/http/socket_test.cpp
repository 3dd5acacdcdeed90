// SPDX-License-Identifier: Apache-2.0
#include "http/socket.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "http/test_site.h"

namespace fairlead::http {
namespace {

TEST(Socket, ListensOnAnyFreePortAndTellsIt) {
  const auto listening = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listening) << listening.error().message;
  EXPECT_NE(listening->port, 0);
  EXPECT_EQ(listening->family, AF_INET);
  const RawSocket peer(listening->port);
  EXPECT_EQ(peer_address(peer.fd()), "127.0.0.1");
  EXPECT_EQ(peer_address(listening->fd.get()), "");
}

TEST(Socket, SaysWhyItCannotListen) {
  for (const char* address : {"", "localhost", "127.1", "10.0.0.256", "::g"}) {
    const auto refused = listen_tcp(address, 0);
    ASSERT_FALSE(refused) << address;
    EXPECT_EQ(refused.error().code, Code::Invalid);
    EXPECT_THAT(refused.error().message, testing::EndsWith("not an IP address"));
  }
  const auto first = listen_tcp("127.0.0.1", 0);
  const auto second = listen_tcp("127.0.0.1", first->port);
  EXPECT_EQ(second.error().code, Code::Unavailable);
  EXPECT_THAT(second.error().message, testing::EndsWith("the port is taken by another program"));
}

TEST(Socket, AUnixSocketIsForItsOwnerAndAnAbandonedOneIsReplaced) {
  const TestFolder folder;
  const std::string path = folder.path() + "/api.sock";
  {
    const auto listening = listen_unix(path);
    ASSERT_TRUE(listening) << listening.error().message;
    struct stat facts {};
    ASSERT_EQ(::stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777u, 0600u);
    EXPECT_THAT(listen_unix(path).error().message, testing::EndsWith("another program listens there"));
  }
  EXPECT_TRUE(listen_unix(path));  // the file is there, the listener is not
  EXPECT_EQ(listen_unix("/" + std::string(200, 'x')).error().code, Code::Invalid);
}

}  // namespace
}  // namespace fairlead::http
