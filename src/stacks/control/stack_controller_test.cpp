// SPDX-License-Identifier: Apache-2.0
// Stacks in a small world: clusters come up, fail, take their time; servers die at every write.
#include "stacks/control/stack_controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <set>

#include "api/cluster.h"
#include "base/rng.h"
#include "kube/tiny_api.h"

namespace fairlead::stacks {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;

// Dies at the n-th write: before it, or after it has had its effect and nobody was told. Generations as a server counts them.
class WorldApi final : public kube::KubeApi {
 public:
  explicit WorldApi(kube::KubeApi& api) : api_(api) {}
  enum class Death { Before, After };
  int writes = 0, dies_at = -1;
  Death how = Death::Before;
  bool dead = false;
  std::function<std::optional<Error>(const kube::Resource&, const Json&)> refusal;  // what the API says to a write
  std::function<bool(const kube::Resource&, const Json&)> holds;                   // an update that is under way, and whose end nobody sees

  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return dead ? gone() : api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options = {}) override { return dead ? gone() : api_.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return gone(); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    if (refusal)
      if (auto error = refusal(resource, object)) return std::unexpected(*error);
    return write<Json>([&] {
      Json made = object;
      made.child("metadata").set("generation", 1);
      return api_.create(resource, made);
    });
  }
  Result<Json> update(const kube::Resource& resource, const Json& object) override {
    if (refusal)
      if (auto error = refusal(resource, object)) return std::unexpected(*error);
    if (holds && holds(resource, object)) return gone();
    return write<Json>([&] {
      Json changed = object;
      if (const auto now = api_.get(resource, kube::key_of(object))) {
        if ((*now)["spec"] != object["spec"]) changed.child("metadata").set("generation", (*now)["metadata"]["generation"].integer() + 1);
        changed.set("status", (*now)["status"]);
      }
      return api_.update(resource, changed);
    });
  }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override {
    return write<Json>([&] { return api_.update_status(resource, object); });
  }
  Result<Json> patch(const kube::Resource&, const kube::ObjectKey&, kube::PatchType, const Json&, const std::string& = "") override { return gone(); }
  Result<Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const Json&) override { return gone(); }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options = {}) override {
    return write<void>([&] { return api_.remove(resource, key, options); });
  }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return gone(); }

 private:
  static std::unexpected<Error> gone() { return fail(Code::Unavailable, "dead"); }
  template <class T>
  Result<T> write(const auto& act) {
    if (dead) return gone();
    if (writes++ == dies_at) {
      dead = true;
      if (how == Death::After) (void)act();
      return gone();
    }
    return act();
  }
  kube::KubeApi& api_;
};

Json group(const std::string& name, int count) { return Json::object({{"instanceGroupName", name}, {"instanceType", "ml.c5.large"}, {"instanceCount", count}}); }
Json spec(int count, const std::string& more = "") {
  Json groups = Json::array({group("a", count)});
  if (!more.empty()) groups.push(group(more, 1));
  return Json::object({{"instanceGroups", std::move(groups)}});
}
Json resource(const std::string& id, const std::string& cluster, Json of, std::vector<std::string> needs = {}, const std::string& policy = "Delete") {
  Json depends = Json::array();
  for (const std::string& one : needs) depends.push(one);
  return Json::object({{"logicalId", id}, {"type", api::kStackClusterType}, {"cluster", cluster}, {"clusterName", cluster}, {"annotations", Json::object({{api::kArnBegin, "arn:aws:sagemaker:fairlead-1:111122223333:cluster/"}, {"note", "x"}})}, {"spec", std::move(of)}, {"dependsOn", std::move(depends)}, {"deletionPolicy", policy}});
}
Json side(std::vector<Json> resources, const std::string& outputs = "") {
  std::string text = "Resources:\n";
  for (const Json& one : resources) text += fmt::format("  {}: {{Type: 'AWS::SageMaker::Cluster'}}\n", one["logicalId"].string());
  return Json::object({{"template", text + outputs}, {"parameters", Json::object()}, {"resources", Json::array(std::move(resources))}});
}

