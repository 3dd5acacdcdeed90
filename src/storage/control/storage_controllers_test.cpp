// SPDX-License-Identifier: Apache-2.0
// Claims and pods against a TinyApi, with a death at any write; the pool's daemon and who binds claims are played.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/volume.h"
#include "base/rng.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"
#include "storage/control/claim_volume_controller.h"
#include "storage/control/pod_attach_controller.h"

namespace fairlead::storage {
namespace {

using kube::Json;
using testing::HasSubstr;
namespace resources = kube::resources;

const kube::Resource kClasses{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false};
const kube::Resource kPersistent{"", "v1", "persistentvolumes", "PersistentVolume", false};

const kube::Resource kAttributes{"storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", false};

// An API with one write, the n-th, at which the process dies: before it comes about, or before its answer is heard.
class MortalApi final : public kube::KubeApi {
 public:
  explicit MortalApi(kube::TinyApi& api) : api_(api) {}
  int writes = 0, dies_at = -1;
  bool done_first = false, dead = false;
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override { return api_.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return fail(Code::Unsupported, "no watch"); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override { return write([&] { return api_.create(resource, object); }); }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return write([&] { return api_.update(resource, object); }); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return write([&] { return api_.update_status(resource, object); }); }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource) override { return write([&] { return api_.patch(resource, key, type, patch, subresource); }); }
  Result<Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const Json&) override { return fail(Code::Unsupported, "no post"); }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override { return write([&] { return api_.remove(resource, key, options); }); }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return fail(Code::Unsupported, "no exec"); }

 private:
  template <class Work>
  std::invoke_result_t<Work> write(Work work) {
    const bool now = writes++ == dies_at;
    if (dead || (now && !done_first)) return dead = true, fail(Code::Unavailable, "died");
    auto done = work();
    if (now) return dead = true, fail(Code::Unavailable, "died");
    return done;
  }
  kube::TinyApi& api_;
};

