// SPDX-License-Identifier: GPL-3.0-or-later
// Preloaded into slurmctld: nothing is acknowledged before the state on disk knows it.
//
// Slurm saves its state at most once in SAVE_MAX_WAIT = 5 s (src/slurmctld/state_save.c, the same from 22.05 to 25.05) and acknowledges from memory. A daemon that dies loses up to 5 s of confirmed jobs, gives their
// ids to other people's jobs, and forgets that jobs were started, so that it kills them when their nodes report them. Here
//   - a save starts at once when one is asked for: difftime() of the saving loop says that the wait is over,
//   - what makes a promise waits for a save that began after it: the answers to a submission, an allocation and a step, and the launch of a batch job.
// One save serves all that wait for it. A save counts once the new file has its name, and the scripts and environments of its jobs, which Slurm does not sync, and the folders are on the disk. What cannot be saved within the limit is not acknowledged: the sender sees a failed
// send, the client an outcome that it does not know.
//
// The functions are those that slurmctld imports from libslurmfull and libc, found by name; the only field of a foreign structure that is read, the type of a message (and the flags before it), is found by looking at
// what slurm_msg_t_init() writes. Anything that is not as expected ends the daemon before it starts: an acknowledgement must not be weaker than it says.
// Beside it, ids.cpp sees to it that no id is issued twice, keys.cpp that a submission that is repeated with its key makes no second job, aliases.cpp that jobs that ran on through a restart can start steps, and admission.cpp
// that jobs are held until their queue admits them where quotas are kept by Fairlead, accounting_queue.cpp
// that what slurmdbd has not taken yet is on disk, and defunct.cpp that files of forgotten jobs do not hold up the beginning.
// Environment: FAIRLEAD_DURABLE_LIMIT_MS (8000); FAIRLEAD_STATE: StateSaveLocation, with FAIRLEAD_ID_PAGE and FAIRLEAD_ID_RANGE (gpl/id_mark.h).
//
// On an elected head (docs/design/005) it also ties the daemon to the lease that its companion writes into the file FAIRLEAD_LEASE: at the end of the lease the daemon ends, whoever is stopped, and before that
// it sends nothing that is not covered. FAIRLEAD_HOST_NAME is what gethostname() says then: all heads stand for the one name in slurm.conf.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

namespace durable {

void tell(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (size <= 0) return;
  size_t end = static_cast<size_t>(size) < sizeof line - 1 ? static_cast<size_t>(size) : sizeof line - 2;
  line[end++] = '\n';
  if (write(2, line, end) < 0) return;
}

void refuse(const char* why) {
  tell("fairlead: slurmctld is not started: %s. Submissions could not be confirmed as durable with this version of Slurm.", why);
  _exit(78);
}

void* find_symbol(const char* name, void* where) {
  void* found = dlsym(where, name);
  if (!found) {
    char why[128];
    snprintf(why, sizeof why, "it has no %s()", name);
    refuse(why);
  }
  return found;
}

void start_thread(void* (*body)(void*)) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, nullptr) != 0) refuse("no thread can be started");
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

timespec in_ms(long ms) {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += ms / 1000;
  at.tv_nsec += ms % 1000 * 1000000L;
  if (at.tv_nsec >= 1000000000L) {
    at.tv_nsec -= 1000000000L;
    ++at.tv_sec;
  }
  return at;
}

uint32_t sum_of(const void* bytes, size_t size) {
  uint32_t sum = 0x811c9dc5;
  for (size_t i = 0; i < size; ++i) sum = (sum ^ static_cast<const unsigned char*>(bytes)[i]) * 0x01000193;
  return sum;
}

// A file or folder; one that is gone again needs nothing.
bool sync_path(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  const bool ok = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  errno = error;
  return ok;
}

bool parent_of(const char* path, char (&folder)[4096]) {
  const char* slash = strrchr(path, '/');
  const auto size = slash ? static_cast<size_t>(slash - path) : 0;
  if (size == 0 || size >= sizeof folder) return false;
  memcpy(folder, path, size);
  folder[size] = 0;
  return true;
}

}  // namespace durable

using durable::find;
using durable::in_ms;
using durable::parent_of;
using durable::refuse;
using durable::sync_path;
using durable::tell;

