// SPDX-License-Identifier: Apache-2.0
// How plan_cluster goes about it. Part of cluster_plan.h, for no one else: one Planner for one round, which takes what it decides down in order. Its functions are in
// cluster_plan.cpp (the round), cluster_numbers.cpp (which nodes, on which machines), cluster_reservations.cpp (by which plans), cluster_machines.cpp (each instance), cluster_scripts.cpp, cluster_health.cpp, cluster_checks.cpp, cluster_links.cpp, cluster_software.cpp, cluster_slurm.cpp (what is made of them), cluster_judge.cpp (what is told).
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "api/instance_types.h"
#include "api/instance_volume.h"
#include "api/machine.h"
#include "api/network_ways.h"
#include "api/node_set.h"
#include "fleet/plan/cluster_events.h"
#include "fleet/plan/cluster_plan.h"

namespace fairlead::fleet::planner {

using api::Instance;
using api::InstanceGroup;
using api::NumberSet;
using api::SlurmNodeType;
using kube::Json;
namespace resources = kube::resources;
using Verb = ClusterStep::Verb;

inline constexpr const char* kCordonedBy = api::kCordonedByNote;  // what a person cordons stays
inline constexpr const char* kDressed = "fairlead.dev/instance-labels";  // of a Node: {labels: [KEY], taints: ["KEY:EFFECT"]} that its group gave it
inline constexpr const char* kReplaced = api::kReplacedLabel;

inline constexpr const char* kRecovery = "fairlead.dev/recovery";       // of a Node: what its health label asked for, the id of that request, and the label as it was written where that was not quite the word
inline constexpr const char* kRebootNote = "Reboot ";
inline constexpr const char* kReplaceNote = "Replace ";

// It was asked to, and that has not come to its end.
inline bool is_to_reboot(const Instance& value) { return !value.reboot.empty() && (value.reboot != value.reboot_id || (value.reboot_stage != "Done" && value.reboot_stage != "Failed")); }
inline bool cordoned(const Json& node) { return node["spec"]["unschedulable"].boolean(); }
inline bool is_ready(const Json& node) { return kube::condition_is_true(node, "Ready"); }
inline const std::string& owner_of(const Json& node) { return node["metadata"]["labels"][api::kInstanceLabel].string(); }

// The node without the taint of a deep health check.
Json without_check_taint(Json node);

struct One {
  Instance value;
  const Json* object = nullptr;
  bool leaves = false;           // now
  std::string phase, message;    // to be told
  Json status;                   // what it is to be
  std::string gives_up = {};     // the Node that it had chosen and leaves to a plan: told once the API itself says that the Node is not its own
};

// The stage that its deep health check has come to.
void note_check(One& one, const std::string& id, const char* stage, Instant now, std::string message = {});

// The numbers of one group after this round.
struct Numbers {
  int issued = 0;
  NumberSet retired;  // of the spec, and of the status: stored there, an older spec that is put back brings none back
  bool live(int number) const { return number >= 1 && number <= issued && !retired.contains(number); }
  int size() const { return issued - retired.size(); }
};

class Planner {
 public:
  Planner(const ClusterSnapshot& snapshot, Instant now, const ClusterPlanOptions& options);

  ClusterPlan run();

 private:
  // ---- steps

  void add(Verb verb, const kube::Resource& resource, Json object, std::string why) { out_.steps.push_back({.verb = verb, .resource = resource, .object = std::move(object), .if_empty = {}, .if_gone = {}, .if_live = {}, .live_node = {}, .unrun = {}, .if_not_of = {}, .if_silent = {}, .if_no_instance = {}, .tells_of = {}, .why = std::move(why)}); }
  ClusterStep& last() { return out_.steps.back(); }
  void look_again(std::chrono::nanoseconds after) { out_.look_again = out_.look_again ? std::min(*out_.look_again, after) : after; }
  const Json* node_of(const std::string& name) const { return find(in_.nodes, name); }
  const Json* machine_of(const std::string& name) const { return find(in_.machines, name); }
  static const Json* find(const std::map<std::string, Json>& all, const std::string& name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
  }

  // ---- what was asked for

  std::string objection() const;

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
  void count_numbers();
  Json new_instance(const InstanceGroup& group, int number, int attempt, const std::string& replaces) const;  // `replaces`: the request that its machine comes by, if by any

  void make_instances();