struct StackSite {
  ManualClock clock{*parse_time("2026-11-26T12:00:00Z")};
  kube::TinyApi api;
  kube::CheckedApi checked{api, kube::full_access(StackController(api, clock))};
  std::unique_ptr<WorldApi> world;
  std::unique_ptr<StackController> controller;
  std::set<std::string> refuses;   // clusters that cannot come up, or take a change with a group named "bad"
  std::set<std::string> slow;      // clusters that do not get on
  int operations = 0;

  StackSite() {
    api.stamp = [this] { return print_time(clock.now()); };
    restart();
  }
  void restart() {
    world = std::make_unique<WorldApi>(checked);
    controller = std::make_unique<StackController>(*world, clock);
  }

  Json operation(const char* kind, const std::string& on_failure = "ROLLBACK") { return Json::object({{"id", fmt::format("op-{}", ++operations)}, {"kind", kind}, {"onFailure", on_failure}, {"at", print_time(clock.now())}, {"token", fmt::format("t{}", operations)}}); }
  void create(Json target, const std::string& on_failure = "ROLLBACK", int minutes = 0) {
    Json op = operation("Create", on_failure);
    if (minutes > 0) op.set("timeoutMinutes", minutes);
    Json object = Json::object({{"metadata", Json::object({{"name", "lab"}, {"finalizers", Json::array({Json(api::kStackFinalizer)})}})}, {"spec", Json::object({{"stackName", "lab"}, {"arn", "arn:aws:cloudformation:fairlead-1:111122223333:stack/lab/u"}, {"operation", std::move(op)}, {"target", std::move(target)}})}});
    ASSERT_TRUE(api.create(api::kStacks, object));
  }
  void ask(const char* kind, Json target = Json()) {
    Json object = stack();
    const Json before = api::stack_in_force(object);
    object.child("spec").set("operation", operation(kind));
    if (kind == std::string("Update")) object.child("spec").set("before", before).set("target", std::move(target));
    ASSERT_TRUE(api.update(api::kStacks, object));
  }
  Json stack() { return api.all("stacks").contains({"", "lab"}) ? api.all("stacks").at({"", "lab"}) : Json(); }
  std::string phase() { return stack().is_null() ? "" : api::stack_phase(stack()); }
  Json cluster(const std::string& name) { return api.all("clusters").contains({"", name}) ? api.all("clusters").at({"", name}) : Json(); }
  std::string counts(const std::string& name) {
    std::string out;
    const Json now = cluster(name);
    for (const Json& one : now["spec"]["instanceGroups"].items()) out += (out.empty() ? "" : " ") + one["instanceGroupName"].string() + ":" + std::to_string(one["instanceCount"].integer());
    return out;
  }
  std::string state(const std::string& id) {
    const Json now = stack();
    for (const Json& one : now["status"]["resources"].items())
      if (one["logicalId"].string() == id) return one["status"].string();
    return "";
  }
  std::string reason(const std::string& id) {
    const Json now = stack();
    for (const Json& one : now["status"]["resources"].items())
      if (one["logicalId"].string() == id) return one["reason"].string();
    return "";
  }
  std::vector<std::string> events(const std::string& of = "") {
    std::vector<std::string> out;
    const Json now = stack();
    for (const Json& one : now["status"]["events"].items())
      if (of.empty() || one["logicalId"].string() == of) out.push_back((of.empty() ? one["logicalId"].string() + " " : "") + one["status"].string());
    return out;
  }

