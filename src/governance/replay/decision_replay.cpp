// SPDX-License-Identifier: Apache-2.0
#include "governance/replay/decision_replay.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "governance/plan/decision_places.h"
#include "governance/plan/decision_record.h"

namespace fairlead::governance {

using kube::Json;

namespace {

class Replay {
 public:
  // A difference, in words; empty: none.
  Result<std::string> tell(const Json& line) {
    const std::string& event = line["e"].string();
    if (event == "config") return config(line);
    if (!configured_) return fail(Code::Invalid, "config comes first");
    if (event == "class") return define(line);
    if (event == "submit" || event == "adopt") return enter(line, event == "adopt");
    if (event == "drain") return drain(line);
    if (event == "nodes") {
      auto nodes = read_nodes(line["nodes"]);
      if (!nodes) return std::unexpected(std::move(nodes.error()));
      engine_.set_nodes(std::move(*nodes));
      return std::string();
    }
    if (event == "others") {
      auto use = read_other_use(line["use"]);
      if (!use) return std::unexpected(std::move(use.error()));
      engine_.set_others(line["node"].string(), *use);
      return std::string();
    }
    if (event == "line") {
      auto use = read_line_use(line["use"]);
      if (!use) return std::unexpected(std::move(use.error()));
      engine_.set_line(line["line"].string(), *use);
      return std::string();
    }
    auto job = job_of(line);
    if (!job) return std::unexpected(std::move(job.error()));
    if (event == "stop") {
      engine_.stop(*job);
    } else if (event == "expose") {
      engine_.expose(*job);
    } else if (event == "shield") {
      engine_.shield(*job);
    } else if (event == "keep") {
      (void)engine_.keep_for(*job);
    } else if (event == "keepNoMore") {
      engine_.keep_no_more(*job);
    } else if (event == "saved") {
      engine_.saved(*job, line["at"].integer());
    } else if (event == "replace") {
      (void)engine_.replace(*job, line["node"].string());
    } else if (event == "leave") {
      engine_.leave(*job);
      live_.erase(*job);
    } else if (event == "recount") {
      auto what = class_of(line);
      if (!what) return std::unexpected(std::move(what.error()));
      if (shape_of(engine_.what(*what)) != shape_of(engine_.what(engine_.class_of(*job)))) return fail(Code::Invalid, "recount: a class of as many asks is expected");
      engine_.recount(*job, *what);
    } else {
      return fail(Code::Invalid, fmt::format("e: \"{}\" is no event of this log", event.substr(0, 40)));
    }
    return std::string();
  }

 private:
  static std::vector<std::size_t> shape_of(const EngineClass& what) {
    std::vector<std::size_t> out;
    for (const EnginePodSet& pods : what.pod_sets) out.push_back(pods.total.size());
    return out;
  }
  Result<JobId> job_of(const Json& line) const {
    const std::int64_t job = line["job"].integer(-1);
    if (job < 0 || job > 0xffffffff || !live_.contains(static_cast<JobId>(job))) return fail(Code::Invalid, fmt::format("job: {} is not with the engine", job));
    return static_cast<JobId>(job);
  }
  Result<ClassId> class_of(const Json& line) const {
    const std::int64_t what = line["class"].integer(-1);
    if (what < 0 || what > 0xffffffff || !classes_.contains(static_cast<ClassId>(what))) return fail(Code::Invalid, fmt::format("class: {} was not defined", what));
    return static_cast<ClassId>(what);
  }

