// SPDX-License-Identifier: Apache-2.0
// Both controllers over an API that forgets nothing, and a courier that the test moves: servers come and go between any two steps.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/encoding.h"
#include "kube/fenced_api.h"
#include "kube/scripted_api.h"
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

// The API with a policy of the site before creates.
struct GuardedApi final : kube::BareApi {
  explicit GuardedApi(kube::KubeApi& to) : api(to) {}
  kube::KubeApi& api;
  std::map<std::string, Error> refused;  // by topic
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api.get(resource, key); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    const auto no = refused.find(object["spec"]["topic"].string());
    if (no != refused.end()) return std::unexpected(no->second);
    return api.create(resource, object);
  }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return api.update_status(resource, object); }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override { return api.remove(resource, key, options); }
};

class Notifications : public testing::Test {
 protected:
  Notifications() {
    yaml(resources::slurm_clusters, R"({metadata: {name: demo, namespace: lab, uid: u1, generation: 1}, spec: {
      extensions: {notifications: [{topic: operators}]}, volumeSources: [{name: spool, persistentVolumeClaim: {claimName: spool}}],
      slurmNodes: {controller: {size: 3, volumes: {spool: {volumeSourceName: spool}}}, worker: {size: 1}, login: {size: 1}}}})");
    yaml(kTopics, R"({metadata: {name: operators, namespace: lab, uid: t1, generation: 1}, spec: {channels: [
      {name: hook, webhook: {url: "https://hooks.example.com/x", hmacSecret: {name: keys, key: hmac}}}, {name: mail, email: {server: mx, from: a@b.c, to: [ops@b.c]}}]}})");
    secret("keys", {{"hmac", "0123456789abcdef"}});
    for (int i = 0; i < 3; ++i) pod(i, true);
    slice(0, 1);
    restart();
    tell();  // the first look
  }
  ~Notifications() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  void yaml(const kube::Resource& resource, const char* text) { ASSERT_TRUE(api_.put(resource, kube::parse_yaml(text)->at(0))); }
  void secret(const char* name, const std::vector<std::pair<std::string, std::string>>& data, bool meant = true, const char* host = nullptr) {
    Json metadata = Json::object({{"name", name}, {"namespace", "lab"}}), values = Json::object();
    if (meant) metadata.set("labels", Json::object({{"fairlead.dev/notifications", "true"}}));
    if (host) metadata.set("annotations", Json::object({{"fairlead.dev/host", host}}));
    for (const auto& [key, value] : data) values.set(key, base64(value));
    ASSERT_TRUE(api_.put(resources::secrets, Json::object({{"metadata", std::move(metadata)}, {"data", std::move(values)}})));
  }
  void only(const std::string& channel) {
    Json topic = api_.all("notificationtopics").at({"lab", "operators"});
    auto parsed = kube::parse_yaml(channel);
    ASSERT_TRUE(parsed);
    topic.child("spec").set("channels", Json::array({parsed->at(0)}));
    ASSERT_TRUE(api_.put(kTopics, topic));
  }
  // What a refused Secret leads to: no parcel, and this in the topic's condition.
  std::string refused() {
    pod(2, false);
    tell();
    deliver();
    deliver();
    EXPECT_THAT(shared_.parcels, IsEmpty());
    return condition(kTopics, "operators", "Delivered");
  }
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
  GuardedApi guarded_{checked_};
  kube::FencedApi fenced_{guarded_, []() -> Result<std::int64_t> { return 3; }};
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
  secret("keys", {{"hmac", "0123456789abcdef"}});
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

TEST_F(Notifications, ASecretThatIsNotMeantForThisIsNotUsed) {
  only("{name: hook, webhook: {url: \"https://hooks.example.com/x\", hmacSecret: {name: keys, key: hmac}}}");
  secret("keys", {{"hmac", "0123456789abcdef"}}, false);
  const std::string why = refused();
  EXPECT_THAT(why, HasSubstr("Secret keys lacks the label fairlead.dev/notifications=true"));
  EXPECT_THAT(why, HasSubstr("kubectl -n lab label secret keys fairlead.dev/notifications=true"));
}

