// SPDX-License-Identifier: Apache-2.0
// Inside of reconcile.h: one round over a cluster. reconcile.cpp: its order and what the status says; reconcile_objects.cpp: services, configuration, secrets, policies, claims; reconcile_pods.cpp: pods, and what runs in them.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "slurm/plan/head_pods.h"
#include "slurm/plan/reconcile.h"
#include "slurm/plan/size.h"
#include "slurm/plan/upgrade_pods.h"

namespace fairlead::slurm {

struct RoleView {
  int wanted = 0, ready = 0;
  std::vector<std::string> outdated, surplus, trouble, foreign, leaving;
  std::string reason;  // of the first trouble that is known by its words
};

class ClusterPlanner {
 public:
  ClusterPlanner(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now);
  Plan run();

 private:
  // Everything carries an ownerReference: garbage collection takes it, once nobody holds the cluster. Until then slurmdbd and its database are kept as for a cluster that stays: others' records come there. Where the deletion is
  // one in the foreground, Kubernetes ends every pod, also one that is made now.
  Plan leave();
  void say_sharing();
  std::vector<const kube::Json*> own_pods() const;
  static std::vector<int> first(int size);
  static constexpr std::size_t kGivenAtOnce = 16;
  static constexpr auto kTryAgain = std::chrono::seconds(10), kHearsByItself = std::chrono::seconds(20), kLookAtSets = std::chrono::seconds(30);
  void remember(const char* name, const kube::Json& value);
  void look_again_in(std::chrono::nanoseconds time);
  bool was_available() const { return kube::condition_is_true(snapshot_.cluster, "ControllersAvailable"); }
  void say(const char* type, bool yes, std::string reason, std::string message);
  void say_role(const char* type, const RoleView& view);
  // True where everything that is asked for serves.
  bool account(bool common, bool claims);
  // Sets of the whole cluster. It is available without them; where there are any, BackupFresh speaks of them.
  void back_up(bool ready);
  void unsay(const char* type);
  // The cluster is available without it.
  void say_exporter();
  // slurmrestd without tokens would refuse everybody, so it waits for a configuration with them.
  void plan_rest();
  void say_rest();
  void say_heads(const RoleView& view);
  Plan finish(const char* phase, const std::string& waiting);
  static bool all_there(const std::vector<kube::Json>& wanted, const std::map<std::string, kube::Json>& have);
  // Accounting and the exporter stand aside: what the API refuses of them (a quota, a class) holds nothing else up.
  bool stands_aside(const std::string& service) const;
  // Keys, configuration and services. True when pods may be made.
  bool plan_common();
  // Last: a kind of Service that the cluster refuses holds up nothing else.
  void plan_login_access();
  static kube::Json login_metadata(const kube::Json& service);
  // What stood the test on every node is kept before anything else takes its place.
  void keep_good_configs();
  // Pods come after the policies around them, so that none of them is ever open.
  bool plan_policies();
  static bool same_ports(const kube::Json& a, const kube::Json& b);
  bool plan_claims();
  bool shared(const std::string& source) const;
  // From one version of Slurm to another: cluster_ has the images in force already.
  void plan_versions();
  // Workers that are proven to be dead.
  void plan_lost();
  void plan_actions_asked();
  void say_autoscaling();
  static constexpr std::chrono::seconds kFollow{5};
  // Which workers are to be there, and what is done with the others: kind by kind.
  void plan_workers();
  // Nothing that lives in the jail is made or renewed before it is whole; what runs goes on.
  void plan_root();
  // One condition for all workers; each NodeSet has its own beside.
  void sum_up_workers();
  void plan_set(const api::SlurmCluster& view);
  void plan_pods(Role role, const api::SlurmCluster& cluster, std::vector<int> ordinals, RoleView& view);
  bool has_other_key(const kube::Json& pod) const;
  void plan_login_mounts();
  bool others_serve(Role role, int ordinal, int size) const;
  void make_pod(kube::Json pod, RoleView& view);
  // True: several heads become one, and nothing else is done with heads.
  bool others_go(RoleView& view);
  void plan_reload();
  // slurmctld runs with it. Does every node?
  void give_config(const std::vector<ConfigOf>& unseen, const std::string& hash);
  void say_applied(const std::string& hash);

  const Snapshot& snapshot_;
  ObjectOptions options_;  // with what this round's configuration needs
  const UpgradePlan upgrade_;
  const api::SlurmCluster cluster_;
  const SizePlan size_;  // of kinds of workers that follow the queue
  const std::vector<api::SlurmCluster> workers_of_;  // one view for each kind of workers
  const std::optional<ActiveHead> active_;  // of several
  const HeadPods heads_{snapshot_, cluster_, active_};
  kube::Json object_;  // a copy whose status is built up
  const Instant now_;
  std::map<Role, RoleView> views_;
  std::map<std::string, RoleView> sets_;              // of workers, by the name of their set
  std::map<std::string, std::vector<int>> ordinals_;  // that are to be there
  std::map<std::string, kube::Json> memories_;        // status.scaleDown of NodeSets
  bool jail_ready_ = true;
  bool witness_ready_ = false;  // of two heads
  Rollout rollout_;
  Plan plan_;
  std::vector<Step> aside_;   // taken last
  std::vector<Step> growth_;  // of claims, after these: a class may refuse it, and nothing is to wait for that
};

}  // namespace fairlead::slurm
