// SPDX-License-Identifier: Apache-2.0
#include "stacks/plan/stack_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/cluster.h"
#include "base/encoding.h"
#include "formation/evaluate.h"

namespace fairlead::stacks {

using api::Stack;
using api::StackResource;
using kube::Json;

namespace {

constexpr std::size_t kMostEvents = 300;
constexpr std::size_t kLongestReason = 500;  // bytes: all events are in one object

std::string shortened(std::string text) {
  std::size_t end = kLongestReason;
  if (text.size() <= end) return text;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  text.resize(end);
  return text;
}

constexpr const char* kStackType = "AWS::CloudFormation::Stack";

std::string arn_of(const Json& cluster) {
  const std::string& begin = cluster["metadata"]["annotations"][api::kArnBegin].string();
  return begin.empty() ? kube::name_of(cluster) : begin + api::entity_id(kube::uid_of(cluster));
}

// What a Cluster says of the last thing that it was told.
enum class Outcome { Waits, Done, Failed };
Outcome outcome_of(const Json& cluster, std::string& why) {
  const Json &status = cluster["status"], &failed = status["failed"];
  const std::int64_t generation = cluster["metadata"]["generation"].integer();
  why = status["message"].string();
  if (kube::deleting(cluster)) {
    why = "the cluster is being deleted by somebody else";
    return Outcome::Failed;
  }
  if (status["phase"].string() == "Failed") return Outcome::Failed;
  // Older news is about what was there before.
  if (status["observedGeneration"].integer(-1) < generation) return Outcome::Waits;
  if (failed.is_object() && failed["generation"].integer(-1) == generation && status["served"].boolean()) {
    why = failed["message"].string_or(why);
    return Outcome::Failed;
  }
  if (const Json* valid = kube::find_condition(cluster, "SpecValid"); valid != nullptr && (*valid)["status"].string() == "False") {
    why = (*valid)["message"].string();
    return Outcome::Failed;
  }
  return status["phase"].string() == "InService" ? Outcome::Done : Outcome::Waits;
}

// It can be told something new: one that takes all or nothing does one thing at a time.
bool takes_changes(const Json& cluster) {
  if (kube::deleting(cluster)) return false;
  if (cluster["spec"]["nodeProvisioningMode"].string() == "Continuous") return true;
  return cluster["status"]["phase"].string() == "InService" && cluster["status"]["observedGeneration"].integer(-1) >= cluster["metadata"]["generation"].integer();
}

// Each after all that it depends on. Of names that are not there nothing is waited for.
std::vector<const StackResource*> in_order(const std::vector<StackResource>& all) {
  std::vector<const StackResource*> out;
  std::set<std::string> placed, names;
  for (const StackResource& one : all) names.insert(one.id);
  while (out.size() < all.size()) {
    const std::size_t before = out.size();
    for (const StackResource& one : all)
      if (!placed.contains(one.id) && std::ranges::all_of(one.depends_on, [&](const std::string& other) { return placed.contains(other) || !names.contains(other); })) {
        placed.insert(one.id);
        out.push_back(&one);
      }
    if (out.size() == before) {  // a circle, or a name twice: by hand alone
      for (const StackResource& one : all)
        if (std::find(out.begin(), out.end(), &one) == out.end()) out.push_back(&one);
      break;
    }
  }
  return out;
}

class Planner {
 public:
  Planner(const StackSnapshot& in, Instant now) : in_(in), now_(now), stack_(api::read_stack(in.stack)), status_(in.stack["status"]) {
    if (!status_.is_object()) status_ = Json::object();
  }

  StackPlan plan() {
    const std::string phase = status_["phase"].string();
    if (stack_.deleting && !phase.starts_with("DELETE_")) begin("DELETE_IN_PROGRESS", "User Initiated");
    else if (stack_.deleting) carry_on(phase);
    else if (stack_.operation.empty()) return {};
    else if (status_["operation"].string() != stack_.operation) begin(stack_.kind == "Update" ? "UPDATE_IN_PROGRESS" : stack_.kind == "Delete" ? "DELETE_IN_PROGRESS" : "CREATE_IN_PROGRESS", "User Initiated");
    else carry_on(phase);
    if (status_ != in_.stack["status"]) out_.status = std::move(status_);
    return std::move(out_);
  }

