// SPDX-License-Identifier: Apache-2.0
#include "agent/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "agent/metadata_service.h"
#include "base/fd.h"
#include "http/client.h"
#include "http/memory_tls.h"
#include "http/test_site.h"

namespace fairlead::agent {
namespace {

using namespace std::chrono_literals;
using kube::Json;
using testing::HasSubstr;

const Instant now = *parse_time("2026-11-27T10:00:00Z");
const MetadataTokens tokens("a key of this start");
const Json document = *kube::parse_json(R"({"accountId": "111122223333", "region": "fairlead-1", "instanceId": "i-0a1b2c3d4e5f60718", "instanceType": "ml.c5.large", "clusterName": "blue", "instanceGroupName": "Workers", "roleName": "workers",
  "roleArn": "arn:aws:iam::111122223333:role/workers", "roleId": "AROAX", "credentials": {"AccessKeyId": "ASIAX", "SecretAccessKey": "s", "Token": "t", "LastUpdated": "2026-11-27T09:59:00Z", "Expiration": "2026-11-27T11:00:00Z"}})");
const NodeFacts facts{.name = "w0", .address = "10.77.1.4", .address6 = {}, .architecture = "x86_64"};

http::Request request(const std::string& method, const std::string& target, http::Headers headers = {}) { return {.method = method, .target = *http::parse_target(target), .headers = std::move(headers), .body = {}, .peer = {}}; }
const http::Headers minute{{"X-aws-ec2-metadata-token-ttl-seconds", "60"}};

TEST(Metadata, ATokenIsMadeAndShown) {
  const auto made = read_metadata_question(request("PUT", "/latest/api/token", minute), true, tokens, now);
  ASSERT_EQ(made.ask, MetadataAsk::Token);
  EXPECT_EQ(made.answer.status, 200);
  EXPECT_EQ(http::find(made.answer.headers, "x-aws-ec2-metadata-token-ttl-seconds"), "60");
  const std::string token = made.answer.body;
  const auto ask = [&](const std::string& shown, Instant at, const MetadataTokens& by = tokens) { return read_metadata_question(request("GET", "/latest/meta-data/instance-id", {{"X-aws-ec2-metadata-token", shown}}), true, by, at); };
  const auto good = ask(token, now + 59s);
  EXPECT_EQ(good.ask, MetadataAsk::Look);
  EXPECT_EQ(good.path, "meta-data/instance-id");
  std::string changed = token;
  changed[0] = changed[0] == '9' ? '8' : '9';
  for (const std::string& bad : {std::string(), changed, token.substr(1), token + "0", std::string("."), std::string("x."), "x" + token, std::string(4096, 'a')}) EXPECT_EQ(ask(bad, now).answer.status, 401) << bad.substr(0, 100);
  EXPECT_EQ(ask(token, now + 60s).answer.status, 401) << "it is over";
  EXPECT_EQ(ask(token, now, MetadataTokens("of another start")).answer.status, 401);
}

TEST(Metadata, WhatIsRefused) {
  struct Row {
    const char *method, *target;
    http::Headers headers;
    bool own;
    int status;
  };
  const std::string token = tokens.make(now, 60s);
  const http::Headers shown{{"X-aws-ec2-metadata-token", token}};
  for (const Row& row : {Row{"GET", "/latest/meta-data/iam/security-credentials/", {}, true, 401}, Row{"GET", "/latest/meta-data/iam/security-credentials/", shown, false, 403}, Row{"PUT", "/latest/api/token", minute, false, 403}, Row{"PUT", "/latest/api/token", {}, true, 400},
                         Row{"PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "0"}}, true, 400}, Row{"PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "21601"}}, true, 400}, Row{"PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "6x"}}, true, 400},
                         Row{"PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "99999999999"}}, true, 400}, Row{"PUT", "/latest/api/token", {minute[0], {"X-Forwarded-For", "10.0.0.1"}}, true, 403}, Row{"GET", "/latest/api/token", shown, true, 405}, Row{"POST", "/latest/meta-data/", shown, true, 405},
                         Row{"PUT", "/latest/meta-data/", shown, true, 405}, Row{"GET", "/latestx/meta-data", shown, true, 404}, Row{"GET", "/", shown, true, 404}, Row{"GET", "/2021-03-23/meta-data", shown, true, 404}}) {
    const auto no = read_metadata_question(request(row.method, row.target, row.headers), row.own, tokens, now);
    EXPECT_EQ(no.ask, MetadataAsk::Refused) << row.method << row.target;
    EXPECT_EQ(no.answer.status, row.status) << row.method << " " << row.target;
  }
  EXPECT_EQ(read_metadata_question(request("PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}}), true, tokens, now).ask, MetadataAsk::Token);
}

std::string told(const std::map<std::string, std::string>& tree, const std::string& path) {
  const auto answer = answer_metadata(tree, path);
  return answer.status == 200 ? answer.body : std::to_string(answer.status);
}

TEST(Metadata, TellsTheInstanceAndItsRole) {
  const auto tree = metadata_tree(facts, document, now);
  EXPECT_EQ(told(tree, ""), "dynamic/\nmeta-data/");
  EXPECT_EQ(told(tree, "meta-data/instance-id"), "i-0a1b2c3d4e5f60718");
  EXPECT_EQ(told(tree, "meta-data/local-ipv4"), "10.77.1.4");
  EXPECT_EQ(told(tree, "meta-data/placement"), "region");
  EXPECT_EQ(told(tree, "meta-data/iam/security-credentials"), "workers");
  EXPECT_THAT(told(tree, "meta-data"), HasSubstr("iam/\ninstance-id\n"));
  const Json credentials = *kube::parse_json(told(tree, "meta-data/iam/security-credentials/workers"));
  EXPECT_EQ(credentials["Code"].string(), "Success");
  EXPECT_EQ(credentials["AccessKeyId"].string(), "ASIAX");
  EXPECT_EQ(credentials["Expiration"].string(), "2026-11-27T11:00:00Z");
  const Json identity = *kube::parse_json(told(tree, "dynamic/instance-identity/document"));
  EXPECT_EQ(identity["region"].string(), "fairlead-1");
  EXPECT_EQ(identity["privateIp"].string(), "10.77.1.4");
  for (const char* const path : {"meta-data/iam/security-credentials/other", "meta-data/instance", "user-data", "meta-data//instance-id", "meta-data/instance-id/x", "../x"}) EXPECT_EQ(told(tree, path), "404") << path;
}

TEST(Metadata, ARoleThatMayNotBeHadIsToldAsInEc2) {
  Json broken = document;
  broken.erase("credentials");
  broken.set("problem", "the trust policy says no");
  const auto tree = metadata_tree(facts, broken, now);
  const Json said = *kube::parse_json(told(tree, "meta-data/iam/security-credentials/workers"));
  EXPECT_EQ(said["Code"].string(), "AssumeRoleUnauthorizedAccess");
  EXPECT_EQ(said["Message"].string(), "the trust policy says no");
  EXPECT_FALSE(said.has("AccessKeyId"));
  const auto none = metadata_tree(facts, std::nullopt, now);
  EXPECT_EQ(told(none, "meta-data/iam/security-credentials"), "404");
  EXPECT_EQ(told(none, "meta-data/instance-id"), "404");
  EXPECT_EQ(told(none, "meta-data/hostname"), "w0");
}

TEST(Metadata, AnIncompleteDocumentIsNone) {
  EXPECT_TRUE(check_document(document));
  for (const char* const name : {"accountId", "region", "instanceId", "instanceType"}) {
    Json lacking = document;
    lacking.erase(name);
    EXPECT_FALSE(check_document(lacking)) << name;
  }
  for (const char* const name : {"AccessKeyId", "SecretAccessKey", "Token", "LastUpdated", "Expiration"}) {
    Json lacking = document;
    lacking.child("credentials").erase(name);
    EXPECT_FALSE(check_document(lacking)) << name;
  }
  Json odd = document;
  odd.set("roleName", "a/b");
  EXPECT_FALSE(check_document(odd));
  odd = document;
  odd.child("credentials").set("Expiration", "soon");
  EXPECT_FALSE(check_document(odd));
  EXPECT_FALSE(check_document(Json()));
}

// A clock by hand, of both kinds.
struct HandClock : Clock {
  std::atomic<std::int64_t> seconds{0};
  Instant now() const override { return agent::now + std::chrono::seconds(seconds); }
  std::chrono::nanoseconds monotonic() const override { return 1h + std::chrono::seconds(seconds); }
};

struct Served : testing::Test {
  http::TestSite site;
  HandClock clock;
  std::mutex mutex;
  std::vector<std::string> seen;  // who asked
  std::atomic<bool> silent = false;
  std::vector<std::shared_ptr<http::Exchange>> held;
  http::Response answer{.status = 200, .headers = {{"Content-Type", "application/json"}}, .body = kube::print_json(document), .parts = {}};
  std::unique_ptr<http::Server> face = *http::serve_with_certificate({.address = "127.0.0.1", .port = 0}, site.server, [this](http::Request asked, std::shared_ptr<http::Exchange> exchange) {
    const std::lock_guard lock(mutex);
    seen.push_back(asked.peer.common_name + " " + asked.target.path);
    if (silent) held.push_back(std::move(exchange));
    else exchange->respond(answer);
  }, site.ca.certificate_pem);
  http::KeyPair own = *http::issue(site.ca, {.common_name = "system:node:w0", .organizations = {"system:nodes"}, .client = true}, SystemClock().now());
  Result<FaceAddress> where = FaceAddress{"127.0.0.1", face->port(), site.ca.certificate_pem};
  std::unique_ptr<MetadataService> service = start({});
  std::unique_ptr<MetadataService> start(std::set<std::string> addresses, std::chrono::milliseconds patience = 20s) {
    return *MetadataService::start(clock, {.address = "127.0.0.1", .port = 0, .facts = facts, .own = std::move(addresses), .find_face = [this] { return where; }, .patience = patience, .certificate = [this]() -> Result<http::KeyPair> { return own; }});
  }
  http::Response ask(const std::string& method, const std::string& target, http::Headers headers) {
    const auto client = *http::Client::make({.host = "127.0.0.1", .port = service->port(), .tls = false});
    const auto said = client->request({.method = method, .target = target, .headers = std::move(headers), .body = {}});
    return said ? *said : http::Response{.status = 0};
  }
  http::Response look(const std::string& below) {
    const auto token = ask("PUT", "/latest/api/token", minute);
    return ask("GET", "/latest/" + below, {{"X-aws-ec2-metadata-token", token.body}});
  }
  void pass_time(int by) { clock.seconds += by; }
};

TEST_F(Served, TheNodeProvesItselfAndIsAskedForNowAndThen) {
  const auto id = look("meta-data/instance-id");
  EXPECT_EQ(id.status, 200);
  EXPECT_EQ(id.body, "i-0a1b2c3d4e5f60718");
  EXPECT_EQ(look("meta-data/iam/security-credentials/").body, "workers");
  pass_time(4);
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 200);
  EXPECT_THAT(seen, testing::ElementsAre("system:node:w0 /v1/node"));
  pass_time(2);
  EXPECT_EQ(look("meta-data/instance-id").status, 200);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(ask("GET", "/latest/meta-data/instance-id", {}).status, 401) << "version 1 is not there";
}

TEST_F(Served, WhatWasToldHoldsWhileTheFaceIsAwayUntilItEnds) {
  EXPECT_EQ(look("meta-data/instance-id").status, 200);
  answer.status = 503;
  pass_time(61);
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 200);
  face.reset();
  pass_time(61);
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 200);
  pass_time(3600);
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 503) << "they have ended";
  EXPECT_EQ(look("meta-data/instance-id").status, 503);
}

