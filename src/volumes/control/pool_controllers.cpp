// SPDX-License-Identifier: Apache-2.0
#include "volumes/control/pool_controllers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/volume_access.h"
#include "api/volume_key.h"
#include "base/log.h"
#include "kube/selector.h"
#include "volumes/keyring.h"

namespace fairlead::volumes {

using kube::Json;
using Do = Task::Do;
using namespace std::chrono_literals;
namespace resources = kube::resources;

namespace {

constexpr auto kWaits = 5s;           // between looks at what does not come by itself
constexpr auto kLooks = 60s;          // at what is used: its pieces, and whether it is there still
constexpr auto kBeats = 30s;          // of the VolumePool
constexpr std::size_t kRewrapped = 16; // at most with each beat
constexpr auto kRests = 1s;           // between two writes of its status

// What an error of the pool is for an object: waited out, or told and looked at now and then.
bool passes(Code code) { return code == Code::Unavailable || code == Code::Conflict || code == Code::Internal; }

class Base : public kube::Controller {
 public:
  Base(PoolSite site, kube::Resource resource) : site_(std::move(site)), resource_(std::move(resource)) {}
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  std::optional<kube::Access> access() const override { return kube::Access().may({"get", "update"}, resource_).may({"update"}, resource_, "status"); }

 protected:
  bool is_ours(const Json& object) const { return object["spec"]["pool"].string() == site_.name; }
  // Those of ours; of others a change is nobody's news.
  std::function<std::vector<kube::ObjectKey>(const kube::Change&)> own() const {
    return [this](const kube::Change& change) { return is_ours(change.object()) ? std::vector{kube::key_of(change.object())} : std::vector<kube::ObjectKey>(); };
  }
  std::optional<Json> cached(const kube::Resource& resource, const std::string& name) const { return name.empty() ? std::nullopt : caches_->of(resource).get({"", name}); }

  // `object` as it is known, with this status; nothing is written that says the same.
  Result<void> tell(const Json& object, Json status) {
    if (object["status"] == status) return {};
    Json next = object;
    next.set("status", std::move(status));
    auto done = site_.api.update_status(resource_, next);
    if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), fmt::format("write the status of {} {}", resource_.kind, kube::name_of(object)));
    return {};
  }
  Result<kube::Next> finalizer(const Json& object, bool on) {
    Json next = object;
    if (on) kube::add_finalizer(next, api::kVolumeFinalizer);
    else kube::remove_finalizer(next, api::kVolumeFinalizer);
    auto done = site_.api.update(resource_, next);
    if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), fmt::format("write {} {}", resource_.kind, kube::name_of(object)));
    return kube::Next{};
  }
  static Json status_of(const Json& object, const std::string& phase, const std::string& message) {
    Json out = object["status"].is_object() ? object["status"] : Json::object();
    out.set("phase", phase);
    out.erase("reason");
    if (message.empty()) out.erase("message");
    else out.set("message", message);
    return out;
  }
  // Told, and tried again: by the queue's own rule where it may pass by itself, else now and then.
  Result<kube::Next> failed(const Json& object, const Task& task, Error error) {
    const bool soon = passes(error.code), news = object["status"]["message"].string() != error.message;
    Json status = status_of(object, soon ? task.phase : "Failed", error.message);
    if (task.what == Do::Detach && error.code == Code::Conflict) status.set("reason", "InUse");
    if (auto done = tell(object, std::move(status)); !done) return std::unexpected(std::move(done.error()));
    if (news) log_warn("a volume's operation waits", {{"kind", resource_.kind}, {"name", kube::name_of(object)}, {"why", error.message}});
    return kube::Next{soon ? std::chrono::nanoseconds(1s) : std::chrono::nanoseconds(kWaits)};
  }

  // With further machines: what they tell is heard before anybody is woken by it.
  void also_of_hosts(std::vector<Source>& sources, std::function<std::vector<kube::ObjectKey>(const kube::Change&, const std::set<std::string>& volumes)> keys) const {
    if (site_.hosts == nullptr) return;
    sources.push_back({api::kVolumeHosts, "", [this, keys](const kube::Change& change) {
                         if (!is_ours(change.object())) return std::vector<kube::ObjectKey>();
                         std::set<std::string> news;
                         const auto told = [](const Json* object) {
                           std::map<std::string, Json> out;
                           if (object != nullptr)
                             for (const Json& one : (*object)["status"]["volumes"].items()) out[one["id"].string() + "." + std::to_string(one["generation"].integer())] = one;
                           return out;
                         };
                         const auto before = told(change.before ? &*change.before : nullptr), after = told(change.after ? &*change.after : nullptr);
                         for (const auto& [a, b] : {std::pair(&before, &after), {&after, &before}})
                           for (const auto& [key, one] : *a)
                             if (const auto other = b->find(key); other == b->end() || other->second != one) news.insert(one["id"].string());
                         if (change.after) site_.hosts->told(api::read_volume_host(*change.after));
                         return keys(change, news);
                       }});
  }
  std::vector<api::VolumeHostFacts> hosts() const {
    std::vector<api::VolumeHostFacts> out;
    if (site_.hosts != nullptr)
      caches_->of(api::kVolumeHosts).each("", [&](const Json& one) {
        if (is_ours(one)) out.push_back(api::read_volume_host(one));
      });
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.host < b.host; });
    return out;
  }

  const PoolSite site_;
  const kube::Resource resource_;
  const kube::Caches* caches_ = nullptr;
};

