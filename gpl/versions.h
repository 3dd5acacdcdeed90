// SPDX-License-Identifier: GPL-3.0-or-later
// Old versions of the shared root: in which order they served, who lives in them, which may go. On the jail volume:
//
//   .fairlead-jail.history         names of what was current, each written after it became so, the last one at the end
//   .fairlead-jail.nodes/NODE      the versions that a node may have processes in: written before it uses one, and again when it is seen to use one no more
//   .fairlead-jail.manifests/V     manifest.h; V.base/etc/passwd ...: the merged files as the image had them; V.unserved: V is whole and was never current; V.carried: a manifest of what
//                                  is in V and not in V alone, as it was filled or as it was last carried over to another version
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

// By path of the volume. Durable when it returns.
Result<void> note_current(const std::string& volume, const std::string& version);
Result<std::vector<std::string>> read_history(const std::string& volume);  // oldest first; of names that are versions'; empty: nobody noted any
Result<void> note_use(const std::string& volume, const std::string& node, const std::set<std::string>& versions);
// By node. Invalid: a record that cannot be read; then nothing is known.
Result<std::map<std::string, std::set<std::string>>> read_uses(const std::string& volume);

struct Removal {
  std::vector<std::string> remove;
  std::vector<std::string> kept;  // "V: worker-0 uses it"
};
// Of `there` the current one and the `keep` that served last before it stay. Any other goes if every node of `nodes` has said what it uses, and no node, of these or others, uses it.
Removal plan_removal(const std::vector<std::string>& there, const std::vector<std::string>& history, const std::string& current, std::size_t keep, const std::map<std::string, std::set<std::string>>& uses,
                     const std::vector<std::string>& nodes);

std::string manifest_path(const std::string& volume, const std::string& version);
std::string base_files_path(const std::string& volume, const std::string& version);
std::string carried_path(const std::string& volume, const std::string& version);
std::string unserved_path(const std::string& volume, const std::string& version);

}  // namespace fairlead::companion