  Result<std::string> config(const Json& line) {
    auto spec = read_engine_spec(line["spec"]);
    if (!spec) return std::unexpected(std::move(spec.error()));
    // An engine that is told its first quotas decides as one that was made with them.
    engine_.configure(*spec);
    configured_ = true;
    return std::string();
  }
  Result<std::string> define(const Json& line) {
    auto what = read_engine_class(line["class"]);
    if (!what) return std::unexpected(std::move(what.error()));
    if (classes_.size() > 10'000'000) return fail(Code::Invalid, "class: too many of them");
    const ClassId id = engine_.define(*what);
    if (static_cast<std::int64_t>(id) != line["id"].integer(-1)) return fail(Code::Invalid, fmt::format("id: {} is expected", id));
    if (!classes_.insert(id).second) return fail(Code::Invalid, fmt::format("id: {} was defined before", id));
    return std::string();
  }
  Result<std::string> enter(const Json& line, bool adopted) {
    auto what = class_of(line);
    if (!what) return std::unexpected(std::move(what.error()));
    auto uid = read_uid(line["uid"]);
    if (!uid) return std::unexpected(std::move(uid.error()));
    JobId job = 0;
    if (adopted) {
      auto flavors = read_flavors_of(line["flavors"]);
      if (!flavors) return std::unexpected(std::move(flavors.error()));
      const std::string& as = line["as"].string();
      if (as != "Running" && as != "Stopping") return fail(Code::Invalid, "as: Running or Stopping is expected");
      job = engine_.adopt(*what, *uid, line["created"].integer(), *flavors, as == "Running" ? ContinuousEngine::Adopted::Running : ContinuousEngine::Adopted::Stopping, read_assignments(line["places"]));
    } else {
      job = engine_.submit(*what, *uid, line["created"].integer());
    }
    live_[job] = line["workload"].string();
    const std::int64_t recorded = line["job"].integer(-1);
    return recorded == static_cast<std::int64_t>(job) ? std::string() : fmt::format("job {} was recorded, it is {} now", recorded, job);
  }
  Result<std::string> drain(const Json& line) {
    if (!line["decided"].is_array()) return fail(Code::Invalid, "decided: a list is expected");
    std::vector<EngineDecision> decisions;
    engine_.drain(decisions);
    const Json now = decisions_json(engine_, decisions);
    const std::string recorded = kube::print_json(line["decided"]), decided = kube::print_json(now);
    if (recorded == decided) return std::string();
    // The first that differs, with the name of its workload.
    const auto &a = line["decided"].items(), &b = now.items();
    std::size_t at = 0;
    while (at < a.size() && at < b.size() && kube::print_json(a[at]) == kube::print_json(b[at])) ++at;
    const auto told = [&](const std::vector<Json>& list) {
      if (at >= list.size()) return std::string("nothing more");
      std::string out = kube::print_json(list[at]);
      if (list[at].items().size() > 1 && list[at].items()[0].string() != "Waits")
        if (const auto name = live_.find(static_cast<JobId>(list[at].items()[1].integer())); name != live_.end()) out += " of " + name->second;
      return out;
    };
    return fmt::format("decision {} was {}, it is {} now", at + 1, told(a), told(b));
  }

  ContinuousEngine engine_{EngineSpec{}};
  bool configured_ = false;
  std::set<ClassId> classes_;  // that were told
  std::unordered_map<JobId, std::string> live_;
};

constexpr std::string_view header_start = "{\"log\":\"fairlead decisions\"", event_start = "\n{\"e\":\"";

}  // namespace

bool is_decision_log(std::string_view text) { return text.starts_with(header_start) || text.starts_with(event_start.substr(1)) || text.find(event_start) != std::string_view::npos; }

std::vector<CaseOutcome> replay_decisions(std::string_view text) {
  std::vector<CaseOutcome> out;
  std::optional<Replay> replay;  // of the part that is read; none: not yet, or it cannot be
  std::string name;
  std::size_t number = 0, first = 1;
  const auto close = [&] {
    if (number < first) return;
    if (name.empty()) out.push_back({.id = {}, .kind = CaseOutcome::Kind::Skipped, .detail = fmt::format("it begins in the middle; a part can be replayed from its first line on, {{\"log\":\"{}\"...", kDecisionLog)});
    out.back().id = fmt::format("{} (lines {}-{})", name.empty() ? "?" : name, first, number);
  };
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) break;  // a crash cut it short
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const bool begins = line.starts_with(header_start);
    if (begins) close(), first = number + 1;
    ++number;
    // Before the first part; and what follows from another decision differs, too.
    if (!begins && (name.empty() || out.back().kind == CaseOutcome::Kind::Failed)) continue;
    if (begins) {
      replay.emplace();
      out.push_back({.id = {}, .kind = CaseOutcome::Kind::Passed, .detail = {}});
      name = "?";
    }
    const auto json = kube::parse_json(line);
    std::string problem = json ? "" : "it cannot be read: " + json.error().message;
    if (json && begins) {
      name = (*json)["at"].string() + ((*json)["by"].string().empty() ? "" : " by " + (*json)["by"].string());
      if (name.empty()) name = "?";
      if (const std::int64_t version = (*json)["version"].integer(); version != kDecisionLogVersion) problem = fmt::format("version {} of the log is not known here, {} is", version, kDecisionLogVersion);
    } else if (json) {
      auto difference = replay->tell(*json);
      problem = difference ? std::move(*difference) : std::move(difference.error().message);
    }
    if (problem.empty()) continue;
    out.back().kind = CaseOutcome::Kind::Failed;
    out.back().detail = fmt::format("line {}{}{}: {}", number, json && !begins && json->has("at") ? " of " : "", json && !begins ? (*json)["at"].string() : "", problem);
  }
  close();
  return out;
}

}  // namespace fairlead::governance
