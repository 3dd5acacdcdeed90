// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "api/instance_types.h"
#include "api/network_ways.h"
#include "api/node_set.h"
#include "fleet/plan/cluster_events.h"
#include "kube/pod_words.h"

namespace fairlead::fleet {

using api::Instance;
using api::InstanceGroup;
using api::NumberSet;
using api::SlurmNodeType;
using kube::Json;
namespace resources = kube::resources;
using Verb = ClusterStep::Verb;

const char* name(Verb verb) {
  switch (verb) {
    case Verb::Create: return "create";
    case Verb::Update: return "update";
    case Verb::UpdateStatus: return "tell";
    case Verb::Delete: return "delete";
    case Verb::Evict: return "evict";
  }
  return "?";
}

std::optional<Instant> silent_since(const Json& node) {
  const Json* ready = kube::find_condition(node, "Ready");
  if (ready == nullptr || (*ready)["status"].string() == "True") return std::nullopt;
  const auto since = parse_time((*ready)["lastTransitionTime"].string());
  return since ? std::optional<Instant>(*since) : std::nullopt;
}

// The one that is due on a machine that has not run yet; nothing: none is, or it has failed.
static std::optional<ScriptStage> due_script(const api::LifecycleScripts& scripts, const Json& status) {
  for (const ScriptStage stage : kStages) {
    const std::string& phase = status["lifecycle"][field_of(stage)]["phase"].string();
    if (phase == "Failed") return std::nullopt;
    if (phase.empty() && !file_of(scripts, stage).empty()) return stage;
  }
  return std::nullopt;
}

std::map<std::string, api::LifecycleScripts> needed_sources(const api::Cluster& cluster, const std::vector<Json>& instances, const std::vector<Json>& pods) {
  std::map<std::string, api::LifecycleScripts> out;
  std::set<std::string> at_work;
  if (cluster.deleting) return out;
  for (const Json& pod : pods)
    if (is_script(pod)) at_work.insert(kube::name_of(pod));
  for (const Json& object : instances) {
    const Instance one = api::read_instance(object);
    const InstanceGroup* group = one.cluster_uid == cluster.uid ? cluster.group(one.group) : nullptr;
    if (group == nullptr || one.ran || one.deleting || one.node.empty()) continue;
    const api::LifecycleScripts& scripts = one.scripts ? *one.scripts : group->scripts;
    if (const auto stage = due_script(scripts, object["status"]); stage && !at_work.contains(script_pod_name(one.id, *stage))) out.emplace(scripts.uri, scripts);
  }
  return out;
}

bool holds_machine(const Json& pod, api::Orchestrator orchestrator) {
  const std::string& phase = pod["status"]["phase"].string();
  // One that is being deleted needs its machine to the end: without it the object stays until somebody finds out, and its name is taken so long.
  if (!kube::deleting(pod) && (phase == "Succeeded" || phase == "Failed")) return false;
  if (is_script(pod)) return true;
  if (orchestrator == api::Orchestrator::Slurm) return !pod["metadata"]["labels"][api::kSlurmRoleLabel].is_null();
  const Json* owner = kube::controller_of(pod);
  return (owner == nullptr || (*owner)["kind"].string() != "DaemonSet") && !pod["metadata"]["annotations"].has("kubernetes.io/config.mirror");
}

namespace {

constexpr const char* kCordonedBy = "fairlead.dev/cordoned-by";  // the Instance for which we did it: what a person cordons stays
constexpr const char* kDressed = "fairlead.dev/instance-labels";  // of a Node: {labels: [KEY], taints: ["KEY:EFFECT"]} that its group gave it
constexpr const char* kReplaced = "fairlead.dev/replaced";       // of a machine that was given back because somebody had it replaced: it is no spare until a person says so

bool cordoned(const Json& node) { return node["spec"]["unschedulable"].boolean(); }
bool is_ready(const Json& node) { return kube::condition_is_true(node, "Ready"); }
const std::string& owner_of(const Json& node) { return node["metadata"]["labels"][api::kInstanceLabel].string(); }

struct One {
  Instance value;
  const Json* object = nullptr;
  bool leaves = false;           // now
  std::string phase, message;    // to be told
  Json status;                   // what it is to be
};

// The numbers of one group after this round.
struct Numbers {
  int issued = 0;
  NumberSet retired;  // of the spec, and of the status: stored there, an older spec that is put back brings none back
  bool live(int number) const { return number >= 1 && number <= issued && !retired.contains(number); }
  int size() const { return issued - retired.size(); }
};

class Planner {
 public:
  Planner(const ClusterSnapshot& snapshot, Instant now, const ClusterPlanOptions& options) : in_(snapshot), now_(now), options_(options), object_(snapshot.cluster), status_(object_["status"].is_object() ? object_["status"] : Json::object()) {
    const Json& failed = status_["failed"];
    taken_back_ = failed.is_object() && failed["generation"].integer() == object_["metadata"]["generation"].integer();
    served_ = status_["served"].boolean();
    undone_ = taken_back_ && !status_["good"]["spec"].is_object() && !served_;
    cluster_ = api::read_cluster(object_);
    slurm_ = cluster_.orchestrator == api::Orchestrator::Slurm;
    for (const Json& one : in_.instances) {
      Instance value = api::read_instance(one);
      if (!value.node.empty()) promised_.insert(value.node);
      if (value.cluster_uid != cluster_.uid) continue;
      mine_.push_back({.value = std::move(value), .object = &one, .leaves = false, .phase = {}, .message = {}, .status = one["status"].is_object() ? one["status"] : Json::object()});
    }
    std::sort(mine_.begin(), mine_.end(), [](const One& a, const One& b) { return std::tie(a.value.group, a.value.number, a.value.attempt) < std::tie(b.value.group, b.value.number, b.value.attempt); });
    for (const Json& pod : in_.pods)
      if (!pod["spec"]["nodeName"].string().empty()) pods_on_[pod["spec"]["nodeName"].string()].push_back(&pod);
    // Who goes altogether waits so long for what does not answer.
    const auto since = parse_time(cluster_.deleting ? object_["metadata"]["deletionTimestamp"].string() : undone_ ? status_["failed"]["at"].string() : "");
    overdue_ = since && now_ >= *since + options_.silent;
    if (since && !overdue_) look_again(*since + options_.silent - now_);
  }

  ClusterPlan run() {
    if (cluster_.deleting) {
      if (!cluster_.finalizer) return {};
      all_leave();
      tell("Deleting", "");
      if (take_down() && settle_instances()) finish();
      return done();
    }
    if (!cluster_.finalizer) {
      Json with = object_;
      kube::add_finalizer(with, api::kClusterFinalizer);
      add(Verb::Update, api::kClusters, std::move(with), "it is ours to take down");
      return std::move(out_);
    }
    if (undone_) {
      all_leave();
      const bool gone = take_down() && settle_instances() && space_gone();
      tell(gone ? "Failed" : "RollingBack", status_["failed"]["message"].string());
      if (Json* groups = status_.find("instanceGroups"); groups != nullptr)
        for (Json& group : groups->items()) {
          group.set("current", 0).set("status", gone ? "Failed" : "Deleting");
          group.erase("message");
        }
      status_.set("summary", "0/0");
      return done();
    }
    const std::string wrong = objection();
    tell_validity(wrong);
    if (!wrong.empty()) {
      tell(served_ ? "InService" : "Failed", wrong);
      return done();
    }
    count_numbers();
    make_instances();
    mark_leaving();
    count_sizes();
    choose_machines();
    settle_instances();
    if (slurm_) shape_slurm();
    else if (in_.space.is_null()) add(Verb::Create, resources::namespaces, namespace_of(cluster_, object_), "what is made for the cluster is in it");
    judge();
    return done();
  }

 private:
  // ---- steps

  void add(Verb verb, const kube::Resource& resource, Json object, std::string why) { out_.steps.push_back({.verb = verb, .resource = resource, .object = std::move(object), .if_empty = {}, .if_gone = {}, .if_live = {}, .live_node = {}, .unrun = {}, .if_not_of = {}, .if_silent = {}, .tells_of = {}, .why = std::move(why)}); }
  ClusterStep& last() { return out_.steps.back(); }
  void look_again(std::chrono::nanoseconds after) { out_.look_again = out_.look_again ? std::min(*out_.look_again, after) : after; }
  const Json* node_of(const std::string& name) const { return find(in_.nodes, name); }
  const Json* machine_of(const std::string& name) const { return find(in_.machines, name); }
  static const Json* find(const std::map<std::string, Json>& all, const std::string& name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
  }

