// SPDX-License-Identifier: GPL-3.0-or-later
// Files of a root that many hands write records into: people, groups, installed packages. Two sides that added different records do not contradict one another.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::companion {

enum class Records {
  Named,    // NAME:... (passwd, group, shadow, gshadow)
  Lines,    // each line is one (shells, subuid)
  Stanzas,  // Package: and Architecture: (dpkg's status)
};
// How the file at this path is merged; none: as a whole.
std::optional<Records> records_of(std::string_view path);

struct Merged {
  std::string text;
  std::vector<std::string> carried;    // names of records that came from `mine`
  std::vector<std::string> conflicts;  // "ada: changed here and in the new image": that of `theirs` stands in the text
};
// Three ways: what `mine` added, changed or removed since `base` is done to `theirs`, unless `theirs` changed the same record. A number of passwd or group that two names come to have is a conflict; both stay.
Merged merge_records(Records kind, const std::string& base, const std::string& mine, const std::string& theirs);

}  // namespace fairlead::companion
