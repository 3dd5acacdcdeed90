// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/reservations.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "api/cluster.h"

namespace fairlead::fleet {

using api::Commitment;
using api::PlanMachine;
using api::PlanPhase;
using api::Plans;
using api::TrainingPlan;
using kube::Json;
using Holder = PlanMachine::Holder;

namespace {

// Of what an extension takes that is not granted yet: no object has this name, so no group gets such a machine.
constexpr const char* kNoPlan = "0_extension";

// What is told of an extension; it is added where nothing was yet.
Json& extension_of(Json& status, const std::string& id) {
  if (!status["extensions"].is_array()) status.set("extensions", Json::array());
  Json& all = status.child("extensions");
  const auto place = static_cast<std::size_t>(std::find_if(all.items().begin(), all.items().end(), [&](const Json& one) { return one["id"].string() == id; }) - all.items().begin());
  if (place == all.items().size()) all.push(Json::object({{"id", id}}));
  return all.items()[place];
}

class Reservations {
 public:
  Reservations(const std::vector<Json>& objects, const std::vector<PlanMachine>& machines, const std::map<std::string, int>& waiting, Instant now) : objects_(objects), machines_(machines), waiting_(waiting), plans_(read_plans(objects)), now_(now), wanted_(machines.size()) {}

  ReservationPlan run() {
    decide();
    std::set<std::string> types;
    for (const auto& [name, plan] : plans_)
      if (plan.granted) types.insert(plan.granted->type);
    for (const ReservationPlan::Due& due : out_.due) types.insert(due.type);
    for (const std::string& type : types) assign(type);
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      const PlanMachine& one = machines_[i];
      if (wanted_[i].plan != one.label || wanted_[i].wanted_back != one.wanted_back) out_.marks.push_back({one.node, wanted_[i].plan, wanted_[i].wanted_back, one.version});
    }
    for (const Json& object : objects_)
      if (!kube::deleting(object)) tell(object);
    return std::move(out_);
  }

 private:
  void look_again(Instant at) {
    if (at > now_) out_.look_again = std::min(out_.look_again.value_or(at), at);
  }

  // ---- what is asked for

  struct Request {
    Instant asked;
    std::string plan;
    const TrainingPlan::Extension* extension = nullptr;  // null: the plan itself
  };

  // Requests by age: who asked first is looked at first, and the others of the type wait for that.
  void decide() {
    std::vector<Request> requests;
    std::set<std::string> busy;  // types
    for (const auto& [name, plan] : plans_) {
      if (plan.phase(now_) == PlanPhase::Pending) requests.push_back({plan.created, name});
      for (const TrainingPlan::Extension& one : plan.extensions)
        if (!plan.extended.contains(one.id) && plan.phase(now_) != PlanPhase::Pending) requests.push_back({std::max(plan.created, one.asked.value_or(now_)), name, &one});
    }
    std::stable_sort(requests.begin(), requests.end(), [](const Request& a, const Request& b) { return std::tie(a.asked, a.plan) < std::tie(b.asked, b.plan); });
    for (const Request& one : requests) {
      const TrainingPlan& plan = plans_.at(one.plan);
      const std::string type = plan.granted ? plan.granted->type : plan.type;
      if (busy.contains(type)) continue;
      const std::pair<std::string, std::string> key{one.plan, one.extension != nullptr ? one.extension->id : ""};
      Commitment wanted{.count = plan.granted ? plan.granted->count : plan.count, .window = one.extension != nullptr ? one.extension->window : api::PlanWindow{plan.start.value_or(std::chrono::floor<std::chrono::seconds>(now_)), plan.end}};
      const std::string why = one.extension != nullptr ? why_not_extended(plan, *one.extension) : why_not_granted(plan, wanted);
      const std::string no_room = why.empty() ? lacking(type, wanted, 0) : why;
      const int unknown = count_of(type, Holder::Unknown);
      if (no_room.empty()) {
        out_.due.push_back({.plan = one.plan, .extension = key.second, .type = type, .wanted = wanted});
        busy.insert(type);
      } else if (why.empty() && unknown > 0 && lacking(type, wanted, unknown).empty()) {
        // Not to be undone, so not decided by what may be seen in a moment.
        waits_[key] = fmt::format("waits: there is room if {} machines count whose Nodes have label {} of an Instance that is not known here; where none of that name comes, take the label away", unknown, api::kInstanceLabel);
        busy.insert(type);
        look_again(wanted.window.end);
      } else {
        refused_[key] = no_room;
      }
    }
  }

