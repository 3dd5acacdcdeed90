// SPDX-License-Identifier: Apache-2.0
#include "apiserver/watch_stream.h"

#include <fmt/format.h>

#include <deque>

#include "apiserver/status.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;

std::string_view type_name(kube::EventType type) {
  switch (type) {
    case kube::EventType::Added: return "ADDED";
    case kube::EventType::Modified: return "MODIFIED";
    case kube::EventType::Deleted: return "DELETED";
    case kube::EventType::Bookmark: break;
  }
  return "BOOKMARK";
}

http::Buffer line(kube::EventType type, const Json& object) {
  std::string out = fmt::format("{{\"type\":\"{}\",\"object\":", type_name(type));
  append_json(out, object);
  out += "}\n";
  return std::make_shared<const std::string>(std::move(out));
}

constexpr auto tick = 1s;
constexpr auto backlog_tick = 20ms;  // a client that reads slowly is looked at this often
constexpr std::size_t most_watches = 12'000;

}  // namespace

// Wakes the hub's thread; outlives the hub, since connections call it.
struct WatchHub::Signal {
  std::mutex mutex;
  std::condition_variable_any changed;
  bool backlog = false, reap = false;
  void raise(bool Signal::* what) {
    {
      const std::lock_guard lock(mutex);
      this->*what = true;
    }
    changed.notify_one();
  }
};

class WatchHub::One : public std::enable_shared_from_this<WatchHub::One> {
 public:
  One(WatchPlan plan, const Clock& clock, const Options& options, std::shared_ptr<Signal> signal)
      : plan_(std::move(plan)), shape_(*plan_.kind), clock_(clock), options_(options), signal_(std::move(signal)) {
    if (plan_.form == Form::Yaml) plan_.form = Form::Json;
    const std::string& from = plan_.query.resource_version;
    if (!from.empty() && from.find_first_not_of("0123456789") == std::string::npos && from.size() < 19) last_ = std::stoll(from);
  }

  // On the thread that publishes, or within Registry::watch.
  void take(const RegistryEvent& event) {
    if (event.failure) return fail_with(*event.failure);
    if (event.initial_end && !plan_.bookmarks) return;  // a bookmark like others: only for who asked for them
    http::Buffer piece = encode(event);
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    last_ = std::max(last_, event.object.revision);
    push_locked(std::move(piece));
  }

  bool starting() const { return starting_.load(); }

  void start(std::shared_ptr<http::Stream> stream, std::unique_ptr<Subscription> subscription, std::chrono::nanoseconds now) {
    starting_ = false;
    // Not under the mutex: it calls back at once if the client has gone already.
    stream->on_close([weak = weak_from_this(), signal = signal_] {
      if (auto self = weak.lock()) self->close();
      signal->raise(&Signal::reap);
    });
    const std::lock_guard lock(mutex_);
    stream_ = std::move(stream);
    subscription_ = std::move(subscription);
    bookmark_at_ = now + options_.bookmark_every;
    end_at_ = now + plan_.timeout;
    flush_locked();
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    pending_.clear();
    pending_bytes_ = 0;
  }

