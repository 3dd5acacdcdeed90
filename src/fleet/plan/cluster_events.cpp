// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/encoding.h"

namespace fairlead::fleet {

using kube::Json;

bool lacks_machines(const Json& group) { return group["message"].string().find(": no machine of type ") != std::string::npos; }

namespace {

constexpr std::size_t kByName = 20;         // instances of a group in one round, of what goes well
constexpr std::size_t kMostWords = 2000;    // bytes of a failure

// In the form of a UUID, as the API has them.
std::string event_id(const std::string& what) {
  const std::string all = hex(sha256(what));
  return fmt::format("{}-{}-{}-{}-{}", all.substr(0, 8), all.substr(8, 4), all.substr(12, 4), all.substr(16, 4), all.substr(20, 12));
}

class Teller {
 public:
  Teller(const Json& cluster, const Json& status, Instant now) : cluster_(cluster), before_(cluster["status"]), after_(status), now_(print_time(now)), generation_(std::to_string(cluster["metadata"]["generation"].integer())) {}

  void tell_cluster() {
    const std::string &was = before_["phase"].string(), &is = after_["phase"].string();
    if (is.empty() || was == is) return;
    const bool bad = is == "Failed" || is == "RollingBack";
    const std::string& why = after_["message"].string();
    Json& event = add("Cluster", bad ? "Error" : "Info", "ClusterStatus", {generation_, was, is, before_["phaseSince"].string()}, was.empty() ? fmt::format("The cluster is {}", is) : fmt::format("The cluster was {} and is {}", was, is));
    event.child("spec").child("metadata").set("clusterStatus", is);
    if (bad) fail(event, why);
  }

  // What Slurm runs with, and what it does not take.
  void tell_slurm() {
    constexpr std::string_view refusal = "Slurm: ";
    const std::string &was = before_["message"].string(), &is = after_["message"].string();
    if (is.starts_with(refusal) && is != was) fail(add("Cluster", "Error", "SlurmConfigRefused", {generation_, is}, "The configuration of Slurm is not applied"), is.substr(refusal.size()));
    const std::string& hash = after_["slurmConfigHash"].string();
    if (hash.empty() || hash == before_["slurmConfigHash"].string()) return;
    add("Cluster", "Info", "SlurmConfigApplied", {hash, before_["slurmConfigHash"].string()}, "Slurm has the cluster's configuration");
  }

  void tell_software() {
    const Json &was = before_["softwareUpdate"], &is = after_["softwareUpdate"];
    if (!is.is_object() || is == was) return;
    const std::string &id = is["id"].string(), &phase = is["phase"].string();
    if (was["id"].string() == id && was["phase"].string() == phase) return;
    if (phase == "InProgress") add("Cluster", "Info", "SoftwareUpdateStarted", {id}, "The software of the cluster is updated");
    if (phase == "Succeeded") add("Cluster", "Info", "SoftwareUpdateCompleted", {id}, "The software of the cluster was updated");
    if (phase == "RollbackInProgress") fail(add("Cluster", "Warn", "SoftwareUpdateRollbackStarted", {id}, "The software of the cluster goes back to what it was"), is["reason"].string());
    if (phase == "RollbackComplete") fail(add("Cluster", "Warn", "SoftwareUpdateRollbackCompleted", {id}, "The software of the cluster is what it was before the update"), is["reason"].string());
    if (phase == "Failed") fail(add("Cluster", "Error", "SoftwareUpdateFailed", {id}, "The software of the cluster was not updated as a whole"), is["message"].string());
  }

