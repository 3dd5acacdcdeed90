// SPDX-License-Identifier: Apache-2.0
#include "volumes/volume_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace fairlead::volumes {

using kube::Json;

namespace {

constexpr std::size_t large_journal = 4 << 20;
constexpr int most_steps = 16;  // of one operation: the kernel may not do what it says that it did

// Of engines and devices, which are where the volume is shown; files are where the pool is.
bool is_of_machine(Next::Do what) {
  using Do = Next::Do;
  return what == Do::Attach || what == Do::Detach || what == Do::StartEngine || what == Do::StopEngine || what == Do::GrowEngine || what == Do::GrowDevice || what == Do::SetLimits;
}

}  // namespace

Result<std::unique_ptr<VolumePool>> VolumePool::open(Pool& pool, std::unique_ptr<JournalFile> file, Hosts* hosts) {
  auto id = pool.id();
  if (!id) return std::unexpected(std::move(id.error()));
  std::unique_ptr<VolumePool> out(new VolumePool(pool, std::move(*id), hosts));
  std::vector<Json> records;
  auto journal = Journal::open(std::move(file), records);
  if (!journal) return std::unexpected(std::move(journal.error()));
  out->journal_ = std::move(*journal);
  for (const Json& record : records)
    if (auto done = out->ledger_.apply(record); !done) return std::unexpected(std::move(done.error()));
  // Whose it is stands at its beginning.
  if (records.empty()) {
    // What is there would have no owner, and who asks for its name would have it.
    const auto there = pool.ids();
    if (!there) return std::unexpected(there.error());
    if (!there->empty()) return fail(Code::Invalid, fmt::format("the pool holds {} and its journal is empty: it was lost. Bring it back, or move the files away", there->front()));
  }
  if (records.empty())
    if (auto done = out->journal_->append(out->ledger_.snapshot()); !done) return std::unexpected(std::move(done.error()));
  Lock lock(out->mutex_);
  const std::map<std::int64_t, Intent> begun = out->ledger_.under_way();
  for (const auto& [number, intent] : begun) {
    log_info("a volume's operation is gone on with", {{"volume", intent.id}, {"operation", std::string(text(intent.what))}});
    if (auto done = out->go_on(lock, intent); !done) log_warn("a volume's operation waits", {{"volume", intent.id}, {"operation", std::string(text(intent.what))}, {"why", done.error().message}});
  }
  lock.unlock();
  // What it had for itself when it died.
  for (const auto& [name, entry] : out->entries())
    if (const auto at = entry.nodes.find(kItself); at != entry.nodes.end())
      if (auto done = out->detach(name, kItself, at->second); !done) log_warn("a volume is not let go", {{"volume", name}, {"why", done.error().message}});
  return out;
}

