// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/machine_controller.h"

#include <gmock/gmock.h>

#include "fleet/fake_host.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::IsEmpty;

// Objects by resource and key, with versions and finalizers: what the controller needs of an API, read back at once.
class TinyApi final : public kube::KubeApi, public kube::Caches {
 public:
  struct View final : kube::Reader {
    std::map<kube::ObjectKey, Json>* objects = nullptr;
    std::optional<Json> get(const kube::ObjectKey& key) const override {
      const auto found = objects->find(key);
      return found == objects->end() ? std::nullopt : std::optional(found->second);
    }
    std::vector<Json> list(const std::string&) const override {
      std::vector<Json> all;
      for (const auto& [key, object] : *objects) all.push_back(object);
      return all;
    }
  };
  const kube::Reader& of(const kube::Resource& resource) const override {
    View& view = views_[resource.plural];
    view.objects = &objects_[resource.plural];
    return view;
  }
  std::map<kube::ObjectKey, Json>& all(const std::string& plural) { return objects_[plural]; }

  Result<Json> put(const kube::Resource& resource, Json object) {
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    const auto key = kube::key_of(object);
    if (kube::deleting(object) && object["metadata"]["finalizers"].items().empty())
      objects_[resource.plural].erase(key);
    else
      objects_[resource.plural].insert_or_assign(key, object);
    return object;
  }
  Result<Json> create(const kube::Resource& resource, const Json& object) override { return put(resource, object); }
  Result<Json> update(const kube::Resource& resource, const Json& object) override {
    auto& all = objects_[resource.plural];
    const auto found = all.find(kube::key_of(object));
    if (found == all.end()) return fail(Code::NotFound, "not found");
    if (kube::version_of(found->second) != kube::version_of(object)) return fail(Code::Conflict, "stale");
    return put(resource, object);
  }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override {
    ++status_writes;
    return update(resource, object);
  }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions&) override {
    auto& all = objects_[resource.plural];
    const auto found = all.find(key);
    if (found == all.end()) return fail(Code::NotFound, "not found");
    Json object = found->second;
    object.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
    if (auto done = put(resource, object); !done) return std::unexpected(std::move(done.error()));
    return {};
  }
  Result<Json> get(const kube::Resource&, const kube::ObjectKey&) override { return fail(Code::Unsupported, "get"); }
  Result<kube::List> list(const kube::Resource&, const std::string&, const kube::ListOptions&) override { return fail(Code::Unsupported, "list"); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return fail(Code::Unsupported, "watch"); }
  Result<Json> patch(const kube::Resource&, const kube::ObjectKey&, kube::PatchType, const Json&, const std::string&) override { return fail(Code::Unsupported, "patch"); }
  Result<Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const Json&) override { return fail(Code::Unsupported, "post"); }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override {
    return fail(Code::Unsupported, "exec");
  }
  int status_writes = 0;

 private:
  std::int64_t version_ = 0;
  mutable std::map<std::string, std::map<kube::ObjectKey, Json>> objects_;
  mutable std::map<std::string, View> views_;
};

class Machines : public testing::Test {
 protected:
  Machines() {
    host_.on_step = [this](const std::string& node, Step step) { steps_.push_back(node + " " + name(step)); };
    controller_.start(api_);
  }
  void add(const std::string& machine) {
    Json object = Json::object({{"apiVersion", "fairlead.dev/v1alpha1"}, {"kind", "Machine"}, {"metadata", Json::object({{"name", machine}, {"uid", "uid-" + machine}})},
                                {"spec", Json::object({{"local", Json::object({{"cpu", "2"}})}})}});
    ASSERT_TRUE(api_.create(kube::resources::machines, object));
  }
  void set(const std::string& machine, const std::string& field, const std::string& value) {
    Json object = api_.all("machines").at({"", machine});
    object.child("spec").set(field, value);
    ASSERT_TRUE(api_.update(kube::resources::machines, object));
  }
  const Json& object(const std::string& machine) { return api_.all("machines").at({"", machine}); }
  std::string phase(const std::string& machine) { return object(machine)["status"]["phase"].string(); }
  // Reconciles all machines until a whole round writes nothing. Errors are retried, as the runner would.
  void settle() {
    for (int round = 0; round < 50; ++round) {
      const auto before = api_.all("machines");
      for (const auto& [key, machine] : before) (void)controller_.reconcile(key);
      if (api_.all("machines") == before) return;
    }
    ADD_FAILURE() << "does not settle";
  }