  Json refused(const std::string& id, const std::string& why) {
    const Json* entry = entry_of(id);
    if (entry == nullptr) return {};
    const std::string state = (*entry)["status"].string();
    if (state != "CREATE_IN_PROGRESS" && state != "UPDATE_IN_PROGRESS") return {};
    operation_ = (*entry)["operation"].string();
    const StackResource* resource = stack_.target.resource(id);
    if (resource == nullptr) resource = stack_.before.resource(id);
    if (resource == nullptr) return {};
    mark(*resource, state.starts_with("CREATE_") ? "CREATE_FAILED" : "UPDATE_FAILED", why);
    return std::move(status_);
  }

 private:
  // ---- what is written down
  void event(const std::string& id, const std::string& type, const std::string& physical, const std::string& status, const std::string& reason) {
    const std::int64_t number = status_["count"].integer() + 1;
    Json told = Json::object({{"number", number}, {"at", print_time(now_)}, {"logicalId", id}, {"type", type}, {"physicalId", physical}, {"status", status}});
    if (!reason.empty()) told.set("reason", shortened(reason));
    if (const std::string& token = in_.stack["spec"]["operation"]["token"].string(); !token.empty()) told.set("token", token);
    status_.set("count", number);
    auto& events = status_.child("events").items();
    events.push_back(std::move(told));
    if (events.size() > kMostEvents) events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(kMostEvents));
  }
  void tell(const std::string& phase, const std::string& reason = "") {
    status_.set("phase", phase).set("since", print_time(now_));
    if (reason.empty()) status_.erase("reason");
    else status_.set("reason", shortened(reason));
    event(stack_.title, kStackType, stack_.arn, phase, reason);
  }
  Json* entry_of(const std::string& id) {
    if (!status_["resources"].is_array()) return nullptr;
    for (Json& one : status_.child("resources").items())
      if (one["logicalId"].string() == id) return &one;
    return nullptr;
  }
  void mark(const StackResource& resource, const std::string& status, const std::string& reason = "", const std::string& physical = "") {
    Json* entry = entry_of(resource.id);
    if (entry == nullptr) {
      if (!status_["resources"].is_array()) status_.set("resources", Json::array());
      status_.child("resources").push(Json::object({{"logicalId", resource.id}, {"type", resource.type}, {"cluster", resource.cluster}, {"physicalId", ""}}));
      entry = &status_.child("resources").items().back();
    }
    if (!physical.empty()) entry->set("physicalId", physical);
    entry->set("status", status).set("operation", operation_).set("at", print_time(now_));
    if (reason.empty()) entry->erase("reason");
    else entry->set("reason", shortened(reason));
    const std::string shown = (*entry)["physicalId"].string();
    event(resource.id, resource.type, shown, status, reason);
  }
  void forget(const std::string& id) {
    if (status_["resources"].is_array()) std::erase_if(status_.child("resources").items(), [&](const Json& one) { return one["logicalId"].string() == id; });
  }
  // Of this operation, or of its way back: what became of it; empty: it was not touched.
  std::string state_of(const std::string& id, const std::string& operation) {
    const Json* entry = entry_of(id);
    return entry == nullptr || (*entry)["operation"].string() != operation ? "" : (*entry)["status"].string();
  }

  // ---- what is there
  const Json* cluster_of(const StackResource& resource) const {
    const auto found = in_.clusters.find(resource.cluster);
    return found == in_.clusters.end() ? nullptr : &found->second;
  }
  bool is_ours(const Json& cluster, const StackResource& resource) const {
    const Json& notes = cluster["metadata"]["annotations"];
    return cluster["metadata"]["labels"][api::kStackLabel].string() == stack_.name && notes[api::kStackUid].string() == stack_.uid && notes[api::kStackResource].string() == resource.id && !stack_.uid.empty();
  }

  void begin(const std::string& phase, const std::string& reason) {
    status_.set("operation", stack_.deleting && stack_.kind != "Delete" ? "deleted" : stack_.operation);
    if (phase == "UPDATE_IN_PROGRESS") {
      status_.set("updated", print_time(now_));
      status_.erase("back");
    }
    if (phase == "DELETE_IN_PROGRESS") status_.set("deleted", print_time(now_));
    tell(phase, reason);
  }

