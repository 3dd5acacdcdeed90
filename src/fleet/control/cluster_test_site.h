// SPDX-License-Identifier: Apache-2.0
// For tests: a small world in which a Cluster is carried out. Machines become Nodes, Slurm makes pods, drains workers, and keeps those that have jobs.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/cluster.h"
#include "api/network_ways.h"
#include "api/node_set.h"
#include "api/training_plan.h"
#include "base/encoding.h"
#include "base/rng.h"
#include "fleet/control/cluster_controller.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

// Dies at the n-th write: before it, or after it has had its effect and nobody was told.
class MortalApi final : public kube::KubeApi {
 public:
  enum class Death { Before, After };
  MortalApi(kube::KubeApi& api) : api_(api) {}
  int writes = 0;
  int dies_at = -1;
  Death how = Death::Before;
  bool dead = false;
  const std::optional<Error>* refuses_events = nullptr;
  std::vector<std::pair<kube::ObjectKey, Json>>* patches = nullptr;  // the next one goes there, and whoever sent it is dead

  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return dead ? gone() : api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options = {}) override { return dead ? gone() : api_.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return gone(); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    if (refuses_events != nullptr && *refuses_events && resource == api::kClusterEvents) return std::unexpected(**refuses_events);
    return write<Json>([&] { return api_.create(resource, object); });
  }
  Result<Json> update(const kube::Resource& resource, const Json& object) override {
    return write<Json>([&] { return api_.update(resource, object); });
  }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override {
    return write<Json>([&] { return api_.update_status(resource, object); });
  }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource = "") override {
    if (patches != nullptr && !dead) {
      patches->emplace_back(key, patch);
      dead = true;
      return gone();
    }
    return write<Json>([&] { return api_.patch(resource, key, type, patch, subresource); });
  }
  Result<Json> post(const kube::Resource& resource, const kube::ObjectKey& key, const std::string& subresource, const Json& body) override {
    return write<Json>([&] { return api_.post(resource, key, subresource, body); });
  }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options = {}) override {
    return write<void>([&] { return api_.remove(resource, key, options); });
  }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return gone(); }

 private:
  static std::unexpected<Error> gone() { return fail(Code::Unavailable, "dead"); }
  template <class T>
  Result<T> write(const auto& act) {
    if (dead) return gone();
    if (writes++ == dies_at) {
      dead = true;
      if (how == Death::After) (void)act();
      return gone();
    }
    return act();
  }
  kube::KubeApi& api_;
};

// Scripts that are there, or are not.
class MemoryScripts final : public ScriptStore {
 public:
  std::map<std::string, ScriptFiles> buckets;
  Error error{Code::NotFound, "there is no such folder"};
  Result<ScriptFiles> read(const std::string& bucket, const std::string&) const override {
    const auto found = buckets.find(bucket);
    if (found == buckets.end()) return std::unexpected(error);
    return found->second;
  }
};

// Alarms that are as a test says; one that it does not speak of is well.
class MemoryAlarms final : public api::Alarms {
 public:
  std::map<std::string, api::Alarm> told;
  std::map<std::string, api::Alarm> look(const std::vector<std::string>& names) const override {
    std::map<std::string, api::Alarm> out;
    for (const std::string& name : names) {
      const auto found = told.find(name);
      out[name] = found == told.end() ? api::Alarm{.state = api::Alarm::State::Ok, .message = {}} : found->second;
    }
    return out;
  }
};

// What a controller sees: of each kind what was there some time ago.
class LaggingCaches final : public kube::Caches {
 public:
  explicit LaggingCaches(kube::TinyApi& api) : api_(api) {}
  const kube::Reader& of(const kube::Resource& resource) const override {
    if (resource == api::kTrainingPlans) return api_.of(resource);
    auto& view = views_[resource.plural];
    view.objects = &seen_[resource.plural];
    return view;
  }
  void refresh(const std::string& plural) { seen_[plural] = api_.all(plural); }
  void refresh_all() {
    for (const char* plural : kinds) refresh(plural);
  }
  static constexpr const char* kinds[] = {"clusters", "instances", "machines", "nodes", "slurmclusters", "nodesets", "pods", "clusterevents"};