namespace {

// Values of slurm_msg_type_t, fixed by the protocol since 17.11.
enum : uint16_t {
  kAllocation = 4002,      // RESPONSE_RESOURCE_ALLOCATION: srun, salloc
  kSubmitted = 4004,       // RESPONSE_SUBMIT_BATCH_JOB
  kLaunch = 4005,          // REQUEST_BATCH_JOB_LAUNCH, to a slurmd
  kHetAllocation = 4026,   // RESPONSE_HET_JOB_ALLOCATION
  kStep = 5002,            // RESPONSE_JOB_STEP_CREATE
};
constexpr uint16_t kUnset = 0xfffe;           // NO_VAL16
constexpr uint16_t kQueueProcessing = 0x20;   // CTLD_QUEUE_PROCESSING: the sender holds Slurm's locks, a save could not begin

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t saved;
uint64_t begun = 0, done = 0, wanted = 0;     // cycles of the saving loop
long limit_ms = 8000;
size_t type_at = 0;                           // offset of msg_type in slurm_msg_t
uintptr_t loop = 0;                           // slurmctld_state_save()
void (*ask_for_save)() = nullptr;             // schedule_job_save()
thread_local uint64_t my_cycle = 0;           // in the thread that saves

// {magic, end of the lease by CLOCK_BOOTTIME in ns}; see gpl/lease_page.h.
struct Lease {
  uint64_t magic;
  int64_t until;
};
constexpr uint64_t kLeaseMagic = 0x31455341454c4c46;  // "FLLEASE1"
const volatile Lease* lease = nullptr;
char host_name[256];

double (*next_difftime)(time_t, time_t) = nullptr;
int (*next_link)(const char*, const char*) = nullptr;
int (*next_creat)(const char*, mode_t) = nullptr;
int (*next_send_node)(long, void*) = nullptr;
int (*next_send_only)(void*) = nullptr;
void (*next_send_maybe)(void*) = nullptr;
void* (*next_send_addr)(void*, char*, int) = nullptr;
void* (*next_send_many)(const char*, void*, int) = nullptr;
void* (*next_send_tree)(void*, void*, int) = nullptr;
int (*next_gethostname)(char*, size_t) = nullptr;

// slurm_msg_t_init() sets msg_type and the protocol_version behind it to NO_VAL16, and nothing else to that.
size_t offset_of_type() {
  void (*init)(void*) = nullptr;
  find(init, "slurm_msg_t_init", RTLD_DEFAULT);
  alignas(64) static unsigned char message[4096];
  memset(message, 0xa5, sizeof message);
  init(message);
  size_t at = 0, count = 0;
  for (size_t i = 0; i + 4 <= sizeof message; i += 2) {
    uint16_t pair[2];
    memcpy(pair, message + i, sizeof pair);
    if (pair[0] == kUnset && pair[1] == kUnset) {
      at = i;
      ++count;
    }
  }
  return count == 1 && at >= 4 ? at : 0;
}

uint16_t field(const void* message, size_t at) {
  uint16_t value;
  memcpy(&value, static_cast<const unsigned char*>(message) + at, sizeof value);
  return value;
}

// False: not within the limit. Never called with Slurm's locks held.
bool wait_for_save() {
  pthread_mutex_lock(&mutex);
  const uint64_t need = begun + 1;
  if (wanted < need) wanted = need;
  long left = limit_ms;
  while (done < need && left > 0) {
    // Asked again each second: a save that failed is not repeated by Slurm itself.
    pthread_mutex_unlock(&mutex);
    ask_for_save();
    pthread_mutex_lock(&mutex);
    const long step = left < 1000 ? left : 1000;
    const timespec until = in_ms(step);
    while (done < need && pthread_cond_timedwait(&saved, &mutex, &until) == 0) {}
    left -= step;
  }
  const bool ok = done >= need;
  pthread_mutex_unlock(&mutex);
  return ok;
}

int64_t lease_left() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return __atomic_load_n(&lease->until, __ATOMIC_ACQUIRE) - (static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec);
}

// Another head may serve from now on. Nothing is put in order: what is not saved was not confirmed.
void end_without_lease() {
  if (!lease || lease_left() > 0) return;
  tell("fairlead: the lease of this head is over: slurmctld ends");
  kill(getpid(), SIGKILL);
  while (true) pause();
}

void* watch_lease(void*) {
  while (true) {
    end_without_lease();
    const int64_t until = __atomic_load_n(&lease->until, __ATOMIC_ACQUIRE);
    const timespec at{static_cast<time_t>(until / 1000000000), static_cast<long>(until % 1000000000)};
    clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &at, nullptr);
  }
}

