// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/explain.h"

#include <gmock/gmock.h>

#include "base/test_rounds.h"
#include "governance/plan/explain_lab.h"
#include "governance/plan/slurm_workload.h"
#include "governance/plan/kueue_read.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Place = Books::Place;

std::string text(const Remedy& remedy) {
  std::string out;
  for (const ObjectKey& key : remedy.ending) out += (out.empty() ? "" : " + ") + key.name + " ends";
  for (const FieldChange& change : remedy.changes) out += fmt::format("{}{} {} {}: {} -> {}", out.empty() ? "" : " + ", change.kind, change.key.name, change.field.substr(change.field.rfind('.') + 1), kube::print_json(change.from), kube::print_json(change.to));
  for (const ObjectKey& key : remedy.stops) out += " (stops " + key.name + ")";
  return out;
}
std::vector<std::string> remedies(const Explanation& it) {
  std::vector<std::string> out;
  for (const Remedy& one : it.remedies) out.push_back(text(one));
  return out;
}
std::string text(const Missing& one) {
  std::string out = fmt::format("{} of {} {} in {}: {} {} {} ({})", amount_text(one.resource, one.missing), amount_text(one.resource, one.asked), one.resource, one.flavor, one.limit_kind, one.limit_of, one.limit_field, amount_text(one.resource, one.limit));
  for (const auto& kept : one.kept) out += fmt::format(", {} keeps {}", kept.name, amount_text(one.resource, kept.amount));
  return out + (one.never ? " never" : "");
}
std::vector<std::string> missing(const Explanation& it) {
  std::vector<std::string> out;
  for (const Missing& one : it.missing) out.push_back(text(one));
  return out;
}
std::vector<std::string> holders(const Explanation& it) {
  std::vector<std::string> out;
  for (const Holder& one : it.holders) out.push_back(fmt::format("{} of {}: {}, {} borrowed", one.workload.name, one.queue, amount_text("cpu", one.amount), amount_text("cpu", one.borrowed)));
  return out;
}
Explanation of(const Lab& lab, const std::string& name) {
  auto out = explain(lab.books(), {"lab", name});
  EXPECT_TRUE(out) << name;
  return out ? *out : Explanation{};
}
constexpr const char* kNever = "{withinClusterQueue: Never, reclaimWithinCohort: Never}";

// A owns 6 and uses 2, B owns 5 and uses 4, B asks for 4 more and may borrow two and a half.
TEST(Explain, TheWorkedExampleWaitsForItsBorrowingLimit) {
  Lab lab;
  lab.queue("a", "6", "", "", "pool", "", kNever), lab.queue("b", "5", ", borrowingLimit: 2500m", "", "pool", "", kNever);
  lab.work("a1", "a", "2", 0, "f0"), lab.work("b1", "b", "4", 0, "f0"), lab.work("b2", "b", "4");
  const Explanation it = of(lab, "b2");
  EXPECT_EQ(it.place, Place::Waiting);
  EXPECT_EQ(it.position, 1);
  EXPECT_THAT(missing(it), ElementsAre("500m of 4 cpu in f0: ClusterQueue b borrowingLimit (2500m)"));
  EXPECT_THAT(holders(it), ElementsAre("b1 of b: 4, 0 borrowed"));
  EXPECT_THAT(remedies(it), Contains("b1 ends"));
  EXPECT_THAT(remedies(it), Contains("ClusterQueue b borrowingLimit: \"2500m\" -> \"3\""));
  EXPECT_THAT(remedies(it), Contains("ClusterQueue b nominalQuota: 5 -> \"5500m\""));
  EXPECT_THAT(remedies(it), testing::Not(Contains(HasSubstr("a1")))) << "it would not help";
}

TEST(Explain, WhoHoldsItAndWhatOfItIsBorrowed) {
  Lab lab;
  lab.queue("a", "6", "", "", "pool", "", kNever), lab.queue("b", "5", "", "", "pool", "", kNever);
  lab.work("b1", "b", "4", 0, "f0"), lab.work("b2", "b", "5", 0, "f0"), lab.work("a1", "a", "4");
  const Explanation it = of(lab, "a1");
  EXPECT_THAT(missing(it), ElementsAre("2 of 4 cpu in f0: Cohort pool quota (11)"));
  EXPECT_THAT(holders(it), ElementsAre("b2 of b: 5, 4 borrowed", "b1 of b: 4, 0 borrowed"));
  EXPECT_THAT(remedies(it), Contains("b2 ends"));
  EXPECT_THAT(remedies(it), Contains("ClusterQueue a reclaimWithinCohort: \"Never\" -> \"Any\" (stops b2)"));
}

