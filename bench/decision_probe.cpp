// SPDX-License-Identifier: Apache-2.0
// How long from a submission to the decision, through the API? Makes Workloads, and suspended Jobs, one after the other in a queue with room on a running site, and watches until they are admitted (a Job: until it is let go).
// usage: decision_probe KUBECONFIG [ROUNDS]    Makes a queue of its own in namespace default and removes it. Prints one line of JSON for each way.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "kube/kubeconfig.h"
#include "kube/json.h"
#include "kube/object.h"

namespace {

using namespace fairlead;
using namespace std::chrono_literals;
using kube::Json;

const SystemClock machine_clock;
const kube::Resource workloads{"kueue.x-k8s.io", "v1beta2", "workloads", "Workload", true}, flavors{"kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", false}, queues{"kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", false},
    local_queues{"kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", true}, jobs{"batch", "v1", "jobs", "Job", true};
constexpr const char* kName = "decision-probe";

Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }
std::string pods() { return "{spec: {restartPolicy: Never, containers: [{name: main, image: 'busybox:1', command: ['true'], resources: {requests: {cpu: 1m}}}]}}"; }

int fail_with(const Error& error) {
  fmt::print(stderr, "decision_probe: {}\n", error.message);
  return 1;
}

struct Way {
  const char* name;
  const kube::Resource& resource;
  std::function<Json(const std::string&)> object;
  std::function<bool(const Json&)> decided;
};

Result<std::vector<double>> measure(kube::RestApi& api, const Way& way, int rounds) {
  auto start = api.list(way.resource, "default");
  if (!start) return std::unexpected(std::move(start.error()));
  auto watch = api.watch(way.resource, "default", {.resource_version = start->resource_version});
  if (!watch) return std::unexpected(std::move(watch.error()));
  std::vector<double> ms;
  for (int i = 0; i < rounds; ++i) {
    const std::string name = fmt::format("{}-{}", kName, i);
    const auto begin = machine_clock.monotonic();
    if (auto made = api.create(way.resource, way.object(name)); !made) return std::unexpected(std::move(made.error()));
    while (true) {
      auto event = (*watch)->next(20s);
      if (!event) return std::unexpected(std::move(event.error()));
      if (!*event) return fail(Code::Unavailable, name + " was not decided on for 20 s");
      if (kube::name_of((*event)->object) == name && way.decided((*event)->object)) break;
    }
    ms.push_back(std::chrono::duration<double, std::milli>(machine_clock.monotonic() - begin).count());
    if (auto gone = api.remove(way.resource, {"default", name}, {.propagation = kube::DeleteOptions::Propagation::Background}); !gone) return std::unexpected(std::move(gone.error()));
  }
  std::sort(ms.begin(), ms.end());
  return ms;
}

int run(const std::string& kubeconfig, int rounds) {
  auto config = kube::read_kubeconfig(kubeconfig);
  if (!config) return fail_with(config.error());
  auto api = kube::RestApi::make(config->rest);
  if (!api) return fail_with(api.error());
  const std::vector<std::pair<const kube::Resource*, Json>> objects = {
      {&flavors, yaml(fmt::format("{{metadata: {{name: {}}}}}", kName))},
      {&queues, yaml(fmt::format("{{metadata: {{name: {0}}}, spec: {{namespaceSelector: {{}}, resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: {0}, resources: [{{name: cpu, nominalQuota: 1000}}]}}]}}]}}}}", kName))},
      {&local_queues, yaml(fmt::format("{{metadata: {{name: {0}, namespace: default}}, spec: {{clusterQueue: {0}}}}}", kName))}};
  for (const auto& [resource, object] : objects)
    if (auto made = (*api)->create(*resource, object); !made && made.error().code != Code::Exists) return fail_with(made.error());
  const Way ways[] = {
      {"Workload", workloads, [](const std::string& name) { return yaml(fmt::format("{{metadata: {{name: {}, namespace: default}}, spec: {{queueName: {}, podSets: [{{name: main, count: 1, template: {}}}]}}}}", name, kName, pods())); },
       [](const Json& object) { return kube::condition_is_true(object, "Admitted"); }},
      {"Job", jobs, [](const std::string& name) { return yaml(fmt::format("{{metadata: {{name: {}, namespace: default, labels: {{kueue.x-k8s.io/queue-name: {}}}}}, spec: {{suspend: true, template: {}}}}}", name, kName, pods())); },
       [](const Json& object) { return !object["spec"]["suspend"].boolean(true); }}};
  int status = 0;
  for (const Way& way : ways) {
    auto ms = measure(**api, way, rounds);
    if (!ms) {
      status = fail_with(ms.error());
      break;
    }
    const auto at = [&](double q) { return (*ms)[std::min(ms->size() - 1, static_cast<std::size_t>(q * static_cast<double>(ms->size())))]; };
    fmt::print("{{\"bench\":\"submit_to_decision\",\"of\":\"{}\",\"rounds\":{},\"p50_ms\":{:.2f},\"p99_ms\":{:.2f},\"max_ms\":{:.2f}}}\n", way.name, ms->size(), at(0.5), at(0.99), ms->back());
  }
  for (auto at = objects.rbegin(); at != objects.rend(); ++at)
    if (auto gone = (*api)->remove(*at->first, kube::key_of(at->second), {}); !gone && gone.error().code != Code::NotFound) status = fail_with(gone.error());
  // A queue goes when nothing uses it any more; the next run makes one of the same name.
  for (const auto& [resource, object] : objects)
    for (int look = 0; look < 100; ++look) {
      if (const auto left = (*api)->get(*resource, kube::key_of(object)); !left && left.error().code == Code::NotFound) break;
      std::this_thread::sleep_for(100ms);
    }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || (argc > 2 && std::atoi(argv[2]) < 1)) {
    std::fputs("usage: decision_probe KUBECONFIG [ROUNDS]\n", stderr);
    return 2;
  }
  return run(argv[1], argc > 2 ? std::atoi(argv[2]) : 500);
}
