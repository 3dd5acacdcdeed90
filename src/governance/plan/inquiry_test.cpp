// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/inquiry.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "api/queue_crds.h"
#include "base/encoding.h"
#include "base/test_rounds.h"
#include "governance/plan/explain.h"
#include "governance/plan/explain_lab.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using testing::HasSubstr;

const Instant now = *parse_time("2026-11-23T12:00:00Z");

class LabObjects final : public InquiryObjects {
 public:
  explicit LabObjects(const Lab& lab) : all_(lab.objects()) {}
  std::vector<Json> all(const kube::Resource& resource) const override {
    std::vector<Json> out;
    for (const Json& one : all_)
      if (one["kind"].string() == resource.kind) out.push_back(one);
    return out;
  }
  std::optional<Json> one(const kube::Resource& resource, const ObjectKey& key) const override {
    for (const Json& one : all(resource))
      if (kube::key_of(one) == key) return one;
    return std::nullopt;
  }

 private:
  std::vector<Json> all_;
};

Json inquiry(const std::string& spec, const std::string& space = "lab") {
  auto parsed = kube::parse_yaml("{metadata: {name: ask, namespace: " + space + ", generation: 3}, spec: " + spec + "}");
  EXPECT_TRUE(parsed) << spec;
  return parsed->at(0);
}
Json ask(const Lab& lab, const std::string& spec, const std::string& space = "lab") { return answer_inquiry(inquiry(spec, space), LabObjects(lab), now)["status"]; }
std::string refusal(const Json& status) {
  const Json& condition = status["conditions"].items().at(0);
  return condition["status"].string() == "False" && status["answer"].is_null() ? condition["reason"].string() + ": " + condition["message"].string() : "answered";
}

Lab two_teams() {
  Lab lab;
  lab.cohort("pool");
  for (const char* name : {"a", "b"}) lab.queue(name, "4", "", "", "pool", "", "{}");
  lab.work("train", "a", "6", 0, "f0");
  lab.work("later", "b", "4");
  return lab;
}

TEST(Inquiry, TellsWhatTheCommandsTell) {
  const Lab lab = two_teams();
  const Json explained = ask(lab, "{explain: {workload: workload/later}}");
  EXPECT_EQ(explained["observedGeneration"].integer(), 3);
  EXPECT_EQ(explained["conditions"].items().at(0)["reason"].string(), "Answered");
  EXPECT_EQ(kube::print_json(explained["answer"]), kube::print_json(to_json(*explain(books_of(lab.objects(), now), {"lab", "later"}))));
  EXPECT_EQ(ask(lab, "{eta: {workload: workload/later}}")["answer"]["name"].string(), "later");
  EXPECT_EQ(ask(lab, "{queue: {}}")["answer"]["workloads"].items().size(), 1U);
  EXPECT_EQ(ask(lab, "{queue: {all: true}}")["answer"]["workloads"].items().size(), 2U);
  EXPECT_EQ(ask(lab, "{quota: {name: a}}")["answer"]["tree"].items().at(0)["name"].string(), "a");
  const Json changed = ask(lab, "{whatIf: {without: [workload/train]}}");
  EXPECT_EQ(changed["answer"]["starts"].items().at(0)["name"].string(), "later") << kube::print_json(changed);
}

