// SPDX-License-Identifier: Apache-2.0
// Which streams a cluster has, and of what each is made.
#include <fmt/format.h>

#include <algorithm>

#include "api/network_ways.h"
#include "base/encoding.h"
#include "hyperpod/logs.h"

namespace fairlead::hyperpod {
namespace {

constexpr const char* kCheckNote = "fairlead.dev/health-check";  // annotation of a deep health check's pod, and of no other (fleet/plan/lifecycle.h)
constexpr const char* kScriptContainer = "lifecycle";
constexpr auto kLate = std::chrono::seconds(2);  // states are told in whole seconds

std::optional<Instant> time_of(const Json& field) {
  const auto time = parse_time(field.string());
  return time ? std::optional<Instant>(*time) : std::nullopt;
}

// What is needed to ask for its log: a cluster has thousands of pods.
Json slim(const Json& pod) {
  Json names = Json::array();
  for (const Json& container : pod["spec"]["containers"].items()) names.push(Json::object({{"name", container["name"]}}));
  return Json::object({{"metadata", Json::object({{"name", kube::name_of(pod)}, {"namespace", kube::space_of(pod)}})}, {"spec", Json::object({{"nodeName", pod["spec"]["nodeName"]}, {"containers", std::move(names)}})}});
}

// Of the run that goes on, or was the last, and the one before it.
void add_runs(LogStream& stream, const Json& pod, const std::string& container) {
  const auto& statuses = pod["status"]["containerStatuses"].items();
  const auto found = std::find_if(statuses.begin(), statuses.end(), [&](const Json& one) { return one["name"].string() == container; });
  if (found == statuses.end() || pod["spec"]["nodeName"].string().empty()) return;
  const Json &state = (*found)["state"], &before = (*found)["lastState"]["terminated"];
  const bool now = state["running"].is_object() || state["terminated"].is_object();
  const auto add = [&](const Json& run, bool previous) {
    LogSegment segment{.pod = slim(pod), .query = {.container = container, .previous = previous, .since = {}}, .from = time_of(run["startedAt"]).value_or(created_at(pod)), .to = {}, .kept = {}};
    if (const auto end = time_of(run["finishedAt"])) segment.to = *end + kLate;
    stream.segments.push_back(std::move(segment));
  };
  if (before.is_object()) add(before, now);  // while it waits to run again, the last run is the one that is told of first
  if (state["running"].is_object()) add(state["running"], false);
  if (state["terminated"].is_object()) add(state["terminated"], false);
}

LogStream& stream_of(std::map<std::string, LogStream>& streams, const std::string& name, Instant created) {
  auto [at, fresh] = streams.try_emplace(name, LogStream{.name = name, .created = created, .segments = {}});
  if (!fresh) at->second.created = std::min(at->second.created, created);
  return at->second;
}

}  // namespace

std::optional<Instant> LogStream::last() const {
  std::optional<Instant> out;
  for (const LogSegment& segment : segments) {
    if (!segment.to) return std::nullopt;
    out = std::max(out.value_or(*segment.to), *segment.to);
  }
  return out;
}

std::map<std::string, LogStream> log_streams(const Json& cluster, const std::vector<Json>& pods, const std::vector<Json>& instances, const std::vector<Json>& events) {
  std::map<std::string, LogStream> out;
  std::map<std::string, const Json*> by_uid;
  const bool made = is_made(cluster);
  for (const Json& instance : instances)
    if (made && instance["spec"]["clusterUid"].string() == kube::uid_of(cluster)) by_uid[kube::uid_of(instance)] = &instance;
  const std::string slurm = made ? api::read_cluster(cluster).slurm_name : kube::name_of(cluster);
  for (const Json& pod : pods) {
    const Json& labels = pod["metadata"]["labels"];
    if (const std::string& id = labels[api::kLifecycleLabel].string(); !id.empty()) {
      const Json* owner = kube::controller_of(pod);
      const auto instance = owner == nullptr || (*owner)["kind"].string() != api::kInstances.kind ? by_uid.end() : by_uid.find((*owner)["uid"].string());
      if (instance == by_uid.end() || kube::name_of(*instance->second) != id) continue;
      const bool check = pod["metadata"]["annotations"].has(kCheckNote);
      add_runs(stream_of(out, check ? "DeepHealthCheckResults/" + id : fmt::format("LifecycleConfig/{}/{}", (*instance->second)["spec"]["instanceGroupName"].string(), id), created_at(pod)), pod, kScriptContainer);
    } else if (const std::string& role = labels[api::kSlurmRoleLabel].string(); labels[api::kSlurmClusterLabel].string() == slurm && !role.empty() && role != api::kScriptRole) {
      for (const Json& container : pod["spec"]["containers"].items()) add_runs(stream_of(out, fmt::format("Slurm/{}/{}", kube::name_of(pod), container["name"].string()), created_at(pod)), pod, container["name"].string());
    }
  }
  // Of what has no pod any more, what was told of it.
  std::map<std::string, std::vector<std::pair<Instant, std::string>>> kept;
  for (const Json& event : events) {
    const Json& spec = event["spec"];
    const std::string &kind = spec["kind"].string(), &id = spec["instanceId"].string(), &group = spec["instanceGroupName"].string();
    const bool check = kind.starts_with("DeepHealthCheck");
    const auto time = time_of(spec["time"]);
    if (id.empty() || !time || spec["clusterUid"].string() != kube::uid_of(cluster) || (!check && kind != "LifecycleScript")) continue;
    const std::string name = check ? "DeepHealthCheckResults/" + id : fmt::format("LifecycleConfig/{}/{}", group, id);
    if (const auto there = out.find(name); there != out.end() && !there->second.segments.empty() && *time + kLate >= there->second.created) continue;  // the log itself is there
    std::string text = spec["description"].string();
    if (const std::string& why = spec["metadata"]["failureMessage"].string(); !why.empty()) text += ":\n" + why;
    kept[name].emplace_back(*time, std::move(text));
  }
  for (auto& [name, lines] : kept) {
    std::sort(lines.begin(), lines.end());
    LogStream& stream = stream_of(out, name, lines.front().first);
    LogSegment segment{.pod = {}, .query = {}, .from = lines.front().first, .to = lines.back().first, .kept = {}};
    for (auto& [time, text] : lines) {
      segment.kept.emplace_back(time, "[fairlead] its pod is not there; what events tell:");
      for (const std::string& line : split(text, '\n')) segment.kept.emplace_back(time, as_utf8(line));
    }
    stream.segments.push_back(std::move(segment));
  }
  for (auto& [name, stream] : out) std::sort(stream.segments.begin(), stream.segments.end(), [](const LogSegment& a, const LogSegment& b) { return std::pair(a.from, !a.query.previous) < std::pair(b.from, !b.query.previous); });
  return out;
}

}  // namespace fairlead::hyperpod
