// SPDX-License-Identifier: Apache-2.0
// TrainingPlan (fairlead.dev/v1alpha1): so many machines of a type, kept from one time to another for the groups that name it. `spec` is asked for once; what is in force stands in `status` (docs/design/059).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kTrainingPlans{"fairlead.dev", "v1alpha1", "trainingplans", "TrainingPlan", false};
kube::Json training_plan_crd();

inline constexpr const char* kPlanLabel = "fairlead.dev/training-plan";    // of a Node: the plan for which it is kept; groups without that plan never get it
inline constexpr const char* kWantedBack = "fairlead.dev/wanted-back";     // annotation of a Node: the Instance that is to give it back, since its plan has ended and another needs it
inline constexpr int kMostPlanned = 256;                                   // machines of one plan (ReservedCapacityInstanceCount)

enum class PlanPhase : std::uint8_t { Pending, Scheduled, Active, Expired, Failed };
std::string_view text(PlanPhase phase);

// From start on, until end: at `end` it is over. Whole seconds.
struct PlanWindow {
  Instant start, end;
  friend bool operator==(const PlanWindow&, const PlanWindow&) = default;
};

struct TrainingPlan {
  std::string name, uid;
  Instant created;
  bool deleting = false;
  // Asked for.
  std::string type;                    // "ml.p5.48xlarge"
  int count = 0;
  std::optional<Instant> start;        // none: as soon as it is decided
  Instant end;
  struct Extension {
    std::string id;                    // of its offering
    PlanWindow window;                 // from the end of before to the new one
    std::optional<Instant> asked;      // or first seen
  };
  std::vector<Extension> extensions;   // in the order in which they were asked for
  // Decided, from status.
  struct Grant {
    std::string type;
    int count = 0;
    PlanWindow window;                 // with the extensions that were granted
    friend bool operator==(const Grant&, const Grant&) = default;
  };
  std::optional<Grant> granted;
  bool failed = false;
  std::map<std::string, bool> extended;  // extensions that were decided: granted or not
  std::vector<std::string> problems;     // of spec, sentences: what has any is not granted
  PlanPhase phase(Instant now) const;
  bool active(Instant now) const { return phase(now) == PlanPhase::Active; }
};
// Never fails.
TrainingPlan read_training_plan(const kube::Json& object);

// The object of a plan by what a group calls it: its ARN ("arn:...:training-plan/NAME") or its name. Empty: it names none.
std::string plan_object_name(std::string_view arn_or_name);

}  // namespace fairlead::api