TEST(Explain, WhatOthersDoNotLend) {
  Lab lab;
  lab.queue("a", "6", ", lendingLimit: 2"), lab.queue("b", "5");
  lab.work("b1", "b", "7", 0, "f0"), lab.work("b2", "b", "3"), lab.work("b3", "b", "9");
  EXPECT_THAT(missing(of(lab, "b2")), ElementsAre("3 of 3 cpu in f0: Cohort pool quota (7), a keeps 4"));
  EXPECT_THAT(remedies(of(lab, "b2")), Contains("ClusterQueue a lendingLimit: 2 -> \"5\""));
  EXPECT_THAT(missing(of(lab, "b3")), ElementsAre("2 of 9 cpu in f0: Cohort pool quota (7), a keeps 4 never"));
}

TEST(Explain, SeveralHaveToEndTogether) {
  Lab lab;
  lab.queue("a", "6", "", "", "", "", kNever);
  for (const char* name : {"t", "u", "v"}) lab.work(name, "a", "2", 0, "f0");
  lab.work("w", "a", "4");
  EXPECT_THAT(remedies(of(lab, "w")), Contains("t ends + u ends"));
}

TEST(Explain, OthersBeforeItAreMinded) {
  Lab lab;
  lab.queue("a", "4", "", "", "", "", kNever);
  lab.work("t", "a", "2", 0, "f0"), lab.work("u", "a", "2", 0, "f0"), lab.work("first", "a", "2"), lab.work("w", "a", "2");
  EXPECT_THAT(remedies(of(lab, "w")), testing::Not(Contains("t ends"))) << "the first would have it";
  EXPECT_THAT(remedies(of(lab, "w")), Contains("t ends + u ends"));
}

TEST(Explain, WhoStandsBeforeItInAStrictQueue) {
  Lab lab;
  lab.queue("a", "4", "", ", queueingStrategy: StrictFIFO", "", "", kNever);
  lab.work("x", "a", "3", 0, "f0"), lab.work("first", "a", "3"), lab.work("w", "a", "1");
  const Explanation it = of(lab, "w");
  EXPECT_EQ(it.waits_for, "an earlier one of its StrictFIFO queue");
  EXPECT_THAT(it.ahead, ElementsAre(ObjectKey{"lab", "first"}));
  EXPECT_THAT(remedies(it), Contains("first ends"));
}

TEST(Explain, APolicyThatForbidsPreemption) {
  Lab lab;
  lab.queue("a", "4", "", "", "", "", kNever);
  lab.work("x", "a", "4", 1, "f0"), lab.work("w", "a", "2", 5);
  EXPECT_THAT(remedies(of(lab, "w")), Contains("ClusterQueue a withinClusterQueue: \"Never\" -> \"LowerPriority\" (stops x)"));
}

TEST(Explain, OneThatRunsSaysWhatIsBorrowedAndWhoCouldTakeIt) {
  Lab lab;
  lab.queue("a", "6"), lab.queue("b", "5");
  lab.work("b1", "b", "4", 0, "f0"), lab.work("b2", "b", "4", 0, "f0");
  const Explanation it = of(lab, "b2");
  ASSERT_EQ(it.has.size(), 1U);
  EXPECT_EQ(it.has[0].owner, "cpu in f0");
  EXPECT_EQ(it.has[0].borrowed, 3000);
  std::vector<std::string> takers;
  for (const Taker& one : it.takers) takers.push_back(fmt::format("{}{}{}", one.queue, one.own_quota ? " own" : "", one.above ? fmt::format(" above {}", *one.above) : ""));
  EXPECT_THAT(takers, ElementsAre("a own", "b above 0"));
  EXPECT_THAT(to_json(it)["state"].string(), "Running");
}

TEST(Explain, OneThatIsPromisedWaitsForThoseThatStop) {
  Lab lab;
  lab.queue("a", "6"), lab.queue("b", "5");
  lab.work("b1", "b", "5", 0, "f0"), lab.work("b2", "b", "6", 0, "f0"), lab.work("a1", "a", "6");
  const Explanation it = of(lab, "a1");
  EXPECT_EQ(it.place, Place::Promised);
  ASSERT_EQ(it.holders.size(), 1U);
  EXPECT_TRUE(it.holders[0].stopping);
}