  ManualClock clock_{Instant(std::chrono::hours(500'000))};
  TinyApi api_;
  FakeHost host_{clock_};
  MachineController controller_{api_, host_, clock_};
  std::vector<std::string> steps_;
};

TEST_F(Machines, AMachineBecomesANode) {
  add("worker-0");
  settle();
  EXPECT_THAT(steps_, ElementsAre("worker-0 start", "worker-0 connect"));
  const Json& status = object("worker-0")["status"];
  EXPECT_EQ(status["phase"].string(), "Running");
  EXPECT_EQ(status["address"].string(), "10.77.1.1");
  EXPECT_EQ(status["podCIDR"].string(), "10.78.1.0/24");
  EXPECT_EQ(status["starts"].integer(), 1);
  EXPECT_GT(status["pid"].integer(), 0);
  EXPECT_TRUE(kube::condition_is_true(object("worker-0"), "Ready"));
}

TEST_F(Machines, TheSeatIsWrittenBeforeAnythingIsMade) {
  add("a");
  ASSERT_TRUE(controller_.reconcile({"", "a"}));  // finalizer
  ASSERT_TRUE(controller_.reconcile({"", "a"}));  // seat
  EXPECT_EQ(object("a")["status"]["index"].integer(), 1);
  EXPECT_THAT(steps_, IsEmpty());
}

TEST_F(Machines, SeatsAreDistinctStableAndReused) {
  for (const char* one : {"a", "b", "c"}) add(one);
  settle();
  EXPECT_EQ(object("b")["status"]["index"].integer(), 2);
  ASSERT_TRUE(api_.remove(kube::resources::machines, {"", "a"}, {}));
  settle();
  EXPECT_FALSE(api_.all("machines").contains({"", "a"}));
  EXPECT_EQ(object("b")["status"]["index"].integer(), 2);
  add("d");
  settle();
  EXPECT_EQ(object("d")["status"]["index"].integer(), 1);
}

TEST_F(Machines, ARunningNodeIsAdoptedByANewController) {
  add("a");
  settle();
  steps_.clear();
  const int writes = api_.status_writes;
  MachineController second(api_, host_, clock_);
  second.start(api_);
  ASSERT_TRUE(second.reconcile({"", "a"}));
  EXPECT_THAT(steps_, IsEmpty());
  EXPECT_EQ(api_.status_writes, writes);
}

TEST_F(Machines, PowerAndLinkFollowTheSpec) {
  add("a");
  settle();
  steps_.clear();
  set("a", "link", "Cut");
  settle();
  EXPECT_EQ(phase("a"), "Cut");
  EXPECT_EQ(kube::find_condition(object("a"), "Ready")->operator[]("reason").string(), "Cut");
  set("a", "link", "Connected");
  settle();
  EXPECT_EQ(phase("a"), "Running");
  set("a", "power", "Off");
  settle();
  EXPECT_EQ(phase("a"), "Off");
  EXPECT_FALSE(object("a")["status"].has("pid"));
  clock_.advance(1min);
  set("a", "power", "On");
  settle();
  EXPECT_EQ(phase("a"), "Running");
  EXPECT_EQ(object("a")["status"]["starts"].integer(), 2);
  EXPECT_THAT(steps_, ElementsAre("a cut", "a heal", "a kill", "a start", "a connect"));
}

TEST_F(Machines, ADeadNodeIsStartedAgainButNotInALoop) {
  add("a");
  settle();
  host_.crash("a");
  settle();
  EXPECT_EQ(phase("a"), "Pending");
  const auto next = controller_.reconcile({"", "a"});
  ASSERT_TRUE(next);
  ASSERT_TRUE(next->again_after);
  clock_.advance(*next->again_after);
  settle();
  EXPECT_EQ(phase("a"), "Running");
}

TEST_F(Machines, AFailedStepIsToldAndTriedAgain) {
  add("a");
  host_.fail_next(Step::Connect, 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(controller_.reconcile({"", "a"}));
  const auto outcome = controller_.reconcile({"", "a"});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "connect machine a: connect: made to fail");
  EXPECT_EQ(kube::find_condition(object("a"), "Ready")->operator[]("reason").string(), "StepFailed");
  settle();
  EXPECT_EQ(phase("a"), "Running");
  EXPECT_THAT(steps_, ElementsAre("a start", "a connect"));
}

TEST_F(Machines, ADeletedOneLeavesNothing) {
  add("a");
  settle();
  ASSERT_TRUE(api_.create(kube::resources::nodes, Json::object({{"metadata", Json::object({{"name", "a"}})}})));
  ASSERT_TRUE(api_.remove(kube::resources::machines, {"", "a"}, {}));
  host_.fail_next(Step::Remove, 2);
  settle();
  settle();
  EXPECT_THAT(api_.all("machines"), IsEmpty());
  EXPECT_THAT(api_.all("nodes"), IsEmpty());
  EXPECT_EQ(*host_.observe("a", {}), Observation{});
}

}  // namespace
}  // namespace fairlead::fleet