class VolumePool::Turn {
 public:
  Turn(VolumePool& pool, Lock& lock, const std::string& id) : pool_(pool), lock_(lock), id_(id) {
    pool_.turn_.wait(lock_, [&] { return !pool_.busy_.contains(id_); });
    pool_.busy_.insert(id_);
  }
  ~Turn() {
    if (!lock_.owns_lock()) lock_.lock();
    pool_.busy_.erase(id_);
    pool_.turn_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  VolumePool& pool_;
  Lock& lock_;
  const std::string id_;
};

Result<std::int64_t> VolumePool::limit() {
  const auto room = pool_.room();
  if (!room) return std::unexpected(room.error());
  return room->size / 10 * 9;
}

Result<void> VolumePool::write(const Json& record) {
  if (auto done = journal_->append(record); !done) return done;
  if (auto done = ledger_.apply(record); !done) return done;
  if (journal_->size() <= large_journal) return {};
  auto done = journal_->replace({ledger_.snapshot()});
  return done || done.error().code == Code::Exhausted ? Result<void>() : done;  // too much for one record: it stays as it is, and grows
}

Result<void> VolumePool::take(const Intent& intent, const Next& next, const std::optional<Asked>& there) {
  using Do = Next::Do;
  // It is that machine's to take: it takes the same one, and tells.
  if (there && is_of_machine(next.what)) {
    const auto host = hosts_->seen(there->host);
    if (next.what == Do::StartEngine)
      if (auto done = ask_to_show(*there); !done) return done;
    hosts_->ask(there->host);
    return std::unexpected(not_yet(host, *there));
  }
  switch (next.what) {
    case Do::DropPart: return pool_.drop_part(intent.id);
    case Do::MakePart: return pool_.make_part(intent.id, intent.size, intent.key);
    case Do::CopyPart: return pool_.copy_part(intent.id, intent.source, intent.of_snapshot, intent.size);
    case Do::Publish: return pool_.publish(intent.id, intent.what == What::Snapshot);
    case Do::Remove: return pool_.remove(intent.id, intent.of_snapshot);
    case Do::GrowFile: return pool_.grow_file(intent.id, intent.size);
    case Do::GrowDevice: return pool_.grow_device(intent.id, next.device);
    case Do::Attach: return pool_.attach(intent.id, intent.read_only, intent.managed);
    case Do::StartEngine: return pool_.start_engine(intent.id, intent.read_only, intent.limits);
    case Do::StopEngine: return pool_.stop_engine(intent.id);
    case Do::GrowEngine: return pool_.grow_engine(intent.id);
    case Do::SetLimits: return pool_.limit(intent.id, intent.limits);
    case Do::Detach: return pool_.detach(intent.id, next.device);
    default: return {};
  }
}

Result<void> VolumePool::go_on(Lock& lock, const Intent& intent) {
  bool begun = false;
  std::string device;
  std::optional<Error> first;
  for (const std::string& host : hosts_of(intent)) {
    auto done = go_on_at(lock, intent, host, begun);
    if (done) device = std::move(*done);
    else if (!ledger_.under_way().contains(intent.number)) return std::unexpected(std::move(done.error()));
    else if (!first) first = std::move(done.error());  // the other machines need not wait for this one
  }
  if (first) return std::unexpected(std::move(*first));
  return write(Ledger::end_of(intent, false, device));
}

Result<std::string> VolumePool::go_on_at(Lock& lock, const Intent& intent, const std::string& host, bool& begun) {
  using Do = Next::Do;
  // Others there have the device still: nothing is done to it, so whatever is known of that machine it has come about.
  if (intent.what == What::Leave) return std::string();
  const bool makes = intent.what == What::Create || intent.what == What::Snapshot;
  const auto undone = [&](Error why) -> Result<std::string> {
    if (auto told = write(Ledger::end_of(intent, true)); !told) return std::unexpected(std::move(told.error()));
    return std::unexpected(std::move(why));
  };
  for (int steps = 0; steps < most_steps; ++steps) {
    const auto there = asked_at(intent.id, host);
    lock.unlock();
    // From here on none begins there, whatever is still on its way.
    const auto withdrawn = there && intent.what == What::Detach ? pool_.withdraw(intent.id, there->volume.generation) : Result<void>();
    const auto seen = withdrawn ? see(intent.id, there) : std::unexpected(withdrawn.error());
    if (!seen && there && withdrawn && seen.error().code == Code::Unavailable) {
      const auto done = intent.what == What::Attach ? ask_to_show(*there) : Result<void>();
      hosts_->ask(there->host);
      lock.lock();
      return std::unexpected(done ? seen.error() : done.error());
    }
    lock.lock();
    if (!seen) return std::unexpected(seen.error());
    Sight sight = *seen;
    if (!there && (intent.what == What::Detach || intent.what == What::Remove || (intent.what == What::Attach && intent.managed))) {
      lock.unlock();
      for (DeviceSeen& device : sight.devices) device.used = pool_.is_used(device.name);
      lock.lock();
    }
    const Next next = next_step(intent, sight, begun);
    if (next.what == Do::Nothing && there && intent.what == What::Detach) {
      lock.unlock();
      auto done = pool_.ended(intent.id, there->volume.generation);
      lock.lock();
      if (!done) return std::unexpected(std::move(done.error()));
    }
    if (next.what == Do::Nothing) return next.device;
    // Whether it is used is known there alone: it stays asked, rather than begun anew and again.
    if (next.what == Do::Stop || (next.what == Do::Refuse && there && intent.what == What::Detach)) return fail(next.code, there ? fmt::format("on the machine {}: {}", there->host, next.why) : next.why);
    if (next.what == Do::Refuse) return undone({next.code, next.why});
    lock.unlock();
    auto done = take(intent, next, there);
    lock.lock();
    begun = begun || next.what == Do::MakePart || next.what == Do::CopyPart;
    if (done) continue;
    // Without its key a volume is not attached, and nothing was made that a detachment would need it for.
    if (next.what == Do::StartEngine && (done.error().code == Code::Forbidden || done.error().code == Code::NotFound)) return undone(std::move(done.error()));
    // What cannot be made, as there is no room or the source is gone, leaves nothing.
    if (!makes || next.what == Do::Publish || (done.error().code != Code::Exhausted && done.error().code != Code::Unsupported && done.error().code != Code::NotFound && done.error().code != Code::Forbidden)) return std::unexpected(std::move(done.error()));
    if (auto dropped = pool_.drop_part(intent.id); !dropped) return std::unexpected(std::move(dropped.error()));
    return undone(std::move(done.error()));
  }
  return fail(Code::Unavailable, fmt::format("{} of {} has not come about: it is gone on with when it is asked for again", text(intent.what), intent.id));
}

Result<void> VolumePool::finish(Lock& lock, const std::string& id, std::optional<What> what) {
  const std::map<std::int64_t, Intent> under_way = ledger_.under_way();
  for (const auto& [number, intent] : under_way)
    if (intent.id == id && (!what || (intent.what == *what && hosts_of(intent) == std::vector<std::string>{""})))
      if (auto done = go_on(lock, intent); !done) return done;
  return {};
}

// A file that is there without an entry is somebody's, whatever its mark says. What is decided afterwards is decided on what the ledger is then.
Result<void> VolumePool::check_new(Lock& lock, const std::string& id) {
  if (!is_volume_id(id) || ledger_.entries().contains(id)) return {};
  lock.unlock();
  const auto seen = pool_.look(id);
  lock.lock();
  if (!seen) return std::unexpected(seen.error());
  if (!seen->volume && !seen->snapshot) return {};
  return fail(Code::Exists, fmt::format("the pool has something called {} that {}: it is left alone", id, (seen->volume && !seen->volume->ours) || (seen->snapshot && !seen->snapshot->ours) ? "is not ours" : "its journal does not know"));
}

Result<void> VolumePool::carry_out(Lock& lock, const Ledger::Begun& begun) {
  if (!begun) return std::unexpected(begun.error());
  if (!*begun) return {};
  const Intent intent = **begun;
  if (!ledger_.under_way().contains(intent.number))
    if (auto done = write(Ledger::record_of(intent)); !done) return done;
  return go_on(lock, intent);
}

Result<void> VolumePool::create(const std::string& id, std::int64_t size, const std::string& source, const std::string& owner, const std::optional<Limits>& managed, const std::string& key) {
  if (managed && !pool_.has_engines()) return fail(Code::Unsupported, "this pool starts no engines for volumes: fairlead-disk and /dev/fuse are needed");
  if (!key.empty())
    if (auto can = pool_.can_encrypt(); !can) return can;
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  if (auto done = check_new(lock, id); !done) return done;
  for (const Asked& from : asked(source))
    if (auto alive = lives(from.host); !alive) return alive;
  const auto most = limit();
  return most ? carry_out(lock, ledger_.create(id, size, source, owner, *most, managed, key)) : std::unexpected(most.error());
}
Result<void> VolumePool::take_snapshot(const std::string& id, const std::string& of, const std::string& owner) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  if (auto done = check_new(lock, id); !done) return done;
  for (const Asked& from : asked(of))
    if (auto alive = lives(from.host); !alive) return alive;
  const auto most = limit();
  return most ? carry_out(lock, ledger_.take_snapshot(id, of, owner, *most)) : std::unexpected(most.error());
}
Result<void> VolumePool::grow(const std::string& id, std::int64_t size) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  const auto most = limit();
  return most ? carry_out(lock, ledger_.grow(id, size, *most)) : std::unexpected(most.error());
}
Result<void> VolumePool::set_limits(const std::string& id, const Limits& limits) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  return carry_out(lock, ledger_.set_limits(id, limits));
}
Result<void> VolumePool::remove(const std::string& id, const std::string& owner) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  // What was broken off is gone on with first, whatever comes of it.
  if (auto done = finish(lock, id); !done && ledger_.entries().contains(id)) return done;
  return carry_out(lock, ledger_.remove(id, owner));
}
Result<void> VolumePool::give(const std::string& id, const std::string& owner) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  const auto record = ledger_.give(id, owner);
  return record ? write(*record) : std::unexpected(record.error());
}
Result<Attachment> VolumePool::attach(const std::string& id, const std::string& node, bool read_only, const std::string& host) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  bool shown = false;
  if (is_volume_id(id)) {
    const auto entry = ledger_.entries().find(id);
    const bool known = entry != ledger_.entries().end(), managed = known && entry->second.managed;
    const std::string at = known && entry->second.nodes.contains(node) ? entry->second.host_of(node) : host;
    const auto place = known ? entry->second.places.find(at) : std::map<std::string, Place>::const_iterator();
    const bool attached = known && place != entry->second.places.end();
    const auto there = asked_at(id, at);
    const std::string device = attached ? place->second.device : "";
    if (!there && !at.empty())
      if (auto alive = lives(at); !alive) return std::unexpected(std::move(alive.error()));
    lock.unlock();
    const auto seen = see(id, there);
    std::string dead;  // the device of an engine that serves no more; who uses it is asked again and again, and nothing is written for that
    shown = seen && !seen->devices.empty() && (!managed || (seen->engine && !seen->engine->failed));
    // A further machine makes it anew by itself, and by another device.
    const bool by_another = shown && there && seen->devices[0].name != device;
    if (seen && !seen->devices.empty() && !shown && (there ? seen->devices[0].used : pool_.is_used(seen->devices[0].name)).value_or(true)) dead = seen->devices[0].name;
    lock.lock();
    // What is on its way to another machine is gone on with below.
    if (!seen && (!there || attached)) return std::unexpected(seen.error());
    if (by_another) shown = false;
    if (!dead.empty()) return fail(Code::Conflict, fmt::format("the engine behind {} {}: unmount it, and the volume is attached anew", dead, seen->engine ? "could not write" : "has ended"));
  }
  if (auto done = carry_out(lock, ledger_.attach(id, node, read_only, shown, host)); !done) return std::unexpected(std::move(done.error()));
  const Entry& now = ledger_.entries().at(id);
  return Attachment{now.places.at(now.host_of(node)).device, now.nodes.at(node)};
}
Result<void> VolumePool::settle(const std::string& id, const std::function<Result<void>(const std::string& id)>& work) {
  {
    // Two who check one file system get into each other's way.
    const std::lock_guard lock(mutex_);
    if (!settling_.insert(id).second) return fail(Code::Conflict, fmt::format("the pool works on {} already", id));
  }
  auto done = [&]() -> Result<void> {
    const auto at = attach(id, kItself, false);
    if (!at) return std::unexpected(at.error());
    auto worked = work(id);
    auto left = detach(id, kItself, at->generation);
    return worked ? left : worked;
  }();
  const std::lock_guard lock(mutex_);
  settling_.erase(id);
  return done;
}
Result<void> VolumePool::detach(const std::string& id, const std::string& node, std::int64_t generation, bool force) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, id);
  if (const auto there = asked_at(id, host_at(id, node))) return force ? force_off(lock, id, node, *there) : detach_there(lock, id, node, generation, *there);
  // What an attachment that was broken off has made would be left.
  if (auto done = finish(lock, id, What::Attach); !done) return done;
  if (const auto begun = ledger_.detach(id, node, generation); !begun || !*begun || (*begun)->what == What::Leave) return carry_out(lock, begun);
  // What is used stays, and is asked for again and again: nothing is written for that.
  lock.unlock();
  const auto seen = pool_.look(id);
  std::string used;
  if (seen)
    for (const DeviceSeen& device : seen->devices)
      if (const auto now = pool_.is_used(device.name); now && *now) used = device.name;
  lock.lock();
  if (!used.empty()) return fail(Code::Conflict, fmt::format("{} is mounted, or open: unmount it first", used));
  return carry_out(lock, ledger_.detach(id, node, generation));
}