TEST(Explain, NoFieldIsWrongOfOneThatIsOutOfLineForAWhile) {
  Lab lab;
  lab.queue("a", "6");
  lab.work("w", "a", "1");
  lab.at("Workload", "w").set("status", kube::parse_yaml("{requeueState: {count: 1, requeueAt: '2026-11-23T10:01:00Z'}, conditions: [{type: Requeued, status: 'False', reason: PodsReadyTimeout, lastTransitionTime: '2026-11-23T10:00:00Z'}]}")->at(0));
  const Explanation it = of(lab, "w");
  EXPECT_EQ(it.place, Place::Out);
  EXPECT_EQ(it.message, "Its pods were not all ready in time: it stands in line again at 2026-11-23T10:01:00Z");
  EXPECT_FALSE(it.wrong);
}

struct WrongRow {
  const char *name, *object, *workload, *want;
  bool starts;
};
class ExplainWrong : public testing::TestWithParam<WrongRow> {};
TEST_P(ExplainWrong, NamesTheField) {
  Lab lab;
  lab.queue("a", "6");
  if (*GetParam().object) lab.put(GetParam().object);
  lab.work("w", *GetParam().workload == '@' ? GetParam().workload + 1 : "a", "1", 0, "", "", *GetParam().workload == '@' ? "" : GetParam().workload);
  const Explanation it = of(lab, "w");
  ASSERT_TRUE(it.wrong) << it.message;
  EXPECT_EQ(fmt::format("{} {} {}", it.wrong->kind, it.wrong->key.name, it.wrong->field), GetParam().want);
  EXPECT_EQ(!it.remedies.empty(), GetParam().starts);
  EXPECT_FALSE(it.message.empty());
}
INSTANTIATE_TEST_SUITE_P(Rows, ExplainWrong, testing::Values(
    WrongRow{"off", "", ", active: false", "Workload w spec.active", true},
    WrongRow{"no_local_queue", "", "@door", "Workload w spec.queueName", false},
    WrongRow{"no_queue", "{kind: LocalQueue, metadata: {name: a, namespace: lab}, spec: {clusterQueue: gone}}", "", "LocalQueue a spec.clusterQueue", false},
    WrongRow{"held_local", "{kind: LocalQueue, metadata: {name: a, namespace: lab}, spec: {clusterQueue: a, stopPolicy: Hold}}", "", "LocalQueue a spec.stopPolicy", true},
    WrongRow{"held", "{kind: ClusterQueue, metadata: {name: a}, spec: {namespaceSelector: {}, stopPolicy: Hold, resourceGroups: [{coveredResources: [cpu], flavors: [{name: f0, resources: [{name: cpu, nominalQuota: 4}]}]}]}}", "", "ClusterQueue a spec.stopPolicy", true},
    WrongRow{"other_space", "{kind: ClusterQueue, metadata: {name: a}, spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: f0, resources: [{name: cpu, nominalQuota: 4}]}]}]}}", "", "ClusterQueue a spec.namespaceSelector", false},
    WrongRow{"flavor", "{kind: ClusterQueue, metadata: {name: a}, spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: gone, resources: [{name: cpu, nominalQuota: 4}]}]}]}}", "", "ClusterQueue a spec.resourceGroups", false}),
    [](const auto& row) { return row.param.name; });

TEST(Explain, FindsTheWorkloadOfAJob) {
  Lab lab;
  lab.queue("a", "6"), lab.work("job-train-1", "a", "1");
  lab.at("Workload", "job-train-1").child("metadata").set("ownerReferences", Json::array({Json::object({{"kind", "Job"}, {"name", "train"}, {"controller", true}})}));
  const Books books = lab.books();
  for (const char* good : {"job/train", "jobs/train", "Job.batch/train", "workload/job-train-1", "kwl/job-train-1"}) EXPECT_EQ(find_workload(books, "lab", good).value_or(ObjectKey{}).name, "job-train-1") << good;
  EXPECT_THAT(find_workload(books, "lab", "job/trian").error().message, HasSubstr("there are job/train"));
  EXPECT_THAT(find_workload(books, "other", "job/train").error().message, HasSubstr("has the job the label"));
  Json of_slurm = ledger_workload(kube::parse_yaml("{metadata: {name: demo, namespace: slurm, uid: u1}}")->at(0), {.id = "7_3", .parts = {{.nodes = 1, .cpus = 1}}}, {.account = "a", .space = "lab", .queue = "q", .priority_class = ""}, {});
  Books with = books;
  with.set_workload(kube::key_of(of_slurm), of_slurm);
  for (const char* space : {"lab", "slurm"}) EXPECT_EQ(find_workload(with, space, "slurm/demo/7_3").value_or(ObjectKey{}), kube::key_of(of_slurm)) << space;
  EXPECT_THAT(find_workload(with, "slurm", "slurm/demo/8").error().message, HasSubstr("there are slurm/demo/7_3"));
  EXPECT_EQ(find_workload(with, "other", "slurm/demo/7_3").error().code, Code::NotFound);
  for (const char* bad : {"train", "job/", "/train"}) EXPECT_EQ(find_workload(books, "lab", bad).error().code, Code::Invalid) << bad;
}

