// SPDX-License-Identifier: Apache-2.0
// A site for tests: an API with nodes, a kubelet that runs pods at once, agents in those whose image has one, and the controller.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>

#include "api/crds.h"
#include "api/training_crd.h"
#include "kube/tiny_api.h"
#include "training/control/training_controller.h"
#include "training/fake_agents.h"
#include "training/plan/training_plan.h"

namespace fairlead::training {

using kube::Json;
using namespace std::chrono_literals;
namespace resources = kube::resources;

struct Site {
  ManualClock clock{Instant(std::chrono::seconds(1'800'000'000))};
  kube::TinyApi store;
  std::optional<kube::CheckedApi> api;
  FakeAgents* agents = nullptr;
  std::optional<TrainingController> controller;
  bool agent_images = true;  // what a pod's image has in it
  std::set<std::string> full;  // nodes with no room
  int addresses = 0, ends = 0;

  Site() {
    store.stamp = [this] { return print_time(clock.now()); };
    restart();
    for (int i = 0; i < 6; ++i) must(store.create(resources::nodes, Json::object({{"metadata", Json::object({{"name", fmt::format("node-{}", i)}})}})));
  }
  // A server that knows nothing of what the one before did; over another API, if one is given.
  void restart(kube::KubeApi* over = nullptr) {
    auto fresh = std::make_unique<FakeAgents>();
    if (agents != nullptr) {
      fresh->all = agents->all;
      fresh->broken = agents->broken;
    }
    agents = fresh.get();
    if (!api) api.emplace(store, kube::full_access(TrainingController(store, clock, nullptr, TrainingController::Queues::Ours)));
    controller.emplace(over != nullptr ? *over : *api, clock, std::move(fresh), TrainingController::Queues::Ours);
    controller->start(store);
  }
  // A pod that takes its time to go, until it is let go.
  void hold(const std::string& name) {
    Json slow = pod(name);
    kube::add_finalizer(slow, "test/slow");
    must(store.put(resources::pods, slow));
  }
  void let_go(const std::string& name) {
    Json slow = pod(name);
    if (!kube::has_finalizer(slow, "test/slow")) return;
    kube::remove_finalizer(slow, "test/slow");
    must(store.put(resources::pods, slow));
  }
  template <class T>
  static T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
  }

  static Json job_of(const std::string& name, int replicas, const std::string& command = "hyperpodrun train.py", Json policy = Json()) {
    Json words = Json::array({"sh", "-c", command});
    if (command.empty()) words = Json::array();
    Json container = Json::object({{"name", "pytorch"}, {"image", "train:1"}, {"command", std::move(words)}, {"env", Json::array({Json::object({{"name", "MINE"}, {"value", "$(NNODES)"}})})}});
    Json replica = Json::object({{"name", "pod"}, {"replicas", replicas}, {"template", Json::object({{"metadata", Json::object({{"labels", Json::object({{"team", "a"}})}})}, {"spec", Json::object({{"containers", Json::array({container})}})}})}});
    Json spec = Json::object({{"nprocPerNode", "2"}, {"replicaSpecs", Json::array({replica})}});
    if (!policy.is_null()) spec.set("runPolicy", std::move(policy));
    return Json::object({{"apiVersion", "sagemaker.amazonaws.com/v1"}, {"kind", "HyperPodPyTorchJob"}, {"metadata", Json::object({{"name", name}, {"namespace", "team"}})}, {"spec", std::move(spec)}});
  }
  void add(const Json& job) { must(store.create(kJobs, job)); }
  Json job(const std::string& name = "t") const { return store.of(kJobs).get({"team", name}).value_or(Json()); }
  Json status(const std::string& name = "t") const { return job(name)["status"]; }
  // The last condition that holds: what `hyp list` shows.
  std::string shown(const std::string& name = "t") const {
    std::string out;
    const Json all = status(name);
    for (const Json& one : all["conditions"].items())
      if (one["status"].string() == "True") out = one["type"].string();
    return out;
  }
  std::string message(const std::string& type) const {
    const Json now = job();
    const Json* found = kube::find_condition(now, type);
    return found == nullptr ? "" : (*found)["message"].string();
  }
  void change(const std::function<void(Json&)>& what, const std::string& name = "t") {
    Json now = job(name);
    what(now);
    must(store.put(kJobs, now));
  }
  Json pod(const std::string& name) const { return store.of(resources::pods).get({"team", name}).value_or(Json()); }
  std::vector<std::string> pods() const {
    std::vector<std::string> out;
    for (const Json& pod : store.of(resources::pods).list("team")) out.push_back(kube::name_of(pod));
    return out;
  }
  AgentAt at(const std::string& pod_name) const { return {pod(pod_name)["status"]["podIP"].string(), 8080}; }
  FakeAgents::Agent& agent(const std::string& pod_name) { return agents->all.at(at(pod_name)); }
  void end_pod(const std::string& name, int code) {
    Json now = pod(name);
    now.child("status").set("phase", code == 0 ? "Succeeded" : "Failed");
    now.child("status").set("containerStatuses", Json::array({Json::object({{"name", "pytorch"}, {"state", Json::object({{"terminated", Json::object({{"exitCode", code}, {"reason", "Error"}})}})}})}));
    agents->all.erase(at(name));
    must(store.put(resources::pods, now));
  }
  void mark_node(const std::string& name, const std::string& word) {
    Json node = must(store.get(resources::nodes, {"", name}));
    if (word.empty()) node.child("metadata").child("labels").erase("sagemaker.amazonaws.com/node-health-status");
    else node.child("metadata").child("labels").set("sagemaker.amazonaws.com/node-health-status", word);
    must(store.put(resources::nodes, node));
  }
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    for (const Json& event : store.of(resources::events).list("")) out.push_back(event["reason"].string());
    return out;
  }

  // Pods are placed and run; agents that were told to leave have left.
  void kubelet() {
    std::set<AgentAt> there;
    auto pods_now = store.all("pods");
    for (auto& [key, pod] : pods_now) {
      if (pod["status"]["phase"].string().empty()) {
        for (int i = 0; i < 6; ++i) {
          const std::string node = fmt::format("node-{}", i);
          const bool taken = std::ranges::any_of(pods_now, [&](const auto& other) { return other.second["spec"]["nodeName"].string() == node && !kube::deleting(other.second); });
          if (taken || full.contains(node) || is_unhealthy(must(store.get(resources::nodes, {"", node})))) continue;
          pod.child("spec").set("nodeName", node);
          pod.set("status", Json::object({{"phase", "Running"}, {"podIP", fmt::format("10.1.{}.{}", addresses / 250, 1 + addresses % 250)}, {"startTime", print_time(clock.now())}}));
          ++addresses;
          must(store.put(resources::pods, pod));
          if (agent_images) agents->all[{pod["status"]["podIP"].string(), 8080}] = {};
          break;
        }
      }
      const AgentAt at{pod["status"]["podIP"].string(), 8080};
      there.insert(at);
      if (const auto agent = agents->all.find(at); agent != agents->all.end() && agent->second.state == AgentState::Shutdown) {
        end_pod(key.name, 0);
        ++ends;
      }
    }
    std::erase_if(agents->all, [&](const auto& one) { return !there.contains(one.first); });
  }
  Result<kube::Next> reconcile(const std::string& name = "t") {
    // What informers do.
    for (const auto& source : controller->sources())
      if (source.resource != resources::nodes && source.resource != kJobs)
        for (const auto& [key, object] : store.all(source.resource.plural))
          (void)source.keys({.before = {}, .after = object});
    return controller->reconcile({"team", name});
  }
  // Time goes on in steps of a second.
  void run(std::chrono::seconds time, const std::string& name = "t") {
    for (auto i = 0s; i < time; i += 1s) {
      kubelet();
      auto done = reconcile(name);
      if (!done && done.error().code != Code::Conflict) throw std::runtime_error(done.error().message);
      clock.advance(1s);
    }
  }
};

}  // namespace fairlead::training
