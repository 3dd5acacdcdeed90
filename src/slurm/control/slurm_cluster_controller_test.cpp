// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/slurm_cluster_controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <mutex>
#include <utility>

#include "api/node_set.h"
#include "kube/fenced_api.h"
#include "kube/scripted_api.h"
#include "kube/tiny_api.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
namespace resources = kube::resources;

constexpr std::string_view kDemo = R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 1}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: cpu}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all, volumes: {spool: {volumeClaimTemplateSpec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
    worker: {size: 2, k8sNodeFilterName: all, cgroupVersion: v1, slurmd: {resources: {cpu: "1"}}}
    login: {size: 1, k8sNodeFilterName: all, sshRootPublicKeys: ["ssh-ed25519 AAAA me"]}
)";

// The controller as it stands before a real API server: only what it declares, and every write says what it was decided on.
class Controller : public testing::Test {
 protected:
  Controller() {
    controller_.start(api_);
    api_.answer = [this](const std::vector<std::string>& command) -> kube::ExecResult {
      if (command.size() > 1 && command[1] == "generation") return {.out = api_.all("configmaps").at({"lab", "demo-slurm-configs"})["data"]["generation"].string()};  // every node runs what it is given
      return answer_ ? answer_(command) : kube::ExecResult{};
    };
    auto parsed = kube::parse_yaml(kDemo);
    EXPECT_TRUE(api_.create(resources::slurm_clusters, parsed->at(0)));
  }
  ~Controller() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  static Result<std::map<std::string, std::string>> keys(Keys, const std::string& comment) { return std::map<std::string, std::string>{{"key", comment}}; }
  // Reconciles until a whole round changes nothing. Conflicts are retried, as the runner would.
  void settle() {
    for (int round = 0; round < 30; ++round) {
      const auto before = world();
      if (auto done = controller_.reconcile(key_); !done) {
        EXPECT_EQ(done.error().code, Code::Conflict) << done.error().message;
      }
      if (world() == before) return;
    }
    ADD_FAILURE() << "does not settle";
  }
  std::vector<std::map<kube::ObjectKey, Json>> world() {
    std::vector<std::map<kube::ObjectKey, Json>> out;
    for (const char* plural : {"slurmclusters", "pods", "services", "configmaps", "secrets", "persistentvolumeclaims"}) out.push_back(api_.all(plural));
    return out;
  }
  Json& object(const char* plural, const std::string& name) { return api_.all(plural).at({"lab", name}); }
  void set_pods(const char* phase, bool ready) {
    for (auto& [key, pod] : std::map(api_.all("pods"))) {
      Json next = pod;
      next.set("status", Json::object({{"phase", phase}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready ? "True" : "False"}})})}}));
      ASSERT_TRUE(api_.put(resources::pods, next));
    }
  }

  ManualClock clock_{Instant(std::chrono::hours(500'000))};
  const kube::ObjectKey key_{"lab", "demo"};
  kube::TinyApi api_;
  std::function<kube::ExecResult(const std::vector<std::string>& command)> answer_;
  kube::CheckedApi checked_{api_, kube::full_access(SlurmClusterController(api_, clock_, keys, {}))};
  kube::FencedApi fenced_{checked_, []() -> Result<std::int64_t> { return 3; }};
  SlurmClusterController controller_{fenced_, clock_, keys, {}};
};

TEST_F(Controller, MakesAClusterWithinWhatItDeclares) {
  settle();
  EXPECT_EQ(api_.all("pods").size(), 4U);
  EXPECT_EQ(api_.all("services").size(), 3U);
  EXPECT_EQ(api_.all("persistentvolumeclaims").size(), 1U);
  for (const auto& [key, pod] : api_.all("pods")) EXPECT_EQ(kube::annotations_of(pod)[kube::kEpochAnnotation], "3") << key.text();
  set_pods("Running", true);
  settle();
  EXPECT_EQ(object("slurmclusters", "demo")["status"]["phase"].string(), "Available");
  EXPECT_THAT(api_.commands, Contains(StartsWith("lab/controller-0 slurmctld /opt/fairlead/bin/fairlead-slurm reconfigure ")));
}

TEST_F(Controller, ChangesGoThroughWithinWhatItDeclares) {
  settle();
  set_pods("Running", true);
  settle();
  const auto commands = api_.commands.size();
  Json cluster = object("slurmclusters", "demo");
  cluster.child("spec").child("slurmNodes").child("worker").set("size", 3);
  cluster.child("spec").child("slurmNodes").child("controller").child("slurmctld").set("port", 6900);
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  set_pods("Failed", false);  // the ones that have ended are deleted, by uid and version
  settle();
  EXPECT_TRUE(api_.all("pods").contains({"lab", "worker-2"}));
  set_pods("Running", true);
  settle();
  EXPECT_GT(api_.commands.size(), commands) << "the changed configuration is loaded";
}

// A cache may be behind: a voter of three that it has not seen would be part of another majority.
TEST_F(Controller, NoLoneHeadIsMadeBesideAVoterOfThree) {
  Json other = *kube::parse_json(R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"controller-2","namespace":"lab","uid":"x","labels":{"fairlead.dev/slurm-role":"controller"}},
    "spec":{"containers":[{"name":"slurmctld","env":[{"name":"FAIRLEAD_HEADS","value":"a:1,b:1,c:1"}]}]}})");
  ASSERT_TRUE(api_.put(resources::pods, other));
  for (int round = 0; round < 8; ++round) (void)controller_.reconcile(key_);
  EXPECT_FALSE(api_.all("pods").contains({"lab", "controller-0"}));
  auto last = controller_.reconcile(key_);
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, Code::Unavailable);
  EXPECT_THAT(last.error().message, HasSubstr("controller-2 is there, which counts other votes"));
  ASSERT_TRUE(api_.remove(resources::pods, {"lab", "controller-2"}, {}));
  settle();
  EXPECT_TRUE(api_.all("pods").contains({"lab", "controller-0"}));
}

