// SPDX-License-Identifier: Apache-2.0
// The driver without a disk, for tests and simulation: a write is answered on the caller's thread before write() returns, so one thread
// makes one order. Of several threads, whichever writes first answers for those that come meanwhile.
#include <deque>
#include <mutex>

#include "apiserver/store/index.h"
#include "apiserver/store/order.h"
#include "apiserver/store/store.h"

namespace fairlead::apiserver {
namespace {

constexpr std::size_t most_waiting = 100'000;

class MemoryStore final : public Store {
 public:
  MemoryStore(HistoryLimits limits, CommonParts common) : index_(limits, std::move(common)) {}

  void write(Write write, Done done) override {
    bool room = false;
    {
      const std::lock_guard lock(mutex_);
      room = queue_.size() < most_waiting;
      if (room) {
        queue_.push_back({std::move(write), std::move(done)});
        if (publishing_) return;  // the publishing thread (maybe this one, further up its stack) takes it
        publishing_ = true;
      }
    }
    if (room) return publish();
    if (done) done(fail(Code::Exhausted, "write: too many writes are waiting"));
  }

  std::optional<Entry> get(const std::string& key) const override { return index_.get(key); }
  Result<Range> range(const std::string& prefix, const std::string& after, std::size_t limit, Revision at) const override {
    return index_.range(prefix, after, limit, at);
  }
  Revision revision() const override { return index_.revision(); }
  Result<std::unique_ptr<Subscription>> watch(const std::string& prefix, Revision from, StoreWatcher watcher) override {
    return index_.watch(prefix, from, std::move(watcher));
  }

 private:
  struct Pending {
    Write write;
    Done done;
  };

  void publish() {
    while (true) {
      Pending next;
      {
        const std::lock_guard lock(mutex_);
        if (queue_.empty()) {
          publishing_ = false;
          return;
        }
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      Order order(index_);
      Order::Outcome outcome = order.add(next.write);
      index_.publish(order.events());
      if (next.done) next.done(std::move(outcome.result));
    }
  }

  Index index_;
  std::mutex mutex_;
  std::deque<Pending> queue_;
  bool publishing_ = false;
};

}  // namespace

std::unique_ptr<Store> make_memory_store(HistoryLimits limits, CommonParts common) { return std::make_unique<MemoryStore>(limits, std::move(common)); }

}  // namespace fairlead::apiserver