  void tell_groups() {
    for (const Json& group : after_["instanceGroups"].items()) {
      const std::string& name = group["instanceGroupName"].string();
      const Json& was = group_of(before_, name);
      const auto target = group["target"].integer(), current = group["current"].integer();
      const std::string counts = fmt::format("{}/{}/{}/{}", group["issued"].integer(), group["retired"].string(), target, current);
      const auto scaling = [&](Json& event) {
        Json& metadata = event.child("spec").child("metadata").set("instanceCount", current).set("targetCount", target);
        if (const std::int64_t least = least_of(name); least > 0) metadata.set("minCount", least);
      };
      if (was.is_null() || was["target"].integer() != target) {
        Json& event = add("InstanceGroup", "Info", "ScalingStarted", {name, generation_, fmt::format("{}/{}", group["issued"].integer(), target)}, fmt::format("Group {} is to have {} instances; {} run", name, target, current));
        event.child("spec").set("instanceGroupName", name);
        scaling(event);
      }
      const bool lacked = was.is_null() || was["current"].integer() != was["target"].integer() || was["target"].integer() != target;
      if (lacked && current == target && target > 0) {
        Json& event = add("InstanceGroup", "Info", "ScalingCompleted", {name, counts}, fmt::format("Group {} has its {} instances", name, target));
        event.child("spec").set("instanceGroupName", name);
        scaling(event);
      }
      if (const std::int64_t least = least_of(name); least > 0 && current >= least && was["current"].integer() < least) {
        Json& event = add("InstanceGroup", "Info", "MinCountReached", {name, counts, fmt::format("{}", least)}, fmt::format("Group {} has {} instances, and {} at least are asked for", name, current, least));
        event.child("spec").set("instanceGroupName", name);
        scaling(event);
      }
      if (const std::string& reservation = group["reservation"].string(); !reservation.empty() && reservation != was["reservation"].string()) {
        const bool found = reservation == "InForce";
        Json& event = add("InstanceGroup", found ? "Info" : "Warn", found ? "CapacityReservationFound" : "CapacityReservationMissing", {name, generation_, was["since"].string()}, fmt::format("Group {} {}", name, found ? "has its training plan" : "does without its training plan"));
        event.child("spec").set("instanceGroupName", name);
        if (!found) fail(event, group["message"].string());
      }
      if (const Json& minimum = group["minimum"]; minimum.has("rolledBack") && !was["minimum"].has("rolledBack")) {
        Json& event = add("InstanceGroup", "Error", "MinCountRolledBack", {name, minimum["rolledBack"].string()}, fmt::format("Group {} goes back to {} instances", name, minimum["good"].integer()));
        event.child("spec").set("instanceGroupName", name);
        scaling(event);
        fail(event, lacks_machines(group) ? minimum["message"].string() + "; " + group["message"].string() : minimum["message"].string());
      }
      if (group["status"].string() == "Deleted" && !was.is_null() && was["status"].string() != "Deleted") add("InstanceGroup", "Info", "Deleted", {name, generation_}, fmt::format("Group {} is gone", name)).child("spec").set("instanceGroupName", name);
      const std::string& message = group["message"].string();
      if (lacks_machines(group) && !lacks_machines(was)) {
        Json& event = add("InstanceGroup", "Warn", "CapacityMissing", {name, generation_, counts, was["since"].string()}, fmt::format("Group {} waits for machines", name));
        event.child("spec").set("instanceGroupName", name);
        fail(event, message);
      }
    }
  }

