// SPDX-License-Identifier: Apache-2.0
// Kueue's objects as events of the engine, and what follows for each of them. A value with one writer: no clock (times come as arguments), no I/O. Objects are told as they are, in any order and as often as one likes; an older
// version of a workload than the last one told changes nothing. What has quota already is counted before anything is decided. docs/design/027-queue-objects.md.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/queue_crds.h"
#include "governance/plan/decision_record.h"
#include "governance/plan/engine.h"
#include "governance/plan/model.h"
#include "governance/plan/quota_schedule.h"
#include "governance/plan/reservation.h"
#include "governance/plan/workload_status.h"
#include "kube/at_rest.h"
#include "kube/object.h"

namespace fairlead::governance {

inline constexpr const char* kInUse = api::queue_in_use;
// On pods with a place, and their templates while they run: the name of their Workload, the gate that waits for the place, and what they ask for. Names are Kueue's.
inline constexpr const char *kWorkloadNote = "kueue.x-k8s.io/workload", *kTopologyGate = "kueue.x-k8s.io/topology";
inline constexpr const char *kRequiredNote = "kueue.x-k8s.io/podset-required-topology", *kPreferredNote = "kueue.x-k8s.io/podset-preferred-topology", *kUnconstrainedNote = "kueue.x-k8s.io/podset-unconstrained-topology",
                            *kSliceNote = "kueue.x-k8s.io/podset-slice-required-topology", *kSliceSizeNote = "kueue.x-k8s.io/podset-slice-size", *kSlicesNote = "kueue.x-k8s.io/podset-slice-required-topology-constraints",
                            *kGroupNote = "kueue.x-k8s.io/podset-group-name";
inline constexpr const char* kTopologyNotes[] = {kRequiredNote, kPreferredNote, kUnconstrainedNote, kSliceNote, kSlicesNote};

struct BooksOptions {
  bool fair = true;  // among queues that borrow by share; else in order of submission
};

// An Event about an object.
struct Note {
  bool warning = false;
  std::string reason, message;
};

class Books {
 public:
  explicit Books(BooksOptions options = {});

  void set_fair(bool fair);  // as in BooksOptions; counts from the next decision

  // As they are now; a null object: gone.
  void set_queue(const std::string& name, const kube::Json& object);
  void set_cohort(const std::string& name, const kube::Json& object);
  void set_flavor(const std::string& name, const kube::Json& object);
  void set_check(const std::string& name, const kube::Json& object);
  void set_topology(const std::string& name, const kube::Json& object);
  void set_space(const std::string& name, const kube::Json& object);
  void set_local_queue(const kube::ObjectKey& key, const kube::Json& object);
  void set_workload(const kube::ObjectKey& key, const kube::Json& object);

  // Some flavor names a Topology: nodes and pods are to be told, all that there are.
  bool wants_places() const;
  void set_node(const std::string& name, const kube::Json& object);
  void set_pod(const kube::ObjectKey& key, const kube::Json& object);  // those with a place of ours are passed over
  static bool has_own_place(const kube::Json& pod);

  // It is `now`: quotas with a schedule are those of the window in force from the next decision on, and what is told from then on is read so. O(1) until the next change is due.
  void set_time(Instant now);
  // When the quotas of a ClusterQueue or a Cohort change by their schedule; none: never. As of set_time().
  std::optional<Instant> queue_changes_at(const std::string& name) const;
  std::optional<Instant> cohort_changes_at(const std::string& name) const;
  std::string cohort_window(const std::string& name) const;  // of its schedule, in force; empty: none
  std::optional<Instant> changes_at() const { return changes_at_; }  // the first of all
  // The quotas ahead: from when, and all that the engine is told then. At most `most`, none after `until`.
  std::vector<std::pair<Instant, EngineSpec>> quotas_ahead(Instant until, std::size_t most) const;

  // All that follows from what was told since. `begin`: it is the first decision, and that is the time: reservations that are due begin before anybody passes.
  void decide(std::optional<Instant> begin = std::nullopt);

