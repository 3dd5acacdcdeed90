// SPDX-License-Identifier: Apache-2.0
#include "apiserver/quota_ledger.h"

#include <fmt/format.h>

#include "apiserver/kinds/resources.h"
#include "apiserver/registry_names.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::string_view quota_kind = "core/resourcequotas";

// "/core/pods/team/web" in its parts; nothing of objects without a namespace.
struct Place {
  std::string_view kind, space, name;
};
std::optional<Place> place_of(std::string_view key) {
  const auto plural = key.find('/', 1);
  const auto space = plural == std::string_view::npos ? plural : key.find('/', plural + 1);
  const auto name = space == std::string_view::npos ? space : key.find('/', space + 1);
  if (name == std::string_view::npos) return std::nullopt;
  return Place{key.substr(1, space - 1), key.substr(space + 1, name - space - 1), key.substr(name + 1)};
}

bool looked_into(std::string_view kind) { return kind == "core/pods" || kind == "core/persistentvolumeclaims" || kind == "core/services"; }

Measured measure_stored(std::string_view kind, const Value& value, Instant now) {
  const auto slash = kind.find('/');
  const std::string_view group = kind.substr(0, slash);
  const kube::Resource resource{group == "core" ? std::string() : std::string(group), "", std::string(kind.substr(slash + 1)), "", true};
  if (!looked_into(kind)) return measure(resource, Json(), now);
  const auto object = kube::parse_json(*value.bytes());
  INVARIANT(object.has_value());  // the registry wrote it
  return measure(resource, *object, now);
}

}  // namespace

struct QuotaLedger::Reservation {
  Reservation(std::shared_ptr<Space> space, std::string key, std::uint64_t id) : space_(std::move(space)), key_(std::move(key)), id_(id) {}
  Reservation(const Reservation&) = delete;
  ~Reservation() {
    const std::scoped_lock lock(space_->mutex);
    const auto at = space_->held.find(key_);
    if (at == space_->held.end()) return;
    add_up(*space_, at->second, false);
    at->second.under_way.erase(id_);
    add_up(*space_, at->second, true);
    if (!at->second.stored && at->second.under_way.empty()) space_->held.erase(at);
  }

 private:
  const std::shared_ptr<Space> space_;
  const std::string key_;
  const std::uint64_t id_;
};

Usage QuotaLedger::place_charge(const Quota& quota, const Held& held) {
  Usage out;
  const auto raise = [&](const Measured& measured) {
    for (const auto& [name, value] : charge(quota, measured)) {
      const auto [at, fresh] = out.try_emplace(name, value);
      if (!fresh && at->second < value) at->second = value;
    }
  };
  if (held.stored) raise(*held.stored);
  for (const auto& [id, measured] : held.under_way) raise(measured);
  return out;
}

void QuotaLedger::add_up(Space& space, const Held& held, bool in) {
  for (auto& [name, line] : space.lines) {
    const auto add = [in](Usage& to, const Usage& from) {
      for (const auto& [what, value] : from) in ? to[what] += value : to[what] -= value;
    };
    if (held.stored) add(line.stored, charge(line.quota, *held.stored));
    add(line.taken, place_charge(line.quota, held));
  }
}

void QuotaLedger::put(Space& space, const std::string& key, Revision revision, std::optional<Measured> measured) {
  Held& held = space.held[key];
  add_up(space, held, false);
  if (held.stored && held.stored->until) space.ending.erase({*held.stored->until, key});
  held.revision = revision;
  held.stored = std::move(measured);
  if (held.stored && held.stored->until) space.ending.emplace(*held.stored->until, key);
  add_up(space, held, true);
  if (!held.stored && held.under_way.empty()) space.held.erase(key);
}

std::shared_ptr<QuotaLedger::Space> QuotaLedger::space_of(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  const auto at = spaces_.find(name);
  return at == spaces_.end() ? nullptr : at->second;
}

Result<void> QuotaLedger::follow() {
  auto quotas = store_.range("/" + std::string(quota_kind) + "/", "", 0, 0);
  if (!quotas) return pass(std::move(quotas.error()), "load ResourceQuotas");
  for (const Entry& entry : quotas->entries)
    if (const auto place = place_of(entry.key)) on_quota(place->space, std::string(place->name), entry.value);
  auto watching = store_.watch("/", quotas->revision, [this](const StoreEvent& event) { on_event(event); });
  if (!watching) return pass(std::move(watching.error()), "watch what quotas count");
  watch_ = std::move(*watching);
  return {};
}

void QuotaLedger::on_event(const StoreEvent& event) {
  const bool of_quota = event.key.starts_with("/core/resourcequotas/");
  if (!of_quota && !any_.load(std::memory_order_acquire)) return;
  const auto place = place_of(event.key);
  if (!place) return;
  if (of_quota) on_quota(place->space, std::string(place->name), event.value);
  const auto space = space_of(place->space);
  if (!space) return;
  const std::scoped_lock lock(space->mutex);
  // What is not loaded yet is read from the store later, with this in it.
  if (!space->loaded || event.revision <= space->loaded_at || !space->kinds.contains(place->kind)) return;
  put(*space, event.key, event.revision, event.value ? std::optional(measure_stored(place->kind, event.value, clock_.now())) : std::nullopt);
}