struct Site {
  kube::TinyApi api;
  MortalApi mortal{api};
  ManualClock clock{*parse_time("2026-11-27T12:00:00Z")};
  ClaimVolumeController claims{mortal, clock};
  PodAttachController pods{mortal, clock};
  Site() {
    claims.start(api);
    pods.start(api);
    put(kClasses, Json::object({{"metadata", Json::object({{"name", "fast"}})}, {"provisioner", api::kVolumeDriver}, {"reclaimPolicy", "Delete"}}));
    put(api::kVolumePools, Json::object({{"metadata", Json::object({{"name", "here"}})}, {"status", Json::object({{"id", "i"}, {"limit", "100Gi"}, {"promised", "0"}, {"classes", Json::array({Json(api::kLocalFast)})}, {"nodes", Json::array({Json("n0"), Json("n1")})}, {"heard", "2026-11-27T12:00:00Z"}})}}));
    for (const char* name : {"n0", "n1", "n2"}) put(resources::nodes, Json::object({{"metadata", Json::object({{"name", name}})}}));
  }
  void put(const kube::Resource& resource, const Json& object) { ASSERT_TRUE(api.create(resource, object)); }
  void claim(const char* name, const char* mode = "ReadWriteOnce") {
    put(resources::claims, Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "team"}})}, {"spec", Json::object({{"accessModes", Json::array({Json(mode)})}, {"storageClassName", "fast"}, {"resources", Json::object({{"requests", Json::object({{"storage", "1Gi"}})}})}})}, {"status", Json::object({{"phase", "Pending"}})}}));
  }
  void pod(const char* name, const char* node, const char* claim) {
    put(resources::pods, Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "team"}})}, {"spec", Json::object({{"nodeName", node}, {"volumes", Json::array({Json::object({{"name", "v"}, {"persistentVolumeClaim", Json::object({{"claimName", claim}})}})})}})}, {"status", Json::object({{"phase", "Running"}})}}));
  }
  // The daemon of the pool, and who binds.
  void world() {
    for (auto [key, volume] : std::map(api.all("volumes"))) {
      if (kube::deleting(volume)) {
        bool attached = false;
        for (const auto& [at, one] : api.all("attachments")) attached = attached || one["spec"]["volume"].string() == key.name;
        if (attached) continue;
        kube::remove_finalizer(volume, api::kVolumeFinalizer);
      } else {
        volume.set("status", Json::object({{"phase", "Available"}, {"poolID", "i"}, {"sizeBytes", api::parse_volume_size(volume["spec"]["size"]).value()}, {"iops", volume["spec"]["iops"].integer()}}));
      }
      (void)api.put(api::kVolumes, volume);
    }
    for (auto [key, one] : std::map(api.all("attachments"))) {
      if (kube::deleting(one)) kube::remove_finalizer(one, api::kVolumeFinalizer);
      else one.set("status", Json::object({{"phase", "Attached"}, {"device", "/dev/loop0"}}));
      (void)api.put(api::kAttachments, one);
    }
    for (auto [key, persistent] : std::map(api.all("persistentvolumes"))) {
      const Json& reference = persistent["spec"]["claimRef"];
      const auto claim = api.get(resources::claims, {reference["namespace"].string(), reference["name"].string()});
      const bool there = claim && kube::uid_of(*claim) == reference["uid"].string();
      persistent.set("status", Json::object({{"phase", there ? "Bound" : "Released"}}));
      (void)api.put(kPersistent, persistent);
      if (!there) continue;
      Json bound = *claim;
      bound.child("spec").set("volumeName", key.name);
      bound.child("status").set("phase", "Bound");
      if (const Json& attributes = persistent["spec"]["volumeAttributesClassName"]; attributes.is_string()) {
        bound.child("status").set("currentVolumeAttributesClassName", attributes);
        if (bound["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"] == attributes) bound.child("status").erase("modifyVolumeStatus");
      }
      (void)api.put(resources::claims, bound);
    }
  }
  void settle() {
    for (int i = 0; i < 8; ++i) {
      for (const auto& [key, one] : std::map(api.all("persistentvolumeclaims"))) (void)claims.reconcile(key);
      for (const auto& [key, one] : std::map(api.all("persistentvolumes"))) (void)claims.reconcile(key), (void)pods.reconcile(key);
      for (const char* node : {"n0", "n1", "n2"}) (void)pods.reconcile({"", std::string("node/") + node});
      if (mortal.dead) mortal.dead = false;  // begun anew: they remember nothing
      world();
    }
  }
  std::vector<std::string> attached() {
    std::vector<std::string> out;
    for (const auto& [key, one] : api.all("attachments")) out.push_back(one["spec"]["node"].string());
    return out;
  }
  std::string events() {
    std::string out;
    for (const auto& [key, one] : api.all("events")) out += one["reason"].string() + ": " + one["message"].string() + "\n";
    return out;
  }
};

TEST(StorageControllers, AClaimIsAVolumeThatFollowsItsPods) {
  Site site;
  site.claim("data");
  site.settle();
  ASSERT_EQ(site.api.all("volumes").size(), 1u);
  EXPECT_EQ(site.api.all("persistentvolumeclaims").begin()->second["status"]["phase"].string(), "Bound");
  EXPECT_THAT(site.attached(), testing::IsEmpty()) << "nobody uses it";
  site.pod("one", "n0", "data");
  site.settle();
  EXPECT_THAT(site.attached(), testing::ElementsAre("n0"));
  site.pod("two", "n1", "data");
  site.settle();
  EXPECT_THAT(site.attached(), testing::ElementsAre("n0")) << "one node at a time";
  EXPECT_THAT(site.events(), HasSubstr("FailedAttachVolume: Multi-Attach error"));
  ASSERT_TRUE(site.api.remove(resources::pods, {"team", "one"}));
  site.settle();
  EXPECT_THAT(site.attached(), testing::ElementsAre("n1"));
  // A pod that has ended needs it no more.
  Json two = site.api.get(resources::pods, {"team", "two"}).value();
  two.child("status").set("phase", "Succeeded");
  ASSERT_TRUE(site.api.put(resources::pods, two));
  site.settle();
  EXPECT_THAT(site.attached(), testing::IsEmpty());
  ASSERT_TRUE(site.api.remove(resources::claims, {"team", "data"}));
  site.settle();
  EXPECT_TRUE(site.api.all("volumes").empty());
  EXPECT_TRUE(site.api.all("persistentvolumes").empty());
}

