// SPDX-License-Identifier: Apache-2.0
// Jobs: plans by table, and the controller on the real registry, which plays the nodes itself.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/job_controller.h"
#include "apiserver/job_plan.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/registry_test_kit.h"

namespace fairlead::apiserver::test {
namespace {

using testing::ElementsAre;

TEST(JobIndexes, ArePrintedAsKubernetesDoes) {
  EXPECT_EQ(print_indexes({}), "");
  EXPECT_EQ(print_indexes({0, 1, 2, 5, 7, 8}), "0-2,5,7,8");
  EXPECT_EQ(parse_indexes("0-2,5,7,8", 8), (std::set<int>{0, 1, 2, 5, 7}));
  EXPECT_EQ(parse_indexes("x,1-,3", 8), (std::set<int>{3}));
  EXPECT_EQ(parse_indexes("0-2000000000", 3), (std::set<int>{0, 1, 2}));
}

// An API that stops answering writes after so many, as if the process had ended.
class Mortal final : public kube::KubeApi {
 public:
  explicit Mortal(kube::KubeApi& api) : api_(api) {}
  int writes_left = -1;
  Result<Json> get(const kube::Resource& r, const kube::ObjectKey& k) override { return api_.get(r, k); }
  Result<kube::List> list(const kube::Resource& r, const std::string& s, const kube::ListOptions& o) override { return api_.list(r, s, o); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& r, const std::string& s, const kube::WatchOptions& o) override { return api_.watch(r, s, o); }
  Result<Json> create(const kube::Resource& r, const Json& o) override { return dead() ? over() : api_.create(r, o); }
  Result<Json> update(const kube::Resource& r, const Json& o) override { return dead() ? over() : api_.update(r, o); }
  Result<Json> update_status(const kube::Resource& r, const Json& o) override { return dead() ? over() : api_.update_status(r, o); }
  Result<Json> patch(const kube::Resource& r, const kube::ObjectKey& k, kube::PatchType t, const Json& p, const std::string& s) override { return dead() ? over() : api_.patch(r, k, t, p, s); }
  Result<Json> post(const kube::Resource& r, const kube::ObjectKey& k, const std::string& s, const Json& b) override { return dead() ? over() : api_.post(r, k, s, b); }
  Result<void> remove(const kube::Resource& r, const kube::ObjectKey& k, const kube::DeleteOptions& o) override {
    if (dead()) return fail(Code::Unavailable, "the process has ended");
    return api_.remove(r, k, o);
  }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override {
    return fail(Code::Unsupported, "exec");
  }

 private:
  bool dead() {
    if (writes_left == 0) return true;
    if (writes_left > 0) --writes_left;
    return false;
  }
  static std::unexpected<Error> over() { return fail(Code::Unavailable, "the process has ended"); }
  kube::KubeApi& api_;
};

struct JobWorld : World {
  JobWorld() : mortal(*api) {}
  void make(std::string_view spec, const std::string& restart = "Never") {
    const auto made = create(*kind("jobs", "batch"), json(fmt::format("{{metadata: {{name: j}}, spec: {{{}{}template: {{spec: {{restartPolicy: {}, containers: [{{name: c, image: i}}]}}}}}}}}", spec,
                                                                       spec.empty() ? "" : ", ", restart)), "default");
    if (!made) ADD_FAILURE() << made.error().message;
  }
  kube::Next step() {
    JobController controller(mortal, clock);
    auto done = controller.reconcile({"default", "j"});
    if (!done && mortal.writes_left != 0) ADD_FAILURE() << done.error().message;
    for (const Json& pod : pods(true)) (void)controller.reconcile({"default", "!" + kube::name_of(pod)});
    return done.value_or(kube::Next{});
  }
  std::vector<Json> pods(bool all = false) const {
    std::vector<Json> out;
    auto list = api->list(kube::resources::pods, "default");
    for (Json& pod : list->items)
      if (all || !kube::deleting(pod)) out.push_back(std::move(pod));
    return out;
  }
  std::vector<Json> active() const {
    std::vector<Json> out;
    for (Json& pod : pods())
      if (pod["status"]["phase"].string() == "Pending" || pod["status"]["phase"].string() == "Running") out.push_back(std::move(pod));
    return out;
  }
  void end(Json pod, const std::string& phase) {
    pod.child("status").set("phase", phase);
    const Json state = Json::object({{"terminated", Json::object({{"exitCode", phase == "Failed" ? 1 : 0}, {"finishedAt", print_time(clock.now())}})}});
    pod.child("status").set("containerStatuses", Json::array({Json::object({{"name", "c"}, {"image", "i"}, {"imageID", ""}, {"ready", false}, {"restartCount", 0}, {"state", state}})}));
    const auto done = api->update_status(kube::resources::pods, pod);
    if (!done) ADD_FAILURE() << done.error().message;
  }
  Json job() const { return get(*kind("jobs", "batch"), {"default", "j"}); }
  Json status() const { return job()["status"]; }
  std::vector<std::string> conditions() const {
    std::vector<std::string> out;
    const Json now = status();
    for (const Json& one : now["conditions"].items()) out.push_back(fmt::format("{}={} {}", one["type"].string(), one["status"].string(), one["reason"].string()));
    return out;
  }
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    auto list = api->list(kube::resources::events, "default");
    for (const Json& event : list->items) out.push_back(event["reason"].string());
    std::sort(out.begin(), out.end());
    return out;
  }
  Mortal mortal;
};

TEST(Jobs, RunToCompletionAndCountEveryPodOnce) {
  JobWorld world;
  world.make("completions: 3, parallelism: 2");
  world.step();
  ASSERT_EQ(world.active().size(), 2u);
  const Json pod = world.active()[0];
  EXPECT_TRUE(kube::name_of(pod).starts_with("j-"));
  EXPECT_TRUE(kube::has_finalizer(pod, workloads::job_finalizer));
  EXPECT_EQ(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].string(), "j");
  EXPECT_EQ((*kube::controller_of(pod))["kind"].string(), "Job");
  EXPECT_EQ(world.status()["active"].integer(), 2);
  EXPECT_EQ(world.status()["startTime"].string(), print_time(world.clock.now()));
  world.end(pod, "Succeeded");
  world.step();
  EXPECT_EQ(world.active().size(), 2u);
  EXPECT_EQ(world.status()["succeeded"].integer(), 1);
  EXPECT_FALSE(kube::has_finalizer(*world.api->get(kube::resources::pods, kube::key_of(pod)), workloads::job_finalizer));
  for (const Json& one : world.active()) world.end(one, "Succeeded");
  world.step();
  EXPECT_EQ(world.status()["succeeded"].integer(), 3);
  EXPECT_EQ(world.status()["active"].integer(), 0);
  EXPECT_THAT(world.conditions(), ElementsAre("SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"));
  EXPECT_EQ(world.status()["completionTime"].string(), print_time(world.clock.now()));
  EXPECT_THAT(world.events(), ElementsAre("Completed", "SuccessfulCreate", "SuccessfulCreate", "SuccessfulCreate"));
  const Revision before = world.registry->revision();
  world.step();
  EXPECT_EQ(world.registry->revision(), before) << "nothing is left to do";
}

