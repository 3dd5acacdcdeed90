// SPDX-License-Identifier: GPL-3.0-or-later
// Jobs of a cluster whose quotas are kept elsewhere are held from their first moment (docs/design/033-slurm-jobs-in-the-ledger.md), as by an administrator: who submitted one cannot let it go.
//
// _job_create() reads the priority of a submission twice: first for what its user wished (0: his own hold, which he may lift), then for what the job gets. In between it asks for the job's id. There, in the thread that submits,
// the priority becomes 0. So what makes the job makes it held, under one lock, and no saved state has it otherwise.
// Asked for by a file of the configuration, which is looked for at each submission. What is read of foreign structures is that of one API of Slurm; with another nothing is held here, and the log says so.
#include <dlfcn.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "inside.h"

namespace durable {
namespace {

// Slurm 22.05: slurm_api_version() >> 16; offsets in job_desc_msg_t, and in slurm_msg_t, as in keys.cpp.
constexpr long kApi = 38;
constexpr size_t kAdminComment = 16, kPriority = 472, kUser = 680, kAuthenticatedUser = 140, kDataBeforeType = 16;
enum : uint16_t { kAllocate = 4001, kSubmit = 4003, kAllocateHet = 4025, kSubmitHet = 4028 };
constexpr int kHeld = 2042;  // ESLURM_JOB_HELD

size_t type_at = 0;
const char* wanted = "/etc/slurm/fairlead-admission";
uint32_t nobody = 65534;
int (*for_each)(void*, int (*)(void*, void*), void*) = nullptr;
int (*send_error)(void*, int, char*) = nullptr;
int (*send_code)(void*, int) = nullptr;
char* (*copy_of)(const char*) = nullptr;  // of Slurm's own memory

// Of the thread that submits: the description of the job, or the list of those of its components, and how many have their id.
thread_local void* submission = nullptr;
thread_local bool of_components = false;
thread_local int issued = 0;

template <class T>
T at(const void* structure, size_t offset) {
  T value;
  memcpy(&value, static_cast<const char*>(structure) + offset, sizeof value);
  return value;
}

// Told in the job, for its user and for whoever lets it go when the cluster's quotas are kept no more.
void hold(void* job) {
  const uint32_t none = 0;
  memcpy(static_cast<char*>(job) + kPriority, &none, sizeof none);
  if (at<char*>(job, kAdminComment)) return;
  char* words = copy_of("fairlead: held until a queue admits it");
  memcpy(static_cast<char*>(job) + kAdminComment, &words, sizeof words);
}

struct Look {
  int left;        // components to be passed over
  bool held_by_user;
  void* job;
};
int nth(void* job, void* of) {
  auto* look = static_cast<Look*>(of);
  if (look->left-- > 0) return 0;
  look->job = job;
  return -1;  // no further
}
int wishes(void* job, void* of) {
  auto* look = static_cast<Look*>(of);
  if (!look->job) look->job = job;
  look->held_by_user = look->held_by_user || at<uint32_t>(job, kPriority) == 0;
  return 0;
}

}  // namespace

void start_admission(size_t type) {
  if (const char* path = getenv("FAIRLEAD_ADMISSION"); path && *path) wanted = path;
  long (*api_version)() = nullptr;
  find(api_version, "slurm_api_version", RTLD_DEFAULT);
  if (api_version() >> 16 != kApi) {
    if (access(wanted, F_OK) == 0) tell("fairlead: with this version of Slurm no job is held when it is submitted: jobs may start before their queue admits them");
    return;
  }
  find(for_each, "slurm_list_for_each_ro", RTLD_DEFAULT);
  find(copy_of, "slurm_xstrdup", RTLD_DEFAULT);
  find(send_error, "slurm_send_rc_err_msg", RTLD_NEXT);
  find(send_code, "slurm_send_rc_msg", RTLD_NEXT);
  if (const passwd* user = getpwnam("nobody")) nobody = user->pw_uid;
  type_at = type;
}

bool takes_submission(void* message, uint16_t type) {
  submission = nullptr;
  issued = 0;
  if (type_at == 0 || (type != kAllocate && type != kSubmit && type != kAllocateHet && type != kSubmitHet)) return true;
  // Whatever keeps the file from being read: held. Only that it is not there lets jobs begin by themselves.
  if (access(wanted, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) return true;
  void* data = at<void*>(message, type_at - kDataBeforeType);
  if (!data) return true;
  of_components = type == kAllocateHet || type == kSubmitHet;
  Look look{0, false, nullptr};
  if (of_components) for_each(data, wishes, &look);
  else wishes(data, &look);
  if (!look.job || at<uint32_t>(look.job, kUser) == nobody) return true;  // checks of nodes
  const auto asker = at<uint32_t>(message, kAuthenticatedUser);
  if (look.held_by_user && asker != 0 && asker != geteuid()) {
    char why[] = "jobs of this cluster are held until their queue admits them; a hold of your own, which you could lift, is not possible: leave out --hold";
    if (type == kSubmit || type == kSubmitHet) send_error(message, kHeld, why);
    else send_code(message, kHeld);
    return false;
  }
  submission = data;
  return true;
}

void hold_what_this_thread_submits() {
  if (!submission) return;
  Look look{issued++, false, nullptr};
  if (of_components) for_each(submission, nth, &look);
  else if (issued == 1) look.job = submission;
  if (look.job) hold(look.job);
}

void forget_submission() { submission = nullptr; }

}  // namespace durable
