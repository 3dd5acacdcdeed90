// SPDX-License-Identifier: Apache-2.0
// Inside of engine.h.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "governance/plan/engine.h"
#include "governance/plan/engine_places.h"
#include "governance/plan/indexed_heap.h"

namespace fairlead::governance {

inline constexpr std::uint32_t nothing = 0xffffffffU;

struct ContinuousEngine::State {
  // ---- jobs
  static constexpr std::int64_t latest = ContinuousEngine::never_saved;
  enum class Stage : std::uint8_t { Free, Waiting, Promised, Running, Stopping };
  struct Job {
    Uid uid;
    std::int64_t created = 0;
    std::int64_t since = 0;        // counts reservations: who came later is larger
    std::int64_t saved = latest;   // when it last saved its work, or started
    ClassId what = 0;
    std::uint32_t generation = 0;  // of the slot: what remembers an earlier job in it is stale
    std::uint16_t choice = 0;      // of its class, while it runs
    Stage stage = Stage::Free;
    bool shielded = false;         // while it runs: nobody's victim
  };
  struct Entry {  // of a waiting job
    std::int64_t created = 0;
    Uid uid;
    JobId job = 0;
    std::uint32_t generation = 0;
  };
  static bool later(const Entry& a, const Entry& b) { return a.created != b.created ? a.created > b.created : a.uid > b.uid; }

  struct Held {  // a running job, in the order in which its queue loses them
    std::int64_t priority = 0, saved = latest, since = 0;
    Uid uid;
    JobId job = 0;
    friend bool operator<(const Held& a, const Held& b) {
      if (a.priority != b.priority) return a.priority < b.priority;
      if (a.saved != b.saved) return a.saved > b.saved;  // least is lost
      return a.since != b.since ? a.since > b.since : a.uid < b.uid;
    }
  };

  // ---- classes
  struct Ask {
    std::uint32_t pod_set = 0, resource = 0;
    Amount amount = 0;
  };
  struct Option {  // a flavor for a part
    std::uint32_t flavor = 0, first_use = 0, uses = 0;
  };
  struct Part {  // what takes one flavor: the resources of one group of the queue, for one pod set
    std::uint32_t first_ask = 0, asks = 0;  // of Class::order
    std::uint32_t first_option = 0, options = 0;
    std::uint32_t same_as = nothing;        // an earlier part, of another pod set of its group: the same flavor
  };
  struct Choice {
    std::vector<std::uint32_t> flavors;  // of each ask
    std::vector<Use> uses;               // in the tree as it is now, each column once
  };
  struct Class {
    EngineClass spec;
    std::uint32_t queue = nothing, line = nothing;
    std::vector<Ask> asks;
    std::vector<std::uint32_t> order;  // asks, by part
    std::vector<Part> parts;
    std::vector<Option> options;
    std::vector<Use> uses;             // of options
    std::vector<Choice> choices;       // that were ever taken
    std::vector<Entry> waiting;        // a heap by age; entries of jobs that have left stay until they come up
    std::uint32_t live = 0;
    std::uint32_t generation = 0;      // of its waiting for room
    bool parked = false;
    bool retold = false;               // it is in `restless`
    bool simple = false;               // there is one way to give it quota, a sum of numbers
    Column lacks = no_column;          // parked for want of one thing alone, which is asked for again before it wakes; else no_column
    Amount wants = 0;                  // of it
    EngineWait wait, told;
    EngineWait never;                  // its rule is None if quotas allow it in principle
    std::map<std::int64_t, ClassId> cuts;  // partial admission: with fewer pods, by how many in all
    std::vector<PlaceSet> places;          // pod sets that get a place
  };
  struct Claim {  // what is kept for a waiting job
    JobId job = 0;
    std::uint32_t queue = nothing;
    std::int64_t priority = 0;
    Entry entry;
    std::vector<Use> uses;
    std::shared_ptr<const EnginePlacement> place;
  };
  struct Found {  // a way for a job of a class to get its quota
    ClassId shape = 0;  // the class, or it with fewer pods
    std::uint16_t choice = 0;
    int level = 0;
    bool preempts = false;
    std::shared_ptr<const EnginePlacement> place;
    friend bool operator==(const Found& a, const Found& b) {
      return a.shape == b.shape && a.choice == b.choice && a.level == b.level && a.preempts == b.preempts && (a.place == b.place || (a.place && b.place && *a.place == *b.place));
    }
  };

