// SPDX-License-Identifier: Apache-2.0
// Messages of a quorum as datagrams: fixed size, with HMAC-SHA256 (RFC 2104) over all that comes before it.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/quorum.h"

namespace fairlead::quorum {

inline constexpr std::size_t datagram_size = 104;

// `group`: what this quorum is of, its voters among it; those that were told of other voters are strangers. At most 64 bits of it are used, by a hash.
struct Group {
  std::string key;  // secret; any length, 32 bytes by chance are good
  std::uint64_t id = 0;
};
// Both sides make it of the same text.
Group make_group(std::string key, std::string_view what);

std::string encode(const Message& message, const Group& group);
// Nothing: not of this group, forged, damaged, of another version, or with values that no voter sends.
std::optional<Message> decode(std::string_view datagram, const Group& group);

}  // namespace fairlead::quorum