TEST(StorageControllers, AnAttachmentThatSomebodyElseMadeStays) {
  Site site;
  site.claim("data");
  site.settle();
  const std::string volume = kube::name_of(site.api.all("volumes").begin()->second);
  Json others = api::new_attachment(volume, "here", "n1", false);
  others.child("metadata").set("labels", Json::object({{api::kForPods, "csi"}}));
  site.put(api::kAttachments, others);
  site.settle();
  EXPECT_THAT(site.attached(), testing::ElementsAre("n1"));
  site.pod("one", "n0", "data");
  site.settle();
  EXPECT_THAT(site.attached(), testing::ElementsAre("n1"));
  EXPECT_THAT(site.events(), HasSubstr("it is attached to node n1"));
}

TEST(StorageControllers, NodesTellWhichPoolTheyReach) {
  Site site;
  site.settle();
  const auto label = [&](const char* node) { return site.api.get(resources::nodes, {"", node}).value()["metadata"]["labels"][api::kPoolLabel].string(); };
  EXPECT_EQ(label("n0"), "here");
  EXPECT_EQ(label("n2"), "");
  Json pool = site.api.get(api::kVolumePools, {"", "here"}).value();
  pool.child("status").set("nodes", Json::array({Json("n2")}));
  ASSERT_TRUE(site.api.put(api::kVolumePools, pool));
  site.settle();
  EXPECT_EQ(label("n0"), "");
  EXPECT_EQ(label("n2"), "here");
}

// A pool that comes under an earlier name does not take a node's label from what was made there.
TEST(StorageControllers, NodesTellAllPoolsThatTheyReach) {
  Site site;
  site.settle();
  const auto label = [&](const std::string& key) { return site.api.get(resources::nodes, {"", "n0"}).value()["metadata"]["labels"][key].string(); };
  ASSERT_EQ(label(api::kPoolLabel), "here");
  Json other = site.api.get(api::kVolumePools, {"", "here"}).value();
  other.child("metadata").set("name", "far").set("uid", "u-far");
  site.put(api::kVolumePools, other);
  site.settle();
  EXPECT_EQ(label(api::kPoolLabel), "here");
  EXPECT_EQ(label("pool.fairlead.dev/far"), "true");
  EXPECT_EQ(label("pool.fairlead.dev/here"), "");
  // The first one goes: the other is the first, and under no label twice.
  ASSERT_TRUE(site.api.remove(api::kVolumePools, {"", "here"}));
  site.settle();
  EXPECT_EQ(label(api::kPoolLabel), "far");
  EXPECT_EQ(label("pool.fairlead.dev/far"), "");
  ASSERT_TRUE(site.api.remove(api::kVolumePools, {"", "far"}));
  site.settle();
  EXPECT_EQ(label(api::kPoolLabel), "");
}

TEST(StorageControllers, AClaimThatGoesBeforeItsVolumeIsThereLeavesNone) {
  Site site;
  site.claim("data");
  (void)site.claims.reconcile({"team", "data"});
  ASSERT_EQ(site.api.all("volumes").size(), 1u);
  const std::string volume = kube::name_of(site.api.all("volumes").begin()->second);
  (void)site.claims.reconcile({"", volume});
  EXPECT_EQ(site.api.all("volumes").size(), 1u) << "its claim is there";
  ASSERT_TRUE(site.api.remove(resources::claims, {"team", "data"}));
  (void)site.claims.reconcile({"", volume});
  site.settle();
  EXPECT_TRUE(site.api.all("volumes").empty());
}

