// SPDX-License-Identifier: Apache-2.0
// The continuous mode: each event (a job is submitted, ends, quotas change) is followed until nothing more fits, in the order that Kueue's cycle would take heads. Pure: no clock, no I/O,
// one writer; equal events give equal decisions. docs/design/025-continuous-engine.md.
// Cost: a decision O(depth x resources + log queues + log classes); a release wakes only classes that it may help.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "governance/plan/topology.h"
#include "governance/plan/victims.h"

namespace fairlead::governance {

// The uid of a job's object, whose canonical text sorts as these numbers do. Unique among the jobs of an engine.
struct Uid {
  std::uint64_t high = 0, low = 0;
  friend auto operator<=>(const Uid&, const Uid&) = default;
};
using ClassId = std::uint32_t;
using JobId = std::uint32_t;  // given out again after the job has left

struct EngineQueue {
  std::string name;                // a leaf of the quota trees
  bool strict_fifo = false;        // who does not fit holds up all behind it
  QueuePolicies policies;          // of pre-emption, and in which order flavors are tried (flavorFungibility)
  bool stopped = false;            // admits nothing; what runs goes on
  struct Group {
    std::vector<std::string> resources, flavors;  // flavors in order of preference
  };
  std::vector<Group> groups;
};

struct EngineSpec {
  bool fair = false;  // among queues by share; else by borrow level, priority, age
  // Fair pre-emption: who may be taken (LessThanOrEqualToFinalShare, LessThanInitialShare), and which is tried first.
  bool final_share = true, initial_share = true, initial_first = false;
  bool shields = false;  // who starts is nobody's victim until expose()
  std::vector<NodeSpec> nodes;
  std::vector<EngineQueue> queues;  // one for each leaf; a leaf without one is stopped
  struct Places {
    std::string flavor;
    TopologyShape shape;
  };
  std::vector<Places> places;  // of flavors whose pods get a place (024)
};

// Where the pods of a set are to be, on flavors with places.
struct PlaceAsk {
  TopologyAsk ask;
  bool implied = false;    // its queue has such flavors alone, and it asks for none
  std::int32_t count = 0;  // pods
  NamedAmounts per_pod;    // of the pod's own spec
  NodeNeeds needs;
  friend bool operator==(const PlaceAsk&, const PlaceAsk&) = default;
};
using PlacesOf = std::vector<std::optional<TopologyAssignment>>;  // one for each pod set; none: it has no place

// What equal jobs ask: a decision on one of them is a decision on all.
struct EnginePodSet {
  std::vector<std::pair<std::string, Amount>> total;  // of all its pods, by resource
  std::vector<std::string> barred;                    // flavors whose nodes it may not run on
  // Partial admission: of `count` pods, which ask `each` (in the order of `total`), `least` will do where all do not fit. Not given: all or none.
  std::int32_t count = 0, least = 0;
  std::vector<Amount> each;
  std::optional<PlaceAsk> place;  // pod sets of one group (PlaceAsk::ask) get the same flavors
  friend bool operator==(const EnginePodSet&, const EnginePodSet&) = default;
};
struct EngineClass {
  std::string queue;
  std::int64_t priority = 0;
  std::string line;  // of a queue whose lines (LocalQueues) go by what they used (set_line); empty: none
  std::vector<EnginePodSet> pod_sets;
  bool can_be_cut() const;  // some pod set has fewer pods that will do
  friend bool operator==(const EngineClass&, const EngineClass&) = default;
};
// The class with these counts in place of its own, and no less.
EngineClass with_counts(const EngineClass& what, const std::vector<std::int32_t>& counts);
EngineClass fewest(const EngineClass& what);  // that will do

// Why a class waits, with what it would take.
struct EngineWait {
  // Kept: it would fit, but what is free is kept for `by` (keep_for).
  // NoPlace: it has the quota, and `detail` tells why its pods have no place.
  enum class Rule : std::uint8_t { None, NoQueue, Stopped, NoQuota, NoFlavor, ExceedsMax, Short, Behind, Kept, NoPlace };
  Rule rule = Rule::None;
  std::uint32_t by = 0xffffffffU;  // a job, of Kept
  NodeId node = no_node;      // whose limit it is
  Column column = no_column;  // of the queue's tree
  Amount missing = 0;
  std::string resource;       // NoQuota, NoFlavor: the one that the queue does not cover
  std::string detail;         // NoPlace
  friend bool operator==(const EngineWait&, const EngineWait&) = default;
};

struct EngineDecision {
  // Admitted: it starts, with as many pods as class_of() says from then on. Promised: it has its quota, and starts when those that were pre-empted have stopped. Preempted: it is to be stopped, `leave` tells that it has.
  enum class Kind : std::uint8_t { Admitted, Waits, Promised, Preempted };
  Kind kind = Kind::Admitted;
  JobId job = 0xffffffffU;    // all but Waits
  ClassId kind_of_job = 0;    // Waits: all of its jobs do, for ContinuousEngine::wait(); said when that has changed
  JobId by = 0xffffffffU;     // Preempted: for whom
  VictimReason reason = VictimReason::InClusterQueue;
};

class ContinuousEngine {
 public:
  explicit ContinuousEngine(const EngineSpec& spec);
  ~ContinuousEngine();
  ContinuousEngine(ContinuousEngine&&) noexcept;
  ContinuousEngine& operator=(ContinuousEngine&&) noexcept;
  ContinuousEngine(const ContinuousEngine&);  // a fork: what is done to it the original does not know. O(everything).

