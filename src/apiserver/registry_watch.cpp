// SPDX-License-Identifier: Apache-2.0
// Watches: store events become ADDED, MODIFIED and DELETED as seen through selectors; their bytes and lines are made once for all watchers.
#include <fmt/format.h>

#include <charconv>
#include <deque>

#include "apiserver/registry_impl.h"
#include "base/log.h"

namespace fairlead::apiserver {

std::shared_ptr<EncodedEvent> EncodedEvents::of(Revision revision, const std::string& api_version) {
  // Versions of one kind fall into neighbouring slots, so that they do not push each other out.
  const std::size_t place = (static_cast<std::size_t>(revision) * 2 + std::hash<std::string>()(api_version) % 2) % slots;
  const std::scoped_lock lock(mutex_);
  Slot& slot = ring_[place];
  if (slot.revision != revision || slot.api_version != api_version) slot = {revision, api_version, std::make_shared<EncodedEvent>()};
  return slot.event;
}

// One watcher. The store calls it on one thread at a time, in revision order. Where objects are converted it only notes the events then, and a thread that may wait works them off.
class RegistryWatch : public std::enable_shared_from_this<RegistryWatch> {
 public:
  RegistryWatch(EmbeddedRegistry& registry, std::shared_ptr<const Kind> kind, Selection selection, bool lines, std::function<void(const RegistryEvent&)> sink)
      : registry_(registry), kind_(std::move(kind)), selection_(std::move(selection)), lines_(lines), sink_(std::move(sink)) {}

  void initial(const Entry& entry) const {
    const auto value = registry_.plain(*kind_, entry.key, entry.value, entry.revision);
    if (!value) return damaged(entry.key, value.error());
    initial(entry, *value);
  }
  void initial(const Entry& entry, const Value& value) const {
    const http::Buffer bytes = value.bytes();
    if (!selection_.everything() && !selection_.matches(entry.key, *bytes)) return;
    sink_({kube::EventType::Added, {bytes, entry.revision}, line(kube::EventType::Added, *bytes), false, value});
  }

  void initial_end(Revision revision) const {
    const auto object = std::make_shared<const std::string>(bookmark_object(kind_->resource, revision, true));
    sink_({kube::EventType::Bookmark, {object, revision}, line(kube::EventType::Bookmark, *object), true, {}});
  }

  void on_event(const StoreEvent& event) {
    if (!kind_->converts) {
      if (auto out = seen(event)) sink_(*out);
      return;
    }
    const std::lock_guard lock(mutex_);
    if (over_) return;
    if (waiting_.size() < most_waiting) waiting_.push_back(event);
    else waiting_.back() = {};  // told in its turn
    if (std::exchange(working_, true)) return;
    registry_.waiting_.post_always([self = shared_from_this()] { self->work(); });
  }

