// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/kueue_convert.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>

#include "api/queue_crds.h"
#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/topology_assignment.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::HasSubstr;

constexpr const char *one = "kueue.x-k8s.io/v1beta1", *two = "kueue.x-k8s.io/v1beta2";

Json yaml(const std::string& text) {
  auto all = kube::parse_yaml(text);
  EXPECT_TRUE(all) << text;
  return all->at(0);
}
Json to(const Json& object, const char* version) {
  auto out = convert_kueue(object, version);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? *out : Json();
}
std::string kept(const Json& object) { return object["metadata"]["annotations"][kept_annotation].string(); }

TEST(KueueConvert, AQueueOfTheOlderVersion) {
  const Json old = yaml(R"(
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohort: all
  admissionChecks: [budget, images]
  flavorFungibility: {whenCanPreempt: Preempt, whenCanBorrow: TryNextFlavor}
  fairSharing: {weight: "2"}
status:
  pendingWorkloads: 3
  pendingWorkloadsStatus: {clusterQueuePendingWorkload: []}
)");
  const Json now = to(old, two);
  EXPECT_EQ(now["apiVersion"].string(), two);
  EXPECT_EQ(now["spec"]["cohortName"].string(), "all");
  EXPECT_FALSE(now["spec"].has("cohort"));
  EXPECT_EQ(kube::print_json(now["spec"]["admissionChecksStrategy"]), R"({"admissionChecks":[{"name":"budget"},{"name":"images"}]})");
  EXPECT_EQ(now["spec"]["flavorFungibility"]["whenCanPreempt"].string(), "MayStopSearch");
  EXPECT_FALSE(now["status"].has("pendingWorkloadsStatus"));
  EXPECT_EQ(to(now, one), old);
}

TEST(KueueConvert, WhatWasChangedInTheOtherVersionCounts) {
  const Json old = yaml("{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: q, annotations: {a: b}}, spec: {admissionChecks: [a, b], flavorFungibility: {whenCanBorrow: Borrow}}}");
  Json now = to(old, two);
  now.child("spec").child("admissionChecksStrategy").child("admissionChecks").items()[1].set("name", "c");
  now.child("metadata").child("annotations").set("a", "c");
  const Json back = to(now, one);
  EXPECT_FALSE(back["spec"].has("admissionChecks"));
  EXPECT_EQ(back["spec"]["admissionChecksStrategy"]["admissionChecks"].items()[1]["name"].string(), "c");
  EXPECT_EQ(back["spec"]["flavorFungibility"]["whenCanBorrow"].string(), "Borrow");  // not touched
  EXPECT_EQ(back["metadata"]["annotations"]["a"].string(), "c");
  EXPECT_EQ(kept(back), "");
}

TEST(KueueConvert, AWorkloadOfTheNewerVersion) {
  const Json now = yaml(R"(
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: x}
spec:
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}
  preemptionGates: [{name: hold}]
  podSets:
  - {name: main, count: 4, topologyRequest: {required: block, podsetSliceRequiredTopologyConstraints: [{topology: rack, size: 2}]}}
status:
  accumulatedPastExecutionTimeSeconds: 7
  admission:
    clusterQueue: q
    podSetAssignments:
    - name: main
      topologyAssignment: {levels: [kubernetes.io/hostname], slices: [{domainCount: 2, valuesPerLevel: [{individual: {prefix: "node-", roots: ["1", "2"]}}], podCounts: {individual: [1, 3]}}]}
)");
  const Json old = to(now, one);
  EXPECT_EQ(old["spec"]["priorityClassName"].string(), "high");
  EXPECT_EQ(old["spec"]["priorityClassSource"].string(), "kueue.x-k8s.io/workloadpriorityclass");
  EXPECT_FALSE(old["spec"].has("priorityClassRef"));
  EXPECT_FALSE(old["spec"].has("preemptionGates"));
  EXPECT_EQ(old["status"]["accumulatedPastExexcutionTimeSeconds"].integer(), 7);
  EXPECT_EQ(kube::print_json(old["status"]["admission"]["podSetAssignments"].items()[0]["topologyAssignment"]["domains"]), R"([{"values":["node-1"],"count":1},{"values":["node-2"],"count":3}])");
  EXPECT_THAT(kept(old), HasSubstr("preemptionGates"));
  EXPECT_EQ(to(old, two), now);
  // Somebody who knows the older version alone changes something else.
  Json edited = old;
  edited.child("spec").set("active", false);
  Json want = now;
  want.child("spec").set("active", false);
  EXPECT_EQ(to(edited, two), want);
}

