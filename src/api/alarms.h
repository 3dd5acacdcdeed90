// SPDX-License-Identifier: Apache-2.0
// What watches a cluster while its software is updated: alarms by name (docs/design/065-software-rollback.md). A port.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace fairlead::api {

struct Alarm {
  // Pending: what it looks at is as it should not be, not yet for as long as it asks for. Missing: there is none of that name. Unknown: it could not be read, or is not looked after.
  enum class State { Ok, Pending, Firing, Missing, Unknown };
  State state = State::Unknown;
  std::string message;  // why, in one sentence of printable characters; of Ok: empty
};

class Alarms {
 public:
  virtual ~Alarms() = default;
  // Each of `names`. Thread-safe; what was read in the last seconds may be told again; waits seconds at most.
  virtual std::map<std::string, Alarm> look(const std::vector<std::string>& names) const = 0;
};

}  // namespace fairlead::api
