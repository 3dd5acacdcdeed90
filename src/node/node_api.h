// SPDX-License-Identifier: Apache-2.0
// The API as one node may use it: of pods it lists and watches only its own, as Node authorisation demands (a kube-apiserver refuses anything else).
#pragma once
#include <string>

#include "kube/kube_api.h"

namespace fairlead::node {

class NodeApi final : public kube::KubeApi {
 public:
  NodeApi(kube::KubeApi& api, std::string node_name) : api_(api), selector_("spec.nodeName=" + node_name) {}
  Result<kube::Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override {
    kube::ListOptions own = options;
    own.field_selector = narrowed(resource, options.field_selector);
    return api_.list(resource, space, own);
  }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override {
    kube::WatchOptions own = options;
    own.field_selector = narrowed(resource, options.field_selector);
    return api_.watch(resource, space, own);
  }
  Result<kube::Json> create(const kube::Resource& resource, const kube::Json& object) override { return api_.create(resource, object); }
  Result<kube::Json> update(const kube::Resource& resource, const kube::Json& object) override { return api_.update(resource, object); }
  Result<kube::Json> update_status(const kube::Resource& resource, const kube::Json& object) override { return api_.update_status(resource, object); }
  Result<kube::Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const kube::Json& patch,
                           const std::string& subresource) override {
    return api_.patch(resource, key, type, patch, subresource);
  }
  Result<kube::Json> post(const kube::Resource& resource, const kube::ObjectKey& key, const std::string& subresource,
                          const kube::Json& body) override {
    return api_.post(resource, key, subresource, body);
  }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override {
    return api_.remove(resource, key, options);
  }
  Result<kube::ExecResult> exec(const kube::ObjectKey& pod, const std::string& container, const std::vector<std::string>& command,
                                const std::string& input, std::chrono::milliseconds limit) override {
    return api_.exec(pod, container, command, input, limit);
  }

 private:
  std::string narrowed(const kube::Resource& resource, const std::string& asked) const {
    if (resource != kube::resources::pods) return asked;
    return asked.empty() ? selector_ : asked + "," + selector_;
  }
  kube::KubeApi& api_;
  const std::string selector_;
};

}  // namespace fairlead::node
