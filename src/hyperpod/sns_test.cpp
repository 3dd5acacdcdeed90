// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/sns.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/notification.h"
#include "hyperpod/sigv4.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Form = std::vector<std::pair<std::string, std::string>>;

struct SnsService : testing::Test {
  TestSite site;
  Credentials root = site.user("root", {everything});
  const std::string arn = "arn:aws:sns:fairlead-1:111122223333:Alarms";
  TestSite::Said call(const char* action, Form form, const Credentials* who = nullptr, const std::string& invocation = "") {
    std::string body = fmt::format("Version=2010-03-31&Action={}", action);
    for (const auto& [name, value] : form) body += "&" + name + "=" + http::escape(value);
    http::Request of{.method = "POST", .target = *http::parse_target("/"), .headers = {{"Host", "127.0.0.1:6444"}, {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}}, .body = body, .peer = {.address = "127.0.0.1", .common_name = {}, .organizations = {}}};
    if (!invocation.empty()) of.headers.emplace_back("amz-sdk-invocation-id", invocation);
    sign_request(of, who == nullptr ? root : *who, "fairlead-1", "sns", site.clock.now());
    return site.send(std::move(of));
  }
  Json topic() { return site.api.all("notificationtopics").begin()->second; }
  std::vector<Json> stored() {
    std::vector<Json> out;
    for (const auto& [key, object] : site.api.all("notifications")) out.push_back(object);
    return out;
  }
  std::string subscribe(const std::string& protocol, const std::string& endpoint) { return call("Subscribe", {{"TopicArn", arn}, {"Protocol", protocol}, {"Endpoint", endpoint}, {"ReturnSubscriptionArn", "true"}}).text("SubscriptionArn"); }
};

TEST_F(SnsService, ATopicIsANotificationTopicAndSubscriptionsAreItsChannels) {
  auto said = call("CreateTopic", {{"Name", "Alarms"}, {"Attributes.entry.1.key", "DisplayName"}, {"Attributes.entry.1.value", "Alarms of ml"}});
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_THAT(said.body, HasSubstr("xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\""));
  EXPECT_EQ(said.text("TopicArn"), arn);
  EXPECT_EQ(call("CreateTopic", {{"Name", "Alarms"}}).text("TopicArn"), arn);  // again: the same
  EXPECT_EQ(site.api.all("notificationtopics").size(), 1U);
  const std::string hook = subscribe("https", "https://alarm.example.com/hook?token=a"), plain = subscribe("http", "http://10.0.0.1:8080/");
  EXPECT_THAT(hook, HasSubstr(arn + ":"));
  EXPECT_EQ(subscribe("https", "https://alarm.example.com/hook?token=a"), hook);
  EXPECT_EQ(topic()["spec"]["channels"].items().size(), 2U);
  EXPECT_EQ(topic()["spec"]["channels"].items()[0]["sns"]["topicArn"].string(), arn);
  EXPECT_FALSE(topic()["spec"]["channels"].items()[0]["sns"].has("insecureHTTP"));
  EXPECT_TRUE(topic()["spec"]["channels"].items()[1]["sns"]["insecureHTTP"].boolean());
  EXPECT_THAT(call("ListSubscriptionsByTopic", {{"TopicArn", arn}}).body, AllOf(HasSubstr("<SubscriptionArn>" + hook + "</SubscriptionArn>"), HasSubstr("<Endpoint>http://10.0.0.1:8080/</Endpoint>"), HasSubstr("<Protocol>https</Protocol>")));
  EXPECT_THAT(call("GetTopicAttributes", {{"TopicArn", arn}}).body, AllOf(HasSubstr("<key>SubscriptionsConfirmed</key><value>2</value>"), HasSubstr("<value>Alarms of ml</value>"), HasSubstr("<key>Owner</key><value>111122223333</value>")));
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", hook}}).status, 200);
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", hook}}).status, 200);
  EXPECT_THAT(call("ListSubscriptions", {}).body, AllOf(HasSubstr(plain), Not(HasSubstr(hook))));
  EXPECT_THAT(call("ListTopics", {}).body, HasSubstr("<Topics><member><TopicArn>" + arn + "</TopicArn></member></Topics>"));
  EXPECT_EQ(call("DeleteTopic", {{"TopicArn", arn}}).status, 200);
  EXPECT_EQ(call("DeleteTopic", {{"TopicArn", arn}}).status, 200);
  EXPECT_EQ(call("GetTopicAttributes", {{"TopicArn", arn}}).code, "NotFound");
  EXPECT_EQ(site.audit.back()["eventSource"].string(), "sns.amazonaws.com");
}

