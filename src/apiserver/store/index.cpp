// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

namespace fairlead::apiserver {
namespace {

constexpr std::size_t catch_up_chunk = 1'000;  // past events copied out under the lock at a time

bool has_prefix(std::string_view key, std::string_view prefix) { return key.substr(0, prefix.size()) == prefix; }

// What keeping an event costs: its `value` is the current one or the `before` of a later event, so only `before` is held for history's sake.
std::size_t cost(const StoreEvent& event) { return event.key.size() + (event.before.size()) + 128; }

}  // namespace

// One watch. `mutex` is held while the watcher runs, so that dropping the watch can wait for it.
struct Index::Subscriber {
  std::string prefix;
  StoreWatcher watcher;
  std::mutex mutex;
  std::atomic<std::thread::id> running{};  // the thread inside the watcher
  bool dropped = false;                    // guarded by mutex, or by being `running`

  // Caller holds `mutex`.
  void deliver(const StoreEvent& event) {
    if (dropped || !has_prefix(event.key, prefix)) return;
    running.store(std::this_thread::get_id());
    watcher(event);
    running.store(std::thread::id{});
  }
};

// The list is replaced whole, so that publishing iterates over a fixed one. Shared with the guards: a watch may outlive the store.
struct Index::Subscribers {
  using List = std::vector<std::shared_ptr<Subscriber>>;
  std::mutex mutex;
  std::shared_ptr<const List> list = std::make_shared<const List>();

  std::shared_ptr<const List> now() {
    const std::lock_guard lock(mutex);
    return list;
  }
  void add(std::shared_ptr<Subscriber> subscriber) {
    const std::lock_guard lock(mutex);
    auto next = std::make_shared<List>(*list);
    next->push_back(std::move(subscriber));
    list = std::move(next);
  }
  void remove(const std::shared_ptr<Subscriber>& subscriber) {
    const std::lock_guard lock(mutex);
    auto next = std::make_shared<List>(*list);
    std::erase(*next, subscriber);
    list = std::move(next);
  }
};

class Index::Guard final : public Subscription {
 public:
  Guard(std::shared_ptr<Subscribers> all, std::shared_ptr<Subscriber> one) : all_(std::move(all)), one_(std::move(one)) {}
  ~Guard() override {
    all_->remove(one_);
    if (one_->running.load() == std::this_thread::get_id()) {  // dropped by its own watcher: waiting for it would never end
      one_->dropped = true;
      return;
    }
    const std::lock_guard lock(one_->mutex);
    one_->dropped = true;
  }

