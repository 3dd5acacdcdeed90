// SPDX-License-Identifier: Apache-2.0
#include "api/volume_host.h"

#include <gtest/gtest.h>

namespace fairlead::api {
namespace {

using kube::Json;

TEST(VolumeHost, WhatIsAskedAndToldIsReadAsItWasWritten) {
  Json object = new_volume_host("shared", "m2", "rack=b");
  const AskedVolume shown{.id = "data", .generation = 3, .show = true, .read_only = true, .encrypted = true, .size = 1 << 30, .iops = 300, .throughput = 1 << 20, .names = {"/dev/sdf", "/dev/xvdf"}}, gone{.id = "old", .generation = 1, .show = false};
  ToldVolume told{.id = "data", .generation = 3, .heard = true, .show = true, .device = "/dev/loop3", .device_size = 1 << 30, .used = true, .engine = true, .failed = false, .engine_size = 1 << 30, .iops = 300, .throughput = 1 << 20, .reads = 1, .writes = 2, .read_bytes = 3, .written_bytes = 4, .waited_ns = 5, .message = "why", .names = {{.name = "/dev/sdf"}, {.name = "/dev/xvdf", .message = "another's"}}};
  const ToldVolume left{.id = "left", .generation = 9, .heard = false};
  object.child("spec").set("volumes", Json::array({to_json(shown), to_json(gone)})).set("poolID", "p");
  object.set("status", Json::object({{"id", "host"}, {"heard", "2026-11-27T12:00:00Z"}, {"volumes", Json::array({to_json(told), to_json(left)})}}));
  const VolumeHostFacts read = read_volume_host(object);
  EXPECT_EQ(read.name, "shared.m2");
  EXPECT_EQ(read.node_selector, "rack=b");
  EXPECT_EQ(read.asked, (std::vector{shown, gone}));
  EXPECT_EQ(read.told, (std::vector{told, left}));
  EXPECT_EQ(read.id + read.pool_id + read.heard, "hostp2026-11-27T12:00:00Z");
}

TEST(VolumeHost, WhatCannotBeIsLeftOut) {
  Json object = new_volume_host("shared", "m2", "");
  const auto one = [](const char* id, std::int64_t generation) { return Json::object({{"id", id}, {"generation", generation}, {"sizeBytes", 5}}); };
  object.child("spec").set("volumes", Json::array({one("../x", 1), one("a", 0), one("a", 1), one("a", 1), Json("text")}));
  object.set("status", Json::object({{"volumes", Json::array({one("UP", 1), one("b", -3), one("b", 2)})}}));
  for (const auto& [where, names] : {std::pair("spec", Json::array({Json("/dev/../x"), Json("/dev/xvdf"), Json("/dev/sdf"), Json("/dev/xvdf"), Json(5)})), {"status", Json::array({Json::object({{"name", "/etc/passwd"}}), Json("/dev/xvdf"), Json::object({{"name", "/dev/xvdf"}})})}}) {
    Json volumes = object[where]["volumes"], list = Json::array();
    for (Json volume : volumes.items()) {
      if (volume["id"].string() == (std::string(where) == "spec" ? "a" : "b")) volume.set("deviceNames", names);
      list.push(std::move(volume));
    }
    object.child(where).set("volumes", std::move(list));
  }
  const VolumeHostFacts read = read_volume_host(object);
  ASSERT_EQ(read.asked.size(), 1u);
  EXPECT_EQ(read.asked[0].names, (std::vector<std::string>{"/dev/sdf", "/dev/xvdf"}));
  EXPECT_EQ(read.told[0].names, (std::vector<ToldName>{{.name = "/dev/xvdf"}}));
  EXPECT_EQ(read.asked[0].generation, 1);
  ASSERT_EQ(read.told.size(), 1u);
  EXPECT_FALSE(read.told[0].heard) << "a machine that says nothing of what was asked has not answered";
}

}  // namespace
}  // namespace fairlead::api
