// SPDX-License-Identifier: Apache-2.0
// Slurm's releases and which of them understand one another. Pure. The rules are those of Slurm's upgrade guide (slurm.schedmd.com/upgrades.html, "Compatibility window"): a daemon reads the records, the saved state and the messages of its own
// release and of the two before it, from 24.11 on of the three before it; never of a later one.
#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::slurm {

struct Version {
  int year = 0, month = 0, patch = 0;  // 22.05.8: a release, 22.05, and its patch level
  bool same_release(const Version& other) const { return year == other.year && month == other.month; }
  bool earlier_release(const Version& other) const { return year != other.year ? year < other.year : month < other.month; }
  std::string release() const;  // "22.05"
  std::string text() const;     // "22.05.8"
  friend auto operator<=>(const Version&, const Version&) = default;
};

// Of what a daemon answers to -V: "slurm-wlm 22.05.8", "slurm 24.11.5-1", "slurm 26.05.0-0rc1". None: there is no version in it.
std::optional<Version> read_version(std::string_view words);

bool known(const Version& version);     // is its release in the table?
std::string newest_known_release();

// May `newer` take over what `older` wrote, and be spoken to by it? Of one release: in both directions. Of different ones: false where either is not known.
bool accepts(const Version& newer, const Version& older);

// The fewest releases to go through, the last one `to`'s own. Empty: there is no way (backwards, not known).
std::vector<std::string> way(const Version& from, const Version& to);

}  // namespace fairlead::slurm