  // ---- queues
  struct Line {
    LineUse use;
    double most = 0;
    std::vector<ClassId> classes;
  };
  struct Queue {
    NodeId leaf = no_node;
    bool strict = false, stopped = true;
    QueuePolicies policies;
    std::set<Held> held;
    std::vector<EngineQueue::Group> groups;
    std::vector<std::uint32_t> lines;  // of its classes
    IndexedHeap classes;              // that have waiting jobs and are not parked; in a StrictFIFO queue parked ones, too, which hold up the rest
    bool dirty = false;
    // the job that it nominates
    bool nominates = false;
    ClassId what = 0;
    Found found;
    std::uint64_t version = 0;        // of its tree, when this was found
    Entry head;
    std::int64_t priority = 0;
    std::uint64_t looked_at = 0;      // by wake_first()
  };

  struct Waiter {
    Amount threshold = 0;
    ClassId what = 0;
    std::uint32_t generation = 0;
  };
  struct NeedsMore {
    bool operator()(const Waiter& a, const Waiter& b) const { return a.threshold != b.threshold ? a.threshold > b.threshold : a.what > b.what; }
  };
  static constexpr NeedsMore needs_more{};
  struct NeedsLessUse {
    bool operator()(const Waiter& a, const Waiter& b) const { return a.threshold != b.threshold ? a.threshold < b.threshold : a.what > b.what; }
  };
  static constexpr NeedsLessUse needs_less_use{};
  struct Cell {  // of a node and column
    Amount released = 0;
    std::vector<Waiter> waiters;  // a heap: who misses least first; thresholds are counts of what was released
    std::vector<Waiter> exact;    // a heap: thresholds are uses of the node, at which they fit there
    bool open = false;            // in `open_cells`: the use may have fallen to some of these
  };
  struct CellAt {
    NodeId node = no_node;
    Column column = no_column;
  };

  // Fair order: what a child brings to its cohort.
  struct Bid {
    bool borrows = false;
    Share share;
    std::uint32_t queue = nothing;
  };

  explicit State(const EngineSpec& spec) { configure(spec); }
  void configure(const EngineSpec& spec);
  void compile(ClassId c);

  // engine.cpp
  ClassId define(const EngineClass& what);
  JobId submit(ClassId what, Uid uid, std::int64_t created, Stage stage);
  void leave(JobId job);
  void stop(JobId job);
  void recount(JobId job, ClassId what);
  void saved(JobId job, std::int64_t at);
  std::uint32_t name_id(std::string_view name);
  std::uint16_t choice_of(Class& k, const std::vector<std::uint32_t>& flavors);
  void count(Class& k, Choice& choice);
  void give_back(const Class& k, const Choice& choice, const EnginePlacement* place);
  void mark(std::uint32_t queue);
  void mark_tree(std::uint32_t tree);
  void wake(ClassId c);
  void freed(NodeId leaf, const std::vector<Use>& uses);  // in `ledger`: wakes
  Held held_of(JobId job) const;
  NodeId leaf_of(const Class& k) const { return k.queue == nothing ? no_node : queues[k.queue].leaf; }
  std::vector<JobId> line(const std::string_view* queue) const;

  // engine_drain.cpp
  void options_of(const Class& k, const Part& part);
  bool place(const Class& k, std::size_t at, int& level);
  // engine_peace.cpp: who was pre-empted for whom, so that nobody takes back from another, by whatever detour, what that one took from it.
  void lost(Uid victim, Uid to);
  void gone(Uid uid);
  void stronger_than(Uid uid);  // `untouchable`: who took something from it, or from one who did
  bool fits_in_use(const Queue& queue, const std::vector<Use>& uses, const EnginePlacement* place);
  void keep_promises(std::vector<EngineDecision>& out);
  bool look(ClassId c, std::uint16_t& choice, int& level);  // false: it does not fit; `short_of` and k.wait tell why
  // engine_partial.cpp
  std::optional<Found> find(ClassId c);  // for its first waiting job: with room, else with `victims`, else with fewer pods; none: `short_of` and k.wait tell why. May add classes.
  std::optional<Found> find_any(ClassId c);                                // the same, of what is not kept for others
  std::optional<Found> find_shape(ClassId shape, const Entry* head);
  std::optional<Found> find_as_queue_says(ClassId shape, const Entry* head);
  ClassId cut(ClassId c, const std::vector<std::int32_t>& counts);
  void park(ClassId c, std::vector<EngineDecision>& out);
  bool wait_at(NodeId node, Column column, Amount missing, ClassId c);  // false: it has to look again instead
  bool goes_on_waiting(ClassId c);                                      // what was given back is not enough, or not for it
  void tell_restless(std::vector<EngineDecision>& out);
  bool lacks_as_before(ClassId c);  // so nobody need look
  void nominate(std::uint32_t q, std::vector<EngineDecision>& out);
  void refresh(std::uint32_t q, std::vector<EngineDecision>& out);
  void admit(std::uint32_t q, std::vector<EngineDecision>& out);
  void drain(std::vector<EngineDecision>& out);
  void drain(std::uint32_t tree, std::vector<EngineDecision>& out);
  bool drop_stale(Class& k);  // true: a live one is at the front

