// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/encoding.h"
#include "kube/tiny_api.h"
#include "slurm/control/slurm_cluster_controller.h"
#include "slurm/plan/sharing.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace resources = kube::resources;

Json cluster(const std::string& space, const std::string& name, const std::string& accounting, const std::string& extensions) {
  auto parsed = kube::parse_yaml(fmt::format(R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {{name: {1}, namespace: {0}, uid: {0}-{1}, generation: 1}}
spec:
  k8sNodeFilters: [{{name: all, nodeSelector: {{pool: cpu}}}}]
  extensions: {{accounting: {3}}}
  slurmNodes:
    accounting: {2}
    controller: {{size: 1, k8sNodeFilterName: all, volumes: {{spool: {{volumeClaimTemplateSpec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}}}}}
    worker: {{size: 1, k8sNodeFilterName: all, cgroupVersion: v1}}
    login: {{size: 1, k8sNodeFilterName: all}}
)", space, name, accounting, extensions));
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed->at(0);
}

// One controller of two clusters, with no more rights than it declares.
class SharingController : public testing::Test {
 protected:
  SharingController() {
    controller_.start(api_);
    EXPECT_TRUE(api_.create(resources::slurm_clusters, cluster("lab", "demo", "{enabled: true, mariadbOperator: {enabled: true, storage: {ephemeral: true}}}", "{sharedWith: [{namespace: field, name: tent}]}")));
    EXPECT_TRUE(api_.create(resources::slurm_clusters, cluster("field", "tent", "{enabled: true}", "{of: {namespace: lab, name: demo}}")));
  }
  ~SharingController() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  static Result<std::map<std::string, std::string>> keys(Keys keys, const std::string& comment) {
    if (keys == Keys::Munge) return std::map<std::string, std::string>{{"munge.key", "the secret of " + comment}};
    return std::map<std::string, std::string>{{"key", comment}};
  }
  void settle() {
    for (int round = 0; round < 40; ++round) {
      for (const auto& key : {kHost, kGuest})
        if (auto done = controller_.reconcile(key); !done) {
          EXPECT_EQ(done.error().code, Code::Conflict) << done.error().message;
        }
      for (auto& [key, pod] : std::map(api_.all("pods"))) {
        if (kube::condition_is_true(pod, "Ready")) continue;
        Json next = pod, statuses = Json::array();
        for (const Json& container : pod["spec"]["containers"].items()) statuses.push(Json::object({{"name", container["name"]}, {"ready", true}}));
        next.set("status", Json::object({{"phase", "Running"}, {"containerStatuses", statuses}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}}));
        ASSERT_TRUE(api_.put(resources::pods, next));
      }
    }
  }
  Json& at(const kube::ObjectKey& key) { return api_.all("slurmclusters").at(key); }
  std::string condition(const kube::ObjectKey& of, const char* type) {
    const Json* found = kube::find_condition(at(of), type);
    return found ? (*found)["status"].string() + " " + (*found)["reason"].string() : "absent";
  }
  std::string key_in(const kube::ObjectKey& secret) {
    const auto& all = api_.all("secrets");
    return all.contains(secret) ? *parse_base64(all.at(secret)["data"]["munge.key"].string()) : "none";
  }

  const kube::ObjectKey kHost{"lab", "demo"}, kGuest{"field", "tent"};
  ManualClock clock_{Instant(std::chrono::hours(500'000))};
  kube::TinyApi api_;
  kube::CheckedApi checked_{api_, kube::full_access(SlurmClusterController(api_, clock_, keys, {}))};
  SlurmClusterController controller_{checked_, clock_, keys, {}};
};

TEST_F(SharingController, TheKeyIsCopiedOnceBothHaveSaidSo) {
  settle();
  EXPECT_EQ(key_in({"lab", "demo-munge"}), "the secret of fairlead-demo");
  EXPECT_EQ(key_in({"field", "tent-munge"}), "the secret of fairlead-demo");
  EXPECT_EQ(api_.all("secrets").at({"field", "tent-munge"})["data"].members().size(), 1U);
  EXPECT_EQ(condition(kGuest, "AccountingAvailable"), "True Shared");
  EXPECT_TRUE(kube::has_finalizer(at(kHost), kSharingFinalizer));
  for (const char* plural : {"slurmclusters", "pods", "configmaps"})
    for (const auto& [key, object] : api_.all(plural)) EXPECT_THAT(kube::print_json(object), Not(HasSubstr("the secret of"))) << plural << " " << key.text();
  // The guest's secret goes with the guest, and the host's is nobody else's.
  EXPECT_EQ((*kube::controller_of(api_.all("secrets").at({"field", "tent-munge"})))["uid"].string(), "field-tent");
}

TEST_F(SharingController, WithoutTheHostsWordNothingIsCopied) {
  at(kHost).child("spec").child("extensions").child("accounting").erase("sharedWith");
  settle();
  EXPECT_EQ(key_in({"field", "tent-munge"}), "none");
  EXPECT_EQ(condition(kGuest, "AccountingAvailable"), "False NotAllowed");
  EXPECT_FALSE(kube::has_finalizer(at(kHost), kSharingFinalizer));
}

TEST_F(SharingController, AHostWithGuestsStaysUntilTheyAreGone) {
  settle();
  ASSERT_TRUE(api_.remove(resources::slurm_clusters, kHost, {}));
  settle();
  ASSERT_TRUE(api_.all("slurmclusters").contains(kHost));
  EXPECT_EQ(condition(kHost, "AccountingShared"), "True DeletionWaits");
  EXPECT_EQ(condition(kGuest, "AccountingAvailable"), "False HostGoes");
  ASSERT_TRUE(api_.remove(resources::slurm_clusters, kGuest, {}));
  (void)controller_.reconcile(kHost);
  EXPECT_FALSE(api_.all("slurmclusters").contains(kHost));
}

TEST_F(SharingController, EachLooksAgainWhenTheOtherChanges) {
  const auto sources = controller_.sources();
  const auto keys_of = [&](const kube::ObjectKey& key) { return sources.front().keys(kube::Change{.before = std::nullopt, .after = at(key)}); };
  EXPECT_THAT(keys_of(kHost), Contains(kGuest));
  EXPECT_THAT(keys_of(kGuest), Contains(kHost));
}

}  // namespace
}  // namespace fairlead::slurm
