// SPDX-License-Identifier: Apache-2.0
// The decision log: what the engine was told and what it decided, one JSON line each, so that the same lines told again give the same decisions byte for byte (replay/decision_replay.h). Names, amounts, flavors and uids
// alone: nothing of a pod beyond what is decided on. Pure: lines are made here, and written by somebody else. docs/design/032-foresee.md.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "governance/plan/engine.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::governance {

inline constexpr std::string_view kDecisionLog = "fairlead decisions";  // of the first line: {"log": ..., "version": 1, "at": TIME, "by": WHO}; with it an empty engine begins
inline constexpr std::int64_t kDecisionLogVersion = 1;
std::string decision_log_header(Instant at, std::string_view by = "");  // by: who writes it; empty: nobody says

// {"e":"config","revision":1,"spec":{...}}
// {"e":"class","id":0,"class":{...}}
// {"e":"submit","job":0,"class":0,"uid":"...","created":N,"workload":"space/name"}
// {"e":"adopt",..., "flavors":[["f0"]],"as":"Running"}
// {"e":"stop"|"leave"|"keep"|"keepNoMore"|"expose"|"shield","job":0}   {"e":"recount","job":0,"class":1}
// {"e":"saved","job":0,"at":N}   {"e":"line","line":"space/name","use":{"used":{...},"perUnit":{...}}}
// {"e":"drain","at":TIME,"decided":[["Admitted",0,[["f0"]]],["Admitted",2,[["f0"]],[3]],["Promised",1,[["f0"]]],["Preempted",0,1,"InClusterQueue"],["Waits",1,{...}]]}
// The last list: how many pods of each pod set, of a class that takes fewer. Behind it, of a job with places: {"places":["host1:2 host2:1"]}, one for each pod set.
// {"e":"nodes","nodes":[...]}   {"e":"others","node":"n1","use":{"requests":{...},"pods":2}}: for flavors with places.   {"e":"replace","job":0,"node":"host1"}: the node is lost
class DecisionRecorder {
 public:
  void config(const EngineSpec& spec);
  void define(ClassId id, const EngineClass& what);  // a line for the first time of each
  void submit(JobId job, ClassId what, Uid uid, std::int64_t created, const kube::ObjectKey& workload);
  void adopt(JobId job, ClassId what, Uid uid, std::int64_t created, const kube::ObjectKey& workload, const std::vector<std::vector<std::string>>& flavors, ContinuousEngine::Adopted as, const PlacesOf& places = {});
  void nodes(const std::vector<TopologyNode>& all);
  void others(const std::string& node, const ContinuousEngine::OtherUse& use);
  void stop(JobId job);
  void recount(JobId job, ClassId what);
  void replace(JobId job, const std::string& host);  // a lost node
  void set_line(const std::string& name, const ContinuousEngine::LineUse& use);
  void saved(JobId job, std::int64_t at);
  void expose(JobId job);
  void shield(JobId job);
  void keep(JobId job);  // what is given back
  void keep_no_more(JobId job);
  void leave(JobId job);
  // Behind a drain of the engine. No line where nothing was told since the last one and nothing was decided.
  void decided(const ContinuousEngine& engine, const std::vector<EngineDecision>& decisions);

  void set_time(Instant now) { now_ = now; }  // that drains are said to have
  void begin_anew();                          // the next lines are of an empty engine
  std::string take();                         // whole lines since the last take()

 private:
  void line(const kube::Json& value);

  std::string lines_;
  Instant now_{};
  std::int64_t revision_ = 0;
  std::set<ClassId> classes_;  // that have their line: not those that the engine makes of them for fewer pods
  bool told_ = false;    // since the last drain
};

// What stands in the log of a drain.
kube::Json decisions_json(const ContinuousEngine& engine, const std::vector<EngineDecision>& decisions);

kube::Json to_json(const EngineSpec& spec);
kube::Json to_json(const EngineClass& what);
kube::Json to_json(const ContinuousEngine::LineUse& use);
std::string text(Uid uid);  // 32 hexadecimal digits
// Of a log that somebody may have edited. Invalid: the field and what is expected.
Result<EngineSpec> read_engine_spec(const kube::Json& json);
Result<EngineClass> read_engine_class(const kube::Json& json);
Result<ContinuousEngine::LineUse> read_line_use(const kube::Json& json);
Result<Uid> read_uid(const kube::Json& json);
Result<std::vector<std::vector<std::string>>> read_flavors_of(const kube::Json& json);

}  // namespace fairlead::governance