// Each member of a channel that names a Secret, with one of somebody else's.
class NotificationsOfOthers : public Notifications, public testing::WithParamInterface<const char*> {};
TEST_P(NotificationsOfOthers, StayTheirs) {
  only(GetParam());
  for (const bool meant : {false, true}) {
    secret("git", {{"username", "me"}, {"password", "hunter2"}, {"key", "https://internal.example.com/0123456789"}}, meant);
    if (!meant) {
      const std::string why = refused();
      EXPECT_THAT(why, HasSubstr("Secret git lacks the label"));
      for (const char* secret : {"me\"", "hunter2", "internal", "0123456789"}) EXPECT_THAT(why, testing::Not(HasSubstr(secret)));
      clock_.advance(1h);
      continue;
    }
    deliver();
    EXPECT_THAT(shared_.parcels, SizeIs(1)) << "with the label it is used";
  }
}
INSTANTIATE_TEST_SUITE_P(ByMember, NotificationsOfOthers,
                         testing::Values("{name: c, email: {server: mx, from: a@b.c, to: [ops@b.c], credentialsSecret: {name: git}}}", "{name: c, email: {server: mx, from: a@b.c, to: [ops@b.c], caSecret: {name: git, key: key}}}",
                                         "{name: c, webhook: {urlFrom: {name: git, key: key}}}", "{name: c, webhook: {url: \"https://h/x\", hmacSecret: {name: git, key: key}}}",
                                         "{name: c, sns: {url: \"https://h/x\", caSecret: {name: git, key: key}}}"));

TEST_F(Notifications, ASecretOfAHostGoesToNoOther) {
  const std::vector<std::pair<std::string, std::string>> data = {{"username", "me"}, {"password", "hunter2"}, {"url", "https://Hooks.example.com:8443/x"}};
  for (const auto& [channel, host, sent] : {std::tuple{"{name: c, email: {server: mail.evil.example, from: a@b.c, to: [ops@b.c], credentialsSecret: {name: one}}}", "smtp.example.com", false},
                                           {"{name: c, email: {server: SMTP.example.com, from: a@b.c, to: [ops@b.c], credentialsSecret: {name: one}}}", "smtp.example.com", true},
                                           {"{name: c, webhook: {url: \"https://evil.example/x\", hmacSecret: {name: one, key: password}}}", "hooks.example.com", false},
                                           {"{name: c, webhook: {urlFrom: {name: one, key: url}}}", "hooks.example.com", true},
                                           {"{name: c, webhook: {urlFrom: {name: one, key: url}}}", "", false},
                                           {"{name: c, webhook: {urlFrom: {name: one, key: password}}}", "hooks.example.com", false}}) {
    only(channel);
    secret("one", data, true, host);
    api_.all("notifications").clear();
    carried();
    deliver();
    Event event{.id = event_id("u", "h", 1, "", ""), .type = EventType::Test, .time = clock_.now(), .space = "lab"};
    ASSERT_TRUE(api_.create(kNotifications, notification_object(event, "operators", Json())));
    deliver();
    deliver();
    EXPECT_THAT(shared_.parcels, SizeIs(sent ? 1 : 0)) << channel << " " << host;
    if (!sent) {
      EXPECT_THAT(condition(kTopics, "operators", "Delivered"), HasSubstr(fmt::format("Secret one is for another host: its annotation fairlead.dev/host is \"{}\"", host))) << channel;
    }
  }
}

TEST_F(Notifications, OneRefusedTopicSilencesNeitherTheOthersNorTheCondition) {
  Json cluster = api_.all("slurmclusters").at({"lab", "demo"});
  cluster.child("spec").child("extensions").set("notifications", kube::parse_yaml("[{topic: Ops Team}, {topic: full}, {topic: operators}]")->at(0));
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  guarded_.refused["full"] = {Code::Forbidden, "exceeded quota: few"};
  pod(2, false);
  tell();
  EXPECT_THAT(api_.all("notifications"), SizeIs(1)) << "of the topic behind them";
  const auto said = [&] { return condition(resources::slurm_clusters, "demo", "NotificationsDelivered"); };
  EXPECT_THAT(said(), HasSubstr("False TopicRefused: spec.extensions.notifications[0].topic: \"Ops Team\" is no name of an object"));
  EXPECT_THAT(said(), HasSubstr("full: the API refused 1 events: exceeded quota: few"));
  // The record goes on: what comes back is an event of its own.
  pod(2, true);
  tell();
  EXPECT_THAT(api_.all("notifications"), SizeIs(2));
  EXPECT_THAT(said(), HasSubstr("full: the API refused 2 events"));
  restart();
  tell();
  EXPECT_THAT(said(), HasSubstr("full: the API refused 2 events")) << "it is remembered";
  guarded_.refused.clear();
  pod(2, false);
  tell();
  EXPECT_THAT(api_.all("notifications"), SizeIs(4));
  EXPECT_THAT(said(), testing::Not(HasSubstr("refused")));
}