TEST(Jobs, IndexedPodsHaveTheirIndexAndAreReplacedByIt) {
  JobWorld world;
  world.make("completions: 3, parallelism: 3, completionMode: Indexed");
  world.step();
  ASSERT_EQ(world.active().size(), 3u);
  const Json second = world.active()[1];
  EXPECT_EQ(second["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].string(), "1");
  EXPECT_EQ(second["spec"]["hostname"].string(), "j-1");
  EXPECT_EQ(second["spec"]["containers"].items()[0]["env"].items()[0], json("{name: JOB_COMPLETION_INDEX, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: \"metadata.labels['batch.kubernetes.io/job-completion-index']\"}}}"));
  world.end(second, "Failed");
  world.end(world.active()[0], "Succeeded");
  const kube::Next next = world.step();
  EXPECT_EQ(next.again_after, 10s) << "a failed one is replaced after a while";
  EXPECT_EQ(world.status()["completedIndexes"].string(), "0");
  EXPECT_EQ(world.status()["failed"].integer(), 1);
  world.clock.advance(10s);
  world.step();
  ASSERT_EQ(world.active().size(), 2u);
  for (const Json& one : world.active()) world.end(one, "Succeeded");
  world.step();
  EXPECT_EQ(world.status()["completedIndexes"].string(), "0-2");
  EXPECT_EQ(world.status()["succeeded"].integer(), 3);
  EXPECT_TRUE(kube::condition_is_true(world.job(), "Complete"));
}

TEST(Jobs, FailAfterTheLimit) {
  JobWorld world;
  world.make("backoffLimit: 1, parallelism: 2, completions: 5");
  for (int i = 0; i < 2; ++i) {
    world.step();
    ASSERT_FALSE(world.active().empty());
    world.end(world.active()[0], "Failed");
    world.step();
    world.clock.advance(20s);
  }
  world.step();
  EXPECT_THAT(world.conditions(), testing::Contains("FailureTarget=True BackoffLimitExceeded"));
  world.step();
  EXPECT_TRUE(kube::condition_is_true(world.job(), "Failed"));
  EXPECT_TRUE(world.active().empty());
  EXPECT_THAT(world.events(), testing::Contains("BackoffLimitExceeded"));
  EXPECT_TRUE(world.status()["completionTime"].is_null());
}

TEST(Jobs, EndAtTheirDeadline) {
  JobWorld world;
  world.make("activeDeadlineSeconds: 60");
  EXPECT_EQ(world.step().again_after, 60s);
  world.clock.advance(60s);
  world.step();
  world.step();
  EXPECT_THAT(world.conditions(), ElementsAre("FailureTarget=True DeadlineExceeded", "Failed=True DeadlineExceeded"));
}

TEST(Jobs, AreSuspendedAndResumed) {
  JobWorld world;
  world.make("suspend: true, parallelism: 2, completions: 2");
  world.step();
  EXPECT_TRUE(world.active().empty());
  EXPECT_THAT(world.conditions(), ElementsAre("Suspended=True JobSuspended"));
  EXPECT_TRUE(world.status()["startTime"].is_null());
  world.must(world.patch(*world.kind("jobs", "batch"), {"default", "j"}, "{spec: {suspend: false}}"));
  world.step();
  EXPECT_EQ(world.active().size(), 2u);
  EXPECT_THAT(world.conditions(), ElementsAre("Suspended=False JobResumed"));
  world.must(world.patch(*world.kind("jobs", "batch"), {"default", "j"}, "{spec: {suspend: true}}"));
  world.step();
  EXPECT_TRUE(world.pods(true).empty());
  EXPECT_EQ(world.status()["failed"].integer(), 0) << "who was sent away did not fail";
  EXPECT_THAT(world.events(), testing::IsSupersetOf({"Suspended", "Resumed", "SuccessfulDelete"}));
}

TEST(Jobs, AreForgottenWhenTheirTimeIsOver) {
  JobWorld world;
  world.make("ttlSecondsAfterFinished: 100");
  world.step();
  world.end(world.active()[0], "Succeeded");
  EXPECT_EQ(world.step().again_after, 100s);
  world.clock.advance(100s);
  world.step();
  EXPECT_TRUE(kube::deleting(world.job())) << "foreground: its pods go first";
}

TEST(Jobs, PodsOfAGoneJobAreLetGo) {
  JobWorld world;
  world.make("parallelism: 2, completions: 2");
  world.step();
  ASSERT_TRUE(world.api->remove(workloads::jobs, {"default", "j"}));
  for (const Json& pod : world.pods()) ASSERT_TRUE(world.api->remove(kube::resources::pods, kube::key_of(pod)));
  EXPECT_EQ(world.pods(true).size(), 2u);
  world.step();
  EXPECT_TRUE(world.pods(true).empty());
}

TEST(Jobs, ParallelismMayShrinkAndGrow) {
  JobWorld world;
  world.make("parallelism: 3, completions: 9");
  world.step();
  world.must(world.patch(*world.kind("jobs", "batch"), {"default", "j"}, "{spec: {parallelism: 1}}"));
  world.step();
  EXPECT_EQ(world.active().size(), 1u);
  EXPECT_EQ(world.status()["failed"].integer(), 0);
  world.must(world.patch(*world.kind("jobs", "batch"), {"default", "j"}, "{spec: {parallelism: 4}}"));
  world.step();
  EXPECT_EQ(world.active().size(), 4u);
}

// A controller that dies after every number of writes: another one comes to the same end.
TEST(Jobs, SurviveTheirControllerAtEveryStep) {
  const auto run = [](int dies_after, const std::string& mode) {
    JobWorld world;
    world.make("completions: 3, parallelism: 2, completionMode: " + mode);
    bool failed_once = false;
    world.mortal.writes_left = dies_after;
    for (int round = 0; round < 12 && !kube::condition_is_true(world.job(), "Complete"); ++round) {
      world.step();
      world.mortal.writes_left = -1;
      if (round % 2 == 0) world.mortal.writes_left = dies_after;
      for (const Json& pod : world.active()) {
        world.end(pod, failed_once ? "Succeeded" : "Failed");
        failed_once = true;
      }
      world.clock.advance(60s);
    }
    world.mortal.writes_left = -1;
    for (int i = 0; i < 4; ++i) world.step();
    const Json status = world.status();
    for (const Json& pod : world.pods(true)) EXPECT_FALSE(kube::has_finalizer(pod, workloads::job_finalizer));
    EXPECT_EQ(status["active"].integer(), 0);
    return fmt::format("{} {} {} {}", kube::condition_is_true(world.job(), "Complete"), status["succeeded"].integer(), status["failed"].integer(), print_json(status["uncountedTerminatedPods"]));
  };
  for (const char* mode : {"NonIndexed", "Indexed"}) {
    const std::string end = run(-1, mode);
    EXPECT_EQ(end, "true 3 1 {}");
    for (int writes = 0; writes < 25; ++writes) EXPECT_EQ(run(writes, mode), end) << mode << " dies after " << writes << " writes";
  }
}

TEST(Jobs, AreRefusedInKubernetesWords) {
  World world;
  const auto of = [&](std::string_view body) { return message_of(world.create(*world.kind("jobs", "batch"), json(body), "default")); };
  EXPECT_EQ(of("{metadata: {name: j}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}"),
            "Job.batch \"j\" is invalid: spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"");
  EXPECT_EQ(of("{metadata: {name: j}, spec: {completionMode: Indexed, parallelism: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"),
            "Job.batch \"j\" is invalid: spec.completions: Required value: when completion mode is Indexed");
  EXPECT_THAT(of("{metadata: {name: j}, spec: {selector: {matchLabels: {a: b}}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"), testing::HasSubstr("`selector` not auto-generated"));
}

}  // namespace
}  // namespace fairlead::apiserver::test
