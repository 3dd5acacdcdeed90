// SPDX-License-Identifier: Apache-2.0
// A certificate authority that all replicas of a server share, in a Secret: ca.crt and ca.key.
#pragma once
#include <string>

#include "base/clock.h"
#include "http/pki.h"
#include "kube/kube_api.h"

namespace fairlead::kube {

// Made by the first; of several that begin at once one wins and the others take what it made. Invalid: the Secret is there and holds none.
Result<http::KeyPair> shared_authority(KubeApi& api, const ObjectKey& secret, const std::string& common_name, const Clock& clock);

}  // namespace fairlead::kube
