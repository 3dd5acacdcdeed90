// SPDX-License-Identifier: Apache-2.0
#include "volumes/plan/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/units.h"

namespace fairlead::volumes {

using kube::Json;

namespace {

constexpr std::array<std::string_view, 8> words{"create", "snapshot", "grow", "remove", "attach", "detach", "limit", "leave"};

std::optional<What> parse_what(std::string_view text) {
  const auto at = std::find(words.begin(), words.end(), text);
  return at == words.end() ? std::nullopt : std::optional(static_cast<What>(at - words.begin()));
}

Result<void> check_size(std::int64_t size) {
  if (size < kBlock || size > kMostBytes || size % kBlock != 0) return fail(Code::Invalid, fmt::format("{} bytes: whole blocks of {} are expected, {} at most", size, kBlock, print(Bytes{kMostBytes})));
  return {};
}

std::unexpected<Error> whose(const std::string& id) { return fail(Code::Exists, fmt::format("the pool has {} already, and it is not of this object", id)); }
std::unexpected<Error> damaged(const std::string& why) { return fail(Code::Internal, "the journal says what cannot be: " + why); }

void set_class(Json& out, bool managed, const Limits& limits, const std::string& key) {
  if (!key.empty()) out.set("key", key);
  if (managed) out.set("managed", true);
  if (limits.iops > 0) out.set("iops", limits.iops);
  if (limits.bytes_per_second > 0) out.set("throughput", limits.bytes_per_second);
}
Limits limits_of(const Json& from) { return {.iops = from["iops"].integer(), .bytes_per_second = from["throughput"].integer()}; }

Json json_of(const Entry& one) {
  Json out = Json::object({{"size", one.size}, {"there", one.there}});
  if (one.snapshot) out.set("snapshot", true);
  if (!one.source.empty()) out.set("source", one.source);
  // The first by a name of its own, as it was when there was one at most: who knows nothing of several sees that it is not free.
  if (one.attached()) out.set("node", one.nodes.begin()->first).set("device", one.places.empty() ? "" : one.places.begin()->second.device);
  if (one.nodes.size() > 1 || (one.attached() && one.nodes.begin()->second != one.generation)) {
    Json nodes = Json::object();
    for (const auto& [node, generation] : one.nodes) nodes.set(node, generation);
    out.set("nodes", std::move(nodes));
  }
  if (!one.owner.empty()) out.set("owner", one.owner);
  if (one.read_only) out.set("readOnly", true);
  if (one.generation > 0) out.set("generation", one.generation);
  // One place as it was when there was one at most.
  if (one.places.size() == 1 && !one.places.begin()->first.empty()) out.set("host", one.places.begin()->first).set("shown", one.places.begin()->second.shown);
  if (one.places.size() > 1) {
    Json places = Json::array();
    for (const auto& [host, place] : one.places) {
      Json nodes = Json::array();
      for (const std::string& node : one.nodes_on(host)) nodes.push(node);
      Json next = Json::object({{"device", place.device}, {"nodes", std::move(nodes)}});
      if (!host.empty()) next.set("host", host).set("shown", place.shown);
      places.push(std::move(next));
    }
    out.set("places", std::move(places));
  }
  set_class(out, one.managed, one.limits, one.key);
  return out;
}

}  // namespace

std::string Entry::holders() const {
  std::string out;
  for (const auto& [node, given] : nodes) out += (out.empty() ? "" : ", ") + node;
  return out;
}

std::string Entry::holders(const std::string& host) const {
  std::string out;
  for (const std::string& node : nodes_on(host)) out += (out.empty() ? "" : ", ") + node;
  return out;
}
std::string Entry::host_of(const std::string& node) const {
  const auto found = hosts.find(node);
  return found == hosts.end() ? "" : found->second;
}
std::set<std::string> Entry::nodes_on(const std::string& host) const {
  std::set<std::string> out;
  for (const auto& [node, given] : nodes)
    if (host_of(node) == host) out.insert(node);
  return out;
}

std::string_view text(What what) { return words[static_cast<std::size_t>(what)]; }

bool is_volume_id(std::string_view id) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !id.empty() && id.size() <= 63 && std::all_of(id.begin(), id.end(), plain) && id.front() != '-' && id.back() != '-';
}

