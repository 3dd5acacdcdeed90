// SPDX-License-Identifier: Apache-2.0
// For tests of views and explanations: objects of a small site, told to books made anew each time, and random ones.
#pragma once
#include <fmt/format.h>

#include <map>
#include <random>

#include "base/result.h"
#include "governance/plan/views.h"

namespace fairlead::governance {

class Lab {
 public:
  Lab() {
    put(R"({kind: Namespace, metadata: {name: lab}})");
    for (const char* flavor : {"f0", "f1"}) put(fmt::format("{{kind: ResourceFlavor, metadata: {{name: {}}}, spec: {{}}}}", flavor));
  }
  void put(const std::string& yaml) {
    auto parsed = kube::parse_yaml(yaml);
    if (!parsed) fmt::print(stderr, "{}\n{}\n", parsed.error().message, yaml);
    INVARIANT(parsed && parsed->size() == 1);
    set(std::move(parsed->at(0)));
  }
  void set(kube::Json object) { objects_[id_of(object)] = std::move(object); }
  void cohort(const std::string& name, const std::string& parent = "") { put(fmt::format("{{kind: Cohort, metadata: {{name: {}}}, spec: {{{}}}}}", name, parent.empty() ? "" : "parentName: " + parent)); }
  // cpu of flavor f0; `limits`: ", borrowingLimit: 3"; `more`: of the spec, after a comma; `flavors`: further ones.
  void queue(const std::string& name, const std::string& cpu, const std::string& limits = "", const std::string& more = "", const std::string& cohort = "pool", const std::string& flavors = "",
             const std::string& preemption = "{withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}") {
    put(fmt::format("{{kind: ClusterQueue, metadata: {{name: {}}}, spec: {{{}namespaceSelector: {{}}, preemption: {}, resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: f0, resources: [{{name: cpu, nominalQuota: {}{}}}]}}{}]}}]{}}}}}", name,
                    cohort.empty() ? "" : "cohortName: " + cohort + ", ", preemption, cpu, limits, flavors, more));
    put(fmt::format("{{kind: LocalQueue, metadata: {{name: {0}, namespace: lab}}, spec: {{clusterQueue: {0}}}}}", name));
  }
  // It waits; with a flavor it has quota (one pod set, cpu).
  void work(const std::string& name, const std::string& queue, const std::string& cpu, int priority = 0, const std::string& flavor = "", const std::string& pod = "", const std::string& more = "") {
    ++made_;
    const std::string time = fmt::format("2026-11-22T{:02d}:{:02d}:{:02d}Z", made_ / 3600, made_ / 60 % 60, made_ % 60);
    const std::string status = flavor.empty() ? "" : fmt::format(", status: {{conditions: [{{type: QuotaReserved, status: 'True', reason: QuotaReserved, message: '', lastTransitionTime: '{0}'}}, {{type: Admitted, status: 'True', reason: Admitted, "
                                                                 "message: '', lastTransitionTime: '{0}'}}], admission: {{clusterQueue: {1}, podSetAssignments: [{{name: main, count: 1, flavors: {{cpu: {2}}}, resourceUsage: {{cpu: '{3}'}}}}]}}}}", time, queue, flavor, cpu);
    put(fmt::format("{{kind: Workload, metadata: {{name: {0}, namespace: lab, uid: 00000000-0000-0000-0000-{1:012d}, resourceVersion: '{1}', creationTimestamp: '{2}'}}, spec: {{queueName: {3}, priority: {4}{8}, podSets: [{{name: main, count: 1, template: "
                    "{{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: '{5}'}}}}}}]{6}}}}}}}]}}{7}}}", name, made_, time, queue, priority, cpu, pod, status, more));
  }
  void remove(const std::string& kind, const std::string& name) { objects_.erase(kind + "/" + name); }
  kube::Json& at(const std::string& kind, const std::string& name) { return objects_.at(kind + "/" + name); }
  std::vector<kube::Json> objects() const {
    std::vector<kube::Json> out;
    for (const auto& [id, object] : objects_) out.push_back(object);
    return out;
  }
  Books books() const { return books_of(objects()); }
  std::string text() const {
    std::string out;
    for (const auto& [id, object] : objects_) out += kube::print_json(object) + "\n";
    return out;
  }

  // Cohorts, queues and workloads; what has quota was admitted by the engine. Its names: q0.., w0...
  static Lab random(std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    const auto up_to = [&](int most) { return static_cast<int>(rng() % static_cast<std::uint64_t>(most + 1)); };
    Lab lab;
    const int cohorts = 1 + up_to(2), queues = 1 + up_to(4);
    for (int i = 0; i < cohorts; ++i) lab.cohort(fmt::format("c{}", i), i > 0 && up_to(2) > 0 ? fmt::format("c{}", up_to(i - 1)) : "");
    const char* policies[] = {"Never", "LowerPriority", "LowerOrNewerEqualPriority"};
    const char* reclaims[] = {"Never", "LowerPriority", "Any"};
    for (int i = 0; i < queues; ++i) {
      const bool alone = up_to(6) == 0;
      const auto limits = [&](int nominal) {
        std::string out;
        if (!alone && up_to(2) == 0) out += fmt::format(", borrowingLimit: {}", up_to(6));
        if (!alone && up_to(2) == 0) out += fmt::format(", lendingLimit: {}", up_to(nominal));
        return out;
      };
      const int nominal = up_to(8), second = up_to(5);
      const std::string flavors = up_to(2) == 0 ? fmt::format(", {{name: f1, resources: [{{name: cpu, nominalQuota: {}{}}}]}}", second, limits(second)) : "";
      const std::string strict = up_to(5) == 0 ? ", queueingStrategy: StrictFIFO" : "";
      const std::string weight = up_to(2) == 0 ? fmt::format(", fairSharing: {{weight: '{}'}}", up_to(3)) : "";
      lab.queue(fmt::format("q{}", i), std::to_string(nominal), limits(nominal), strict + weight, alone ? "" : fmt::format("c{}", up_to(cohorts - 1)), flavors,
                fmt::format("{{withinClusterQueue: {}, reclaimWithinCohort: {}}}", policies[up_to(2)], reclaims[up_to(2)]));
    }
    const int works = 1 + up_to(9);
    for (int i = 0; i < works; ++i) lab.work(fmt::format("w{}", i), fmt::format("q{}", up_to(queues - 1)), std::to_string(1 + up_to(5)), up_to(2));
    lab.admit();
    const int more = up_to(5);
    for (int i = 0; i < more; ++i) lab.work(fmt::format("w{}", works + i), fmt::format("q{}", up_to(queues - 1)), std::to_string(1 + up_to(6)), up_to(3));
    return lab;
  }

  // What the server would write of this one moment's admissions; nobody is stopped for them.
  void admit() {
    Books books = this->books();
    for (const kube::ObjectKey& key : books.workloads())
      if (auto write = books.write_of(key, Instant{std::chrono::hours(24 * 365 * 56)}); write && write->admits) set(std::move(write->object));
  }

 private:
  static std::string id_of(const kube::Json& object) { return object["kind"].string() + "/" + kube::name_of(object); }
  std::map<std::string, kube::Json> objects_;
  int made_ = 0;
};

}  // namespace fairlead::governance
