// SPDX-License-Identifier: Apache-2.0
#include "base/quorum_wire.h"

#include "base/encoding.h"

namespace fairlead::quorum {
namespace {

constexpr std::string_view magic = "FLQUORM1";  // the last byte is the version
constexpr std::size_t mac_size = 32;
constexpr Time longest = std::chrono::hours(1);

void put(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}
std::uint64_t take(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

Group make_group(std::string key, std::string_view what) { return {std::move(key), take(sha256(what), 0)}; }

std::string encode(const Message& message, const Group& group) {
  std::string out(magic);
  put(out, group.id);
  out += static_cast<char>(message.kind);
  out += static_cast<char>(message.from);
  out += static_cast<char>(message.to);
  out += static_cast<char>(message.holder);
  out += static_cast<char>(message.serving);
  out.append(3, '\0');
  for (const std::uint64_t value : {message.incarnation, message.sequence, static_cast<std::uint64_t>(message.left.count()), message.epoch}) put(out, value);
  put(out, 0);  // for later
  put(out, 0);
  return out + hmac_sha256(group.key, out);
}

std::optional<Message> decode(std::string_view datagram, const Group& group) {
  if (datagram.size() != datagram_size || !datagram.starts_with(magic) || take(datagram, 8) != group.id) return std::nullopt;
  const std::string_view body = datagram.substr(0, datagram_size - mac_size);
  if (!equal_in_constant_time(hmac_sha256(group.key, body), datagram.substr(body.size()))) return std::nullopt;
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(datagram[at]); };
  if (byte(16) < 1 || byte(16) > 4 || byte(20) > 1) return std::nullopt;
  Message message{.kind = static_cast<Kind>(byte(16)), .from = byte(17), .to = byte(18), .incarnation = take(datagram, 24), .sequence = take(datagram, 32), .holder = byte(19)};
  const std::uint64_t left = take(datagram, 40);
  if (left > static_cast<std::uint64_t>(longest.count())) return std::nullopt;
  message.left = Time(static_cast<std::int64_t>(left));
  message.epoch = take(datagram, 48);
  message.serving = byte(20) == 1;
  return message;
}

}  // namespace fairlead::quorum