  // What follows from time alone. tend(): reservations begin and end as of `now`, and who has run for long enough may be pre-empted; true: something may follow from it (decide()). O(classes + jobs that started lately), and meant to be
  // asked once a second.
  void set_time_rules(const TimeRules& rules);
  bool needs_tending() const { return times_.reservation || times_.min_run || times_.least_lost_work || times_.past || !kept_for_.empty() || has_sick_nodes(); }
  bool has_sick_nodes() const {  // whose loss is not dealt with yet
    return places_in_effect_ && std::any_of(sick_.begin(), sick_.end(), [](const auto& one) { return !one.second.done; });
  }
  bool tend(Instant now);

  // The decision log (decision_record.h). From the first record() on, which is called before anything is told or is followed by fill_anew(), lines are kept until they are taken; those that follow are of that time.
  void record(Instant now);
  void stop_recording();
  std::string take_record();
  // The engine is filled anew from what holds quota and what waits, as after a restart, so that a record can begin here. What another job was promised is decided again.
  void fill_anew();

  // What the workload's status is to be; none: as it is. The caller writes it on exactly the version in `object`, and tells what came of it: by set_workload with what the API gave back, or by refused().
  struct Write {
    kube::Json object;
    std::vector<Note> notes;
    bool admits = false;
    bool words_only = false;  // it waits for the same reason, other numbers: no hurry
  };
  std::optional<Write> write_of(const kube::ObjectKey& workload, Instant now);
  // The API did not take it and never will as it is: the decision is taken back, others may have the quota, until again(). False: there was nothing to take back.
  bool refused(const kube::ObjectKey& workload, const std::string& why);
  void again(const kube::ObjectKey& workload);

  // Who is to be looked at because of what was decided: by kind. Each once.
  struct Changed {
    std::set<kube::ObjectKey> workloads, queues, local_queues, cohorts;
  };
  Changed take_changed();

  // The object with the status as it is to be; none: there is nothing to write.
  std::optional<kube::Json> queue_status(const std::string& name, Instant now) const;
  // The object with its finalizer as it is to be: there while workloads have its quota, gone with a deletion when none has; none: as it is.
  std::optional<kube::Json> queue_in_use(const std::string& name) const;
  std::optional<kube::Json> local_queue_status(const kube::ObjectKey& key, Instant now) const;
  std::optional<kube::Json> cohort_status(const std::string& name) const;

  const Ledger& in_use() const { return engine_.in_use(); }
  // Where weights follow what was used lately (TimeRules::past): that of a ClusterQueue or a Cohort; none: it is as written.
  std::optional<PastWeight> past_weight(const std::string& name, bool leaf) const;

  // For views and explanations (views.h, explain.h), which work on copies: a fork is a copy, and knows nothing of the original from then on.
  enum class Place { Out, Waiting, Promised, Running, Stopping };
  struct Standing {
    Place place = Place::Out;
    const WorkloadSpec* spec = nullptr;
    const EngineClass* what = nullptr;  // what it asks or holds; of Place::Out: what it asked last
    std::string queue;                  // ClusterQueue; empty: none is known
    JobId job = 0;                      // all but Out
    ClassId class_id = 0;               // all but Out
    std::string reason, message;        // of Out, Waiting, Promised, Stopping
    std::optional<VictimReason> preempted;  // of Stopping: for another
    kube::ObjectKey preempted_by;           // ... which one; no name: of before these books
    bool shielded = false;                  // of Running: it may not be pre-empted yet ...
    std::optional<Instant> safe_until;      // ... until then; none: it is not known since when it runs
    kube::Json object;
  };
  std::optional<Standing> standing(const kube::ObjectKey& workload) const;
  std::optional<Place> place(const kube::ObjectKey& workload) const;  // that of standing(), without the rest
  // What it asks when it stands in line anew; none: it may not.
  std::optional<EngineClass> asks_of(const kube::ObjectKey& workload) const;
  std::vector<kube::ObjectKey> workloads() const;
  struct QueueView {
    const QueueSpec* spec = nullptr;
    const kube::Json* object = nullptr;
    bool active = false;
    std::string reason, message;  // of condition Active
    std::string window;           // of its schedule, in force; empty: none
    std::int64_t pending = 0, reserving = 0, admitted = 0;
  };
  std::optional<QueueView> queue_view(const std::string& name) const;
  std::vector<std::string> queues() const;
  double cohort_weight(const std::string& name) const;      // as written; 1 of one that is only named
  const kube::Json* cohort(const std::string& name) const;  // the object; none: no such object
  const kube::Json* local_queue(const kube::ObjectKey& key) const;
  const kube::ObjectKey* workload_of(JobId job) const;  // of one that is with the engine
  const ContinuousEngine& engine() const { return engine_; }
  // Waits for what? Empty: it does not. For tests and explanation.
  std::string waits_for(const kube::ObjectKey& workload) const;

