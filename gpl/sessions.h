// SPDX-License-Identifier: GPL-3.0-or-later
// Who is in a login container: every process that is none of ours. Programs that people left behind without a terminal count as well, for they would end with the container.
#pragma once
#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct ProcessSeen {
  pid_t pid = 0;
  uid_t user = 0;     // real
  char state = 'S';   // Z: it has ended
  std::string name, title;  // as /proc/PID/comm and cmdline say, which its owner may change
};
struct People {
  int processes = 0;
  std::set<uid_t> users;
};
// Not counted: the first process, `self`, the companion's other processes, sshd until somebody is logged in ("sshd: ada@pts/0" is), what has ended.
People people_among(const std::vector<ProcessSeen>& processes, pid_t self);

// Every process of this PID namespace. What ends while it is looked at is left out; what cannot be read otherwise is an error.
Result<std::vector<ProcessSeen>> processes_here(const std::string& proc = "/proc");

// `sessions`: prints {"processes":N,"people":["ada"]}.
int print_sessions();

}  // namespace fairlead::companion