Json Ledger::record_of(const Intent& intent) {
  Json out = Json::object({{"begin", intent.number}, {"what", std::string(text(intent.what))}, {"id", intent.id}});
  if (intent.size > 0) out.set("size", intent.size);
  if (intent.before > 0) out.set("before", intent.before);
  if (!intent.source.empty()) out.set("source", intent.source);
  if (intent.of_snapshot) out.set("ofSnapshot", true);
  if (!intent.node.empty()) out.set("node", intent.node);
  if (!intent.owner.empty()) out.set("owner", intent.owner);
  if (intent.read_only) out.set("readOnly", true);
  if (intent.generation > 0) out.set("generation", intent.generation);
  if (!intent.host.empty()) out.set("host", intent.host);
  set_class(out, intent.managed, intent.limits, intent.key);
  return out;
}

Json Ledger::end_of(const Intent& intent, bool undone, const std::string& device) {
  Json out = Json::object({{"end", intent.number}});
  if (undone) out.set("undone", true);
  if (!device.empty()) out.set("device", device);
  return out;
}

Json Ledger::snapshot() const {
  Json entries = Json::object(), under_way = Json::array();
  for (const auto& [id, one] : entries_) entries.set(id, json_of(one));
  for (const auto& [number, intent] : under_way_) under_way.push(record_of(intent));
  return Json::object({{"pool", pool_}, {"last", last_}, {"entries", std::move(entries)}, {"underWay", std::move(under_way)}});
}