  // engine_open.cpp
  struct Fit {
    bool fits = true;
    int level = 0;     // how far it borrows, if it does
    Use lacks;         // the first thing that is short, and how much of it must be available
    Ledger::Tight at;  // what there is of that
  };
  Fit fit(const Class& k) const;  // of a simple one
  bool may_look(std::uint32_t rival) const;
  bool alone(std::uint32_t q) const;
  std::uint32_t wake_first(std::uint32_t tree, std::uint32_t rival);
  bool wake_rest(std::uint32_t tree);
  bool look_into(const CellAt& at);
  bool fits_or_moves(ClassId c, int& level);
  std::uint32_t first_of(const std::vector<std::uint32_t>& bidding);
  Bid bid_of(std::uint32_t q, NodeId node);

  // engine_claims.cpp
  const Ledger& seen() const { return claims.empty() ? ledger : claimed; }  // where room is looked for
  void hold(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place);
  void let(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place);
  void occupy(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place);  // `in_use`
  void vacate(NodeId leaf, const std::vector<Use>& uses, const EnginePlacement* place);
  bool goes_before(ClassId c, const Entry* head, const Claim& claim) const;
  std::optional<Claim> claim_of(JobId job);
  bool keep_for(JobId job);
  void drop_claim(JobId job);  // if there is one
  std::vector<JobId> firsts(bool unseen);

  // engine_places.cpp
  const EnginePlacement* place_of(JobId job) const;  // null: it has none
  void adopt_place(JobId job, const std::vector<std::vector<std::string>>& flavors, const PlacesOf& places);
  void build_places();
  struct NoPlace {  // of a class that finds none: of which flavor, and how many more pods it would take at least
    std::uint32_t site = 0;
    std::int64_t missing = 1;
    std::uint32_t of = nothing;  // Class::places, by which that is counted; nothing: whatever is given back may do
    TopologyReason reason;
  };
  // On the `chosen` flavors. From: what is free now; beside claims; or if all that has a place were gone.
  enum class From : std::uint8_t { Now, Seen, Empty };
  std::shared_ptr<const EnginePlacement> find_place(const Class& k, From from, NoPlace* why);
  bool placed(const Class& k);  // in look(): where, is in `found_place`
  std::int64_t pods_more(const EnginePlacement& given_back, const Class& k) const;  // how many pods of the class it may make room for, at most
  void freed_place(const EnginePlacement& place);
  void freed_on(Site& site, const PodAmounts& per_pod, std::int64_t pods);
  void wake_all_for_places();

  // engine_victims.cpp
  bool look_for_victims(ClassId c, const Entry* head, std::uint16_t& choice, int& level);  // after look() found no room: `victims`. head: for whom, if anybody
  struct Search;
  struct FairSearch;
  int level_without_victims(const Class& k, std::uint16_t choice);  // how far it borrows once they are gone
  bool place_with_victims(Class& k, const Entry* head, std::size_t at, std::vector<Column>& contested, std::uint16_t& choice);

  // engine_order.cpp
  int compare_lines(std::uint32_t a, std::uint32_t b) const;  // negative: a has used less
  void change_line(std::uint32_t line, const std::function<void(Line&)>& change);
  void set_line(const std::string& line, const LineUse& use);
  void add_to_line(const Class& got);  // a job of it was admitted
  bool class_first(ClassId a, ClassId b) const;
  bool queue_first(std::uint32_t a, std::uint32_t b) const;
  bool bid_first(const Bid& a, const Bid& b) const;
  void weigh(std::uint32_t q, NodeId from);
  void reorder(std::uint32_t q);
  std::uint32_t first(std::uint32_t tree) const;

  void expose(JobId job);

