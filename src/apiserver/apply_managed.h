// SPDX-License-Identifier: Apache-2.0
// metadata.managedFields: who owns which fields, and server-side apply over it. The rules, limits and words are those of k8s.io/apimachinery's managedfields. Pure:
// objects come and go without managedFields, which are a value beside them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apiserver/apply_fields.h"
#include "apiserver/apply_merge.h"
#include "apiserver/apply_shape.h"
#include "kube/json.h"

namespace fairlead::apiserver {

inline constexpr std::string_view last_applied_annotation = "kubectl.kubernetes.io/last-applied-configuration";

struct ManagedEntry {
  std::string manager;
  bool applied = false;     // operation Apply; else Update
  std::string api_version;
  std::string time;         // RFC 3339; empty: none
  std::string subresource;
  FieldSet fields;
  // The same entry for the next write of this manager. Of appliers the version does not count.
  bool same_writer(const ManagedEntry& other) const {
    return manager == other.manager && applied == other.applied && subresource == other.subresource && (applied || api_version == other.api_version);
  }
  friend bool operator==(const ManagedEntry&, const ManagedEntry&) = default;
};
using ManagedFields = std::vector<ManagedEntry>;

// Invalid: not a list of entries as Kubernetes takes them (operation, fieldsType, apiVersion, fieldsV1).
Result<ManagedFields> parse_managed(const kube::Json& entries);
std::string print_managed(ManagedFields managed);  // a JSON list in Kubernetes' order
// What a client sends to forget all owners: an empty list, or one empty entry.
bool resets_managed(const kube::Json& entries);

// Who writes, and what such a write never changes (its `ignored` trees are nobody's): status in ordinary writes, all else in those of status.
struct FieldWriter {
  std::string manager;
  std::string api_version;
  std::string subresource;
  std::string time;
  bool only_status = false, skip_status = false;
};
// Request's fieldManager, else the user agent up to its first '/', 128 bytes of it.
std::string manager_name(std::string_view field_manager, std::string_view user_agent);

// The whole list as JSON for a new object; empty: nothing is owned.
std::string managed_of_new(const kube::Json& object, const kube::Type* type, const Shape& shape, const FieldWriter& writer);
// After an update or patch that is no apply. At most 10 updating managers are told apart; the oldest become "ancient-changes".
ManagedFields after_update(ManagedFields managed, const kube::Json& live, const kube::Json& next, const Shape& shape, const FieldWriter& writer);

struct Applied {
  kube::Json object;      // merged; may hold nulls and lack defaults
  ManagedFields managed;  // the applier's time is that of its last change: stamp_applier() if the object turns out to change
};
void stamp_applier(ManagedFields& managed, const FieldWriter& writer);
// `live` is zero_object() for an object that is not there. `configuration` was checked by configuration_errors().
// Conflict: other managers own fields with other values: `Apply failed with 1 conflict: conflict with "x" using v1: .spec.replicas`.
Result<Applied> apply_configuration(const kube::Json& live, const kube::Json& configuration, ManagedFields managed, const kube::Type* type, const Shape& shape, const FieldWriter& writer, bool force);

}  // namespace fairlead::apiserver