  std::string why_not_granted(const TrainingPlan& plan, const Commitment& wanted) const {
    if (!plan.problems.empty()) return plan.problems.front();
    if (wanted.window.end <= now_) return fmt::format("its end, {}, has passed", print_time(wanted.window.end));
    return wanted.window.start >= wanted.window.end ? "spec.endTime: it is not after the start" : "";
  }
  std::string why_not_extended(const TrainingPlan& plan, const TrainingPlan::Extension& extension) const {
    if (!plan.granted) return "the plan was not granted";
    if (plan.phase(now_) == PlanPhase::Expired) return fmt::format("the plan ended at {}", print_time(plan.granted->window.end));
    if (extension.window.start != plan.granted->window.end) return fmt::format("the plan ends at {} by now: search again", print_time(plan.granted->window.end));
    return extension.window.end <= extension.window.start ? "it ends before it begins" : "";
  }
  // What is promised after `now` counts: the past is over.
  std::string lacking(const std::string& type, const Commitment& wanted, int more) const {
    const int there = api::promisable(machines_, type) + more;
    const int promised = api::peak(api::commitments(plans_, type), std::max(now_, wanted.window.start), wanted.window.end);
    if (promised + wanted.count <= there) return "";
    const int others = count_of(type, Holder::Others);
    return fmt::format("{} machines of type {} are asked for from {} to {}; {} can be promised, and {} of them are ({} more are in use by groups without a plan, which have no end)", wanted.count, type, print_time(wanted.window.start), print_time(wanted.window.end), there, promised, others);
  }

  int count_of(const std::string& type, Holder holder) const {
    return static_cast<int>(std::count_if(machines_.begin(), machines_.end(), [&](const PlanMachine& one) { return one.type == type && one.healthy && one.holder == holder; }));
  }

  // ---- which machine is kept for which plan

  struct Need {
    std::string plan;
    Instant start;
    int count = 0;
    bool active = false;
    int asked_back = 0;  // of groups whose plan has ended, at most
    int with_groups = 0; // of what it has been given, those that such groups still have
    int lacks() const { return count + with_groups; }
  };