std::vector<Asked> VolumePool::asked(const std::string& id) const {
  const auto entry = ledger_.entries().find(id);
  const auto leaving = leaving_.find(id);
  return hosts_ == nullptr || entry == ledger_.entries().end() ? std::vector<Asked>() : asked_for(id, entry->second, ledger_.under_way(), leaving == leaving_.end() ? std::set<std::string>() : leaving->second);
}
std::optional<Asked> VolumePool::asked_at(const std::string& id, const std::string& host) const {
  if (host.empty()) return std::nullopt;
  for (Asked& one : asked(id))
    if (one.host == host) return std::move(one);
  return std::nullopt;
}
std::string VolumePool::host_at(const std::string& id, const std::string& node) const {
  if (const auto entry = ledger_.entries().find(id); entry != ledger_.entries().end() && entry->second.nodes.contains(node)) return entry->second.host_of(node);
  for (const auto& [number, one] : ledger_.under_way())
    if (one.id == id && one.what == What::Attach && one.node == node) return one.host;
  return "";
}
std::vector<std::string> VolumePool::hosts_of(const Intent& intent) const {
  if (intent.what == What::Attach) return {intent.host};
  if (intent.what == What::Detach || intent.what == What::Leave) return {host_at(intent.id, intent.node)};
  std::vector<std::string> out;
  if (const auto entry = ledger_.entries().find(intent.id); (intent.what == What::Grow || intent.what == What::Limit) && entry != ledger_.entries().end())
    for (const auto& [host, place] : entry->second.places) out.push_back(host);
  if (out.empty()) out.push_back("");
  return out;
}
std::vector<Asked> VolumePool::asked_of(const std::string& host) const {
  const std::lock_guard lock(mutex_);
  std::vector<Asked> out;
  for (const auto& [id, entry] : ledger_.entries())
    if (auto one = asked_at(id, host)) out.push_back(std::move(*one));
  return out;
}
Result<Sight> VolumePool::see(const std::string& id, const std::optional<Asked>& there) {
  if (!there) return pool_.look(id);
  auto shown = seen_there(hosts_->seen(there->host), *there, ledger_.pool());
  if (!shown) return std::unexpected(std::move(shown.error()));
  auto out = pool_.look(id);
  if (out) out->devices = std::move(shown->devices), out->engine = std::move(shown->engine);
  return out;
}
Result<Sight> VolumePool::look(const std::string& id) {
  Lock lock(mutex_);
  std::vector<std::optional<Asked>> all;
  for (Asked& one : asked(id)) all.emplace_back(std::move(one));
  const auto entry = ledger_.entries().find(id);
  if (all.empty() || (entry != ledger_.entries().end() && entry->second.places.contains(""))) all.emplace_back();
  lock.unlock();
  std::optional<Sight> out;
  for (const auto& there : all) {
    auto seen = see(id, there);
    if (!seen || !seen->engine || seen->engine->failed) return seen;
    if (!out) out = std::move(*seen);
  }
  return *out;
}
Result<std::optional<EngineSeen>> VolumePool::engine(const std::string& id, const std::string& host) {
  Lock lock(mutex_);
  const auto there = asked_at(id, host);
  lock.unlock();
  if (!there) return pool_.engine(id);
  auto shown = seen_there(hosts_->seen(there->host), *there, ledger_.pool());
  return shown ? Result<std::optional<EngineSeen>>(std::move(shown->engine)) : std::unexpected(std::move(shown.error()));
}
Result<void> VolumePool::lives(const std::string& host) {
  const auto seen = hosts_ == nullptr ? std::nullopt : hosts_->seen(host);
  if (!seen) return fail(Code::Unavailable, fmt::format("the machine {} is not known: start `fairlead-volumes host` there", host));
  return seen->silent ? fail(Code::Unavailable, fmt::format("the machine {} is silent since {}", host, *seen->silent)) : Result<void>();
}
// First who may in Ceph, then that it is wanted: what is asked of one that may not would fail there.
Result<void> VolumePool::ask_to_show(const Asked& there) {
  const auto host = hosts_->seen(there.host);
  if (!host || host->facts.id.empty()) return fail(Code::Unavailable, fmt::format("the machine {} has not said yet which it is", there.host));
  return pool_.allow(there.volume.id, host->facts.id, there.volume.generation, there.volume.read_only);
}

