// SPDX-License-Identifier: Apache-2.0
// Network namespaces by way of children: no thread of ours ever changes its namespace.
#pragma once
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "kube/json.h"

namespace fairlead::fleet {

// A namespace pinned at `path` is there (and not just the file).
bool is_pinned(const std::string& path);
// Makes a network namespace, sets it up as a router that never redirects, and pins it at `path`. Nothing to do if one is there.
Result<void> pin_new_namespace(const std::string& path);
Result<void> unpin(const std::string& path);  // the namespace ends when nobody is in it; nothing to do if none is there

// Makes a namespace of ours a router of IPv6, too: addresses count at once (there is nobody to ask whether they are taken), announcements of routers do not. Repeatable.
Result<void> route_ipv6(const Fd& space);
// Lets a link of ours in this machine's own namespace have IPv6 addresses, and nobody announce routes on it. Nothing else of the machine changes.
Result<void> allow_ipv6(const std::string& link);

Result<Fd> open_namespace(const std::string& path);  // a pin or /proc/PID/ns/net

// Runs `ip` on these lines, in that namespace; the first failing line ends it. An Fd of -1 is our own namespace.
Result<void> ip_batch(const Fd& space, const std::vector<std::string>& lines);
// Each line on its own; failures do not count (for removing what may not be there).
void ip_try(const Fd& space, const std::vector<std::string>& lines);
// Names of the links there and whether each is set up (IFF_UP).
struct LinkFlag {
  std::string name;
  bool up = false;
};
Result<std::vector<LinkFlag>> list_links(const Fd& space);
// Is there a link of this name where the caller is? Asked of the kernel by name: /sys shows the links of the namespace it was mounted in, which need not be the caller's.
bool has_link(const std::string& name);

}  // namespace fairlead::fleet
