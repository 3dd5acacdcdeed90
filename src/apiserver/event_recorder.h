// SPDX-License-Identifier: Apache-2.0
// Events about objects, as Kubernetes' controllers write them.
#pragma once
#include <string>

#include "base/clock.h"
#include "kube/kube_api.h"

namespace fairlead::apiserver {

// One that cannot be written is logged and forgotten.
void record_event(kube::KubeApi& api, const Clock& clock, const std::string& component, const kube::Resource& resource, const kube::Json& about, bool warning, const std::string& reason,
                  const std::string& message);

}  // namespace fairlead::apiserver