TEST(KueueConvert, WhatIsWrongIsNamed) {
  EXPECT_THAT(convert_kueue(yaml("{apiVersion: v1, kind: Pod}"), two).error().message, HasSubstr("apiVersion: \"v1\""));
  EXPECT_THAT(convert_kueue(yaml("{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort}"), "kueue.x-k8s.io/v1").error().message, HasSubstr("kueue.x-k8s.io/v1\""));
  EXPECT_EQ(answer_conversion(yaml("{request: {uid: u1}}"))["response"]["result"]["status"].string(), "Failed");
  EXPECT_EQ(answer_conversion(yaml("[]"))["response"]["result"]["status"].string(), "Failed");
  const Json review = yaml("{request: {uid: u1, desiredAPIVersion: kueue.x-k8s.io/v1beta2, objects: [{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: c}}, {apiVersion: v1, kind: Pod, metadata: {name: p}}]}}");
  const Json answer = answer_conversion(review)["response"];
  EXPECT_EQ(answer["uid"].string(), "u1");
  EXPECT_EQ(answer["result"]["status"].string(), "Failed");
  EXPECT_THAT(answer["result"]["message"].string(), HasSubstr("Pod p: apiVersion"));
}

TEST(KueueConvert, AnAnnotationOfAnybodyPutsNothingElsewhere) {
  for (const char* entry : {R"({\"at\":\"/metadata/name\",\"is\":\"other\",\"was\":\"q\"})", R"({\"at\":\"/kind\",\"is\":\"Secret\",\"was\":\"ClusterQueue\"})", R"({\"at\":\"/spec/a/b/c\",\"is\":1})", R"({\"at\":\"/spec\",\"is\":1})", R"(7)"}) {
    const Json old = yaml(fmt::format("{{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {{name: q, annotations: {{fairlead.dev/kept: \"{{\\\"v1beta2\\\":[{}]}}\"}}}}, spec: {{cohort: all}}}}", entry));
    EXPECT_EQ(kube::print_json(to(old, two)), R"({"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ClusterQueue","metadata":{"name":"q"},"spec":{"cohortName":"all"}})") << entry;
  }
}

TEST(KueueConvert, ObjectsOfNoSenseAreConvertedAllTheSame) {
  for (const char* metadata : {"7", "[]", "{annotations: x}", "{annotations: null}", "null"})
    EXPECT_EQ(to(yaml(fmt::format("{{apiVersion: kueue.x-k8s.io/v1beta1, kind: AdmissionCheck, metadata: {}, spec: {{retryDelayMinutes: 3}}}}", metadata)), two)["apiVersion"].string(), two) << metadata;
}

TEST(KueueConvert, WhatIsTooLargeToBeKeptIsLeftOut) {
  Json old = yaml("{apiVersion: kueue.x-k8s.io/v1beta1, kind: AdmissionCheck, metadata: {name: c}, spec: {controllerName: x, retryDelayMinutes: 3}}");
  EXPECT_EQ(to(to(old, two), one), old);
  Json queue = yaml("{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: q}, spec: {cohort: all}, status: {pendingWorkloadsStatus: {x: y}}}");
  queue.child("status").child("pendingWorkloadsStatus").set("x", std::string(most_kept, 'x'));
  queue.child("spec").child("flavorFungibility").set("whenCanBorrow", "Borrow");
  const Json back = to(to(queue, two), one);
  EXPECT_FALSE(back["status"].has("pendingWorkloadsStatus"));
  EXPECT_EQ(back["spec"]["flavorFungibility"]["whenCanBorrow"].string(), "Borrow");
}

