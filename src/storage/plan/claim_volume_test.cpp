// SPDX-License-Identifier: Apache-2.0
#include "storage/plan/claim_volume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::storage {
namespace {

using kube::Json;
using testing::HasSubstr;
using Do = ClaimNext::Do;

constexpr std::int64_t gib = std::int64_t{1} << 30;
const Instant now = *parse_time("2026-11-27T12:00:00Z");

Json a_class(const char* more = "{}") {
  Json out = *kube::parse_json(more);
  out.set("metadata", Json::object({{"name", "fast"}})).set("provisioner", api::kVolumeDriver);
  return out;
}
Json a_claim(const char* size = "3Gi", const char* mode = "ReadWriteOnce") {
  return Json::object({{"metadata", Json::object({{"name", "data"}, {"namespace", "team"}, {"uid", "u1"}})}, {"spec", Json::object({{"accessModes", Json::array({Json(mode)})}, {"storageClassName", "fast"}, {"volumeMode", "Filesystem"}, {"resources", Json::object({{"requests", Json::object({{"storage", size}})}})}})}, {"status", Json::object({{"phase", "Pending"}})}});
}
api::PoolFacts a_pool(const char* name, std::int64_t left, std::vector<std::string> nodes) { return {.name = name, .id = "i", .size = 100 * gib, .promised = 0, .limit = left, .free = left, .classes = {api::kLocalFast}, .nodes = std::move(nodes), .heard = now}; }
Json made(Json volume, const char* phase) {
  volume.set("status", Json::object({{"phase", phase}, {"sizeBytes", 3 * gib}, {"poolID", "i"}}));
  return volume;
}

TEST(ClaimVolume, FromTheClaimToItsVolume) {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(R"({"parameters":{"csi.storage.k8s.io/fstype":"xfs"},"reclaimPolicy":"Retain","mountOptions":["noatime"]})"), .pools = {a_pool("a", 2 * gib, {"n0"}), a_pool("b", 9 * gib, {"n1"})}, .volume = {}, .persistent = {}};
  ClaimNext next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::MakeVolume);
  EXPECT_EQ(kube::name_of(next.object), "pvc-u1");
  EXPECT_EQ(next.object["spec"]["pool"].string(), "b") << "the one with room";
  EXPECT_EQ(next.object["spec"]["tags"]["pvc/name"].string(), "data");
  seen.volume = next.object;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing) << "it is being made";
  seen.volume = made(next.object, "Available");
  next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::Settle) << "from here on it is the PersistentVolume that says what becomes of it";
  EXPECT_FALSE(next.object["metadata"]["annotations"].has(kProvisioning));
  seen.volume = next.object;
  next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::MakePersistent);
  const Json& spec = next.object["spec"];
  EXPECT_EQ(spec["csi"]["volumeHandle"].string(), "pvc-u1");
  EXPECT_EQ(spec["csi"]["fsType"].string(), "xfs");
  EXPECT_EQ(spec["capacity"]["storage"].string(), "3Gi");
  EXPECT_EQ(spec["persistentVolumeReclaimPolicy"].string(), "Retain");
  EXPECT_EQ(spec["claimRef"]["uid"].string(), "u1");
  EXPECT_EQ(spec["mountOptions"].items()[0].string(), "noatime");
  EXPECT_EQ(spec["nodeAffinity"]["required"]["nodeSelectorTerms"].items()[0]["matchExpressions"].items()[0]["values"].items()[0].string(), "b");
  seen.persistent = next.object;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
}

TEST(ClaimVolume, ABlockDeviceHasNoFileSystem) {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(R"({"parameters":{"csi.storage.k8s.io/fstype":"xfs"},"mountOptions":["noatime"]})"), .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}};
  seen.claim.child("spec").set("volumeMode", "Block");
  seen.volume = made(next_for_claim(seen, now).object, "Available");
  seen.volume = next_for_claim(seen, now).object;
  const Json spec = next_for_claim(seen, now).object["spec"];
  EXPECT_EQ(spec["volumeMode"].string(), "Block");
  EXPECT_FALSE(spec["csi"].has("fsType") || spec.has("mountOptions"));
}