Result<void> Ledger::apply(const Json& record) {
  const auto read_intent = [](const Json& from) -> Result<Intent> {
    const auto what = parse_what(from["what"].string());
    Intent out{.number = from["begin"].integer(), .what = what.value_or(What::Create), .id = from["id"].string(), .size = from["size"].integer(), .before = from["before"].integer(), .source = from["source"].string(), .of_snapshot = from["ofSnapshot"].boolean(), .node = from["node"].string(), .owner = from["owner"].string(), .read_only = from["readOnly"].boolean(), .generation = from["generation"].integer(), .managed = from["managed"].boolean(), .limits = limits_of(from), .key = from["key"].string(), .host = from["host"].string()};
    if (!what || out.number <= 0 || !is_volume_id(out.id) || (!out.source.empty() && !is_volume_id(out.source)) || out.size < 0 || out.size > kMostBytes) return damaged(fmt::format("an intent of number {}", out.number));
    return out;
  };
  if (record.has("entries")) {
    if (record["pool"].string() != pool_) return fail(Code::Invalid, fmt::format("the journal is of pool {}, and this is {}", record["pool"].string(), pool_));
    entries_.clear();
    under_way_.clear();
    last_ = record["last"].integer();
    for (const auto& [id, one] : record["entries"].members()) {
      if (!is_volume_id(id)) return damaged("an id");
      std::map<std::string, std::int64_t> nodes;
      for (const auto& [node, generation] : one["nodes"].members()) nodes[node] = generation.integer();
      if (const std::string& node = one["node"].string(); nodes.empty() && !node.empty()) nodes[node] = one["generation"].integer();
      std::map<std::string, std::string> hosts;
      std::map<std::string, Place> places;
      const auto put = [&](const Json& place, const std::string& node) {
        places[place["host"].string()] = {.shown = place["shown"].integer(), .device = place["device"].string()};
        if (!place["host"].string().empty()) hosts[node] = place["host"].string();
      };
      for (const Json& place : one["places"].items())
        for (const Json& node : place["nodes"].items()) put(place, node.string());
      if (places.empty())
        for (const auto& [node, generation] : nodes) put(one, node);
      entries_.emplace(id, Entry{.snapshot = one["snapshot"].boolean(), .size = one["size"].integer(), .source = one["source"].string(), .nodes = std::move(nodes), .hosts = std::move(hosts), .places = std::move(places), .owner = one["owner"].string(), .read_only = one["readOnly"].boolean(), .generation = one["generation"].integer(), .managed = one["managed"].boolean(), .limits = limits_of(one), .key = one["key"].string(), .there = one["there"].boolean()});
    }
    for (const Json& one : record["underWay"].items()) {
      auto intent = read_intent(one);
      if (!intent) return std::unexpected(std::move(intent.error()));
      under_way_.emplace(intent->number, std::move(*intent));
    }
    return {};
  }
  if (record.has("begin")) {
    auto read = read_intent(record);
    if (!read) return std::unexpected(std::move(read.error()));
    const Intent& intent = *read;
    if (intent.number <= last_) return damaged(fmt::format("number {} twice", intent.number));
    const bool makes = intent.what == What::Create || intent.what == What::Snapshot;
    if (makes == entries_.contains(intent.id)) return damaged(fmt::format("{} of {}", text(intent.what), intent.id));
    if (makes) entries_.emplace(intent.id, Entry{.snapshot = intent.what == What::Snapshot, .size = intent.size, .source = intent.source, .nodes = {}, .hosts = {}, .places = {}, .owner = intent.owner, .read_only = false, .generation = 0, .managed = intent.managed, .limits = intent.limits, .key = intent.key, .there = false});
    // What is to become larger is promised from here on.
    if (intent.what == What::Grow) entries_.at(intent.id).size = intent.size;
    last_ = intent.number;
    under_way_.emplace(intent.number, intent);
    return {};
  }
  if (record.has("own")) {
    const auto entry = entries_.find(record["own"].string());
    if (entry == entries_.end()) return damaged("an owner of what is not there");
    entry->second.owner = record["owner"].string();
    return {};
  }
  const auto found = under_way_.find(record["end"].integer());
  if (found == under_way_.end()) return damaged(fmt::format("the end of {}, which has not begun", record["end"].integer()));
  const Intent intent = found->second;
  under_way_.erase(found);
  const auto entry = entries_.find(intent.id);
  if (entry == entries_.end()) return damaged(fmt::format("the end of {} of {}, which is not there", text(intent.what), intent.id));
  const bool undone = record["undone"].boolean();
  switch (intent.what) {
    case What::Create:
    case What::Snapshot:
      if (undone) entries_.erase(entry);
      else entry->second.there = true;
      break;
    case What::Remove:
      if (!undone) entries_.erase(entry);
      break;
    case What::Attach:
      if (undone) break;
      if (const auto [place, fresh] = entry->second.places.try_emplace(intent.host); fresh && !intent.host.empty()) place->second.shown = intent.generation;
      entry->second.places[intent.host].device = record["device"].string();
      entry->second.nodes[intent.node] = intent.generation;
      if (!intent.host.empty()) entry->second.hosts[intent.node] = intent.host;
      entry->second.read_only = intent.read_only;
      entry->second.generation = std::max(entry->second.generation, intent.generation);
      break;
    case What::Detach:
      if (!undone) {
        const std::string host = entry->second.host_of(intent.node);
        for (const std::string& node : entry->second.nodes_on(host)) entry->second.nodes.erase(node), entry->second.hosts.erase(node);
        entry->second.places.erase(host);
        if (!entry->second.attached()) entry->second.read_only = false;
      }
      break;
    case What::Leave:
      if (!undone) entry->second.nodes.erase(intent.node), entry->second.hosts.erase(intent.node);
      break;
    case What::Grow:
      if (undone) entry->second.size = intent.before;
      break;
    case What::Limit:
      if (!undone) entry->second.limits = intent.limits;
      break;
  }
  return {};
}

Result<Json> Ledger::give(const std::string& id, const std::string& owner) const {
  if (!entries_.contains(id)) return fail(Code::NotFound, fmt::format("there is no {}", id));
  return Json::object({{"own", id}, {"owner", owner}});
}

std::int64_t Ledger::promised() const {
  std::int64_t out = 0;
  for (const auto& [id, one] : entries_) out += one.size;
  return out;
}

std::string Ledger::host_of(const Intent& intent) const {
  const auto entry = entries_.find(intent.id);
  return intent.what == What::Attach || entry == entries_.end() ? intent.host : entry->second.host_of(intent.node);
}

