// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/render.h"

#include <gmock/gmock.h>

#include "base/encoding.h"
#include "notify/plan/delivery.h"
#include "notify/plan/preview.h"
#include "notify/plan/smtp.h"

namespace fairlead::notify {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::Not;

const Instant kNow = *parse_time("2026-03-04T05:06:07Z");

Event event() {
  return {.id = event_id("u", "controller-0", 3, "On", "Off"), .type = EventType::PrimaryOff, .time = kNow, .space = "lab", .cluster = "demo", .cluster_uid = "u", .head = "controller-0", .old_state = "On",
          .new_state = "Off", .cause = "its pod is gone; controller-1 was elected in term 5", .next_step = "None at once.", .ready = 2, .wanted = 3, .term = 5};
}

std::string header(const Post& post, const std::string& name) {
  for (const auto& [key, value] : post.headers)
    if (key == name) return value;
  return "";
}

// The example of https://github.com/standard-webhooks/standard-webhooks (its library tests).
TEST(Webhook, SignsAsStandardWebhooksDo) {
  const auto key = read_signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
  ASSERT_TRUE(key);
  EXPECT_EQ(webhook_signature(*key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", R"({"test": 2432232314})"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
  EXPECT_FALSE(read_signing_key("short"));
  EXPECT_FALSE(read_signing_key("whsec_%%%"));
}

TEST(Webhook, SaysEverything) {
  const Post post = render_webhook(event(), "0123456789abcdef", kNow);
  const auto body = kube::parse_json(post.body);
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)["cluster"]["name"].string(), "demo");
  EXPECT_EQ((*body)["head"].string(), "controller-0");
  EXPECT_EQ((*body)["oldState"].string() + ">" + (*body)["newState"].string(), "On>Off");
  EXPECT_EQ((*body)["time"].string(), "2026-03-04T05:06:07Z");
  EXPECT_THAT((*body)["cause"].string(), HasSubstr("elected"));
  EXPECT_FALSE((*body)["nextStep"].string().empty());
  EXPECT_EQ((*body)["redundancy"]["ready"].integer(), 2);
  EXPECT_EQ(header(post, "webhook-id"), event().id);
  EXPECT_EQ(header(post, "webhook-timestamp"), "1772600767");
  EXPECT_EQ(header(post, "webhook-signature"), webhook_signature("0123456789abcdef", event().id, "1772600767", post.body));
  EXPECT_EQ(header(render_webhook(event(), "", kNow), "webhook-signature"), "");
}

TEST(Sns, IsTheDocumentOfASubscriber) {
  const Post post = render_sns(event(), {.name = "operators"}, "", "https", "", kNow);
  const auto body = kube::parse_json(post.body);
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)["Type"].string(), "Notification");
  EXPECT_THAT((*body)["MessageId"].string(), testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
  EXPECT_EQ((*body)["TopicArn"].string(), "arn:aws:sns:fairlead:000000000000:operators");
  EXPECT_EQ((*body)["Timestamp"].string(), "2026-03-04T05:06:07.000Z");
  EXPECT_LE((*body)["Subject"].string().size(), 100u);
  EXPECT_EQ(kube::parse_json((*body)["Message"].string()).value()["id"].string(), event().id);
  EXPECT_EQ(header(post, "x-amz-sns-message-type"), "Notification");
}