TEST(ClaimVolume, HasTheLimitsOfItsClass) {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(R"({"parameters":{"class":"local-managed","iops":"3000","throughput":"125"}})"), .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}};
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("has no class local-managed"));
  seen.pools[0].classes.push_back(api::kLocalManaged);
  const auto next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::MakeVolume) << next.message;
  const auto made = api::read_volume(next.object);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->iops, 3000);
  EXPECT_EQ(made->throughput, 125 << 20);
}

TEST(ClaimVolume, WaitsForItsPodAndGoesWhereThatIs) {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(R"({"volumeBindingMode":"WaitForFirstConsumer"})"), .pools = {a_pool("a", 4 * gib, {"n0"}), a_pool("b", 9 * gib, {"n1"})}, .volume = {}, .persistent = {}};
  EXPECT_EQ(next_for_claim(seen, now), next_for_claim(seen, now));
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
  seen.claim.child("metadata").set("annotations", Json::object({{"volume.kubernetes.io/selected-node", "n0"}}));
  EXPECT_EQ(next_for_claim(seen, now).object["spec"]["pool"].string(), "a");
  seen.claim.child("metadata").set("annotations", Json::object({{"volume.kubernetes.io/selected-node", "n9"}}));
  const ClaimNext next = next_for_claim(seen, now);
  EXPECT_EQ(next.what, Do::Nothing);
  EXPECT_THAT(next.message, HasSubstr("a is not reached by node n9"));
  EXPECT_TRUE(next.look_again);
}

TEST(ClaimVolume, WhatCannotBeIsTold) {
  const auto told = [](const Json& claim, const Json& of) { return next_for_claim({.claim = claim, .storage_class = of, .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}}, now).message; };
  EXPECT_THAT(told(a_claim("1Gi", "ReadWriteMany"), a_class()), HasSubstr("one node at a time"));
  EXPECT_THAT(told(a_claim("1Gi", "ReadOnlyMany"), a_class()), HasSubstr("say what it is to be a copy of"));
  Json two = a_claim();
  two.child("spec").child("accessModes").push("ReadOnlyMany");
  EXPECT_THAT(told(two, a_class()), HasSubstr("one of ReadWriteOnce, ReadWriteOncePod and ReadOnlyMany"));
  EXPECT_EQ(told(a_claim("1Gi", "ReadWriteOncePod"), a_class()), "");
  EXPECT_THAT(told(a_claim("20Gi"), a_class()), HasSubstr("a has 9 GiB left"));
  EXPECT_THAT(told(a_claim("99Ti"), a_class()), HasSubstr("the most that a volume has"));
  EXPECT_THAT(told(a_claim(), a_class(R"({"parameters":{"fsType":"xfs"}})")), HasSubstr("there is no parameter \"fsType\""));
  EXPECT_THAT(told(a_claim(), a_class(R"({"parameters":{"csi.storage.k8s.io/fstype":"ntfs"}})")), HasSubstr("ext4 or xfs"));
  EXPECT_THAT(told(a_claim(), a_class(R"({"parameters":{"class":"gold"}})")), HasSubstr("there is no \"gold\""));
  EXPECT_THAT(told(a_claim(), a_class(R"({"parameters":{"class":"local-fast","iops":"3000"}})")), HasSubstr("it is of class local-managed"));
  EXPECT_THAT(told(a_claim(), a_class(R"({"parameters":{"class":"local-managed","iops":"few"}})")), HasSubstr("parameter iops"));
  Json other = a_class();
  other.set("provisioner", "ebs.csi.aws.com");
  EXPECT_EQ(told(a_claim(), other), "") << "another's";
  // Small ones are as large as the least.
  EXPECT_EQ(next_for_claim({.claim = a_claim("1Mi"), .storage_class = a_class(), .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}}, now).object["spec"]["size"].string(), "1Gi");
}

Json from(Json claim, const char* field, const char* group, const char* kind, const char* name) {
  Json source = Json::object({{"kind", kind}, {"name", name}});
  if (*group != '\0') source.set("apiGroup", group);
  claim.child("spec").set(field, std::move(source));
  return claim;
}
Json the_snapshot(const char* space, const char* phase = "Ready") {
  Json out = api::new_snapshot("then", "pvc-u0", "b");
  out.child("spec").set("tags", Json::object({{"pvc/namespace", space}, {"pvc/name", "old"}}));
  out.set("status", Json::object({{"phase", phase}, {"sizeBytes", 2 * gib}}));
  return out;
}

