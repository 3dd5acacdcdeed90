// SPDX-License-Identifier: Apache-2.0
// What the heads of Slurm clusters say of themselves, kept up to date by asking: one question at a time is under way at each head, which answers when something changes.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "kube/kube_api.h"
#include "slurm/plan/heads.h"

namespace fairlead::slurm {

// A port: the controller's tests answer themselves.
class HeadReports {
 public:
  virtual ~HeadReports() = default;
  // Asks these pods of the cluster from now on, and no others. Cheap; call it as often as you like.
  virtual void watch(const kube::ObjectKey& cluster, const std::vector<kube::ObjectKey>& heads) = 0;
  // Answers of the last seconds, by pod name. A head that does not answer is not in it.
  virtual std::map<std::string, HeadReport> reports(const kube::ObjectKey& cluster) const = 0;
};

// By exec of `fairlead-slurm status` in each head, on a thread for each; changes are told. Its end waits for what is under way, 2 s at most where heads answer.
class HeadWatch final : public HeadReports {
 public:
  HeadWatch(kube::KubeApi& api, const Clock& clock, std::function<void(const kube::ObjectKey& cluster)> changed) : api_(api), clock_(clock), changed_(std::move(changed)) {}
  ~HeadWatch() override;
  void watch(const kube::ObjectKey& cluster, const std::vector<kube::ObjectKey>& heads) override;
  std::map<std::string, HeadReport> reports(const kube::ObjectKey& cluster) const override;

 private:
  struct Asked {
    HeadReport report;
    std::chrono::nanoseconds heard = std::chrono::nanoseconds::min();
    std::jthread thread;
  };
  void ask(const std::stop_token& stop, const kube::ObjectKey& cluster, const kube::ObjectKey& head);

  kube::KubeApi& api_;
  const Clock& clock_;
  const std::function<void(const kube::ObjectKey&)> changed_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::map<kube::ObjectKey, std::map<std::string, Asked>> asked_;  // under mutex_
  struct Ending {
    std::jthread thread;
    std::chrono::nanoseconds since;
  };
  std::vector<Ending> ending_;  // under mutex_: asked to stop, perhaps not over yet
};

}  // namespace fairlead::slurm