  static const Json& script_record(const One& one, ScriptStage stage) { return one.status["lifecycle"][field_of(stage)]; }
  static const Json* failed_script(const One& one) {
    for (const ScriptStage stage : kStages)
      if (const Json& record = script_record(one, stage); !one.value.ran && record["phase"].string() == "Failed") return &record;
    if (const Json& record = one.status["healthCheck"]; !one.value.ran && record["stage"].string() == "Failed") return &record;
    return nullptr;
  }
  // After a minute, and twice as long each further time, up to half an hour. Of a change that is under way, all or nothing, there is no second try.
  std::optional<Instant> tries_again_at(const One& one) const;
  // By which it is prepared: its own, from when the first of them began; until then its group's.
  const api::LifecycleScripts& scripts_of(const One& one) const {
    static const api::LifecycleScripts none;
    const InstanceGroup* group = cluster_.group(one.value.group);
    return one.value.ran ? none : one.value.scripts ? *one.value.scripts : group != nullptr ? group->scripts : none;
  }
  // It may have what Slurm runs: nothing is to run on it before OnCreate has.
  bool is_open(const One& one) const { return is_prepared(one) && !shut_by_check(one) && !lacks_volume(one); }
  // OnCreate has run well, or there is none.
  bool is_prepared(const One& one) const { return scripts_of(one).on_create.empty() || script_record(one, ScriptStage::OnCreate)["phase"].string() == "Succeeded"; }

  // ---- deep health checks (docs/design/058)
  // Before it is in use for the first time, or prepared again.
  bool checked_on_start(const One& one) const {
    const InstanceGroup* group = cluster_.group(one.value.group);
    return group != nullptr && group->checks_on_start.any() && !one.value.ran;
  }
  // Nothing is to run on it until it has passed.
  bool shut_by_check(const One& one) const {
    const std::string& stage = one.status["healthCheck"]["stage"].string();
    return stage == "Checking" || stage == "Failed" || one.status["healthCheck"]["failed"].boolean() || (checked_on_start(one) && stage != "Passed");
  }
  // A request: its work ends first. True: it is under way, and is not shut yet.
  bool empties_for_check(One& one, const Json& node);
  // What the Node has to say of a check, where it says something else.
  std::optional<Json> told_of_check(const One& one, const Json& node) const;
  void run_check(One& one, const Json& node);
  // What became of a pod of a check, which is told where it is not at its end: another pod has its name, one of an earlier request is to go, what became of it is not known.
  struct CheckPod {
    enum class Kind { Missing, Waits, Going, Passed, Fault } kind = Kind::Waits;
    std::string message = {};      // at its end
    const Json* pod = nullptr;     // where it is Going
  };
  CheckPod look_at_check(One& one, const std::string& pod_name, const std::string& request);
  // Once its namespace is there and nothing else is on the machine.
  void begin_check(One& one, const Json& node, const std::function<Json()>& pod);

