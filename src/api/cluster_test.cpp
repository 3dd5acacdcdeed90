// SPDX-License-Identifier: Apache-2.0
#include "api/cluster.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "api/instance_types.h"
#include "base/rng.h"
#include "kube/selector.h"

namespace fairlead::api {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(NumberSet, IsWhatWasAdded) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    NumberSet ours;
    std::set<int> plain;
    for (int i = 0; i < 40; ++i) {
      const int first = 1 + static_cast<int>(rng.below(60)), last = first + static_cast<int>(rng.below(rng.below(3) == 0 ? 12 : 1) );
      ours.add(first, last);
      for (int number = first; number <= last; ++number) plain.insert(number);
      ASSERT_EQ(ours.size(), static_cast<int>(plain.size())) << "seed " << seed;
      for (int number = 0; number <= 80; ++number) ASSERT_EQ(ours.contains(number), plain.contains(number)) << "seed " << seed << " number " << number;
      const auto read = NumberSet::parse(ours.text());
      ASSERT_TRUE(read) << ours.text();
      ASSERT_EQ(*read, ours);
      ASSERT_EQ(ours.last(), *plain.rbegin());
    }
  }
}
TEST(NumberSet, ReadsRangesAndRefusesWhatIsNone) {
  EXPECT_EQ(NumberSet::parse("1-3,4,9")->text(), "1-4,9");
  EXPECT_EQ(NumberSet::parse("")->size(), 0);
  EXPECT_EQ(NumberSet::parse("1-100000000")->size(), 100'000'000);
  for (const char* text : {"0", "3-1", "2,1", "1,1", "1,", ",1", "a", "1-", "-1", "1 2", "100000001", "99999999999999999999", "1--2"}) EXPECT_FALSE(NumberSet::parse(text)) << text;
}

TEST(PlainLabels, AreLabelsAndDiffer) {
  std::set<std::string> all;
  for (const std::string& name : std::vector<std::string>{"ml", "ML", "Ml", "a.b", "a-b", "-x-", "", "äöü", std::string(100, 'a'), std::string(101, 'a'), "x--y"})
    for (const std::size_t longest : {40u, 63u}) {
      const std::string label = plain_label(name, longest);
      EXPECT_THAT(kube::check_dns_label(label), IsEmpty()) << name << " -> " << label;
      EXPECT_LE(label.size(), longest);
      all.insert(std::to_string(longest) + label);
    }
  EXPECT_EQ(all.size(), 22u);
  EXPECT_EQ(plain_label("ml", 40), "ml");
}

Json cluster(Json groups) { return Json::object({{"metadata", Json::object({{"name", "ml"}, {"uid", "u"}, {"generation", 3}})}, {"spec", Json::object({{"nodeProvisioningMode", "Continuous"}, {"instanceGroups", std::move(groups)}})}}); }
Json group(const char* name, const char* node_type, int count) {
  Json slurm = Json::object({{"nodeType", node_type}});
  if (std::string_view(node_type) == "Compute") slurm.set("partitionNames", Json::array({Json("p")}));
  return Json::object({{"instanceGroupName", name}, {"instanceType", "ml.c5.large"}, {"instanceCount", count}, {"slurmConfig", std::move(slurm)}});
}

