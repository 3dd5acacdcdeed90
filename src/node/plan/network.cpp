// SPDX-License-Identifier: Apache-2.0
#include "node/plan/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "api/node_identity.h"
#include "api/pod_identity.h"
#include "base/encoding.h"
#include "kube/object.h"
#include "kube/selector.h"
#include "node/plan/network_text.h"
#include "node/plan/service_rules.h"

namespace fairlead::node {
namespace {
using kube::Json;

// "10.0.0.0/8" or an address.
std::optional<std::string> range(const std::string& text, Family family) {
  const auto slash = text.find('/');
  const auto base = address(text.substr(0, slash), family);
  if (!base || slash == std::string::npos) return base;
  const std::string bits = text.substr(slash + 1);
  if (bits.empty() || bits.size() > 3 || !std::all_of(bits.begin(), bits.end(), [](unsigned char c) { return std::isdigit(c); })) return std::nullopt;
  if (std::atoi(bits.c_str()) > (family == Family::V4 ? 32 : 128)) return std::nullopt;
  return *base + "/" + bits;
}

struct PodInfo {
  std::string space, name;
  Json labels;
  std::vector<std::string> addresses;
  bool here = false;  // on this node
  const Json* object = nullptr;
};

// Which container port of the pod has this name, and the protocol.
std::optional<std::int64_t> named_port(const Json& pod, const std::string& name, const std::string& wanted) {
  for (const char* list : {"containers", "initContainers"})
    for (const Json& container : pod["spec"][list].items())
      for (const Json& port : container["ports"].items())
        if (port["name"].string() == name && protocol(port) == wanted && is_port(port["containerPort"].integer()))
          return port["containerPort"].integer();
  return std::nullopt;
}

bool is_over(const Json& pod) {
  const std::string& phase = pod["status"]["phase"].string();
  return phase == "Succeeded" || phase == "Failed";
}

std::vector<std::string> addresses_of(const Json& pod) {
  std::vector<std::string> out;
  for (const Json& item : pod["status"]["podIPs"].items()) out.push_back(item["ip"].string());
  if (out.empty() && !pod["status"]["podIP"].string().empty()) out.push_back(pod["status"]["podIP"].string());
  return out;
}

class Rules {
 public:
  explicit Rules(const NetworkSeen& seen) : seen_(seen) {
    for (const Json& pod : seen.pods) {
      if (is_over(pod) || pod["spec"]["hostNetwork"].boolean()) continue;
      PodInfo info{.space = kube::space_of(pod),
                   .name = kube::name_of(pod),
                   .labels = pod["metadata"]["labels"],
                   .addresses = addresses_of(pod),
                   .here = pod["spec"]["nodeName"].string() == seen.node_name,
                   .object = &pod};
      if (!info.addresses.empty()) pods_.push_back(std::move(info));
    }
    std::sort(pods_.begin(), pods_.end(), [](const PodInfo& a, const PodInfo& b) { return std::tie(a.space, a.name) < std::tie(b.space, b.name); });
    for (const Json& space : seen.namespaces) namespaces_[kube::name_of(space)] = space["metadata"]["labels"];
  }

