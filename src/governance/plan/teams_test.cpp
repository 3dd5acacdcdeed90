// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/team_policy.h"
#include "governance/plan/teams.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/queue_crds.h"
#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/books.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/quota_schedule.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::HasSubstr;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed && parsed->size() == 1) << text;
  return parsed && parsed->size() == 1 ? parsed->front() : Json();
}

class Teams : public testing::Test {
 protected:
  void nodes(const std::string& type, int count, const std::string& allocatable) {
    for (int i = 0; i < count; ++i) in_.nodes.push_back(yaml(fmt::format("{{metadata: {{name: {0}-{1}, labels: {{{2}: {0}}}}}, status: {{allocatable: {{{3}}}}}}}", type, i, kInstanceType, allocatable)));
  }
  void policy(const std::string& spec, const std::string& name = "policy") {
    in_.configs.push_back(yaml(fmt::format("{{metadata: {{name: {}, creationTimestamp: '2026-11-22T10:00:{:02d}Z'}}, spec: {{{}}}}}", name, in_.configs.size(), spec)));
  }
  void quota(const std::string& team, const std::string& resources, const std::string& more = "", const std::string& name = "") {
    in_.quotas.push_back(yaml(fmt::format("{{metadata: {{name: {}, creationTimestamp: '2026-11-22T11:00:{:02d}Z'}}, spec: {{teamName: {}, computeQuotaResources: [{}]{}}}}}", name.empty() ? team : name, in_.quotas.size() % 60, team, resources, more)));
  }
  // As the controller does: the objects are made, the verdicts written.
  const TeamsPlan& look() {
    plan_ = plan_teams(in_);
    for (const TeamObject& one : plan_.objects) {
      if (one.resource == kube::resources::namespaces) in_.spaces[kube::name_of(one.object)] = with_fields(Json(), one.object);
      if (one.resource == api::queues::cluster_queues) in_.queues[kube::name_of(one.object)] = with_fields(Json(), one.object);
    }
    for (const Verdict& verdict : plan_.quotas)
      for (Json& object : in_.quotas)
        if (kube::key_of(object) == verdict.key) object.child("status").set("inForce", verdict.in_force).set("allocated", verdict.allocated).set("schedule", verdict.schedule);
    return plan_;
  }
  Json object(const kube::Resource& resource, const std::string& name) const {
    const auto found = std::find_if(plan_.objects.begin(), plan_.objects.end(), [&](const TeamObject& one) { return one.resource == resource && kube::name_of(one.object) == name; });
    return found == plan_.objects.end() ? Json() : with_fields(Json(), found->object);
  }
  Json queue(const std::string& team) const { return object(api::queues::cluster_queues, queue_of_team(team))["spec"]; }
  std::string verdict(const std::string& name) const {
    for (const auto* list : {&plan_.configs, &plan_.quotas})
      for (const Verdict& one : *list)
        if (one.key.name == name) return one.accepted.reason + ": " + one.accepted.message;
    return "none";
  }
  std::string capacity(const std::string& name) const {
    for (const Verdict& one : plan_.quotas)
      if (one.key.name == name) return one.capacity.status + ": " + one.capacity.message;
    return "none";
  }
  static std::string quotas_of(const Json& spec) {
    std::string out;
    for (const Json& flavor : spec["resourceGroups"].items()[0]["flavors"].items())
      for (const Json& resource : flavor["resources"].items()) {
        out += fmt::format("{} {} {}", flavor["name"].string(), resource["name"].string(), resource["nominalQuota"].string());
        if (resource.has("borrowingLimit")) out += " borrow " + resource["borrowingLimit"].string();
        if (resource.has("lendingLimit")) out += " lend " + resource["lendingLimit"].string();
        out += "\n";
      }
    return out;
  }
  TeamsInput in_;
  TeamsPlan plan_;
};