Result<void> VolumePool::detach_there(Lock& lock, const std::string& id, const std::string& node, std::int64_t generation, const Asked& there) {
  const std::map<std::int64_t, Intent> under_way = ledger_.under_way();
  for (const auto& [number, intent] : under_way) {
    if (intent.id != id || intent.what != What::Attach || intent.node != node) continue;
    if (ledger_.entries().at(id).places.contains(there.host)) {
      // It is made anew there, or one more that reads it there: the attachment itself stays as it was till here.
      if (auto done = write(Ledger::end_of(intent, true)); !done) return done;
      continue;
    }
    leaving_[id].insert(there.host);
    const auto gone = asked_at(id, there.host);
    lock.unlock();
    const auto withdrawn = pool_.withdraw(id, there.volume.generation);
    const auto seen = withdrawn ? see(id, gone) : std::unexpected(withdrawn.error());
    const bool over = seen && !seen->engine && seen->devices.empty();
    const auto ended = over ? pool_.ended(id, there.volume.generation) : Result<void>();
    hosts_->ask(there.host);
    lock.lock();
    if (!seen) return std::unexpected(seen.error());
    if (!over) return std::unexpected(not_yet(hosts_->seen(there.host), *gone));
    return ended ? let_go(id, node, &intent) : ended;
  }
  return carry_out(lock, ledger_.detach(id, node, generation));
}

