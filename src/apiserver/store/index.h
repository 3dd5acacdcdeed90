// SPDX-License-Identifier: Apache-2.0
// What both drivers keep in memory: the current objects, recent events, and who watches. Reads come from here alone.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "apiserver/store/store.h"

namespace fairlead::apiserver {

// Current value of a key; revision 0: absent.
struct Current {
  Revision revision = 0;
  Value value;
};

// Thread-safe. One thread at a time publishes; everything else from any thread.
class Index {
 public:
  explicit Index(HistoryLimits limits, CommonParts common = {});
  ~Index();

  // While opening, before anybody reads. `load_current`: an object as of `compacted`, in any order; then `start_history(compacted)`;
  // then `publish` of the events above it, in order.
  void load_current(std::string key, Revision revision, Value value);
  void start_history(Revision compacted);

  // Makes the events visible (all at once), then calls the watchers, in order. Revisions follow on from revision() without a gap.
  // What is kept and told is packed: whoever keeps it too holds the same memory.
  void publish(std::vector<StoreEvent> events);

  Current current(const std::string& key) const;
  std::optional<Entry> get(const std::string& key) const;
  Result<Range> range(const std::string& prefix, const std::string& after, std::size_t limit, Revision at) const;
  Revision revision() const;
  Revision compacted() const;  // events above this are kept
  Result<std::unique_ptr<Subscription>> watch(const std::string& prefix, Revision from, StoreWatcher watcher);

 private:
  struct Subscriber;
  struct Subscribers;
  class Guard;
  void append(StoreEvent& event);
  void trim();
  Result<void> check_revision(Revision revision, const char* doing) const;
  void events_after(Revision from, std::size_t limit, std::vector<StoreEvent>& out) const;

  const HistoryLimits limits_;
  ValuePool pool_;  // of the publishing thread
  mutable std::shared_mutex mutex_;  // guards all below; never held while a watcher runs
  std::map<std::string, Current, std::less<>> objects_;
  std::deque<StoreEvent> history_;   // revisions compacted_ + 1, + 2, ... revision_
  std::size_t history_bytes_ = 0;
  Revision compacted_ = 0;
  Revision revision_ = 0;
  std::shared_ptr<Subscribers> subscribers_;
};

}  // namespace fairlead::apiserver
