// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/instance_volume_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/cluster.h"
#include "api/instance_volume.h"
#include "api/volume.h"
#include "api/volume_key.h"
#include "base/clock.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::IsEmpty;
namespace resources = kube::resources;

constexpr const char* id = "i-0123456789abcdef0";

struct Site {
  kube::TinyApi api;
  ManualClock clock{*parse_time("2026-01-02T03:04:05Z")};
  kube::CheckedApi checked{api, kube::full_access(InstanceVolumeController(api, clock))};
  kube::FencedApi fenced{checked, []() -> Result<std::int64_t> { return 1; }};
  InstanceVolumeController controller{fenced, clock};
  Site() {
    controller.start(api);
    put(resources::nodes, R"({"metadata": {"name": "w0", "labels": {"fairlead.dev/instance": "i-0123456789abcdef0"}}})");
    put(api::kClusters, R"({"metadata": {"name": "lab"}, "spec": {"clusterName": "lab", "orchestrator": {"eks": {"clusterArn": "arn:aws:eks:x:123456789012:cluster/fairlead"}}, "instanceGroups": [{"instanceGroupName": "w", "instanceType": "ml.g5.xlarge", "instanceCount": 1, "executionRole": "arn:aws:iam::123456789012:role/node", "instanceStorageConfigs": [{"ebsVolumeConfig": {"volumeSizeInGB": 10, "volumeKmsKeyId": "alias/mine"}}]}]}})");
    put(api::kInstances, R"({"metadata": {"name": "i-0123456789abcdef0"}, "spec": {"cluster": "lab", "clusterUid": ")" + kube::uid_of(api.all("clusters").at({"", "lab"})) + R"(", "instanceGroupName": "w", "instanceType": "ml.g5.xlarge", "number": 1}, "status": {"node": "w0"}})");
    put(api::kVolumeKeys, R"({"metadata": {"name": "mine"}, "spec": {"aliases": ["alias/mine"]}})");
  }
  void put(const kube::Resource& resource, const std::string& text) {
    const auto made = api.create(resource, *kube::parse_json(text));
    ASSERT_TRUE(made) << made.error().message;
  }
  void pool() { put(api::kVolumePools, R"({"metadata": {"name": "shelf"}, "status": {"id": "x", "size": 107374182400, "limit": 107374182400, "free": 107374182400, "promised": 0, "classes": ["local-managed"], "nodes": ["w0"], "heard": ")" + print_time(clock.now()) + R"("}})"); }
  kube::Next settle() {
    kube::Next last;
    for (int i = 0; i < 4; ++i) {
      const auto next = controller.reconcile({"", id});
      EXPECT_TRUE(next) << next.error().message;
      if (next) last = *next;
    }
    EXPECT_TRUE(checked.refusals().empty()) << checked.refusals().front();
    return last;
  }
  std::string trouble() { return api.all("nodes").at({"", "w0"})["metadata"]["annotations"][api::kVolumeTroubleNote].string(); }
  void edit(const kube::Resource& resource, const std::string& name, const char* patch) { ASSERT_TRUE(api.patch(resource, {"", name}, kube::PatchType::Merge, *kube::parse_json(patch))); }
};

TEST(InstanceVolumeControllers, MakeAttachGrowAndTell) {
  Site site;
  EXPECT_TRUE(site.settle().again_after.has_value());
  EXPECT_THAT(site.trouble(), HasSubstr("a pool that node w0 reaches is needed"));
  EXPECT_THAT(site.api.all("volumes"), IsEmpty());
  site.pool();
  site.settle();
  EXPECT_EQ(site.trouble(), "");
  ASSERT_EQ(site.api.all("volumes").size(), 1U);
  EXPECT_THAT(site.api.all("attachments"), IsEmpty()) << "it is not made yet";
  site.edit(api::kVolumes, id, R"({"status": {"phase": "Available"}})");
  site.settle();
  ASSERT_EQ(site.api.all("attachments").size(), 1U);
  site.edit(api::kClusters, "lab", R"({"spec": {"instanceGroups": [{"instanceGroupName": "w", "instanceType": "ml.g5.xlarge", "instanceCount": 1, "executionRole": "arn:aws:iam::123456789012:role/node", "instanceStorageConfigs": [{"ebsVolumeConfig": {"volumeSizeInGB": 20, "volumeKmsKeyId": "alias/mine"}}]}]}})");
  site.settle();
  EXPECT_EQ(api::read_volume(site.api.all("volumes").at({"", id}))->size, 20LL << 30);
  const auto& objects = site.api.all("volumes").at({"", id});
  EXPECT_EQ(objects["metadata"]["ownerReferences"].items().at(0)["name"].string(), id);
  site.edit(api::kAttachments, std::string(id) + ".w0", R"({"status": {"message": "its key is disabled"}})");
  site.settle();
  EXPECT_EQ(site.trouble(), "its key is disabled");
}

// By what the server has written of the instance, and not by what a Node says of itself.
TEST(InstanceVolumeControllers, MakeNothingForWhoIsNoInstanceHere) {
  for (const char* const status : {R"({"status": {"node": "w1"}})", R"({"status": {"node": null}})", R"({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})", R"({"spec": {"clusterUid": "another"}})", R"({"spec": {"instanceGroupName": "other"}})"}) {
    Site site;
    site.pool();
    site.edit(api::kInstances, id, status);
    site.settle();
    EXPECT_THAT(site.api.all("volumes"), IsEmpty()) << status;
  }
  Site site;
  site.pool();
  site.edit(resources::nodes, "w0", R"({"metadata": {"labels": {"fairlead.dev/instance": "i-1"}}})");
  site.settle();
  EXPECT_THAT(site.api.all("volumes"), IsEmpty());
}

}  // namespace
}  // namespace fairlead::fleet
