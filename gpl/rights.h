// SPDX-License-Identifier: GPL-3.0-or-later
// Rights that a container needs to prepare itself, and none of its daemons or sessions.
#pragma once
#include "base/result.h"

namespace fairlead::companion {

// Takes a capability (CAP_..., linux/capability.h) out of all sets of the calling thread, the bounding one too: neither it nor what it starts, as root or by a set-uid program, has it again. Done again, it does
// nothing. Forbidden: the thread may not (CAP_SETPCAP), and has it still.
Result<void> give_up(int capability);

}  // namespace fairlead::companion
