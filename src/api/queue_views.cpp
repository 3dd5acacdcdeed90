// SPDX-License-Identifier: Apache-2.0
#include "api/queue_views.h"

#include <algorithm>

namespace fairlead::api {
namespace {

using kube::Json;

const Json* find_node(const Json& nodes, const std::string& name) {
  // Queues before cohorts: where both have the name, the queue is meant more often, and the cohort's tree shows it anyway.
  const Json* cohort = nullptr;
  for (const Json& node : nodes.items()) {
    const bool queue = node["kind"].string() == "ClusterQueue";
    if (queue && (node["name"].string() == name || node["team"].string() == name)) return &node;
    if (const Json* below = find_node(node["children"], name)) {
      if ((*below)["kind"].string() == "ClusterQueue") return below;
      cohort = below;
    }
    if (!queue && node["name"].string() == name) cohort = &node;
  }
  return cohort;
}

}  // namespace

Json part_of_quotas(const Json& view, const std::string& name) {
  if (name.empty()) return view;
  const Json* node = find_node(view["tree"], name);
  return node == nullptr ? Json() : Json::object({{"tree", Json::array({*node})}});
}

Json part_of_queue(const Json& view, const QueueFilter& filter) {
  Json out = Json::array();
  for (const Json& one : view["workloads"].items()) {
    const std::string& state = one["state"].string();
    if (!filter.all && (state == "Running" || state == "Stopping")) continue;
    if (!filter.space.empty() && one["namespace"].string() != filter.space) continue;
    if (!filter.queue.empty() && one["queue"].string() != filter.queue && one["localQueue"].string() != filter.queue && one["queue"].string() != "hyperpod-ns-" + filter.queue + "-clusterqueue") continue;
    out.push(one);
  }
  return Json::object({{"workloads", std::move(out)}});
}

bool places_matter(const std::vector<Json>& objects) {
  return std::any_of(objects.begin(), objects.end(), [](const Json& one) { return one["kind"].string() == "ResourceFlavor" && !one["spec"]["topologyName"].string().empty(); });
}

}  // namespace fairlead::api