  void carry_on(const std::string& phase) {
    operation_ = status_["operation"].string();
    if (phase == "CREATE_IN_PROGRESS" || phase == "UPDATE_IN_PROGRESS") return advance(phase == "UPDATE_IN_PROGRESS");
    if (phase == "ROLLBACK_IN_PROGRESS") {
      if (take_down(touched(stack_.target), Rollback::Yes)) tell("ROLLBACK_COMPLETE");
      return;
    }
    if (phase == "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS") {
      std::vector<StackResource> left;
      for (const StackResource& one : stack_.before.resources)
        if (stack_.target.resource(one.id) == nullptr) left.push_back(one);
      if (!take_down(left, Rollback::No)) return;
      for (const StackResource& one : left) forget(one.id);
      write_outputs();
      return tell("UPDATE_COMPLETE", lacks_);
    }
    if (phase == "UPDATE_ROLLBACK_IN_PROGRESS") return go_back();
    if (phase == "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS") {
      if (take_down_made()) tell("UPDATE_ROLLBACK_COMPLETE");
      return;
    }
    if (phase == "DELETE_IN_PROGRESS") {
      const bool back = status_["back"].boolean();
      const api::StackSide &side = back ? stack_.before : stack_.target, &other = back ? stack_.target : stack_.before;
      std::vector<StackResource> all = side.resources;
      for (const StackResource& one : other.resources)
        if (side.resource(one.id) == nullptr) all.push_back(one);
      // What an earlier operation left out by its policy is none of the stack's any more.
      std::erase_if(all, [&](const StackResource& one) { return entry_of(one.id) == nullptr && cluster_of(one) == nullptr; });
      // OnFailure DELETE is a way back, too.
      if (take_down(all, stack_.kind == "Create" && !stack_.deleting ? Rollback::Yes : Rollback::No)) tell("DELETE_COMPLETE");
      return;
    }
    if (phase == "DELETE_COMPLETE") out_.gone = true;
  }

  // Those of a side of which the stack's status tells.
  std::vector<StackResource> touched(const api::StackSide& side) {
    std::vector<StackResource> out;
    for (const StackResource& one : side.resources)
      if (entry_of(one.id) != nullptr) out.push_back(one);
    return out;
  }

  // ---- forward
  void advance(bool update) {
    std::string failed;
    bool all = true;
    const bool late = !update && stack_.timeout && now_ >= stack_.asked + *stack_.timeout;
    std::vector<const StackResource*> order = in_order(stack_.target.resources), waiting;
    std::set<std::string> done;
    for (const StackResource* one : order) {
      const StackResource* before = stack_.before.resource(one->id);
      const bool makes = !update || before == nullptr;
      if (!makes && before->spec == one->spec) {
        done.insert(one->id);
        continue;
      }
      const std::string state = state_of(one->id, operation_);
      if (state.ends_with("_IN_PROGRESS")) makes ? make(*one) : change(*one, *before, operation_, false);
      const std::string now = state_of(one->id, operation_);
      if (now.ends_with("_COMPLETE")) done.insert(one->id);
      else all = false;
      if (now.ends_with("_FAILED") && failed.empty()) failed = one->id;
      if (now.empty() || now.ends_with("_IN_PROGRESS")) waiting.push_back(one);
    }
    if (late && failed.empty() && !all) failed = "-";
    if (!failed.empty()) {
      out_.steps.clear();  // nothing new is begun
      for (const StackResource* one : waiting)
        if (const std::string state = state_of(one->id, operation_); !state.empty()) mark(*one, state.starts_with("UPDATE_") ? "UPDATE_FAILED" : "CREATE_FAILED", late ? "The stack's TimeoutInMinutes has passed" : state.starts_with("UPDATE_") ? "Resource update cancelled" : "Resource creation cancelled");
      std::vector<std::string> names;
      for (const StackResource* one : order)
        if (state_of(one->id, operation_).ends_with("_FAILED")) names.push_back(one->id);
      const std::string reason = names.empty() ? "The stack's TimeoutInMinutes has passed." : fmt::format("The following resource(s) failed to {}: [{}].", update ? "update" : "create", fmt::join(names, ", "));
      if (update) {
        status_.set("back", true);
        return tell("UPDATE_ROLLBACK_IN_PROGRESS", reason);
      }
      if (stack_.on_failure == "DO_NOTHING") return tell("CREATE_FAILED", reason);
      if (stack_.on_failure == "DELETE") {
        status_.set("deleted", print_time(now_));
        return tell("DELETE_IN_PROGRESS", reason + " Delete requested by user.");
      }
      return tell("ROLLBACK_IN_PROGRESS", reason + " Rollback requested by user.");
    }
    for (const StackResource* one : waiting) {
      if (!state_of(one->id, operation_).empty()) continue;
      const bool free = std::ranges::all_of(one->depends_on, [&](const std::string& other) { return done.contains(other) || stack_.target.resource(other) == nullptr; });
      if (free) mark(*one, !update || stack_.before.resource(one->id) == nullptr ? "CREATE_IN_PROGRESS" : "UPDATE_IN_PROGRESS");
    }
    if (!all) {
      if (!update && stack_.timeout) out_.look_again = stack_.asked + *stack_.timeout - now_;
      return;
    }
    if (update) return tell("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS");
    write_outputs();
    tell("CREATE_COMPLETE", lacks_);
  }

