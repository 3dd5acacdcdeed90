// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/addresses.h"

#include <fmt/format.h>

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

Result<Ranges> parse_ranges(std::string_view nodes, std::string_view pods) {
  auto node_range = parse_network(nodes);
  if (!node_range) return pass(std::move(node_range.error()), "node range");
  auto pod_range = parse_network(pods);
  if (!pod_range) return pass(std::move(pod_range.error()), "pod range");
  if (node_range->bits != 16 || pod_range->bits != 16) return fail(Code::Invalid, "the ranges of nodes and pods are each a /16, such as 10.77.0.0/16");
  if (overlap(*node_range, *pod_range)) return fail(Code::Invalid, fmt::format("the ranges of nodes ({}) and pods ({}) overlap", nodes, pods));
  return Ranges{.nodes = *node_range, .pods = *pod_range};
}

std::string host_address(const Ranges& ranges) { return print_address(ranges.nodes.base + 1); }
std::string fabric_address(const Ranges& ranges) { return print_address(ranges.nodes.base + 2); }

api::Seat seat_of(const Ranges& ranges, int index) {
  const auto n = static_cast<std::uint32_t>(index);
  return {.index = index, .address = print_address(ranges.nodes.base + 256 + n), .pod_cidr = print_address(ranges.pods.base + (n << 8)) + "/24"};
}

Result<api::Seat> choose_seat(const Ranges& ranges, const std::set<int>& taken) {
  for (int index = 1; index <= kLastSeat; ++index)
    if (!taken.contains(index)) return seat_of(ranges, index);
  return fail(Code::Exhausted, fmt::format("a site holds at most {} local machines, and all these places are taken", kLastSeat));
}

std::string route_conflict(const Ranges& ranges, const std::vector<Route>& routes, std::string_view our_device) {
  for (const auto& route : routes) {
    if (route.device == our_device || route.to.bits == 0) continue;
    for (const auto* range : {&ranges.nodes, &ranges.pods})
      if (overlap(route.to, *range))
        return fmt::format("the network {} is in use here ({}{} leads to {}); choose another range with --{}-range", print_network(*range), is_link_of_a_site(route.device) ? "another site's " : "",
                           route.device, print_network(route.to), range == &ranges.nodes ? "node" : "pod");
  }
  return "";
}

}  // namespace fairlead::fleet
