// SPDX-License-Identifier: Apache-2.0
#include "apiserver/endpoints_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "apiserver/kinds/resources.h"
#include "kube/object.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::size_t most_endpoints = 100;

bool is_six(const std::string& address) { return address.find(':') != std::string::npos; }

// The address of the pod in this family; empty: none.
std::string address_of(const Json& pod, bool six) {
  for (const Json& one : pod["status"]["podIPs"].items())
    if (const std::string& ip = one["ip"].string(); !ip.empty() && is_six(ip) == six) return ip;
  const std::string& ip = pod["status"]["podIP"].string();
  return !ip.empty() && is_six(ip) == six ? ip : std::string();
}

// The number behind a target port; 0: the pod has no port of that name.
std::int64_t resolve(const Json& port, const Json& pod) {
  const Json& target = port["targetPort"];
  if (target.is_number()) return target.integer();
  if (target.string().empty()) return port["port"].integer();
  for (const char* list : {"containers", "initContainers"})
    for (const Json& container : pod["spec"][list].items())
      for (const Json& one : container["ports"].items())
        if (one["name"].string() == target.string() && one["protocol"].string_or("TCP") == port["protocol"].string_or("TCP")) return one["containerPort"].integer();
  return 0;
}

Json ports_of(const Json& service, const Json& pod) {
  Json out = Json::array();
  for (const Json& port : service["spec"]["ports"].items()) {
    const std::int64_t number = resolve(port, pod);
    if (number == 0) continue;
    Json made = Json::object({{"name", port["name"].string()}, {"protocol", port["protocol"].string_or("TCP")}, {"port", number}});
    if (port.has("appProtocol")) made.set("appProtocol", port["appProtocol"]);
    out.push(std::move(made));
  }
  return out;
}

Json endpoint_of(const Json& service, const Json& pod, const std::string& address) {
  const bool serving = kube::condition_is_true(pod, "Ready"), terminating = kube::deleting(pod);
  const bool ready = service["spec"]["publishNotReadyAddresses"].boolean() || (serving && !terminating);
  Json out = Json::object({{"addresses", Json::array({address})}, {"conditions", Json::object({{"ready", ready}, {"serving", serving}, {"terminating", terminating}})}});
  const std::string& host = pod["spec"]["hostname"].string();
  if (!host.empty() && pod["spec"]["subdomain"].string() == kube::name_of(service)) out.set("hostname", host);
  out.set("targetRef", Json::object({{"kind", "Pod"}, {"namespace", kube::space_of(pod)}, {"name", kube::name_of(pod)}, {"uid", kube::uid_of(pod)}}));
  if (const std::string& node = pod["spec"]["nodeName"].string(); !node.empty()) out.set("nodeName", node);
  return out;
}

Json labels_for(const Json& service) {
  Json labels = service["metadata"]["labels"].is_object() ? service["metadata"]["labels"] : Json::object();
  labels.set(workloads::slice_service_label, kube::name_of(service));
  labels.set(workloads::slice_manager_label, workloads::slice_manager);
  if (service["spec"]["clusterIP"].string() == "None") labels.set("service.kubernetes.io/headless", "");
  else labels.erase("service.kubernetes.io/headless");
  return labels;
}

struct Group {
  Json ports = Json::array();
  std::map<std::string, Json> endpoints;  // by the pod's uid
};

