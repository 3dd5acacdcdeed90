// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "kube/controller.h"
#include "slurm/plan/reconcile.h"

namespace fairlead::slurm {

using KeyMaker = std::function<Result<std::map<std::string, std::string>>(Keys keys, const std::string& comment)>;

struct SlurmControllerOptions {
  ObjectOptions objects;
  std::string default_image = "slurm:22.05";
  std::string space;  // only clusters of this namespace; empty: all
};

// Makes each SlurmCluster so and keeps it so: observe, plan (plan/reconcile.h), apply. All state is in the objects; any step may be repeated.
class SlurmClusterController final : public kube::Controller {
 public:
  SlurmClusterController(kube::KubeApi& api, const Clock& clock, KeyMaker make_keys, SlurmControllerOptions options)
      : api_(api), clock_(clock), make_keys_(std::move(make_keys)), options_(std::move(options)) {
    options_.objects.reads_machines = options_.space.empty();
  }
  std::string name() const override { return "slurm-cluster"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<void> apply(const Step& step, kube::Json& cluster);
  Result<void> may_vote(const kube::Json& object);
  // Is this step of a scale-down still what is wanted? Earlier steps may have taken minutes. Expired: none of this round is; Conflict: this one is not.
  Result<void> still_wanted(const Step& step, const kube::Json& cluster, Instant asked);
  Result<void> still_dead(const NodeStep& step, const std::string& space);
  void note_end(const kube::Change& change) const;
  std::vector<kube::ObjectKey> clusters_on(const kube::Change& change) const;
  // NodeSets of a cluster that is not there, or is going: nothing waits for workers any more.
  Result<void> leave_sets_alone(const kube::ObjectKey& key);
  Neighbours neighbours_of(const kube::Json& cluster) const;
  Result<std::map<std::string, std::string>> copied_key(const kube::Json& cluster, const api::ClusterRef& from);
  bool look_due(const kube::ObjectKey& key, Instant now, std::chrono::nanoseconds often);
  // What Slurm knows now; nothing: it did not answer, which permits nothing.
  std::optional<SlurmView> look(const Look& at);
  Trial try_config(const TrialWanted& wanted);
  // What these pods run, which are to run `hash`, noted for later rounds; the answers of all that are remembered, and since when each of these runs another one.
  void see_configs(const kube::ObjectKey& cluster, const std::vector<ConfigOf>& pods, const std::string& hash, Instant now, Snapshot& into);
  Result<void> give_config(const GiveConfig& give);
  // Who is in these login pods, asked anew each time.
  std::map<std::string, Sessions> see_sessions(const std::vector<ConfigOf>& pods);
  // What munge on workers that do not join says of a credential of the head's; asked at most every kAskMungeAgain.
  std::map<std::string, MungeWord> see_munge(const kube::ObjectKey& cluster, const Snapshot& snapshot, Instant now);
  // What the pod that keeps sets says of them; nothing: there is none, or it does not answer.
  std::optional<kube::Json> see_sets(const kube::ObjectKey& cluster, const Snapshot& snapshot, Instant now);
  Result<void> reconfigure(const Reconfigure& reload, kube::Json& cluster);
  // Condition StepsTaken: what the API refuses (a quota, a pod security level) is told where users look.
  Result<void> tell(kube::Json& cluster, const std::optional<Error>& problem);
  kube::KubeApi& api_;
  const Clock& clock_;
  KeyMaker make_keys_;
  SlurmControllerOptions options_;
  const kube::Caches* caches_ = nullptr;
  mutable std::mutex mutex_;
  std::map<kube::ObjectKey, std::map<std::string, std::string>> configs_;  // by cluster and uid of the pod: the configuration that it was seen to run
  struct Differs { std::string hash; Instant since; };
  std::map<kube::ObjectKey, std::map<std::string, Differs>> differs_;  // of those, as long as they were seen not to run what they are to
  std::map<kube::ObjectKey, std::pair<Instant, std::optional<kube::Json>>> sets_;
  std::map<kube::ObjectKey, std::pair<Instant, std::map<std::string, MungeWord>>> munge_words_;
  mutable std::map<kube::ObjectKey, Proof> ended_;     // workers' pods that went, their end confirmed, until Slurm counts no job on them or knows their successor; lost with this process, and then the successor reports it
  std::map<kube::ObjectKey, Instant> looked_;  // when Slurm last answered a look of this operator
};

}  // namespace fairlead::slurm
