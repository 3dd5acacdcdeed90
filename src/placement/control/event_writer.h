// SPDX-License-Identifier: Apache-2.0
// Events about pods, as `kubectl describe` shows them, and few enough: an object says the same thing at most once in a while.
#pragma once
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/kube_api.h"

namespace fairlead::placement {

enum class EventKind { Normal, Warning };

// Thread-safe. An event that cannot be written is logged and forgotten: it is told again when it matters again.
class EventWriter {
 public:
  EventWriter(kube::KubeApi& api, const Clock& clock, std::string component) : api_(api), clock_(clock), component_(std::move(component)) {}
  // `about` needs metadata; its kind is given as `resource`. Cluster-scoped objects' events go to namespace default.
  void write(const kube::Resource& resource, const kube::Json& about, EventKind kind, const std::string& reason, const std::string& message);
  struct Note {
    kube::Json about;
    EventKind kind;
    std::string reason, message;
  };
  void write_all(const kube::Resource& resource, const std::vector<Note>& notes);  // under way at once, where the API can

 private:
  // Nothing: it was told a moment ago.
  std::optional<kube::Json> event(const kube::Resource& resource, const kube::Json& about, EventKind kind, const std::string& reason, const std::string& message);
  std::optional<std::uint64_t> due(const std::string& uid, const std::string& reason);  // the event's number

  static constexpr std::chrono::seconds quiet{60};    // between two events of one reason about one object
  static constexpr std::size_t remembered = 10'000;   // objects; beyond that all is forgotten at once
  kube::KubeApi& api_;
  const Clock& clock_;
  const std::string component_;
  std::mutex mutex_;
  std::map<std::string, std::chrono::nanoseconds> last_;  // by uid and reason
  std::uint64_t count_ = 0;
};

}  // namespace fairlead::placement
