// SPDX-License-Identifier: GPL-3.0-or-later
// The few declarations of slurm/spank.h (22.05) that the plug-in uses, so that no build machine needs Slurm's headers. C linkage, no C++ library.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

struct spank_handle;
struct spank_option {
  const char *name, *arginfo, *usage;
  int has_arg, val;
  int (*cb)(int val, const char* value, int remote);
};
extern "C" {
int spank_context(void);
int spank_get_item(spank_handle* spank, int item, ...);
int spank_option_register(spank_handle* spank, spank_option* option);
int spank_getenv(spank_handle* spank, const char* name, char* to, int room);
int spank_setenv(spank_handle* spank, const char* name, const char* value, int overwrite);
int spank_unsetenv(spank_handle* spank, const char* name);
void slurm_error(const char* format, ...);
void slurm_spank_log(const char* format, ...);
}

constexpr int kRemote = 2;                    // S_CTX_REMOTE: in slurmstepd
constexpr int kJobUid = 0, kJobGid = 1;       // S_JOB_UID ...
constexpr int kJobStepId = 3;                 // S_JOB_STEPID
constexpr int kTaskId = 11;                   // S_TASK_ID: on this node
constexpr int kJobGroups = 19;                // S_JOB_SUPPLEMENTARY_GIDS
constexpr uint32_t kExternStep = 0xfffffffc;  // SLURM_EXTERN_CONT: holds the job's processes that are no step; runs nothing of the user

// spank_jail.cpp. Why this task may not start; the first reason counts.
extern char refusal[1024];

// spank_container.cpp
void register_container_options(spank_handle* spank);
void enter_container(spank_handle* spank);       // in the task, as root
void take_on_container(spank_handle* spank);     // in the task, as its user
