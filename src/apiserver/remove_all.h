// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kube/kube_api.h"

namespace fairlead::apiserver {

// Deletes every object of one resource (in one namespace, or "" for all) that is not being deleted yet. Gives how many were there.
Result<std::size_t> remove_all(kube::KubeApi& api, const kube::Resource& resource, const std::string& space);

}  // namespace fairlead::apiserver
