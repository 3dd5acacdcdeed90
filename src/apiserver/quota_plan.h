// SPDX-License-Identifier: Apache-2.0
// ResourceQuotas: what an object weighs, whom a quota is about, and whether a write may be. Pure; rules and words of Kubernetes (pkg/quota/v1/evaluator/core and
// apiserver/pkg/admission/plugin/resourcequota). Design: docs/design/078-resource-quota.md.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

// By the name that a quota's `hard` has for it. Each amount is at most 2^63-1 units, so sums do not overflow.
using Usage = std::map<std::string, kube::Quantity, std::less<>>;

// Kinds whose objects are looked into: their weight can change while they are there. Of all others an object is one object.
inline constexpr std::array<const kube::Resource*, 3> looked_into{&kube::resources::pods, &kube::resources::claims, &kube::resources::services};
bool is_looked_into(const kube::Resource& resource);

// An object as quotas see it.
struct Measured {
  Usage usage;
  bool pod = false;
  bool terminating = false, best_effort = false, cross_namespace = false;         // of a pod: has a deadline; asks for nothing; its affinity looks into other namespaces
  std::string priority_class;                                                     // of a pod
  std::map<std::string, std::set<std::string>> unstated;                          // of a pod: amounts of CPU and memory, and the containers that do not state them
  std::optional<Instant> until;                                                   // of a pod that should be gone: it is an object and nothing else after this
  friend bool operator==(const Measured&, const Measured&) = default;
};
// `object` may be null unless its kind is looked into.
Measured measure(const kube::Resource& resource, const kube::Json& object, Instant now);
Measured after_its_end(const Measured& pod);  // what is left of it at `until`

struct QuotaScope {
  std::string name, op;
  std::vector<std::string> values;
  friend bool operator==(const QuotaScope&, const QuotaScope&) = default;
};
struct Quota {
  std::string name;
  Usage hard;
  std::vector<QuotaScope> scopes;  // all of them must match
  friend bool operator==(const Quota&, const Quota&) = default;
};
Quota read_quota(const kube::Json& object);

// Which objects are counted under a name of `hard`: "core/pods", "batch/jobs" (group and plural as in the store's keys). nullopt: none ever are.
std::optional<std::string> counted_kind(std::string_view name);
kube::Resource resource_of(std::string_view counted);  // its group and plural

// What the quota counts of it; nothing if it is about others.
Usage charge(const Quota& quota, const Measured& object);

// A quota at the moment of a write.
struct QuotaLine {
  const Quota& quota;
  const Usage& used;  // everything together
  Usage before;       // of it, what this very object is charged with already
};
// Why the write must not be, without the object's name; nullopt: it may. What shrinks or stays always may. `lines` in the order in which they are to be named.
std::optional<std::string> quota_refusal(const std::vector<QuotaLine>& lines, const Measured& next);

// status.used: every name of `hard`.
kube::Json print_used(const Quota& quota, const Usage& used);

}  // namespace fairlead::apiserver
