// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kube/controller.h"
#include "slurm/control/head_watch.h"

namespace fairlead::slurm {

// Where several heads elect one (docs/design/005), keeps the endpoint of CLUSTER-controller-active on the one that serves. A controller of its own, for the other one may be waiting for a head that is gone.
class HeadAddressController final : public kube::Controller {
 public:
  struct Options {
    std::string default_image = "slurm:22.05";
    std::string space;  // only clusters of this namespace; empty: all
  };
  static constexpr const char* kName = "slurm-head-address";
  HeadAddressController(kube::KubeApi& api, std::unique_ptr<HeadReports> reports, Options options) : api_(api), reports_(std::move(reports)), options_(std::move(options)) {}
  std::string name() const override { return kName; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  kube::KubeApi& api_;
  std::unique_ptr<HeadReports> reports_;
  Options options_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::slurm