TEST(StorageControllers, ARetainedVolumeWhosePersistentVolumeWasDeletedStays) {
  Site site;
  Json of = site.api.get(kClasses, {"", "fast"}).value();
  of.set("reclaimPolicy", "Retain");
  ASSERT_TRUE(site.api.put(kClasses, of));
  site.claim("data");
  site.settle();
  const std::string volume = kube::name_of(site.api.all("volumes").begin()->second);
  ASSERT_TRUE(site.api.remove(resources::claims, {"team", "data"}));
  site.settle();
  site.api.all("persistentvolumes").clear();
  (void)site.claims.reconcile({"", volume});
  site.settle();
  EXPECT_EQ(site.api.all("volumes").size(), 1u);
}

TEST(StorageControllers, ASecondPersistentVolumeOfAVolumeTakesNothingAway) {
  Site site;
  Json of = site.api.get(kClasses, {"", "fast"}).value();
  of.set("reclaimPolicy", "Retain");
  ASSERT_TRUE(site.api.put(kClasses, of));
  site.claim("data");
  site.settle();
  Json again = site.api.all("persistentvolumes").begin()->second;
  ASSERT_TRUE(site.api.remove(resources::claims, {"team", "data"}));
  site.claim("more");
  again.set("metadata", Json::object({{"name", "again"}})).child("spec").set("claimRef", Json::object({{"namespace", "team"}, {"name", "more"}, {"uid", kube::uid_of(site.api.get(resources::claims, {"team", "more"}).value())}}));
  Json more = site.api.get(resources::claims, {"team", "more"}).value();
  more.child("spec").set("volumeName", "again");
  ASSERT_TRUE(site.api.put(resources::claims, more));
  site.put(kPersistent, again);
  site.pod("one", "n0", "more");
  for (int i = 0; i < 4; ++i) {
    site.settle();
    ASSERT_THAT(site.attached(), testing::ElementsAre("n0")) << i;
    EXPECT_FALSE(kube::deleting(site.api.all("attachments").begin()->second)) << i;
  }
}

TEST(StorageControllers, PodsOfSeveralNodesReadWhatNobodyWrites) {
  Site site;
  site.claim("data");
  site.settle();
  Json many = *kube::parse_json(R"({"metadata": {"name": "many", "namespace": "team"}, "spec": {"accessModes": ["ReadOnlyMany"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}, "dataSource": {"kind": "PersistentVolumeClaim", "name": "data"}}, "status": {"phase": "Pending"}})");
  site.put(resources::claims, many);
  site.pod("one", "n0", "many");
  site.pod("two", "n1", "many");
  site.settle();
  EXPECT_THAT(site.attached(), testing::ElementsAre("n0", "n1"));
  for (const auto& [key, one] : site.api.all("attachments")) EXPECT_TRUE(one["spec"]["readOnly"].boolean() && one["spec"]["replayLog"].boolean()) << key.name;
  ASSERT_TRUE(site.api.remove(resources::pods, {"team", "one"}));
  site.settle();
  EXPECT_THAT(site.attached(), testing::ElementsAre("n1"));
}

TEST(StorageControllers, OnePodAloneHasAVolumeOfReadWriteOncePod) {
  Site site;
  site.claim("data", "ReadWriteOncePod");
  site.settle();
  site.pod("one", "n0", "data");
  site.pod("two", "n0", "data");
  site.settle();
  ASSERT_THAT(site.attached(), testing::ElementsAre("n0"));
  const auto holder = [&] { return site.api.all("attachments").begin()->second["metadata"]["annotations"][api::kForPod].string(); };
  EXPECT_EQ(holder(), kube::uid_of(site.api.get(resources::pods, {"team", "one"}).value()));
  EXPECT_THAT(site.events(), HasSubstr("uses the ReadWriteOncePod access mode and is already in use by pod \"one\""));
  ASSERT_TRUE(site.api.remove(resources::pods, {"team", "one"}));
  site.settle();
  EXPECT_EQ(holder(), kube::uid_of(site.api.get(resources::pods, {"team", "two"}).value()));
}