  // The controller of clusters, as a stack sees it.
  void run_clusters() {
    for (const auto& [key, object] : std::map(api.all("clusters"))) {
      if (kube::deleting(object)) {
        if (!slow.contains(key.name)) api.all("clusters").erase(key);
        continue;
      }
      Json changed = object;
      if (!kube::has_finalizer(object, api::kClusterFinalizer)) kube::add_finalizer(changed, api::kClusterFinalizer);
      const std::int64_t generation = object["metadata"]["generation"].integer();
      Json& status = changed.child("status");
      if (!status.is_object()) status = Json::object();
      const bool served = status["served"].boolean();
      bool bad = refuses.contains(key.name) && !served;
      for (const Json& one : object["spec"]["instanceGroups"].items()) bad = bad || (served && one["instanceGroupName"].string() == "bad");
      if (slow.contains(key.name)) {
        status.set("phase", served ? "Updating" : "Creating").set("observedGeneration", generation);
      } else if (bad && served) {
        const bool seen = status["failed"]["generation"].integer(-1) == generation;
        if (!seen) status.set("failed", Json::object({{"generation", generation}, {"message", "no machines"}}));
        status.set("phase", seen ? "InService" : "RollingBack").set("observedGeneration", generation).set("message", "no machines");
      } else if (bad) {
        status.set("phase", "Failed").set("message", "no machines").set("observedGeneration", generation);
      } else if (status["observedGeneration"].integer(-1) != generation) {
        status.set("phase", served ? "Updating" : "Creating").set("observedGeneration", generation);
      } else {
        status.set("phase", "InService").set("served", true).set("good", Json::object({{"generation", generation}, {"spec", object["spec"]}}));
        status.erase("message");
      }
      if (changed != object) {
        EXPECT_TRUE(api.put(api::kClusters, changed));
      }
    }
  }
  bool round() {
    const bool fine = static_cast<bool>(controller->reconcile({"", "lab"}));
    check();
    run_clusters();
    clock.advance(std::chrono::seconds(1));
    return fine;
  }
  std::string picture() {
    std::string out;
    for (const char* plural : {"stacks", "clusters"})
      for (const auto& [key, object] : api.all(plural)) out += kube::print_json(object);
    return out;
  }
  void settle(int most = 200) {
    for (int i = 0, still = 0; i < most && still < 4; ++i) {
      const std::string before = picture();
      if (!round() && world->dead) restart();
      still = picture() == before ? still + 1 : 0;
    }
  }
  // Whatever happens: what others made is never touched, and a cluster that a stack made says so.
  void check() {
    for (const auto& [key, object] : api.all("clusters"))
      if (key.name.starts_with("theirs")) {
        EXPECT_FALSE(kube::deleting(object)) << key.name;
        EXPECT_EQ(object["spec"], spec(9)) << key.name;
      }
    EXPECT_TRUE(checked.refusals().empty());
  }
};

struct Stacks : testing::Test {
  StackSite site;
};

TEST_F(Stacks, ClustersComeInTheirOrderAndTellWhatBecameOfThem) {
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2), {"A"})}, "Outputs: {Arn: {Value: !Ref A}, Status: {Value: !Sub '${B.ClusterStatus}/${AWS::StackName}'}}"));
  EXPECT_EQ(site.phase(), "CREATE_IN_PROGRESS") << "from the request on";
  site.settle();
  ASSERT_EQ(site.phase(), "CREATE_COMPLETE");
  EXPECT_THAT(site.events(), ElementsAre("lab CREATE_IN_PROGRESS", "A CREATE_IN_PROGRESS", "A CREATE_IN_PROGRESS", "A CREATE_COMPLETE", "B CREATE_IN_PROGRESS", "B CREATE_IN_PROGRESS", "B CREATE_COMPLETE", "lab CREATE_COMPLETE"));
  const Json outputs = site.stack()["status"]["outputs"];
  EXPECT_EQ(outputs.items().at(0)["value"].string(), "arn:aws:sagemaker:fairlead-1:111122223333:cluster/" + api::entity_id(kube::uid_of(site.cluster("one"))));
  EXPECT_EQ(outputs.items().at(1)["value"].string(), "InService/lab");
  EXPECT_EQ(site.cluster("one")["metadata"]["annotations"]["note"].string(), "x");
  const Json last = site.stack()["status"]["events"];
  EXPECT_EQ(last.items().back()["token"].string(), "t1");
  // Nothing more is done.
  const int writes = site.world->writes;
  site.settle();
  EXPECT_EQ(site.world->writes, writes);
}