TEST_F(Teams, NamesAndLabelsFollowFromTheTeam) {
  nodes("ml.m5.xlarge", 8, "cpu: '4', memory: 16Gi, pods: '58'");
  policy("priorityClasses: [{name: training, weight: 90}, {name: idle, weight: 10}]");
  quota("vision", "{instanceType: ml.m5.xlarge, count: 4}", ", fairShareWeight: 30", "q-1");
  look();
  EXPECT_EQ(verdict("q-1"), "Accepted: ClusterQueue hyperpod-ns-vision-clusterqueue carries it");
  EXPECT_EQ(kube::print_json(object(kube::resources::namespaces, "hyperpod-ns-vision")["metadata"]["labels"]),
            R"({"fairlead.dev/teams":"true","fairlead.dev/compute-quota":"q-1","sagemaker.amazonaws.com/sagemaker-managed-queue":"true","sagemaker.amazonaws.com/quota-allocation-id":"q-1","sagemaker.amazonaws.com/activate-quota":"Enabled"})");
  EXPECT_EQ(object(api::queues::local_queues, "hyperpod-ns-vision-localqueue")["spec"]["clusterQueue"].string(), "hyperpod-ns-vision-clusterqueue");
  EXPECT_EQ(object(api::queues::priority_classes, "training-priority")["value"].integer(), 90);
  EXPECT_EQ(object(api::queues::flavors, "ml.m5.xlarge")["spec"]["nodeLabels"][kInstanceType].string(), "ml.m5.xlarge");
  const Json spec = queue("vision");
  EXPECT_EQ(quotas_of(spec), "ml.m5.xlarge cpu 16 borrow 8\nml.m5.xlarge memory 64Gi borrow 32Gi\n") << "as it is seen on HyperPod";
  EXPECT_EQ(kube::print_json(spec["preemption"]), R"({"withinClusterQueue":"LowerPriority","reclaimWithinCohort":"Any","borrowWithinCohort":{"policy":"Never"}})");
  EXPECT_EQ(spec["fairSharing"]["weight"].string(), "30");
  EXPECT_EQ(spec["stopPolicy"].string(), "None");
  EXPECT_TRUE(read_queue(object(api::queues::cluster_queues, "hyperpod-ns-vision-clusterqueue")));
}

TEST_F(Teams, StrategiesAndLimits) {
  nodes("a", 20, "cpu: '10', memory: 10Gi, nvidia.com/gpu: '8'");
  policy("fairShare: Disabled");
  quota("lend", "{instanceType: a, count: 1}", ", resourceSharingConfig: {strategy: Lend, borrowLimit: 300}, preemptTeamTasks: Never");
  quota("keep", "{instanceType: a, count: 1}", ", resourceSharingConfig: {strategy: DontLend}, activationState: Disabled");
  quota("both", "{instanceType: a, count: 1}", ", resourceSharingConfig: {strategy: LendAndBorrow, borrowLimit: 60}");
  quota("fixed", "{instanceType: a, count: 1}", ", resourceSharingConfig: {strategy: LendAndBorrow, absoluteBorrowLimits: [{instanceType: a, accelerators: 4}]}");
  look();
  EXPECT_EQ(quotas_of(queue("lend")), "a cpu 10 borrow 0\na memory 10Gi borrow 0\na nvidia.com/gpu 8 borrow 0\n");
  EXPECT_EQ(quotas_of(queue("keep")), "a cpu 10 borrow 0 lend 0\na memory 10Gi borrow 0 lend 0\na nvidia.com/gpu 8 borrow 0 lend 0\n");
  EXPECT_EQ(quotas_of(queue("both")), "a cpu 10 borrow 6\na memory 10Gi borrow 6Gi\na nvidia.com/gpu 8 borrow 4\n") << "of 4.8 the whole ones";
  EXPECT_EQ(quotas_of(queue("fixed")), "a cpu 10 borrow 5\na memory 10Gi borrow 5Gi\na nvidia.com/gpu 8 borrow 4\n");
  EXPECT_EQ(queue("lend")["preemption"]["withinClusterQueue"].string(), "Never");
  EXPECT_EQ(queue("lend")["preemption"]["borrowWithinCohort"]["policy"].string(), "LowerPriority");
  EXPECT_FALSE(queue("lend").has("fairSharing")) << "first come, first served";
  EXPECT_EQ(queue("keep")["stopPolicy"].string(), "Hold");
  EXPECT_EQ(object(kube::resources::namespaces, "hyperpod-ns-keep")["metadata"]["labels"]["sagemaker.amazonaws.com/activate-quota"].string(), "Disabled");
}