  bool shields = false;
  bool fair = false, final_share = true, initial_share = true, initial_first = false;
  Ledger ledger, in_use;
  std::vector<JobId> promised;  // in order
  std::vector<Claim> claims;    // in order
  Ledger claimed;               // `ledger` with what is kept on top: it may be beyond quota. Only while there are claims.
  std::vector<EngineSpec::Places> place_specs;
  Sites sites;                  // what is free in each flavor with places, in the order of the flavors' names
  std::unordered_map<JobId, std::shared_ptr<const EnginePlacement>> placements;
  bool own_only = false;        // room counts within the queue's own quota alone
  static constexpr int any_level = 0x7fffffff;
  int most_level = any_level;   // ways that borrow from farther away are passed over
  bool in_order = false;        // of flavors with room and of those with victims the first in the queue's order
  std::int64_t reservations = 0;
  std::size_t stopping = 0;
  std::vector<Job> jobs;
  std::vector<JobId> free_jobs;
  std::vector<Class> classes;
  std::unordered_map<std::string, std::vector<ClassId>> class_ids;  // by queue and a digest of what is asked
  std::vector<Line> lines;
  std::unordered_map<std::string, std::uint32_t> line_ids;
  std::vector<Queue> queues;
  std::unordered_map<std::string, std::uint32_t> queue_ids;
  std::vector<std::string> names;  // flavors and resources
  std::unordered_map<std::string, std::uint32_t> name_ids;

  std::vector<std::size_t> base;   // of each node's cells
  std::vector<Cell> cells;
  std::vector<bool> exact_for;  // of each leaf's cells: nothing on its path is kept from those above, so what is available there is one number less the use of the node whose limit it is
  std::vector<NodeId> roots;               // of each tree
  std::vector<std::uint64_t> versions;     // of each tree: moves with its usage
  std::vector<std::vector<std::uint32_t>> dirty;  // queues, by tree
  std::vector<std::uint32_t> dirty_trees;
  std::vector<std::vector<CellAt>> open_cells;  // cells in which somebody may fit now, by tree
  std::vector<bool> tree_is_dirty;

  std::vector<std::uint32_t> class_at, queue_at, node_at;  // places in heaps
  std::vector<IndexedHeap> by_tree;  // classical: queues that nominate
  std::vector<IndexedHeap> by_cohort;  // fair: children with a bid, by node
  std::vector<Bid> bids;               // by node
  std::vector<std::uint32_t> queue_of;  // by leaf

  std::size_t waiting = 0, running = 0;
  // scratch
  std::vector<Use> taken;
  std::vector<std::uint32_t> chosen;
  struct Shortage {
    NodeId node;
    Column column;
    Amount missing;
    Amount want = 0;  // what the queue must have available for it; 0: it depends on more
  };
  std::vector<Shortage> short_of;
  std::vector<ClassId> restless;  // what they miss may be another amount now: told at the end of a drain
  std::vector<NoPlace> no_place;                 // beside them
  std::shared_ptr<const EnginePlacement> found_place;  // by look() and look_for_victims()
  struct Fitting {
    std::uint32_t option;
    int level;
  };
  std::vector<Fitting> fitting;
  std::map<Uid, std::vector<Uid>> lost_to;  // without cycles
  std::vector<Uid> untouchable;             // sorted
  std::vector<std::pair<JobId, VictimReason>> victims;
  struct VictimsFound {
    std::uint16_t choice = 0;
    bool within_queue = false;  // some of them
    int level = 0;              // how far it borrows without them
    std::vector<std::pair<JobId, VictimReason>> victims;
    bool before(const VictimsFound& other) const { return within_queue != other.within_queue ? !within_queue : level < other.level; }
  };
  std::optional<VictimsFound> best_victims;  // of look_for_victims(), while it compares flavors
  bool stopped_some = false;  // since promises were looked at
  EngineWait exceeds;
  int tried = 0;
  // Of nodes, in a search by share: set where they hold the number of that search.
  std::vector<std::uint64_t> pruned_in, path_in, source_in, share_in;
  std::vector<Share> share_at;
  std::vector<std::uint32_t> source_at;
  std::uint64_t searches = 0;
  // Of wake_first().
  std::uint64_t looks = 0;
  std::vector<std::uint32_t> in_heap;   // places that are to be looked at
  std::vector<ClassId> woken;
  std::vector<ClassId> candidates;
  std::vector<ClassId> passed_over;     // that would be awake, and could not be told from those that are, if all had been woken
  std::vector<std::uint32_t> bidders;   // their queues, with what each would nominate
  std::vector<Bid> best_of;            // of each node's children, in the look whose number `looked_at` has
  std::vector<std::uint64_t> looked_at;
};

}  // namespace fairlead::governance
