// SPDX-License-Identifier: Apache-2.0
// Two JSON documents: a schema and an object. Whatever they are, nothing crashes; and what a schema has pruned and defaulted, it leaves alone a second time.
#include <cstddef>
#include <cstdint>

#include "apiserver/schema.h"
#include "kube/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto split = text.find('\n');
  if (split == std::string_view::npos) return 0;
  const auto schema_json = kube::parse_json(text.substr(0, split));
  auto object = kube::parse_json(text.substr(split + 1));
  if (!schema_json || !object) return 0;
  apiserver::FieldErrors errors;
  const auto schema = apiserver::Schema::compile(*schema_json, "schema", errors);
  if (!schema) return 0;
  (void)schema->prune(*object);
  schema->apply_defaults(*object);
  (void)schema->prune(*object);  // a default may bring members that the schema does not know
  schema->apply_defaults(*object);
  const kube::Json once = *object;
  (void)schema->prune(*object);
  schema->apply_defaults(*object);
  apiserver::FieldErrors complaints;
  schema->validate(*object, complaints);
  INVARIANT(complaints.empty() == complaints.texts().empty());
  return 0;
}
