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
  // Nobody; an instance that is being deleted, or whose cluster is; a group within its Active plan; a group whose plan has ended; any other: what these have is nobody's to promise.
  enum class Holder : std::uint8_t { Nobody, Leaving, Plan, Ended, Others };
  std::string node, version;   // version: of the Node that was looked at
  std::string type;
  std::string label;           // kPlanLabel; empty: it is kept for none
  std::string wanted_back;     // kWantedBack
  Holder holder = Holder::Nobody;
  std::string plan, instance;  // of who has it; plan: where holder is Plan or Ended
  bool healthy = false;        // it has what the type has, is open and answers (or has not for less than five minutes), and nobody wants it replaced
  bool promisable() const { return healthy && holder != Holder::Others; }
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
  std::vector<PlanMachine> machines();            // by node name. Of a plan that is Active its groups have as many as it reserves; what they have beyond is Others'
  std::optional<Instant> look_again() const { return look_again_; }  // when a silent machine counts no more

 private:
  struct Seen {
    std::string id, node, cluster_uid, group;
    bool leaves = false, replaced = false;
  };
  const Plans& plans_;
  const Instant now_;
  std::set<std::string> clusters_, gone_;                              // by uid; gone_: being deleted
  std::map<std::pair<std::string, std::string>, std::string> plan_of_; // of groups, by uid of the cluster, and name
  std::map<std::string, Seen> instances_;                        // by id
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
