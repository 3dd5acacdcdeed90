// SPDX-License-Identifier: Apache-2.0
#include "kube/controller.h"

#include <algorithm>

namespace fairlead::kube {

Access full_access(const Controller& controller) {
  auto access = controller.access();
  INVARIANT(access);
  for (const auto& source : controller.sources()) access->may({"get", "list", "watch"}, source.resource, "", source.space);
  return *access;
}

std::vector<ObjectKey> key_itself(const Change& change) { return {key_of(change.object())}; }

std::function<std::vector<ObjectKey>(const Change&)> key_of_owner(std::string kind) {
  return [kind = std::move(kind)](const Change& change) {
    std::vector<ObjectKey> keys;
    for (const auto* const object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr}) {
      if (object == nullptr) continue;
      const Json* const owner = controller_of(*object);
      if (owner == nullptr || (*owner)["kind"].string() != kind) continue;
      ObjectKey key{space_of(*object), (*owner)["name"].string()};
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(std::move(key));  // a new owner and the one that lost it
    }
    return keys;
  };
}

}  // namespace fairlead::kube
