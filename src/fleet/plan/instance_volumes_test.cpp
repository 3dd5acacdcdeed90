// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/instance_volumes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/instance_volume.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::HasSubstr;

constexpr const char* id = "i-0123456789abcdef0";
const Instant now = *parse_time("2026-01-02T03:04:05Z");

struct Facts {
  Json instance = *kube::parse_json(R"({"metadata": {"name": "i-0123456789abcdef0", "uid": "u-1"}, "status": {"node": "w0"}})");
  api::InstanceGroup group;
  std::optional<Json> volume, attachment;
  std::vector<api::PoolFacts> pools{{.name = "shelf", .id = "x", .size = 100LL << 30, .promised = 0, .limit = 90LL << 30, .free = 90LL << 30, .classes = {"local-fast", "local-managed"}, .nodes = {"w0"}, .heard = now}};
  std::vector<api::VolumeKey> keys{{.name = "mine", .uid = "k", .description = {}, .deletion = {}, .policy = {}, .aliases = {"alias/mine"}}};
  Facts() { group.volume_gib = 10, group.volume_key = "alias/mine", group.role = "arn:aws:iam::111122223333:role/workers"; }
  InstanceVolumeStep plan() const { return plan_instance_volume({.instance = instance, .group = group, .node = "w0", .volume = volume ? &*volume : nullptr, .attachment = attachment ? &*attachment : nullptr, .pools = pools, .keys = keys, .now = now}); }
  void has_volume() {
    volume = plan().create_volume;
    volume->child("status").set("phase", "Available");
  }
};

TEST(InstanceVolumes, AreMadeAttachedAndGrown) {
  Facts facts;
  auto step = facts.plan();
  EXPECT_EQ(step.trouble, "");
  const auto volume = api::read_volume(step.create_volume);
  ASSERT_TRUE(volume) << volume.error().message;
  EXPECT_EQ(kube::name_of(step.create_volume), id);
  EXPECT_EQ(*volume, (api::VolumeSpec{.pool = "shelf", .klass = "local-managed", .size = 10LL << 30, .from_volume = {}, .from_snapshot = {}, .iops = 0, .throughput = 0, .encrypted = true, .key = "mine"}));
  EXPECT_EQ(step.create_volume["metadata"]["ownerReferences"].items().at(0)["uid"].string(), "u-1");
  facts.has_volume();
  facts.volume->child("status").set("phase", "Creating");
  step = facts.plan();
  EXPECT_TRUE(step.create_volume.is_null() && step.create_attachment.is_null() && step.trouble.empty()) << "it is waited for";
  facts.volume->child("status").set("phase", "Available");
  step = facts.plan();
  ASSERT_TRUE(step.create_attachment.is_object());
  EXPECT_EQ(kube::name_of(step.create_attachment), api::attachment_name(id, "w0"));
  const auto grant = api::read_grant(step.create_attachment);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->key + " " + grant->issuer, "mine arn:aws:iam::111122223333:role/workers");
  facts.attachment = step.create_attachment;
  step = facts.plan();
  EXPECT_TRUE(step.create_volume.is_null() && step.create_attachment.is_null() && step.grow_to == 0 && step.trouble.empty());
  facts.group.volume_gib = 20;
  EXPECT_EQ(facts.plan().grow_to, 20LL << 30);
  facts.group.volume_gib = 5;
  EXPECT_EQ(facts.plan().grow_to, 0) << "nothing shrinks";
  facts.attachment->child("status").set("message", "its key is disabled");
  EXPECT_EQ(facts.plan().trouble, "its key is disabled");
}

TEST(InstanceVolumes, ByTheSitesOwnKeyNeedNoGrant) {
  Facts facts;
  facts.group.volume_key = "arn:aws:kms:x:111122223333:alias/aws/ebs";
  facts.has_volume();
  EXPECT_EQ((*facts.volume)["spec"]["key"].string(), "");
  EXPECT_TRUE((*facts.volume)["spec"]["encrypted"].boolean());
  EXPECT_FALSE(api::read_grant(facts.plan().create_attachment));
}

TEST(InstanceVolumes, WaitAndSayForWhat) {
  const auto trouble = [](auto change) {
    Facts facts;
    change(facts);
    const auto step = facts.plan();
    EXPECT_TRUE(step.create_volume.is_null() && step.create_attachment.is_null() && step.grow_to == 0);
    return step.trouble;
  };
  EXPECT_THAT(trouble([](Facts& f) { f.group.volume_key = "alias/other"; }), HasSubstr("there is no key alias/other"));
  EXPECT_THAT(trouble([](Facts& f) { f.keys[0].enabled = false; }), HasSubstr("key mine is disabled"));
  EXPECT_THAT(trouble([](Facts& f) { f.pools.clear(); }), HasSubstr("a pool that node w0 reaches is needed, with engines"));
  EXPECT_THAT(trouble([](Facts& f) { f.pools[0].nodes = {"w1"}; }), HasSubstr("a pool that node w0 reaches is needed"));
  EXPECT_THAT(trouble([](Facts& f) { f.pools[0].classes = {"local-fast"}; }), HasSubstr("a pool that node w0 reaches is needed"));
  EXPECT_THAT(trouble([](Facts& f) { f.has_volume(), f.instance.child("metadata").set("uid", "another"); }), HasSubstr("is somebody else's"));
  EXPECT_THAT(trouble([](Facts& f) { f.has_volume(), f.volume->child("metadata").set("deletionTimestamp", "2026-01-02T03:04:05Z"); }), HasSubstr("is deleted: replace the instance"));
  EXPECT_THAT(trouble([](Facts& f) {
    f.has_volume();
    f.attachment = f.plan().create_attachment;
    f.attachment->child("metadata").set("deletionTimestamp", "2026-01-02T03:04:05Z");
  }), HasSubstr("it is made anew once it has gone"));
  EXPECT_THAT(trouble([](Facts& f) { f.has_volume(), f.volume->child("status").set("phase", "Failed").set("message", "the disk is full"); }), "the disk is full");
}

}  // namespace
}  // namespace fairlead::fleet