TEST_F(Served, ASilentFaceKeepsNobodyFromWhatIsKnown) {
  service.reset();
  service = start({}, 50ms);
  for (int tries = 0; tries < 100 && look("meta-data/instance-id").status != 200; ++tries) continue;
  ASSERT_EQ(look("meta-data/instance-id").status, 200);
  silent = true;
  pass_time(61);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 200);
  pass_time(3600);
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 503) << "they have ended";
  silent = false;
  const std::lock_guard lock(mutex);
  held.clear();  // nobody has to wait for these at the end
}

TEST_F(Served, AnotherInstanceIsTheNodesWithinSeconds) {
  EXPECT_EQ(look("meta-data/instance-id").body, "i-0a1b2c3d4e5f60718");
  Json other = document;
  other.set("instanceId", "i-1");
  answer.body = kube::print_json(other);
  pass_time(6);
  EXPECT_EQ(look("meta-data/instance-id").body, "i-1");
  answer = {.status = 404, .headers = {}, .body = "{}", .parts = {}};
  pass_time(6);
  EXPECT_EQ(look("meta-data/instance-id").status, 404);
  answer = {.status = 200, .headers = {}, .body = kube::print_json(document), .parts = {}};
  pass_time(2);
  EXPECT_EQ(look("meta-data/instance-id").body, "i-0a1b2c3d4e5f60718") << "that it was none is soon forgotten";
}