  std::string text() {
    for (const Family family : families) {
      services_[family] = service_rules(seen_.services, seen_.endpoint_slices, seen_.node_name, family, chain_count_);
      chains_ += services_[family].chains;
      selves(family);
    }
    host_ports();
    policies();
    std::string out = "table inet fairlead {}\ndelete table inet fairlead\ntable inet fairlead {\n";
    for (const Family family : families) {
      map(out, fmt::format("services{}", digit(family)), fmt::format("type {} . inet_proto . inet_service : verdict", type_of(family)),
          services_[family].addresses);
      set(out, fmt::format("deserted{}", digit(family)), fmt::format("type {} . inet_proto . inet_service", type_of(family)), services_[family].deserted);
      map(out, fmt::format("ports{}", digit(family)), "type inet_proto . inet_service : verdict", services_[family].ports);
      set(out, fmt::format("deserted_ports{}", digit(family)), "type inet_proto . inet_service", services_[family].deserted_ports);
      // Filled by the kernel: which endpoint a client of a service with session affinity goes to.
      if (!services_[family].marks.empty())
        map(out, fmt::format("affinity{}", digit(family)), fmt::format("type {0} . {0} . inet_proto . inet_service : mark\n    size 32768\n    flags dynamic,timeout", type_of(family)), {});
      set(out, fmt::format("self{}", digit(family)), fmt::format("type {0} . {0}", type_of(family)), self_[family]);
      map(out, fmt::format("egress{}", digit(family)), fmt::format("type {} : verdict", type_of(family)), egress_map_[family]);
      map(out, fmt::format("ingress{}", digit(family)), fmt::format("type {} : verdict", type_of(family)), ingress_map_[family]);
      std::set<std::string> own, cluster;
      for (const std::string& one : seen_.own_ranges)
        if (auto r = range(one, family)) own.insert(*r);
      for (const std::string& one : seen_.cluster_ranges)
        if (auto r = range(one, family)) cluster.insert(*r);
      cluster.insert(own.begin(), own.end());
      set(out, fmt::format("own{}", digit(family)), fmt::format("type {}; flags interval; auto-merge", type_of(family)), own);
      set(out, fmt::format("cluster{}", digit(family)), fmt::format("type {}; flags interval; auto-merge", type_of(family)), cluster);
    }
    std::set<std::string> with_role;
    if (seen_.metadata)
      for (const auto& [address, of] : pods_with_role(seen_.pods, seen_.node_name)) with_role.insert(address);
    set(out, "with_role", "type ipv4_addr", with_role);
    const std::string asks_metadata = fmt::format("ip saddr @with_role ip daddr {} tcp dport 80", api::node_identity::metadata_host);
    out += chains_;
    out += "  chain addresses {\n";
    // Tokens of pods go to the node itself, whatever ports and addresses other pods and services ask for.
    out += fmt::format("    ip daddr {{ {}, {} }} return\n", api::node_identity::metadata_host, api::pod_identity::credentials_host);
    for (const Family family : families)
      out += fmt::format("    {0} daddr . meta l4proto . th dport vmap @services{1}\n", word(family), digit(family));
    for (const Family family : families)
      out += fmt::format("    {0} daddr != {1} fib daddr type local meta l4proto . th dport vmap @ports{2}\n", word(family), loopback(family), digit(family));
    out += host_port_rules_;
    out += "  }\n";
    out += "  chain prerouting {\n    type nat hook prerouting priority dstnat; policy accept;\n    jump addresses\n  }\n";
    out += "  chain output {\n    type nat hook output priority -100; policy accept;\n    jump addresses\n  }\n";
    out += "  chain postrouting {\n    type nat hook postrouting priority srcnat; policy accept;\n";
    for (const Family family : families)
      out += fmt::format("    ct status dnat {0} saddr . {0} daddr @self{1} masquerade\n", word(family), digit(family));
    out += fmt::format("    ct status dnat ct mark {:#x} masquerade\n", node_port_mark);
    if (seen_.masquerade)
      for (const Family family : families)
        out += fmt::format("    {0} saddr @own{1} {0} daddr != @cluster{1} fib daddr type unicast masquerade\n", word(family), digit(family));
    out += "  }\n";
    const auto deserted_ports = [&] {
      for (const Family family : families) {
        const std::string match = fmt::format("{0} daddr != {1} fib daddr type local meta l4proto . th dport @deserted_ports{2}", word(family), loopback(family), digit(family));
        out += fmt::format("    {0} meta l4proto tcp reject with tcp reset\n    {0} reject\n", match);
      }
    };
    const auto deserted = [&] {
      for (const Family family : families)
        out += fmt::format(
            "    {0} daddr . meta l4proto . th dport @deserted{1} meta l4proto tcp reject with tcp reset\n    {0} daddr . meta l4proto . th dport "
            "@deserted{1} reject\n",
            word(family), digit(family));
    };
    out += "  chain host_out {\n    type filter hook output priority filter; policy accept;\n";
    deserted();
    deserted_ports();
    out += "  }\n";
    out += "  chain host_in {\n    type filter hook input priority filter; policy accept;\n";
    deserted_ports();
    out += "  }\n";
    // An accept ends one of these chains, not the way of the packet: what may leave its pod is still asked whether it may enter the other.
    // The machine's own rights are not for pods of others: neither what this node answers nor what a cloud does.
    const auto metadata = [&](const char* hook, const char* whose, const char* way) {
      out += fmt::format("  chain metadata_{0} {{\n    type filter hook {0} priority filter - 10; policy accept;\n", hook);
      if (hook == std::string_view("input")) out += "    " + asks_metadata + " accept\n";
      for (const Family family : families) {
        // Some clouds answer names at the same address, to which resolv.conf of their machines leads.
        const std::string match = fmt::format("{0}{1} saddr @{2}{3} {1} daddr {4} meta l4proto", way, word(family), whose, digit(family), family == Family::V4 ? api::node_identity::metadata_host : api::node_identity::metadata_host6);
        out += fmt::format("    {0} {{ tcp, udp }} th dport 53 accept\n    {0} tcp reject with tcp reset\n    {0} != tcp reject\n", match);
      }
      out += "  }\n";
    };
    metadata("input", "cluster", "iifname != \"lo\" ");  // also of pods of other nodes, by a node port
    metadata("forward", "own", "");
    out += "  chain leave {\n    type filter hook forward priority filter - 5; policy accept;\n    ct state established,related accept\n";
    deserted();
    for (const Family family : families) out += fmt::format("    {0} saddr vmap @egress{1}\n", word(family), digit(family));
    out += "  }\n";
    out +=
        "  chain leave_to_node {\n    type filter hook input priority filter - 5; policy accept;\n    ct state established,related accept\n    meta "
        "l4proto "
        "ipv6-icmp accept\n";
    out += "    " + asks_metadata + " accept\n";  // whatever policies say of the world
    // A pod's address of the link alone is in no policy: it is for the kernels' talk about neighbours.
    if (std::any_of(seen_.own_ranges.begin(), seen_.own_ranges.end(), [](const std::string& one) { return range(one, Family::V6).has_value(); }))
      out += "    iifname \"veth*\" ip6 saddr fe80::/10 drop\n";
    for (const std::string& gateway : seen_.own_gateways)
      for (const Family family : families)
        if (auto one = address(gateway, family))
          out += fmt::format("    {} daddr {} meta l4proto {{ tcp, udp }} th dport 53 accept\n", word(family), *one);
    for (const Family family : families) out += fmt::format("    {0} saddr vmap @egress{1}\n", word(family), digit(family));
    out += "  }\n";
    out += "  chain enter {\n    type filter hook forward priority filter; policy accept;\n    ct state established,related accept\n";
    for (const Family family : families) out += fmt::format("    {0} daddr vmap @ingress{1}\n", word(family), digit(family));
    out += "  }\n}\n";
    return out;
  }

