// SPDX-License-Identifier: Apache-2.0
// Watches: store events become ADDED, MODIFIED and DELETED as seen through selectors; their bytes and lines are made once for all watchers.
#include <fmt/format.h>

#include <charconv>

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

// One watcher. The store calls it on one thread at a time, in revision order.
class RegistryWatch {
 public:
  RegistryWatch(const EmbeddedRegistry& registry, std::shared_ptr<const Kind> kind, Selection selection, bool lines, std::function<void(const RegistryEvent&)> sink)
      : registry_(registry), kind_(std::move(kind)), selection_(std::move(selection)), lines_(lines), sink_(std::move(sink)) {}

  void initial(const Entry& entry) const {
    const auto value = registry_.plain(*kind_, entry.key, entry.value, entry.revision);
    if (!value) return damaged(entry.key, value.error());
    const http::Buffer bytes = value->bytes();
    if (!selection_.everything() && !selection_.matches(entry.key, *bytes)) return;
    sink_({kube::EventType::Added, {bytes, entry.revision}, line(kube::EventType::Added, *bytes), false, *value});
  }

  void initial_end(Revision revision) const {
    const auto object = std::make_shared<const std::string>(bookmark_object(kind_->resource, revision, true));
    sink_({kube::EventType::Bookmark, {object, revision}, line(kube::EventType::Bookmark, *object), true, {}});
  }

  void on_event(const StoreEvent& event) const {
    const auto shared = registry_.events_.of(event.revision, kind_->resource.api_version());
    RegistryEvent out;
    {
      const std::scoped_lock lock(shared->mutex);
      if (event.value && !shared->after) {
        shared->kept = plain(event.key, event.value, event.revision);
        shared->after = shared->kept.bytes();
      }
      const bool all = selection_.everything();
      if (event.before && !shared->before && (!all || !event.value)) shared->before = plain(event.key, event.before, event.before_revision).bytes();
      if ((event.value && !shared->after) || (event.before && (!all || !event.value) && !shared->before)) return;
      const bool is = event.value && (all || selection_.matches(event.key, *shared->after));
      const bool was = event.before && (all || selection_.matches(event.key, *shared->before));
      if (!is && !was) return;
      if (!is && !shared->gone) shared->gone = std::make_shared<const std::string>(with_revision(*shared->before, event.revision));
      out.type = !is ? kube::EventType::Deleted : was ? kube::EventType::Modified : kube::EventType::Added;
      out.object = {is ? shared->after : shared->gone, event.revision};
      http::Buffer& made = shared->lines[static_cast<std::size_t>(out.type)];
      if (!made) made = line(out.type, *out.object.bytes);
      out.line = made;
      if (is) out.value = shared->kept;
    }
    sink_(out);
  }

 private:
  http::Buffer line(kube::EventType type, std::string_view object) const { return lines_ ? std::make_shared<const std::string>(event_line(type, object)) : nullptr; }
  Value plain(const std::string& key, const Value& stored, Revision revision) const {
    auto plain = registry_.plain(*kind_, key, stored, revision);
    if (plain) return std::move(*plain);
    damaged(key, plain.error());
    return nullptr;
  }
  static void damaged(const std::string& key, const Error& error) { log_error("stored object cannot be read", {{"key", key}, {"error", error.message}}); }

  const EmbeddedRegistry& registry_;
  std::shared_ptr<const Kind> kind_;
  Selection selection_;
  const bool lines_;
  std::function<void(const RegistryEvent&)> sink_;
};

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
    for (const Entry& entry : all->entries) watcher->initial(entry);
    if (query.initial_events) watcher->initial_end(all->revision);
    from = all->revision;
  }
  auto subscription = store_.watch(prefix, from, [watcher](const StoreEvent& event) { watcher->on_event(event); });
  if (!subscription && subscription.error().code == Code::Expired) return fail(Code::Expired, fmt::format("too old resource version: {} ({})", from, store_.revision()));
  return subscription;
}

}  // namespace fairlead::apiserver