TEST_F(Controller, AConfigurationIsTriedOnceAndOneThatTheDaemonDoesNotSurviveIsTakenBack) {
  settle();
  set_pods("Running", true);
  settle();
  const Json before = object("configmaps", "demo-slurm-configs")["data"];
  int trials = 0, trial_status = 1, reload_status = 0;
  answer_ = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.at(1) == "check-config") return ++trials, kube::ExecResult{.exit_code = trial_status, .err = "fatal: PreemptMode=SUSPEND requires GANG too\n"};
    if (command.at(1) == "reconfigure") return {.exit_code = std::exchange(reload_status, 0), .err = "slurmctld is gone\n"};
    return {};
  };
  const auto custom = [&](const char* text) {
    Json cluster = object("slurmclusters", "demo");
    cluster.child("spec").set("customSlurmConfig", text);
    ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
    for (int i = 0; i < 8; ++i) (void)controller_.reconcile(key_);
    settle();
  };
  const auto condition = [&](const char* type) { return (*kube::find_condition(object("slurmclusters", "demo"), type))["message"].string(); };
  custom("PreemptMode=SUSPEND");
  EXPECT_EQ(trials, 1);
  EXPECT_THAT(condition("ConfigValid"), HasSubstr("spec.customSlurmConfig, line 1, PreemptMode: slurmctld refuses: fatal"));
  EXPECT_EQ(object("configmaps", "demo-slurm-configs")["data"], before);
  trial_status = 3;  // nobody knows
  custom("KillWait=5");
  EXPECT_THAT(condition("ConfigValid"), HasSubstr("could not be tried"));
  EXPECT_EQ(object("configmaps", "demo-slurm-configs")["data"], before);
  trial_status = 0;
  reload_status = 5;
  custom("KillWait=6");
  EXPECT_EQ(object("configmaps", "demo-slurm-configs")["data"], before);
  EXPECT_THAT(condition("ConfigApplied"), HasSubstr("slurmctld is gone"));
  custom("KillWait=7");
  EXPECT_THAT(object("configmaps", "demo-slurm-configs")["data"]["slurm.conf"].string(), HasSubstr("\nKillWait=7\n"));
  EXPECT_EQ(kube::condition_is_true(object("slurmclusters", "demo"), "ConfigApplied"), true);
}

// slurmctld tells each slurmd once of a configuration.
TEST_F(Controller, AWorkerThatDidNotHearOfAConfigurationIsGivenItByHand) {
  settle();
  set_pods("Running", true);
  settle();
  set_pods("Running", true);  // the workers', which come after the head
  settle();
  std::string deaf = "before", hash;
  std::vector<std::string> given;
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.size() > 1 && command[1] == "generation") return {.out = (deaf.empty() ? hash : deaf) + "\n"};
    if (command.size() > 2 && command[1] == "take-config") given.push_back(command[2]);
    return {};
  };
  Json cluster = object("slurmclusters", "demo");
  cluster.child("spec").set("customSlurmConfig", "KillWait=5");
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  for (int i = 0; i < 8; ++i) (void)controller_.reconcile(key_);
  hash = object("slurmclusters", "demo")["status"]["appliedConfigHash"].string();
  const auto condition = [&] { return (*kube::find_condition(object("slurmclusters", "demo"), "ConfigApplied"))["message"].string(); };
  ASSERT_THAT(condition(), HasSubstr("not seen yet on"));
  EXPECT_THAT(given, IsEmpty()) << "it may be on its way";
  clock_.advance(std::chrono::seconds(21));
  (void)controller_.reconcile(key_);
  EXPECT_FALSE(given.empty());
  EXPECT_THAT(given, Each(hash));
  const auto once = given.size();
  (void)controller_.reconcile(key_);
  EXPECT_EQ(given.size(), once) << "and then it has time to read it";
  clock_.advance(std::chrono::seconds(21));
  (void)controller_.reconcile(key_);
  EXPECT_EQ(given.size(), 2 * once) << "a worker that has it not yet is given it again";
  deaf.clear();
  clock_.advance(std::chrono::seconds(21));
  for (int i = 0; i < 3; ++i) (void)controller_.reconcile(key_);
  EXPECT_EQ(given.size(), 2 * once);
  EXPECT_EQ(kube::condition_is_true(object("slurmclusters", "demo"), "ConfigApplied"), true);
}

