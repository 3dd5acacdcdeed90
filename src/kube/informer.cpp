// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/log.h"
#include "kube/cache.h"

namespace fairlead::kube {
namespace {

constexpr std::chrono::nanoseconds shortest_pause = 200ms, longest_pause = 30s;
constexpr std::int64_t page = 500;
constexpr std::chrono::milliseconds watch_limit = 60s;  // only bounds one call of next(): the destructor closes the watch

// The event's object goes into the change as it is; of the object itself the cache only needs key and version. Copying it would cost as much as reading it did.
std::optional<Change> apply_to(Cache& cache, WatchEvent event) {
  if (event.type == EventType::Bookmark) return std::nullopt;
  Json named = Json::object({{"metadata", Json::object({{"namespace", space_of(event.object)}, {"name", name_of(event.object)}, {"resourceVersion", version_of(event.object)}})}});
  auto change = cache.apply({event.type, std::move(named), event.at_rest ? std::move(event.at_rest) : AtRest::of(event.object)});
  if (change) (event.type == EventType::Deleted ? change->before : change->after) = std::move(event.object);
  return change;
}

}  // namespace

Informer::Informer(KubeApi& api, Resource resource, std::string space, OnChange on_change, std::function<void()> on_synced, std::uint64_t seed)
    : api_(api),
      resource_(std::move(resource)),
      space_(std::move(space)),
      on_change_(std::move(on_change)),
      on_synced_(std::move(on_synced)),
      rng_(seed),
      pause_(shortest_pause) {
  thread_ = std::jthread([this](std::stop_token stop) { run(std::move(stop)); });
}

Informer::~Informer() {
  thread_.request_stop();
  {
    const std::lock_guard lock(watch_mutex_);
    if (watch_ != nullptr) watch_->close();
  }
  thread_.join();
}

// Twice as long each time, until something works again. Half of it is jitter, so that not all informers of a site return at once.
void Informer::wait_a_moment(std::stop_token stop) {
  const auto pause = pause_ / 2 + std::chrono::nanoseconds(rng_.below(static_cast<std::uint64_t>(pause_.count() / 2)));
  pause_ = std::min(pause_ * 2, longest_pause);
  std::unique_lock lock(watch_mutex_);
  stopped_.wait_for(lock, stop, pause, [] { return false; });
}

Result<std::string> Informer::fill() {
  Cache::Entries objects;
  ListOptions options{.limit = page};
  std::string version;
  do {
    auto list = api_.list(resource_, space_, options);
    if (!list) return std::unexpected(std::move(list.error()));
    INVARIANT(list->at_rest.empty() || list->at_rest.size() == list->items.size());
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      const Json& object = list->items[i];
      objects.insert_or_assign(key_of(object), Cache::Entry{version_of(object), list->at_rest.empty() ? AtRest::of(object) : std::move(list->at_rest[i])});
    }
    version = list->resource_version;
    options.continue_token = list->continue_token;
  } while (!options.continue_token.empty());
  cache_.replace(std::move(objects), [this](const Change& change) {
    if (on_change_) on_change_(change);
  });
  if (!synced_.exchange(true) && on_synced_) on_synced_();
  return version;
}

Error Informer::follow(std::string& version, bool& alive, std::stop_token stop) {
  auto watch = api_.watch(resource_, space_, {.resource_version = version});
  if (!watch) return std::move(watch.error());
  {
    const std::lock_guard lock(watch_mutex_);
    watch_ = watch->get();
    if (stop.stop_requested()) watch_->close();  // the destructor came before us
  }
  Error end;
  for (;;) {
    auto event = (*watch)->next(watch_limit);
    if (!event) {
      end = std::move(event.error());
      break;
    }
    if (stop.stop_requested()) break;
    alive = true;
    if (!event->has_value()) continue;
    if (const std::string& seen = version_of((*event)->object); !seen.empty()) version = seen;
    if (const auto change = apply_to(cache_, std::move(**event)); change && on_change_) on_change_(*change);
  }
  const std::lock_guard lock(watch_mutex_);
  watch_ = nullptr;
  return end;
}

void Informer::run(std::stop_token stop) {
  std::optional<std::string> version;  // none: list first
  while (!stop.stop_requested()) {
    if (!version) {
      auto listed = fill();
      if (!listed) {
        if (!stop.stop_requested()) log_warn("cannot list", {{"resource", resource_.plural}, {"namespace", space_}, {"reason", listed.error().message}});
        wait_a_moment(stop);
        continue;
      }
      version = std::move(*listed);
    }
    bool alive = false;
    const Error end = follow(*version, alive, stop);
    if (stop.stop_requested()) return;
    if (alive) pause_ = shortest_pause;
    if (end.code == Code::Expired) {
      log_info("history is gone: listing again", {{"resource", resource_.plural}, {"namespace", space_}, {"reason", end.message}});
      version.reset();
    } else if (end.code != Code::Unavailable) {
      // Not known to be harmless (forbidden, a kind that is no longer served): start over from a list.
      log_warn("watch failed", {{"resource", resource_.plural}, {"namespace", space_}, {"reason", end.message}});
      version.reset();
    }
    wait_a_moment(stop);
  }
}

}  // namespace fairlead::kube
