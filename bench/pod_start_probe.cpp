// SPDX-License-Identifier: Apache-2.0
// How long from binding to running? Makes pods one after the other (and then a burst) on one node of a running site and watches them.
// usage: pod_start_probe KUBECONFIG NODE [PODS]    The image busybox:1 must be in the site's store. Prints one line of JSON for each way.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "base/clock.h"
#include "kube/kubeconfig.h"

namespace {

using namespace fairlead;
using kube::Json;

const SystemClock machine_clock;

Json pod(const std::string& name, const std::string& node) {
  return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", Json::object({{"name", name}, {"namespace", "default"}})},
                       {"spec", Json::object({{"nodeName", node}, {"terminationGracePeriodSeconds", 0}, {"containers", Json::array({Json::object({{"name", "main"}, {"image", "busybox:1"}, {"command", Json::array({Json("sleep"), Json("600")})}})})}})}});
}

void print(const char* how, std::vector<double> ms, double whole_s) {
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double q) { return ms[std::min(ms.size() - 1, static_cast<std::size_t>(q * static_cast<double>(ms.size())))]; };
  fmt::print("{{\"bench\":\"pod_start\",\"how\":\"{}\",\"pods\":{},\"p50_ms\":{:.1f},\"p99_ms\":{:.1f},\"max_ms\":{:.1f},\"pods_per_s\":{:.1f}}}\n", how, ms.size(), at(0.5), at(0.99), ms.back(),
             static_cast<double>(ms.size()) / whole_s);
}

int fail_with(const Error& error) {
  fmt::print(stderr, "pod_start_probe: {}\n", error.message);
  return 1;
}

int measure(const std::string& kubeconfig, const std::string& node, int count) {
  auto config = kube::read_kubeconfig(kubeconfig);
  if (!config) return fail_with(config.error());
  auto api = kube::RestApi::make(config->rest);
  if (!api) return fail_with(api.error());
  auto start = (*api)->list(kube::resources::pods, "default");
  if (!start) return fail_with(start.error());
  auto watch = (*api)->watch(kube::resources::pods, "default", {.resource_version = start->resource_version});
  if (!watch) return fail_with(watch.error());
  for (const bool burst : {false, true}) {
    std::map<std::string, std::chrono::nanoseconds> bound;
    std::vector<double> took;
    const auto begin = machine_clock.monotonic();
    int made = 0;
    while (static_cast<int>(took.size()) < count) {
      while (made < count && (burst || bound.size() == took.size())) {
        const std::string name = fmt::format("probe-{}-{}", burst ? "burst" : "serial", made++);
        bound[name] = machine_clock.monotonic();
        auto created = (*api)->create(kube::resources::pods, pod(name, node));
        if (!created) return fail_with(created.error());
        if (!burst) break;
      }
      auto event = (*watch)->next(20s);
      if (!event) return fail_with(event.error());
      if (!*event) return fail_with({Code::Unavailable, "no pod became Running for 20 s"});
      const std::string& name = kube::name_of((*event)->object);
      if ((*event)->object["status"]["phase"].string() != "Running" || !bound.contains(name) || bound[name].count() < 0) continue;
      took.push_back(std::chrono::duration<double, std::milli>(machine_clock.monotonic() - bound[name]).count());
      bound[name] = std::chrono::nanoseconds(-1);
    }
    print(burst ? "burst" : "one by one", took, std::chrono::duration<double>(machine_clock.monotonic() - begin).count());
    for (const auto& [name, when] : bound)
      if (auto gone = (*api)->remove(kube::resources::pods, {"default", name}, {.grace_seconds = 0}); !gone && gone.error().code != Code::NotFound) return fail_with(gone.error());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: pod_start_probe KUBECONFIG NODE [PODS]\n", stderr);
    return 2;
  }
  return measure(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 50);
}