TEST_F(Stacks, OneThatFailsTakesBackWhatWasMade) {
  site.refuses = {"two"};
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2), {"A"}), resource("C", "three", spec(1), {"B"})}));
  site.settle();
  EXPECT_EQ(site.phase(), "ROLLBACK_COMPLETE");
  EXPECT_TRUE(site.api.all("clusters").empty());
  EXPECT_THAT(site.events("B"), ElementsAre("CREATE_IN_PROGRESS", "CREATE_IN_PROGRESS", "CREATE_FAILED", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"));
  EXPECT_THAT(site.events("C"), ElementsAre()) << "it was never begun";
  const Json now = site.stack();
  std::string why;
  for (const Json& one : now["status"]["events"].items())
    if (one["status"].string() == "ROLLBACK_IN_PROGRESS") why = one["reason"].string();
  EXPECT_EQ(why, "The following resource(s) failed to create: [B]. Rollback requested by user.");
  site.ask("Delete");
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
}

TEST_F(Stacks, WhatElseIsInTheMakingIsCancelled) {
  site.refuses = {"two"};
  site.slow = {"one"};
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2))}));
  for (int i = 0; i < 8; ++i) site.round();
  EXPECT_EQ(site.phase(), "ROLLBACK_IN_PROGRESS");
  site.slow.clear();
  site.settle();
  EXPECT_EQ(site.phase(), "ROLLBACK_COMPLETE");
  EXPECT_THAT(site.events("A"), testing::Contains("CREATE_FAILED"));
}

TEST_F(Stacks, OnFailureSaysWhatHappens) {
  site.refuses = {"two"};
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2))}), "DO_NOTHING");
  site.settle();
  EXPECT_EQ(site.phase(), "CREATE_FAILED");
  EXPECT_EQ(site.api.all("clusters").size(), 2u);
  EXPECT_EQ(site.reason("B"), "no machines");
  site.ask("Delete");
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
  EXPECT_TRUE(site.api.all("clusters").empty());

  site.create(side({resource("B", "two", spec(2), {}, "RetainExceptOnCreate")}), "DELETE");
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
  EXPECT_TRUE(site.api.all("clusters").empty());
}

TEST_F(Stacks, AClusterOfThatNameIsSomebodyElses) {
  ASSERT_TRUE(site.api.create(api::kClusters, Json::object({{"metadata", Json::object({{"name", "theirs"}, {"generation", 1}, {"labels", Json::object({{api::kStackLabel, "lab"}})}})}, {"spec", spec(9)}})));
  site.create(side({resource("A", "one", spec(1)), resource("B", "theirs", spec(2))}));
  site.settle();
  EXPECT_EQ(site.phase(), "ROLLBACK_COMPLETE");
  EXPECT_TRUE(site.cluster("one").is_null());
  EXPECT_FALSE(site.cluster("theirs").is_null());
  site.ask("Delete");
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
  EXPECT_FALSE(site.cluster("theirs").is_null());
}

TEST_F(Stacks, ATimeoutEndsIt) {
  site.slow = {"one"};
  site.create(side({resource("A", "one", spec(1))}), "ROLLBACK", 1);
  for (int i = 0; i < 70; ++i) site.round();
  EXPECT_EQ(site.phase(), "ROLLBACK_IN_PROGRESS");
  EXPECT_THAT(site.stack()["status"]["reason"].string(), HasSubstr("[A]"));
  site.slow.clear();
  site.settle();
  EXPECT_EQ(site.phase(), "ROLLBACK_COMPLETE");
}

TEST_F(Stacks, AnUpdateAddsChangesAndRemoves) {
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2)), resource("K", "kept", spec(1), {}, "Retain")}));
  site.settle();
  // What others did meanwhile: a group of their own, numbers that were given out.
  Json object = site.cluster("one");
  object.child("spec").child("instanceGroups").push(group("own", 3));
  object.child("spec").child("instanceGroups").items().front().set("issued", 5);
  ASSERT_TRUE(site.api.put(api::kClusters, object));
  site.ask("Update", side({resource("A", "one", spec(4, "more")), resource("N", "new", spec(1))}));
  EXPECT_EQ(site.phase(), "UPDATE_IN_PROGRESS");
  site.settle();
  ASSERT_EQ(site.phase(), "UPDATE_COMPLETE");
  const Json groups = site.cluster("one")["spec"]["instanceGroups"];
  ASSERT_EQ(groups.items().size(), 3u);
  EXPECT_EQ(groups.items()[0]["instanceCount"].integer(), 4);
  EXPECT_EQ(groups.items()[0]["issued"].integer(), 5);
  EXPECT_EQ(groups.items()[2]["instanceGroupName"].string(), "own");
  EXPECT_FALSE(site.cluster("new").is_null());
  EXPECT_TRUE(site.cluster("two").is_null());
  EXPECT_FALSE(site.cluster("kept").is_null());
  EXPECT_EQ(site.state("B"), "") << "it is none of the stack's any more";
  EXPECT_THAT(site.events("K"), testing::Contains("DELETE_SKIPPED"));
  site.ask("Delete");
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
  ASSERT_EQ(site.api.all("clusters").size(), 1u);
  EXPECT_FALSE(site.cluster("kept").is_null());
}

