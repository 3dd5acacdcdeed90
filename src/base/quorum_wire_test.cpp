// SPDX-License-Identifier: Apache-2.0
#include "base/quorum_wire.h"

#include <gmock/gmock.h>

#include "base/encoding.h"

namespace fairlead::quorum {
namespace {
using namespace std::chrono_literals;

const Message asked{.kind = Kind::Refuse, .from = 3, .to = 1, .incarnation = 0x0123456789abcdef, .sequence = 42, .holder = 2, .left = 650ms, .epoch = 7, .serving = true};

TEST(QuorumWire, ComesBackAsItWas) {
  const Group group = make_group("secret", "cluster a: h0 h1 w");
  for (const Message& message : {asked, Message{}, Message{.kind = Kind::Release, .from = 254, .sequence = ~0ULL, .epoch = ~0ULL}}) {
    const std::string datagram = encode(message, group);
    EXPECT_EQ(datagram.size(), datagram_size);
    EXPECT_EQ(decode(datagram, group), message);
  }
}

TEST(QuorumWire, NothingOfStrangersIsTaken) {
  const Group group = make_group("secret", "cluster a: h0 h1 w");
  const std::string datagram = encode(asked, group);
  EXPECT_FALSE(decode(datagram, make_group("secret", "cluster a: h0 h1 h2 w")));
  EXPECT_FALSE(decode(datagram, make_group("other", "cluster a: h0 h1 w")));
  EXPECT_FALSE(decode(datagram.substr(1), group));
  EXPECT_FALSE(decode(datagram + "x", group));
  EXPECT_FALSE(decode("", group));
  for (std::size_t bit = 0; bit < datagram.size() * 8; ++bit) {
    std::string changed = datagram;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(decode(changed, group)) << bit;
  }
}

TEST(Encoding, HmacIsThatOfTheRfc) {  // RFC 4231, test cases 2 and 6
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace
}  // namespace fairlead::quorum