Ledger::Begun Ledger::unless_under_way(Intent intent) const {
  const auto entry = entries_.find(intent.id);
  const auto reads = [&](const Intent& one) { return one.what == What::Attach ? one.read_only : (one.what == What::Detach || one.what == What::Leave) && entry != entries_.end() && entry->second.read_only; };
  for (const auto& [number, one] : under_way_) {
    intent.number = number;
    if (one.id == intent.id && reads(one) && reads(intent) && host_of(one) != host_of(intent)) continue;
    if (one.id == intent.id) return intent == one ? Begun(std::optional(one)) : Begun(fail(Code::Conflict, fmt::format("{} of {} is under way", text(one.what), one.id)));
    // What is being copied stays as it is till then: a copy of what has grown meanwhile would be cut off.
    if (one.source == intent.id && (intent.what == What::Remove || intent.what == What::Grow)) return fail(Code::Conflict, fmt::format("{} is being copied into {}", intent.id, one.id));
  }
  intent.number = last_ + 1;
  return std::optional(std::move(intent));
}

Result<const Entry*> Ledger::find(const std::string& id, bool snapshot) const {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.snapshot != snapshot) return fail(Code::NotFound, fmt::format("there is no {} {}", snapshot ? "snapshot" : "volume", id));
  return &found->second;
}

Result<void> Ledger::check_room(std::int64_t more, std::int64_t limit) const {
  if (promised() > limit || more > limit - promised()) return fail(Code::Exhausted, fmt::format("{} more: of {} that the pool may promise {} are", print(Bytes{more}), print(Bytes{limit}), print(Bytes{promised()})));
  return {};
}

Ledger::Begun Ledger::create(const std::string& id, std::int64_t size, const std::string& source, const std::string& owner, std::int64_t limit, const std::optional<Limits>& managed, const std::string& key) const {
  if (!is_volume_id(id)) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a volume: 1 to 63 of a-z 0-9 and -", id.substr(0, 80)));
  if (auto done = check_size(size); !done) return std::unexpected(std::move(done.error()));
  const auto from = entries_.find(source);
  Intent intent{.number = 0, .what = What::Create, .id = id, .size = size, .before = 0, .source = source, .of_snapshot = from != entries_.end() && from->second.snapshot, .node = {}, .owner = owner, .read_only = false, .generation = 0, .managed = managed.has_value(), .limits = managed.value_or(Limits()), .key = from == entries_.end() ? key : from->second.key};
  if (const auto there = entries_.find(id); there != entries_.end()) {
    const Entry& one = there->second;
    if (one.snapshot || one.size != size || one.source != source || one.managed != intent.managed || (!key.empty() && one.key != key)) return fail(Code::Exists, fmt::format("{} is there, and is another: {}, of {}{}", id, one.snapshot ? "a snapshot" : "a volume", print(Bytes{one.size}), one.source.empty() ? "" : " made of " + one.source));
    if (one.owner != owner) return whose(id);
    if (one.there) return std::optional<Intent>();
    for (const auto& [number, way] : under_way_)
      if (way.id == id) return std::optional(way);
  }
  if (!source.empty()) {
    if (from == entries_.end() || !from->second.there) return fail(Code::NotFound, fmt::format("there is no {} that it could be made of", source));
    for (const auto& [number, one] : under_way_)
      if (one.id == source && one.what != What::Attach && one.what != What::Detach && one.what != What::Leave) return fail(Code::Conflict, fmt::format("{} of {} is under way", text(one.what), source));
    if (!key.empty() && from->second.key != key) return fail(Code::Unsupported, fmt::format("{} {}: a copy of it is, too", source, from->second.key.empty() ? "is not encrypted" : "is encrypted by key " + from->second.key));
    if (size < from->second.size) return fail(Code::Invalid, fmt::format("it is to be made of {}, which has {}: {} are too few", source, print(Bytes{from->second.size}), print(Bytes{size})));
  }
  if (!intent.key.empty() && !managed) return fail(Code::Unsupported, "what is encrypted has an engine of its own: its class is local-managed");
  if (auto done = check_room(size, limit); !done) return std::unexpected(std::move(done.error()));
  return unless_under_way(std::move(intent));
}

