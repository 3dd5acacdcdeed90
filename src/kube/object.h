// SPDX-License-Identifier: Apache-2.0
// What every Kubernetes object has, read from and written to its JSON.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::kube {

// Group, version, plural: what a URL names. `kind` is for bodies.
struct Resource {
  std::string group;  // "" for the core group
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;
  std::string api_version() const { return group.empty() ? version : group + "/" + version; }
  friend auto operator<=>(const Resource&, const Resource&) = default;
};

struct ObjectKey {
  std::string space;  // namespace; "" for cluster-scoped ones
  std::string name;
  std::string text() const { return space.empty() ? name : space + "/" + name; }
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
};

inline const std::string& name_of(const Json& object) { return object["metadata"]["name"].string(); }
inline const std::string& space_of(const Json& object) { return object["metadata"]["namespace"].string(); }
inline const std::string& uid_of(const Json& object) { return object["metadata"]["uid"].string(); }
inline const std::string& version_of(const Json& object) { return object["metadata"]["resourceVersion"].string(); }
inline ObjectKey key_of(const Json& object) { return {space_of(object), name_of(object)}; }
inline bool deleting(const Json& object) { return !object["metadata"]["deletionTimestamp"].is_null(); }
std::map<std::string, std::string> labels_of(const Json& object);
std::map<std::string, std::string> annotations_of(const Json& object);
bool has_finalizer(const Json& object, std::string_view finalizer);
void add_finalizer(Json& object, std::string_view finalizer);
void remove_finalizer(Json& object, std::string_view finalizer);

// {apiVersion, kind, name, uid, controller: true, blockOwnerDeletion: true} of an owner.
Json owner_reference(const Json& owner);
const Json* controller_of(const Json& object);  // the ownerReference with controller: true; nullptr: none

// status.conditions as metav1.Condition. Returns whether anything but observedGeneration changed; lastTransitionTime moves only with `status`.
struct Condition {
  std::string type;
  std::string status;  // "True", "False", "Unknown"
  std::string reason;  // CamelCase
  std::string message;
};
bool set_condition(Json& object, const Condition& condition, Instant now);
const Json* find_condition(const Json& object, std::string_view type);
bool condition_is_true(const Json& object, std::string_view type);

// The kinds that Fairlead speaks of by name (built-in ones and its own).
namespace resources {
extern const Resource pods, nodes, services, config_maps, secrets, service_accounts, events, namespaces, leases, claims, crds, slurm_clusters, machines;
extern const Resource admission_policies, admission_policy_bindings;  // ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding
}

}  // namespace fairlead::kube
