// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/views.h"

#include <gmock/gmock.h>

#include "governance/plan/explain_lab.h"
#include "governance/plan/kueue_read.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::ElementsAre;

// A has 6 and uses 2, B has 5 and uses 4 and 4 more: three are borrowed from A.
Lab worked_example() {
  Lab lab;
  lab.queue("a", "6"), lab.queue("b", "5", ", borrowingLimit: 3");
  lab.work("a1", "a", "2", 0, "f0"), lab.work("b1", "b", "4", 0, "f0"), lab.work("b2", "b", "4", 0, "f0");
  return lab;
}

TEST(QuotaView, TellsWhatIsBorrowedAndWhoLendsIt) {
  const Json root = quota_view(worked_example().books())["tree"].items().at(0);
  EXPECT_EQ(root["name"].string() + " " + root["kind"].string(), "pool Cohort");
  EXPECT_EQ(kube::print_json(root["quotas"]), R"([{"flavor":"f0","resource":"cpu","nominal":"11","used":"10","borrowed":"0","lent":"0"}])");
  EXPECT_EQ(root["reserving"].integer(), 3);
  const Json &a = root["children"].items().at(0), &b = root["children"].items().at(1);
  EXPECT_EQ(kube::print_json(a["quotas"]), R"([{"flavor":"f0","resource":"cpu","nominal":"6","used":"2","borrowed":"0","lent":"3"}])");
  EXPECT_EQ(kube::print_json(b["quotas"]), R"([{"flavor":"f0","resource":"cpu","nominal":"5","used":"8","borrowed":"3","lent":"0","borrowingLimit":"3"}])");
  EXPECT_EQ(b["share"].integer(), 273);
  EXPECT_EQ(b["weight"].number(), 1);
  EXPECT_TRUE(b["active"].boolean());
}

TEST(QuotaView, AQueueWithAFaultStandsAloneAndSaysSo) {
  Lab lab = worked_example();
  lab.queue("c", "1", "", "", "pool", ", {name: gone, resources: [{name: cpu, nominalQuota: 1}]}");
  const Json view = quota_view(lab.books());
  ASSERT_EQ(view["tree"].items().size(), 2U);
  EXPECT_EQ(view["tree"].items()[1]["reason"].string(), "FlavorNotFound");
  EXPECT_EQ(view["tree"].items()[1]["cohort"].string(), "pool");
}

TEST(QuotaView, TeamsAreNamed) {
  EXPECT_EQ(team_of_queue("hyperpod-ns-vision-clusterqueue"), "vision");
  for (const char* none : {"vision", "hyperpod-ns--clusterqueue", "hyperpod-ns-clusterqueue", "hyperpod-ns-x"}) EXPECT_EQ(team_of_queue(none), "") << none;
}

Amount amount(const Json& text) { return *read_quota(text, "cpu", ""); }
// In each cohort: what its members have borrowed was lent by somebody in it, or comes from above.
void check_lending(const Json& node, const Ledger& ledger, std::uint64_t seed) {
  Amount lent = 0, borrowed = 0;
  for (const Json& child : node["children"].items()) {
    for (const Json& quota : child["quotas"].items())
      if (quota["flavor"].string() == "f0") {
        lent += amount(quota["lent"]), borrowed += amount(quota["borrowed"]);
        EXPECT_GE(amount(quota["lent"]), 0) << "seed " << seed;
      }
    check_lending(child, ledger, seed);
  }
  const NodeId cohort = ledger.cohort(node["name"].string());
  if (node["kind"].string() != "Cohort" || cohort == no_node) return;
  const Column column = ledger.column(cohort, "f0", "cpu");
  if (column == no_column) return;
  EXPECT_LE(lent, borrowed) << "seed " << seed;
  if (!ledger.has_parent(cohort) && ledger.limits(cohort, column).nominal == 0) { EXPECT_EQ(lent, borrowed) << "seed " << seed; }
}

TEST(QuotaViewProperty, WhatIsLentIsWhatIsBorrowed) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Lab lab = Lab::random(seed);
    const Books books = lab.books();
    const Json view = quota_view(books);
    for (const Json& root : view["tree"].items()) check_lending(root, books.in_use(), seed);
    if (HasFailure()) FAIL() << lab.text();
  }
}