TEST_F(Teams, TheRestFollowsProRata) {
  nodes("p5", 4, "cpu: 190500m, memory: 2000Gi, nvidia.com/gpu: '8', nvidia.com/mig-1g.5gb: '14', hugepages-2Mi: 4Gi");
  nodes("cpu", 3, "cpu: '4', memory: 16Gi");
  nodes("cpu", 1, "cpu: 3500m, memory: 16Gi");
  quota("devices", "{instanceType: p5, accelerators: 2}");
  quota("slices", "{instanceType: p5, acceleratorPartition: {type: mig-1g.5gb, count: 7}}");
  quota("cores", "{instanceType: cpu, vCpu: 1.75}, {instanceType: cpu, memoryInGiB: 4}");
  quota("said", "{instanceType: p5, accelerators: 4, vCpu: 10, memoryInGiB: 0.5}");
  look();
  EXPECT_EQ(quotas_of(queue("devices")), "p5 cpu 47625m borrow 23812m\np5 memory 500Gi borrow 250Gi\np5 nvidia.com/gpu 2 borrow 1\np5 nvidia.com/mig-1g.5gb 3 borrow 1\n");
  EXPECT_EQ(quotas_of(queue("slices")), "p5 cpu 95250m borrow 47625m\np5 memory 1000Gi borrow 500Gi\np5 nvidia.com/gpu 0 borrow 0\np5 nvidia.com/mig-1g.5gb 7 borrow 3\n");
  EXPECT_EQ(quotas_of(queue("cores")), "cpu cpu 2625m borrow 1312m\ncpu memory 12Gi borrow 6Gi\n") << "half of the smallest node, and a quarter of it";
  EXPECT_EQ(quotas_of(queue("said")).substr(0, 48), "p5 cpu 10 borrow 5\np5 memory 512Mi borrow 256Mi\n");
}

TEST_F(Teams, WhatIsWrongIsSaidByItsField) {
  nodes("a", 2, "cpu: '4', memory: 16Gi");
  in_.spaces["hyperpod-ns-taken"] = yaml("{metadata: {name: hyperpod-ns-taken}}");
  in_.queues["hyperpod-ns-other-clusterqueue"] = yaml("{metadata: {name: hyperpod-ns-other-clusterqueue}}");
  quota("typo", "{instanceType: b, count: 1}");
  quota("none", "{instanceType: a}");
  quota("mixed", "{instanceType: a, count: 1, vCpu: 1}");
  quota("gpus", "{instanceType: a, accelerators: 1}");
  quota("slices", "{instanceType: a, acceleratorPartition: {type: mig-1g.5gb, count: 1}}");
  quota("below", "{instanceType: a, vCpu: -1}");
  quota("taken", "{instanceType: a, vCpu: 1}");
  quota("other", "{instanceType: a, vCpu: 1}");
  quota("twin", "{instanceType: a, vCpu: 1}", "", "first");
  quota("twin", "{instanceType: a, vCpu: 1}", "", "second");
  quota("limits", "{instanceType: a, vCpu: 1}", ", resourceSharingConfig: {absoluteBorrowLimits: [{instanceType: c, count: 1}]}");
  policy("", "one"), policy("", "two");
  look();
  EXPECT_EQ(verdict("typo"), "UnknownInstanceType: spec.computeQuotaResources[0].instanceType: no node has the label node.kubernetes.io/instance-type=b; there are a");
  EXPECT_EQ(verdict("none"), "Invalid: spec.computeQuotaResources[0]: say count, accelerators, vCpu, memoryInGiB or acceleratorPartition");
  EXPECT_EQ(verdict("mixed"), "Invalid: spec.computeQuotaResources[0]: count is whole machines and stands alone; leave it out, or the amounts");
  EXPECT_EQ(verdict("gpus"), "Invalid: spec.computeQuotaResources[0]: accelerators: nodes of a have none");
  EXPECT_EQ(verdict("slices"), "Invalid: spec.computeQuotaResources[0]: acceleratorPartition.type: nodes of a offer no nvidia.com/mig-1g.5gb");
  EXPECT_THAT(verdict("below"), HasSubstr("not below 0"));
  EXPECT_EQ(verdict("taken"), "NamespaceTaken: namespace hyperpod-ns-taken is there and was not made for a team; it is left alone. Choose another team name");
  EXPECT_THAT(verdict("other"), HasSubstr("QueueTaken: ClusterQueue hyperpod-ns-other-clusterqueue is there"));
  EXPECT_THAT(verdict("first"), HasSubstr("Accepted:"));
  EXPECT_EQ(verdict("second"), "TeamTaken: spec.teamName: ComputeQuota first is that of team twin; change it, or delete one of them");
  EXPECT_THAT(verdict("limits"), HasSubstr("UnknownInstanceType: spec.resourceSharingConfig.absoluteBorrowLimits[0].instanceType: "));
  EXPECT_THAT(verdict("one"), HasSubstr("Accepted:"));
  EXPECT_THAT(verdict("two"), HasSubstr("AnotherInForce: SchedulerConfig one is older"));
  in_.quotas[8].child("spec").set("teamName", "twins");
  look();
  EXPECT_THAT(verdict("first"), HasSubstr("TeamIsFixed: spec.teamName: this quota is of team twin"));
  EXPECT_FALSE(queue("twin").is_null()) << "its queue stays";
}

