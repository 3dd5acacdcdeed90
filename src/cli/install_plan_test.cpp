// SPDX-License-Identifier: Apache-2.0
#include "cli/install_plan.h"

#include <gmock/gmock.h>

#include <set>

namespace fairlead::cli {
namespace {

using kube::Json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace resources = kube::resources;

kube::Access some_access(const std::string& space) {
  return kube::Access().may({"list", "watch"}, resources::slurm_clusters, "", space).may({"create", "delete"}, resources::pods, "", space);
}
std::vector<std::string> titles(const std::vector<Json>& manifests) {
  std::vector<std::string> out;
  for (const auto& one : manifests) out.push_back(one["kind"].string() + " " + kube::key_of(one).text());
  return out;
}
const Json& the(const std::vector<Json>& manifests, const std::string& kind) {
  for (const auto& one : manifests)
    if (one["kind"].string() == kind) return one;
  static const Json none;
  return none;
}

TEST(Install, MakesThingsInTheOrderInWhichTheyAreNeeded) {
  EXPECT_THAT(titles(install_manifests({}, some_access(""))),
              ElementsAre("Namespace fairlead-system", "CustomResourceDefinition machines.fairlead.dev", "CustomResourceDefinition slurmclusters.slurm.nebius.ai", "CustomResourceDefinition nodesets.slurm.nebius.ai", "CustomResourceDefinition activechecks.slurm.nebius.ai",
                          "CustomResourceDefinition notificationtopics.fairlead.dev", "CustomResourceDefinition notifications.fairlead.dev",
                          "CustomResourceDefinition schedulerconfigs.fairlead.dev", "CustomResourceDefinition computequotas.fairlead.dev", "CustomResourceDefinition inquiries.fairlead.dev", "CustomResourceDefinition identities.fairlead.dev", "CustomResourceDefinition managedpolicies.fairlead.dev", "CustomResourceDefinition clusters.fairlead.dev", "CustomResourceDefinition instances.fairlead.dev", "CustomResourceDefinition clusterevents.fairlead.dev", "CustomResourceDefinition trainingplans.fairlead.dev", "CustomResourceDefinition networkinterfaces.fairlead.dev", "CustomResourceDefinition volumepools.fairlead.dev", "CustomResourceDefinition volumes.fairlead.dev", "CustomResourceDefinition snapshots.fairlead.dev", "CustomResourceDefinition attachments.fairlead.dev", "CustomResourceDefinition stacks.fairlead.dev", "CustomResourceDefinition podidentityassociations.fairlead.dev", "CustomResourceDefinition hyperpodpytorchjobs.sagemaker.amazonaws.com",
                          "CustomResourceDefinition resourceflavors.kueue.x-k8s.io", "CustomResourceDefinition topologies.kueue.x-k8s.io", "CustomResourceDefinition workloadpriorityclasses.kueue.x-k8s.io",
                          "CustomResourceDefinition admissionchecks.kueue.x-k8s.io", "CustomResourceDefinition cohorts.kueue.x-k8s.io", "CustomResourceDefinition clusterqueues.kueue.x-k8s.io",
                          "CustomResourceDefinition localqueues.kueue.x-k8s.io", "CustomResourceDefinition workloads.kueue.x-k8s.io",
                          "ServiceAccount fairlead-system/fairlead-server", "ClusterRole fairlead-server", "Role fairlead-system/fairlead-server", "ClusterRole fairlead-view", "ClusterRole fairlead-edit", "ClusterRole fairlead-team-member", "ClusterRole fairlead-team-viewer",
                          "ClusterRoleBinding fairlead-server", "RoleBinding fairlead-system/fairlead-server", "Service fairlead-system/fairlead-webhooks", "Deployment fairlead-system/fairlead-server", "ServiceAccount fairlead-system/fairlead-agent",
                          "DaemonSet fairlead-system/fairlead-agent"));
}

TEST(Install, RolesHoldWhatIsDeclaredAndTheLease) {
  const auto manifests = install_manifests({.space = "ops"}, some_access(""));
  EXPECT_EQ(print_json(the(manifests, "ClusterRole")["rules"]),
            R"([{"apiGroups":[""],"resources":["pods"],"verbs":["create","delete"]},{"apiGroups":["slurm.nebius.ai"],"resources":["slurmclusters"],"verbs":["list","watch"]}])");
  EXPECT_EQ(print_json(the(manifests, "Role")["rules"]),
            R"([{"apiGroups":[""],"resources":["secrets"],"verbs":["create"]},{"apiGroups":[""],"resources":["secrets"],"resourceNames":["fairlead-webhooks"],"verbs":["get"]},)"
            R"({"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["create"]},)"
            R"({"apiGroups":["coordination.k8s.io"],"resources":["leases"],"resourceNames":["fairlead-server"],"verbs":["get","update"]}])");
  EXPECT_EQ(the(manifests, "ClusterRoleBinding")["subjects"].items().at(0)["namespace"].string(), "ops");
}

