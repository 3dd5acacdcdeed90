// SPDX-License-Identifier: Apache-2.0
// For tests: a namespace with a SlurmCluster that has accounting, in which whatever a plan makes is there at once.
#pragma once
#include <gmock/gmock.h>

#include "slurm/plan/reconcile.h"

namespace fairlead::slurm::test {

using kube::Json;

inline constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

inline kube::Json demo(const std::string& accounting = "enabled: true, mariadbOperator: {enabled: true}", const std::string& extensions = "{}") {
  auto parsed = kube::parse_yaml(R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 3}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: cpu}}]
  volumeSources: [{name: jail, persistentVolumeClaim: {claimName: jail-pvc}}]
  extensions: {accounting: )" + extensions + R"(}
  slurmNodes:
    accounting: {)" + accounting + R"(}
    controller: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    worker: {size: 1, k8sNodeFilterName: all, cgroupVersion: v1, slurmd: {resources: {nvidia.com/gpu: 1}}, volumes: {jail: {volumeSourceName: jail}}}
    login: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
)");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}
inline api::SlurmCluster read(const Json& object) { return api::read_slurm_cluster(object, "registry/slurm:22.05"); }

// A namespace in which everything that a plan makes is there at once.
struct World {
  Snapshot snapshot;
  explicit World(Json cluster) : snapshot{.cluster = std::move(cluster)} {
    snapshot.claims["jail-pvc"] = Json::object({{"spec", Json::object({{"accessModes", Json::array({Json("ReadWriteMany")})}})}});
  }
  // The daemon that tries configurations takes them all, unless a test says otherwise.
  Verdict verdict = Verdict::Good;
  Instant now = kNow;
  Plan look() {
    snapshot.trial.reset();
    if (const auto wanted = wants_trial(snapshot, {}, "registry/slurm:22.05", now)) snapshot.trial = Trial{wanted->hash, verdict, "fatal: no"};
    return plan_reconcile(snapshot, {}, "registry/slurm:22.05", now);
  }
  void apply(const Plan& plan) {
    snapshot.cluster.set("status", plan.status);
    for (const auto& step : plan.steps) {
      if (const auto* create = std::get_if<Create>(&step)) table(create->resource)[kube::name_of(create->object)] = with_uid(create->object);
      if (const auto* update = std::get_if<Update>(&step); update && update->resource.plural == "slurmclusters") snapshot.cluster = update->object;
      else if (update) table(update->resource)[kube::name_of(update->object)] = update->object;
      if (const auto* make = std::get_if<MakeKeys>(&step))  // a key's text is whose it is
        snapshot.secrets[make->secret] = make->keys == Keys::Munge ? Json::object({{"data", Json::object({{"munge.key", make->copy_of ? make->copy_of->text() : kube::key_of(snapshot.cluster).text()}})}}) : Json::object();
      if (const auto* gone = std::get_if<Remove>(&step)) table(gone->resource).erase(gone->key.name);
      if (const auto* gone = std::get_if<DeletePod>(&step)) snapshot.pods.erase(gone->key.name);
      if (const auto* reload = std::get_if<Reconfigure>(&step)) {
        for (const auto& [name, pod] : snapshot.pods) snapshot.seen_configs[kube::uid_of(pod)] = reload->hash;
        snapshot.cluster.child("status").set("appliedConfigHash", reload->hash);
      }
    }
  }
  void settle() {
    for (int i = 0; i < 10; ++i) {
      const Plan plan = look();
      apply(plan);
      if (plan.steps.empty()) return;
    }
    ADD_FAILURE() << "the plan never comes to rest";
  }
  static Json with_uid(Json object) {
    object.child("metadata").set("uid", "uid-" + kube::name_of(object));
    return object;
  }
  std::map<std::string, Json>& table(const kube::Resource& resource) {
    if (resource.plural == "pods") return snapshot.pods;
    if (resource.plural == "services") return snapshot.services;
    if (resource.plural == "configmaps") return snapshot.config_maps;
    if (resource.plural == "networkpolicies") return snapshot.policies;
    return snapshot.claims;
  }
  void ready(const std::string& pod, std::vector<std::string> containers) {
    Json statuses = Json::array();
    for (const auto& name : containers) statuses.push(Json::object({{"name", name}, {"ready", true}}));
    snapshot.pods[pod].set("status", Json::object({{"phase", "Running"}, {"containerStatuses", std::move(statuses)}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}}));
  }
  void all_ready() { all_ready_in("demo"); }
  void all_ready_in(const std::string& cluster) {
    for (const auto& [name, container] : {std::pair{"controller-0", "slurmctld"}, {"worker-0", "slurmd"}, {"login-0", "sshd"}})
      if (snapshot.pods.contains(name)) ready(name, {"munge", container});
    for (const char* name : {"accounting-0", "accounting-1"})
      if (snapshot.pods.contains(name)) ready(name, {"munge", "slurmdbd"});
    if (const std::string database = cluster + "-acct-db-0"; snapshot.pods.contains(database)) ready(database, {"mariadb", "backup"});
  }
  std::string condition(const char* type) {
    const Json object = Json::object({{"status", look().status}});
    const Json* found = kube::find_condition(object, type);
    return found ? (*found)["status"].string() + " " + (*found)["reason"].string() + " " + (*found)["message"].string() : "absent";
  }
  std::vector<std::string> steps() {
    std::vector<std::string> out;
    for (const auto& step : look().steps) out.push_back(describe(step));
    return out;
  }
};

inline std::vector<std::string> names(const std::map<std::string, Json>& objects) {
  std::vector<std::string> out;
  for (const auto& [name, object] : objects) out.push_back(name);
  return out;
}

}  // namespace fairlead::slurm::test
