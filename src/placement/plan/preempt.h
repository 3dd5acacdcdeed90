// SPDX-License-Identifier: Apache-2.0
// Who leaves a node so that a more important pod fits. As kube-scheduler's DefaultPreemption chooses: the node whose loss is least.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "placement/plan/ask.h"

namespace fairlead::placement {

struct Room {
  Board::NodeIndex node = -1;
  std::vector<Board::PodIndex> victims;  // those that leave, not those that leave already
};
struct Budgets {
  std::vector<const Budget*> budgets;
  std::vector<std::int64_t> allowed;  // what is left of each, counted down as victims are chosen
  void charge(const Pod& victim);
};

// Nothing: nobody can make room; `why` then says so, node by node. The board is as before when it returns.
std::optional<Room> make_room(Board& board, Board::PodIndex pod, Ask& ask, const Budgets& budgets, Reasons& reasons, std::string& why);

}  // namespace fairlead::placement
