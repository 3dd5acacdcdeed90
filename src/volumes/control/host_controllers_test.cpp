// SPDX-License-Identifier: Apache-2.0
// A pool and two further machines in memory: what is asked comes about there whoever dies when, and whatever old answers of the API are read.
#include "volumes/control/host_controllers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
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
  std::vector<std::string> settled;  // volumes whose log was replayed
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
    daemon = pool_controllers({.api = mortal, .clock = clock, .pool = *pool, .name = "shared", .node_selector = "machine=one", .link = {}, .unlink = {}, .hosts = board.get(), .settle = [this](const std::string& volume) { return settled.push_back(volume), Result<void>(); }});
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
    Result<std::vector<std::string>> names(const Showing& one) override { return of_.names(one); }
    Result<void> link(const Showing& one, const std::string& name, const std::string& device) override { return of_.link(one, name, device); }
    Result<void> unlink(const Showing& one, const std::string& name) override { return of_.unlink(one, name); }
    Result<void> unlink_all(const Showing& one) override { return of_.unlink_all(one); }
    Result<void> cut(const Showing& one) override { return of_.cut(one); }

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
  void attach(const std::string& name, const std::string& node, bool read_only = false, const std::string& device_name = "") {
    Json object = api::new_attachment(name, "shared", node, read_only);
    if (!device_name.empty()) object.child("spec").set("deviceName", device_name);
    (void)api.create(kAttachments, object);
  }
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

TEST(Hosts, AnyNumberOfMachinesReadsAVolumeAndNoneWritesIt) {
  World w;
  w.volume("v");
  w.attach("v", "a", true);
  w.attach("v", "b", true);
  w.attach("v", "here", true);
  w.settle();
  w.attach("v", "a2", true);
  w.settle();
  for (const char* node : {"a", "a2", "b", "here"}) EXPECT_EQ(w.phase(std::string("v.") + node), "Attached") << node << w.message(std::string("v.") + node);
  EXPECT_EQ(w.hosts[0]->machine.devices.size() + w.hosts[1]->machine.devices.size() + w.files.devices.size(), 3u) << "one on each";
  EXPECT_EQ(w.files.allowed.at("v").who.size(), 2u);
  EXPECT_EQ(w.of("volumes", "v")["status"]["node"].string(), "a, a2, b, here");
  // Larger, limited, copied: on all of them.
  Json object = w.of("volumes", "v");
  object.child("spec").set("size", "2Gi").set("iops", 500);
  ASSERT_TRUE(w.api.update(kVolumes, object));
  ASSERT_TRUE(w.api.create(kSnapshots, api::new_snapshot("s", "v", "shared")));
  w.settle(20);
  for (auto& host : w.hosts) {
    EXPECT_EQ(host->machine.devices.begin()->second.second.size, 2 * gib);
    EXPECT_EQ(host->machine.engines.begin()->second.limits.iops, 500);
  }
  EXPECT_EQ(w.files.devices.begin()->second.second.size, 2 * gib);
  EXPECT_EQ(w.of("snapshots", "s")["status"]["phase"].string(), "Ready") << w.of("snapshots", "s")["status"]["message"].string();
  // The daemon and both processes begin anew.
  w.restart();
  for (auto& host : w.hosts) w.restart(*host);
  w.settle();
  for (const char* node : {"a", "a2", "b", "here"}) EXPECT_EQ(w.phase(std::string("v.") + node), "Attached") << node;
  for (const char* node : {"a", "a2", "here"}) w.detach("v", node);
  w.settle();
  EXPECT_EQ(w.api.all("attachments").size(), 1u);
  EXPECT_TRUE(w.hosts[1]->machine.serves("v"));
  EXPECT_THAT(w.hosts[0]->machine.engines, testing::IsEmpty());
  w.attach("v", "a");
  w.settle(3);
  EXPECT_THAT(w.message("v.a"), HasSubstr("is attached to b, read-only"));
  w.detach("v", "b");
  w.settle();
  EXPECT_EQ(w.phase("v.a"), "Attached") << "for writing, as nobody reads it any more";
  w.attach("v", "b", true);
  w.settle(3);
  EXPECT_THAT(w.message("v.b"), HasSubstr("is attached to a"));
  w.detach("v", "a");
  w.detach("v", "b");
  w.settle();
  EXPECT_THAT(w.files.allowed, testing::IsEmpty());
  EXPECT_THAT(w.ceph.wrong, testing::IsEmpty());
}