TEST_F(Stacks, AnUpdateThatFailsGoesBack) {
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2))}));
  site.settle();
  site.ask("Update", side({resource("A", "one", spec(5)), resource("B", "two", spec(2, "bad"), {"A"}), resource("N", "new", spec(1))}));
  site.settle();
  ASSERT_EQ(site.phase(), "UPDATE_ROLLBACK_COMPLETE");
  EXPECT_EQ(site.counts("one"), "a:1");
  EXPECT_EQ(site.counts("two"), "a:2");
  EXPECT_TRUE(site.cluster("new").is_null());
  EXPECT_THAT(site.events("B"), testing::IsSupersetOf({"UPDATE_FAILED", "UPDATE_COMPLETE"}));
  EXPECT_EQ(api::stack_in_force(site.stack())["resources"], site.stack()["spec"]["before"]["resources"]);
  // From there it goes on.
  site.ask("Update", side({resource("A", "one", spec(3)), resource("B", "two", spec(2))}));
  EXPECT_EQ(api::stack_in_force(site.stack())["resources"], site.stack()["spec"]["target"]["resources"]);
  site.settle();
  EXPECT_EQ(site.phase(), "UPDATE_COMPLETE");
  EXPECT_EQ(site.cluster("one")["spec"]["instanceGroups"].items()[0]["instanceCount"].integer(), 3);
}

TEST_F(Stacks, AClusterThatDoesSomethingElseIsNotChanged) {
  site.create(side({resource("A", "one", spec(1))}));
  site.settle();
  site.slow = {"one"};
  site.run_clusters();
  site.ask("Update", side({resource("A", "one", spec(5))}));
  site.settle();
  EXPECT_EQ(site.phase(), "UPDATE_ROLLBACK_COMPLETE") << "there was nothing to take back";
  EXPECT_THAT(site.stack()["status"]["events"].items().empty() ? "" : kube::print_json(site.stack()["status"]["events"]), HasSubstr("Cluster one is Updating: it can be updated when it is InService"));
  EXPECT_EQ(site.counts("one"), "a:1");
}

TEST_F(Stacks, AClusterThatIsGoneCannotBeBroughtBack) {
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2))}));
  site.settle();
  site.ask("Update", side({resource("A", "one", spec(5)), resource("B", "two", spec(3))}));
  while (site.counts("two") != "a:3") site.round();
  site.slow = {"two"};
  for (int i = 0; i < 8; ++i) site.round();
  ASSERT_EQ(site.phase(), "UPDATE_IN_PROGRESS");
  site.api.all("clusters").erase({"", "one"});
  site.api.all("clusters").erase({"", "two"});
  site.settle();
  EXPECT_EQ(site.phase(), "UPDATE_ROLLBACK_FAILED");
  site.ask("Delete");
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
}

