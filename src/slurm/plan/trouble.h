// SPDX-License-Identifier: Apache-2.0
// What the last words of a container that does not stay up mean, and what is to be done about it. Pure; what is not known is told as it is.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "kube/json.h"

namespace fairlead::slurm {

struct Trouble {
  const char* reason;   // CamelCase, for a condition
  const char* remedy;   // completes a sentence: "...: use an image ..."
};
// Of known messages of slurmctld, slurmd, munged, sshd, fairlead-slurm and container runtimes; none: not known.
std::optional<Trouble> known_trouble(std::string_view words);

// One line of what a container wrote last: the last that names an error, else the last. At most 300 bytes, no control characters.
std::string last_words(std::string_view log);

struct PodTrouble {
  std::string text;    // for people, with the remedy where one is known
  std::string reason;  // of known_trouble; empty: none
};
// Why a pod is not ready, in its own words.
PodTrouble pod_trouble(const kube::Json& pod);

// The munge key that a pod was started with, as annotation fairlead.dev/munge-key: the key cannot be found from it. Empty: the Secret holds none.
std::string munge_mark(const kube::Json& secret);
inline constexpr const char* kMungeMark = "fairlead.dev/munge-key";

}  // namespace fairlead::slurm
