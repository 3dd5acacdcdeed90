// SPDX-License-Identifier: Apache-2.0
// A simulated node: what an agent does to the API (registers, renews its lease, reports pods), with containers that are only names and delays.
#pragma once
#include <chrono>
#include <map>
#include <string>

#include "api/machine.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kube/kube_api.h"

namespace fairlead::sim {

class World;

class Node {
 public:
  Node(World& world, std::string name);
  // As the host does it to the node.
  void power_on();
  void power_off();        // everything on it is gone at once
  void connect(bool linked);
  bool powered() const { return powered_; }

 private:
  struct Pod {
    bool running = false;
    int restarts = 0;
    std::string incarnation;  // of the node when its containers were started
  };
  void tick(std::uint64_t epoch);  // once a second while powered
  void register_node();
  void renew_lease();
  void look_after_pods();
  void report(const kube::Json& pod, const Pod& state);

  World& world_;
  std::string name_;
  bool powered_ = false, linked_ = false, registered_ = false;
  std::uint64_t epoch_ = 0;  // counts power cycles: ticks armed before a power cut do nothing
  std::chrono::nanoseconds lease_due_{};
  std::map<std::string, Pod> pods_;  // by uid: what a disk would remember
};

}  // namespace fairlead::sim
