// SPDX-License-Identifier: Apache-2.0
#include "apiserver/registry_select.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <array>

#include "apiserver/registry_bytes.h"
#include "apiserver/registry_names.h"

namespace fairlead::apiserver {

namespace {

// Absent booleans read as "false" in Kubernetes' field selectors.
constexpr std::array boolean_fields{"spec.unschedulable", "spec.hostNetwork"};

bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
}

}  // namespace

Result<Selection> Selection::make(const Kind& kind, const std::string& label_selector, const std::string& field_selector) {
  Selection out;
  out.resource_ = kind.resource;
  auto labels = kube::LabelSelector::parse(label_selector);
  if (!labels) return fail(Code::Invalid, labels.error().message);
  out.labels_ = std::move(*labels);
  const auto fields = kube::FieldSelector::parse(field_selector);
  if (!fields) return fail(Code::Invalid, fields.error().message);
  for (const auto& term : fields->terms()) {
    const bool known = term.field == "metadata.name" || term.field == "metadata.namespace" ||
                       std::find(kind.selectable_fields.begin(), kind.selectable_fields.end(), term.field) != kind.selectable_fields.end();
    if (!known && !kind.schema && kind.selectable_fields.empty())
      return fail(Code::Invalid, fmt::format("\"{}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", term.field));
    if (!known) return fail(Code::Invalid, fmt::format("field label not supported: {}", term.field));
    Term made{term.field, term.value, term.equal, {}};
    const bool boolean = std::find(boolean_fields.begin(), boolean_fields.end(), term.field) != boolean_fields.end() ||
                         std::find(kind.unquoted_fields.begin(), kind.unquoted_fields.end(), term.field) != kind.unquoted_fields.end();
    if (term.equal && !boolean && !term.value.empty() && plain(term.value)) made.needle = fmt::format("\"{}\":\"{}\"", term.field.substr(term.field.rfind('.') + 1), term.value);
    out.fields_.push_back(std::move(made));
  }
  return out;
}

bool Selection::matches(std::string_view store_key, std::string_view bytes) const {
  bool parse = !labels_.empty();
  for (const Term& term : fields_) {
    if (term.field == "metadata.name" || term.field == "metadata.namespace") {
      const auto key = object_key(resource_, store_key);
      const std::string& actual = term.field == "metadata.name" ? key.name : key.space;
      if ((actual == term.value) != term.equal) return false;
    } else {
      if (!term.needle.empty() && !::memmem(bytes.data(), bytes.size(), term.needle.data(), term.needle.size())) return false;
      parse = true;
    }
  }
  if (!parse) return true;
  Peek peek(bytes);
  for (const Term& term : fields_) {
    if (term.field == "metadata.name" || term.field == "metadata.namespace") continue;
    auto actual = peek.field(term.field);
    if (!actual && std::find(boolean_fields.begin(), boolean_fields.end(), term.field) != boolean_fields.end()) actual = "false";
    if ((actual.value_or("") == term.value) != term.equal) return false;
  }
  return labels_.empty() || labels_.matches(peek.labels());
}

}  // namespace fairlead::apiserver