TEST_F(Teams, NothingIsPromisedTwice) {
  nodes("a", 10, "cpu: '4', memory: 16Gi");
  quota("red", "{instanceType: a, count: 6}");
  quota("blue", "{instanceType: a, count: 4}");
  look();
  EXPECT_THAT(verdict("blue"), HasSubstr("Accepted:")) << "equal is fine";
  quota("green", "{instanceType: a, count: 1}");
  look();
  EXPECT_EQ(verdict("green"), "OverCapacity: cpu of a: 4 wanted, 0 of 40 are left (red has 24, blue has 16); memory of a: 16Gi wanted, 0 of 160Gi are left (red has 96Gi, blue has 64Gi)");
  EXPECT_TRUE(queue("green").is_null());
  in_.quotas[0].child("spec").set("computeQuotaResources", yaml("[{instanceType: a, count: 8}]"));
  look();
  EXPECT_THAT(verdict("red"), HasSubstr("; what was accepted before stays in force"));
  EXPECT_EQ(quotas_of(queue("red")), "a cpu 24 borrow 12\na memory 96Gi borrow 48Gi\n");
  in_.quotas[1].child("spec").set("computeQuotaResources", yaml("[{instanceType: a, count: 1}]"));
  look();
  look();
  EXPECT_THAT(verdict("red"), HasSubstr("Accepted:")) << "blue gave three back";
  EXPECT_EQ(quotas_of(queue("red")), "a cpu 32 borrow 16\na memory 128Gi borrow 64Gi\n");
  // A quota that is gone counts until its queue is.
  in_.quotas.erase(in_.quotas.begin());
  look();
  EXPECT_THAT(verdict("green"), HasSubstr("Accepted:")) << "one was left";
  in_.quotas[0].child("spec").set("computeQuotaResources", yaml("[{instanceType: a, count: 9}]"));
  look();
  EXPECT_THAT(verdict("blue"), HasSubstr("OverCapacity:"));
  in_.queues.erase("hyperpod-ns-red-clusterqueue");
  look();
  EXPECT_THAT(verdict("blue"), HasSubstr("Accepted:"));
}

TEST_F(Teams, ACapacityThatShrinksIsToldAndTakesNothing) {
  nodes("a", 10, "cpu: '4', memory: 16Gi");
  quota("red", "{instanceType: a, count: 6}"), quota("blue", "{instanceType: a, count: 4}");
  look();
  EXPECT_EQ(capacity("red"), "False: what is promised is there");
  in_.nodes.resize(5);
  look();
  EXPECT_THAT(verdict("red"), HasSubstr("Accepted:"));
  EXPECT_EQ(capacity("red"), "True: cpu of a: 40 promised, 20 there; in proportion this team would have 12 instead of 24; memory of a: 160Gi promised, 80Gi there; in proportion this team would have 48Gi instead of 96Gi");
  EXPECT_EQ(quotas_of(queue("red")), "a cpu 24 borrow 12\na memory 96Gi borrow 48Gi\n");
  in_.quotas[0].child("spec").set("computeQuotaResources", yaml("[{instanceType: a, count: 5}]"));
  look();
  EXPECT_THAT(verdict("red"), HasSubstr("Accepted:")) << "less than before is always fine";
  in_.nodes.clear();
  look();
  EXPECT_THAT(verdict("blue"), HasSubstr("UnknownInstanceType: "));
  EXPECT_THAT(capacity("blue"), HasSubstr("True: cpu of a: 36 promised, 0 there; in proportion this team would have 0 instead of 16"));
  EXPECT_EQ(quotas_of(queue("blue")), "a cpu 16 borrow 8\na memory 64Gi borrow 32Gi\n") << "its machines may come back";
}

