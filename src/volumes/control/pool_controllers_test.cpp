// SPDX-License-Identifier: Apache-2.0
// Objects against a pool in memory: tables of what is decided, and random lives in which the daemon dies at any write, held against what was written into each object's volume.
#include "volumes/control/pool_controllers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "kube/tiny_api.h"
#include "volumes/control/mortal_api.h"
#include "volumes/fake_pool.h"
#include "volumes/memory_journal.h"

namespace fairlead::volumes {
namespace {

using api::kAttachments;
using api::kSnapshots;
using api::kVolumePools;
using api::kVolumes;
using kube::Json;
using testing::HasSubstr;
namespace resources = kube::resources;

constexpr std::int64_t gib = std::int64_t{1} << 30;

struct Site {
  kube::TinyApi api;
  ManualClock clock{*parse_time("2026-11-27T12:00:00Z")};
  FakePool files;
  MemoryDisk disk;
  Rng rng{1};
  MortalApi mortal{api};
  std::unique_ptr<VolumePool> pool;
  std::vector<std::unique_ptr<kube::Controller>> controllers;
  std::vector<std::string> settled;  // volumes whose log was replayed
  bool damaged = false;              // they are, and it cannot be
  std::map<std::string, std::pair<std::string, std::string>> links;  // by name: the volume, and what shows it
  std::string foreign;               // a name that the machine has for something else
  std::function<Result<void>(const std::string&, const std::string&, const std::string&)> link = [this](const std::string& name, const std::string& volume, const std::string& device) -> Result<void> {
    if (name == foreign || (links.contains(name) && links[name].first != volume)) return fail(Code::Exists, "there is a " + name + " on this machine already");
    return links[name] = {volume, device}, Result<void>();
  };
  std::function<Result<void>(const std::string&, const std::string&, const std::string&)> unlink = [this](const std::string& name, const std::string& volume, const std::string&) -> Result<void> {
    if (links.contains(name) && links[name].first == volume) links.erase(name);
    return {};
  };
  Site() {
    files.size = 100 * gib;
    EXPECT_TRUE(api.create(resources::nodes, Json::object({{"metadata", Json::object({{"name", "n0"}})}})));
    EXPECT_TRUE(api.create(resources::nodes, Json::object({{"metadata", Json::object({{"name", "here"}})}})));
    restart();
  }
  void restart() {
    controllers.clear();
    pool.reset();
    disk.crash(rng);
    mortal.died = false;
    auto opened = VolumePool::open(files, std::make_unique<MemoryJournal>(disk));
    ASSERT_TRUE(opened) << opened.error().message;
    pool = std::move(*opened);
    controllers = pool_controllers({.api = mortal, .clock = clock, .pool = *pool, .name = "here", .node_selector = "", .link = link, .unlink = unlink, .settle = [this](const std::string& volume) -> Result<void> { return settled.push_back(volume), damaged ? Result<void>(fail(Code::Internal, "the file system is damaged")) : Result<void>(); }});
    for (auto& one : controllers) one->start(api);
  }
  // Each object once, by its controller.
  void round() {
    const char* plurals[] = {"volumes", "snapshots", "attachments"};
    for (std::size_t i = 0; i < 3; ++i) {
      std::vector<kube::ObjectKey> keys;
      for (const auto& [key, object] : api.all(plurals[i])) keys.push_back(key);
      for (const auto& key : keys) (void)controllers[i]->reconcile(key);
    }
    (void)controllers[3]->reconcile({"", "here"});
    clock.advance(std::chrono::seconds(2));
  }
  void settle() {
    for (int i = 0; i < 12; ++i) round();
  }
  void put(const kube::Resource& resource, Json object) {
    auto made = api.create(resource, object);
    ASSERT_TRUE(made) << made.error().message;
  }
  void is_reached_by_all() {
    Json object = of("volumepools", "here");
    object.child("spec").set("nodeSelector", "!nosuch");
    ASSERT_TRUE(api.update(kVolumePools, object));
  }
  void volume(const char* name, std::int64_t size = gib, const char* from_snapshot = "", const char* from_volume = "") { put(kVolumes, api::new_volume(name, {.pool = "here", .size = size, .from_volume = from_volume, .from_snapshot = from_snapshot})); }
  Json of(const char* plural, const std::string& name) {
    const auto found = api.all(plural).find({"", name});
    return found == api.all(plural).end() ? Json() : found->second;
  }
  std::string phase(const char* plural, const std::string& name) { return of(plural, name)["status"]["phase"].string(); }
  std::string message(const char* plural, const std::string& name) { return of(plural, name)["status"]["message"].string(); }
};

TEST(PoolControllers, VolumesSnapshotsAndAttachmentsComeAndGo) {
  Site site;
  site.volume("a", 2 * gib);
  site.settle();
  EXPECT_EQ(site.phase("volumes", "a"), "Available");
  EXPECT_EQ(site.of("volumes", "a")["status"]["sizeBytes"].integer(), 2 * gib);
  site.put(kAttachments, api::new_attachment("a", "here", "here", false));
  site.put(kSnapshots, api::new_snapshot("s", "a", "here"));
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attached");
  EXPECT_EQ(site.of("attachments", "a.here")["status"]["generation"].integer(), 1);
  EXPECT_EQ(site.phase("volumes", "a"), "InUse");
  EXPECT_EQ(site.of("volumes", "a")["status"]["node"].string(), "here");
  EXPECT_EQ(site.phase("snapshots", "s"), "Ready");
  const Json pool = site.of("volumepools", "here");
  EXPECT_EQ(api::read_pool(pool).promised, 4 * gib);
  EXPECT_THAT(api::read_pool(pool).nodes, testing::ElementsAre("here"));
  // A volume that is used stays, and says why.
  ASSERT_TRUE(site.api.remove(kVolumes, {"", "a"}));
  site.settle();
  EXPECT_THAT(site.message("volumes", "a"), HasSubstr("attached to here"));
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.here"}));
  site.settle();
  EXPECT_TRUE(site.of("attachments", "a.here").is_null());
  EXPECT_TRUE(site.of("volumes", "a").is_null());
  EXPECT_EQ(site.phase("snapshots", "s"), "Ready") << "it stays when its volume goes";
  site.volume("b", 3 * gib, "s");
  site.settle();
  EXPECT_EQ(site.phase("volumes", "b"), "Available");
  ASSERT_TRUE(site.api.remove(kSnapshots, {"", "s"}));
  ASSERT_TRUE(site.api.remove(kVolumes, {"", "b"}));
  site.settle();
  EXPECT_THAT(site.files.files, testing::IsEmpty());
}

// Who looks for its device by that name would find another's otherwise.
TEST(PoolControllers, ANameFollowsItsVolumeToAnotherDevice) {
  Site site;
  site.put(kVolumes, api::new_volume("a", {.pool = "here", .klass = api::kLocalManaged, .size = gib}));
  Json attachment = api::new_attachment("a", "here", "here", false);
  attachment.child("spec").set("deviceName", "/dev/xvdf");
  site.put(kAttachments, attachment);
  site.settle();
  ASSERT_EQ(site.phase("attachments", "a.here"), "Attached");
  EXPECT_EQ(site.links, (std::map<std::string, std::pair<std::string, std::string>>{{"/dev/xvdf", {"a", "/dev/loop0"}}}));
  // Its engine is killed, and with it goes the device.
  site.files.devices.clear();
  site.files.engines.clear();
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attached");
  EXPECT_EQ(site.of("attachments", "a.here")["status"]["device"].string(), "/dev/loop1");
  EXPECT_EQ(site.links["/dev/xvdf"], (std::pair<std::string, std::string>("a", "/dev/loop1")));
  // Taken away while nothing shows it: the name goes all the same.
  site.files.devices.clear();
  site.files.engines.clear();
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.here"}));
  site.settle();
  EXPECT_TRUE(site.of("attachments", "a.here").is_null());
  EXPECT_TRUE(site.links.empty());
  // By another's name it is not told to be there.
  site.foreign = "/dev/xvdf";
  site.put(kAttachments, attachment);
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attaching");
  EXPECT_THAT(site.message("attachments", "a.here"), HasSubstr("there is a /dev/xvdf"));
}

TEST(PoolControllers, ASecondNodeAndOneThatDoesNotReachThePoolAreRefused) {
  Site site;
  site.volume("a");
  site.put(kAttachments, api::new_attachment("a", "here", "n0", false));
  site.settle();
  EXPECT_THAT(site.message("attachments", "a.n0"), HasSubstr("node n0 does not reach pool here"));
  site.is_reached_by_all();
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.n0"), "Attached");
  site.put(kAttachments, api::new_attachment("a", "here", "here", false));
  site.settle();
  EXPECT_THAT(site.message("attachments", "a.here"), HasSubstr("is attached to n0: one node at a time"));
  // Whose attachment goes changes nothing for the other.
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.here"}));
  site.settle();
  EXPECT_TRUE(site.of("attachments", "a.here").is_null());
  EXPECT_EQ(site.files.devices.size(), 1u);
  EXPECT_EQ(site.phase("attachments", "a.n0"), "Attached");
}

TEST(PoolControllers, SeveralNodesReadOneAndAWriterWaitsForAll) {
  Site site;
  site.volume("a");
  site.settle();
  site.is_reached_by_all();
  for (const char* node : {"n0", "here"}) site.put(kAttachments, api::new_attachment("a", "here", node, true, true));
  site.settle();
  for (const char* name : {"a.n0", "a.here"}) EXPECT_EQ(site.phase("attachments", name), "Attached") << site.message("attachments", name);
  EXPECT_EQ(site.of("attachments", "a.n0")["status"]["device"].string(), site.of("attachments", "a.here")["status"]["device"].string());
  EXPECT_THAT(site.settled, testing::ElementsAre("a")) << "before the first, once";
  EXPECT_EQ(site.of("volumes", "a")["status"]["node"].string(), "here, n0");
  ASSERT_TRUE(site.api.create(resources::nodes, Json::object({{"metadata", Json::object({{"name", "n1"}})}})));
  site.put(kAttachments, api::new_attachment("a", "here", "n1", false));
  site.settle();
  EXPECT_THAT(site.message("attachments", "a.n1"), HasSubstr("is attached to here, n0, read-only"));
  // Who goes takes the device from nobody, though they use it.
  site.files.devices.begin()->second.second.used = true;
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.n0"}));
  site.settle();
  EXPECT_TRUE(site.of("attachments", "a.n0").is_null());
  EXPECT_EQ(site.files.devices.size(), 1u);
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.here"}));
  site.settle();
  EXPECT_THAT(site.message("attachments", "a.here"), HasSubstr("unmount it first"));
  site.files.devices.begin()->second.second.used = false;
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.n1"), "Attached");
  EXPECT_EQ(site.of("volumes", "a")["status"]["node"].string(), "n1");
}

TEST(PoolControllers, ANameThatTwoReadersShareStaysWithTheLast) {
  Site site;
  site.volume("a");
  site.settle();
  site.is_reached_by_all();
  for (const char* node : {"n0", "here"}) {
    Json attachment = api::new_attachment("a", "here", node, true);
    attachment.child("spec").set("deviceName", "/dev/xvdf");
    site.put(kAttachments, attachment);
  }
  site.settle();
  for (const char* name : {"a.n0", "a.here"}) ASSERT_EQ(site.phase("attachments", name), "Attached") << site.message("attachments", name);
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.n0"}));
  site.settle();
  EXPECT_TRUE(site.of("attachments", "a.n0").is_null());
  EXPECT_TRUE(site.links.contains("/dev/xvdf"));
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.here"}));
  site.settle();
  EXPECT_TRUE(site.of("attachments", "a.here").is_null());
  EXPECT_TRUE(site.links.empty());
}

TEST(PoolControllers, OneWhoseLogCannotBeReplayedIsNotShown) {
  Site site;
  site.volume("a");
  site.damaged = true;
  site.put(kAttachments, api::new_attachment("a", "here", "here", true, true));
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Failed");
  EXPECT_THAT(site.message("attachments", "a.here"), HasSubstr("is damaged"));
  EXPECT_THAT(site.files.devices, testing::IsEmpty());
  EXPECT_EQ(site.phase("volumes", "a"), "Available") << "nobody has it";
  site.damaged = false;
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attached");
  // One that is only looked at is left as it is.
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.here"}));
  site.settle();
  site.settled.clear();
  site.put(kAttachments, api::new_attachment("a", "here", "here", true));
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attached");
  EXPECT_THAT(site.settled, testing::IsEmpty());
}

TEST(PoolControllers, WhatIsMountedIsNotTakenAway) {
  Site site;
  site.volume("a");
  site.put(kAttachments, api::new_attachment("a", "here", "here", false));
  site.settle();
  site.files.devices.begin()->second.second.used = true;
  ASSERT_TRUE(site.api.remove(kAttachments, {"", "a.here"}));
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Detaching");
  EXPECT_THAT(site.message("attachments", "a.here"), HasSubstr("unmount it first"));
  EXPECT_EQ(site.of("attachments", "a.here")["status"]["reason"].string(), "InUse");
  site.files.devices.begin()->second.second.used.reset();
  site.settle();
  EXPECT_EQ(site.of("attachments", "a.here")["status"]["reason"].string(), "") << "only what is known";
  EXPECT_EQ(site.files.devices.size(), 1u) << "not known is not no";
  site.files.devices.begin()->second.second.used = false;
  site.settle();
  EXPECT_TRUE(site.of("attachments", "a.here").is_null());
}

TEST(PoolControllers, AnotherObjectOfTheNameHasNoneOfTheData) {
  Site site;
  site.volume("a");
  site.settle();
  site.files.files.at("a.volume").content = "secret";
  // The object goes without a word to the pool: somebody took the finalizer off, or the API's data is of an older day.
  site.api.all("volumes").clear();
  site.volume("a");
  site.settle();
  EXPECT_EQ(site.phase("volumes", "a"), "Failed");
  EXPECT_THAT(site.message("volumes", "a"), HasSubstr("not of this object"));
  EXPECT_THAT(site.of("volumepools", "here")["status"]["orphans"].items(), testing::SizeIs(1));
  site.put(kSnapshots, api::new_snapshot("s", "a", "here"));
  site.volume("copy", gib, "", "a");
  site.put(kAttachments, api::new_attachment("a", "here", "here", false));
  site.settle();
  for (const auto& [plural, name] : {std::pair("snapshots", "s"), {"volumes", "copy"}}) EXPECT_THAT(site.message(plural, name), HasSubstr("not of the object of that name"));
  EXPECT_THAT(site.files.devices, testing::IsEmpty());
  EXPECT_TRUE(site.files.engines.empty());
  // Deleting it deletes nothing of the other.
  for (const auto& [resource, name] : {std::pair(kAttachments, "a.here"), {kSnapshots, "s"}, {kVolumes, "copy"}, {kVolumes, "a"}}) ASSERT_TRUE(site.api.remove(resource, {"", name}));
  site.settle();
  EXPECT_TRUE(site.api.all("volumes").empty());
  EXPECT_EQ(site.files.files.at("a.volume").content, "secret");
  // Taken over by who says so.
  Json again = api::new_volume("a", {.pool = "here", .size = gib, .from_volume = {}, .from_snapshot = {}});
  again.child("metadata").set("annotations", Json::object({{api::kAdoptNote, "true"}}));
  site.put(kVolumes, again);
  site.settle();
  EXPECT_EQ(site.phase("volumes", "a"), "Available");
  EXPECT_EQ(site.files.files.at("a.volume").content, "secret");
}

TEST(PoolControllers, WhatIsLostIsNotMadeAnew) {
  Site site;
  site.volume("a");
  site.settle();
  // The pool's folder was restored from another day.
  site.files.files.clear();
  site.disk = {};
  site.restart();
  site.settle();
  EXPECT_EQ(site.phase("volumes", "a"), "Lost");
  EXPECT_THAT(site.files.files, testing::IsEmpty());
  ASSERT_TRUE(site.api.remove(kVolumes, {"", "a"}));
  site.settle();
  EXPECT_TRUE(site.of("volumes", "a").is_null()) << "it can be deleted";
}

TEST(PoolControllers, APoolThatWasExchangedIsNotWhatTheObjectMeant) {
  Site site;
  site.volume("a");
  site.settle();
  Json object = site.of("volumes", "a");
  object.child("status").set("poolID", "another");
  ASSERT_TRUE(site.api.put(kVolumes, object));
  ASSERT_TRUE(site.api.remove(kVolumes, {"", "a"}));
  site.settle();
  EXPECT_EQ(site.phase("volumes", "a"), "Unknown");
  EXPECT_EQ(site.files.files.size(), 1u) << "deletion waits";
}

TEST(PoolControllers, SizesThatCannotBeLeaveTheVolumeAsItIs) {
  Site site;
  site.volume("a", 2 * gib);
  site.settle();
  const auto resize = [&](const char* size) {
    Json object = site.of("volumes", "a");
    object.child("spec").set("size", size);
    ASSERT_TRUE(site.api.update(kVolumes, object));
    site.settle();
  };
  resize("1Gi");
  EXPECT_EQ(site.phase("volumes", "a"), "Available");
  EXPECT_THAT(site.message("volumes", "a"), HasSubstr("does not shrink"));
  resize("200Gi");
  EXPECT_EQ(site.phase("volumes", "a"), "Available");
  EXPECT_THAT(site.message("volumes", "a"), HasSubstr("may promise"));
  resize("3Gi");
  EXPECT_EQ(site.message("volumes", "a"), "");
  EXPECT_EQ(site.of("volumes", "a")["status"]["sizeBytes"].integer(), 3 * gib);
}

// A pool in Ceph has volumes of class distributed, each by an engine; one of files has none of them.
TEST(PoolControllers, ClassesAreThoseOfThePool) {
  for (const bool distributed : {true, false}) {
    Site site;
    site.files.distributed = distributed;
    for (const char* const klass : {api::kLocalFast, api::kLocalManaged, api::kDistributed}) site.put(kVolumes, api::new_volume(klass, {.pool = "here", .klass = klass, .size = gib, .from_volume = {}, .from_snapshot = {}}));
    site.put(kAttachments, api::new_attachment(api::kDistributed, "here", "here", false));
    site.settle();
    EXPECT_EQ(kube::print_json(site.of("volumepools", "here")["status"]["classes"]), distributed ? R"(["distributed"])" : R"(["local-fast","local-managed"])");
    EXPECT_EQ(site.phase("volumes", api::kLocalFast), distributed ? "Failed" : "Available");
    EXPECT_EQ(site.phase("volumes", api::kLocalManaged), distributed ? "Failed" : "Available");
    EXPECT_EQ(site.phase("volumes", api::kDistributed), distributed ? "InUse" : "Failed");
    EXPECT_THAT(site.message("volumes", distributed ? api::kLocalFast : api::kDistributed), HasSubstr(distributed ? "are of class distributed" : "has no class distributed"));
    EXPECT_EQ(site.files.engines.size(), distributed ? 1u : 0u);
  }
}

TEST(PoolControllers, LimitsFollowTheObjectWhileItIsAttached) {
  Site site;
  site.put(kVolumes, api::new_volume("a", {.pool = "here", .klass = api::kLocalManaged, .size = gib, .from_volume = {}, .from_snapshot = {}, .iops = 500}));
  site.put(kAttachments, api::new_attachment("a", "here", "here", false));
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attached") << site.message("attachments", "a.here");
  EXPECT_EQ(site.files.engines.at("a").limits, (Limits{.iops = 500}));
  EXPECT_EQ(site.of("volumes", "a")["status"]["iops"].integer(), 500);
  EXPECT_THAT(kube::print_json(site.of("volumepools", "here")["status"]["classes"]), HasSubstr("local-managed"));
  Json object = site.of("volumes", "a");
  object.child("spec").set("iops", 0).set("throughput", "7Mi").set("size", "2Gi");
  ASSERT_TRUE(site.api.update(kVolumes, object));
  site.settle();
  EXPECT_EQ(site.files.engines.at("a").limits, (Limits{.bytes_per_second = 7 << 20}));
  EXPECT_EQ(site.files.engines.at("a").size, 2 * gib) << "limits and size at once";
  EXPECT_TRUE(api::limits_in_force(site.of("volumes", "a")));
  // Its engine ends: told while it is in use, made anew once it is not.
  site.files.engines.erase("a");
  for (auto& [name, device] : site.files.devices) device.second.used = true;
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attaching");
  EXPECT_THAT(site.message("attachments", "a.here"), HasSubstr("has ended: unmount it"));
  EXPECT_THAT(site.message("volumes", "a"), HasSubstr("its engine has ended"));
  for (auto& [name, device] : site.files.devices) device.second.used = false;
  site.settle();
  EXPECT_EQ(site.phase("attachments", "a.here"), "Attached");
  EXPECT_EQ(site.message("volumes", "a"), "");
  EXPECT_EQ(site.files.engines.at("a").limits, (Limits{.bytes_per_second = 7 << 20}));
}

// What each object's data was last, by its uid; the names are few, so that they come again.
void live(std::uint64_t seed, int& deaths) {
  SCOPED_TRACE(seed);
  Site site;
  Rng rng(seed);
  site.rng = Rng(seed + 1);
  site.round();
  Json whole = site.of("volumepools", "here");
  whole.child("spec").set("nodeSelector", "!nosuch");
  ASSERT_TRUE(site.api.update(kVolumePools, whole));
  std::map<std::string, std::string> holds;
  const auto dies = [&](bool) { return rng.below(60) == 0; };
  const auto mortal = [&](bool on) {
    site.mortal.fate = [&, on] { return on && rng.below(25) == 0 ? 1 + static_cast<int>(rng.below(2)) : 0; };
    site.files.dies = on ? std::function<bool(bool)>(dies) : nullptr;
    site.disk.dies = on ? std::function<bool(bool)>(dies) : nullptr;
  };
  const auto check = [&] {
    for (const auto& [plural, end] : {std::pair("volumes", ".volume"), {"snapshots", ".snapshot"}})
      for (const auto& [key, object] : site.api.all(plural)) {
        const std::string& phase = object["status"]["phase"].string();
        const auto known = holds.find(kube::uid_of(object));
        if (known == holds.end() || kube::deleting(object)) continue;
        ASSERT_NE(phase, "Lost") << key.name;
        const auto file = site.files.files.find(key.name + end);
        ASSERT_NE(file, site.files.files.end()) << key.name << end << " is gone, and its object is " << phase;
        ASSERT_EQ(file->second.content, known->second) << key.name << end;
      }
  };
  for (int step = 0; step < 120; ++step) {
    mortal(rng.below(3) != 0);
    const std::string name(1, static_cast<char>('a' + rng.below(3)));
    switch (rng.below(9)) {
      case 7:
        if (Json object = site.of("volumes", name); object["spec"]["class"].string() == api::kLocalManaged) {
          object.child("spec").set("iops", 100 * static_cast<std::int64_t>(rng.below(3)));
          (void)site.api.update(kVolumes, object);
        }
        if (rng.below(3) == 0) site.files.engines.erase(name);
        break;
      case 0: (void)site.api.create(kVolumes, api::new_volume(name, {.pool = "here", .klass = rng.below(2) == 0 ? api::kLocalFast : api::kLocalManaged, .size = gib, .from_volume = {}, .from_snapshot = {}})); break;
      case 1: (void)site.api.create(kVolumes, api::new_volume(name, {.pool = "here", .size = 2 * gib, .from_volume = {}, .from_snapshot = "s" + std::string(1, static_cast<char>('a' + rng.below(3)))})); break;
      case 2: (void)site.api.create(kSnapshots, api::new_snapshot("s" + name, std::string(1, static_cast<char>('a' + rng.below(3))), "here")); break;
      case 3:
        if (rng.below(2) == 0) (void)site.api.create(kAttachments, api::new_attachment(name, "here", "here", false));
        else (void)site.api.create(kAttachments, api::new_attachment(name, "here", rng.below(2) == 0 ? "here" : "n0", true, rng.below(2) == 0));
        break;
      case 4: (void)site.api.remove(kVolumes, {"", name}); break;
      case 5: (void)site.api.remove(kSnapshots, {"", "s" + name}); break;
      case 6: (void)site.api.remove(kAttachments, {"", name + (rng.below(2) == 0 ? ".here" : ".n0")}); break;
      default:
        // Somebody writes to it, where it is attached and told so.
        if (const Json object = site.of("attachments", name + ".here"); object["status"]["phase"].string() == "Attached" && !kube::deleting(object) && !object["spec"]["readOnly"].boolean()) {
          const Json volume = site.of("volumes", name);
          const auto device = site.files.devices.find(object["status"]["device"].string());
          if (device == site.files.devices.end() || device->second.first != name || volume.is_null()) break;
          const std::string text = std::to_string(step);
          site.files.files.at(name + ".volume").content = text;
          holds[kube::uid_of(volume)] = text;
        }
    }
    site.round();
    if (site.mortal.died || site.pool->under_way() > 0 || (!site.pool->usable() && rng.below(3) == 0) || rng.below(10) == 0) {
      ++deaths;
      mortal(false);
      if (rng.below(4) == 0) site.files.devices.clear(), site.files.engines.clear();  // the machine died with it
      site.restart();
    }
    // What is ready holds what it holds from here on.
    for (const auto& [plural, end] : {std::pair("volumes", ".volume"), {"snapshots", ".snapshot"}})
      for (const auto& [key, object] : site.api.all(plural)) {
        const std::string& phase = object["status"]["phase"].string();
        if (phase != "Available" && phase != "InUse" && phase != "Ready") continue;
        const auto file = site.files.files.find(key.name + end);
        if (file != site.files.files.end() && !kube::deleting(object)) holds.emplace(kube::uid_of(object), file->second.content);
      }
    check();
    if (testing::Test::HasFatalFailure()) return;
  }
  // Without deaths it all comes to an end: what is asked for is there, and what is not is gone.
  mortal(false);
  site.restart();
  for (const auto& [key, object] : std::map(site.api.all("attachments"))) (void)site.api.remove(kAttachments, key);
  for (int i = 0; i < 4; ++i) site.settle();
  check();
  std::set<std::string> wanted;
  for (const auto& [plural, end] : {std::pair("volumes", ".volume"), {"snapshots", ".snapshot"}})
    for (const auto& [key, object] : site.api.all(plural)) {
      const std::string& phase = object["status"]["phase"].string();
      EXPECT_FALSE(kube::deleting(object)) << key.name;
      if (phase == "Available" || phase == "Ready") wanted.insert(key.name + end);
      else EXPECT_EQ(phase, "Failed") << key.name;
    }
  std::set<std::string> there;
  for (const auto& [file, content] : site.files.files) there.insert(file);
  EXPECT_EQ(there, wanted);
  EXPECT_THAT(site.files.devices, testing::IsEmpty());
  EXPECT_EQ(site.pool->under_way(), 0u);
  EXPECT_THAT(site.of("volumepools", "here")["status"]["orphans"].items(), testing::IsEmpty());
}

TEST(PoolControllers, RandomLivesWithDeathsAtAnyWrite) {
  int deaths = 0;
  for (std::uint64_t seed = 1; seed <= 40 && !testing::Test::HasFailure(); ++seed) live(seed, deaths);
  EXPECT_GT(deaths, 500) << "or this has tried nothing";
}

TEST(PoolControllers, WhatWasBrokenOffIsGoneOnWithWhateverIsWishedByNow) {
  Site site;
  site.put(kVolumes, api::new_volume("a", {.pool = "here", .klass = api::kLocalManaged, .size = gib, .from_volume = {}, .from_snapshot = {}}));
  site.put(kAttachments, api::new_attachment("a", "here", "here", false));
  site.settle();
  int failures = 0;
  site.files.dies = [&](bool after) { return !after && failures++ < 1; };
  const auto wish = [&](const char* field, Json value) {
    Json object = site.of("volumes", "a");
    object.child("spec").set(field, std::move(value));
    EXPECT_TRUE(site.api.update(kVolumes, object));
  };
  wish("size", "2Gi");
  site.settle();
  EXPECT_EQ(site.files.devices.begin()->second.second.size, 2 * gib);
  EXPECT_EQ(site.pool->under_way(), 0u);
  // Limits that are wished back before they have come about.
  failures = 0;
  wish("iops", 300);
  site.round();
  EXPECT_EQ(site.pool->under_way(), 1u);
  wish("iops", 0);
  site.settle();
  EXPECT_EQ(site.pool->under_way(), 0u);
  EXPECT_EQ(site.files.engines.at("a").limits.iops, 0);
}

TEST(PoolControllers, TheyDeclareWhatTheyAsk) {
  Site site;
  kube::Access declared;
  for (const auto& one : site.controllers) declared.add(kube::full_access(*one));
  const kube::Access whole = pool_access();
  for (const kube::Rule& rule : declared.rules())
    for (const std::string& verb : rule.verbs) EXPECT_TRUE(whole.allows(verb, {rule.group, "v1alpha1", rule.plural, "", false}, rule.subresource, "", "x")) << verb << " " << rule.plural << "/" << rule.subresource;
}

}  // namespace
}  // namespace fairlead::volumes