class VolumeController final : public Base {
 public:
  explicit VolumeController(const PoolSite& site) : Base(site, api::kVolumes) {}
  std::string name() const override { return "volume"; }
  std::vector<Source> sources() const override {
    const auto of_volume = [this](const kube::Change& change) { return is_ours(change.object()) ? std::vector<kube::ObjectKey>{{"", change.object()["spec"]["volume"].string()}} : std::vector<kube::ObjectKey>(); };
    std::vector<Source> out{{api::kVolumes, "", own()}, {api::kAttachments, "", of_volume}, {api::kSnapshots, "", [](const kube::Change&) { return std::vector<kube::ObjectKey>(); }}};
    also_of_hosts(out, [](const kube::Change&, const std::set<std::string>& volumes) {
      std::vector<kube::ObjectKey> keys;
      for (const std::string& one : volumes) keys.push_back({"", one});
      return keys;
    });
    return out;
  }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override {
    const auto object = cached(api::kVolumes, key.name);
    if (!object || !is_ours(*object)) return kube::Next{};
    if (auto usable = site_.pool.usable(); !usable) return std::unexpected(std::move(usable.error()));
    const auto spec = api::read_volume(*object);
    const std::string source = !spec ? "" : spec->from_volume.empty() ? spec->from_snapshot : spec->from_volume;
    Known known{.pool_id = site_.pool.id(), .entry = site_.pool.entry(key.name), .source = spec && !source.empty() ? cached(spec->from_volume.empty() ? api::kSnapshots : api::kVolumes, source) : std::nullopt, .source_entry = source.empty() ? std::nullopt : site_.pool.entry(source), .begun = site_.pool.changing(key.name), .distributed = site_.pool.is_distributed()};
    const Task task = decide_volume(*object, known);
    const std::string& uid = kube::uid_of(*object);
    bool runs_again = false;
    Result<void> done;
    switch (task.what) {
      case Do::AddFinalizer: return finalizer(*object, true);
      case Do::DropFinalizer: return finalizer(*object, false);
      case Do::Adopt: done = site_.pool.give(key.name, uid); break;
      case Do::Make: done = site_.pool.create(key.name, task.size, task.source, uid, task.managed, task.key); break;
      case Do::Limit: done = site_.pool.set_limits(key.name, task.managed.value_or(Limits())); break;
      case Do::Grow: done = site_.pool.grow(key.name, task.size); break;
      case Do::Remove:
        done = site_.pool.remove(key.name, uid);
        if (done) return finalizer(*object, false);
        break;
      default: break;
    }
    if (!done) {
      // A volume that could not be grown is as it was.
      const bool there = (task.what == Do::Grow || task.what == Do::Limit) && known.entry && !passes(done.error().code);
      if (!there) return failed(*object, task, std::move(done.error()));
      if (auto told = tell(*object, full(*object, known.entry->attached() ? "InUse" : "Available", done.error().message)); !told) return std::unexpected(std::move(told.error()));
      return kube::Next{kWaits};
    }
    if (task.what == Do::Nothing) {
      if (task.phase != "Available" && task.phase != "InUse") {
        if (auto told = tell(*object, status_of(*object, task.phase, task.message)); !told) return std::unexpected(std::move(told.error()));
        return kube::Next{task.soon ? std::optional<std::chrono::nanoseconds>(kWaits) : std::nullopt};
      }
    } else {
      known.entry = site_.pool.entry(key.name);
      log_info("volume", {{"name", key.name}, {"done", task.what == Do::Limit ? "Limited" : task.phase.empty() ? "Adopted" : task.phase}});
      if (task.what == Do::Limit || task.what == Do::Grow) runs_again = true;  // there may be more to change
    }
    const bool used = known.entry && known.entry->attached();
    if (auto told = tell(*object, full(*object, used ? "InUse" : "Available", task.message)); !told) return std::unexpected(std::move(told.error()));
    if (runs_again) return kube::Next{std::chrono::nanoseconds(0)};
    return kube::Next{used ? std::optional<std::chrono::nanoseconds>(kLooks) : std::nullopt};
  }