TEST_F(Notifications, WhatTheApiCannotTakeNowIsMadeAgainAndHoldsUpNoOther) {
  Json cluster = api_.all("slurmclusters").at({"lab", "demo"});
  cluster.child("spec").child("extensions").set("notifications", kube::parse_yaml("[{topic: later}, {topic: operators}]")->at(0));
  ASSERT_TRUE(api_.put(resources::slurm_clusters, cluster));
  guarded_.refused["later"] = {Code::Unavailable, "a webhook does not answer"};
  pod(2, false);
  EXPECT_FALSE(roles_->reconcile({"lab", "demo"})) << "it is to be tried again";
  EXPECT_THAT(api_.all("notifications"), SizeIs(1));
  EXPECT_NE(condition(resources::slurm_clusters, "demo", "NotificationsDelivered"), "none");
  guarded_.refused.clear();
  tell();
  ASSERT_THAT(api_.all("notifications"), SizeIs(2));
  std::set<std::string> ids;
  for (const auto& [key, object] : api_.all("notifications")) ids.insert(object["spec"]["event"]["id"].string());
  EXPECT_THAT(ids, SizeIs(1)) << "one event, told to both";
}

TEST_F(Notifications, NothingIsKeptOfTopicsThatAreNotThere) {
  deliver();
  const std::size_t before = delivery_->remembered();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(delivery_->reconcile({"lab", "made-up-" + std::to_string(i)}));
  EXPECT_EQ(delivery_->remembered(), before);
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

TEST(Deliveries, OfLargeMessagesThatAreOverTheOldestGo) {
  const Instant now = *parse_time("2026-03-14T00:00:00Z");
  const Topic topic = read_topic(kube::parse_yaml("{metadata: {name: t}, spec: {channels: [{name: hook, webhook: {url: \"https://h/x\"}}]}}")->at(0));
  const auto letter = [&](int hours, EventType type, Delivery::State state) {
    Event event{.id = event_id("u", "h", hours, "", ""), .type = type, .time = now, .space = "lab", .message = Json::object({{"text", std::string(200 << 10, 'a')}})};
    Letter out{.key = {"lab", fmt::format("n{}", hours)}, .uid = fmt::format("u{}", hours), .made = now - std::chrono::hours(hours), .event = event, .deliveries = {{.target = "hook", .state = state, .attempts = 1, .since = now}}};
    const Letter read = read_letter(Json::object({{"metadata", Json::object({{"name", out.key.name}, {"namespace", "lab"}, {"uid", out.uid}, {"creationTimestamp", print_time(out.made)}})}, {"spec", Json::object({{"topic", "t"}, {"event", event_json(event)}})}, {"status", letter_status(out)}}));
    EXPECT_EQ(read.bytes, type == EventType::Message ? 200U << 10 : 0U);
    return read;
  };
  using State = Delivery::State;
  const auto plan = plan_delivery(topic, {letter(6, EventType::Test, State::Delivered), letter(5, EventType::Message, State::Waiting), letter(4, EventType::Message, State::Delivered), letter(3, EventType::Message, State::Delivered), letter(2, EventType::Message, State::Delivered)}, {}, Json(), now);
  std::vector<std::string> gone;
  for (const Removal& one : plan.removals) gone.push_back(one.key.name);
  EXPECT_EQ(gone, (std::vector<std::string>{"n4", "n3"}));  // 400 KiB are left, of them what waits
  EXPECT_THAT(plan.sends, SizeIs(1));
}

}  // namespace
}  // namespace fairlead::notify