Ledger::Begun Ledger::take_snapshot(const std::string& id, const std::string& of, const std::string& owner, std::int64_t limit) const {
  if (!is_volume_id(id)) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a snapshot: 1 to 63 of a-z 0-9 and -", id.substr(0, 80)));
  if (const auto there = entries_.find(id); there != entries_.end()) {
    if (!there->second.snapshot || there->second.source != of) return fail(Code::Exists, fmt::format("{} is there, and is another", id));
    if (there->second.owner != owner) return whose(id);
    if (there->second.there) return std::optional<Intent>();
    for (const auto& [number, way] : under_way_)
      if (way.id == id) return std::optional(way);
  }
  const auto from = find(of, false);
  if (!from) return std::unexpected(from.error());
  if (!(*from)->there) return fail(Code::Conflict, fmt::format("{} is being made", of));
  for (const auto& [number, one] : under_way_)
    if (one.id == of && one.what != What::Attach && one.what != What::Detach && one.what != What::Leave) return fail(Code::Conflict, fmt::format("{} of {} is under way", text(one.what), of));
  if (auto done = check_room((*from)->size, limit); !done) return std::unexpected(std::move(done.error()));
  return unless_under_way({.number = 0, .what = What::Snapshot, .id = id, .size = (*from)->size, .before = 0, .source = of, .of_snapshot = false, .node = {}, .owner = owner, .read_only = false, .generation = 0, .managed = false, .limits = {}, .key = (*from)->key});
}

Ledger::Begun Ledger::grow(const std::string& id, std::int64_t size, std::int64_t limit) const {
  if (auto done = check_size(size); !done) return std::unexpected(std::move(done.error()));
  const auto one = find(id, false);
  if (!one) return std::unexpected(one.error());
  for (const auto& [number, way] : under_way_)
    if (way.id == id && way.what == What::Grow && way.size == size) return std::optional(way);
  if (size < (*one)->size) return fail(Code::Invalid, fmt::format("{} has {}: a volume does not shrink", id, print(Bytes{(*one)->size})));
  if (size == (*one)->size) return std::optional<Intent>();
  if (auto done = check_room(size - (*one)->size, limit); !done) return std::unexpected(std::move(done.error()));
  return unless_under_way({.number = 0, .what = What::Grow, .id = id, .size = size, .before = (*one)->size, .source = {}, .of_snapshot = false, .node = {}, .owner = {}, .read_only = false, .generation = 0, .managed = (*one)->managed, .limits = {}, .key = {}});
}

Ledger::Begun Ledger::remove(const std::string& id, const std::string& owner) const {
  const auto there = entries_.find(id);
  if (there == entries_.end()) return std::optional<Intent>();
  if (!owner.empty() && there->second.owner != owner) return whose(id);
  if (there->second.attached()) return fail(Code::Conflict, fmt::format("{} is attached to {}", id, there->second.holders()));
  return unless_under_way({.number = 0, .what = What::Remove, .id = id, .size = 0, .before = 0, .source = {}, .of_snapshot = there->second.snapshot, .node = {}, .owner = {}, .read_only = false, .generation = 0, .managed = there->second.managed, .limits = {}, .key = {}});
}

Ledger::Begun Ledger::attach(const std::string& id, const std::string& node, bool read_only, bool shown, const std::string& host) const {
  if (node.empty()) return fail(Code::Invalid, "a node is expected");
  const auto one = find(id, false);
  if (!one) return std::unexpected(one.error());
  if (!(*one)->there) return fail(Code::Conflict, fmt::format("{} is being made", id));
  const Entry& entry = **one;
  Intent intent{.number = 0, .what = What::Attach, .id = id, .size = 0, .before = 0, .source = {}, .of_snapshot = false, .node = node, .owner = {}, .read_only = read_only, .generation = entry.generation + 1, .managed = entry.managed, .limits = entry.limits, .key = {}, .host = host};
  // Each has a generation of its own, those on their way too.
  for (const auto& [number, way] : under_way_)
    if (way.id == id && way.what == What::Attach && way.node != node) intent.generation = std::max(intent.generation, way.generation + 1);
  if (const auto at = entry.nodes.find(node); at != entry.nodes.end()) {
    if (entry.read_only != read_only) return fail(Code::Exists, fmt::format("{} is attached to {} {}: detach it first", id, node, read_only ? "for writing" : "read-only"));
    intent.generation = at->second, intent.host = entry.host_of(node);
    for (const auto& [number, way] : under_way_) {
      if (way.id != id) continue;
      if (way.what == What::Attach && way.node == node) return std::optional(way);
      if (!entry.read_only || (way.what != What::Attach && way.what != What::Detach && way.what != What::Leave) || host_of(way) == intent.host) return fail(Code::Conflict, fmt::format("{} of {} is under way", text(way.what), id));
    }
    if (shown) return std::optional<Intent>();
    return unless_under_way(std::move(intent));
  }
  for (const auto& [number, way] : under_way_)
    if (way.id == id && way.what == What::Attach && way.node == node) return way.read_only == read_only && way.host == host ? Begun(std::optional(way)) : Begun(fail(Code::Conflict, fmt::format("attach of {} is under way", id)));
  // Who reads does not see what another writes, and may see half of it.
  if (entry.attached() && !(read_only && entry.read_only)) return fail(Code::Conflict, fmt::format("{} is attached to {}{}: one node at a time has a volume, or several that all read it alone", id, entry.holders(), entry.read_only ? ", read-only" : ""));
  if (!host.empty() && !entry.managed) return fail(Code::Unsupported, fmt::format("{} is shown on its pool's own machine alone", id));
  return unless_under_way(std::move(intent));
}