TEST(ClaimVolume, BeginsWithASnapshotOfItsNamespaceAlone) {
  for (const char* field : {"dataSource", "dataSourceRef"}) {
    ClaimSeen seen{.claim = from(a_claim(), field, "fairlead.dev", "Snapshot", "then"), .storage_class = a_class(), .pools = {a_pool("a", 50 * gib, {"n0"}), a_pool("b", 9 * gib, {"n1"})}, .volume = {}, .persistent = {}};
    EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("there is no snapshot then"));
    seen.source = the_snapshot("others");
    EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing) << "another namespace's data";
    EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("there is no snapshot then")) << "and nothing is told of it";
    seen.source->child("spec").erase("tags");
    EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing) << "nobody's";
    seen.source = the_snapshot("team", "Taking");
    EXPECT_TRUE(next_for_claim(seen, now).look_again);
    seen.source = the_snapshot("team");
    const ClaimNext next = next_for_claim(seen, now);
    ASSERT_EQ(next.what, Do::MakeVolume) << next.message;
    EXPECT_EQ(next.object["spec"]["source"]["snapshot"].string(), "then");
    EXPECT_EQ(next.object["spec"]["pool"].string(), "b") << "where the snapshot is, whoever has more room";
    EXPECT_EQ(next.object["spec"]["size"].string(), "3Gi");
    seen.claim.child("spec").child("resources").child("requests").set("storage", "1Gi");
    EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("what it is to be a copy of has 2 GiB"));
  }
}

TEST(ClaimVolume, WhatManyReadIsReadOnly) {
  ClaimSeen seen{.claim = from(a_claim("3Gi", "ReadOnlyMany"), "dataSourceRef", "fairlead.dev", "Snapshot", "then"), .storage_class = a_class(), .pools = {a_pool("b", 9 * gib, {"n1"})}, .volume = {}, .persistent = {}, .source_claim = {}, .source = the_snapshot("team")};
  seen.volume = made(next_for_claim(seen, now).object, "Available");
  seen.volume = next_for_claim(seen, now).object;
  const Json persistent = next_for_claim(seen, now).object;
  EXPECT_TRUE(persistent["spec"]["csi"]["readOnly"].boolean());
  EXPECT_TRUE(api::is_read_only(persistent));
}

TEST(ClaimVolume, BeginsWithAnotherClaimsVolume) {
  ClaimSeen seen{.claim = from(a_claim(), "dataSource", "", "PersistentVolumeClaim", "old"), .storage_class = a_class(), .pools = {a_pool("a", 50 * gib, {"n0"}), a_pool("b", 9 * gib, {"n1"})}, .volume = {}, .persistent = {}};
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("there is no claim old in namespace team"));
  seen.source_claim = a_claim();
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("has no volume yet"));
  EXPECT_TRUE(next_for_claim(seen, now).look_again);
  seen.source_claim->child("status").set("phase", "Bound");
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("such alone are copied")) << "a shared directory";
  seen.source = made(api::new_volume("pvc-u0", {.pool = "b", .klass = api::kLocalFast, .size = 3 * gib, .from_volume = {}, .from_snapshot = {}}), "InUse");
  const ClaimNext next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::MakeVolume) << next.message;
  EXPECT_EQ(next.object["spec"]["source"]["volume"].string(), "pvc-u0");
  EXPECT_EQ(next.object["spec"]["pool"].string(), "b");
  seen.storage_class = a_class(R"({"parameters":{"pool":"a"}})");
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("is in pool b"));
  seen.claim = from(a_claim(), "dataSource", "snapshot.storage.k8s.io", "VolumeSnapshot", "x");
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("a Snapshot of apiGroup fairlead.dev, is expected"));
}

TEST(ClaimVolume, OneThatNeverWasIsTriedElsewhere) {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(), .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}};
  seen.volume = next_for_claim(seen, now).object;
  seen.volume->set("status", Json::object({{"phase", "Failed"}, {"message", "3 GiB more: of 2 GiB ..."}}));
  EXPECT_EQ(next_for_claim(seen, now).what, Do::DropVolume);
  // One that the pool made, or may have, is never dropped for that.
  seen.volume->child("status").set("poolID", "i");
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
  for (const char* phase : {"Lost", "Unknown", "Creating"}) {
    seen.volume->set("status", Json::object({{"phase", phase}, {"message", "why"}}));
    EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing) << phase;
  }
}

