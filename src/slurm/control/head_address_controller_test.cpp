// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/head_address_controller.h"

#include <gmock/gmock.h>

#include <atomic>

#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;
namespace resources = kube::resources;

constexpr std::string_view kThree = R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 1}
spec:
  volumeSources: [{name: spool, persistentVolumeClaim: {claimName: spool}}]
  slurmNodes:
    controller: {size: 3, volumes: {spool: {volumeSourceName: spool}}}
    worker: {size: 1}
    login: {size: 1}
)";

struct Told final : HeadReports {
  std::vector<std::string> watched;
  std::map<std::string, HeadReport> says;
  void watch(const kube::ObjectKey&, const std::vector<kube::ObjectKey>& heads) override {
    watched.clear();
    for (const auto& head : heads) watched.push_back(head.name);
  }
  std::map<std::string, HeadReport> reports(const kube::ObjectKey&) const override { return says; }
};

class Addresses : public testing::Test {
 protected:
  Addresses() {
    auto reports = std::make_unique<Told>();
    told_ = reports.get();
    controller_ = std::make_unique<HeadAddressController>(fenced_, std::move(reports), HeadAddressController::Options{});
    controller_->start(api_);
    EXPECT_TRUE(api_.create(resources::slurm_clusters, kube::parse_yaml(kThree)->at(0)));
    for (int i = 0; i < 3; ++i) pod(i, "Running");
  }
  ~Addresses() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  void pod(int i, const char* phase, const char* owner = "u1") {
    ASSERT_TRUE(api_.put(resources::pods, Json::object({{"metadata", Json::object({{"name", "controller-" + std::to_string(i)}, {"namespace", "lab"}, {"uid", "p" + std::to_string(i)},
                                                                                  {"ownerReferences", Json::array({Json::object({{"uid", owner}, {"controller", true}, {"kind", "SlurmCluster"}})})}})},
                                                       {"status", Json::object({{"phase", phase}, {"podIP", "10.0.0." + std::to_string(i)}})}})));
  }
  std::string address() {
    succeeded(controller_->reconcile(key_));
    const auto& slices = api_.all("endpointslices");
    const auto found = slices.find({"lab", "demo-controller-active"});
    return found == slices.end() ? "none" : found->second["endpoints"].items()[0]["addresses"].items()[0].string();
  }
  static void succeeded(const Result<kube::Next>& done) { EXPECT_TRUE(done) << done.error().message; }

  const kube::ObjectKey key_{"lab", "demo"};
  kube::TinyApi api_;
  kube::CheckedApi checked_{api_, kube::full_access(HeadAddressController(api_, nullptr, {}))};
  kube::FencedApi fenced_{checked_, []() -> Result<std::int64_t> { return 3; }};
  Told* told_ = nullptr;
  std::unique_ptr<HeadAddressController> controller_;
};

// Between three and one there may have been no election yet: the pod says that it takes part in one.
TEST_F(Addresses, AreThoseOfOneElectedHead) {
  Json cluster = api_.all("slurmclusters").at(key_);
  cluster.child("spec").child("slurmNodes").child("controller").set("size", 1);
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  for (int i = 1; i < 3; ++i) ASSERT_TRUE(api_.remove(resources::pods, {"lab", "controller-" + std::to_string(i)}, {}));
  EXPECT_EQ(address(), "none");
  EXPECT_THAT(told_->watched, IsEmpty()) << "one that knows of no election is found by its name";
  Json pod = api_.all("pods").at({"lab", "controller-0"});
  pod.set("spec", *kube::parse_json(R"({"containers":[{"name":"slurmctld","env":[{"name":"FAIRLEAD_HEADS","value":"controller-0:6821"}]}]})"));
  ASSERT_TRUE(api_.put(resources::pods, pod));
  told_->says = {{"controller-0", {"active", 1}}};
  EXPECT_EQ(address(), "10.0.0.0");
}

TEST_F(Addresses, FollowWhatTheHeadsSay) {
  EXPECT_EQ(address(), "none");
  EXPECT_THAT(told_->watched, ElementsAre("controller-0", "controller-1", "controller-2"));
  told_->says = {{"controller-1", {"active", 1}}};
  EXPECT_EQ(address(), "10.0.0.1");
  told_->says = {{"controller-1", {"standby", 2}}, {"controller-2", {"active", 2}}};
  EXPECT_EQ(address(), "10.0.0.2");
  told_->says = {};
  EXPECT_EQ(address(), "10.0.0.2") << "silence says nothing";
}