 private:
  kube::TinyApi& api_;
  mutable std::map<std::string, std::map<kube::ObjectKey, Json>> seen_;
  mutable std::map<std::string, kube::TinyApi::View> views_;
};

class ClusterSite {
 public:
  explicit ClusterSite(bool makes_machines = true) : makes_machines_(makes_machines) {
    api.stamp = [this] { return print_time(clock.now()); };
    api.posted = [this](const kube::Resource& resource, const kube::ObjectKey& key, const std::string&, const Json&) -> Result<Json> {
      if (budgeted.contains(key.text())) return fail(Code::Exhausted, "its disruption budget lets it not go");
      drop(resource, key);
      return Json();
    };
    restart();
  }

  // A new server, that knows nothing.
  void restart() {
    mortal = std::make_unique<MortalApi>(checked);
    mortal->refuses_events = &refuses_events;
    fenced = std::make_unique<kube::FencedApi>(*mortal, []() -> Result<std::int64_t> { return 1; });
    controller = std::make_unique<ClusterController>(*fenced, clock, options(), scripts, alarms);
    controller->start(lagging ? static_cast<const kube::Caches&>(caches) : api);
  }
  ClusterPlanOptions options() const { return {.makes_machines = makes_machines_}; }

  // ---- what people do
  Json group(const std::string& name, const std::string& type, int count, const std::string& node_type, const std::string& partition = "") const {
    Json slurm = Json::object({{"nodeType", node_type}});
    if (!partition.empty()) slurm.set("partitionNames", Json::array({Json(partition)}));
    return Json::object({{"instanceGroupName", name}, {"instanceType", type}, {"instanceCount", count}, {"executionRole", "arn:aws:iam::111122223333:role/x"}, {"slurmConfig", std::move(slurm)}});
  }
  Json spec(int workers, bool continuous = true) const {
    Json out = Json::object({{"instanceGroups", Json::array({group("controllers", "ml.c5.large", 1, "Controller"), group("logins", "ml.t3.medium", 1, "Login"), group("gpu", "ml.g5.xlarge", workers, "Compute", "train")})}});
    if (continuous) out.set("nodeProvisioningMode", "Continuous");
    return out;
  }
  void create(const std::string& name, Json with) {
    ASSERT_TRUE(api.create(api::kClusters, Json::object({{"apiVersion", "fairlead.dev/v1alpha1"}, {"kind", "Cluster"}, {"metadata", Json::object({{"name", name}, {"generation", 1}})}, {"spec", std::move(with)}})));
  }
  void edit(const std::string& name, const std::function<void(Json& spec)>& change) {
    Json object = api.all("clusters").at({"", name});
    change(object.child("spec"));
    object.child("metadata").set("generation", object["metadata"]["generation"].integer() + 1);
    ASSERT_TRUE(api.update(api::kClusters, object));
  }
  Json& group_of(Json& spec, const std::string& name) {
    for (Json& one : spec.child("instanceGroups").items())
      if (one["instanceGroupName"].string() == name) return one;
    throw std::out_of_range(name);
  }
  // The group runs scripts from now on.
  static Json with_scripts(Json group, const std::string& on_create, const std::string& on_init_complete = "", const std::string& bucket = "sagemaker-x") {
    Json config = Json::object({{"sourceS3Uri", "s3://" + bucket + "/base"}});
    if (!on_create.empty()) config.set("onCreate", on_create);
    if (!on_init_complete.empty()) config.set("onInitComplete", on_init_complete);
    return group.set("lifeCycleConfig", std::move(config));
  }
  void remove(const std::string& name) { ASSERT_TRUE(api.remove(api::kClusters, {"", name})); }
  void ask(const std::string& instance, const char* what, const std::string& id) {
    Json object = api.all("instances").at({"", instance});
    object.child("spec").set(what, Json::object({{"id", id}}));
    ASSERT_TRUE(api.update(api::kInstances, object));
  }
  void spare(const std::string& name, const std::string& type, int cpus, int gib, int gpus) {
    Json capacity = Json::object({{"cpu", std::to_string(cpus)}, {"memory", fmt::format("{}Gi", gib)}});
    if (gpus > 0) capacity.set("nvidia.com/gpu", std::to_string(gpus));
    Json node = Json::object({{"metadata", Json::object({{"name", name}, {"labels", Json::object({{api::kSpareLabel, "true"}, {"node.kubernetes.io/instance-type", type}})}})}, {"status", Json::object({{"capacity", capacity}, {"allocatable", capacity}, {"addresses", address()}})}});
    kube::set_condition(node, {"Ready", "True", "KubeletReady", ""}, clock.now());
    ASSERT_TRUE(api.create(resources::nodes, node));
  }

