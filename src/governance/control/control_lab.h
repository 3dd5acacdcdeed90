// SPDX-License-Identifier: Apache-2.0
// For tests of this folder's controllers: an API in memory with a controller of Jobs that makes pods and nodes that run them, caches that are behind, and death at any write.
#pragma once
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/team_crds.h"
#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/control/gang_controller.h"
#include "governance/control/job_controller.h"
#include "governance/control/place_controller.h"
#include "governance/control/pod_controller.h"
#include "governance/control/queue_controller.h"
#include "governance/control/workload_clock_controller.h"
#include "governance/replay/decision_replay.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::governance::lab {

using kube::Json;
using kube::ObjectKey;
using testing::IsEmpty;
namespace queues = api::queues;
namespace resources = kube::resources;

inline Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message << "\n" << text;
  return parsed->at(0);
}

struct Died {};

// Ends the process before or after the n-th write, or refuses it.
class CutApi final : public kube::KubeApi {
 public:
  explicit CutApi(kube::KubeApi& api) : api_(api) {}
  int writes = 0, die_at = 0;
  bool after = false;
  std::function<std::optional<Error>(const char* verb, const kube::Resource& resource, const Json& object)> refuse;
  std::function<void()> look;  // after each write

  Result<Json> get(const kube::Resource& resource, const ObjectKey& key) override { return api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options = {}) override { return api_.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override { return api_.watch(resource, space, options); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    return write("create", resource, object, [&] { return api_.create(resource, object); });
  }
  Result<Json> update(const kube::Resource& resource, const Json& object) override {
    return write("update", resource, object, [&]() -> Result<Json> {
      // As with a status subresource: other writes do not touch it.
      Json whole = object;
      auto now = api_.get(resource, kube::key_of(object));
      if (!now) return now;
      whole.set("status", (*now)["status"]);
      return api_.update(resource, whole);
    });
  }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override {
    return write("update_status", resource, object, [&] { return api_.update_status(resource, object); });
  }
  Result<Json> patch(const kube::Resource& resource, const ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource = "") override { return api_.patch(resource, key, type, patch, subresource); }
  Result<Json> post(const kube::Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) override { return api_.post(resource, key, subresource, body); }
  Result<void> remove(const kube::Resource& resource, const ObjectKey& key, const kube::DeleteOptions& options = {}) override {
    auto done = write("delete", resource, Json::object({{"metadata", Json::object({{"name", key.name}, {"namespace", key.space}})}}), [&]() -> Result<Json> {
      if (auto gone = api_.remove(resource, key, options); !gone) return std::unexpected(std::move(gone.error()));
      return Json();
    });
    if (!done) return std::unexpected(std::move(done.error()));
    return {};
  }
  Result<kube::ExecResult> exec(const ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return fail(Code::Unsupported, "exec"); }

 private:
  template <class Do>
  Result<Json> write(const char* verb, const kube::Resource& resource, const Json& object, const Do& act) {
    if (resource.plural == "events") return act();
    ++writes;
    if (writes == die_at && !after) throw Died{};
    if (refuse)
      if (auto error = refuse(verb, resource, object)) return std::unexpected(std::move(*error));
    auto done = act();
    if (look) look();
    if (writes == die_at && after) throw Died{};
    return done;
  }
  kube::KubeApi& api_;
};

// What controllers see: the API as it was when each kind was last looked at.
class Views final : public kube::Caches {
 public:
  explicit Views(kube::TinyApi& api) : api_(api) {}
  struct View final : kube::Reader {
    std::map<ObjectKey, Json> objects;
    std::optional<Json> get(const ObjectKey& key) const override {
      const auto found = objects.find(key);
      return found == objects.end() ? std::nullopt : std::optional(found->second);
    }
    std::vector<Json> list(const std::string& space) const override {
      std::vector<Json> all;
      for (const auto& [key, object] : objects)
        if (space.empty() || key.space == space) all.push_back(object);
      return all;
    }
  };
  const kube::Reader& of(const kube::Resource& resource) const override { return views_[resource.plural]; }
  // Tells the keys of what has changed.
  void refresh(const kube::Resource& resource, const std::function<void(const kube::Change&)>& tell) {
    View& view = views_[resource.plural];
    const std::map<ObjectKey, Json> fresh = api_.all(resource.plural);
    std::vector<kube::Change> changes;
    for (const auto& [key, object] : view.objects)
      if (!fresh.contains(key)) changes.push_back({.before = object, .after = {}});
    for (const auto& [key, object] : fresh) {
      const auto before = view.objects.find(key);
      if (before == view.objects.end()) changes.push_back({.before = {}, .after = object});
      else if (!(before->second == object)) changes.push_back({.before = before->second, .after = object});
    }
    view.objects = fresh;
    for (const kube::Change& change : changes) tell(change);
  }