// What is on its way counts as made: its generation is used up, and no answer to it is ever taken for another's. What the node has then is ended without another look.
Result<void> VolumePool::let_go(const std::string& id, const std::string& node, const Intent* coming) {
  if (coming != nullptr)
    if (auto done = write(Ledger::end_of(*coming, ledger_.entries().at(id).places.contains(coming->host))); !done) return done;
  if (coming != nullptr) leaving_[id].erase(coming->host);
  const auto intent = ledger_.detach_by_force(id, node);
  if (!intent) return intent.error().code == Code::NotFound ? Result<void>() : std::unexpected(intent.error());
  if (!ledger_.under_way().contains(intent->number))
    if (auto done = write(Ledger::record_of(*intent)); !done) return done;
  return write(Ledger::end_of(*intent, false));
}

// Nothing that its engine has sent and that was not done is ever done, before anything else says that the volume is free.
Result<void> VolumePool::force_off(Lock& lock, const std::string& id, const std::string& node, const Asked& there) {
  const std::map<std::int64_t, Intent> under_way = ledger_.under_way();
  const auto comes = std::find_if(under_way.begin(), under_way.end(), [&](const auto& one) { return one.second.id == id && one.second.what == What::Attach && one.second.host == there.host; });
  const bool coming = comes != under_way.end() && comes->second.node == node;
  if (!coming && !ledger_.entries().at(id).nodes.contains(node)) return carry_out(lock, ledger_.detach(id, node, ledger_.entries().at(id).generation));
  const bool reads = coming ? comes->second.read_only : ledger_.entries().at(id).read_only;
  lock.unlock();
  auto out = pool_.shut_out(id, there.volume.generation, reads);
  lock.lock();
  if (!out) return out;
  log_warn("a volume is taken from a machine by force: its engine there is shut out", {{"volume", id}, {"host", there.host}, {"node", node}});
  auto done = let_go(id, node, comes == under_way.end() ? nullptr : &comes->second);
  hosts_->ask(there.host);
  return done;
}

