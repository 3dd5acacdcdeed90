// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <mutex>
#include <set>

#include "base/rng.h"
#include "kube/controller.h"
#include "notify/courier.h"
#include "notify/plan/delivery.h"

namespace fairlead::notify {

// Sends what waits in Notifications by the channels of their topic, and writes down what came of it. The queue is the objects: a server that starts again finds it as it was.
// It never waits for a channel: a Courier carries aside and wakes it.
class DeliveryController final : public kube::Controller {
 public:
  struct Options {
    std::string space;  // only topics of this namespace; empty: all
    std::uint64_t seed = 0;
  };
  static constexpr const char* kName = "notify-delivery";
  DeliveryController(kube::KubeApi& api, const Clock& clock, std::unique_ptr<Courier> courier, Options options) : api_(api), clock_(clock), courier_(std::move(courier)), options_(std::move(options)), rng_(options_.seed) {}
  std::string name() const override { return kName; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& topic) override;
  std::size_t remembered();  // topics that this process keeps something of

 private:
  // What this process knows of a topic beyond the cache. Used by one thread at a time, as its key is.
  struct Memory {
    std::vector<Done> outcomes;  // not written yet
    struct Written {
      kube::Json object;                // newer than the cache
      std::set<std::string> superseded; // versions that it replaced
    };
    std::map<std::string, Written> written;  // by uid
    std::int64_t dropped = 0;                // not written yet
  };
  Memory& memory_of(const kube::ObjectKey& topic);
  void forget(const kube::ObjectKey& topic);  // what memory_of gave is gone
  std::vector<kube::Json> objects_of(const kube::ObjectKey& topic, Memory& memory) const;
  void note(Letter& letter, Memory& memory, Instant now);
  Result<void> write(const kube::Json& object, const Letter& letter, Memory& memory);
  Result<void> remove(const std::vector<Removal>& removals, Memory& memory);
  Result<void> write_topic(const kube::Json& topic, const DeliveryPlan& plan, Memory& memory, Instant now);
  Result<Secrets> read_secrets(const std::string& space, const Channel& channel);
  double chance();

  kube::KubeApi& api_;
  const Clock& clock_;
  const std::unique_ptr<Courier> courier_;
  const Options options_;
  const kube::Caches* caches_ = nullptr;
  std::mutex mutex_;
  Rng rng_;                                   // under mutex_
  std::map<kube::ObjectKey, Memory> memory_;  // under mutex_; its values are not
};

}  // namespace fairlead::notify
