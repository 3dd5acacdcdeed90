// SPDX-License-Identifier: Apache-2.0
// BMCs of values: what PowerControl promises, without boards. For tests and the simulation; they may lie, refuse, be slow or silent.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "fleet/power_control.h"

namespace fairlead::fleet {

class FakePower final : public PowerControl {
 public:
  struct Board {
    PowerState state = PowerState::On;
    std::string user = "admin", password = "secret";
    bool silent = false;           // does not answer
    bool deaf = false;             // takes what it is told, and does nothing
    std::vector<PowerAction> told; // in order
  };
  Result<PowerState> state(const BmcAccess& access) override;
  Result<void> act(const BmcAccess& access, PowerAction action) override;

  // Made as it is first named, by the host of its address. Not while others call.
  Board& board(const std::string& host) { return boards_[host]; }
  // After each action that a board has taken; not under the lock.
  std::function<void(const std::string& host, PowerAction action)> on_act;

 private:
  Result<Board*> find(const BmcAccess& access);
  std::mutex mutex_;
  std::map<std::string, Board> boards_;
};

}  // namespace fairlead::fleet
