// SPDX-License-Identifier: Apache-2.0
#include "volumes/control/host_controllers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/volume_host.h"
#include "api/volume_key.h"
#include "base/log.h"
#include "volumes/keyring.h"
#include "volumes/rbd_machine.h"

namespace fairlead::volumes {

using kube::Json;
using namespace std::chrono_literals;

namespace {

constexpr auto kBeats = 10s;    // that it lives
constexpr auto kLooks = 5s;     // at what is as it was asked: an engine ends without a word
constexpr auto kWaits = 1s;     // between tries of what is not
constexpr auto kFirst = 10s;    // in which a process that has just begun looks at all before it tells

std::string key_of(const std::string& id, std::int64_t generation) { return fmt::format("{}.{}", id, generation); }

// What both know. Thread-safe.
struct Board {
  explicit Board(const HostSite& it) : site(it) {}
  const HostSite site;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Machine>> machines;             // by the pool's id; they stay
  std::map<std::pair<std::string, std::string>, api::ToldVolume> told;  // by the pool's id and key_of
  Machine& machine(const std::string& pool_id) {
    const std::lock_guard lock(mutex);
    auto& out = machines[pool_id];
    if (!out) out = site.machine(pool_id);
    return *out;
  }
  std::string name() const { return api::volume_host_name(site.pool, site.host); }
};

class Common : public kube::Controller {
 public:
  explicit Common(std::shared_ptr<Board> board) : board_(std::move(board)) {}
  void start(const kube::Caches& caches) override { caches_ = &caches; }

