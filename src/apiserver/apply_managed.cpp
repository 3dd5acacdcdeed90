// SPDX-License-Identifier: Apache-2.0
#include "apiserver/apply_managed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/clock.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::size_t most_updaters = 10;
constexpr std::string_view old_updates = "ancient-changes", before_apply = "before-first-apply";
constexpr std::size_t annotations_limit = 256 * 1024;

std::int64_t seconds_of(const ManagedEntry& entry) {
  const auto time = parse_time(entry.time);
  return time ? std::chrono::duration_cast<std::chrono::seconds>(time->time_since_epoch()).count() : 0;
}

FieldSet filtered(const FieldSet& set, const FieldWriter& writer) {
  const PathElement status = PathElement::field("status");
  if (writer.skip_status) {
    FieldSet ignored;
    ignored.insert({status});
    return set.without_trees(ignored);
  }
  if (!writer.only_status) return set;
  FieldSet out;
  for (const auto& node : set.nodes())
    if (node.element == status) out.nodes().push_back(node);
  return out;
}

Comparison filtered(Comparison all, const FieldWriter& writer) {
  return {filtered(all.removed, writer), filtered(all.modified, writer), filtered(all.added, writer)};
}

void drop_empty(ManagedFields& managed) {
  std::erase_if(managed, [](const ManagedEntry& entry) { return entry.fields.empty(); });
}

std::string writer_text(const ManagedEntry& entry) {
  std::string out;
  kube::append_json_string(out, entry.manager);
  if (!entry.subresource.empty()) out += fmt::format(" with subresource \"{}\"", entry.subresource);
  if (!entry.applied) out += fmt::format(" using {}", entry.api_version);
  return out;
}

struct Conflict {
  ManagedEntry entry;  // fields: those in conflict
};

std::unexpected<Error> conflict_error(const std::vector<Conflict>& conflicts) {
  std::size_t count = 0;
  std::map<std::string, std::vector<std::string>> by_writer;
  for (const Conflict& conflict : conflicts) {
    conflict.entry.fields.each([&](const FieldPath& path) {
      by_writer[writer_text(conflict.entry)].push_back(path_text(path));
      ++count;
    });
  }
  if (count == 1) return fail(Code::Conflict, fmt::format("Apply failed with 1 conflict: conflict with {}: {}", by_writer.begin()->first, by_writer.begin()->second.front()));
  std::vector<std::string> lines;
  for (const auto& [writer, paths] : by_writer) {
    lines.push_back(fmt::format("conflicts with {}:", writer));
    for (const std::string& path : paths) lines.push_back("- " + path);
  }
  return fail(Code::Conflict, fmt::format("Apply failed with {} conflicts: {}", count, fmt::join(lines, "\n")));
}

// Takes from all managers but `self` what was changed or removed. Tells what they lose to changes.
std::vector<Conflict> lose_changes(ManagedFields& managed, const ManagedEntry* self, const Comparison& changes) {
  const FieldSet set = changes.modified.united(changes.added);
  std::vector<Conflict> conflicts;
  for (ManagedEntry& entry : managed) {
    if (self != nullptr && entry.same_writer(*self)) continue;
    FieldSet lost = entry.fields.intersected(set);
    if (!lost.empty()) {
      entry.fields = entry.fields.without(lost);
      Conflict conflict{entry};
      conflict.entry.fields = std::move(lost);
      conflicts.push_back(std::move(conflict));
    }
    if (!changes.removed.empty()) entry.fields = entry.fields.without(changes.removed);
  }
  return conflicts;
}

void reconcile(ManagedFields& managed, const Shape& shape) {
  for (ManagedEntry& entry : managed) entry.fields = reconciled(std::move(entry.fields), shape);
}

