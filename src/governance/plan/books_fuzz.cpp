// SPDX-License-Identifier: Apache-2.0
// Objects with anything anywhere, told in any order: nothing stops the books, and the next step of a Job, a pod and a group of pods can be said.
#include <array>
#include <vector>

#include "governance/plan/books.h"
#include "governance/plan/job_workload.h"
#include "governance/plan/pod_workload.h"

using namespace fairlead;
using namespace fairlead::governance;
using kube::Json;

namespace {

constexpr std::array objects{
    R"({"metadata":{"name":"lab","labels":{"a":"b"}}})",
    R"({"metadata":{"name":"h200"},"spec":{"nodeLabels":{"kind":"h200"},"nodeTaints":[{"key":"g","value":"h","effect":"NoSchedule"}],"tolerations":[{"key":"g","operator":"Exists"}]}})",
    R"({"metadata":{"name":"pool"},"spec":{"parentName":"all","fairSharing":{"weight":"2"},"resourceGroups":[]},"status":{"fairSharing":{"weightedShare":1}}})",
    R"({"metadata":{"name":"a"},"spec":{"cohortName":"pool","namespaceSelector":{},"queueingStrategy":"StrictFIFO","stopPolicy":"None","preemption":{"reclaimWithinCohort":"Any"},"resourceGroups":[{"coveredResources":["cpu","pods"],"flavors":[{"name":"h200","resources":[{"name":"cpu","nominalQuota":6,"lendingLimit":4},{"name":"pods","nominalQuota":9}]}]}]}})",
    R"({"metadata":{"name":"b"},"spec":{"cohortName":"pool","namespaceSelector":{"matchLabels":{"a":"b"}},"resourceGroups":[{"coveredResources":["cpu","pods"],"flavors":[{"name":"h200","resources":[{"name":"cpu","nominalQuota":5,"borrowingLimit":3},{"name":"pods","nominalQuota":9}]}]}]}})",
    R"({"metadata":{"name":"q","namespace":"lab"},"spec":{"clusterQueue":"a"}})",
    R"({"metadata":{"name":"r","namespace":"lab"},"spec":{"clusterQueue":"b","stopPolicy":"None"}})",
    R"({"metadata":{"name":"w1","namespace":"lab","uid":"00000000-0000-0000-0000-000000000001","resourceVersion":"1","creationTimestamp":"2026-11-22T10:00:00Z","finalizers":["kueue.x-k8s.io/resource-in-use"],"ownerReferences":[{"kind":"Job","name":"j","uid":"j1","controller":true}]},"spec":{"queueName":"r","priority":1,"active":true,"podSets":[{"name":"main","count":7,"template":{"metadata":{"labels":{"a":"b"}},"spec":{"tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}]},"status":{"reclaimablePods":[{"name":"main","count":1}],"conditions":[{"type":"QuotaReserved","status":"True","reason":"QuotaReserved","message":"m","lastTransitionTime":"2026-11-22T10:00:00Z"},{"type":"Admitted","status":"True","reason":"Admitted","message":"m","lastTransitionTime":"2026-11-22T10:00:00Z"}],"admission":{"clusterQueue":"b","podSetAssignments":[{"name":"main","flavors":{"cpu":"h200","pods":"h200"},"resourceUsage":{"cpu":"7","pods":"7"},"count":7}]}}})",
    R"({"metadata":{"name":"w2","namespace":"lab","uid":"u2","resourceVersion":"2"},"spec":{"queueName":"q","podSets":[{"name":"main","count":6,"template":{"spec":{"tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}]}})",
    R"({"metadata":{"name":"j","namespace":"lab","uid":"j1","labels":{"kueue.x-k8s.io/queue-name":"r"}},"spec":{"parallelism":7,"completions":9,"completionMode":"Indexed","suspend":false,"template":{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"kind":"h200"},"tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}},"status":{"completedIndexes":"0-2,4","active":1,"startTime":"2026-11-22T10:00:00Z"}})",
    R"({"metadata":{"name":"p1","namespace":"lab","uid":"j1","creationTimestamp":"2026-11-22T10:00:00Z","labels":{"kueue.x-k8s.io/queue-name":"r"},"annotations":{"kueue.x-k8s.io/pod-group-total-count":"2"}},"spec":{"nodeSelector":{"a":"b"},"tolerations":[{"operator":"Exists"}],"schedulingGates":[{"name":"kueue.x-k8s.io/admission"}],"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]},"status":{"phase":"Pending","conditions":[]}})",
    R"({"metadata":{"name":"p2","namespace":"lab","uid":"p2","labels":{"kueue.x-k8s.io/queue-name":"r","kueue.x-k8s.io/managed":"true"},"finalizers":["kueue.x-k8s.io/managed"],"annotations":{"kueue.x-k8s.io/pod-group-total-count":"2","kueue.x-k8s.io/role-hash":"main"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]},"status":{"phase":"Running","conditions":[{"type":"TerminationTarget","status":"True"}]}})",
};