TEST(Sns, AMessageIsSentAsItWasPublished) {
  const Json topic = Json::object({{"metadata", Json::object({{"name", "alarms"}, {"namespace", "fairlead-system"}, {"uid", "t"}})}});
  api::Published published{.digits = "0123456789abcdef0123456789abcdef", .time = kNow, .text = "a {\"b\": 1}\nline", .subject = "It burns", .attributes = Json::object({{"level", Json::object({{"Type", "String"}, {"Value", "high"}})}}), .texts = Json::object({{"http", "plain"}, {"email", "by mail\r\n.\r\n"}})};
  const Json object = api::published_notification(published, topic);
  EXPECT_EQ(kube::name_of(object), "evt-0123456789abcdef0123456789abcdef.alarms");
  const Letter letter = read_letter(object);
  ASSERT_EQ(letter.problem, "");
  EXPECT_EQ(letter.event.type, EventType::Message);
  EXPECT_EQ(kube::print_json(event_json(letter.event)["message"]), kube::print_json(object["spec"]["event"]["message"]));
  const Post post = render_sns(letter.event, {.name = "alarms"}, "arn:aws:sns:fairlead-1:111122223333:alarms", "https", "", kNow);
  const auto body = kube::parse_json(post.body);
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)["MessageId"].string(), api::message_id_of(published.digits));
  EXPECT_EQ((*body)["Message"].string(), published.text);
  EXPECT_EQ((*body)["Subject"].string(), "It burns");
  EXPECT_EQ((*body)["MessageAttributes"]["level"]["Value"].string(), "high");
  EXPECT_EQ(kube::parse_json(render_sns(letter.event, {.name = "alarms"}, "", "http", "", kNow).body).value()["Message"].string(), "plain");
  const std::string mail = render_mail(letter.event, "fairlead@example.com", "ops@example.com");
  EXPECT_THAT(mail, HasSubstr("\r\nSubject: It burns\r\n"));
  EXPECT_THAT(mail, HasSubstr("by mail=0D\r\n"));
  EXPECT_EQ(kube::parse_json(render_webhook(letter.event, "", kNow).body).value()["message"]["text"].string(), published.text);
  // Without a subject none is made up.
  published.subject.clear();
  EXPECT_FALSE(kube::parse_json(render_sns(read_letter(api::published_notification(published, topic)).event, {.name = "alarms"}, "", "https", "", kNow).body).value().has("Subject"));
}

TEST(Topic, WhatSnsMadeNeedsNoChannels) {
  Json object = Json::object({{"metadata", Json::object({{"name", "alarms"}, {"namespace", "fairlead-system"}})}, {"spec", Json::object({{"channels", Json::array()}})}});
  EXPECT_EQ(read_topic(object).problem, "spec.channels: there is none");
  object.child("metadata").set("annotations", Json::object({{api::kTopicNameNote, "alarms"}}));
  EXPECT_EQ(read_topic(object).problem, "");
}