TEST(Hosts, TheLogIsReplayedOnceBeforeThoseThatReadIt) {
  World w;
  w.volume("v");
  w.settle(4);
  for (const char* node : {"a", "b"}) {
    Json object = api::new_attachment("v", "shared", node, true);
    object.child("spec").set("replayLog", true);
    ASSERT_TRUE(w.api.create(kAttachments, object));
  }
  w.settle();
  EXPECT_EQ(w.phase("v.a") + w.phase("v.b"), "AttachedAttached") << w.message("v.a") << w.message("v.b");
  EXPECT_EQ(w.settled, std::vector<std::string>{"v"});
  EXPECT_THAT(w.files.engines, testing::IsEmpty());
}

TEST(Hosts, ASilentMachineThatReadsHoldsUpNoOtherThatDoesAndByForceItAloneIsShutOut) {
  World w;
  w.volume("v");
  w.attach("v", "a", true);
  w.attach("v", "here", true);
  w.settle();
  for (auto& host : w.hosts) w.use(host->machine, true);
  w.hosts[0]->silent = true;
  w.settle(20);
  w.detach("v", "a");
  w.settle(3);
  EXPECT_THAT(w.message("v.a"), HasSubstr("m2 is silent since"));
  w.attach("v", "b", true);
  w.settle();
  EXPECT_EQ(w.phase("v.b"), "Attached") << w.message("v.b");
  w.detach("v", "here");
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.here").is_null());
  w.attach("v", "here");
  w.settle(3);
  EXPECT_THAT(w.message("v.here"), HasSubstr("is attached to a, b, read-only")) << "what the silent one has is not known";
  w.detach("v", "here");
  EXPECT_TRUE(w.hosts[0]->machine.serves("v"));
  w.detach("v", "a", true);
  w.settle(3);
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
  EXPECT_FALSE(w.hosts[0]->machine.serves("v"));
  EXPECT_TRUE(w.hosts[1]->machine.serves("v")) << "it alone was shut out";
  EXPECT_EQ(w.phase("v.b"), "Attached");
  w.use(w.hosts[1]->machine, false);
  w.detach("v", "b");
  w.settle();
  w.attach("v", "here");
  w.settle();
  EXPECT_EQ(w.phase("v.here"), "Attached");
  w.hosts[0]->silent = false;
  w.use(w.hosts[0]->machine, false);
  w.settle();
  EXPECT_THAT(w.hosts[0]->machine.devices, testing::IsEmpty()) << "what was left there";
  EXPECT_THAT(w.ceph.wrong, testing::IsEmpty());
}

TEST(Hosts, ADeviceHasItsNameWhereverItIs) {
  World w;
  FakeMachine& machine = w.hosts[0]->machine;
  for (const char* name : {"v", "w"}) w.volume(name);
  w.attach("v", "a", false, "/dev/xvdf");
  w.settle();
  ASSERT_EQ(w.phase("v.a"), "Attached") << w.message("v.a");
  EXPECT_EQ(machine.links, (std::map<std::string, std::string>{{"/dev/xvdf", "v"}}));
  EXPECT_EQ(machine.ends["v"], w.of("attachments", "v.a")["status"]["device"].string());
  EXPECT_EQ(api::read_volume_host(w.of("volumehosts", "shared.m2")).told[0].names, (std::vector<api::ToldName>{{.name = "/dev/xvdf"}}));
  // Another's name is not taken, and what is there under it stays.
  w.attach("w", "a2", false, "/dev/xvdf");
  w.settle();
  EXPECT_EQ(w.phase("w.a2"), "Attaching");
  EXPECT_THAT(w.message("w.a2"), HasSubstr("on the machine m2: there is a /dev/xvdf on this machine already: the volume is /dev/loop1"));
  EXPECT_EQ(w.phase("v.a"), "Attached");
  // The volume is made anew by another device, as its own number has gone to somebody else: the name follows.
  machine.engines.erase({"v", 1});
  machine.devices.erase("/dev/loop0");
  machine.devices["/dev/loop0"] = {{"x", 1}, {.name = "/dev/loop0", .size = gib, .used = true}};
  w.settle();
  EXPECT_EQ(w.phase("v.a"), "Attached") << "and it is not the other's that waits for it";
  EXPECT_EQ(machine.ends["v"], "/dev/loop2");
  w.detach("v", "a");
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
  EXPECT_EQ(w.phase("w.a2"), "Attached") << "it has the name now that nobody else does: " << w.message("w.a2");
  EXPECT_EQ(machine.links, (std::map<std::string, std::string>{{"/dev/xvdf", "w"}}));
  machine.foreign = {"/dev/sdb"};
  w.attach("v", "a", false, "/dev/sdb");
  w.settle();
  EXPECT_THAT(w.message("v.a"), HasSubstr("there is a /dev/sdb on this machine already"));
  w.detach("v", "a");
  w.detach("w", "a2");
  w.settle();
  EXPECT_THAT(machine.links, testing::IsEmpty());
  EXPECT_THAT(machine.ends, testing::IsEmpty());
  machine.check_links();
  EXPECT_THAT(w.ceph.wrong, testing::IsEmpty());
}

