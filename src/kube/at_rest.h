// SPDX-License-Identifier: Apache-2.0
// An object as its engine keeps it: shared, immutable, decoded on demand. A cache holds these, so that where the engine lives in the same process the object is in memory once.
#pragma once
#include <memory>
#include <utility>

#include "kube/json.h"

namespace fairlead::kube {

class AtRest {
 public:
  // Makes the object of what is held. Any thread.
  using Decode = Json (*)(const void* held);

  AtRest() = default;  // nothing
  // Of an engine: `held` must never change, and must decode.
  AtRest(std::shared_ptr<const void> held, Decode decode) : held_(std::move(held)), decode_(decode) {}
  // A copy in a form of our own, for objects that came over a wire.
  static AtRest of(const Json& object);

  explicit operator bool() const { return held_ != nullptr; }
  Json json() const { return held_ ? decode_(held_.get()) : Json(); }

 private:
  std::shared_ptr<const void> held_;
  Decode decode_ = nullptr;
};

}  // namespace fairlead::kube