 private:
  using Sums = std::map<FlavorResource, Amount>;
  struct Tally {  // of a queue
    std::int64_t pending = 0, reserving = 0, admitted = 0;
    Sums reservation, usage;
  };
  struct Item {
    kube::AtRest object;
    WorkloadSpec spec;
    std::string version;
    bool deleting = false;
    std::string invalid;        // what of it cannot be read
    Place place = Place::Out;
    JobId job = 0;
    EngineClass asks;           // while it is with the engine and asked for quota there: what for
    EngineClass what;           // while it is with the engine: what it asks, or got (fewer pods, perhaps)
    ClassId class_id = 0;
    bool seen_held = false;     // Running, Stopping: an object with the reservation was seen since
    bool writing = false;       // its admission was handed out, and nobody said what came of it
    std::string refused;        // why the API did not take its admission
    std::string out_reason, out_message;      // Out: why
    std::string evict_reason, evict_message;  // Stopping: why
    std::optional<VictimReason> preempted;
    kube::ObjectKey preempted_by;
    int waits_for_victims = 0;  // Promised
    std::vector<std::string> moved_from;  // Running: nodes that are lost, whose pods have another place; until that is written
    bool waits_for_checks = false;  // Running: it was exposed because it is not admitted yet
    std::optional<Instant> saved;  // Running: when it last saved its work, as the engine was told
    bool kept = false;          // Waiting: what is given back is kept for it
    Instant kept_since{}, not_kept_before{};
    // What is counted of it, to be taken off again.
    std::string queue;          // ClusterQueue
    kube::ObjectKey local;
    bool pending = false, reserving = false, admitted = false;
    Sums amounts;
  };
  struct Scheduled {
    std::vector<ResourceGroup> own;  // as the object's spec says them
    QuotaSchedule windows;           // with what is wrong they are none
    std::string wrong, window;       // window: the name of the one in force; empty: none
    std::optional<Instant> until;    // when that changes; none: never
  };
  struct QueueEntry {
    kube::Json object;
    QueueSpec spec;        // its groups: those of the window in force
    Scheduled schedule;
    bool readable = false;
    bool active = false, drains = false;  // drains: what it runs is to stop
    std::string why;                      // not readable
    std::string reason, message;          // condition Active
  };
  struct LocalEntry {
    kube::Json object;
    LocalQueueSpec spec;
    bool readable = false, drains = false;
    std::string why;  // not readable
  };
  struct CohortEntry {
    kube::Json object;
    CohortSpec spec;      // as of a QueueEntry
    Scheduled schedule;
    std::string why;  // not readable
  };
  struct FlavorEntry {
    kube::Json object;
    FlavorSpec spec;
    std::string why;  // not readable
  };

  struct NodeEntry {
    TopologyNode node;
    Instant not_ready_since{};
  };
  struct OtherPod {
    std::string node;  // empty: none
    NamedAmounts requests;
    friend bool operator==(const OtherPod&, const OtherPod&) = default;
  };
  struct Sick {  // a host
    Instant since{};  // not ready; none: it is gone
    bool done = false;
  };
  // books_places.cpp
  void tell_places();
  void tell_places_again();
  std::vector<TopologyNode> node_list() const;
  std::vector<EngineSpec::Places> place_specs() const;
  bool places_all(const QueueEntry& queue) const;  // each of its flavors has a topology
  std::optional<PlaceAsk> place_ask(const PodSetSpec& pods, std::int32_t count, const QueueEntry& queue) const;
  std::string place_obstacle(const QueueEntry& queue, const PodSetSpec& pods, const FlavorEntry& flavor, const ResourceGroup& group) const;
  PlacesOf places_held(const Item& item) const;
  void look_for_lost_nodes(const Item& item);
  bool replace_lost(Instant now);

