// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"

namespace fairlead::fleet {

namespace {

std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t most) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || number > most) return std::nullopt;
  return number;
}

bool is_link_of_a_site(std::string_view device) { return device.size() == 8 && device.starts_with("fl") && device.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos; }

std::uint32_t mask(int bits) { return bits == 0 ? 0 : ~0U << (32 - bits); }

bool bit_of(const Address6& address, int bit) { return (address[static_cast<std::size_t>(bit / 8)] >> (7 - bit % 8) & 1) != 0; }

// Addresses that a node or pod can have at all: not ::/8 (loopback, mapped and translated IPv4), link-local or multicast.
bool is_unicast(const Network6& network) {
  const auto& base = network.base;
  return network.bits >= 8 && base[0] != 0 && base[0] != 0xff && !(base[0] == 0xfe && base[1] >= 0x80 && base[1] <= 0xbf);
}

struct RangePair {
  Network four;
  std::optional<Network6> six;
};
Result<RangePair> parse_pair(std::string_view text, std::string_view example) {
  const auto parts = split(text, ',');
  const auto wrong = [&](std::string_view why) { return fail(Code::Invalid, fmt::format("\"{}\" {}: an IPv4 range is expected and, for both families, a comma and an IPv6 one, such as {}", text, why, example)); };
  const auto is_six = [](const std::string& one) { return one.find(':') != std::string::npos; };
  if (parts.size() > 2) return wrong("has more than two parts");
  if (parts.size() == 2 && is_six(parts[0]) == is_six(parts[1])) return wrong(is_six(parts[0]) ? "names IPv6 twice" : "names IPv4 twice");
  if (!parts.empty() && is_six(parts[0])) return wrong(parts.size() == 2 ? "begins with IPv6" : "has no IPv4");
  auto four = parse_network(parts.empty() ? std::string_view() : std::string_view(parts[0]));
  if (!four) return std::unexpected(std::move(four.error()));
  RangePair out{.four = *four, .six = {}};
  if (parts.size() < 2) return out;
  auto six = parse_network6(parts[1]);
  if (!six) return std::unexpected(std::move(six.error()));
  if (!is_unicast(*six)) return wrong("is not of addresses that a machine can have");
  out.six = *six;
  return out;
}

Address6 plus(Address6 address, std::size_t byte, std::uint32_t number) {
  // The range is aligned and has room for it, so nothing carries.
  address[byte] = static_cast<std::uint8_t>(address[byte] | (number & 255));
  address[byte - 1] = static_cast<std::uint8_t>(address[byte - 1] | (number >> 8 & 255));
  return address;
}

}  // namespace

Result<Network> parse_network(std::string_view text) {
  const auto slash = text.find('/');
  const auto bits = slash == std::string_view::npos ? std::optional<std::uint32_t>(32) : parse_number(text.substr(slash + 1), 32);
  const auto parts = split(text.substr(0, slash), '.');
  Network network{.base = 0, .bits = static_cast<int>(bits.value_or(0))};
  bool good = bits && parts.size() == 4;
  for (const auto& part : parts) {
    const auto number = parse_number(part, 255);
    good = good && number;
    network.base = network.base << 8 | number.value_or(0);
  }
  if (!good) return fail(Code::Invalid, fmt::format("\"{}\" is not a network such as 10.77.0.0/16", text));
  if ((network.base & ~mask(network.bits)) != 0) return fail(Code::Invalid, fmt::format("\"{}\" has bits set after its first {}", text, network.bits));
  return network;
}

std::string print_address(std::uint32_t address) { return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255); }
std::string print_network(const Network& network) { return fmt::format("{}/{}", print_address(network.base), network.bits); }
bool overlap(const Network& a, const Network& b) { return a.base <= b.last() && b.base <= a.last(); }

Result<Network6> parse_network6(std::string_view text) {
  const auto slash = text.find('/');
  const auto bits = slash == std::string_view::npos ? std::optional<std::uint32_t>(128) : parse_number(text.substr(slash + 1), 128);
  Network6 network{.base = {}, .bits = static_cast<int>(bits.value_or(0))};
  if (!bits || text.find('\0') != std::string_view::npos || ::inet_pton(AF_INET6, std::string(text.substr(0, slash)).c_str(), network.base.data()) != 1)
    return fail(Code::Invalid, fmt::format("\"{}\" is not a network such as fd00:77::/64", text));
  for (int bit = network.bits; bit < 128; ++bit)
    if (bit_of(network.base, bit)) return fail(Code::Invalid, fmt::format("\"{}\" has bits set after its first {}", text, network.bits));
  return network;
}

std::string print_address(const Address6& address) {
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(AF_INET6, address.data(), text, sizeof text);
}
std::string print_network(const Network6& network) { return fmt::format("{}/{}", print_address(network.base), network.bits); }
bool overlap(const Network6& a, const Network6& b) {
  for (int bit = 0; bit < std::min(a.bits, b.bits); ++bit)
    if (bit_of(a.base, bit) != bit_of(b.base, bit)) return false;
  return true;
}

