// SPDX-License-Identifier: GPL-3.0-or-later
// A SPANK plug-in: every job step lives in the shared root file system ("jail") and not in the worker's container.
//
// It acts once per slurmstepd, before that opens the job's output files and changes into its folder, so that every path a user gives is one of the jail: the script's folder, --chdir, --output. slurmstepd itself
// moves, and the tasks that it forks are born there. What must be seen inside (proc, devices, the munge socket, Slurm's spool with the batch scripts) the companion has mounted below the jail before slurmd started.
//
// It fails closed: a step whose root cannot be entered starts nothing and says why on its standard error. It says so when the first task is about to start, not at once: a plug-in that refuses to initialise makes slurmctld
// drain the node (proc_req.c, _slurm_rpc_complete_batch_script), which one bad moment of a shared file system should not.
//
// A task that asks for an image moves on from there (spank_container.cpp).
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spank.h"

char refusal[1024];

namespace {

void refuse(const char* doing, const char* path, int error) {
  snprintf(refusal, sizeof refusal, "the shared root %s cannot be entered: %s: %s", path, doing, strerror(error));
  slurm_error("fairlead: %s", refusal);
}

// Only a root that the companion has finished shows the container's own /run.
bool is_assembled(int root) {
  struct stat inside, outside;
  return fstatat(root, "run/fairlead/jail", &inside, AT_SYMLINK_NOFOLLOW) == 0 && stat("/run/fairlead/jail", &outside) == 0 && inside.st_dev == outside.st_dev && inside.st_ino == outside.st_ino;
}

// The thread that answers slurmd keeps the container's view; only this one, and what it forks, moves.
void enter(const char* path) {
  if (unshare(CLONE_NEWNS) != 0) return refuse("unshare", path, errno);
  // Mounts of the node still arrive here; ours never go out.
  if (mount("", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return refuse("make mounts private", path, errno);
  // Opened now: a descriptor from before would lead to the mount of the namespace that we have left.
  const int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return refuse("open", path, errno);
  if (!is_assembled(root)) refuse("it is not mounted completely on this node", path, ESTALE);
  else if (fchdir(root) != 0) refuse("change into", path, errno);
  // The old root ends up on top of the new one and is taken off: no folder in the jail is needed for it, and nothing of the container remains to be reached.
  else if (syscall(SYS_pivot_root, ".", ".") != 0) refuse("pivot_root", path, errno);
  else if (umount2(".", MNT_DETACH) != 0) refuse("leave the container's root", path, errno);
  else if (chdir("/") != 0) refuse("change into", path, errno);
  close(root);
}

}  // namespace

EXPORTED const char plugin_name[];
EXPORTED const char plugin_type[];
EXPORTED const unsigned int plugin_version;
const char plugin_name[] = "spank_jail";
const char plugin_type[] = "spank";
const unsigned int plugin_version = (22 << 16) | (5 << 8) | 8;  // Slurm compares the first two

EXPORTED int slurm_spank_init(spank_handle* spank, int, char**) {
  register_container_options(spank);
  return 0;
}

// plugstack.conf: required /run/fairlead/spank_jail.so ROOT
EXPORTED int slurm_spank_init_post_opt(spank_handle* spank, int count, char** arguments) {
  if (spank_context() != kRemote) return 0;
  uint32_t step = 0;
  if (spank_get_item(spank, kJobStepId, &step) != 0) refuse("ask which step this is", count > 0 ? arguments[0] : "", EINVAL);
  else if (step == kExternStep) return 0;
  else if (count < 1) refuse("plugstack.conf does not name it", "", EINVAL);
  else enter(arguments[0]);
  return 0;
}

// In the task itself, before it becomes its user. slurmstepd has let it go by then: what takes long here is the task's time, and ends when the task is killed.
EXPORTED int slurm_spank_task_init_privileged(spank_handle* spank, int, char**) {
  uint32_t step = 0;
  if (spank_context() != kRemote || refusal[0] != '\0' || spank_get_item(spank, kJobStepId, &step) != 0 || step == kExternStep) return 0;
  enter_container(spank);
  return 0;
}

// In the task itself, as its user, just before exec: its standard error is the user's.
EXPORTED int slurm_spank_task_init(spank_handle* spank, int, char**) {
  if (spank_context() != kRemote) return 0;
  if (refusal[0] == '\0') take_on_container(spank);
  if (refusal[0] == '\0') return 0;
  dprintf(STDERR_FILENO, "fairlead: this step was not started: %s\n", refusal);
  _exit(1);  // what slurmstepd does when this function fails, without its two lines on a plug-in
}
