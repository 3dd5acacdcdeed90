// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <stdlib.h>

#include "apiserver/registry_test_kit.h"
#include "apiserver/seal.h"
#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::apiserver::test {
namespace {

using testing::HasSubstr;
using Propagation = kube::DeleteOptions::Propagation;

struct PodWorld : World {
  PodWorld() {
    must(create("pods", small_pod));
    must(post(*pods, key, "binding", "{target: {name: n1}}"));
  }
  Json pod() const { return get(*pods, key); }
  std::shared_ptr<const Kind> pods = kind("pods");
  kube::ObjectKey key{"default", "web"};
};

TEST(RegistryRemovePod, WaitsForItsNode) {
  PodWorld world;
  const auto asked = world.remove(*world.pods, world.key);
  ASSERT_TRUE(asked);
  EXPECT_FALSE(asked->removed);
  EXPECT_EQ(world.pod()["metadata"]["deletionTimestamp"].string(), "2026-01-01T00:00:30Z");
  EXPECT_EQ(world.pod()["metadata"]["deletionGracePeriodSeconds"].integer(), 30);
  EXPECT_EQ(world.pod()["metadata"]["generation"].integer(), 2);
  // Longer is not possible, shorter counts from the first deletion.
  EXPECT_TRUE(world.remove(*world.pods, world.key, {.grace_seconds = 60}));
  EXPECT_EQ(world.pod()["metadata"]["deletionGracePeriodSeconds"].integer(), 30);
  world.clock.advance(5s);
  EXPECT_TRUE(world.remove(*world.pods, world.key, {.grace_seconds = 10}));
  EXPECT_EQ(world.pod()["metadata"]["deletionTimestamp"].string(), "2026-01-01T00:00:10Z");
  const auto gone = world.remove(*world.pods, world.key, {.grace_seconds = 0});
  ASSERT_TRUE(gone);
  EXPECT_TRUE(gone->removed);
  EXPECT_EQ(kube::version_of(object_of(gone)), std::to_string(world.registry->revision()));
  EXPECT_EQ(message_of(world.remove(*world.pods, world.key)), "pods \"web\" not found");
}

TEST(RegistryRemovePod, GoesAtOnceWhenNobodyRunsIt) {
  World world;
  const auto pods = world.kind("pods");
  world.must(world.create("pods", small_pod));
  const auto unscheduled = world.remove(*pods, {"default", "web"});
  ASSERT_TRUE(unscheduled);
  EXPECT_TRUE(unscheduled->removed);
  PodWorld finished;
  Json pod = finished.pod();
  pod.set("status", json("{phase: Succeeded}"));
  finished.must(finished.update(*finished.pods, pod, "status"));
  EXPECT_TRUE(finished.remove(*finished.pods, finished.key)->removed);
}

TEST(RegistryRemovePod, EvictionIsAGracefulDelete) {
  PodWorld world;
  const auto done = world.post(*world.pods, world.key, "eviction", "{metadata: {name: web}, deleteOptions: {gracePeriodSeconds: 7}}");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(object_of(done)["status"].string(), "Success");
  EXPECT_EQ(world.pod()["metadata"]["deletionGracePeriodSeconds"].integer(), 7);
}

TEST(RegistryRemovePod, AnotherKindInTheBodyEvictsNothing) {
  PodWorld world;
  const auto done = world.post(*world.pods, world.key, "eviction", "{apiVersion: policy/v1, kind: Frob, metadata: {name: web}}");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Invalid);
  EXPECT_FALSE(kube::deleting(world.pod()));
}

TEST(RegistryRemovePod, ItsTerminationGraceIsTheDefault) {
  World world;
  const auto pods = world.kind("pods");
  world.must(world.create("pods", "{metadata: {name: a}, spec: {nodeName: n1, terminationGracePeriodSeconds: 3, containers: [{name: c, image: i}]}}"));
  world.must(world.remove(*pods, {"default", "a"}));
  EXPECT_EQ(world.get(*pods, {"default", "a"})["metadata"]["deletionGracePeriodSeconds"].integer(), 3);
}

TEST(RegistryRemove, ADryRunChangesNothing) {
  PodWorld world;
  const Revision before = world.registry->revision();
  EXPECT_TRUE(world.remove(*world.pods, world.key, {.grace_seconds = 0}, {.dry_run = true})->removed);
  EXPECT_EQ(world.registry->revision(), before);
}

