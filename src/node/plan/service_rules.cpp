// SPDX-License-Identifier: Apache-2.0
#include "node/plan/service_rules.h"

#include <algorithm>
#include <optional>

#include "base/encoding.h"
#include "kube/object.h"

namespace fairlead::node {
namespace {
using kube::Json;
using Targets = std::set<std::string>;  // "10.1.0.2 . 8080"

constexpr std::int64_t longest_affinity = 86400;

struct Endpoints {
  Targets ready, ending;              // ending: those that end, and serve still
  Targets local_ready, local_ending;  // of these, on this node
  const Targets& all() const { return ready.empty() ? ending : ready; }
  const Targets& local() const { return local_ready.empty() ? local_ending : local_ready; }
};

// By namespace and service, then the port's name.
using Served = std::map<std::pair<std::string, std::string>, std::map<std::string, Endpoints>>;

void add_endpoint(Endpoints& to, const Json& endpoint, const std::string& target, const std::string& node_name) {
  const Json& conditions = endpoint["conditions"];
  const bool ready = conditions["ready"].boolean(true), ending = conditions["serving"].boolean() && conditions["terminating"].boolean();
  if (!ready && !ending) return;
  (ready ? to.ready : to.ending).insert(target);
  if (endpoint["nodeName"].string() == node_name) (ready ? to.local_ready : to.local_ending).insert(target);
}

Served served_by(const std::vector<Json>& slices, const std::string& node_name, Family family) {
  Served out;
  for (const Json& slice : slices) {
    if (slice["addressType"].string() != (family == Family::V4 ? "IPv4" : "IPv6")) continue;
    auto& ports = out[{kube::space_of(slice), slice["metadata"]["labels"]["kubernetes.io/service-name"].string()}];
    for (const Json& endpoint : slice["endpoints"].items())
      for (const Json& item : endpoint["addresses"].items())
        for (const Json& port : slice["ports"].items())
          if (const auto one = address(item.string(), family); one && is_port(port["port"].integer()))
            add_endpoint(ports[port["name"].string()], endpoint, fmt::format("{} . {}", *one, port["port"].integer()), node_name);
  }
  return out;
}

std::optional<std::string> cluster_address(const Json& spec, Family family) {
  std::vector<std::string> own{spec["clusterIP"].string()};
  for (const Json& item : spec["clusterIPs"].items()) own.push_back(item.string());
  for (const std::string& one : own)
    if (auto ip = address(one, family)) return ip;
  return std::nullopt;
}

// How long a client keeps its endpoint, in seconds; 0: not at all.
std::int64_t affinity_of(const Json& spec) {
  if (spec["sessionAffinity"].string() != "ClientIP") return 0;
  return std::clamp<std::int64_t>(spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].integer(10800), 1, longest_affinity);
}

// A number for each target that is the same on every node and at any time; of two that clash the later one moves on.
std::vector<std::pair<std::uint32_t, std::string>> marks_of(const Targets& targets) {
  std::vector<std::pair<std::uint32_t, std::string>> out;
  std::set<std::uint32_t> taken;
  for (const std::string& target : targets) {
    const std::string bytes = sha256(target);
    std::uint32_t mark = 0;
    for (const char byte : bytes.substr(0, 4)) mark = mark << 8 | static_cast<unsigned char>(byte);
    mark &= 0x7fffffff;
    while (mark == 0 || !taken.insert(mark).second) ++mark;
    out.emplace_back(mark, target);
  }
  return out;
}

std::string key_of_packet(Family family) { return fmt::format("{0} saddr . {0} daddr . meta l4proto . th dport", word(family)); }

class Builder {
 public:
  Builder(ServiceRules& out, Family family, int& count) : out_(out), family_(family), count_(count) {}

  // A chain that sends a new connection to one of the targets.
  std::string spread(const Targets& targets, const std::string& proto, std::int64_t affinity) {
    const std::string chain = fmt::format("service_{}", ++count_);
    std::string choices;
    std::size_t number = 0;
    if (affinity == 0) {
      for (const std::string& target : targets) choices += fmt::format("{}{} : {}", number == 0 ? "" : ", ", number, target), ++number;
      out_.chains += fmt::format("  chain {} {{\n    meta l4proto {} dnat {} to numgen random mod {} map {{ {} }}\n  }}\n", chain, proto, word(family_), number, choices);
      return chain;
    }
    std::string known;
    for (const auto& [mark, target] : marks_of(targets)) {
      const std::string endpoint = fmt::format("endpoint_{}", ++count_);
      // Each new connection begins the client's time anew; if the map is full the connection is made all the same.
      out_.chains += fmt::format("  chain {} {{\n    update @affinity{} {{ {} timeout {}s : {:#x} }}\n    meta mark set 0\n    meta l4proto {} dnat {} to {}\n  }}\n", endpoint,
                                 digit(family_), key_of_packet(family_), affinity, mark, proto, word(family_), socket(target));
      known += fmt::format("{}{:#x} : goto {}", number == 0 ? "" : ", ", mark, endpoint);
      choices += fmt::format("{}{} : goto {}", number == 0 ? "" : ", ", number, endpoint);
      ++number;
    }
    // A client that is not known has no mark: the first rule ends without one.
    out_.chains += fmt::format("  chain {} {{\n    meta mark set {} map @affinity{}\n    meta mark vmap {{ {} }}\n    numgen random mod {} vmap {{ {} }}\n  }}\n", chain,
                               key_of_packet(family_), digit(family_), known, number, choices);
    return chain;
  }

