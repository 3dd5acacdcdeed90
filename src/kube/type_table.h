// SPDX-License-Identifier: Apache-2.0
// The one table of Kubernetes' built-in types: JSON name, type, protobuf number, list kind and merge keys, default. It drives protobuf bodies, strict field
// checks, strategic merge and OpenAPI. Written by tools/typetable from the pinned k8s.io/api module into type_table_data.inc (names and numbers, no texts).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::kube {

enum class FieldType : std::uint8_t { String, Bool, Int32, Int64, Double, Bytes, Message, Quantity, IntOrString, Time, MicroTime,
                                      Any /* RawExtension, JSON */, SchemaOr /* a JSON schema, or a boolean, or a list, by the fields of its message */ };
enum class ListKind : std::uint8_t { None, Atomic, Set, Map };
struct Type;
struct Field {
  std::string_view json;      // JSON name
  std::uint32_t number = 0;   // protobuf field number
  FieldType type = FieldType::String;
  const Type* message = nullptr;  // for Message
  bool repeated = false;
  bool map = false;           // map<string, type>
  bool inlined = false;       // its fields appear in the parent's JSON (ObjectMeta never; VolumeSource does)
  bool required = false;      // no omitempty in Go and not a pointer
  bool omit_empty = false;    // omitempty in Go and not a pointer: a zero on the wire is left out of the JSON
  ListKind list = ListKind::None;        // how a strategic merge treats a list: patchStrategy and patchMergeKey
  std::string_view merge_key;            // of ListKind::Map
  ListKind list_type = ListKind::None;   // x-kubernetes-list-type (server-side apply, OpenAPI); may differ from `list`
  std::string_view list_keys;            // x-kubernetes-list-map-keys, joined by commas
  bool retain_keys = false;              // patchStrategy has retainKeys
  bool atomic = false;                   // x-kubernetes-map-type: atomic
};
struct Type {
  std::string_view name;  // "io.k8s.api.core.v1.Pod" (OpenAPI definition name)
  std::span<const Field> fields;
  const Field* find(std::string_view json) const;     // also through inlined fields; nullptr: unknown
  const Field* find(std::uint32_t number) const;      // this level only; 0 for apiVersion and kind, which are not on the wire
  bool bare_list() const;  // a message on the wire, a list of its one field in JSON (ExtraValue)
};

class TypeTable {
 public:
  static const TypeTable& builtin();
  const Type* find_kind(std::string_view api_version, std::string_view kind) const;  // nullptr: not a built-in kind
  const Type* find(std::string_view name) const;
  std::vector<const Type*> all() const;
  static std::string_view source_version();  // "v0.33.5" of k8s.io/api
};

// Decodes a body that starts with "k8s\0" (runtime.Unknown envelope) to JSON with apiVersion and kind set. Invalid: malformed, or a kind that the table lacks.
Result<Json> decode_protobuf(std::string_view body, const TypeTable& table);
bool is_protobuf(std::string_view body);

// Paths of members that the type does not have ("spec.containers[0].imag"), in document order; for fieldValidation=Strict|Warn.
std::vector<std::string> unknown_fields(const Json& object, const Type& type);
// The form in which Go writes what it read, in two steps around defaults: zeros of omitempty fields go (no pointers: those keep zeros) ...
void drop_zeros(Json& object, const Type& type);
// ... and what Go always has comes: structs, null for times that are not set, zeros of fields without omitempty.
void add_zeros(Json& object, const Type& type);
// Members of the wrong JSON type: `spec.replicas: expected integer, got string`. null is of every type, as in Go.
std::vector<std::string> type_errors(const Json& object, const Type& type);

}  // namespace fairlead::kube