TEST(ClaimVolume, WhatIsLeftOverIsKnownByWhomItWasMadeFor) {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(), .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}};
  Json volume = next_for_claim(seen, now).object;
  EXPECT_FALSE(is_left_over(volume, seen.claim, false));
  EXPECT_TRUE(is_left_over(volume, std::nullopt, false)) << "the claim went before it was there";
  Json other = seen.claim;
  other.child("metadata").set("uid", "u2");
  EXPECT_TRUE(is_left_over(volume, other, false)) << "another of its name";
  EXPECT_FALSE(is_left_over(volume, std::nullopt, true)) << "the PersistentVolume says";
  volume.child("metadata").child("annotations").erase(kProvisioning);
  EXPECT_FALSE(is_left_over(volume, std::nullopt, false)) << "one that was retained, and whose PersistentVolume was deleted, is somebody's";
}

TEST(ClaimVolume, GrowsWithItsClaim) {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(R"({"allowVolumeExpansion":true})"), .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}};
  seen.volume = made(next_for_claim(seen, now).object, "InUse");
  seen.volume = next_for_claim(seen, now).object;
  seen.persistent = next_for_claim(seen, now).object;
  seen.claim = a_claim("5Gi");
  ClaimNext next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::GrowVolume);
  EXPECT_EQ(next.object["spec"]["size"].string(), "5Gi");
  Json grown = next.object;
  seen.volume = grown;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing) << "it grows";
  grown.child("status").set("sizeBytes", 5 * gib);
  seen.volume = grown;
  next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::GrowPersistent);
  EXPECT_EQ(next.object["spec"]["capacity"]["storage"].string(), "5Gi");
  seen.persistent = next.object;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
  seen.storage_class = a_class();
  seen.claim = a_claim("6Gi");
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("allowVolumeExpansion"));
}

Json attributes(const char* name, const char* parameters, const char* driver = api::kVolumeDriver) { return Json::object({{"metadata", Json::object({{"name", name}})}, {"driverName", driver}, {"parameters", *kube::parse_json(parameters)}}); }
ClaimSeen with_attributes() {
  ClaimSeen seen{.claim = a_claim(), .storage_class = a_class(R"({"parameters":{"class":"local-managed","iops":"3000","throughput":"125"},"allowVolumeExpansion":true})"), .pools = {a_pool("a", 9 * gib, {"n0"})}, .volume = {}, .persistent = {}, .attributes = {}};
  seen.pools[0].classes.push_back(api::kLocalManaged);
  seen.claim.child("spec").set("volumeAttributesClassName", "silver");
  return seen;
}

TEST(ClaimVolume, HasTheAttributesOfItsClassFromTheBeginning) {
  ClaimSeen seen = with_attributes();
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("volumeattributesclass.storage.k8s.io \"silver\" not found"));
  for (const auto& [of, why] : {std::pair(attributes("silver", R"({"iops":"few"})"), "VolumeAttributesClass silver: iops"), {attributes("silver", R"({"type":"io2"})"), "there is no \"type\""}, {attributes("silver", R"({"iops":"500"})", "ebs.csi.aws.com"), "is of driver ebs.csi.aws.com"}}) {
    seen.attributes = of;
    EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
    EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr(why));
  }
  seen.attributes = attributes("silver", R"({"iops":"500","tagSpecification_1":"owner=me"})");
  const ClaimNext next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::MakeVolume) << next.message;
  const auto volume = api::read_volume(next.object);
  ASSERT_TRUE(volume) << volume.error().message;
  EXPECT_EQ(volume->iops, 500) << "before the storage class's";
  EXPECT_EQ(volume->throughput, 125 << 20) << "what it does not name";
  EXPECT_EQ(next.object["spec"]["tags"]["owner"].string(), "me");
  EXPECT_EQ(next.object["spec"]["tags"]["pvc/name"].string(), "data");
  seen.volume = made(next.object, "Available");
  seen.volume = next_for_claim(seen, now).object;
  EXPECT_EQ(next_for_claim(seen, now).object["spec"]["volumeAttributesClassName"].string(), "silver");
  seen.storage_class = a_class(R"({"parameters":{"class":"local-fast"}})");
  seen.volume.reset();
  EXPECT_THAT(next_for_claim(seen, now).message, HasSubstr("class local-fast limits nothing"));
  // A storage class that names no class is of one that can.
  seen.storage_class = a_class();
  EXPECT_EQ(next_for_claim(seen, now).object["spec"]["class"].string(), api::kLocalManaged);
}