  // On the hub's thread. False: the watch is over and may be dropped.
  bool keep_going(std::chrono::nanoseconds now, Revision seen) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    flush_locked();
    const bool ends = now >= end_at_;
    if (plan_.bookmarks && (ends || now >= bookmark_at_)) {
      bookmark_at_ = now + options_.bookmark_every;
      if (!plan_.kind->converts) last_ = std::max(last_, seen - 1);  // see seen_: everything below has been pushed; what is converted first comes later
      if (last_ > 0) push_locked(bookmark());
    }
    if (ends) closed_ = closed_ || pending_.empty();  // a client that is behind gets what it was promised first
    return !closed_;
  }
  // Its kind is served no more: the client gets what is left, and an end.
  void end_if_gone(const KindTable& kinds) {
    const kube::Resource& resource = plan_.kind->resource;
    if (kinds.find(resource.group, resource.version, resource.plural)) return;
    const std::lock_guard lock(mutex_);
    end_at_ = std::chrono::nanoseconds::min();
  }
  bool behind() const {
    const std::lock_guard lock(mutex_);
    return !closed_ && !pending_.empty();
  }

  // The last step, on the hub's thread; waits for a running take().
  void drop() {
    close();
    std::unique_ptr<Subscription> subscription;
    std::shared_ptr<http::Stream> stream;
    {
      const std::lock_guard lock(mutex_);
      subscription = std::move(subscription_);
      stream = std::move(stream_);
    }
  }

 private:
  // The last event that the client gets: a Status.
  void fail_with(const Error& error) {
    auto piece = std::make_shared<const std::string>(error_line(status_of(error)));
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    push_locked(std::move(piece));
    end_at_ = std::chrono::nanoseconds::min();
    signal_->raise(&Signal::backlog);
  }
  http::Buffer encode(const RegistryEvent& event) {
    if (plan_.form == Form::Json) return event.line;
    const auto object = kube::parse_json(*event.object.bytes);
    if (!object) return event.line;
    if (plan_.form == Form::Partial) return line(event.type, partial_object(*object));
    Json metadata = Json::object({{"resourceVersion", std::to_string(event.object.revision)}});
    if (event.type == kube::EventType::Bookmark) {
      if (const Json* annotations = (*object)["metadata"].find("annotations")) metadata.set("annotations", *annotations);
      return line(event.type, table_frame(shape_, std::move(metadata), {}, false));
    }
    std::vector<Json> rows;
    rows.push_back(shape_.row(*object, plan_.include, clock_.now()));
    // Clients keep the columns of the first event. Events of one watch come one after the other, so the flag needs no lock.
    const bool first = !std::exchange(defined_columns_, true);
    return line(event.type, table_frame(shape_, std::move(metadata), std::move(rows), first));
  }

  http::Buffer bookmark() const {
    Json metadata = Json::object({{"resourceVersion", std::to_string(last_)}, {"creationTimestamp", nullptr}});
    if (plan_.form == Form::Table) return line(kube::EventType::Bookmark, table_frame(shape_, std::move(metadata), {}, false));
    Json object = Json::object({{"kind", plan_.kind->resource.kind}, {"apiVersion", plan_.kind->resource.api_version()}});
    if (plan_.form == Form::Partial) object = Json::object({{"kind", "PartialObjectMetadata"}, {"apiVersion", "meta.k8s.io/v1"}});
    object.set("metadata", std::move(metadata));
    return line(kube::EventType::Bookmark, object);
  }

  void push_locked(http::Buffer piece) {
    pending_bytes_ += piece->size();
    pending_.push_back(std::move(piece));
    flush_locked();
    // What is there when a watch begins may be large; what heaps up later has a bound.
    if (stream_ == nullptr || pending_.empty()) {
      start_bytes_ = pending_bytes_;
      return;
    }
    if (pending_bytes_ > start_bytes_ + options_.backlog) {
      closed_ = true;
      pending_.clear();
      signal_->raise(&Signal::reap);
    }
  }

  void flush_locked() {
    if (stream_ == nullptr || closed_) return;
    while (!pending_.empty() && stream_->waiting() < options_.window) {
      pending_bytes_ -= pending_.front()->size();
      if (!stream_->write(std::move(pending_.front()))) {
        closed_ = true;
        pending_.clear();
        signal_->raise(&Signal::reap);
        return;
      }
      pending_.pop_front();
    }
    if (!pending_.empty()) signal_->raise(&Signal::backlog);
  }

  WatchPlan plan_;
  const TableShape shape_;
  const Clock& clock_;
  const Options options_;
  const std::shared_ptr<Signal> signal_;
  std::atomic<bool> starting_{true};
  bool defined_columns_ = false;

  mutable std::mutex mutex_;  // guards all below; never held while a subscription is dropped
  std::shared_ptr<http::Stream> stream_;
  std::unique_ptr<Subscription> subscription_;
  std::deque<http::Buffer> pending_;
  std::size_t pending_bytes_ = 0, start_bytes_ = 0;
  Revision last_ = 0;  // the client knows everything up to here
  bool closed_ = false;
  std::chrono::nanoseconds bookmark_at_{}, end_at_{};
};

