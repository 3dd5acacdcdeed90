// SPDX-License-Identifier: Apache-2.0
#include "api/cluster.h"
#include "hyperpod/made_cluster.h"
#include "hyperpod/paging.h"

namespace fairlead::hyperpod {
namespace {

Json event_summary(const Site& site, const Json& cluster, const Json& event) {
  const Json& spec = event["spec"];
  Json out = Json::object({{"EventId", kube::name_of(event)}, {"ClusterArn", cluster_arn(site, cluster)}, {"ClusterName", name_of_entity(cluster)}, {"ResourceType", spec["resourceType"]}, {"EventTime", epoch(parse_time(spec["time"].string()).value_or(created_at(event)))}, {"Description", spec["description"]}, {"EventLevel", spec["level"]}});
  if (spec.has("instanceGroupName")) out.set("InstanceGroupName", spec["instanceGroupName"]);
  if (spec.has("instanceId")) out.set("InstanceId", spec["instanceId"]);
  return out;
}

// Those of this cluster, and of none that had its name before. Events of clusters that CreateCluster did not make: none.
Answer<std::vector<Json>> events_of(const Sources& sources, const Json& cluster) {
  std::vector<Json> out;
  if (!is_made(cluster)) return out;
  auto list = sources.api.list(api::kClusterEvents, api::space_of_cluster(kube::name_of(cluster)));
  if (!list && list.error().code == Code::NotFound) return out;
  if (!list) return std::unexpected(aws_error(list.error(), "read the events of the cluster"));
  for (Json& event : list->items)
    if (event["spec"]["clusterUid"].string() == kube::uid_of(cluster)) out.push_back(std::move(event));
  return out;
}

Answer<Json> list_events(const Sources& sources, const Call& call, const Json& input) {
  const auto cluster = allowed_cluster(sources, call, "ListClusterEvents", input);
  if (!cluster) return cluster;
  const auto events = events_of(sources, *cluster);
  if (!events) return std::unexpected(events.error());
  const std::string &group = input["InstanceGroupName"].string(), &node = input["NodeId"].string(), &type = input["ResourceType"].string();
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < events->size(); ++i) {
    const Json& spec = (*events)[i]["spec"];
    if ((!group.empty() && spec["instanceGroupName"].string() != group) || (!node.empty() && spec["instanceId"].string() != node) || (!type.empty() && spec["resourceType"].string() != type)) continue;
    entries.push_back({.name = kube::name_of((*events)[i]), .id = kube::name_of((*events)[i]), .created = parse_time(spec["time"].string()).value_or(created_at((*events)[i])), .status = {}, .cluster = {}, .at = i});
  }
  // The newest first, as AWS does.
  Json question = input;
  question.erase("SortBy");
  if (!question.has("SortOrder")) question.set("SortOrder", "Descending");
  for (const auto& [theirs, ours] : {std::pair("EventTimeAfter", "CreationTimeAfter"), std::pair("EventTimeBefore", "CreationTimeBefore")})
    if (question.has(theirs)) {
      question.set(ours, question[theirs]);
      question.erase(theirs);
    }
  auto page = page_of(std::move(entries), question, [&](const Entry& entry) { return event_summary(call.site, *cluster, (*events)[entry.at]); });
  if (!page) return std::unexpected(page.error());
  Json out = Json::object({{"Events", std::move(page->items)}});
  if (!page->next.empty()) out.set("NextToken", page->next);
  return out;
}

Answer<Json> describe_event(const Sources& sources, const Call& call, const Json& input) {
  const auto cluster = allowed_cluster(sources, call, "DescribeClusterEvent", input);
  if (!cluster) return cluster;
  const std::string& id = input["EventId"].string();
  const auto not_found = [&] { return refuse("ResourceNotFound", "Event " + id + " not found in cluster " + name_of_entity(*cluster)); };
  if (!is_made(*cluster)) return not_found();
  const auto event = sources.api.get(api::kClusterEvents, {api::space_of_cluster(kube::name_of(*cluster)), id});
  if (!event && event.error().code != Code::NotFound) return std::unexpected(aws_error(event.error(), "read the event"));
  if (!event || (*event)["spec"]["clusterUid"].string() != kube::uid_of(*cluster)) return not_found();
  Json details = event_summary(call.site, *cluster, *event);
  details.set("EventDetails", Json::object({{"EventMetadata", api::event_metadata(*event)}}));
  return Json::object({{"EventDetails", std::move(details)}});
}

}  // namespace

void add_event_operations(Operations& operations, const Sources& sources) {
  operations["ListClusterEvents"] = [sources](const Call& call, const Json& input) { return list_events(sources, call, input); };
  operations["DescribeClusterEvent"] = [sources](const Call& call, const Json& input) { return describe_event(sources, call, input); };
}

}  // namespace fairlead::hyperpod
