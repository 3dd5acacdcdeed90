// SPDX-License-Identifier: GPL-3.0-or-later
#include "slurmd_conf.h"

#include <errno.h>
#include <unistd.h>

#include "base/files.h"

namespace fairlead::companion {
namespace {

// Beside slurm.conf, of those that 22.05 sends (slurm.conf(5), section on configless operation), the ones that a configuration of ours may have.
constexpr const char* kSent[] = {"acct_gather.conf", "cgroup.conf", "gres.conf", "job_container.conf", "mpi.conf", "plugstack.conf", "topology.conf"};

}  // namespace

Result<void> put_slurmd_conf(const std::string& folder, const std::map<std::string, std::string>& files) {
  if (!exists(folder + "/slurm.conf")) return fail(Code::NotFound, folder + " holds no configuration that slurmctld sent");
  for (const char* name : kSent) {
    const auto file = files.find(name);
    const std::string path = folder + "/" + name;
    if (file == files.end()) {
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + path);
    } else if (auto written = write_file_atomically(path, file->second, 0644); !written) {
      return written;
    }
  }
  return write_file_atomically(folder + "/slurm.conf", files.at("slurm.conf"), 0644);
}

}  // namespace fairlead::companion
