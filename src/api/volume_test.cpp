// SPDX-License-Identifier: Apache-2.0
#include "api/volume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::api {
namespace {

using kube::Json;
using testing::HasSubstr;

constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(Volume, SizesAreWholeMebibytesBetweenTheLeastAndTheMost) {
  EXPECT_EQ(parse_volume_size(Json("10Gi")).value(), 10 * gib);
  EXPECT_EQ(parse_volume_size(Json("1.5Gi")).value(), gib + gib / 2);
  EXPECT_EQ(parse_volume_size(Json(2'000'000'001)).value(), 1908 * (gib / 1024)) << "up to the next one";
  EXPECT_EQ(parse_volume_size(Json("64Ti")).value(), kMostVolume);
  for (const Json& wrong : {Json("0"), Json("-1Gi"), Json("1023Mi"), Json("65Ti"), Json("99999999999Ti"), Json("ten"), Json(""), Json(), Json(true), Json::object()}) {
    const auto got = parse_volume_size(wrong);
    ASSERT_FALSE(got) << kube::print_json(wrong);
    EXPECT_EQ(got.error().code, Code::Invalid);
    EXPECT_THAT(got.error().message, HasSubstr("size: "));
  }
  for (const std::int64_t bytes : {gib, 3 * gib / 2, std::int64_t{1908} << 20, kMostVolume}) EXPECT_EQ(parse_volume_size(Json(print_volume_size(bytes))).value(), bytes);
}

TEST(Volume, WhatIsMadeIsRead) {
  const VolumeSpec spec{.pool = "a", .klass = kLocalFast, .size = 5 * gib, .from_volume = {}, .from_snapshot = "s"};
  const Json object = new_volume("data", spec);
  EXPECT_EQ(read_volume(object).value(), spec);
  EXPECT_TRUE(kube::has_finalizer(object, kVolumeFinalizer));
  const auto problem = [&](const char* field, Json value) {
    Json wrong = object;
    wrong.child("spec").set(field, std::move(value));
    const auto got = read_volume(wrong);
    return got ? "fine" : got.error().message;
  };
  EXPECT_THAT(problem("pool", Json("../x")), HasSubstr("spec.pool"));
  EXPECT_THAT(problem("class", Json("gold")), HasSubstr("no class \"gold\""));
  EXPECT_THAT(problem("size", Json("1Mi")), HasSubstr("spec.size"));
  EXPECT_THAT(problem("source", Json::object({{"volume", "a"}, {"snapshot", "b"}})), HasSubstr("one of"));
  EXPECT_THAT(problem("source", Json::object({{"volume", "A/b"}})), HasSubstr("a name"));
  Json named = object;
  named.child("metadata").set("name", "a.b");
  EXPECT_THAT(read_volume(named).error().message, HasSubstr("no name of a volume"));
}

TEST(Volume, LimitsAreOfAClassThatHoldsThem) {
  const VolumeSpec spec{.pool = "a", .klass = kLocalManaged, .size = 5 * gib, .from_volume = {}, .from_snapshot = {}, .iops = 3000, .throughput = 125 << 20};
  Json object = new_volume("data", spec);
  EXPECT_EQ(read_volume(object).value(), spec);
  EXPECT_EQ(object["spec"]["throughput"].string(), "125Mi");
  EXPECT_FALSE(limits_in_force(object));
  object.set("status", Json::object({{"iops", 3000}, {"throughputBytes", 125 << 20}}));
  EXPECT_TRUE(limits_in_force(object));
  object.child("spec").set("class", kLocalFast);
  EXPECT_THAT(read_volume(object).error().message, HasSubstr("limits nothing"));
  for (const Json& fine : {Json(125), Json("125"), Json("125Mi"), Json("128000Ki")}) EXPECT_EQ(parse_throughput(fine).value(), 125 << 20) << kube::print_json(fine);
  for (const Json& none : {Json(), Json(0), Json("0")}) EXPECT_EQ(parse_throughput(none).value(), 0);
  for (const Json& wrong : {Json(-1), Json("1Ki"), Json("fast"), Json("9999999999999"), Json("2Ti"), Json::object()}) EXPECT_FALSE(parse_throughput(wrong)) << kube::print_json(wrong);
  for (const Json& wrong : {Json(99), Json(-1), Json("x"), Json("100 "), Json(""), Json("99999999999999999999"), Json(10'000'001)}) EXPECT_FALSE(parse_iops(wrong)) << kube::print_json(wrong);
  EXPECT_EQ(parse_iops(Json("100")).value(), 100);
}

TEST(Volume, WhatIsEncryptedIsOfAClassThatDoesIt) {
  VolumeSpec spec{.pool = "a", .klass = kLocalManaged, .size = 5 * gib, .from_volume = {}, .from_snapshot = {}, .iops = 0, .throughput = 0, .encrypted = true, .key = "mine"};
  EXPECT_EQ(read_volume(new_volume("data", spec)).value(), spec);
  spec.encrypted = false;
  EXPECT_THAT(read_volume(new_volume("data", spec)).error().message, HasSubstr("spec.key"));
  spec.encrypted = true, spec.klass = kLocalFast;
  EXPECT_THAT(read_volume(new_volume("data", spec)).error().message, HasSubstr("spec.encrypted"));
  spec.klass = kLocalManaged, spec.key = "../x";
  EXPECT_THAT(read_volume(new_volume("data", spec)).error().message, HasSubstr("name of a key"));
}

TEST(Volume, NamesForWhatClientsCallByAnyText) {
  EXPECT_EQ(name_for("pvc-1", "vol-"), "pvc-1");
  const std::string made = name_for(std::string(129, 'x'), "vol-");
  EXPECT_EQ(made.size(), 21u);
  EXPECT_TRUE(is_volume_name(made));
  EXPECT_NE(name_for("A", "vol-"), name_for("B", "vol-"));
  EXPECT_EQ(pool_name_for("worker-0"), "worker-0");
  EXPECT_EQ(pool_name_for("ip-10-0-0-1.Example_Net"), "ip-10-0-0-1-example-net");
  EXPECT_EQ(ec2_id("vol-0123456789abcdef0", "vol-"), "vol-0123456789abcdef0");
  EXPECT_EQ(ec2_id("vol-01234567", "vol-"), "vol-01234567");
  EXPECT_EQ(ec2_id("data", "vol-"), ec2_id("data", "vol-"));
  EXPECT_EQ(ec2_id("vol-data", "vol-").size(), 21u) << "looks like one, and is none";
  EXPECT_NE(ec2_id("vol-data", "vol-"), "vol-data");
}

TEST(Volume, WhoNamesNoClassGetsWhatThePoolHas) {
  EXPECT_EQ(default_class({kLocalFast, kLocalManaged}, false), kLocalFast);
  EXPECT_EQ(default_class({kLocalFast, kLocalManaged}, true), kLocalManaged);
  for (const bool engine : {true, false}) EXPECT_EQ(default_class({kDistributed}, engine), kDistributed);
  for (const char* const klass : {kLocalFast, kLocalManaged, kDistributed}) EXPECT_TRUE(is_volume_class(klass)) << klass;
  EXPECT_FALSE(is_volume_class("gold"));
  EXPECT_TRUE(read_volume(new_volume("data", {.pool = "a", .klass = kDistributed, .size = gib, .from_volume = {}, .from_snapshot = {}, .iops = 500, .throughput = 0, .encrypted = true, .key = "mine"})));
}

TEST(Volume, ThePoolWithTheMostLeftThatReachesTheNode) {
  const Instant now = *parse_time("2026-11-27T12:00:00Z");
  const auto pool = [&](const char* name, std::int64_t left, std::vector<std::string> nodes) { return PoolFacts{.name = name, .id = "i", .size = 100 * gib, .promised = 90 * gib - left, .limit = 90 * gib, .free = gib, .classes = {kLocalFast}, .nodes = std::move(nodes), .heard = now}; };
  std::vector<PoolFacts> pools{pool("a", 10 * gib, {"n1"}), pool("b", 30 * gib, {"n2", "n3"}), pool("c", 30 * gib, {"n4"})};
  const auto chosen = [&](PoolWish wish) {
    const auto got = choose_pool(pools, wish, now);
    return got ? *got : got.error().message;
  };
  EXPECT_EQ(chosen({.size = gib, .pools = {}, .node = {}}), "b") << "of two alike the first by name";
  EXPECT_EQ(chosen({.size = gib, .pools = {}, .node = "n1"}), "a");
  EXPECT_EQ(chosen({.size = gib, .pools = {"c", "a"}, .node = {}}), "c");
  EXPECT_THAT(chosen({.size = 20 * gib, .pools = {}, .node = "n1"}), HasSubstr("a has 10 GiB left"));
  EXPECT_THAT(chosen({.size = gib, .pools = {}, .node = "n9"}), HasSubstr("a is not reached by node n9"));
  EXPECT_THAT(chosen({.size = gib, .klass = "gold", .pools = {}, .node = {}}), HasSubstr("no class gold"));
  pools[1].heard = now - std::chrono::seconds(91);
  pools[2].heard.reset();
  EXPECT_EQ(chosen({.size = gib, .pools = {}, .node = {}}), "a");
  EXPECT_THAT(chosen({.size = gib, .pools = {"b"}, .node = {}}), HasSubstr("b is silent since"));
  EXPECT_THAT(chosen({.size = gib, .pools = {"x"}, .node = {}}), HasSubstr("no such pool"));
  EXPECT_THAT(choose_pool({}, {.size = gib, .pools = {}, .node = {}}, now).error().message, HasSubstr("start fairlead-volumes"));
}

TEST(Volume, WhoNamesNoClassGetsAPoolOfWhatThereIs) {
  const Instant now = *parse_time("2026-11-27T12:00:00Z");
  const auto pool = [&](const char* name, std::vector<std::string> classes, std::int64_t left) { return PoolFacts{.name = name, .id = "i", .size = 100 * gib, .promised = 90 * gib - left, .limit = 90 * gib, .free = gib, .classes = std::move(classes), .nodes = {"n"}, .heard = now}; };
  const auto chosen = [&](const std::vector<PoolFacts>& pools, PoolWish wish, bool engine = false) {
    const auto got = choose_pool_and_class(pools, std::move(wish), engine, now);
    return got ? got->pool + " " + got->klass : got.error().message;
  };
  const auto disk = pool("disk", {kLocalFast, kLocalManaged}, 10 * gib), plain = pool("plain", {kLocalFast}, 20 * gib), ceph = pool("ceph", {kDistributed}, 80 * gib);
  const PoolWish any{.size = gib, .klass = "", .pools = {}, .node = {}};
  EXPECT_EQ(chosen({disk, ceph}, any), "disk local-fast");
  EXPECT_EQ(chosen({disk, ceph}, any, true), "disk local-managed");
  EXPECT_EQ(chosen({plain, ceph}, any, true), "ceph distributed");
  EXPECT_EQ(chosen({ceph}, any), "ceph distributed");
  EXPECT_EQ(chosen({disk, ceph}, {.size = gib, .klass = "", .pools = {"ceph"}, .node = {}}), "ceph distributed");
  EXPECT_EQ(chosen({disk, ceph}, {.size = gib, .klass = kDistributed, .pools = {}, .node = {}}), "ceph distributed");
  EXPECT_THAT(chosen({plain}, {.size = gib, .klass = kDistributed, .pools = {}, .node = {}}), HasSubstr("plain has no class distributed"));
  // A pool that is full, or silent, is not passed over for another kind.
  EXPECT_THAT(chosen({disk, ceph}, {.size = 11 * gib, .klass = "", .pools = {}, .node = {}}), HasSubstr("disk has 10 GiB left"));
  auto silent = disk;
  silent.heard.reset();
  EXPECT_EQ(choose_pool_and_class({silent, ceph}, any, false, now).error().code, Code::Unavailable);
  EXPECT_EQ(choose_pool_and_class({ceph, silent}, any, false, now).error().code, Code::Unavailable);
}

}  // namespace
}  // namespace fairlead::api
