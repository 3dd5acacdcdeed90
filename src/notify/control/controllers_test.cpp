// SPDX-License-Identifier: Apache-2.0
// Both controllers over an API that forgets nothing, and a courier that the test moves: servers come and go between any two steps.
#include <gmock/gmock.h>

#include "base/encoding.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"
#include "notify/control/delivery_controller.h"
#include "notify/control/role_change_controller.h"
#include "notify/plan/render.h"

namespace fairlead::notify {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
namespace resources = kube::resources;

const kube::Resource kSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};

struct HandCourier final : Courier {
  struct Shared {
    std::vector<Parcel> parcels;  // under way
    std::vector<Done> done;
    std::vector<std::string> sent;  // "EVENT-TYPE target", of all time
  };
  explicit HandCourier(Shared& shared) : all(shared) {}
  Shared& all;
  bool send(Parcel parcel) override {
    all.sent.push_back(std::string(text(parcel.event.type)) + " " + parcel.target);
    all.parcels.push_back(std::move(parcel));
    return true;
  }
  std::set<std::string> busy(const kube::ObjectKey&) const override {
    std::set<std::string> out;
    for (const auto& one : all.parcels) out.insert(one.target);
    return out;
  }
  std::vector<Done> take(const kube::ObjectKey&) override { return std::exchange(all.done, {}); }
};

