// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "governance/control/queue_kinds.h"
#include "governance/decision_log.h"

namespace fairlead::governance {

struct QueueControllerOptions {
  BooksOptions books;
  std::chrono::nanoseconds status_every{200ms};  // the status of a queue is written at most so often
  std::chrono::nanoseconds words_every{5s};      // ... and how much a waiting workload misses
  std::string log_by;                            // who writes the decision log: stands in it
};

// Owns the engine: tells it what is there (plan/books.h), and writes what it decides, each object by its own key, on the version that it was decided on. Before its first decision everything that has quota is counted.
class QueueController final : public kube::Controller {
 public:
  static constexpr const char* kName = "task-governance";
  // `wake`: has a key of this controller looked at; any thread. `log`: where the decision log goes; null: nowhere.
  QueueController(kube::KubeApi& api, const Clock& clock, std::function<void(const kube::ObjectKey&)> wake, QueueControllerOptions options = {}, std::unique_ptr<DecisionSink> log = nullptr)
      : api_(api), clock_(clock), wake_(std::move(wake)), options_(options), books_(options.books), log_(std::move(log)) {}
  std::string name() const override { return kName; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<kube::Next> look_and_write(const kube::ObjectKey& key);
  void look(const kube::ObjectKey& key);  // under mutex_
  void follow_policy();                   // under mutex_
  void follow_places();                   // under mutex_: tells nodes and pods, once some flavor has a topology
  std::vector<kube::ObjectKey> decide(const kube::ObjectKey& but);  // under mutex_: whom to wake
  void take_log_up();    // under mutex_
  void log_decisions();  // under mutex_
  void wake_all(const std::vector<kube::ObjectKey>& keys) const;
  Result<kube::Next> write_workload(const kube::ObjectKey& key, Books::Write write);
  void take(const kube::ObjectKey& key, const kube::Json& workload);

  kube::KubeApi& api_;
  const Clock& clock_;
  const std::function<void(const kube::ObjectKey&)> wake_;
  const QueueControllerOptions options_;
  const kube::Caches* caches_ = nullptr;
  std::mutex mutex_;
  Books books_;                                                     // under mutex_
  std::unique_ptr<DecisionSink> log_;                               // under mutex_
  std::atomic<bool> follows_places_ = false;                        // nodes and pods are told
  bool decided_ = false;                                            // at least once; under mutex_
  std::chrono::nanoseconds tended_{-1s};                            // when what follows from time was looked at; under mutex_
  bool logs_ = false;                                               // what is told and decided is recorded; under mutex_
  bool log_begun_ = false;                                          // ... and the record's begin was handed over
  std::map<kube::ObjectKey, std::chrono::nanoseconds> written_at_;  // statuses of queues, amounts that workloads miss; under mutex_
};

// Why task governance is off on this cluster: a definition that it needs is not there, or is somebody else's. Empty: it may run. Needs what QueueController declares.
Result<std::string> why_governance_is_off(kube::KubeApi& api);

}  // namespace fairlead::governance