  // No call of the sink begins any more; waits for one that runs.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      waiting_.clear();
    }
    const std::lock_guard calling(sink_mutex_);
  }

 private:
  static constexpr std::size_t most_waiting = 10'000;

  void work() {
    for (;;) {
      StoreEvent event;
      {
        const std::lock_guard lock(mutex_);
        working_ = !over_ && !waiting_.empty();
        if (!working_) return;
        event = std::move(waiting_.front());
        waiting_.pop_front();
      }
      std::optional<Error> failure;
      if (event.key.empty()) failure = Error{Code::Exhausted, "the watch fell behind its conversion webhook"};
      auto out = failure ? std::nullopt : seen(event, &failure);
      const std::lock_guard calling(sink_mutex_);
      {
        const std::lock_guard lock(mutex_);
        if (over_) return;
        over_ = failure.has_value();
        if (over_) waiting_.clear();
      }
      if (failure) {
        RegistryEvent last{.type = kube::EventType::Bookmark, .object = {}, .line = nullptr};
        last.failure = std::move(failure);
        sink_(last);
      } else if (out) {
        sink_(*out);
      }
    }
  }

  // What this watcher sees of an event. `failure`: an object could not be converted.
  std::optional<RegistryEvent> seen(const StoreEvent& event, std::optional<Error>* failure = nullptr) const {
    const auto shared = registry_.events_.of(event.revision, kind_->resource.api_version());
    RegistryEvent out;
    {
      const std::scoped_lock lock(shared->mutex);
      const bool all = selection_.everything();
      const bool want_before = event.before && !shared->before && (!all || !event.value);
      if (kind_->converts && ((event.value && !shared->after) || want_before)) {
        if (auto done = convert(event, want_before, *shared); !done) {
          if (failure != nullptr) *failure = std::move(done.error());
          return std::nullopt;
        }
      }
      if (event.value && !shared->after) {
        shared->kept = plain(event.key, event.value, event.revision);
        shared->after = shared->kept.bytes();
      }
      if (event.before && !shared->before && (!all || !event.value)) shared->before = plain(event.key, event.before, event.before_revision).bytes();
      if ((event.value && !shared->after) || (event.before && (!all || !event.value) && !shared->before)) return std::nullopt;
      const bool is = event.value && (all || selection_.matches(event.key, *shared->after));
      const bool was = event.before && (all || selection_.matches(event.key, *shared->before));
      if (!is && !was) return std::nullopt;
      if (!is && !shared->gone) shared->gone = std::make_shared<const std::string>(with_revision(*shared->before, event.revision));
      out.type = !is ? kube::EventType::Deleted : was ? kube::EventType::Modified : kube::EventType::Added;
      out.object = {is ? shared->after : shared->gone, event.revision};
      http::Buffer& made = shared->lines[static_cast<std::size_t>(out.type)];
      if (!made) made = line(out.type, *out.object.bytes);
      out.line = made;
      if (is) out.value = shared->kept;
    }
    return out;
  }

  // As it is and as it was, in one call.
  Result<void> convert(const StoreEvent& event, bool want_before, EncodedEvent& shared) const {
    std::vector<Value> values;
    if (event.value && !shared.after) values.push_back(event.value);
    if (want_before) values.push_back(event.before);
    if (auto done = registry_.in_version(*kind_, values); !done) return done;
    if (want_before) shared.before = values.back().bytes();
    if (event.value && !shared.after) {
      shared.kept = values.front();
      shared.after = shared.kept.bytes();
    }
    return {};
  }

  http::Buffer line(kube::EventType type, std::string_view object) const { return lines_ ? std::make_shared<const std::string>(event_line(type, object)) : nullptr; }
  Value plain(const std::string& key, const Value& stored, Revision revision) const {
    auto plain = registry_.plain(*kind_, key, stored, revision);
    if (plain) return std::move(*plain);
    damaged(key, plain.error());
    return nullptr;
  }
  static void damaged(const std::string& key, const Error& error) { log_error("stored object cannot be read", {{"key", key}, {"error", error.message}}); }

  EmbeddedRegistry& registry_;
  std::shared_ptr<const Kind> kind_;
  Selection selection_;
  const bool lines_;
  std::function<void(const RegistryEvent&)> sink_;

  std::mutex mutex_;  // guards the following
  std::deque<StoreEvent> waiting_;
  bool working_ = false, over_ = false;
  std::recursive_mutex sink_mutex_;  // held while the sink is called; a sink may end its watch
};

namespace {
class ConvertedWatch final : public Subscription {
 public:
  ConvertedWatch(std::unique_ptr<Subscription> events, std::shared_ptr<RegistryWatch> watch) : events_(std::move(events)), watch_(std::move(watch)) {}
  ~ConvertedWatch() override {
    events_.reset();
    watch_->end();
  }

 private:
  std::unique_ptr<Subscription> events_;
  std::shared_ptr<RegistryWatch> watch_;
};
}  // namespace

Result<std::unique_ptr<Subscription>> EmbeddedRegistry::watch(const Kind& kind, const std::string& space, const WatchQuery& query, std::function<void(const RegistryEvent&)> sink) {
  const auto served = current(kind);
  if (!served) return not_served();
  auto selection = Selection::make(*served, query.label_selector, query.field_selector);
  if (!selection) return std::unexpected(std::move(selection.error()));
  const std::string prefix = store_prefix(kind.resource, kind.resource.namespaced ? space : std::string());
  Revision from = 0;
  const std::string& text = query.resource_version;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), from);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size() || from < 0))
    return fail(Code::Invalid, fmt::format("invalid resource version \"{}\": must be a decimal number", text));
  if (const Revision now = store_.revision(); from > now) return fail(Code::Unavailable, fmt::format("Too large resource version: {}, current: {}", from, now));

  const auto watcher = std::make_shared<RegistryWatch>(*this, served, std::move(*selection), query.lines, std::move(sink));
  if (from == 0 || query.initial_events) {
    auto all = store_.range(prefix, "", 0, 0);
    if (!all) return std::unexpected(std::move(all.error()));
    if (served->converts) {
      const auto values = plain_all(*served, all->entries);
      if (!values) return std::unexpected(values.error());
      for (std::size_t i = 0; i < all->entries.size(); ++i) watcher->initial(all->entries[i], (*values)[i]);
    } else {
      for (const Entry& entry : all->entries) watcher->initial(entry);
    }
    if (query.initial_events) watcher->initial_end(all->revision);
    from = all->revision;
  }
  auto subscription = store_.watch(prefix, from, [watcher](const StoreEvent& event) { watcher->on_event(event); });
  if (!subscription && subscription.error().code == Code::Expired) return fail(Code::Expired, fmt::format("too old resource version: {} ({})", from, store_.revision()));
  if (subscription && served->converts) return std::unique_ptr<Subscription>(std::make_unique<ConvertedWatch>(std::move(*subscription), watcher));
  return subscription;
}

}  // namespace fairlead::apiserver
