// SPDX-License-Identifier: GPL-3.0-or-later
// srun --container-image and its companions, named as pyxis names them: each task lives in the root of an OCI image. slurmstepd stays in the shared root, so that --output and --chdir are paths of that.
//
// `fairlead-slurm container` (container/container.cpp), started by the task while it is still root, unpacks the image and mounts all that belongs into it in the task's own mount namespace; the task enters it. What may go
// wrong is kept and told by the task on its standard error; no node is drained for it.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spank.h"

extern "C" char** environ;

namespace {

constexpr const char* kProgram = "/opt/fairlead/bin/fairlead-slurm";
constexpr const char* kAt = "/run/fairlead/container";             // of the node; what is mounted there is the task's alone
constexpr const char* kCache = "/var/spool/slurmd/fairlead-images";  // on the node's own disk
constexpr size_t kMostRecords = 1 << 20;
constexpr size_t kMostArguments = 1200;

enum Option { Image, Mounts, Workdir, Env, Home, NoHome, Nothing, Options };
char* values[Env + 1];
int home = -1;

int take(int which, const char* value, int) {
  if (which == Nothing) return 0;
  if (which == Home || which == NoHome) return home = which == Home, 0;
  if (!value || !*value) return slurm_error("fairlead: --container-%s needs a value", which == Image ? "image" : which == Mounts ? "mounts" : which == Workdir ? "workdir" : "env"), -1;
  free(values[which]);
  return (values[which] = strdup(value)) ? 0 : -1;
}

spank_option options[] = {
    {"container-image", "IMAGE", "run the tasks in an OCI image: oci:PATH[:TAG] (a layout that the nodes can read), or [docker://][REGISTRY#]IMAGE[:TAG], fetched by skopeo", 1, Image, take},
    {"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "mount paths of the shared root into the image; flags are separated by \"+\": ro, rw, noexec, bind, rbind", 1, Mounts, take},
    {"container-workdir", "PATH", "folder of the image in which tasks start; else the one that the image names", 1, Workdir, take},
    {"container-env", "NAME[,NAME...]", "variables that keep the job's value where the image sets them, too", 1, Env, take},
    {"container-mount-home", nullptr, "mount the user's home into the image", 0, Home, take},
    {"no-container-mount-home", nullptr, "do not mount the user's home into the image (the default)", 0, NoHome, take},
    {"container-readonly", nullptr, "the image cannot be written to (always so)", 0, Nothing, take},
    {"no-container-entrypoint", nullptr, "the image's entry point is not run (always so)", 0, Nothing, take},
    {"no-container-remap-root", nullptr, "tasks keep their user in the image (always so)", 0, Nothing, take},
};

// Defaults, as scripts for pyxis set them.
void take_defaults(spank_handle* spank) {
  constexpr const char* kNames[] = {"PYXIS_CONTAINER_IMAGE", "PYXIS_CONTAINER_MOUNTS", "PYXIS_CONTAINER_WORKDIR", "PYXIS_CONTAINER_ENV"};
  static char value[64 << 10];
  for (int which = Image; which <= Env; ++which)
    if (!values[which] && spank_getenv(spank, kNames[which], value, sizeof value) == 0 && *value) values[which] = strdup(value);
  if (home < 0 && spank_getenv(spank, "PYXIS_CONTAINER_MOUNT_HOME", value, sizeof value) == 0) home = !strcmp(value, "1") || !strcasecmp(value, "true") || !strcasecmp(value, "yes");
}

char* arguments[kMostArguments + 1];
size_t argument_count;
char* records;  // what the companion said
size_t records_size;

void add(const char* format, const char* text) {
  char* out = nullptr;
  if (argument_count >= kMostArguments || asprintf(&out, format, text) < 0) out = nullptr;
  if (!out) snprintf(refusal, sizeof refusal, "no memory, or too many groups");
  else arguments[argument_count++] = out;
}
void add_number(const char* name, long value) {
  char text[64];
  snprintf(text, sizeof text, "%s=%ld", name, value);
  add("%s", text);
}

void refuse(const char* doing, int error) { snprintf(refusal, sizeof refusal, "its image cannot be entered: %s: %s", doing, strerror(error)); }

void gather(spank_handle* spank) {
  uid_t uid = 0;
  gid_t gid = 0, *groups = nullptr;
  int group_count = 0;
  const int asked[] = {spank_get_item(spank, kJobUid, &uid), spank_get_item(spank, kJobGid, &gid), spank_get_item(spank, kJobGroups, &groups, &group_count)};
  for (const int error : asked)
    if (error != 0) return (void)snprintf(refusal, sizeof refusal, "its image cannot be entered: slurmstepd does not tell who the user is (%d %d %d)", asked[0], asked[1], asked[2]);
  add("%s", kProgram);
  add("%s", "container");
  add("at=%s", kAt);
  add("cache=%s", kCache);
  add_number("uid", uid);
  add_number("gid", gid);
  for (int i = 0; i < group_count; ++i) add_number("group", groups[i]);
  add_number("task", getpid());
  add("image=%s", values[Image]);
  if (values[Mounts]) add("mounts=%s", values[Mounts]);
  if (values[Workdir]) add("workdir=%s", values[Workdir]);
  if (values[Env]) add("env=%s", values[Env]);
  if (home == 1) add("%s", "home");
  // How the user reaches registries. A proxy's password may be among it: everybody sees arguments.
  static char value[4096];
  constexpr const char* kPassed[] = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "REGISTRY_AUTH_FILE", "SSL_CERT_FILE"};
  for (const char* name : kPassed) {
    char to[48];
    snprintf(to, sizeof to, "FAIRLEAD_SET_%s", name);
    if (spank_getenv(spank, name, value, sizeof value) == 0) setenv(to, value, 1);
    else unsetenv(to);
  }
}

