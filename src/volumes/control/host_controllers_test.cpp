// SPDX-License-Identifier: Apache-2.0
// A pool and two further machines in memory: what is asked comes about there whoever dies when, and whatever old answers of the API are read.
#include "volumes/control/host_controllers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "base/rng.h"
#include "kube/tiny_api.h"
#include "volumes/control/mortal_api.h"
#include "volumes/control/pool_controllers.h"
#include "volumes/fake_machine.h"
#include "volumes/memory_journal.h"

namespace fairlead::volumes {
namespace {

using api::kAttachments;
using api::kSnapshots;
using api::kVolumeHosts;
using api::kVolumes;
using kube::Json;
using testing::HasSubstr;
namespace resources = kube::resources;

constexpr std::int64_t gib = std::int64_t{1} << 30;

// What a process has read of the API, which may be of an earlier moment.
class OldCaches final : public kube::Caches {
 public:
  std::map<std::string, std::map<kube::ObjectKey, Json>> objects;
  const kube::Reader& of(const kube::Resource& resource) const override {
    auto& view = views_[resource.plural];
    view.objects = const_cast<std::map<kube::ObjectKey, Json>*>(&const_cast<OldCaches*>(this)->objects[resource.plural]);
    return view;
  }

 private:
  mutable std::map<std::string, kube::TinyApi::View> views_;
};

struct World {
  kube::TinyApi api;
  ManualClock clock{*parse_time("2026-11-27T12:00:00Z")};
  FakePool files;
  FakeMachine::World ceph{files};
  MemoryDisk disk;
  Rng rng;
  MortalApi mortal{api};             // the daemon's
  std::unique_ptr<HostBoard> board;
  std::unique_ptr<VolumePool> pool;
  std::vector<std::unique_ptr<kube::Controller>> daemon;
  struct Host {
    std::string name;
    FakeMachine machine;
    MortalApi mortal;
    OldCaches caches;
    std::vector<std::unique_ptr<kube::Controller>> process;
    bool silent = false, old = false;
    std::deque<std::map<kube::ObjectKey, Json>> seen{};  // of VolumeHosts, the newest last
  };
  std::vector<std::unique_ptr<Host>> hosts;

  explicit World(std::uint64_t seed = 1) : rng(seed) {
    files.distributed = true;
    files.size = 100 * gib;
    for (const auto& [name, machine] : {std::pair("here", "one"), {"a", "two"}, {"a2", "two"}, {"b", "three"}})
      EXPECT_TRUE(api.create(resources::nodes, Json::object({{"metadata", Json::object({{"name", name}, {"labels", Json::object({{"machine", machine}})}})}})));
    for (const char* name : {"m2", "m3"}) hosts.push_back(std::unique_ptr<Host>(new Host{.name = name, .machine = FakeMachine(ceph, std::string("id-") + name), .mortal = MortalApi(api), .caches = {}, .process = {}}));
    ceph.machines = {&hosts[0]->machine, &hosts[1]->machine};
    for (auto& one : hosts) restart(*one);
    restart();
  }
  void restart() {
    daemon.clear();
    pool.reset();
    disk.crash(rng);
    mortal.died = false;
    board = std::make_unique<HostBoard>(clock);
    auto opened = VolumePool::open(files, std::make_unique<MemoryJournal>(disk), board.get());
    ASSERT_TRUE(opened) << opened.error().message;
    pool = std::move(*opened);
    daemon = pool_controllers({.api = mortal, .clock = clock, .pool = *pool, .name = "shared", .node_selector = "machine=one", .link = {}, .unlink = {}, .hosts = board.get(), .settle = {}});
    for (auto& one : daemon) one->start(api);
  }
  void restart(Host& host) {
    host.mortal.died = false;
    host.process = host_controllers({.api = host.mortal, .clock = clock, .pool = "shared", .host = host.name, .id = "id-" + host.name, .node_selector = host.name == "m2" ? "machine=two" : "machine=three", .machine = [&host](const std::string&) { return std::make_unique<Borrowed>(host.machine); }, .report = {}});
    for (auto& one : host.process) one->start(host.caches);
  }
  // The machine outlives its process.
  class Borrowed final : public Machine {
   public:
    explicit Borrowed(FakeMachine& of) : of_(of) {}
    Result<std::vector<Showing>> there() override { return of_.there(); }
    Result<Sight> look(const Showing& one) override { return of_.look(one); }
    std::optional<bool> is_used(const std::string& device) override { return of_.is_used(device); }
    Result<void> start_engine(const api::AskedVolume& asked) override { return of_.start_engine(asked); }
    Result<void> stop_engine(const Showing& one) override { return of_.stop_engine(one); }
    Result<void> grow_engine(const Showing& one) override { return of_.grow_engine(one); }
    Result<void> limit(const Showing& one, const blocks::DiskLimits& limits) override { return of_.limit(one, limits); }
    Result<void> attach(const Showing& one, bool read_only) override { return of_.attach(one, read_only); }
    Result<void> grow_device(const Showing& one, const std::string& device) override { return of_.grow_device(one, device); }
    Result<void> detach(const Showing& one, const std::string& device) override { return of_.detach(one, device); }

