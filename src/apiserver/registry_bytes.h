// SPDX-License-Identifier: Apache-2.0
// Objects as bytes. The canonical form is compact JSON that begins
//   {"apiVersion":"...","kind":"...","metadata":{"resourceVersion":"N","managedFields":[...],...
// so that the revision and the version of the API can be exchanged, and managedFields taken out, without parsing.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "apiserver/registry.h"

namespace fairlead::apiserver {

// The object's canonical bytes around its revision, written under this apiVersion and kind. `managed_fields` is a JSON list or empty; metadata.managedFields of the
// object itself is not written.
Template canonical(const kube::Json& object, const kube::Resource& resource, std::string_view managed_fields = {});
// The JSON list of managedFields in canonical bytes; empty: none. It points into them.
std::string_view managed_fields_of(std::string_view bytes);
std::string without_managed_fields(std::string_view bytes);
// What an object has in common with many: the fields that each manager owns. Of the kind CommonParts (store/value.h).
void common_parts(std::string_view bytes, std::vector<std::string_view>& parts);
std::string join(const Template& parts, Revision revision);
// Splits canonical bytes around the revision. INVARIANT: they are canonical.
struct Around {
  std::string_view before, revision, after;
};
Around around_revision(std::string_view bytes);
// The same object as of another revision (a deletion's), under another version of its group.
std::string with_revision(std::string_view bytes, Revision revision);
bool has_api_version(std::string_view bytes, std::string_view api_version);
std::string with_api_version(std::string_view bytes, std::string_view api_version);

std::string event_line(kube::EventType type, std::string_view object);
// A bookmark's object: kind, apiVersion, resourceVersion; `initial_end` adds the annotation that ends the initial events.
std::string bookmark_object(const kube::Resource& resource, Revision revision, bool initial_end);

// Whether the text occurs somewhere, fast: string_view::find stops at each quote.
bool mentions(std::string_view bytes, std::string_view text);

// Reads single fields of an object's bytes without building a tree. One Peek lives at a time on a thread.
class Peek {
 public:
  explicit Peek(std::string_view bytes);
  // The value at a dotted path as text (booleans as true/false, numbers as written); empty: absent, null or no scalar.
  std::optional<std::string> field(std::string_view dotted);
  std::map<std::string, std::string> labels();

 private:
  bool ok_ = false;
};

}  // namespace fairlead::apiserver
