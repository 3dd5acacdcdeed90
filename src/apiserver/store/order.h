// SPDX-License-Identifier: Apache-2.0
// Gives writes their place: checks what each one expects against the objects and the writes before it, and numbers those that pass.
#pragma once
#include <unordered_map>
#include <vector>

#include "apiserver/store/index.h"
#include "apiserver/store/store.h"

namespace fairlead::apiserver {

// One batch. Nothing in it is visible until its events are published.
class Order {
 public:
  explicit Order(const Index& index) : index_(index), next_(index.revision() + 1) {}

  struct Outcome {
    Result<Entry> result;           // what its `done` gets if the batch becomes durable
    bool leans_on_batch = false;    // decided on a write of this batch: void if the batch fails
  };
  Outcome add(const Write& write);
  const std::vector<StoreEvent>& events() const { return events_; }

 private:
  const Index& index_;
  Revision next_;
  std::unordered_map<std::string, Current> written_;
  std::vector<StoreEvent> events_;
};

}  // namespace fairlead::apiserver