TEST_F(Served, WhoComesFromAnotherAddressIsNobodyOfTheNode) {
  const auto status_from = [&](const char* by) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    ::inet_pton(AF_INET, by, &from.sin_addr);
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    to.sin_port = htons(service->port());
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const std::string asked = "PUT /latest/api/token HTTP/1.1\r\nHost: x\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(::send(fd, asked.data(), asked.size(), MSG_NOSIGNAL), static_cast<ssize_t>(asked.size()));
    std::string said(12, ' ');
    EXPECT_EQ(::recv(fd, said.data(), said.size(), MSG_WAITALL), 12);
    ::close(fd);
    return said.substr(9);
  };
  EXPECT_EQ(status_from("127.0.0.1"), "200");
  EXPECT_EQ(status_from("127.0.0.2"), "403") << "a pod's connection has the pod's address";
  service.reset();
  service = start({"127.0.0.2"});
  EXPECT_EQ(status_from("127.0.0.2"), "200");
}

// A pod of a Slurm cluster is answered as its node is, if the instance is of that cluster.
TEST_F(Served, PodsThatAreTheNodeOfTheInstancesSlurmCluster) {
  service.reset();
  std::string of;
  service = *MetadataService::start(clock, {.address = "127.0.0.2", .port = 0, .facts = facts, .own = {}, .slurm_cluster_of = [&](const std::string& from) { return from == "127.0.0.3" ? of : ""; }, .find_face = [this] { return where; }, .patience = 20s, .certificate = [this]() -> Result<http::KeyPair> { return own; }});
  // As `curl --interface 127.0.0.3` does.
  const auto from_pod = [&](const std::string& request) {
    const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    ::inet_pton(AF_INET, "127.0.0.3", &from.sin_addr);
    ::inet_pton(AF_INET, "127.0.0.2", &to.sin_addr);
    to.sin_port = htons(service->port());
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    std::string said;
    char block[4096];
    for (ssize_t got; (got = ::recv(fd.get(), block, sizeof block, 0)) > 0;) said.append(block, static_cast<std::size_t>(got));
    return said;
  };
  const auto token = [&] {
    const std::string said = from_pod("PUT /latest/api/token HTTP/1.1\r\nHost: x\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    return said.starts_with("HTTP/1.1 200") ? said.substr(said.find("\r\n\r\n") + 4) : said;
  };
  const auto id = [&] { return from_pod("GET /latest/meta-data/instance-id HTTP/1.1\r\nHost: x\r\nX-aws-ec2-metadata-token: " + token() + "\r\nConnection: close\r\n\r\n"); };
  EXPECT_THAT(token(), HasSubstr("HTTP/1.1 403")) << "some pod";
  of = "blue/blue";
  EXPECT_THAT(id(), HasSubstr("HTTP/1.1 403")) << "the instance is in no Slurm cluster";
  Json slurm = document;
  slurm.set("slurmCluster", "blue/blue");
  answer.body = kube::print_json(slurm);
  pass_time(6);
  EXPECT_THAT(id(), HasSubstr("i-0a1b2c3d4e5f60718"));
  of = "red/red";
  EXPECT_THAT(id(), HasSubstr("HTTP/1.1 403")) << "of another's";
  of = "blue/blue";
  answer = {.status = 404, .headers = {}, .body = "{}", .parts = {}};
  pass_time(6);
  EXPECT_THAT(id(), HasSubstr("HTTP/1.1 403")) << "it was given back";
}

TEST_F(Served, ANodeThatWasGivenBackHasNothing) {
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 200);
  answer = {.status = 404, .headers = {}, .body = "{}", .parts = {}};
  pass_time(61);
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 404);
  EXPECT_EQ(look("meta-data/hostname").body, "w0");
}

TEST_F(Served, ACertificateThatCountsNoMoreEndsWhatWasKept) {
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 200);
  answer = {.status = 403, .headers = {}, .body = "{}", .parts = {}};
  pass_time(61);
  EXPECT_EQ(look("meta-data/iam/security-credentials/workers").status, 503);
  answer = {.status = 200, .headers = {}, .body = R"({"accountId": "1"})", .parts = {}};
  pass_time(3);
  const auto said = look("meta-data/instance-id");
  EXPECT_EQ(said.status, 503);
  EXPECT_THAT(said.body, HasSubstr("has no region"));
}

TEST_F(Served, WithoutAFaceItSaysSo) {
  where = fail(Code::Forbidden, "configmaps \"fairlead-aws\" is forbidden");
  const auto said = look("meta-data/instance-id");
  EXPECT_EQ(said.status, 503);
  EXPECT_THAT(said.body, HasSubstr("is forbidden"));
}

}  // namespace
}  // namespace fairlead::agent