void tie_to_lease(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  void* page = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Lease), PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (page == MAP_FAILED) refuse("the file FAIRLEAD_LEASE cannot be read");
  lease = static_cast<const volatile Lease*>(page);
  if (lease->magic != kLeaseMagic) refuse("the file FAIRLEAD_LEASE is not one");
  durable::start_thread(watch_lease);
}

// May this message go out?
bool promised(const void* message) {
  end_without_lease();
  if (!(field(message, type_at - 4) & kQueueProcessing)) durable::wait_for_accounting();
  const uint16_t type = field(message, type_at);
  if (type != kSubmitted && type != kAllocation && type != kLaunch && type != kHetAllocation && type != kStep) return true;
  if (field(message, type_at - 4) & kQueueProcessing) {
    tell("fairlead: message %u goes out before its state is saved, because SlurmctldParameters=enable_rpc_queue is set", type);
    return true;
  }
  const bool is_saved = wait_for_save();
  end_without_lease();
  if (is_saved) return true;
  tell("fairlead: the state could not be saved within %ld ms, so message %u %s; look at the space and the mount of StateSaveLocation", limit_ms, type,
       type == kLaunch ? "goes out without" : "is not sent and its job not confirmed");
  return type == kLaunch;
}

bool ends_with(const char* text, const char* end) {
  const size_t size = strlen(text), tail = strlen(end);
  return size >= tail && memcmp(text + size - tail, end, tail) == 0;
}

// Scripts and environments of jobs, which Slurm writes without syncing: STATE/hash.N/job.ID/{script,environment}.
struct Script {
  Script* next;
  uint64_t cycle;  // the last that had begun when it was made
  char path[];
};
Script* scripts = nullptr;  // newest first

void remember(const char* path) {
  const size_t size = strlen(path) + 1;
  auto* script = static_cast<Script*>(malloc(sizeof(Script) + size));
  if (!script) abort();
  memcpy(script->path, path, size);
  pthread_mutex_lock(&mutex);
  script->cycle = begun;
  script->next = scripts;
  scripts = script;
  pthread_mutex_unlock(&mutex);
}

// Those whose jobs are in the state that this cycle saves: a job and its files are made under the lock that the save waits for. They stay remembered if one cannot be synced.
bool sync_scripts(uint64_t cycle) {
  pthread_mutex_lock(&mutex);
  Script** at = &scripts;
  while (*at && (*at)->cycle >= cycle) at = &(*at)->next;
  Script* mine = *at;
  *at = nullptr;
  pthread_mutex_unlock(&mutex);
  bool ok = true;
  char job[4096], hash[4096], last[4096] = "";
  for (const Script* script = mine; script && ok; script = script->next) {
    ok = sync_path(script->path) && parent_of(script->path, job);
    if (!ok || strcmp(job, last) == 0) continue;  // both files of a job come one after the other
    ok = sync_path(job) && parent_of(job, hash) && sync_path(hash);
    memcpy(last, job, sizeof last);
  }
  if (!ok) {
    pthread_mutex_lock(&mutex);
    Script** end = &scripts;
    while (*end) end = &(*end)->next;
    *end = mine;
    pthread_mutex_unlock(&mutex);
    return false;
  }
  while (mine) {
    Script* next = mine->next;
    free(mine);
    mine = next;
  }
  return true;
}

// The file of the state has its name. What it rests on goes to the disk too; the name of the cluster, without which Slurm refuses to start, once.
bool sync_all(const char* state, uint64_t cycle) {
  static bool named = false;
  char folder[4096], name[4096 + 16];
  if (!parent_of(state, folder)) return false;
  if (!named) {
    snprintf(name, sizeof name, "%s/clustername", folder);
    if (!(named = sync_path(name))) return false;
  }
  return sync_scripts(cycle) && sync_path(folder);
}

