// SPDX-License-Identifier: Apache-2.0
#include "agent/network_interfaces.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"

namespace fairlead::agent {

using kube::Json;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view alias_begin = "fairlead ";

struct Network {
  bool six = false;
  std::array<unsigned char, 16> address{};
  int bits = 0;
};
std::optional<Network> parse_network(const std::string& text) {
  Network out;
  const auto slash = text.find('/');
  if (slash == text.npos) return std::nullopt;
  out.six = text.find(':') != text.npos;
  if (::inet_pton(out.six ? AF_INET6 : AF_INET, text.substr(0, slash).c_str(), out.address.data()) != 1) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + slash + 1, text.data() + text.size(), out.bits);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}
// Is the address of `one` in the network of `of`?
bool is_in(const std::string& one, const std::string& of) {
  const auto a = parse_network(one), b = parse_network(of);
  if (!a || !b || a->six != b->six || b->bits < 0 || b->bits > (b->six ? 128 : 32)) return false;
  for (int bit = 0; bit < b->bits; ++bit) {
    const auto at = static_cast<std::size_t>(bit / 8);
    if (((a->address[at] ^ b->address[at]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}
std::string id_of(const Link& link) {
  if (link.kind != "macvlan" || !link.alias.starts_with(alias_begin)) return "";
  const std::string id = link.alias.substr(alias_begin.size());
  return api::is_interface_id(id) ? id : "";
}

const Link* link_for(const api::InterfaceOrder& order, const LinkView& seen) {
  const auto named = [&](const std::string& name) -> const Link* {
    const auto at = std::find_if(seen.links.begin(), seen.links.end(), [&](const Link& one) { return !name.empty() && one.name == name && id_of(one).empty(); });
    return at == seen.links.end() ? nullptr : &*at;
  };
  if (!order.link.empty()) return named(order.link);
  for (const Link& one : seen.links)
    if (id_of(one).empty() && one.name != "lo" && std::any_of(one.addresses.begin(), one.addresses.end(), [&](const std::string& address) { return is_in(order.addresses.front(), address); })) return &one;
  return named(order.addresses.front().find(':') == std::string::npos ? seen.default_link : seen.default_link6);
}

// Is it as it was ordered?
bool is_as(const Link& link, const api::InterfaceOrder& order, const Link& parent) {
  const std::set<std::string> wanted(order.addresses.begin(), order.addresses.end()), has(link.addresses.begin(), link.addresses.end());
  return link.name == link_name(order.id) && link.up && link.mac == order.mac && link.parent == parent.name && has == wanted;
}

}  // namespace

std::string link_name(std::string_view id) { return id.size() <= 15 ? std::string(id) : "eni-" + std::string(id.substr(id.size() - 11)); }

Result<LinkView> parse_links(std::string_view addresses, std::string_view routes, std::string_view routes6) {
  LinkView out;
  const auto all = kube::parse_json(addresses, {.depth_limit = 16});
  if (!all || !all->is_array()) return fail(Code::Unavailable, "ip address show: no JSON");
  for (const Json& one : all->items()) {
    Link link{.name = one["ifname"].string(), .kind = one["linkinfo"]["info_kind"].string(), .alias = one["ifalias"].string(), .mac = one["address"].string(), .parent = one["link"].string(), .addresses = {}, .up = false};
    for (const Json& flag : one["flags"].items()) link.up = link.up || flag.string() == "UP";
    for (const Json& address : one["addr_info"].items())
      if (address["scope"].string() != "link" && !address["dynamic"].boolean()) link.addresses.push_back(fmt::format("{}/{}", address["local"].string(), address["prefixlen"].integer()));
    if (!link.name.empty()) out.links.push_back(std::move(link));
  }
  for (const auto& [text, into] : {std::pair(routes, &out.default_link), {routes6, &out.default_link6}}) {
    if (text.find_first_not_of(" \n") == text.npos) continue;  // where a family is off, `ip` prints nothing
    const auto list = kube::parse_json(text, {.depth_limit = 8});
    if (!list || !list->is_array()) return fail(Code::Unavailable, "ip route show: no JSON");
    for (const Json& one : list->items())
      if (into->empty()) *into = one["dev"].string();
  }
  return out;
}

InterfaceSteps plan_links(const api::InterfaceOrders& orders, const LinkView& seen) {
  InterfaceSteps out;
  const auto add = [&](const std::string& id, std::vector<std::string> words) { out.steps.push_back({id, std::move(words)}); };
  std::set<std::string> fine;
  for (const api::InterfaceOrder& order : orders)
    if (const Link* parent = link_for(order, seen))
      for (const Link& link : seen.links)
        if (id_of(link) == order.id && is_as(link, order, *parent)) fine.insert(order.id);
  for (const Link& link : seen.links)
    if (const std::string id = id_of(link); !id.empty() && !fine.contains(id)) add(id, {"link", "delete", "dev", link.name});
  for (const api::InterfaceOrder& order : orders) {
    if (fine.contains(order.id)) continue;
    const std::string name = link_name(order.id);
    const Link* parent = link_for(order, seen);
    if (parent == nullptr) {
      out.failed[order.id] = !order.link.empty() ? fmt::format("this node has no link {}", order.link) : fmt::format("no link of this node is in the network of {}, and there is no default route: name one (spec.link)", order.addresses.front());
      continue;
    }
    if (const auto other = std::find_if(seen.links.begin(), seen.links.end(), [&](const Link& one) { return one.name == name && id_of(one).empty(); }); other != seen.links.end()) {
      // A death between the link and its alias leaves one with the order's MAC, and nothing on it.
      const bool half_made = other->kind == "macvlan" && other->alias.empty() && other->mac == order.mac && other->addresses.empty() && !other->up;
      if (!half_made) {
        out.failed[order.id] = fmt::format("there is a link {} that is not ours: rename it, or delete it", name);
        continue;
      }
      add(order.id, {"link", "delete", "dev", name});
    }
    add(order.id, {"link", "add", "link", parent->name, "name", name, "address", order.mac, "type", "macvlan", "mode", "bridge"});
    // First of all whose it is: what has no alias is nobody's, and is never taken away.
    add(order.id, {"link", "set", "dev", name, "alias", std::string(alias_begin) + order.id});
    for (const std::string& address : order.addresses) {
      std::vector<std::string> words{"address", "add", address, "dev", name};
      if (address.find(':') != std::string::npos) words.emplace_back("nodad");  // who has it is decided elsewhere
      // Where the node is in that network already its own way into it stays.
      const auto reaches = [&](const Link& one) { return id_of(one).empty() && std::any_of(one.addresses.begin(), one.addresses.end(), [&](const std::string& own) { return is_in(address, own) || is_in(own, address); }); };
      if (std::any_of(seen.links.begin(), seen.links.end(), reaches)) words.emplace_back("noprefixroute");
      add(order.id, std::move(words));
    }
    add(order.id, {"link", "set", "dev", name, "up"});
  }
  return out;
}

namespace {
// What the kernel has no such word for it does not do.
void quieten(const std::string& link) {
  for (const auto& [family, name, value] : {std::tuple("ipv6", "accept_ra", "0"), {"ipv6", "autoconf", "0"}, {"ipv6", "ndisc_notify", "1"}, {"ipv4", "arp_notify", "1"}, {"ipv4", "rp_filter", "2"}}) {
    const Fd file(::open(fmt::format("/proc/sys/net/{}/conf/{}/{}", family, link, name).c_str(), O_WRONLY | O_CLOEXEC));
    if (file && ::write(file.get(), value, 1) != 1) log_warn("a network interface is not set as it should be", {{"link", link}, {"setting", name}, {"why", std::strerror(errno)}});
  }
}
}  // namespace

std::string ip_program() {
  for (const char* const path : {"/usr/sbin/ip", "/sbin/ip", "/bin/ip"})
    if (exists(path)) return path;
  return "";
}

Result<api::InterfaceStates> settle_interfaces(const api::InterfaceOrders& orders, const std::string& ip) {
  if (ip.empty()) {
    // Nodes without it are fine while they have none; one that was put up before it went is there still.
    struct if_nameindex* const links = ::if_nameindex();
    bool any = links == nullptr;
    for (const struct if_nameindex* one = links; one != nullptr && one->if_index != 0; ++one) any = any || std::string_view(one->if_name).starts_with("eni-");
    if (links != nullptr) ::if_freenameindex(links);
    if (orders.empty() && !any) return api::InterfaceStates();
    return fail(Code::Unavailable, "`ip` is missing: install iproute2 (network interfaces need it)");
  }
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), ip);
    return run_checked({.argv = std::move(words)}, 20s);
  };
  const auto look = [&]() -> Result<LinkView> {
    const auto addresses = run({"-json", "-details", "address", "show"}), routes = addresses ? run({"-json", "-4", "route", "show", "default"}) : addresses, routes6 = routes ? run({"-json", "-6", "route", "show", "default"}) : routes;
    if (!routes6) return fail(Code::Unavailable, "look at the links of this machine: " + routes6.error().message);
    return parse_links(*addresses, *routes, *routes6);
  };
  auto seen = look();
  if (!seen) return std::unexpected(std::move(seen.error()));
  InterfaceSteps plan = plan_links(orders, *seen);
  for (const InterfaceSteps::Step& step : plan.steps) {
    if (plan.failed.contains(step.id)) continue;
    // Before it is up: neighbours are told of it, and what routers there say is not the node's business.
    if (step.words.back() == "up") quieten(link_name(step.id));
    auto done = run(step.words);
    if (done) continue;
    plan.failed[step.id] = fmt::format("ip {} {}: {}", step.words[0], step.words[1], done.error().message);
    // Half of it is nothing; before it had its alias it would stay.
    if (step.words[1] == "set" || step.words[0] == "address") (void)run({"link", "delete", "dev", link_name(step.id)});
  }
  if (!plan.steps.empty()) seen = look();
  if (!seen) return std::unexpected(std::move(seen.error()));
  api::InterfaceStates out;
  std::set<std::string> there;
  for (const Link& link : seen->links)
    if (const std::string id = id_of(link); !id.empty()) there.insert(id);
  for (const api::InterfaceOrder& order : orders) {
    const auto failed = plan.failed.find(order.id);
    if (failed != plan.failed.end()) out[order.id] = failed->second;
    else out[order.id] = there.contains(order.id) ? "" : "it is not there";
  }
  for (const std::string& id : there)
    if (!out.contains(id)) out[id] = plan.failed.contains(id) ? plan.failed[id] : "it could not be taken away";
  return out;
}