TEST(Mail, CannotBeGivenAnotherHeader) {
  Event bad = event();
  bad.cluster = "demo\r\nBcc: thief@example.com";
  bad.head = "controller-0\nX-Evil: 1";
  bad.cause = std::string("caf\xc3\xa9 = ") + std::string(300, 'x') + "\r\n.\r\nRCPT TO:<thief@example.com>";
  const std::string mail = render_mail(bad, "fairlead@example.com", "ops@example.com");
  const std::string head = mail.substr(0, mail.find("\r\n\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("\nBcc")));
  EXPECT_THAT(head, Not(HasSubstr("\nX-Evil")));
  std::size_t begin = 0;
  for (std::size_t end; (end = mail.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_TRUE(end > 0 && mail[end - 1] == '\r');
    EXPECT_LE(end - begin, 79u) << mail.substr(begin, end - begin);
  }
  EXPECT_TRUE(std::all_of(mail.begin(), mail.end(), [](unsigned char c) { return c < 0x80; }));
}

TEST(Mail, IsTheSameEachTime) {
  const std::string mail = render_mail(event(), "fairlead@example.com", "ops@example.com");
  EXPECT_EQ(mail, render_mail(event(), "fairlead@example.com", "ops@example.com"));
  EXPECT_THAT(mail, HasSubstr("Date: Wed, 04 Mar 2026 05:06:07 +0000\r\n"));
  EXPECT_THAT(mail, HasSubstr("Message-ID: <" + event().id + "@example.com>\r\n"));
  EXPECT_THAT(mail, HasSubstr("Subject: [Fairlead] Slurm cluster lab/demo: head controller-0 is OFF (was ON)\r\n"));
  EXPECT_THAT(mail, HasSubstr("2 of 3 heads"));
}

TEST(Mail, QuotedPrintable) {
  EXPECT_EQ(quoted_printable("a=b \n"), "a=3Db=20\r\n");
  EXPECT_EQ(quoted_printable(std::string(80, 'a')), std::string(75, 'a') + "=\r\n" + std::string(5, 'a') + "\r\n");
  EXPECT_EQ(quoted_printable("\xc3\xa9\r\n"), "=C3=A9=0D\r\n");
}

TEST(Topics, SayWhatIsWrong) {
  struct Case {
    const char* channel;
    const char* want;
  };
  for (const Case& row : {Case{"{name: a, webhook: {url: \"http://h/x\"}}", "insecureHTTP"}, Case{"{name: a, webhook: {url: \"https://u:p@h/x\"}}", "password"}, Case{"{name: a}", "exactly one"},
                          Case{"{name: a, webhook: {}, sns: {}}", "exactly one"}, Case{"{name: a, webhook: {}}", "urlFrom"}, Case{"{name: a, webhook: {url: \"https://h:99999/\"}}", "port"},
                          Case{"{name: a, email: {server: h, from: a@b, to: [\"x@y>\"]}}", "to:"}, Case{"{name: a, email: {server: h, from: \"a@b\\r\\n\", to: [x@y]}}", "from:"},
                          Case{"{name: a, email: {server: h, from: a@b, to: [x@y], tls: None, credentialsSecret: {name: s}}}", "never sent without TLS"}}) {
    const Topic topic = read_topic(kube::parse_yaml(std::string("{metadata: {name: t}, spec: {channels: [") + row.channel + "]}}")->at(0));
    ASSERT_EQ(topic.channels.size(), 1u) << row.channel;
    EXPECT_THAT(topic.channels[0].problem, HasSubstr(row.want)) << row.channel;
  }
}

TEST(Topics, AddressesOfChannels) {
  EXPECT_EQ(*parse_url("https://hooks.example.com/a/b?c=d#e"), (Url{true, "hooks.example.com", 443, "/a/b?c=d"}));
  EXPECT_EQ(*parse_url("http://[fd00::1]:8080"), (Url{false, "fd00::1", 8080, "/"}));
  EXPECT_EQ(*parse_url("https://h?x"), (Url{true, "h", 443, "/?x"}));
  for (const char* bad : {"", "ftp://h", "https://", "https:///x", "https://h:0/", "https://h:/", "https://h x/", "https://h/\r\nA: b", "https://a:b:c/"}) EXPECT_FALSE(parse_url(bad)) << bad;
}

TEST(Preview, ShowsEveryTarget) {
  const Topic topic = read_topic(kube::parse_yaml("{metadata: {name: t}, spec: {channels: [{name: hook, webhook: {url: \"https://h/x\"}}, {name: mail, email: {server: h, from: a@b.c, to: [x@y.z, v@w.x]}}, {name: bad}]}}")->at(0));
  const Json shown = preview(topic, test_event("lab", std::string(32, 'a'), kNow), kNow);
  ASSERT_EQ(shown.items().size(), 4u);
  EXPECT_EQ(shown.items()[0]["target"].string(), "hook");
  EXPECT_EQ(shown.items()[1]["target"].string(), "mail/x@y.z");
  EXPECT_THAT(shown.items()[2]["body"].string(), HasSubstr("To: <v@w.x>"));
  EXPECT_FALSE(shown.items()[3]["problem"].string().empty());
}

// The server's lines, what we say to each, and how it ends.
struct Talk {
  const char* name;
  bool start_tls, secure, password;
  std::vector<std::pair<const char*, const char*>> lines;  // theirs, ours ("TLS": the handshake, "": nothing yet)
  const char* error;                                       // "": delivered
};
class SmtpTalks : public testing::TestWithParam<Talk> {};
TEST_P(SmtpTalks, Go) {
  const Talk& row = GetParam();
  SmtpDialogue dialogue({.helo = "me", .from = "a@b.c", .to = "x@y.z", .message = "S: 1\r\n\r\n.dot\r\n", .start_tls = row.start_tls, .secure = row.secure, .username = row.password ? "user" : "", .password = row.password ? "secret" : ""});
  std::string error;
  for (const auto& [theirs, ours] : row.lines) {
    auto next = dialogue.receive(theirs);
    if (!next) {
      error = next.error().message;
      break;
    }
    if (*next == SmtpDialogue::Next::BeginTls) {
      EXPECT_STREQ(ours, "TLS");
      dialogue.tls_began();
      EXPECT_EQ(dialogue.take_to_send(), "EHLO me\r\n");
      continue;
    }
    if (*next == SmtpDialogue::Next::Write) EXPECT_EQ(dialogue.take_to_send(), ours);
    else EXPECT_STREQ(ours, "");
  }
  if (std::string_view(row.error) == "not over") EXPECT_NE(dialogue.next(), SmtpDialogue::Next::Done);
  else if (*row.error) EXPECT_THAT(error, HasSubstr(row.error));
  else EXPECT_EQ(dialogue.next(), SmtpDialogue::Next::Done) << error;
}
INSTANTIATE_TEST_SUITE_P(
    Smtp, SmtpTalks,
    testing::Values(
        Talk{"plain", false, false, false, {{"220 hi\r\n", "EHLO me\r\n"}, {"250-x\r\n250 SIZE\r\n", "MAIL FROM:<a@b.c>\r\n"}, {"250 ok\r\n", "RCPT TO:<x@y.z>\r\n"}, {"250 ok\r\n", "DATA\r\n"}, {"354 go\r\n", "S: 1\r\n\r\n..dot\r\n.\r\n"}, {"250 stored\r\n", "QUIT\r\n"}}, ""},
        Talk{"start_tls", true, false, true, {{"220 hi\r\n", "EHLO me\r\n"}, {"250-x\r\n250 STARTTLS\r\n", "STARTTLS\r\n"}, {"220 go\r\n", "TLS"}, {"250-x\r\n250 AUTH LOGIN PLAIN\r\n", "AUTH PLAIN AHVzZXIAc2VjcmV0\r\n"}, {"235 in\r\n", "MAIL FROM:<a@b.c>\r\n"}}, "not over"},
        Talk{"login", false, true, true, {{"220 hi\r\n", "EHLO me\r\n"}, {"250-x\r\n250 AUTH LOGIN\r\n", "AUTH LOGIN\r\n"}, {"334 VXNlcm5hbWU6\r\n", "dXNlcg==\r\n"}, {"334 UGFzc3dvcmQ6\r\n", "c2VjcmV0\r\n"}, {"535 no\r\n", ""}}, "refuses user and password (status 535)"},
        Talk{"no_start_tls", true, false, true, {{"220 hi\r\n", "EHLO me\r\n"}, {"250 x\r\n", ""}}, "offers no STARTTLS"},
        Talk{"no_password_in_the_clear", false, false, true, {{"220 hi\r\n", "EHLO me\r\n"}, {"250-x\r\n250 AUTH PLAIN\r\n", ""}}, "never sent without TLS"},
        Talk{"injected_before_tls", true, false, true, {{"220 hi\r\n", "EHLO me\r\n"}, {"250-x\r\n250 STARTTLS\r\n", "STARTTLS\r\n"}, {"220 go\r\n250 AUTH PLAIN\r\n", ""}}, "before it is asked"},
        Talk{"recipient_refused", false, false, false, {{"220 hi\r\n", "EHLO me\r\n"}, {"250 x\r\n", "MAIL FROM:<a@b.c>\r\n"}, {"250 ok\r\n", "RCPT TO:<x@y.z>\r\n"}, {"550 who\r\n", ""}}, "refuses the recipient (status 550)"},
        Talk{"in_pieces", false, false, false, {{"22", ""}, {"0 hi\r", ""}, {"\n", "EHLO me\r\n"}}, "not over"}, Talk{"http", false, false, false, {{"HTTP/1.1 400\r\n", ""}}, "not a mail server"}),
    [](const auto& row) { return row.param.name; });

TEST(Smtp, DotsAreStuffed) {
  EXPECT_EQ(dot_stuffed(".a\r\nb.\r\n..\r\n"), "..a\r\nb.\r\n...\r\n.\r\n");
  EXPECT_EQ(dot_stuffed("a"), "a\r\n.\r\n");
}

}  // namespace
}  // namespace fairlead::notify
