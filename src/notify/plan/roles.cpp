// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/roles.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::notify {

using kube::Json;

namespace {

constexpr const char* kWitness = "witness";  // in the record, and the name of its container
constexpr const char* kWitnessPod = "controller-2";
constexpr HeadState kStates[] = {HeadState::Off, HeadState::Unknown, HeadState::Standby, HeadState::On};

bool useful(HeadState state) { return state == HeadState::On || state == HeadState::Standby; }

// Reasons and exit statuses alone: messages of a runtime may quote what a user wrote.
std::string pod_trouble(const Json& pod) {
  if (kube::deleting(pod)) return "its pod is being deleted";
  const std::string& phase = pod["status"]["phase"].string();
  if (phase == "Failed" || phase == "Succeeded") {
    const std::string& reason = pod["status"]["reason"].string();
    return fmt::format("its pod has ended ({})", reason.empty() ? phase : reason);
  }
  if (const Json* scheduled = kube::find_condition(pod, "PodScheduled"); scheduled && (*scheduled)["status"].string() == "False") return "no node has room for its pod";
  for (const Json& container : pod["status"]["containerStatuses"].items()) {
    if (container["ready"].boolean()) continue;
    const std::string& name = container["name"].string();
    if (const std::string& waiting = container["state"]["waiting"]["reason"].string(); !waiting.empty()) return fmt::format("its container {} waits ({})", name, waiting);
    const Json& ended = container["state"]["terminated"].is_object() ? container["state"]["terminated"] : container["lastState"]["terminated"];
    if (ended.is_object()) return fmt::format("its container {} ended with status {} and was started again {} times", name, ended["exitCode"].integer(), container["restartCount"].integer());
    return fmt::format("its container {} is not ready", name);
  }
  return "its pod is not ready";
}

Head read_head(const Json* pod, const std::string& cluster_uid) {
  if (!pod) return {HeadState::Off, "its pod is gone"};
  const Json* owner = kube::controller_of(*pod);
  if (!owner || (*owner)["uid"].string() != cluster_uid) return {HeadState::Off, "a pod of somebody else has its name"};
  const Json* ready = kube::find_condition(*pod, "Ready");
  const std::string status = ready ? (*ready)["status"].string() : "";
  if (status == "Unknown" || (status == "False" && (*ready)["reason"].string().starts_with("Node"))) return {HeadState::Unknown, fmt::format("its node {} does not report", (*pod)["spec"]["nodeName"].string_or("?"))};
  if (status == "True" && !kube::deleting(*pod)) return {HeadState::Standby, ""};
  return {HeadState::Off, pod_trouble(*pod)};
}

// The pod of a third head has the witness's name until it is gone.
Head read_witness(const Json* pod, const std::string& cluster_uid) {
  Head out = read_head(pod, cluster_uid);
  if (out.state == HeadState::Off) return out;
  const auto& containers = (*pod)["spec"]["containers"].items();
  if (containers.size() != 1 || containers[0]["name"].string() != kWitness) return {HeadState::Off, "the pod of a third head still has its name"};
  return out;
}

// Why a head does not serve any more, or does now.
std::string cause_of(const std::string& head, HeadState was, const Head& is, const HeadsNow& now) {
  const bool elected = now.term > 0;
  if (is.state == HeadState::On) return elected ? fmt::format("{} was elected in term {}", head, now.term) : "its slurmctld is ready";
  std::string out = is.why;
  if (was == HeadState::On && is.state == HeadState::Standby) out = fmt::format("it gave its lease back or could not renew it: its slurmctld ended or hung, it was cut off, or it was told to step down");
  if (is.state == HeadState::Standby && was != HeadState::On) return "its pod is ready";
  if (elected && !now.serves.empty() && now.serves != head && was == HeadState::On) out += fmt::format("; {} was elected in term {}", now.serves, now.term);
  return out;
}

std::string next_step(const api::SlurmCluster& cluster, const std::string& head, EventType type, const HeadsNow& now) {
  const std::string look = fmt::format("kubectl -n {} describe pod {}", cluster.space, head);
  const auto primary = now.heads.find(now.serves);
  const bool served = primary != now.heads.end() && primary->second.state == HeadState::On;
  switch (type) {
    case EventType::PrimaryOff:
      if (served) return fmt::format("None at once: {} serves and running jobs go on. If {} is not back in ten minutes: {}", now.serves, head, look);
      return fmt::format("Running jobs go on, Slurm's commands wait until a head serves again. If none does within a minute: {}", look);
    case EventType::PrimaryOn: return "None.";
    case EventType::BackupLost: return fmt::format("If it is not back in ten minutes: {}", look);
    case EventType::BackupReady: return "None.";
    case EventType::ClusterEvent:
    case EventType::Message:
    case EventType::Test: return "None.";
  }
  return "None.";
}

EventType type_of(HeadState was, HeadState is) {
  if (is == HeadState::On) return EventType::PrimaryOn;
  if (was == HeadState::On) return EventType::PrimaryOff;
  return is == HeadState::Standby ? EventType::BackupReady : EventType::BackupLost;
}

}  // namespace

std::string_view text(HeadState state) {
  switch (state) {
    case HeadState::Off: return "Off";
    case HeadState::Unknown: return "Unknown";
    case HeadState::Standby: return "Standby";
    case HeadState::On: return "On";
  }
  return "Unknown";
}