// Objects that have any of the fields of their version, sensible or not.
struct Random {
  Rng rng;
  bool half() { return rng.below(2) == 0; }
  Json value(int depth = 2) {
    switch (rng.below(depth == 0 ? 3 : 5)) {
      case 0: return Json(static_cast<std::int64_t>(rng.below(5)));
      case 1: return Json(rng.below(2) == 0 ? "Preempt" : "a/b~c");
      case 2: return Json(half());
      case 3: {
        Json out = Json::array();
        for (std::uint64_t i = rng.below(3); i > 0; --i) out.push(value(depth - 1));
        return out;
      }
      default: {
        Json out = Json::object();
        for (const char* key : {"name", "x/y", "z~"})
          if (half()) out.set(key, value(depth - 1));
        return out;
      }
    }
  }
  Json some(std::initializer_list<const char*> keys) {
    Json out = Json::object();
    for (const char* key : keys)
      if (half()) out.set(key, value());
    return out;
  }
  Json object(const char* version) {
    const char* kind = std::array{"ClusterQueue", "LocalQueue", "Workload", "AdmissionCheck", "Cohort"}[rng.below(5)];
    Json out = Json::object({{"apiVersion", version}, {"kind", kind}, {"metadata", Json::object({{"name", "x"}})}});
    if (half()) out.child("metadata").set("annotations", Json::object({{"own", "1"}}));
    const bool older = version == one;
    if (rng.below(8) != 0) {
      Json spec = older ? some({"cohort", "admissionChecks", "admissionChecksStrategy", "flavorFungibility", "priorityClassName", "priorityClassSource", "podSets", "retryDelayMinutes"})
                        : some({"cohortName", "admissionChecksStrategy", "flavorFungibility", "priorityClassRef", "preemptionGates", "podSets", "concurrentAdmissionPolicy"});
      if (older && half()) {
        Json checks = Json::array();
        for (std::uint64_t i = rng.below(3); i > 0; --i) checks.push(fmt::format("check-{}", i));
        spec.set("admissionChecks", std::move(checks));
      }
      if (half()) spec.set("flavorFungibility", Json::object({{"whenCanPreempt", older && half() ? "Preempt" : "MayStopSearch"}, {"whenCanBorrow", older && half() ? "Borrow" : "TryNextFlavor"}}));
      if (older && half()) spec.set("priorityClassSource", half() ? "kueue.x-k8s.io/workloadpriorityclass" : "scheduling.k8s.io/priorityclass").set("priorityClassName", half() ? "high" : "");
      if (!older && half()) spec.set("priorityClassRef", Json::object({{"group", half() ? "kueue.x-k8s.io" : "other"}, {"kind", half() ? "WorkloadPriorityClass" : "PriorityClass"}, {"name", "high"}}));
      if (half()) spec.set("podSets", Json::array({Json::object({{"name", "main"}, {"topologyRequest", older ? some({"required"}) : some({"required", "podsetSliceRequiredTopologyConstraints"})}})}));
      out.set("spec", std::move(spec));
    }
    if (half()) {
      Json status = older ? some({"flavorUsage", "flavors", "pendingWorkloadsStatus", "accumulatedPastExexcutionTimeSeconds"}) : some({"flavorsUsage", "accumulatedPastExecutionTimeSeconds", "preemptionGates"});
      if (half()) status.set("fairSharing", older || out["kind"].string() == "LocalQueue" ? some({"weightedShare", "admissionFairSharingStatus"}) : some({"weightedShare"}));
      if (half()) {
        Json domains = Json::array();
        for (std::uint64_t i = rng.below(4); i > 0; --i) domains.push(Json::object({{"values", Json::array({fmt::format("node-{}", i)})}, {"count", static_cast<std::int64_t>(rng.below(3))}}));
        Json placement = Json::object({{"levels", Json::array({"kubernetes.io/hostname"})}, {"domains", std::move(domains)}});
        if (!older) placement = v1beta2_json(read_topology_assignment(placement));
        status.child("admission").set("podSetAssignments", Json::array({Json::object({{"name", "main"}, {"topologyAssignment", std::move(placement)}})}));
      }
      out.set("status", std::move(status));
    }
    return out;
  }
};