TEST(Hosts, EachOfThoseThatReadAVolumeHasItsOwnNameForIt) {
  World w;
  w.volume("v");
  w.attach("v", "a", true, "/dev/xvdf");
  w.attach("v", "a2", true, "/dev/xvdg");
  w.settle();
  EXPECT_EQ(w.phase("v.a") + w.phase("v.a2"), "AttachedAttached");
  EXPECT_EQ(w.hosts[0]->machine.links.size(), 2u);
  // The first goes only once its name has: who has the name next asks the same machine.
  w.hosts[0]->silent = true;
  w.detach("v", "a");
  w.settle(3);
  EXPECT_THAT(w.message("v.a"), HasSubstr("the machine m2 is asked to call v /dev/xvdf no more, and has not yet"));
  w.settle(20);
  EXPECT_THAT(w.message("v.a"), HasSubstr("m2 is silent since"));
  w.hosts[0]->silent = false;
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a").is_null());
  EXPECT_EQ(w.hosts[0]->machine.links, (std::map<std::string, std::string>{{"/dev/xvdg", "v"}}));
  EXPECT_EQ(w.phase("v.a2"), "Attached");
  w.detach("v", "a2");
  w.settle();
  EXPECT_THAT(w.hosts[0]->machine.links, testing::IsEmpty());
}

TEST(Hosts, ANameThatTwoReadersShareStaysWithTheLast) {
  World w;
  w.volume("v");
  for (const char* node : {"a", "a2"}) w.attach("v", node, true, "/dev/xvdf");
  w.settle();
  EXPECT_EQ(w.phase("v.a") + w.phase("v.a2"), "AttachedAttached");
  w.detach("v", "a");
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a").is_null()) << w.message("v.a");
  EXPECT_EQ(w.phase("v.a2"), "Attached");
  EXPECT_EQ(w.hosts[0]->machine.links, (std::map<std::string, std::string>{{"/dev/xvdf", "v"}}));
  w.detach("v", "a2");
  w.settle();
  EXPECT_TRUE(w.of("attachments", "v.a2").is_null());
  EXPECT_THAT(w.hosts[0]->machine.links, testing::IsEmpty());
}

// What is left of it is used when the machine is back, and the volume is shown there anew.
TEST(Hosts, ANameIsTheNewAttachmentsAndNotThatOfOneWhichWasTakenByForce) {
  World w;
  FakeMachine& machine = w.hosts[0]->machine;
  w.volume("v");
  w.attach("v", "a", false, "/dev/xvdf");
  w.settle();
  w.use(machine, true);
  w.hosts[0]->silent = true;
  w.detach("v", "a", true);
  w.settle(3);
  w.attach("v", "a", false, "/dev/xvdf");
  w.settle(3);
  w.hosts[0]->silent = false;
  w.settle();
  ASSERT_EQ(w.phase("v.a"), "Attached") << w.message("v.a");
  const std::string device = w.of("attachments", "v.a")["status"]["device"].string();
  EXPECT_EQ(machine.devices.size(), 2u);
  EXPECT_EQ(machine.ends["v"], device);
  w.use(machine, false);
  w.settle();
  EXPECT_EQ(machine.devices.size(), 1u) << "what was left is gone";
  EXPECT_EQ(machine.ends["v"], device);
  EXPECT_EQ(machine.links, (std::map<std::string, std::string>{{"/dev/xvdf", "v"}}));
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
        for (auto& one : w.hosts) one->machine.check_links();
        if (!w.pool->usable() || w.mortal.died || (tried && i % 3 == 0)) w.restart();
        for (auto& one : w.hosts)
          if (one->mortal.died || (tried && i % 4 == 0)) w.restart(*one);
      }
    };
    w.attach("v", "a", false, "/dev/xvdf");
    run(8);
    Json object = w.of("volumes", "v");
    object.child("spec").set("size", "2Gi").set("iops", 500);
    ASSERT_TRUE(w.api.update(kVolumes, object));
    run(8);
    w.detach("v", "a");
    run(8);
    w.attach("v", "b", false, "/dev/xvdf");
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
    ASSERT_THAT(w.hosts[0]->machine.links, testing::IsEmpty());
    ASSERT_EQ(w.hosts[1]->machine.links, (std::map<std::string, std::string>{{"/dev/xvdf", "v"}}));
    ASSERT_EQ(w.hosts[1]->machine.ends["v"], w.hosts[1]->machine.devices.begin()->first);
    ASSERT_THAT(w.ceph.wrong, testing::IsEmpty());
    most = at;
  }
  EXPECT_GT(most, 40) << "or this has tried nothing";
  EXPECT_LT(at, 400) << "it has not come to the end";
}

