// SPDX-License-Identifier: Apache-2.0
// What a ResourceQuota costs a create, in the registry itself: no wire, no disk (memory store), one thread. Each round makes a server of its own for each case, in turns; the median of the
// rounds is told, and what it is beside a server without any quota in the same round.
//   quota_bench [CREATES [ROUNDS]]      CPU time of this thread
//   quota_bench CREATES KIND CASE       that alone (pod, claim, ConfigMap; 0, 1, 2), to count instructions: the difference of two numbers of creates under callgrind
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

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

struct What {
  const char* name;
  const char* plural;
  const char* body;
  const char* hard;
};
constexpr std::array whats{
    What{"pod", "pods",
         "{metadata: {name: x, labels: {app: trainer}}, spec: {containers: [{name: main, image: i, command: [run], env: [{name: A, value: one}], "
         "resources: {limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 2}, requests: {cpu: 500m}}, volumeMounts: [{name: home, mountPath: /home}]}], "
         "volumes: [{name: home, persistentVolumeClaim: {claimName: home}}]}}",
         "{pods: 1000000, requests.cpu: 1000000, requests.memory: 1000Ti, requests.nvidia.com/gpu: 1000000}"},
    What{"claim", "persistentvolumeclaims", "{metadata: {name: x}, spec: {accessModes: [ReadWriteMany], storageClassName: gold, resources: {requests: {storage: 1Gi}}}}",
         "{persistentvolumeclaims: 1000000, requests.storage: 1000Ti, gold.storageclass.storage.k8s.io/requests.storage: 1000Ti}"},
    What{"ConfigMap", "configmaps", "{metadata: {name: x}, data: {k: v}}", "{configmaps: 1000000}"},
};
constexpr std::array cases{"no quota at all", "a quota in another namespace", "a quota in this namespace"};

kube::Json read(std::string_view text) {
  auto parsed = kube::parse_yaml(text);
  INVARIANT(parsed.has_value());
  return parsed->front();
}

struct Site {
  Site() {
    auto opened = Registry::open(*store, clock, {});
    INVARIANT(opened.has_value());
    registry = std::move(*opened);
  }
  void create(const std::string& plural, const std::string& space, kube::Json body) {
    bool made = false;
    registry->create({.validation = FieldValidation::Strict}, *registry->kinds()->find("", "v1", plural), space, std::move(body), [&](const Result<Written>& done) {
      made = done.has_value();
      if (!made) fmt::print(stderr, "{}\n", done.error().message);
    });
    INVARIANT(made);
  }
  ManualClock clock{Instant(std::chrono::hours(500'000))};
  std::unique_ptr<Store> store = make_memory_store({.events = 1'000});
  std::unique_ptr<Registry> registry;
};

double one_round(const What& what, std::size_t which, int creates) {
  Site site;
  if (which > 0) site.create("resourcequotas", which == 1 ? "kube-public" : "default", read(fmt::format("{{metadata: {{name: q}}, spec: {{hard: {}}}}}", what.hard)));
  const std::string text = print_json(read(what.body));
  const double start = cpu_seconds();
  for (int i = 0; i < creates; ++i) {
    auto body = kube::parse_json(text);  // as from the wire
    body->child("metadata").set("name", fmt::format("o{}", i));
    site.create(what.plural, "default", std::move(*body));
  }
  const double took = cpu_seconds() - start;
  return took / creates * 1e6;
}

double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3) {
    for (const What& what : whats)
      if (what.name == std::string_view(argv[2])) one_round(what, std::strtoul(argv[3], nullptr, 10), std::atoi(argv[1]));
    return 0;
  }
  const int creates = argc > 1 ? std::atoi(argv[1]) : 5'000, rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  for (const What& what : whats) {
    std::array<std::vector<double>, cases.size()> took, ratio;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t turn = 0; turn < cases.size(); ++turn) {  // each is the first one as often as the others
        const std::size_t which = (turn + static_cast<std::size_t>(round)) % cases.size();
        took[which].push_back(one_round(what, which, creates));
      }
      for (std::size_t which = 0; which < cases.size(); ++which) ratio[which].push_back(took[which].back() / took[0].back());
    }
    for (std::size_t which = 0; which < cases.size(); ++which) {
      const auto [least, most] = std::minmax_element(took[which].begin(), took[which].end());
      fmt::print("create a {}, {}: {:.1f} us CPU ({:.1f} to {:.1f}), {:.3f} of that without\n", what.name, cases[which], median(took[which]), *least, *most, median(ratio[which]));
    }
  }
  return 0;
}