 private:
  // With what is seen of it.
  Json full(const Json& object, const std::string& phase, const std::string& message) {
    Json out = status_of(object, phase, message);
    out.set("poolID", site_.pool.id());
    const auto entry = site_.pool.entry(kube::name_of(object));
    if (!entry) return out;
    out.set("sizeBytes", entry->size);
    const std::string holders = entry->holders(), device = entry->places.empty() ? "" : entry->places.begin()->second.device;
    for (const auto& [field, value] : {std::pair("node", &holders), {"device", &device}, {"key", &entry->key}})
      if (value->empty()) out.erase(field);
      else out.set(field, *value);
    for (const auto& [field, value] : {std::pair("iops", entry->limits.iops), {"throughputBytes", entry->limits.bytes_per_second}})
      if (value == 0) out.erase(field);
      else out.set(field, value);
    const bool served = entry->managed && entry->attached();
    const auto seen = served ? site_.pool.look(kube::name_of(object)) : site_.pool.look_at_files(kube::name_of(object));
    if (!seen || !seen->volume) {
      out.set("message", seen ? "its file is not there" : seen.error().message);
      return out;
    }
    if (served && message.empty() && (!seen->engine || seen->engine->failed)) out.set("message", fmt::format("its engine {}: who has it mounted gets errors until it is unmounted", seen->engine ? "could not write" : "has ended"));
    // Each look finds another number: what is told moves by a tenth.
    const auto moved = [&](const char* field, std::int64_t now) {
      const std::int64_t before = out[field].integer();
      return !out.has(field) || std::abs(now - before) * 10 > before;
    };
    if (moved("allocatedBytes", seen->volume->allocated)) out.set("allocatedBytes", seen->volume->allocated);
    if (moved("extents", seen->volume->extents)) out.set("extents", seen->volume->extents).set("estimatedStallMilliseconds", stall_milliseconds(seen->volume->extents));
    return out;
  }
};