TEST_F(SnsService, WhatAdministratorsMadeIsToldWithoutItsSecretsAndNotTakenAway) {
  ASSERT_TRUE(site.api.create(api::kTopics, *kube::parse_json(R"({"metadata": {"name": "ops", "namespace": "fairlead-system"}, "spec": {"channels": [{"name": "sns-a", "webhook": {"url": "https://chat.example.com/secret/path"}}, {"name": "mail", "email": {"server": "s", "from": "a@b", "to": ["ops@example.com", "two@example.com"]}}, {"name": "x", "sns": {"urlFrom": {"name": "s", "key": "k"}}}]}})")));
  ASSERT_TRUE(site.api.create(api::kTopics, *kube::parse_json(R"({"metadata": {"name": "theirs", "namespace": "demo"}, "spec": {"channels": []}})")));
  EXPECT_THAT(call("ListTopics", {}).body, AllOf(HasSubstr(":ops<"), Not(HasSubstr("theirs"))));
  const auto said = call("ListSubscriptionsByTopic", {{"TopicArn", "arn:aws:sns:fairlead-1:111122223333:ops"}});
  EXPECT_THAT(said.body, AllOf(HasSubstr("<Endpoint>https://chat.example.com/...</Endpoint>"), HasSubstr("<Endpoint>ops@example.com</Endpoint>"), HasSubstr("<Endpoint>two@example.com</Endpoint>"), Not(HasSubstr("secret"))));
  EXPECT_THAT(call("Unsubscribe", {{"SubscriptionArn", said.text("SubscriptionArn")}}).message, HasSubstr("was not made by Subscribe"));
  EXPECT_EQ(call("Subscribe", {{"TopicArn", "arn:aws:sns:fairlead-1:111122223333:theirs"}, {"Protocol", "https"}, {"Endpoint", "https://a/"}}).code, "NotFound");
}

TEST_F(SnsService, WhatSubscribeMadeIsKnownByItsNameOnTopicsOfAdministratorsToo) {
  ASSERT_TRUE(site.api.create(api::kTopics, *kube::parse_json(R"({"metadata": {"name": "ops", "namespace": "fairlead-system"}, "spec": {"channels": [{"name": "chat", "webhook": {"url": "https://chat.example.com/secret/path"}}]}})")));
  const std::string ops = "arn:aws:sns:fairlead-1:111122223333:ops";
  const auto subscribe_to = [&](const std::string& endpoint) { return call("Subscribe", {{"TopicArn", ops}, {"Protocol", "https"}, {"Endpoint", endpoint}}); };
  const auto first = subscribe_to("https://alarm.example.com/hook");
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(subscribe_to("https://alarm.example.com/hook").text("SubscriptionArn"), first.text("SubscriptionArn"));
  ASSERT_EQ(topic()["spec"]["channels"].items().size(), 2U);
  EXPECT_THAT(call("ListSubscriptionsByTopic", {{"TopicArn", ops}}).body, AllOf(HasSubstr("<Endpoint>https://alarm.example.com/hook</Endpoint>"), HasSubstr("<Endpoint>https://chat.example.com/...</Endpoint>")));
  // As an address that is told without its path looks like: it is another one.
  EXPECT_NE(subscribe_to("https://chat.example.com/...").text("SubscriptionArn"), "");
  EXPECT_EQ(topic()["spec"]["channels"].items().size(), 3U);
  // Changed by hand: it is not what was subscribed to any more, and its address may be a secret.
  Json changed = topic(), channels = changed["spec"]["channels"];
  channels.items()[1].child("sns").set("url", "https://other.example.com/secret/path");
  changed.child("spec").set("channels", channels);
  ASSERT_TRUE(site.api.update(api::kTopics, changed));
  EXPECT_THAT(call("ListSubscriptionsByTopic", {{"TopicArn", ops}}).body, Not(HasSubstr("secret")));
  EXPECT_THAT(subscribe_to("https://alarm.example.com/hook").message, HasSubstr("was changed and has another address"));
  EXPECT_THAT(call("Unsubscribe", {{"SubscriptionArn", first.text("SubscriptionArn")}}).message, HasSubstr("was not made by Subscribe"));
  changed = topic(), channels.items()[1].child("sns").set("url", "https://alarm.example.com/hook");
  changed.child("spec").set("channels", channels);
  ASSERT_TRUE(site.api.update(api::kTopics, changed));
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", first.text("SubscriptionArn")}}).status, 200);
  EXPECT_EQ(topic()["spec"]["channels"].items().size(), 2U);
}

TEST_F(SnsService, TopicsHaveAnEnd) {
  ASSERT_TRUE(site.api.create(api::kTopics, *kube::parse_json(R"({"metadata": {"name": "ops", "namespace": "fairlead-system"}, "spec": {"channels": []}})")));  // does not count
  for (std::size_t i = 0; i < kMostTopics; ++i) ASSERT_EQ(call("CreateTopic", {{"Name", fmt::format("t{}", i)}}).status, 200) << i;
  const auto said = call("CreateTopic", {{"Name", "more"}});
  EXPECT_EQ(said.code, "TopicLimitExceeded");
  EXPECT_EQ(said.status, 403);
  EXPECT_THAT(said.message, HasSubstr("delete one"));
  EXPECT_EQ(call("CreateTopic", {{"Name", "t7"}}).status, 200);  // it is there
  EXPECT_EQ(call("DeleteTopic", {{"TopicArn", "arn:aws:sns:fairlead-1:111122223333:t7"}}).status, 200);
  EXPECT_EQ(call("CreateTopic", {{"Name", "more"}}).status, 200);
}

TEST_F(SnsService, MessagesThatAreKeptHaveAnEnd) {
  call("CreateTopic", {{"Name", "Alarms"}});
  subscribe("https", "https://alarm.example.com/");
  const std::string large(256 << 10, 'a'), name = kube::name_of(topic());
  const auto publish = [&](const std::string& text) { return call("Publish", {{"TopicArn", arn}, {"Message", text}}); };
  // What a topic may take, told at once by who counts along.
  for (int i = 0; i < 63; ++i) ASSERT_EQ(publish(large).status, 200) << i;
  auto said = publish(large);
  EXPECT_EQ(said.code, "Throttled") << said.body;
  EXPECT_EQ(said.status, 429);
  EXPECT_THAT(said.message, AllOf(HasSubstr("16 MiB"), HasSubstr("describe notificationtopic " + name)));
  EXPECT_EQ(stored().size(), 63U);
  EXPECT_EQ(publish("small").status, 200);
  // Delivered and gone: seen at the next look.
  for (const Json& one : stored()) ASSERT_TRUE(site.api.remove(api::kNotifications, kube::key_of(one), {}));
  EXPECT_EQ(publish(large).code, "Throttled");
  site.clock.advance(15s);
  EXPECT_EQ(publish(large).status, 200);
  // What all may take; events of clusters are none of it.
  for (int i = 0; i < 70; ++i) {
    const char* type = i < 6 ? "ClusterEvent" : "Message";
    ASSERT_TRUE(site.api.create(api::kNotifications, Json::object({{"metadata", Json::object({{"name", fmt::format("n{}", i)}, {"namespace", "fairlead-system"}})}, {"spec", Json::object({{"topic", fmt::format("t{}", i)}, {"event", Json::object({{"type", type}, {"message", Json::object({{"text", std::string((1 << 20) - 12288, 'b')}})}})}})}})));
  }
  site.clock.advance(15s);
  EXPECT_EQ(publish(large).status, 200);
  said = publish(large);
  EXPECT_EQ(said.code, "Throttled");
  EXPECT_THAT(said.message, HasSubstr("64 MiB"));
  // A batch tells of each; who cannot count keeps nothing.
  EXPECT_THAT(call("PublishBatch", {{"TopicArn", arn}, {"PublishBatchRequestEntries.member.1.Id", "a"}, {"PublishBatchRequestEntries.member.1.Message", large}}).body, HasSubstr("<Failed><member><Id>a</Id>"));
  Racing racing(site.api);
  racing.unreadable = "notifications";
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, Operations(), site.clock, FrontOptions{.per_second = 0, .sns = [&](const std::string& action, const http::Query& form, const Call& asked) { return answer_sns(action, form, asked, racing, "fairlead-system", site.kept); }});
  site.clock.advance(15s);
  const auto before = stored().size();
  EXPECT_GE(publish("m").status, 500);
  EXPECT_EQ(stored().size(), before);
}

TEST_F(SnsService, MailNeedsTheSitesServer) {
  call("CreateTopic", {{"Name", "Alarms"}});
  EXPECT_THAT(call("Subscribe", {{"TopicArn", arn}, {"Protocol", "email"}, {"Endpoint", "ops@example.com"}}).message, AllOf(HasSubstr("email needs the site's mail server"), HasSubstr(kMailServer)));
  ASSERT_TRUE(site.api.create(kube::resources::config_maps, Json::object({{"metadata", Json::object({{"name", "fairlead-aws"}, {"namespace", "fairlead-system"}})}, {"data", Json::object({{kMailServer, "smtp.example.com"}, {kMailFrom, "fairlead@example.com"}, {kMailPort, "2525"}, {kMailSecret, "smtp"}})}})));
  const std::string first = subscribe("email", "ops@example.com"), second = subscribe("email", "two@example.com");
  ASSERT_NE(first, "");
  EXPECT_NE(first, second);
  EXPECT_EQ(kube::print_json(topic()["spec"]["channels"].items()[0]["email"]), R"({"server":"smtp.example.com","from":"fairlead@example.com","port":2525,"credentialsSecret":{"name":"smtp"},"to":["ops@example.com","two@example.com"]})");
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", first}}).status, 200);
  EXPECT_EQ(topic()["spec"]["channels"].items()[0]["email"]["to"].items().size(), 1U);
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", second}}).status, 200);
  EXPECT_EQ(topic()["spec"]["channels"].items().size(), 0U);
}

TEST_F(SnsService, TheCouriersWritesDoNotGetInTheWay) {
  call("CreateTopic", {{"Name", "Alarms"}});
  Racing racing(site.api);
  int races = 3;
  racing.after_get = [&](const kube::Resource& resource, const Json& object) {
    if (resource.plural != "notificationtopics" || races-- <= 0) return;
    Json next = object;
    next.set("status", Json::object({{"observedGeneration", races}}));
    ASSERT_TRUE(site.api.update_status(api::kTopics, next));
  };
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, Operations(), site.clock, FrontOptions{.per_second = 0, .sns = [&](const std::string& action, const http::Query& form, const Call& asked) { return answer_sns(action, form, asked, racing, "fairlead-system", site.kept); }});
  const std::string made = subscribe("https", "https://alarm.example.com/");
  ASSERT_NE(made, "");
  EXPECT_LE(races, 0);
  EXPECT_EQ(topic()["spec"]["channels"].items().size(), 1U);
  races = 100;
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", made}}).code, "ConcurrentAccess");
  races = 1;
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", made}}).status, 200);
  EXPECT_EQ(topic()["spec"]["channels"].items().size(), 0U);
}

TEST_F(SnsService, AMessageIsStoredBeforeTheAnswerAndOnceForOneCall) {
  call("CreateTopic", {{"Name", "Alarms"}});
  auto said = call("Publish", {{"TopicArn", arn}, {"Message", "to nobody"}});
  EXPECT_EQ(said.status, 200);
  EXPECT_EQ(stored().size(), 0U);  // as in SNS
  subscribe("https", "https://alarm.example.com/");
  const Form form{{"TopicArn", arn}, {"Subject", "It burns"}, {"Message", "line\n<&> ä"}, {"MessageAttributes.entry.1.Name", "level"}, {"MessageAttributes.entry.1.Value.DataType", "String"}, {"MessageAttributes.entry.1.Value.StringValue", "high"}};
  said = call("Publish", form, nullptr, "one");
  ASSERT_EQ(said.status, 200) << said.body;
  ASSERT_EQ(stored().size(), 1U);
  const Json letter = stored()[0];
  EXPECT_EQ(letter["spec"]["topic"].string(), kube::name_of(topic()));
  EXPECT_EQ(kube::name_of(letter), letter["spec"]["event"]["id"].string() + "." + kube::name_of(topic()));
  EXPECT_EQ(letter["spec"]["event"]["message"]["text"].string(), "line\n<&> ä");
  EXPECT_EQ(letter["spec"]["event"]["message"]["attributes"]["level"]["Value"].string(), "high");
  EXPECT_EQ(letter["metadata"]["ownerReferences"].items()[0]["uid"].string(), kube::uid_of(topic()));
  EXPECT_EQ(api::message_id_of(letter["spec"]["event"]["id"].string().substr(4)), said.text("MessageId"));
  EXPECT_EQ(call("Publish", form, nullptr, "one").text("MessageId"), said.text("MessageId"));  // sent again, since no answer came
  EXPECT_EQ(stored().size(), 1U);
  EXPECT_NE(call("Publish", form, nullptr, "two").text("MessageId"), said.text("MessageId"));
  call("Publish", form);
  call("Publish", form);
  EXPECT_EQ(stored().size(), 4U);
  Form other = form;
  other[2].second = "another";
  EXPECT_NE(call("Publish", other, nullptr, "one").text("MessageId"), said.text("MessageId"));
  const auto json = call("Publish", {{"TargetArn", arn}, {"MessageStructure", "json"}, {"Message", R"({"default": "d", "email": "e", "sqs": "q"})"}}, nullptr, "three");
  ASSERT_EQ(json.status, 200) << json.body;
  bool found = false;
  for (const Json& one : stored())
    if (one["spec"]["event"]["message"]["text"].string() == "d") found = kube::print_json(one["spec"]["event"]["message"]["texts"]) == R"({"email":"e"})";
  EXPECT_TRUE(found);
  EXPECT_THAT(kube::print_json(Json::array(site.audit)), Not(HasSubstr("It burns")));
}

TEST_F(SnsService, ABatchTellsOfEachEntry) {
  call("CreateTopic", {{"Name", "Alarms"}});
  subscribe("https", "https://alarm.example.com/");
  const auto entry = [](Form& form, int i, const std::string& id, const std::string& message) {
    form.emplace_back(fmt::format("PublishBatchRequestEntries.member.{}.Id", i), id);
    form.emplace_back(fmt::format("PublishBatchRequestEntries.member.{}.Message", i), message);
  };
  Form form{{"TopicArn", arn}};
  entry(form, 1, "a", "one"), entry(form, 2, "b", "one"), entry(form, 3, "c", "");
  const auto said = call("PublishBatch", form, nullptr, "x");
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_THAT(said.body, AllOf(HasSubstr("<Successful><member><Id>a</Id><MessageId>"), HasSubstr("<Failed><member><Id>c</Id><Code>InvalidParameter</Code>"), HasSubstr("<SenderFault>true</SenderFault>")));
  EXPECT_EQ(stored().size(), 2U);
  call("PublishBatch", form, nullptr, "x");
  EXPECT_EQ(stored().size(), 2U);
  Form twice{{"TopicArn", arn}};
  entry(twice, 1, "a", "one"), entry(twice, 2, "a", "two");
  EXPECT_EQ(call("PublishBatch", twice).code, "BatchEntryIdsNotDistinct");
  EXPECT_EQ(call("PublishBatch", {{"TopicArn", arn}}).code, "EmptyBatchRequest");
  Form many{{"TopicArn", arn}}, large{{"TopicArn", arn}};
  for (int i = 1; i <= 11; ++i) entry(many, i, fmt::format("e{}", i), "m");
  EXPECT_EQ(call("PublishBatch", many).code, "TooManyEntriesInBatchRequest");
  entry(large, 1, "a", std::string(200 << 10, 'a')), entry(large, 2, "b", std::string(60 << 10, 'b'));
  EXPECT_EQ(call("PublishBatch", large).code, "BatchRequestTooLong");
  EXPECT_EQ(stored().size(), 2U);
}

TEST_F(SnsService, WhatIsNotCarriedOutIsRefusedByName) {
  call("CreateTopic", {{"Name", "Alarms"}});
  subscribe("https", "https://alarm.example.com/");
  EXPECT_THAT(call("CreateTopic", {{"Name", "a.fifo"}}).message, HasSubstr("FIFO"));
  EXPECT_THAT(call("CreateTopic", {{"Name", "a"}, {"Attributes.entry.1.key", "KmsMasterKeyId"}, {"Attributes.entry.1.value", "k"}}).message, HasSubstr("KmsMasterKeyId is not served"));
  EXPECT_THAT(call("CreateTopic", {{"Name", "a"}, {"Tags.member.1.Key", "k"}}).message, HasSubstr("Tags is not served"));
  for (const auto& [protocol, endpoint] : std::initializer_list<std::pair<const char*, const char*>>{{"sqs", "arn:aws:sqs:a:b:c"}, {"sms", "+1"}, {"https", "http://a/"}, {"https", "https://user:pass@a/"}, {"https", "https://a/ b"}, {"https", "https:///"}, {"email", "nobody"}, {"email", "a@b\r\nBcc: c@d"}})
    EXPECT_EQ(call("Subscribe", {{"TopicArn", arn}, {"Protocol", protocol}, {"Endpoint", endpoint}}).code, "InvalidParameter") << endpoint;
  EXPECT_THAT(call("Subscribe", {{"TopicArn", arn}, {"Protocol", "https"}, {"Endpoint", "https://b/"}, {"Attributes.entry.1.key", "FilterPolicy"}, {"Attributes.entry.1.value", "{}"}}).message, HasSubstr("FilterPolicy"));
  EXPECT_THAT(call("ConfirmSubscription", {{"TopicArn", arn}, {"Token", "t"}}).message, HasSubstr("is not needed here"));
  EXPECT_EQ(call("CreatePlatformApplication", {}).code, "InvalidAction");
  EXPECT_THAT(call("Publish", {{"PhoneNumber", "+1"}, {"Message", "m"}}).message, HasSubstr("PhoneNumber is not served"));
  EXPECT_THAT(call("Publish", {{"TopicArn", arn}, {"Message", "m"}, {"MessageGroupId", "g"}}).message, HasSubstr("MessageGroupId"));
  EXPECT_THAT(call("Publish", {{"TopicArn", arn}, {"Message", std::string((256 << 10) + 1, 'a')}}).message, HasSubstr("Message too long"));
  EXPECT_EQ(call("Publish", {{"TopicArn", arn}, {"Message", ""}}).code, "InvalidParameter");
  EXPECT_EQ(call("Publish", {{"TopicArn", arn}, {"Message", "m"}, {"Subject", "a\nb"}}).code, "InvalidParameter");
  EXPECT_EQ(call("Publish", {{"TopicArn", arn}, {"Message", "\xFF"}}).code, "InvalidParameter");
  EXPECT_EQ(call("Publish", {{"TopicArn", arn}, {"Message", "m"}, {"MessageStructure", "json"}}).code, "InvalidParameter");
  EXPECT_EQ(call("Publish", {{"TopicArn", arn + "x"}, {"Message", "m"}}).code, "NotFound");
  EXPECT_EQ(call("Publish", {{"TopicArn", "Alarms"}, {"Message", "m"}}).code, "InvalidParameter");
  EXPECT_EQ(stored().size(), 0U);
  EXPECT_EQ(call("Publish", {{"TopicArn", arn}, {"Message", std::string(256 << 10, 'a')}}).status, 200);
  for (int i = 2; i <= 16; ++i) EXPECT_NE(subscribe("https", fmt::format("https://h{}/", i)), "");
  EXPECT_EQ(call("Subscribe", {{"TopicArn", arn}, {"Protocol", "https"}, {"Endpoint", "https://one-more/"}}).code, "SubscriptionLimitExceeded");
}

TEST_F(SnsService, NoMessagePushesAnotherOut) {
  call("CreateTopic", {{"Name", "Alarms"}});
  subscribe("https", "https://alarm.example.com/");
  Json full = topic();
  full.set("status", *kube::parse_json(R"({"waiting": 200, "channels": [{"target": "sns-x", "waiting": 200}]})"));
  ASSERT_TRUE(site.api.update_status(api::kTopics, full));
  const auto said = call("Publish", {{"TopicArn", arn}, {"Message", "m"}});
  EXPECT_EQ(said.code, "Throttled");
  EXPECT_EQ(said.status, 429);
  EXPECT_THAT(said.message, HasSubstr("200 messages of this topic wait"));
  EXPECT_EQ(stored().size(), 0U);
}

TEST_F(SnsService, WhoMayIsDecidedByTheArnOfTheTopic) {
  call("CreateTopic", {{"Name", "Alarms"}});
  call("CreateTopic", {{"Name", "Other"}});
  const Credentials head = site.user("head", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sns:Publish", "Resource": "arn:aws:sns:*:111122223333:Alarms"}})"});
  EXPECT_EQ(call("Publish", {{"TopicArn", arn}, {"Message", "m"}}, &head).status, 200);
  const auto there = call("Publish", {{"TopicArn", "arn:aws:sns:fairlead-1:111122223333:Other"}, {"Message", "m"}}, &head), none = call("Publish", {{"TopicArn", "arn:aws:sns:fairlead-1:111122223333:None"}, {"Message", "m"}}, &head);
  EXPECT_EQ(there.code, "AuthorizationError");
  EXPECT_EQ(none.code, "AuthorizationError");
  EXPECT_EQ(there.status, 403);
  for (const char* action : {"ListTopics", "ListSubscriptions"}) EXPECT_EQ(call(action, {}, &head).code, "AuthorizationError");
  for (const char* action : {"GetTopicAttributes", "ListSubscriptionsByTopic", "DeleteTopic"}) EXPECT_EQ(call(action, {{"TopicArn", arn}}, &head).code, "AuthorizationError");
  EXPECT_EQ(call("CreateTopic", {{"Name", "Alarms"}}, &head).code, "AuthorizationError");
  EXPECT_EQ(call("Unsubscribe", {{"SubscriptionArn", arn + ":x"}}, &head).code, "AuthorizationError");
  const Credentials mailer = site.user("mailer", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sns:Subscribe", "Resource": "*", "Condition": {"StringEquals": {"sns:Protocol": "https"}, "StringLike": {"sns:Endpoint": "https://alarm.example.com/*"}}}})"});
  EXPECT_EQ(call("Subscribe", {{"TopicArn", arn}, {"Protocol", "https"}, {"Endpoint", "https://alarm.example.com/a"}}, &mailer).status, 200);
  EXPECT_EQ(call("Subscribe", {{"TopicArn", arn}, {"Protocol", "https"}, {"Endpoint", "https://evil.example.com/a"}}, &mailer).code, "AuthorizationError");
}

}  // namespace
}  // namespace fairlead::hyperpod