TEST_F(Stacks, OneThatCannotGoBackLeavesNoOtherBehind) {
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2)), resource("D", "three", spec(1))}));
  site.settle();
  site.ask("Update", side({resource("A", "one", spec(5)), resource("B", "two", spec(3)), resource("D", "three", spec(1, "bad")), resource("N", "new", spec(1))}));
  while (site.counts("two") != "a:3" || site.counts("one") != "a:5" || site.cluster("new").is_null()) site.round();
  site.api.all("clusters").erase({"", "one"});
  site.settle();
  ASSERT_EQ(site.phase(), "UPDATE_ROLLBACK_FAILED");
  EXPECT_EQ(site.state("A"), "UPDATE_FAILED");
  EXPECT_EQ(site.counts("two"), "a:2");
  EXPECT_EQ(site.counts("three"), "a:1");
  EXPECT_TRUE(site.cluster("new").is_null()) << "the next update knows nothing of it";
  EXPECT_EQ(site.state("N"), "");
  // From there it goes on, without the one that is gone.
  site.ask("Update", side({resource("B", "two", spec(4)), resource("D", "three", spec(1))}));
  site.settle();
  EXPECT_EQ(site.phase(), "UPDATE_COMPLETE");
  EXPECT_EQ(site.counts("two"), "a:4");
}

TEST_F(Stacks, APlanThatWasGivenIsTakenBack) {
  const auto with_plan = [](Json of) {
    of.child("instanceGroups").items()[0].set("trainingPlanArn", "arn:plan");
    return of;
  };
  const auto plan = [&] {
    const Json now = site.cluster("one");
    return now["spec"]["instanceGroups"].items().at(0)["trainingPlanArn"].string();
  };
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(1))}));
  site.settle();
  site.ask("Update", side({resource("A", "one", with_plan(spec(1))), resource("B", "two", spec(1, "bad"), {"A"})}));
  while (plan() != "arn:plan") site.round();
  site.settle();
  ASSERT_EQ(site.phase(), "UPDATE_ROLLBACK_COMPLETE");
  EXPECT_EQ(plan(), "");
  // An update takes it out, too.
  site.ask("Update", side({resource("A", "one", with_plan(spec(1))), resource("B", "two", spec(1))}));
  site.settle();
  ASSERT_EQ(plan(), "arn:plan");
  site.ask("Update", side({resource("A", "one", spec(1)), resource("B", "two", spec(1))}));
  site.settle();
  EXPECT_EQ(plan(), "");
  // One that somebody gave by UpdateCluster stays.
  Json object = site.cluster("one");
  object.child("spec").child("instanceGroups").items()[0].set("trainingPlanArn", "arn:theirs");
  ASSERT_TRUE(site.api.put(api::kClusters, object));
  site.ask("Update", side({resource("A", "one", spec(2)), resource("B", "two", spec(1))}));
  site.settle();
  EXPECT_EQ(site.counts("one"), "a:2");
  EXPECT_EQ(plan(), "arn:theirs");
}

// A write of the change is under way for long, and arrives when the stack has gone back: it finds another version.
TEST_F(Stacks, AChangeThatComesLateDoesNotCome) {
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(1))}));
  site.settle();
  site.ask("Update", side({resource("A", "one", spec(5)), resource("B", "two", spec(1, "bad"))}));
  std::optional<Json> late;
  site.world->holds = [&](const kube::Resource& of, const Json& object) {
    if (of != api::kClusters || kube::name_of(object) != "one" || late) return false;
    late = object;
    return true;
  };
  while (!late) site.round();
  // The server that wrote it is believed dead; the others go on, and the change of the other cluster fails.
  site.restart();
  site.settle();
  ASSERT_EQ(site.phase(), "UPDATE_ROLLBACK_COMPLETE");
  EXPECT_FALSE(site.world->update(api::kClusters, *late));
  EXPECT_EQ(site.counts("one"), "a:1");
}

