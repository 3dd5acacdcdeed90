// SPDX-License-Identifier: Apache-2.0
// Why a worker that runs does not join: slurmctld drops what it cannot decode without a word to the other side, so the worker's munge is asked what it makes of a credential of the head's. Pure.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/plan/reconcile.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {

// The head whose munge makes a credential (`munge -n`), and the workers whose munge reads it (`unmunge`): at most kMostAsked of those that run, are not ready and are no newcomers, the first ones by name. Newcomers alone: nobody yet.
struct MungeAsk {
  kube::ObjectKey head;
  std::vector<ConfigOf> workers;
};
inline constexpr std::size_t kMostAsked = 8;
inline constexpr auto kAskMungeAgain = std::chrono::seconds(30);
// None: every worker that runs is ready.
std::optional<MungeAsk> wants_munge_words(const Snapshot& snapshot, const std::string& default_image, Instant now);

// Output of unmunge(1), which tells of a refused credential, too: of one that is too old or too new with its times, of another key's as an error alone. Nothing: it has no status that munge has.
std::optional<MungeWord> read_munge_word(std::string_view output);

// For people: "munge there says of the head's credential: Expired credential (...): ...". None: it was taken.
std::optional<Trouble> munge_trouble(const MungeWord& word);
std::string munge_words(const MungeWord& word);

}  // namespace fairlead::slurm
