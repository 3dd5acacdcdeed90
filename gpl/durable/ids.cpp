// SPDX-License-Identifier: GPL-3.0-or-later
// The high-water mark of issued ids (docs/design/018-ids-and-keys.md). get_next_job_id() looks with stat() whether STATE/hash.N/job.ID is there before it gives out ID, the one place where every id comes from: submissions,
// allocations, components of heterogeneous jobs, tasks split from arrays. There an id that may have been given before is said to be taken, and no id is given before a mark above it is on the disk. The mark is written by a
// thread of ours, a block ahead, so that nobody waits for it as long as the disk is faster than Slurm.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

namespace durable {
namespace {

// As gpl/id_mark.h writes and reads them.
constexpr size_t kMarkSize = 64;
constexpr uint64_t kPageMagic = 0x31534449454c4c46;  // "FLLEIDS1"
struct Page {
  uint64_t magic;
  uint32_t next;  // behind the last id given out; 0: none yet
};

constexpr uint32_t kLocal = 0x03ffffff;  // above it stands the cluster of a federation
constexpr uint32_t kBlock = 1000;

int (*next_stat)(const char*, struct stat*) = nullptr;
uintptr_t giver = 0;  // get_next_job_id()
char mark_path[4096];
Page* page = nullptr;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t asked, written;
uint32_t first = 1, end_of_range = 0x03ff0000, block = kBlock;
uint32_t given_before = 0;       // ids in front of it may have been given by an earlier daemon
bool passed = false;             // one behind it has been given
uint32_t reserved = 0, wish = 0;  // the mark on the disk, and the one that is to be there

// How far it is from one id to another, as Slurm counts: behind the last one comes the first.
uint32_t way(uint32_t from, uint32_t to) { return to >= from ? to - from : from < end_of_range ? end_of_range - from + (to - first) : UINT32_MAX; }
uint32_t beyond(uint32_t id, uint32_t count) { return id < end_of_range && end_of_range - id <= count ? first + (count - (end_of_range - id)) : id + count; }
bool in_front_of(uint32_t id, uint32_t mark) {
  const uint32_t ahead = way(id, mark);
  return ahead != 0 && ahead < (end_of_range - first) / 2;
}

bool write_mark(uint32_t next) {
  char line[kMarkSize + 1];
  const int size = snprintf(line, sizeof line, "fairlead-ids 1 next %010u", next);
  snprintf(line + size, sizeof line - static_cast<size_t>(size), " sum %08x%*s\n", sum_of(line, static_cast<size_t>(size)), static_cast<int>(kMarkSize) - size - 14, "");
  // By its path, and never made anew: in a term that is over there is nothing to write.
  const int fd = open(mark_path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = pwrite(fd, line, kMarkSize, 0) == static_cast<ssize_t>(kMarkSize) && fdatasync(fd) == 0;
  const int error = errno;
  close(fd);
  errno = error;
  return ok;
}

uint32_t read_mark() {
  char line[kMarkSize + 1] = "";
  const int fd = open(mark_path, O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? -1 : pread(fd, line, sizeof line, 0);
  if (fd >= 0) close(fd);
  unsigned next = 0, sum = 0;
  int size = 0;
  if (got != static_cast<ssize_t>(kMarkSize) || sscanf(line, "fairlead-ids 1 next %10u%n sum %8x", &next, &size, &sum) != 2 || next == 0 || sum_of(line, static_cast<size_t>(size)) != sum)
    refuse("its mark of issued ids (fairlead-ids beside job_state) cannot be read");
  return next;
}

void* keep_ahead(void*) {
  pthread_mutex_lock(&mutex);
  for (bool told = false;;) {
    while (wish == reserved) pthread_cond_wait(&asked, &mutex);
    const uint32_t next = wish;
    pthread_mutex_unlock(&mutex);
    const bool ok = write_mark(next);
    if (!ok && !told) tell("fairlead: the mark of issued ids %s could not be written: %m. No further id is given before it is", mark_path);
    told = !ok;
    if (!ok) {
      const timespec pause{0, 250'000'000};
      nanosleep(&pause, nullptr);
    }
    pthread_mutex_lock(&mutex);
    if (!ok) continue;
    reserved = next;
    pthread_cond_broadcast(&written);
  }
}

// ID of .../hash.N/job.ID; 0: another path.
uint32_t id_in(const char* path) {
  const char* name = strrchr(path, '/');
  if (!name || strncmp(name, "/job.", 5) != 0 || name[5] < '1' || name[5] > '9') return 0;
  char* rest = nullptr;
  const unsigned long id = strtoul(name + 5, &rest, 10);
  return *rest == 0 && id < UINT32_MAX ? static_cast<uint32_t>(id) : 0;
}

// False: it may have been given before. Slurm holds the lock of its jobs here, so that one id after the other is asked for.
bool may_be_given(uint32_t id) {
  pthread_mutex_lock(&mutex);
  if (!passed && in_front_of(id, given_before)) {
    pthread_mutex_unlock(&mutex);
    return false;
  }
  passed = true;
  // Left of what is reserved, this one included. An id behind the mark (the range has begun anew, or changed) has nothing.
  const auto left = [id] { return reserved != id && in_front_of(id, reserved) && way(id, reserved) <= 2 * block ? way(id, reserved) : 0; };
  for (uint32_t now = left(); now < block / 2 + 1; now = left()) {
    if (wish == reserved) {  // none is under way
      wish = beyond(id, block);
      pthread_cond_signal(&asked);
    }
    if (now > 0) break;
    pthread_cond_wait(&written, &mutex);
  }
  if (page) __atomic_store_n(&page->next, beyond(id, 1), __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
  return true;
}

}  // namespace

void start_ids(const char* state, const char* page_path, const char* range) {
  find(next_stat, "stat", RTLD_NEXT);
  giver = reinterpret_cast<uintptr_t>(find_symbol("get_next_job_id", RTLD_DEFAULT));
  if (static_cast<size_t>(snprintf(mark_path, sizeof mark_path, "%s/fairlead-ids", state)) >= sizeof mark_path) refuse("the path of its state is too long");
  unsigned low = 0, high = 0;
  if (range && sscanf(range, "%u %u", &low, &high) == 2 && low > 0 && high > low && high <= kLocal) {
    first = low;
    end_of_range = high;
  }
  if ((end_of_range - first) / 8 < block) block = (end_of_range - first) / 8 + 1;
  given_before = reserved = wish = read_mark();
  if (page_path && *page_path) {
    const int fd = open(page_path, O_RDWR | O_CLOEXEC);
    void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (at == MAP_FAILED || static_cast<Page*>(at)->magic != kPageMagic) refuse("the file FAIRLEAD_ID_PAGE is not one");
    page = static_cast<Page*>(at);
  }
  pthread_cond_init(&asked, nullptr);
  pthread_cond_init(&written, nullptr);
  start_thread(keep_ahead);
}

}  // namespace durable

EXPORTED int stat(const char* path, struct stat* out) noexcept {
  using namespace durable;
  if (!next_stat) find(next_stat, "stat", RTLD_NEXT);
  // get_next_job_id() is 0.5 kB of code, with the small function that looks.
  const auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  const uint32_t named = giver != 0 ? id_in(path) : 0;
  if (named != 0 && put_off(path, caller)) {
    errno = ENOENT;
    return -1;
  }
  const uint32_t id = caller >= giver && caller < giver + 1024 ? named : 0;
  if (id == 0) return next_stat(path, out);
  if (!may_be_given(id & kLocal)) {
    memset(out, 0, sizeof *out);
    return 0;
  }
  const int result = next_stat(path, out);
  if (result != 0) {
    issued_in_this_thread(id);
    hold_what_this_thread_submits();
  }
  return result;
}
