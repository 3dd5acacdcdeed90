// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/view.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/json.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

Result<std::vector<std::string>> read_words(const Json& list, const char* what) {
  if (!list.is_null() && !list.is_array()) return fail(Code::Invalid, fmt::format("{} is not a list", what));
  std::vector<std::string> out;
  for (const Json& word : list.items()) {
    if (word.string().empty()) return fail(Code::Invalid, fmt::format("{} holds something that is no word", what));
    out.push_back(word.string());
  }
  return out;
}

Result<SlurmRoom> read_room(const Json& from, const char* what) {
  SlurmRoom out;
  for (const auto& [name, into] : {std::pair("cpus", &out.cpus), std::pair("memory", &out.memory), std::pair("gpus", &out.gpus)}) {
    *into = from[name].integer(0);
    if (*into < 0 || *into > 1'000'000'000'000) return fail(Code::Invalid, fmt::format("{}: {} {}", what, *into, name));
  }
  return out;
}

Result<SlurmNode> read_node(const Json& from) {
  SlurmNode node{.name = from["name"].string(), .reason = from["reason"].string(), .by = from["by"].string(), .since = from["since"].string(), .answers = from["slurmd"].boolean(), .pod = from["pod"].string(), .machine = from["machine"].string()};
  if (node.name.empty()) return fail(Code::Invalid, "a node without a name");
  auto state = read_words(from["state"], "state");
  if (!state) return std::unexpected(std::move(state.error()));
  const std::int64_t cpus = from["cpus"].integer(-1);
  if (state->empty() || cpus < 0 || cpus > 1'000'000) return fail(Code::Invalid, fmt::format("node {} without state or CPUs", node.name));
  for (const auto& [name, room] : {std::pair("total", &node.total), std::pair("given", &node.given)}) {
    auto read = read_room(from[name], name);
    if (!read) return pass(std::move(read.error()), "node " + node.name);
    *room = *read;
  }
  for (const auto& [name, list] : {std::pair("partitions", &node.partitions), std::pair("features", &node.features)}) {
    auto words = read_words(from[name], name);
    if (!words) return pass(std::move(words.error()), "node " + node.name);
    *list = std::move(*words);
  }
  node.state = std::move(*state);
  node.cpus = static_cast<int>(cpus);
  return node;
}

Result<SlurmJob> read_job(const Json& from) {
  SlurmJob job{.id = from["id"].string(), .user = from["user"].string(), .state = from["state"].string()};
  // The id becomes an argument of a command.
  if (job.id.empty() || job.id[0] < '0' || job.id[0] > '9' || job.state.empty()) return fail(Code::Invalid, "a job without id or state");
  for (const auto& [name, list] : {std::pair("nodes", &job.nodes), std::pair("requested", &job.requested)}) {
    auto words = read_words(from[name], name);
    if (!words) return pass(std::move(words.error()), "job " + job.id);
    *list = std::move(*words);
  }
  if (const std::string& end = from["end"].string(); !end.empty()) {
    auto time = parse_time(end);
    if (!time) return pass(std::move(time.error()), "end of job " + job.id);
    job.end = *time;
  }
  return job;
}

Result<SlurmQueued> read_queued(const Json& from) {
  SlurmQueued job{.id = from["id"].string(), .user = from["user"].string(), .reason = from["reason"].string(), .reservation = from["reservation"].string(), .features = from["features"].string(), .exclusive = from["exclusive"].boolean()};
  const std::int64_t nodes = from["nodes"].integer(-1);
  if (job.id.empty() || job.id[0] < '0' || job.id[0] > '9' || nodes < 1 || nodes > 1'000'000) return fail(Code::Invalid, "a job that waits without id or size");
  job.nodes = static_cast<int>(nodes);
  auto room = read_room(from["room"], "room");
  if (!room) return pass(std::move(room.error()), "job " + job.id);
  job.room = *room;
  for (const auto& [name, list] : {std::pair("partitions", &job.partitions), std::pair("requested", &job.requested), std::pair("excluded", &job.excluded)}) {
    auto words = read_words(from[name], name);
    if (!words) return pass(std::move(words.error()), "job " + job.id);
    *list = std::move(*words);
  }
  return job;
}

}  // namespace

bool SlurmNode::has(std::string_view flag) const { return std::find(state.begin(), state.end(), flag) != state.end(); }

bool SlurmNode::failing() const { return has("FAIL") || has("FAILING"); }
bool SlurmNode::drained() const { return has("DRAIN") || failing(); }

std::vector<const SlurmJob*> SlurmView::jobs_on(const std::string& node) const {
  std::vector<const SlurmJob*> out;
  for (const auto& job : jobs)
    if (std::find(job.nodes.begin(), job.nodes.end(), node) != job.nodes.end()) out.push_back(&job);
  return out;
}

bool is_empty(const SlurmView& view, const SlurmNode& node) {
  return !node.state.empty() && (node.state[0] == "IDLE" || node.state[0] == "DOWN") && !node.has("COMPLETING") && node.cpus == 0 && view.jobs_on(node.name).empty();
}

Result<SlurmView> read_slurm_view(std::string_view text) {
  auto json = kube::parse_json(text);
  if (!json) return std::unexpected(std::move(json.error()));
  if (!json->is_object() || !(*json)["answered"].boolean() || !(*json)["nodes"].is_array() || !(*json)["jobs"].is_array()) return fail(Code::Invalid, "not an answer of `fairlead-slurm nodes`");
  auto at = parse_time((*json)["at"].string());
  if (!at) return pass(std::move(at.error()), "time of the look");
  SlurmView view{.at = *at};
  if (const Json& volume = (*json)["stateVolume"]; volume["size"].integer() > 0 && volume["free"].integer(-1) >= 0) {
    view.state_size = static_cast<std::uint64_t>(volume["size"].integer());
    view.state_free = static_cast<std::uint64_t>(volume["free"].integer());
  }
  for (const Json& one : (*json)["nodes"].items()) {
    auto node = read_node(one);
    if (!node) return std::unexpected(std::move(node.error()));
    std::string name = node->name;
    view.nodes[std::move(name)] = std::move(*node);
  }
  for (const Json& one : (*json)["jobs"].items()) {
    auto job = read_job(one);
    if (!job) return std::unexpected(std::move(job.error()));
    view.jobs.push_back(std::move(*job));
  }
  view.has_queue = (*json)["queue"].is_array();
  for (const Json& one : (*json)["queue"].items()) {
    auto job = read_queued(one);
    if (!job) return std::unexpected(std::move(job.error()));
    view.queue.push_back(std::move(*job));
  }
  return view;
}

}  // namespace fairlead::slurm
