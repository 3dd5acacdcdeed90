// SPDX-License-Identifier: Apache-2.0
#include "kube/at_rest.h"

#include <string>

namespace fairlead::kube {

AtRest AtRest::of(const Json& object) {
  std::string text = print_json(object);
  text.shrink_to_fit();  // it grew by doubling
  return {std::make_shared<const std::string>(std::move(text)), [](const void* held) {
            auto value = parse_json(*static_cast<const std::string*>(held));
            INVARIANT(value);  // our own print of a value parses
            return std::move(*value);
          }};
}

}  // namespace fairlead::kube