class SnapshotController final : public Base {
 public:
  explicit SnapshotController(const PoolSite& site) : Base(site, api::kSnapshots) {}
  std::string name() const override { return "snapshot"; }
  std::vector<Source> sources() const override {
    return {{api::kSnapshots, "", own()}, {api::kVolumes, "", [](const kube::Change&) { return std::vector<kube::ObjectKey>(); }}};
  }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override {
    const auto object = cached(api::kSnapshots, key.name);
    if (!object || !is_ours(*object)) return kube::Next{};
    if (auto usable = site_.pool.usable(); !usable) return std::unexpected(std::move(usable.error()));
    const std::string volume = (*object)["spec"]["volume"].string();
    const Known known{.pool_id = site_.pool.id(), .entry = site_.pool.entry(key.name), .source = cached(api::kVolumes, volume), .source_entry = site_.pool.entry(volume)};
    const Task task = decide_snapshot(*object, known);
    const std::string& uid = kube::uid_of(*object);
    Result<void> done;
    std::int64_t took = -1;
    switch (task.what) {
      case Do::AddFinalizer: return finalizer(*object, true);
      case Do::DropFinalizer: return finalizer(*object, false);
      case Do::Adopt: done = site_.pool.give(key.name, uid); break;
      case Do::Make: {
        const auto began = site_.clock.monotonic();
        done = site_.pool.take_snapshot(key.name, volume, uid);
        took = std::chrono::ceil<std::chrono::milliseconds>(site_.clock.monotonic() - began).count();
        break;
      }
      case Do::Remove:
        done = site_.pool.remove(key.name, uid);
        if (done) return finalizer(*object, false);
        break;
      default: break;
    }
    if (!done) return failed(*object, task, std::move(done.error()));
    if (task.what == Do::Nothing && task.phase != "Ready") {
      if (auto told = tell(*object, status_of(*object, task.phase, task.message)); !told) return std::unexpected(std::move(told.error()));
      return kube::Next{task.soon ? std::optional<std::chrono::nanoseconds>(kWaits) : std::nullopt};
    }
    Json status = status_of(*object, "Ready", "");
    status.set("poolID", site_.pool.id());
    if (const auto entry = site_.pool.entry(key.name)) {
      status.set("sizeBytes", entry->size);
      if (!entry->key.empty()) status.set("key", entry->key);
    }
    if (took >= 0) status.set("stallMilliseconds", took);
    if (!status.has("takenAt")) {
      const auto seen = site_.pool.look_at_files(key.name);
      if (!seen) return std::unexpected(seen.error());
      if (seen->snapshot && seen->snapshot->born > 0) status.set("takenAt", print_time(Instant(std::chrono::nanoseconds(seen->snapshot->born))));
    }
    if (task.what != Do::Nothing) log_info("snapshot", {{"name", key.name}, {"of", volume}, {"milliseconds", std::to_string(took)}});
    if (auto told = tell(*object, std::move(status)); !told) return std::unexpected(std::move(told.error()));
    return kube::Next{};
  }
};

// Nodes that reach the pool. An error: the selector is none.
Result<std::vector<std::string>> nodes_of(const kube::Caches& caches, const std::string& pool, const std::string& selector) {
  std::vector<std::string> out;
  const auto parsed = kube::LabelSelector::parse(selector);
  if (!parsed) return fail(Code::Invalid, "spec.nodeSelector: " + parsed.error().message);
  caches.of(resources::nodes).each("", [&](const Json& node) {
    if (selector.empty() ? api::pool_name_for(kube::name_of(node)) == pool : parsed->matches(kube::labels_of(node))) out.push_back(kube::name_of(node));
  });
  std::sort(out.begin(), out.end());
  return out;
}