  // Its links, with others of its group that are checked just then (cluster_links.cpp).
  void meet(One& one, const Json& node);
  bool meets_when_empty(const One& one) const;  // it is emptied for that
  bool comes_to_meet(const One& other) const;   // it will, before long
  void try_links(One& one, const Json& node);
  void judge(One& one);
  // What it was to run by is not there, and its group has something else by now: nothing has come of it, so it may.
  bool renew_scripts(One& one, const InstanceGroup& group) {
    if (!one.value.scripts || one.status["lifecycle"]["config"] == lifecycle_of(group)) return false;
    fix_scripts(one);
    one.message = "its group has other scripts now";
    look_again(std::chrono::seconds(1));
    return true;
  }
  const Json* script_pod_named(const std::string& pod_name) {
    if (!script_pods_) {
      script_pods_.emplace();
      for (const Json& pod : in_.pods)
        if (kube::space_of(pod) == cluster_.space) script_pods_->emplace(kube::name_of(pod), &pod);
    }
    const auto found = script_pods_->find(pod_name);
    return found == script_pods_->end() ? nullptr : found->second;
  }
  bool runs_script(const One& one) const {
    const auto found = pods_on_.find(one.value.node);
    return found != pods_on_.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Json* pod) { return is_script(*pod) && holds_machine(*pod, cluster_.orchestrator); });
  }

  void all_leave() {
    for (One& one : mine_) one.leaves = true;
  }
  void mark_leaving();

  // ---- machines

  static std::string made_name(const Instance& instance) { return "hyperpod-" + instance.id; }

  // By the group's name pods of Slurm find it.
  Json labels_for(const Instance& instance, bool open) const {
    Json out = Json::object({{api::kInstanceLabel, instance.id}, {api::kClusterLabel, cluster_.name}, {api::kClusterNameLabel, cluster_.title}, {api::kComputeTypeLabel, "hyperpod"}, {api::kInstanceTypeLabel, instance.type}});
    if (open) out.set(api::kGroupNameLabel, instance.group);
    return out;
  }

  // What lets Slurm in at once is fixed before it can: whatever the group becomes, no script comes under it later.
  void settle_scripts(One& one) const {
    if (!one.value.ran && !one.value.scripts && scripts_of(one).on_create.empty()) fix_scripts(one);
  }
  void fix_scripts(One& one) const {
    const InstanceGroup* group = cluster_.group(one.value.group);
    one.status.child("lifecycle").set("config", group == nullptr || !group->scripts.any() ? Json::object() : lifecycle_of(*group));
  }

  // ---- training plans (cluster_reservations.cpp)

  // Of a group whose plan is not in force: no further nodes, and without those that another plan wants back.
  void limit_by_plans();
  std::string why_not_in_force(const InstanceGroup& group);  // empty: it is, or the group has no plan
  const std::string& plan_note(const std::string& group) const;
  int asked_of(const std::string& group) const;              // how many nodes its spec asks for, whatever the plan says
  // A group with a plan takes the machines that are kept for it, and no others; one without takes what is kept for none.
  bool suits(const InstanceGroup& group, const Json& node) const;

  // Which machine an instance gets is written down before anything is done with it.
  void choose_machines();

  Json new_machine(const One& one) const;

  // ---- each instance, from what is stored of it. True: none of those that leave is left.
  bool settle_instances();

  void keep(One& one);
  // Slurm, or Kubernetes, has it.
  void complete(One& one) {
    if (!scripts_of(one).on_init_complete.empty() && script_record(one, ScriptStage::OnInitComplete)["phase"].string() != "Succeeded") return run_script(one, ScriptStage::OnInitComplete);
    one.phase = "Running";
    if (one.value.software_stage == "Preparing" && one.status["software"]["stage"].string() == "Preparing") note_software(one, "Done");
    if (!one.status.has("runningSince")) one.status.set("runningSince", print_time(now_));
  }
  // What a script is to come to, in its own words; then a pod for it, once what it reads is there.
  void run_script(One& one, ScriptStage stage);

  Json lifecycle_of(const InstanceGroup& group) const { return api::lifecycle_in_force(object_, api::spec_in_force(object_), group.name); }

  // Scripts look for their own machine in what is stored of the cluster. True: it is there. It is written anew when a machine that is due is not, or the heads are others; else each node that comes would hold up all.
  bool configs_stored(const One& due);
  static std::string machine_address(const Json& node) {
    for (const Json& address : node["status"]["addresses"].items())
      if (address["type"].string() == "InternalIP") return address["address"].string();
    return "";
  }

  void fail_instance(One& one, std::string why);
  // Of the machine, until Slurm's node has one of its own.
  void tell_addresses(One& one, const Json& node) const {
    if (slurm_ && one.status.has("slurmNode")) return;
    for (const Json& address : node["status"]["addresses"].items())
      if (address["type"].string() == "InternalIP") one.status.set(address["address"].string().find(':') == std::string::npos ? "address" : "address6", address["address"]);
  }

  // The node with the labels and taints of its group, and without those that the group had before. `in_use`: it carries the label of its health, whoever changes that.
  static Json dress(Json node, const std::map<std::string, std::string>& labels, const Json& taints, bool in_use);

  // Its volume is to be there before anything runs that would write into its place (docs/design/063). One that was in use before its group had any stays in use.
  bool lacks_volume(const One& one) const;
  // With what its agent is to do for it; a group without a volume orders nothing, and takes none away. Once it has left, or another has the machine: delete it.
  static Json with_volume(Json node, const std::string& instance, const InstanceGroup& group);
  static Json without_volume(Json node, const std::string& instance);
  static Json with_release(Json node, const std::string& instance);
  // Of a spare machine: whoever came next would find it. Empty: nothing. It is deleted once the API itself says that the instance is gone: its Node may have been made anew since, and knows of no order.
  static std::string what_is_left(const Json& node);
  void release_what_is_left(const Json& node);
  void order_volume(One& one, const Json& node);
  std::string volume_note(const One& one, const Json& node) const;  // what is still due; empty: nothing

  // How many pods its agent is to take; of no type: as many as it would by itself.
  static Json with_most_pods(Json node, const api::InstanceType* type);

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
  bool is_silent(const Json* node);
  // Asks what Slurm has on the machine to go. True: there is nothing.
  bool emptied(One& one, bool comes_back);
  void mark(const Json& pod, const char* annotation, const std::string& value) {
    if (pod["metadata"]["annotations"][annotation].string() == value) return;
    add(Verb::Update, resources::pods, laid_over(pod, Json::object({{"metadata", Json::object({{"annotations", Json::object({{annotation, value}})}})}})), "its machine is to be empty");
  }

  // A machine is given back when nothing of the cluster is on it.
  void let_go(One& one);
  void guard(const std::string& node, bool silent) {
    if (overdue_) return;
    (silent ? last().if_silent : last().if_empty) = node;
  }

  // A request to reboot, once for each id. True: it is under way.
  bool reboots(One& one, const Json& node, const Json* machine);

  // What the label of its Node's health asks for becomes a request at the instance (cluster_health.cpp).
  const Json* slurm_action(const One& one, const Json& node) const;
  void recover(One& one, const Json& node);

  // ---- software updates (cluster_software.cpp)

  bool goes_back() const { return status_["softwareUpdate"]["phase"].string() == "RollbackInProgress"; }
  bool rolls_out() const { return status_["softwareUpdate"]["phase"].string() == "InProgress" || goes_back(); }
  // What instances are told of it as: of the update, or of its rollback (docs/design/065).
  std::string update_id() const { return goes_back() ? cluster_.software.back_id() : cluster_.software.id; }
  void roll_out();
  // True: it is one that was not seen before; or there is nothing to do.
  void lay_pins_back();
  bool begins_update();
  void end_update(const char* phase, const std::string& message);
  // Of other groups what became of them the last time that they were updated stays.
  Json with_other_groups(Json groups) const;
  void roll_back(const std::string& reason);
  // Empty: all of its alarms are well. Else why no further batch begins; `fires`: one says that the update is to go back.
  std::string alarmed(bool& fires);
  // By what most machines of the group that run were prepared, or would be; null: that is not known; nothing: it has none, and nothing holds for them but its own.
  std::optional<Json> prepared_by(const InstanceGroup& group) const;
  Json own_lifecycle(const std::string& group) const;  // as its spec has it
  void drop_pins();
  bool is_of_before(const One& one) const;
  // What became of one of a group's instances; Waits: it is not as it was to be before the update, and is waited for.
  enum class Updated : std::uint8_t { Yes, UnderWay, Failed, Due, Waits };
  Updated update_of(const One& one, Instant began, std::string& why);
  static bool made_since(const One& one, Instant began);
  static bool prepared_since(const One& one, Instant began);
  Updated rollback_of(const One& one, Instant began, std::string& why);
  // Of one that was begun with.
  Updated under_way(const One& one, std::string& why);
  void note_software(One& one, const char* stage);
  // Its machine is emptied, or goes. True: nothing else is done with it.
  bool renews(One& one, const Json* node, const Json* machine);
  void prepare_again(One& one);

  // ---- Slurm

  // Of each group: how many nodes Slurm is to have in the end (those that have a machine, no more than asked for), how many it is told now, and how many pods there are.
  struct Sizes {
    int wanted = 0, now = 0, pods = 0;
  };
  void count_sizes();

  ShapeOptions shape_options() const;

  void shape_slurm();
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
  bool take_down();
  // True: the namespace is gone.
  bool space_gone();
  // True: its volumes are gone.
  bool claims_gone();
  void finish();

  // ---- what is told

  void tell(const std::string& phase, const std::string& message) {
    status_.set("phase", phase == "InService" && rolls_out() ? "SystemUpdating" : phase);
    if (message.empty()) status_.erase("message");
    else status_.set("message", message);
  }

  void tell_validity(const std::string& wrong);

  // How many nodes of a group run.
  int running_of(const InstanceGroup& group) const;

  // What tells most of why a group is not whole.
  static int rank(const One& one) { return one.phase == "Failure" ? 2 : one.value.node.empty() ? 1 : 0; }

  void judge();
  // Of a group that has not come to its least number in time, in its part of the status.
  Json minimum_of(const InstanceGroup& group, const Json* before, int running);
  // The spec that is asked for instead of one that was given up; nothing: none was.
  std::optional<Json> without_given_up() const;

  ClusterPlan done();

  // Before the statuses that they follow from: what was told again has the same name.
  void tell_events();

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
  std::map<std::string, std::string> plan_notes_;       // by group: why its plan is not in force
  std::map<std::string, std::set<int>> wanted_back_;    // by group: numbers
  std::map<std::string, std::set<int>> placed_;         // by group, of those that have a note: numbers that have a machine, also one that goes
  std::map<std::string, int> asked_;                    // by group, of those that have a note
  std::map<std::string, int> asked_least_;              // the same of their minInstanceCount
  std::map<std::string, int> old_failures_;  // by group: of before this change
  std::string failure_;
  std::set<std::string> secrets_;            // that this round makes
  std::optional<std::set<std::string>> configs_;  // "INSTANCE/ADDRESS" of what is stored for scripts
  std::optional<std::vector<Json>> wanted_configs_;
  bool configs_written_ = false;
  std::set<std::string> held_;                // ids: they are to go back, so nothing more of what they are prepared by begins
  std::optional<std::map<std::string, const Json*>> script_pods_;  // of its namespace, by name
  std::map<std::string, int> updating_;       // by group: instances whose software is updated
  std::map<std::string, int> scripts_going_;  // by group: instances whose script is at work
  std::vector<ClusterStep> told_;
  std::vector<InstanceChange> changes_;      // instances whose status is another now
  ClusterPlan out_;
};

}  // namespace fairlead::fleet::planner
