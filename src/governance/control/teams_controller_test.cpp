// SPDX-License-Identifier: Apache-2.0
#include "governance/control/teams_controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/team_crds.h"
#include "api/user_roles.h"
#include "kube/tiny_api.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;
namespace resources = kube::resources;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << text;
  return parsed->at(0);
}

struct Died {};

// Ends the process at the n-th write, before it or behind it.
class DyingApi final : public kube::KubeApi {
 public:
  explicit DyingApi(kube::KubeApi& api) : api_(api) {}
  int writes = 0, die_at = 0;
  bool behind = false;
  Result<Json> get(const kube::Resource& resource, const ObjectKey& key) override { return api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override { return api_.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override { return api_.watch(resource, space, options); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    if (resource.plural == "selfsubjectreviews") return fail(Code::NotFound, "as in process");
    return resource == resources::events ? api_.create(resource, object) : write([&] { return api_.create(resource, object); });
  }
  Result<Json> update(const kube::Resource& resource, const Json& object) override {
    return write([&] { return api_.update(resource, object); });
  }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override {
    return write([&] { return api_.update_status(resource, object); });
  }
  Result<Json> patch(const kube::Resource& resource, const ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource) override { return api_.patch(resource, key, type, patch, subresource); }
  Result<Json> post(const kube::Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) override { return api_.post(resource, key, subresource, body); }
  Result<void> remove(const kube::Resource& resource, const ObjectKey& key, const kube::DeleteOptions& options) override {
    return write([&] { return api_.remove(resource, key, options); });
  }
  Result<kube::ExecResult> exec(const ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return fail(Code::Unsupported, "exec"); }

 private:
  template <class Do>
  auto write(const Do& act) -> decltype(act()) {
    ++writes;
    if (writes == die_at && !behind) throw Died{};
    auto done = act();
    if (writes == die_at && behind) throw Died{};
    return done;
  }
  kube::KubeApi& api_;
};

constexpr const char* kKinds[] = {"namespaces", "clusterqueues", "localqueues", "resourceflavors", "cohorts", "workloadpriorityclasses", "computequotas", "schedulerconfigs", "rolebindings", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"};

class TeamsOnApi : public testing::Test {
 protected:
  void begin() {
    for (int i = 0; i < 4; ++i) put(resources::nodes, fmt::format("{{metadata: {{name: n{}, labels: {{node.kubernetes.io/instance-type: a}}}}, status: {{allocatable: {{cpu: '4', memory: 16Gi}}}}}}", i));
    put(resources::namespaces, "{metadata: {name: hyperpod-ns-theirs}}");
    put(api::teams::configs, "{metadata: {name: policy, generation: 1}, spec: {priorityClasses: [{name: high, weight: 80}], idleResourceSharing: Enabled}}");
    put(api::teams::quotas, "{metadata: {name: red, generation: 1, creationTimestamp: '2026-11-22T10:00:00Z'}, spec: {teamName: red, computeQuotaResources: [{instanceType: a, count: 2}]}}");
    put(api::teams::quotas, "{metadata: {name: theirs, generation: 1, creationTimestamp: '2026-11-22T10:00:01Z'}, spec: {teamName: theirs, computeQuotaResources: [{instanceType: a, count: 1}]}}");
  }
  void put(const kube::Resource& resource, const std::string& text) { ASSERT_TRUE(api_.create(resource, yaml(text))); }
  void run() {
    TeamsController controller(cut_, clock_);
    controller.start(api_);
    for (int round = 0; round < 20; ++round) {
      const int before = cut_.writes;
      auto done = controller.reconcile({"", "teams"});
      ASSERT_TRUE(done) << done.error().message;
      if (cut_.writes == before) return;
    }
    ADD_FAILURE() << "it never comes to rest";
  }
  // All that is there, without what differs from run to run.
  std::string whole() {
    std::string out;
    for (const char* plural : kKinds)
      for (const auto& [key, object] : api_.all(plural)) {
        Json one = object;
        for (const char* field : {"resourceVersion", "uid"}) one.child("metadata").erase(field);
        out += std::string(plural) + " " + kube::print_json(one) + "\n";
      }
    return out;
  }
  void reset() {
    for (const char* plural : kKinds) api_.all(plural).clear();
    api_.all("nodes").clear();
    cut_.writes = cut_.die_at = 0;
    begin();
  }
  struct StandingClock final : Clock {
    Instant now() const override { return *parse_time("2026-11-22T12:00:00Z"); }
    std::chrono::nanoseconds monotonic() const override { return {}; }
  } clock_;
  kube::TinyApi api_;
  DyingApi cut_{api_};
};

TEST_F(TeamsOnApi, MakesChangesAndTakesAway) {
  begin();
  run();
  EXPECT_TRUE(api_.all("clusterqueues").contains({"", "hyperpod-ns-red-clusterqueue"}));
  EXPECT_TRUE(api_.all("localqueues").contains({"hyperpod-ns-red", "hyperpod-ns-red-localqueue"}));
  EXPECT_FALSE(api_.all("clusterqueues").contains({"", "hyperpod-ns-theirs-clusterqueue"}));
  EXPECT_TRUE(api_.all("namespaces").at({"", "hyperpod-ns-theirs"})["metadata"]["labels"].is_null()) << "nothing is adopted";
  EXPECT_EQ((*kube::find_condition(api_.all("computequotas").at({"", "theirs"}), "Accepted"))["reason"].string(), "NamespaceTaken");
  EXPECT_EQ(api_.all("computequotas").at({"", "red"})["status"]["clusterQueue"].string(), "hyperpod-ns-red-clusterqueue");

  // What somebody changed by hand is put back; what the API added stays.
  Json queue = api_.all("clusterqueues").at({"", "hyperpod-ns-red-clusterqueue"});
  queue.child("spec").set("cohortName", "mine").set("flavorFungibility", Json::object({{"whenCanBorrow", "MayStopSearch"}}));
  ASSERT_TRUE(api_.update(queues::cluster_queues, queue));
  run();
  queue = api_.all("clusterqueues").at({"", "hyperpod-ns-red-clusterqueue"});
  EXPECT_EQ(queue["spec"]["cohortName"].string(), kTeamCohort);
  EXPECT_EQ(queue["spec"]["flavorFungibility"]["whenCanBorrow"].string(), "MayStopSearch");

  put(queues::cluster_queues, "{metadata: {name: somebodys}, spec: {}}");
  api_.all("computequotas").clear();
  api_.all("schedulerconfigs").clear();
  run();
  EXPECT_EQ(api_.all("clusterqueues").size(), 1U) << "somebody's stays";
  EXPECT_TRUE(api_.all("localqueues").empty() && api_.all("resourceflavors").empty() && api_.all("cohorts").empty() && api_.all("workloadpriorityclasses").empty());
  EXPECT_EQ(api_.all("namespaces").at({"", "hyperpod-ns-red"})["metadata"]["labels"]["sagemaker.amazonaws.com/activate-quota"].string(), "Disabled");
}

TEST_F(TeamsOnApi, MembersArePeoplesToName) {
  begin();
  run();
  const ObjectKey binding{"hyperpod-ns-red", "team-members"}, viewers{"", "hyperpod-ns-red-members"};
  ASSERT_TRUE(api_.all("rolebindings").contains(binding));
  EXPECT_EQ(api_.all("rolebindings").at(binding)["roleRef"]["name"].string(), "fairlead-team-member");
  EXPECT_FALSE(api_.all("rolebindings").contains({"hyperpod-ns-theirs", "team-members"})) << "no team";
  EXPECT_TRUE(api_.all("clusterrolebindings").empty()) << "nobody is a member";

  Json with = api_.all("rolebindings").at(binding);
  with.set("subjects", yaml("[{kind: User, apiGroup: rbac.authorization.k8s.io, name: ada}, {kind: Group, apiGroup: rbac.authorization.k8s.io, name: interns}]"));
  ASSERT_TRUE(api_.update(api::rbac::role_bindings, with));
  run();
  EXPECT_EQ(api_.all("rolebindings").at(binding)["subjects"], with["subjects"]);
  EXPECT_EQ(api_.all("clusterrolebindings").at(viewers)["subjects"], with["subjects"]);
  EXPECT_EQ(api_.all("clusterrolebindings").at(viewers)["roleRef"]["name"].string(), "fairlead-team-viewer");

  with = api_.all("rolebindings").at(binding);
  with.child("subjects").items().pop_back();
  ASSERT_TRUE(api_.update(api::rbac::role_bindings, with));
  run();
  EXPECT_EQ(api_.all("clusterrolebindings").at(viewers)["subjects"], with["subjects"]) << "who is taken away sees nothing more";
  with = api_.all("rolebindings").at(binding);
  with.erase("subjects");
  ASSERT_TRUE(api_.update(api::rbac::role_bindings, with));
  run();
  EXPECT_TRUE(api_.all("clusterrolebindings").empty());

  // Somebody's binding of that name gives nobody a look at the cluster.
  with.child("metadata").erase("labels");
  with.set("subjects", yaml("[{kind: User, apiGroup: rbac.authorization.k8s.io, name: eve}]"));
  ASSERT_TRUE(api_.put(api::rbac::role_bindings, with));
  run();
  EXPECT_TRUE(api_.all("clusterrolebindings").empty());

  api_.all("computequotas").clear();
  run();
  EXPECT_TRUE(api_.all("rolebindings").contains(binding)) << "the namespace stays, and who may work in it";
}

TEST_F(TeamsOnApi, DeathAtAnyStepComesToTheSame) {
  begin();
  run();
  const std::string wanted = whole();
  const int steps = cut_.writes;
  ASSERT_GT(steps, 6);
  for (const bool behind : {false, true})
    for (int step = 1; step <= steps; ++step) {
      reset();
      cut_.die_at = step;
      cut_.behind = behind;
      TeamsController controller(cut_, clock_);
      controller.start(api_);
      EXPECT_THROW((void)controller.reconcile({"", "teams"}), Died);
      EXPECT_TRUE(api_.all("clusterqueues").empty() || api_.all("computequotas").at({"", "red"})["status"]["inForce"].is_object()) << "a promise is written down before anything is made of it";
      cut_.die_at = 0;
      run();
      EXPECT_EQ(whole(), wanted) << "died at write " << step << (behind ? ", behind it" : "");
    }
}

TEST_F(TeamsOnApi, AsksForNothingThatIsNotDeclared) {
  begin();
  const TeamsController declared(api_, clock_);
  kube::CheckedApi checked(api_, kube::full_access(declared));
  TeamsController controller(checked, clock_);
  controller.start(api_);
  ASSERT_TRUE(controller.reconcile({"", "teams"}));
  api_.all("computequotas").clear();
  ASSERT_TRUE(controller.reconcile({"", "teams"}));
  EXPECT_THAT(checked.refusals(), testing::IsEmpty());
}

}  // namespace
}  // namespace fairlead::governance
