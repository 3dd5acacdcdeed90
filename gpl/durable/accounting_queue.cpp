// SPDX-License-Identifier: GPL-3.0-or-later
// What slurmctld has for slurmdbd while that is away is on disk (docs/design/034-accounting-queue.md).
//
// The accounting plugin keeps its messages in a list and writes them to STATE/dbd.messages when slurmctld ends in an orderly way; one that is killed has lost them. Jobs come again from the saved state, steps that ended do not.
// Here the functions stand before those of libslurmfull that the plugin calls for this list, found by its destructor:
//   list_create    the file is read, and what nobody has taken is written where the plugin reads it next
//   list_enqueue   a message goes into the file, unless slurmdbd takes it within a moment; who sent it has its answer after that
//   list_dequeue   slurmdbd has taken it
//   unlink, list_count   the orderly end: the file has all, the plugin writes nothing
// The plugin calls all of them with its own lock held, but for the last ones. Only calls of plugins come here (slurm_list_*): slurmctld itself calls list_*.
// What is read of a foreign structure is buf_t of one API of Slurm; with another the plugin is left alone, and the log says so.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"
#include "queue_file.h"

namespace durable {
namespace {

constexpr long kApi = 38;
constexpr uint32_t kBufferMagic = 0x42554545;
constexpr uint16_t kRegister = 1434;  // DBD_REGISTER_CTLD: of a daemon, not of a job; the plugin does not save it either
constexpr long kMomentMs = 5;         // for a database that is there
constexpr long kPatienceMs = 1000;    // of an answer
constexpr size_t kDeadBytes = 8 << 20;

struct Buffer {  // buf_t of 22.05
  uint32_t magic;
  unsigned char* head;
  uint32_t size, used;
};

struct Entry {
  Entry* next;
  void* buffer;          // in the plugin's list; null: read from the file, and not yet read by the plugin
  unsigned char* bytes;  // until it is in the file
  uint64_t serial;
  size_t at;             // of its record in the file
  uint32_t size, sum;
  uint16_t protocol;
};

void* (*next_create)(void (*)(void*)) = nullptr;
void (*next_destroy)(void*) = nullptr;
void* (*next_enqueue)(void*, void*) = nullptr;
void* (*next_dequeue)(void*) = nullptr;
int (*next_count)(void*) = nullptr;
int (*next_unlink)(const char*) = nullptr;
void (*destructor)(void*) = nullptr;  // of the messages, null: everything is left alone
char path[4096], slurms_path[4096];
uint16_t protocol = 0;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t work, settled;
void* list = nullptr;         // the plugin's; null: none, or its messages cannot be kept
bool ending = false;          // the plugin saves: what it takes from the list now nobody has taken
bool hides = false;           // and finds it empty, since the file has all
Entry* first = nullptr;       // oldest
Entry* last = nullptr;
Entry* unread = nullptr;      // the first whose buffer is null
uint64_t serial = 0, safe = 0, taken = 0, told_taken = 0;  // safe: in the file, and synced
bool failing = false, writing = false, writer_runs = false;
// Of the thread that writes, and of list_create() before there is one.
int fd = -1;
size_t file_end = 0;
thread_local uint64_t mine = 0;  // the last message of this thread

bool is_list(const void* which) { return __atomic_load_n(&list, __ATOMIC_ACQUIRE) == which; }

// With the lock held.
void append(void* buffer, unsigned char* bytes, uint64_t number, size_t at, const void* content, uint32_t size, uint16_t version) {
  auto* entry = static_cast<Entry*>(malloc(sizeof(Entry)));
  if (!entry) abort();
  *entry = Entry{nullptr, buffer, bytes, number, at, size, sum_of(content, size), version};
  (last ? last->next : first) = entry;
  last = entry;
  if (!buffer && !unread) unread = entry;
}
// Up to and with this one; what was not yet read by the plugin stays.
void drop_through(const Entry* end) {
  Entry** at = &first;
  Entry* before = nullptr;
  for (bool over = false; *at && !over;) {
    Entry* entry = *at;
    over = entry == end;
    if (!entry->buffer) {
      before = entry;
      at = &entry->next;
      continue;
    }
    *at = entry->next;
    if (last == entry) last = before;
    free(entry->bytes);
    free(entry);
  }
  taken = first ? first->serial - 1 : serial;
}

// With the lock held: until this message is in the file or slurmdbd has it; false: not within the time, or the file cannot be written.
bool wait_until_safe(uint64_t number, long ms) {
  const timespec until = in_ms(ms);
  while (number > safe && number > taken && !failing && pthread_cond_timedwait(&settled, &mutex, &until) == 0) {}
  return number <= safe || number <= taken;
}

// A new file in the place of the old one, which is whole until then.
bool replace(const char* name, const void* bytes, size_t size, int* keep) {
  char temporary[sizeof path + 8], folder[4096];
  snprintf(temporary, sizeof temporary, "%s.new", name);
  const int made = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool ok = made >= 0 && write_all_at(made, bytes, size, 0) && fsync(made) == 0 && rename(temporary, name) == 0 && parent_of(name, folder) && sync_path(folder);
  const int error = errno;
  if (made >= 0 && (!ok || !keep)) close(made);
  if (ok && keep) *keep = made;
  errno = error;
  return ok;
}

// Records of these messages, for a file of its own; to be freed.
unsigned char* records_of(const QueuedMessage* messages, size_t count, size_t* size) {
  size_t room = 0;
  for (size_t i = 0; i < count; ++i) room += sizeof(QueueRecord) + messages[i].size;
  auto* bytes = static_cast<unsigned char*>(malloc(room + 1));
  if (!bytes) abort();
  *size = 0;
  for (size_t i = 0; i < count; ++i) {
    const QueueRecord record = queue_record(kMessage, messages[i].protocol, messages[i].serial, messages[i].bytes, messages[i].size);
    memcpy(bytes + *size, &record, sizeof record);
    memcpy(bytes + *size + sizeof record, messages[i].bytes, messages[i].size);
    *size += sizeof record + messages[i].size;
  }
  return bytes;
}

// With the lock held, from the thread that writes: what is taken leaves the file, when nothing else is in it or it is most of it.
void tidy() {
  if (!first) {
    failing = file_end > 0 && ftruncate(fd, 0) != 0;
    if (!failing) file_end = 0;
    told_taken = taken;
    return;
  }
  const size_t live = first->bytes ? file_end : first->at;
  if (live < kDeadBytes || live < file_end / 2) return;
  const size_t size = file_end - live;
  auto* bytes = static_cast<unsigned char*>(malloc(size + 1));
  if (!bytes) return;
  int made = -1;
  const bool ok = pread(fd, bytes, size, static_cast<off_t>(live)) == static_cast<ssize_t>(size) && replace(path, bytes, size, &made);
  free(bytes);
  if (!ok) return;
  close(fd);
  fd = made;
  file_end = size;
  for (Entry* entry = first; entry; entry = entry->next)
    if (!entry->bytes) entry->at -= live;
}

// What is new goes into the file, in one piece. The lock is held before and after it.
void write_what_is_new() {
  size_t room = 0;
  for (const Entry* entry = first; entry; entry = entry->next)
    if (entry->bytes) room += sizeof(QueueRecord) + entry->size;
  const uint64_t newest = serial, done = taken;
  if (!first || (room == 0 && done == told_taken)) return;
  auto* bytes = static_cast<unsigned char*>(malloc(room + sizeof(QueueRecord)));
  if (!bytes) abort();
  size_t size = 0;
  const auto put = [&](const QueueRecord& record, const void* content) {
    memcpy(bytes + size, &record, sizeof record);
    if (record.size > 0) memcpy(bytes + size + sizeof record, content, record.size);
    size += sizeof record + record.size;
  };
  if (done != told_taken) put(queue_record(kTaken, protocol, done, "", 0), "");
  for (Entry* entry = first; entry; entry = entry->next) {
    if (!entry->bytes) continue;
    entry->at = file_end + size;
    put(queue_record(kMessage, entry->protocol, entry->serial, entry->bytes, entry->size), entry->bytes);
  }
  writing = true;
  pthread_mutex_unlock(&mutex);
  const bool ok = write_all_at(fd, bytes, size, file_end) && (room == 0 || fdatasync(fd) == 0);
  const int error = errno;
  free(bytes);
  pthread_mutex_lock(&mutex);
  writing = false;
  if (ok) {
    file_end += size;
    told_taken = done;
    if (room > 0) safe = newest;
    for (Entry* entry = first; entry && entry->serial <= newest; entry = entry->next) {
      free(entry->bytes);
      entry->bytes = nullptr;
    }
  } else if (!failing) {
    errno = error;
    tell("fairlead: %s could not be written: %m. Until it is, steps that end while slurmdbd is away are lost to accounting if slurmctld is killed", path);
  }
  failing = !ok;
  pthread_cond_broadcast(&settled);
}

void* write_always(void*) {
  pthread_mutex_lock(&mutex);
  while (true) {
    const auto idle = [] { return fd < 0 || (taken == told_taken && (!last || !last->bytes) && (first || file_end == 0)); };
    while (idle()) pthread_cond_wait(&work, &mutex);
    pthread_mutex_unlock(&mutex);
    // A database that is there takes a message in less; then nothing is written.
    const timespec moment{0, (failing ? 250 : kMomentMs) * 1000000L};
    nanosleep(&moment, nullptr);
    pthread_mutex_lock(&mutex);
    if (fd < 0) continue;
    write_what_is_new();
    if (!failing || !first) tidy();
  }
}

void forget() {
  while (first) {
    Entry* next = first->next;
    free(first->bytes);
    free(first);
    first = next;
  }
  last = unread = nullptr;
}

// With the lock held, before the plugin reads its file: that has afterwards what nobody has taken. Ours begins anew as a file of its own: one that another daemon still has open, of a head that was stopped, is no more ours.
bool give_back() {
  while (writing) pthread_cond_wait(&settled, &mutex);
  if (fd >= 0) close(fd);
  fd = -1;
  forget();
  struct stat ours{}, slurms{};
  const bool have_ours = stat(path, &ours) == 0;
  if (!have_ours && errno != ENOENT) return false;
  const bool have_slurms = stat(slurms_path, &slurms) == 0;
  if (!have_slurms && errno != ENOENT) return false;
  // Slurm's own is the later one after a slurmctld that ran without this library, or whose last save found that ours could not be written.
  const auto is_later = [](const timespec& one, const timespec& other) { return one.tv_sec > other.tv_sec || (one.tv_sec == other.tv_sec && one.tv_nsec > other.tv_nsec); };
  const bool from_slurm = have_slurms && slurms.st_size > 0 && (!have_ours || is_later(slurms.st_mtim, ours.st_mtim));
  size_t size = 0, count = 0, end = 0;
  uint64_t newest = 0;
  unsigned char* file = from_slurm || have_ours ? whole_file(from_slurm ? slurms_path : path, &size) : nullptr;
  if (!file && (from_slurm || have_ours)) return false;
  QueuedMessage* messages = !file ? nullptr : from_slurm ? slurms_messages(file, size, &count) : queued_messages(file, size, &count, &end, &newest);
  if (from_slurm) newest = count;
  count = drop_repeated(messages, count);
  serial = safe = newest;
  file_end = 0;
  for (size_t i = 0; i < count; ++i) {
    append(nullptr, nullptr, messages[i].serial, file_end, messages[i].bytes, messages[i].size, messages[i].protocol);
    file_end += sizeof(QueueRecord) + messages[i].size;
  }
  taken = told_taken = first ? first->serial - 1 : serial;
  // Slurm's file is of one protocol. What another Slurm left behind it comes at the next start.
  size_t same = 0, length = 0;
  while (same < count && messages[same].protocol == messages[0].protocol) ++same;
  unsigned char* records = records_of(messages, count, &length);
  bool ok = replace(path, records, length, &fd);
  free(records);
  unsigned char* text = same == 0 ? nullptr : slurms_file(messages, same, messages[0].protocol, &length);
  ok = ok && replace(slurms_path, text, text ? length : 0, nullptr);
  if (ok && count > 0) tell("fairlead: %zu messages for slurmdbd that nobody had taken", count);
  free(text);
  free(messages);
  free(file);
  // It is older than ours whenever it was not Slurm that wrote it.
  struct stat now{};
  if (!ok || fstat(fd, &now) != 0) return false;
  timespec times[2] = {now.st_mtim, now.st_mtim};
  --times[1].tv_sec;
  return utimensat(AT_FDCWD, slurms_path, times, 0) == 0;
}

void note(void* buffer) {
  const auto* message = static_cast<const Buffer*>(buffer);
  if (message->magic != kBufferMagic || message->used < sizeof(uint16_t) || message->used > message->size) {
    static bool told = false;
    if (!told) tell("fairlead: a message for slurmdbd is not what was expected: it is not kept on disk");
    told = true;
    return;
  }
  if ((message->head[0] << 8 | message->head[1]) == kRegister) return;
  pthread_mutex_lock(&mutex);
  // What the plugin reads from its file comes in the order of ours; with another protocol it has made new bytes of it.
  if (Entry* const entry = unread; entry && (entry->protocol != protocol || (entry->size == message->used && entry->sum == sum_of(message->head, message->used)))) {
    entry->buffer = buffer;
    unread = entry->next;
    while (unread && unread->buffer) unread = unread->next;
    pthread_mutex_unlock(&mutex);
    return;
  }
  auto* bytes = static_cast<unsigned char*>(malloc(message->used));
  if (!bytes) abort();
  memcpy(bytes, message->head, message->used);
  append(buffer, bytes, ++serial, 0, bytes, message->used, protocol);
  mine = serial;
  pthread_cond_signal(&work);
  pthread_mutex_unlock(&mutex);
}

void took(const void* buffer) {
  pthread_mutex_lock(&mutex);
  if (!ending) {
    const Entry* entry = first;
    while (entry && entry->buffer != buffer) entry = entry->next;
    if (entry) drop_through(entry);
    // What the plugin has thrown away (MaxDBDMsgs) is no more in its list.
    if (last && !unread && next_count(list) == 0) drop_through(last);
    pthread_cond_broadcast(&settled);
    pthread_cond_signal(&work);
  }
  pthread_mutex_unlock(&mutex);
}

}  // namespace

void start_accounting_queue(const char* state) {
  long (*api_version)() = nullptr;
  find(api_version, "slurm_api_version", RTLD_DEFAULT);
  if (api_version() >> 16 != kApi) {
    tell("fairlead: with this version of Slurm messages for slurmdbd are not kept on disk while it is away: steps that end meanwhile are lost to accounting if slurmctld is killed");
    return;
  }
  if (static_cast<size_t>(snprintf(path, sizeof path, "%s/fairlead-accounting", state)) >= sizeof path - 8 || static_cast<size_t>(snprintf(slurms_path, sizeof slurms_path, "%s/dbd.messages", state)) >= sizeof slurms_path - 8) refuse("the path of its state is too long");
  protocol = static_cast<uint16_t>(kApi << 8);
  find(next_create, "slurm_list_create", RTLD_NEXT);
  find(next_destroy, "slurm_list_destroy", RTLD_NEXT);
  find(next_enqueue, "slurm_list_enqueue", RTLD_NEXT);
  find(next_dequeue, "slurm_list_dequeue", RTLD_NEXT);
  find(next_count, "slurm_list_count", RTLD_NEXT);
  find(next_unlink, "unlink", RTLD_NEXT);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&work, &monotonic);
  pthread_cond_init(&settled, &monotonic);
  find(destructor, "slurm_slurmdbd_free_buffer", RTLD_DEFAULT);
}