void QuotaLedger::on_quota(std::string_view space_name, const std::string& name, const Value& value) {
  std::optional<Quota> quota;
  if (value) {
    const auto object = kube::parse_json(*value.bytes());
    INVARIANT(object.has_value());  // the registry wrote it
    quota = read_quota(*object);
  }
  // Events come one at a time: nobody else adds or removes spaces.
  auto entry = space_of(space_name);
  if (!entry && !quota) return;
  if (!entry) {
    entry = std::make_shared<Space>(std::string(space_name));
    const std::unique_lock lock(mutex_);
    spaces_.emplace(space_name, entry);
    any_.store(true, std::memory_order_release);
  }
  if (!change_quota(*entry, name, std::move(quota))) return;
  const std::unique_lock lock(mutex_);
  spaces_.erase(std::string(space_name));
  any_.store(!spaces_.empty(), std::memory_order_release);
}

bool QuotaLedger::change_quota(Space& space, const std::string& name, std::optional<Quota> quota) {
  const std::scoped_lock lock(space.mutex);
  const auto at = space.lines.find(name);
  const bool same = quota ? at != space.lines.end() && at->second.quota == *quota : at == space.lines.end();
  if (!same) {
    if (quota) space.lines.insert_or_assign(name, Line{std::move(*quota), {}, {}});
    else space.lines.erase(name);
    space.loaded = false;
    space.kinds.clear();
    for (const auto& [key, line] : space.lines)
      for (const auto& [what, limit] : line.quota.hard)
        if (auto kind = counted_kind(what)) space.kinds.insert(std::move(*kind));
  }
  if (!space.lines.empty()) return false;
  space.ending.clear();
  for (auto& [key, held] : space.held) held.stored = std::nullopt;
  std::erase_if(space.held, [](const auto& one) { return one.second.under_way.empty(); });
  return space.held.empty();
}

Result<void> QuotaLedger::make_current(Space& space) const {
  const Instant now = clock_.now();
  if (!space.loaded) {
    const Revision at = store_.revision();
    std::map<std::string, Held, std::less<>> held;
    for (auto& [key, one] : space.held)
      if (!one.under_way.empty()) held[key].under_way = std::move(one.under_way);
    space.held = std::move(held);
    space.ending.clear();
    for (auto& [name, line] : space.lines) line.stored.clear(), line.taken.clear();
    for (const auto& [key, one] : space.held) add_up(space, one, true);
    for (const std::string& kind : space.kinds) {
      const auto all = store_.range(fmt::format("/{}/{}/", kind, space.name), "", 0, at);
      if (!all) return fail(Code::Unavailable, "what the quotas of this namespace count cannot be read: " + all.error().message);
      for (const Entry& entry : all->entries) put(space, entry.key, entry.revision, measure_stored(kind, entry.value, now));
    }
    space.loaded_at = at;
    space.loaded = true;
  }
  while (!space.ending.empty() && space.ending.begin()->first < now) {
    const std::string key = space.ending.begin()->second;
    const Held& held = space.held.find(key)->second;
    put(space, key, held.revision, after_its_end(*held.stored));
  }
  return {};
}

Result<QuotaLedger::Ticket> QuotaLedger::admit(const Ask& ask) {
  if (!any_.load(std::memory_order_acquire) || ask.space.empty() || workloads::is(ask.resource, kube::resources::events)) return Ticket();
  const auto space = space_of(ask.space);
  if (!space) return Ticket();
  const Instant now = clock_.now();
  const Measured next = measure(ask.resource, ask.next, now);
  if (ask.old != nullptr && measure(ask.resource, *ask.old, now) == next) return Ticket();
  const std::scoped_lock lock(space->mutex);
  if (space->lines.empty()) return Ticket();
  if (auto current = make_current(*space); !current) return std::unexpected(std::move(current.error()));
  const auto at = space->held.find(ask.store_key);
  std::vector<QuotaLine> lines;
  for (const auto& [name, line] : space->lines) lines.push_back({line.quota, line.taken, at == space->held.end() ? Usage() : place_charge(line.quota, at->second)});
  if (auto why = quota_refusal(lines, next)) return fail(Code::Forbidden, std::move(*why));
  if (ask.dry_run) return Ticket();
  const std::uint64_t id = ++space->last_ticket;
  auto ticket = std::make_shared<Reservation>(space, ask.store_key, id);
  Held& held = space->held[ask.store_key];
  add_up(*space, held, false);
  held.under_way.emplace(id, next);
  add_up(*space, held, true);
  return Ticket(std::move(ticket));
}

Result<std::optional<QuotaUse>> QuotaLedger::use(const kube::ObjectKey& quota) {
  const auto space = space_of(quota.space);
  if (!space) return std::optional<QuotaUse>();
  const std::scoped_lock lock(space->mutex);
  const auto at = space->lines.find(quota.name);
  if (at == space->lines.end()) return std::optional<QuotaUse>();
  if (auto current = make_current(*space); !current) return std::unexpected(std::move(current.error()));
  QuotaUse out{print_used(at->second.quota, at->second.stored), std::nullopt};
  if (!space->ending.empty()) out.until = space->ending.begin()->first;
  return std::optional(std::move(out));
}

}  // namespace fairlead::apiserver
