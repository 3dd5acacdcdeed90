// SPDX-License-Identifier: Apache-2.0
// ResourceQuotas on the real registry: what writes get, alone and at once; what the status says; what those meet that make pods.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "apiserver/job_controller.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/quota_controller.h"
#include "apiserver/quota_ledger.h"
#include "apiserver/registry_test_kit.h"
#include "base/rng.h"

namespace fairlead::apiserver::test {
namespace {

struct QuotaWorld : World {
  void quota(std::string_view spec, const std::string& name = "q") { must(create("resourcequotas", fmt::format("{{metadata: {{name: {}}}, spec: {}}}", name, spec))); }
  Result<Written> claim(const std::string& name, const std::string& size, const std::string& more = "", WriteContext context = {}) {
    return create("persistentvolumeclaims", fmt::format("{{metadata: {{name: {}}}, spec: {{accessModes: [ReadWriteMany], {}resources: {{requests: {{storage: {}}}}}}}}}", name, more, size), "default",
                  std::move(context));
  }
  Result<Written> pod(const std::string& name, const std::string& requests = "{}", const std::string& more = "") {
    return create("pods", fmt::format("{{metadata: {{name: {}}}, spec: {{{}containers: [{{name: main, image: i, resources: {{requests: {}}}}}]}}}}", name, more, requests));
  }
  std::string used(const std::string& name = "q") const {
    const auto use = registry->quota_use({"default", name});
    if (!use) ADD_FAILURE() << use.error().message;
    return use && *use ? print_json((*use)->used) : "none";
  }
  kube::Next settle(const std::string& name = "q") {
    QuotaController controller(*registry, *api, clock);
    auto done = controller.reconcile({"default", name});
    if (!done) ADD_FAILURE() << done.error().message;
    return done.value_or(kube::Next{});
  }
  Json status(const std::string& name = "q") const { return get(*kind("resourcequotas"), {"default", name})["status"]; }
  void finish(const std::string& pod) { must(patch(*kind("pods"), {"default", pod}, "{status: {phase: Succeeded}}", kube::PatchType::Merge, "status")); }
  void free_claim(const std::string& name) {
    must(patch(*kind("persistentvolumeclaims"), {"default", name}, "{metadata: {finalizers: null}}"));
    must(remove(*kind("persistentvolumeclaims"), {"default", name}));
  }
};

TEST(ResourceQuota, LimitsStorageOfANamespace) {
  QuotaWorld world;
  world.must(world.claim("before", "5Gi"));
  world.quota("{hard: {requests.storage: 10Gi, persistentvolumeclaims: 3, gold.storageclass.storage.k8s.io/requests.storage: 2Gi}}");
  const auto refused = world.claim("big", "10Gi");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Forbidden);
  EXPECT_EQ(message_of(refused), "persistentvolumeclaims \"big\" is forbidden: exceeded quota: q, requested: requests.storage=10Gi, used: requests.storage=5Gi, limited: requests.storage=10Gi");
  EXPECT_EQ(message_of(world.claim("gold", "3Gi", "storageClassName: gold, ")),
            "persistentvolumeclaims \"gold\" is forbidden: exceeded quota: q, requested: gold.storageclass.storage.k8s.io/requests.storage=3Gi, used: gold.storageclass.storage.k8s.io/requests.storage=0, "
            "limited: gold.storageclass.storage.k8s.io/requests.storage=2Gi");
  world.must(world.claim("fits", "5Gi"));
  EXPECT_EQ(world.used(), R"({"gold.storageclass.storage.k8s.io/requests.storage":"0","persistentvolumeclaims":"2","requests.storage":"10Gi"})");
  EXPECT_FALSE(world.claim("more", "1"));
  world.free_claim("before");
  world.must(world.claim("again", "5Gi"));
  const Json elsewhere = json("{metadata: {name: x}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 20Gi}}}}");
  EXPECT_FALSE(world.create(*world.kind("persistentvolumeclaims"), elsewhere, "default"));
  world.must(world.create(*world.kind("persistentvolumeclaims"), elsewhere, "kube-public"));
}

TEST(ResourceQuota, CountsAnExpansionAndNotWhatShrinksOrStays) {
  QuotaWorld world;
  const auto claims = world.kind("persistentvolumeclaims");
  world.must(world.create(*world.kind("storageclasses", "storage.k8s.io"), json("{metadata: {name: gold}, provisioner: csi.fairlead.dev, allowVolumeExpansion: true}"), ""));
  world.must(world.claim("a", "6Gi", "storageClassName: gold, "));
  world.must(world.patch(*claims, {"default", "a"}, "{status: {phase: Bound}}", kube::PatchType::Merge, "status"));
  world.quota("{hard: {requests.storage: 10Gi}}");
  const auto grow = [&](const char* size, WriteContext context = {}) {
    return world.patch(*claims, {"default", "a"}, fmt::format("{{spec: {{resources: {{requests: {{storage: {}}}}}}}}}", size), kube::PatchType::Merge, "", std::move(context));
  };
  EXPECT_EQ(message_of(grow("11Gi")), "persistentvolumeclaims \"a\" is forbidden: exceeded quota: q, requested: requests.storage=5Gi, used: requests.storage=6Gi, limited: requests.storage=10Gi");
  EXPECT_FALSE(grow("11Gi", {.dry_run = true}));
  world.must(grow("10Gi", {.dry_run = true}));
  EXPECT_EQ(world.used(), R"({"requests.storage":"6Gi"})") << "a dry run takes nothing";
  world.must(grow("10Gi"));
  EXPECT_EQ(world.used(), R"({"requests.storage":"10Gi"})");
  // Lowered below what is used: nothing that is there is touched, and nothing more is let in.
  world.must(world.patch(*world.kind("resourcequotas"), {"default", "q"}, "{spec: {hard: {requests.storage: 1Gi}}}"));
  world.must(world.patch(*claims, {"default", "a"}, "{metadata: {labels: {x: z}}}"));
  EXPECT_FALSE(grow("11Gi"));
  EXPECT_FALSE(world.claim("b", "1"));
  world.settle();
  EXPECT_EQ(world.status(), json("{hard: {requests.storage: 1Gi}, used: {requests.storage: 10Gi}}"));
  world.must(world.remove(*world.kind("resourcequotas"), {"default", "q"}));
  world.must(world.claim("b", "100Gi"));
}

TEST(ResourceQuota, CountsObjectsOfAnyKind) {
  QuotaWorld world;
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  world.quota("{hard: {configmaps: 2, count/secrets: 1, count/jobs.batch: 1, count/widgets.example.com: 1, services.nodeports: 1, services: 2, resourcequotas: 1}}");
  world.must(world.create("configmaps", "{metadata: {name: b}}"));
  EXPECT_EQ(message_of(world.create("configmaps", "{metadata: {name: c}}")), "configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2");
  world.must(world.create("secrets", "{metadata: {name: a}, stringData: {k: v}}"));
  EXPECT_FALSE(world.create("secrets", "{metadata: {name: b}}"));
  const std::string job = "{metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}";
  world.must(world.create(*world.kind("jobs", "batch"), json(job), "default"));
  EXPECT_FALSE(world.create(*world.kind("jobs", "batch"), json("{metadata: {name: k}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"), "default"));
  EXPECT_FALSE(world.create("resourcequotas", "{metadata: {name: second}, spec: {hard: {pods: 1}}}"));
  // A service becomes one with node ports.
  world.must(world.create("services", "{metadata: {name: s}, spec: {ports: [{name: a, port: 1}]}}"));
  world.must(world.create("services", "{metadata: {name: t}, spec: {type: NodePort, ports: [{name: a, port: 1}]}}"));
  EXPECT_EQ(message_of(world.patch(*world.kind("services"), {"default", "s"}, "{spec: {type: NodePort}}")),
            "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1");
  world.must(world.remove(*world.kind("services"), {"default", "t"}));
  world.must(world.patch(*world.kind("services"), {"default", "s"}, "{spec: {type: NodePort}}"));
  EXPECT_EQ(world.used(), R"({"configmaps":"2","count/jobs.batch":"1","count/secrets":"1","resourcequotas":"1","services":"1","services.nodeports":"1"})") << "nothing of what is not served";
  world.must(world.remove(*world.kind("secrets"), {"default", "a"}));
  world.must(world.create("secrets", "{metadata: {generateName: b-}}"));
  const auto generated = world.create("secrets", "{metadata: {generateName: b-}}");
  EXPECT_TRUE(message_of(generated).starts_with("secrets \"b-")) << message_of(generated);
}

// As in Kubernetes: any kind may be named, also one that will never be in a namespace; of that one nothing is told.
TEST(ResourceQuota, CountsCustomObjectsOfNamespaces) {
  QuotaWorld world;
  world.quota("{hard: {count/widgets.example.com: 1, count/sites.example.com: 0}}");
  const auto define = [&](const char* plural, const char* kind, const char* scope) {
    world.must(world.create(*world.kind("customresourcedefinitions", "apiextensions.k8s.io"),
                            json(fmt::format("{{metadata: {{name: {0}.example.com}}, spec: {{group: example.com, scope: {2}, names: {{plural: {0}, kind: {1}}}, versions: [{{name: v1, served: true, storage: true, "
                                             "schema: {{openAPIV3Schema: {{type: object}}}}}}]}}}}",
                                             plural, kind, scope)),
                            ""));
  };
  EXPECT_EQ(world.used(), "{}");
  define("widgets", "Widget", "Namespaced"), define("sites", "Site", "Cluster");
  EXPECT_EQ(world.used(), R"({"count/widgets.example.com":"0"})");
  world.must(world.create(*world.kind("widgets", "example.com"), json("{metadata: {name: a}}"), "default"));
  EXPECT_FALSE(world.create(*world.kind("widgets", "example.com"), json("{metadata: {name: b}}"), "default"));
  world.must(world.create(*world.kind("sites", "example.com"), json("{metadata: {name: a}}"), ""));
  EXPECT_EQ(world.used(), R"({"count/widgets.example.com":"1"})");
}

TEST(ResourceQuota, CountsPodsThatHaveNotEnded) {
  QuotaWorld world;
  world.must(world.pod("early", "{cpu: 1, memory: 1Gi}"));
  world.quota("{hard: {pods: 2, requests.cpu: 3, count/pods: 4, requests.nvidia.com/gpu: 1}}");
  EXPECT_EQ(message_of(world.pod("silent")), "pods \"silent\" is forbidden: failed quota: q: must specify requests.cpu for: main");
  EXPECT_EQ(message_of(world.pod("large", "{cpu: 2500m}")), "pods \"large\" is forbidden: exceeded quota: q, requested: requests.cpu=2500m, used: requests.cpu=1, limited: requests.cpu=3");
  world.must(world.pod("second", "{cpu: 2}"));
  EXPECT_EQ(message_of(world.pod("third", "{cpu: 0}")), "pods \"third\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2");
  world.finish("early");
  EXPECT_EQ(world.used(), R"({"count/pods":"2","pods":"1","requests.cpu":"2","requests.nvidia.com/gpu":"0"})");
  world.must(world.pod("third", "{cpu: 1}"));
  world.finish("second"), world.finish("third");
  world.must(world.pod("fourth", "{cpu: 1}"));
  EXPECT_EQ(message_of(world.pod("fifth", "{cpu: 1}")), "pods \"fifth\" is forbidden: exceeded quota: q, requested: count/pods=1, used: count/pods=4, limited: count/pods=4") << "objects count until they are gone";
}

TEST(ResourceQuota, APodThatShouldBeGoneStopsCountingWithoutAnEvent) {
  QuotaWorld world;
  world.quota("{hard: {pods: 1}}");
  world.must(world.pod("stuck"));
  world.must(world.post(*world.kind("pods"), {"default", "stuck"}, "binding", "{target: {name: node}}"));
  world.must(world.remove(*world.kind("pods"), {"default", "stuck"}, {.grace_seconds = 30}));
  EXPECT_FALSE(world.pod("next"));
  const auto next = world.settle();
  ASSERT_TRUE(next.again_after.has_value());
  EXPECT_EQ(*next.again_after, std::chrono::seconds(60) + 1ms) << "its deadline, and its grace once more, as Kubernetes counts";
  EXPECT_EQ(world.status()["used"]["pods"].string(), "1");
  world.clock.advance(*next.again_after);
  world.settle();
  EXPECT_EQ(world.status()["used"]["pods"].string(), "0");
  world.must(world.pod("next"));
  world.must(world.remove(*world.kind("pods"), {"default", "stuck"}, {.grace_seconds = 0}));
  EXPECT_EQ(world.used(), R"({"pods":"1"})");
}

TEST(ResourceQuota, ScopesFollowThePod) {
  QuotaWorld world;
  world.quota("{hard: {pods: 1}, scopes: [Terminating]}", "ends");
  world.quota("{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: Terminating, operator: Exists}]}}", "also");
  world.quota("{hard: {pods: 2}, scopes: [NotTerminating, BestEffort]}", "stays");
  world.must(world.pod("a", "{}", "activeDeadlineSeconds: 5, "));
  world.must(world.pod("b"));
  EXPECT_TRUE(message_of(world.pod("c", "{}", "activeDeadlineSeconds: 5, ")).find("exceeded quota: also") != std::string::npos) << "the first by name";
  EXPECT_TRUE(message_of(world.patch(*world.kind("pods"), {"default", "b"}, "{spec: {activeDeadlineSeconds: 9}}")).find("exceeded quota: also") != std::string::npos);
  world.finish("a");
  world.must(world.patch(*world.kind("pods"), {"default", "b"}, "{spec: {activeDeadlineSeconds: 9}}"));
  EXPECT_EQ(world.used("ends"), R"({"pods":"1"})");
  EXPECT_EQ(world.used("stays"), R"({"pods":"0"})");
}

TEST(ResourceQuota, WhatComesToNothingTakesNoRoom) {
  QuotaWorld world;
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  world.quota("{hard: {configmaps: 2}}");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(world.create("configmaps", "{metadata: {name: a}}").error().code, Code::Exists);
  world.must(world.create("configmaps", "{metadata: {name: b}}", "default", {.dry_run = true}));
  EXPECT_FALSE(world.create("configmaps", "{metadata: {name: 'b b'}}"));
  world.must(world.create("configmaps", "{metadata: {name: b}}"));
  EXPECT_EQ(world.create("configmaps", "{metadata: {name: c}}", "default", {.dry_run = true}).error().code, Code::Forbidden);
}

TEST(ResourceQuota, HoldsForAppliesToo) {
  QuotaWorld world;
  world.quota("{hard: {configmaps: 0}}");
  Waiter waiter;
  world.registry->apply({.field_manager = "me"}, *world.kind("configmaps"), {"default", "a"}, "", json("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}"), waiter.reply());
  EXPECT_EQ(message_of(waiter.wait()), "configmaps \"a\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=0, limited: configmaps=0");
}

TEST(ResourceQuota, OfManyAtOnceNoMoreGetInThanFit) {
  for (const int round : {0, 1, 2, 3}) {
    QuotaWorld world;
    world.quota("{hard: {requests.storage: 10Gi, configmaps: 7}}");
    std::atomic<int> claims{0}, maps{0};
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
          for (int i = 0; i < 10; ++i) {
            if (world.claim(fmt::format("c-{}-{}", t, i), "1Gi")) ++claims;
            if (world.create("configmaps", fmt::format("{{metadata: {{name: m-{}-{}}}}}", t, i))) ++maps;
          }
        });
      }
    }
    EXPECT_EQ(claims, 10) << round;
    EXPECT_EQ(maps, 7) << round << ": what is stored and answered at that moment is not counted twice";
    EXPECT_EQ(world.used(), R"({"configmaps":"7","requests.storage":"10Gi"})");
  }
}