  void make(const StackResource& resource) {
    const Json* cluster = cluster_of(resource);
    const std::string known = (*entry_of(resource.id))["physicalId"].string();
    if (cluster == nullptr) {
      if (!known.empty()) return mark(resource, "CREATE_FAILED", "the cluster was deleted by somebody else");
      Json notes = resource.annotations.is_object() ? resource.annotations : Json::object();
      notes.set(api::kStackUid, stack_.uid).set(api::kStackResource, resource.id);
      Json object = Json::object({{"apiVersion", api::kClusters.api_version()}, {"kind", api::kClusters.kind}, {"metadata", Json::object({{"name", resource.cluster}, {"labels", Json::object({{api::kStackLabel, stack_.name}})}, {"annotations", std::move(notes)}})}, {"spec", resource.spec}});
      out_.steps.push_back({.verb = StackStep::Verb::Create, .object = std::move(object), .resource = resource.id, .why = fmt::format("resource {} is to be made", resource.id)});
      return;
    }
    if (!is_ours(*cluster, resource)) return mark(resource, "CREATE_FAILED", fmt::format("Cluster {} already exists. Choose another name.", resource.title));
    if (known.empty()) mark(resource, "CREATE_IN_PROGRESS", "Resource creation Initiated", arn_of(*cluster));
    std::string why;
    const Outcome outcome = outcome_of(*cluster, why);
    if (outcome == Outcome::Failed) mark(resource, "CREATE_FAILED", why.empty() ? "the cluster has failed" : why);
    if (outcome == Outcome::Done) mark(resource, "CREATE_COMPLETE");
  }

  // `back`: on the way back nobody is told that the cluster has no time; it is waited for.
  void change(const StackResource& resource, const StackResource& from, const std::string& operation, bool back) {
    const Json* cluster = cluster_of(resource);
    if (cluster == nullptr || !is_ours(*cluster, resource)) return mark(resource, "UPDATE_FAILED", fmt::format("Cluster {} is not there any more, or is another one", resource.title));
    const std::string& last = (*cluster)["metadata"]["annotations"][api::kStackOperation].string();
    if (back && last == fence_of(operation)) return mark(resource, "UPDATE_COMPLETE");
    if (back && last != operation && last != status_["operation"].string()) {
      // The change never came to the cluster, and there is nothing to take back. It may be on its way yet: this write is before it, and it finds another version.
      Json object = *cluster;
      object.child("metadata").child("annotations").set(api::kStackOperation, fence_of(operation));
      out_.steps.push_back({.verb = StackStep::Verb::Update, .object = std::move(object), .resource = resource.id, .why = fmt::format("resource {} stays as it is", resource.id)});
      return;
    }
    if (last != operation) {
      if (kube::deleting(*cluster)) return mark(resource, "UPDATE_FAILED", fmt::format("Cluster {} is being deleted", resource.title));
      if (!takes_changes(*cluster)) {
        if (back && (*cluster)["status"]["phase"].string() == "Failed") return mark(resource, "UPDATE_FAILED", fmt::format("Cluster {} is Failed", resource.title));
        if (!back) mark(resource, "UPDATE_FAILED", fmt::format("Cluster {} is {}: it can be updated when it is InService", resource.title, (*cluster)["status"]["phase"].string_or("Creating")));
        return;
      }
      Json object = *cluster;
      object.set("spec", changed_spec(*cluster, from.spec, resource.spec));
      object.child("metadata").child("annotations").set(api::kStackOperation, operation);
      // Who asked last, as UpdateCluster notes it.
      for (const auto& [name, value] : resource.annotations.members())
        if (from.annotations[name] != value) object.child("metadata").child("annotations").set(name, value);
      out_.steps.push_back({.verb = StackStep::Verb::Update, .object = std::move(object), .resource = resource.id, .why = fmt::format("resource {} is to be {}", resource.id, back ? "as it was" : "changed")});
      return;
    }
    std::string why;
    const Outcome outcome = outcome_of(*cluster, why);
    if (outcome == Outcome::Failed) mark(resource, "UPDATE_FAILED", why.empty() ? "the change could not be carried out" : why);
    if (outcome == Outcome::Done) mark(resource, "UPDATE_COMPLETE");
  }