void cap_updaters(ManagedFields& managed) {
  std::vector<ManagedEntry> updaters;
  for (const ManagedEntry& entry : managed)
    if (!entry.applied) updaters.push_back(entry);
  if (updaters.size() <= most_updaters) return;
  std::sort(updaters.begin(), updaters.end(), [](const ManagedEntry& a, const ManagedEntry& b) {
    return std::tuple(seconds_of(a), a.manager, a.api_version, a.subresource) < std::tuple(seconds_of(b), b.manager, b.api_version, b.subresource);
  });
  const auto entry_of = [&](const ManagedEntry& wanted) { return std::find_if(managed.begin(), managed.end(), [&](const ManagedEntry& one) { return one.same_writer(wanted); }); };
  std::map<std::string, ManagedEntry> first;  // by version: one alone is not worth a bucket
  std::size_t left = updaters.size();
  for (const ManagedEntry& oldest : updaters) {
    if (left <= most_updaters) break;
    const auto [before, is_first] = first.emplace(oldest.api_version, oldest);
    if (is_first) continue;
    ManagedEntry bucket{std::string(old_updates), false, oldest.api_version, "", "", {}};
    if (entry_of(bucket) == managed.end()) {
      if (const auto there = entry_of(before->second); there != managed.end()) {
        bucket.fields = std::move(there->fields);
        managed.erase(there);
      }
      managed.push_back(bucket);
    }
    if (oldest.same_writer(bucket)) continue;
    const auto into = entry_of(bucket);
    into->fields = into->fields.united(oldest.fields);
    into->time = oldest.time;
    managed.erase(entry_of(oldest));
    --left;
  }
}

// What nobody who owned it wants any more: applied last time by this manager, not this time, and owned by no other.
Json pruned(const Json& merged, const ManagedFields& managed, const FieldSet& last, const Shape& shape) {
  if (last.empty()) return merged;
  const FieldSet last_named = with_named(last, shape);
  const Json without_last = remove_fields(merged, last_named, shape);
  FieldSet owned;
  for (const ManagedEntry& entry : managed) owned = owned.united(entry.fields);
  const FieldSet merged_named = with_named(fields_of(merged, shape), shape);
  const FieldSet kept = with_named(fields_of(without_last, shape), shape).united(with_named(owned, shape));
  const Json with_owned = remove_fields(merged, merged_named.without(kept), shape);
  // Only what this manager had applied may go: items below that nobody owns stay.
  const FieldSet gone = merged_named.without(with_named(fields_of(with_owned, shape), shape));
  return remove_fields(merged, gone.intersected(last_named), shape);
}

struct Attempt {
  Json object;
  ManagedFields managed;
  std::vector<Conflict> conflicts;
};

Attempt attempt_apply(const Json& live, const Json& configuration, ManagedFields managed, const Shape& shape, const FieldWriter& writer) {
  Attempt out{.object = merge(live, configuration, shape), .managed = std::move(managed)};
  ManagedEntry self{writer.manager, true, writer.api_version, "", writer.subresource, filtered(fields_of(configuration, shape), writer)};
  FieldSet last;
  const auto there = std::find_if(out.managed.begin(), out.managed.end(), [&](const ManagedEntry& one) { return one.same_writer(self); });
  if (there != out.managed.end()) {
    last = std::move(there->fields);
    self.time = there->time;
    there->fields = self.fields;
    there->api_version = self.api_version;
  } else {
    out.managed.push_back(self);
  }
  out.object = pruned(out.object, out.managed, last, shape);
  if (!out.object.is_object()) out.object = Json::object();
  out.conflicts = lose_changes(out.managed, &self, filtered(compare(live, out.object, shape), writer));
  for (ManagedEntry& entry : out.managed) {
    if (!entry.same_writer(self)) continue;
    entry.fields = entry.fields.without(system_fields());
  }
  drop_empty(out.managed);
  return out;
}

// What kubectl's client-side apply wrote and what is still so: its conflicts are with itself.
FieldSet owned_by_last_applied(const Json& live, const Shape& shape) {
  const Json* annotation = live["metadata"]["annotations"].find(last_applied_annotation);
  if (annotation == nullptr || !annotation->is_string()) return {};
  const auto applied = kube::parse_json(annotation->string());
  if (!applied || !applied->is_object()) return {};
  const Comparison differences = compare(*applied, live, shape);
  return fields_of(*applied, shape).without(differences.modified).without(differences.added).without(differences.removed);
}

