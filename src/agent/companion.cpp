// SPDX-License-Identifier: Apache-2.0
#include "agent/companion.h"

#include <sys/stat.h>

#include "base/files.h"

namespace fairlead::agent {

Result<bool> place_companion(const std::string& source, const std::string& folder) {
  auto program = read_file(source, 256_MiB);
  if (!program) return pass(std::move(program.error()), "read the companion program");
  if (auto made = make_dirs(folder, 0755); !made) return pass(std::move(made.error()), "make " + folder);
  const std::string target = folder + "/fairlead-slurm";
  struct stat facts {};
  const bool executable = ::stat(target.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && (facts.st_mode & 0777) == 0755;
  if (executable) {
    auto have = read_file(target, 256_MiB);
    if (have && *have == *program) return false;
  }
  auto done = write_file_durably(target, *program, 0755);
  if (!done) return pass(std::move(done.error()), "write " + target);
  return true;
}

}  // namespace fairlead::agent
