// SPDX-License-Identifier: Apache-2.0
#include "kube/cache.h"

namespace fairlead::kube {
namespace {

// The bytes are our own print of a parsed object, so they parse.
Json parse_own(const std::string& bytes) {
  auto object = parse_json(bytes);
  INVARIANT(object);
  return std::move(*object);
}

}  // namespace

std::optional<Json> Cache::get(const ObjectKey& key) const {
  std::shared_ptr<const std::string> bytes;
  {
    const std::shared_lock lock(mutex_);
    const auto at = objects_.find(key);
    if (at == objects_.end()) return std::nullopt;
    bytes = at->second.bytes;
  }
  return parse_own(*bytes);
}

std::vector<Json> Cache::list(const std::string& space) const {
  std::vector<std::shared_ptr<const std::string>> found;
  {
    const std::shared_lock lock(mutex_);
    auto at = space.empty() ? objects_.begin() : objects_.lower_bound({space, ""});
    for (; at != objects_.end() && (space.empty() || at->first.space == space); ++at) found.push_back(at->second.bytes);
  }
  std::vector<Json> out;
  out.reserve(found.size());
  for (const auto& bytes : found) out.push_back(parse_own(*bytes));
  return out;
}

std::vector<Change> Cache::replace(const std::vector<Json>& objects) {
  std::map<ObjectKey, Entry> fresh;
  std::map<ObjectKey, const Json*> values;
  for (const auto& object : objects) {
    const ObjectKey key = key_of(object);
    fresh.insert_or_assign(key, Entry{version_of(object), std::make_shared<const std::string>(print_json(object))});
    values.insert_or_assign(key, &object);
  }
  {
    const std::unique_lock lock(mutex_);
    objects_.swap(fresh);
  }
  // `fresh` is what was there before now. This cache has one writer, so nothing has changed in between.
  std::vector<Change> changes;
  for (const auto& [key, value] : values) {
    const auto before = fresh.find(key);
    if (before == fresh.end()) {
      changes.push_back({.after = *value});
    } else if (before->second.version != version_of(*value) || before->second.version.empty()) {
      changes.push_back({.before = parse_own(*before->second.bytes), .after = *value});
    }
  }
  for (const auto& [key, entry] : fresh) {
    if (!values.contains(key)) changes.push_back({.before = parse_own(*entry.bytes)});
  }
  return changes;
}

std::optional<Change> Cache::apply(const WatchEvent& event) {
  if (event.type == EventType::Bookmark) return std::nullopt;
  const ObjectKey key = key_of(event.object);
  const std::string& version = version_of(event.object);
  std::shared_ptr<const std::string> before;
  if (event.type == EventType::Deleted) {
    const std::unique_lock lock(mutex_);
    if (objects_.erase(key) == 0) return std::nullopt;
    return Change{.before = event.object};
  }
  auto bytes = std::make_shared<const std::string>(print_json(event.object));
  {
    const std::unique_lock lock(mutex_);
    Entry& entry = objects_[key];
    if (entry.bytes && entry.version == version && !version.empty()) return std::nullopt;
    before = std::exchange(entry.bytes, std::move(bytes));
    entry.version = version;
  }
  Change change{.after = event.object};
  if (before) change.before = parse_own(*before);
  return change;
}

}  // namespace fairlead::kube