 private:
  static void elements(std::string& out, const std::set<std::string>& items) {
    if (!items.empty()) out += "    elements = { " + join(items) + " }\n";
    out += "  }\n";
  }
  static void map(std::string& out, const std::string& name, const std::string& type, const std::set<std::string>& items) {
    out += "  map " + name + " {\n    " + type + "\n";
    elements(out, items);
  }
  static void set(std::string& out, const std::string& name, const std::string& type, const std::set<std::string>& items) {
    out += "  set " + name + " {\n    " + type + "\n";
    elements(out, items);
  }

  // A pod that was sent to itself by a service must not see a packet from itself.
  void selves(Family family) {
    for (const PodInfo& pod : pods_)
      for (const std::string& text : pod.addresses)
        if (auto one = address(text, family); one && pod.here) self_[family].insert(*one + " . " + *one);
  }

  // --- ports of the host
  void host_ports() {
    for (const PodInfo& pod : pods_) {
      if (!pod.here) continue;
      for (const char* list : {"containers", "initContainers"})
        for (const Json& container : (*pod.object)["spec"][list].items())
          for (const Json& port : container["ports"].items()) {
            const auto proto = protocol(port);
            const auto host_port = port["hostPort"].integer(), own_port = port["containerPort"].integer();
            if (!proto || !is_port(host_port) || !is_port(own_port)) continue;
            for (const Family family : families)
              for (const std::string& text : pod.addresses) {
                const auto to = address(text, family);
                if (!to) continue;
                const auto at = address(port["hostIP"].string(), family);
                const bool any = !at || *at == "0.0.0.0" || *at == "::";
                if (!at && !port["hostIP"].string().empty()) continue;
                const std::string where =
                    any ? fmt::format("{} daddr != {} fib daddr type local", word(family), loopback(family))
                        : fmt::format("{} daddr {}", word(family), *at);
                host_port_rules_ += fmt::format("    {} {} dport {} dnat {} to {}\n", where, *proto, host_port, word(family),
                                                family == Family::V4 ? fmt::format("{}:{}", *to, own_port) : fmt::format("[{}]:{}", *to, own_port));
                break;
              }
          }
    }
  }