TEST(Install, ForOneNamespaceHasNoRightsInTheCluster) {
  const auto manifests = install_manifests({.watch_namespace = "lab"}, some_access("lab"));
  const auto all = titles(manifests);
  EXPECT_THAT(all, Contains("Role lab/fairlead-server"));
  EXPECT_THAT(all, Contains("RoleBinding lab/fairlead-server"));
  EXPECT_THAT(all, testing::Not(Contains("ClusterRoleBinding fairlead-server")));
  EXPECT_THAT(print_json(the(manifests, "Deployment")), HasSubstr("--watch-namespace=lab"));
}

TEST(Install, WithoutReplicasHasNoDeployment) { EXPECT_TRUE(the(install_manifests({.replicas = 0}, some_access("")), "Deployment").is_null()); }

TEST(Install, TheAgentFillsTheFolderThatTheServerMounts) {
  const std::string agent = print_json(the(install_manifests({.companion_dir = "/opt/site/bin"}, some_access("")), "DaemonSet"));
  EXPECT_THAT(agent, HasSubstr(R"("path":"/opt/site","type":"DirectoryOrCreate")"));
  EXPECT_THAT(agent, HasSubstr("--to=/host/bin"));
  EXPECT_TRUE(the(install_manifests({.companion_dir = ""}, some_access("")), "DaemonSet").is_null());
}

// Only who wants AWS clients served gives the server what that needs: above all the Secrets of its own namespace.
TEST(Install, AwsClientsAreServedWhereThatIsAskedFor) {
  const std::string without = print_json(Json::array(install_manifests({}, some_access("")))), with = print_json(Json::array(install_manifests({.aws = true}, some_access(""))));
  EXPECT_THAT(without, testing::Not(HasSubstr("--aws-listen")));
  EXPECT_THAT(with, HasSubstr("--aws-listen=0.0.0.0:6444"));
  EXPECT_THAT(with, HasSubstr("--aws-endpoint=https://fairlead-aws.fairlead-system.svc"));
  EXPECT_THAT(titles(install_manifests({.aws = true}, some_access(""))), Contains("Service fairlead-system/fairlead-aws"));
  for (const auto& one : install_manifests({.aws = true}, kube::Access())) {
    if (one["kind"].string() != "ClusterRole" || kube::name_of(one) != "fairlead-server") continue;
    EXPECT_THAT(print_json(one), testing::Not(HasSubstr("secrets"))) << "of other namespaces it reads none";
  }
}

TEST(Install, LocalNodesSeeNoSecrets) {
  const auto manifests = install_manifests({.replicas = 0, .local_nodes = true}, some_access(""));
  EXPECT_THAT(titles(manifests), testing::IsSupersetOf({"ClusterRole fairlead-local-nodes", "ClusterRoleBinding fairlead-local-nodes"}));
  for (const auto& one : manifests) {
    if (kube::name_of(one) != "fairlead-local-nodes") continue;
    EXPECT_THAT(print_json(one), testing::Not(testing::AnyOf(HasSubstr("secrets"), HasSubstr("create"), HasSubstr("\"*\""))));
  }
}

TEST(Install, LocalNodesReadTheAwsSettingsAndNoOtherMap) {
  const auto manifests = install_manifests({.replicas = 0, .aws = true, .local_nodes = true}, some_access(""));
  EXPECT_THAT(titles(manifests), testing::IsSupersetOf({"Role fairlead-system/fairlead-aws-settings", "RoleBinding fairlead-system/fairlead-aws-settings"}));
  for (const auto& one : manifests) {
    if (kube::name_of(one) != "fairlead-aws-settings" || one["kind"].string() != "Role") continue;
    EXPECT_EQ(one["rules"], *kube::parse_json(R"([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["fairlead-aws"], "verbs": ["get"]}])"));
  }
  EXPECT_THAT(titles(install_manifests({.replicas = 0, .local_nodes = true}, some_access(""))), testing::Not(Contains("Role fairlead-system/fairlead-aws-settings")));
}

TEST(Install, EverythingButUsersThingsIsMarkedAsOurs) {
  for (const auto& one : install_manifests({}, some_access(""))) {
    EXPECT_EQ(kube::labels_of(one)[kManagedBy], "fairlead") << kube::name_of(one);
    EXPECT_EQ(kube::annotations_of(one)[kVersion], FAIRLEAD_VERSION) << kube::name_of(one);
    EXPECT_EQ(owner_of(one, one).owner, Owner::Us);
  }
  EXPECT_EQ(install_manifests({}, some_access("")), install_manifests({}, some_access("")));
}