TEST(Inquiry, SaysWhyItHasNoAnswer) {
  const Lab lab = two_teams();
  EXPECT_THAT(refusal(ask(lab, "{explain: {workload: workload/nothing}}")), HasSubstr("NotFound: there is no workload"));
  EXPECT_THAT(refusal(ask(lab, "{explain: {workload: nonsense}}")), HasSubstr("Invalid: usage:"));
  EXPECT_THAT(refusal(ask(lab, "{quota: {name: nobody}}")), HasSubstr("NotFound: spec.quota.name: there is no queue"));
  EXPECT_THAT(refusal(ask(lab, "{whatIf: {}}")), HasSubstr("Invalid: spec.whatIf: changes or without"));
  EXPECT_THAT(refusal(ask(lab, "{}")), HasSubstr("Invalid: spec: one of explain"));
  EXPECT_THAT(refusal(ask(lab, "{queue: {}, quota: {}}")), HasSubstr("there are 2"));
  EXPECT_THAT(refusal(ask(lab, R"({whatIf: {changes: ['{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "x", "namespace": "other"}}']}})")), HasSubstr("spec.whatIf.changes[0].metadata.namespace: an Inquiry in lab"));
  EXPECT_THAT(refusal(ask(lab, "{whatIf: {changes: [17]}}")), HasSubstr("Invalid")) << "no object";
}

// Whatever stands where an object is expected, of each kind, beside a Job that asks for the same Workload.
TEST(Inquiry, NonsenseIsRefusedAndHarmsNobody) {
  const Lab lab = two_teams();
  const char* const job = R"({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "a"}}, "spec": {"template": {"spec": {"containers": []}}}})";
  for (const auto& [version, kind] : {std::pair{"kueue.x-k8s.io/v1beta2", "Workload"}, {"kueue.x-k8s.io/v1beta2", "ClusterQueue"}, {"kueue.x-k8s.io/v1beta2", "LocalQueue"}, {"kueue.x-k8s.io/v1beta2", "ResourceFlavor"}, {"kueue.x-k8s.io/v1beta2", "Cohort"}, {"kueue.x-k8s.io/v1beta1", "Workload"},
                                      {"batch/v1", "Job"}, {"v1", "Pod"}, {"v1", "Namespace"}, {"fairlead.dev/v1alpha1", "ComputeQuota"}, {"fairlead.dev/v1alpha1", "SchedulerConfig"}})
    for (const char* name : {"train", "a", "lab"})
      for (const char* odd : {R"("boo")", "7", "[]", "[[7]]", "true", R"({"podSets": 7, "template": [], "resourceGroups": "x", "preemption": []})", R"({"podSets": ["x"], "template": {"spec": "x", "metadata": 7}, "resourceGroups": [7], "priorityClassRef": "x"})"})
        for (const char* where : {R"("spec": {1})", R"("metadata": {{"name": "{0}", "labels": {1}}}, "spec": {{}})", R"("metadata": {{"name": "{0}", "annotations": {1}}})", R"("metadata": {1})", R"("status": {1}, "spec": {{"podSets": {1}}})"}) {
          std::string text = fmt::format(R"({{"apiVersion": "{}", "kind": "{}", )", version, kind);
          if (std::string(where).find("metadata") == std::string::npos) text += fmt::format(R"("metadata": {{"name": "{}"}}, )", name);
          text += fmt::format(fmt::runtime(where), name, odd) + "}";
          Json question = Json::object({{"whatIf", Json::object({{"changes", Json::array()}})}});
          question.child("whatIf").child("changes").push(text);
          question.child("whatIf").child("changes").push(job);
          Json inquiry_of = inquiry("{queue: {}}");
          inquiry_of.set("spec", question);
          const Json answer = answer_inquiry(inquiry_of, LabObjects(lab), now);
          ASSERT_TRUE(answered(answer)) << text;
        }
  std::string deep = R"({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "spec": )" + std::string(5'000, '[') + std::string(5'000, ']') + "}";
  Json question = Json::object({{"whatIf", Json::object({{"changes", Json::array()}})}});
  question.child("whatIf").child("changes").push(deep);
  Json of = inquiry("{queue: {}}");
  of.set("spec", question);
  EXPECT_EQ((*kube::find_condition(answer_inquiry(of, LabObjects(lab), now), "Answered"))["reason"].string(), "Invalid");
  // A refusal is short, whatever it quotes.
  question.child("whatIf").set("changes", Json::array({R"({"apiVersion": "v1", "kind": ")" + std::string(100'000, 'k') + "\"}"}));
  of.set("spec", question);
  EXPECT_LT((*kube::find_condition(answer_inquiry(of, LabObjects(lab), now), "Answered"))["message"].string().size(), 1100U);
}