// slurmctld drops what it cannot decode, and the worker hears nothing: munge there is asked.
TEST_F(Controller, TellsWithMungesWordsWhyAWorkerDoesNotJoin) {
  settle();
  set_pods("Running", true);
  settle();
  const char* status = "STATUS:           Rewound credential (16)\nENCODE_TIME:      2026-11-23 00:49:07 +0000 (1795394947)\nDECODE_TIME:      2026-11-23 00:41:07 +0000 (1795394467)\n\n";
  answer_ = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command[0] == "munge") return {.out = "MUNGE:AwQD:\n"};
    if (command[0] == "unmunge" && *status == '\0') return {.exit_code = 14, .err = "unmunge: Error: Invalid credential"};
    if (command[0] == "unmunge") return {.exit_code = 16, .out = status};
    return {};
  };
  Json worker = object("pods", "worker-1");
  worker.child("metadata").set("creationTimestamp", print_time(clock_.now() - std::chrono::minutes(1)));
  worker.set("status", *kube::parse_json(R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"name":"slurmd","ready":false,"state":{"running":{}}},{"name":"munge","ready":true,"state":{"running":{}}}]})"));
  ASSERT_TRUE(api_.put(resources::pods, worker));
  settle();
  const auto condition = [&] { return (*kube::find_condition(object("slurmclusters", "demo"), "WorkersAvailable")); };
  EXPECT_EQ(condition()["reason"].string(), "ClocksApart");
  EXPECT_THAT(condition()["message"].string(), HasSubstr("Rewound credential (its clock is about 8 minutes behind the head's)"));
  EXPECT_THAT(api_.commands, Contains("lab/controller-0 munge munge -n"));
  EXPECT_EQ(std::count(api_.commands.begin(), api_.commands.end(), "lab/worker-1 munge unmunge"), 1) << "not at each round";
  status = "";
  clock_.advance(std::chrono::minutes(1));
  settle();
  EXPECT_EQ(condition()["reason"].string(), "KeyOrClock");
  EXPECT_THAT(condition()["message"].string(), HasSubstr("munge there says of the head's credential: Invalid credential: its munge key differs"));
  status = "STATUS:           Success (0)\n\n";
  clock_.advance(std::chrono::minutes(1));
  settle();
  EXPECT_THAT(condition()["message"].string(), testing::Not(HasSubstr("credential")));
}

// What fairlead-slurm says of two workers.
kube::ExecResult nodes(const Clock& clock, const char* of_worker_1, const char* job = "") {
  return {.out = R"({"answered":true,"at":")" + print_micro_time(clock.now()) + R"(","nodes":[{"name":"worker-0","state":["IDLE"],"cpus":0},{"name":"worker-1",)" + of_worker_1 + "}],\"jobs\":[" + job + "]}"};
}