 private:
  kube::TinyApi& api_;
  mutable std::map<std::string, View> views_;
};

// A decision log that is full after a few parts, and cannot be written every now and then: the engine is filled anew again and again, and nothing of what is tested here may change by that.
struct SmallLog final : DecisionSink {
  explicit SmallLog(std::string& into) : text(into) {}
  bool ready() override { return ++asked % 3 != 0; }
  Then begin(std::string lines) override {
    if (++parts % 17 == 0) return Then::Off;
    text += lines;
    return Then::GoOn;
  }
  Then append(std::string lines) override {
    if (++parts % 13 == 0) return Then::Off;
    text += lines;
    return parts % 5 == 0 ? Then::BeginAnew : Then::GoOn;
  }
  std::string& text;
  int parts = 0, asked = 0;
};

class Site {
 public:
  Site() {
    cut_.look = [this] { watch_over(); };
    put(resources::namespaces, "{apiVersion: v1, kind: Namespace, metadata: {name: lab}}");
    put(queues::flavors, "{metadata: {name: h200}, spec: {nodeLabels: {kind: h200}}}");
    queue("a", "6"), queue("b", "5");
    start();
  }
  ~Site() {
    EXPECT_THAT(checked_.refusals(), IsEmpty());
    EXPECT_EQ(broken_, "");
    for (const CaseOutcome& part : replay_decisions(log_)) EXPECT_EQ(part.kind, CaseOutcome::Kind::Passed) << part.id << ": " << part.detail;
  }
  // A new process.
  void start() {
    controllers_.clear();
    controllers_.resize(6);
    controllers_[0].controller = std::make_unique<QueueController>(fenced_, clock_, [this](const ObjectKey& key) { controllers_[0].keys.insert(key); }, QueueControllerOptions{.books = {}, .status_every = 0ns, .words_every = 0ns, .log_by = "lab"}, std::make_unique<SmallLog>(log_));
    controllers_[1].controller = std::make_unique<JobController>(fenced_, clock_);
    controllers_[2].controller = std::make_unique<PodController>(fenced_, clock_);
    controllers_[3].controller = std::make_unique<WorkloadClockController>(fenced_, clock_);
    controllers_[4].controller = std::make_unique<PlaceController>(fenced_, clock_);
    controllers_[5].controller = std::make_unique<GangController>(fenced_, clock_, gangs());
    views_ = std::make_unique<Views>(api_);
    for (Running& one : controllers_) one.sources = one.controller->sources();
    refresh_all();
    for (Running& one : controllers_) one.controller->start(*views_);
  }
  void put(const kube::Resource& resource, const std::string& text) {
    Json object = yaml(text);
    if (api_.all(resource.plural).contains(kube::key_of(object))) ASSERT_TRUE(api_.put(resource, object));
    else ASSERT_TRUE(api_.create(resource, object));
  }
  void queue(const std::string& name, const std::string& cpu) {
    put(queues::cluster_queues, fmt::format("{{metadata: {{name: {}, uid: q-{}}}, spec: {{cohortName: pool, namespaceSelector: {{}}, preemption: {{reclaimWithinCohort: Any}}, resourceGroups: [{{coveredResources: [cpu], flavors: "
                                            "[{{name: h200, resources: [{{name: cpu, nominalQuota: {}}}]}}]}}]}}}}",
                                            name, name, cpu));
    put(queues::local_queues, fmt::format("{{metadata: {{name: team-{0}, namespace: lab, uid: l-{0}}}, spec: {{clusterQueue: {0}}}}}", name));
  }
  void job(const std::string& name, const std::string& team, int pods, const std::string& more = "", const std::string& annotations = "", const std::string& of_pods = "") {
    clock_.advance(1s);
    put(kBatchJobs, fmt::format("{{apiVersion: batch/v1, kind: Job, metadata: {{name: {0}, namespace: lab, uid: uid-{0}, labels: {{kueue.x-k8s.io/queue-name: team-{1}{3}}}, annotations: {{{4}}}}}, spec: {{parallelism: {2}, completions: {2}, suspend: true, "
                                "template: {{metadata: {{labels: {{batch.kubernetes.io/controller-uid: uid-{0}}}{5}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}}}",
                                name, team, pods, more, annotations, of_pods.empty() ? "" : ", annotations: {" + of_pods + "}"));
  }
  static const GangKind& gangs() { return *std::find_if(gang_kinds().begin(), gang_kinds().end(), [](const GangKind& one) { return one.resource.kind == "HyperPodPyTorchJob"; }); }
  void gang(const std::string& name, const std::string& team, int pods, const std::string& of_pods = "") {
    clock_.advance(1s);
    put(gangs().resource, fmt::format("{{apiVersion: sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob, metadata: {{name: {0}, namespace: lab, uid: uid-{0}, labels: {{kueue.x-k8s.io/queue-name: team-{1}}}}}, spec: {{replicaSpecs: [{{name: pod, replicas: {2}, "
                                      "template: {{metadata: {{labels: {{kueue.x-k8s.io/queue-name: team-{1}}}, annotations: {{{3}}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}]}}}}", name, team, pods, of_pods));
  }
  // Its controller: pods of what runs, none of what is held or has ended.
  void gangs_step() {
    for (const auto& [key, object] : std::map(api_.all(gangs().resource.plural))) {
      const bool runs = !object["spec"]["runPolicy"]["suspend"].boolean() && !kube::condition_is_true(object, "Completed");
      const auto& part = object["spec"]["replicaSpecs"].items()[0];
      for (std::int64_t i = 0; i < part["replicas"].integer(); ++i) {
        const std::string name = fmt::format("{}-pod-{}", key.name, i);
        const bool there = api_.all("pods").contains({"lab", name});
        if (there && !runs) (void)api_.remove(resources::pods, {"lab", name});
        if (there || !runs) continue;
        Json pod = yaml(fmt::format("{{metadata: {{name: {0}, namespace: lab, uid: uid-{0}-{1}, ownerReferences: [{{apiVersion: sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob, name: {2}, uid: {3}, controller: true}}]}}, status: {{phase: Running}}}}", name, ++pods_made_, key.name, kube::uid_of(object)));
        for (const char* field : {"labels", "annotations"})
          if (!part["template"]["metadata"][field].is_null()) pod.child("metadata").set(field, part["template"]["metadata"][field]);
        pod.set("spec", part["template"]["spec"]);
        if (!part["template"]["spec"]["schedulingGates"].items().empty()) pod.child("status").set("phase", "Pending");
        (void)api_.create(resources::pods, pod);
      }
    }
    for (const auto& [pod_key, pod] : std::map(api_.all("pods"))) {
      const Json* owner = kube::controller_of(pod);
      if (owner != nullptr && (*owner)["kind"].string() == "HyperPodPyTorchJob" && !api_.all(gangs().resource.plural).contains({"lab", (*owner)["name"].string()})) (void)api_.remove(resources::pods, pod_key);
    }
  }
  // Four hosts of three cpus in two racks, and pods of the flavor get a place.
  void racks() {
    put(queues::topologies, "{metadata: {name: site, uid: t1}, spec: {levels: [{nodeLabel: cloud/rack}, {nodeLabel: kubernetes.io/hostname}]}}");
    put(queues::flavors, "{metadata: {name: h200}, spec: {nodeLabels: {kind: h200}, topologyName: site}}");
    for (const char* name : {"n1", "n2", "n3", "n4"}) node(name, true);
  }
  void node(const std::string& name, bool ready) {
    put(resources::nodes, fmt::format("{{metadata: {{name: {0}, uid: uid-{0}, labels: {{kind: h200, cloud/rack: {1}, kubernetes.io/hostname: {0}}}}}, status: {{allocatable: {{cpu: 3, pods: 10}}, conditions: [{{type: Ready, status: '{2}', lastTransitionTime: '{3}'}}]}}}}",
                                      name, name < "n3" ? "a" : "b", ready ? "True" : "Unknown", print_time(clock_.now())));
  }
  void remove_job(const std::string& name) { EXPECT_TRUE(api_.remove(kBatchJobs, {"lab", name})); }

