// SPDX-License-Identifier: Apache-2.0
// How an intent goes on, from what is seen alone: a death between two steps needs no memory of which was the last. Pure (docs/design/069-volume-pool.md).
#pragma once
#include <string>

#include "volumes/plan/ledger.h"
#include "volumes/pool.h"

namespace fairlead::volumes {

struct Next {
  enum class Do {
    Nothing,      // it is done
    Refuse,       // it cannot be, and nothing is to be left of it: `why`
    Stop,         // it cannot go on now, and what there is stays: `why`
    DropPart, MakePart, CopyPart, Publish, Remove, GrowFile, GrowDevice, Attach, Detach, StartEngine, StopEngine, GrowEngine, SetLimits
  };
  Do what = Do::Nothing;
  std::string why, device;        // device: of Nothing after Attach, of GrowDevice and Detach
  Code code = Code::Internal;     // of Refuse and Stop
};
// `begun`: this process has made the part itself; one that was there before may be half of it, and is made anew.
Next next_step(const Intent& intent, const Sight& seen, bool begun);

}  // namespace fairlead::volumes