Json crd(const std::string& extra_labels, const std::string& annotations, const std::string& managed, int marker) {
  auto parsed = kube::parse_json(R"({"metadata":{"name":"slurmclusters.slurm.nebius.ai","labels":{)" + extra_labels + R"(},"annotations":{)" + annotations + R"(},"managedFields":[)" + managed +
                                 R"(]},"spec":{"group":"slurm.nebius.ai","marker":)" + std::to_string(marker) + R"(,"added":"by the server"}})");
  return parsed ? *parsed : Json();
}

TEST(Owner, IsNamed) {
  const Json wanted = Json::object({{"spec", Json::object({{"group", "slurm.nebius.ai"}, {"marker", 1}})}});
  const std::string helm = R"("meta.helm.sh/release-name":"soperator","meta.helm.sh/release-namespace":"slurm-system")";
  struct Row {
    const char* name;
    Json existing;
    Owner owner;
    const char* who;
  };
  const Row rows[] = {
      {"ours", crd(R"("app.kubernetes.io/managed-by":"fairlead")", "", "", 2), Owner::Us, "fairlead"},
      {"of Helm", crd(R"("app.kubernetes.io/managed-by":"Helm")", helm, "", 2), Owner::Somebody, "Helm release soperator in namespace slurm-system"},
      {"of Helm, although alike", crd(R"("app.kubernetes.io/managed-by":"Helm")", helm, "", 1), Owner::Somebody, "soperator"},
      {"of another tool", crd(R"("app.kubernetes.io/managed-by":"argocd")", "", "", 2), Owner::Somebody, "argocd"},
      {"by hand", crd("", "", R"({"manager":"kubectl-client-side-apply"},{"manager":"kube-apiserver","subresource":"status"})", 2), Owner::Somebody, "kubectl-client-side-apply"},
      {"without a name", crd("", "", "", 2), Owner::Somebody, "left no name"},
      {"nobody's and as ours", crd("", "", R"({"manager":"kubectl"})", 1), Owner::Nobody, "nobody"},
  };
  for (const Row& row : rows) {
    const Ownership owner = owner_of(row.existing, wanted);
    EXPECT_EQ(owner.owner, row.owner) << row.name;
    EXPECT_THAT(owner.who, HasSubstr(row.who)) << row.name;
  }
}

TEST(Owner, AControllerThatRunsIsFound) {
  const Instant now{std::chrono::seconds(1'800'000'000)};
  const auto lease = [&](const std::string& name, const std::string& holder, std::chrono::seconds ago) {
    return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "s"}})},
                         {"spec", Json::object({{"holderIdentity", holder}, {"leaseDurationSeconds", 15}, {"renewTime", print_micro_time(now - ago)}})}});
  };
  const auto found = [&](const Json& one) { return running_controllers("slurm.nebius.ai", {}, {one}, {}, now); };
  EXPECT_THAT(found(lease("e21479ae.nebius.ai", "pod-1", 3s)), ElementsAre("pod-1 holds the Lease s/e21479ae.nebius.ai"));
  EXPECT_THAT(found(lease("abc.slurm.nebius.ai", "pod-1", 3s)), testing::SizeIs(1));
  EXPECT_THAT(found(lease("e21479ae.nebius.ai", "pod-1", 60s)), IsEmpty()) << "silent";
  EXPECT_THAT(found(lease("e21479ae.nebius.ai", "", 3s)), IsEmpty()) << "given back";
  EXPECT_THAT(found(lease("e21479ae.other.ai", "pod-1", 3s)), IsEmpty());

  auto deployment = *kube::parse_json(R"({"metadata":{"name":"manager","namespace":"s","annotations":{"meta.helm.sh/release-name":"r","meta.helm.sh/release-namespace":"s"}},"status":{"replicas":2}})");
  const Ownership helm{.owner = Owner::Somebody, .who = "", .release = "r", .release_space = "s"};
  EXPECT_THAT(running_controllers("slurm.nebius.ai", helm, {}, {deployment}, now), ElementsAre("the Deployment s/manager has 2 pods"));
  deployment.child("status").set("replicas", 0);
  EXPECT_THAT(running_controllers("slurm.nebius.ai", helm, {}, {deployment}, now), IsEmpty());
}

TEST(Version, IsComparedByNumbers) {
  EXPECT_TRUE(older_version("0.9.1", "0.10.0"));
  EXPECT_FALSE(older_version("0.10.0", "0.9.1"));
  EXPECT_FALSE(older_version("0.1", "0.1.0"));
  EXPECT_TRUE(older_version("", "0.1.0"));
}

}  // namespace
}  // namespace fairlead::cli
