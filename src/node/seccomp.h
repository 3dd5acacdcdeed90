// SPDX-License-Identifier: Apache-2.0
// The default system call filter of containers, in the OCI's form.
#pragma once
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::node {

// An allow list: every call that libseccomp knows on this architecture, except those that act on the whole machine or reach out of the container.
// Those give EPERM; calls unknown to the library give ENOSYS, so that programs fall back. Capabilities of the container open what belongs to them.
kube::Json default_seccomp(const std::vector<std::string>& capabilities);

}  // namespace fairlead::node