  // --- policies
  bool selects(const Json& selector, const Json& labels) const {
    auto parsed = kube::LabelSelector::from_object(selector);
    return parsed && parsed->matches(labels.is_null() ? Json::object() : labels);
  }

  // The pods that a peer means; `blocks`: its address ranges as matches.
  std::vector<const PodInfo*> peers(const Json& peer, const std::string& space) const {
    std::vector<const PodInfo*> out;
    const Json &by_pod = peer["podSelector"], &by_space = peer["namespaceSelector"];
    if (!by_pod.is_object() && !by_space.is_object()) return out;
    for (const PodInfo& pod : pods_) {
      if (by_space.is_object()) {
        const auto it = namespaces_.find(pod.space);
        if (it == namespaces_.end() || !selects(by_space, it->second)) continue;
      } else if (pod.space != space) {
        continue;
      }
      if (!by_pod.is_object() || selects(by_pod, pod.labels)) out.push_back(&pod);
    }
    return out;
  }

  // What follows an address match: "" for any port, else "tcp dport 80", ...; `pod` gives the numbers of named ports.
  std::vector<std::string> ports(const Json& rule, const Json* pod) const {
    std::vector<std::string> out;
    if (rule["ports"].items().empty()) return {""};
    for (const Json& port : rule["ports"].items()) {
      const auto proto = protocol(port);
      if (!proto) continue;
      const Json& number = port["port"];
      if (number.is_null()) {
        out.push_back("meta l4proto " + *proto);
      } else if (number.is_string()) {
        const auto known = pod != nullptr ? named_port(*pod, number.string(), *proto) : std::nullopt;
        if (known) out.push_back(fmt::format("{} dport {}", *proto, *known));
      } else if (is_port(number.integer())) {
        const auto last = port["endPort"].integer(number.integer());
        if (!is_port(last) || last < number.integer()) continue;
        out.push_back(last == number.integer() ? fmt::format("{} dport {}", *proto, last)
                                               : fmt::format("{} dport {}-{}", *proto, number.integer(), last));
      }
    }
    return out;
  }

  static bool has_named_ports(const Json& rule) {
    const auto& list = rule["ports"].items();
    return std::any_of(list.begin(), list.end(), [](const Json& port) { return port["port"].is_string(); });
  }

  std::string rules_of(const Json& policy, const char* direction, const PodInfo& pod, Family family) const {
    const bool in = direction == std::string_view("ingress");
    const std::string field = fmt::format("{} {}", word(family), in ? "saddr" : "daddr");
    std::string out;
    const auto allow = [&](const std::string& from, const std::vector<std::string>& to) {
      for (const std::string& port : to) out += fmt::format("    {}{}{}{}accept\n", from, from.empty() ? "" : " ", port, port.empty() ? "" : " ");
    };
    for (const Json& rule : policy["spec"][direction].items()) {
      const auto& list = rule[in ? "from" : "to"].items();
      const Json* own = in ? pod.object : nullptr;
      if (list.empty()) {
        allow("", ports(rule, own));
        // A named port of a peer that may be anybody: of every pod that has it.
        if (!in && has_named_ports(rule))
          for (const PodInfo& other : pods_) allow_peer(other, rule, field, family, allow);
        continue;
      }
      for (const Json& peer : list) {
        if (const Json& block = peer["ipBlock"]; block.is_object()) {
          const auto base = range(block["cidr"].string(), family);
          if (!base) continue;
          std::set<std::string> except;
          for (const Json& item : block["except"].items())
            if (auto one = range(item.string(), family)) except.insert(*one);
          allow(field + " " + *base + (except.empty() ? "" : fmt::format(" {} != {{ {} }}", field, join(except))), ports(rule, own));
          continue;
        }
        const auto found = peers(peer, kube::space_of(policy));
        if (!in && has_named_ports(rule)) {
          for (const PodInfo* other : found) allow_peer(*other, rule, field, family, allow);
          continue;
        }
        std::set<std::string> addresses;
        for (const PodInfo* other : found)
          for (const std::string& text : other->addresses)
            if (auto one = address(text, family)) addresses.insert(*one);
        if (!addresses.empty()) allow(fmt::format("{} {{ {} }}", field, join(addresses)), ports(rule, own));
      }
    }
    return out;
  }

