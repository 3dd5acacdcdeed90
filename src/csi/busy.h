// SPDX-License-Identifier: Apache-2.0
// One operation on a volume at a time; who comes meanwhile is sent away at once (ABORTED), and tries again.
#pragma once
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace fairlead::csi {

class Busy {
 public:
  class Turn {
   public:
    Turn(Busy& busy, std::string name) : busy_(&busy), name_(std::move(name)) {}
    Turn(Turn&& other) noexcept : busy_(std::exchange(other.busy_, nullptr)), name_(std::move(other.name_)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (busy_ == nullptr) return;
      const std::lock_guard lock(busy_->mutex_);
      busy_->names_.erase(name_);
    }

   private:
    Busy* busy_;
    std::string name_;
  };
  // Nothing: somebody is at it.
  std::optional<Turn> take(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (!names_.insert(name).second) return std::nullopt;
    return std::optional<Turn>(std::in_place, *this, name);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

}  // namespace fairlead::csi