  // ---- back
  static std::string fence_of(const std::string& operation) { return operation + "/fence"; }
  void go_back() {
    const std::string forward = operation_, back = operation_ + "/back";
    bool waits = false, failed = false;
    for (const StackResource* one : in_order(stack_.before.resources)) {
      const StackResource* target = stack_.target.resource(one->id);
      const std::string state = state_of(one->id, back);
      if (state.empty() && !state_of(one->id, forward).starts_with("UPDATE_")) continue;
      operation_ = back;
      if (state.empty()) {
        mark(*one, "UPDATE_IN_PROGRESS");
      } else if (state == "UPDATE_IN_PROGRESS" && target != nullptr) {
        change(*one, *target, back, true);
      }
      const std::string now = state_of(one->id, back);
      operation_ = forward;
      waits = waits || now == "UPDATE_IN_PROGRESS";
      failed = failed || now == "UPDATE_FAILED";
    }
    if (waits) return;  // one that cannot go back leaves none of the others behind
    if (!failed) return tell("UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS");
    // What was made goes here, too: the next update knows nothing of it.
    if (!take_down_made()) return;
    tell("UPDATE_ROLLBACK_FAILED", "A cluster could not be brought back to what it was. Its resource says why: mend it by UpdateCluster, or take it out of the template by UpdateStack, or delete the stack.");
  }

  enum class Rollback { No, Yes };
  // Of an update that is taken back, those that it has made.
  bool take_down_made() {
    std::vector<StackResource> made;
    for (const StackResource& one : touched(stack_.target))
      if (stack_.before.resource(one.id) == nullptr) made.push_back(one);
    if (!take_down(made, Rollback::Yes)) return false;
    for (const StackResource& one : made) forget(one.id);
    return true;
  }
  // Those that depend on others go before them. True: all have gone, or stay as their policy says.
  bool take_down(const std::vector<StackResource>& all, Rollback rollback) {
    std::vector<const StackResource*> order = in_order(all);
    std::reverse(order.begin(), order.end());
    std::set<std::string> left;
    const auto over = [&](const std::string& id) {
      const std::string state = state_of(id, going());
      return state == "DELETE_COMPLETE" || state == "DELETE_SKIPPED";
    };
    for (const StackResource* one : order) {
      const std::string forward = operation_;
      operation_ = going();
      step_down(*one, rollback, std::ranges::any_of(all, [&](const StackResource& other) { return !over(other.id) && std::find(other.depends_on.begin(), other.depends_on.end(), one->id) != other.depends_on.end(); }));
      operation_ = forward;
      if (!over(one->id)) left.insert(one->id);
    }
    return left.empty();
  }
  std::string going() const { return operation_.ends_with("/down") ? operation_ : operation_ + "/down"; }
  void step_down(const StackResource& resource, Rollback rollback, bool needed) {
    const std::string state = state_of(resource.id, operation_);
    if (state == "DELETE_COMPLETE" || state == "DELETE_SKIPPED" || needed) return;
    if (state.empty()) {
      const bool stays = resource.deletion == "Retain" || (resource.deletion == "RetainExceptOnCreate" && rollback == Rollback::No);
      return mark(resource, stays ? "DELETE_SKIPPED" : "DELETE_IN_PROGRESS");
    }
    const Json* cluster = cluster_of(resource);
    if (cluster == nullptr || !is_ours(*cluster, resource)) return mark(resource, "DELETE_COMPLETE");
    if (!kube::deleting(*cluster)) out_.steps.push_back({.verb = StackStep::Verb::Delete, .object = *cluster, .resource = resource.id, .why = fmt::format("resource {} goes", resource.id)});
  }

