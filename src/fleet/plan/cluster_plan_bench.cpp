// SPDX-License-Identifier: Apache-2.0
// What a large cluster costs, and plans over as many machines: a cluster of 10,000 nodes (or as many as the first argument says) is planned from nothing to all running, in memory: writes are taken over as they are, and machines are there at once.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>

#include "api/instance_types.h"
#include "api/network_ways.h"
#include "api/node_set.h"
#include "fleet/plan/cluster_plan.h"
#include "fleet/plan/reservations.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
namespace resources = kube::resources;

double seconds_of(const auto& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

long resident_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// The API's part: writes are taken over as they are.
void carry_out(ClusterSnapshot& world, const ClusterPlan& plan, Instant now) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < world.instances.size(); ++i) by_name[kube::name_of(world.instances[i])] = i;
  for (const ClusterStep& step : plan.steps) {
    const std::string& name = kube::name_of(step.object);
    Json object = step.object;
    if (kube::uid_of(object).empty()) object.child("metadata").set("uid", "u-" + name).set("generation", 1);
    if (step.resource == api::kClusters) world.cluster = object;
    else if (step.resource == api::kInstances && step.verb == ClusterStep::Verb::Create) world.instances.push_back(std::move(object));
    else if (step.resource == api::kInstances) world.instances[by_name.at(name)] = std::move(object);
    else if (step.resource == resources::machines) {
      Json node = Json::object({{"metadata", Json::object({{"name", name}, {"labels", object["spec"]["labels"]}})}, {"status", Json::object()}});
      kube::set_condition(node, {"Ready", "True", "", ""}, now);
      world.nodes[name] = std::move(node);
      world.machines[name] = std::move(object);
    } else if (step.resource == api::kClusterEvents) {
      if (step.verb == ClusterStep::Verb::Create) world.events.push_back(std::move(object));
      else std::erase_if(world.events, [&](const Json& one) { return kube::name_of(one) == name; });
    } else if (step.resource == resources::namespaces) world.space = std::move(object);
    else if (step.resource == resources::claims) world.claims.push_back(std::move(object));
    else if (step.resource == resources::slurm_clusters) world.slurm = std::move(object);
    else if (step.resource == api::kNodeSets) {
      std::erase_if(world.node_sets, [&](const Json& one) { return kube::name_of(one) == name; });
      world.node_sets.push_back(std::move(object));
    }
  }
  if (!plan.status.is_null()) world.cluster.set("status", plan.status);
}

// Slurm's part: a pod on each machine.
void place_pods(ClusterSnapshot& world, Instant now) {
  world.pods.clear();
  std::map<std::string, std::size_t> numbers;
  for (const Json& instance : world.instances) {
    const std::string& group = instance["spec"]["instanceGroupName"].string();
    const bool head = group == "head";
    Json labels = Json::object({{api::kSlurmRoleLabel, head ? "controller" : "worker"}});
    if (!head) labels.set(api::kNodeSetLabel, group);
    Json pod = Json::object({{"metadata", Json::object({{"name", head ? "controller-0" : fmt::format("{}-{}", group, numbers[group]++)}, {"labels", std::move(labels)}})}, {"spec", Json::object({{"nodeName", instance["status"]["node"]}})}, {"status", Json::object({{"phase", "Running"}})}});
    kube::set_condition(pod, {"Ready", "True", "", ""}, now);
    world.pods.push_back(std::move(pod));
  }
  world.slurm.child("status").set("appliedConfigHash", "h");
}