TEST_F(Teams, WhatNobodyReservedBelongsToAll) {
  nodes("a", 10, "cpu: '4'"), nodes("b", 2, "cpu: '2'");
  policy("idleResourceSharing: Enabled");
  quota("red", "{instanceType: a, count: 6}");
  look();
  EXPECT_EQ(quotas_of(object(api::queues::cohorts, kTeamCohort)["spec"]), "a cpu 16\n") << "of b nobody has a queue";
  in_.configs.clear();
  look();
  EXPECT_FALSE(object(api::queues::cohorts, kTeamCohort)["spec"].has("resourceGroups"));
  EXPECT_FALSE(holds_fields(yaml("{spec: {resourceGroups: [{coveredResources: [cpu]}]}}"), std::find_if(plan_.objects.begin(), plan_.objects.end(), [](const TeamObject& one) { return one.resource == api::queues::cohorts; })->object)) << "it is taken away";
}

// A has 6 and uses 2, B has 5 and uses 4, B submits 4 more: 3 are borrowed from A with a limit of 60 per cent, and it waits at that of 50.
TEST_F(Teams, WorkPastTheQueuesIsRefusedAsLongAsAQuotaIsInForce) {
  const auto binding = [&] { return object(kube::resources::admission_policy_bindings, kTeamPolicy); };
  nodes("ml.a", 2, "cpu: 8, memory: 32Gi");
  look();
  EXPECT_TRUE(binding().is_null()) << "nobody has a queue";
  quota("red", "{instanceType: ml.x, count: 1}");
  look();
  EXPECT_TRUE(binding().is_null()) << "a quota that was refused makes none";
  quota("blue", "{instanceType: ml.a, count: 1}");
  look();
  EXPECT_EQ(print_json(binding()["spec"]), R"({"policyName":"fairlead-team-queues","validationActions":["Deny"]})");
  EXPECT_FALSE(object(kube::resources::admission_policies, kTeamPolicy).is_null());
  for (const auto& [mode, actions] : {std::pair("Refuse", R"(["Deny"])"), std::pair("Warn", R"(["Warn","Audit"])"), std::pair("Allow", "null")}) {
    in_.configs.clear();
    policy(fmt::format("unqueuedWork: {}", mode));
    look();
    EXPECT_EQ(print_json(binding()["spec"]["validationActions"]), actions) << mode;
  }
}

