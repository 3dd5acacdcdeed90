// SPDX-License-Identifier: Apache-2.0
// A question of a member: its spec on the first line, then objects of a what-if, one on each line, each also as the spec of a gang. Whatever they are, it is answered or refused, the answer is bounded, and tells nothing of what stands in pods of others.
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "governance/plan/gang_workload.h"
#include "governance/plan/inquiry.h"
#include "kube/json.h"

namespace {

using namespace fairlead;
using kube::Json;

struct Object {
  const char *kind, *text;
};
constexpr std::array objects{
    Object{"Namespace", R"({"metadata":{"name":"lab","labels":{"a":"b"}}})"},
    Object{"Namespace", R"({"metadata":{"name":"far"}})"},
    Object{"ResourceFlavor", R"({"metadata":{"name":"f"},"spec":{"nodeLabels":{"kind":"f"}}})"},
    Object{"Cohort", R"({"metadata":{"name":"pool"},"spec":{}})"},
    Object{"ClusterQueue", R"({"metadata":{"name":"a"},"spec":{"cohortName":"pool","namespaceSelector":{},"preemption":{"reclaimWithinCohort":"Any","withinClusterQueue":"LowerPriority"},"resourceGroups":[{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[{"name":"cpu","nominalQuota":"4"}]}]}]}})"},
    Object{"ClusterQueue", R"({"metadata":{"name":"b"},"spec":{"cohortName":"pool","namespaceSelector":{},"resourceGroups":[{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[{"name":"cpu","nominalQuota":"4"}]}]}]}})"},
    Object{"LocalQueue", R"({"metadata":{"name":"a","namespace":"lab"},"spec":{"clusterQueue":"a"}})"},
    Object{"LocalQueue", R"({"metadata":{"name":"b","namespace":"far"},"spec":{"clusterQueue":"b"}})"},
    Object{"Workload", R"({"metadata":{"name":"train","namespace":"far","uid":"00000000-0000-0000-0000-000000000001","creationTimestamp":"2026-11-22T10:00:00Z","ownerReferences":[{"kind":"Job","name":"j","uid":"j1","controller":true}]},"spec":{"queueName":"b","podSets":[{"name":"main","count":1,"template":{"spec":{"containers":[{"name":"c","image":"of-somebody-else","resources":{"requests":{"cpu":"6"}}}]}}}]},"status":{"conditions":[{"type":"QuotaReserved","status":"True","reason":"QuotaReserved","message":"","lastTransitionTime":"2026-11-22T10:00:00Z"},{"type":"Admitted","status":"True","reason":"Admitted","message":"","lastTransitionTime":"2026-11-22T10:00:00Z"}],"admission":{"clusterQueue":"b","podSetAssignments":[{"name":"main","flavors":{"cpu":"f"},"resourceUsage":{"cpu":"6"},"count":1}]}}})"},
    Object{"Workload", R"({"metadata":{"name":"later","namespace":"lab","uid":"00000000-0000-0000-0000-000000000002","creationTimestamp":"2026-11-22T10:01:00Z"},"spec":{"queueName":"a","podSets":[{"name":"main","count":1,"template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"4"}}}]}}}]}})"},
};

struct Site : governance::InquiryObjects {
  std::vector<std::pair<std::string, Json>> all_;
  Site() {
    for (const Object& one : objects) all_.emplace_back(one.kind, *kube::parse_json(one.text));
  }
  std::vector<Json> all(const kube::Resource& resource) const override {
    std::vector<Json> out;
    for (const auto& [kind, object] : all_)
      if (kind == resource.kind) out.push_back(object);
    return out;
  }
  std::optional<Json> one(const kube::Resource& resource, const kube::ObjectKey& key) const override {
    for (const auto& [kind, object] : all_)
      if (kind == resource.kind && kube::key_of(object) == key) return object;
    return std::nullopt;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Site site;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto line = [&] {
    const auto end = text.find('\n');
    const std::string_view out = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return out;
  };
  auto spec = kube::parse_json(line());
  Json inquiry = *kube::parse_json(R"({"metadata":{"name":"ask","namespace":"lab","generation":1}})");
  inquiry.set("spec", spec ? std::move(*spec) : Json::object());
  if (!text.empty() && inquiry["spec"].is_object()) {
    Json changes = Json::array();
    while (!text.empty()) {
      const std::string_view change = line();
      changes.push(std::string(change));
      // Chance hardly ever spells a whole object of another controller: what it does spell is taken for the spec of one.
      if (const auto& kinds = governance::gang_kinds(); !change.empty() && (change[0] == '{' || change[0] == '[')) {
        const governance::GangKind& kind = kinds[change.size() % kinds.size()];
        changes.push("{\"apiVersion\":\"" + kind.resource.api_version() + "\",\"kind\":\"" + kind.resource.kind + "\",\"metadata\":{\"name\":\"g\",\"labels\":{\"kueue.x-k8s.io/queue-name\":\"a\"}},\"spec\":" + std::string(change) + "}");
      }
    }
    Json& question = inquiry.child("spec").child("whatIf");
    if (!question.is_object()) question = Json::object();
    question.set("changes", std::move(changes));
  }
  const Instant now = *parse_time("2026-11-22T12:00:00Z");
  const Json answer = governance::answer_inquiry(inquiry, site, now);
  INVARIANT(governance::answered(answer) && governance::inquiry_ends(answer).has_value());
  const std::string said = kube::print_json(answer["status"]);
  INVARIANT(said.size() < governance::largest_answer + 4'096);
  INVARIANT(said.find("of-somebody-else") == std::string::npos || std::string_view(reinterpret_cast<const char*>(data), size).find("of-somebody") != std::string_view::npos);
  return 0;
}
