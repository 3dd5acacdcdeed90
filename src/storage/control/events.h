// SPDX-License-Identifier: Apache-2.0
// Events of this folder's controllers: the same is told once, however often it is so.
#pragma once
#include <string>

#include "base/clock.h"
#include "kube/kube_api.h"

namespace fairlead::storage {

void tell(kube::KubeApi& api, const Clock& clock, const std::string& component, const kube::Resource& resource, const kube::Json& about, const std::string& reason, const std::string& message);

}  // namespace fairlead::storage
