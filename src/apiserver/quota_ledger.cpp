// SPDX-License-Identifier: Apache-2.0
#include "apiserver/quota_ledger.h"

#include <fmt/format.h>

#include "apiserver/kinds/resources.h"
#include "apiserver/registry_bytes.h"
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

Measured measure_stored(std::string_view kind, const Value& value, Instant now) {
  const kube::Resource resource = resource_of(kind);
  if (!is_looked_into(resource)) return measure(resource, Json(), now);
  const http::Buffer bytes = value.bytes();
  const auto object = kube::parse_json(without_managed_fields(*bytes));
  INVARIANT(object.has_value());  // the registry wrote it
  return measure(resource, *object, now);
}

}  // namespace

struct QuotaLedger::Reservation {
  // That it is under way is known before anybody looks whether there is a quota.
  explicit Reservation(QuotaLedger& ledger) : ledger_(ledger), generation_(ledger.under_way_.begin()) {}
  Reservation(const Reservation&) = delete;
  ~Reservation() {
    if (space_) give_back();
    ledger_.under_way_.end(generation_);
  }
  void hold(std::shared_ptr<Space> space, std::string key, std::uint64_t id) {
    space_ = std::move(space);
    key_ = std::move(key);
    id_ = id;
  }

 private:
  void give_back() {
    {
      const std::scoped_lock lock(space_->mutex);
      const auto at = space_->held.find(key_);
      if (at == space_->held.end()) return;
      add_up(*space_, at->second, false);
      at->second.under_way.erase(id_);
      add_up(*space_, at->second, true);
      if (!at->second.stored && at->second.under_way.empty()) space_->held.erase(at);
      if (!space_->lines.empty() || !space_->held.empty()) return;
    }
    ledger_.forget_if_empty(space_);
  }

  QuotaLedger& ledger_;
  const WritesUnderWay::Generation generation_;
  std::shared_ptr<Space> space_;
  std::string key_;
  std::uint64_t id_ = 0;
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
  for (const auto& [name, space] : spaces_) space->settled = true;  // nothing was written yet
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
  if ((!space->loaded && !space->meanwhile) || event.revision <= space->loaded_at || !space->kinds.contains(place->kind)) return;
  auto measured = event.value ? std::optional(measure_stored(place->kind, event.value, clock_.now())) : std::nullopt;
  if (space->meanwhile) space->meanwhile->insert_or_assign(event.key, Change{event.revision, std::move(measured)});
  else put(*space, event.key, event.revision, std::move(measured));
}

void QuotaLedger::on_quota(std::string_view space_name, const std::string& name, const Value& value) {
  std::optional<Quota> quota;
  if (value) {
    const auto object = kube::parse_json(*value.bytes());
    INVARIANT(object.has_value());  // the registry wrote it
    quota = read_quota(*object);
  }
  if (!quota && !space_of(space_name)) return;
  const auto space = enter_expected(space_name);
  change_quota(*space, name, std::move(quota));
  leave_expected(space);
}

std::shared_ptr<QuotaLedger::Space> QuotaLedger::enter_expected(std::string_view name) {
  const std::unique_lock lock(mutex_);
  auto at = spaces_.find(name);
  if (at == spaces_.end()) at = spaces_.emplace(name, std::make_shared<Space>(std::string(name))).first;
  any_.store(true, std::memory_order_release);
  ++at->second->expected;
  return at->second;
}

void QuotaLedger::leave_expected(const std::shared_ptr<Space>& space) {
  {
    const std::unique_lock lock(mutex_);
    --space->expected;
  }
  forget_if_empty(space);
}

// A write that found it before it goes may hold room in it afterwards, where nobody looks: it counts as under way all the same, so the next first quota waits for it.
void QuotaLedger::forget_if_empty(const std::shared_ptr<Space>& space) {
  const std::unique_lock lock(mutex_);
  if (space->expected > 0 || space->limited.load(std::memory_order_acquire)) return;
  {
    const std::scoped_lock unlimited(space->mutex);  // nobody reads what is there: nothing limits it, and no quota is expected
    if (!space->held.empty()) return;
  }
  const auto at = spaces_.find(space->name);
  if (at == spaces_.end() || at->second != space) return;
  spaces_.erase(at);
  any_.store(!spaces_.empty(), std::memory_order_release);
}

std::size_t QuotaLedger::spaces() const {
  const std::shared_lock lock(mutex_);
  return spaces_.size();
}

void QuotaLedger::expect(const std::string& name, std::function<void(Ticket)> then) {
  const auto space = enter_expected(name);
  Ticket ticket(space.get(), [this, space](void*) { leave_expected(space); });
  bool settled = false;
  {
    const std::shared_lock lock(mutex_);
    settled = space->settled;
  }
  if (settled) return then(std::move(ticket));
  under_way_.after_those_begun([this, space, ticket = std::move(ticket), then = std::move(then)]() mutable {
    {
      const std::unique_lock lock(mutex_);
      space->settled = true;
    }
    then(std::move(ticket));
  });
}

void QuotaLedger::change_quota(Space& space, const std::string& name, std::optional<Quota> quota) {
  const std::scoped_lock lock(space.mutex);
  const auto at = space.lines.find(name);
  const bool same = quota ? at != space.lines.end() && at->second.quota == *quota : at == space.lines.end();
  if (same) return;
  if (quota) space.lines.insert_or_assign(name, Line{std::move(*quota), {}, {}});
  else space.lines.erase(name);
  ++space.changes;
  space.loaded = false;
  space.meanwhile.reset();
  space.kinds.clear();
  for (const auto& [key, line] : space.lines)
    for (const auto& [what, limit] : line.quota.hard)
      if (auto kind = counted_kind(what)) space.kinds.insert(std::move(*kind));
  space.limited.store(!space.lines.empty(), std::memory_order_release);
  if (!space.lines.empty()) return;
  space.ending.clear();
  for (auto& [key, held] : space.held) held.stored = std::nullopt;
  std::erase_if(space.held, [](const auto& one) { return one.second.under_way.empty(); });
}