  void assign(const std::string& type) {
    std::vector<Need> active, coming;
    int now_needed = 0;
    for (const auto& [name, plan] : plans_) {
      if (!plan.granted || plan.granted->type != type || plan.granted->window.end <= now_) continue;
      const bool begun = plan.active(now_);
      (begun ? active : coming).push_back({name, plan.granted->window.start, plan.granted->count, begun});
      if (begun) now_needed += plan.granted->count;
    }
    std::vector<Commitment> all = api::commitments(plans_, type);
    for (const ReservationPlan::Due& due : out_.due) {
      if (due.type != type) continue;
      all.push_back(due.wanted);
      coming.push_back({due.extension.empty() ? due.plan : kNoPlan, due.wanted.window.start, due.wanted.count});
    }
    const auto by_start = [](const Need& a, const Need& b) { return std::tie(a.start, a.plan) < std::tie(b.start, b.plan); };
    std::sort(active.begin(), active.end(), by_start);
    std::sort(coming.begin(), coming.end(), by_start);
    // As many in all as will be promised at one time; what plans that end leave is for those that begin then.
    int more = std::max(0, api::peak(all, now_, api::kForever) - now_needed);
    for (Need& one : coming) more -= one.count = std::min(one.count, more);

    const auto take = [&](Need& need, const std::function<bool(const PlanMachine&)>& fits) {
      for (std::size_t i = 0; i < machines_.size() && need.count > 0; ++i) {
        const PlanMachine& one = machines_[i];
        if (one.type != type || !one.healthy || one.holder == Holder::Others || !wanted_[i].plan.empty() || !fits(one)) continue;
        wanted_[i].plan = need.plan;
        // Asked back of a group only when it is needed at once, and for as long as that is so.
        if (one.holder == Holder::Ended && need.asked_back-- > 0) wanted_[i].wanted_back = one.instance;
        need.with_groups += one.holder == Holder::Ended;
        --need.count;
      }
    };
    const auto is_free = [](const PlanMachine& one) { return one.holder == Holder::Nobody; };
    const auto is_kept = [](const PlanMachine& one, const Need& need) { return (one.holder == Holder::Nobody || one.holder == Holder::Unknown) && one.label == need.plan; };
    for (Need& need : active) take(need, [&](const PlanMachine& one) { return one.holder == Holder::Plan && one.plan == need.plan; });
    for (Need& need : active) take(need, [&](const PlanMachine& one) { return is_kept(one, need); });
    for (Need& need : active) {
      take(need, [&](const PlanMachine& one) { return is_free(one) && one.label.empty(); });
      take(need, is_free);
      take(need, [&](const PlanMachine& one) { return one.holder == Holder::Leaving; });
      // A group gives back for good. So it is asked only for an instance that waits and will not get another machine, and not for what may be over in a moment: what groups of the plan have and is out of order, and what else has been for less than five minutes.
      need.asked_back = need.count - static_cast<int>(std::count_if(machines_.begin(), machines_.end(), [&](const PlanMachine& one) {
        if (one.type != type || one.healthy || one.replaced) return false;
        return (one.holder == Holder::Plan && one.plan == need.plan) || (one.lately && one.label == need.plan);
      }));
      const auto waits = waiting_.find(need.plan);
      int unserved = waits == waiting_.end() ? 0 : waits->second;
      for (std::size_t i = 0; i < machines_.size(); ++i) unserved -= wanted_[i].plan == need.plan && (is_free(machines_[i]) || machines_[i].holder == Holder::Leaving);
      need.asked_back = std::min(need.asked_back, unserved);
      // One that was asked back is not asked of another in the next round.
      take(need, [&](const PlanMachine& one) { return one.holder == Holder::Ended && one.label == need.plan && !one.wanted_back.empty(); });
      take(need, [&](const PlanMachine& one) { return one.holder == Holder::Ended && one.label == need.plan; });
      take(need, [&](const PlanMachine& one) { return one.holder == Holder::Ended; });
    }
    for (Need& need : coming) take(need, [&](const PlanMachine& one) { return is_kept(one, need); });
    for (Need& need : coming) {
      take(need, is_free);
      take(need, [&](const PlanMachine& one) { return one.label == need.plan && one.holder != Holder::Plan; });
      take(need, [](const PlanMachine& one) { return one.holder != Holder::Plan && one.holder != Holder::Unknown; });
    }
    // One of its own that is out of order stays marked, by the plan that its group has now, beside those that count; so does any other as long as the plan has too few, whether it has begun or not: a machine that reboots comes back as what it was.
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      const PlanMachine& one = machines_[i];
      if (one.type != type || one.healthy || one.label.empty()) continue;
      for (const std::vector<Need>* needs : {&active, &coming})
        for (const Need& need : *needs)
          if (one.holder == Holder::Plan ? one.plan == need.plan : one.label == need.plan && one.holder != Holder::Others && need.lacks() > 0) wanted_[i].plan = need.plan;
    }
    // One that is kept for a plan that has enough makes up for another plan's, once it is well.
    std::map<std::string, int> still;
    for (std::size_t i = 0; i < machines_.size(); ++i) still[wanted_[i].plan] += machines_[i].type == type && !machines_[i].healthy;
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      const PlanMachine& one = machines_[i];
      if (one.type != type || one.healthy || one.label.empty() || one.holder == Holder::Others || one.holder == Holder::Plan || !wanted_[i].plan.empty()) continue;
      for (const std::vector<Need>* needs : {&active, &coming})
        for (const Need& need : *needs)
          if (wanted_[i].plan.empty() && need.count > still[need.plan]) wanted_[i].plan = need.plan, ++still[need.plan];
    }
    for (const Need& need : active) missing_[need.plan] = need.count;
  }

  // ---- what is told

  void tell(const Json& object) {
    const TrainingPlan& plan = plans_.at(kube::name_of(object));
    Json status = object["status"].is_object() ? object["status"] : Json::object();
    if (const auto refused = refused_.find({plan.name, ""}); refused != refused_.end()) {
      status.set("failed", true).set("phase", "Failed").set("message", refused->second).set("decidedAt", print_time(now_));
      out_.statuses.push_back({plan.name, std::move(status)});
      return;
    }
    for (const TrainingPlan::Extension& one : plan.extensions)
      if (const auto refused = refused_.find({plan.name, one.id}); refused != refused_.end() && !plan.extended.contains(one.id)) {
        extension_of(status, one.id).set("granted", false).set("message", refused->second).set("decidedAt", print_time(now_));
      } else if (!one.asked && !plan.extended.contains(one.id)) {
        extension_of(status, one.id).set("seenAt", print_time(now_));  // its place in the queue
      }
    const PlanPhase phase = plan.phase(now_);
    status.set("phase", std::string(api::text(phase)));
    if (plan.granted) {
      look_again(plan.granted->window.start);
      look_again(plan.granted->window.end);
      std::string message = count(plan, status);
      for (const auto& [key, why] : waits_)
        if (key.first == plan.name) message += fmt::format("{}extension {} {}", message.empty() ? "" : "; ", key.second, why);
      if (message.empty()) status.erase("message");
      else status.set("message", std::move(message));
    } else if (phase == PlanPhase::Pending) {
      const auto waits = waits_.find({plan.name, ""});
      status.set("message", waits != waits_.end() ? waits->second : "is looked at; requests are decided in the order in which they came");
    }
    if (status != object["status"]) out_.statuses.push_back({plan.name, std::move(status)});
  }

  std::string count(const TrainingPlan& plan, Json& status) const {
    int kept = 0, in_use = 0, available = 0, unhealthy = 0, awaited = 0, stay = 0, unknown = 0;
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      const PlanMachine& one = machines_[i];
      const bool has = one.holder == Holder::Plan && one.plan == plan.name, is_kept = wanted_[i].plan == plan.name;
      stay += one.holder == Holder::Ended && one.plan == plan.name;
      in_use += has || (one.holder == Holder::Ended && one.plan == plan.name);
      kept += is_kept;
      unhealthy += (is_kept || has) && !one.healthy;
      available += is_kept && one.healthy && one.holder == Holder::Nobody;
      unknown += is_kept && one.holder == Holder::Unknown;
      awaited += is_kept && one.healthy && (wanted_[i].wanted_back == one.instance || one.holder == Holder::Leaving) && !one.instance.empty() && plan.active(now_);
    }
    status.set("instances", Json::object({{"kept", kept}, {"inUse", in_use}, {"available", available}, {"unhealthy", unhealthy}}));
    const std::string strange = unknown == 0 ? "" : fmt::format("{} machines have label {} of an Instance that is not known here: where none of that name comes, take the label away", unknown, api::kInstanceLabel);
    switch (plan.phase(now_)) {
      case PlanPhase::Scheduled: return fmt::format("begins at {}{}{}", print_time(plan.granted->window.start), strange.empty() ? "" : "; ", strange);
      case PlanPhase::Expired: return fmt::format("ended at {}{}", print_time(plan.granted->window.end), stay == 0 ? "" : fmt::format("; {} machines stay with its groups until another plan needs them", stay));
      default: break;
    }
    std::string out;
    if (const auto found = missing_.find(plan.name); found != missing_.end() && found->second > 0) out = fmt::format("{} of {} machines are lacking: there are no more of type {} that answer and are free", found->second, plan.granted->count, plan.granted->type);
    if (awaited > 0) out += fmt::format("{}{} machines are yet to be given back by groups that go, or whose plan has ended", out.empty() ? "" : "; ", awaited);
    if (!strange.empty()) out += (out.empty() ? "" : "; ") + strange;
    return out;
  }

  struct Wanted {
    std::string plan, wanted_back;
  };
  const std::vector<Json>& objects_;
  const std::vector<PlanMachine>& machines_;
  const std::map<std::string, int>& waiting_;
  const Plans plans_;
  const Instant now_;
  std::vector<Wanted> wanted_;                 // beside machines_
  std::map<std::pair<std::string, std::string>, std::string> refused_;  // plan and extension: why
  std::map<std::pair<std::string, std::string>, std::string> waits_;    // of those that are not decided yet, as refused_
  std::map<std::string, int> missing_;         // of plans that are Active
  ReservationPlan out_;
};

}  // namespace