// Reads what the companion says until it ends; what is for the user is told at once, once for each node.
void listen(int from, bool tells) {
  records = static_cast<char*>(malloc(kMostRecords));
  if (!records) return refuse("no memory", ENOMEM);
  size_t told = 0;
  while (records_size < kMostRecords) {
    const ssize_t got = read(from, records + records_size, kMostRecords - records_size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse("listen to the companion", errno);
    if (got == 0) return;
    records_size += static_cast<size_t>(got);
    while (const void* end = memchr(records + told, '\0', records_size - told)) {
      if (records[told] == 'S' && tells) slurm_spank_log("fairlead: %s", records + told + 1);
      told = static_cast<size_t>(static_cast<const char*>(end) - records) + 1;
    }
  }
  refuse("the image sets too many variables", E2BIG);
}

// Calls `visit` with each whole record.
template <class Visit>
void for_each_record(Visit visit) {
  for (size_t at = 0; at < records_size;) {
    const void* end = memchr(records + at, '\0', records_size - at);
    if (!end) return;
    visit(records[at], records + at + 1);
    at = static_cast<size_t>(static_cast<const char*>(end) - records) + 1;
  }
}

void call(bool tells) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return refuse("pipe", errno);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], 1);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_init(&how);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setsigdefault(&how, &all);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int error = posix_spawn(&child, kProgram, &files, &how, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return refuse(kProgram, error);
  }
  listen(ends[0], tells);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  bool stands = false;
  for_each_record([&](char kind, const char* text) {
    if (kind == 'E') snprintf(refusal, sizeof refusal, "%s", text);
    if (kind == 'K') stands = true;
  });
  if (!stands && refusal[0] == '\0') snprintf(refusal, sizeof refusal, "its image cannot be entered: the companion ended with status %d", status);
}

}  // namespace

void register_container_options(spank_handle* spank) {
  for (auto& option : options)
    if (spank_option_register(spank, &option) != 0) slurm_error("fairlead: --%s is not available", option.name);
}

void enter_container(spank_handle* spank) {
  take_defaults(spank);
  if (!values[Image]) return;
  int task = 0;
  (void)spank_get_item(spank, kTaskId, &task);
  // Its own, so that tasks of a node do not meet.
  if (unshare(CLONE_NEWNS) != 0) return refuse("unshare", errno);
  if (mount("", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return refuse("make mounts private", errno);
  gather(spank);
  if (refusal[0] == '\0') call(task == 0);
  if (refusal[0] != '\0') return;
  char root[64];
  snprintf(root, sizeof root, "%s/root", kAt);
  if (chdir(root) != 0) refuse("change into it", errno);
  // As into the shared root: nothing of that remains to be reached but what is mounted inside.
  else if (syscall(SYS_pivot_root, ".", ".") != 0) refuse("pivot_root", errno);
  else if (umount2(".", MNT_DETACH) != 0) refuse("leave the shared root", errno);
  else if (chdir("/") != 0) refuse("change into it", errno);
}

void take_on_container(spank_handle* spank) {
  if (!values[Image]) return;
  // Programs that raise rights trust files that here are the image's.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return refuse("give up new rights", errno);
  for_each_record([&](char kind, const char* text) {
    if (kind == 'U') spank_unsetenv(spank, text);
    if (kind == 'W' && chdir(text) != 0) snprintf(refusal, sizeof refusal, "--container-workdir: %s: %s", text, strerror(errno));
    if (kind != 'V') return;
    char name[256];
    const char* equals = strchr(text, '=');
    if (!equals || static_cast<size_t>(equals - text) >= sizeof name) return;
    snprintf(name, sizeof name, "%.*s", static_cast<int>(equals - text), text);
    spank_setenv(spank, name, equals + 1, 1);
  });
}