 protected:
  std::optional<Json> own() const { return caches_->of(api::kVolumeHosts).get({"", board_->name()}); }
  const std::shared_ptr<Board> board_;
  const kube::Caches* caches_ = nullptr;
};

class ShowController final : public Common {
 public:
  using Common::Common;
  std::string name() const override { return "shown-volume"; }
  std::optional<kube::Access> access() const override { return kube::Access(); }
  std::vector<Source> sources() const override {
    return {{api::kVolumeHosts, "", [this](const kube::Change& change) {
               std::vector<kube::ObjectKey> out;
               if (kube::name_of(change.object()) != board_->name()) return out;
               std::set<std::string> keys;
               for (const auto* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr})
                 if (object != nullptr)
                   for (const Json& one : (*object)["spec"]["volumes"].items()) keys.insert(key_of(one["id"].string(), one["generation"].integer()));
               // What this machine writes itself is no news.
               if (change.before && change.after && (*change.before)["spec"] == (*change.after)["spec"]) return out;
               for (const std::string& key : keys) out.push_back({"", key});
               return out;
             }}};
  }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override {
    const auto object = own();
    if (!object) return kube::Next{};
    const api::VolumeHostFacts facts = api::read_volume_host(*object);
    const auto asked = std::find_if(facts.asked.begin(), facts.asked.end(), [&](const api::AskedVolume& one) { return key_of(one.id, one.generation) == key.name; });
    const std::pair where(facts.pool_id, key.name);
    // Not asked for any more: what there is stays, and is told as such. Names that nothing of it stands behind go: another volume may be called so next.
    if (facts.pool_id.empty() || asked == facts.asked.end()) {
      {
        const std::lock_guard lock(board_->mutex);
        board_->told.erase(where);
      }
      const auto gone = read_showing(key.name);
      if (facts.pool_id.empty() || !gone || std::any_of(facts.asked.begin(), facts.asked.end(), [&](const api::AskedVolume& one) { return one.id == gone->id; })) return kube::Next{};
      Machine& machine = board_->machine(facts.pool_id);
      const auto seen = machine.look(*gone);
      if (!seen) return kube::Next{kLooks};
      if (!seen->devices.empty() || seen->engine) return kube::Next{};
      if (auto done = machine.unlink_all(*gone); !done) return std::unexpected(std::move(done.error()));
      return kube::Next{};
    }
    api::ToldVolume now = carry_out(board_->machine(facts.pool_id), *asked);
    const bool good = now.heard && now.message.empty();
    bool news = false;
    {
      const std::lock_guard lock(board_->mutex);
      api::ToldVolume& before = board_->told[where];
      // Counts and who uses it go with the next beat.
      api::ToldVolume compared = now;
      compared.reads = before.reads, compared.writes = before.writes, compared.read_bytes = before.read_bytes, compared.written_bytes = before.written_bytes, compared.waited_ns = before.waited_ns;
      news = compared != before;
      if (news && !now.message.empty() && now.message != before.message) log_warn("a volume is not as it was asked", {{"volume", now.id}, {"generation", std::to_string(now.generation)}, {"why", now.message}});
      else if (news && good) log_info(asked->show ? "volume shown" : "volume taken away", {{"volume", now.id}, {"generation", std::to_string(now.generation)}, {"device", now.device}});
      before = std::move(now);
    }
    if (news && board_->site.report) board_->site.report();
    return kube::Next{good ? std::chrono::nanoseconds(kLooks) : std::chrono::nanoseconds(kWaits)};
  }
};

class ReportController final : public Common {
 public:
  explicit ReportController(std::shared_ptr<Board> board) : Common(std::move(board)), began_(board_->site.clock.monotonic()) {}
  std::string name() const override { return "volume-report"; }
  std::optional<kube::Access> access() const override { return kube::Access().may({"create"}, api::kVolumeHosts).may({"update"}, api::kVolumeHosts, "status"); }
  std::vector<Source> sources() const override {
    return {{api::kVolumeHosts, "", [this](const kube::Change& change) { return kube::name_of(change.object()) == board_->name() ? std::vector{kube::key_of(change.object())} : std::vector<kube::ObjectKey>(); }}};
  }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override {
    const HostSite& site = board_->site;
    if (key.name != board_->name()) return kube::Next{};
    const auto object = own();
    if (!object) {
      auto made = site.api.create(api::kVolumeHosts, api::new_volume_host(site.pool, site.host, site.node_selector));
      if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make VolumeHost " + key.name);
      return kube::Next{kWaits};
    }
    const api::VolumeHostFacts facts = api::read_volume_host(*object);
    // Two that write one status would go on for ever.
    const auto heard = parse_time(facts.heard);
    if (!facts.id.empty() && facts.id != site.id && heard && site.clock.now() - *heard < 2 * api::kHostSilence) {
      log_warn("another machine serves under this name", {{"name", key.name}, {"its_id", facts.id}});
      return kube::Next{kBeats};
    }
    std::vector<api::ToldVolume> all;
    std::set<std::string> asked;
    bool whole = true;
    for (const api::AskedVolume& one : facts.asked) {
      asked.insert(key_of(one.id, one.generation));
      const std::lock_guard lock(board_->mutex);
      const auto found = board_->told.find({facts.pool_id, key_of(one.id, one.generation)});
      if (found != board_->told.end()) all.push_back(found->second);
      else whole = false;
    }
    // One that has just begun does not know yet what it has: what it told before holds till then.
    if (!whole && site.clock.monotonic() - began_ < kFirst) return kube::Next{std::chrono::nanoseconds(100ms)};
    Json status = Json::object({{"id", site.id}});
    if (!facts.pool_id.empty()) {
      status.set("poolID", facts.pool_id);
      Machine& machine = board_->machine(facts.pool_id);
      if (const auto there = machine.there()) {
        for (const Showing& one : *there)
          if (!asked.contains(key_of(one.id, one.generation)))
            if (auto told = tell_of(machine, one); told.there()) all.push_back(std::move(told));
      } else {
        status.set("message", there.error().message);
      }
      // What was told to be there, or was not known, is told until it is gone: names may be all that is left of it, and the process that knew of them may have died.
      if (facts.told_pool_id == facts.pool_id)
        for (const api::ToldVolume& before : facts.told) {
          const auto same = [&](const auto& one) { return one.id == before.id; };
          if ((!before.there() && before.message.empty()) || std::any_of(facts.asked.begin(), facts.asked.end(), same) || std::any_of(all.begin(), all.end(), same)) continue;
          api::ToldVolume told = tell_of(machine, {before.id, before.generation});
          if (told.there()) all.push_back(std::move(told));
          else if (!told.message.empty()) all.push_back(before);  // it is not known
        }
      Json list = Json::array();
      for (const api::ToldVolume& one : all) list.push(api::to_json(one));
      status.set("volumes", std::move(list));
    }
    const auto plain = [](Json one) {
      Json list = Json::array();
      for (Json volume : one["volumes"].items()) volume.erase("counts"), list.push(std::move(volume));
      one.set("volumes", std::move(list));
      one.erase("heard");
      return one;
    };
    const auto since = last_ ? site.clock.monotonic() - *last_ : kBeats;
    if (since < kBeats && plain(status) == plain((*object)["status"])) return kube::Next{kBeats - since};
    status.set("heard", print_time(site.clock.now()));
    Json next = *object;
    next.set("status", std::move(status));
    auto done = site.api.update_status(api::kVolumeHosts, next);
    if (!done) return pass(std::move(done.error()), "tell of this machine");
    last_ = site.clock.monotonic();
    return kube::Next{kBeats};
  }

 private:
  const std::chrono::nanoseconds began_;
  std::optional<std::chrono::nanoseconds> last_;  // when it was told; one key, one thread
};

}  // namespace

std::vector<std::unique_ptr<kube::Controller>> host_controllers(const HostSite& site) {
  const auto board = std::make_shared<Board>(site);
  std::vector<std::unique_ptr<kube::Controller>> out;
  out.push_back(std::make_unique<ShowController>(board));
  out.push_back(std::make_unique<ReportController>(board));
  return out;
}

kube::Access host_access() {
  kube::Access out;
  out.may({"get", "list", "watch", "create"}, api::kVolumeHosts).may({"update"}, api::kVolumeHosts, "status");
  // Of encrypted volumes, as the pool's daemon (keyring.h), which makes them.
  out.may({"get"}, kube::resources::secrets, "", kKeySpace).may({"get"}, api::kVolumeKeys).may({"list"}, api::kAttachments);
  return out;
}

}  // namespace fairlead::volumes
