// SPDX-License-Identifier: Apache-2.0
#include "kube/cache.h"

namespace fairlead::kube {

std::optional<Json> Cache::get(const ObjectKey& key) const {
  AtRest object;
  {
    const std::shared_lock lock(mutex_);
    const auto at = objects_.find(key);
    if (at == objects_.end()) return std::nullopt;
    object = at->second.object;
  }
  return object.json();
}

std::vector<AtRest> Cache::held(const std::string& space) const {
  std::vector<AtRest> found;
  const std::shared_lock lock(mutex_);
  auto at = space.empty() ? objects_.begin() : objects_.lower_bound({space, ""});
  for (; at != objects_.end() && (space.empty() || at->first.space == space); ++at) found.push_back(at->second.object);
  return found;
}

std::vector<Json> Cache::list(const std::string& space) const {
  const std::vector<AtRest> found = held(space);
  std::vector<Json> out;
  out.reserve(found.size());
  for (const AtRest& object : found) out.push_back(object.json());
  return out;
}

void Cache::each(const std::string& space, const std::function<void(const Json&)>& look) const {
  for (const AtRest& object : held(space)) look(object.json());
}

void Cache::replace(Entries fresh, const std::function<void(const Change&)>& tell) {
  std::vector<std::pair<ObjectKey, AtRest>> news;  // what it is now
  for (const auto& [key, entry] : fresh) {
    // This cache has one writer: nothing changes between here and the swap.
    const auto before = objects_.find(key);
    if (before == objects_.end() || before->second.version != entry.version || entry.version.empty()) news.emplace_back(key, entry.object);
  }
  {
    const std::unique_lock lock(mutex_);
    objects_.swap(fresh);
  }
  for (const auto& [key, object] : news) {
    Change change{.after = object.json()};
    if (const auto before = fresh.find(key); before != fresh.end()) change.before = before->second.object.json();
    tell(change);
  }
  // What was there before is in `fresh` now.
  for (const auto& [key, entry] : fresh) {
    if (!objects_.contains(key)) tell(Change{.before = entry.object.json()});
  }
}

std::vector<Change> Cache::replace(const std::vector<Json>& objects) {
  Entries fresh;
  for (const Json& object : objects) fresh.insert_or_assign(key_of(object), Entry{version_of(object), AtRest::of(object)});
  std::vector<Change> changes;
  replace(std::move(fresh), [&](const Change& change) { changes.push_back(change); });
  return changes;
}

std::optional<Change> Cache::apply(const WatchEvent& event) {
  if (event.type == EventType::Bookmark) return std::nullopt;
  const ObjectKey key = key_of(event.object);
  const std::string& version = version_of(event.object);
  if (event.type == EventType::Deleted) {
    const std::unique_lock lock(mutex_);
    if (objects_.erase(key) == 0) return std::nullopt;
    return Change{.before = event.object};
  }
  AtRest object = event.at_rest ? event.at_rest : AtRest::of(event.object), before;
  {
    const std::unique_lock lock(mutex_);
    Entry& entry = objects_[key];
    if (entry.object && entry.version == version && !version.empty()) return std::nullopt;
    before = std::exchange(entry.object, std::move(object));
    entry.version = version;
  }
  Change change{.after = event.object};
  if (before) change.before = before.json();
  return change;
}

}  // namespace fairlead::kube
