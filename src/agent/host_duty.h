// SPDX-License-Identifier: Apache-2.0
// What the agent of a host that joined does beside its pods: renews the certificate, reboots when its Machine says so.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "kube/kube_api.h"
#include "node/config.h"

namespace fairlead::agent {

// Is this boot the one that the Machine's last request is to end, and is that still waited for? Pure.
bool is_to_reboot(const kube::Json& machine, const std::string& boot_id, Instant now);
inline constexpr std::chrono::minutes kNoRebootAfter{25};  // its controller gives up later (fleet/plan/host_plan.h)

struct HostDutyPorts {
  std::function<Result<void>()> renew;      // writes the new certificate
  std::function<void()> restart;            // of this program: what has been read of the old certificate is not read again
  std::function<Result<void>()> reboot;
};

class HostDuty {
 public:
  HostDuty(kube::KubeApi& api, const Clock& clock, node::NodeConfig config, std::string boot_id, HostDutyPorts ports);
  ~HostDuty();
  // One round; for tests and the thread.
  void look();

 private:
  void renew_if_due();
  void reboot_if_asked();

  kube::KubeApi& api_;
  const Clock& clock_;
  const node::NodeConfig config_;
  const std::string boot_id_;
  const HostDutyPorts ports_;
  std::optional<std::chrono::nanoseconds> asked_renewal_;  // not more often than once a minute
  bool outside_ = false;                    // the site does not know us any more: told once
  bool rebooting_ = false;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace fairlead::agent
