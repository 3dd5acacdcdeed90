// SPDX-License-Identifier: Apache-2.0
// Links between machines that were tried together (InstanceConnectivity, docs/design/058): who tries whom, and who is at fault. Pure.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::fleet {

// At most so many meet; more are divided into meetings of like size. What each writes down of the others stays below 1 KiB.
inline constexpr std::size_t kMostInMeeting = 32;
// Those of `waiting` (sorted) that meet together with `id`, which is one of them.
std::vector<std::string> meeting_of(const std::vector<std::string>& waiting, const std::string& id);

// Whom a member tries: those 1, 2, 4, 8 and 16 places after it in the sorted list, around its end. Up to five members try every pair.
std::vector<std::string> link_peers(const std::vector<std::string>& members, const std::string& of);

// What one attempt came to. Unknown: it could not be made (nobody listened), which says nothing of the link.
struct LinkWord {
  enum class State { Well, Fault, Unknown };
  State state = State::Unknown;
  std::string words;
  bool operator==(const LinkWord&) const = default;
};
using LinkWords = std::map<std::string, LinkWord>;  // by peer
// The last word of `fairlead-slurm check-links`: lines of "PEER ok|fault|unknown WORDS". What is not of `peers` is dropped; a peer of which nothing is said is Unknown.
LinkWords read_link_words(std::string_view text, const std::vector<std::string>& peers);

struct LinkVerdict {
  enum class Kind {
    Passed,   // every link of it works, but for those to machines that are at fault themselves
    Faulty,   // none of its links works, and at least two of the others are known to reach somebody: it is the only thing in common
    Unknown,  // a link does not work, and whose fault that is cannot be told; or could not be tried
    Alone,    // nobody else told anything
  };
  Kind kind = Kind::Unknown;
  std::string words;
};
// `told`: by member what it says of those whom it tried; members that are gone are not in it, and nothing that is said of them counts.
LinkVerdict judge_links(const std::map<std::string, LinkWords>& told, const std::string& of);

}  // namespace fairlead::fleet