TEST_F(Controller, AWorkerBeyondTheSizeLeavesAndWhatSlurmRefusesIsTold) {
  settle();
  set_pods("Running", true);
  const char* drained = R"("state":["IDLE","DRAIN"],"cpus":0,"reason":"fairlead: scale-down of u1 generation 1")";
  const char* of_worker_1 = R"("state":["IDLE"],"cpus":0)";
  const char* job = "";
  int status = 0;
  answer_ = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.at(1) == "nodes") return nodes(clock_, of_worker_1, job);
    if (command.at(1) == "drain" && status == 0) of_worker_1 = drained;
    return {.exit_code = status, .err = status ? "Requested nodes are busy\n" : ""};
  };
  settle();
  EXPECT_EQ(controller_.reconcile(key_)->again_after, std::optional<std::chrono::nanoseconds>(5min)) << "nothing leaves: Slurm is hardly asked again";
  const auto told = [&] {
    const Json* const found = kube::find_condition(object("slurmclusters", "demo"), "StepsTaken");
    return found ? (*found)["status"].string() + " " + (*found)["message"].string() : "none";
  };

  Json cluster = object("slurmclusters", "demo");
  cluster.child("spec").child("slurmNodes").child("worker").set("size", 1);
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  // A refusal is told where users look; that the node is not as supposed is not, since the next look decides again.
  status = 1;
  EXPECT_EQ(controller_.reconcile(key_)->again_after, std::optional<std::chrono::nanoseconds>(1100ms)) << "an idle node that was drained is looked at again at once";
  EXPECT_THAT(told(), testing::AllOf(StartsWith("False"), HasSubstr("drain worker-1"), HasSubstr("Requested nodes are busy")));
  status = 3;
  EXPECT_EQ(controller_.reconcile(key_)->again_after, std::optional<std::chrono::nanoseconds>(3s));
  EXPECT_THAT(told(), StartsWith("True"));
  status = 0;
  settle();
  EXPECT_THAT(api_.commands, Contains("lab/controller-0 slurmctld /opt/fairlead/bin/fairlead-slurm drain worker-1 fairlead: scale-down of u1 generation 1"));
  settle();
  EXPECT_EQ(object("slurmclusters", "demo")["status"]["scaleDown"]["workers"].items().at(0)["state"].string(), "Drained");

  // Silence and nonsense: nothing is done, however long it lasts.
  const auto before = answer_;
  for (const char* text : {"", "{\"answered\":true", "slurm_load_jobs error"}) {
    answer_ = [text](auto&&) { return kube::ExecResult{.out = text}; };
    clock_.advance(10s);
    settle();
    EXPECT_TRUE(api_.all("pods").contains({"lab", "worker-1"}));
  }
  answer_ = before;
  clock_.advance(10s);
  settle();
  EXPECT_FALSE(api_.all("pods").contains({"lab", "worker-1"})) << "seen empty before the silence and after it";
  EXPECT_THAT(api_.commands, Contains(HasSubstr("forget worker-1")));
}

// Two workers that leave, each drained with a job on it and past its deadline, or empty.
class ManySteps : public Controller {
 protected:
  ManySteps() {
    settle();
    set_pods("Running", true);
    answer_ = [&](const std::vector<std::string>& command) -> kube::ExecResult {
      if (command.at(1) == "nodes") return looked ? looked(), answer() : answer();
      if (command.at(1) == "reconfigure") return {};
      told.push_back(command.at(1) + " " + command.at(2));
      return tell ? tell(told.back()) : kube::ExecResult{};
    };
    settle();
    told.clear();
  }
  kube::ExecResult answer() {
    std::string nodes, jobs;
    for (const char* name : {"worker-0", "worker-1"}) {
      nodes += fmt::format(R"({}{{"name":"{}","state":["{}"{}],"cpus":{},"reason":"{}","slurmd":true}})", nodes.empty() ? "" : ",", name, busy ? "MIXED" : "IDLE", drained ? R"(,"DRAIN")" : "", busy ? 1 : 0,
                           drained ? "fairlead: scale-down of u1" : "");
      if (busy) jobs += fmt::format(R"({}{{"id":"{}","user":"ada","state":"RUNNING","nodes":["{}"]}})", jobs.empty() ? "" : ",", name[7] - '0' + 7, name);
    }
    return {.out = fmt::format(R"({{"answered":true,"at":"{}","nodes":[{}],"jobs":[{}]}})", print_micro_time(clock_.now()), nodes, jobs)};
  }
  // As the API server does it.
  void edit(const std::function<void(Json& spec)>& change) {
    Json cluster = object("slurmclusters", "demo");
    change(cluster.child("spec"));
    cluster.child("metadata").set("generation", cluster["metadata"]["generation"].integer() + 1);
    ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  }
  void size(int to) {
    edit([&](Json& spec) { spec.child("slurmNodes").child("worker").set("size", to); });
  }
  void leave(const char* policy) {
    drained = true;
    edit([&](Json& spec) { spec.child("slurmNodes").child("worker").set("size", 0), spec.child("extensions").set("scaleDown", Json::object({{"policy", policy}, {"after", "0s"}})); });
  }
  bool round() {
    clock_.advance(3s);
    told.clear();
    return controller_.reconcile(key_).has_value();
  }
  bool busy = true, drained = false;
  std::function<void()> looked;
  std::function<kube::ExecResult(const std::string& step)> tell;
  std::vector<std::string> told;
};

TEST_F(ManySteps, StopWhenTheClusterIsEditedBetweenThem) {
  for (const auto& change : std::vector<std::function<void()>>{[&] { size(2); }, [&] { edit([](Json& spec) { spec.set("pause", true); }); },
                                                                [&] { edit([](Json& spec) { spec.child("extensions").child("scaleDown").set("policy", "wait"); }); }}) {
    leave("kill");
    edit([](Json& spec) { spec.set("pause", false); });
    tell = nullptr;
    EXPECT_TRUE(round());
    EXPECT_THAT(told, testing::ElementsAre("cancel worker-0", "cancel worker-1")) << "undisturbed";
    tell = [&](const std::string& step) {
      if (step == "cancel worker-0") change();
      return kube::ExecResult{};
    };
    EXPECT_TRUE(round());
    EXPECT_THAT(told, testing::ElementsAre("cancel worker-0"));
  }
}