std::map<std::string, Entry> VolumePool::entries() const {
  const std::lock_guard lock(mutex_);
  return ledger_.entries();
}
std::optional<Entry> VolumePool::entry(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = ledger_.entries().find(id);
  return found == ledger_.entries().end() ? std::nullopt : std::optional(found->second);
}
Result<VolumePool::Space> VolumePool::space() {
  const auto room = pool_.room();
  const auto most = room ? limit() : Result<std::int64_t>(std::unexpected(room.error()));
  if (!most) return std::unexpected(most.error());
  const std::lock_guard lock(mutex_);
  return Space{.size = room->size, .free = room->free, .limit = *most, .promised = ledger_.promised()};
}
Result<std::size_t> VolumePool::rewrap(std::size_t most) {
  const std::map<std::string, Entry> all = entries();
  std::map<std::string, std::int64_t> current;
  std::size_t left = 0;
  std::optional<Error> refused;
  for (const auto& [id, entry] : all) {
    if (entry.key.empty() || !entry.there) continue;
    if (!current.contains(entry.key)) {
      const auto version = pool_.key_version(entry.key);
      if (!version) return std::unexpected(version.error());
      current[entry.key] = *version;
    }
    Lock lock(mutex_);
    if (const auto seen = wrapped_.find(id); seen != wrapped_.end() && seen->second >= current[entry.key]) continue;
    if (most == 0) {
      ++left;
      continue;
    }
    --most;
    const Turn turn(*this, lock, id);
    if (const auto now = ledger_.entries().find(id); now == ledger_.entries().end() || !now->second.there || now->second.owner != entry.owner) continue;
    lock.unlock();
    auto version = pool_.rewrap(id, entry.snapshot);
    lock.lock();
    if (version) {
      wrapped_[id] = *version;
    } else {
      ++left;
      refused = std::move(version.error());
    }
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(wrapped_, [&](const auto& one) { return !ledger_.entries().contains(one.first); });
  }
  if (refused) return std::unexpected(std::move(*refused));
  return left;
}
Result<void> VolumePool::usable() const {
  const std::lock_guard lock(mutex_);
  return journal_->broken() ? Result<void>(fail(Code::Unavailable, "the pool's journal could not be written: its daemon has to begin anew")) : Result<void>();
}
std::optional<Intent> VolumePool::changing(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, one] : ledger_.under_way())
    if (one.id == id && (one.what == What::Grow || one.what == What::Limit)) return one;
  return std::nullopt;
}
bool VolumePool::is_coming(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(ledger_.under_way(), [&](const auto& one) { return one.second.id == id && one.second.what == What::Attach && one.second.node != kItself; });
}
std::size_t VolumePool::under_way() const {
  const std::lock_guard lock(mutex_);
  return ledger_.under_way().size();
}

}  // namespace fairlead::volumes