  // ---- the world
  void tick() {
    clock.advance(std::chrono::seconds(5));
    run_machines();
    run_slurm();
    run_scripts();
  }
  // Pods of scripts run on the machine that they name; those whose Instance is gone are collected.
  void run_scripts() {
    for (const auto& [key, pod] : std::map(api.all("pods"))) {
      const std::string& instance = pod["metadata"]["labels"][api::kLifecycleLabel].string();
      if (!is_script(pod)) continue;
      if (!api.all("instances").contains({"", instance})) {
        drop(resources::pods, key);
        continue;
      }
      const std::string& node = pod["spec"]["nodeName"].string();
      if (pod["status"]["phase"].string() == "Succeeded" || pod["status"]["phase"].string() == "Failed" || !api.all("nodes").contains({"", node})) continue;
      Json changed = pod;
      if (key.name.ends_with("-links-answer")) {
        if (answers(pod)) changed.set("status", Json::object({{"phase", "Running"}, {"podIP", "at-" + instance}}));  // to its end
      } else if (pod["status"].is_null()) {
        changed.set("status", Json::object({{"phase", "Running"}}));
      } else if (key.name.ends_with("-links-check")) {
        std::string told;
        const std::string peers = pod["spec"]["containers"].items().front()["env"].items().back()["value"].string();
        for (const std::string& peer : split(peers, ' '))
          if (const auto at = peer.find('='); at != peer.npos) {
            const std::string to = peer.substr(0, at);
            EXPECT_EQ(peer.substr(at + 1), "at-" + to);
            const auto there = api.all("pods").find({key.space, to + "-links-answer"});
            const bool answered = there != api.all("pods").end() && there->second["metadata"]["annotations"][kCheckRequest] == pod["metadata"]["annotations"][kCheckRequest];
            told += fmt::format("{} {}\n", to, link(instance, to) ? answered ? "ok 900 MB/s" : "unknown nobody listens there" : "fault timed out");
          }
        links.push_back(instance);
        changed.set("status", Json::object({{"phase", "Succeeded"}, {"containerStatuses", Json::array({Json::object({{"name", "lifecycle"}, {"state", Json::object({{"terminated", Json::object({{"exitCode", 0}, {"message", told}})}})}})})}}));
      } else if (const int code = script(pod); code >= 0) {
        if (key.name.ends_with("-deep-health-check")) {
          checks.push_back(instance + " for " + pod["metadata"]["annotations"][kCheckRequest].string());
          // Nothing of Slurm, and no work, is on a machine under load.
          for (const auto& [other, on] : api.all("pods"))
            EXPECT_FALSE(on["spec"]["nodeName"].string() == node && on["status"]["phase"].string() == "Running" && !on["metadata"]["labels"][api::kSlurmRoleLabel].is_null()) << other.text() << " is on " << node << " while it is checked";
        }
        const bool create = key.name.ends_with("-on-create");
        const std::string& update = pod["metadata"]["annotations"][kScriptUpdate].string();
        if (!key.name.ends_with("-deep-health-check")) ran.push_back(fmt::format("{} {}{}", create ? "OnCreate" : "OnInitComplete", instance, update.empty() ? "" : " for " + update));
        if (create) created.insert(instance + "/" + update);
        changed.set("status", Json::object({{"phase", code == 0 ? "Succeeded" : "Failed"}, {"containerStatuses", Json::array({Json::object({{"name", "lifecycle"}, {"state", Json::object({{"terminated", Json::object({{"exitCode", code}, {"message", code == 0 ? "" : "it ended with 3:\nno route"}})}})}})})}}));
      }
      if (changed != pod) {
        EXPECT_TRUE(api.put(resources::pods, changed));
      }
    }
    // Nothing of Slurm is on a machine before it was prepared.
    for (const auto& [key, pod] : api.all("pods")) {
      if (pod["metadata"]["labels"][api::kSlurmRoleLabel].is_null() || !pod["metadata"]["labels"][api::kLifecycleLabel].is_null()) continue;
      const auto node = api.all("nodes").find({"", pod["spec"]["nodeName"].string()});
      if (node == api.all("nodes").end()) continue;
      const auto instance = api.all("instances").find({"", node->second["metadata"]["labels"][api::kInstanceLabel].string()});
      if (instance == api.all("instances").end()) continue;
      const auto cluster = api.all("clusters").find({"", instance->second["spec"]["cluster"].string()});
      if (cluster == api.all("clusters").end()) continue;
      for (const Json& group : cluster->second["spec"]["instanceGroups"].items())
        if (const Json& own = instance->second["status"]["lifecycle"]["config"]; group["instanceGroupName"] == instance->second["spec"]["instanceGroupName"] && !(own.is_object() ? own : group["lifeCycleConfig"])["onCreate"].is_null() && !instance->second["status"].has("runningSince") && instance->second["status"]["software"]["stage"].string() != "Emptying") {
          EXPECT_TRUE(created.contains(instance->first.name + "/" + instance->second["status"]["software"]["id"].string())) << key.text() << " is on " << node->first.name << " before its script has run";
        }
    }
  }
  void run_machines() {
    // A machine goes after its Node; one that is deleted is there until then.
    for (const auto& [key, machine] : std::map(api.all("machines"))) {
      if (kube::deleting(machine)) {
        take_away(key);
        drop(resources::machines, key);
        ++taken_down[key.name];
      } else if (Json changed = machine; !kube::has_finalizer(machine, "world/machine")) {
        kube::add_finalizer(changed, "world/machine");
        EXPECT_TRUE(api.put(resources::machines, changed));
      }
    }
    auto machines = api.all("machines");
    for (const auto& [key, machine] : machines) {
      if (!api.all("nodes").contains(key)) {
        Json labels = machine["spec"]["labels"];
        Json capacity = machine["spec"]["local"];
        for (const auto& [resource, amount] : machine["spec"]["local"]["resources"].members()) capacity.set(resource, amount);
        Json node = Json::object({{"metadata", Json::object({{"name", key.name}, {"labels", std::move(labels)}, {"annotations", Json::object({{"world/machine", "true"}})}})}, {"status", Json::object({{"capacity", capacity}, {"allocatable", capacity}, {"addresses", address()}})}});
        EXPECT_TRUE(api.create(resources::nodes, node));
      } else if (Json node = api.all("nodes").at(key); !kube::condition_is_true(node, "Ready")) {
        kube::set_condition(node, {"Ready", "True", "KubeletReady", ""}, clock.now());
        EXPECT_TRUE(api.put(resources::nodes, node));
      }
      if (const std::string& id = machine["spec"]["reboot"]["id"].string(); !id.empty() && id != machine["status"]["reboot"]["id"].string()) {
        Json changed = machine;
        changed.child("status").set("reboot", Json::object({{"id", id}, {"phase", "Done"}}));
        EXPECT_TRUE(api.put(resources::machines, changed));
        ++reboots[key.name];
        EXPECT_FALSE(has_busy(key.name)) << "rebooted with a job on it";
      }
    }
    auto nodes = api.all("nodes");
    for (const auto& [key, node] : nodes)
      if (node["metadata"]["annotations"].has("world/machine") && !machines.contains(key)) take_away(key);
    // What is in a namespace goes with it.
    for (const char* plural : {"pods", "nodesets", "slurmclusters", "persistentvolumeclaims", "secrets", "configmaps", "clusterevents"})
      for (const auto& [key, object] : std::map(api.all(plural)))
        if (!key.space.empty() && !api.all("namespaces").contains({"", key.space})) api.all(plural).erase(key);
  }
  void take_away(const kube::ObjectKey& key) {
    for (const auto& [pod_key, pod] : std::map(api.all("pods")))
      if (pod["spec"]["nodeName"].string() == key.name) {
        if (!pod["metadata"]["labels"][api::kLifecycleLabel].is_null()) {
          EXPECT_TRUE(pod["status"]["phase"].string() != "Running") << "machine " << key.name << " was taken away under a script";
          drop(resources::pods, pod_key);
          continue;
        }
        EXPECT_FALSE(busy.contains(pod_key.text())) << "the machine under job of " << pod_key.text() << " was taken away";
        EXPECT_TRUE(going_down(pod_key.space)) << "machine " << key.name << " was taken away under " << pod_key.text();
        drop(resources::pods, pod_key);
      }
    drop(resources::nodes, key);
  }
  Json address() {
    ++addresses_;
    return Json::array({Json::object({{"type", "InternalIP"}, {"address", fmt::format("10.0.{}.{}", addresses_ / 250, addresses_ % 250)}})});
  }
  bool going_down(const std::string& space) const {
    for (const auto& [key, object] : const_cast<kube::TinyApi&>(api).all("slurmclusters"))
      if (key.space == space) return kube::deleting(object);
    return true;
  }
  void drop(const kube::Resource& resource, const kube::ObjectKey& key) { api.all(resource.plural).erase(key); }
  bool has_busy(const std::string& node) {
    for (const auto& [key, pod] : api.all("pods"))
      if (pod["spec"]["nodeName"].string() == node && busy.contains(key.text())) return true;
    return false;
  }