TEST_F(ManySteps, StopWhenSlurmDoesNotAnswerAndNobodyIsToldOfARefusal) {
  leave("kill");
  tell = [&](const std::string&) { return kube::ExecResult{.exit_code = 4, .err = "Slurm does not answer: timed out\n"}; };
  EXPECT_TRUE(round());
  EXPECT_THAT(told, testing::ElementsAre("cancel worker-0"));
  const Json* const condition = kube::find_condition(object("slurmclusters", "demo"), "StepsTaken");
  EXPECT_TRUE(!condition || (*condition)["status"].string() == "True");
}

TEST_F(ManySteps, EndNoPodOnALookThatIsOldOrBeforeAnEdit) {
  busy = false;
  leave("wait");
  const auto pods = [&] { return api_.all("pods").contains({"lab", "worker-0"}) + api_.all("pods").contains({"lab", "worker-1"}); };
  looked = [&] { clock_.advance(6s); };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(round());
  EXPECT_EQ(pods(), 2) << "what a slow look showed may have changed";
  bool once = true;
  looked = [&] {
    if (std::exchange(once, false)) edit([](Json& spec) { spec.child("slurmNodes").child("worker").set("size", 2); });
  };
  (void)round();
  EXPECT_EQ(pods(), 2);
  looked = nullptr;
  size(0);
  for (int i = 0; i < 4; ++i) (void)round();
  EXPECT_EQ(pods(), 0);
}

TEST_F(ManySteps, UndrainNoWorkerWhosePodIsEnding) {
  leave("wait");
  EXPECT_TRUE(round());
  size(2);
  // In the API already, not in what this round began with.
  looked = [&] {
    Json pod = object("pods", "worker-0");
    pod.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z").set("finalizers", Json::array({"example.org/wait"}));
    ASSERT_TRUE(api_.put(resources::pods, pod));
  };
  EXPECT_TRUE(round());
  EXPECT_THAT(told, testing::ElementsAre("undrain worker-1"));
}

TEST_F(ManySteps, ADrainThatCameBackIsFoundByANewOperatorAndWithinMinutes) {
  busy = false, drained = true;  // slurmctld died before it wrote the undrain down
  EXPECT_TRUE(round());
  EXPECT_THAT(told, IsEmpty());
  clock_.advance(5min);
  EXPECT_TRUE(round());
  EXPECT_THAT(told, testing::ElementsAre("undrain worker-0", "undrain worker-1"));
  drained = false;
  EXPECT_TRUE(round());
  told.clear();
  drained = true;
  SlurmClusterController another(fenced_, clock_, keys, {});
  another.start(api_);
  EXPECT_TRUE(another.reconcile(key_));
  EXPECT_THAT(told, testing::ElementsAre("undrain worker-0", "undrain worker-1"));
}

// The API as an operator sees it that dies: so many calls are carried out, the answer to the last of them never arrives, and nothing is after that.
class Dying final : public kube::BareApi {
 public:
  Dying(kube::KubeApi& api, int calls) : api_(api), left_(calls) {}
  bool dead() const { return left_ < 0; }
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return call([&] { return api_.get(resource, key); }); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override { return call([&] { return api_.create(resource, object); }); }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return call([&] { return api_.update(resource, object); }); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return call([&] { return api_.update_status(resource, object); }); }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& part) override {
    return call([&] { return api_.patch(resource, key, type, patch, part); });
  }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override { return call([&] { return api_.remove(resource, key, options); }); }
  Result<kube::ExecResult> exec(const kube::ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input, std::chrono::milliseconds limit) override {
    return call([&] { return api_.exec(pod, container, command, input, limit); });
  }

 private:
  template <class Call>
  std::invoke_result_t<Call> call(Call does) {
    const std::lock_guard lock(mutex_);  // nodes are asked for their configuration several at a time
    if (left_ < 0) return fail(Code::Unavailable, "dead");
    auto answer = does();
    if (--left_ < 0) return fail(Code::Unavailable, "dead before the answer");
    return answer;
  }
  kube::KubeApi& api_;
  std::mutex mutex_;
  int left_;
};