// Creates, expansions, deletions and lowered and raised limits at once: the store never holds more than the highest limit allowed, and what the ledger says at the end is what is there.
TEST(ResourceQuota, CountsRightWhateverHappensAtOnce) {
  QuotaWorld world;
  const auto claims = world.kind("persistentvolumeclaims");
  world.must(world.create(*world.kind("storageclasses", "storage.k8s.io"), json("{metadata: {name: gold}, provisioner: csi.fairlead.dev, allowVolumeExpansion: true}"), ""));
  world.quota("{hard: {requests.storage: 12, persistentvolumeclaims: 6}}");
  std::atomic<std::int64_t> most{0};
  // Every state of the store, as its watchers see it.
  std::map<std::string, std::int64_t> sizes;
  auto watching = world.store->watch("/core/persistentvolumeclaims/default/", world.store->revision(), [&](const StoreEvent& event) {
    if (event.value) sizes[event.key] = std::stoll((*kube::parse_json(*event.value.bytes()))["spec"]["resources"]["requests"]["storage"].string());
    else sizes.erase(event.key);
    std::int64_t sum = 0;
    for (const auto& [key, size] : sizes) sum += size;
    most = std::max(most.load(), sum);
  });
  ASSERT_TRUE(watching.has_value());
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Rng rng(t + 1);
        for (int i = 0; i < 150; ++i) {
          const std::string name = fmt::format("c{}", rng.below(8));
          const auto what = rng.below(4);
          if (what == 0) (void)world.claim(name, std::to_string(1 + rng.below(5)), "storageClassName: gold, ");
          if (what == 1) {
            (void)world.patch(*claims, {"default", name}, "{metadata: {finalizers: null}}");
            (void)world.remove(*claims, {"default", name});
          }
          if (what == 2) {
            (void)world.patch(*claims, {"default", name}, "{status: {phase: Bound}}", kube::PatchType::Merge, "status");
            (void)world.patch(*claims, {"default", name}, fmt::format("{{spec: {{resources: {{requests: {{storage: {}}}}}}}}}", 3 + rng.below(8)));
          }
          if (what == 3) (void)world.patch(*world.kind("resourcequotas"), {"default", "q"}, fmt::format("{{spec: {{hard: {{requests.storage: {}}}}}}}", 6 + rng.below(7)));
        }
      });
    }
  }
  EXPECT_LE(most, 12);
  EXPECT_GT(most, 0);
  const auto left = world.api->list(kube::resources::claims, "default");
  std::int64_t sum = 0;
  for (const Json& claim : left->items) sum += std::stoll(claim["spec"]["resources"]["requests"]["storage"].string());
  EXPECT_EQ(world.used(), fmt::format(R"({{"persistentvolumeclaims":"{}","requests.storage":"{}"}})", left->items.size(), sum));
}