WatchHub::WatchHub(Registry& registry, const Clock& clock, Options options) : registry_(registry), clock_(clock), options_(options), signal_(std::make_shared<Signal>()) {
  const auto kinds = registry.kinds();
  for (const auto& [group, plural] : {std::pair{"coordination.k8s.io", "leases"}, std::pair{"", "events"}}) {
    const auto kind = kinds->find(group, "v1", plural);
    if (!kind) continue;
    WatchQuery query;
    query.resource_version = std::to_string(registry.revision());
    query.lines = false;
    // The first events come from within watch(), before others may have got theirs: they do not count.
    auto live = std::make_shared<std::atomic<bool>>(false);
    auto subscription = registry.watch(*kind, "", query, [this, live](const RegistryEvent& event) {
      if (live->load()) seen(event.object.revision);
    });
    *live = true;
    if (subscription) pulse_.push_back(std::move(*subscription));
  }
  thread_ = std::jthread([this](std::stop_token stop) { run(std::move(stop)); });
}

WatchHub::~WatchHub() { stop(); }

void WatchHub::stop() {
  std::list<std::shared_ptr<One>> over;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    over.swap(watches_);
  }
  for (const auto& one : over) one->drop();
  if (thread_.joinable()) {
    thread_.request_stop();
    signal_->raise(&Signal::reap);
    thread_.join();
  }
  pulse_.clear();
}

std::size_t WatchHub::size() const {
  const std::lock_guard lock(mutex_);
  return watches_.size();
}

void WatchHub::seen(Revision revision) {
  Revision before = seen_.load();
  while (before < revision && !seen_.compare_exchange_weak(before, revision)) {
  }
}

void WatchHub::open(WatchPlan plan, std::shared_ptr<http::Exchange> exchange) {
  const auto refuse = [&](Error error) { exchange->respond(to_response(status_of(error))); };
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return refuse({Code::Unavailable, "the server is shutting down"});
    if (watches_.size() >= most_watches) {
      return exchange->respond(to_response({.code = 429, .reason = "TooManyRequests", .message = "too many watches are open", .details = {.retry_after_seconds = 5}}));
    }
  }
  auto one = std::make_shared<One>(plan, clock_, options_, signal_);
  auto subscription = registry_.watch(*plan.kind, plan.space, plan.query, [this, one](const RegistryEvent& event) {
    one->take(event);
    if (!one->starting() && !event.failure) seen(event.object.revision);
  });
  if (!subscription) return refuse(std::move(subscription.error()));
  auto stream = exchange->stream(200, {{"Content-Type", "application/json"}, {"Cache-Control", "no-cache, private"}});
  one->start(std::move(stream), std::move(*subscription), clock_.monotonic());
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) {
      watches_.push_back(std::move(one));
      return;
    }
  }
  one->drop();
}

void WatchHub::run(std::stop_token stop) {
  bool backlog = false;
  std::uint64_t generation = 0;
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(signal_->mutex);
      const std::chrono::milliseconds pause = backlog ? std::chrono::milliseconds(backlog_tick) : std::chrono::milliseconds(tick);
      signal_->changed.wait_for(lock, stop, pause, [&] { return signal_->reap || (signal_->backlog && !backlog); });
      signal_->reap = signal_->backlog = false;
    }
    const auto now = clock_.monotonic();
    const auto kinds = registry_.kinds();
    const bool kinds_changed = std::exchange(generation, kinds->generation) != kinds->generation;
    std::list<std::shared_ptr<One>> over;
    backlog = false;
    {
      const std::lock_guard lock(mutex_);
      const Revision seen_now = seen_.load();  // before any watch is looked at: see seen_
      for (auto it = watches_.begin(); it != watches_.end();) {
        const auto here = it++;
        if (kinds_changed) (*here)->end_if_gone(*kinds);
        if (!(*here)->keep_going(now, seen_now)) {
          over.splice(over.end(), watches_, here);
        } else {
          backlog = backlog || (*here)->behind();
        }
      }
    }
    for (const auto& one : over) one->drop();
  }
}

}  // namespace fairlead::apiserver
