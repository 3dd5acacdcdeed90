// SPDX-License-Identifier: Apache-2.0
// Links between machines of a group that are checked at the same time (InstanceConnectivity, docs/design/058): they meet, each answers and tries some of the others, and each is judged by what all tell.
#include "fleet/plan/cluster_planner.h"
#include "fleet/plan/links.h"

namespace fairlead::fleet::planner {

namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr seconds kRequestsCome{10};   // of one request each instance hears by itself
constexpr minutes kGathering{15};      // for those that are on their way
constexpr minutes kAnswering{5};       // for those that do not answer, from when they were called
constexpr minutes kTelling{20};        // for what they tell

const Json& meeting_in(const One& one) { return one.status["healthCheck"]["meeting"]; }
bool is_checked(const One& one) { return one.status["healthCheck"]["stage"].string() == "Checking"; }
// It was called to none, or the last came to nothing.
bool waits(const Json& meeting) { return meeting["round"].string().empty() || meeting["over"].boolean(); }
bool is_called(const Json& meeting, const std::string& id) {
  const auto& members = meeting["members"].items();
  return std::any_of(members.begin(), members.end(), [&](const Json& member) { return member.string() == id; });
}
std::vector<std::string> members_of(const Json& meeting) {
  std::vector<std::string> out;
  for (const Json& member : meeting["members"].items()) out.push_back(member.string());
  return out;
}

}  // namespace

bool Planner::meets_when_empty(const One& one) const {
  const Json& record = one.status["healthCheck"];
  return record["stage"].string() == "Emptying" && record["id"].string() == one.value.health_check && one.value.health_checks.connectivity;
}

bool Planner::comes_to_meet(const One& other) const {
  const Instance& value = other.value;
  if (other.leaves || value.deleting || !value.replace.empty() || value.node.empty()) return false;
  const Json& record = other.status["healthCheck"];
  if (is_checked(other)) {
    const auto& checks = record["checks"].items();
    return !record.has("meeting") && std::any_of(checks.begin(), checks.end(), [](const Json& check) { return check.string() == "InstanceConnectivity"; });
  }
  if (!value.health_check.empty() && value.health_checks.connectivity && record["answered"].string() != value.health_check && (record["id"].string() != value.health_check || record["stage"].string() == "Emptying")) return true;
  const InstanceGroup* group = cluster_.group(value.group);
  return record["stage"].string().empty() && checked_on_start(other) && group->checks_on_start.connectivity && failed_script(other) == nullptr;
}

void Planner::meet(One& one, const Json& node) {
  const std::string& id = one.value.id;
  const Json meeting = meeting_in(one);
  const auto becomes = [&](Json now) {
    for (const char* const field : {"again", "why"})
      if (meeting.has(field)) now.set(field, meeting[field]);
    one.status.child("healthCheck").set("meeting", std::move(now));
    look_again(seconds(1));
  };
  if (!meeting.is_object()) {
    one.message = "deep health check: its links are tried next, with others";
    return becomes(Json::object({{"since", print_time(now_)}}));
  }
  if (!waits(meeting)) return meeting.has("tried") ? judge(one) : try_links(one, node);
  std::vector<std::string> waiting;
  bool more = false;
  for (const One& other : of_group(one.value.group)) {
    const Json& theirs = meeting_in(other);
    if (!is_checked(other) || other.leaves || other.value.deleting || !theirs.is_object()) {
      more = more || comes_to_meet(other);
      continue;
    }
    if (waits(theirs)) {
      waiting.push_back(other.value.id);
    } else if (theirs["round"] != meeting["round"] && is_called(theirs, id)) {
      one.message = "deep health check: it meets others";
      return becomes(Json::object({{"since", print_time(now_)}, {"round", theirs["round"]}, {"members", theirs["members"]}}));
    }
  }
  const Instant since = parse_time(meeting["since"].string()).value_or(now_);
  const std::int64_t again = meeting["again"].integer();
  const seconds rest = again == 0 ? kRequestsCome : std::min<seconds>(minutes(5), seconds(10) * (1 << std::clamp<std::int64_t>(again - 1, 0, 10)));
  if (now_ < since + rest || (more && now_ < since + kGathering)) {
    one.message = again > 0 ? fmt::format("deep health check: {}; they are tried again", meeting["why"].string()) : "deep health check: it waits for others whose links are tried with its own";
    return look_again(std::max<std::chrono::nanoseconds>(now_ < since + rest ? since + rest - now_ : std::chrono::nanoseconds(seconds(5)), seconds(1)));
  }
  if (waiting.size() < 2) {
    if (again == 0) return judge(one);
    one.message = fmt::format("deep health check: {}; nobody is there to try them with: check more machines of group {} as well (StartClusterHealthCheck), or replace this one", meeting["why"].string(), one.value.group);
    return look_again(seconds(30));
  }
  std::sort(waiting.begin(), waiting.end());
  Json members = Json::array();
  for (const std::string& member : meeting_of(waiting, id)) members.push(member);
  one.message = "deep health check: it meets others";
  becomes(Json::object({{"since", print_time(now_)}, {"round", fmt::format("{}/{}", id, print_time(now_))}, {"members", std::move(members)}}));
}