// The same where two machines and the pool's own read it.
TEST(Hosts, WhoeverDiesWhileMachinesReadOneVolumeTogether) {
  int at = 0, most = 0;
  bool tried = true;
  for (at = 0; tried && at < 600 && !testing::Test::HasFailure(); ++at) {
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
        for (auto& one : w.hosts) ASSERT_FALSE(one->machine.writes("v") && w.files.engines.contains("v"));
        ASSERT_FALSE(w.files.engines.contains("v") && !w.files.reading.contains("v") && (w.hosts[0]->machine.serves("v") || w.hosts[1]->machine.serves("v")));
        if (!w.pool->usable() || w.mortal.died || (tried && i % 3 == 0)) w.restart();
        for (auto& one : w.hosts)
          if (one->mortal.died || (tried && i % 4 == 0)) w.restart(*one);
      }
    };
    for (const char* node : {"a", "b", "here"}) w.attach("v", node, true);
    run(8);
    w.detach("v", "a");
    w.attach("v", "a2", true);
    run(8);
    w.detach("v", "b", true);
    w.detach("v", "here");
    run(6);
    w.detach("v", "a2");
    w.attach("v", "here");
    run(6);
    count = 1 << 20;
    w.restart();
    w.settle();
    ASSERT_EQ(w.phase("v.here"), "Attached") << w.message("v.here");
    for (auto& host : w.hosts) {
      ASSERT_THAT(host->machine.engines, testing::IsEmpty());
      ASSERT_THAT(host->machine.devices, testing::IsEmpty());
    }
    ASSERT_THAT(w.files.allowed, testing::IsEmpty());
    ASSERT_EQ(w.pool->under_way(), 0u);
    ASSERT_THAT(w.ceph.wrong, testing::IsEmpty());
    most = at;
  }
  EXPECT_GT(most, 60) << "or this has tried nothing";
  EXPECT_LT(at, 600) << "it has not come to the end";
}