Ledger::Begun Ledger::detach(const std::string& id, const std::string& node, std::int64_t generation) const {
  const auto one = find(id, false);
  if (!one) return std::unexpected(one.error());
  const Entry& entry = **one;
  const auto at = entry.nodes.find(node);
  // An attachment that is under way is gone on with first: what it made would be left.
  if (at == entry.nodes.end()) {
    if (entry.attached() && !entry.read_only) return fail(Code::Conflict, fmt::format("{} is attached to {}, not to {}", id, entry.holders(), node));
    for (const auto& [number, way] : under_way_)
      if (way.id == id && way.what == What::Attach && (way.node == node || (!entry.attached() && !way.read_only))) return fail(Code::Conflict, fmt::format("attach of {} is under way", id));
    return std::optional<Intent>();
  }
  if (generation != at->second) return fail(Code::Conflict, fmt::format("{} is attached for the {}th time: what is to be undone is another attachment", id, at->second));
  return unless_under_way({.number = 0, .what = entry.nodes_on(entry.host_of(node)).size() > 1 ? What::Leave : What::Detach, .id = id, .size = 0, .before = 0, .source = {}, .of_snapshot = false, .node = node, .owner = {}, .read_only = false, .generation = generation, .managed = entry.managed, .limits = {}, .key = {}});
}

Result<Intent> Ledger::detach_by_force(const std::string& id, const std::string& node) const {
  const auto entry = entries_.find(id);
  const auto at = entry == entries_.end() ? std::map<std::string, std::int64_t>::const_iterator() : entry->second.nodes.find(node);
  if (entry == entries_.end() || at == entry->second.nodes.end()) return fail(Code::NotFound, fmt::format("{} does not have {}", node, id));
  for (const auto& [number, way] : under_way_)
    if (way.id == id && way.node == node && (way.what == What::Detach || way.what == What::Leave)) return way;
  return Intent{.number = last_ + 1, .what = entry->second.nodes_on(entry->second.host_of(node)).size() > 1 ? What::Leave : What::Detach, .id = id, .size = 0, .before = 0, .source = {}, .of_snapshot = false, .node = node, .owner = {}, .read_only = false, .generation = at->second, .managed = entry->second.managed, .limits = {}, .key = {}};
}

Ledger::Begun Ledger::set_limits(const std::string& id, const Limits& limits) const {
  const auto one = find(id, false);
  if (!one) return std::unexpected(one.error());
  if (limits.iops < 0 || limits.bytes_per_second < 0) return fail(Code::Invalid, "a limit is 0 (none) or more");
  if (!(*one)->managed) return fail(Code::Unsupported, fmt::format("{} has no engine that would hold limits", id));
  if (!(*one)->there) return fail(Code::Conflict, fmt::format("{} is being made", id));
  for (const auto& [number, way] : under_way_)
    if (way.id == id && way.what == What::Limit && way.limits == limits) return std::optional(way);
  auto begun = unless_under_way({.number = 0, .what = What::Limit, .id = id, .size = 0, .before = 0, .source = {}, .of_snapshot = false, .node = {}, .owner = {}, .read_only = false, .generation = 0, .managed = true, .limits = limits, .key = {}});
  if (begun && (*one)->limits == limits) return std::optional<Intent>();
  return begun;
}

}  // namespace fairlead::volumes