TEST(Inquiry, IsAboutItsOwnNamespace) {
  const Lab lab = two_teams();
  EXPECT_THAT(refusal(ask(lab, "{explain: {workload: workload/later}}", "other")), HasSubstr("NotFound"));
  EXPECT_THAT(refusal(ask(lab, "{eta: {workload: workload/later}}", "other")), HasSubstr("NotFound"));
  EXPECT_TRUE(ask(lab, "{queue: {all: true}}", "other")["answer"]["workloads"].items().empty());
  EXPECT_THAT(refusal(ask(lab, "{whatIf: {without: [workload/train]}}", "other")), HasSubstr("NotFound"));
}

// What stands in pods of others is in no answer.
TEST(Inquiry, GivesAwayNoPods) {
  for (int seed = 0; seed < test_rounds(60, 1000); ++seed) {
    SCOPED_TRACE(seed);
    Lab lab = Lab::random(static_cast<std::uint64_t>(seed));
    std::string some;
    for (const Json& object : lab.objects())
      if (object["kind"].string() == "Workload") some = kube::name_of(object);
    for (Json object : lab.objects()) {
      if (object["kind"].string() != "Workload") continue;
      if (kube::name_of(object) != some) object.child("metadata").set("annotations", Json::object({{kRunTime, "hunter2"}}));
      for (Json& pods : object.child("spec").child("podSets").items())
        for (Json& container : pods.child("template").child("spec").child("containers").items()) container.set("env", Json::array({Json::object({{"name", "TOKEN"}, {"value", "hunter2"}})}));
      lab.set(std::move(object));
    }
    if (some.empty()) continue;
    EXPECT_EQ(refusal(ask(lab, fmt::format("{{eta: {{workload: workload/{}}}}}", some))), "answered");
    for (const std::string& question : {fmt::format("{{explain: {{workload: workload/{}}}}}", some), fmt::format("{{eta: {{workload: workload/{}}}}}", some), fmt::format("{{whatIf: {{without: [workload/{}]}}}}", some), std::string("{queue: {all: true}}"), std::string("{quota: {}}")})
      EXPECT_EQ(kube::print_json(ask(lab, question)).find("hunter2"), std::string::npos) << question;
  }
}

TEST(Inquiry, ALargeAnswerIsRefusedWithItsSize) {
  Lab lab;
  lab.cohort("pool");
  for (int i = 0; i < 900; ++i) lab.queue(fmt::format("queue-{:0>60}", i), "1");
  EXPECT_EQ(refusal(ask(lab, "{quota: {name: queue-000000000000000000000000000000000000000000000000000000000007}}")), "answered");
  EXPECT_EQ(refusal(ask(lab, "{quota: {}}")), "answered");
  for (int i = 900; i < 4000; ++i) lab.queue(fmt::format("queue-{:0>60}", i), "1");
  EXPECT_THAT(refusal(ask(lab, "{quota: {}}")), HasSubstr("TooLarge: the answer has "));
}

TEST(Inquiry, EndsSoLongAfterItsAnswer) {
  Json object = inquiry("{queue: {}, ttlSeconds: 20}");
  EXPECT_FALSE(answered(object));
  EXPECT_EQ(inquiry_ends(object), std::nullopt);
  object = answer_inquiry(object, LabObjects(two_teams()), now);
  EXPECT_TRUE(answered(object));
  EXPECT_EQ(inquiry_ends(object), now + std::chrono::seconds(20));
  object = refuse_inquiry(inquiry("{queue: {}}"), "TooMany", "later", now);
  EXPECT_EQ(inquiry_ends(object), now + std::chrono::seconds(300));
}

}  // namespace
}  // namespace fairlead::governance
