// SPDX-License-Identifier: Apache-2.0
// Which requests a policy or its binding is about: MatchResources of admissionregistration.k8s.io/v1, as Kubernetes' webhook predicates read them. Pure; immutable once made.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"
#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

// A request as policies see it. `object` and `old` are null where there is none (of a delete, of a create); they outlive the call.
struct PolicyCall {
  std::string_view operation;  // "CREATE", "UPDATE", "DELETE"
  const kube::Resource& resource;
  std::vector<std::string> other_versions;  // of the same resource, that are served
  std::string_view subresource;
  std::string name, space;
  const kube::Json* object = nullptr;
  const kube::Json* old = nullptr;
};

class MatchRules {
 public:
  // A selector that cannot be read (no checked object has one) is told by `broken`; then the rest means nothing.
  explicit MatchRules(const kube::Json& match_resources);

  // The version in which it is meant, if it is: that of the request, else (matchPolicy Equivalent) another one. Does not look at the namespace.
  std::optional<std::string> version(const PolicyCall& call) const;
  bool asks_for_space(const PolicyCall& call) const;  // its labels decide
  bool fits_space(const kube::Json& space) const;
  const std::string& broken() const { return broken_; }

 private:
  struct Rule {
    std::vector<std::string> operations, groups, versions, resources, names;
    std::string scope;
    bool fits(const PolicyCall& call, std::string_view version) const;
  };
  static std::vector<Rule> read(const kube::Json& rules);
  std::optional<std::string> find(const std::vector<Rule>& rules, const PolicyCall& call) const;
  bool fits_object(const PolicyCall& call) const;

  std::vector<Rule> rules_, excluded_;
  kube::LabelSelector space_, object_;
  bool equivalent_ = true;
  std::string broken_;
};

}  // namespace fairlead::apiserver