  void tell_instance(const InstanceChange& change) {
    static const Json none;
    const Json &object = *change.object, &was = object["status"], &is = change.status == nullptr ? none : *change.status, &spec = object["spec"];
    const std::string &id = kube::name_of(object), &group = spec["instanceGroupName"].string();
    const auto about = [&](const char* level, const char* kind, std::vector<std::string> parts, std::string words) -> Json& {
      parts.insert(parts.begin(), kube::uid_of(object).empty() ? id : kube::uid_of(object));
      Json& event = add("Instance", level, kind, parts, std::move(words));
      Json& to = event.child("spec");
      to.set("instanceGroupName", group).set("instanceId", id).set("nodeLogicalId", spec["nodeLogicalId"]);
      return event;
    };
    if (change.status == nullptr) {
      if (named(group, "InstanceTerminated", id)) about("Info", "InstanceTerminated", {}, fmt::format("Instance {} of group {} is gone", id, group));
      return;
    }
    bool script_failed = false;
    for (const char* const stage : {"onCreate", "onInitComplete"}) {
      const Json& record = is["lifecycle"][stage];
      if (record.is_null() || !was["lifecycle"][stage].is_null()) continue;
      const bool good = record["phase"].string() == "Succeeded";
      script_failed = script_failed || !good;
      const std::string name = stage == std::string_view("onCreate") ? "OnCreate" : "OnInitComplete";
      if (good && !named(group, "LifecycleScript", id)) continue;
      std::vector<std::string> parts{stage};
      if (const std::string& update = is["software"]["id"].string(); !update.empty()) parts.push_back(update);
      Json& event = about(good ? "Info" : "Error", "LifecycleScript", std::move(parts), fmt::format("Lifecycle script {} of instance {} of group {} {}", name, id, group, good ? "has run" : fmt::format("failed with exit status {}", record["exitCode"].integer())));
      event.child("spec").child("metadata").set("lcsExecutionState", record["phase"]);
      if (!good) fail(event, record["message"].string());
    }
    const std::string &phase_was = was["phase"].string(), &phase = is["phase"].string();
    const std::string& since = was["phaseSince"].string();  // what it stops being now it was since then
    const Json &software = is["software"], &software_was = was["software"];
    const std::string& software_stage = software["stage"].string();
    const bool updated = software_stage == "Done" && software_was["stage"].string() != "Done";
    if (software_stage != software_was["stage"].string()) {
      const std::string& update = software["id"].string();
      const bool back = update.ends_with(api::SoftwareUpdate::kBack);
      const char *const starts = back ? "SoftwareUpdateRollbackStarted" : "SoftwareUpdateStarted", *const ends = back ? "SoftwareUpdateRollbackCompleted" : "SoftwareUpdateCompleted";
      if (software_stage == "Emptying" && named(group, starts, id)) about("Info", starts, {update}, fmt::format("Instance {} of group {} is {} when it is empty", id, group, back ? "given the software of before" : "updated"));
      if (updated && named(group, ends, id)) about("Info", ends, {update}, fmt::format("Instance {} of group {} {}", id, group, back ? "has the software of before" : "was updated"));
    }
    if (!updated && is.has("runningSince") && !was.has("runningSince")) {
      if (named(group, "InstanceProvisioned", id)) about("Info", "InstanceProvisioned", {}, fmt::format("Instance {} of group {} runs on node {}", id, group, is["node"].string()));
      if (!spec["replaces"].string().empty() && named(group, "ReplaceCompleted", id)) about("Info", "ReplaceCompleted", {}, fmt::format("Instance {} of group {} runs in the place of one that was replaced", id, group));
    } else if (!updated && phase == "Running" && !phase_was.empty() && phase_was != "Running") {
      if (named(group, "InstanceReady", id)) about("Info", "InstanceReady", {since}, fmt::format("Instance {} of group {} runs again", id, group));
    }
    if (phase == "Pending" && phase_was == "Running" && is["reboot"]["stage"].string() != "Emptying" && is["reboot"]["stage"].string() != "Rebooting") fail(about("Warn", "InstanceNotReady", {since}, fmt::format("Instance {} of group {} does not run", id, group)), is["message"].string());
    if (phase == "Failure" && phase_was != "Failure" && !script_failed && is["healthCheck"]["stage"].string() != "Failed") fail(about("Error", "InstanceFailed", {since}, fmt::format("Instance {} of group {} has failed", id, group)), is["message"].string());
    // By whom its health asks, cluster_health.cpp.
    const auto of_health = [&](Json& event, const Json& request, const char* action) {
      if (const std::string& asked = request["id"].string(); !asked.starts_with("health-") && !asked.starts_with("slurm-")) return;
      event.child("spec").child("metadata").set("repairAction", action).set("healthReason", request["by"]);
    };
    if (phase == "ShuttingDown" && phase_was != "ShuttingDown" && named(group, "InstanceTerminating", id)) of_health(about("Info", "InstanceTerminating", {}, fmt::format("Instance {} of group {} goes{}", id, group, spec["replace"]["id"].string().empty() ? "" : ", since it is replaced")), spec["replace"], "Replace");
    const std::string& check_stage = is["healthCheck"]["stage"].string();
    if (check_stage != was["healthCheck"]["stage"].string() || is["healthCheck"]["id"] != was["healthCheck"]["id"]) {
      const std::vector<std::string> request{is["healthCheck"]["id"].string(), is["healthCheck"]["at"].string()};
      if (check_stage == "Checking" && named(group, "DeepHealthCheckStarted", id)) about("Info", "DeepHealthCheckStarted", request, fmt::format("Instance {} of group {} is checked", id, group));
      if (check_stage == "Passed" && named(group, "DeepHealthCheckPassed", id)) about("Info", "DeepHealthCheckPassed", request, fmt::format("Instance {} of group {} has passed its deep health check: {}", id, group, is["healthCheck"]["message"].string()));
      if (check_stage == "Failed") fail(about("Error", "DeepHealthCheckFailed", request, fmt::format("Instance {} of group {} has failed its deep health check", id, group)), is["healthCheck"]["message"].string());
    }
    // Once for each request, however often its links are tried again.
    if (const Json &meeting = is["healthCheck"]["meeting"], &before = was["healthCheck"]["meeting"]; meeting["again"].integer() > 0 && before["again"].integer() == 0)
      fail(about("Warn", "DeepHealthCheckUndecided", {is["healthCheck"]["id"].string(), is["healthCheck"]["at"].string()}, fmt::format("What is wrong with the links of instance {} of group {} cannot be told; they are tried again", id, group)), meeting["why"].string());
    const std::string stage_was = was["reboot"]["id"] == is["reboot"]["id"] ? was["reboot"]["stage"].string() : "";
    const std::string& stage = is["reboot"]["stage"].string();
    if (stage != stage_was) {
      const std::string& request = is["reboot"]["id"].string();
      if (stage == "Emptying") of_health(about("Info", "RebootStarted", {request}, fmt::format("Instance {} of group {} is to be rebooted when it is empty; asked for by {}", id, group, spec["reboot"]["by"].string_or("somebody"))), spec["reboot"], "Reboot");
      if (stage == "Done") about("Info", "RebootCompleted", {request}, fmt::format("Instance {} of group {} was rebooted", id, group));
      if (stage == "Failed") fail(about("Error", "RebootFailed", {request}, fmt::format("Instance {} of group {} was not rebooted", id, group)), is["reboot"]["message"].string());
    }
  }

