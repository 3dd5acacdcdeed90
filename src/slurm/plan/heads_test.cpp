// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/heads.h"

#include <gmock/gmock.h>

namespace fairlead::slurm {
namespace {
using kube::Json;

api::SlurmCluster three() {
  api::SlurmCluster cluster;
  cluster.name = "c";
  cluster.space = "s";
  cluster.uid = "u";
  cluster.controller.size = 3;
  cluster.controller.main.port = 6817;
  cluster.owner = Json::object({{"uid", "u"}});
  return cluster;
}

std::map<std::string, Json> pods() {
  std::map<std::string, Json> out;
  for (int i = 0; i < 3; ++i) {
    const std::string name = "controller-" + std::to_string(i);
    out[name] = Json::object({{"metadata", Json::object({{"name", name}, {"uid", "p" + std::to_string(i)}})}, {"spec", Json::object({{"nodeName", "n"}})}, {"status", Json::object({{"podIP", "10.0.0." + std::to_string(i)}})}});
  }
  return out;
}

std::string address_of(const Json& slice) { return slice["endpoints"].items()[0]["addresses"].items()[0].string(); }

TEST(Heads, TheOneOfTheHighestTermIsTheEndpoint) {
  const auto cluster = three();
  EXPECT_FALSE(desired_slice(cluster, {}, pods(), nullptr)) << "nobody said anything";
  EXPECT_FALSE(desired_slice(cluster, {{"controller-0", {"standby", 4}}, {"controller-1", {"starting", 5}}}, pods(), nullptr));
  auto slice = desired_slice(cluster, {{"controller-0", {"active", 4}}, {"controller-1", {"standby", 4}}}, pods(), nullptr);
  ASSERT_TRUE(slice);
  EXPECT_EQ(address_of(*slice), "10.0.0.0");
  EXPECT_EQ(active_head(&*slice), (ActiveHead{"controller-0", 4}));
  EXPECT_EQ((*slice)["metadata"]["labels"]["kubernetes.io/service-name"].string(), "c-controller-active");
  // The same again changes nothing.
  EXPECT_FALSE(desired_slice(cluster, {{"controller-0", {"active", 4}}}, pods(), &*slice));
  // A head that was stopped still says what it was; another has a later term.
  auto next = desired_slice(cluster, {{"controller-0", {"active", 4}}, {"controller-2", {"active", 5}}}, pods(), &*slice);
  ASSERT_TRUE(next);
  EXPECT_EQ(address_of(*next), "10.0.0.2");
  EXPECT_EQ(active_head(&*next), (ActiveHead{"controller-2", 5}));
  EXPECT_FALSE(desired_slice(cluster, {{"controller-0", {"active", 4}}}, pods(), &*next)) << "late";
  EXPECT_FALSE(desired_slice(cluster, {{"controller-0", {"standby", 6}}}, pods(), &*next));
  EXPECT_FALSE(desired_slice(cluster, {}, pods(), &*next)) << "silence says nothing";
  // Its pod was made anew.
  auto moved = pods();
  moved["controller-2"].child("status").set("podIP", "10.0.0.9");
  auto after = desired_slice(cluster, {{"controller-2", {"active", 5}}}, moved, &*next);
  ASSERT_TRUE(after);
  EXPECT_EQ(address_of(*after), "10.0.0.9");
  moved["controller-2"].child("status").set("podIP", "");
  EXPECT_FALSE(desired_slice(cluster, {{"controller-2", {"active", 7}}}, moved, &*next));
  EXPECT_FALSE(desired_slice(cluster, {{"controller-9", {"active", 7}}}, moved, &*next));
}

TEST(Heads, WhyNoneServesIsWrittenDownUntilOneDoes) {
  const auto cluster = three();
  const HeadReport refuses{"standby", 4, "slurmctld would begin without what it saved in /run/slurm/state/job_state: it is empty"}, waits{"standby", 4}, serves{"active", 5};
  // Nobody ever served: the slice is made to tell it, and names no one.
  auto slice = desired_slice(cluster, {{"controller-0", waits}, {"controller-1", refuses}}, pods(), nullptr);
  ASSERT_TRUE(slice);
  EXPECT_FALSE(active_head(&*slice));
  EXPECT_EQ((*slice)["addressType"].string(), "IPv4");
  EXPECT_EQ(head_trouble(&*slice), "controller-1: slurmctld would begin without what it saved in /run/slurm/state/job_state: it is empty");
  EXPECT_FALSE(desired_slice(cluster, {{"controller-0", waits}, {"controller-1", refuses}}, pods(), &*slice)) << "it is written already";
  EXPECT_FALSE(desired_slice(cluster, {}, pods(), &*slice)) << "silence says nothing";
  auto over = desired_slice(cluster, {{"controller-0", waits}, {"controller-1", waits}}, pods(), &*slice);
  ASSERT_TRUE(over);
  EXPECT_EQ(head_trouble(&*over), "");
  auto next = desired_slice(cluster, {{"controller-0", serves}, {"controller-1", refuses}}, pods(), &*slice);
  ASSERT_TRUE(next);
  EXPECT_EQ(head_trouble(&*next), "");
  EXPECT_EQ(active_head(&*next), (ActiveHead{"controller-0", 5}));
  EXPECT_FALSE(desired_slice(cluster, {{"controller-0", serves}, {"controller-1", refuses}}, pods(), &*next)) << "one serves: another's trouble is not the cluster's";
  // One that served and does not any more: its endpoint stays, for nobody has taken over.
  auto after = desired_slice(cluster, {{"controller-0", refuses}, {"controller-1", refuses}}, pods(), &*next);
  ASSERT_TRUE(after);
  EXPECT_EQ(active_head(&*after), (ActiveHead{"controller-0", 5}));
  EXPECT_THAT(head_trouble(&*after), testing::StartsWith("controller-0: slurmctld would begin"));
  // The same head serves again, in the same term.
  auto again = desired_slice(cluster, {{"controller-0", serves}}, pods(), &*after);
  ASSERT_TRUE(again);
  EXPECT_EQ(head_trouble(&*again), "");
}

TEST(Heads, ReportsAreRead) {
  auto report = read_head_report(R"({"voter":1,"role":"active","term":12,"active":1})");
  ASSERT_TRUE(report);
  EXPECT_EQ(*report, (HeadReport{"active", 12}));
  EXPECT_EQ(read_head_report(R"({"role":"standby","term":3,"trouble":"no\nroom"})")->trouble, "noroom");
  EXPECT_LE(read_head_report(R"({"role":"standby","term":3,"trouble":")" + std::string(900, 'x') + R"("})")->trouble.size(), 300u);
  for (const char* bad : {"", "{}", "[]", R"({"role":"active"})", R"({"role":"active","term":-1})", R"({"role":"active","term":"x"})", R"({"term":1})"}) EXPECT_FALSE(read_head_report(bad)) << bad;
}

TEST(Heads, ASliceOfSomebodyElseNamesNobody) {
  EXPECT_FALSE(active_head(nullptr));
  const Json strange = Json::object({{"metadata", Json::object({{"annotations", Json::object({{kTerm, "x"}})}})}, {"endpoints", Json::array({Json::object({{"targetRef", Json::object({{"name", "p"}})}})})}});
  EXPECT_FALSE(active_head(&strange));
}

}  // namespace
}  // namespace fairlead::slurm