  void run_slurm() {
    for (const auto& [key, set] : std::map(api.all("nodesets")))
      if (Json changed = set; !kube::deleting(set) && !kube::has_finalizer(set, api::kNodeSetFinalizer)) {
        kube::add_finalizer(changed, api::kNodeSetFinalizer);
        EXPECT_TRUE(api.put(api::kNodeSets, changed));
      }
    for (const auto& [key, object] : std::map(api.all("slurmclusters"))) run_cluster(key, object);
    for (const auto& [key, pod] : std::map(api.all("pods")))
      if (!stuck && !pod["metadata"]["labels"][api::kSlurmClusterLabel].is_null() && !api.all("slurmclusters").contains({key.space, pod["metadata"]["labels"][api::kSlurmClusterLabel].string()})) drop(resources::pods, key);
    for (const auto& [key, object] : std::map(api.all("nodesets")))
      if (kube::deleting(object)) {
        bool left = false;
        for (const auto& [pod_key, pod] : api.all("pods")) left = left || (pod_key.space == key.space && pod["metadata"]["labels"][api::kNodeSetLabel].string() == key.name);
        left = left && !api.all("slurmclusters").empty();
        if (!left) drop(api::kNodeSets, key);
      }
  }
  void run_cluster(const kube::ObjectKey& key, const Json& object) {
    const Json& nodes = object["spec"]["slurmNodes"];
    for (const char* role : {"controller", "login"}) keep_pods(key, role, role, "", static_cast<int>(nodes[role]["size"].integer()), selector(object, role));
    for (const auto& [set_key, set] : std::map(api.all("nodesets")))
      if (set_key.space == key.space) keep_pods(key, set_key.name, "worker", set_key.name, kube::deleting(set) ? 0 : static_cast<int>(set["spec"]["replicas"].integer()), set["spec"]["nodeSelector"]);
    Json changed = object;
    const auto head = api.all("pods").find({key.space, "controller-0"});
    const bool up = head != api.all("pods").end() && kube::condition_is_true(head->second, "Ready");
    if (object["spec"].has("populateJail")) kube::set_condition(changed, {"JailReady", "True", "Populated", ""}, clock.now());
    if (up) changed.child("status").set("appliedConfigHash", "h");
    changed.child("status").set("observedGeneration", object["metadata"]["generation"].integer());
    if (changed != object) {
      EXPECT_TRUE(api.put(resources::slurm_clusters, changed));
    }
  }
  static Json selector(const Json& object, const std::string& role) {
    const std::string& filter = object["spec"]["slurmNodes"][role]["k8sNodeFilterName"].string();
    for (const Json& one : object["spec"]["k8sNodeFilters"].items())
      if (one["name"].string() == filter) return one["nodeSelector"];
    return Json::object({{"none", "such"}});
  }
  void keep_pods(const kube::ObjectKey& cluster, const std::string& prefix, const std::string& role, const std::string& set, int size, const Json& wanted) {
    std::map<int, Json> there;
    for (const auto& [key, pod] : api.all("pods"))
      if (key.space == cluster.space && pod["metadata"]["labels"][api::kSlurmRoleLabel].string() == role && pod["metadata"]["labels"][api::kNodeSetLabel].string() == set) there[std::stoi(key.name.substr(prefix.size() + 1))] = pod;
    // Fewer: those that are named first, then those without a job, the highest first. Who has a job stays until it ends.
    std::vector<std::tuple<int, int, int>> order;
    for (const auto& [ordinal, pod] : there) order.emplace_back(pod["metadata"]["annotations"].has(api::kLeavesFirst) ? 0 : busy.contains(kube::key_of(pod).text()) ? 2 : 1, -ordinal, ordinal);
    std::sort(order.begin(), order.end());
    int beyond = role == "login" ? 0 : static_cast<int>(there.size()) - size;  // login nodes beyond the size are left alone, for the people on them
    for (const auto& [rank, negative, ordinal] : order) {
      if (beyond-- <= 0) break;
      if (const auto key = kube::key_of(there.at(ordinal)); !busy.contains(key.text())) drop(resources::pods, key), there.erase(ordinal);
      else draining.insert(key.text());
    }
    for (const auto& [ordinal, pod] : std::map(there))
      if (const auto key = kube::key_of(pod); role == "worker" && (pod["metadata"]["annotations"].has(api::kMadeAnew) || pod["metadata"]["annotations"].has(api::kMadeAnewTogether)) && !busy.contains(key.text())) drop(resources::pods, key), there.erase(ordinal);
    for (int ordinal = 0; role == "worker" ? static_cast<int>(there.size()) < size : ordinal < size; ++ordinal) {
      if (there.contains(ordinal)) continue;
      Json labels = Json::object({{api::kSlurmClusterLabel, cluster.name}, {api::kSlurmRoleLabel, role}});
      if (!set.empty()) labels.set(api::kNodeSetLabel, set);
      there[ordinal] = *api.create(resources::pods, Json::object({{"metadata", Json::object({{"name", fmt::format("{}-{}", prefix, ordinal)}, {"namespace", cluster.space}, {"labels", std::move(labels)}})}, {"spec", Json::object()}, {"status", Json::object({{"phase", "Pending"}})}}));
    }
    for (const auto& [ordinal, pod] : there) {
      Json changed = pod;
      if (pod["spec"]["nodeName"].string().empty()) {
        for (const auto& [key, node] : api.all("nodes")) {
          bool fits = kube::condition_is_true(node, "Ready") && !node["spec"]["unschedulable"].boolean();
          for (const auto& [label, value] : wanted.members()) fits = fits && node["metadata"]["labels"][label] == value;
          for (const auto& [other_key, other] : api.all("pods")) fits = fits && (other["spec"]["nodeName"].string() != key.name || !other["metadata"]["labels"][api::kLifecycleLabel].is_null());
          if (!fits) continue;
          changed.child("spec").set("nodeName", key.name);
          break;
        }
      } else if (!kube::condition_is_true(pod, "Ready")) {
        changed.child("status").set("phase", "Running");
        kube::set_condition(changed, {"Ready", "True", "", ""}, clock.now());
      }
      if (changed != pod) {
        EXPECT_TRUE(api.put(resources::pods, changed));
      }
    }
  }