TEST_F(Stacks, WhatTheApiRefusesForGoodHasFailed) {
  const auto refusing = [&](const std::string& name, Code code) {
    site.world->refusal = [name, code](const kube::Resource& of, const Json& object) -> std::optional<Error> { return of == api::kClusters && kube::name_of(object) == name ? std::optional(Error{code, "no such member"}) : std::nullopt; };
  };
  refusing("two", Code::Invalid);
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(1))}));
  site.settle();
  EXPECT_EQ(site.phase(), "ROLLBACK_COMPLETE");
  EXPECT_THAT(site.events("B"), testing::Contains("CREATE_FAILED"));
  EXPECT_THAT(kube::print_json(site.stack()["status"]["events"]), HasSubstr("no such member"));
  EXPECT_TRUE(site.api.all("clusters").empty());
  site.ask("Delete");
  site.settle();
  ASSERT_TRUE(site.stack().is_null());

  site.world->refusal = nullptr;
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(1))}));
  site.settle();
  refusing("one", Code::Forbidden);
  site.ask("Update", side({resource("A", "one", spec(5)), resource("B", "two", spec(1))}));
  site.settle();
  EXPECT_THAT(site.events("A"), testing::Contains("UPDATE_FAILED"));
  EXPECT_EQ(site.phase(), "UPDATE_ROLLBACK_FAILED") << "the way back is refused, too";
  site.world->refusal = nullptr;
  site.ask("Update", side({resource("A", "one", spec(3)), resource("B", "two", spec(1))}));
  site.settle();
  EXPECT_EQ(site.phase(), "UPDATE_COMPLETE");
  // What comes and goes is tried again.
  refusing("one", Code::Unavailable);
  site.ask("Update", side({resource("A", "one", spec(4)), resource("B", "two", spec(1))}));
  site.settle();
  EXPECT_EQ(site.phase(), "UPDATE_IN_PROGRESS");
  site.world->refusal = nullptr;
  site.settle();
  EXPECT_EQ(site.phase(), "UPDATE_COMPLETE");
}

TEST_F(Stacks, DeletedByHandItsClustersGoWithIt) {
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(1), {"A"}), resource("K", "kept", spec(1), {}, "RetainExceptOnCreate")}));
  site.settle();
  site.slow = {"two"};
  ASSERT_TRUE(site.api.remove(api::kStacks, {"", "lab"}));
  for (int i = 0; i < 6; ++i) site.round();
  EXPECT_EQ(site.phase(), "DELETE_IN_PROGRESS");
  EXPECT_FALSE(kube::deleting(site.cluster("one"))) << "what others depend on goes after them";
  site.slow.clear();
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
  ASSERT_EQ(site.api.all("clusters").size(), 1u);
  EXPECT_FALSE(site.cluster("kept").is_null());
}

TEST_F(Stacks, WhileItIsMadeItCanBeDeleted) {
  site.slow = {"one"};
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(1), {"A"})}));
  for (int i = 0; i < 5; ++i) site.round();
  site.ask("Delete");
  EXPECT_EQ(site.phase(), "DELETE_IN_PROGRESS");
  site.slow.clear();
  site.settle();
  EXPECT_TRUE(site.stack().is_null());
  EXPECT_TRUE(site.api.all("clusters").empty());
}

TEST_F(Stacks, AnotherStackOfTheNameHasNothingOfThis) {
  site.create(side({resource("A", "one", spec(1))}));
  site.settle();
  // Its object was lost, and one of its name is there.
  site.api.all("stacks").clear();
  site.create(side({resource("A", "one", spec(2))}));
  site.settle();
  EXPECT_EQ(site.phase(), "ROLLBACK_COMPLETE");
  EXPECT_EQ(site.cluster("one")["spec"], spec(1));
}