  // ---- what was asked for

  std::string objection() const {
    if (!cluster_.problems.empty()) return cluster_.problems.size() == 1 ? cluster_.problems.front() : fmt::format("{} (and {} more)", cluster_.problems.front(), cluster_.problems.size() - 1);
    if (status_["mode"].string() == "Continuous" && !cluster_.continuous) return "nodeProvisioningMode: a cluster that is Continuous stays so";
    if (taken_back_ && !status_["good"].is_object()) return fmt::format("{}; the cluster stays as it is: change it again", status_["failed"]["message"].string());
    // Where a partition goes, its jobs end: a group keeps its own.
    for (const InstanceGroup& group : cluster_.groups)
      if (const Json* set = find_named(in_.node_sets, group.set); set != nullptr && !group.partitions.empty())
        if (const std::string& has = (*set)["metadata"]["annotations"][kPartitionNote].string(); !has.empty() && has != group.partitions.front() && !kube::deleting(*set))
          return fmt::format("group {}: its partition does not change (it is {}); make another group", group.name, has);
    if (in_.space.is_object() && !is_namespace_of(in_.space, cluster_)) return fmt::format("namespace {} is there and belongs to something else: delete it, or give the cluster another name", cluster_.space);
    return "";
  }

  std::span<const One> of_group(const std::string& group) const {
    const auto begin = std::lower_bound(mine_.begin(), mine_.end(), group, [](const One& one, const std::string& wanted) { return one.value.group < wanted; });
    const auto end = std::upper_bound(begin, mine_.end(), group, [](const std::string& wanted, const One& one) { return wanted < one.value.group; });
    return {begin, end};
  }
  std::map<int, const One*> by_number(const std::string& group) const {
    std::map<int, const One*> out;
    for (const One& one : of_group(group)) out[one.value.number] = &one;
    return out;
  }

  static int ordinal_of(const Json& pod) {
    const std::string& pod_name = kube::name_of(pod);
    const auto dash = pod_name.rfind('-');
    return dash == pod_name.npos ? 0 : std::atoi(pod_name.c_str() + dash + 1);
  }
  static bool has_role(const Json& pod, const InstanceGroup& group) {
    const Json& labels = pod["metadata"]["labels"];
    const std::string& role = labels[api::kSlurmRoleLabel].string();
    switch (group.node_type) {
      case SlurmNodeType::Controller: return role == "controller";
      case SlurmNodeType::Login: return role == "login";
      case SlurmNodeType::Compute: return role == "worker" && labels[api::kNodeSetLabel].string() == group.set;
    }
    return false;
  }
  // Heads and login nodes have numbers of their own: those beyond the size are to go, or are the third voter of two heads.
  static bool counts(const Json& pod, const InstanceGroup& group) { return has_role(pod, group) && (group.node_type == SlurmNodeType::Compute || ordinal_of(pod) < group.target); }
  // Does anything of the group run on this machine that counts?
  bool in_use(const std::string& node, const InstanceGroup& group) const {
    const auto found = pods_on_.find(node);
    return found != pods_on_.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Json* pod) { return holds_machine(*pod, cluster_.orchestrator) && counts(*pod, group); });
  }

  // More are asked for: further numbers. Fewer: those without a machine, then those on whose machine Slurm has nothing any more, since it is Slurm that knows which worker idles.
  void count_numbers() {
    for (const InstanceGroup& group : cluster_.groups) {
      Numbers numbers{.issued = group.issued, .retired = group.retired};
      numbers_[group.name] = numbers;  // what is decided now is acted on when it is stored
      if (const int lacking = group.target - numbers.size(); lacking > 0) numbers.issued += lacking;
      if (int beyond = numbers.size() - group.target; beyond > 0) {
        const auto there = by_number(group.name);
        const auto of_it = std::count_if(in_.pods.begin(), in_.pods.end(), [&](const Json& pod) { return counts(pod, group); });
        const bool settled = !slurm_ || of_it <= group.target;
        std::vector<std::pair<int, int>> candidates;  // rank, and the greatest number first
        for (int number = 1; number <= numbers.issued; ++number) {
          if (!numbers.live(number)) continue;
          const auto found = there.find(number);
          const bool placed = found != there.end() && !found->second->value.node.empty();
          if (!placed) candidates.emplace_back(found == there.end() ? 0 : 1, -number);
          else if (settled && (!slurm_ || !in_use(found->second->value.node, group))) candidates.emplace_back(2, -number);
        }
        std::sort(candidates.begin(), candidates.end());
        for (const auto& [rank, number] : candidates) {
          if (beyond-- == 0) break;
          numbers.retired.add(-number);
        }
      }
      next_[group.name] = std::move(numbers);
    }
  }
  Json new_instance(const InstanceGroup& group, int number, int attempt) const {
    const std::string id = api::instance_id_of(cluster_.uid, group.name, number, attempt), logical = api::logical_id_of(cluster_.uid, group.name, number);
    return Json::object({{"apiVersion", api::kInstances.api_version()}, {"kind", api::kInstances.kind},
                         {"metadata", Json::object({{"name", id}, {"labels", Json::object({{api::kClusterLabel, cluster_.name}, {api::kLogicalIdLabel, logical}})}, {"finalizers", Json::array({Json(api::kInstanceFinalizer)})}, {"ownerReferences", Json::array({kube::owner_reference(object_)})}})},
                         {"spec", Json::object({{"cluster", cluster_.name}, {"clusterUid", cluster_.uid}, {"instanceGroupName", group.name}, {"number", number}, {"attempt", attempt}, {"nodeLogicalId", logical}, {"instanceType", group.type}})}});
  }

  void make_instances() {
    for (const InstanceGroup& group : cluster_.groups) {
      const Numbers& numbers = numbers_.at(group.name);
      const auto there = by_number(group.name);
      for (int number = 1; number <= numbers.issued; ++number) {
        if (!numbers.live(number)) continue;
        const auto found = there.find(number);
        if (found == there.end()) add(Verb::Create, api::kInstances, new_instance(group, number, 1), "a node is asked for");
        else if (const Instance& last = found->second->value; last.deleting) add(Verb::Create, api::kInstances, new_instance(group, number, last.attempt + 1), last.id + " was deleted");
        else if (!last.replace.empty()) add(Verb::Create, api::kInstances, new_instance(group, number, last.attempt + 1), last.id + " is to be replaced");
      }
    }
  }

