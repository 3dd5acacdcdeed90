// SPDX-License-Identifier: Apache-2.0
// Telling options of srun and sbatch from the command that follows them. Pure but for the question whether a word is a script.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::cli {

struct Words {
  std::vector<std::string> options;  // of srun or sbatch
  std::string script;                // a local batch script; empty: `command` is for srun
  std::vector<std::string> command;  // the command and its arguments, or the script's arguments
};
// A word with a dash is an option; a short one without its value (-N) takes the next word, unless that is a script.
Words split_words(const std::vector<std::string>& words, const std::function<bool(const std::string&)>& is_script);

// Why this cannot be a user of a Slurm cluster: a sentence; empty: it can.
std::string trouble_of_user(const std::string& name);
// The token in what `scontrol token` prints ("SLURM_JWT=..."); empty: there is none.
std::string token_of(std::string_view output);

std::string shell_quote(const std::string& word);

}  // namespace fairlead::cli