// A whole life, with a server that dies at one of its writes: what comes of it is the same.
struct Life {
  StackSite site;
  std::string seen;
  int writes = 0;
  explicit Life(int death, WorldApi::Death how) {
    left_ = death;
    how_ = how;
    site.refuses = {"failing"};
    site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2), {"A"})}));
    settle();
    site.ask("Update", side({resource("A", "one", spec(3)), resource("B", "two", spec(2, "bad"), {"A"}), resource("N", "new", spec(1))}));
    settle();
    site.ask("Update", side({resource("A", "one", spec(4)), resource("N", "new", spec(1))}));
    settle();
    // One that is busy fails the change, which goes back by a fence.
    site.slow = {"one"};
    site.run_clusters();
    site.ask("Update", side({resource("A", "one", spec(6)), resource("N", "new", spec(2))}));
    settle();
    site.slow.clear();
    settle();
    // One that is gone cannot go back; the other does, and what was made goes.
    site.api.all("clusters").erase({"", "one"});
    site.ask("Update", side({resource("A", "one", spec(7), {"N"}), resource("B", "two", spec(1)), resource("N", "new", spec(2))}));
    settle();
    site.ask("Delete");
    settle();
    site.create(side({resource("A", "one", spec(1)), resource("F", "failing", spec(1), {"A"})}));
    settle();
  }

 private:
  void settle() {
    for (int i = 0, still = 0; i < 300 && still < 4; ++i) {
      site.world->dies_at = left_ < 0 ? -1 : left_ - writes + site.world->writes;
      site.world->how = how_;
      const int before_writes = site.world->writes;
      const std::string before = site.picture();
      site.round();
      writes += site.world->writes - before_writes;
      if (site.world->dead) {
        left_ = -1;
        site.restart();
      }
      still = site.picture() == before ? still + 1 : 0;
    }
    seen += site.phase() + ":";
    const Json now = site.stack();
    for (const Json& one : now["status"]["resources"].items()) seen += one["logicalId"].string() + "=" + one["status"].string() + " ";
    // Those that do not depend on one another may come in any order.
    for (const char* const id : {"lab", "A", "B", "N", "F"})
      for (const std::string& event : site.events(id)) seen += event + ",";
    for (const auto& [key, object] : site.api.all("clusters")) seen += key.name + kube::print_json(object["spec"]) + object["metadata"]["annotations"][api::kStackResource].string() + " ";
    seen += "\n";
  }
  int left_ = -1;
  WorldApi::Death how_;
};

TEST(StackLife, AServerMayDieAtAnyWrite) {
  const Life whole(-1, WorldApi::Death::Before);
  EXPECT_THAT(whole.seen, HasSubstr("CREATE_COMPLETE:A=CREATE_COMPLETE B=CREATE_COMPLETE"));
  EXPECT_THAT(whole.seen, HasSubstr("UPDATE_ROLLBACK_COMPLETE:A=UPDATE_COMPLETE B=UPDATE_COMPLETE"));
  EXPECT_THAT(whole.seen, HasSubstr("UPDATE_COMPLETE:A=UPDATE_COMPLETE N=CREATE_COMPLETE"));
  EXPECT_THAT(whole.seen, HasSubstr("ROLLBACK_COMPLETE:A=DELETE_COMPLETE F=DELETE_COMPLETE"));
  EXPECT_THAT(whole.seen, HasSubstr("UPDATE_ROLLBACK_COMPLETE:A=UPDATE_COMPLETE N=UPDATE_COMPLETE"));
  EXPECT_THAT(whole.seen, HasSubstr("UPDATE_ROLLBACK_FAILED:A=UPDATE_FAILED N=UPDATE_COMPLETE"));
  ASSERT_GT(whole.writes, 65);
  for (const auto how : {WorldApi::Death::Before, WorldApi::Death::After})
    for (int death = 0; death < whole.writes; ++death) {
      const Life life(death, how);
      ASSERT_EQ(life.seen, whole.seen) << "death at write " << death << (how == WorldApi::Death::Before ? ", before it" : ", after it");
    }
}

// Two servers that both believe to lead, over caches and answers of their own: each decides on what it has just read, and writes by version.
TEST(StackLife, TwoServersDoNothingTwice) {
  StackSite site;
  WorldApi other_world(site.checked);
  StackController other(other_world, site.clock);
  site.create(side({resource("A", "one", spec(1)), resource("B", "two", spec(2), {"A"})}));
  Rng rng(7);
  const auto settle = [&] {
    for (int i = 0; i < 60; ++i) {
      (void)(rng.below(2) == 0 ? other : *site.controller).reconcile({"", "lab"});
      if (rng.below(2) == 0) site.run_clusters();
      site.check();
    }
  };
  settle();
  EXPECT_EQ(site.phase(), "CREATE_COMPLETE");
  site.ask("Update", side({resource("A", "one", spec(3))}));
  settle();
  EXPECT_EQ(site.phase(), "UPDATE_COMPLETE");
  EXPECT_EQ(site.cluster("one")["metadata"]["generation"].integer(), 2);
  EXPECT_TRUE(site.cluster("two").is_null());
}

}  // namespace
}  // namespace fairlead::stacks