  // ---- looking
  Json status(const std::string& name) { return api.all("clusters").contains({"", name}) ? api.all("clusters").at({"", name})["status"] : Json(); }
  std::string phase(const std::string& name) { return status(name)["phase"].string(); }
  std::vector<Json> instances(const std::string& group = "") {
    std::vector<Json> out;
    for (const auto& [key, one] : api.all("instances"))
      if (group.empty() || one["spec"]["instanceGroupName"].string() == group) out.push_back(one);
    std::sort(out.begin(), out.end(), [](const Json& a, const Json& b) { return std::pair(a["spec"]["number"].integer(), a["spec"]["attempt"].integer()) < std::pair(b["spec"]["number"].integer(), b["spec"]["attempt"].integer()); });
    return out;
  }
  // "1 2 4", with ' for each attempt after the first.
  std::string numbers(const std::string& group) {
    std::string out;
    for (const Json& one : instances(group)) out += (out.empty() ? "" : " ") + std::to_string(one["spec"]["number"].integer()) + std::string(static_cast<std::size_t>(one["spec"]["attempt"].integer() - 1), '\'');
    return out;
  }
  bool all_run() {
    for (const auto& [key, one] : api.all("instances"))
      if (one["status"]["phase"].string() != "Running") return false;
    return true;
  }
  std::string summary(const std::string& name) { return status(name)["summary"].string(); }
  bool nothing_left() {
    for (const char* plural : {"clusters", "instances", "machines", "slurmclusters", "nodesets", "pods", "namespaces", "persistentvolumeclaims", "secrets", "configmaps", "clusterevents"})
      if (!api.all(plural).empty()) return false;
    return true;
  }