// A claim's whole life: made, attached, given other attributes, grown, read from elsewhere, and gone.
std::string life(int dies_at, bool done_first, bool& died) {
  Site site;
  std::string out;
  const auto look = [&] {
    site.settle();
    for (const char* plural : {"volumes", "persistentvolumes", "attachments"})
      for (const auto& [key, one] : site.api.all(plural)) out += key.name + " " + kube::print_json(one["spec"]) + (kube::deleting(one) ? " going\n" : "\n");
    for (const auto& [key, one] : site.api.all("persistentvolumeclaims")) out += key.name + " " + kube::print_json(one["status"]) + "\n";
  };
  Json of = site.api.get(kClasses, {"", "fast"}).value();
  of.set("parameters", Json::object({{"class", api::kLocalManaged}})).set("allowVolumeExpansion", true);
  EXPECT_TRUE(site.api.put(kClasses, of));
  Json pool = site.api.get(api::kVolumePools, {"", "here"}).value();
  pool.child("status").child("classes").push(api::kLocalManaged);
  EXPECT_TRUE(site.api.put(api::kVolumePools, pool));
  for (const auto& [name, iops] : {std::pair("silver", "500"), {"gold", "9000"}}) site.put(kAttributes, Json::object({{"metadata", Json::object({{"name", name}})}, {"driverName", api::kVolumeDriver}, {"parameters", Json::object({{"iops", iops}})}}));
  const auto change = [&](const char* field, Json value) {
    Json claim = site.api.get(resources::claims, {"team", "data"}).value();
    claim.child("spec").set(field, std::move(value));
    EXPECT_TRUE(site.api.put(resources::claims, claim));
  };
  site.claim("data");
  change("volumeAttributesClassName", "silver");
  site.mortal.dies_at = dies_at, site.mortal.done_first = done_first;
  look();
  site.pod("one", "n0", "data");
  look();
  change("volumeAttributesClassName", "gold");
  change("resources", Json::object({{"requests", Json::object({{"storage", "2Gi"}})}}));
  look();
  EXPECT_TRUE(site.api.remove(resources::pods, {"team", "one"}));
  site.pod("two", "n1", "data");
  look();
  EXPECT_TRUE(site.api.remove(resources::pods, {"team", "two"}));
  EXPECT_TRUE(site.api.remove(resources::claims, {"team", "data"}));
  look();
  died = site.mortal.writes > dies_at;
  // The versions in claimRef move with each write.
  std::string plain;
  for (std::size_t at = 0; at < out.size();) {
    const auto found = out.find("\"resourceVersion\":\"", at);
    plain += out.substr(at, found == out.npos ? out.npos : found - at);
    at = found == out.npos ? out.size() : out.find('"', found + 19) + 1;
  }
  return plain;
}

TEST(StorageControllers, EndedAtAnyWriteTheyComeToTheSameEnd) {
  bool died = false;
  const std::string whole = life(-1, false, died);
  EXPECT_THAT(whole, HasSubstr("\"currentVolumeAttributesClassName\":\"gold\""));
  EXPECT_THAT(whole, HasSubstr("\"iops\":9000"));
  EXPECT_THAT(whole, HasSubstr("\"size\":\"2Gi\""));
  int deaths = 0;
  for (const bool done_first : {false, true}) {
    died = true;
    for (int at = 0; died && at < 200; ++at) {
      EXPECT_EQ(life(at, done_first, died), whole) << "write " << at << (done_first ? ", which was done" : "");
      deaths += died ? 1 : 0;
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(deaths, 30);
}

TEST(StorageControllers, AClaimOfTheSameNameHasAVolumeOfItsOwn) {
  Site site;
  site.claim("data");
  site.settle();
  const std::string first = kube::name_of(site.api.all("volumes").begin()->second);
  ASSERT_TRUE(site.api.remove(resources::claims, {"team", "data"}));
  site.claim("data");
  site.settle();
  ASSERT_EQ(site.api.all("volumes").size(), 1u);
  EXPECT_NE(kube::name_of(site.api.all("volumes").begin()->second), first);
}

}  // namespace
}  // namespace fairlead::storage