Json sorted_by_name(const Json& value) {
  if (value.is_array()) {
    std::vector<Json> items;
    for (const Json& item : value.items()) items.push_back(sorted_by_name(item));
    return Json::array(std::move(items));
  }
  if (!value.is_object()) return value;
  std::vector<kube::JsonMember> members;
  for (const auto& [name, member] : value.members()) members.emplace_back(name, sorted_by_name(member));
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return Json::object(std::move(members));
}

// kubectl's annotation follows what it applies from now on by the server, so that it can go back.
void refresh_last_applied(Json& object, const Json& configuration) {
  const Json* annotation = object["metadata"]["annotations"].find(last_applied_annotation);
  if (annotation == nullptr || annotation->string().empty()) return;
  Json shown = configuration;
  if (shown["metadata"].is_object() && shown["metadata"]["annotations"].is_object()) shown.child("metadata").child("annotations").erase(last_applied_annotation);
  std::size_t size = 0;
  const std::string text = print_json(sorted_by_name(shown)) + "\n";
  Json& annotations = object.child("metadata").child("annotations");
  for (const auto& [name, value] : annotations.members()) size += name.size() + (name == last_applied_annotation ? text.size() : value.string().size());
  if (size > annotations_limit) annotations.erase(last_applied_annotation);
  else annotations.set(last_applied_annotation, text);
}

}  // namespace

Result<ManagedFields> parse_managed(const Json& entries) {
  if (!entries.is_array()) return fail(Code::Invalid, "managedFields must be a list");
  ManagedFields out;
  for (const Json& one : entries.items()) {
    const std::string& operation = one["operation"].string();
    if (operation != "Apply" && operation != "Update") return fail(Code::Invalid, "operation must be `Apply` or `Update`");
    if (one["apiVersion"].string().empty()) return fail(Code::Invalid, "apiVersion must not be empty");
    if (one["fieldsType"].string() != "FieldsV1") return fail(Code::Invalid, fmt::format("invalid fieldsType \"{}\" in managed fields", one["fieldsType"].string()));
    ManagedEntry entry{one["manager"].string(), operation == "Apply", one["apiVersion"].string(), one["time"].string(), one["subresource"].string(), {}};
    if (const Json* fields = one.find("fieldsV1"); fields != nullptr && !fields->is_null()) {
      auto set = FieldSet::parse(*fields);
      if (!set) return pass(std::move(set.error()), "managedFields");
      entry.fields = std::move(*set);
    }
    const auto there = std::find_if(out.begin(), out.end(), [&](const ManagedEntry& other) { return other.same_writer(entry); });
    if (there != out.end()) *there = std::move(entry);
    else out.push_back(std::move(entry));
  }
  return out;
}

