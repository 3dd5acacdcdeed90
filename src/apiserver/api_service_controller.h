// SPDX-License-Identifier: Apache-2.0
// The Service `kubernetes` in `default` and its EndpointSlice: how programs in pods find the API. Made again when somebody removes or changes them.
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

struct ApiServiceOptions {
  std::string service_address;  // of the Service, IPv4; empty: there is no such Service
  std::string address;          // of this server, as pods on nodes reach it, IPv4
  int port = 0;
  friend bool operator==(const ApiServiceOptions&, const ApiServiceOptions&) = default;
};
// The first address of the first IPv4 range of services; empty: none.
std::string api_service_address(const std::vector<std::string>& service_ranges);

// What the two should be, starting from what is there (null: nothing).
kube::Json wanted_api_service(const kube::Json& now, const ApiServiceOptions& options);
kube::Json wanted_api_slice(const kube::Json& now, const ApiServiceOptions& options);

class ApiServiceController final : public kube::Controller {
 public:
  ApiServiceController(kube::KubeApi& api, ApiServiceOptions options) : api_(api), options_(std::move(options)) {}
  std::string name() const override { return "api-service"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  ApiServiceOptions options_;
};

}  // namespace fairlead::apiserver