class AttachmentController final : public Base {
 public:
  explicit AttachmentController(const PoolSite& site) : Base(site, api::kAttachments) {}
  std::string name() const override { return "attachment"; }
  std::vector<Source> sources() const override {
    const auto none = [](const kube::Change&) { return std::vector<kube::ObjectKey>(); };
    const auto of_volume = [this](const kube::Change& change) {
      std::vector<kube::ObjectKey> out;
      const bool phase = !change.before || !change.after || (*change.before)["status"]["phase"] != (*change.after)["status"]["phase"];
      if (!is_ours(change.object()) || !phase || caches_ == nullptr) return out;
      caches_->of(api::kAttachments).each("", [&](const Json& one) {
        if (one["spec"]["volume"].string() == kube::name_of(change.object())) out.push_back(kube::key_of(one));
      });
      return out;
    };
    const auto of_node = [this](const kube::Change& change) {
      std::vector<kube::ObjectKey> out;
      const bool news = !change.before || !change.after || (*change.before)["metadata"]["labels"] != (*change.after)["metadata"]["labels"];
      if (!news || caches_ == nullptr) return out;
      caches_->of(api::kAttachments).each("", [&](const Json& one) {
        if (is_ours(one) && one["spec"]["node"].string() == kube::name_of(change.object())) out.push_back(kube::key_of(one));
      });
      return out;
    };
    std::vector<Source> out{{api::kAttachments, "", own()}, {api::kVolumes, "", of_volume}, {api::kVolumePools, "", none}, {resources::nodes, "", of_node}};
    also_of_hosts(out, [this](const kube::Change& change, const std::set<std::string>& volumes) {
      std::vector<kube::ObjectKey> keys;
      // Which nodes are there may have changed, too.
      const bool all = !change.before || !change.after || (*change.before)["spec"]["nodeSelector"] != (*change.after)["spec"]["nodeSelector"];
      if (caches_ == nullptr || (volumes.empty() && !all)) return keys;
      caches_->of(api::kAttachments).each("", [&](const Json& one) {
        if (is_ours(one) && (all || volumes.contains(one["spec"]["volume"].string()))) keys.push_back(kube::key_of(one));
      });
      return keys;
    });
    return out;
  }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override {
    const auto object = cached(api::kAttachments, key.name);
    if (!object || !is_ours(*object)) return kube::Next{};
    if (auto usable = site_.pool.usable(); !usable) return std::unexpected(std::move(usable.error()));
    const std::string volume = (*object)["spec"]["volume"].string(), node = (*object)["spec"]["node"].string();
    const auto pool = cached(api::kVolumePools, site_.name);
    const auto nodes = nodes_of(*caches_, site_.name, pool ? (*pool)["spec"]["nodeSelector"].string() : site_.node_selector);
    const auto entry = site_.pool.entry(volume);
    const bool has = entry && entry->nodes.contains(node);
    const auto about = cached(resources::nodes, node);
    const auto host = has ? Result<std::string>(entry->host_of(node)) : about ? host_of(node, kube::labels_of(*about), hosts()) : Result<std::string>("");
    Task task = decide_attachment(*object, {.pool_id = site_.pool.id(), .entry = entry, .source = cached(api::kVolumes, volume), .source_entry = entry, .reached = has || (host && !host->empty()) || (nodes && std::binary_search(nodes->begin(), nodes->end(), node))});
    if (task.what == Do::Attach && !host) task = {.what = Do::Nothing, .phase = "Failed", .message = host.error().message, .soon = true};
    switch (task.what) {
      case Do::AddFinalizer: return finalizer(*object, true);
      case Do::DropFinalizer: return finalizer(*object, false);
      case Do::Detach: {
        const bool force = (*object)["metadata"]["annotations"][api::kForceDetach].string() == "true";
        if (const std::string& name = (*object)["spec"]["deviceName"].string(); !name.empty())
          if (auto gone = let_go_of_name(name, volume, node, entry, force); !gone) return failed(*object, task, std::move(gone.error()));
        auto done = site_.pool.detach(volume, node, task.generation, force);
        return done ? finalizer(*object, false) : failed(*object, task, std::move(done.error()));
      }
      case Do::Attach: {
        // Who reads replays no log: before the first of them it is done for all.
        if ((*object)["spec"]["replayLog"].boolean() && (*object)["spec"]["readOnly"].boolean() && site_.settle && ((!entry->attached() && !site_.pool.is_coming(volume)) || entry->nodes.contains(kItself)))
          if (auto settled = site_.pool.settle(volume, site_.settle); !settled) {
            if (settled.error().code != Code::Internal) return failed(*object, task, std::move(settled.error()));
            // Damaged: that does not mend itself, and each look writes to the journal.
            if (auto told = tell(*object, status_of(*object, "Failed", settled.error().message)); !told) return std::unexpected(std::move(told.error()));
            return kube::Next{kLooks};
          }
        auto done = site_.pool.attach(volume, node, (*object)["spec"]["readOnly"].boolean(), *host);
        if (!done) {
          // What a silent machine has is not known: it is as it was told last.
          const bool stays = has && !host->empty() && done.error().code == Code::Unavailable && (*object)["status"]["phase"].string() == "Attached";
          if (stays) task.phase = "Attached";
          return failed(*object, task, std::move(done.error()));
        }
        std::string named;
        if (const std::string& name = (*object)["spec"]["deviceName"].string(); !name.empty())
          if (auto linked = give_name(name, volume, done->device, *host); !linked) named = linked.error().message;
        // By another's name it would be taken for another.
        Json status = status_of(*object, named.empty() ? "Attached" : "Attaching", named);
        status.set("poolID", site_.pool.id()).set("device", done->device).set("generation", done->generation);
        if (host->empty()) status.erase("host");
        else status.set("host", *host);
        if (status != (*object)["status"]) log_info("volume attached", {{"name", volume}, {"node", node}, {"device", done->device}, {"generation", std::to_string(done->generation)}});
        if (auto told = tell(*object, std::move(status)); !told) return std::unexpected(std::move(told.error()));
        // What an engine shows ends with the engine, of which nobody hears.
        return kube::Next{named.empty() && !(entry && entry->managed) ? std::chrono::nanoseconds(kLooks) : std::chrono::nanoseconds(kWaits)};
      }
      default: {
        if (auto told = tell(*object, status_of(*object, task.phase, task.message)); !told) return std::unexpected(std::move(told.error()));
        return kube::Next{task.soon ? std::optional<std::chrono::nanoseconds>(kWaits) : std::nullopt};
      }
    }
  }