  void write_outputs() {
    const Json& side = in_.stack["spec"]["target"];
    status_.erase("outputs");
    const auto of = formation::read_template(side["template"].string());
    formation::Values parameters;
    for (const auto& [name, value] : side["parameters"].members()) parameters[name] = value.string();
    const auto parts = split(stack_.arn, ':');
    const auto evaluated = of ? formation::Evaluation::make(*of, parameters, {.account = parts.size() > 4 ? parts[4] : "", .region = parts.size() > 3 ? parts[3] : "", .stack_id = stack_.arn, .stack_name = stack_.title}) : Result<formation::Evaluation>(std::unexpected(of.error()));
    const auto outputs = evaluated ? evaluated->outputs([&](const std::string& id, const std::string& name) -> std::optional<std::string> {
      const StackResource* resource = stack_.target.resource(id);
      const Json* cluster = resource == nullptr ? nullptr : cluster_of(*resource);
      return cluster == nullptr ? std::nullopt : attribute_of(*cluster, name);
    }) : Result<std::vector<formation::Told>>(std::unexpected(evaluated.error()));
    if (!outputs) {  // the clusters run: nothing is taken back for it
      lacks_ = fmt::format("The outputs could not be computed: {}", outputs.error().message);
      return;
    }
    Json list = Json::array();
    for (const formation::Told& one : *outputs) list.push(Json::object({{"key", one.key}, {"description", one.description}, {"value", one.value}}));
    if (!list.items().empty()) status_.set("outputs", std::move(list));
  }

  const StackSnapshot& in_;
  const Instant now_;
  const Stack stack_;
  Json status_;
  StackPlan out_;
  std::string operation_, lacks_;
};

}  // namespace

StackPlan plan_stack(const StackSnapshot& snapshot, Instant now) { return Planner(snapshot, now).plan(); }

Json plan_refused(const Json& stack, const std::string& resource, const std::string& why, Instant now) {
  const StackSnapshot snapshot{.stack = stack, .clusters = {}};
  return Planner(snapshot, now).refused(resource, why);
}

std::vector<std::string> clusters_of(const Json& stack) {
  const Stack read = api::read_stack(stack);
  std::set<std::string> names;
  for (const auto* side : {&read.target, &read.before})
    for (const StackResource& one : side->resources) names.insert(one.cluster);
  return {names.begin(), names.end()};
}

Json changed_spec(const Json& cluster, const Json& from, const Json& to) {
  Json out = api::spec_in_force(cluster);  // a change that was taken back is not asked for again
  for (const auto& [name, value] : from.members())
    if (name != "instanceGroups" && !to.has(name)) out.erase(name);
  for (const auto& [name, value] : to.members())
    if (name != "instanceGroups") out.set(name, value);
  const auto named = [](const Json& spec, const std::string& group) -> const Json* {
    for (const Json& one : spec["instanceGroups"].items())
      if (one["instanceGroupName"].string() == group) return &one;
    return nullptr;
  };
  Json groups = Json::array();
  for (const Json& asked : to["instanceGroups"].items()) {
    Json group = asked;
    const std::string name = group["instanceGroupName"].string();
    if (const Json* there = named(out, name)) api::keep_of_group(group, *there);
    // What was given and is given no more goes; what somebody else has given stays.
    if (const Json* was = named(from, name); was != nullptr && was->has("trainingPlanArn") && !asked.has("trainingPlanArn")) group.erase("trainingPlanArn");
    groups.push(std::move(group));
  }
  for (const Json& there : out["instanceGroups"].items())
    if (const std::string& name = there["instanceGroupName"].string(); named(from, name) == nullptr && named(to, name) == nullptr) groups.push(there);
  out.set("instanceGroups", std::move(groups));
  return out;
}

std::optional<std::string> attribute_of(const Json& cluster, const std::string& name) {
  if (name == "Ref" || name == "ClusterArn") return arn_of(cluster);
  if (name == "ClusterStatus") return cluster["status"]["phase"].string_or("Creating");
  if (name == "CreationTime") return cluster["metadata"]["creationTimestamp"].string();
  if (name == "FailureMessage") return cluster["status"]["message"].string();
  return std::nullopt;
}

}  // namespace fairlead::stacks