void collect(Json& at, std::vector<Json*>& out) {
  out.push_back(&at);
  if (at.is_object())
    for (auto& [name, member] : at.members()) collect(member, out);
  if (at.is_array())
    for (Json& item : at.items()) collect(item, out);
}

Json odd(std::uint8_t which) {
  switch (which % 12) {
    case 0: return {};
    case 1: return true;
    case 2: return -1;
    case 3: return std::int64_t{0x7fffffffffffffff};
    case 4: return 1e300;
    case 5: return "";
    case 6: return "a";
    case 7: return "False";
    case 8: return "0-9223372036854775807,3";
    case 9: return Json::array({"x", 1});
    case 10: return Json::object({{"a", "b"}});
    default: return "9E";
  }
}

}  // namespace

// Three bytes a change: which object, where in it, what stands there then; after each the object is told.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<Json> all;
  for (const char* text : objects) all.push_back(*kube::parse_json(text));
  Books books;
  const Instant now{};
  const auto tell = [&](std::size_t which) {
    const Json& object = all[which];
    if (!object.is_object() && !object.is_null()) return;  // no API gives that
    const std::string& name = kube::name_of(object);
    if (which == 0) books.set_space(name, object);
    if (which == 1) books.set_flavor(name, object);
    if (which == 2) books.set_cohort(name, object);
    if (which == 3 || which == 4) books.set_queue(name, object);
    if (which == 5 || which == 6) books.set_local_queue(kube::key_of(object), object);
    if ((which == 7 || which == 8) && object.is_object()) books.set_workload(kube::key_of(object), object);
    books.decide();
    const auto changed = books.take_changed();
    for (const auto& key : changed.workloads) {
      if (auto write = books.write_of(key, now)) books.set_workload(key, write->object);
      (void)books.waits_for(key);
    }
    for (const auto& key : changed.queues) (void)books.queue_status(key.name, now), (void)books.queue_in_use(key.name);
    for (const auto& key : changed.local_queues) (void)books.local_queue_status(key, now);
    for (const auto& key : changed.cohorts) (void)books.cohort_status(key.name);
    if (which >= 7 && all[7].is_object()) (void)plan_job({.job = all[9], .workloads = {all[7]}, .flavors = {{"h200", all[1]}}, .priority = {}, .now = now});
    if (which >= 7 && all[7].is_object()) {
      Json of_group = all[7];
      if (Json* metadata = of_group.find("metadata"); metadata != nullptr && metadata->is_object()) metadata->set("annotations", Json::object({{kGroupWorkload, "true"}}));
      (void)plan_pods({.group = "", .pods = {all[10]}, .workloads = {all[7]}, .flavors = {{"h200", all[1]}}, .priority = {}, .now = now});
      (void)plan_pods({.group = "w1", .pods = {all[10], all[11]}, .workloads = {of_group}, .flavors = {{"h200", all[1]}}, .priority = {}, .now = now});
      (void)plan_pods({.group = "w1", .pods = {all[10], all[11]}, .workloads = {}, .flavors = {}, .priority = {}, .now = now});
    }
  };
  for (std::size_t i = 0; i < all.size(); ++i) tell((i + (size == 0 ? 0 : data[0])) % all.size());
  for (std::size_t i = 1; i + 2 < size && i < 100; i += 3) {
    const std::size_t which = data[i] % all.size();
    std::vector<Json*> nodes;
    collect(all[which], nodes);
    *nodes[data[i + 1] % nodes.size()] = odd(data[i + 2]);
    if (which == 7 || which == 8)
      if (Json* metadata = all[which].find("metadata"); metadata != nullptr && metadata->is_object()) metadata->set("resourceVersion", std::to_string(100 + i));
    tell(which);
  }
  return 0;
}
