// SPDX-License-Identifier: GPL-3.0-or-later
#include "exporter_pod.h"

#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "jail.h"
#include "prepare.h"

namespace fairlead::companion {
namespace {

// Slurm shows anybody what no PrivateData hides, and this needs no more: who breaks into it can read the figures, and nothing else. The munge key is in another container.
Result<void> become_nobody() {
  const passwd* nobody = ::getpwnam("nobody");
  if (!nobody) return fail(Code::NotFound, "the image has no user nobody");
  const uid_t user = nobody->pw_uid;
  const gid_t group = nobody->pw_gid;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(group, group, group) != 0 || ::setresuid(user, user, user) != 0) return fail_errno(errno, "become nobody; the container needs CAP_SETUID and CAP_SETGID for that");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "give up new privileges");
  return {};
}

}  // namespace

Result<void> prepare_exporter_pod() {
  if (auto jail = prepare_jail(); !jail) return jail;
  if (auto linked = replace_link("/mnt/jail/etc", "/var/lib/extrausers"); !linked) return linked;
  return become_nobody();
}

}  // namespace fairlead::companion
