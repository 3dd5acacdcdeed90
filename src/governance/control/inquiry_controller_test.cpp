// SPDX-License-Identifier: Apache-2.0
#include "governance/control/inquiry_controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/team_crds.h"
#include "governance/plan/inquiry.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using namespace std::chrono_literals;

struct HandClock final : Clock {
  Instant at = *parse_time("2026-11-23T12:00:00Z");
  Instant now() const override { return at; }
  std::chrono::nanoseconds monotonic() const override { return at.time_since_epoch(); }
};

class Inquiries : public testing::Test {
 protected:
  void ask(const std::string& name, const std::string& space = "lab", const std::string& spec = "{queue: {}}") {
    auto parsed = kube::parse_yaml(fmt::format("{{metadata: {{name: {}, namespace: {}, generation: 1, creationTimestamp: '2026-11-23T11:00:00Z'}}, spec: {}}}", name, space, spec));
    ASSERT_TRUE(parsed && api_.create(api::teams::inquiries, parsed->at(0)));
  }
  Result<kube::Next> look(const std::string& name, const std::string& space = "lab") {
    InquiryController controller(api_, clock_);
    tell(controller);
    controller.start(api_);
    return controller.reconcile({space, name});
  }
  // What is there, as the first changes that a controller is told.
  void tell(const InquiryController& controller) {
    for (const auto& source : controller.sources())
      if (source.resource == api::teams::inquiries)
        for (const auto& [key, object] : api_.all("inquiries")) (void)source.keys({.before = {}, .after = object});
  }
  std::string answer(const std::string& name, const std::string& space = "lab") {
    const auto at = api_.all("inquiries").find({space, name});
    if (at == api_.all("inquiries").end()) return "gone";
    const Json* said = kube::find_condition(at->second, "Answered");
    return said == nullptr ? "waits" : (*said)["reason"].string();
  }
  HandClock clock_;
  kube::TinyApi api_;
};

TEST_F(Inquiries, AreAnsweredOnceAndGo) {
  ask("one");
  ASSERT_TRUE(look("one"));
  EXPECT_EQ(answer("one"), "Answered");
  const std::string first = kube::print_json(api_.all("inquiries").at({"lab", "one"}));
  clock_.at += 10s;
  const auto again = look("one");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->again_after, 290s);
  EXPECT_EQ(kube::print_json(api_.all("inquiries").at({"lab", "one"})), first) << "an answer stays as it is";
  clock_.at += 290s;
  ASSERT_TRUE(look("one"));
  EXPECT_EQ(answer("one"), "gone");
  EXPECT_TRUE(look("one")) << "one that is gone";
}

TEST_F(Inquiries, AFloodIsRefusedAndHoldsUpNoOtherNamespace) {
  for (std::size_t i = 0; i <= InquiryController::most_waiting; ++i) ask(fmt::format("ask-{:03}", i));
  ask("mine", "other");
  ASSERT_TRUE(look(fmt::format("ask-{:03}", InquiryController::most_waiting)));
  EXPECT_EQ(answer(fmt::format("ask-{:03}", InquiryController::most_waiting)), "TooMany");
  ASSERT_TRUE(look("ask-000"));
  EXPECT_EQ(answer("ask-000"), "Answered");
  ASSERT_TRUE(look("mine", "other"));
  EXPECT_EQ(answer("mine", "other"), "Answered");
}

TEST_F(Inquiries, ThoseThatKeepTheirAnswersAreCountedToo) {
  for (std::size_t i = 0; i < InquiryController::most_there; ++i) {
    const std::string name = fmt::format("ask-{:03}", i);
    ask(name);
    Json object = api_.all("inquiries").at({"lab", name});
    (void)api_.put(api::teams::inquiries, refuse_inquiry(object, "Answered", "", clock_.at));
  }
  ask("zz");
  ASSERT_TRUE(look("zz"));
  EXPECT_EQ(answer("zz"), "TooMany");
  ask("zz", "other");
  ASSERT_TRUE(look("zz", "other"));
  EXPECT_EQ(answer("zz", "other"), "Answered");
}

TEST_F(Inquiries, AskOnlyWhatTheyDeclare) {
  ask("one");
  InquiryController declared(api_, clock_);
  kube::CheckedApi checked(api_, kube::full_access(declared));
  kube::FencedApi fenced(checked, [] { return true; });
  InquiryController controller(fenced, clock_);
  controller.start(api_);
  ASSERT_TRUE(controller.reconcile({"lab", "one"}));
  clock_.at += 400s;
  ASSERT_TRUE(controller.reconcile({"lab", "one"}));
  EXPECT_EQ(answer("one"), "gone");
  EXPECT_TRUE(checked.refusals().empty());
}

}  // namespace
}  // namespace fairlead::governance
