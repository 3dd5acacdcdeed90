// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/check_view.h"

#include <fmt/format.h>

#include "kube/json.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

Result<std::vector<std::string>> words_of(const Json& list) {
  if (!list.is_array()) return fail(Code::Invalid, "a list is missing");
  std::vector<std::string> out;
  for (const Json& word : list.items()) {
    if (word.string().empty()) return fail(Code::Invalid, "a list holds something that is no word");
    out.push_back(word.string());
  }
  return out;
}

bool number(const std::string& text) { return !text.empty() && text.size() <= 10 && text.find_first_not_of("0123456789") == text.npos; }

Result<CheckJob> read_job(const Json& from) {
  CheckJob job{.id = from["id"].string(), .run = from["run"].string(), .state = from["state"].string()};
  // The id becomes an argument of a command.
  if (!number(job.id) || !number(job.run) || job.state.empty()) return fail(Code::Invalid, "a job without id, run or state");
  for (const auto& [name, list] : {std::pair("requested", &job.requested), std::pair("nodes", &job.nodes)}) {
    auto words = words_of(from[name]);
    if (!words) return pass(std::move(words.error()), "job " + job.id);
    *list = std::move(*words);
  }
  const std::int64_t exit = from["exit"].integer(-1), signal = from["signal"].integer(-1);
  if (exit < 0 || exit > 255 || signal < 0 || signal > 127) return fail(Code::Invalid, "job " + job.id + " without an exit status");
  job.exit_code = static_cast<int>(exit);
  job.signal = static_cast<int>(signal);
  return job;
}

}  // namespace

Result<CheckView> read_check_view(std::string_view text) {
  auto json = kube::parse_json(text);
  if (!json) return std::unexpected(std::move(json.error()));
  if (!json->is_object() || !(*json)["answered"].boolean() || !(*json)["nodes"].is_array() || !(*json)["jobs"].is_array()) return fail(Code::Invalid, "not an answer of `fairlead-slurm check-look`");
  CheckView view;
  for (const Json& one : (*json)["nodes"].items()) {
    SlurmNode node{.name = one["name"].string(), .reason = one["reason"].string()};
    auto state = words_of(one["state"]);
    if (!state) return std::unexpected(std::move(state.error()));
    if (node.name.empty() || state->empty()) return fail(Code::Invalid, "a node without name or state");
    node.state = std::move(*state);
    std::string name = node.name;
    view.nodes[std::move(name)] = std::move(node);
  }
  for (const Json& one : (*json)["jobs"].items()) {
    auto job = read_job(one);
    if (!job) return std::unexpected(std::move(job.error()));
    view.jobs.push_back(std::move(*job));
  }
  // Companions of older versions say nothing of these.
  if (json->has("trials")) {
    view.knows_trials = true;
    auto empty = words_of((*json)["empty"]);
    if (!empty) return std::unexpected(std::move(empty.error()));
    view.empty = {empty->begin(), empty->end()};
    if (!(*json)["trials"].is_array()) return fail(Code::Invalid, "trials are no list");
    for (const Json& one : (*json)["trials"].items()) {
      if (one["node"].string().empty() || one["reservation"].string().empty()) return fail(Code::Invalid, "a trial without node or reservation");
      view.trials[one["node"].string()] = one["reservation"].string();
    }
  }
  return view;
}

}  // namespace fairlead::slurm
