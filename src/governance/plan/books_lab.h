// SPDX-License-Identifier: Apache-2.0
// For tests: books with an API beside them that takes what they write.
#pragma once
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "governance/plan/books.h"

namespace fairlead::governance {

inline kube::Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message << "\n" << text;
  return parsed->at(0);
}

class BooksOf : public testing::Test {
 protected:
  BooksOf() {
    books_.set_space("lab", yaml("{metadata: {name: lab, labels: {team: a}}}"));
    books_.set_flavor("default", yaml("{metadata: {name: default}, spec: {}}"));
  }
  void queue(const std::string& name, const std::string& cpu, const std::string& more = "", const std::string& limits = "") {
    put_queue(name, fmt::format("{{cohortName: pool, namespaceSelector: {{}}, preemption: {{withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}}, resourceGroups: [{{coveredResources: [cpu], "
                                "flavors: [{{name: default, resources: [{{name: cpu, nominalQuota: {}{}}}]}}]}}]{}}}", cpu, limits, more));
  }
  void put_queue(const std::string& name, const std::string& spec) {
    books_.set_queue(name, yaml(fmt::format("{{metadata: {{name: {}}}, spec: {}}}", name, spec)));
    books_.set_local_queue({"lab", name}, yaml(fmt::format("{{metadata: {{name: {0}, namespace: lab}}, spec: {{clusterQueue: {0}}}}}", name)));
  }
  void submit(const std::string& name, const std::string& queue, const std::string& cpu, int priority = 0, const std::string& more = "") {
    const int number = ++submitted_;
    put(yaml(fmt::format("{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: {0}, namespace: lab, uid: 00000000-0000-0000-0000-{1:012d}, creationTimestamp: '2026-11-22T10:00:{2:02d}Z'}}, "
                         "spec: {{queueName: {3}, priority: {4}, podSets: [{{name: main, count: 1, template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: '{5}'}}}}}}]{6}}}}}}}]}}}}",
                         name, number, number % 60, queue, priority, cpu, more)));
  }
  void put(kube::Json object) {
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    objects_[kube::key_of(object)] = object;
    books_.set_workload(kube::key_of(object), object);
  }
  // Until nothing more is written.
  void settle() {
    for (int round = 0; round < 50; ++round) {
      books_.decide();
      const auto changed = books_.take_changed();
      if (changed.workloads.empty()) return;
      for (const kube::ObjectKey& key : changed.workloads)
        if (auto write = books_.write_of(key, now_)) {
          for (const Note& note : write->notes) notes_.push_back(key.name + " " + note.reason);
          put(std::move(write->object));
        }
    }
    ADD_FAILURE() << "does not settle";
  }
  kube::Json& at(const std::string& name) { return objects_.at({"lab", name}); }
  std::string says(const std::string& name, const char* type) {
    const kube::Json* found = kube::find_condition(at(name), type);
    return found == nullptr ? "none" : (*found)["status"].string() + " " + (*found)["reason"].string() + ": " + (*found)["message"].string();
  }
  bool admitted(const std::string& name) { return kube::condition_is_true(at(name), "Admitted") && !kube::condition_is_true(at(name), "Evicted"); }
  // What the adapter of a Job does when nothing of it runs any more.
  void stopped(const std::string& name) {
    kube::Json object = at(name);
    tell_stopped(object, now_);
    put(std::move(object));
    settle();
  }
  std::string share(const std::string& queue) { return kube::print_json(books_.queue_status(queue, now_).value_or(kube::Json())["status"]["fairSharing"]["weightedShare"]); }

  Instant now_ = *parse_time("2026-11-22T10:01:00Z");
  Books books_;
  std::map<kube::ObjectKey, kube::Json> objects_;
  std::vector<std::string> notes_;
  int submitted_ = 0, version_ = 0;
};

}  // namespace fairlead::governance