__attribute__((constructor)) void start() {
  unsetenv("LD_PRELOAD");  // not for the programs that slurmctld starts
  find(next_difftime, "difftime", RTLD_NEXT);
  find(next_link, "link", RTLD_NEXT);
  find(next_creat, "creat", RTLD_NEXT);
  find(next_gethostname, "gethostname", RTLD_NEXT);
  // Some other program of the container: nothing to do.
  if (!dlsym(RTLD_DEFAULT, "slurmctld_state_save")) return;
  find(next_send_node, "slurm_send_node_msg", RTLD_NEXT);
  find(next_send_only, "slurm_send_only_node_msg", RTLD_NEXT);
  find(next_send_maybe, "slurm_send_msg_maybe", RTLD_NEXT);
  find(next_send_addr, "slurm_send_addr_recv_msgs", RTLD_NEXT);
  find(next_send_many, "slurm_send_recv_msgs", RTLD_NEXT);
  find(next_send_tree, "start_msg_tree", RTLD_NEXT);
  find(ask_for_save, "schedule_job_save", RTLD_DEFAULT);
  type_at = offset_of_type();
  if (type_at == 0) refuse("its messages are laid out in an unknown way");
  if (const char* limit = getenv("FAIRLEAD_DURABLE_LIMIT_MS"); limit && atol(limit) > 0) limit_ms = atol(limit);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&saved, &monotonic);
  loop = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "slurmctld_state_save"));
  durable::start_aliases();
  if (const char* name = getenv("FAIRLEAD_HOST_NAME"); name && strlen(name) < sizeof host_name) strcpy(host_name, name);
  if (const char* path = getenv("FAIRLEAD_LEASE"); path && *path) tie_to_lease(path);
  if (const char* state = getenv("FAIRLEAD_STATE"); state && *state) {
    durable::start_ids(state, getenv("FAIRLEAD_ID_PAGE"), getenv("FAIRLEAD_ID_RANGE"));
    durable::start_defunct();
    durable::start_keys(state, type_at);
    durable::start_admission(type_at);
    durable::start_accounting_queue(state);
  }
}

}  // namespace

// The saving loop asks how long its last save is ago, at the beginning of each cycle; others get the truth. The loop is 1 kB of code.
EXPORTED double difftime(time_t end, time_t begin) {
  const auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  if (loop == 0 || caller < loop || caller >= loop + 4096) return next_difftime ? next_difftime(end, begin) : static_cast<double>(end) - static_cast<double>(begin);
  durable::begins_to_serve();
  pthread_mutex_lock(&mutex);
  my_cycle = ++begun;
  pthread_mutex_unlock(&mutex);
  return 1e9;
}

// The last step of a save: the synced job_state.new becomes job_state.
EXPORTED int link(const char* from, const char* to) {
  if (!next_link) find(next_link, "link", RTLD_NEXT);  // another library's constructor may run before ours
  const bool is_state = my_cycle != 0 && ends_with(to, "/job_state");
  if (is_state && !durable::keys_are_saved()) {
    tell("fairlead: the keys of the submissions in %s could not be saved: %m", to);
    return -1;
  }
  const int result = next_link(from, to);
  if (result != 0 || !is_state) return result;
  if (!sync_all(to, my_cycle)) {
    tell("fairlead: what %s rests on could not be synced: %m", to);
    return result;
  }
  pthread_mutex_lock(&mutex);
  if (done < my_cycle) done = my_cycle;
  // Who asked while this cycle ran needs the next one; Slurm has counted the question as answered.
  const bool again = wanted > done;
  pthread_cond_broadcast(&saved);
  pthread_mutex_unlock(&mutex);
  if (again) ask_for_save();
  return result;
}

EXPORTED int creat(const char* path, mode_t mode) {
  if (!next_creat) find(next_creat, "creat", RTLD_NEXT);
  const int fd = next_creat(path, mode);
  if (fd >= 0 && loop != 0 && strstr(path, "/job.")) remember(path);
  return fd;
}

EXPORTED int gethostname(char* name, size_t size) {
  if (!next_gethostname) find(next_gethostname, "gethostname", RTLD_NEXT);
  if (!host_name[0]) return next_gethostname(name, size);
  const size_t length = strlen(host_name) + 1;
  if (size < length) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(name, host_name, length);
  return 0;
}

EXPORTED int slurm_send_node_msg(long connection, void* message) {
  if (field(message, type_at) == kSubmitted) durable::answered_in_this_thread();
  return promised(message) ? next_send_node(connection, message) : -1;
}
EXPORTED int slurm_send_only_node_msg(void* message) { return promised(message) ? next_send_only(message) : -1; }
EXPORTED void slurm_send_msg_maybe(void* message) {
  if (promised(message)) next_send_maybe(message);
}
// To the nodes: of these only batch launches wait. They go out after the limit whatever happens: their job is confirmed, and to hold it back would lose it without a crash.
EXPORTED void* slurm_send_addr_recv_msgs(void* message, char* name, int timeout) {
  (void)promised(message);
  return next_send_addr(message, name, timeout);
}
EXPORTED void* slurm_send_recv_msgs(const char* nodes, void* message, int timeout) {
  (void)promised(message);
  return next_send_many(nodes, message, timeout);
}
EXPORTED void* start_msg_tree(void* nodes, void* message, int timeout) {
  (void)promised(message);
  return next_send_tree(nodes, message, timeout);
}