 private:
  std::shared_ptr<Subscribers> all_;
  std::shared_ptr<Subscriber> one_;
};

Index::Index(HistoryLimits limits, CommonParts common) : limits_(limits), pool_(std::move(common)), subscribers_(std::make_shared<Subscribers>()) {}
Index::~Index() = default;

void Index::load_current(std::string key, Revision revision, Value value) {
  const std::lock_guard lock(mutex_);
  if (value) {
    objects_.insert_or_assign(std::move(key), Current{revision, pool_.pack(std::move(value))});
  } else {
    objects_.erase(key);
  }
}

void Index::start_history(Revision compacted) {
  const std::lock_guard lock(mutex_);
  INVARIANT(history_.empty());
  compacted_ = revision_ = compacted;
}

void Index::append(StoreEvent& event) {
  INVARIANT(event.revision == revision_ + 1);
  revision_ = event.revision;
  const auto there = objects_.find(event.key);
  // Within one batch an event may have been made from a value that was not packed yet.
  if (there != objects_.end() && there->second.revision == event.before_revision) event.before = there->second.value;
  if (!event.value) {
    if (there != objects_.end()) objects_.erase(there);
  } else if (there != objects_.end()) {
    there->second = Current{event.revision, event.value};
  } else {
    objects_.emplace(event.key, Current{event.revision, event.value});
  }
  history_bytes_ += cost(event);
  history_.push_back(event);
}

void Index::trim() {
  while (!history_.empty() && (history_.size() > limits_.events || history_bytes_ > limits_.bytes)) {
    history_bytes_ -= cost(history_.front());
    compacted_ = history_.front().revision;
    history_.pop_front();
  }
}

void Index::publish(std::vector<StoreEvent> events) {
  if (events.empty()) return;
  for (StoreEvent& event : events) event.value = pool_.pack(std::move(event.value));
  std::shared_ptr<const Subscribers::List> list;
  {
    const std::lock_guard lock(mutex_);
    for (StoreEvent& event : events) append(event);
    trim();
    // Under the lock: a watch that registers after this sees these events as past ones, one registered before gets them here.
    list = subscribers_->now();
  }
  if (list->empty()) return;
  for (const StoreEvent& event : events) {
    for (const auto& subscriber : *list) {
      if (!has_prefix(event.key, subscriber->prefix)) continue;
      const std::lock_guard lock(subscriber->mutex);
      subscriber->deliver(event);
    }
  }
}

Current Index::current(const std::string& key) const {
  const std::shared_lock lock(mutex_);
  const auto it = objects_.find(key);
  return it == objects_.end() ? Current{} : it->second;
}

std::optional<Entry> Index::get(const std::string& key) const {
  Current now = current(key);
  if (now.revision == 0) return std::nullopt;
  return Entry{key, now.revision, std::move(now.value)};
}

Revision Index::revision() const {
  const std::shared_lock lock(mutex_);
  return revision_;
}

Revision Index::compacted() const {
  const std::shared_lock lock(mutex_);
  return compacted_;
}

Result<void> Index::check_revision(Revision revision, const char* doing) const {
  if (revision < compacted_) return fail(Code::Expired, fmt::format("{} revision {}: history is kept from revision {}", doing, revision, compacted_));
  if (revision > revision_) return fail(Code::Invalid, fmt::format("{} revision {}: the current revision is {}", doing, revision, revision_));
  return {};
}

Result<Range> Index::range(const std::string& prefix, const std::string& after, std::size_t limit, Revision at) const {
  const std::shared_lock lock(mutex_);
  if (at != 0) {
    if (auto fine = check_revision(at, "range at"); !fine) return std::unexpected(std::move(fine.error()));
  }
  Range out;
  out.revision = at == 0 ? revision_ : at;

  // Keys changed after `at`, with what they were then: walking back, the oldest event after `at` says it last.
  std::map<std::string_view, Current> then;
  for (Revision r = revision_; r > out.revision; --r) {
    const StoreEvent& event = history_[static_cast<std::size_t>(r - compacted_ - 1)];
    if (has_prefix(event.key, prefix) && event.key > after) then.insert_or_assign(event.key, Current{event.before_revision, event.before});
  }

  auto old = then.begin();
  auto now = after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(after);
  const auto add = [&](std::string_view key, const Current& current) {
    if (!current.value) return true;
    if (limit != 0 && out.entries.size() == limit) {
      out.more = true;
      return false;
    }
    out.entries.push_back(Entry{std::string(key), current.revision, current.value});
    return true;
  };
  while (true) {  // merge of two sorted sequences; where both have a key, `then` is right
    const bool has_now = now != objects_.end() && has_prefix(now->first, prefix);
    const bool has_old = old != then.end();
    if (!has_now && !has_old) break;
    const bool take_old = has_old && (!has_now || old->first <= now->first);
    if (take_old) {
      if (has_now && old->first == now->first) ++now;
      if (!add(old->first, old->second)) break;
      ++old;
    } else {
      if (!add(now->first, now->second)) break;
      ++now;
    }
  }
  return out;
}

void Index::events_after(Revision from, std::size_t limit, std::vector<StoreEvent>& out) const {
  out.clear();
  for (auto i = static_cast<std::size_t>(from - compacted_); i < history_.size() && out.size() < limit; ++i) out.push_back(history_[i]);
}

Result<std::unique_ptr<Subscription>> Index::watch(const std::string& prefix, Revision from, StoreWatcher watcher) {
  auto subscriber = std::make_shared<Subscriber>();
  subscriber->prefix = prefix;
  subscriber->watcher = std::move(watcher);
  auto guard = std::make_unique<Guard>(subscribers_, subscriber);

  // A long past is handed over in chunks without stopping writers; the last chunk and the registration are one step under the lock.
  // The subscriber's mutex is held throughout: a publisher that already sees it waits until the past is told.
  const std::lock_guard running(subscriber->mutex);
  std::vector<StoreEvent> chunk;
  bool live = false;
  while (!live) {
    {
      const std::shared_lock lock(mutex_);
      if (auto fine = check_revision(from, "watch from"); !fine) return std::unexpected(std::move(fine.error()));
      events_after(from, catch_up_chunk, chunk);
      if (chunk.size() < catch_up_chunk) {
        subscribers_->add(subscriber);
        live = true;
      }
    }
    for (const StoreEvent& event : chunk) {
      subscriber->deliver(event);
      from = event.revision;
    }
  }
  return guard;
}

}  // namespace fairlead::apiserver