TEST_F(Controller, AnOperatorThatDiesAtAnyCallOfAScaleDownIsFollowedByOneThatGoesOn) {
  settle();
  set_pods("Running", true);
  bool listed = true, is_drained = false, busy = true;
  answer_ = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    const std::string& verb = command.at(1);
    if (verb == "drain") is_drained = true;
    if (verb == "forget") {
      EXPECT_TRUE(!busy && is_drained && !api_.all("pods").contains({"lab", "worker-1"}));
      listed = false;
    }
    if (verb != "nodes") return {};
    if (!busy && !listed) return {.out = R"({"answered":true,"at":")" + print_micro_time(clock_.now()) + R"(","nodes":[{"name":"worker-0","state":["IDLE"],"cpus":0}],"jobs":[]})"};
    return nodes(clock_,
                 is_drained ? (busy ? R"("state":["MIXED","DRAIN"],"cpus":1,"reason":"fairlead: scale-down of u1")" : R"("state":["IDLE","DRAIN"],"cpus":0,"reason":"fairlead: scale-down of u1")") : R"("state":["IDLE"],"cpus":0)",
                 busy && is_drained ? R"({"id":"7","user":"ada","state":"RUNNING","nodes":["worker-1"]})" : "");
  };
  settle();
  Json cluster = object("slurmclusters", "demo");
  cluster.child("spec").child("slurmNodes").child("worker").set("size", 1);
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  const auto pods = api_.all("pods"), clusters = api_.all("slurmclusters");

  int calls = 0;
  for (bool died = true; died && calls < 60; ++calls) {
    SCOPED_TRACE("dies after " + std::to_string(calls) + " calls");
    for (const auto& [key, pod] : pods) ASSERT_TRUE(api_.put(resources::pods, pod));
    for (const auto& [key, one] : clusters) ASSERT_TRUE(api_.put(resources::slurm_clusters, one));
    listed = busy = true, is_drained = false;
    Dying dying(api_, calls);
    SlurmClusterController first(dying, clock_, keys, {}), second(api_, clock_, keys, {});
    first.start(api_);
    second.start(api_);
    const auto rounds = [&](SlurmClusterController& controller, int count) {
      for (int i = 0; i < count; ++i) {
        clock_.advance(3s);
        (void)controller.reconcile(key_).has_value();
        if (busy) {
          EXPECT_TRUE(api_.all("pods").contains({"lab", "worker-1"}));
        }
      }
    };
    rounds(first, 3);
    busy = false;
    rounds(first, 4);
    died = dying.dead();
    rounds(second, 6);
    EXPECT_FALSE(api_.all("pods").contains({"lab", "worker-1"}));
    EXPECT_FALSE(listed);
    EXPECT_TRUE(object("slurmclusters", "demo")["status"]["scaleDown"]["workers"].is_null());
  }
  EXPECT_GT(calls, 12) << "looks, status and steps";
  EXPECT_LT(calls, 60);
}

TEST_F(Controller, OfOneNamespaceAsksForNoOther) {
  const SlurmClusterController narrow(api_, clock_, keys, {.space = "lab"});
  for (const auto& rule : kube::full_access(narrow).rules()) EXPECT_EQ(rule.space, "lab") << rule.plural;
  EXPECT_FALSE(kube::full_access(narrow).allows("list", resources::secrets, "", "other", ""));
}

// An API that refuses pods, as a quota or a pod security level does.
class NoPods final : public kube::BareApi {
 public:
  explicit NoPods(kube::KubeApi& api) : api_(api) {}
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    if (refuses && resource == resources::pods) return fail(Code::Forbidden, "pods \"" + kube::name_of(object) + "\" is forbidden: violates PodSecurity");
    return api_.create(resource, object);
  }
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api_.get(resource, key); }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return api_.update(resource, object); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return api_.update_status(resource, object); }
  bool refuses = true;

 private:
  kube::KubeApi& api_;
};

TEST_F(Controller, WhatTheApiRefusesIsToldInACondition) {
  NoPods strict(api_);
  SlurmClusterController controller(strict, clock_, keys, {});
  controller.start(api_);
  const auto condition = [&] {
    for (int round = 0; round < 6; ++round) (void)controller.reconcile(key_).has_value();
    const Json* const found = kube::find_condition(object("slurmclusters", "demo"), "StepsTaken");
    return found ? (*found)["status"].string() + " " + (*found)["message"].string() : "none";
  };
  EXPECT_THAT(condition(), testing::AllOf(StartsWith("False"), HasSubstr("create pods controller-0"), HasSubstr("violates PodSecurity")));
  const int writes = api_.status_writes;
  condition();
  EXPECT_EQ(api_.status_writes, writes) << "told once";
  strict.refuses = false;
  EXPECT_THAT(condition(), StartsWith("True"));
  EXPECT_EQ(api_.all("pods").size(), 4U);
}

