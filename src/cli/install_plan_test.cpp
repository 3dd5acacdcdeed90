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
                          "CustomResourceDefinition schedulerconfigs.fairlead.dev", "CustomResourceDefinition computequotas.fairlead.dev", "CustomResourceDefinition inquiries.fairlead.dev", "CustomResourceDefinition identities.fairlead.dev", "CustomResourceDefinition managedpolicies.fairlead.dev", "CustomResourceDefinition clusters.fairlead.dev", "CustomResourceDefinition instances.fairlead.dev", "CustomResourceDefinition clusterevents.fairlead.dev", "CustomResourceDefinition trainingplans.fairlead.dev", "CustomResourceDefinition networkinterfaces.fairlead.dev", "CustomResourceDefinition volumepools.fairlead.dev", "CustomResourceDefinition volumes.fairlead.dev", "CustomResourceDefinition snapshots.fairlead.dev", "CustomResourceDefinition attachments.fairlead.dev", "CustomResourceDefinition volumekeys.fairlead.dev", "CustomResourceDefinition volumehosts.fairlead.dev", "CustomResourceDefinition stacks.fairlead.dev", "CustomResourceDefinition podidentityassociations.fairlead.dev", "CustomResourceDefinition hyperpodpytorchjobs.sagemaker.amazonaws.com",
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

InstallOptions with_volumes() { return {.volumes = {.size = "50Gi", .provisioner_image = "r/p:1", .attacher_image = "r/a:1", .resizer_image = "r/r:1", .snapshotter_image = {}}}; }
const Json& named(const std::vector<Json>& manifests, const std::string& kind, const std::string& name) {
  for (const auto& one : manifests)
    if (one["kind"].string() == kind && kube::name_of(one) == name) return one;
  static const Json none;
  return none;
}

TEST(Install, VolumesAreThereWhereThatIsAskedFor) {
  EXPECT_THAT(print_json(Json::array(install_manifests({}, some_access("")))), testing::Not(HasSubstr("fairlead-volumes\"")));
  InstallOptions options = with_volumes();
  auto manifests = install_manifests(options, some_access(""));
  EXPECT_THAT(titles(manifests), testing::IsSupersetOf({"ServiceAccount fairlead-system/fairlead-volumes", "ServiceAccount fairlead-system/fairlead-volumes-controller", "ClusterRole fairlead-volumes", "ClusterRole fairlead-volumes-controller",
                                                        "Role fairlead-system/fairlead-volumes-controller", "CSIDriver csi.fairlead.dev", "Deployment fairlead-system/fairlead-volumes-controller", "DaemonSet fairlead-system/fairlead-volumes", "DaemonSet fairlead-system/fairlead-volumes-engines"}));
  EXPECT_THAT(titles(manifests), testing::Not(Contains("StorageClass fairlead")));
  const std::string set = print_json(named(manifests, "DaemonSet", "fairlead-volumes"));
  for (const char* const text : {"--folder=/var/lib/fairlead-volumes/pool", "--image=/var/lib/fairlead-volumes/pool.img", "--size=50Gi", "--engine=unix:///run/fairlead-volumes/engines.sock", "--seen-as=unix:///var/lib/kubelet/plugins/csi.fairlead.dev/csi.sock"}) EXPECT_THAT(set, HasSubstr(text));
  EXPECT_THAT(set, testing::Not(HasSubstr("nodeSelector")));
  EXPECT_EQ(named(manifests, "Deployment", "fairlead-volumes-controller")["spec"]["template"]["spec"]["containers"].items().size(), 4U);

  options.volumes.size = "xfs", options.volumes.nodes = "disk=large,zone=a", options.volumes.storage_class = true, options.volumes.snapshotter_image = "r/s:1", options.volumes.kubelet_dir = "/data/kubelet";
  manifests = install_manifests(options, some_access(""));
  const Json& daemons = named(manifests, "DaemonSet", "fairlead-volumes");
  EXPECT_EQ(print_json(daemons["spec"]["template"]["spec"]["nodeSelector"]), R"({"disk":"large","zone":"a"})");
  EXPECT_THAT(print_json(daemons), testing::AllOf(testing::Not(HasSubstr("--image=")), HasSubstr("unix:///data/kubelet/plugins/csi.fairlead.dev/csi.sock")));
  EXPECT_EQ(named(manifests, "StorageClass", "fairlead")["volumeBindingMode"].string(), "WaitForFirstConsumer");
  EXPECT_EQ(named(manifests, "Deployment", "fairlead-volumes-controller")["spec"]["template"]["spec"]["containers"].items().size(), 5U);
}

// Its pods are replaced by nobody but who deletes them, and ask nothing of the API.
TEST(Install, EnginesOfVolumesAreKeptApart) {
  InstallOptions options = with_volumes();
  const auto manifests = install_manifests(options, some_access(""));
  const Json& set = named(manifests, "DaemonSet", "fairlead-volumes-engines")["spec"];
  EXPECT_EQ(set["updateStrategy"]["type"].string(), "OnDelete");
  const Json& pod = set["template"]["spec"];
  EXPECT_FALSE(pod["automountServiceAccountToken"].boolean(true));
  EXPECT_TRUE(pod["serviceAccountName"].string().empty());
  EXPECT_THAT(print_json(pod), testing::AllOf(HasSubstr("Bidirectional"), HasSubstr("\"/run/fairlead-volumes\"")));
  options.volumes.engines = false;
  const auto without = install_manifests(options, some_access(""));
  EXPECT_THAT(titles(without), testing::Not(Contains("DaemonSet fairlead-system/fairlead-volumes-engines")));
  EXPECT_THAT(print_json(named(without, "DaemonSet", "fairlead-volumes")), testing::AllOf(HasSubstr("--engine=off"), testing::Not(HasSubstr("/run/fairlead-volumes"))));
}

