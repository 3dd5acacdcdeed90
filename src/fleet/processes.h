// SPDX-License-Identifier: Apache-2.0
// Finding a site's processes and mounts by name, whatever our records say.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "fleet/site.h"

namespace fairlead::fleet {

enum class Role { Node, Server };
struct SiteProcess {
  ProcessIdentity identity;
  Role role = Role::Node;
  std::string node;  // of Role::Node
};
// What a command line says: a node's process of this site (`fairlead-agent node-init --config DIR/nodes/NAME/agent.json`), its server
// (`fairlead-server ... --state-dir DIR ...`), or neither.
std::optional<SiteProcess> classify_process(const Site& site, const std::vector<std::string>& argv);
// All of them that are alive (zombies are not), seen from this pid namespace.
std::vector<SiteProcess> find_site_processes(const Site& site);

bool is_alive(const ProcessIdentity& identity);  // there, the same one, and no zombie
// The same, where "no" has consequences: an error is no answer (no descriptor left, /proc not readable).
Result<bool> lives(const ProcessIdentity& identity);
// SIGKILL by pidfd and waits for its end. Gone already: fine. Unavailable: still there after `limit`.
Result<void> kill_process(const ProcessIdentity& identity, std::chrono::milliseconds limit);
// SIGTERM, and SIGKILL if it is still there after `grace`.
Result<void> stop_process(const ProcessIdentity& identity, std::chrono::milliseconds grace, std::chrono::milliseconds limit);

// Mount points at or below `dir`, deepest first; a path mounted on twice stands there twice.
std::vector<std::string> mounts_below(std::string_view mountinfo, std::string_view dir);

}  // namespace fairlead::fleet
