// SPDX-License-Identifier: Apache-2.0
// Any object as a training job: it is refused with a reason, or planned for; and a plan of its own pods, unchanged, makes none of them twice.
#include <set>

#include "training/plan/training_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  auto job = kube::parse_json({reinterpret_cast<const char*>(data), size});
  if (!job || !job->is_object()) return 0;
  for (const kube::Json& one : (*job)["spec"]["replicaSpecs"].items())
    if (one["replicas"].integer() + one["spares"].integer() > 50) return 0;  // no news in more of them
  training::TrainingInput in{.job = *job, .pods = {}, .agents = {}, .nodes = {}, .now = Instant(std::chrono::seconds(1'800'000'000))};
  const auto first = training::plan_training(in);
  std::set<std::string> names;
  for (const kube::Json& pod : first.create) INVARIANT(names.insert(kube::name_of(pod)).second);
  if (!first.status.is_null()) in.job.set("status", first.status);
  in.pods = first.create;
  for (const kube::Json& pod : training::plan_training(in).create) INVARIANT(names.insert(kube::name_of(pod)).second);
  return 0;
}