TEST(RegistryRemove, FinalizersHold) {
  World world;
  const auto maps = world.kind("configmaps");
  world.must(world.create("configmaps", "{metadata: {name: a, finalizers: [x.io/hold]}}"));
  const kube::ObjectKey key{"default", "a"};
  const auto asked = world.remove(*maps, key);
  ASSERT_TRUE(asked);
  EXPECT_FALSE(asked->removed);
  EXPECT_EQ(world.get(*maps, key)["metadata"]["deletionGracePeriodSeconds"].integer(), 0);
  const Revision before = world.registry->revision();
  EXPECT_FALSE(world.remove(*maps, key)->removed);
  EXPECT_EQ(world.registry->revision(), before);  // asked again: nothing new
  EXPECT_THAT(message_of(world.patch(*maps, key, "{metadata: {finalizers: [x.io/hold, y.io/more]}}")), HasSubstr("no new finalizers can be added if the object is being deleted, found new finalizers []string{\"y.io/more\"}"));
  const auto last = world.patch(*maps, key, "{metadata: {finalizers: []}}");
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_TRUE(last->removed);
  EXPECT_TRUE(world.get(*maps, key).is_null());
}

TEST(RegistryRemove, Preconditions) {
  World world;
  const auto maps = world.kind("configmaps");
  const Json map = object_of(world.create("configmaps", "{metadata: {name: a}}"));
  const kube::ObjectKey key{"default", "a"};
  const auto other_uid = world.remove(*maps, key, {.uid = "other"});
  ASSERT_FALSE(other_uid);
  EXPECT_EQ(other_uid.error().code, Code::Conflict);
  EXPECT_THAT(other_uid.error().message, HasSubstr("the UID in the precondition (other) does not match the UID in record (" + kube::uid_of(map)));
  EXPECT_EQ(world.remove(*maps, key, {.resource_version = "1"}).error().code, Code::Conflict);
  EXPECT_TRUE(world.remove(*maps, key, {.uid = kube::uid_of(map), .resource_version = kube::version_of(map)}));
}

TEST(RegistryRemove, PropagationBecomesFinalizers) {
  World world;
  const auto maps = world.kind("configmaps");
  const kube::ObjectKey key{"default", "a"};
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  EXPECT_FALSE(world.remove(*maps, key, {.propagation = Propagation::Foreground})->removed);
  EXPECT_TRUE(kube::has_finalizer(world.get(*maps, key), "foregroundDeletion"));
  EXPECT_FALSE(world.remove(*maps, key, {.propagation = Propagation::Orphan})->removed);
  EXPECT_TRUE(kube::has_finalizer(world.get(*maps, key), "orphan"));
  EXPECT_FALSE(kube::has_finalizer(world.get(*maps, key), "foregroundDeletion"));
  EXPECT_TRUE(world.remove(*maps, key)->removed);
}

TEST(RegistryNamespace, TerminatesAndIsNeverRemovedWithSomethingInside) {
  World world;
  const auto spaces = world.kind("namespaces");
  world.must(world.create("namespaces", "{metadata: {name: team}}"));
  world.must(world.create("configmaps", "{metadata: {name: a}}", "team"));
  EXPECT_FALSE(world.remove(*spaces, {"", "team"})->removed);
  EXPECT_EQ(world.get(*spaces, {"", "team"})["status"]["phase"].string(), "Terminating");
  const auto late = world.create("configmaps", "{metadata: {name: b}}", "team");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), (Error{Code::Forbidden, "configmaps \"b\" is forbidden: unable to create new content in namespace team because it is being terminated"}));
  const auto early = world.patch(*spaces, {"", "team"}, "{spec: {finalizers: []}}", kube::PatchType::Merge, "finalize");
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Code::Conflict);
  world.must(world.remove(*world.kind("configmaps"), {"team", "a"}));
  const auto done = world.patch(*spaces, {"", "team"}, "{spec: {finalizers: []}}", kube::PatchType::Merge, "finalize");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->removed);
}

TEST(RegistryNamespace, StandardOnesStay) {
  World world;
  for (const char* name : {"default", "kube-system", "kube-public"}) {
    const auto done = world.remove(*world.kind("namespaces"), {"", name});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::Forbidden);
  }
  EXPECT_FALSE(world.get(*world.kind("namespaces"), {"", "kube-node-lease"}).is_null());
}

