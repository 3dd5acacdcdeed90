// SPDX-License-Identifier: GPL-3.0-or-later
// Files of jobs that are no more known do not hold up the beginning (docs/design/004-durable-acknowledgement.md).
//
// Before slurmctld serves it removes the scripts and environments of jobs that its state does not know, one after the other (sync_job_files()): those that were forgotten since the one before it was killed in the middle of their
// removal. That may be thousands, each of several operations on the storage that the heads share, and nobody is served meanwhile. Here delete_job_desc_files() is told that there is nothing, and a thread removes them when the
// daemon serves. Ids are not given twice (ids.cpp), so what a removed job left is nobody else's.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

namespace durable {
namespace {

struct Folder {
  Folder* next;
  char path[];
};
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t served = PTHREAD_COND_INITIALIZER;
Folder* folders = nullptr;
bool serves = true;  // until start_defunct()
uintptr_t remover = 0;

void remove_folder(const char* path) {
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* folder = fd < 0 ? nullptr : fdopendir(fd);
  if (!folder) {
    if (fd >= 0) close(fd);
    return;
  }
  while (const dirent* entry = readdir(folder))
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlinkat(fd, entry->d_name, 0);
  closedir(folder);
  rmdir(path);
}

void* remove_later(void*) {
  size_t count = 0;
  pthread_mutex_lock(&mutex);
  while (!serves || folders) {
    // In a daemon that nobody asks anything: after a moment.
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    while (!serves && pthread_cond_timedwait(&served, &mutex, &until) == 0) {}
    Folder* list = folders;
    folders = nullptr;
    pthread_mutex_unlock(&mutex);
    while (list) {
      Folder* next = list->next;
      remove_folder(list->path);
      free(list);
      list = next;
      ++count;
    }
    pthread_mutex_lock(&mutex);
  }
  pthread_mutex_unlock(&mutex);
  if (count > 0) tell("fairlead: the files of %zu jobs that were forgotten are removed", count);
  return nullptr;
}

}  // namespace

void start_defunct() {
  remover = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "delete_job_desc_files"));
  if (remover == 0) return;
  serves = false;
  start_thread(remove_later);
}

bool put_off(const char* path, uintptr_t caller) {
  if (remover == 0 || caller < remover || caller >= remover + 512) return false;  // it is 0.3 kB of code
  pthread_mutex_lock(&mutex);
  const bool put = !serves;
  if (put) {
    const size_t size = strlen(path) + 1;
    auto* folder = static_cast<Folder*>(malloc(sizeof(Folder) + size));
    if (!folder) abort();
    memcpy(folder->path, path, size);
    folder->next = folders;
    folders = folder;
  }
  pthread_mutex_unlock(&mutex);
  return put;
}

void begins_to_serve() {
  if (__atomic_load_n(&serves, __ATOMIC_ACQUIRE)) return;
  pthread_mutex_lock(&mutex);
  __atomic_store_n(&serves, true, __ATOMIC_RELEASE);
  pthread_cond_signal(&served);
  pthread_mutex_unlock(&mutex);
}

}  // namespace durable
