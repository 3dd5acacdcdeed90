// SPDX-License-Identifier: Apache-2.0
#include "fleet/fake_power.h"

#include <fmt/format.h>

namespace fairlead::fleet {

Result<FakePower::Board*> FakePower::find(const BmcAccess& access) {
  const auto found = boards_.find(access.bmc.host);
  if (found == boards_.end() || found->second.silent) return fail(Code::Unavailable, "its BMC does not answer");
  if (access.user != found->second.user || access.password != found->second.password) return fail(Code::Unauthorized, fmt::format("its BMC refuses user \"{}\"", access.user));
  return &found->second;
}

Result<PowerState> FakePower::state(const BmcAccess& access) {
  std::lock_guard lock(mutex_);
  auto board = find(access);
  if (!board) return std::unexpected(std::move(board.error()));
  return (*board)->state;
}

Result<void> FakePower::act(const BmcAccess& access, PowerAction action) {
  {
    std::lock_guard lock(mutex_);
    auto board = find(access);
    if (!board) return std::unexpected(std::move(board.error()));
    (*board)->told.push_back(action);
    if ((*board)->deaf) return {};
    (*board)->state = action == PowerAction::On || action == PowerAction::ForceRestart ? PowerState::On : PowerState::Off;
  }
  if (on_act) on_act(access.bmc.host, action);
  return {};
}

}  // namespace fairlead::fleet