class Notifications : public testing::Test {
 protected:
  Notifications() {
    yaml(resources::slurm_clusters, R"({metadata: {name: demo, namespace: lab, uid: u1, generation: 1}, spec: {
      extensions: {notifications: [{topic: operators}]}, volumeSources: [{name: spool, persistentVolumeClaim: {claimName: spool}}],
      slurmNodes: {controller: {size: 3, volumes: {spool: {volumeSourceName: spool}}}, worker: {size: 1}, login: {size: 1}}}})");
    yaml(kTopics, R"({metadata: {name: operators, namespace: lab, uid: t1, generation: 1}, spec: {channels: [
      {name: hook, webhook: {url: "https://hooks.example.com/x", hmacSecret: {name: keys, key: hmac}}}, {name: mail, email: {server: mx, from: a@b.c, to: [ops@b.c]}}]}})");
    EXPECT_TRUE(api_.put(resources::secrets, Json::object({{"metadata", Json::object({{"name", "keys"}, {"namespace", "lab"}})}, {"data", Json::object({{"hmac", base64("0123456789abcdef")}})}})));
    for (int i = 0; i < 3; ++i) pod(i, true);
    slice(0, 1);
    restart();
    tell();  // the first look
  }
  ~Notifications() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  void yaml(const kube::Resource& resource, const char* text) { ASSERT_TRUE(api_.put(resource, kube::parse_yaml(text)->at(0))); }
  void pod(int i, bool ready) {
    const std::string n = std::to_string(i);
    ASSERT_TRUE(api_.put(resources::pods, Json::object({{"metadata", Json::object({{"name", "controller-" + n}, {"namespace", "lab"}, {"uid", "p" + n}, {"ownerReferences", Json::array({Json::object({{"uid", "u1"}, {"controller", true}})})}})},
                                                       {"status", Json::object({{"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready ? "True" : "False"}})})}})}})));
  }
  void slice(int i, int term) {
    const std::string n = std::to_string(i);
    ASSERT_TRUE(api_.put(kSlices, Json::object({{"metadata", Json::object({{"name", "demo-controller-active"}, {"namespace", "lab"}, {"annotations", Json::object({{"fairlead.dev/term", std::to_string(term)}})}})},
                                               {"endpoints", Json::array({Json::object({{"targetRef", Json::object({{"name", "controller-" + n}, {"uid", "p" + n}})}})})}})));
  }
  // A new process: nothing in memory, and what was under way is lost.
  void restart() {
    shared_.parcels.clear();
    shared_.done.clear();
    roles_ = std::make_unique<RoleChangeController>(fenced_, clock_, RoleChangeController::Options{});
    delivery_ = std::make_unique<DeliveryController>(fenced_, clock_, std::make_unique<HandCourier>(shared_), DeliveryController::Options{.seed = 7});
    roles_->start(api_);
    delivery_->start(api_);
  }
  void tell() {
    const auto done = roles_->reconcile({"lab", "demo"});
    ASSERT_TRUE(done) << done.error().message;
  }
  void deliver() {
    for (auto& [key, object] : api_.all("notifications"))
      if (object["metadata"]["creationTimestamp"].is_null()) object.child("metadata").set("creationTimestamp", print_time(clock_.now()));
    const auto done = delivery_->reconcile({"lab", "operators"});
    ASSERT_TRUE(done) << done.error().message;
    next_ = done->again_after;
  }
  // Everything that is under way ends; `bad`: targets that fail.
  void carried(const std::set<std::string>& bad = {}) {
    for (Parcel& one : std::exchange(shared_.parcels, {}))
      shared_.done.push_back({one.letter_uid, one.target, one.of.generation, bad.contains(one.target) ? Result<void>(fail(Code::Unavailable, "answered 503")) : Result<void>()});
  }
  std::string state(const std::string& target) {
    std::string out;
    for (const auto& [key, object] : api_.all("notifications"))
      for (const Json& one : object["status"]["deliveries"].items())
        if (one["target"].string() == target) out += (out.empty() ? "" : ",") + one["state"].string();
    return out;
  }
  std::string condition(const kube::Resource& resource, const char* name, const char* type) {
    const Json& object = api_.all(resource.plural).at({"lab", name});
    const Json* found = kube::find_condition(object, type);
    return found ? (*found)["status"].string() + " " + (*found)["reason"].string() + ": " + (*found)["message"].string() : "none";
  }

  ManualClock clock_{*parse_time("2026-03-04T05:06:07Z")};
  kube::TinyApi api_;
  kube::CheckedApi checked_{api_, [this] {
                              kube::Access access = kube::full_access(RoleChangeController(api_, clock_, {}));
                              return access.add(kube::full_access(DeliveryController(api_, clock_, nullptr, {})));
                            }()};
  kube::FencedApi fenced_{checked_, []() -> Result<std::int64_t> { return 3; }};
  HandCourier::Shared shared_;
  std::unique_ptr<RoleChangeController> roles_;
  std::unique_ptr<DeliveryController> delivery_;
  std::optional<std::chrono::nanoseconds> next_;
};

TEST_F(Notifications, AFailoverIsToldByEveryChannel) {
  EXPECT_THAT(api_.all("notifications"), IsEmpty());
  slice(1, 2);
  tell();
  EXPECT_THAT(api_.all("notifications"), SizeIs(2));
  deliver();
  EXPECT_THAT(shared_.sent, SizeIs(2)) << "one at a time for each target";
  EXPECT_EQ(shared_.parcels[0].secrets.hmac_key, "0123456789abcdef");
  carried();
  deliver();
  carried();
  deliver();
  EXPECT_THAT(shared_.sent, testing::UnorderedElementsAre("PrimaryOff hook", "PrimaryOff mail/ops@b.c", "PrimaryOn hook", "PrimaryOn mail/ops@b.c"));
  EXPECT_EQ(state("hook"), "Delivered,Delivered");
  EXPECT_THAT(condition(kTopics, "operators", "Delivered"), HasSubstr("True NothingWaits"));
  tell();
  EXPECT_THAT(condition(resources::slurm_clusters, "demo", "NotificationsDelivered"), HasSubstr("True NothingWaits"));
  EXPECT_EQ(api_.all("notificationtopics").at({"lab", "operators"})["status"]["lastDelivered"].string(), "2026-03-04T05:06:07Z");
}

TEST_F(Notifications, ADeadChannelHoldsUpNobodyAndIsTriedAgain) {
  pod(2, false);
  tell();
  deliver();
  carried({"hook"});
  deliver();
  EXPECT_EQ(state("hook"), "Waiting");
  EXPECT_EQ(state("mail/ops@b.c"), "Delivered");
  EXPECT_THAT(condition(kTopics, "operators", "Delivered"), HasSubstr("ChannelFailing: hook: answered 503"));
  tell();
  EXPECT_THAT(condition(resources::slurm_clusters, "demo", "NotificationsDelivered"), HasSubstr("operators: hook: answered 503"));
  ASSERT_TRUE(next_);
  EXPECT_LE(*next_, 1s);
  EXPECT_THAT(shared_.parcels, IsEmpty()) << "not before its time";
  clock_.advance(*next_);
  deliver();
  ASSERT_THAT(shared_.parcels, SizeIs(1));
  EXPECT_EQ(shared_.parcels[0].target, "hook");
  carried();
  deliver();
  EXPECT_EQ(state("hook"), "Delivered");
}

TEST_F(Notifications, AServerThatDiesBeforeTheRecordMakesNoSecondEvent) {
  const Json before = api_.all("slurmclusters").at({"lab", "demo"});
  pod(2, false);
  tell();
  ASSERT_TRUE(api_.put(resources::slurm_clusters, before)) << "as if the record had not been written";
  restart();
  clock_.advance(1h);
  tell();
  EXPECT_THAT(api_.all("notifications"), SizeIs(1));
}

TEST_F(Notifications, AServerThatDiesBeforeTheOutcomeSendsTheSameEventAgain) {
  pod(2, false);
  tell();
  deliver();
  ASSERT_THAT(shared_.parcels, SizeIs(2));
  const std::string id = shared_.parcels[0].event.id;
  restart();
  deliver();
  ASSERT_THAT(shared_.parcels, SizeIs(2));
  EXPECT_EQ(shared_.parcels[0].event.id, id);
  carried();
  deliver();
  restart();
  deliver();
  EXPECT_THAT(shared_.parcels, IsEmpty()) << "what is written down as delivered stays so";
}

TEST_F(Notifications, AMissingSecretOrTopicIsToldAndHealed) {
  api_.all("secrets").clear();
  pod(2, false);
  tell();
  deliver();
  deliver();
  EXPECT_THAT(condition(kTopics, "operators", "Delivered"), HasSubstr("Secret keys: it is not there"));
  EXPECT_TRUE(api_.put(resources::secrets, Json::object({{"metadata", Json::object({{"name", "keys"}, {"namespace", "lab"}})}, {"data", Json::object({{"hmac", base64("0123456789abcdef")}})}})));
  clock_.advance(2s);
  carried();
  deliver();
  carried();
  deliver();
  EXPECT_EQ(state("hook"), "Delivered");
  const Json topic = api_.all("notificationtopics").at({"lab", "operators"});
  api_.all("notificationtopics").clear();
  tell();
  EXPECT_THAT(condition(resources::slurm_clusters, "demo", "NotificationsDelivered"), HasSubstr("False TopicMissing"));
  pod(1, false);
  tell();
  deliver();
  EXPECT_THAT(shared_.parcels, IsEmpty());
  ASSERT_TRUE(api_.put(kTopics, topic));
  deliver();
  EXPECT_THAT(shared_.parcels, SizeIs(2)) << "it waited for its topic";
}

TEST_F(Notifications, AnEditedTopicIsTriedAtOnce) {
  pod(2, false);
  tell();
  for (int i = 0; i < 8; ++i) {
    deliver();
    carried({"hook"});
    deliver();
    if (next_) clock_.advance(*next_);
  }
  deliver();
  carried({"hook"});
  deliver();
  EXPECT_GT(*next_, 30s);
  Json topic = api_.all("notificationtopics").at({"lab", "operators"});
  topic.child("metadata").set("generation", 2);
  ASSERT_TRUE(api_.put(kTopics, topic));
  deliver();
  EXPECT_THAT(shared_.parcels, SizeIs(1));
}

TEST_F(Notifications, AClusterWithoutTopicsForgets) {
  Json cluster = api_.all("slurmclusters").at({"lab", "demo"});
  EXPECT_TRUE(cluster["status"].has("notifications"));
  cluster.child("spec").erase("extensions");
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  tell();
  const Json& now = api_.all("slurmclusters").at({"lab", "demo"});
  EXPECT_FALSE(now["status"].has("notifications"));
  EXPECT_EQ(kube::find_condition(now, "NotificationsDelivered"), nullptr);
}

TEST_F(Notifications, TheQueueIsBoundedAndTheLossCounted) {
  for (int i = 0; i < 203; ++i) {
    Event event{.id = event_id("u", "h", i, "", ""), .type = EventType::Test, .time = clock_.now(), .space = "lab"};
    ASSERT_TRUE(api_.create(kNotifications, notification_object(event, "operators", Json())));
    clock_.advance(1s);
    for (auto& [key, object] : api_.all("notifications"))
      if (object["metadata"]["creationTimestamp"].is_null()) object.child("metadata").set("creationTimestamp", print_time(clock_.now()));
  }
  deliver();
  EXPECT_THAT(api_.all("notifications"), SizeIs(200));
  EXPECT_EQ(api_.all("notificationtopics").at({"lab", "operators"})["status"]["dropped"].integer(), 3);
  deliver();
  EXPECT_EQ(api_.all("notificationtopics").at({"lab", "operators"})["status"]["dropped"].integer(), 3);
}

TEST(Retries, DoubleUpToFiveMinutesAndSpread) {
  EXPECT_EQ(retry_after(1, 0), 1s);
  EXPECT_EQ(retry_after(4, 0), 8s);
  EXPECT_EQ(retry_after(50, 0), 300s);
  EXPECT_EQ(retry_after(50, 1), 150s);
}

TEST(Deliveries, AreGivenUpAfterAWeekAndNeverForAChannelThatIsGone) {
  const Instant now = *parse_time("2026-03-14T00:00:00Z");
  const Topic topic = read_topic(kube::parse_yaml("{metadata: {name: t}, spec: {channels: [{name: hook, webhook: {url: \"https://h/x\"}}]}}")->at(0));
  const auto letter = [&](std::chrono::hours age, const char* target) {
    return Letter{.key = {"lab", "n" + std::to_string(age.count()) + target}, .uid = target + std::to_string(age.count()), .made = now - age, .event = {.id = event_id("u", "h", 1, "", ""), .space = "lab"}, .deliveries = {{.target = target, .attempts = 3, .reason = "answered 503"}}};
  };
  const auto plan = plan_delivery(topic, {letter(24h * 8, "hook"), letter(1h, "hook"), letter(1h, "gone")}, {}, Json(), now);
  std::map<std::string, Delivery> by;
  for (const auto& one : plan.letters) by[one.key.name] = one.deliveries[0];
  EXPECT_EQ(by.at("n192hook").state, Delivery::State::GaveUp);
  EXPECT_THAT(by.at("n192hook").reason, HasSubstr("3 attempts in 7 days: answered 503"));
  EXPECT_EQ(by.at("n1gone").state, Delivery::State::GaveUp);
  EXPECT_EQ(by.at("n1hook").state, Delivery::State::Waiting);
  EXPECT_THAT(plan.sends, SizeIs(1));
  for (const auto& one : plan.letters) EXPECT_EQ(letter_status(read_letter(Json::object({{"spec", Json::object({{"event", event_json(one.event)}})}, {"status", letter_status(one)}})))["deliveries"], letter_status(one)["deliveries"]) << "comes back";
}

}  // namespace
}  // namespace fairlead::notify