   private:
    FakeMachine& of_;
  };
  void round() {
    for (std::size_t i = 0; i < daemon.size(); ++i) {
      const char* plurals[] = {"volumes", "snapshots", "attachments", "", "volumehosts"};
      const std::size_t which = (i + 4) % 5;  // what machines tell is heard first
      if (which == 3) {
        (void)daemon[which]->reconcile({"", "shared"});
        continue;
      }
      std::vector<kube::ObjectKey> keys;
      for (const auto& [key, object] : api.all(plurals[which])) keys.push_back(key);
      for (const auto& key : keys) (void)daemon[which]->reconcile(key);
    }
    for (const auto& [key, object] : std::map(api.all("volumehosts"))) (void)daemon[4]->reconcile(key);
    for (auto& host : hosts) {
      if (host->silent) continue;
      host->seen.push_back(api.all("volumehosts"));
      if (host->seen.size() > 6) host->seen.pop_front();
      host->caches.objects["volumehosts"] = host->old ? host->seen[rng.below(host->seen.size())] : host->seen.back();
      const std::string name = "shared." + host->name;
      if (const auto own = host->caches.objects["volumehosts"].find({"", name}); own != host->caches.objects["volumehosts"].end())
        for (const auto& one : api::read_volume_host(own->second).asked) (void)host->process[0]->reconcile({"", one.id + "." + std::to_string(one.generation)});
      (void)host->process[1]->reconcile({"", name});
    }
    clock.advance(std::chrono::seconds(2));
  }
  void settle(int rounds = 14) {
    for (int i = 0; i < rounds; ++i) round();
  }
  void volume(const char* name) {
    ASSERT_TRUE(api.create(kVolumes, api::new_volume(name, {.pool = "shared", .klass = api::kDistributed, .size = gib, .from_volume = {}, .from_snapshot = {}})));
  }
  void attach(const std::string& name, const std::string& node, bool read_only = false) { (void)api.create(kAttachments, api::new_attachment(name, "shared", node, read_only)); }
  void detach(const std::string& name, const std::string& node, bool force = false) {
    const auto now = api.get(kAttachments, {"", name + "." + node});
    if (!now) return;
    if (force) {
      Json object = *now;
      object.child("metadata").child("annotations").set(api::kForceDetach, "true");
      EXPECT_TRUE(api.update(kAttachments, object));
    }
    (void)api.remove(kAttachments, {"", name + "." + node});
  }
  Json of(const char* plural, const std::string& name) {
    const auto found = api.all(plural).find({"", name});
    return found == api.all(plural).end() ? Json() : found->second;
  }
  std::string phase(const std::string& attachment) { return of("attachments", attachment)["status"]["phase"].string(); }
  std::string message(const std::string& attachment) { return of("attachments", attachment)["status"]["message"].string(); }
  void use(FakeMachine& machine, bool used) {
    for (auto& [name, shown] : machine.devices) shown.second.used = used;
  }
};

TEST(Hosts, AVolumeComesGrowsAndGoesOnAFurtherMachine) {
  World w;
  w.volume("v");
  w.attach("v", "a");
  w.settle();
  ASSERT_EQ(w.phase("v.a"), "Attached") << w.message("v.a");
  EXPECT_EQ(w.of("attachments", "v.a")["status"]["host"].string(), "m2");
  EXPECT_EQ(w.hosts[0]->machine.devices.size(), 1u);
  EXPECT_THAT(w.files.engines, testing::IsEmpty()) << "and none here";
  EXPECT_THAT(api::read_pool(w.of("volumepools", "shared")).nodes, testing::ElementsAre("a", "a2", "b", "here"));
  w.attach("v", "here");
  w.settle(3);
  EXPECT_THAT(w.message("v.here"), HasSubstr("is attached to a"));
  w.detach("v", "here");
  // Larger, and with limits, while it is used.
  w.use(w.hosts[0]->machine, true);
  Json object = w.of("volumes", "v");
  object.child("spec").set("size", "2Gi").set("iops", 500);
  ASSERT_TRUE(w.api.update(kVolumes, object));
  w.settle();
  EXPECT_EQ(w.hosts[0]->machine.devices.begin()->second.second.size, 2 * gib);
  EXPECT_EQ(w.hosts[0]->machine.engines.begin()->second.limits.iops, 500);
  EXPECT_EQ(w.of("volumes", "v")["status"]["sizeBytes"].integer(), 2 * gib);
  // What is used stays, and a second attachment waits for it.
  w.detach("v", "a");
  w.settle();
  EXPECT_THAT(w.message("v.a"), HasSubstr("mounted, or open"));
  EXPECT_EQ(w.hosts[0]->machine.devices.size(), 1u);
  w.use(w.hosts[0]->machine, false);
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
  EXPECT_THAT(w.hosts[0]->machine.engines, testing::IsEmpty());
  EXPECT_THAT(api::read_volume_host(w.of("volumehosts", "shared.m2")).asked, testing::IsEmpty());
  EXPECT_THAT(w.files.allowed, testing::IsEmpty());
  w.attach("v", "b");
  w.settle();
  EXPECT_EQ(w.phase("v.b"), "Attached");
  EXPECT_EQ(w.hosts[1]->machine.engines.begin()->first.generation, 2);
}

TEST(Hosts, ThoseThatReadItAreOnOneMachine) {
  World w;
  w.volume("v");
  w.attach("v", "a", true);
  w.settle();
  w.attach("v", "a2", true);
  w.attach("v", "b", true);
  w.settle();
  EXPECT_EQ(w.phase("v.a2"), "Attached");
  EXPECT_THAT(w.message("v.b"), HasSubstr("on one machine"));
  w.detach("v", "a");
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
  EXPECT_EQ(w.hosts[0]->machine.devices.size(), 1u) << "the other has it still";
  w.restart(*w.hosts[0]);
  w.restart();
  w.settle();
  EXPECT_EQ(w.phase("v.a2"), "Attached");
  w.detach("v", "a2");
  w.detach("v", "b");
  w.settle();
  EXPECT_THAT(w.hosts[0]->machine.devices, testing::IsEmpty());
}

TEST(Hosts, ASilentMachineIsWaitedForAndByForceItIsShutOut) {
  World w;
  w.volume("v");
  w.attach("v", "a");
  w.settle();
  w.use(w.hosts[0]->machine, true);
  w.hosts[0]->silent = true;
  w.settle(20);
  EXPECT_EQ(w.phase("v.a"), "Attached") << "as it was told last";
  EXPECT_THAT(w.message("v.a"), HasSubstr("m2 is silent since 2026-11-27T12:"));
  EXPECT_THAT(api::read_pool(w.of("volumepools", "shared")).nodes, testing::ElementsAre("b", "here"));
  w.volume("w");
  w.attach("w", "a");
  ASSERT_TRUE(w.api.create(kSnapshots, api::new_snapshot("s", "v", "shared")));
  w.detach("v", "a");
  w.settle(20);
  EXPECT_THAT(w.message("w.a"), HasSubstr("m2 is silent since"));
  EXPECT_THAT(w.of("snapshots", "s")["status"]["message"].string(), HasSubstr("m2 is silent since"));
  EXPECT_THAT(w.message("v.a"), HasSubstr("m2 is silent since"));
  EXPECT_TRUE(w.hosts[0]->machine.serves("v")) << "nothing is done to it";
  w.detach("v", "a", true);
  w.settle(3);
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
  EXPECT_FALSE(w.hosts[0]->machine.serves("v"));
  w.attach("v", "b");
  w.settle();
  EXPECT_EQ(w.phase("v.b"), "Attached");
  // It comes back: what is left is taken away once nobody uses it.
  w.hosts[0]->silent = false;
  w.settle();
  const auto of_v = [&] { return std::count_if(w.hosts[0]->machine.devices.begin(), w.hosts[0]->machine.devices.end(), [](const auto& one) { return one.second.first.id == "v"; }); };
  EXPECT_EQ(of_v(), 1);
  w.use(w.hosts[0]->machine, false);
  w.settle();
  EXPECT_EQ(of_v(), 0);
  EXPECT_EQ(w.phase("w.a"), "Attached") << "what waited for it has come about";
  EXPECT_EQ(w.phase("v.b"), "Attached");
  EXPECT_THAT(w.ceph.wrong, testing::IsEmpty());
}

TEST(Hosts, AnEngineThatEndsIsStartedAnewAndAHangingOneIsUnknown) {
  World w;
  w.volume("v");
  w.attach("v", "a");
  w.settle();
  w.use(w.hosts[0]->machine, true);
  w.hosts[0]->machine.engines.clear();
  w.settle();
  EXPECT_THAT(w.message("v.a"), HasSubstr("has ended"));
  w.use(w.hosts[0]->machine, false);
  w.settle();
  EXPECT_EQ(w.phase("v.a"), "Attached");
  EXPECT_TRUE(w.hosts[0]->machine.serves("v"));
  EXPECT_TRUE(w.hosts[0]->machine.devices.contains(w.of("attachments", "v.a")["status"]["device"].string())) << "by another device than before, and that is told";
  w.hosts[0]->machine.hangs = true;
  w.detach("v", "a");
  w.settle();
  EXPECT_FALSE(w.of("attachments", "v.a").is_null());
  w.hosts[0]->machine.hangs = false;
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
}

TEST(Hosts, AnAttachmentOnItsWayIsGivenUp) {
  World w;
  w.volume("v");
  w.settle(3);
  // Somebody else has the image: it cannot be started there.
  w.files.engines["v"] = {};
  w.attach("v", "a");
  w.settle();
  EXPECT_THAT(w.message("v.a"), HasSubstr("another serves it"));
  w.detach("v", "a");
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
  w.files.engines.clear();
  w.attach("v", "b");
  w.settle();
  EXPECT_EQ(w.phase("v.b"), "Attached");
  EXPECT_EQ(w.hosts[1]->machine.engines.begin()->first.generation, 2) << "the first one is used up";
}

// Each step and each write once where somebody dies, daemon or machine's process.
TEST(Hosts, WhoeverDiesAtWhicheverStepItComesAbout) {
  int at = 0, most = 0;
  bool tried = true;
  for (at = 0; tried && at < 400 && !testing::Test::HasFailure(); ++at) {
    SCOPED_TRACE(at);
    World w;
    w.volume("v");
    w.settle(4);
    int count = 0;
    tried = false;
    const auto dies = [&](bool) { return count++ == at && (tried = true); };
    const auto fate = [&] { return count++ == at ? (tried = true, 1 + at % 2) : 0; };
    w.files.dies = dies, w.disk.dies = dies, w.mortal.fate = fate;
    for (auto& host : w.hosts) host->machine.dies = dies, host->mortal.fate = fate;
    const auto run = [&](int rounds) {
      for (int i = 0; i < rounds; ++i) {
        w.round();
        if (!w.pool->usable() || w.mortal.died || (tried && i % 3 == 0)) w.restart();
        for (auto& one : w.hosts)
          if (one->mortal.died || (tried && i % 4 == 0)) w.restart(*one);
      }
    };
    w.attach("v", "a");
    run(8);
    Json object = w.of("volumes", "v");
    object.child("spec").set("size", "2Gi").set("iops", 500);
    ASSERT_TRUE(w.api.update(kVolumes, object));
    run(8);
    w.detach("v", "a");
    run(8);
    w.attach("v", "b");
    run(8);
    count = 1 << 20;
    w.restart();
    w.settle();
    ASSERT_EQ(w.phase("v.b"), "Attached") << w.message("v.b");
    ASSERT_THAT(w.hosts[0]->machine.engines, testing::IsEmpty());
    ASSERT_EQ(w.hosts[1]->machine.devices.size(), 1u);
    ASSERT_EQ(w.hosts[1]->machine.devices.begin()->second.second.size, 2 * gib);
    ASSERT_EQ(w.hosts[1]->machine.engines.begin()->second.limits.iops, 500);
    ASSERT_EQ(w.pool->under_way(), 0u);
    most = at;
  }
  EXPECT_GT(most, 40) << "or this has tried nothing";
  EXPECT_LT(at, 400) << "it has not come to the end";
}

void live(std::uint64_t seed, int& deaths, int& forced) {
  SCOPED_TRACE(seed);
  World w(seed);
  Rng& rng = w.rng;
  for (const char* name : {"u", "v"}) w.volume(name);
  const char* nodes[] = {"here", "a", "a2", "b"};
  std::set<std::string> by_force;  // volumes
  bool mortal = true;
  const auto dies = [&](bool) { return mortal && rng.below(12) == 0; };
  w.files.dies = dies;
  for (auto& host : w.hosts) {
    host->machine.dies = dies;
    // Whatever old answers are read: once an attachment is over, no engine begins for it.
    host->machine.on_start = [&w, name = host->name](const Showing& one) {
      const auto asked = w.pool->asked_of(name);
      if (std::none_of(asked.begin(), asked.end(), [&](const auto& is) { return is.id == one.id && is.generation == one.generation; })) w.ceph.wrong.push_back("an engine of " + one.id + " begins for an attachment that is over");
    };
  }
  w.disk.dies = [&](bool) { return mortal && rng.below(60) == 0; };
  const auto fate = [&] { return mortal && rng.below(25) == 0 ? 1 + static_cast<int>(rng.below(2)) : 0; };
  w.mortal.fate = fate;
  for (auto& host : w.hosts) host->mortal.fate = fate;
  const auto check = [&] {
    ASSERT_THAT(w.ceph.wrong, testing::IsEmpty());
    for (const char* name : {"u", "v"}) {
      int served = w.files.engines.contains(name) ? 1 : 0;
      for (auto& host : w.hosts) served += host->machine.serves(name) ? 1 : 0;
      ASSERT_LE(served, 1) << name << " is served twice";
    }
    // What somebody uses is shut out by a person's word alone.
    for (auto& host : w.hosts)
      for (const Showing& one : host->machine.out) ASSERT_TRUE(by_force.contains(one.id)) << one.id;
  };
  for (int step = 0; step < 150; ++step) {
    mortal = rng.below(3) != 0;
    const std::string name = rng.below(2) == 0 ? "u" : "v", node = nodes[rng.below(4)];
    auto& host = *w.hosts[rng.below(2)];
    switch (rng.below(14)) {
      case 0: case 1: case 2: w.attach(name, node, rng.below(4) == 0); break;
      case 3: case 4: w.detach(name, node); break;
      case 5:
        if (rng.below(3) == 0) by_force.insert(name), w.detach(name, node, true), ++forced;
        break;
      case 6: w.use(host.machine, rng.below(2) == 0); break;
      case 7: host.silent = !host.silent; break;
      case 8: host.old = rng.below(2) == 0; break;
      case 9: w.restart(host), ++deaths; break;
      case 10: w.restart(), ++deaths; break;
      case 11:
        if (rng.below(3) == 0) host.machine.reboot(), w.restart(host);
        else if (!host.machine.engines.empty()) host.machine.engines.erase(host.machine.engines.begin());
        break;
      case 12: host.machine.hangs = rng.below(3) == 0; break;
      default:
        if (Json object = w.of("volumes", name); rng.below(2) == 0) {
          object.child("spec").set("iops", 100 + static_cast<std::int64_t>(rng.below(3)) * 100);
          (void)w.api.update(kVolumes, object);
        }
    }
    w.round();
    if (!w.pool->usable() || w.mortal.died) mortal = false, w.restart(), ++deaths;
    for (auto& one : w.hosts)
      if (one->mortal.died) w.restart(*one), ++deaths;
    check();
    if (testing::Test::HasFatalFailure()) return;
  }
  // Without deaths, and with all that live: what is asked for is there, and nothing else.
  mortal = false;
  w.restart();
  for (auto& host : w.hosts) {
    host->silent = host->old = host->machine.hangs = false;
    w.use(host->machine, false);
    w.restart(*host);
  }
  for (auto& [device, shown] : w.files.devices) shown.second.used = false;
  for (const auto& [key, object] : std::map(w.api.all("attachments")))
    if (!kube::deleting(object) && object["status"]["phase"].string() != "Attached") (void)w.api.remove(kAttachments, key);
  w.settle(60);
  check();
  std::size_t shown = 0;
  std::set<std::string> volumes;
  for (const auto& [key, object] : w.api.all("attachments")) {
    ASSERT_EQ(object["status"]["phase"].string(), "Attached") << key.name << ": " << object["status"]["message"].string();
    volumes.insert(object["spec"]["volume"].string());
    const std::string &host = object["status"]["host"].string(), &device = object["status"]["device"].string();
    ASSERT_TRUE(host.empty() ? w.files.devices.contains(device) : w.hosts[host == "m2" ? 0 : 1]->machine.devices.contains(device)) << key.name << " is not " << device;
  }
  for (auto& host : w.hosts) {
    shown += host->machine.devices.size();
    ASSERT_EQ(host->machine.engines.size(), host->machine.devices.size());
  }
  ASSERT_EQ(shown + w.files.devices.size(), volumes.size());
  ASSERT_EQ(w.pool->under_way(), 0u);
}

TEST(Hosts, RandomLivesWithDeathsAndOldAnswers) {
  int deaths = 0, forced = 0;
  for (std::uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) live(seed, deaths, forced);
  EXPECT_GT(deaths, 500) << "or this has tried nothing";
  EXPECT_GT(forced, 50);
}

TEST(Hosts, TheyDeclareWhatTheyAsk) {
  World w;
  kube::Access declared;
  for (const auto& one : w.hosts[0]->process) declared.add(kube::full_access(*one));
  const kube::Access whole = host_access();
  for (const kube::Rule& rule : declared.rules())
    for (const std::string& verb : rule.verbs) EXPECT_TRUE(whole.allows(verb, {rule.group, "v1alpha1", rule.plural, "", false}, rule.subresource, "", "x")) << verb << " " << rule.plural << "/" << rule.subresource;
}

}  // namespace
}  // namespace fairlead::volumes