// One family of addresses.
void plan_family(const Json& service, const std::string& type, std::map<std::string, Group> groups, std::vector<const Json*> slices, SlicePlan& plan) {
  if (groups.empty()) groups[""];  // a service without endpoints has one empty slice, which tells that somebody looked
  const Json labels = labels_for(service);
  std::sort(slices.begin(), slices.end(), [](const Json* a, const Json* b) { return kube::name_of(*a) < kube::name_of(*b); });
  const auto made = [&](const Group& group, std::vector<Json> endpoints) {
    return Json::object({{"apiVersion", "discovery.k8s.io/v1"}, {"kind", "EndpointSlice"},
                         {"metadata", Json::object({{"generateName", kube::name_of(service) + "-"}, {"namespace", kube::space_of(service)}, {"labels", labels},
                                                    {"ownerReferences", Json::array({kube::owner_reference(service)})}})},
                         {"addressType", type}, {"endpoints", Json::array(std::move(endpoints))}, {"ports", group.ports}});
  };
  std::set<const Json*> used;
  for (auto& [key, group] : groups) {
    std::vector<std::pair<const Json*, std::vector<Json>>> kept;
    // Who is in a slice stays there.
    for (const Json* slice : slices) {
      if (used.contains(slice) || !((*slice)["ports"] == group.ports || ((*slice)["ports"].items().empty() && group.ports.items().empty()))) continue;
      used.insert(slice);
      std::vector<Json> endpoints;
      for (const Json& old : (*slice)["endpoints"].items()) {
        auto now = group.endpoints.extract(old["targetRef"]["uid"].string());
        if (!now.empty()) endpoints.push_back(std::move(now.mapped()));
      }
      kept.emplace_back(slice, std::move(endpoints));
    }
    for (auto& [slice, endpoints] : kept) {
      while (endpoints.size() < most_endpoints && !group.endpoints.empty()) {
        endpoints.push_back(std::move(group.endpoints.begin()->second));
        group.endpoints.erase(group.endpoints.begin());
      }
    }
    bool any = std::any_of(kept.begin(), kept.end(), [](const auto& one) { return !one.second.empty(); });
    for (auto& [slice, endpoints] : kept) {
      if (endpoints.empty() && any) {
        plan.remove.push_back(kube::name_of(*slice));
        continue;
      }
      any = true;  // of several empty ones the first stays
      Json next = *slice;
      next.set("endpoints", Json::array(std::move(endpoints)));
      next.child("metadata").set("labels", labels);
      Json before = *slice;
      if (before["endpoints"].is_null()) before.set("endpoints", Json::array());
      if (!(next == before)) plan.update.push_back(std::move(next));
    }
    while (!group.endpoints.empty() || (kept.empty() && !any)) {
      std::vector<Json> endpoints;
      while (endpoints.size() < most_endpoints && !group.endpoints.empty()) {
        endpoints.push_back(std::move(group.endpoints.begin()->second));
        group.endpoints.erase(group.endpoints.begin());
      }
      plan.create.push_back(made(group, std::move(endpoints)));
      any = true;
    }
  }
  for (const Json* slice : slices)
    if (!used.contains(slice)) plan.remove.push_back(kube::name_of(*slice));
}

}  // namespace

SlicePlan plan_slices(const Json& service, const std::vector<Json>& pods, const std::vector<Json>& slices) {
  SlicePlan plan;
  std::set<std::string> families;
  for (const Json& family : service["spec"]["ipFamilies"].items()) families.insert(family.string());
  if (families.empty()) families.insert("IPv4");
  for (const std::string& type : families) {
    std::map<std::string, Group> groups;  // by ports
    for (const Json& pod : pods) {
      const std::string& phase = pod["status"]["phase"].string();
      const std::string address = address_of(pod, type == "IPv6");
      if (address.empty() || phase == "Succeeded" || phase == "Failed") continue;
      Json ports = ports_of(service, pod);
      Group& group = groups[kube::print_json(ports)];
      group.ports = std::move(ports);
      group.endpoints.emplace(kube::uid_of(pod), endpoint_of(service, pod, address));
    }
    std::vector<const Json*> of_family;
    for (const Json& slice : slices)
      if (slice["addressType"].string() == type) of_family.push_back(&slice);
    plan_family(service, type, std::move(groups), std::move(of_family), plan);
  }
  for (const Json& slice : slices)
    if (!families.contains(slice["addressType"].string())) plan.remove.push_back(kube::name_of(slice));
  return plan;
}

}  // namespace fairlead::apiserver