TEST(ResourceQuota, StatusIsRightAlsoAfterARestart) {
  QuotaWorld world;
  world.quota("{hard: {configmaps: 3, pods: 1}}");
  const auto first = world.settle();
  EXPECT_EQ(first.again_after, std::chrono::seconds(1)) << "nobody tells of ConfigMaps";
  EXPECT_EQ(world.status(), json("{hard: {configmaps: '3', pods: '1'}, used: {configmaps: '0', pods: '0'}}"));
  const Revision quiet = world.registry->revision();
  world.settle();
  EXPECT_EQ(world.registry->revision(), quiet);
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  world.must(world.pod("p"));
  world.settle();
  EXPECT_EQ(world.status()["used"], json("{configmaps: '1', pods: '1'}"));
  world.must(world.remove(*world.kind("configmaps"), {"default", "a"}));
  world.settle();
  EXPECT_EQ(world.status()["used"], json("{configmaps: '0', pods: '1'}"));
  // Another process on the same store.
  auto again = Registry::open(*world.store, world.clock, {.secret_key = std::string(32, 'k')});
  ASSERT_TRUE(again.has_value());
  const auto use = (*again)->quota_use({"default", "q"});
  ASSERT_TRUE(use && *use);
  EXPECT_EQ(print_json((*use)->used), R"({"configmaps":"0","pods":"1"})");
  Waiter waiter;
  (*again)->create({}, *(*again)->kinds()->find("", "v1", "pods"), "default", json(small_pod), waiter.reply());
  EXPECT_EQ(message_of(waiter.wait()), "pods \"web\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1");
}

TEST(ResourceQuota, AJobTellsAndTriesAgain) {
  QuotaWorld world;
  world.quota("{hard: {pods: 1}}");
  world.must(world.pod("other"));
  world.must(world.create(*world.kind("jobs", "batch"), json("{metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"), "default"));
  JobController jobs(*world.api, world.clock);
  const auto refused = jobs.reconcile({"default", "j"});
  ASSERT_FALSE(refused) << "an error: tried again later, with growing pauses";
  EXPECT_NE(refused.error().message.find("exceeded quota: q"), std::string::npos);
  const auto events = world.api->list(kube::resources::events, "default");
  bool told = false;
  for (const Json& event : events->items) told = told || (event["reason"].string() == "FailedCreate" && event["message"].string().find("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1") != std::string::npos);
  EXPECT_TRUE(told);
  world.finish("other");
  EXPECT_TRUE(jobs.reconcile({"default", "j"}).has_value());
  EXPECT_EQ(world.used(), R"({"pods":"1"})");
}

}  // namespace
}  // namespace fairlead::apiserver::test
