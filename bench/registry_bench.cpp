// SPDX-License-Identifier: Apache-2.0
// What one write and one read cost in the registry itself: no wire, no disk (memory store), bodies of 2 kB as an operator sends them.
//   registry_bench [ROUNDS]      CPU time of this thread
#include <fmt/format.h>
#include <time.h>

#include <cstdlib>
#include <string>

#include "apiserver/registry.h"
#include "kube/json.h"

using namespace fairlead;
using namespace fairlead::apiserver;

namespace {

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

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
  INVARIANT(pod.has_value());
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

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20'000;
  Site site;
  const std::string text = print_json(pod_body());
  std::size_t bytes = 0;
  double start = cpu_seconds();
  for (int i = 0; i < rounds; ++i) {
    auto body = kube::parse_json(text);  // as from the wire
    body->child("metadata").set("name", fmt::format("p{}", i));
    body->child("spec").set("nodeName", fmt::format("node-{}", i % 500));
    bytes = site.create(std::move(*body));
  }
  fmt::print("create a pod of {} bytes: {:.1f} us CPU each ({} times)\n", bytes, (cpu_seconds() - start) / rounds * 1e6, rounds);

  start = cpu_seconds();
  constexpr int lists = 20;
  std::size_t found = 0;
  for (int i = 0; i < lists; ++i) {
    const auto page = site.registry->list(*site.pods, "", {.field_selector = "spec.nodeName=node-17"});
    INVARIANT(page.has_value());
    found = page->objects.size();
  }
  fmt::print("list {} pods of one node among {}: {:.2f} ms CPU\n", found, rounds, (cpu_seconds() - start) / lists * 1e3);

  start = cpu_seconds();
  for (int i = 0; i < rounds; ++i) {
    bool done = false;
    site.registry->patch({}, *site.pods, {"default", fmt::format("p{}", i)}, "status", kube::PatchType::Merge,
                         kube::Json::object({{"status", kube::Json::object({{"phase", "Running"}, {"podIP", "10.78.1.2"}})}}), [&](Result<Written> written) { done = written.has_value(); });
    INVARIANT(done);
  }
  fmt::print("patch a pod's status: {:.1f} us CPU each\n", (cpu_seconds() - start) / rounds * 1e6);
  return 0;
}
