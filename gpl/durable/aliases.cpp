// SPDX-License-Identifier: GPL-3.0-or-later
// Steps after a restart (docs/design/028-addresses-of-workers.md). Workers are dynamic nodes: no slurm.conf names them, and srun, slurmd and slurmstepd learn their addresses from the job's "alias list" in the credential of the
// step. Slurm 22.05 makes that list when a job starts and does not save it. A slurmctld that was started again, or took over, would give out credentials without it, and each srun in a job that ran on would fail with "can't find
// address for host". Here the list is made again, by slurmctld's own function, when a credential lacks it.
//
// Which word of the credential it is shows the first time: what setup_cred_arg() says of the job before and after differs in that word alone. Where more than one differ nothing is changed.
#include <dlfcn.h>

#include "inside.h"

namespace durable {
namespace {

constexpr long kApi = 38;       // slurm_api_version() >> 16 of 22.05
constexpr size_t kWords = 256;  // slurm_cred_arg_t has fewer than half of that
constexpr size_t kUnknown = kWords;
void* (*next_create)(void*, void*, uintptr_t, uintptr_t) = nullptr;
void* (*find_job)(uint32_t) = nullptr;
void (*make_list)(void*) = nullptr;         // set_job_alias_list()
void (*describe)(void*, void*) = nullptr;   // setup_cred_arg()
size_t place = kUnknown;                    // of the list among the words of a credential

// Whoever makes a credential that is signed holds Slurm's locks of jobs, for writing, and of nodes: one thread at a time is here.
void complete(void* credential) {
  uintptr_t before[kWords] = {}, after[kWords] = {};
  uint32_t id;
  memcpy(&id, credential, sizeof id);  // slurm_step_id_t comes first
  auto* words = static_cast<unsigned char*>(credential);
  uintptr_t given = 0;
  if (place != kUnknown) memcpy(&given, words + place * sizeof given, sizeof given);
  if (given != 0) return;
  void* job = find_job(id);
  if (!job) return;
  describe(before, job);
  make_list(job);
  describe(after, job);
  size_t at = kUnknown;
  for (size_t i = 0; i < kWords; ++i) {
    if (before[i] == after[i]) continue;
    if (at != kUnknown) return;
    at = i;
  }
  if (at == kUnknown) return;  // a job that has its list, and got the same memory for it again; or one that needs none
  memcpy(&given, words + at * sizeof given, sizeof given);
  if (given != before[at]) return;
  place = at;
  memcpy(words + at * sizeof given, &after[at], sizeof given);  // also where there was one: its memory is free now
}

}  // namespace

void start_aliases() {
  long (*api_version)() = nullptr;
  find(api_version, "slurm_api_version", RTLD_DEFAULT);
  if (api_version() >> 16 != kApi) return;
  find(find_job, "find_job_record", RTLD_DEFAULT);
  find(describe, "setup_cred_arg", RTLD_DEFAULT);
  find(make_list, "set_job_alias_list", RTLD_DEFAULT);
}

}  // namespace durable

EXPORTED void* slurm_cred_create(void* context, void* credential, uintptr_t sign, uintptr_t version) {
  if (!durable::next_create) durable::find(durable::next_create, "slurm_cred_create", RTLD_NEXT);
  if (durable::describe && (sign & 0xff)) durable::complete(credential);
  return durable::next_create(context, credential, sign, version);
}