 private:
  // By whoever has the device: this machine's own, or the further one, which is asked for it with the volume (HostController).
  Result<void> give_name(const std::string& name, const std::string& volume, const std::string& device, const std::string& host) {
    if (host.empty()) return site_.link ? site_.link(name, volume, device) : Result<void>();
    const auto entry = site_.pool.entry(volume);
    auto has = entry && entry->places.contains(host) ? has_name(site_.hosts->seen(host), shown_there(volume, *entry, host), name, site_.pool.id()) : Result<void>(fail(Code::Conflict, volume + " is not attached any more"));
    if (!has) site_.hosts->ask(host);
    return has;
  }
  // With the last attachment there its names go by themselves, before the device does.
  Result<void> let_go_of_name(const std::string& name, const std::string& volume, const std::string& node, const std::optional<Entry>& entry, bool force) {
    const bool has = entry && entry->nodes.contains(node);
    const std::string host = has ? entry->host_of(node) : "";
    if (has && is_called_so_by_another(name, volume, node, *entry, host)) return {};
    if (host.empty()) {
      // Of one that never had it, or has it no more, there is nothing that a link here could lead to.
      const auto place = entry ? entry->places.find("") : std::map<std::string, Place>::const_iterator();
      return site_.unlink ? site_.unlink(name, volume, entry && place != entry->places.end() ? place->second.device : "") : Result<void>();
    }
    if (force || entry->nodes_on(host).size() < 2) return {};
    auto gone = has_not_name(site_.hosts->seen(host), shown_there(volume, *entry, host), name, site_.pool.id());
    if (!gone) site_.hosts->ask(host);
    return gone;
  }
  // Several nodes of one machine that read a volume may call it the same: the name is theirs as long as one of them stays.
  bool is_called_so_by_another(const std::string& name, const std::string& volume, const std::string& node, const Entry& entry, const std::string& host) const {
    bool out = false;
    caches_->of(api::kAttachments).each("", [&](const Json& one) {
      const Json& spec = one["spec"];
      const std::string& other = spec["node"].string();
      out = out || (spec["volume"].string() == volume && other != node && spec["deviceName"].string() == name && !kube::deleting(one) && entry.nodes.contains(other) && entry.host_of(other) == host);
    });
    return out;
  }
  static Asked shown_there(const std::string& volume, const Entry& entry, const std::string& host) { return {.host = host, .volume = {.id = volume, .generation = entry.places.at(host).shown, .show = true}}; }
};

