// SPDX-License-Identifier: Apache-2.0
// Each namespace has the ConfigMap kube-root-ca.crt with the site's CA, so that pods can trust the API server.
#pragma once
#include "kube/controller.h"
#include "kube/kube_api.h"

namespace fairlead::apiserver {

class RootCertificateController final : public kube::Controller {
 public:
  RootCertificateController(kube::KubeApi& api, std::string ca_pem) : api_(api), ca_pem_(std::move(ca_pem)) {}
  std::string name() const override { return "root-certificate"; }
  // Keys are namespaces.
  std::vector<Source> sources() const override;
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  const std::string ca_pem_;
};

}  // namespace fairlead::apiserver
