// SPDX-License-Identifier: GPL-3.0-or-later
// Reads the JSON of images: what others wrote. Bounded in depth; the caller bounds the size.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct JsonValue {
  enum class Kind { Null, Bool, Number, Text, List, Object } kind = Kind::Null;
  std::string text;                                       // of a text; a number or bool as it is written
  std::vector<JsonValue> items;                           // of a list; of an object its members' values
  std::vector<std::string> names;                         // of an object, one an item, in order; of equal names the first counts

  const JsonValue* find(std::string_view name) const;     // nullptr: no object, or it has none of that name
  std::string_view text_of(std::string_view name) const;  // empty: absent, or no text
};
// Invalid: no JSON, or deeper than 32.
Result<JsonValue> read_json(std::string_view bytes);

}  // namespace fairlead::companion
