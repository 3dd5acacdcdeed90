// SPDX-License-Identifier: Apache-2.0
// The controllers on the real registry, stepped by hand: reconcile until nothing changes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "apiserver/api_controllers.h"
#include "apiserver/api_service_controller.h"
#include "apiserver/claim_controller.h"
#include "apiserver/crd_controller.h"
#include "apiserver/event_controller.h"
#include "apiserver/gc_controller.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/namespace_controller.h"
#include "apiserver/registry_test_kit.h"
#include "base/files.h"

namespace fairlead::apiserver::test {
namespace {

using testing::ElementsAre;
using Propagation = kube::DeleteOptions::Propagation;

TEST(ApiService, IsThereAndStaysAsItIs) {
  World world;
  const ApiServiceOptions options{.service_address = api_service_address({"fd00:79::/112", "10.79.0.0/16"}), .address = "10.77.0.1", .port = 6443};
  EXPECT_EQ(options.service_address, "10.79.0.1");
  EXPECT_EQ(api_service_address({}), "");
  ApiServiceController controller(*world.api, options);
  const kube::ObjectKey key{"default", "kubernetes"};
  const auto look = [&] {
    const auto next = controller.reconcile(key);
    if (!next) ADD_FAILURE() << next.error().message;
    return std::pair(world.get(*world.kind("services"), key), world.get(*world.kind("endpointslices", "discovery.k8s.io"), key));
  };
  const auto [service, slice] = look();
  EXPECT_EQ(service["spec"]["clusterIP"].string(), "10.79.0.1");
  EXPECT_EQ(service["spec"]["ports"], json("[{name: https, protocol: TCP, port: 443, targetPort: 6443}]"));
  EXPECT_EQ(slice["endpoints"], json("[{addresses: [10.77.0.1], conditions: {ready: true}}]"));
  EXPECT_EQ(slice["metadata"]["labels"], json("{kubernetes.io/service-name: kubernetes}"));
  const Revision quiet = world.registry->revision();
  look();
  EXPECT_EQ(world.registry->revision(), quiet);

  world.must(world.patch(*world.kind("services"), key, "{spec: {selector: {app: thief}, ports: [{name: https, port: 443, targetPort: 1}]}}"));
  world.must(world.remove(*world.kind("endpointslices", "discovery.k8s.io"), key));
  const auto [again, slice_again] = look();
  EXPECT_FALSE(again["spec"].has("selector"));
  EXPECT_EQ(again["spec"]["ports"], service["spec"]["ports"]);
  EXPECT_EQ(slice_again["endpoints"], slice["endpoints"]);
}

struct GcWorld : World {
  GcWorld() : collector(*registry, *api) { settle(); }
  void settle() {
    for (int round = 0; round < 20; ++round) {
      const Revision before = registry->revision();
      const auto next = collector.reconcile({"", "collect"});
      if (!next) ADD_FAILURE() << next.error().message;
      if (before == registry->revision() && collector.idle()) return;
    }
  }
  Json map(const std::string& name, const std::vector<Json>& owners = {}, std::string_view finalizers = "[]") {
    Json body = json(fmt::format("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {}, namespace: default, finalizers: {}}}}}", name, finalizers));
    for (const Json& owner : owners) body.child("metadata").child("ownerReferences").push(kube::owner_reference(owner).set("controller", false));
    auto made = api->create(kube::resources::config_maps, body);
    if (!made) ADD_FAILURE() << made.error().message;
    return made ? std::move(*made) : Json();
  }
  std::vector<std::string> maps() const {
    std::vector<std::string> out;
    const auto list = api->list(kube::resources::config_maps, "default");
    for (const Json& one : list->items) out.push_back(kube::name_of(one));
    return out;
  }
  void remove_map(const std::string& name, Propagation propagation = Propagation::Background) {
    const auto done = api->remove(kube::resources::config_maps, {"default", name}, {.propagation = propagation});
    if (!done) ADD_FAILURE() << done.error().message;
    settle();
  }
  GcController collector;
};

TEST(Gc, DependentsFollowTheirOwnerDownToTheLast) {
  GcWorld world;
  const Json a = world.map("a"), b = world.map("b", {a});
  world.map("c", {b});
  world.map("free");
  world.settle();
  EXPECT_THAT(world.maps(), ElementsAre("a", "b", "c", "free"));
  world.remove_map("a");
  EXPECT_THAT(world.maps(), ElementsAre("free"));
}

TEST(Gc, OneLivingOwnerIsEnough) {
  GcWorld world;
  const Json a = world.map("a"), b = world.map("b");
  world.map("c", {a, b});
  world.remove_map("a");
  EXPECT_THAT(world.maps(), ElementsAre("b", "c"));
  EXPECT_EQ(world.get(*world.kind("configmaps"), {"default", "c"})["metadata"]["ownerReferences"].items().size(), 1u);
  world.remove_map("b");
  EXPECT_TRUE(world.maps().empty());
}

TEST(Gc, AnOwnerOfTheSameNameIsAnother) {
  GcWorld world;
  const Json old = world.map("a");
  world.map("b", {old});
  ASSERT_TRUE(world.api->remove(kube::resources::config_maps, {"default", "a"}));
  world.map("a");
  world.settle();
  EXPECT_THAT(world.maps(), ElementsAre("a"));
}

TEST(Gc, WhatCannotBeKnownIsKept) {
  GcWorld world;
  Json strange = Json::object({{"apiVersion", "sea.example.org/v1"}, {"kind", "Boat"}, {"metadata", json("{name: x, uid: u}")}});
  world.map("a", {strange});
  world.settle();
  EXPECT_THAT(world.maps(), ElementsAre("a"));
}

TEST(Gc, OrphansAreCutLoose) {
  GcWorld world;
  const Json a = world.map("a");
  world.map("b", {a});
  world.settle();
  world.remove_map("a", Propagation::Orphan);
  EXPECT_THAT(world.maps(), ElementsAre("b"));
  EXPECT_FALSE(world.get(*world.kind("configmaps"), {"default", "b"})["metadata"].has("ownerReferences"));
}

TEST(Gc, ForegroundWaitsForWhatBlocks) {
  GcWorld world;
  const Json a = world.map("a");
  world.map("b", {a}, "[x.io/hold]");
  world.map("c", {a});
  for (int i = 0; i < 3; ++i) (void)world.collector.reconcile({"", "collect"});
  ASSERT_TRUE(world.api->remove(kube::resources::config_maps, {"default", "a"}, {.propagation = Propagation::Foreground}));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(world.collector.reconcile({"", "collect"}));
  EXPECT_THAT(world.maps(), ElementsAre("a", "b"));
  EXPECT_TRUE(kube::deleting(world.get(*world.kind("configmaps"), {"default", "b"})));
  world.must(world.patch(*world.kind("configmaps"), {"default", "b"}, "{metadata: {finalizers: []}}"));
  world.settle();
  EXPECT_TRUE(world.maps().empty());
}

TEST(Gc, FollowsKindsThatCome) {
  GcWorld world;
  const Json crd = json(R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.sea.example.org}
spec:
  group: sea.example.org
  scope: Namespaced
  names: {plural: boats, kind: Boat}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
)");
  ASSERT_TRUE(world.api->create(kube::resources::crds, crd));
  const kube::Resource boats{"sea.example.org", "v1", "boats", "Boat", true};
  const auto boat = world.api->create(boats, json("{metadata: {name: x, namespace: default}}"));
  ASSERT_TRUE(boat) << boat.error().message;
  world.map("a", {*boat});
  world.settle();
  EXPECT_THAT(world.maps(), ElementsAre("a"));
  ASSERT_TRUE(world.api->remove(boats, {"default", "x"}));
  world.settle();
  EXPECT_TRUE(world.maps().empty());

