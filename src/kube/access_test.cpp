// SPDX-License-Identifier: Apache-2.0
#include "kube/access.h"

#include <gmock/gmock.h>

#include "kube/controller.h"
#include "kube/scripted_api.h"

namespace fairlead::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Access, MergesAndSortsWhatIsSaid) {
  Access access;
  access.may({"update"}, resources::pods).may({"create", "get"}, resources::pods).may({"update"}, resources::pods, "status").may({"get"}, resources::leases, "", "kube-system", {"b", "a"});
  const auto rules = access.rules();
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_THAT(rules[0].verbs, ElementsAre("create", "get", "update"));
  EXPECT_EQ(print_json(role_rules(access, "")),
            R"([{"apiGroups":[""],"resources":["pods"],"verbs":["create","get","update"]},{"apiGroups":[""],"resources":["pods/status"],"verbs":["update"]}])");
  EXPECT_EQ(print_json(role_rules(access, "kube-system")), R"([{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"resourceNames":["a","b"],"verbs":["get"]}])");
}

TEST(Access, AllowsAsRbacDoes) {
  const Access access = Access().may({"get", "create"}, resources::leases, "", "a", {"x"}).may({"delete"}, resources::pods);
  EXPECT_TRUE(access.allows("get", resources::leases, "", "a", "x"));
  EXPECT_FALSE(access.allows("get", resources::leases, "", "a", "y"));
  EXPECT_FALSE(access.allows("get", resources::leases, "", "b", "x"));
  EXPECT_FALSE(access.allows("create", resources::leases, "", "a", "")) << "a create has no name yet";
  EXPECT_TRUE(access.allows("delete", resources::pods, "", "any", "any"));
  EXPECT_FALSE(access.allows("delete", resources::pods, "status", "any", "any"));
}

TEST(CheckedApi, RefusesEachThingThatWasNotDeclared) {
  BareApi inner;
  CheckedApi api(inner, Access().may({"get"}, resources::pods));
  const Json object = test_object("n", "x", 1);
  EXPECT_EQ(api.get(resources::pods, {"n", "x"}).error().code, Code::Unsupported) << "let through to the API, which has nothing";
  const auto refused = [](const auto& outcome) { return !outcome && outcome.error().code == Code::Forbidden; };
  EXPECT_TRUE(refused(api.get(resources::nodes, {"", "x"})));
  EXPECT_TRUE(refused(api.list(resources::pods, "n")));
  EXPECT_TRUE(refused(api.watch(resources::pods, "n", {})));
  EXPECT_TRUE(refused(api.create(resources::pods, object)));
  EXPECT_TRUE(refused(api.update(resources::pods, object)));
  EXPECT_TRUE(refused(api.update_status(resources::pods, object)));
  EXPECT_TRUE(refused(api.patch(resources::pods, {"n", "x"}, PatchType::Merge, object)));
  EXPECT_TRUE(refused(api.apply(resources::pods, object)));
  EXPECT_TRUE(refused(api.post(resources::pods, {"n", "x"}, "binding", object)));
  EXPECT_TRUE(refused(api.remove(resources::pods, {"n", "x"})));
  EXPECT_TRUE(refused(api.exec({"n", "x"}, "c", {}, "", 1s)));
  EXPECT_THAT(api.refusals(), ElementsAre("get nodes", "list pods", "watch pods", "create pods", "update pods", "update pods/status", "patch pods", "create pods/binding", "delete pods", "get pods/exec"));
  EXPECT_THAT(api.remove(resources::pods, {"n", "x"}).error().message, HasSubstr("delete pods n/x: not declared"));
}

class Watching final : public Controller {
 public:
  std::string name() const override { return "watching"; }
  std::vector<Source> sources() const override { return {{resources::pods, "a", key_itself}}; }
  std::optional<Access> access() const override { return Access().may({"update"}, resources::pods, "status"); }
  void start(const Caches&) override {}
  Result<Next> reconcile(const ObjectKey&) override { return Next{}; }
};

TEST(Access, OfAControllerHoldsItsSources) {
  const auto rules = full_access(Watching()).rules();
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[1].space, "a");
  EXPECT_THAT(rules[1].verbs, ElementsAre("get", "list", "watch"));
}

}  // namespace
}  // namespace fairlead::kube