  static void read_schedule(Scheduled& schedule, const kube::Json& object);
  bool follow(Scheduled& schedule, std::vector<ResourceGroup>& groups) const;
  void scheduled(const Scheduled& schedule);
  static std::string forbidden_in(const QueueEntry& queue);
  static std::string forbidden_in(const Scheduled& schedule, const std::string& cohort, bool of_cohort);

  EngineSpec quotas();  // as they are; statuses of queues follow from it
  void configure();
  ClassId define(const EngineClass& what);
  void judge(QueueEntry& queue) const;
  std::string cycle_of(const std::string& cohort) const;
  EngineClass class_of(const Item& item, const QueueEntry& queue) const;
  EngineClass class_of_held(const Item& item) const;
  std::vector<std::vector<std::string>> flavors_held(const Item& item) const;
  Admission admission_for(const Item& item) const;
  const QueueEntry* queue_of(const Item& item) const;
  // Why it may not even wait: reason, message; empty: it may.
  std::pair<std::string, std::string> obstacle_of(const Item& item) const;
  std::pair<std::string, std::string> wait_of(const Item& item) const;
  std::pair<std::string, std::string> drain_of(const Item& item) const;
  std::string barred_why(const QueueEntry& queue, const PodSetSpec& pods, const ResourceGroup& group, const std::string& flavor) const;
  std::string path_of(const std::string& queue) const;
  void settle(const kube::ObjectKey& key, Item& item);
  void enter(const kube::ObjectKey& key, Item& item, JobId job, Place place);
  void leave(Item& item);
  void count(const kube::ObjectKey& key, Item& item);
  void follow_past(const Item& item, int sign, Instant since);
  void touch(const kube::ObjectKey& key) { changed_.workloads.insert(key); }
  Item* item_of(JobId job);
  bool keep_for(const Item& item);
  void keep_again();  // in an engine that has forgotten
  bool keep_due(Instant now, bool unseen);
  bool expose_due(Instant now);
  void follow_saved(Instant now);
  void tell_saved(const Item& item, std::int64_t at);

  bool weigh(Instant now, bool anyway = false);  // true: quotas are to be told again
  std::string line_of(const kube::ObjectKey& local, const QueueEntry* queue) const;  // the line of the engine; empty: its queue goes by priority and age
  void tell_lines();

  BooksOptions options_;
  ContinuousEngine engine_;
  std::optional<DecisionRecorder> recorder_;
  std::map<std::string, QueueEntry> queues_;
  std::map<std::string, CohortEntry> cohorts_;
  std::map<std::string, FlavorEntry> flavors_;
  std::map<std::string, bool> checks_;        // AdmissionChecks that are there: active?
  std::map<std::string, kube::Json> spaces_;  // labels
  std::map<std::string, std::vector<std::string>> topologies_;  // levels
  std::map<std::string, NodeEntry> nodes_;
  std::map<kube::ObjectKey, OtherPod> other_pods_;                     // that use a node and have no place of ours
  std::map<std::string, ContinuousEngine::OtherUse> node_use_;  // by node, of those
  std::set<std::string> used_anew_;
  std::map<std::string, Sick> sick_;                            // by host
  bool nodes_are_stale_ = true, places_in_effect_ = false;
  std::map<kube::ObjectKey, LocalEntry> local_queues_;
  std::map<std::string, Tally> queue_tallies_;
  std::map<kube::ObjectKey, Tally> local_tallies_;
  std::map<kube::ObjectKey, Item> items_;
  std::vector<kube::ObjectKey> by_job_;
  std::map<ClassId, std::set<kube::ObjectKey>> waiting_;  // by class
  TimeRules times_;
  PastUse past_;
  std::map<std::pair<std::string, bool>, PastWeight> weights_;  // by name and whether it is a leaf: as the engine was told, with what is known of the past now
  Instant weighed_at_{};
  std::map<std::string, ContinuousEngine::LineUse> lines_;  // as the engine was told
  bool lines_are_stale_ = false;
  std::set<kube::ObjectKey> fresh_;  // that run and may not be pre-empted yet
  std::vector<kube::ObjectKey> kept_for_;  // first come first; some may have gone since
  std::set<kube::ObjectKey> unsettled_;
  Instant told_now_{};
  std::optional<Instant> changes_at_;  // when the first of all schedules changes
  bool stale_ = false;      // quotas have changed since the engine was told
  Changed changed_;
};

}  // namespace fairlead::governance