  ASSERT_TRUE(world.api->create(boats, json("{metadata: {name: z, namespace: default}}")));
  CrdController definitions(*world.registry, *world.api);
  ASSERT_TRUE(world.api->remove(kube::resources::crds, {"", "boats.sea.example.org"}));
  ASSERT_TRUE(definitions.reconcile({"", "boats.sea.example.org"}));
  EXPECT_EQ(world.api->get(kube::resources::crds, {"", "boats.sea.example.org"}).error().code, Code::NotFound);
  EXPECT_FALSE(world.store->get("/sea.example.org/boats/default/z"));
}

TEST(Namespaces, GetAServiceAccountAndGoEmpty) {
  World world;
  NamespaceController controller(*world.registry, *world.api, world.clock);
  ASSERT_TRUE(world.api->create(kube::resources::namespaces, json("{metadata: {name: team}}")));
  ASSERT_TRUE(controller.reconcile({"", "team"}));
  ASSERT_TRUE(controller.reconcile({"", "team"}));
  EXPECT_TRUE(world.api->get(kube::resources::service_accounts, {"team", "default"}));
  world.must(world.create("pods", "{metadata: {name: p}, spec: {nodeName: n1, containers: [{name: c, image: i}]}}", "team"));
  world.must(world.create("secrets", "{metadata: {name: s}}", "team"));
  ASSERT_TRUE(world.api->remove(kube::resources::namespaces, {"", "team"}));
  const auto waiting = controller.reconcile({"", "team"});
  ASSERT_TRUE(waiting) << waiting.error().message;
  EXPECT_TRUE(waiting->again_after.has_value());  // the pod ends on its node
  const Json space = *world.api->get(kube::resources::namespaces, {"", "team"});
  EXPECT_EQ((*kube::find_condition(space, "NamespaceContentRemaining"))["message"].string(), "Some resources are remaining: pods. has 1 resource instances");
  EXPECT_EQ((*kube::find_condition(space, "NamespaceFinalizersRemaining"))["reason"].string(), "ContentHasNoFinalizers");
  EXPECT_FALSE(world.api->get(kube::resources::secrets, {"team", "s"}));
  ASSERT_TRUE(world.api->remove(kube::resources::pods, {"team", "p"}, {.grace_seconds = 0}));
  const auto done = controller.reconcile({"", "team"});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(done->again_after.has_value());
  EXPECT_EQ(world.api->get(kube::resources::namespaces, {"", "team"}).error().code, Code::NotFound);
}

struct ClaimWorld : World {
  ClaimWorld() : folder(make()), controller(*api, clock, folder) {}
  ~ClaimWorld() { EXPECT_TRUE(remove_tree(folder)); }
  static std::string make() {
    std::string name = testing::TempDir() + "fairlead-claims-XXXXXX";
    INVARIANT(::mkdtemp(name.data()) != nullptr);
    return name;
  }
  Json volume(const std::string& name) const { return get(*kind("persistentvolumes"), {"", name}); }
  Json claim(std::string_view annotations = "{}", std::string_view more = "") {
    const Json body = json(fmt::format("{{metadata: {{name: home, namespace: default, annotations: {}}}, spec: {{{}accessModes: [ReadWriteMany], resources: {{requests: {{storage: 1Gi}}}}}}}}", annotations, more));
    EXPECT_TRUE(api->create(kube::resources::claims, body));
    EXPECT_TRUE(controller.reconcile({"default", "home"}));
    return *api->get(kube::resources::claims, {"default", "home"});
  }
  void remove() {
    EXPECT_TRUE(api->remove(kube::resources::claims, {"default", "home"}));
    EXPECT_TRUE(controller.reconcile({"default", "home"}));
  }
  std::string folder;
  ClaimController controller;
};

TEST(Claims, AreBoundToADirectory) {
  ClaimWorld world;
  const Json claim = world.claim();
  EXPECT_EQ(claim["status"], json("{phase: Bound, accessModes: [ReadWriteMany], capacity: {storage: 1Gi}}"));
  const std::string path = claim["metadata"]["annotations"]["fairlead.dev/path"].string();
  EXPECT_EQ(path, "default/home-" + kube::uid_of(claim));
  struct stat info{};
  ASSERT_EQ(::stat((world.folder + "/" + path).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  const Revision before = world.registry->revision();
  EXPECT_TRUE(world.controller.reconcile({"default", "home"}));
  EXPECT_EQ(world.registry->revision(), before);
}

// The class of a claim decides when its volume is made and what becomes of it.
TEST(Claims, OfAClassAreBoundToAVolume) {
  for (const bool keep : {false, true}) {
    SCOPED_TRACE(keep ? "Retain" : "Delete");
    ClaimWorld world;
    world.must(world.create(*world.kind("storageclasses", "storage.k8s.io"),
                            json(fmt::format("{{metadata: {{name: fast, annotations: {{storageclass.kubernetes.io/is-default-class: 'true'}}}}, provisioner: fairlead.dev/directory, reclaimPolicy: {}}}",
                                             keep ? "Retain" : "Delete")), ""));
    const Json claim = world.claim();
    EXPECT_EQ(claim["spec"]["storageClassName"].string(), "fast") << "the default class";
    const std::string volume_name = "pvc-" + kube::uid_of(claim), path = world.folder + "/" + claim["metadata"]["annotations"]["fairlead.dev/path"].string();
    EXPECT_EQ(claim["spec"]["volumeName"].string(), volume_name);
    EXPECT_EQ(world.volume(volume_name)["status"]["phase"].string(), "Bound");
    EXPECT_EQ(world.volume(volume_name)["spec"]["hostPath"]["path"].string(), path);
    ASSERT_TRUE(world.api->remove(workloads::volumes, {"", volume_name}));
    ASSERT_TRUE(world.controller.reconcile({"", volume_name}));
    EXPECT_EQ(world.volume(volume_name)["status"]["phase"].string(), "Bound") << "a claim has it";
    if (keep) continue;
    world.remove();
    ASSERT_TRUE(world.controller.reconcile({"", volume_name}));
    EXPECT_TRUE(world.volume(volume_name).is_null());
    EXPECT_FALSE(exists(path));
  }
}

TEST(Claims, AReleasedVolumeServesAgainWhenItIsFreed) {
  ClaimWorld world;
  world.must(world.create(*world.kind("storageclasses", "storage.k8s.io"), json("{metadata: {name: kept}, provisioner: fairlead.dev/directory, reclaimPolicy: Retain}"), ""));
  const Json first = world.claim("{}", "storageClassName: kept, ");
  const std::string name = first["spec"]["volumeName"].string();
  world.remove();
  ASSERT_TRUE(world.controller.reconcile({"", name}));
  EXPECT_EQ(world.volume(name)["status"]["phase"].string(), "Released");
  world.must(world.patch(*world.kind("persistentvolumes"), {"", name}, "{spec: {claimRef: null}}"));
  ASSERT_TRUE(world.controller.reconcile({"", name}));
  EXPECT_EQ(world.volume(name)["status"]["phase"].string(), "Available");
  const Json second = world.claim("{}", "storageClassName: kept, ");
  EXPECT_EQ(second["spec"]["volumeName"].string(), name);
  EXPECT_EQ(second["metadata"]["annotations"]["fairlead.dev/path"], first["metadata"]["annotations"]["fairlead.dev/path"]);
}

TEST(Claims, AVolumeThatWasKeptForAClaimNamesItWhenItIsBound) {
  ClaimWorld world;
  world.must(world.create(*world.kind("persistentvolumes"),
                          json(fmt::format("{{metadata: {{name: kept}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteMany], claimRef: {{namespace: default, name: home}}, "
                                           "hostPath: {{path: {}/kept}}}}}}", world.folder)), ""));
  const Json claim = world.claim();
  EXPECT_EQ(claim["spec"]["volumeName"].string(), "kept");
  EXPECT_EQ(world.volume("kept")["spec"]["claimRef"]["uid"].string(), kube::uid_of(claim));
}

TEST(Claims, ThatAreToBeginAsACopyAreNotGivenWhatIsFree) {
  for (const bool copy : {false, true}) {
    ClaimWorld world;
    world.must(world.create(*world.kind("persistentvolumes"), json(fmt::format("{{metadata: {{name: free}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteMany], hostPath: {{path: {}/free}}}}}}", world.folder)), ""));
    const Json claim = world.claim("{}", copy ? "dataSource: {kind: PersistentVolumeClaim, name: other}, " : "");
    EXPECT_EQ(claim["status"]["phase"].string(), copy ? "Pending" : "Bound");
    EXPECT_EQ(claim["spec"]["volumeName"].string(), copy ? "" : "free");
    EXPECT_EQ(exists(world.folder + "/default"), false) << "and no directory is made in its place";
  }
}

TEST(Claims, TellWhichAttributesTheirVolumeHas) {
  ClaimWorld world;
  const auto volumes = world.kind("persistentvolumes"), claims = world.kind("persistentvolumeclaims");
  world.must(world.create(*volumes, json("{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], storageClassName: fast, volumeAttributesClassName: silver, csi: {driver: csi.fairlead.dev, volumeHandle: v}}}"), ""));
  EXPECT_EQ(world.claim("{}", "storageClassName: fast, volumeName: v, volumeAttributesClassName: silver, ")["status"]["currentVolumeAttributesClassName"].string(), "silver");
  const auto now = [&] {
    EXPECT_TRUE(world.controller.reconcile({"default", "home"}));
    return (*world.api->get(kube::resources::claims, {"default", "home"}))["status"];
  };
  world.must(world.patch(*claims, {"default", "home"}, "{spec: {volumeAttributesClassName: gold}}"));
  Json claim = *world.api->get(kube::resources::claims, {"default", "home"});
  const Json under_way = json("{targetVolumeAttributesClassName: gold, status: InProgress}");
  claim.child("status").set("modifyVolumeStatus", under_way);
  ASSERT_TRUE(world.api->update_status(kube::resources::claims, claim));
  EXPECT_EQ(now()["modifyVolumeStatus"], under_way) << "who changes it tells";
  world.must(world.patch(*volumes, {"", "v"}, "{spec: {volumeAttributesClassName: gold}}"));
  EXPECT_EQ(now(), json("{phase: Bound, accessModes: [ReadWriteMany], capacity: {storage: 1Gi}, currentVolumeAttributesClassName: gold}"));
  const auto refused = world.patch(*claims, {"default", "home"}, "{spec: {volumeAttributesClassName: null}}");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("update from non-nil value to nil is forbidden"), std::string::npos) << refused.error().message;
}

TEST(Claims, OfAnotherModeAreNotBound) {
  ClaimWorld world;
  world.must(world.create(*world.kind("persistentvolumes"), json("{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], volumeMode: Block, storageClassName: fast, csi: {driver: csi.fairlead.dev, volumeHandle: v}}}"), ""));
  EXPECT_EQ(world.claim("{}", "storageClassName: fast, ")["status"]["phase"].string(), "Pending");
  ClaimWorld other;
  EXPECT_EQ(other.claim("{}", "volumeMode: Block, ")["status"]["phase"].string(), "Pending") << "a directory is no block device";
}

TEST(AttributesClasses, AreServedInBothVersionsAndDoNotChange) {
  World world;
  const auto one = world.kind("volumeattributesclasses", "storage.k8s.io");
  ASSERT_TRUE(one);
  world.must(world.create(*one, json("{metadata: {name: silver}, driverName: csi.fairlead.dev, parameters: {iops: '500'}}"), ""));
  const auto beta = world.registry->kinds()->find("storage.k8s.io", "v1beta1", "volumeattributesclasses");
  ASSERT_TRUE(beta);
  EXPECT_EQ(world.get(*beta, {"", "silver"})["apiVersion"].string(), "storage.k8s.io/v1beta1");
  EXPECT_EQ(world.get(*beta, {"", "silver"})["parameters"]["iops"].string(), "500");
  world.must(world.create(*beta, json("{metadata: {name: gold}, driverName: csi.fairlead.dev, parameters: {iops: '9000'}}"), ""));
  EXPECT_EQ(world.get(*one, {"", "gold"})["apiVersion"].string(), "storage.k8s.io/v1");
  for (const auto& [body, why] : {std::pair("{metadata: {name: a}, parameters: {iops: '5'}}", "driverName: Required value"), {"{metadata: {name: a}, driverName: csi.fairlead.dev}", "parameters: Required value: must contain at least one key/value pair"}}) {
    const auto refused = world.create(*one, json(body), "");
    ASSERT_FALSE(refused) << body;
    EXPECT_NE(refused.error().message.find(why), std::string::npos) << refused.error().message;
  }
  const auto changed = world.patch(*one, {"", "gold"}, "{parameters: {iops: '1'}}");
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().message.find("parameters: Forbidden: updates to parameters are forbidden."), std::string::npos) << changed.error().message;
}

TEST(Claims, WaitForWhatTheirClassSays) {
  ClaimWorld world;
  EXPECT_EQ(world.claim("{}", "storageClassName: later, ")["status"]["phase"].string(), "Pending") << "there is no such class";
  world.must(world.create(*world.kind("storageclasses", "storage.k8s.io"), json("{metadata: {name: later}, provisioner: fairlead.dev/directory, volumeBindingMode: WaitForFirstConsumer}"), ""));
  ASSERT_TRUE(world.controller.reconcile({"default", "home"}));
  EXPECT_EQ(world.api->get(kube::resources::claims, {"default", "home"})->at("status.phase").string(), "Pending");
  world.must(world.patch(*world.kind("persistentvolumeclaims"), {"default", "home"}, "{metadata: {annotations: {volume.kubernetes.io/selected-node: n1}}}"));
  ASSERT_TRUE(world.controller.reconcile({"default", "home"}));
  EXPECT_EQ(world.api->get(kube::resources::claims, {"default", "home"})->at("status.phase").string(), "Bound");
}

TEST(Claims, DeletedOnesKeepTheirData) {
  ClaimWorld world;
  const Json claim = world.claim();
  const std::string path = world.folder + "/" + claim["metadata"]["annotations"]["fairlead.dev/path"].string();
  ASSERT_TRUE(write_file_atomically(path + "/data", "precious", 0644));
  world.remove();
  EXPECT_FALSE(exists(path));
  EXPECT_EQ(*read_file(world.folder + "/released/default-home-" + kube::uid_of(claim) + "/data"), "precious");
  EXPECT_FALSE(world.api->get(kube::resources::claims, {"default", "home"}));
}

TEST(Claims, DeleteTheirDataWhenAskedTo) {
  ClaimWorld world;
  const Json claim = world.claim("{fairlead.dev/reclaim: Delete}");
  world.remove();
  EXPECT_FALSE(exists(world.folder + "/" + claim["metadata"]["annotations"]["fairlead.dev/path"].string()));
  EXPECT_FALSE(exists(world.folder + "/released"));
}

TEST(Claims, StayWhileAPodUsesThem) {
  ClaimWorld world;
  world.claim();
  world.must(world.create("pods", "{metadata: {name: p}, spec: {nodeName: n1, containers: [{name: c, image: i}], volumes: [{name: v, persistentVolumeClaim: {claimName: home}}]}}"));
  world.remove();
  EXPECT_TRUE(world.api->get(kube::resources::claims, {"default", "home"}));
  const auto pod = *world.api->get(kube::resources::pods, {"default", "p"});
  EXPECT_THAT(world.controller.sources()[1].keys({pod, std::nullopt}), ElementsAre(kube::ObjectKey{"default", "home"}));
  ASSERT_TRUE(world.api->remove(kube::resources::pods, {"default", "p"}, {.grace_seconds = 0}));
  EXPECT_TRUE(world.controller.reconcile({"default", "home"}));
  EXPECT_FALSE(world.api->get(kube::resources::claims, {"default", "home"}));
}

TEST(Events, AreForgottenAnHourAfterTheyWereLastSeen) {
  World world;
  EventController controller(*world.api, world.clock, 1h);
  world.must(world.create("events", "{metadata: {name: old}, involvedObject: {kind: Pod, name: p, namespace: default}, reason: R}"));
  world.must(world.create("events", "{metadata: {name: seen}, involvedObject: {kind: Pod, name: p, namespace: default}, reason: R, lastTimestamp: '2026-01-01T00:30:00Z'}"));
  world.clock.advance(61min);
  const auto next = controller.reconcile({"", "sweep"});
  ASSERT_TRUE(next);
  EXPECT_EQ(next->again_after, 60s);
  std::vector<std::string> left;
  const auto events = world.api->list(kube::resources::events, "");
  for (const Json& event : events->items) left.push_back(kube::name_of(event));
  EXPECT_THAT(left, ElementsAre("seen"));
}

// All of them on the threaded runner, as the server has them.
TEST(ApiControllers, RunTogether) {
  ClaimWorld world;
  const SystemClock real;
  {
    kube::Runner runner(*world.api, real, 1);
    for (auto& controller : make_api_controllers(*world.registry, *world.api, real, {.volumes_folder = world.folder})) runner.add(std::move(controller));
    runner.start();
    ASSERT_TRUE(world.api->create(kube::resources::namespaces, json("{metadata: {name: team}}")));
    ASSERT_TRUE(world.api->create(kube::resources::config_maps, json("{metadata: {name: x, namespace: team}}")));
    ASSERT_TRUE(world.api->remove(kube::resources::namespaces, {"", "team"}));
    auto watch = world.api->watch(kube::resources::namespaces, "", {});
    ASSERT_TRUE(watch);
    bool gone = false;
    while (!gone) {
      const auto event = (*watch)->next(30s);
      ASSERT_TRUE(event);
      ASSERT_TRUE(*event) << "the namespace is still there after 30 s";
      gone = (*event)->type == kube::EventType::Deleted && kube::name_of((*event)->object) == "team";
    }
  }
}

}  // namespace
}  // namespace fairlead::apiserver::test
