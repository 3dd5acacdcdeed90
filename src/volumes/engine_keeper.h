// SPDX-License-Identifier: Apache-2.0
// Where a pool's daemon runs in a container its engines would end with it: a process in another container starts them instead, and keeps them (docs/design/080-engines-in-containers.md). They are its children, and go on whatever becomes of the daemon. It reaps every child of its process that is not its own: nothing else may start any there.
//   A request is one packet of a Unix socket: the arguments, each ended by a zero byte, with two file descriptors, stdin and stderr of the program. Which program it is the keeper says.
//   The answer is one packet: its exit status in decimal digits, once it has ended; an engine goes on in the background.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::volumes {

inline constexpr std::string_view kKeeperAt = "unix://";  // and a path: in place of an engine's program
inline constexpr std::size_t kMostOrder = 64 << 10;  // bytes of a request

// Invalid: empty, an argument without its end, or another command than "serve".
Result<std::vector<std::string>> read_order(std::string_view packet);
std::string print_order(const std::vector<std::string>& arguments);

class EngineKeeper {
 public:
  // The socket is made anew, for root alone; its folder has to be there. program: absolute. Conflict: another keeper answers there.
  static Result<std::unique_ptr<EngineKeeper>> start(const std::string& socket, const std::string& program);
  virtual ~EngineKeeper() = default;
  // Takes no more requests. Engines go on.
  virtual void close() = 0;
  // Whether anything that it started lives still.
  virtual bool keeps() const = 0;
};

// Starts an engine by the keeper that listens there; `input` is its stdin. As run_checked: an error shows what it said. Unavailable: nobody keeps engines there, or not within `limit`.
Result<void> ask_keeper(const std::string& socket, const std::vector<std::string>& arguments, std::chrono::milliseconds limit, std::string_view input = {});
bool keeper_answers(const std::string& socket);

}  // namespace fairlead::volumes
