// SPDX-License-Identifier: Apache-2.0
// What one write and one read cost in the registry itself (memory store, no wire): bodies of 2 kB as agents and operators send them.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "apiserver/registry.h"
#include "kube/json.h"

namespace fairlead::apiserver {
namespace {

kube::Json pod_body() {
  auto pod = kube::parse_yaml(R"(
metadata: {name: x, labels: {app: trainer, team: vision, job: resnet-50, index: "17"}, annotations: {note: "made by the operator for a benchmark of two kilobytes"}}
spec:
  nodeSelector: {kubernetes.io/hostname: node-17}
  containers:
  - name: main
    image: registry.local/slurm/worker:22.05
    command: [/usr/sbin/slurmd, -D, -Z, --conf-server, "controller:6817"]
    env: [{name: A, value: one}, {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: B, value: three}]
    ports: [{name: slurmd, containerPort: 6818}]
    resources: {limits: {cpu: "4", memory: 8Gi, nvidia.com/gpu: 2}, requests: {cpu: 500m}}
    readinessProbe: {exec: {command: [scontrol, ping]}, periodSeconds: 5}
    volumeMounts: [{name: home, mountPath: /home}, {name: conf, mountPath: /etc/slurm}, {name: munge, mountPath: /etc/munge}]
  volumes: [{name: home, persistentVolumeClaim: {claimName: home}}, {name: conf, configMap: {name: slurm}}, {name: munge, secret: {secretName: munge}}]
)");
  return pod->front();
}

struct Site {
  Site() {
    auto opened = Registry::open(*store, clock, {});
    INVARIANT(opened.has_value());
    registry = std::move(*opened);
    pods = registry->kinds()->find("", "v1", "pods");
  }
  std::size_t create(kube::Json body) {
    std::size_t bytes = 0;
    registry->create({.validation = FieldValidation::Strict}, *pods, "default", std::move(body), [&](Result<Written> done) {
      INVARIANT(done.has_value());
      bytes = done->object.bytes->size();
    });
    return bytes;
  }
  ManualClock clock{Instant(std::chrono::hours(500'000))};
  std::unique_ptr<Store> store = make_memory_store({.events = 1'000});
  std::unique_ptr<Registry> registry;
  std::shared_ptr<const Kind> pods;
};

void create_pod(benchmark::State& state) {
  Site site;
  const kube::Json body = pod_body();
  std::size_t bytes = 0, i = 0;
  for (auto _ : state) {
    kube::Json mine = body;
    mine.child("metadata").set("name", fmt::format("p{}", i++));
    bytes = site.create(std::move(mine));
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(create_pod)->Unit(benchmark::kMicrosecond);

// The agents' question among 10'000 pods.
void list_pods_of_a_node(benchmark::State& state) {
  Site site;
  kube::Json body = pod_body();
  for (int i = 0; i < 10'000; ++i) {
    body.child("metadata").set("name", fmt::format("p{}", i));
    body.child("spec").set("nodeName", fmt::format("node-{}", i % 500));
    site.create(body);
  }
  for (auto _ : state) {
    const auto page = site.registry->list(*site.pods, "", {.field_selector = "spec.nodeName=node-17"});
    INVARIANT(page && page->objects.size() == 20);
  }
}
BENCHMARK(list_pods_of_a_node)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fairlead::apiserver

BENCHMARK_MAIN();