  template <class Allow>
  void allow_peer(const PodInfo& other, const Json& rule, const std::string& field, Family family, const Allow& allow) const {
    for (const std::string& text : other.addresses)
      if (auto one = address(text, family)) allow(field + " " + *one, ports(rule, other.object));
  }

  void policies() {
    std::map<std::pair<std::string, std::string>, const Json*> sorted;
    for (const Json& policy : seen_.policies) sorted[{kube::space_of(policy), kube::name_of(policy)}] = &policy;
    for (const PodInfo& pod : pods_) {
      if (!pod.here) continue;
      for (const char* direction : {"ingress", "egress"}) {
        const char* type = direction == std::string_view("ingress") ? "Ingress" : "Egress";
        std::vector<const Json*> own;
        for (const auto& [key, policy] : sorted) {
          if (key.first != pod.space || !selects((*policy)["spec"]["podSelector"], pod.labels)) continue;
          const auto& types = (*policy)["spec"]["policyTypes"].items();
          // Kubernetes: without a list Ingress counts, and Egress if there are rules for it.
          const bool counts = types.empty() ? type == std::string_view("Ingress") || !(*policy)["spec"]["egress"].items().empty()
                                            : std::any_of(types.begin(), types.end(), [&](const Json& one) { return one.string() == type; });
          if (counts) own.push_back(policy);
        }
        if (own.empty()) continue;
        for (const Family family : families)
          for (const std::string& text : pod.addresses) {
            const auto one = address(text, family);
            if (!one) continue;
            const std::string chain = fmt::format("{}_{}", direction, ++chain_count_);
            chains_ += fmt::format("  chain {} {{\n    {} {} {} accept\n", chain, word(family),
                                   type == std::string_view("Ingress") ? "saddr" : "daddr", *one);
            for (const Json* policy : own) chains_ += rules_of(*policy, direction, pod, family);
            // Not dropped: who is not let in shall know at once, and not wait.
            chains_ += "    meta l4proto tcp reject with tcp reset\n    reject with icmpx admin-prohibited\n  }\n";
            (type == std::string_view("Ingress") ? ingress_map_ : egress_map_)[family].insert(*one + " : jump " + chain);
          }
      }
    }
  }

  const NetworkSeen& seen_;
  std::vector<PodInfo> pods_;
  std::map<std::string, Json> namespaces_;
  std::map<Family, ServiceRules> services_;
  std::map<Family, std::set<std::string>> self_, egress_map_, ingress_map_;
  std::string chains_, host_port_rules_;
  int chain_count_ = 0;
};

}  // namespace

std::string network_rules(const NetworkSeen& seen) { return Rules(seen).text(); }

std::map<std::string, std::string> pods_with_role(const std::vector<Json>& pods, const std::string& node_name) {
  std::map<std::string, std::string> out;
  for (const Json& pod : pods) {
    if (pod["spec"]["nodeName"].string() != node_name || pod["spec"]["hostNetwork"].boolean() || is_over(pod) || pod["metadata"]["annotations"][api::node_identity::pods_note].string() != "true") continue;
    for (const Json& owner : pod["metadata"]["ownerReferences"].items()) {
      if (!owner["controller"].boolean() || owner["kind"].string() != kube::resources::slurm_clusters.kind || owner["apiVersion"].string() != kube::resources::slurm_clusters.api_version()) continue;
      for (const std::string& text : addresses_of(pod))
        if (const auto one = address(text, Family::V4)) out.emplace(*one, kube::space_of(pod) + "/" + owner["name"].string());
    }
  }
  return out;
}

std::string keep_sessions(const NetworkSeen& seen, const std::vector<Session>& sessions) {
  std::string out;
  int count = 0;
  for (const Family family : families)
    out += keep_sessions(sessions, service_rules(seen.services, seen.endpoint_slices, seen.node_name, family, count), family);
  return out;
}

}  // namespace fairlead::node
