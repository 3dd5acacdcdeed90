// SPDX-License-Identifier: Apache-2.0
// What the server serves, told to clients: plain and aggregated discovery from a KindTable. Pure; the reviews (can-i, whoami) are added, which hold no objects.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// Resources that only answer a POST: who am I, what may I do.
struct Review {
  std::string_view group, version, plural, kind;
  bool namespaced = false;
};
std::span<const Review> reviews();
const Review* find_review(std::string_view group, std::string_view version, std::string_view plural);

struct GroupVersion {
  std::string group, version;
  std::string text() const { return group.empty() ? version : group + "/" + version; }
  friend auto operator<=>(const GroupVersion&, const GroupVersion&) = default;
};
// All that is served, groups by name ("" first), within a group the preferred version first (v1 before v1beta2 before v1alpha1).
std::vector<GroupVersion> group_versions(const KindTable& table);
// Kubernetes' order of versions: GA before beta before alpha, higher numbers first, others last by name.
bool version_before(std::string_view a, std::string_view b);

struct SubresourceInfo {
  std::string group, version, kind;  // of its body, where it differs from the parent's
  std::vector<std::string> verbs;
};
SubresourceInfo subresource_info(const Kind& kind, std::string_view name);

kube::Json core_versions(const std::string& server_address);           // GET /api
kube::Json group_list(const KindTable& table);                         // GET /apis
std::optional<kube::Json> group(const KindTable& table, std::string_view name);  // GET /apis/NAME
std::optional<kube::Json> resource_list(const KindTable& table, std::string_view group, std::string_view version);
// APIGroupDiscoveryList (apidiscovery.k8s.io/v2) for /api (core) or /apis.
kube::Json aggregated(const KindTable& table, bool core);

}  // namespace fairlead::apiserver
