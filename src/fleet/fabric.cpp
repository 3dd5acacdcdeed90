// SPDX-License-Identifier: Apache-2.0
#include "fleet/fabric.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"
#include "fleet/netns.h"

namespace fairlead::fleet {

namespace {

std::string link_name(const api::Seat& seat) { return fmt::format("n{}", seat.index); }

// A node keeps its hardware address over restarts, so that nobody's neighbour table goes stale. Locally administered.
std::string hardware_address(std::uint32_t address) {
  return fmt::format("0a:4d:{:02x}:{:02x}:{:02x}:{:02x}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

std::string cidr(const std::string& address, const Network& network) { return fmt::format("{}/{}", address, network.bits); }

bool has(const std::vector<LinkFlag>& links, std::string_view name) {
  return std::any_of(links.begin(), links.end(), [&](const auto& link) { return link.name == name; });
}

}  // namespace

std::vector<Route> parse_routes(std::string_view text) {
  std::vector<Route> routes;
  for (const auto& line : split(text, '\n')) {
    std::vector<std::string> fields;
    for (auto& field : split(line, '\t'))
      if (const auto trimmed = trim(field); !trimmed.empty()) fields.emplace_back(trimmed);
    if (fields.size() < 8 || fields[0] == "Iface") continue;
    const auto to = ntohl(static_cast<std::uint32_t>(std::strtoul(fields[1].c_str(), nullptr, 16)));
    const auto mask = ntohl(static_cast<std::uint32_t>(std::strtoul(fields[7].c_str(), nullptr, 16)));
    routes.push_back({.to = {.base = to, .bits = std::popcount(mask)}, .device = fields[0]});
  }
  return routes;
}

std::vector<Route6> parse_routes6(std::string_view text) {
  std::vector<Route6> routes;
  for (const auto& line : split(text, '\n')) {
    std::vector<std::string> fields;
    for (auto& field : split(line, ' '))
      if (!field.empty()) fields.emplace_back(field);
    // Where to, its bits, from where, its bits, by whom, metric, two counters, flags, device.
    if (fields.size() != 10 || fields[0].size() != 32) continue;
    Route6 route{.to = {}, .device = fields[9]};
    for (std::size_t i = 0; i < route.to.base.size(); ++i) route.to.base[i] = static_cast<std::uint8_t>(std::strtoul(fields[0].substr(2 * i, 2).c_str(), nullptr, 16));
    route.to.bits = static_cast<int>(std::min<unsigned long>(128, std::strtoul(fields[1].c_str(), nullptr, 16)));
    routes.push_back(std::move(route));
  }
  return routes;
}

Result<std::string> find_conflict(const Ranges& ranges, const Site& site) {
  auto routes = read_file("/proc/net/route");
  if (!routes) return std::unexpected(std::move(routes.error()));
  std::string taken = route_conflict(ranges, parse_routes(*routes), site.host_link());
  if (!taken.empty() || !ranges.six) return taken;
  auto routes6 = read_file("/proc/net/ipv6_route");
  if (!routes6) return std::string("this machine has no IPv6 (/proc/net/ipv6_route is missing): give the ranges of nodes, pods and services without the IPv6 ones");
  return route_conflict(*ranges.six, parse_routes6(*routes6), site.host_link());
}

Result<void> Fabric::stand_up() const {
  auto taken = find_conflict(ranges_, site_);
  if (!taken) return std::unexpected(std::move(taken.error()));
  if (!taken->empty()) return fail(Code::Conflict, std::move(*taken));

  if (auto done = pin_new_namespace(site_.fabric_pin()); !done) return done;
  auto space = open_namespace(site_.fabric_pin());
  if (!space) return std::unexpected(std::move(space.error()));
  auto inside = list_links(*space);
  if (!inside) return std::unexpected(std::move(inside.error()));
  const std::string host_link = site_.host_link(), host = host_address(ranges_), router = fabric_address(ranges_);

  if (!has(*inside, "br0")) {
    // Its address is set before the first port: a bridge otherwise takes the lowest of its ports and changes it when they come and go.
    auto done = ip_batch(*space, {"link add br0 address " + hardware_address(ranges_.nodes.base + 2) + " type bridge stp_state 0 forward_delay 0", "link set lo up",
                                  "addr replace " + cidr(router, ranges_.nodes) + " dev br0", "link set br0 up"});
    if (!done) return pass(std::move(done.error()), "make the bridge of the fabric");
  }
  const bool host_side = has_link(host_link);
  if (!host_side || !has(*inside, "up0")) {
    const Fd here;
    // One end without the other belongs to a fabric that is gone.
    if (host_side) ip_try(here, {"link del " + host_link});
    if (has(*inside, "up0")) ip_try(*space, {"link del up0"});
    auto done = ip_batch(here, {fmt::format("link add {} address {} type veth peer name up0 netns {}", host_link, hardware_address(ranges_.nodes.base + 1), site_.fabric_pin())});
    if (!done) return pass(std::move(done.error()), "link this machine to the fabric");
  }
  if (auto done = ip_batch(*space, {"link set up0 master br0", "link set up0 up", "route replace default via " + host}); !done) {
    return pass(std::move(done.error()), "set the fabric's end of the host link up");
  }
  auto done = ip_batch(Fd(), {"addr replace " + cidr(host, ranges_.nodes) + " dev " + host_link, "link set " + host_link + " up",
                              fmt::format("route replace {} via {} dev {}", print_network(ranges_.pods), router, host_link)});
  if (!done) return pass(std::move(done.error()), "set this machine's end of the host link up");
  if (!ranges_.six) return {};
  if (auto six = stand_up_six(*space, *ranges_.six); !six) return pass(std::move(six.error()), "give the fabric its IPv6 addresses");
  return {};
}

Result<void> Fabric::stand_up_six(const Fd& space, const Ranges::Six& six) const {
  const std::string host_link = site_.host_link(), router = fabric_address6(six);
  if (auto done = route_ipv6(space); !done) return done;
  if (auto done = allow_ipv6(host_link); !done) return done;
  // Snooping would keep questions for hardware addresses from whom the bridge has not heard yet.
  if (auto done = ip_batch(space, {"link set br0 type bridge mcast_snooping 0", fmt::format("addr replace {}/{} dev br0 nodad", router, six.nodes.bits),
                                   "route replace default via " + host_address6(six) + " dev br0"});
      !done)
    return done;
  return ip_batch(Fd(), {fmt::format("addr replace {}/{} dev {} nodad", host_address6(six), six.nodes.bits, host_link),
                         fmt::format("route replace {} via {} dev {}", print_network(six.pods), router, host_link)});
}

Result<void> Fabric::connect(const api::Seat& seat, pid_t pid) const {
  auto space = open_namespace(site_.fabric_pin());
  if (!space) return std::unexpected(std::move(space.error()));
  auto node_space = open_namespace(fmt::format("/proc/{}/ns/net", pid));
  if (!node_space) return fail(Code::Unavailable, fmt::format("the node's first process {} is gone", pid));
  const std::string name = link_name(seat);
  auto address = parse_network(seat.address);
  if (!address) return std::unexpected(std::move(address.error()));

  ip_try(*space, {"link del " + name});
  ip_try(*node_space, {"link del eth0"});
  if (auto done = ip_batch(*space, {fmt::format("link add {} type veth peer name eth0 address {} netns /proc/{}/ns/net", name, hardware_address(address->base), pid),
                                    "link set " + name + " master br0", "link set " + name + " up", fmt::format("route replace {} via {} onlink dev br0", seat.pod_cidr, seat.address)});
      !done)
    return pass(std::move(done.error()), "link " + name + " in the fabric");
  std::vector<std::string> lines{"link set lo up", "addr replace " + cidr(seat.address, ranges_.nodes) + " dev eth0", "link set eth0 up"};
  if (ranges_.six && !seat.address6.empty()) {
    if (auto done = route_ipv6(*node_space); !done) return done;
    if (auto done = ip_batch(*space, {fmt::format("route replace {} via {} onlink dev br0", seat.pod_cidr6, seat.address6)}); !done) return pass(std::move(done.error()), "route to the pods behind " + name);
    lines.push_back(fmt::format("addr replace {}/{} dev eth0 nodad", seat.address6, ranges_.six->nodes.bits));
    lines.push_back("route replace default via " + fabric_address6(*ranges_.six) + " dev eth0");
  }
  // The default route comes last: it is what a look takes for a finished link.
  lines.push_back("route replace default via " + fabric_address(ranges_) + " dev eth0");
  if (auto done = ip_batch(*node_space, lines); !done) return pass(std::move(done.error()), "set eth0 of the node up");
  return {};
}

Result<void> Fabric::set_link(const api::Seat& seat, api::Link link) const {
  auto space = open_namespace(site_.fabric_pin());
  if (!space) return std::unexpected(std::move(space.error()));
  return ip_batch(*space, {fmt::format("link set {} {}", link_name(seat), link == api::Link::Cut ? "down" : "up")});
}

Result<void> Fabric::disconnect(const api::Seat& seat) const {
  if (seat.index == 0 || !is_pinned(site_.fabric_pin())) return {};
  auto space = open_namespace(site_.fabric_pin());
  if (!space) return std::unexpected(std::move(space.error()));
  ip_try(*space, {"link del " + link_name(seat), "route del " + seat.pod_cidr});
  if (!seat.pod_cidr6.empty()) ip_try(*space, {"route del " + seat.pod_cidr6});
  return {};
}

Result<Wire> Fabric::look(const api::Seat& seat, pid_t pid, bool& stale) const {
  stale = false;
  if (seat.index == 0 || !is_pinned(site_.fabric_pin())) return Wire::None;
  auto space = open_namespace(site_.fabric_pin());
  if (!space) return std::unexpected(std::move(space.error()));
  auto links = list_links(*space);
  if (!links) return std::unexpected(std::move(links.error()));
  const auto link = std::find_if(links->begin(), links->end(), [&](const auto& one) { return one.name == link_name(seat); });
  if (link == links->end()) return Wire::None;
  stale = true;
  if (pid == 0) return Wire::None;
  // The node's own view, read from here: its default route by eth0.
  auto routes = read_file(fmt::format("/proc/{}/net/route", pid));
  if (!routes) return Wire::None;
  const auto seen = parse_routes(*routes);
  const bool finished = std::any_of(seen.begin(), seen.end(), [](const auto& route) { return route.device == "eth0" && route.to.bits == 0; });
  if (!finished) return Wire::None;
  stale = false;
  return link->up ? Wire::Up : Wire::Cut;
}

Result<void> Fabric::tear_down() const {
  if (has_link(site_.host_link())) ip_try(Fd(), {"link del " + site_.host_link()});
  return unpin(site_.fabric_pin());
}

}  // namespace fairlead::fleet