HeadsNow read_heads(const api::SlurmCluster& cluster, const std::map<std::string, Json>& pods, const Json* slice) {
  HeadsNow out{.wanted = std::clamp(cluster.controller.size, 1, api::kMaxHeads)};
  for (int i = 0; i < out.wanted; ++i) {
    const std::string name = fmt::format("controller-{}", i);
    const auto pod = pods.find(name);
    out.heads[name] = read_head(pod == pods.end() ? nullptr : &pod->second, cluster.uid);
  }
  if (out.wanted == 2) {
    const auto pod = pods.find(kWitnessPod);
    out.witness = read_witness(pod == pods.end() ? nullptr : &pod->second, cluster.uid);
  }
  if (slice && !(*slice)["endpoints"].items().empty()) {
    const Json& ref = (*slice)["endpoints"].items()[0]["targetRef"];
    out.serves = ref["name"].string();
    const std::string term = kube::annotations_of(*slice)["fairlead.dev/term"];
    if (!term.empty() && term.size() <= 18 && term.find_first_not_of("0123456789") == std::string::npos) out.term = std::stoull(term);
    // A pod made anew under the name of the one that served has not been elected.
    const auto pod = pods.find(out.serves);
    if (pod != pods.end() && !ref["uid"].string().empty() && kube::uid_of(pod->second) != ref["uid"].string()) out.serves.clear();
  } else if (out.wanted == 1) {
    out.serves = "controller-0";
  }
  if (const auto head = out.heads.find(out.serves); head != out.heads.end() && head->second.state == HeadState::Standby) head->second.state = HeadState::On;
  return out;
}

std::optional<Record> read_record(const Json& cluster) {
  const Json& heads = cluster["status"]["notifications"]["heads"];
  if (!heads.is_object()) return std::nullopt;
  Record out;
  for (const auto& [name, one] : heads.members()) {
    const std::string& state = one["state"].string();
    const auto* const found = std::find_if(std::begin(kStates), std::end(kStates), [&](HeadState s) { return text(s) == state; });
    out[name] = {found == std::end(kStates) ? HeadState::Unknown : *found, std::max<std::int64_t>(one["seq"].integer(), 0)};
  }
  return out;
}

Json record_json(const Record& record) {
  Json heads = Json::object();
  for (const auto& [name, told] : record) heads.set(name, Json::object({{"state", std::string(text(told.state))}, {"seq", told.seq}}));
  return heads;
}

Refusals read_refusals(const Json& cluster) {
  Refusals out;
  for (const Json& one : cluster["status"]["notifications"]["refused"].items()) out[one["topic"].string()] = {std::max<std::int64_t>(one["events"].integer(), 0), one["why"].string()};
  return out;
}

Json refusals_json(const Refusals& refusals) {
  Json out = Json::array();
  for (const auto& [topic, one] : refusals) out.push(Json::object({{"topic", topic}, {"events", one.events}, {"why", one.why.substr(0, 300)}}));
  return out;
}

RolePlan plan_events(const api::SlurmCluster& cluster, const std::optional<Record>& told, const HeadsNow& now, Instant time) {
  RolePlan plan;
  const int ready = static_cast<int>(std::count_if(now.heads.begin(), now.heads.end(), [](const auto& head) { return useful(head.second.state); }));
  if (told) plan.record = *told;
  const std::int64_t first_seq = std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
  // A record that was lost begins anew with numbers that were never used; heads that may come later are in it from the start.
  for (int i = 0; i < api::kMaxHeads; ++i) {
    const std::string name = fmt::format("controller-{}", i);
    const auto head = now.heads.find(name);
    if (!told) plan.record[name] = {head == now.heads.end() ? HeadState::Off : head->second.state, first_seq};
  }
  const auto compare = [&](const std::string& name, const std::string& pod, const Head& head, bool witness) {
    const Told last = plan.record[name];
    if (last.state == head.state) return;
    plan.record[name] = {head.state, last.seq + 1};
    // From Off to Unknown and back nothing is lost or won.
    if (!useful(last.state) && !useful(head.state)) return;
    const EventType type = type_of(last.state, head.state);
    plan.events.push_back({.id = event_id(cluster.uid, name, last.seq, text(last.state), text(head.state)),
                           .type = type,
                           .time = time,
                           .space = cluster.space,
                           .cluster = cluster.name,
                           .cluster_uid = cluster.uid,
                           .head = pod,
                           .witness = witness,
                           .old_state = std::string(text(last.state)),
                           .new_state = std::string(text(head.state)),
                           .cause = cause_of(pod, last.state, head, now),
                           .next_step = next_step(cluster, pod, type, now),
                           .ready = ready,
                           .wanted = now.wanted,
                           .term = now.term});
    if (witness && type == EventType::BackupLost) plan.events.back().next_step.insert(0, "Until it is back the two heads have no third voter: if one of them is lost, too, none serves. ");
  };
  for (const auto& [name, head] : now.heads) compare(name, name, head, false);
  // Numbers of a witness that was away for a while begin where none was used before, as those of a lost record.
  if (!now.witness) plan.record.erase(kWitness);
  else if (!plan.record.contains(kWitness)) plan.record[kWitness] = {now.witness->state, first_seq};
  else compare(kWitness, kWitnessPod, *now.witness, true);
  const auto loss = [](const Event& event) { return event.type == EventType::PrimaryOff || event.type == EventType::BackupLost; };
  std::stable_partition(plan.events.begin(), plan.events.end(), loss);
  return plan;
}

}  // namespace fairlead::notify