int run(int nodes) {
  const Instant now{std::chrono::hours(500'000)};
  const ClusterPlanOptions options{.makes_machines = true};
  ClusterSnapshot world;
  const auto group = [](const char* name, int count, const char* type, Json slurm) { return Json::object({{"instanceGroupName", name}, {"instanceType", type}, {"instanceCount", count}, {"slurmConfig", std::move(slurm)}}); };
  Json groups = Json::array({group("head", 1, "ml.c5.large", Json::object({{"nodeType", "Controller"}}))});
  // Groups have 6,758 nodes at most, as in the API.
  int left = nodes - 1;
  for (int i = 0; left > 0; ++i) {
    const int count = std::min(left, 6758);
    groups.push(group(i == 0 ? "gpu" : "gpu2", count, "ml.p5.48xlarge", Json::object({{"nodeType", "Compute"}, {"partitionNames", Json::array({Json("train")})}})));
    left -= count;
  }
  world.cluster = Json::object({{"metadata", Json::object({{"name", "big"}, {"uid", "u-big"}, {"generation", 1}})}, {"spec", Json::object({{"nodeProvisioningMode", "Continuous"}, {"instanceGroups", std::move(groups)}})}});
  const long before = resident_mib();
  double planning = 0, worst = 0;
  int rounds = 0;
  std::size_t writes = 0;
  const auto round = [&] {
    ClusterPlan plan;
    const double spent = seconds_of([&] { plan = plan_cluster(world, now, options); });
    planning += spent, worst = std::max(worst, spent), ++rounds;
    writes += plan.steps.size() + (plan.status.is_null() ? 0 : 1);
    carry_out(world, plan, now);
    return !plan.steps.empty() || !plan.status.is_null();
  };
  while (round()) {
  }
  place_pods(world, now);
  while (round()) {
  }
  fmt::print("{} nodes: {} rounds of planning from nothing to all machines, {} writes, {:.2f} s of CPU in all, the longest {:.0f} ms; {} MiB for objects and plans\n", nodes, rounds, writes, planning, worst * 1e3, resident_mib() - before);
  const bool all_run = world.cluster["status"]["summary"].string() == fmt::format("{0}/{0}", nodes);
  double rest = 1e9;
  for (int i = 0; i < 5; ++i) rest = std::min(rest, seconds_of([&] { (void)plan_cluster(world, now, options); }));
  fmt::print("{} nodes: a round at rest {:.1f} ms\n", nodes, rest * 1e3);
  for (Json& instance : world.instances)
    if (instance["spec"]["number"].integer() == 7 && instance["spec"]["instanceGroupName"].string() == "gpu") instance.child("spec").set("replace", Json::object({{"id", "r"}}));
  planning = worst = 0, rounds = 0, writes = 0;
  for (int i = 0; i < 4; ++i) (void)round();
  fmt::print("{} nodes: one is replaced: {:.1f} ms a round\n", nodes, planning / rounds * 1e3);
  return all_run ? 0 : 1;
}

// Of a site with so many spare machines, all in plans: what one look at them costs once it is at rest.
int run_plans(int nodes) {
  const Instant now{std::chrono::hours(500'000)};
  std::vector<Json> machines, plans;
  for (int i = 0; i < nodes; ++i) {
    Json node = Json::object({{"metadata", Json::object({{"name", fmt::format("n{:05}", i)}, {"labels", Json::object({{api::kSpareLabel, "true"}, {api::kInstanceTypeLabel, "ml.p5.48xlarge"}})}})}, {"status", Json::object({{"capacity", Json::object({{"cpu", "192"}, {"memory", "2048Gi"}, {"nvidia.com/gpu", "8"}})}})}});
    kube::set_condition(node, {"Ready", "True", "", ""}, now);
    machines.push_back(std::move(node));
  }
  for (int i = 0; i * api::kMostPlanned < nodes; ++i) {
    const int count = std::min(api::kMostPlanned, nodes - i * api::kMostPlanned);
    plans.push_back(Json::object({{"metadata", Json::object({{"name", fmt::format("p{}", i)}})}, {"spec", Json::object({{"instanceType", "ml.p5.48xlarge"}, {"instanceCount", count}, {"endTime", print_time(now + std::chrono::hours(2))}})},
                                  {"status", Json::object({{"granted", Json::object({{"instanceType", "ml.p5.48xlarge"}, {"instanceCount", count}})}, {"startTime", print_time(now)}, {"endTime", print_time(now + std::chrono::hours(2))}})}}));
  }
  const api::Plans read = read_plans(plans);
  const auto look = [&] {
    api::Inventory inventory(read, now);
    for (const Json& node : machines) inventory.node(node);
    return plan_reservations(plans, inventory.machines(), inventory.waiting(), now);
  };
  const ReservationPlan first = look();
  for (std::size_t i = 0; i < first.marks.size(); ++i) machines[i].child("metadata").child("labels").set(api::kPlanLabel, first.marks[i].plan);
  for (const ReservationPlan::Status& one : look().statuses)
    for (Json& plan : plans)
      if (kube::name_of(plan) == one.plan) plan.set("status", one.status);
  ReservationPlan last;
  double rest = 1e9;
  for (int i = 0; i < 5; ++i) rest = std::min(rest, seconds_of([&] { last = look(); }));
  fmt::print("{} machines in {} plans: a look at rest {:.1f} ms\n", nodes, plans.size(), rest * 1e3);
  return first.marks.size() == machines.size() && last.marks.empty() && last.statuses.empty() ? 0 : 1;
}

}  // namespace
}  // namespace fairlead::fleet

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 10'000;
  return fairlead::fleet::run(nodes) + fairlead::fleet::run_plans(nodes);
}
