// SPDX-License-Identifier: Apache-2.0
// Login pods that are to have other sub-mounts (docs/design/009): made anew one at a time, when nobody is logged in. Pure.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::slurm {

// What a login container says of the people in it (`fairlead-slurm sessions`).
struct Sessions {
  int processes = 0;                // of people, their programs without a terminal included
  std::vector<std::string> people;  // by name, each once
  friend bool operator==(const Sessions&, const Sessions&) = default;
};
// Nothing: this is no such answer.
std::optional<Sessions> read_sessions(const std::string& json);

struct LoginPod {
  std::string name, uid;
  bool there = false, ready = false;
  bool renew = false;                // it is to be made anew
  std::optional<Sessions> sessions;  // none: it did not say
};
struct LoginRenewal {
  std::string end;                 // the pod that is to be ended; empty: none
  kube::Json memory;               // status.loginRenewal from now on; null: nothing
  std::vector<std::string> notes;  // for condition LoginAvailable, one for each pod that is to be made anew
  std::optional<std::chrono::nanoseconds> look_again;
};
// `memory`: status.loginRenewal. A pod is ended when two looks, some seconds apart, found nobody in it and every other login pod is ready. Unknown is somebody.
LoginRenewal plan_login_renewal(const std::vector<LoginPod>& pods, const kube::Json& memory, Instant now);

}  // namespace fairlead::slurm