Result<void> keep_interfaces(kube::KubeApi& api, const Json& node, const Settle& settle, bool look) {
  const std::string& note = node["metadata"]["annotations"][api::kInterfacesNote].string();
  auto orders = api::parse_interface_orders(note);
  if (!orders) return std::unexpected(std::move(orders.error()));
  const auto told = api::read_interface_states(node);
  const bool had = node["metadata"]["annotations"].has(api::kInterfacesStateNote);
  if (orders->empty() && !had && !look) return {};  // most nodes
  const auto tell = [&](const api::InterfaceStates& states, const std::string& version) -> Result<void> {
    const std::string text = api::print_interface_states(states);
    Json metadata = Json::object({{"annotations", Json::object({{api::kInterfacesStateNote, text.empty() ? Json() : Json(text)}})}});
    if (!version.empty()) metadata.set("resourceVersion", version);
    auto done = api.patch(kube::resources::nodes, {"", kube::name_of(node)}, kube::PatchType::Merge, Json::object({{"metadata", std::move(metadata)}}));
    if (!done) return pass(std::move(done.error()), "tell of the network interfaces of node " + kube::name_of(node));
    return {};
  };
  api::InterfaceStates before = told ? *told : api::InterfaceStates();
  const std::size_t known = before.size();
  for (const api::InterfaceOrder& one : *orders) before.emplace(one.id, api::kInterfaceClaimed);
  if (before.size() != known || !told)
    if (auto done = tell(before, kube::version_of(node)); !done) return done;
  const auto states = settle(*orders);
  if (!states) {
    // Why nothing is seen is told of each; none is told to be gone.
    for (auto& [id, why] : before) why = states.error().message;
    if (auto done = tell(before, ""); !done) return done;
    return std::unexpected(states.error());
  }
  return *states == before ? Result<void>() : tell(*states, "");
}

}  // namespace fairlead::agent