  std::vector<Json> done() {
    for (const auto& [of, ids] : told_)
      if (const std::size_t count = ids.size(); count > kByName) {
        const auto& [group, kind] = of;
        std::string all;
        for (const std::string& id : ids) all += id + "/";
        add("InstanceGroup", "Info", kind.c_str(), {group, all}, fmt::format("The same of {} more instances of group {}", count - kByName, group)).child("spec").set("instanceGroupName", group);
      }
    return std::move(out_);
  }

 private:
  // MinInstanceCount of the group.
  std::int64_t least_of(const std::string& name) const {
    for (const Json& one : cluster_["spec"]["instanceGroups"].items())
      if (one["instanceGroupName"].string() == name) return one["minInstanceCount"].integer();
    return 0;
  }
  static const Json& group_of(const Json& status, const std::string& name) {
    static const Json none;
    for (const Json& one : status["instanceGroups"].items())
      if (one["instanceGroupName"].string() == name) return one;
    return none;
  }
  // Of what is no trouble, only so many by name.
  bool named(const std::string& group, const char* kind, const std::string& id) {
    auto& ids = told_[{group, kind}];
    ids.insert(id);
    return ids.size() <= kByName;
  }
  static void fail(Json& event, const std::string& why) {
    if (!why.empty()) event.child("spec").child("metadata").set("failureMessage", why.size() <= kMostWords ? why : why.substr(0, kMostWords) + "...");
  }
  // Valid until the next.
  Json& add(const char* type, const char* level, const char* kind, const std::vector<std::string>& parts, std::string words) {
    std::string what = kube::uid_of(cluster_) + "/" + kind;
    for (const std::string& part : parts) what += "/" + part;
    out_.push_back(Json::object({{"apiVersion", api::kClusterEvents.api_version()}, {"kind", api::kClusterEvents.kind}, {"metadata", Json::object({{"name", event_id(what)}, {"labels", Json::object({{api::kClusterLabel, kube::name_of(cluster_)}})}})},
                                 {"spec", Json::object({{"clusterUid", kube::uid_of(cluster_)}, {"resourceType", type}, {"level", level}, {"kind", kind}, {"time", now_}, {"description", std::move(words)}, {"metadata", Json::object()}})}}));
    return out_.back();
  }

  const Json& cluster_;
  const Json &before_, &after_;
  const std::string now_, generation_;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> told_;
  std::vector<Json> out_;
};

}  // namespace

std::vector<Json> cluster_events(const Json& cluster, const Json& status, const std::vector<InstanceChange>& instances, Instant now) {
  Teller teller(cluster, status, now);
  teller.tell_cluster();
  teller.tell_slurm();
  teller.tell_software();
  teller.tell_groups();
  for (const InstanceChange& change : instances) teller.tell_instance(change);
  return teller.done();
}

std::vector<const Json*> events_to_forget(const std::vector<Json>& events, Instant now) {
  const std::string oldest = print_time(now - kEventAge);
  std::vector<const Json*> out, kept;
  for (const Json& event : events)
    if (!kube::deleting(event)) (event["spec"]["time"].string() < oldest ? out : kept).push_back(&event);
  if (kept.size() <= kMostEvents) return out;
  // What went well is forgotten first.
  const auto key = [](const Json* event) { return std::tuple((*event)["spec"]["level"].string() == "Info", (*event)["spec"]["time"].string()); };
  std::sort(kept.begin(), kept.end(), [&](const Json* a, const Json* b) {
    const auto [a_info, a_time] = key(a);
    const auto [b_info, b_time] = key(b);
    return a_info != b_info ? b_info : a_time != b_time ? a_time > b_time : kube::name_of(*a) < kube::name_of(*b);
  });
  out.insert(out.end(), kept.begin() + static_cast<std::ptrdiff_t>(kMostEvents), kept.end());
  return out;
}

}  // namespace fairlead::fleet