void live(std::uint64_t seed, int& deaths, int& forced, int& readers) {
  SCOPED_TRACE(seed);
  World w(seed);
  Rng& rng = w.rng;
  for (const char* name : {"u", "v"}) w.volume(name);
  const char *nodes[] = {"here", "a", "a2", "b"}, *device_names[] = {"", "/dev/xvdf", "/dev/xvdg", "/dev/sdb"};
  std::set<std::string> by_force;  // volumes
  bool mortal = true;
  const auto dies = [&](bool) { return mortal && rng.below(12) == 0; };
  w.files.dies = dies;
  for (auto& host : w.hosts) {
    host->machine.dies = dies;
    // Whatever old answers are read: once an attachment is over, no engine begins for it.
    host->machine.on_start = [&w, name = host->name](const Showing& one) {
      const auto asked = w.pool->asked_of(name);
      if (std::none_of(asked.begin(), asked.end(), [&](const Asked& is) { return is.volume.id == one.id && is.volume.generation == one.generation; })) w.ceph.wrong.push_back("an engine of " + one.id + " begins for an attachment that is over");
    };
  }
  w.disk.dies = [&](bool) { return mortal && rng.below(60) == 0; };
  const auto fate = [&] { return mortal && rng.below(25) == 0 ? 1 + static_cast<int>(rng.below(2)) : 0; };
  w.mortal.fate = fate;
  for (auto& host : w.hosts) host->mortal.fate = fate;
  for (auto& host : w.hosts) host->machine.foreign = {"/dev/sdb"};
  const auto check = [&] {
    for (auto& host : w.hosts) host->machine.check_links();
    ASSERT_THAT(w.ceph.wrong, testing::IsEmpty());
    for (const char* name : {"u", "v"}) {
      const bool here = w.files.engines.contains(name), writes_here = here && !w.files.reading.contains(name);
      int served = here ? 1 : 0, written = writes_here ? 1 : 0;
      for (auto& host : w.hosts) served += host->machine.serves(name) ? 1 : 0, written += host->machine.writes(name) ? 1 : 0;
      ASSERT_TRUE(written == 0 || (written == 1 && served == 1)) << name << " is written beside others: " << served << " of whom " << written << " write";
      readers += served > 1 ? 1 : 0;
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
      case 0: case 1: case 2: w.attach(name, node, rng.below(2) == 0, device_names[rng.below(4)]); break;
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
  w.settle(30);
  for (const auto& [key, object] : std::map(w.api.all("attachments")))
    if (!kube::deleting(object) && object["status"]["phase"].string() != "Attached") (void)w.api.remove(kAttachments, key);
  w.settle(60);
  check();
  std::size_t shown = 0;
  std::set<std::string> volumes;  // with their machines
  for (const auto& [key, object] : w.api.all("attachments")) {
    ASSERT_EQ(object["status"]["phase"].string(), "Attached") << key.name << ": " << object["status"]["message"].string();
    volumes.insert(object["spec"]["volume"].string() + " on " + object["status"]["host"].string());
    const std::string &host = object["status"]["host"].string(), &device = object["status"]["device"].string();
    ASSERT_TRUE(host.empty() ? w.files.devices.contains(device) : w.hosts[host == "m2" ? 0 : 1]->machine.devices.contains(device)) << key.name << " is not " << device;
  }
  for (auto& host : w.hosts) {
    shown += host->machine.devices.size();
    ASSERT_EQ(host->machine.engines.size(), host->machine.devices.size());
  }
  ASSERT_EQ(shown + w.files.devices.size(), volumes.size());
  ASSERT_EQ(w.pool->under_way(), 0u);
  std::map<std::string, std::map<std::string, std::string>> names;  // by machine
  for (const auto& [key, object] : w.api.all("attachments"))
    if (const std::string& name = object["spec"]["deviceName"].string(); !name.empty() && object["status"].has("host")) names[object["status"]["host"].string()][name] = object["spec"]["volume"].string();
  for (auto& host : w.hosts) ASSERT_EQ(host->machine.links, names[host->name]) << host->name;
}

// A process that begins anew knows of what is not asked for any more by what was told alone.
TEST(Hosts, NamesThatAreAllThatIsLeftGoThoughTheirProcessDied) {
  World w;
  w.volume("v");
  w.attach("v", "a", false, "/dev/xvdf");
  w.settle();
  FakeMachine& machine = w.hosts[0]->machine;
  ASSERT_THAT(machine.links, testing::ElementsAre(testing::Pair("/dev/xvdf", "v")));
  machine.hangs = true;
  w.settle(8);
  // Meanwhile it is taken by force, and what showed it goes by itself.
  w.hosts[0]->silent = true;
  w.detach("v", "a", true);
  machine.engines.clear(), machine.devices.clear(), machine.ends.clear();
  w.settle();
  ASSERT_TRUE(w.of("attachments", "v.a").is_null());
  w.hosts[0]->silent = false;
  w.restart(*w.hosts[0]);
  w.settle(4);
  EXPECT_THAT(machine.links, testing::SizeIs(1)) << "what there is of it is not known";
  machine.hangs = false;
  w.settle();
  EXPECT_THAT(machine.links, testing::IsEmpty());
  EXPECT_THAT(api::read_volume_host(w.of("volumehosts", "shared.m2")).asked, testing::IsEmpty());
  EXPECT_THAT(api::read_volume_host(w.of("volumehosts", "shared.m2")).told, testing::IsEmpty());
}

TEST(Hosts, RandomLivesWithDeathsAndOldAnswers) {
  int deaths = 0, forced = 0, readers = 0;
  const std::uint64_t most = std::getenv("FAIRLEAD_FULL") != nullptr ? 3000 : 60;
  for (std::uint64_t seed = 1; seed <= most && !testing::Test::HasFailure(); ++seed) live(seed, deaths, forced, readers);
  EXPECT_GT(deaths, 500) << "or this has tried nothing";
  EXPECT_GT(forced, 50);
  EXPECT_GT(readers, 100) << "or machines have never read one volume together";
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