TEST(Install, WhoWouldLoseADiskWithTheEnginesIsKnown) {
  const auto volume = [](const char* name, const char* klass) { return Json::object({{"metadata", Json::object({{"name", name}})}, {"spec", Json::object({{"class", klass}})}}); };
  const auto attachment = [](const char* of, const char* node) { return Json::object({{"spec", Json::object({{"volume", of}, {"node", node}})}}); };
  const std::vector<Json> volumes{volume("fast", "local-fast"), volume("limited", "local-managed"), volume("far", "distributed"), volume("unused", "local-managed")};
  EXPECT_THAT(served_by_engines(volumes, {attachment("limited", "w1"), attachment("fast", "w0"), attachment("limited", "w0"), attachment("far", "w0")}), testing::ElementsAre("limited on w0", "limited on w1"));
  EXPECT_THAT(served_by_engines({}, {attachment("unknown", "w0")}), testing::ElementsAre("unknown on w0"));
}

// The namespace of keys is made, and never taken away: it is not marked as ours.
TEST(Install, KeysOfVolumesAreAChoice) {
  InstallOptions options = with_volumes();
  options.volumes.encryption = true;
  const auto manifests = install_manifests(options, some_access(""));
  EXPECT_TRUE(named(manifests, "Namespace", "fairlead-volume-keys")["metadata"]["labels"].is_null());
  EXPECT_THAT(print_json(named(manifests, "Role", "fairlead-volumes-keys")), testing::AllOf(HasSubstr("secrets"), HasSubstr("\"namespace\":\"fairlead-volume-keys\"")));
  EXPECT_THAT(print_json(named(manifests, "ClusterRole", "fairlead-volumes-keys")["rules"]), testing::AllOf(HasSubstr("volumekeys"), testing::Not(HasSubstr("secrets"))));
  EXPECT_THAT(print_json(named(manifests, "ClusterRole", "fairlead-volumes")["rules"]), testing::Not(HasSubstr("secrets")));
}

// Whoever takes a node over has its pods' tokens: they are to make no volume and read no Secret.
TEST(Install, PodsOfNodesHaveNothingOfTheVolumesController) {
  const auto manifests = install_manifests(with_volumes(), some_access(""));
  const std::string pool = print_json(named(manifests, "ClusterRole", "fairlead-volumes")["rules"]);
  for (const char* const text : {"secrets", "persistentvolumes", "volumeattachments", "delete", "leases", "\"*\""}) EXPECT_THAT(pool, testing::Not(HasSubstr(text)));
  int bound = 0;
  for (const auto& one : manifests)
    if (const std::string& kind = one["kind"].string(); kind == "ClusterRoleBinding" || kind == "RoleBinding")
      for (const auto& subject : one["subjects"].items())
        if (subject["name"].string() == "fairlead-volumes") {
          ++bound;
          EXPECT_EQ(one["roleRef"]["name"].string(), "fairlead-volumes");
        }
  EXPECT_EQ(bound, 1);
  const Json& pod = named(manifests, "DaemonSet", "fairlead-volumes")["spec"]["template"]["spec"];
  EXPECT_EQ(pod["serviceAccountName"].string(), "fairlead-volumes");
  EXPECT_FALSE(pod["automountServiceAccountToken"].boolean(true));
  for (const auto& container : pod["containers"].items()) EXPECT_EQ(print_json(container["volumeMounts"]).find("serviceaccount") != std::string::npos, container["name"].string() == "pool") << "the driver asks nothing of the API";
  EXPECT_THAT(print_json(named(manifests, "ClusterRole", "fairlead-volumes-controller")["rules"]), testing::Not(testing::AnyOf(HasSubstr("secrets"), HasSubstr("snapshot.storage.k8s.io"))));
}

TEST(Install, WrongFlagsOfVolumesAreNamed) {
  const VolumeOptions good = with_volumes().volumes;
  EXPECT_TRUE(check_volumes(good));
  const auto refusal = [&](auto change) {
    VolumeOptions options = good;
    change(options);
    const auto checked = check_volumes(options);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_THAT(refusal([](auto& o) { o.size = "much"; }), HasSubstr("--volumes much"));
  EXPECT_THAT(refusal([](auto& o) { o.size = "5Mi"; }), HasSubstr("1Gi at least"));
  EXPECT_THAT(refusal([](auto& o) { o.engines = false, o.encryption = true; }), HasSubstr("--volumes-encryption"));
  EXPECT_THAT(refusal([](auto& o) { o.folder = "relative"; }), HasSubstr("--volumes-folder"));
  EXPECT_THAT(refusal([](auto& o) { o.kubelet_dir = "/a b"; }), HasSubstr("--kubelet-dir"));
  EXPECT_THAT(refusal([](auto& o) { o.nodes = "disk"; }), HasSubstr("--volumes-nodes"));
  EXPECT_THAT(refusal([](auto& o) { o.attacher_image = ""; }), HasSubstr("--csi-attacher-image"));
  EXPECT_EQ(refusal([](auto& o) { o.size = "xfs"; }), "");
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
  auto all = install_manifests({}, some_access(""));
  for (Json& one : install_manifests(with_volumes(), some_access(""))) all.push_back(std::move(one));
  for (const auto& one : all) {
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