  // Other quotas, queues or rules. What runs keeps its flavors; what they do not name any more counts nowhere until they do. O(everything).
  void configure(const EngineSpec& spec);

  ClassId define(const EngineClass& what);  // the same id for equal ones
  JobId submit(ClassId what, Uid uid, std::int64_t created);  // created: any clock that grows; ties by uid
  // It holds quota already, on these flavors (one for each resource of each pod set, in the order of the class): after a restart, in the order in which quota was reserved.
  enum class Adopted : std::uint8_t { Running, Stopping };  // Stopping: it was told to stop, and its quota counts in in_use() alone until it has left
  JobId adopt(ClassId what, Uid uid, std::int64_t created, const std::vector<std::vector<std::string>>& flavors, Adopted as = Adopted::Running, const PlacesOf& places = {});

  // For flavors with places: the nodes that there are, and what pods that have no place of ours use on one of them, in all. Who runs stays where it is; what it has on a node that is gone counts nowhere.
  void set_nodes(std::vector<TopologyNode> nodes);  // O(nodes + jobs with places)
  struct OtherUse {
    NamedAmounts requests;
    std::int32_t pods = 0;
    friend bool operator==(const OtherUse&, const OtherUse&) = default;
  };
  void set_others(const std::string& node, const OtherUse& use);
  // It is to be stopped for a reason that is not another job: others may have its quota, from `leave` on. Of running jobs; others are left as they are.
  void stop(JobId job);
  // It needs another amount now (some of its pods have ended), on the same flavors: `what` is a class of as many asks. Its place among those that are pre-empted stays. Of running and stopping jobs.
  void recount(JobId job, ClassId what);
  // When it last saved its work, or started: of equal priority those who did so last are victims first, for they lose least. By any clock; whoever nothing was said of did so after all others, and among those who started last goes first.
  static constexpr std::int64_t never_saved = INT64_MAX;
  void saved(JobId job, std::int64_t at);
  // What a line has used lately, told from outside. Within a queue the jobs of the line that has used least go first, whatever their priority, and where its queue's own jobs are pre-empted the line that has used most loses first.
  // Lines that nothing was told of have used nothing.
  struct LineUse {
    bool last = false;                       // behind all that are not
    std::map<std::string, double> used;      // by resource, in any unit that lines of one queue share; the largest counts
    std::map<std::string, double> per_unit;  // what a unit adds that is admitted before it is told anew
    friend bool operator==(const LineUse&, const LineUse&) = default;
  };
  void set_line(const std::string& line, const LineUse& use);  // O(its classes x log classes)
  void expose(JobId job);  // it may be pre-empted from now on (EngineSpec::shields)
  void expose_all();
  void shield(JobId job);  // as if it had just started
  bool shielded(JobId job) const;  // it runs, and is nobody's victim yet

  // A reservation for a waiting job, usually the first of its queue: from now on nobody behind it takes what it misses, so that it starts when enough of what runs has ended. Before it are those of its own queue with more priority or
  // age, those of other queues with more priority, other queues within their own quota, and those for whom something is kept already. Nobody is pre-empted for it. Ends when it gets its quota or leaves, by keep_no_more(), and for all jobs
  // with configure(). Of one with fewer pods that will do, for those. False: it does not wait, or asks more than could ever be had.
  bool keep_for(JobId job);
  void keep_no_more(JobId job);
  std::vector<JobId> kept() const;  // those for whom, first come first
  // Of each queue the first that waits for room (not one that could never have it); unseen: whether or not it was looked at since it was submitted. O(classes).
  std::vector<JobId> firsts(bool unseen = false);

  void leave(JobId job);      // it has ended, or was deleted; waiting ones, too
  void drain(std::vector<EngineDecision>& out);  // adds what follows from all since the last drain

  bool running(JobId job) const;   // admitted, and not pre-empted
  bool stopping(JobId job) const;  // told to stop, and has not left
  Uid uid(JobId job) const;
  ClassId class_of(JobId job) const;  // what it asks; once it is promised or admitted what it gets, which may be fewer pods
  const EngineClass& what(ClassId id) const;
  std::vector<std::vector<std::string>> flavors_of(JobId job) const;  // as adopt() takes them; empty: it waits
  // The node that has this host name is lost: the pods of the job that were there get another place, such that what it asks still holds, and others stay. Of running jobs. Why not; empty: they have.
  std::string replace(JobId job, const std::string& host);
  PlacesOf places_of(JobId job) const;   // empty: it has none
  bool misplaced(JobId job) const;       // it has a place that is gone
  const EngineWait& wait(ClassId what) const;  // of the fewest pods that will do. Rule::None: it does not wait, or was not looked at yet
  const Ledger& ledger() const;    // with what is promised, without what is being stopped
  const Ledger& in_use() const;    // without what is promised, with what is being stopped: never above quota unless quotas were cut
  // Whom a job of the class would pre-empt if it came up now; empty: nobody would be enough.
  std::vector<std::pair<JobId, VictimReason>> victims_of(ClassId what);
  std::vector<JobId> holders() const;  // running and stopping ones, in the order in which they got their quota. O(jobs log jobs).
  std::vector<JobId> in_line(std::string_view queue) const;  // promised ones, then those that wait, in the order in which they are looked at. O(jobs log jobs).
  std::unordered_map<std::string, std::vector<JobId>> lines() const;  // those of all queues, at the cost of one
  std::size_t waiting() const;
  std::size_t running() const;
  std::size_t bytes() const;  // of jobs, classes and queues, without the ledger

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fairlead::governance