TEST(RegistrySecret, IsSealedInTheStoreAndPlainToReaders) {
  World world;
  const std::string secret = "correct horse battery staple";
  world.must(world.create("secrets", "{metadata: {name: s, annotations: {last: '" + secret + "'}}, stringData: {k: '" + secret + "'}}"));
  const auto stored = world.store->get("/core/secrets/default/s");
  ASSERT_TRUE(stored);
  EXPECT_THAT(*stored->value.bytes(), testing::Not(HasSubstr(secret)));
  EXPECT_THAT(*stored->value.bytes(), testing::Not(HasSubstr("Y29ycmVjdCBob3JzZSBi")));  // its base64
  EXPECT_EQ(world.get(*world.kind("secrets"), {"default", "s"})["data"]["k"].string(), "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==");
  const auto patched = world.patch(*world.kind("secrets"), {"default", "s"}, "{data: {l: eA==}}");
  ASSERT_TRUE(patched);
  EXPECT_EQ(object_of(patched)["data"].members().size(), 2u);
  const auto gone = world.remove(*world.kind("secrets"), {"default", "s"});
  ASSERT_TRUE(gone);
  EXPECT_EQ(object_of(gone)["data"].members().size(), 2u);
}

TEST(RegistrySecret, NoByteOfItReachesTheDisk) {
  std::string folder = testing::TempDir() + "fairlead-sealed-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  auto store = open_sqlite_store({.path = folder + "/store.db"});
  ASSERT_TRUE(store) << store.error().message;
  const std::string secret = "tr0ub4dor&3-and-a-marker";
  {
    World world({}, std::move(*store));
    world.must(world.create("configmaps", "{metadata: {name: open}, data: {k: " + secret + "-open}}"));
    world.must(world.create("secrets", "{metadata: {name: s, annotations: {last: '" + secret + "'}}, stringData: {k: '" + secret + "'}}"));
    world.must(world.patch(*world.kind("secrets"), {"default", "s"}, "{data: {l: bWFya2Vy}}"));
  }
  std::string disk;
  const auto files = list_dir(folder);
  for (const std::string& file : *files)
    if (const auto bytes = read_file(folder + "/" + file)) disk += *bytes;
  EXPECT_THAT(disk, HasSubstr(secret + "-open"));  // the search finds what is not sealed
  std::size_t found = 0;
  for (auto at = disk.find(secret); at != std::string::npos; at = disk.find(secret, at + 1)) ++found;
  std::size_t open = 0;
  for (auto at = disk.find(secret + "-open"); at != std::string::npos; at = disk.find(secret + "-open", at + 1)) ++open;
  EXPECT_EQ(found, open);
  EXPECT_EQ(disk.find(base64(secret)), std::string::npos);
  EXPECT_EQ(disk.find("bWFya2Vy"), std::string::npos);
  EXPECT_TRUE(remove_tree(folder));
}

TEST(RegistrySecret, ABoxOpensOnlyUnderItsOwnName) {
  const auto seal = Seal::make(std::string(32, 'k'), [](std::size_t count) { return std::string(count, 'n'); });
  ASSERT_TRUE(seal);
  const Template plain{"before", "after"};
  const Template closed = seal->close("/core/secrets/a/b", plain);
  const std::string stored = closed.before + "17" + closed.after;
  EXPECT_EQ(*seal->open("/core/secrets/a/b", stored, 17), "before17after");
  EXPECT_EQ(seal->open("/core/secrets/a/c", stored, 17).error().code, Code::Internal);
  std::string changed = stored;
  changed[changed.size() - 10] = changed[changed.size() - 10] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(seal->open("/core/secrets/a/b", changed, 17));
  const auto other = Seal::make(std::string(32, 'x'), [](std::size_t count) { return std::string(count, 'n'); });
  EXPECT_FALSE(other->open("/core/secrets/a/b", stored, 17));
  EXPECT_FALSE(seal->open("/core/secrets/a/b", "{}", 17));
}

TEST(RegistrySecret, WithoutAKeyItIsRefused) {
  auto store = make_memory_store();
  const ManualClock clock(*parse_time("2026-01-01T00:00:00Z"));
  auto registry = Registry::open(*store, clock, {});
  ASSERT_TRUE(registry);
  Waiter waiter;
  (*registry)->create({}, *(*registry)->kinds()->find("", "v1", "secrets"), "default", json("{metadata: {name: s}}"), waiter.reply());
  const auto done = waiter.wait();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Unsupported);
  EXPECT_FALSE(Registry::open(*store, clock, {.secret_key = "short"}));
}

}  // namespace
}  // namespace fairlead::apiserver::test