void Planner::try_links(One& one, const Json& node) {
  const Json meeting = meeting_in(one);
  const std::string& round = meeting["round"].string();
  const Instant since = parse_time(meeting["since"].string()).value_or(now_);
  const CheckPod own = look_at_check(one, answering_pod_name(one.value.id), round);
  if (own.kind == CheckPod::Kind::Missing) return begin_check(one, node, [&] { return answering_pod(cluster_, one.value, round, *one.object, options_.scripts); });
  if (own.kind == CheckPod::Kind::Passed || own.kind == CheckPod::Kind::Fault) {
    // It answers until it is deleted.
    one.message = "deep health check: what answers for it has ended; it is made again";
    add(Verb::Delete, resources::pods, *script_pod_named(answering_pod_name(one.value.id)), "it has ended by itself");
    return look_again(seconds(2));
  }
  if (own.kind != CheckPod::Kind::Going) return;
  // Who takes part, and where they answer.
  const std::vector<std::string> members = members_of(meeting);
  std::map<std::string, std::string> addresses;
  std::size_t missing = 0;
  for (const One& other : of_group(one.value.group)) {
    if (!is_called(meeting, other.value.id) || other.leaves || other.value.deleting || !is_checked(other)) continue;
    const Json& theirs = meeting_in(other);
    if (theirs["round"].string() == round && theirs["over"].boolean()) continue;
    const Json* pod = theirs["round"].string() == round ? script_pod_named(answering_pod_name(other.value.id)) : nullptr;
    if (pod != nullptr && is_script_of(*pod, *other.object) && (*pod)["metadata"]["annotations"][kCheckRequest].string() == round && (*pod)["status"]["phase"].string() == "Running" && !kube::deleting(*pod) && !(*pod)["status"]["podIP"].string().empty())
      addresses[other.value.id] = (*pod)["status"]["podIP"].string();
    else ++missing;
  }
  if (missing > 0 && now_ < since + kAnswering) {
    one.message = fmt::format("deep health check: {} of {} machines do not answer yet; then their links are tried", missing, members.size());
    return look_again(seconds(2));
  }
  std::string peers;
  for (const std::string& peer : link_peers(members, one.value.id))
    if (const auto found = addresses.find(peer); found != addresses.end()) peers += (peers.empty() ? "" : " ") + peer + "=" + found->second;
  const CheckPod check = look_at_check(one, links_pod_name(one.value.id), round);
  switch (check.kind) {
    case CheckPod::Kind::Waits: return;
    case CheckPod::Kind::Going: ++scripts_going_[one.value.group]; return;
    case CheckPod::Kind::Missing:
      // What answers holds the machine already: nothing else may have come.
      add(Verb::Create, resources::pods, links_pod(cluster_, one.value, round, *one.object, peers, options_.scripts), fmt::format("links of {}", one.value.node));
      last().if_live = one.value.id;
      last().live_node = one.value.node;
      one.message = "deep health check: its links are tried";
      return;
    case CheckPod::Kind::Passed:
    case CheckPod::Kind::Fault: break;
  }
  one.status.child("healthCheck").child("meeting").set("tried", check.message.empty() ? Json("nothing") : Json(check.message));
  one.message = "deep health check: its links were tried; it waits for what others tell";
  look_again(seconds(1));
}

void Planner::judge(One& one) {
  const Json record = one.status["healthCheck"], meeting = record["meeting"];
  const std::string& round = meeting["round"].string();
  const Instant since = parse_time(meeting["since"].string()).value_or(now_);
  const std::vector<std::string> members = members_of(meeting);
  std::map<std::string, LinkWords> told;
  std::size_t missing = 0;
  if (!waits(meeting)) {
    for (const One& other : of_group(one.value.group)) {
      if (!is_called(meeting, other.value.id)) continue;
      const Json& theirs = meeting_in(other);
      if (theirs["round"].string() == round && theirs.has("tried")) told[other.value.id] = read_link_words(theirs["tried"].string(), link_peers(members, other.value.id));
      else if (is_checked(other) && !other.leaves && !other.value.deleting) ++missing;
    }
    if (missing > 0 && now_ < since + kTelling) {
      one.message = fmt::format("deep health check: its links were tried; {} of {} machines have not told what they found", missing, members.size());
      return look_again(seconds(5));
    }
    // Others may try it until all have told.
    if (const Json* pod = script_pod_named(answering_pod_name(one.value.id)); pod != nullptr && is_script_of(*pod, *one.object)) {
      one.message = "deep health check: its links were tried";
      if (!kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, "the links were tried");
      return look_again(seconds(1));
    }
  }
  const LinkVerdict verdict = judge_links(told, one.value.id);
  const std::string before = record["message"].string();
  const std::string& id = record["id"].string();
  look_again(seconds(1));
  switch (verdict.kind) {
    case LinkVerdict::Kind::Alone:
      // Others were to be tried and told nothing: that is not the same as that there are none.
      if (meeting["again"].integer() > 0 || missing > 0) break;
      [[fallthrough]];
    case LinkVerdict::Kind::Passed:
      note_check(one, id, "Passed", now_, before.empty() ? verdict.words : before + "; " + verdict.words);
      one.message = "it has passed its deep health check";
      return;
    case LinkVerdict::Kind::Faulty:
      note_check(one, id, "Failed", now_, verdict.words);
      one.message = verdict.words;
      return;
    case LinkVerdict::Kind::Unknown: break;
  }
  // What is not known condemns nobody; nor is a machine in use before its links are known to work.
  Json again = meeting;
  again.set("since", print_time(now_)).set("over", true).set("again", meeting["again"].integer() + 1);
  if (verdict.kind == LinkVerdict::Kind::Unknown) again.set("why", verdict.words);
  else if (missing > 0) again.set("why", "links: those that were to be tried with it told nothing");
  one.message = fmt::format("deep health check: {}; they are tried again", again["why"].string());
  one.status.child("healthCheck").set("meeting", std::move(again));
}

}  // namespace fairlead::fleet::planner
