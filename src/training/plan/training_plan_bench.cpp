// SPDX-License-Identifier: Apache-2.0
// What one look at a training job costs the server, without the network: the plan of a job whose processes run, and of one whose agents are all to be told.
//   training_plan_bench [NODES]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "training/plan/training_plan.h"

int main(int argc, char** argv) {
  using namespace fairlead;
  using kube::Json;
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 1000;
  Json job = Json::object({{"apiVersion", "sagemaker.amazonaws.com/v1"}, {"kind", "HyperPodPyTorchJob"}, {"metadata", Json::object({{"name", "t"}, {"namespace", "team"}, {"uid", "12345678-aaaa"}})}});
  const Json container = Json::object({{"name", "pytorch"}, {"image", "train:1"}, {"command", Json::array({"hyperpodrun", "train.py"})}, {"resources", Json::object({{"limits", Json::object({{"nvidia.com/gpu", 8}})}})}});
  job.set("spec", Json::object({{"replicaSpecs", Json::array({Json::object({{"name", "pod"}, {"replicas", nodes}, {"template", Json::object({{"spec", Json::object({{"containers", Json::array({container})}})}})}})})}}));
  training::TrainingInput in{.job = job, .pods = {}, .agents = {}, .nodes = {}, .now = Instant(std::chrono::seconds(1'800'000'000))};
  const auto first = training::plan_training(in);
  INVARIANT(first.create.size() == static_cast<std::size_t>(nodes));
  in.job.set("status", first.status);
  in.pods = first.create;
  const std::string word = training::attempt_word(in.job, 0);
  for (std::size_t i = 0; i < in.pods.size(); ++i) {
    in.pods[i].child("spec").set("nodeName", fmt::format("node-{}", i));
    in.pods[i].set("status", Json::object({{"phase", "Running"}, {"podIP", fmt::format("10.{}.{}.{}", i / 62'500, i / 250 % 250, 1 + i % 250)}, {"startTime", print_time(in.now)}}));
    in.nodes[fmt::format("node-{}", i)] = Json::object({});
  }
  const auto measure = [&](const char* what, training::AgentState state, std::size_t orders) {
    for (const Json& pod : in.pods) in.agents[kube::name_of(pod)] = {training::AgentSeen::How::Answered, {.state = state, .reason = {}, .message = {}, .attempt = state == training::AgentState::Running ? word : ""}};
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
      const auto began = std::chrono::steady_clock::now();
      const auto plan = training::plan_training(in);
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
      INVARIANT(plan.orders.size() == orders);
      if (!plan.status.is_null() && i == 20) in.job.set("status", plan.status);
    }
    std::ranges::sort(times);
    fmt::print("{:<34} {:>8.2f} ms (median of {})\n", what, times[times.size() / 2], times.size());
  };
  fmt::print("a training job over {} nodes\n", nodes);
  measure("all ready, all are started", training::AgentState::Ready, static_cast<std::size_t>(nodes));
  measure("all run", training::AgentState::Running, 0);
  return 0;
}
