// SPDX-License-Identifier: Apache-2.0
// How many machines of a type a site can promise, and when: machines that are there, plans that have them, offerings of what is left. Pure; docs/design/059-training-plans.md.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/training_plan.h"
#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::api {

struct PlanMachine {
  // Nobody; an instance that goes, or whose group or cluster does; a group within its Active plan; a group that has it by a plan that is in force for it no more, or not yet: its own has ended, or the machine is kept for a plan (label) whatever the group names by now; any other: what these have is nobody's to promise; an instance that is not known here, of a machine that is kept for a plan.
  enum class Holder : std::uint8_t { Nobody, Leaving, Plan, Ended, Others, Unknown };
  std::string node, version;   // version: of the Node that was looked at
  std::string type;
  std::string label;           // kPlanLabel; empty: it is kept for none
  std::string wanted_back;     // kWantedBack
  Holder holder = Holder::Nobody;
  std::string plan, instance;  // of who has it; plan: where holder is Plan, or Ended by its group's own plan
  bool healthy = false;        // it has what the type has, is open and answers (or has not for less than five minutes), has failed no deep check, and nobody wants it replaced
  bool replaced = false;       // somebody does; else what is out of order may come back
  bool lately = false;         // out of order, and not for long: who looks all the time says so
  bool promisable() const { return healthy && holder != Holder::Others && holder != Holder::Unknown; }
};

using Plans = std::map<std::string, TrainingPlan>;  // by name

// Which machines plans may count on: spare Nodes (kSpareLabel), whoever has them. Local machines that are made on demand are none: their number is nobody's.
// Clusters and instances are told of first, then nodes. O(n log n) in all.
class Inventory {
 public:
  Inventory(const Plans& plans, Instant now) : plans_(plans), now_(now) {}
  void cluster(const kube::Json& object);
  void instance(const kube::Json& object);
  void node(const kube::Json& object);
  std::vector<PlanMachine> machines();            // by node name. Of a plan that is Active its groups have as many as it reserves; what they have beyond is as if they named none
  std::map<std::string, int> waiting() const;     // by plan: instances of its groups that have no machine yet
  std::optional<Instant> look_again() const { return look_again_; }  // when a silent machine counts no more

 private:
  struct Seen {
    std::string id, node, cluster_uid, group;
    bool leaves = false, replaced = false;
  };
  const Plans& plans_;
  const Instant now_;
  std::set<std::string> clusters_, gone_;                              // by uid; gone_: being deleted
  std::map<std::pair<std::string, std::string>, std::string> plan_of_; // of groups, by uid of the cluster, and name; empty: it names none
  std::map<std::string, Seen> instances_;                        // by id, of those that have a machine
  std::map<std::pair<std::string, std::string>, int> waiting_;   // of groups, as plan_of_: those that have none
  std::map<std::string, std::string> on_;                        // id by node: who has chosen it
  std::vector<PlanMachine> machines_;
  std::optional<Instant> look_again_;
};

struct Commitment {
  int count = 0;
  PlanWindow window;
};
// Of granted plans of the type; `but`: without this one.
std::vector<Commitment> commitments(const Plans& plans, std::string_view type, std::string_view but = {});
// The most that is promised at one time of [from, to). O(n log n).
int peak(const std::vector<Commitment>& all, Instant from, Instant to);
inline constexpr Instant kForever = Instant(std::chrono::nanoseconds::max());

struct OfferingQuestion {
  std::string type;
  int count = 1;
  std::chrono::seconds duration{0};
  Instant after;                 // it begins no earlier, nor before now
  std::optional<Instant> before; // and ends no later
};
struct Offering {
  std::string type;
  int count = 0;
  PlanWindow window;
  friend bool operator==(const Offering&, const Offering&) = default;
};
inline constexpr std::size_t kMostOfferings = 3;
// The earliest windows in which `there` machines suffice for what is promised and for these, kMostOfferings at most; a later one begins where a plan ends. O(n^2 log n) in plans of the type.
std::vector<Offering> offerings(const OfferingQuestion& question, int there, const std::vector<Commitment>& promised, Instant now);
// How many can be promised: PlanMachine::promisable, of the type.
int promisable(const std::vector<PlanMachine>& machines, std::string_view type);

inline constexpr std::chrono::hours kLongestPlan{87600};      // TrainingPlanDurationHoursInput
inline constexpr std::chrono::hours kLongestExtension{4368};  // TrainingPlanExtensionDurationHours

// An id says what is offered, so that nothing has to be stored: "tpo-4-1795694400-1795780800-ml--p5--48xlarge". Nothing: it is none that we could have written.
std::string offering_id(const Offering& offering);
std::optional<Offering> parse_offering_id(std::string_view id);
// Of an extension: which object, from which end to which. "tpe-UID12-1795780800-1795867200".
struct ExtensionOffering {
  std::string plan_id;  // entity_id of the object's uid
  PlanWindow window;
  friend bool operator==(const ExtensionOffering&, const ExtensionOffering&) = default;
};
std::string extension_id(const ExtensionOffering& offering);
std::optional<ExtensionOffering> parse_extension_id(std::string_view id);

}  // namespace fairlead::api
