// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: writes in one line, a folder that goes away, a recorder of events.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "apiserver/store/store.h"
#include "base/files.h"

namespace fairlead::apiserver::test {

struct TempFolder {
  TempFolder() {
    std::string name = testing::TempDir() + "fairlead-store-XXXXXX";
    INVARIANT(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TempFolder() {
    if (!remove_tree(path)) ADD_FAILURE() << "left behind: " << path;
  }
  std::string path;
};

inline Write put(std::string key, std::string before, std::optional<Revision> expected = std::nullopt, std::string after = "") {
  return {.key = std::move(key), .expected = expected, .value = Template{std::move(before), std::move(after)}};
}
inline Write create(std::string key, std::string before) { return put(std::move(key), std::move(before), 0); }
inline Write erase(std::string key, std::optional<Revision> expected = std::nullopt) { return {.key = std::move(key), .expected = expected, .value = std::nullopt}; }

// "7 /a =x" or "8 /a gone": what a watcher saw, for comparison.
inline std::string text(const StoreEvent& event) {
  return std::to_string(event.revision) + " " + event.key + (event.value ? " =" + *event.value.bytes() : " gone");
}

// Thread-safe.
class Recorder {
 public:
  StoreWatcher watcher() {
    return [this](const StoreEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
      changed_.notify_all();
    };
  }
  std::vector<StoreEvent> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const StoreEvent& event : events()) out.push_back(text(event));
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<StoreEvent> events_;
};

}  // namespace fairlead::apiserver::test