// Reads what the quotas count while others go on: what the store tells meanwhile is put on top of it.
Result<void> QuotaLedger::load(Space& space) const {
  const std::scoped_lock alone(space.loading);
  std::vector<Quota> quotas;
  std::set<std::string, std::less<>> kinds;
  std::uint64_t changes = 0;
  Revision at = 0;
  {
    const std::scoped_lock lock(space.mutex);
    if (space.loaded) return {};  // by somebody else, while this one waited
    for (const auto& [name, line] : space.lines) quotas.push_back(line.quota);
    kinds = space.kinds;
    changes = space.changes;
    at = space.loaded_at = store_.revision();
    space.meanwhile.emplace();
  }
  const Instant now = clock_.now();
  std::vector<std::pair<std::string_view, Range>> read;
  for (const std::string& kind : kinds) {
    auto all = store_.range(fmt::format("/{}/{}/", kind, space.name), "", 0, at);
    if (!all) {
      const std::scoped_lock lock(space.mutex);
      space.meanwhile.reset();
      return fail(Code::Unavailable, "what the quotas of this namespace count cannot be read: " + all.error().message);
    }
    read.emplace_back(kind, std::move(*all));
  }
  std::map<std::string, Held, std::less<>> held;
  std::set<std::pair<Instant, std::string>> ending;
  std::vector<Usage> sums(quotas.size());
  for (const auto& [kind, range] : read) {
    for (const Entry& entry : range.entries) {
      Measured measured = measure_stored(kind, entry.value, now);
      for (std::size_t i = 0; i < quotas.size(); ++i)
        for (const auto& [what, value] : charge(quotas[i], measured)) sums[i][what] += value;
      if (measured.until) ending.emplace(*measured.until, entry.key);
      held.emplace(entry.key, Held{entry.revision, std::move(measured), {}});
    }
  }

  const std::scoped_lock lock(space.mutex);
  if (space.changes != changes) return {};  // the quotas are others now: to be read again
  std::size_t i = 0;
  for (auto& [name, line] : space.lines) line.stored = line.taken = std::move(sums[i++]);
  space.held.swap(held);
  space.ending.swap(ending);
  for (auto& [key, before] : held) {
    if (before.under_way.empty()) continue;
    Held& now_held = space.held[key];
    add_up(space, now_held, false);
    now_held.under_way = std::move(before.under_way);
    add_up(space, now_held, true);
  }
  for (auto& [key, change] : *space.meanwhile) put(space, key, change.revision, std::move(change.stored));
  space.meanwhile.reset();
  space.loaded = true;
  return {};
}

Result<void> QuotaLedger::make_current(Space& space, std::unique_lock<std::mutex>& lock) const {
  while (!space.loaded) {
    lock.unlock();
    auto loaded = load(space);
    lock.lock();
    if (!loaded) return loaded;
  }
  const Instant now = clock_.now();
  while (!space.ending.empty() && space.ending.begin()->first < now) {
    const std::string key = space.ending.begin()->second;
    const Held& held = space.held.find(key)->second;
    put(space, key, held.revision, after_its_end(*held.stored));
  }
  return {};
}

Result<QuotaLedger::Ticket> QuotaLedger::admit(const Ask& ask) {
  if (ask.space.empty() || workloads::is(ask.resource, kube::resources::events)) return Ticket();
  std::shared_ptr<Reservation> ticket;  // let go of after the lock, where this ends early
  if (!ask.dry_run) ticket = std::make_shared<Reservation>(*this);
  if (!any_.load(std::memory_order_acquire)) return Ticket(std::move(ticket));
  const auto space = space_of(ask.space);
  if (!space) return Ticket(std::move(ticket));
  const Instant now = clock_.now();
  const Measured next = measure(ask.resource, ask.next, now);
  if (ask.old != nullptr && measure(ask.resource, *ask.old, now) == next) return Ticket();
  std::unique_lock lock(space->mutex);
  if (!space->lines.empty()) {
    if (auto current = make_current(*space, lock); !current) return std::unexpected(std::move(current.error()));
    const auto at = space->held.find(ask.store_key);
    std::vector<QuotaLine> lines;
    for (const auto& [name, line] : space->lines) lines.push_back({line.quota, line.taken, at == space->held.end() ? Usage() : place_charge(line.quota, at->second)});
    if (auto why = quota_refusal(lines, next)) return fail(Code::Forbidden, std::move(*why));
  }
  if (ask.dry_run) return Ticket();
  const std::uint64_t id = ++space->last_ticket;
  Held& held = space->held[ask.store_key];
  add_up(*space, held, false);
  held.under_way.emplace(id, next);
  add_up(*space, held, true);
  lock.unlock();
  ticket->hold(space, ask.store_key, id);
  return Ticket(std::move(ticket));
}

Result<std::optional<QuotaUse>> QuotaLedger::use(const kube::ObjectKey& quota) {
  const auto space = space_of(quota.space);
  if (!space) return std::optional<QuotaUse>();
  std::unique_lock lock(space->mutex);
  if (!space->lines.empty())
    if (auto current = make_current(*space, lock); !current) return std::unexpected(std::move(current.error()));
  const auto at = space->lines.find(quota.name);
  if (at == space->lines.end()) return std::optional<QuotaUse>();
  QuotaUse out{print_used(at->second.quota, at->second.stored), std::nullopt};
  if (!space->ending.empty()) out.until = space->ending.begin()->first;
  return std::optional(std::move(out));
}

}  // namespace fairlead::apiserver
