// SPDX-License-Identifier: GPL-3.0-or-later
// Whose slurmd a node's record tells of: its worker writes pod and machine into the node's Extra, before slurmd runs where Slurm knows the node, else when it has registered. A pod that was deleted by force may live on
// where nobody reaches it; the one that is made in its place must not speak for it (docs/design/012).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "nodes.h"

namespace fairlead::companion {

struct Mark {
  std::string pod, machine;  // a pod's UID, a Node's name
  bool operator==(const Mark&) const = default;
};
// "fairlead:UID@MACHINE". None: somebody else's text, or damaged.
std::optional<Mark> read_mark(std::string_view extra);
std::string print_mark(const Mark& mark);
// Behind the mark of a node that was set DOWN, and whose reason is somebody else's: nothing of Slurm's was on it when its worker died. The next worker there writes its own mark, without it.
inline constexpr std::string_view kDiedIdle = "!idle";

// Is it that pod's, on that machine? `of`: "UID@", "@MACHINE" or "UID@MACHINE". A record without a mark contradicts nobody.
bool may_be_of(const NodeRecord& record, std::string_view of);

// May a worker that starts in `pod` say that what Slurm believes to run on its node is dead? Its own pod's containers before it are. Another pod's are only known to be when somebody has told Slurm (run_died), after which nothing is believed to run.
bool may_speak_for(const NodeRecord& record, bool something_runs, const std::string& pod);

}  // namespace fairlead::companion