// Two teams change places at night: at each time both together have what there is, and no more.
TEST_F(Teams, QuotasByTheClockAreCheckedAtEachTime) {
  nodes("a", 4, "cpu: '8'");
  const auto night = [](const char* from, const char* to, int count, const char* more = "") { return fmt::format(", schedule: [{{name: night, from: '{}', to: '{}'{}, computeQuotaResources: [{{instanceType: a, count: {}}}]}}]", from, to, more, count); };
  quota("day", "{instanceType: a, count: 3}", night("20:00", "06:00", 1));
  quota("night", "{instanceType: a, count: 1}", night("20:00", "06:00", 3));
  look();
  EXPECT_EQ(verdict("day"), "Accepted: ClusterQueue hyperpod-ns-day-clusterqueue carries it");
  EXPECT_EQ(verdict("night"), "Accepted: ClusterQueue hyperpod-ns-night-clusterqueue carries it");
  EXPECT_EQ(capacity("night"), "False: what is promised is there");
  const Json made = object(api::queues::cluster_queues, "hyperpod-ns-night-clusterqueue");
  EXPECT_EQ(made["metadata"]["annotations"][kQuotaScheduleNote].string(), R"([{"name":"night","from":"20:00","to":"06:00","quotas":[{"flavor":"a","resource":"cpu","nominalQuota":"24","borrowingLimit":"12"}]}])");
  EXPECT_EQ(made["metadata"]["annotations"][kScheduleOf].string(), "night");
  Books books;
  books.set_flavor("a", yaml("{metadata: {name: a}, spec: {}}"));
  for (const auto& [hour, cpus] : {std::pair("12", 8'000), {"23", 24'000}, {"06", 8'000}}) {
    books.set_time(*parse_time(fmt::format("2026-11-25T{}:00:00Z", hour)));
    books.set_queue("hyperpod-ns-night-clusterqueue", made);
    books.decide();
    EXPECT_EQ(books.queue_view("hyperpod-ns-night-clusterqueue")->spec->groups[0].flavors[0].resources[0].second.nominal, cpus) << hour;
    EXPECT_TRUE(books.queue_view("hyperpod-ns-night-clusterqueue")->active) << books.queue_view("hyperpod-ns-night-clusterqueue")->message;
  }
  // A second look changes nothing.
  const Json before = object(api::queues::cluster_queues, "hyperpod-ns-day-clusterqueue");
  look();
  EXPECT_EQ(object(api::queues::cluster_queues, "hyperpod-ns-day-clusterqueue"), before);
  // An hour earlier it would have what the other has still.
  in_.quotas[1].child("spec").child("schedule").items()[0].set("from", "19:00");
  look();
  EXPECT_EQ(verdict("night"), "OverCapacity: cpu of a: from Sun 19:00 UTC on 24 wanted, 8 of 32 are left; what was accepted before stays in force");
  in_.quotas[1].child("spec").child("schedule").items()[0].set("from", "21:00").set("utcOffset", "+01:00").set("to", "07:00");
  look();
  EXPECT_EQ(verdict("night"), "Accepted: ClusterQueue hyperpod-ns-night-clusterqueue carries it") << "the same hours, told elsewhere";
  in_.quotas[1].child("spec").child("schedule").items()[0].child("computeQuotaResources").items()[0].set("instanceType", "b");
  look();
  EXPECT_THAT(verdict("night"), HasSubstr("spec.schedule[0].computeQuotaResources[0].instanceType: no node has the label"));
  nodes("b", 1, "cpu: '8'");
  look();
  EXPECT_THAT(verdict("night"), HasSubstr("b is not among spec.computeQuotaResources: name it there, with count 0"));
  // Machines go: nothing is taken, and the most of all hours is what is short.
  in_.quotas[1].child("spec").child("schedule").items()[0].child("computeQuotaResources").items()[0].set("instanceType", "a");
  in_.nodes.erase(in_.nodes.begin());
  look();
  EXPECT_THAT(capacity("day"), HasSubstr("cpu of a: 32 promised, 24 there"));
  // Without a schedule the annotation goes; one that somebody else wrote stays.
  in_.quotas[1].child("spec").erase("schedule");
  plan_ = plan_teams(in_);
  for (const TeamObject& one : plan_.objects) {
    if (kube::name_of(one.object) == "hyperpod-ns-night-clusterqueue") { EXPECT_FALSE(with_fields(in_.queues.at("hyperpod-ns-night-clusterqueue"), one.object)["metadata"]["annotations"].has(kQuotaScheduleNote)); }
  }
  look();
  Json& theirs = in_.queues.at("hyperpod-ns-night-clusterqueue");
  theirs.child("metadata").set("annotations", Json::object({{kQuotaScheduleNote, "[]"}}));
  plan_ = plan_teams(in_);
  for (const TeamObject& one : plan_.objects) {
    if (kube::name_of(one.object) == "hyperpod-ns-night-clusterqueue") { EXPECT_FALSE(one.object["metadata"].has("annotations")); }
  }
}

TEST_F(Teams, TheWorkedExampleThroughTheEngine) {
  for (const int percent : {60, 50}) {
    in_ = {};
    nodes("a", 11, "cpu: '1'");
    quota("a", "{instanceType: a, count: 6}"), quota("b", "{instanceType: a, count: 5}", fmt::format(", resourceSharingConfig: {{strategy: LendAndBorrow, borrowLimit: {}}}", percent));
    look();
    Books books;
    for (const TeamObject& one : plan_.objects) {
      Json made = with_fields(Json(), one.object);
      if (one.resource == kube::resources::namespaces) made.child("metadata").child("labels").set("kubernetes.io/metadata.name", kube::name_of(made));  // as the API does
      if (one.resource == kube::resources::namespaces) books.set_space(kube::name_of(made), made);
      if (one.resource == api::queues::flavors) books.set_flavor(kube::name_of(made), made);
      if (one.resource == api::queues::cohorts) books.set_cohort(kube::name_of(made), made);
      if (one.resource == api::queues::cluster_queues) books.set_queue(kube::name_of(made), made);
      if (one.resource == api::queues::local_queues) books.set_local_queue(kube::key_of(made), made);
    }
    int number = 0;
    for (const auto& [team, cpu] : {std::pair{"a", 2}, {"b", 4}, {"b", 4}}) {
      ++number;
      books.set_workload({space_of_team(team), fmt::format("w{}", number)},
                         yaml(fmt::format("{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: w{0}, namespace: {1}, uid: u{0}, resourceVersion: '1', creationTimestamp: '2026-11-22T10:00:0{0}Z'}}, spec: {{queueName: {2}, podSets: "
                                          "[{{name: main, count: {3}, template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}]}}}}", number, space_of_team(team), local_queue_of_team(team), cpu)));
    }
    books.decide();
    EXPECT_EQ(books.waits_for({space_of_team("b"), "w3"}).empty(), percent == 60) << books.waits_for({space_of_team("b"), "w3"});
  }
}

TEST_F(Teams, RandomQuotasNeverPassACapacityAndASecondLookChangesNothing) {
  Rng rng(7);
  const int histories = test_rounds(60, 3000);
  for (int history = 0; history < histories; ++history) {
    in_ = {};
    const std::int64_t machines = 1 + static_cast<std::int64_t>(rng.below(20));
    nodes("a", static_cast<int>(machines), "cpu: '7', memory: 10Gi, nvidia.com/gpu: '3'");
    for (int step = 0; step < 12; ++step) {
      if (in_.quotas.size() < 5 && rng.below(2) == 0) quota(fmt::format("t{}", step), fmt::format("{{instanceType: a, count: {}}}", rng.below(10)));
      else if (!in_.quotas.empty()) {
        Json& one = in_.quotas[rng.below(in_.quotas.size())];
        one.child("spec").set("computeQuotaResources", yaml(rng.below(2) == 0 ? fmt::format("[{{instanceType: a, accelerators: {}}}]", rng.below(12)) : fmt::format("[{{instanceType: a, count: {}}}]", rng.below(12))));
      }
      look();
      std::map<std::string, Amount> sum;
      for (const Json& object : in_.quotas)
        for (const Json& type : object["status"]["allocated"].items())
          for (const auto& [resource, text] : type["resources"].members()) sum[resource] += *read_quota(text, resource, "");
      EXPECT_LE(sum["cpu"], 7000 * machines);
      EXPECT_LE(sum["nvidia.com/gpu"], 3 * machines);
      EXPECT_LE(sum["memory"], machines * 10 * (Amount{1} << 30));
      const TeamsPlan before = plan_;
      look();
      ASSERT_EQ(before.objects.size(), plan_.objects.size());
      // Who was refused may have what a later one gave back; nothing else moves.
      for (std::size_t i = 0; i < before.quotas.size(); ++i)
        EXPECT_TRUE(before.quotas[i].accepted.status != "True" || before.quotas[i].allocated == plan_.quotas[i].allocated);
    }
  }
}

TEST_F(Teams, FieldsThatAreSaidCountAndOthersDoNot) {
  const Json have = yaml("{spec: {a: 1, b: {c: x, d: y}, l: [{n: 1, more: 2}]}, status: {}}");
  EXPECT_TRUE(holds_fields(have, yaml("{spec: {b: {c: x}, l: [{n: 1}], none: null}}")));
  EXPECT_FALSE(holds_fields(have, yaml("{spec: {b: {c: null}}}")));
  EXPECT_FALSE(holds_fields(have, yaml("{spec: {l: [{n: 1}, {n: 2}]}}")));
  EXPECT_EQ(with_fields(have, yaml("{spec: {a: null, b: {c: z}, l: [{n: 3, gone: null}]}}")), yaml("{spec: {b: {c: z, d: y}, l: [{n: 3}]}, status: {}}"));
  EXPECT_EQ(with_fields(Json(), yaml("{a: null, b: {c: null}}")), yaml("{b: {}}"));
}

}  // namespace
}  // namespace fairlead::governance