TEST_F(Controller, APausedLeaderChangesNothing) {
  kube::FencedApi lost(checked_, []() -> Result<std::int64_t> { return fail(Code::Unavailable, "not the leader"); });
  SlurmClusterController old(lost, clock_, keys, {});
  old.start(api_);
  const auto before = world();
  const auto outcome = old.reconcile(key_);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message, HasSubstr("not the leader"));
  EXPECT_EQ(world(), before);
}

TEST_F(Controller, NodeSetsAreWorkersWithinWhatItDeclares) {
  auto set = kube::parse_yaml("{apiVersion: slurm.nebius.ai/v1alpha1, kind: NodeSet, metadata: {name: gpu, namespace: lab, uid: s1, generation: 1}, spec: {replicas: 2, slurmd: {}}}");
  ASSERT_TRUE(api_.create(api::kNodeSets, set->at(0)));
  settle();
  set_pods("Running", true);
  settle();
  EXPECT_EQ(api_.all("pods").size(), 6U);
  EXPECT_EQ(object("nodesets", "gpu")["status"]["phase"].string(), "Ready");
  EXPECT_TRUE(kube::has_finalizer(object("nodesets", "gpu"), api::kNodeSetFinalizer));
  // Its cluster goes: nothing waits for workers any more.
  Json going = object("nodesets", "gpu");
  going.child("metadata").set("deletionTimestamp", "2026-11-22T00:00:00Z");
  ASSERT_TRUE(api_.put(api::kNodeSets, going));
  api_.all("slurmclusters").clear();
  ASSERT_TRUE(controller_.reconcile(key_));
  EXPECT_THAT(api_.all("nodesets"), IsEmpty());
}

TEST_F(Controller, AStepForANodeSetThatWasEditedSinceIsLeftOut) {
  auto set = kube::parse_yaml("{apiVersion: slurm.nebius.ai/v1alpha1, kind: NodeSet, metadata: {name: gpu, namespace: lab, uid: s1, generation: 1}, spec: {replicas: 1, slurmd: {}}}");
  ASSERT_TRUE(api_.create(api::kNodeSets, set->at(0)));
  settle();
  set_pods("Running", true);
  settle();
  Json smaller = object("nodesets", "gpu");
  smaller.child("spec").set("replicas", 0);
  smaller.child("metadata").set("generation", 2);
  ASSERT_TRUE(api_.put(api::kNodeSets, smaller));
  // While Slurm answers, somebody wants the worker again.
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.at(1) != "nodes") return {};
    Json larger = object("nodesets", "gpu");
    larger.child("spec").set("replicas", 1);
    larger.child("metadata").set("generation", 3);
    EXPECT_TRUE(api_.put(api::kNodeSets, larger));
    return {.out = R"({"answered":true,"at":")" + print_micro_time(clock_.now()) + R"(","nodes":[{"name":"gpu-0","state":["IDLE"],"cpus":0}],"jobs":[]})"};
  };
  (void)controller_.reconcile(key_);
  EXPECT_THAT(api_.commands, testing::Not(Contains(HasSubstr("drain gpu-0"))));
}

// Between the report of a pod's end and its disappearance nobody may have looked.
TEST_F(Controller, ThePodThatEndedAndWentIsReportedToSlurm) {
  settle();
  set_pods("Running", true);
  settle();
  ASSERT_TRUE(api_.create(resources::nodes, *kube::parse_json(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"m1"},"status":{"conditions":[{"type":"Ready","status":"True"}]}})")));
  const char* const running = R"({"id":"7","user":"ada","state":"RUNNING","nodes":["worker-1"]})";
  const char* job = running;
  bool successor = false;
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.at(1) == "nodes") return nodes(clock_, R"("state":["MIXED"],"cpus":1)", job);
    if (command.at(1) != "died") return {};
    if (successor) return {.exit_code = 3, .err = "the slurmd that Slurm knows started later\n"};
    job = "";
    return {};
  };
  Json before = object("pods", "worker-1");
  before.child("spec").set("nodeName", "m1");
  before.child("status").set("containerStatuses", *kube::parse_json(R"([{"name":"slurmd","state":{"running":{}}}])"));
  Json confirmed = before;
  confirmed.child("status").set("containerStatuses", *kube::parse_json(R"([{"name":"slurmd","state":{"terminated":{"exitCode":143,"finishedAt":"2026-11-21T20:10:00Z"}}}])"));
  const auto goes = [&](const Json& pod) {
    for (const auto& source : controller_.sources())
      if (source.resource == resources::pods) {
        EXPECT_THAT(source.keys({.before = pod, .after = std::nullopt}), Contains(key_));
      }
    settle();
  };
  const auto died = Contains(HasSubstr("fairlead-slurm died worker-1 2026-11-21T20:10:00Z died: its container ended with 143"));
  goes(before);
  EXPECT_THAT(api_.commands, testing::Not(Contains(HasSubstr("fairlead-slurm died")))) << "deleted by force: nobody knows whether it lives";
  goes(confirmed);
  EXPECT_THAT(api_.commands, died);
  const auto times = [this] { return std::count_if(api_.commands.begin(), api_.commands.end(), [](const std::string& command) { return command.find(" died ") != command.npos; }); };
  EXPECT_EQ(times(), 1);
  settle();
  EXPECT_EQ(times(), 1);
  // Its successor was quicker and has jobs of its own: they are not what was lost, and are not asked about again and again.
  job = running;
  successor = true;
  goes(confirmed);
  EXPECT_EQ(times(), 2);
  for (int i = 0; i < 3; ++i) (void)controller_.reconcile(key_);
  EXPECT_EQ(times(), 2);
}

