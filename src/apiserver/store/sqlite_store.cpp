// SPDX-License-Identifier: Apache-2.0
// The driver with a disk: writers queue, one thread takes all that wait, makes one transaction of them, and publishes when it is durable.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "apiserver/store/index.h"
#include "apiserver/store/order.h"
#include "apiserver/store/sqlite_log.h"
#include "apiserver/store/store.h"
#include "base/log.h"

namespace fairlead::apiserver {
namespace {

constexpr std::size_t most_waiting = 100'000;
constexpr std::size_t most_waiting_bytes = 256 << 20;
constexpr std::size_t largest_batch = 4'096;         // writes in one transaction
constexpr std::size_t largest_batch_bytes = 8 << 20;
constexpr Revision compaction_step = 512;            // rows looked at in one transaction, so that no writer waits long behind it
constexpr auto idle_after = std::chrono::milliseconds(20);

std::size_t size_of(const Write& write) { return write.key.size() + (write.value ? write.value->before.size() + write.value->after.size() : 0); }

class SqliteStore final : public Store {
 public:
  SqliteStore(SqliteOptions options, std::unique_ptr<SqliteLog> log) : options_(std::move(options)), index_(options_.history, options_.common), log_(std::move(log)) {}

  ~SqliteStore() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_one();
    if (committer_.joinable()) committer_.join();  // after all that waits is answered
  }

  Result<void> load() {
    bool history = false;
    std::string wrong;
    auto read = log_->read([&](SqliteLog::Row row) {
      if (row.revision <= log_->compacted()) return index_.load_current(std::move(row.key), row.revision, std::move(row.value));
      if (!history) index_.start_history(log_->compacted());
      history = true;
      const Current before = index_.current(row.key);
      if (before.revision != row.previous && wrong.empty()) {
        wrong = fmt::format("revision {} of {} supersedes {}, found {}", row.revision, row.key, row.previous, before.revision);
      }
      index_.publish({StoreEvent{.revision = row.revision, .key = std::move(row.key), .value = std::move(row.value), .before = before.value,
                                 .before_revision = before.revision}});
    });
    if (!read) return read;
    if (!wrong.empty()) return fail(Code::Invalid, fmt::format("open store {}: damaged: {}; restore a backup", options_.path, wrong));
    if (!history) index_.start_history(log_->revision());
    return {};
  }

  void start() {
    committer_ = std::thread([this] { run(); });
  }

  void write(Write write, Done done) override {
    const std::size_t size = size_of(write);
    bool room = false;
    {
      const std::lock_guard lock(mutex_);
      room = queue_.size() < most_waiting && waiting_bytes_ + size <= most_waiting_bytes;
      if (room) {
        waiting_bytes_ += size;
        queue_.push_back({std::move(write), std::move(done)});
        if (queue_.size() > 1) return;  // whoever queued the first one woke the committer
      }
    }
    if (room) {
      work_.notify_one();
    } else if (done) {
      done(fail(Code::Exhausted, "write: too many writes are waiting for the disk"));
    }
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

  // The committer thread: the only one that touches log_ and that publishes.
  void run() {
    bool alive = true;
    std::vector<Pending> batch;
    while (alive) {
      bool idle = false;
      {
        std::unique_lock lock(mutex_);
        const auto something = [&] { return stopping_ || !queue_.empty(); };
        if (compactable() > static_cast<Revision>(options_.compact_after)) {
          idle = !work_.wait_for(lock, idle_after, something);
        } else {
          work_.wait(lock, something);
        }
        if (!idle && queue_.empty()) return;  // stopping, and all is answered
        take(batch);
      }
      if (!batch.empty()) alive = commit(batch);
      batch.clear();
      // A store that is never idle must not grow without end either.
      const bool overdue = compactable() > 20 * static_cast<Revision>(options_.compact_after) + 10'000;
      if (alive && (idle || overdue)) alive = survived(log_->compact(index_.compacted(), compaction_step), "compact");
      if (alive) alive = survived(log_->checkpoint_if_long(), "checkpoint");
    }
  }

  Revision compactable() const { return no_room_ ? 0 : index_.compacted() - log_->compacted(); }

  void take(std::vector<Pending>& batch) {
    std::size_t bytes = 0;
    while (!queue_.empty() && batch.size() < largest_batch && bytes < largest_batch_bytes) {
      const std::size_t size = size_of(queue_.front().write);
      bytes += size;
      waiting_bytes_ -= size;
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  }

  // False: the process must stop.
  bool commit(std::vector<Pending>& batch) {
    Order order(index_);
    std::vector<Order::Outcome> outcomes;
    outcomes.reserve(batch.size());
    for (const Pending& pending : batch) outcomes.push_back(order.add(pending.write));

    SqliteLog::Outcome written = SqliteLog::Outcome::Done;
    if (!order.events().empty()) written = log_->append(order.events());
    if (written == SqliteLog::Outcome::Unknown) return survived(written, "commit");
    if (written == SqliteLog::Outcome::Done) {
      if (!order.events().empty() && std::exchange(no_room_, false)) log_info("store: writing again", {{"path", options_.path}});
      index_.publish(order.events());
    } else {
      const bool full = written == SqliteLog::Outcome::Full;
      if (full && !std::exchange(no_room_, true)) log_error("store: no room on disk, refusing writes", {{"path", options_.path}, {"why", log_->reason()}});
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (!outcomes[i].leans_on_batch) continue;
        outcomes[i].result = fail(full ? Code::Exhausted : Code::Unavailable,
                                  fmt::format("write {}: {}: {}", batch[i].write.key, full ? "no room on the store's disk" : "the store is locked", log_->reason()));
      }
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].done) batch[i].done(std::move(outcomes[i].result));
    }
    return true;
  }

  bool survived(SqliteLog::Outcome outcome, const char* doing) {
    if (outcome == SqliteLog::Outcome::Full && std::string_view(doing) != "commit") no_room_ = true;  // no more housekeeping until a write succeeds
    if (outcome != SqliteLog::Outcome::Unknown) return true;
    // After a failed fsync the kernel may have dropped the pages and call the next fsync a success: neither "done" nor "failed" would be true.
    const std::string why = fmt::format("store {}: {}: {}: it is not known what is on the disk; stopping, a restart reads what is there", options_.path, doing,
                                        log_->reason());
    if (options_.fatal) {
      options_.fatal(why);
    } else {
      log_error("store: stopping", {{"why", why}});
      std::abort();
    }
    return false;
  }

  const SqliteOptions options_;
  Index index_;
  std::unique_ptr<SqliteLog> log_;
  bool no_room_ = false;  // committer's
  std::mutex mutex_;      // guards the rest
  std::condition_variable work_;
  std::deque<Pending> queue_;
  std::size_t waiting_bytes_ = 0;
  bool stopping_ = false;
  std::thread committer_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(SqliteOptions options) {
  auto log = SqliteLog::open(options);
  if (!log) return std::unexpected(std::move(log.error()));
  auto store = std::make_unique<SqliteStore>(std::move(options), std::move(*log));
  if (auto loaded = store->load(); !loaded) return std::unexpected(std::move(loaded.error()));
  store->start();
  return store;
}

}  // namespace fairlead::apiserver
