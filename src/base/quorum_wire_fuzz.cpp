// SPDX-License-Identifier: Apache-2.0
// A datagram of anybody, and one of somebody who has the key but sends nonsense: the voter and the candidate take it without harm.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/encoding.h"
#include "base/quorum_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::quorum;
  static const Group group = make_group("key", "fuzz");
  static const std::string head = encode(Message{}, group).substr(0, 16);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (decode(bytes, group)) std::abort();  // nobody guesses the code
  Elector elector(0, 4, {}, 1, Time::zero());
  Voter voter(3, {}, Time::zero());
  Time now = std::chrono::seconds(2);
  for (std::size_t at = 0; at + 56 <= size && at < 56 * 32; at += 56, now += std::chrono::milliseconds(30)) {
    std::string body = head + std::string(bytes.substr(at, 56));
    const auto message = decode(body + fairlead::hmac_sha256(group.key, body), group);
    if (!message) continue;
    if (decode(encode(*message, group), group) != message) std::abort();
    (void)voter.answer(*message, now);
    voter.release(*message);
    (void)elector.receive(*message, now);
    (void)elector.tick(now, static_cast<std::uint64_t>(at));
    if (elector.holds(now) && elector.lease_until() > now + Timing{}.ttl) std::abort();  // never longer than from now
    if (elector.lapsed(now)) (void)elector.give_back(now);
  }
  return 0;
}