// Deleted by force while its machine is cut off: it may run its jobs still, and the pod made in its place knows nothing of it.
TEST_F(Controller, APodThatHadTheNameBeforeIsReportedWhenItsMachineIsOff) {
  settle();
  set_pods("Running", true);
  settle();
  const char* const machine = R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"NAME"},"spec":{"taints":TAINTS},"status":{"conditions":[{"type":"Ready","status":"STATUS","lastTransitionTime":"2026-11-21T20:00:30Z"}]}})";
  const auto node = [&](const std::string& name, const std::string& status, const std::string& taints) {
    std::string text = machine;
    for (const auto& [key, value] : {std::pair<std::string, std::string>("NAME", name), {"STATUS", status}, {"TAINTS", taints}}) text.replace(text.find(key), key.size(), value);
    return *kube::parse_json(text);
  };
  ASSERT_TRUE(api_.create(resources::nodes, node("m0", "Unknown", "[]")));
  ASSERT_TRUE(api_.create(resources::nodes, node("m1", "True", "[]")));
  Json waiting = object("pods", "worker-1");
  waiting.child("spec").set("nodeName", "m1");
  waiting.child("metadata").set("creationTimestamp", "2026-11-21T20:00:00Z");
  auto written = api_.update(resources::pods, waiting);
  ASSERT_TRUE(written);
  written->child("status").set("conditions", Json::array());
  written->child("status").set("containerStatuses", *kube::parse_json(R"([{"name":"slurmd","state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}])"));
  ASSERT_TRUE(api_.update_status(resources::pods, *written));
  bool told = false;
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.at(1) == "nodes") return nodes(clock_, told ? R"("state":["DOWN"],"cpus":0)" : R"("state":["MIXED"],"cpus":1,"pod":"u0","machine":"m0")", told ? "" : R"({"id":"7","user":"ada","state":"RUNNING","nodes":["worker-1"]})");
    if (command.at(1) == "died") told = true;
    return {};
  };
  settle();
  EXPECT_FALSE(told);
  EXPECT_THAT(kube::print_json(object("slurmclusters", "demo")["status"]), HasSubstr("worker-1 waits"));
  auto off = api_.get(resources::nodes, {"", "m0"});
  off->child("spec").set("taints", *kube::parse_json(R"([{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}])"));
  ASSERT_TRUE(api_.update(resources::nodes, *off));
  settle();
  EXPECT_TRUE(told);
  EXPECT_THAT(api_.commands, Contains(testing::ContainsRegex("died worker-1 20[^ ]+Z died: machine m0 is out of service u0@m0")));
}

// The edit that takes a change back comes while the change is being told, so that its end cannot be written down: the nodes have it all the same.
TEST_F(Controller, AChangeThatIsTakenBackWhileItIsToldIsTakenBackOnEveryNode) {
  settle();
  set_pods("Running", true);
  settle();
  const auto kill_wait = [this](const char* lines) {
    Json cluster = object("slurmclusters", "demo");
    cluster.child("spec").set("customSlurmConfig", lines);
    cluster.child("metadata").set("generation", cluster["metadata"]["generation"].integer() + 1);
    EXPECT_TRUE(api_.put(resources::slurm_clusters, cluster));
  };
  const std::string first = object("slurmclusters", "demo")["status"]["appliedConfigHash"].string();
  ASSERT_FALSE(first.empty());
  bool edited = false;
  std::vector<std::string> told;
  api_.answer = [&](const std::vector<std::string>& command) -> kube::ExecResult {
    if (command.at(1) != "reconfigure") return {};
    told.push_back(command.at(2));
    if (!std::exchange(edited, true)) kill_wait("");
    return {};
  };
  kill_wait("KillWait=47\n");
  settle();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_NE(told[0], first);
  EXPECT_EQ(told[1], first);
  EXPECT_THAT(api_.commands, Contains(HasSubstr("reconfigure " + first + " --always")));
  EXPECT_EQ(object("slurmclusters", "demo")["status"]["appliedConfigHash"].string(), first);
}

}  // namespace
}  // namespace fairlead::slurm
