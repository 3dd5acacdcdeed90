// SPDX-License-Identifier: GPL-3.0-or-later
// A submission that is repeated until it has an answer (docs/design/018-ids-and-keys.md): sbatch with a key, so that trying again after a failover, or after an answer that was lost, makes no second job.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct Submission {
  std::string key;                 // empty: one is made up
  int limit_seconds = 120;         // for an answer
  bool help = false;
  std::vector<std::string> sbatch;  // its arguments
};
// [--key K] [--for SECONDS] [--comment TEXT] [--] sbatch's own arguments. `key_of_our_own` where none is given.
Result<Submission> read_submission(const std::vector<std::string>& arguments, const std::string& key_of_our_own);

// What sbatch said when it failed: may the same be tried again? No: it was told why not, or was not understood.
bool may_try_again(std::string_view said);

// The command `submit`: prints the id, as sbatch --parsable does. Exit status 0; sbatch's where it was refused; 75 where nobody answered in time.
int run_submit(const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
