// SPDX-License-Identifier: Apache-2.0
// What the controllers of this folder share: kinds beside those of api/queue_crds.h, events, versions.
#pragma once
#include "api/queue_crds.h"
#include "governance/plan/books.h"
#include "kube/controller.h"

namespace fairlead::governance {

inline const kube::Resource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false};
inline const kube::Resource kBatchJobs{"batch", "v1", "jobs", "Job", true};

// An Event about an object in that state: told once, however often the step before it is repeated. Losing one loses no work.
void tell(kube::KubeApi& api, const kube::Resource& resource, const kube::Json& about, const Note& note, Instant now);

// Is version a before version b? False where they are no numbers.
bool version_before(const std::string& a, const std::string& b);

}  // namespace fairlead::governance