void wait_for_accounting() {
  if (mine == 0) return;
  pthread_mutex_lock(&mutex);
  wait_until_safe(mine, kPatienceMs);
  pthread_mutex_unlock(&mutex);
  mine = 0;
}

}  // namespace durable

using namespace durable;

EXPORTED void* slurm_list_create(void (*destroys)(void*)) {
  if (!next_create) find(next_create, "slurm_list_create", RTLD_NEXT);
  void* made = next_create(destroys);
  if (!destructor || destroys != destructor) return made;
  pthread_mutex_lock(&mutex);
  ending = hides = false;
  if (give_back()) {
    __atomic_store_n(&list, made, __ATOMIC_RELEASE);
    if (!writer_runs) start_thread(write_always);
    writer_runs = true;
  } else {
    __atomic_store_n(&list, static_cast<void*>(nullptr), __ATOMIC_RELEASE);
    tell("fairlead: the messages for slurmdbd in %s cannot be kept: %m. Steps that end while slurmdbd is away are lost to accounting if slurmctld is killed", path);
  }
  pthread_mutex_unlock(&mutex);
  return made;
}
EXPORTED void slurm_list_destroy(void* which) {
  if (!next_destroy) find(next_destroy, "slurm_list_destroy", RTLD_NEXT);
  if (which && is_list(which)) {
    pthread_mutex_lock(&mutex);
    __atomic_store_n(&list, static_cast<void*>(nullptr), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
  }
  next_destroy(which);
}
EXPORTED void* slurm_list_enqueue(void* which, void* what) {
  if (!next_enqueue) find(next_enqueue, "slurm_list_enqueue", RTLD_NEXT);
  void* result = next_enqueue(which, what);
  if (result && is_list(which)) note(what);
  return result;
}
EXPORTED void* slurm_list_dequeue(void* which) {
  if (!next_dequeue) find(next_dequeue, "slurm_list_dequeue", RTLD_NEXT);
  void* result = next_dequeue(which);
  if (result && is_list(which)) took(result);
  return result;
}
EXPORTED int slurm_list_count(void* which) {
  if (!next_count) find(next_count, "slurm_list_count", RTLD_NEXT);
  return hides && is_list(which) ? 0 : next_count(which);
}
// The plugin begins to save. Its thread may be cancelled when that takes 5 s.
EXPORTED int unlink(const char* name) noexcept {
  if (!next_unlink) find(next_unlink, "unlink", RTLD_NEXT);
  if (is_list(nullptr) || strcmp(name, slurms_path) != 0) return next_unlink(name);
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  pthread_mutex_lock(&mutex);
  ending = true;
  pthread_cond_signal(&work);
  hides = wait_until_safe(serial, 3 * kPatienceMs);
  pthread_mutex_unlock(&mutex);
  pthread_setcancelstate(before, nullptr);
  return next_unlink(name);
}