TEST_F(Addresses, OnlyPodsOfThisClusterAreAsked) {
  pod(0, "Pending");
  pod(1, "Running", "somebody");
  (void)address();
  EXPECT_THAT(told_->watched, ElementsAre("controller-2"));
  told_->says = {{"controller-1", {"active", 9}}};
  EXPECT_EQ(address(), "none");
}

TEST_F(Addresses, OneHeadOrNoneIsNotAsked) {
  (void)address();
  Json cluster = api_.all("slurmclusters").at(key_);
  cluster.child("spec").child("slurmNodes").child("controller").set("size", 1);
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  told_->says = {{"controller-0", {"active", 1}}};
  EXPECT_EQ(address(), "none");
  EXPECT_THAT(told_->watched, IsEmpty());
}

// An API whose exec answers as heads would: at once if they have news, else after a while. Several ask at once.
class HeadsApi final : public kube::KubeApi {
 public:
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> status;  // pod -> JSON; absent: no answer
  std::atomic<int> asked{0};
  void say(const std::string& pod, const std::string& role, int term) {
    const std::lock_guard lock(mutex);
    status[pod] = R"({"role":")" + role + R"(","term":)" + std::to_string(term) + "}";
    changed.notify_all();
  }
  Result<kube::ExecResult> exec(const kube::ObjectKey& pod, const std::string&, const std::vector<std::string>& command, const std::string&, std::chrono::milliseconds) override {
    ++asked;
    const std::string known = command.size() > 3 ? command[3] : "";
    std::unique_lock lock(mutex);
    const auto news = [&] {
      const auto found = status.find(pod.name);
      if (found == status.end()) return true;
      auto report = read_head_report(found->second);
      return report->role + ":" + std::to_string(report->term) != known;
    };
    changed.wait_for(lock, 50ms, news);
    const auto found = status.find(pod.name);
    if (found == status.end()) return fail(Code::Unavailable, "no answer");
    return kube::ExecResult{.exit_code = 0, .out = found->second};
  }
  Result<Json> get(const kube::Resource&, const kube::ObjectKey&) override { return no(); }
  Result<kube::List> list(const kube::Resource&, const std::string&, const kube::ListOptions&) override { return no(); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return no(); }
  Result<Json> create(const kube::Resource&, const Json&) override { return no(); }
  Result<Json> update(const kube::Resource&, const Json&) override { return no(); }
  Result<Json> update_status(const kube::Resource&, const Json&) override { return no(); }
  Result<Json> patch(const kube::Resource&, const kube::ObjectKey&, kube::PatchType, const Json&, const std::string&) override { return no(); }
  Result<Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const Json&) override { return no(); }
  Result<void> remove(const kube::Resource&, const kube::ObjectKey&, const kube::DeleteOptions&) override { return no(); }

 private:
  static std::unexpected<Error> no() { return fail(Code::Unsupported, "exec alone"); }
};

TEST(HeadWatch, HearsOfChangesAndForgetsWhoIsNotAskedAnyMore) {
  HeadsApi api;
  const SystemClock clock;
  std::mutex mutex;
  std::condition_variable changed;
  int news = 0;
  const kube::ObjectKey cluster{"lab", "demo"};
  HeadWatch watch(api, clock, [&](const kube::ObjectKey& of) {
    EXPECT_EQ(of, cluster);
    const std::lock_guard lock(mutex);
    ++news;
    changed.notify_all();
  });
  const auto until = [&](auto condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 10s, [&] { return condition(watch.reports(cluster)); });
  };
  api.say("a", "standby", 3);
  api.say("b", "active", 3);
  const std::vector<kube::ObjectKey> both = {{"lab", "a"}, {"lab", "b"}, {"lab", "silent"}};
  watch.watch(cluster, both);
  watch.watch(cluster, both);
  EXPECT_TRUE(until([](const auto& reports) { return reports.size() == 2 && reports.at("b") == HeadReport{"active", 3}; }));
  api.say("a", "active", 4);
  EXPECT_TRUE(until([](const auto& reports) { return reports.at("a") == HeadReport{"active", 4}; }));
  watch.watch(cluster, {{"lab", "a"}});
  EXPECT_EQ(watch.reports(cluster).size(), 1U);
  watch.watch(cluster, both);
  EXPECT_TRUE(until([](const auto& reports) { return reports.size() == 2; }));
  watch.watch(cluster, {});
  EXPECT_THAT(watch.reports(cluster), IsEmpty());
}

}  // namespace
}  // namespace fairlead::slurm
