// SPDX-License-Identifier: Apache-2.0
// What a controller asks of an API, declared: roles are rendered from it, and CheckedApi refuses everything else, so that declaration and code cannot part.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "kube/kube_api.h"

namespace fairlead::kube {

// One line of an RBAC role. Verbs: get, list, watch, create, update, patch, delete.
struct Rule {
  std::string group, plural, subresource;
  std::string space;               // "" : all namespaces (and things without one)
  std::vector<std::string> names;  // empty: all. RBAC cannot tie create, list and watch to names.
  std::vector<std::string> verbs;
  friend auto operator<=>(const Rule&, const Rule&) = default;
};

class Access {
 public:
  Access& may(std::vector<std::string> verbs, const Resource& resource, const std::string& subresource = "", const std::string& space = "", std::vector<std::string> names = {});
  Access& add(const Access& other);
  bool allows(const std::string& verb, const Resource& resource, const std::string& subresource, const std::string& space, const std::string& name) const;
  // One rule for equal (group, resource, namespace, names), verbs and rules sorted.
  std::vector<Rule> rules() const;

 private:
  std::vector<Rule> rules_;
};

// `rules` of a ClusterRole (space "") or of the Role of one namespace: what the access says for exactly that space.
Json role_rules(const Access& access, const std::string& space);

// Refuses what was not declared, as a server with these roles would: Forbidden, with the missing line.
class CheckedApi final : public KubeApi {
 public:
  CheckedApi(KubeApi& api, Access access) : api_(api), access_(std::move(access)) {}
  std::vector<std::string> refusals() const;  // "delete pods", each once

  Result<Json> get(const Resource& resource, const ObjectKey& key) override;
  Result<List> list(const Resource& resource, const std::string& space, const ListOptions& options = {}) override;
  Result<std::unique_ptr<Watch>> watch(const Resource& resource, const std::string& space, const WatchOptions& options) override;
  Result<Json> create(const Resource& resource, const Json& object) override;
  Result<Json> update(const Resource& resource, const Json& object) override;
  Result<Json> update_status(const Resource& resource, const Json& object) override;
  Result<Json> patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& subresource = "") override;
  Result<Json> apply(const Resource& resource, const Json& object, const ApplyOptions& options = {}) override;
  Result<Json> post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) override;
  Result<void> remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options = {}) override;
  Result<ExecResult> exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input,
                          std::chrono::milliseconds limit) override;

 private:
  Result<void> check(const char* verb, const Resource& resource, const std::string& subresource, const std::string& space, const std::string& name);
  KubeApi& api_;
  const Access access_;
  mutable std::mutex mutex_;
  std::vector<std::string> refusals_;
};

}  // namespace fairlead::kube