Result<Ranges> parse_ranges(std::string_view nodes, std::string_view pods) {
  auto node_range = parse_pair(nodes, "10.77.0.0/16,fd00:77::/64");
  if (!node_range) return pass(std::move(node_range.error()), "node range");
  auto pod_range = parse_pair(pods, "10.78.0.0/16,fd00:78::/56");
  if (!pod_range) return pass(std::move(pod_range.error()), "pod range");
  if (node_range->four.bits != 16 || pod_range->four.bits != 16) return fail(Code::Invalid, "the ranges of nodes and pods are each a /16, such as 10.77.0.0/16");
  if (overlap(node_range->four, pod_range->four)) return fail(Code::Invalid, fmt::format("the ranges of nodes ({}) and pods ({}) overlap", nodes, pods));
  Ranges out{.nodes = node_range->four, .pods = pod_range->four};
  if (!pod_range->six) {
    if (node_range->six) return fail(Code::Invalid, fmt::format("nodes have an IPv6 range ({}) and pods none: with both families pods need one, too, such as 10.78.0.0/16,fd00:78::/56", print_network(*node_range->six)));
    return out;
  }
  const Ranges::Six six{.nodes = node_range->six ? *node_range->six : *parse_network6(kNodes6), .pods = *pod_range->six};
  if (six.nodes.bits > 112) return fail(Code::Invalid, fmt::format("the IPv6 range of nodes ({}) is too small: a /112 or larger is needed", print_network(six.nodes)));
  if (six.pods.bits > 56) return fail(Code::Invalid, fmt::format("the IPv6 range of pods ({}) is too small: every node gets a /64 of it, so a /56 or larger is needed", print_network(six.pods)));
  if (overlap(six.nodes, six.pods)) return fail(Code::Invalid, fmt::format("the IPv6 ranges of nodes ({}) and pods ({}) overlap", print_network(six.nodes), print_network(six.pods)));
  out.six = six;
  return out;
}
std::string print_nodes(const Ranges& ranges) { return print_network(ranges.nodes) + (ranges.six ? "," + print_network(ranges.six->nodes) : ""); }
std::string print_pods(const Ranges& ranges) { return print_network(ranges.pods) + (ranges.six ? "," + print_network(ranges.six->pods) : ""); }

std::string host_address(const Ranges& ranges) { return print_address(ranges.nodes.base + 1); }
std::string fabric_address(const Ranges& ranges) { return print_address(ranges.nodes.base + 2); }
std::string host_address6(const Ranges::Six& ranges) { return print_address(plus(ranges.nodes.base, 15, 1)); }
std::string fabric_address6(const Ranges::Six& ranges) { return print_address(plus(ranges.nodes.base, 15, 2)); }

api::Seat seat_of(const Ranges& ranges, int index) {
  const auto n = static_cast<std::uint32_t>(index);
  api::Seat seat{.index = index, .address = print_address(ranges.nodes.base + 256 + n), .pod_cidr = print_address(ranges.pods.base + (n << 8)) + "/24"};
  if (ranges.six) {
    seat.address6 = print_address(plus(ranges.six->nodes.base, 15, 256 + n));
    seat.pod_cidr6 = print_address(plus(ranges.six->pods.base, 7, n)) + "/64";
  }
  return seat;
}

Result<api::Seat> choose_seat(const Ranges& ranges, const std::set<int>& taken) {
  for (int index = 1; index <= kLastSeat; ++index)
    if (!taken.contains(index)) return seat_of(ranges, index);
  return fail(Code::Exhausted, fmt::format("a site holds at most {} local machines, and all these places are taken", kLastSeat));
}

namespace {

std::string in_use(const std::string& range, const std::string& to, const std::string& device, bool of_nodes) {
  const bool of_a_site = is_link_of_a_site(device);
  return fmt::format("the network {} is in use here ({}{} leads to {}); choose another range with --{}-range{}", range, of_a_site ? "another site's " : "", device, to, of_nodes ? "node" : "pod",
                     of_a_site ? fmt::format(", or take that site down; if it is gone already: ip link del {}", device) : "");
}

}  // namespace

std::string route_conflict(const Ranges& ranges, const std::vector<Route>& routes, std::string_view our_device) {
  for (const auto& route : routes) {
    if (route.device == our_device || route.to.bits == 0) continue;
    for (const auto* range : {&ranges.nodes, &ranges.pods})
      if (overlap(route.to, *range)) return in_use(print_network(*range), print_network(route.to), route.device, range == &ranges.nodes);
  }
  return "";
}

std::string route_conflict(const Ranges::Six& ranges, const std::vector<Route6>& routes, std::string_view our_device) {
  for (const auto& route : routes) {
    // A machine without a way out has its default route by the loopback link, to refuse what leads nowhere.
    if (route.device == our_device || route.to.bits == 0) continue;
    for (const auto* range : {&ranges.nodes, &ranges.pods})
      if (overlap(route.to, *range)) return in_use(print_network(*range), print_network(route.to), route.device, range == &ranges.nodes);
  }
  return "";
}

}  // namespace fairlead::fleet
