// SPDX-License-Identifier: Apache-2.0
// A host of values: what LocalHost promises, without processes. For tests and the simulation, which hangs its simulated nodes on `on_step`.
#pragma once
#include <map>
#include <mutex>
#include <set>

#include "base/clock.h"
#include "fleet/local_host.h"

namespace fairlead::fleet {

class FakeHost final : public LocalHost {
 public:
  explicit FakeHost(const Clock& clock) : clock_(clock) {}

  Result<void> ready() override;
  Result<Observation> observe(const std::string& name, const api::Seat& seat) override;
  Result<ProcessIdentity> start(const api::Machine& machine) override;
  Result<void> connect(const std::string& name, const api::Seat& seat) override;
  Result<void> set_link(const api::Seat& seat, api::Link link) override;
  Result<void> kill(const std::string& name) override;
  Result<void> stop(const std::string& name, std::chrono::milliseconds grace) override;
  Result<void> remove(const std::string& name, const api::Seat& seat) override;
  void watch_exits(std::function<void(const std::string&)> callback) override;

  // After each step that changed something; not under the lock.
  std::function<void(const std::string& name, Step step)> on_step;
  // The node dies by itself; tells the watcher.
  void crash(const std::string& name);
  // The next `times` calls of this step fail with Unavailable.
  void fail_next(Step step, int times = 1);

 private:
  struct Node {
    Observation seen;
    int index = 0;
  };
  Result<void> allowed(Step step);
  void tell(const std::string& name, Step step);
  const Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, Node> nodes_;
  std::map<Step, int> failures_;
  pid_t last_pid_ = 1000;
  std::function<void(const std::string&)> exits_;
};

}  // namespace fairlead::fleet