// Every remedy is done on other books, told of the objects as they would be: the workload gets its quota. What is missing is what the ledger says.
TEST(ExplainProperty, EveryRemedyStartsIt) {
  int waiting = 0, endings = 0, changes = 0, none = 0;
  const std::uint64_t seeds = test_rounds<std::uint64_t>(40, 20'000);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Lab lab = Lab::random(seed);
    const Books books = lab.books();
    for (const ObjectKey& key : books.workloads()) {
      const auto it = explain(books, key);
      ASSERT_TRUE(it);
      if (it->place != Place::Waiting) continue;
      ++waiting;
      none += it->remedies.empty();
      const EngineWait& wait = books.engine().wait(books.standing(key)->class_id);
      if (wait.rule == EngineWait::Rule::Short || wait.rule == EngineWait::Rule::ExceedsMax) {
        ASSERT_FALSE(it->missing.empty()) << "seed " << seed << " " << key.name;
        EXPECT_EQ(it->missing.front().missing, wait.missing) << "seed " << seed << " " << key.name;
      }
      for (const Remedy& remedy : it->remedies) {
        Books other = lab.books();
        for (const ObjectKey& gone : remedy.ending) other.set_workload(gone, Json());
        for (const FieldChange& change : remedy.changes) {
          Lab copy = lab;
          Json next = changed(copy.at(change.kind, change.key.name), change);
          for (const FieldChange& further : remedy.changes)
            if (further.kind == change.kind && further.key == change.key) next = changed(next, further);
          if (change.kind == "ClusterQueue") other.set_queue(change.key.name, next);
          else if (change.kind == "Cohort") other.set_cohort(change.key.name, next);
          else if (change.kind == "LocalQueue") other.set_local_queue(change.key, next);
          else {
            next.child("metadata").set("resourceVersion", "1000000");
            other.set_workload(change.key, next);
          }
        }
        other.decide();
        const auto standing = other.standing(key);
        EXPECT_TRUE(standing && (standing->place == Place::Running || standing->place == Place::Promised)) << "seed " << seed << " " << key.name << ": " << text(remedy);
        ++(remedy.ending.empty() ? changes : endings);
      }
      EXPECT_FALSE(kube::print_json(to_json(*it)).empty());
    }
    if (HasFailure()) FAIL() << lab.text();
  }
  const int of = static_cast<int>(seeds);  // each world has several that wait
  EXPECT_GT(waiting, of);
  EXPECT_GT(endings, of / 4);
  EXPECT_GT(changes, of);
  EXPECT_LT(none, waiting / 5) << "most can be helped";
}

// Who could take it: somebody does, when a newcomer of that queue comes.
TEST(ExplainProperty, ExplainingChangesNothing) {
  for (std::uint64_t seed = 1'000; seed < 1'015; ++seed) {
    const Lab lab = Lab::random(seed);
    const Books books = lab.books();
    const std::string before = kube::print_json(queue_view(books)) + kube::print_json(quota_view(books));
    std::string first, second;
    for (const ObjectKey& key : books.workloads()) first += kube::print_json(to_json(*explain(books, key)));
    for (const ObjectKey& key : books.workloads()) second += kube::print_json(to_json(*explain(books, key)));
    EXPECT_EQ(first, second) << seed;
    EXPECT_EQ(kube::print_json(queue_view(books)) + kube::print_json(quota_view(books)), before) << seed;
  }
}

}  // namespace
}  // namespace fairlead::governance
