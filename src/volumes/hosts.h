// SPDX-License-Identifier: Apache-2.0
// Further machines on which a pool's volumes are shown, as its daemon knows them (docs/design/077-volumes-on-other-machines.md).
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "volumes/plan/hosts.h"

namespace fairlead::volumes {

class Hosts {
 public:
  virtual ~Hosts() = default;
  virtual std::optional<HostSeen> seen(const std::string& host) = 0;  // nothing: there is none of this name
  virtual void ask(const std::string& host) = 0;                      // what is asked of it has changed, or is to be looked at again
};

// What was told last, and when that was by this process's clock: two machines' clocks may differ. Thread-safe.
class HostBoard final : public Hosts {
 public:
  // ask: is called without a lock; may be empty until there is somebody to be asked.
  explicit HostBoard(const Clock& clock, std::chrono::nanoseconds patience = api::kHostSilence) : clock_(clock), patience_(patience) {}
  void on_ask(std::function<void(const std::string& host)> ask) { ask_ = std::move(ask); }  // before anything is asked
  void told(api::VolumeHostFacts facts);
  void forget(const std::string& host);
  std::optional<HostSeen> seen(const std::string& host) override;
  void ask(const std::string& host) override {
    if (ask_) ask_(host);
  }

 private:
  struct Known {
    api::VolumeHostFacts facts;
    std::chrono::nanoseconds heard{};  // when `facts.heard` was another last
  };
  const Clock& clock_;
  const std::chrono::nanoseconds patience_;
  std::function<void(const std::string&)> ask_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

}  // namespace fairlead::volumes