  static const Json& script_record(const One& one, ScriptStage stage) { return one.status["lifecycle"][field_of(stage)]; }
  static const Json* failed_script(const One& one) {
    for (const ScriptStage stage : kStages)
      if (const Json& record = script_record(one, stage); !one.value.ran && record["phase"].string() == "Failed") return &record;
    return nullptr;
  }
  // After a minute, and twice as long each further time, up to half an hour. Of a change that is under way, all or nothing, there is no second try.
  std::optional<Instant> tries_again_at(const One& one) const {
    const bool under_way = !cluster_.continuous && !taken_back_ && status_["good"]["generation"].integer(-1) != cluster_.generation;
    const Json* failed = under_way ? nullptr : failed_script(one);
    if (failed == nullptr) return std::nullopt;
    const auto at = parse_time((*failed)["at"].string());
    if (!at) return std::nullopt;
    return *at + std::min<std::chrono::seconds>(std::chrono::minutes(30), std::chrono::seconds(60) * (1 << std::clamp(one.value.attempt - 1, 0, 10)));
  }
  // By which it is prepared: its own, from when the first of them began; until then its group's.
  const api::LifecycleScripts& scripts_of(const One& one) const {
    static const api::LifecycleScripts none;
    const InstanceGroup* group = cluster_.group(one.value.group);
    return one.value.ran ? none : one.value.scripts ? *one.value.scripts : group != nullptr ? group->scripts : none;
  }
  // It may have what Slurm runs: nothing is to run on it before OnCreate has.
  bool is_open(const One& one) const { return scripts_of(one).on_create.empty() || script_record(one, ScriptStage::OnCreate)["phase"].string() == "Succeeded"; }
  bool runs_script(const One& one) const {
    const auto found = pods_on_.find(one.value.node);
    return found != pods_on_.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Json* pod) { return is_script(*pod) && holds_machine(*pod, cluster_.orchestrator); });
  }

  void all_leave() {
    for (One& one : mine_) one.leaves = true;
  }
  void mark_leaving() {
    for (One& one : mine_) {
      const InstanceGroup* group = cluster_.group(one.value.group);
      if (group == nullptr || !numbers_.at(group->name).live(one.value.number)) {
        one.leaves = true;
        continue;
      }
      // A machine on which a script failed is half made: it goes, and the next one tries again.
      if (const auto at = tries_again_at(one); at && !one.value.deleting) {
        if (now_ >= *at) {
          one.leaves = true;
          continue;
        }
        look_again(*at - now_);
      }
      // Of the machines of one node the last that is there works, and those before it until then. They stand behind one another.
      const One* last = nullptr;
      for (const One* other = &one + 1; other != mine_.data() + mine_.size() && other->value.group == one.value.group && other->value.number == one.value.number; ++other) {
        last = other;
        const Json* node = node_of(other->value.node);
        one.leaves = one.leaves || (node != nullptr && is_ready(*node) && owner_of(*node) == other->value.id && !other->value.deleting && is_open(*other));
      }
      if (last != nullptr && !one.leaves && !one.value.deleting) one.message = fmt::format("is replaced by {} as soon as that one is there", last->value.id);
    }
  }

  // ---- machines

  static std::string made_name(const Instance& instance) { return "hyperpod-" + instance.id; }

  // By the group's name pods of Slurm find it.
  Json labels_for(const Instance& instance, bool open) const {
    Json out = Json::object({{api::kInstanceLabel, instance.id}, {api::kClusterLabel, cluster_.name}, {api::kClusterNameLabel, cluster_.title}, {api::kComputeTypeLabel, "hyperpod"}, {api::kInstanceTypeLabel, instance.type}});
    if (open) out.set(api::kGroupNameLabel, instance.group);
    return out;
  }

  // Who has none when he gets a machine never has any.
  void settle_scripts(One& one) const {
    if (const InstanceGroup* group = cluster_.group(one.value.group); group == nullptr || !group->scripts.any()) one.status.child("lifecycle").set("config", Json::object());
  }

  // Which machine an instance gets is written down before anything is done with it.
  void choose_machines() {
    std::vector<One*> waiting;
    for (const InstanceGroup& group : cluster_.groups)
      for (One& one : mine_)
        if (one.value.group == group.name && one.value.node.empty() && !one.leaves && !one.value.deleting) waiting.push_back(&one);
    if (waiting.empty()) return;
    std::map<std::string, std::vector<const Json*>> spares;  // by type
    std::map<std::string, std::string> lies;
    std::map<std::string, int> busy, aside;
    for (const auto& [node_name, node] : in_.nodes) {
      const Json& labels = node["metadata"]["labels"];
      if (labels[api::kSpareLabel].string() != "true") continue;
      const std::string& type_name = labels[api::kInstanceTypeLabel].string();
      const api::InstanceType* type = api::find_instance_type(type_name);
      if (type == nullptr) continue;
      if (const std::string lie = why_not_of_type(*type, node); !lie.empty()) {
        lies.emplace(type_name, fmt::format("{}: {}", node_name, lie));
        continue;
      }
      const auto& taints = node["spec"]["taints"].items();
      const bool closed = std::any_of(taints.begin(), taints.end(), [](const Json& taint) { return taint["effect"].string() != "PreferNoSchedule"; });
      if (!node["metadata"]["labels"][kReplaced].is_null()) ++aside[type_name];
      if (promised_.contains(node_name) || !owner_of(node).empty() || !is_ready(node) || cordoned(node) || closed || kube::deleting(node) || !node["metadata"]["labels"][kReplaced].is_null()) {
        ++busy[type_name];
        continue;
      }
      spares[type_name].push_back(&node);
    }
    for (One* one : waiting) {
      auto& free = spares[one->value.type];
      if (!free.empty()) {
        settle_scripts(*one);
        one->status.set("node", kube::name_of(*free.front())).set("made", false);
        promised_.insert(kube::name_of(*free.front()));
        free.erase(free.begin());
      } else if (options_.makes_machines) {
        settle_scripts(*one);
        one->status.set("node", made_name(one->value)).set("made", true);
      } else {
        const auto lie = lies.find(one->value.type);
        const std::string set_aside = aside[one->value.type] == 0 ? "" : fmt::format("; of {} somebody is to take away the label {}", aside[one->value.type], kReplaced);
        one->message = lie != lies.end() ? fmt::format("no machine of type {} is free; {}", one->value.type, lie->second)
                                         : fmt::format("no machine of type {} is free ({} are in use or not ready); machines are taken whose Node has the labels {}=true and {}={}", one->value.type, busy[one->value.type], api::kSpareLabel, api::kInstanceTypeLabel, one->value.type);
        one->message += set_aside;
        without_machine_ = true;
      }
    }
  }

  Json new_machine(const One& one) const {
    const api::InstanceType* type = api::find_instance_type(one.value.type);
    Json local = Json::object(), more = Json::object();
    for (const auto& [resource, amount] : api::capacity_of(*type)) (resource == "cpu" || resource == "memory" ? local : more).set(resource, amount);
    if (!more.members().empty()) local.set("resources", std::move(more));
    return Json::object({{"apiVersion", resources::machines.api_version()}, {"kind", resources::machines.kind},
                         {"metadata", Json::object({{"name", made_name(one.value)}, {"labels", Json::object({{api::kClusterLabel, cluster_.name}, {api::kInstanceLabel, one.value.id}})}, {"ownerReferences", Json::array({kube::owner_reference(*one.object)})}})},
                         {"spec", Json::object({{"local", std::move(local)}, {"labels", labels_for(one.value, is_open(one))}})}});
  }

  // ---- each instance, from what is stored of it. True: none of those that leave is left.
  bool settle_instances() {
    bool gone = true;
    for (One& one : mine_) {
      const bool leaving = one.leaves || one.value.deleting;
      if (leaving) {
        gone = false;
        one.phase = "ShuttingDown";
        if (one.leaves && !one.value.deleting) add(Verb::Delete, api::kInstances, *one.object, cluster_.deleting ? "the cluster is deleted" : "it is to go");
        else if (one.value.finalizer) let_go(one);
      } else {
        keep(one);
      }
    }
    return gone;
  }

  void keep(One& one) {
    const Instance& value = one.value;
    one.phase = "Pending";
    if (value.node.empty()) return;
    const Json* node = node_of(value.node);
    const Json* machine = machine_of(value.node);
    if (value.made) {
      if (machine == nullptr) {
        if (options_.makes_machines) {
          add(Verb::Create, resources::machines, new_machine(one), fmt::format("{} of group {} has none", value.id, value.group));
          last().if_live = value.id;
        } else {
          one.message = "its machine is gone, and this server makes none";
        }
      } else if ((*machine)["status"]["phase"].string() == "Refused") {
        fail_instance(one, kube::find_condition(*machine, "Ready") != nullptr ? (*kube::find_condition(*machine, "Ready"))["message"].string() : "its machine was refused");
      }
    } else if (node == nullptr) {
      fail_instance(one, fmt::format("Node {} is gone: replace this instance", value.node));
      return;
    } else if (const std::string& owner = owner_of(*node); owner != value.id) {
      if (!owner.empty()) {
        for (const char* const field : {"node", "made", "lifecycle"}) one.status.erase(field);  // another was quicker
      } else {
        add(Verb::Update, resources::nodes, laid_over(*node, Json::object({{"metadata", Json::object({{"labels", labels_for(value, is_open(one))}})}})), fmt::format("it is {} of group {} now", value.id, value.group));
        last().if_live = value.id;
      }
      return;
    }
    if (node == nullptr) {
      if (one.message.empty()) one.message = "its machine is made";
      return;
    }
    if (reboots(one, *node, machine)) return;
    const bool open = is_open(one);
    const InstanceGroup* of = cluster_.group(value.group);
    Json dressed = !slurm_ && open && of != nullptr ? dress(*node, of->labels, of->taints, true) : *node;
    if (!open && !slurm_) {
      if (!closed_for(one, *node)) return;  // any pod might come
    } else if (open && (*node)["metadata"]["labels"][api::kGroupNameLabel].string() != value.group) {
      add(Verb::Update, resources::nodes, laid_over(*node, Json::object({{"metadata", Json::object({{"labels", labels_for(value, true)}})}})), fmt::format("group {} may use it", value.group));
      last().if_live = value.id;
    } else if (dressed != *node) {
      add(Verb::Update, resources::nodes, std::move(dressed), fmt::format("labels and taints of group {}", value.group));
      last().if_live = value.id;
    } else if (cordoned(*node) && (*node)["metadata"]["annotations"][kCordonedBy].string() == value.id) {
      add(Verb::Update, resources::nodes, uncordoned(*node), "it is in use again");
    }
    tell_addresses(one, *node);
    if (!is_ready(*node)) {
      const Json* ready = kube::find_condition(*node, "Ready");
      one.message = ready == nullptr ? "its machine starts" : fmt::format("its machine is not ready: {}", (*ready)["message"].string());
      return;
    }
    if (!open) return run_script(one, ScriptStage::OnCreate);
    if (!slurm_) {
      complete(one);
      return;
    }
    const InstanceGroup* group = cluster_.group(value.group);
    const auto found = pods_on_.find(value.node);
    const Json* pod = nullptr;
    if (found != pods_on_.end() && group != nullptr)
      for (const Json* candidate : found->second)
        if (has_role(*candidate, *group)) pod = candidate;
    if (pod == nullptr) {
      if (one.message.empty()) one.message = "its machine is ready; Slurm has nothing on it yet";
      return;
    }
    one.status.set("slurmNode", kube::name_of(*pod));
    const kube::PodWords words = kube::words_of_pod(*pod);
    if (!kube::deleting(*pod) && (*pod)["status"]["phase"].string() == "Running" && kube::condition_is_true(*pod, "Ready")) complete(one);
    else one.message = fmt::format("{} on it: {}", kube::name_of(*pod), words.status == "Running" ? "not ready yet" : words.status);
    for (const Json& ip : (*pod)["status"]["podIPs"].items()) one.status.set(ip["ip"].string().find(':') == std::string::npos ? "address" : "address6", ip["ip"]);
  }
  // Slurm, or Kubernetes, has it.
  void complete(One& one) {
    if (!scripts_of(one).on_init_complete.empty() && script_record(one, ScriptStage::OnInitComplete)["phase"].string() != "Succeeded") return run_script(one, ScriptStage::OnInitComplete);
    one.phase = "Running";
    if (!one.status.has("runningSince")) one.status.set("runningSince", print_time(now_));
  }
  // What a script is to come to, in its own words; then a pod for it, once what it reads is there.
  void run_script(One& one, ScriptStage stage) {
    const Instance& value = one.value;
    const InstanceGroup* group = cluster_.group(value.group);
    if (group == nullptr) return;  // it goes
    const api::LifecycleScripts& scripts = scripts_of(one);
    const std::string& file = file_of(scripts, stage);
    if (const Json& record = script_record(one, stage); record["phase"].string() == "Failed") {
      const auto again = tries_again_at(one);
      return fail_instance(one, record["message"].string() + (again ? fmt::format(" (another machine tries it at {})", print_time(*again)) : ""));
    }
    const std::string pod_name = script_pod_name(value.id, stage);
    const Json* pod = find_named(in_.pods, pod_name);
    if (pod != nullptr && kube::space_of(*pod) != cluster_.space) pod = nullptr;
    if (pod != nullptr && (!is_script_of(*pod, *one.object) || (*pod)["spec"]["nodeName"].string() != value.node)) {
      one.message = fmt::format("{} waits: pod {} is not its own; delete it", file, kube::key_of(*pod).text());
      return look_again(std::chrono::seconds(15));
    }
    if (pod != nullptr) {
      const ScriptEnd end = end_of_script(*pod);
      const auto note = [&](const char* phase) {
        Json record = Json::object({{"phase", phase}, {"exitCode", end.exit_code}, {"at", print_time(now_)}, {"sum", (*pod)["metadata"]["annotations"]["fairlead.dev/script-sum"]}});
        if (!end.message.empty()) record.set("message", fmt::format("{}: {}", file, end.message));
        one.status.child("lifecycle").set(field_of(stage), std::move(record));
      };
      switch (end.kind) {
        case ScriptEnd::Kind::Going:
          ++scripts_going_[value.group];  // it has its own limit
          [[fallthrough]];
        case ScriptEnd::Kind::Waiting:
          one.message = fmt::format("{}: {} (kubectl logs -n {} {} -c lifecycle)", file, end.message, cluster_.space, pod_name);
          return;
        case ScriptEnd::Kind::Succeeded:
          note("Succeeded");
          one.message = fmt::format("{} has run", file);
          return look_again(std::chrono::seconds(1));
        case ScriptEnd::Kind::Failed:
          note("Failed");
          return fail_instance(one, fmt::format("{}: {}", file, end.message));
        case ScriptEnd::Kind::Lost:
          one.message = fmt::format("{}: {}; it is run again", file, end.message);
          if (const Json& lost = one.status["lifecycle"]["lost"]; lost["pod"].string() != kube::uid_of(*pod)) one.status.child("lifecycle").set("lost", Json::object({{"count", lost["count"].integer() + 1}, {"at", print_time(now_)}, {"pod", kube::uid_of(*pod)}}));
          else if (!kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, "what became of the script is not known");
          return look_again(std::chrono::seconds(2));
      }
    }
    if (const Json& lost = one.status["lifecycle"]["lost"]; lost["count"].integer() > 1) {
      const Instant next = parse_time(lost["at"].string()).value_or(now_) + std::min<std::chrono::seconds>(std::chrono::minutes(5), std::chrono::seconds(10) * (1 << std::clamp<std::int64_t>(lost["count"].integer() - 2, 0, 10)));
      if (now_ < next) {
        one.message = fmt::format("{}: what became of {} pods of it is not known; it is run again at {}", file, lost["count"].integer(), print_time(next));
        return look_again(next - now_);
      }
    }
    if (in_.space.is_null() || kube::deleting(in_.space)) {
      one.message = fmt::format("{} waits for namespace {}", file, cluster_.space);
      return;
    }
    if (const Json* ready = kube::find_condition(in_.slurm, "JailReady"); slurm_ && (ready == nullptr || (*ready)["status"].string() != "True")) {
      one.message = fmt::format("{} waits for the shared root{}", file, ready == nullptr ? "" : ": " + (*ready)["message"].string());
      return;
    }
    const auto source = in_.sources.find(scripts.uri);
    if (source == in_.sources.end()) return look_again(std::chrono::seconds(1));
    if (!source->second.bundle) {
      if (source->second.missing) fail_instance(one, source->second.problem);
      else one.message = source->second.problem;
      return look_again(std::chrono::seconds(15));
    }
    const ScriptBundle& bundle = *source->second.bundle;
    if (std::find(bundle.paths.begin(), bundle.paths.end(), file) == bundle.paths.end()) {
      fail_instance(one, fmt::format("there is no file {} below {}", file, scripts.uri));
      return look_again(std::chrono::seconds(15));
    }
    // From now on it runs by these, whatever its group's become.
    if (!value.scripts) {
      one.status.child("lifecycle").set("config", lifecycle_of(*group));
      one.message = fmt::format("{} starts", file);
      return look_again(std::chrono::seconds(1));
    }
    if (!configs_stored(one)) {
      one.message = fmt::format("{} waits for what it is to read of the cluster", file);
      return;
    }
    for (Json secret : bundle.secrets)
      if (secrets_.insert(kube::name_of(secret)).second) {
        secret.child("metadata").set("namespace", cluster_.space).set("labels", Json::object({{api::kClusterLabel, cluster_.name}})).set("ownerReferences", Json::array({kube::owner_reference(object_)}));
        add(Verb::Create, resources::secrets, std::move(secret), fmt::format("scripts of {}", scripts.uri));
      }
    const Json* machine = machine_of(value.node);
    const ScriptRoot root = slurm_ ? ScriptRoot::Shared : machine != nullptr && (*machine)["spec"]["local"].is_object() ? ScriptRoot::Container : ScriptRoot::Machine;
    add(Verb::Create, resources::pods, script_pod(cluster_, *group, scripts, value, *one.object, stage, root, bundle, options_.scripts), fmt::format("{} on {}", file, value.node));
    last().if_live = value.id;
    last().live_node = value.node;
    last().unrun = field_of(stage);
    one.message = fmt::format("{} starts", file);
  }

  Json lifecycle_of(const InstanceGroup& group) const {
    const Json spec = api::spec_in_force(object_);
    for (const Json& one : spec["instanceGroups"].items())
      if (one["instanceGroupName"].string() == group.name) return one["lifeCycleConfig"];
    return Json::object();
  }

  // Scripts look for their own machine in what is stored of the cluster. True: it is there. It is written anew when a machine that is due is not, or the heads are others; else each node that comes would hold up all.
  bool configs_stored(const One& due) {
    if (!configs_) {
      configs_.emplace();
      for (const Json& stored : in_.configs)
        for (const auto& [key, text] : stored["data"].members())
          if (const auto list = kube::parse_json(text.string()); list && list->is_array())
            for (const Json& entry : list->items()) configs_->insert(entry["InstanceId"].string() + "/" + entry["AgentIpAddress"].string());
    }
    const Json* its_node = node_of(due.value.node);
    const std::string machine = its_node == nullptr ? "" : machine_address(*its_node);
    if (machine.empty()) return false;
    const bool there = configs_->contains(due.value.id + "/" + machine);
    if (!wanted_configs_) {
      std::vector<ScriptNode> nodes;
      for (const One& one : mine_) {
        const Json* node = one.leaves || one.value.deleting || one.value.node.empty() ? nullptr : node_of(one.value.node);
        if (node == nullptr) continue;
        if (const std::string address = machine_address(*node); !address.empty()) nodes.push_back({one.value.group, one.value.id, address, slurm_ ? one.status["address"].string_or(address) : address, one.value.number});
      }
      wanted_configs_ = script_configs(cluster_, object_, nodes);
    }
    const Json* heads = find_named(in_.configs, kube::name_of(wanted_configs_->front()));
    const bool current = heads != nullptr && (*heads)["data"] == wanted_configs_->front()["data"];
    if (there && current) return true;
    if (configs_written_) return false;
    configs_written_ = true;
    for (const Json& wanted : *wanted_configs_) {
      const Json* stored = find_named(in_.configs, kube::name_of(wanted));
      if (stored == nullptr) add(Verb::Create, resources::config_maps, wanted, "what scripts read of the cluster");
      else if ((*stored)["data"] != wanted["data"]) {
        Json changed = *stored;
        changed.set("data", wanted["data"]);
        add(Verb::Update, resources::config_maps, std::move(changed), "what scripts read of the cluster");
      }
    }
    look_again(std::chrono::seconds(1));  // nobody tells of ConfigMaps
    return false;
  }
  static std::string machine_address(const Json& node) {
    for (const Json& address : node["status"]["addresses"].items())
      if (address["type"].string() == "InternalIP") return address["address"].string();
    return "";
  }

  void fail_instance(One& one, std::string why) {
    one.phase = "Failure";
    one.message = why;
    // One that was there before this change began is not the change's.
    const auto made = parse_time((*one.object)["metadata"]["creationTimestamp"].string());
    const auto began = parse_time(status_["began"].string());
    if (made && began && *made < *began && status_["beganGeneration"].integer(-1) == cluster_.generation) ++old_failures_[one.value.group];
    else if (failure_.empty()) failure_ = fmt::format("instance {} of group {}: {}", one.value.id, one.value.group, why);
  }
  static void tell_addresses(One& one, const Json& node) {
    for (const Json& address : node["status"]["addresses"].items())
      if (address["type"].string() == "InternalIP") one.status.set(address["address"].string().find(':') == std::string::npos ? "address" : "address6", address["address"]);
  }

  // The node with the labels and taints of its group, and without those that the group had before. `in_use`: it carries the label of its health, whoever changes that.
  static Json dress(Json node, const std::map<std::string, std::string>& labels, const Json& taints, bool in_use) {
    const auto before = kube::parse_json(node["metadata"]["annotations"][kDressed].string());
    // Not kept: a member that is added moves the others.
    const auto metadata = [&node]() -> Json& { return node.child("metadata"); };
    const auto id_of = [](const Json& taint) { return taint["key"].string() + ":" + taint["effect"].string(); };
    std::set<std::string> had;
    if (before) {
      for (const Json& label : (*before)["labels"].items())
        if (!labels.contains(label.string())) metadata().child("labels").erase(label.string());
      for (const Json& taint : (*before)["taints"].items()) had.insert(taint.string());
    }
    Json now_labels = Json::array(), now_taints = Json::array(), all = Json::array();
    for (const auto& [key, value] : labels) {
      metadata().child("labels").set(key, value);
      now_labels.push(key);
    }
    if (in_use && !node["metadata"]["labels"].has(api::kHealthLabel)) metadata().child("labels").set(api::kHealthLabel, "Schedulable");
    if (!in_use) metadata().child("labels").erase(api::kHealthLabel);
    std::set<std::string> wanted;
    for (const Json& taint : taints.items()) {
      wanted.insert(id_of(taint));
      now_taints.push(id_of(taint));
    }
    for (const Json& taint : node["spec"]["taints"].items())
      if (!had.contains(id_of(taint)) && !wanted.contains(id_of(taint))) all.push(taint);
    for (const Json& taint : taints.items()) all.push(taint);
    if (!all.items().empty()) node.child("spec").set("taints", std::move(all));
    else if (node["spec"].has("taints")) node.child("spec").erase("taints");
    if (!now_labels.items().empty() || !now_taints.items().empty()) metadata().child("annotations").set(kDressed, kube::print_json(Json::object({{"labels", std::move(now_labels)}, {"taints", std::move(now_taints)}})));
    else if (Json* annotations = metadata().find("annotations"); annotations != nullptr) annotations->erase(kDressed);
    return node;
  }

  static Json uncordoned(Json node) {
    node.child("spec").erase("unschedulable");
    if (Json* annotations = node.child("metadata").find("annotations"); annotations != nullptr) annotations->erase(kCordonedBy);
    return node;
  }
  // True: it is closed to new pods, and was when these were looked at.
  bool closed_for(const One& one, const Json& node) {
    if (cordoned(node)) return true;
    add(Verb::Update, resources::nodes, laid_over(node, Json::object({{"metadata", Json::object({{"annotations", Json::object({{kCordonedBy, one.value.id}})}})}, {"spec", Json::object({{"unschedulable", true}})}})), fmt::format("{} is emptied", one.value.id));
    return false;
  }
  // What it ran has ended for all we can ever know: it has been silent for long.
  bool is_silent(const Json* node) {
    if (node == nullptr) return true;
    const auto since = silent_since(*node);
    if (!since) return false;
    if (now_ >= *since + options_.silent) return true;
    look_again(*since + options_.silent - now_);
    return false;
  }
  // Asks what Slurm has on the machine to go. True: there is nothing.
  bool emptied(One& one, bool comes_back) {
    const auto found = pods_on_.find(one.value.node);
    if (found == pods_on_.end() || overdue_) return true;
    bool empty = true;
    const InstanceGroup* group = cluster_.group(one.value.group);
    for (const Json* pod : found->second) {
      if (!holds_machine(*pod, cluster_.orchestrator)) continue;
      empty = false;
      if (is_script(*pod)) {
        one.message = fmt::format("its script is to end first ({})", kube::name_of(*pod));
        look_again(std::chrono::seconds(2));
        if ((one.leaves || one.value.deleting) && !kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, fmt::format("{} goes", one.value.id));
        continue;
      }
      if (!slurm_) {
        one.message = fmt::format("pod {} is to leave it first", kube::key_of(*pod).text());
        look_again(std::chrono::seconds(2));
        if (!kube::deleting(*pod)) add(Verb::Evict, resources::pods, *pod, fmt::format("{} goes", one.value.id));
        continue;
      }
      const bool worker = (*pod)["metadata"]["labels"][api::kSlurmRoleLabel].string() == "worker";
      one.message = fmt::format("{} is to leave it first{}", kube::name_of(*pod), worker ? fmt::format("; condition WorkersAvailable of SlurmCluster {} says what it waits for", cluster_.slurm_name) : "");
      if (kube::deleting(*pod) || cluster_.deleting || undone_) continue;
      if (!worker) {
        add(Verb::Delete, resources::pods, *pod, fmt::format("{} goes; what is still wanted is made again elsewhere", one.value.id));
      } else if (group != nullptr && has_role(*pod, *group)) {
        const Sizes& sizes = sizes_.at(group->name);
        mark(*pod, !comes_back && sizes.pods > sizes.wanted ? api::kLeavesFirst : api::kMadeAnew, one.value.id);
      }  // else its NodeSet goes as a whole
    }
    return empty;
  }
  void mark(const Json& pod, const char* annotation, const std::string& value) {
    if (pod["metadata"]["annotations"][annotation].string() == value) return;
    add(Verb::Update, resources::pods, laid_over(pod, Json::object({{"metadata", Json::object({{"annotations", Json::object({{annotation, value}})}})}})), "its machine is to be empty");
  }

  // A machine is given back when nothing of the cluster is on it.
  void let_go(One& one) {
    const Instance& value = one.value;
    const auto forget = [&](const char* why) {
      Json without = *one.object;
      kube::remove_finalizer(without, api::kInstanceFinalizer);
      add(Verb::Update, api::kInstances, std::move(without), why);
      (value.made ? last().if_gone : last().if_not_of) = value.node;
    };
    if (value.node.empty()) return forget("it never had a machine");
    const Json* node = node_of(value.node);
    const Json* machine = machine_of(value.node);
    const bool ours = node != nullptr && owner_of(*node) == value.id;
    const bool silent = is_silent(node);
    if (ours && !silent) {
      if (!closed_for(one, *node)) return;
      const bool comes_back = cluster_.group(value.group) != nullptr && numbers_.contains(value.group) && numbers_.at(value.group).live(value.number);
      if (!emptied(one, comes_back)) return;
    }
    if (value.made) {
      if (machine == nullptr) return forget("its machine is gone");
      if (kube::deleting(*machine)) {
        one.message = "its machine is taken down";
      } else {
        add(Verb::Delete, resources::machines, *machine, fmt::format("{} has left", value.id));
        guard(value.node, silent && node != nullptr);
      }
      return;
    }
    if (!ours) return forget("its machine is given back");
    Json back = slurm_ ? *node : dress(*node, {}, Json::array(), false);
    back = (*node)["metadata"]["annotations"][kCordonedBy].string() == value.id ? uncordoned(std::move(back)) : std::move(back);
    for (const char* const label : {api::kInstanceLabel, api::kClusterLabel, api::kClusterNameLabel, api::kGroupNameLabel, api::kComputeTypeLabel}) back.child("metadata").child("labels").erase(label);
    // Nor is one that fell silent, and may run what it ran.
    // Where the script's root was the machine itself, it is half made.
    if (!value.replace.empty() || silent || (!slurm_ && failed_script(one) != nullptr)) back.child("metadata").child("labels").set(kReplaced, value.id);
    add(Verb::Update, resources::nodes, std::move(back), fmt::format("{} has left", value.id));
    guard(value.node, silent);
  }
  void guard(const std::string& node, bool silent) {
    if (overdue_) return;
    (silent ? last().if_silent : last().if_empty) = node;
  }

  // A request to reboot, once for each id. True: it is under way.
  bool reboots(One& one, const Json& node, const Json* machine) {
    const Instance& value = one.value;
    if (value.reboot.empty() || (value.reboot == value.reboot_id && (value.reboot_stage == "Done" || value.reboot_stage == "Failed"))) return false;
    const auto stage = [&](const char* next, std::string message = {}) {
      Json told = Json::object({{"id", value.reboot}, {"stage", next}});
      if (!message.empty()) told.set("message", std::move(message));
      one.status.set("reboot", std::move(told));
    };
    if (value.reboot != value.reboot_id) {
      if (machine == nullptr) {
        stage("Failed", "this machine is not Fairlead's to reboot: do it by its own means");
        return false;
      }
      stage("Emptying");
      one.message = "is to be rebooted";
      return true;
    }
    // A controller's work is taken over or waits; people on a login node were asked for.
    const InstanceGroup* group = cluster_.group(value.group);
    const bool drains = group != nullptr && (!slurm_ || group->node_type == SlurmNodeType::Compute) && !is_silent(&node);
    if (runs_script(one)) {
      one.message = "is to be rebooted when its script has ended";
      look_again(std::chrono::seconds(2));
      return true;
    }
    if (value.reboot_stage == "Emptying") {
      if (!drains || (closed_for(one, node) && emptied(one, true))) stage("Rebooting");
      one.message = one.message.empty() ? "is to be rebooted" : "is to be rebooted; " + one.message;
      return true;
    }
    one.message = "is rebooted";
    if (machine == nullptr) {
      stage("Failed", "its machine is gone");
      return false;
    }
    const Json &asked = (*machine)["spec"]["reboot"], &told = (*machine)["status"]["reboot"];
    if (asked["id"].string() != value.reboot) {
      if (drains && !(closed_for(one, node) && emptied(one, true))) return true;  // one came meanwhile
      add(Verb::Update, resources::machines, laid_over(*machine, Json::object({{"spec", Json::object({{"reboot", Json::object({{"id", value.reboot}, {"by", fmt::format("cluster {}, instance {}", cluster_.title, value.id)}})}})}})), value.id + " is to be rebooted");
      if (group != nullptr && (!slurm_ || group->node_type == SlurmNodeType::Compute)) guard(value.node, !drains);
      return true;
    }
    if (told["id"].string() != value.reboot || told["phase"].string() == "Rebooting") return true;
    if (told["phase"].string() == "Refused") stage("Failed", told["message"].string());
    else stage("Done");
    return true;
  }

  // ---- Slurm

  // Of each group: how many nodes Slurm is to have in the end (those that have a machine, no more than asked for), how many it is told now, and how many pods there are.
  struct Sizes {
    int wanted = 0, now = 0, pods = 0;
  };
  void count_sizes() {
    for (const InstanceGroup& group : cluster_.groups) {
      Sizes& sizes = sizes_[group.name];
      for (const Json& pod : in_.pods) sizes.pods += has_role(pod, group);
      if (group.node_type == SlurmNodeType::Controller) {
        sizes.wanted = sizes.now = group.target;
        continue;
      }
      const Numbers& numbers = numbers_.at(group.name);
      std::set<int> placed, unmarked;
      for (const One& one : of_group(group.name)) {
        if (one.value.node.empty()) continue;
        if (numbers.live(one.value.number)) {
          if (is_open(one)) placed.insert(one.value.number);
        } else if (const auto found = pods_on_.find(one.value.node); group.node_type == SlurmNodeType::Compute && found != pods_on_.end()) {
          // Fewer are asked for when Slurm knows which one is meant: else it would choose another.
          for (const Json* pod : found->second)
            if (holds_machine(*pod, cluster_.orchestrator) && has_role(*pod, group) && !kube::deleting(*pod) && !(*pod)["metadata"]["annotations"].has(api::kLeavesFirst)) unmarked.insert(one.value.number);
        }
      }
      sizes.wanted = std::min(group.target, static_cast<int>(placed.size()));
      sizes.now = sizes.wanted + static_cast<int>(unmarked.size());
    }
  }

  ShapeOptions shape_options() const {
    ShapeOptions out{.storage_class = options_.storage_class, .local_machines = options_.makes_machines};
    out.jail_image = options_.scripts.image;
    // It stays as it was made: a change would start what runs anew.
    if (in_.slurm.is_object()) out.local_machines = in_.slurm["spec"]["extensions"].has("bindCores");
    return out;
  }

  void shape_slurm() {
    if (kube::deleting(in_.slurm)) return look_again(std::chrono::seconds(1));  // somebody deleted it: it is made again when it is gone
    if (in_.space.is_null()) {
      add(Verb::Create, resources::namespaces, namespace_of(cluster_, object_), "what is made for the cluster is in it");
      return;
    }
    if (kube::deleting(in_.space)) return look_again(std::chrono::seconds(1));
    ShapeOptions shape = shape_options();
    for (Json& wanted : claims_of(cluster_, shape))
      if (std::none_of(in_.claims.begin(), in_.claims.end(), [&](const Json& there) { return kube::name_of(there) == kube::name_of(wanted); })) add(Verb::Create, resources::claims, std::move(wanted), "the cluster keeps its state and homes in it");
    std::map<std::string, int> sizes;
    std::set<std::string> sets;
    int nodes = 0;
    for (const InstanceGroup& group : cluster_.groups) {
      sizes[group.name] = sizes_.at(group.name).now;
      if (group.node_type != SlurmNodeType::Compute) continue;
      sets.insert(group.set);
      nodes += group.target;
      Json wanted = node_set_of(cluster_, group, sizes[group.name]);
      if (const Json* there = find_named(in_.node_sets, group.set); there == nullptr) add(Verb::Create, api::kNodeSets, std::move(wanted), fmt::format("group {}", group.name));
      else put(api::kNodeSets, *there, laid_over(*there, Json::object({{"spec", wanted["spec"]}})), fmt::format("group {}", group.name));
    }
    for (const Json& set : in_.node_sets)
      if (set["metadata"]["labels"][api::kClusterLabel].string() == cluster_.name && !sets.contains(kube::name_of(set))) {
        shape.ending[kube::name_of(set)] = set["metadata"]["annotations"][kPartitionNote].string();
        if (!kube::deleting(set)) add(Verb::Delete, api::kNodeSets, set, "its group is gone");
      }
    Json wanted = slurm_cluster_of(cluster_, sizes, shape);
    if (in_.slurm.is_object()) put(resources::slurm_clusters, in_.slurm, shaped(in_.slurm, wanted, nodes), "the cluster");
    else add(Verb::Create, resources::slurm_clusters, shaped(wanted, wanted, nodes), "the cluster");
    // Slurm leaves login nodes beyond the size alone, for the people on them; here somebody asked for fewer.
    const auto logins = in_.slurm["spec"]["slurmNodes"]["login"]["size"].integer(1);
    for (const Json& pod : in_.pods)
      if (pod["metadata"]["labels"][api::kSlurmRoleLabel].string() == "login" && !kube::deleting(pod) && ordinal_of(pod) >= logins) add(Verb::Delete, resources::pods, pod, "fewer login nodes are asked for");
  }
  static const Json* find_named(const std::vector<Json>& all, const std::string& wanted) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Json& one) { return kube::name_of(one) == wanted; });
    return found == all.end() ? nullptr : &*found;
  }
  // What a person changed beside our fields stays.
  void put(const kube::Resource& resource, const Json& there, Json laid, std::string why) {
    if (!kube::deleting(there) && laid != there) add(Verb::Update, resource, std::move(laid), std::move(why));
  }
  bool applied() const {
    if (!slurm_) return true;
    const Json& status = in_.slurm["status"];
    return in_.slurm.is_object() && !status["appliedConfigHash"].string().empty() && status["observedGeneration"].integer() == in_.slurm["metadata"]["generation"].integer(status["observedGeneration"].integer());
  }

  // ---- the end

  // True: nothing of Slurm is left, so that machines may go.
  bool take_down() {
    if (!slurm_) return true;  // pods leave with their machines
    bool left = false;
    if (in_.slurm.is_object()) {
      left = true;
      if (!kube::deleting(in_.slurm)) add(Verb::Delete, resources::slurm_clusters, in_.slurm, "the cluster goes");
    }
    for (const Json& set : in_.node_sets) {
      left = true;
      if (!kube::deleting(set)) add(Verb::Delete, api::kNodeSets, set, "the cluster goes");
    }
    for (const Json& pod : in_.pods) {
      left = left || holds_machine(pod, cluster_.orchestrator);
      if (is_script(pod) && !overdue_ && !kube::deleting(pod)) add(Verb::Delete, resources::pods, pod, "the cluster goes");
      // What does not answer is not waited for any longer: its machine goes, too.
      if (!overdue_ || pod["spec"]["nodeName"].string().empty()) continue;
      add(Verb::Delete, resources::pods, pod, "it does not end");
      last().force = true;
    }
    if (!left || overdue_) return true;
    look_again(std::chrono::seconds(5));
    for (One& one : mine_) one.phase = "ShuttingDown", one.message = "what Slurm runs on it ends first";
    return false;
  }
  // True: the namespace is gone.
  bool space_gone() {
    if (in_.space.is_null() || !is_namespace_of(in_.space, cluster_)) return true;
    if (!kube::deleting(in_.space)) add(Verb::Delete, resources::namespaces, in_.space, "the cluster goes");
    look_again(std::chrono::seconds(1));
    return false;
  }
  void finish() {
    if (!space_gone()) return;
    Json without = object_;
    kube::remove_finalizer(without, api::kClusterFinalizer);
    add(Verb::Update, api::kClusters, std::move(without), "nothing of it is left");
    gone_ = true;
  }

  // ---- what is told

  void tell(const std::string& phase, const std::string& message) {
    status_.set("phase", phase);
    if (message.empty()) status_.erase("message");
    else status_.set("message", message);
  }

  void tell_validity(const std::string& wrong) {
    Json holder = Json::object({{"metadata", object_["metadata"]}, {"status", std::move(status_)}});
    kube::set_condition(holder, {"SpecValid", wrong.empty() ? "True" : "False", wrong.empty() ? "Valid" : "Refused", wrong}, now_);
    status_ = std::move(*holder.find("status"));
    status_.set("observedGeneration", cluster_.generation);
  }

  // How many nodes of a group run.
  int running_of(const InstanceGroup& group) const {
    std::set<int> out;
    for (const One& one : of_group(group.name))
      if (one.phase == "Running" && numbers_.at(group.name).live(one.value.number)) out.insert(one.value.number);
    return static_cast<int>(out.size());
  }

  // What tells most of why a group is not whole.
  static int rank(const One& one) { return one.phase == "Failure" ? 2 : one.value.node.empty() ? 1 : 0; }

  void judge() {
    bool complete = applied(), enough = applied(), settled = true, waits = false;
    int running_all = 0, target_all = 0;
    Json groups = Json::array();
    std::set<std::string> told;
    for (const InstanceGroup& group : cluster_.groups) {
      const int running = running_of(group), target = group.target;
      running_all += running, target_all += target;
      const bool full = running == target && numbers_.at(group.name).size() == target;
      const auto mine = of_group(group.name);
      const bool leaving = std::any_of(mine.begin(), mine.end(), [](const One& one) { return one.leaves || one.value.deleting; });
      const auto old = old_failures_.find(group.name);
      const bool as_before = numbers_.at(group.name).size() == target && running + (old == old_failures_.end() ? 0 : old->second) >= target;
      complete = complete && as_before && !leaving;
      settled = settled && numbers_.at(group.name).size() == target && !leaving;
      const auto going = scripts_going_.find(group.name);
      waits = waits || running + (old == old_failures_.end() ? 0 : old->second) + (going == scripts_going_.end() ? 0 : going->second) < target;
      enough = enough && running >= (slurm_ && group.node_type == SlurmNodeType::Controller ? std::max(1, group.min) : group.min);
      const One* stuck = nullptr;
      for (const One& one : mine)
        if (!one.leaves && !one.value.deleting && one.phase != "Running" && (stuck == nullptr || rank(one) > rank(*stuck))) stuck = &one;
      Json entry = Json::object({{"instanceGroupName", group.name}, {"status", full && !leaving ? "InService" : !served_ ? "Creating" : stuck != nullptr && (stuck->phase == "Failure" || stuck->value.node.empty()) ? "Degraded" : "Updating"}, {"current", running}, {"target", target}, {"issued", next_.at(group.name).issued}});
      if (const std::string retired = next_.at(group.name).retired.text(); !retired.empty()) entry.set("retired", retired);
      if (stuck != nullptr && !stuck->message.empty()) entry.set("message", fmt::format("{}: {}", stuck->value.id, stuck->message));
      groups.push(std::move(entry));
      told.insert(group.name);
    }
    // Of a group that is gone the numbers are kept: no name comes back.
    for (const Json& before : status_["instanceGroups"].items()) {
      if (!told.insert(before["instanceGroupName"].string()).second) continue;
      const auto left = of_group(before["instanceGroupName"].string());
      complete = complete && left.empty(), settled = settled && left.empty();
      Json entry = before;
      NumberSet retired;
      retired.add(1, static_cast<int>(before["issued"].integer()));
      entry.set("status", left.empty() ? "Deleted" : "Deleting").set("current", 0).set("target", 0);
      if (retired.size() > 0) entry.set("retired", retired.text());
      entry.erase("message");
      groups.push(std::move(entry));
    }
    for (const One& one : mine_)
      if (!told.contains(one.value.group)) complete = settled = false;
    status_.set("instanceGroups", std::move(groups)).set("summary", fmt::format("{}/{}", running_all, target_all)).set("observedGeneration", cluster_.generation);
    status_.set("namespace", cluster_.space);
    std::string slurm_refuses;
    if (const Json* valid = in_.slurm.is_object() ? kube::find_condition(in_.slurm, "SpecValid") : nullptr; valid != nullptr && (*valid)["status"].string() == "False") slurm_refuses = "Slurm: " + (*valid)["message"].string();

    if (cluster_.continuous) {
      status_.set("mode", "Continuous");
      if (served_ || enough) {
        status_.set("served", true);
        tell("InService", slurm_refuses);
      } else {
        tell("Creating", slurm_refuses);
      }
      return;
    }
    const std::int64_t good = status_["good"]["generation"].integer(-1);
    if (complete) {
      const std::string kept = taken_back_ ? status_["failed"]["message"].string() : "";
      if (!taken_back_ && good != cluster_.generation) status_.set("good", Json::object({{"generation", cluster_.generation}, {"spec", object_["spec"]}}));
      status_.set("served", true);
      status_.erase("began");
      return tell("InService", kept);
    }
    // Nothing of the change is left; what had failed before it has failed since.
    if (taken_back_ && settled) return tell("InService", status_["failed"]["message"].string());
    if (taken_back_) return tell("RollingBack", status_["failed"]["message"].string());
    if (good == cluster_.generation) return tell("InService", slurm_refuses);
    const Instant began = parse_time(status_["began"].string()).value_or(now_);
    Instant latest = began;  // what a script has taken is not waiting
    for (const One& one : mine_)
      for (const ScriptStage stage : kStages)
        if (const auto at = parse_time(script_record(one, stage)["at"].string())) latest = std::max(latest, static_cast<Instant>(*at));
    const bool same = status_["beganGeneration"].integer(-1) == cluster_.generation;
    if (!same) status_.set("began", print_time(now_)).set("beganGeneration", cluster_.generation);
    tell(served_ ? "Updating" : "Creating", "");
    if (!same) return look_again(options_.no_machine);
    std::string why = failure_.empty() ? slurm_refuses : failure_;
    if (why.empty() && without_machine_ && now_ >= began + options_.no_machine) {
      for (const One& one : mine_)
        if (why.empty() && one.value.node.empty() && !one.message.empty()) why = fmt::format("group {}: {}", one.value.group, one.message);
    } else if (why.empty() && waits && now_ >= latest + options_.patience) {  // jobs of what leaves may take their time
      why = fmt::format("not all instances ran within {} minutes", options_.patience.count() / 60);
      for (const One& one : mine_)
        if (!one.message.empty() && one.phase != "Running" && !one.leaves) {
          why += fmt::format("; {} of group {}: {}", one.value.id, one.value.group, one.message);
          break;
        }
    }
    if (!why.empty()) {
      status_.set("failed", Json::object({{"generation", cluster_.generation}, {"message", why}, {"at", print_time(now_)}}));
      return tell("RollingBack", why);
    }
    const Instant next = without_machine_ && now_ < began + options_.no_machine ? began + options_.no_machine : latest + options_.patience;
    if (next > now_) look_again(next - now_);
  }

  ClusterPlan done() {
    std::set<std::string> changed;
    for (const ClusterStep& step : out_.steps)
      if (step.resource == api::kInstances && step.verb != Verb::Create) changed.insert(kube::name_of(step.object));
    for (One& one : mine_) {
      if (gone_) break;
      one.status.set("phase", one.phase.empty() ? one.value.phase.empty() ? "Pending" : one.value.phase : one.phase);
      if (one.message.empty()) one.status.erase("message");
      else one.status.set("message", one.message);
      if (one.status == (*one.object)["status"]) continue;
      // First of all: what is done with a machine follows from what is written here.
      Json told = *one.object;
      told.set("status", one.status);
      if (!changed.contains(one.value.id)) told_.push_back({.verb = Verb::UpdateStatus, .resource = api::kInstances, .object = std::move(told), .if_empty = {}, .if_gone = {}, .if_live = {}, .live_node = {}, .unrun = {}, .if_not_of = {}, .if_silent = {}, .tells_of = {}, .why = "what is known of it"});
    }
    out_.steps.insert(out_.steps.begin(), std::make_move_iterator(told_.begin()), std::make_move_iterator(told_.end()));
    tell_events();
    if (!gone_ && status_ != object_["status"]) out_.status = status_;
    return std::move(out_);
  }

  // Before the statuses that they follow from: what was told again has the same name.
  void tell_events() {
    if (gone_ || cluster_.deleting || !in_.space.is_object() || kube::deleting(in_.space) || !is_namespace_of(in_.space, cluster_)) return;
    // There was no place for the first ones.
    Json from = object_;
    if (in_.events.empty() && !served_) from.erase("status");
    std::vector<InstanceChange> changes;
    for (const One& one : mine_) changes.push_back({one.object, &one.status});
    std::vector<ClusterStep> steps;
    for (Json& event : cluster_events(from, status_, changes, [this](const std::string& node) { return node_of(node); }, now_)) {
      event.child("metadata").set("namespace", cluster_.space).set("ownerReferences", Json::array({kube::owner_reference(object_)}));
      ClusterStep step{.verb = Verb::Create, .resource = api::kClusterEvents, .object = std::move(event), .if_empty = {}, .if_gone = {}, .if_live = {}, .live_node = {}, .unrun = {}, .if_not_of = {}, .if_silent = {}, .tells_of = {}, .why = "it happened"};
      step.tells_of = step.object["spec"]["instanceId"].string();
      steps.push_back(std::move(step));
    }
    constexpr std::size_t at_a_time = 100;
    for (const Json* event : events_to_forget(in_.events, now_)) {
      if (out_.steps.size() >= at_a_time) break;
      add(Verb::Delete, api::kClusterEvents, *event, "there are newer ones");
    }
    out_.steps.insert(out_.steps.begin(), std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
  }

  const ClusterSnapshot& in_;
  const Instant now_;
  const ClusterPlanOptions& options_;
  const Json& object_;
  Json status_;
  api::Cluster cluster_;
  bool taken_back_ = false, undone_ = false, served_ = false, overdue_ = false, slurm_ = true, without_machine_ = false, gone_ = false;
  std::vector<One> mine_;
  std::set<std::string> promised_;
  std::map<std::string, std::vector<const Json*>> pods_on_;
  std::map<std::string, Numbers> numbers_, next_;  // as stored, and as it is to be
  std::map<std::string, Sizes> sizes_;
  std::map<std::string, int> old_failures_;  // by group: of before this change
  std::string failure_;
  std::set<std::string> secrets_;            // that this round makes
  std::optional<std::set<std::string>> configs_;  // "INSTANCE/ADDRESS" of what is stored for scripts
  std::optional<std::vector<Json>> wanted_configs_;
  bool configs_written_ = false;
  std::map<std::string, int> scripts_going_;  // by group: instances whose script is at work
  std::vector<ClusterStep> told_;
  ClusterPlan out_;
};

}  // namespace

ClusterPlan plan_cluster(const ClusterSnapshot& snapshot, Instant now, const ClusterPlanOptions& options) { return Planner(snapshot, now, options).run(); }

}  // namespace fairlead::fleet