Plans read_plans(const std::vector<Json>& objects) {
  Plans out;
  for (const Json& object : objects)
    if (!kube::deleting(object)) out.emplace(kube::name_of(object), api::read_training_plan(object));
  return out;
}

ReservationPlan plan_reservations(const std::vector<Json>& objects, const std::vector<PlanMachine>& machines, const std::map<std::string, int>& waiting, Instant now) { return Reservations(objects, machines, waiting, now).run(); }

bool is_secured(const ReservationPlan::Due& due, const Plans& plans, const std::vector<PlanMachine>& machines, Instant now) {
  const auto marked = std::count_if(machines.begin(), machines.end(), [&](const PlanMachine& one) { return one.type == due.type && one.promisable() && !one.label.empty(); });
  return api::peak(api::commitments(plans, due.type), std::max(now, due.wanted.window.start), due.wanted.window.end) + due.wanted.count <= marked;
}

Json granted_status(const Json& object, const ReservationPlan::Due& due, Instant now) {
  Json status = object["status"].is_object() ? object["status"] : Json::object();
  if (due.extension.empty()) {
    status.set("granted", Json::object({{"instanceType", due.type}, {"instanceCount", due.wanted.count}})).set("startTime", print_time(due.wanted.window.start)).set("endTime", print_time(due.wanted.window.end)).set("decidedAt", print_time(now));
    const bool begun = due.wanted.window.start <= now;
    status.set("phase", begun ? "Active" : "Scheduled");
    if (begun) status.erase("message");
    else status.set("message", fmt::format("begins at {}", print_time(due.wanted.window.start)));
    return status;
  }
  extension_of(status, due.extension).set("granted", true).set("decidedAt", print_time(now));
  return status.set("endTime", print_time(due.wanted.window.end));
}

}  // namespace fairlead::fleet
