// SPDX-License-Identifier: Apache-2.0
// The controllers that belong to the API itself. They run beside the embedded engine only: a real Kubernetes has its own.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/api_service_controller.h"
#include "apiserver/registry.h"
#include "base/clock.h"
#include "kube/controller.h"
#include "kube/kube_api.h"

namespace fairlead::apiserver {

struct ApiControllerOptions {
  std::string ca_pem;          // of the site, for pods; empty: no ConfigMaps kube-root-ca.crt
  std::string volumes_folder;  // where claims become directories; absolute
  std::chrono::seconds event_lifetime{3600};
  ApiServiceOptions service = {};  // without an address: no Service `kubernetes`
};
// Garbage collection, namespaces, CRDs, claims, the lifetime of events. `registry` and `api` (of the same engine) must outlive them.
std::vector<std::unique_ptr<kube::Controller>> make_api_controllers(Registry& registry, kube::KubeApi& api, const Clock& clock, const ApiControllerOptions& options);

}  // namespace fairlead::apiserver
