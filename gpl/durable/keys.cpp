// SPDX-License-Identifier: GPL-3.0-or-later
// Keys of submissions (docs/design/018-ids-and-keys.md): `sbatch --comment=submit-key=K`. A submission is looked at when it has been received, before slurmctld handles it. If its user has a job with that key, the answer is the
// id of that job; if one with it is under way, this one waits for it. Otherwise slurmctld goes on, and the id that this thread is given becomes the key's. Which key has which id is written to STATE/fairlead-keys before a
// saved state that may hold the job gets its name, so that whoever finds the job there finds its key.
// What is read of foreign structures is that of one API of Slurm; with another there are no keys, and the log says so.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

namespace durable {
namespace {

// Slurm 22.05: slurm_api_version() >> 16; offsets in job_desc_msg_t (slurm.h), and in slurm_msg_t up to its message type.
constexpr long kApi = 38;
constexpr size_t kArgumentCount = 40, kArguments = 48, kArray = 56, kComment = 120, kScript = 536, kUser = 680;
constexpr size_t kAuthenticatedUser = 140, kDataBeforeType = 16, kConnectionBeforeType = 24;
enum : uint16_t { kSubmit = 4003, kSubmitted = 4004, kSubmitHet = 4028 };
constexpr int kDuplicateJob = 2011, kInvalid = EINVAL;  // ESLURM_DUPLICATE_JOB_ID
constexpr uint32_t kWholeArray = 0xffffffff;             // INFINITE
constexpr int kReadLock = 1;
struct Locks { int conf, job, node, part, fed; };  // slurmctld_lock_t
struct Submitted {                                  // submit_response_msg_t
  uint32_t job, step, error;
  char* message;
};

constexpr const char kWord[] = "submit-key=";
constexpr size_t kLongest = 128;
constexpr int kPatience = 20;  // seconds for another submission with the same key

struct Entry {
  Entry* next;
  uint32_t user, job;  // 0: under way
  uint64_t body;       // what was submitted
  uint64_t serial;     // of the id; 0: none yet
  bool under_way;
  char key[kLongest + 1];
};
constexpr size_t kBuckets = 16384;
Entry* table[kBuckets];
size_t entries = 0, lines = 0, since_sweep = 0;
uint64_t serial = 0, written = 0;  // the last that there is, and the last in the file
bool torn = false;                 // the file may end in the middle of a line
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t settled;
pthread_key_t own_entry;  // of the thread that submits

size_t type_at = 0;  // 0: no keys
char path[4096];
int (*next_receive)(int, void*, int) = nullptr;
int (*next_send_error)(void*, int, char*) = nullptr;
int (*next_send_code)(void*, int) = nullptr;
void (*lock_slurmctld)(Locks) = nullptr;
void (*unlock_slurmctld)(Locks) = nullptr;
void* (*find_job)(uint32_t) = nullptr;
void* (*find_job_array)(uint32_t, uint32_t) = nullptr;
void (*response_init)(void*, void*) = nullptr;
void* (*list_peek)(void*) = nullptr;
int (*list_count)(void*) = nullptr;

template <class T>
T at(const void* structure, size_t offset) {
  T value;
  memcpy(&value, static_cast<const char*>(structure) + offset, sizeof value);
  return value;
}

uint64_t mix(uint64_t hash, const void* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3;
  return hash;
}
uint64_t mix(uint64_t hash, const char* text) { return text ? mix(hash, text, strlen(text) + 1) : mix(hash, "\1", 1); }

// What makes it the same submission: script, arguments, array. Other options may differ between two tries (the node that it comes from does).
uint64_t body_of(const void* job) {
  uint64_t hash = mix(mix(0xcbf29ce484222325, at<const char*>(job, kScript)), at<const char*>(job, kArray));
  char** const arguments = at<char**>(job, kArguments);
  for (uint32_t i = 0; arguments && i < at<uint32_t>(job, kArgumentCount); ++i) hash = mix(hash, arguments[i]);
  return hash;
}

// The key in a comment, between spaces, commas or semicolons. False: there is one and it is not valid.
bool key_in(const char* comment, char (&key)[kLongest + 1]) {
  key[0] = 0;
  for (const char* word = comment; word && (word = strstr(word, kWord)); word += sizeof kWord - 1) {
    if (word != comment && !strchr(" \t,;", word[-1])) continue;
    const char* begin = word + sizeof kWord - 1;
    const size_t size = strcspn(begin, " \t,;");
    if (size == 0 || size > kLongest || strspn(begin, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+=-") < size) return false;
    memcpy(key, begin, size);
    key[size] = 0;
    return true;
  }
  return true;
}

Entry** place_of(uint32_t user, const char* key) {
  Entry** place = &table[mix(mix(0xcbf29ce484222325, key), &user, sizeof user) % kBuckets];
  while (*place && ((*place)->user != user || strcmp((*place)->key, key) != 0)) place = &(*place)->next;
  return place;
}

Entry* add(uint32_t user, const char* key) {
  Entry** place = place_of(user, key);
  if (*place) return *place;
  *place = static_cast<Entry*>(calloc(1, sizeof(Entry)));
  if (!*place) abort();
  (*place)->user = user;
  strcpy((*place)->key, key);
  ++entries;
  return *place;
}

void erase(Entry** place) {
  Entry* gone = *place;
  *place = gone->next;
  free(gone);
  --entries;
}

// Under the lock of the jobs.
bool is_known(uint32_t job) { return find_job(job) || find_job_array(job, kWholeArray); }

// Keys of jobs that slurmctld has forgotten. Without our lock held: Slurm's comes first.
void sweep() {
  lock_slurmctld({0, kReadLock, 0, 0, 0});
  pthread_mutex_lock(&mutex);
  for (Entry*& bucket : table)
    for (Entry** place = &bucket; *place;)
      if ((*place)->under_way || (*place)->serial > written || is_known((*place)->job)) place = &(*place)->next;
      else erase(place);
  since_sweep = 0;
  pthread_mutex_unlock(&mutex);
  unlock_slurmctld({0, kReadLock, 0, 0, 0});
}

int line_of(const Entry& entry, char (&line)[320]) {
  const int size = snprintf(line, sizeof line, "%u %u %016llx %s", entry.user, entry.job, static_cast<unsigned long long>(entry.body), entry.key);
  return size + snprintf(line + size, sizeof line - static_cast<size_t>(size), " %08x\n", sum_of(line, static_cast<size_t>(size)));
}

bool write_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t put = write(fd, bytes, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

void load() {
  FILE* file = fopen(path, "re");
  if (!file) {
    if (errno == ENOENT) return;
    refuse("the keys of its submissions (fairlead-keys beside job_state) cannot be read");
  }
  char line[320];
  while (fgets(line, sizeof line, file)) {
    Entry read{};
    unsigned long long body = 0;
    unsigned sum = 0;
    int size = 0;
    // The last line may be torn, and then its job is in no saved state.
    const size_t length = strlen(line);  // 0: zeros, which a file system may leave behind the last that was synced
    torn = length == 0 || line[length - 1] != '\n';
    if (sscanf(line, "%u %u %16llx %128s%n %8x", &read.user, &read.job, &body, read.key, &size, &sum) != 5 || sum_of(line, static_cast<size_t>(size)) != sum || read.job == 0) continue;
    Entry* entry = add(read.user, read.key);
    entry->job = read.job;
    entry->body = body;
    ++lines;
  }
  if (ferror(file)) refuse("the keys of its submissions (fairlead-keys beside job_state) cannot be read");
  fclose(file);
}

// The thread ends, or has something else to do.
void let_go(void* value) {
  auto* entry = static_cast<Entry*>(value);
  pthread_mutex_lock(&mutex);
  entry->under_way = false;
  if (entry->job == 0) erase(place_of(entry->user, entry->key));
  pthread_cond_broadcast(&settled);
  pthread_mutex_unlock(&mutex);
}

// Whoever asks is told of this job, as if it had just been submitted; not before its state is saved.
void answer_with(void* message, uint32_t job) {
  alignas(64) unsigned char answer[4096];
  Submitted body{job, 0xfffffffb, 0, nullptr};  // SLURM_BATCH_SCRIPT
  response_init(answer, message);
  const uint16_t type = kSubmitted;
  void* data = &body;
  memcpy(answer + type_at, &type, sizeof type);
  memcpy(answer + type_at - kDataBeforeType, &data, sizeof data);
  slurm_send_node_msg(at<int>(message, type_at - kConnectionBeforeType), answer);
}

// True: slurmctld is to handle it. False: it has its answer.
bool admit(void* message) {
  void* job = at<void*>(message, type_at - kDataBeforeType);
  uint64_t body = 0;
  if (at<uint16_t>(message, type_at) == kSubmitHet) {  // the key is that of its first component
    const int count = list_count(job);
    body = static_cast<uint64_t>(count) << 48;
    job = count > 0 ? list_peek(job) : nullptr;
  }
  if (!job) return true;
  char key[kLongest + 1];
  if (!key_in(at<const char*>(job, kComment), key)) {
    char why[] = "submit-key= in the comment is followed by 1 to 128 letters, digits or ._:/@+=-";
    next_send_error(message, kInvalid, why);
    return false;
  }
  if (!key[0]) return true;
  const auto user = at<uint32_t>(job, kUser), asker = at<uint32_t>(message, kAuthenticatedUser);
  if (asker != user && asker != 0 && asker != geteuid()) return true;  // slurmctld refuses it
  body ^= body_of(job);

  if (__atomic_add_fetch(&since_sweep, 1, __ATOMIC_RELAXED) > 1000) sweep();
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kPatience;
  pthread_mutex_lock(&mutex);
  while (true) {
    Entry* entry = *place_of(user, key);
    if (entry && entry->under_way) {
      if (pthread_cond_timedwait(&settled, &mutex, &until) != ETIMEDOUT) continue;
      pthread_mutex_unlock(&mutex);
      char why[] = "another submission with this submit-key is under way; ask again";
      next_send_error(message, EAGAIN, why);
      return false;
    }
    if (entry) {
      const uint32_t known = entry->job;
      const bool same = entry->body == body;
      pthread_mutex_unlock(&mutex);
      lock_slurmctld({0, kReadLock, 0, 0, 0});
      const bool there = is_known(known);
      unlock_slurmctld({0, kReadLock, 0, 0, 0});
      if (there && same) {
        answer_with(message, known);
        return false;
      }
      if (there) {
        char why[kLongest + 160];
        snprintf(why, sizeof why, "submit-key=%s is that of job %u, which has another script, other arguments or another array; give this one a key of its own", key, known);
        next_send_error(message, kDuplicateJob, why);
        return false;
      }
      pthread_mutex_lock(&mutex);
      Entry** place = place_of(user, key);
      if (*place && !(*place)->under_way && (*place)->job == known) erase(place);  // its job is forgotten
      continue;
    }
    entry = add(user, key);
    entry->under_way = true;
    entry->body = body;
    pthread_setspecific(own_entry, entry);
    pthread_mutex_unlock(&mutex);
    return true;
  }
}

}  // namespace

void start_keys(const char* state, size_t type) {
  long (*api_version)() = nullptr;
  find(api_version, "slurm_api_version", RTLD_DEFAULT);
  if (api_version() >> 16 != kApi) {
    tell("fairlead: keys of submissions are not known with this version of Slurm; submit-key= in a comment has no effect");
    return;
  }
  find(lock_slurmctld, "lock_slurmctld", RTLD_DEFAULT);
  find(unlock_slurmctld, "unlock_slurmctld", RTLD_DEFAULT);
  find(find_job, "find_job_record", RTLD_DEFAULT);
  find(find_job_array, "find_job_array_rec", RTLD_DEFAULT);
  find(response_init, "response_init", RTLD_DEFAULT);
  find(list_peek, "slurm_list_peek", RTLD_DEFAULT);
  find(list_count, "slurm_list_count", RTLD_DEFAULT);
  find(next_receive, "slurm_receive_msg", RTLD_NEXT);
  find(next_send_error, "slurm_send_rc_err_msg", RTLD_NEXT);
  find(next_send_code, "slurm_send_rc_msg", RTLD_NEXT);
  if (static_cast<size_t>(snprintf(path, sizeof path, "%s/fairlead-keys", state)) >= sizeof path) refuse("the path of its state is too long");
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&settled, &monotonic);
  pthread_key_create(&own_entry, let_go);
  load();
  type_at = type;
}

void issued_in_this_thread(uint32_t id) {
  auto* entry = type_at == 0 ? nullptr : static_cast<Entry*>(pthread_getspecific(own_entry));
  if (!entry || entry->job != 0) return;  // of a heterogeneous job the first one counts
  pthread_mutex_lock(&mutex);
  entry->job = id;
  entry->serial = ++serial;
  pthread_mutex_unlock(&mutex);
}

void answered_in_this_thread() {
  void* entry = type_at == 0 ? nullptr : pthread_getspecific(own_entry);
  if (!entry) return;
  pthread_setspecific(own_entry, nullptr);
  let_go(entry);
}

void refused_in_this_thread() {
  auto* entry = type_at == 0 ? nullptr : static_cast<Entry*>(pthread_getspecific(own_entry));
  if (!entry) return;
  pthread_mutex_lock(&mutex);
  entry->job = 0;
  pthread_mutex_unlock(&mutex);
  answered_in_this_thread();
}

// Called by the saving thread alone.
bool keys_are_saved() {
  if (type_at == 0) return true;
  pthread_mutex_lock(&mutex);
  const uint64_t newest = serial;
  if (newest == written) {
    pthread_mutex_unlock(&mutex);
    return true;
  }
  // All anew where most of the file is of jobs that are forgotten; else what is new, behind the rest.
  const bool anew = lines > 1000 && lines > 4 * entries;
  auto* text = static_cast<char*>(malloc(entries * sizeof(char[320]) + 1));
  if (!text) abort();
  size_t size = 0, count = 0;
  if (torn && !anew) text[size++] = '\n';
  for (const Entry* bucket : table)
    for (const Entry* entry = bucket; entry; entry = entry->next) {
      if (entry->job == 0 || (entry->serial <= written && !anew)) continue;
      char line[320];
      const auto length = static_cast<size_t>(line_of(*entry, line));
      memcpy(text + size, line, length);
      size += length;
      ++count;
    }
  pthread_mutex_unlock(&mutex);

  char temporary[sizeof path + 8];
  snprintf(temporary, sizeof temporary, "%s.new", path);
  const bool made = anew || access(path, F_OK) != 0;
  const int fd = open(anew ? temporary : path, O_WRONLY | O_CREAT | O_CLOEXEC | (anew ? O_TRUNC : O_APPEND), 0600);
  bool ok = fd >= 0 && write_all(fd, text, size) && fdatasync(fd) == 0;
  int error = errno;
  free(text);
  if (fd >= 0) close(fd);
  torn = !ok && !anew;
  if (ok && anew && rename(temporary, path) != 0) {
    ok = false;
    error = errno;
  }
  char folder[4096];
  if (ok && made && !(parent_of(path, folder) && sync_path(folder))) {
    ok = false;
    error = errno;
  }
  if (ok) {
    pthread_mutex_lock(&mutex);
    written = newest;
    lines = anew ? count : lines + count;
    pthread_mutex_unlock(&mutex);
  }
  errno = error;
  return ok;
}

}  // namespace durable

EXPORTED int slurm_receive_msg(int connection, void* message, int timeout) {
  using namespace durable;
  if (!next_receive) find(next_receive, "slurm_receive_msg", RTLD_NEXT);
  begins_to_serve();
  const int result = next_receive(connection, message, timeout);
  forget_submission();
  if (result != 0 || type_at == 0) return result;
  answered_in_this_thread();
  const auto type = at<uint16_t>(message, type_at);
  if (((type != kSubmit && type != kSubmitHet) || admit(message)) && takes_submission(message, type)) return 0;
  refused_in_this_thread();
  errno = EALREADY;  // "Operation already in progress" in slurmctld's log; it closes the connection
  return -1;
}
// A submission that is refused leaves its key free.
EXPORTED int slurm_send_rc_err_msg(void* message, int code, char* why) {
  using namespace durable;
  if (!next_send_error) find(next_send_error, "slurm_send_rc_err_msg", RTLD_NEXT);
  refused_in_this_thread();
  return next_send_error(message, code, why);
}
EXPORTED int slurm_send_rc_msg(void* message, int code) {
  using namespace durable;
  if (!next_send_code) find(next_send_code, "slurm_send_rc_msg", RTLD_NEXT);
  refused_in_this_thread();
  wait_for_accounting();
  return next_send_code(message, code);
}