TEST(ReadCluster, NumbersOfSpecAndStatusBothCount) {
  Json object = cluster(Json::array({group("head", "Controller", 1), group("gpu", "Compute", 3).set("issued", 4).set("retired", "2")}));
  object.set("status", Json::object({{"instanceGroups", Json::array({Json::object({{"instanceGroupName", "gpu"}, {"issued", 6}, {"retired", "5-6"}})})}}));
  const Cluster read = read_cluster(object);
  EXPECT_THAT(read.problems, IsEmpty());
  EXPECT_EQ(read.group("gpu")->issued, 6);
  EXPECT_EQ(read.group("gpu")->retired.text(), "2,5-6");
  EXPECT_EQ(read.group("gpu")->live(), 3);
}
TEST(ReadCluster, SaysWhatCannotBe) {
  const auto problem = [](Json groups) {
    const Cluster read = read_cluster(cluster(std::move(groups)));
    return read.problems.empty() ? std::string() : read.problems.front();
  };
  EXPECT_THAT(problem(Json::array({group("head", "Controller", 0)})), HasSubstr("0 controllers; 1 to 3"));
  EXPECT_THAT(problem(Json::array({group("a", "Controller", 1), group("b", "Controller", 1)})), HasSubstr("2 groups with nodeType Controller"));
  EXPECT_THAT(problem(Json::array({group("a", "Controller", 1), group("b", "Login", 1), group("c", "Login", 1)})), HasSubstr("2 groups with nodeType Login"));
  EXPECT_THAT(problem(Json::array({group("a", "Controller", 1), group("b", "Compute", 2).set("issued", 49'000'000)})), HasSubstr("49000000 numbers would be in use"));
  EXPECT_THAT(problem(Json::array({group("a", "Controller", 1), group("b", "Compute", 2).set("retired", "x")})), HasSubstr("\"x\" is not a list of numbers"));
  EXPECT_THAT(problem(Json::array({group("a", "Controller", 1).set("instanceType", "c5")})), HasSubstr("\"c5\" is no type of the API"));
}
TEST(ReadCluster, LabelsOfOthersAreNotSet) {
  const auto read = [](const char* key) {
    Json object = cluster(Json::array({Json::object({{"instanceGroupName", "w"}, {"instanceType", "ml.c5.large"}, {"instanceCount", 1}, {"kubernetesConfig", Json::object({{"labels", Json::object({{key, "x"}})}})}})}));
    object.child("spec").set("orchestrator", Json::object({{"eks", Json::object()}}));
    return read_cluster(object);
  };
  for (const char* key : {"fairlead.dev/instance", "sagemaker.amazonaws.com/cluster-name", "kubernetes.io/hostname", "node-role.kubernetes.io/control-plane", "topology.k8s.io/zone", "a b", "x/y/z"}) EXPECT_EQ(read(key).problems.size(), 1u) << key;
  for (const char* key : {"Team", "example.com/pool", "notkubernetes.io/x"}) {
    EXPECT_THAT(read(key).problems, IsEmpty()) << key;
    EXPECT_EQ(read(key).groups.front().labels.at(key), "x");
  }
}
TEST(ReadCluster, OfAChangeThatWasTakenBackTheOneBeforeIsInForce) {
  Json object = cluster(Json::array({group("head", "Controller", 1), group("gpu", "Compute", 9).set("issued", 9).set("retired", "4")}));
  const Json good = Json::array({group("head", "Controller", 1), group("gpu", "Compute", 2).set("issued", 2).set("retired", "1")});
  object.set("status", Json::object({{"failed", Json::object({{"generation", 3}})}, {"good", Json::object({{"spec", Json::object({{"instanceGroups", good}})}})}}));
  const Cluster read = read_cluster(object);
  EXPECT_EQ(read.group("gpu")->target, 2);
  EXPECT_EQ(read.group("gpu")->issued, 9);
  EXPECT_EQ(read.group("gpu")->retired.text(), "1,4");
  object.child("metadata").set("generation", 4);
  EXPECT_EQ(read_cluster(object).group("gpu")->target, 9);
}

TEST(InstanceTypes, AMachineIsWhatItHas) {
  const InstanceType& type = *find_instance_type("ml.g5.xlarge");
  const auto node = [](const char* cpu, const char* memory, const char* gpus) { return Json::object({{"status", Json::object({{"capacity", Json::object({{"cpu", cpu}, {"memory", memory}, {"nvidia.com/gpu", gpus}})}})}}); };
  EXPECT_EQ(why_not_of_type(type, node("4", "16Gi", "1")), "");
  EXPECT_EQ(why_not_of_type(type, node("64", "15Gi", "1")), "") << "more cores, and what firmware keeps";
  EXPECT_EQ(why_not_of_type(type, node("4", "16Gi", "2")), "ml.g5.xlarge has 1 of nvidia.com/gpu; this machine has 2");
  EXPECT_EQ(why_not_of_type(type, node("3500m", "16Gi", "1")), "ml.g5.xlarge has 4 CPUs; this machine has 3.5");
  EXPECT_EQ(why_not_of_type(type, node("4", "8Gi", "1")), "ml.g5.xlarge has 16 GiB of memory; this machine has 8.0");
  EXPECT_EQ(why_not_of_type(type, Json::object()), "ml.g5.xlarge has 1 of nvidia.com/gpu; this machine has 0");
}

}  // namespace
}  // namespace fairlead::api
