// SPDX-License-Identifier: Apache-2.0
// Which objects a list or watch wants: label and field selectors over bytes. Immutable, thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "apiserver/registry.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

class Selection {
 public:
  // Invalid (400): a selector that does not parse, or a field by which this kind cannot be selected.
  static Result<Selection> make(const Kind& kind, const std::string& label_selector, const std::string& field_selector);
  bool everything() const { return labels_.empty() && fields_.empty(); }
  // Cheap checks first: names come from the store key, and a value that is nowhere in the bytes needs no parsing.
  bool matches(std::string_view store_key, std::string_view bytes) const;

 private:
  struct Term {
    std::string field, value;
    bool equal = true;
    std::string needle;  // `"nodeName":"n1"`: must be in the bytes for equality to hold; empty: unknown
  };
  kube::Resource resource_;
  kube::LabelSelector labels_;
  std::vector<Term> fields_;
};

}  // namespace fairlead::apiserver