std::vector<std::string> lines(const Json& view) {
  std::vector<std::string> out;
  for (const Json& one : view["workloads"].items()) out.push_back(fmt::format("{} {} {} {}", one["queue"].string(), one["position"].integer(), one["name"].string(), one["state"].string()));
  return out;
}

TEST(QueueView, StandsInTheEnginesOrder) {
  Lab lab = worked_example();
  lab.work("b3", "b", "2"), lab.work("b4", "b", "2", 5), lab.work("b5", "b", "2", 0), lab.work("idle", "a", "1", 0, "", "", ", active: false"), lab.work("lost", "nowhere", "1");
  const Json view = queue_view(lab.books());
  EXPECT_THAT(lines(view), ElementsAre(" 0 lost NotQueued", "a 0 idle NotQueued", "b 1 b4 Promised", "b 2 b3 Promised", "b 3 b5 Waiting", "a 0 a1 Running", "b 0 b1 Running", "b 0 b2 Stopping"));
  const auto words = [&](const char* name) {
    for (const Json& one : view["workloads"].items())
      if (one["name"].string() == name) return one["waitsFor"].string();
    return std::string("not there");
  };
  EXPECT_EQ(words("lost"), "LocalQueue nowhere doesn't exist");
  EXPECT_EQ(words("idle"), "The workload is deactivated");
  EXPECT_EQ(words("b4"), "those that were pre-empted for it to stop");
  EXPECT_EQ(words("b2"), "is being stopped: Preempted");
}

TEST(QueueView, NamesTheLimit) {
  Lab lab = worked_example();
  lab.work("b3", "b", "2");
  lab.queue("alone", "2", "", "", ""), lab.work("x", "alone", "2", 0, "f0"), lab.work("u", "alone", "2"), lab.work("z", "alone", "5");
  std::map<std::string, std::string> words;
  const Json view = queue_view(lab.books());
  for (const Json& one : view["workloads"].items()) words[one["name"].string()] = one["waitsFor"].string();
  EXPECT_EQ(words["b3"], "2 cpu in f0: borrowingLimit of ClusterQueue b (3)");
  EXPECT_EQ(words["u"], "2 cpu in f0: nominalQuota of ClusterQueue alone (2)");
  EXPECT_EQ(words["z"], "never fits: 3 cpu in f0 above all quota");
}

// Nobody of a queue is admitted before one that stands before it and would fit as well: among equal asks the line is the order of admission.
TEST(QueueViewProperty, TheLineIsTheOrderOfAdmission) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 60; ++round) {
    Lab lab;
    lab.queue("a", "1", "", "", ""), lab.work("first", "a", "1", 9, "f0");
    const int count = 2 + static_cast<int>(rng() % 5);
    for (int i = 0; i < count; ++i) lab.work(fmt::format("w{}", rng() % 1000), "a", "1", static_cast<int>(rng() % 3));
    std::vector<std::string> line, admitted;
    const Json before = queue_view(lab.books());
    for (const Json& one : before["workloads"].items())
      if (one["state"].string() == "Waiting") line.push_back(one["name"].string());
    std::string runs = "first";
    for (std::size_t i = 0; i < line.size(); ++i) {
      lab.remove("Workload", runs);
      lab.admit();
      const Json after = queue_view(lab.books());
      for (const Json& one : after["workloads"].items())
        if (one["state"].string() == "Running") runs = one["name"].string();
      admitted.push_back(runs);
    }
    EXPECT_EQ(line, admitted) << round;
  }
}

// A copy decides on its own, and as the original would.
TEST(Fork, KnowsNothingOfTheOriginal) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Lab lab = Lab::random(seed);
    const Books books = lab.books();
    const std::string before = kube::print_json(queue_view(books)) + kube::print_json(quota_view(books));
    Books fork = books, other = lab.books();
    for (const kube::ObjectKey& key : books.workloads())
      if (key.name.ends_with("1") || key.name.ends_with("3")) {
        fork.set_workload(key, Json()), fork.decide();
        other.set_workload(key, Json()), other.decide();
      }
    EXPECT_EQ(kube::print_json(queue_view(fork)), kube::print_json(queue_view(other))) << seed;
    EXPECT_EQ(kube::print_json(queue_view(books)) + kube::print_json(quota_view(books)), before) << seed;
  }
}

}  // namespace
}  // namespace fairlead::governance
