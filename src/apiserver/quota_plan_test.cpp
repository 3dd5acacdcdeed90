// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apiserver/kinds/resources.h"
#include "apiserver/quota_kinds.h"
#include "apiserver/quota_plan.h"
#include "apiserver/registry_test_kit.h"
#include "base/rng.h"

namespace fairlead::apiserver::test {
namespace {

using kube::Quantity;

const Instant now = *parse_time("2026-01-01T00:00:00Z");

std::string text_of(const Usage& usage) {
  std::string out;
  for (const auto& [name, value] : usage) out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, value.text());
  return out;
}

struct Weight {
  const char* name;
  kube::Resource resource;
  const char* object;
  const char* want;
};
class QuotaMeasure : public testing::TestWithParam<Weight> {};
TEST_P(QuotaMeasure, IsKubernetes) { EXPECT_EQ(text_of(measure(GetParam().resource, json(GetParam().object), now).usage), GetParam().want); }
INSTANTIATE_TEST_SUITE_P(
    Objects, QuotaMeasure,
    testing::Values(
        Weight{"config_map", kube::resources::config_maps, "{}", "configmaps=1 count/configmaps=1"}, Weight{"job", workloads::jobs, "{}", "count/jobs.batch=1"},
        Weight{"claim", kube::resources::claims, "{spec: {resources: {requests: {storage: 10Gi}}}}", "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=10Gi"},
        Weight{"claim_of_class", kube::resources::claims, "{spec: {storageClassName: gold, resources: {requests: {storage: 1500m}}}}",
               "count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=2 persistentvolumeclaims=1 requests.storage=2"},
        Weight{"claim_taking_back_an_expansion", kube::resources::claims, "{spec: {resources: {requests: {storage: 10Gi}}}, status: {allocatedResources: {storage: 20Gi}}}",
               "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=20Gi"},
        Weight{"service", kube::resources::services, "{spec: {type: ClusterIP, ports: [{port: 1}]}}", "count/services=1 services=1"},
        Weight{"service_with_node_ports", kube::resources::services, "{spec: {type: NodePort, ports: [{port: 1}, {port: 2}]}}", "count/services=1 services=1 services.nodeports=2"},
        Weight{"pod_without_requests", kube::resources::pods, "{spec: {containers: [{name: a}]}}", "count/pods=1 pods=1"},
        Weight{"pod", kube::resources::pods,
               "{spec: {containers: [{name: a, resources: {requests: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 2}, limits: {cpu: 1, nvidia.com/gpu: 2}}}, {name: b, resources: {requests: {cpu: 1}}}]}}",
               "count/pods=1 cpu=1500m limits.cpu=1 memory=1Gi pods=1 requests.cpu=1500m requests.memory=1Gi requests.nvidia.com/gpu=2"},
        Weight{"pod_whose_start_needs_more", kube::resources::pods,
               "{spec: {initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}, {name: i, resources: {requests: {cpu: 5}}}], "
               "containers: [{name: a, resources: {requests: {cpu: 2}}}], overhead: {cpu: 250m}}}",
               "count/pods=1 cpu=6250m pods=1 requests.cpu=6250m"},
        Weight{"pod_with_sidecar", kube::resources::pods,
               "{spec: {initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}], containers: [{name: a, resources: {requests: {cpu: 2}}}]}}",
               "count/pods=1 cpu=3 pods=1 requests.cpu=3"},
        Weight{"pod_that_ended", kube::resources::pods, "{spec: {containers: [{name: a, resources: {requests: {cpu: 2}}}]}, status: {phase: Succeeded}}", "count/pods=1"},
        Weight{"pod_that_should_be_gone", kube::resources::pods,
               "{metadata: {deletionTimestamp: '2025-12-31T23:59:00Z', deletionGracePeriodSeconds: 30}, spec: {containers: [{name: a}]}, status: {phase: Running}}", "count/pods=1"},
        Weight{"pod_that_is_going", kube::resources::pods,
               "{metadata: {deletionTimestamp: '2025-12-31T23:59:45Z', deletionGracePeriodSeconds: 30}, spec: {containers: [{name: a}]}, status: {phase: Running}}", "count/pods=1 pods=1"}),
    [](const auto& row) { return row.param.name; });

TEST(QuotaPlan, WhatIsLeftOfAPodAtItsEndIsTheObject) {
  const Measured pod = measure(kube::resources::pods, json("{metadata: {deletionTimestamp: '2025-12-31T23:59:45Z', deletionGracePeriodSeconds: 30}, spec: {containers: [{name: a}]}}"), now);
  ASSERT_EQ(pod.until, *parse_time("2026-01-01T00:00:15Z"));
  EXPECT_EQ(text_of(after_its_end(pod).usage), "count/pods=1");
  EXPECT_FALSE(after_its_end(pod).until.has_value());
}

TEST(QuotaPlan, KnowsWhatIsCountedUnderAName) {
  const auto kind = [](const char* name) { return counted_kind(name).value_or("-"); };
  EXPECT_EQ(kind("count/pods"), "core/pods");
  EXPECT_EQ(kind("count/jobs.batch"), "batch/jobs");
  EXPECT_EQ(kind("count/widgets.example.com"), "example.com/widgets");
  EXPECT_EQ(kind("gold.storageclass.storage.k8s.io/requests.storage"), "core/persistentvolumeclaims");
  EXPECT_EQ(kind("requests.nvidia.com/gpu"), "core/pods");
  EXPECT_EQ(kind("requests.hugepages-2Mi"), "core/pods");
  EXPECT_EQ(kind("limits.memory"), "core/pods");
  EXPECT_EQ(kind("secrets"), "core/secrets");
  for (const char* none : {"nvidia.com/gpu", "limits.nvidia.com/gpu", "requests.kubernetes.io/x", "gold.deviceclass.resource.k8s.io/devices", "example.com/x"}) EXPECT_EQ(kind(none), "-") << none;
}

struct ScopeRow {
  const char* name;
  const char* spec;
  std::vector<const char*> in, out;  // pods and claims, as "KIND OBJECT"
};
TEST(QuotaPlan, ScopesChooseAsKubernetesDoes) {
  const char *plain = "{spec: {containers: [{name: a}]}, status: {qosClass: BestEffort}}", *ends = "{spec: {activeDeadlineSeconds: 0, containers: [{name: a}]}, status: {qosClass: Burstable}}",
             *high = "{spec: {priorityClassName: high, containers: [{name: a}]}, status: {qosClass: Burstable}}",
             *near = "{spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{podAffinityTerm: {namespaceSelector: {}}}]}}}, status: {qosClass: Burstable}}";
  const std::vector<ScopeRow> rows{
      {"terminating", "{scopes: [Terminating]}", {ends}, {plain, high}},
      {"not_terminating", "{scopes: [NotTerminating]}", {plain, high}, {ends}},
      {"best_effort", "{scopes: [BestEffort]}", {plain}, {ends, high}},
      {"both", "{scopes: [NotBestEffort, NotTerminating]}", {high}, {plain, ends}},
      {"priority", "{scopes: [PriorityClass]}", {high}, {plain}},
      {"priority_in", "{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [low, high]}]}}", {high}, {plain}},
      {"priority_not_in", "{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: NotIn, values: [high]}]}}", {plain}, {high}},
      {"priority_none", "{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: DoesNotExist}]}}", {plain}, {high}},
      {"elsewhere", "{scopes: [CrossNamespacePodAffinity]}", {near}, {plain}},
      {"class", "{scopes: [VolumeAttributesClass]}", {}, {plain, high}},
  };
  for (const ScopeRow& row : rows) {
    Json object = Json::object({{"spec", json(row.spec)}});
    object.child("spec").set("hard", json("{pods: 5}"));
    const Quota quota = read_quota(object);
    for (const char* pod : row.in) EXPECT_EQ(text_of(charge(quota, measure(kube::resources::pods, json(pod), now))), "pods=1") << row.name << " " << pod;
    for (const char* pod : row.out) EXPECT_EQ(text_of(charge(quota, measure(kube::resources::pods, json(pod), now))), "") << row.name << " " << pod;
    EXPECT_EQ(text_of(charge(quota, measure(kube::resources::config_maps, Json(), now))), "") << row.name;
  }
  const Quota silver = read_quota(json("{spec: {hard: {persistentvolumeclaims: 1}, scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, operator: In, values: [silver]}]}}}"));
  EXPECT_EQ(text_of(charge(silver, measure(kube::resources::claims, json("{spec: {volumeAttributesClassName: silver}}"), now))), "") << "its feature gate is off in Kubernetes 1.33";
}

Quota quota_of(const char* spec) { return read_quota(Json::object({{"metadata", Json::object({{"name", "q"}})}, {"spec", json(spec)}})); }
std::string refused(const Quota& quota, const Usage& used, const Measured& next, Usage before = {}) { return quota_refusal({{quota, used, std::move(before)}}, next).value_or(""); }

TEST(QuotaPlan, RefusesInKubernetesWords) {
  const Quota storage = quota_of("{hard: {requests.storage: 10Gi, persistentvolumeclaims: 5}}");
  const Measured claim = measure(kube::resources::claims, json("{spec: {resources: {requests: {storage: 10Gi}}}}"), now);
  const Usage used{{"requests.storage", *Quantity::parse("5Gi")}, {"persistentvolumeclaims", Quantity::count(1)}};
  EXPECT_EQ(refused(storage, used, claim), "exceeded quota: q, requested: requests.storage=10Gi, used: requests.storage=5Gi, limited: requests.storage=10Gi");
  EXPECT_EQ(refused(storage, {}, claim), "");
  EXPECT_EQ(refused(storage, used, claim, used), "") << "of an expansion only what is new is asked for";
  const Measured more = measure(kube::resources::claims, json("{spec: {resources: {requests: {storage: 11Gi}}}}"), now);
  EXPECT_EQ(refused(storage, used, more, used), "exceeded quota: q, requested: requests.storage=6Gi, used: requests.storage=5Gi, limited: requests.storage=10Gi");
  const Quota lowered = quota_of("{hard: {requests.storage: 1Gi, persistentvolumeclaims: 0}}");
  const Measured less = measure(kube::resources::claims, json("{spec: {resources: {requests: {storage: 4Gi}}}}"), now);
  EXPECT_EQ(refused(lowered, used, less, used), "") << "what shrinks may, also above the limit";
  EXPECT_EQ(refused(lowered, used, less),
            "exceeded quota: q, requested: persistentvolumeclaims=1,requests.storage=4Gi, used: persistentvolumeclaims=1,requests.storage=5Gi, limited: persistentvolumeclaims=0,requests.storage=1Gi");
}

TEST(QuotaPlan, WantsRequestsStatedWhereTheyAreLimited) {
  const Measured pod = measure(kube::resources::pods, json("{spec: {initContainers: [{name: i}], containers: [{name: b}, {name: a, resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}}]}}"), now);
  EXPECT_EQ(refused(quota_of("{hard: {requests.cpu: 10}}"), {}, pod), "failed quota: q: must specify requests.cpu for: b,i");
  EXPECT_EQ(refused(quota_of("{hard: {cpu: 10, limits.memory: 1Gi, requests.nvidia.com/gpu: 1}}"), {}, pod), "failed quota: q: must specify cpu for: b,i; limits.memory for: b,i");
  EXPECT_EQ(refused(quota_of("{hard: {requests.nvidia.com/gpu: 0, pods: 1}}"), {}, pod), "");
  EXPECT_EQ(refused(quota_of("{hard: {requests.cpu: 10}, scopes: [Terminating]}"), {}, pod), "") << "it is about others";
}

TEST(QuotaPlan, NamesTheFirstOfSeveral) {
  const Quota a = quota_of("{hard: {pods: 0}}"), b = quota_of("{hard: {requests.cpu: 0}}");
  const Measured pod = measure(kube::resources::pods, json("{spec: {containers: [{name: c}]}}"), now);
  const Usage none;
  EXPECT_EQ(*quota_refusal({{a, none, {}}, {b, none, {}}}, pod), "failed quota: q: must specify requests.cpu for: c") << "what is missing is told before what is too much";
}

// However many come, and however large: what is let in never goes beyond the limit, and what would fit is let in.
TEST(QuotaPlanProperty, NeverLetsTheSumExceed) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    const std::int64_t limit = static_cast<std::int64_t>(rng.below(1'000));
    const Quota quota = quota_of(fmt::format("{{hard: {{requests.storage: {}, persistentvolumeclaims: 8}}}}", limit).c_str());
    std::map<int, std::int64_t> sizes;
    Usage used;
    for (int step = 0; step < 60; ++step) {
      const int which = static_cast<int>(rng.below(12));
      const std::int64_t size = rng.below(20) == 0 ? INT64_MAX : static_cast<std::int64_t>(rng.below(400));
      const auto measured = [](std::int64_t of) { return measure(kube::resources::claims, json(fmt::format("{{spec: {{resources: {{requests: {{storage: {}}}}}}}}}", of)), now); };
      const Usage before = sizes.contains(which) ? charge(quota, measured(sizes[which])) : Usage();
      std::int64_t others = 0;
      for (const auto& [one, had] : sizes) others += one == which ? 0 : had;
      const bool grows = !sizes.contains(which) || size > sizes[which];
      const bool fits = size <= limit && others + size <= limit && (sizes.contains(which) || sizes.size() < 8);
      const bool let_in = !quota_refusal({{quota, used, before}}, measured(size));
      ASSERT_EQ(let_in, fits || !grows) << "seed " << seed << " step " << step;
      if (!let_in) continue;
      for (const auto& [name, value] : before) used[name] -= value;
      sizes[which] = size;
      for (const auto& [name, value] : charge(quota, measured(size))) used[name] += value;
      ASSERT_LE(used["requests.storage"].value(), limit) << "seed " << seed;
    }
  }
}

struct BadQuota {
  const char* name;
  const char* spec;
  const char* why;
};
class QuotaKind : public testing::TestWithParam<BadQuota> {};
TEST_P(QuotaKind, IsChecked) {
  World world;
  const auto made = world.create("resourcequotas", fmt::format("{{metadata: {{name: q}}, spec: {}}}", GetParam().spec));
  const std::string want = GetParam().why;
  if (want.empty()) EXPECT_TRUE(made.has_value()) << message_of(made);
  else EXPECT_NE(message_of(made).find(want), std::string::npos) << message_of(made);
}
INSTANTIATE_TEST_SUITE_P(
    Specs, QuotaKind,
    testing::Values(BadQuota{"empty", "{}", ""},
                    BadQuota{"all", "{hard: {pods: 1, count/jobs.batch: 2, requests.nvidia.com/gpu: 8, gold.storageclass.storage.k8s.io/requests.storage: 1Ti, replicationcontrollers: 1, count/widgets.example.com: 1}}", ""},
                    BadQuota{"unknown", "{hard: {storage: 1}}", "spec.hard[storage]: Invalid value: storage: must be a standard resource for quota"},
                    BadQuota{"no_name", "{hard: {count/: 1}}", "[spec.hard[count/]: Invalid value: count/: name part must be non-empty, spec.hard[count/]: Invalid value: count/: name part must consist of"},
                    BadQuota{"nonsense", "{hard: {cpus: 1}}", "[spec.hard[cpus]: Invalid value: cpus: must be a standard resource type or fully qualified, spec.hard[cpus]: Invalid value: cpus: must be a standard resource for quota]"},
                    BadQuota{"negative", "{hard: {pods: '-1'}}", "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0"},
                    BadQuota{"large", "{hard: {gold.storageclass.storage.k8s.io/requests.storage: 1000000Ti, pods: '9000000000000000000'}}", ""},
                    BadQuota{"part", "{hard: {pods: 1500m}}", "must be an integer"},
                    BadQuota{"part_of_count", "{hard: {count/jobs.batch: 1500m}}", "must be an integer"},
                    BadQuota{"gpu_without_requests", "{hard: {nvidia.com/gpu: 1}}", "nothing is counted under this name"},
                    BadQuota{"cluster_kind", "{hard: {count/nodes: 1}}", "spec.hard[count/nodes]: Forbidden: not supported by the embedded engine; nothing is counted"},
                    BadQuota{"events", "{hard: {count/events: 1}}", "nothing is counted under this name"},
                    BadQuota{"devices", "{hard: {gold.deviceclass.resource.k8s.io/devices: 1}}", "nothing is counted under this name"},
                    BadQuota{"scope", "{hard: {pods: 1}, scopes: [Often]}", "spec.scopes: Invalid value: []core.ResourceQuotaScope{\"Often\"}: unsupported scope"},
                    BadQuota{"scopes_against_each_other", "{hard: {pods: 1}, scopes: [BestEffort, NotBestEffort]}", "conflicting scopes"},
                    BadQuota{"scope_of_others", "{hard: {configmaps: 1}, scopes: [Terminating]}", "unsupported scope applied to resource"},
                    BadQuota{"scope_of_others_counted", "{hard: {count/configmaps: 1}, scopes: [Terminating]}", "the scope Terminating is about pods alone"},
                    BadQuota{"class_scope_of_pods", "{hard: {pods: 1}, scopes: [VolumeAttributesClass]}", "unsupported scope applied to resource"},
                    BadQuota{"scope_of_pods_counted", "{hard: {count/pods: 1, requests.nvidia.com/gpu: 1}, scopes: [Terminating]}", ""},
                    BadQuota{"selector", "{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}}", "spec.scopeSelector.matchExpressions.values: Required value"},
                    BadQuota{"selector_op", "{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: Terminating, operator: DoesNotExist}]}}", "must be 'Exists' when scope is any of"}),
    [](const auto& row) { return row.param.name; });

TEST(QuotaKind, SaysWhatItTakesAndDoesNotCount) {
  World world;
  const auto made = world.create("resourcequotas", "{metadata: {name: q}, spec: {hard: {persistentvolumeclaims: 1}, scopes: [VolumeAttributesClass]}}");
  ASSERT_TRUE(made.has_value()) << message_of(made);
  ASSERT_EQ(made->warnings.size(), 1u);
  EXPECT_NE(made->warnings[0].find("nothing is counted"), std::string::npos);
  EXPECT_TRUE(world.create("resourcequotas", "{metadata: {name: other}, spec: {hard: {pods: 1}, scopes: [BestEffort]}}")->warnings.empty());
}

TEST(QuotaKind, ScopesStayAndColumnsAreKubectls) {
  World world;
  const auto kind = world.kind("resourcequotas");
  world.must(world.create("resourcequotas", "{metadata: {name: q}, spec: {hard: {pods: 3, limits.cpu: 2}, scopes: [NotBestEffort]}, status: {hard: {pods: 99}}}"));
  EXPECT_TRUE(world.get(*kind, {"default", "q"})["status"].members().empty()) << "status is not what a creator says";
  EXPECT_NE(message_of(world.patch(*kind, {"default", "q"}, "{spec: {scopes: [Terminating]}}")).find("field is immutable"), std::string::npos);
  EXPECT_NE(message_of(world.patch(*kind, {"default", "q"}, "{status: {used: {cpus: 1}}}", kube::PatchType::Merge, "status")).find("status.used[cpus]: Invalid value: cpus: must be a standard resource"), std::string::npos);
  world.must(world.patch(*kind, {"default", "q"}, "{status: {hard: {pods: 3, limits.cpu: 2}, used: {pods: 1}}}", kube::PatchType::Merge, "status"));
  const Json quota = world.get(*kind, {"default", "q"});
  std::vector<std::string> cells;
  for (const Column& column : kind->columns) cells.push_back(column.name + "=" + column.cell(quota, now).string());
  EXPECT_EQ(cells, (std::vector<std::string>{"Name=q", "Request=pods: 1/3", "Limit=limits.cpu: 0/2", "Age=0s"}));
  EXPECT_EQ(kind->short_names, std::vector<std::string>{"quota"});
}

}  // namespace
}  // namespace fairlead::apiserver::test