class PoolController final : public Base {
 public:
  explicit PoolController(const PoolSite& site) : Base(site, api::kVolumePools) {}
  std::string name() const override { return "volume-pool"; }
  std::optional<kube::Access> access() const override { return Base::access()->may({"create"}, api::kVolumePools); }
  std::vector<Source> sources() const override {
    const kube::ObjectKey key{"", site_.name};
    const auto ours = [this, key](const kube::Change& change) { return is_ours(change.object()) ? std::vector{key} : std::vector<kube::ObjectKey>(); };
    const auto node = [key](const kube::Change& change) {
      const bool news = !change.before || !change.after || (*change.before)["metadata"]["labels"] != (*change.after)["metadata"]["labels"];
      return news ? std::vector{key} : std::vector<kube::ObjectKey>();
    };
    std::vector<Source> out{{api::kVolumePools, "", [key](const kube::Change&) { return std::vector{key}; }}, {api::kVolumes, "", ours}, {api::kSnapshots, "", ours}, {resources::nodes, "", node}};
    also_of_hosts(out, [key](const kube::Change& change, const std::set<std::string>&) {
      const bool news = !change.before || !change.after || (*change.before)["spec"]["nodeSelector"] != (*change.after)["spec"]["nodeSelector"] || (*change.before)["status"]["heard"].string().empty();
      return news ? std::vector{key} : std::vector<kube::ObjectKey>();
    });
    return out;
  }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override {
    if (key.name != site_.name) return kube::Next{};
    const auto object = cached(api::kVolumePools, site_.name);
    if (!object) {
      Json spec = Json::object();
      if (!site_.node_selector.empty()) spec.set("nodeSelector", site_.node_selector);
      auto made = site_.api.create(api::kVolumePools, Json::object({{"apiVersion", api::kVolumePools.api_version()}, {"kind", "VolumePool"}, {"metadata", Json::object({{"name", site_.name}})}, {"spec", std::move(spec)}}));
      if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make VolumePool " + site_.name);
      return kube::Next{kRests};
    }
    const auto now = site_.clock.monotonic();
    if (last_ && now - *last_ < kRests) return kube::Next{kRests - (now - *last_)};
    const auto space = site_.pool.space();
    if (!space) return std::unexpected(space.error());
    std::set<std::string> known;
    for (const kube::Resource& resource : {api::kVolumes, api::kSnapshots}) caches_->of(resource).each("", [&](const Json& one) { known.insert(kube::uid_of(one)); });
    std::int64_t volumes = 0, snapshots = 0;
    Json orphans = Json::array();
    for (const auto& [id, entry] : site_.pool.entries()) {
      (entry.snapshot ? snapshots : volumes) += 1;
      if (!known.contains(entry.owner) && orphans.items().size() < 100) orphans.push(id);
    }
    Json classes = Json::array();
    if (site_.pool.is_distributed()) {
      if (site_.pool.has_engines()) classes.push(api::kDistributed);
    } else {
      classes.push(api::kLocalFast);
      if (site_.pool.has_engines()) classes.push(api::kLocalManaged);
    }
    Json status = Json::object({{"id", site_.pool.id()}, {"size", mebibytes(space->size)}, {"free", mebibytes(space->free)}, {"promised", mebibytes(space->promised)}, {"limit", mebibytes(space->limit)}, {"classes", std::move(classes)}, {"volumes", volumes}, {"snapshots", snapshots}});
    // A few at a time, each beat: a new version of a key is nothing that hurries.
    std::string keys;
    if (auto left = site_.pool.rewrap(kRewrapped); !left) keys = left.error().message;
    else if (*left > 0) keys = fmt::format("{} volumes' keys are to be wrapped by a newer version of theirs", *left);
    auto nodes = nodes_of(*caches_, site_.name, (*object)["spec"]["nodeSelector"].string());
    if (nodes && site_.hosts != nullptr) *nodes = with_hosts(std::move(*nodes));
    Json list = Json::array();
    if (nodes)
      for (const std::string& one : *nodes) list.push(one);
    status.set("nodes", std::move(list));
    const std::string& told = (*object)["status"]["id"].string();
    // Another daemon serves a pool of this name: two that write one status would go on for ever.
    if (const auto facts = api::read_pool(*object); !told.empty() && told != site_.pool.id() && facts.heard && site_.clock.now() - *facts.heard < api::kPoolSilence) return kube::Next{kBeats};
    if (!nodes) status.set("message", nodes.error().message);
    else if (!told.empty() && told != site_.pool.id()) status.set("message", fmt::format("the pool of this name was {} before", told));
    else if (!keys.empty()) status.set("message", keys);
    if (!orphans.items().empty()) status.set("orphans", std::move(orphans));
    // What is free moves all the time.
    Json before = (*object)["status"];
    const auto heard = parse_time(before["heard"].string());
    const bool fresh = heard && site_.clock.now() - *heard < kBeats && site_.clock.now() >= *heard;
    Json compared = status;
    before.erase("heard"), before.erase("free"), compared.erase("free");
    if (!fresh || before != compared) {
      status.set("heard", print_time(site_.clock.now()));
      if (auto done = tell(*object, std::move(status)); !done) return std::unexpected(std::move(done.error()));
      last_ = now;
    }
    return kube::Next{kBeats};
  }