  // No machine has two owners, no instance two machines.
  void check() {
    std::map<std::string, std::string> by_instance;
    for (const auto& [key, node] : api.all("nodes"))
      if (const std::string& owner = node["metadata"]["labels"][api::kInstanceLabel].string(); !owner.empty()) {
        EXPECT_TRUE(by_instance.emplace(owner, key.name).second) << owner << " has two machines";
      }
    for (const auto& [key, one] : api.all("instances"))
      if (const auto found = by_instance.find(key.name); found != by_instance.end()) {
        EXPECT_EQ(one["status"]["node"].string(), found->second);
      }
    EXPECT_TRUE(checked.refusals().empty()) << checked.refusals().front();
  }

  bool reconcile() {
    bool fine = true;
    const auto clusters = api.all("clusters");
    for (const auto& [key, object] : clusters) fine = static_cast<bool>(controller->reconcile(key)) && fine;
    check();
    return fine;
  }
  // Until nothing changes any more, time aside.
  void settle(int most = 300) {
    for (int round = 0, still = 0; round < most; ++round) {
      const auto before = api.mark();
      reconcile();
      tick();
      still = api.mark() == before ? still + 1 : 0;
      if (still == 4) clock.advance(std::chrono::seconds(60));  // longer than a machine is waited for
      if (still >= 7) return;
    }
    ADD_FAILURE() << "does not settle";
  }
  std::string picture() {
    std::string out;
    for (const char* plural : {"clusters", "instances", "machines", "nodes", "slurmclusters", "nodesets", "pods", "namespaces"})
      for (const auto& [key, object] : api.all(plural)) out += kube::print_json(object);
    return out;
  }

