// SPDX-License-Identifier: Apache-2.0
#include "agent/credentials_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "http/client.h"
#include "http/memory_tls.h"
#include "http/test_site.h"

namespace fairlead::agent {
namespace {

using kube::Json;
using testing::HasSubstr;

http::Request question(const std::string& method, const std::string& target, const std::string& token) {
  return {.method = method, .target = *http::parse_target(target), .headers = {{"Authorization", token}}, .body = {}, .peer = {}};
}

TEST(CredentialsRelayRules, OneQuestionGoesOn) {
  const RelayDecision good = decide_relay(question("GET", "/v1/credentials", "aaa.b-b_b.ccc"));
  EXPECT_TRUE(good.forward);
  EXPECT_EQ(good.question.token, "aaa.b-b_b.ccc");
  struct Row {
    const char *method, *target;
    std::string token;
    int status;
  };
  for (const Row& row : {Row{"POST", "/v1/credentials", "a.b.c", 405}, Row{"GET", "/v1/credentials?x=1", "a.b.c", 404}, Row{"GET", "/v1/credentials/", "a.b.c", 404}, Row{"GET", "/", "a.b.c", 404}, Row{"GET", "/latest/meta-data/", "a.b.c", 404}, Row{"GET", "/v1/credentials", "", 401},
                         Row{"GET", "/v1/credentials", "Bearer a.b.c", 401}, Row{"GET", "/v1/credentials", "a.b.c\r\nX: y", 401}, Row{"GET", "/v1/credentials", std::string(20'001, 'a'), 401}}) {
    const RelayDecision no = decide_relay(question(row.method, row.target, row.token));
    EXPECT_FALSE(no.forward) << row.target << " " << row.token.substr(0, 20);
    EXPECT_EQ(no.refusal.status, row.status) << row.method << " " << row.target;
  }
}

TEST(CredentialsRelayRules, WhereTheFaceIs) {
  const auto of = [](const char* data) { return read_face_address(Json::object({{"data", *kube::parse_json(data)}})); };
  const auto pods = of(R"({"endpoint": "https://127.0.0.1:6444", "pod-endpoint": "https://10.77.1.1:6444", "ca.crt": "PEM"})");
  ASSERT_TRUE(pods);
  EXPECT_EQ(*pods, (FaceAddress{"10.77.1.1", 6444, "PEM"}));
  EXPECT_EQ(*of(R"({"endpoint": "https://fairlead-aws.fairlead-system.svc", "ca.crt": "PEM"})"), (FaceAddress{"fairlead-aws.fairlead-system.svc", 443, "PEM"}));
  EXPECT_FALSE(of(R"({"endpoint": "https://h"})")) << "whom to believe?";
  EXPECT_FALSE(of(R"({"endpoint": "http://h", "ca.crt": "PEM"})"));
  EXPECT_FALSE(of(R"({"ca.crt": "PEM"})"));
  EXPECT_FALSE(of(R"({})"));
}

struct Relayed : testing::Test {
  http::TestSite site;
  SystemClock clock;
  std::mutex mutex;
  std::vector<http::Request> seen;
  http::Response answer{.status = 200, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", "r-1"}, {"Set-Cookie", "no"}}, .body = R"({"AccessKeyId": "ASIA"})", .parts = {}};
  std::unique_ptr<http::Server> face = *http::serve_with_certificate({.address = "127.0.0.1", .port = 0}, site.server, [this](http::Request request, std::shared_ptr<http::Exchange> exchange) {
    const std::lock_guard lock(mutex);
    seen.push_back(std::move(request));
    exchange->respond(answer);
  });
  std::atomic<int> looked = 0;
  Result<FaceAddress> where = FaceAddress{"127.0.0.1", face->port(), site.ca.certificate_pem};
  std::unique_ptr<CredentialsRelay> relay = *CredentialsRelay::start(clock, {.address = "127.0.0.1", .port = 0, .find_face = [this] { ++looked; return where; }});
  http::Response ask(const std::string& target = "/v1/credentials", const std::string& token = "a.b.c") {
    const auto client = *http::Client::make({.host = "127.0.0.1", .port = relay->port(), .tls = false});
    const auto said = client->request({.method = "GET", .target = target, .headers = {{"Authorization", token}, {"Cookie", "mine"}}, .body = {}});
    return said ? *said : http::Response{.status = 0};
  }
};

TEST_F(Relayed, ThePodHearsWhatTheFaceSays) {
  const auto said = ask();
  EXPECT_EQ(said.status, 200);
  EXPECT_EQ(said.body, R"({"AccessKeyId": "ASIA"})");
  EXPECT_EQ(http::find(said.headers, "x-amzn-requestid"), "r-1");
  EXPECT_EQ(http::find(said.headers, "set-cookie"), "");
  EXPECT_EQ(http::find(said.headers, "cache-control"), "no-store");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].target.path, "/v1/credentials");
  EXPECT_EQ(http::find(seen[0].headers, "authorization"), "a.b.c");
  EXPECT_EQ(http::find(seen[0].headers, "cookie"), "") << "the token alone goes on";
  answer.status = 403;
  EXPECT_EQ(ask().status, 403);
  EXPECT_EQ(looked, 1) << "the face is looked for once a minute";
}

TEST_F(Relayed, NothingElseGoesOn) {
  EXPECT_EQ(ask("/v1/other").status, 404);
  EXPECT_EQ(ask("/v1/credentials", "Bearer x").status, 401);
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(looked, 0);
}

TEST_F(Relayed, OnePodDoesNotTakeTheTurnsOfOthers) {
  int answered = 0, refused = 0;
  for (int i = 0; i < 60 && refused == 0; ++i) (ask().status == 429 ? refused : answered) += 1;
  EXPECT_GE(answered, 20);
  EXPECT_EQ(refused, 1);
}

TEST_F(Relayed, AFaceOfAnotherAuthorityIsNotAsked) {
  where = FaceAddress{"127.0.0.1", face->port(), http::make_ca("other", clock.now())->certificate_pem};
  EXPECT_EQ(ask().status, 503);
  EXPECT_TRUE(seen.empty());
  where = FaceAddress{"127.0.0.1", face->port(), site.ca.certificate_pem};
  EXPECT_EQ(ask().status, 200) << "it is looked for again after a failure";
}

TEST_F(Relayed, WithoutAFaceItSaysSo) {
  where = fail(Code::Forbidden, "configmaps \"fairlead-aws\" is forbidden");
  const auto said = ask();
  EXPECT_EQ(said.status, 503);
  EXPECT_THAT(said.body, HasSubstr("is forbidden"));
  answer.body = std::string(65 << 10, 'x');
  where = FaceAddress{"127.0.0.1", face->port(), site.ca.certificate_pem};
  EXPECT_EQ(ask().status, 503) << "no credentials are as long";
}

}  // namespace
}  // namespace fairlead::agent