  // The first index that no pod of the Job has.
  std::string free_name(const std::string& job) {
    for (int index = 0; index < 100; ++index)
      if (std::string name = fmt::format("{}-{}", job, index); !api_.all("pods").contains({"lab", name})) return name;
    return "";
  }
  void make_pod_of_job(const std::string& name, const Json& job) {
    const Json& from = job["spec"]["template"];
    Json pod = yaml(fmt::format("{{metadata: {{name: {0}, namespace: lab, uid: uid-{0}-{1}, ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: {2}, uid: {3}, controller: true}}]}}, status: {{phase: Running}}}}", name, ++pods_made_, kube::name_of(job), kube::uid_of(job)));
    pod.child("metadata").set("labels", from["metadata"]["labels"]);
    pod.child("metadata").child("labels").set("batch.kubernetes.io/controller-uid", kube::uid_of(job)).set("batch.kubernetes.io/job-completion-index", name.substr(name.rfind('-') + 1));
    if (from["metadata"]["annotations"].is_object()) pod.child("metadata").set("annotations", from["metadata"]["annotations"]);
    pod.set("spec", from["spec"]);
    if (!from["spec"]["schedulingGates"].items().empty()) pod.child("status").set("phase", "Pending");
    (void)api_.create(resources::pods, pod);
  }
  // Kubernetes' own controllers: pods of what runs, none of what is held; the status is written one step behind.
  void jobs_step() {
    for (auto& [key, object] : std::map(api_.all("jobs"))) {
      Json status = object["status"];
      const bool suspended = object["spec"]["suspend"].boolean(), ended = kube::condition_is_true(object, "Complete");
      const std::int64_t wanted = suspended || ended ? 0 : object["spec"]["parallelism"].integer();
      std::int64_t there = 0;
      for (const auto& [pod_key, pod] : std::map(api_.all("pods"))) {
        if (pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"].string() != kube::uid_of(object)) continue;
        if (++there > wanted) (void)api_.remove(resources::pods, pod_key);
      }
      for (; there < wanted; ++there)
        if (const std::string name = free_name(key.name); !name.empty()) make_pod_of_job(name, object);
      const std::int64_t ready = std::min(wanted, get_ready_);
      if (status["active"].integer() == wanted && status["ready"].integer() == ready) continue;
      if (wanted > 0 && status["startTime"].is_null()) status.set("startTime", print_time(clock_.now()));
      status.set("active", wanted).set("ready", ready);
      object.set("status", status);
      (void)api_.put(kBatchJobs, object);
    }
    for (const auto& [pod_key, pod] : std::map(api_.all("pods"))) {
      const std::string& uid = pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"].string();
      if (!uid.empty() && std::none_of(api_.all("jobs").begin(), api_.all("jobs").end(), [&](const auto& one) { return kube::uid_of(one.second) == uid; })) (void)api_.remove(resources::pods, pod_key);
    }
    watch_over();
  }
  // A pod of one cpu, behind the gate; its node holds it until it has ended it.
  void pod(const std::string& name, const std::string& team, const std::string& group = "", int total = 1) {
    clock_.advance(1s);
    const std::string label = group.empty() ? "" : ", kueue.x-k8s.io/pod-group-name: " + group, annotations = group.empty() ? "{}" : fmt::format("{{kueue.x-k8s.io/pod-group-total-count: '{}'}}", total);
    put(resources::pods, fmt::format("{{apiVersion: v1, kind: Pod, metadata: {{name: {0}, namespace: lab, uid: uid-{0}, creationTimestamp: '{4}', finalizers: [node], labels: {{kueue.x-k8s.io/queue-name: team-{1}{2}}}, annotations: {3}}}, "
                                     "spec: {{schedulingGates: [{{name: kueue.x-k8s.io/admission}}], containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}, status: {{phase: Pending}}}}",
                                     name, team, label, annotations, print_time(clock_.now())));
  }
  void remove_pod(const std::string& name) { EXPECT_TRUE(api_.remove(resources::pods, {"lab", name})); }
  // What nodes do: they start what is let go, and end what is deleted one step later.
  void nodes_step() {
    for (auto& [key, object] : std::map(api_.all("pods"))) {
      const std::string& host = object["spec"]["nodeSelector"]["kubernetes.io/hostname"].string();
      if (object["status"]["phase"].string() == "Pending" && object["spec"]["schedulingGates"].items().empty() && kube::controller_of(object) != nullptr) {
        const auto node = api_.all("nodes").find({"", host});
        if (!host.empty() && (node == api_.all("nodes").end() || !kube::condition_is_true(node->second, "Ready"))) continue;  // nobody there
        object.child("spec").set("nodeName", host);
        object.child("status").set("phase", "Running");
        (void)api_.put(resources::pods, object);
        continue;
      }
      if (!kube::has_finalizer(object, "node")) continue;
      const bool gated = !object["spec"]["schedulingGates"].items().empty();
      if (kube::deleting(object)) kube::remove_finalizer(object, "node");
      else if (!gated && object["status"]["phase"].string() == "Pending") object.child("status").set("phase", "Running");
      else if (!gated && object["status"]["phase"].string() == "Running" && get_ready_ > 0 && !kube::condition_is_true(object, "Ready")) kube::set_condition(object, {.type = "Ready", .status = "True"}, clock_.now());
      else continue;
      (void)api_.put(resources::pods, object);
    }
    watch_over();
  }
  void end_pod(const std::string& name, const std::string& phase) {
    Json object = api_.all("pods").at({"lab", name});
    object.child("status").set("phase", phase);
    (void)api_.put(resources::pods, object);
  }
  std::string pod_state(const std::string& name) {
    const auto at = api_.all("pods").find({"lab", name});
    if (at == api_.all("pods").end()) return "gone";
    return kube::deleting(at->second) ? "ends" : !uses_quota(at->second) && at->second["status"]["phase"].string() == "Pending" ? "held" : at->second["status"]["phase"].string();
  }
  void complete(const std::string& name) {
    Json object = api_.all("jobs").at({"lab", name});
    object.set("status", yaml("{active: 0, succeeded: 9, conditions: [{type: Complete, status: 'True', message: Reached expected number of succeeded pods}]}"));
    (void)api_.put(kBatchJobs, object);
  }
  void refresh(const kube::Resource& resource) {
    views_->refresh(resource, [&](const kube::Change& change) {
      for (Running& one : controllers_)
        for (const auto& source : one.sources)
          if (source.resource == resource)
            for (const ObjectKey& key : source.keys(change)) one.keys.insert(key);
    });
  }
  std::vector<kube::Resource> kinds() const {
    return {resources::namespaces, queues::flavors, queues::cohorts, queues::checks, queues::cluster_queues, queues::local_queues, queues::workloads, queues::priority_classes, kPriorityClasses, kBatchJobs, resources::pods, api::teams::configs, queues::topologies, resources::nodes, gangs().resource};
  }
  void refresh_all() {
    for (const auto& kind : kinds()) refresh(kind);
  }
  // One key of one of the controllers; what fails is tried again.
  bool one(std::uint64_t pick) {
    std::vector<Running*> due;
    for (Running& one : controllers_)
      if (!one.keys.empty()) due.push_back(&one);
    if (due.empty()) return false;
    Running& one = *due[pick % due.size()];
    std::set<ObjectKey>& keys = one.keys;
    const auto at = std::next(keys.begin(), static_cast<std::ptrdiff_t>((pick >> 2) % keys.size()));
    const ObjectKey key = *at;
    keys.erase(at);
    auto done = one.controller->reconcile(key);
    if (!done) last_error_ = done.error().message;
    if (done && done->again_after && *done->again_after >= 1s) one.later.insert(key);
    else if (!done || done->again_after) keys.insert(key);
    return true;
  }
  // What a program of the site says of a Job's Workload.
  void answer(const std::string& job, const std::string& check, const std::string& state, const std::string& more = "") {
    Json workload = workload_of(job);
    for (Json& one : workload.child("status").child("admissionChecks").items())
      if (one["name"].string() == check) one = yaml(fmt::format("{{name: {}, state: {}, message: said, lastTransitionTime: '{}'{}}}", check, state, print_time(clock_.now()), more));
    (void)api_.put(queues::workloads, workload);
  }
  // Until nothing changes any more.
  void settle() {
    for (Running& one : controllers_) one.keys.merge(one.later);
    for (int round = 0; round < 40; ++round) {
      const auto before = world();
      jobs_step();
      gangs_step();
      nodes_step();
      refresh_all();
      for (int steps = 0; steps < 400 && one(0); ++steps) refresh_all();
      if (world() == before) return;
    }
    ADD_FAILURE() << "does not settle: " << last_error_;
  }
  std::vector<std::map<ObjectKey, Json>> world() {
    std::vector<std::map<ObjectKey, Json>> out;
    for (const char* plural : {"workloads", "jobs", "hyperpodpytorchjobs", "clusterqueues", "localqueues", "pods"}) out.push_back(api_.all(plural));
    return out;
  }
  // Never more pods than quota, whoever runs them; and nothing runs that has none.
  void watch_over() {
    for (const auto& [key, object] : api_.all("jobs"))
    {
      if (state(key.name) == "runs" && !holds_quota(workload_of(key.name)) && broken_.empty()) broken_ = key.name + " runs without quota";
      if (state(key.name) == "runs" && !kube::condition_is_true(workload_of(key.name), "Admitted") && !kube::condition_is_true(workload_of(key.name), "Evicted") && broken_.empty()) broken_ = key.name + " runs before its checks are ready";
    }
    for (const auto& [key, object] : api_.all(gangs().resource.plural))
      if (object["spec"]["runPolicy"].has("suspend") && !object["spec"]["runPolicy"]["suspend"].boolean() && !holds_quota(workload_of(key.name)) && broken_.empty() && !kube::condition_is_true(object, "Completed")) broken_ = key.name + " runs without quota";
    std::size_t running = 0;
    for (const auto& [key, object] : api_.all("pods")) {
      if (kube::controller_of(object) != nullptr && waits_for_place(object)) continue;
      if (!uses_quota(object)) continue;
      ++running;
      if (!object["metadata"]["labels"][kQueueLabel].string().empty() && kube::controller_of(object) == nullptr && !has_quota(object) && broken_.empty()) broken_ = key.name + " runs without quota";
    }
    if (running > 11 && broken_.empty()) broken_ = fmt::format("{} pods on a quota of 11", running);
  }
  bool has_quota(const Json& pod) {
    const auto& all = api_.all("workloads");
    return std::any_of(all.begin(), all.end(), [&](const auto& one) {
      const auto& owners = one.second["metadata"]["ownerReferences"].items();
      return holds_quota(one.second) && std::any_of(owners.begin(), owners.end(), [&](const Json& owner) { return owner["uid"].string() == kube::uid_of(pod); });
    });
  }
  std::string state(const std::string& name) {
    const auto at = api_.all("jobs").find({"lab", name});
    if (at == api_.all("jobs").end()) return "gone";
    return kube::condition_is_true(at->second, "Complete") ? "complete" : at->second["spec"]["suspend"].boolean() ? "held" : "runs";
  }
  Json workload_of(const std::string& job) {
    for (const auto& [key, object] : api_.all("workloads"))
      if (const Json* owner = kube::controller_of(object); owner != nullptr && (*owner)["name"].string() == job) return object;
    return Json();
  }
  std::string says(const std::string& job, const char* type) {
    const Json workload = workload_of(job);
    const Json* found = kube::find_condition(workload, type);
    return found == nullptr ? "none" : (*found)["status"].string() + " " + (*found)["reason"].string() + ": " + (*found)["message"].string();
  }
  std::string outcome() {
    std::string out;
    for (const char* name : {"b1", "b2", "a1", "a2"}) {
      const Json workload = workload_of(name);
      out += fmt::format("{} {} {} reserved={} ", name, state(name), workload.is_null() ? "no workload" : "workload", holds_quota(workload));
      for (const Json& condition : workload["status"]["conditions"].items()) out += condition["type"].string() + "=" + condition["status"].string() + " ";
      out += kube::print_json(api_.all("jobs").contains({"lab", name}) ? api_.all("jobs").at({"lab", name})["spec"]["template"]["spec"]["nodeSelector"] : Json()) + "\n";
    }
    return out + fmt::format("{} pods, {} workloads, b: {}", api_.all("pods").size(), api_.all("workloads").size(), kube::print_json(api_.all("clusterqueues").at({"", "b"})["status"]["flavorsUsage"]));
  }

  ManualClock clock_{*parse_time("2026-11-22T10:00:00Z")};
  kube::TinyApi api_;
  CutApi cut_{api_};
  kube::CheckedApi checked_{cut_, [this] {
                              kube::Access access = kube::full_access(QueueController(api_, clock_, {}));
                              access.add(kube::full_access(JobController(api_, clock_)));
                              access.add(kube::full_access(PodController(api_, clock_)));
                              access.add(kube::full_access(WorkloadClockController(api_, clock_)));
                              access.add(kube::full_access(PlaceController(api_, clock_)));
                              access.add(kube::full_access(GangController(api_, clock_, gangs())));
                              return access;
                            }()};
  kube::FencedApi fenced_{checked_, []() -> Result<std::int64_t> { return 3; }};
  struct Running {
    std::unique_ptr<kube::Controller> controller;
    std::vector<kube::Controller::Source> sources;
    std::set<ObjectKey> keys;
    std::set<ObjectKey> later;  // when time has passed
  };
  std::vector<Running> controllers_;
  int pods_made_ = 0;
  std::int64_t get_ready_ = 1'000;  // pods of each Job that become ready
  std::unique_ptr<Views> views_;
  std::string broken_, last_error_, log_;
};

// What people do, with a pause after each thing: `settle` lets everything come to rest, or not.
using Story = std::function<void(Site& site, const std::function<void()>& settle)>;

// The process dies before or behind each of the story's writes in turn, and a new one takes over: the end is the same. Returns what it is; the writes are at least so many.
inline std::string expect_death_changes_nothing(const Story& story, const std::function<std::string(Site&)>& outcome, int least_writes) {
  std::string wanted;
  int writes = 0;
  {
    Site site;
    story(site, [&] { site.settle(); });
    wanted = outcome(site), writes = site.cut_.writes;
  }
  EXPECT_GT(writes, least_writes);
  for (int n = 1; n <= writes; n += test_stride())
    for (const bool after : {false, true}) {
      Site site;
      site.cut_.die_at = n, site.cut_.after = after;
      story(site, [&] {
        for (int tries = 0; tries < 3; ++tries) try {
            return site.settle();
          } catch (const Died&) {
            site.start();
          }
      });
      EXPECT_EQ(outcome(site), wanted) << "died " << (after ? "after" : "before") << " write " << n;
      EXPECT_EQ(site.broken_, "") << "died " << (after ? "after" : "before") << " write " << n;
      if (testing::Test::HasFailure()) return wanted;
    }
  return wanted;
}

// Caches that are behind, each by its own time; steps in any order; deaths in between. `others`: what the rest of the cluster does. At the end of each telling all has come to rest, and `check` looks at it.
inline void expect_stale_caches_break_nothing(const Story& story, std::uint64_t tellings, void (Site::*others)(), const std::function<void(Site&, std::uint64_t seed)>& check) {
  for (std::uint64_t seed = 1; seed <= tellings; ++seed) {
    Site site;
    Rng rng(seed);
    story(site, [&] {
      for (int step = 0; step < 150; ++step) {
        switch (rng.below(4)) {
          case 0: site.refresh(site.kinds()[rng.below(site.kinds().size())]); break;
          case 1: (site.*others)(); break;
          default:
            for (int i = 0; i < 4; ++i) site.one(rng.next());
        }
        if (rng.below(60) == 0) site.start();
      }
      site.settle();
    });
    ASSERT_EQ(site.broken_, "") << "seed " << seed;
    check(site, seed);
  }
}

}  // namespace fairlead::governance::lab