TEST(KueueConvert, ThereAndBackIsTheSame) {
  for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(20'000, 1'000'000); ++seed) {
    Random random{Rng(seed)};
    const char *own = random.half() ? one : two, *other = own == one ? two : one;
    const Json object = random.object(own);
    const Json there = to(object, other);
    ASSERT_EQ(to(there, own), object) << "seed " << seed << "\n" << kube::print_json(object) << "\n" << kube::print_json(there);
    // Converted again by another server it is the same again.
    ASSERT_EQ(to(to(there, own), other), there) << "seed " << seed << "\n" << kube::print_json(object) << "\n" << kube::print_json(there) << "\n" << kube::print_json(to(there, own));
    Json labelled = there;
    labelled.child("metadata").child("labels").set("a", "b");
    Json want = object;
    want.child("metadata").child("labels").set("a", "b");
    ASSERT_EQ(to(labelled, own), want) << "seed " << seed;
  }
}

// Every field that a definition names, in either version, as the definitions have it: of each kind all at once, then with some left out.
class AnyField {
 public:
  explicit AnyField(std::uint64_t seed, bool all) : rng_(seed), all_(all) {}
  Json of(const Json& schema, const std::string& field = "") {
    const std::string& type = schema["type"].string();
    if (!schema["enum"].items().empty()) return schema["enum"].items()[rng_.below(schema["enum"].items().size())];
    if (type == "object" || schema.has("properties")) return object(schema);
    if (type == "array") return list(schema);
    if (type == "boolean") return Json(rng_.below(2) == 0);
    if (type == "integer" || type == "number") return Json(static_cast<std::int64_t>(1 + rng_.below(30)));
    if (schema["format"].string() == "date-time") return Json(fmt::format("2026-11-{:02d}T10:00:00Z", 1 + rng_.below(28)));
    if (schema["x-kubernetes-int-or-string"].boolean() || field == "total" || field == "borrowed") return Json(fmt::format("{}", 1 + rng_.below(900)));
    return Json(fmt::format("{}-{}", field.empty() ? "x" : field, rng_.below(1'000)));
  }

 private:
  Json object(const Json& schema) {
    Json out = Json::object();
    if (schema["properties"].members().empty()) {  // a map, or whatever people write
      const Json& values = schema["additionalProperties"];
      for (const char* key : {"first", "second"}) out.set(key, values.is_object() ? of(values, key) : Json(fmt::format("v{}", rng_.below(9))));
      return out;
    }
    const auto& required = schema["required"].items();
    for (const auto& [name, field] : schema["properties"].members())
      if (all_ || rng_.below(3) != 0 || std::find(required.begin(), required.end(), Json(name)) != required.end()) out.set(name, of(field, name));
    return out;
  }
  Json list(const Json& schema) {
    Json out = Json::array();
    for (std::size_t i = 0; i < 1 + rng_.below(2); ++i) {
      Json entry = of(schema["items"]);
      for (const Json& key : schema["x-kubernetes-list-map-keys"].items())
        if (entry[key.string()].is_string()) entry.set(key.string(), fmt::format("{}-{}", entry[key.string()].string(), i));
      out.push(std::move(entry));
    }
    return out;
  }
  Rng rng_;
  const bool all_;
};

TEST(KueueConvert, EveryFieldOfTheDefinitionsComesBack) {
  std::size_t kinds = 0;
  for (const Json& crd : api::queue_crds()) {
    const std::string& kind = crd["spec"]["names"]["kind"].string();
    for (const Json& version : crd["spec"]["versions"].items()) {
      const std::string own = "kueue.x-k8s.io/" + version["name"].string(), other = own == one ? two : one;
      if (crd["spec"]["versions"].items().size() < 2) continue;
      ++kinds;
      const Json& schema = version["schema"]["openAPIV3Schema"];
      for (std::uint64_t seed = 1; seed <= test_rounds<std::uint64_t>(300, 20'000); ++seed) {
        AnyField any(seed, seed == 1);
        Json object = Json::object({{"apiVersion", own}, {"kind", kind}, {"metadata", Json::object({{"name", "x"}})}});
        for (const char* part : {"spec", "status"})
          if (schema["properties"].has(part)) object.set(part, any.of(schema["properties"][part]));
        const Json there = to(object, other.c_str());
        ASSERT_EQ(to(there, own.c_str()), object) << kind << " " << own << " seed " << seed << "\n" << kube::print_json(object) << "\n" << kube::print_json(there) << "\n" << kube::print_json(to(there, own.c_str()));
      }
    }
  }
  EXPECT_GE(kinds, 10u);
}

}  // namespace
}  // namespace fairlead::governance
