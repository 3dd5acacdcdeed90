// SPDX-License-Identifier: Apache-2.0
// Garbage collection by ownerReferences over all kinds, those of CRDs too. It watches the registry itself and keeps, for each object that has owners or waits for
// its dependents, who owns it. Its three rules:
//   an object all of whose owners are known to be gone is deleted;
//   an owner that waits with foregroundDeletion goes after the dependents that block it, one with orphan after they were cut loose;
//   where a kind is unknown or an answer is missing, nothing is deleted.
// Every decision is made on answers of the API at that moment; what is kept only says where to look.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "apiserver/registry.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class GcController final : public kube::Controller {
 public:
  GcController(Registry& registry, kube::KubeApi& api);
  ~GcController() override;
  std::string name() const override { return "garbage-collector"; }
  // One key for all; namespaces are a source because there always is one.
  std::vector<Source> sources() const override {
    return {{kube::resources::namespaces, "", [](const kube::Change&) { return std::vector<kube::ObjectKey>{{"", "collect"}}; }}};
  }
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;
  bool idle() const;  // nothing is waiting to be looked at (tests)

 private:
  struct Node {  // an object, by group, plural, namespace, name
    std::string group, plural, space, name;
    friend auto operator<=>(const Node&, const Node&) = default;
  };
  void follow_kinds();
  void on_event(const kube::Resource& resource, const RegistryEvent& event);
  Result<void> look_at(const Node& node);
  Result<void> collect(const kube::Resource& resource, const kube::Json& object);
  Result<void> finish_owner(const kube::Resource& resource, const kube::Json& object);
  enum class Owner { There, Waiting, Gone, Unknown };
  Owner find_owner(const kube::Json& dependent, const kube::Json& reference);
  std::vector<Node> dependents_of(const std::string& uid) const;
  std::optional<kube::Resource> resource_of(const Node& node) const;

  Registry& registry_;
  kube::KubeApi& api_;

  mutable std::mutex mutex_;  // guards what events tell
  std::set<std::pair<std::string, std::string>> lost_;           // kinds whose watch is over
  std::map<Node, std::set<std::string>> owners_;                 // uids of owners of those that have any
  std::map<std::string, std::set<Node>> dependents_;             // by the owner's uid
  std::set<Node> dirty_;

  struct Followed;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Followed>> followed_;  // by group and plural; used by reconcile only
};

}  // namespace fairlead::apiserver
