// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/eventbridge.h"

#include <vector>

#include "api/cluster.h"
#include "base/encoding.h"

namespace fairlead::notify {

using kube::Json;

namespace {

std::int64_t milliseconds(Instant time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count(); }

Json with(Json out, const Json& from, std::initializer_list<std::pair<const char*, const char*>> names) {
  for (const auto& [name, member] : names)
    if (from.has(name)) out.set(member, from[name]);
  return out;
}

Json state_change(const Json& event, const Json& cluster, const api::Cluster& of) {
  const Json spec = api::spec_in_force(cluster);
  const Json& status = cluster["status"];
  Json groups = Json::array();
  for (const Json& group : spec["instanceGroups"].items()) {
    Json told = with(Json::object(), group, {{"instanceGroupName", "InstanceGroupName"}, {"instanceType", "InstanceType"}, {"executionRole", "ExecutionRole"}, {"threadsPerCore", "ThreadsPerCore"}, {"onStartDeepHealthChecks", "OnStartDeepHealthChecks"}});
    told.set("CurrentCount", 0).set("TargetCount", group["instanceCount"]);
    if (group["lifeCycleConfig"].is_object()) told.set("LifeCycleConfig", with(Json::object(), group["lifeCycleConfig"], {{"sourceS3Uri", "SourceS3Uri"}, {"onCreate", "OnCreate"}, {"onInitComplete", "OnInitComplete"}}));
    for (const Json& now : status["instanceGroups"].items())
      if (now["instanceGroupName"] == group["instanceGroupName"]) told.set("CurrentCount", now["current"].integer()).set("Status", now["status"]);
    groups.push(std::move(told));
  }
  Json out = Json::object({{"ClusterArn", of.arn}, {"ClusterName", of.title}, {"ClusterStatus", event["spec"]["metadata"]["clusterStatus"]}});
  if (const auto made = parse_time(cluster["metadata"]["creationTimestamp"].string())) out.set("CreationTime", milliseconds(*made));
  out.set("FailureMessage", event["spec"]["metadata"]["failureMessage"].string()).set("InstanceGroups", std::move(groups)).set("NodeRecovery", spec["nodeRecovery"].string_or("Automatic"));
  if (const Json& eks = spec["orchestrator"]["eks"]; eks.is_object()) out.set("Orchestrator", Json::object({{"Eks", with(Json::object(), eks, {{"clusterArn", "ClusterArn"}})}}));
  else out.set("Orchestrator", Json::object({{"Slurm", Json::object()}}));
  if (spec["vpcConfig"].is_object()) out.set("VpcConfig", with(Json::object(), spec["vpcConfig"], {{"securityGroupIds", "SecurityGroupIds"}, {"subnets", "Subnets"}}));
  return out;
}

// What was found, and what is done about it; null: nothing was.
Json health(const Json& event, bool recovers) {
  const Json &spec = event["spec"], &metadata = spec["metadata"];
  const std::string &kind = spec["kind"].string(), &action = metadata["repairAction"].string(), &failure = metadata["failureMessage"].string();
  const auto summary = [](const char* status, const std::string& reason, const std::string& repair, const char* recommendation) { return Json::object({{"HealthStatus", status}, {"HealthStatusReason", reason}, {"RepairAction", repair}, {"Recommendation", recommendation}}); };
  const std::string& words = failure.empty() ? spec["description"].string() : failure;
  if (!action.empty()) return summary("Unhealthy", metadata["healthReason"].string_or(spec["description"].string()), action, action == "Reboot" ? "None: it is rebooted once it is empty" : "None: it is replaced, once it is empty");
  if (kind == "DeepHealthCheckFailed") return summary("Unhealthy", words, recovers ? "Replace" : "None", recovers ? "None: it is replaced" : "Replace the instance (BatchReplaceClusterNodes)");
  if (kind == "InstanceNotReady") return summary("Unhealthy", words, "None", "Look at its machine; if it does not come back, replace the instance (BatchReplaceClusterNodes)");
  if (kind == "DeepHealthCheckPassed" || kind == "InstanceReady") return summary("Healthy", spec["description"].string(), "None", "None");
  return Json();
}

}  // namespace

std::optional<Event> eventbridge_event(DetailType type, const Json& object, const Json& cluster) {
  const Json& spec = object["spec"];
  const api::Cluster of = api::read_cluster(cluster);
  const std::string form = type == DetailType::ClusterEvent ? "" : "/" + std::string(text(type));
  Event out{.id = "evt-" + hex(sha256(kube::uid_of(object) + "/" + kube::name_of(object) + form)).substr(0, 32), .type = EventType::ClusterEvent, .space = kube::space_of(object), .cluster = of.title, .cluster_uid = of.uid};
  out.time = parse_time(spec["time"].string()).value_or(Instant());
  out.cause = spec["metadata"]["failureMessage"].string();
  Json detail;
  const char* name = "SageMaker HyperPod Cluster Event";
  switch (type) {
    case DetailType::ClusterEvent: {
      Json details = Json::object({{"EventId", kube::name_of(object)}, {"ClusterArn", of.arn}, {"ClusterName", of.title}, {"ResourceType", spec["resourceType"]}, {"EventTime", print_time(out.time)}, {"Description", spec["description"]}, {"EventLevel", spec["level"]}});
      details = with(std::move(details), spec, {{"instanceGroupName", "InstanceGroupName"}, {"instanceId", "InstanceId"}});
      details.set("EventDetails", Json::object({{"EventMetadata", api::event_metadata(object)}}));
      detail = Json::object({{"EventDetails", std::move(details)}});
      break;
    }
    case DetailType::StateChange:
      if (spec["kind"].string() != "ClusterStatus" || !spec["metadata"].has("clusterStatus")) return std::nullopt;
      detail = state_change(object, cluster, of);
      name = "SageMaker HyperPod Cluster State Change";
      break;
    case DetailType::NodeHealth: {
      Json summary = spec.has("instanceId") ? health(object, of.recovers) : Json();
      if (summary.is_null()) return std::nullopt;
      out.cause = summary["HealthStatusReason"].string();
      detail = Json::object({{"ClusterName", of.title}, {"ClusterArn", of.arn}, {"InstanceId", spec["instanceId"]}, {"HealthSummary", std::move(summary)}});
      name = "SageMaker HyperPod Cluster Node Health Event";
      break;
    }
  }
  // arn:aws:sagemaker:REGION:ACCOUNT:cluster/ID; one that was applied as a file has none.
  const std::vector<std::string> parts = split(of.arn, ':');
  Json resources = Json::array();
  if (!of.arn.empty()) resources.push(of.arn);
  out.envelope = Json::object({{"version", "0"}, {"id", uuid_of(out.id)}, {"detail-type", name}, {"source", "aws.sagemaker"}, {"account", parts.size() > 4 ? parts[4] : ""}, {"time", print_time(out.time)}, {"region", parts.size() > 3 ? parts[3] : ""}, {"resources", std::move(resources)}, {"detail", std::move(detail)}});
  return out;
}

}  // namespace fairlead::notify
