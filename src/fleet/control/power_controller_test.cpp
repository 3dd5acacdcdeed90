// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/power_controller.h"

#include <gmock/gmock.h>

#include "api/identity_crds.h"
#include "api/join.h"
#include "base/encoding.h"
#include "fleet/control/out_of_service.h"
#include "fleet/fake_power.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using std::chrono::seconds;
namespace resources = kube::resources;

const std::string kSpace = api::identities::default_space;

class Powers : public testing::Test {
 protected:
  ~Powers() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  void SetUp() override {
    power_.board("10.0.9.7");
    controller_.start(api_);
    ASSERT_TRUE(api_.create(resources::machines, *kube::parse_json(R"({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Machine", "metadata": {"name": "a", "uid": "u", "generation": 1}, "spec": {"host": {"bmc": {"address": "https://10.0.9.7", "secret": "bmc-a"}}}, "status": {"host": {"key": "k"}}})")));
    ASSERT_TRUE(api_.create(resources::nodes, Json::object({{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", Json::object({{"name", "a"}, {"labels", Json::object({{api::kHostLabel, "true"}})}})}, {"status", Json::object({{"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}})}})));
    ASSERT_TRUE(api_.create(resources::leases, Json::object({{"apiVersion", "coordination.k8s.io/v1"}, {"kind", "Lease"}, {"metadata", Json::object({{"name", "a"}, {"namespace", "kube-node-lease"}})}, {"spec", Json::object({{"renewTime", "t0"}})}})));
    secret("secret");
  }
  void secret(const std::string& password) {
    Json object = Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", Json::object({{"name", "bmc-a"}, {"namespace", kSpace}})}, {"data", Json::object({{"username", base64("admin")}, {"password", base64(password)}})}});
    if (auto there = api_.get(resources::secrets, {kSpace, "bmc-a"})) {
      there->set("data", object["data"]);
      ASSERT_TRUE(api_.update(resources::secrets, *there));
    } else {
      ASSERT_TRUE(api_.create(resources::secrets, object));
    }
  }
  Json machine() { return *api_.get(resources::machines, {"", "a"}); }
  Json node() { return *api_.get(resources::nodes, {"", "a"}); }
  void want(const char* power) {
    Json object = machine();
    object.child("spec").set("power", power);
    ASSERT_TRUE(api_.update(resources::machines, object));
  }
  // A look every five seconds for so long; each by a controller that has just started, as after a kill -9.
  void pass_time(seconds time) {
    for (seconds gone{0}; gone < time; gone += seconds(5)) {
      PowerController anew(fenced_, power_, clock_, {.space = kSpace});
      anew.start(api_);
      (void)anew.reconcile({"", "a"});
      clock_.advance(seconds(5));
    }
  }

  ManualClock clock_{Instant(std::chrono::hours(500'000))};
  kube::TinyApi api_;
  FakePower power_;
  kube::CheckedApi checked_{api_, power_access(kSpace)};
  kube::FencedApi fenced_{checked_, []() -> Result<std::int64_t> { return 1; }};
  PowerController controller_{fenced_, power_, clock_, {.space = kSpace}};
};

TEST_F(Powers, OffUntilItIsProvenAndOnAgain) {
  want("Off");
  pass_time(seconds(20));
  EXPECT_THAT(power_.board("10.0.9.7").told, ElementsAre(PowerAction::ForceOff));
  EXPECT_EQ(machine()["status"]["power"]["state"].string(), "Off");
  EXPECT_FALSE(is_declared_out_of_service(node()));
  pass_time(seconds(35));
  EXPECT_TRUE(is_declared_out_of_service(node()));
  EXPECT_FALSE(kube::condition_is_true(node(), "Ready"));
  want("On");
  pass_time(seconds(10));
  EXPECT_FALSE(is_declared_out_of_service(node()));
  EXPECT_THAT(power_.board("10.0.9.7").told, ElementsAre(PowerAction::ForceOff, PowerAction::On));
  EXPECT_EQ(machine()["status"]["power"]["state"].string(), "On");
}

TEST_F(Powers, SaysWhyItCannot) {
  secret("wrong");
  want("Off");
  pass_time(seconds(5));
  EXPECT_THAT(machine()["status"]["power"]["message"].string(), HasSubstr("refuses user"));
  ASSERT_TRUE(api_.remove(resources::secrets, {kSpace, "bmc-a"}, {}));
  pass_time(seconds(5));
  EXPECT_THAT(machine()["status"]["power"]["message"].string(), HasSubstr("there is no Secret fairlead-system/bmc-a"));
  secret("secret");
  pass_time(seconds(35));
  EXPECT_EQ(machine()["status"]["power"]["state"].string(), "Off");
}

TEST_F(Powers, WithoutABoardAnyMoreNothingIsSaid) {
  want("Off");
  pass_time(seconds(60));
  ASSERT_TRUE(is_declared_out_of_service(node()));
  Json object = machine();
  object.child("spec").child("host").erase("bmc");
  object.child("spec").set("power", "On");
  ASSERT_TRUE(api_.update(resources::machines, object));
  pass_time(seconds(5));
  EXPECT_FALSE(is_declared_out_of_service(node()));
  EXPECT_FALSE(machine()["status"].has("power"));
}

// Dies after the n-th write, whichever that is, and after what was sent: in the end it is off, said so, and nothing was sent that is not to be.
TEST_F(Powers, ADeathAtEachStepConverges) {
  for (int dies_at = 0; dies_at < 8; ++dies_at) {
    int writes = 0;
    const auto lives = [&] { return writes++ < dies_at; };
    Json ready = node();
    kube::set_condition(ready, {.type = "Ready", .status = "True", .reason = "Reports", .message = ""}, clock_.now());
    ASSERT_TRUE(api_.update_status(resources::nodes, ready));
    want("Off");
    kube::FencedApi dying(checked_, [&]() -> Result<std::int64_t> {
      if (!lives()) return fail(Code::Unavailable, "dead");
      return 1;
    });
    for (int i = 0; i < 12; ++i) {
      PowerController controller(dying, power_, clock_, {.space = kSpace});
      controller.start(api_);
      (void)controller.reconcile({"", "a"});
      clock_.advance(seconds(5));
    }
    pass_time(seconds(90));
    EXPECT_EQ(power_.board("10.0.9.7").state, PowerState::Off) << dies_at;
    EXPECT_TRUE(is_declared_out_of_service(node())) << dies_at;
    EXPECT_FALSE(kube::condition_is_true(node(), "Ready")) << dies_at;
    want("On");
    pass_time(seconds(90));
    EXPECT_EQ(power_.board("10.0.9.7").state, PowerState::On) << dies_at;
    EXPECT_FALSE(is_declared_out_of_service(node())) << dies_at;
  }
  for (const PowerAction action : power_.board("10.0.9.7").told) EXPECT_TRUE(action == PowerAction::ForceOff || action == PowerAction::On);
}

}  // namespace
}  // namespace fairlead::fleet