TEST(ClaimVolume, TakesOnOtherAttributes) {
  ClaimSeen seen = with_attributes();
  seen.attributes = attributes("silver", R"({"iops":"500"})");
  seen.volume = made(next_for_claim(seen, now).object, "InUse");
  seen.volume = next_for_claim(seen, now).object;
  seen.volume->child("status").set("iops", 500).set("throughputBytes", 125 << 20);
  seen.persistent = next_for_claim(seen, now).object;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
  // Another class, which is not there yet.
  seen.claim.child("spec").set("volumeAttributesClassName", "gold");
  seen.attributes.reset();
  ClaimNext next = next_for_claim(seen, now);
  const auto told = [&](const char* status) {
    ASSERT_EQ(next.what, Do::TellModify) << next.message;
    EXPECT_EQ(next.object["status"]["modifyVolumeStatus"], Json::object({{"targetVolumeAttributesClassName", "gold"}, {"status", status}}));
    seen.claim = next.object;
  };
  told("Pending");
  EXPECT_EQ(next.reason, "VolumeModifyFailed");
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing) << "it is told";
  seen.attributes = attributes("gold", R"({"iops":"1"})");
  next = next_for_claim(seen, now);
  told("Infeasible");
  seen.attributes = attributes("gold", R"({"iops":"9000"})");
  next = next_for_claim(seen, now);
  told("InProgress");
  next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::ModifyVolume);
  EXPECT_EQ(next.object["spec"]["iops"].integer(), 9000);
  seen.volume = next.object;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing) << "it is not in force yet";
  // It grows meanwhile.
  seen.claim.child("spec").child("resources").child("requests").set("storage", "5Gi");
  EXPECT_EQ(next_for_claim(seen, now).what, Do::GrowVolume);
  seen.claim.child("spec").child("resources").child("requests").set("storage", "3Gi");
  const ClaimSeen half = seen;
  seen.volume->child("status").set("iops", 9000);
  next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::ModifyPersistent);
  EXPECT_EQ(next.object["spec"]["volumeAttributesClassName"].string(), "gold");
  EXPECT_EQ(next.reason, "VolumeModifySuccessful");
  seen.persistent = next.object;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
  // Back before it was done: the volume goes back, then nothing is under way any more.
  seen = half;
  seen.claim.child("spec").set("volumeAttributesClassName", "silver");
  seen.attributes = attributes("silver", R"({"iops":"500"})");
  next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::ModifyVolume);
  EXPECT_EQ(next.object["spec"]["iops"].integer(), 500);
  seen.volume = next.object;
  next = next_for_claim(seen, now);
  ASSERT_EQ(next.what, Do::TellModify);
  EXPECT_FALSE(next.object["status"].has("modifyVolumeStatus"));
  seen.claim = next.object;
  EXPECT_EQ(next_for_claim(seen, now).what, Do::Nothing);
}

TEST(ClaimVolume, AVolumeIsDeletedOnlyForAClaimThatHasGone) {
  using To = PersistentNext::Do;
  Json persistent = Json::object({{"spec", Json::object({{"csi", Json::object({{"driver", api::kVolumeDriver}})}, {"persistentVolumeReclaimPolicy", "Delete"}})}, {"status", Json::object({{"phase", "Released"}})}});
  const Json volume = Json::object({{"metadata", Json::object({{"name", "v"}})}});
  EXPECT_EQ(next_for_persistent(persistent, volume).what, To::DeleteVolume);
  EXPECT_EQ(next_for_persistent(persistent, std::nullopt).what, To::DropPersistent);
  for (const char* phase : {"Bound", "Available", "Pending", "Failed"}) {
    persistent.child("status").set("phase", phase);
    EXPECT_EQ(next_for_persistent(persistent, volume).what, To::Nothing) << phase;
  }
  persistent.child("status").set("phase", "Released");
  persistent.child("spec").set("persistentVolumeReclaimPolicy", "Retain");
  EXPECT_EQ(next_for_persistent(persistent, volume).what, To::Nothing);
  persistent.child("spec").set("persistentVolumeReclaimPolicy", "Delete").child("csi").set("driver", "another");
  EXPECT_EQ(next_for_persistent(persistent, volume).what, To::Nothing);
}

}  // namespace
}  // namespace fairlead::storage