namespace {
void append_entry(std::string& out, const ManagedEntry& entry, std::string_view fields) {
  const auto member = [&](std::string_view name, std::string_view value, bool first = false) {
    if (value.empty()) return;
    out.append(first ? "{\"" : ",\"").append(name).append("\":");
    kube::append_json_string(out, value);
  };
  member("apiVersion", entry.api_version, true);
  out.append(",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":").append(fields);
  member("manager", entry.manager);
  member("operation", entry.applied ? "Apply" : "Update");
  member("subresource", entry.subresource);
  member("time", entry.time);
  out += '}';
}
}  // namespace

std::string print_managed(ManagedFields managed) {
  std::sort(managed.begin(), managed.end(), [](const ManagedEntry& a, const ManagedEntry& b) {
    if (a.applied != b.applied) return a.applied;
    return std::tuple(seconds_of(a), std::string_view(a.manager), std::string_view(a.api_version), std::string_view(a.subresource)) <
           std::tuple(seconds_of(b), std::string_view(b.manager), std::string_view(b.api_version), std::string_view(b.subresource));
  });
  std::string out = "[";
  for (const ManagedEntry& entry : managed) {
    if (out.size() > 1) out += ',';
    std::string fields;
    entry.fields.append(fields);
    append_entry(out, entry, fields);
  }
  return out += ']';
}

bool resets_managed(const Json& entries) {
  if (!entries.is_array()) return false;
  if (entries.items().empty()) return true;
  const auto& first = entries.items().front();
  return entries.items().size() == 1 && first.is_object() && std::all_of(first.members().begin(), first.members().end(), [](const auto& member) {
           return member.second.is_null() || (member.second.is_string() && member.second.string().empty());
         });
}

std::string manager_name(std::string_view field_manager, std::string_view user_agent) {
  if (!field_manager.empty()) return std::string(field_manager);
  std::string_view name = user_agent.substr(0, user_agent.find('/'));
  std::size_t length = std::min<std::size_t>(name.size(), 128);
  while (length > 0 && length < name.size() && (static_cast<unsigned char>(name[length]) & 0xC0U) == 0x80U) --length;  // no half character
  name = name.substr(0, length);
  return name.empty() ? "unknown" : std::string(name);
}

std::string managed_of_new(const Json& object, const kube::Type* type, const Shape& shape, const FieldWriter& writer) {
  const std::string fields = changed_fields(zero_object(type), object, shape, writer.skip_status);
  if (fields.empty()) return {};
  std::string out;
  out.reserve(fields.size() + 160);
  out += '[';
  append_entry(out, {writer.manager, false, writer.api_version, writer.time, writer.subresource, {}}, fields);
  return out += ']';
}

ManagedFields after_update(ManagedFields managed, const Json& live, const Json& next, const Shape& shape, const FieldWriter& writer) {
  const Comparison changes = filtered(compare(live, next, shape), writer);
  if (changes.same()) return managed;
  reconcile(managed, shape);
  lose_changes(managed, nullptr, changes);
  ManagedEntry self{writer.manager, false, writer.api_version, writer.time, writer.subresource, changes.modified.united(changes.added).without(system_fields())};
  if (!self.fields.empty()) {
    const auto there = std::find_if(managed.begin(), managed.end(), [&](const ManagedEntry& one) { return one.same_writer(self); });
    if (there == managed.end()) {
      managed.push_back(std::move(self));
    } else {
      there->fields = there->fields.united(self.fields);
      there->time = writer.time;
    }
  }
  drop_empty(managed);
  cap_updaters(managed);
  return managed;
}

Result<Applied> apply_configuration(const Json& live, const Json& configuration, ManagedFields managed, const kube::Type* type, const Shape& shape, const FieldWriter& writer, bool force) {
  if (managed.empty()) {
    FieldWriter earlier = writer;
    earlier.manager = before_apply;
    managed = after_update({}, zero_object(type), live, shape, earlier);
  }
  reconcile(managed, shape);
  Attempt done = attempt_apply(live, configuration, std::move(managed), shape, writer);
  if (!force && !done.conflicts.empty()) {
    if (writer.manager != "kubectl") return conflict_error(done.conflicts);
    const FieldSet own = owned_by_last_applied(live, shape);
    for (Conflict& conflict : done.conflicts) conflict.entry.fields = conflict.entry.fields.without(own);
    std::erase_if(done.conflicts, [](const Conflict& conflict) { return conflict.entry.fields.empty(); });
    if (!done.conflicts.empty()) return conflict_error(done.conflicts);
  }
  if (writer.manager == "kubectl") refresh_last_applied(done.object, configuration);
  return Applied{std::move(done.object), std::move(done.managed)};
}

void stamp_applier(ManagedFields& managed, const FieldWriter& writer) {
  for (ManagedEntry& entry : managed)
    if (entry.applied && entry.manager == writer.manager && entry.subresource == writer.subresource) entry.time = writer.time;
}

}  // namespace fairlead::apiserver
