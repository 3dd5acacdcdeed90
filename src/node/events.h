// SPDX-License-Identifier: Apache-2.0
// Events of this node, written in the background: losing one loses no work.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "kube/kube_api.h"

namespace fairlead::node {

class Events {
 public:
  Events(kube::KubeApi& api, const Clock& clock, std::string node_name);
  ~Events();  // drops what is not written yet
  enum class Type { Normal, Warning };
  // At most 500 wait; the same event of the same object is written once in five minutes.
  void tell(const kube::Json& object, Type type, const std::string& reason, const std::string& message);

 private:
  void work(const std::stop_token& stop);
  kube::KubeApi& api_;
  const Clock& clock_;
  const std::string node_name_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<kube::Json> queue_;                            // under mutex_
  std::map<std::string, std::chrono::nanoseconds> recent_;  // under mutex_
  std::uint64_t count_ = 0;
  std::jthread thread_;
};

}  // namespace fairlead::node