  ManualClock clock{*parse_time("2026-11-26T12:00:00Z")};
  kube::TinyApi api;
  LaggingCaches caches{api};
  bool lagging = false;
  kube::CheckedApi checked{api, kube::full_access(ClusterController(api, clock, {}))};
  std::unique_ptr<MortalApi> mortal;
  std::unique_ptr<kube::FencedApi> fenced;
  std::unique_ptr<ClusterController> controller;
  std::set<std::string> busy;      // pods with jobs
  std::set<std::string> draining;
  std::set<std::string> budgeted;  // pods that may not be evicted
  bool stuck = false;              // pods of a cluster that is gone do not end by themselves
  std::map<std::string, int> reboots;
  std::map<std::string, int> taken_down;  // machines, by name
  std::shared_ptr<MemoryScripts> scripts = std::make_shared<MemoryScripts>();
  std::shared_ptr<MemoryAlarms> alarms = std::make_shared<MemoryAlarms>();
  std::function<bool(const std::string&, const std::string&)> link = [](const std::string&, const std::string&) { return true; };  // between two instances: it works
  std::function<bool(const Json&)> answers = [](const Json&) { return true; };  // the pod that answers for one comes up
  std::vector<std::string> links;            // instances that have tried theirs
  std::vector<std::string> checks;           // deep health checks that came to an end: "INSTANCE for REQUEST"
  std::function<int(const Json& pod)> script = [](const Json&) { return 0; };  // how one ends; less than 0: not yet
  std::optional<Error> refuses_events;
  std::vector<std::string> ran;         // "OnCreate i-..."
  std::set<std::string> created;        // "INSTANCE/UPDATE" whose OnCreate has ended

