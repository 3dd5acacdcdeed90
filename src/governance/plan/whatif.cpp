// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/whatif.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/encoding.h"
#include "governance/plan/gang_workload.h"
#include "governance/plan/job_workload.h"
#include "governance/plan/kueue_convert.h"
#include "governance/plan/pod_workload.h"
#include "governance/plan/teams.h"
#include "governance/plan/views.h"
#include "kube/patch.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
using Place = Books::Place;

namespace {

struct Kind {
  const char *name, *group;
  bool namespaced = false, removable = true;
  const char* words = "";  // plural and short names, as people type them
};
// In the order in which they are told: what is referred to first.
constexpr std::array kinds{
    Kind{"Namespace", "", false, false},
    Kind{"SchedulerConfig", "fairlead.dev/"},
    Kind{"ComputeQuota", "fairlead.dev/"},
    Kind{"WorkloadPriorityClass", "kueue.x-k8s.io/"},
    Kind{"PriorityClass", "scheduling.k8s.io/", false, false},
    Kind{"ResourceFlavor", "kueue.x-k8s.io/", false, true, "flavor rf"},
    Kind{"Cohort", "kueue.x-k8s.io/"},
    Kind{"ClusterQueue", "kueue.x-k8s.io/", false, true, "cq"},
    Kind{"LocalQueue", "kueue.x-k8s.io/", true, true, "queue lq"},
    Kind{"Workload", "kueue.x-k8s.io/", true, true, "wl kwl"},
    Kind{"Job", "batch/", true},
    Kind{"Pod", "", true, false},
};

// Objects of other controllers that stand for many pods (gang_workload.h).
const std::vector<Kind>& gangs() {
  static const std::vector<std::string> groups = [] {
    std::vector<std::string> out;
    for (const GangKind& kind : gang_kinds()) out.push_back(kind.resource.group + "/");
    return out;
  }();
  static const std::vector<Kind> rows = [] {
    std::vector<Kind> out;
    for (std::size_t i = 0; i < groups.size(); ++i) out.push_back({gang_kinds()[i].resource.kind.c_str(), groups[i].c_str(), true});
    return out;
  }();
  return rows;
}
const GangKind* gang_of(const Kind& kind) {
  const auto at = std::find_if(gang_kinds().begin(), gang_kinds().end(), [&](const GangKind& one) { return one.resource.kind == kind.name; });
  return at == gang_kinds().end() ? nullptr : &*at;
}
std::vector<const Kind*> all_kinds() {
  std::vector<const Kind*> out;
  for (const Kind& kind : kinds) out.push_back(&kind);
  for (const Kind& kind : gangs()) out.push_back(&kind);
  return out;
}

std::string lower(std::string text) {
  for (char& one : text) one = static_cast<char>(one >= 'A' && one <= 'Z' ? one - 'A' + 'a' : one);
  return text;
}

std::string known_kinds(bool removable) {
  std::vector<std::string> names;
  for (const Kind* kind : all_kinds())
    if (!removable || kind->removable) names.emplace_back(kind->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<const Kind*> kind_of(const Json& document) {
  const std::string &name = document["kind"].string(), &version = document["apiVersion"].string();
  for (const Kind* kind : all_kinds()) {
    if (name != kind->name) continue;
    if (kind->group[0] == '\0' ? version == "v1" : version.starts_with(kind->group)) return kind;
    return fail(Code::Invalid, fmt::format("{} {}: apiVersion {} is not the one of task governance ({}...)", name, kube::name_of(document), version, kind->group[0] == '\0' ? "v1" : kind->group));
  }
  return fail(Code::Invalid, fmt::format("{} {}: what-if does not know what task governance makes of this kind; it takes {}", name, kube::name_of(document), known_kinds(false)));
}

Result<std::pair<const Kind*, std::string>> kind_and_name(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return fail(Code::Invalid, fmt::format("usage: \"{}\" is no KIND/NAME", text));
  std::string word = lower(text.substr(0, slash));
  word = word.substr(0, word.find('.'));
  for (const Kind* kind : all_kinds()) {
    const std::string name = lower(kind->name);
    const auto shorts = split(kind->words, ' ');
    if (word != name && word != name + "s" && std::find(shorts.begin(), shorts.end(), word) == shorts.end()) continue;
    if (!kind->removable) break;
    return std::pair(kind, text.substr(slash + 1));
  }
  return fail(Code::Invalid, fmt::format("usage: \"{}\": what can be left out is one of {}", text, known_kinds(true)));
}

bool same_but_version(Json a, Json b) {
  for (Json* const one : {&a, &b}) {
    one->erase("apiVersion");  // a list leaves it out
    if (Json* metadata = one->find("metadata"); metadata != nullptr && metadata->is_object()) metadata->erase("resourceVersion");
  }
  return a == b;
}

// The objects as they would be, and what of them is to be told to the books.
class Proposal {
 public:
  explicit Proposal(const WhatIfInput& in) : in_(in) {
    for (const Json& object : in.objects) objects_[{object["kind"].string(), kube::key_of(object)}] = object;
  }

  Result<void> merge(const Json& document) {
    auto kind = kind_of(document);
    if (!kind) return std::unexpected(std::move(kind.error()));
    // Whatever else is in it is read with care; these are written into.
    for (const char* field : {"metadata", "metadata.labels", "metadata.annotations", "spec"})
      if (const Json& at = document.at(field); !at.is_null() && !at.is_object()) return fail(Code::Invalid, fmt::format("{} {}: {}: an object is expected", document["kind"].string().substr(0, 63), kube::name_of(document).substr(0, 253), field));
    Json wanted = document;
    if (std::string_view((*kind)->group) == "kueue.x-k8s.io/") {
      auto converted = convert_kueue(document, "kueue.x-k8s.io/v1beta2");
      if (!converted) return pass(std::move(converted.error()), document["kind"].string() + " " + kube::name_of(document));
      wanted = std::move(*converted);
    }
    Json metadata = Json::object();
    for (const char* field : {"labels", "annotations"})
      if (const Json& value = wanted["metadata"][field]; !value.is_null()) metadata.set(field, value);
    ObjectKey key{(*kind)->namespaced ? kube::space_of(wanted) : "", kube::name_of(wanted)};
    if ((*kind)->namespaced && key.space.empty()) key.space = in_.space;
    metadata.set("name", key.name);
    if ((*kind)->namespaced) metadata.set("namespace", key.space);
    wanted.set("metadata", std::move(metadata));
    wanted.erase("status");
    const std::string name = (*kind)->name;
    if (const GangKind* gang_kind = gang_of(**kind)) return gang(*gang_kind, key, std::move(wanted));
    const Json* before = find(name, key);
    Json next = with_fields(before == nullptr ? Json() : *before, wanted);
    if (before == nullptr) {
      name_new(next);
      if (name == "Namespace") next.child("metadata").child("labels").set("kubernetes.io/metadata.name", key.name);
    }
    if (name == "Job") return job(key, next, before);
    if (name == "Pod") return pod(key, std::move(next), before != nullptr);
    if (name == "Workload" && before != nullptr) requeue_if(next, !((*before)["spec"]["podSets"] == next["spec"]["podSets"]) || !((*before)["spec"]["queueName"] == next["spec"]["queueName"]), key);
    put(name, key, std::move(next));
    return {};
  }

  Result<void> remove(const std::string& text) {
    auto named = kind_and_name(text);
    if (!named) return std::unexpected(std::move(named.error()));
    const auto& [kind, name] = *named;
    const ObjectKey key{kind->namespaced ? in_.space : "", name};
    if (std::string_view(kind->name) == "Job" || gang_of(*kind) != nullptr) {
      bool found = false;
      for (const ObjectKey& workload : workloads_of(key, kind->name)) found = true, gone("Workload", workload);
      if (!found) return fail(Code::NotFound, fmt::format("there is no workload of {}/{} in namespace {}", lower(kind->name), name, key.space));
      told_.push_back({kind->name, key, "Removed"});
      return {};
    }
    if (find(kind->name, key) == nullptr) return fail(Code::NotFound, fmt::format("there is no {} {}{}", kind->name, name, kind->namespaced ? " in namespace " + key.space : ""));
    gone(kind->name, key);
    told_.push_back({kind->name, key, "Removed"});
    return {};
  }

  // Once all documents are known: pods that were named become Workloads, alone or as groups.
  Result<void> gather() {
    for (auto& [key, pods] : pods_) {
      PodsInput in{.group = pods.front()["metadata"]["labels"][kGroupLabel].string(), .pods = std::move(pods), .workloads = {}, .flavors = {}, .priority = {}, .now = in_.now};
      const std::string about = in.group.empty() ? "Pod " + key.text() : "pods of group " + key.text();
      in.priority = priority_from(classes(), in.pods.front()["metadata"]["labels"][kPriorityLabel].string(), in.pods.front()["spec"]["priorityClassName"].string(), "spec");
      OwnerPlan plan = plan_pods(in);
      // Label and finalizer of each first, then the Workload.
      for (std::size_t steps = 0; plan.step && plan.step->what == OwnerStep::What::UpdateOwner && steps <= in.pods.size(); ++steps) {
        for (Json& one : in.pods)
          if (kube::name_of(one) == kube::name_of(plan.step->object)) one = plan.step->object;
        plan = plan_pods(in);
      }
      if (!plan.problem.empty()) return fail(Code::Invalid, about + ": " + plan.problem);
      if (!plan.step || plan.step->what != OwnerStep::What::CreateWorkload) return fail(Code::Invalid, about + ": no workload comes of it; are there as many as its annotation " + kGroupCount + " says?");
      Json workload = std::move(plan.step->object);
      const ObjectKey of = kube::key_of(workload);
      if (!in.group.empty() && find("Workload", of) != nullptr) return fail(Code::Invalid, fmt::format("{}: a Workload of that name is there: what-if takes groups that are not submitted yet", about));
      name_new(workload);
      put("Workload", of, std::move(workload), false);
    }
    pods_.clear();
    return {};
  }

  // What follows from policy and quotas of teams, and from priority classes.
  void follow() {
    if (touched("SchedulerConfig") || touched("ComputeQuota")) teams();
    for (const auto& id : std::set(touched_)) {
      if (id.first != "WorkloadPriorityClass") continue;
      const Json* priority = find(id.first, id.second);
      if (priority == nullptr) continue;
      const std::int64_t value = (*priority)["value"].integer();
      std::vector<std::pair<ObjectKey, Json>> moved;
      for (auto at = objects_.lower_bound({"Workload", {}}); at != objects_.end() && at->first.first == "Workload"; ++at) {
        const Json& ref = at->second["spec"]["priorityClassRef"];
        if (ref["kind"].string() == id.first && ref["name"].string() == id.second.name && at->second["spec"]["priority"].integer() != value) moved.emplace_back(at->first.second, at->second);
      }
      for (auto& [other, next] : moved) {
        next.child("spec").set("priority", value);
        put("Workload", other, std::move(next), false);
      }
    }
  }

  void tell(Books& books) {
    for (const Kind& kind : kinds)
      for (const auto& [name, key] : touched_) {
        if (name != kind.name) continue;
        const auto at = objects_.find({name, key});
        Json object = at == objects_.end() ? Json() : at->second;
        if (name == "Workload" && !object.is_null()) object.child("metadata").set("resourceVersion", later_version());
        tell_books(books, name, key, object);
      }
    std::vector<Json> policies;
    for (const auto& [id, object] : objects_)
      if (id.first == "SchedulerConfig") policies.push_back(object);
    books.set_fair(shares_fairly(policies));
    books.set_time_rules(time_rules_of(policies));
  }

  // A version that is later than any of an API, and than those before.
  std::string later_version() { return fmt::format("{}", 10'000'000'000'000'000'000ULL + ++versions_); }

  std::vector<WhatIf::Change> take_changes() { return std::move(told_); }
  std::vector<WhatIf::Problem> problems;
  std::set<ObjectKey> anew;  // workloads that stop because they are changed

 private:
  using Id = std::pair<std::string, ObjectKey>;

  const Json* find(const std::string& kind, const ObjectKey& key) const {
    const auto at = objects_.find({kind, key});
    return at == objects_.end() ? nullptr : &at->second;
  }
  bool touched(std::string_view kind) const {
    return std::any_of(touched_.begin(), touched_.end(), [&](const Id& id) { return id.first == kind; });
  }
  std::vector<ObjectKey> workloads_of(const ObjectKey& job, const char* kind = "Job") const {
    std::vector<ObjectKey> out;
    for (const auto& [id, object] : objects_)
      if (id.first == "Workload" && id.second.space == job.space && owner_of(object) == lower(kind) + "/" + job.name && !kube::condition_is_true(object, "Finished")) out.push_back(id.second);
    return out;
  }

  void put(const std::string& kind, const ObjectKey& key, Json object, bool tell = true) {
    const Json* before = find(kind, key);
    const char* what = before == nullptr ? "Created" : same_but_version(*before, object) ? "Unchanged" : "Changed";
    if (tell) told_.push_back({kind, key, what});
    objects_[{kind, key}] = std::move(object);
    touched_.insert({kind, key});
  }
  void gone(const std::string& kind, const ObjectKey& key) {
    // A queue that runs something stays until that has ended, and admits nothing.
    const Json* object = find(kind, key);
    const bool used = kind == "ClusterQueue" && object != nullptr && std::any_of(objects_.begin(), objects_.end(), [&](const auto& one) {
      return one.first.first == "Workload" && holds_quota(one.second) && !kube::condition_is_true(one.second, "Finished") && one.second["status"]["admission"]["clusterQueue"].string() == key.name;
    });
    if (used) objects_[{kind, key}].child("metadata").set("deletionTimestamp", print_time(in_.now));
    else objects_.erase({kind, key});
    touched_.insert({kind, key});
  }
  // The youngest of all, its uid the last of its time.
  void name_new(Json& object) { object.child("metadata").set("uid", fmt::format("ffffffff-ffff-4fff-bfff-{:012d}", ++made_)).set("creationTimestamp", print_time(in_.now)).set("resourceVersion", "1"); }

  // A running workload that asks for something else is stopped, and stands in line anew.
  void requeue_if(Json& workload, bool changed, const ObjectKey& key) {
    if (!changed || !holds_quota(workload)) return;
    tell_stopped(workload, in_.now);
    anew.insert(key);
  }

  Result<void> job(const ObjectKey& key, Json next, const Json* before) {
    if (next["metadata"]["labels"][kQueueLabel].string().empty())
      return fail(Code::Invalid, fmt::format("Job {}: it has no label {}: task governance does not mind it", key.text(), kQueueLabel));
    if (before != nullptr && (kube::condition_is_true(*before, "Complete") || kube::condition_is_true(*before, "Failed"))) return fail(Code::Invalid, fmt::format("Job {}: it has ended and never runs again: give the new one another name", key.text()));
    const JobPriority priority = priority_from(classes(), next["metadata"]["labels"][kPriorityLabel].string(), next["spec"]["template"]["spec"]["priorityClassName"].string(), "spec.template.spec");
    if (!priority.problem.empty()) return fail(Code::Invalid, fmt::format("Job {}: {}", key.text(), priority.problem));
    const auto have = workloads_of(key);
    Json workload = workload_for(next, priority);
    ObjectKey of{key.space, kube::name_of(workload)};
    if (have.empty()) {
      name_new(workload);
    } else {
      of = have.front();
      Json spec = workload["spec"];
      workload = *find("Workload", of);
      const bool asks = before == nullptr || !(workload_for(*before, {})["spec"]["podSets"] == spec["podSets"]), moves = !(workload["spec"]["queueName"] == spec["queueName"]);
      Json& into = workload.child("spec");
      if (asks) into.set("podSets", spec["podSets"]);
      into.set("queueName", spec["queueName"]);
      if (!holds_quota(workload) || asks || moves) into.set("priority", spec["priority"]).set("priorityClassRef", spec["priorityClassRef"]);
      requeue_if(workload, asks || moves, of);
    }
    const Json* old = find("Workload", of);
    told_.push_back({"Job", key, have.empty() ? "Created" : old != nullptr && same_but_version(*old, workload) ? "Unchanged" : "Changed"});
    objects_[{"Job", key}] = std::move(next);
    put("Workload", of, std::move(workload), false);
    return {};
  }

  // The document is the whole object: those that are there are not read.
  Result<void> gang(const GangKind& kind, const ObjectKey& key, Json next) {
    const std::string about = fmt::format("{} {}", kind.resource.kind, key.text());
    if (next["metadata"]["labels"][kQueueLabel].string().empty()) return fail(Code::Invalid, fmt::format("{}: it has no label {}: task governance does not mind it", about, kQueueLabel));
    name_new(next);
    Json* at = &next;  // it waits until it is admitted
    const auto steps = split(kind.suspend, '.');
    for (std::size_t i = 0; i < steps.size(); ++i) {
      at = &at->child(steps[i]);
      const bool last = i + 1 == steps.size();
      if (!last && at->is_null()) *at = Json::object();
      if (last ? !at->is_null() && !at->is_bool() : !at->is_object()) return fail(Code::Invalid, fmt::format("{}: {} is not of the form of its kind", about, kind.suspend));
    }
    *at = Json(true);
    const JobPriority priority = priority_from(classes(), next["metadata"]["labels"][kPriorityLabel].string(), priority_class_of_pods(kind, next), "spec");
    if (!priority.problem.empty()) return fail(Code::Invalid, fmt::format("{}: {}", about, priority.problem));
    OwnerPlan plan = plan_gang(kind, {.gang = next, .workloads = {}, .flavors = {}, .priority = priority, .tells_ready = false, .now = in_.now});
    if (!plan.problem.empty()) return fail(Code::Invalid, about + ": " + plan.problem);
    if (!plan.step || plan.step->what != OwnerStep::What::CreateWorkload) return fail(Code::Invalid, fmt::format("{}: no workload comes of it: {} is not of the form of its kind", about, kind.parts));
    Json workload = std::move(plan.step->object);
    const auto have = workloads_of(key, kind.resource.kind.c_str());
    ObjectKey of = kube::key_of(workload);
    if (have.empty()) {
      name_new(workload);
    } else {
      of = have.front();
      const Json spec = workload["spec"];
      workload = *find("Workload", of);
      const bool asks = !same_gang_wishes(spec["podSets"], workload["spec"]["podSets"]), moves = !(workload["spec"]["queueName"] == spec["queueName"]);
      Json& into = workload.child("spec");
      if (asks) into.set("podSets", spec["podSets"]);
      into.set("queueName", spec["queueName"]);
      if (!holds_quota(workload) || asks || moves) into.set("priority", spec["priority"]).set("priorityClassRef", spec["priorityClassRef"]);
      requeue_if(workload, asks || moves, of);
    }
    const Json* old = find("Workload", of);
    told_.push_back({kind.resource.kind, key, have.empty() ? "Created" : old != nullptr && same_but_version(*old, workload) ? "Unchanged" : "Changed"});
    put("Workload", of, std::move(workload), false);
    return {};
  }

  Result<void> pod(const ObjectKey& key, Json next, bool there) {
    if (there) return fail(Code::Invalid, fmt::format("Pod {}: it is there: what-if takes pods that are not submitted yet", key.text()));
    if (next["metadata"]["labels"][kQueueLabel].string().empty()) return fail(Code::Invalid, fmt::format("Pod {}: it has no label {}: task governance does not mind it", key.text(), kQueueLabel));
    const std::string& group = next["metadata"]["labels"][kGroupLabel].string();
    if (!next["status"].is_object()) next.set("status", Json::object({{"phase", "Pending"}}));
    told_.push_back({"Pod", key, "Created"});
    pods_[{key.space, group.empty() ? key.name : "group/" + group}].push_back(std::move(next));
    return {};
  }

  PriorityClasses classes() const {
    return {.find = [this](const std::string& kind, const std::string& name) {
              const Json* found = find(kind, {"", name});
              return found == nullptr ? std::nullopt : std::optional(*found);
            },
            .each = [this](const std::string& kind, const std::function<void(const Json&)>& to) {
              for (auto at = objects_.lower_bound({kind, {}}); at != objects_.end() && at->first.first == kind; ++at) to(at->second);
            }};
  }

  void teams() {
    TeamsInput in;
    for (const auto& [id, object] : objects_) {
      if (id.first == "SchedulerConfig") in.configs.push_back(object);
      else if (id.first == "ComputeQuota") in.quotas.push_back(object);
      else if (id.first == "Node") in.nodes.push_back(object);
      else if (id.first == "Namespace") in.spaces.emplace(id.second.name, object);
      else if (id.first == "ClusterQueue") in.queues.emplace(id.second.name, object);
    }
    const TeamsPlan plan = plan_teams(in);
    for (const auto& [kind, verdicts] : {std::pair("SchedulerConfig", &plan.configs), std::pair("ComputeQuota", &plan.quotas)})
      for (const Verdict& verdict : *verdicts) {
        const Json* object = find(kind, verdict.key);
        const auto news = [&](const kube::Condition& now) {
          const Json* before = object == nullptr ? nullptr : kube::find_condition(*object, now.type);
          return touched_.contains({kind, verdict.key}) || before == nullptr || (*before)["status"].string() != now.status;
        };
        if (verdict.accepted.status != "True" && news(verdict.accepted)) problems.push_back({kind, verdict.key, verdict.accepted.reason, verdict.accepted.message});
        if (verdict.capacity.status == "True" && news(verdict.capacity)) problems.push_back({kind, verdict.key, verdict.capacity.reason, verdict.capacity.message});
      }
    std::set<Id> wanted;
    for (const TeamObject& one : plan.objects) {
      // Who the members are, and what is let in, changes nothing here, and is not read.
      if (one.resource.group == "rbac.authorization.k8s.io" || one.resource.group == kube::resources::admission_policies.group) continue;
      const ObjectKey key = kube::key_of(one.object);
      wanted.insert({one.resource.kind, key});
      const Json* have = find(one.resource.kind, key);
      if (have != nullptr && (kube::deleting(*have) || holds_fields(*have, one.object))) continue;
      if (have != nullptr && (*have)["metadata"]["labels"][kTeamsLabel].string() != "true") {
        problems.push_back({one.resource.kind, key, "NotMadeForTeams", "an object of that name is there that was not made for teams; it stays as it is"});
        continue;
      }
      Json next = with_fields(have == nullptr ? Json() : *have, one.object);
      if (have == nullptr && one.resource.kind == "Namespace") next.child("metadata").child("labels").set("kubernetes.io/metadata.name", key.name);
      put(one.resource.kind, key, std::move(next));
    }
    for (const auto& [id, object] : std::map(objects_))
      for (const char* kind : {"LocalQueue", "ClusterQueue", "Cohort", "ResourceFlavor"})
        if (id.first == kind && object["metadata"]["labels"][kTeamsLabel].string() == "true" && !kube::deleting(object) && !wanted.contains(id)) {
          gone(kind, id.second);
          told_.push_back({kind, id.second, "Removed"});
        }
  }

  const WhatIfInput& in_;
  std::map<Id, Json> objects_;
  std::map<ObjectKey, std::vector<Json>> pods_;  // new ones: by group, or alone
  std::set<Id> touched_;
  std::vector<WhatIf::Change> told_;
  std::uint64_t versions_ = 0;
  int made_ = 0;
};

struct Stop {
  std::optional<VictimReason> preempted;
  ObjectKey by;
};

// All that is being stopped stops, and what follows is decided. False: there was no end to it.
bool settle(Books& books, Proposal& versions, Instant now, std::map<ObjectKey, Stop>& stops) {
  for (int round = 0; round < 64; ++round) {
    bool any = false;
    for (const ObjectKey& key : books.workloads()) {
      if (books.place(key) != Place::Stopping) continue;
      any = true;
      auto standing = books.standing(key);
      stops.try_emplace(key, Stop{standing->preempted, standing->preempted_by});
      tell_stopped(standing->object, now);
      standing->object.child("metadata").set("resourceVersion", versions.later_version());
      books.set_workload(key, standing->object);
    }
    if (!any) return true;
    books.decide();
  }
  return false;
}

std::map<ObjectKey, int> positions(const Books& books) {
  std::map<ObjectKey, int> out;
  const auto lines = books.engine().lines();
  for (const std::string& queue : books.queues()) {
    const auto line = lines.find(queue);
    if (line == lines.end()) continue;
    int at = 0;
    for (const JobId job : line->second)
      if (const ObjectKey* key = books.workload_of(job)) out[*key] = ++at;
  }
  return out;
}

}  // namespace

Result<WhatIfNeeds> needs_of(const std::vector<Json>& changes, const std::vector<std::string>& without) {
  WhatIfNeeds out;
  const auto count = [&](const Kind& kind) {
    out.jobs = out.jobs || std::string_view(kind.name) == "Job" || std::string_view(kind.name) == "Pod" || gang_of(kind) != nullptr;
    out.teams = out.teams || std::string_view(kind.group) == "fairlead.dev/";
  };
  for (const Json& document : changes) {
    auto kind = kind_of(document);
    if (!kind) return std::unexpected(std::move(kind.error()));
    count(**kind);
  }
  for (const std::string& text : without) {
    auto named = kind_and_name(text);
    if (!named) return std::unexpected(std::move(named.error()));
    count(*named->first);
  }
  return out;
}

Result<WhatIf> whatif(const WhatIfInput& in) {
  Proposal proposal(in);
  for (const std::string& text : in.without)
    if (auto done = proposal.remove(text); !done) return std::unexpected(std::move(done.error()));
  for (const Json& document : in.changes)
    if (auto done = proposal.merge(document); !done) return std::unexpected(std::move(done.error()));
  if (auto done = proposal.gather(); !done) return std::unexpected(std::move(done.error()));
  proposal.follow();

  Books before = books_of(in.objects, in.now);
  Books after = before;
  proposal.tell(after);
  after.decide();

  WhatIf out;
  std::map<ObjectKey, Stop> stops_before, stops;
  const bool promised_at_once = settle(before, proposal, in.now, stops_before);
  out.settled = settle(after, proposal, in.now, stops) && promised_at_once;
  for (const std::string& name : after.queues()) {
    const auto was = before.queue_view(name), is = after.queue_view(name);
    if (!is->active && (!was || was->active || was->message != is->message)) proposal.problems.push_back({"ClusterQueue", {"", name}, is->reason, is->message});
  }
  out.changes = proposal.take_changes();
  out.problems = std::move(proposal.problems);

  const auto line_before = positions(before), line_after = positions(after);
  const auto position = [](const std::map<ObjectKey, int>& line, const ObjectKey& key) {
    const auto at = line.find(key);
    return at == line.end() ? 0 : at->second;
  };
  std::set<ObjectKey> keys;
  for (const Books* books : {&before, &after})
    for (const ObjectKey& key : books->workloads()) keys.insert(key);
  std::map<ObjectKey, std::vector<ObjectKey>> stopped_for;
  for (const auto& [key, stop] : stops)
    if (!stop.by.name.empty()) stopped_for[stop.by].push_back(key);
  for (const ObjectKey& key : keys) {
    if (before.place(key) == after.place(key) && position(line_before, key) == position(line_after, key) && !proposal.anew.contains(key)) continue;  // as it was
    const auto was = before.standing(key), is = after.standing(key);
    const Books::Standing& any = is ? *is : *was;
    WhatIf::Shift shift{.workload = key, .owner = owner_of(any.object), .queue = any.queue, .before = {}, .after = {}, .position_before = position(line_before, key), .position_after = position(line_after, key), .anew = proposal.anew.contains(key)};
    if (was && !was->spec->finished.is) shift.before = was->place;
    if (is && !is->spec->finished.is) shift.after = is->place;
    const bool ran = shift.before == Place::Running, runs = shift.after == Place::Running;
    if (is && !runs) shift.waits_for = waits_text(after, *is), shift.reason = is->reason;
    if (const auto stop = stops.find(key); stop != stops.end()) shift.preempted = stop->second.preempted, shift.preempted_by = stop->second.by;
    if (runs && !ran) {
      if (const auto victims = stopped_for.find(key); victims != stopped_for.end()) shift.after_stop_of = victims->second;
      out.starts.push_back(std::move(shift));
    } else if (ran && (!runs || shift.anew)) {
      (shift.after ? out.stops : out.leaves).push_back(std::move(shift));
    } else if (shift.position_after > 0 && shift.position_before == 0) {
      out.waits.push_back(std::move(shift));
    } else if (!runs && shift.position_after == 0 && (shift.position_before > 0 || shift.before != shift.after)) {
      (shift.before ? out.leaves : out.waits).push_back(std::move(shift));
    } else if (shift.position_after != shift.position_before) {
      out.moves.push_back(std::move(shift));
    }
  }
  const auto in_line = [](const WhatIf::Shift& a, const WhatIf::Shift& b) { return std::tie(a.queue, a.position_after, a.workload) < std::tie(b.queue, b.position_after, b.workload); };
  for (auto* list : {&out.starts, &out.stops, &out.waits, &out.moves, &out.leaves}) {
    std::sort(list->begin(), list->end(), in_line);
    for (const WhatIf::Shift& shift : *list) {
      if (!shift.owner.empty()) out.owners[shift.workload] = shift.owner;
      std::vector<ObjectKey> others = shift.after_stop_of;
      if (!shift.preempted_by.name.empty()) others.push_back(shift.preempted_by);
      for (const ObjectKey& other : others)
        if (const auto standing = after.standing(other); standing && !owner_of(standing->object).empty()) out.owners[other] = owner_of(standing->object);
    }
  }
  return out;
}

Json to_json(const WhatIf& it) {
  const auto named = [&](const ObjectKey& key) {
    Json out = Json::object({{"namespace", key.space}, {"name", key.name}});
    if (const auto owner = it.owners.find(key); owner != it.owners.end()) out.set("owner", owner->second);
    return out;
  };
  const auto list = [&](const std::vector<WhatIf::Shift>& shifts) {
    Json out = Json::array();
    for (const WhatIf::Shift& one : shifts) {
      Json entry = named(one.workload);
      entry.set("queue", one.queue);
      if (one.before) entry.set("before", state_text(*one.before));
      if (one.after) entry.set("after", state_text(*one.after));
      if (one.position_before > 0) entry.set("positionBefore", std::int64_t{one.position_before});
      if (one.position_after > 0) entry.set("position", std::int64_t{one.position_after});
      if (one.anew) entry.set("changedItself", true);
      if (one.preempted) entry.set("reason", std::string(text(*one.preempted)));
      else if (!one.reason.empty()) entry.set("reason", one.reason);
      if (!one.preempted_by.name.empty()) entry.set("for", named(one.preempted_by));
      if (!one.after_stop_of.empty()) {
        Json stops = Json::array();
        for (const ObjectKey& key : one.after_stop_of) stops.push(named(key));
        entry.set("onceStopped", std::move(stops));
      }
      if (!one.waits_for.empty()) entry.set("waitsFor", one.waits_for);
      out.push(std::move(entry));
    }
    return out;
  };
  const auto about = [](const std::string& kind, const ObjectKey& key) {
    Json out = Json::object({{"kind", kind}, {"name", key.name}});
    if (!key.space.empty()) out.set("namespace", key.space);
    return out;
  };
  Json changes = Json::array(), problems = Json::array();
  for (const WhatIf::Change& change : it.changes) changes.push(about(change.kind, change.key).set("change", change.what));
  for (const WhatIf::Problem& problem : it.problems) problems.push(about(problem.kind, problem.key).set("reason", problem.reason).set("message", problem.message));
  return Json::object({{"changes", std::move(changes)},
                       {"problems", std::move(problems)},
                       {"starts", list(it.starts)},
                       {"stops", list(it.stops)},
                       {"waits", list(it.waits)},
                       {"moves", list(it.moves)},
                       {"leaves", list(it.leaves)},
                       {"settled", it.settled}});
}

}  // namespace fairlead::governance
