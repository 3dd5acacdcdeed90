// SPDX-License-Identifier: GPL-3.0-or-later
// What the parts of the preloaded library share. There is no C++ library here: no exceptions, no containers.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace durable {

__attribute__((format(printf, 1, 2))) void tell(const char* format, ...);
[[noreturn]] void refuse(const char* why);  // slurmctld is not started
void* find_symbol(const char* name, void* where);  // or refuse()
template <class Function>
void find(Function& function, const char* name, void* where) {
  void* found = find_symbol(name, where);
  memcpy(&function, &found, sizeof found);
}
// At the start of slurmctld. In threads of ours no signal is delivered: they are slurmctld's own business.
void start_thread(void* (*body)(void*));

timespec in_ms(long ms);  // by CLOCK_MONOTONIC

// A sum that tells a torn or edited line (FNV-1a).
uint32_t sum_of(const void* bytes, size_t size);

bool sync_path(const char* path);  // a file or folder; one that is gone again needs nothing
bool parent_of(const char* path, char (&folder)[4096]);

// ---- ids.cpp: no id is issued before a mark above it is on disk (gpl/id_mark.h)
void start_ids(const char* state, const char* page, const char* range);  // null: without

// ---- keys.cpp: a submission with a key that was seen before is answered with the id of the first
void start_keys(const char* state, size_t type_at);
void issued_in_this_thread(uint32_t id);  // get_next_job_id() gives it out
bool keys_are_saved();                    // before a state gets its name; false: errno tells why, and it must not
void answered_in_this_thread();           // a submission is confirmed, or nobody is there to be told
void refused_in_this_thread();

// ---- admission.cpp: jobs are held when they are made, where the cluster's quotas are kept elsewhere
void start_admission(size_t type_at);
bool takes_submission(void* message, uint16_t type);  // each message that was received; false: it has its answer
void hold_what_this_thread_submits();                 // get_next_job_id() gives out an id
void forget_submission();                             // it has its answer: what it was made of may be gone

// ---- defunct.cpp: files of jobs that are no more known are removed when slurmctld serves
void start_defunct();
bool put_off(const char* path, uintptr_t caller);  // the folder of a job; true: to be said that it is not there
void begins_to_serve();  // the first message, the first save

// ---- accounting_queue.cpp: what slurmdbd has not taken yet is on disk
void start_accounting_queue(const char* state);
void wait_for_accounting();  // before an answer: what this thread had for slurmdbd is taken or on disk, if that is possible

// ---- aliases.cpp: credentials of steps tell where the workers are, also of jobs that started before this slurmctld
void start_aliases();

}  // namespace durable

EXPORTED int slurm_send_node_msg(long connection, void* message);