 private:
  // Those of further machines that live, too; and no others of theirs.
  std::vector<std::string> with_hosts(std::vector<std::string> own) {
    std::set<std::string> out(own.begin(), own.end());
    const auto all = hosts();
    caches_->of(resources::nodes).each("", [&](const Json& node) {
      const std::string& name = kube::name_of(node);
      const auto host = host_of(name, kube::labels_of(node), all);
      if (host && host->empty()) return;
      const auto seen = host ? site_.hosts->seen(*host) : std::nullopt;
      if (seen && !seen->silent) out.insert(name);
      else out.erase(name);
    });
    return {out.begin(), out.end()};
  }
  static std::string mebibytes(std::int64_t bytes) { return fmt::format("{}Mi", bytes >> 20); }
  std::optional<std::chrono::nanoseconds> last_;  // when it was written; one key, one thread
};

// What is asked of one further machine: written anew whenever it is not what the ledger says.
class HostController final : public Base {
 public:
  explicit HostController(const PoolSite& site) : Base(site, api::kVolumeHosts) {}
  std::string name() const override { return "volume-host"; }
  std::optional<kube::Access> access() const override { return kube::Access().may({"update"}, resource_); }
  std::vector<Source> sources() const override {
    std::vector<Source> out;
    also_of_hosts(out, [](const kube::Change& change, const std::set<std::string>&) { return std::vector{kube::key_of(change.object())}; });
    // Names: their controller says when (Hosts::ask).
    out.push_back({api::kAttachments, "", [](const kube::Change&) { return std::vector<kube::ObjectKey>(); }});
    return out;
  }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override {
    const auto object = cached(api::kVolumeHosts, key.name);
    if (!object) {
      if (key.name.starts_with(site_.name + ".")) site_.hosts->forget(key.name.substr(site_.name.size() + 1));
      return kube::Next{};
    }
    if (!is_ours(*object)) return kube::Next{};
    if (auto usable = site_.pool.usable(); !usable) return std::unexpected(std::move(usable.error()));
    const api::VolumeHostFacts facts = api::read_volume_host(*object);
    site_.hosts->told(facts);
    std::vector<api::AskedVolume> shown;
    for (Asked& one : site_.pool.asked_of(facts.host)) {
      if (one.volume.show) one.volume.names = names_of(one);
      shown.push_back(std::move(one.volume));
    }
    const auto wanted = all_asked(std::move(shown), facts, site_.pool.id());
    if (wanted == facts.asked && facts.pool_id == site_.pool.id()) return kube::Next{};
    Json list = Json::array(), next = *object;
    for (const api::AskedVolume& one : wanted) list.push(api::to_json(one));
    next.child("spec").set("poolID", site_.pool.id()).set("volumes", std::move(list));
    auto done = site_.api.update(resource_, next);
    if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "ask the machine " + facts.host);
    return kube::Next{};
  }

 private:
  // Those of attachments that are to stay.
  std::vector<std::string> names_of(const Asked& asked) const {
    std::set<std::string> out;
    for (const std::string& node : asked.nodes) {
      const auto attachment = cached(api::kAttachments, api::attachment_name(asked.volume.id, node));
      if (!attachment || !is_ours(*attachment) || kube::deleting(*attachment)) continue;
      if (const std::string& name = (*attachment)["spec"]["deviceName"].string(); api::is_device_name(name)) out.insert(name);
    }
    return {out.begin(), out.end()};
  }
};

}  // namespace

std::vector<std::unique_ptr<kube::Controller>> pool_controllers(const PoolSite& site) {
  std::vector<std::unique_ptr<kube::Controller>> out;
  out.push_back(std::make_unique<VolumeController>(site));
  out.push_back(std::make_unique<SnapshotController>(site));
  out.push_back(std::make_unique<AttachmentController>(site));
  out.push_back(std::make_unique<PoolController>(site));
  if (site.hosts != nullptr) out.push_back(std::make_unique<HostController>(site));
  return out;
}

kube::Access pool_access() {
  kube::Access out = api::pool_access();
  // Of encrypted volumes (keyring.h).
  return out.add(api::pool_keys_access()).may({"create"}, resources::namespaces);
}

}  // namespace fairlead::volumes