  void add_port(const Json& spec, const Json& port, const std::string& ip, const Endpoints& endpoints) {
    const auto proto = protocol(port);
    if (!proto || !is_port(port["port"].integer())) return;
    const Targets& inside = spec["internalTrafficPolicy"].string() == "Local" ? endpoints.local() : endpoints.all();
    const bool local = spec["externalTrafficPolicy"].string() == "Local";
    const Targets& outside = local ? endpoints.local() : endpoints.all();
    const std::int64_t affinity = affinity_of(spec), number = port["nodePort"].integer();
    const bool open = (spec["type"].string() == "NodePort" || spec["type"].string() == "LoadBalancer") && is_port(number);
    const std::string where = fmt::format("{} . {} . {}", ip, *proto, port["port"].integer());
    std::string chain;
    if (inside.empty()) {
      out_.deserted.insert(where);
    } else {
      chain = spread(inside, *proto, affinity);
      out_.addresses.insert(where + " : goto " + chain);
      if (affinity > 0) remember(where, inside);
    }
    if (!open) return;
    const std::string at = fmt::format("{} . {}", *proto, number);
    if (outside.empty()) {
      out_.deserted_ports.insert(at);
      return;
    }
    if (chain.empty() || inside != outside) chain = spread(outside, *proto, affinity);
    if (affinity > 0) remember(at, outside);
    if (!local) {
      const std::string entry = fmt::format("port_{}", ++count_);
      out_.chains += fmt::format("  chain {} {{\n    ct mark set {:#x}\n    goto {}\n  }}\n", entry, node_port_mark, chain);
      chain = entry;
    }
    out_.ports.insert(at + " : goto " + chain);
  }

 private:
  // "10.1.0.2 . 80" as dnat takes it.
  std::string socket(const std::string& target) const {
    const std::size_t dot = target.find(" . ");
    const std::string ip = target.substr(0, dot), port = target.substr(dot + 3);
    return family_ == Family::V4 ? fmt::format("{}:{}", ip, port) : fmt::format("[{}]:{}", ip, port);
  }
  void remember(const std::string& at, const Targets& targets) {
    for (const auto& [mark, target] : marks_of(targets)) out_.marks[at].insert(mark);
  }
  ServiceRules& out_;
  Family family_;
  int& count_;
};

}  // namespace

ServiceRules service_rules(const std::vector<Json>& services, const std::vector<Json>& endpoint_slices, const std::string& node_name, Family family, int& chain_count) {
  ServiceRules out;
  const Served served = served_by(endpoint_slices, node_name, family);
  std::map<std::pair<std::string, std::string>, const Json*> sorted;
  for (const Json& service : services) sorted[{kube::space_of(service), kube::name_of(service)}] = &service;
  static const Endpoints nobody;
  Builder builder(out, family, chain_count);
  for (const auto& [key, service] : sorted) {
    const Json& spec = (*service)["spec"];
    const auto ip = cluster_address(spec, family);
    if (!ip) continue;
    const auto endpoints = served.find(key);
    for (const Json& port : spec["ports"].items()) {
      const Endpoints* found = &nobody;
      if (endpoints != served.end())
        if (const auto at = endpoints->second.find(port["name"].string()); at != endpoints->second.end()) found = &at->second;
      builder.add_port(spec, port, *ip, *found);
    }
  }
  return out;
}

Result<std::vector<Session>> parse_sessions(std::string_view text) {
  auto json = kube::parse_json(text);
  if (!json) return pass(std::move(json.error()), "what nft tells of sessions");
  std::vector<Session> out;
  for (const Json& object : (*json)["nftables"].items()) {
    for (const Json& item : object["map"]["elem"].items()) {
      // [{"elem": {"val": {"concat": [client, address, protocol, port]}, "timeout": seconds, "expires": seconds}}, mark]
      if (item.items().size() != 2) continue;
      const Json& element = item.items()[0]["elem"];
      const auto& key = element["val"]["concat"].items();
      const std::int64_t mark = item.items()[1].integer();
      if (key.size() != 4 || mark <= 0 || mark > 0x7fffffff) continue;
      std::string proto = key[2].string();
      if (key[2].is_number()) proto = key[2].integer() == 6 ? "tcp" : key[2].integer() == 17 ? "udp" : key[2].integer() == 132 ? "sctp" : "";
      out.push_back({.client = key[0].string(),
                     .address = key[1].string(),
                     .protocol = std::move(proto),
                     .port = key[3].integer(),
                     .mark = static_cast<std::uint32_t>(mark),
                     .timeout = element["timeout"].integer(),
                     .expires = element["expires"].integer()});
    }
  }
  return out;
}

std::string keep_sessions(const std::vector<Session>& sessions, const ServiceRules& rules, Family family) {
  std::set<std::string> elements;
  for (const Session& one : sessions) {
    const auto client = address(one.client, family), at = address(one.address, family);
    if (!client || !at || one.expires <= 0 || one.timeout < one.expires || one.timeout > longest_affinity) continue;
    auto found = rules.marks.find(fmt::format("{} . {} . {}", *at, one.protocol, one.port));
    if (found == rules.marks.end()) found = rules.marks.find(fmt::format("{} . {}", one.protocol, one.port));
    if (found == rules.marks.end() || !found->second.contains(one.mark)) continue;
    elements.insert(fmt::format("{} . {} . {} . {} timeout {}s expires {}s : {:#x}", *client, *at, one.protocol, one.port, one.timeout, one.expires, one.mark));
  }
  return elements.empty() ? "" : fmt::format("add element inet fairlead affinity{} {{ {} }}\n", digit(family), join(elements));
}

}  // namespace fairlead::node
