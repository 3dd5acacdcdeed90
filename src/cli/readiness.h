// SPDX-License-Identifier: Apache-2.0
// When is an object as its user wants it? Pure; for `up`, which waits.
#pragma once
#include <string>

#include "kube/json.h"

namespace fairlead::cli {

struct Readiness {
  enum class State { Ready, Waiting, Refused } state = State::Ready;
  std::string why;  // what it waits for, or why it never will be ready; short
  friend bool operator==(const Readiness&, const Readiness&) = default;
};
// `node`: of a Machine, its Node; null: not there. Kinds that need no waiting are ready once they are there.
Readiness readiness_of(const kube::Json& object, const kube::Json& node = {});

}  // namespace fairlead::cli