 private:
  int addresses_ = 0;
  const bool makes_machines_;
};

inline std::string node_of(const Json& instance) { return instance["status"]["node"].string(); }
// A cluster that Kubernetes orchestrates, with labels and taints for its nodes.
inline Json kubernetes_spec(int count) {
  return Json::object({{"nodeProvisioningMode", "Continuous"}, {"orchestrator", Json::object({{"eks", Json::object({{"clusterArn", "arn"}})}})},
                       {"instanceGroups", Json::array({Json::object({{"instanceGroupName", "workers"}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", count},
                                                                     {"kubernetesConfig", Json::object({{"labels", Json::object({{"Team", "vision"}})}, {"taints", Json::array({Json::object({{"key", "gpu"}, {"value", "yes"}, {"effect", "NoSchedule"}})})}})}})})}});
}
// Of a tenant, on a node.
inline void run_pod(ClusterSite& site, const std::string& pod, const std::string& node, bool of_daemon_set = false) {
  (void)site.api.create(resources::namespaces, Json::object({{"metadata", Json::object({{"name", "team"}})}}));
  Json metadata = Json::object({{"name", pod}, {"namespace", "team"}});
  if (of_daemon_set) metadata.set("ownerReferences", Json::array({Json::object({{"kind", "DaemonSet"}, {"name", "d"}, {"controller", true}})}));
  ASSERT_TRUE(site.api.create(resources::pods, Json::object({{"metadata", std::move(metadata)}, {"spec", Json::object({{"nodeName", node}})}, {"status", Json::object({{"phase", "Running"}})}})));
}

}  // namespace fairlead::fleet
