// SPDX-License-Identifier: Apache-2.0
// What a Node says while its machine is dead for certain: taint api::kOutOfService of ours, and Ready=False.
#pragma once
#include <string>

#include "base/clock.h"
#include "kube/kube_api.h"

namespace fairlead::fleet {

// Does this Node carry our word?
bool is_declared_out_of_service(const kube::Json& node);
// Says it (`why`: the condition's message), or takes it back; idempotent, without a Node nothing. Whoever starts the machine takes it back first; back in service the Node says Ready itself. Other taints stay.
Result<void> declare_out_of_service(kube::KubeApi& api, const Clock& clock, const std::string& name, bool out, const std::string& why = {});

}  // namespace fairlead::fleet
