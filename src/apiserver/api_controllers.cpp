// SPDX-License-Identifier: Apache-2.0
#include "apiserver/api_controllers.h"

#include "apiserver/budget_controller.h"
#include "apiserver/claim_controller.h"
#include "apiserver/crd_controller.h"
#include "apiserver/endpoints_controller.h"
#include "apiserver/event_controller.h"
#include "apiserver/gc_controller.h"
#include "apiserver/job_controller.h"
#include "apiserver/namespace_controller.h"
#include "apiserver/quota_controller.h"
#include "apiserver/rbac_controller.h"
#include "apiserver/token_root_controller.h"

namespace fairlead::apiserver {

std::vector<std::unique_ptr<kube::Controller>> make_api_controllers(Registry& registry, kube::KubeApi& api, const Clock& clock, const ApiControllerOptions& options) {
  std::vector<std::unique_ptr<kube::Controller>> out;
  out.push_back(std::make_unique<GcController>(registry, api));
  out.push_back(std::make_unique<NamespaceController>(registry, api, clock));
  out.push_back(std::make_unique<CrdController>(registry, api));
  out.push_back(std::make_unique<ClaimController>(api, clock, options.volumes_folder));
  out.push_back(std::make_unique<JobController>(api, clock));
  out.push_back(std::make_unique<EndpointsController>(api));
  out.push_back(std::make_unique<BudgetController>(api, clock));
  out.push_back(std::make_unique<QuotaController>(registry, api, clock));
  out.push_back(std::make_unique<EventController>(api, clock, options.event_lifetime));
  out.push_back(std::make_unique<RoleAggregationController>(api));
  if (!options.service.service_address.empty()) out.push_back(std::make_unique<ApiServiceController>(api, options.service));
  if (!options.ca_pem.empty()) out.push_back(std::make_unique<RootCertificateController>(api, options.ca_pem));
  return out;
}

}  // namespace fairlead::apiserver
