// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/node_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "base/log.h"
#include "http/client.h"
#include "http/test_site.h"
#include "hyperpod/door.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(NodeIndex, KnowsWhoseANodeIs) {
  NodeIndex index;
  const auto on = [](const char* id, const char* node) { return std::optional(Json::object({{"metadata", Json::object({{"name", id}})}, {"status", Json::object({{"node", node}})}})); };
  EXPECT_FALSE(index.instance_on("w0"));
  index.follow({.before = {}, .after = on("i-1", "")});
  EXPECT_FALSE(index.instance_on(""));
  index.follow({.before = on("i-1", ""), .after = on("i-1", "w0")});
  EXPECT_EQ(index.instance_on("w0"), "i-1");
  index.follow({.before = on("i-1", "w0"), .after = on("i-1", "w0")});
  index.follow({.before = {}, .after = on("i-2", "w0")});
  EXPECT_FALSE(index.instance_on("w0")) << "two say so: nobody knows";
  index.follow({.before = on("i-1", "w0"), .after = {}});
  EXPECT_EQ(index.instance_on("w0"), "i-2");
  index.follow({.before = on("i-2", "w0"), .after = on("i-2", "w1")});
  EXPECT_FALSE(index.instance_on("w0"));
  EXPECT_EQ(index.instance_on("w1"), "i-2");
}

TEST(NodeOf, IsWhoHasANodesCertificate) {
  EXPECT_EQ(node_of({.address = "10.77.1.4", .common_name = "system:node:w0", .organizations = {"system:nodes"}}), "w0");
  EXPECT_EQ(node_of({.address = "10.77.1.4", .common_name = "system:node:w0", .organizations = {"system:nodes", "fairlead:hosts"}}), "w0");
  EXPECT_EQ(node_of({.address = "10.77.1.4", .common_name = "system:node:w0", .organizations = {"system:masters"}}), "");
  EXPECT_EQ(node_of({.address = "10.77.1.4", .common_name = "w0", .organizations = {"system:nodes"}}), "");
  EXPECT_EQ(node_of({.address = "10.77.1.4", .common_name = {}, .organizations = {}}), "");
}

constexpr const char* role_arn = "arn:aws:iam::111122223333:role/workers";

struct Nodes : testing::Test {
  TestSite site;
  NodeIndex index;
  void role(Json more = Json::object()) { site.identity("Role", "workers", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:ListClusters", "Resource": "*"}})"}, more.has("trustPolicy") ? more : more.set("trustPolicy", trusts_sagemaker)); }
  Json cluster, instance;
  void SetUp() override {
    role();
    cluster = *site.api.create(api::kClusters, Json::object({{"metadata", Json::object({{"name", "blue"}})}, {"spec", Json::object({{"clusterName", "Blue"}, {"instanceGroups", Json::array({Json::object({{"instanceGroupName", "Workers"}, {"instanceType", "ml.c5.large"}, {"instanceCount", 1}, {"executionRole", role_arn}})})}})}}));
    instance = Json::object({{"metadata", Json::object({{"name", "i-0a1b2c3d4e5f60718"}})}, {"spec", Json::object({{"cluster", "blue"}, {"clusterUid", kube::uid_of(cluster)}, {"instanceGroupName", "Workers"}, {"instanceType", "ml.c5.large"}, {"number", 1}})}, {"status", Json::object({{"phase", "Running"}, {"node", "w0"}})}});
    instance = *site.api.create(api::kInstances, instance);
    instance = site.api.update_status(api::kInstances, instance.set("status", Json::object({{"phase", "Running"}, {"node", "w0"}}))).value();
    index.follow({.before = {}, .after = instance});
    FrontOptions options{.node_document = [this](const http::Peer& peer) { return node_document(node_of(peer), index, site.api.of(api::kInstances), site.api.of(api::kClusters), site.directory, site.seal, site.clock.now()); }, .audit = [this](const Json& record) { site.audit.push_back(record); }};
    site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, all_operations(site.sources(site.api)), site.clock, std::move(options));
  }
  http::Request request(const std::string& node) const { return {.method = "GET", .target = *http::parse_target("/v1/node"), .headers = {{"Host", "x"}}, .body = {}, .peer = node.empty() ? http::Peer{.address = "10.77.1.4", .common_name = {}, .organizations = {}} : http::Peer{.address = "10.77.1.4", .common_name = "system:node:" + node, .organizations = {"system:nodes"}}}; }
  TestSite::Said ask(const std::string& node = "w0") {
    auto of = request(node);
    if (auto no = site.front->turn_away(of)) return {.status = no->status, .body = no->body, .json = *kube::parse_json(no->body), .code = {}, .message = {}};
    return site.send(std::move(of));
  }
};

TEST_F(Nodes, HaveTheRoleOfTheirGroup) {
  const auto said = ask();
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.json["instanceId"].string(), "i-0a1b2c3d4e5f60718");
  EXPECT_EQ(said.json["instanceType"].string(), "ml.c5.large");
  EXPECT_EQ(said.json["accountId"].string(), "111122223333");
  EXPECT_EQ(said.json["clusterName"].string(), "Blue");
  EXPECT_EQ(said.json["slurmCluster"].string(), "cluster-blue/blue") << "whose pods are this node";
  EXPECT_EQ(said.json["roleName"].string(), "workers");
  EXPECT_EQ(said.json["credentials"]["Expiration"].string(), "2026-11-25T13:00:00Z") << "no longer than the role allows";
  const Credentials session{said.json["credentials"]["AccessKeyId"].string(), said.json["credentials"]["SecretAccessKey"].string(), said.json["credentials"]["Token"].string()};
  EXPECT_EQ(site.call(session, "ListClusters").status, 200);
  EXPECT_EQ(site.sts(session, {{"Action", "GetCallerIdentity"}}).text("Arn"), "arn:aws:sts::111122223333:assumed-role/workers/i-0a1b2c3d4e5f60718");
  const Json& told = site.audit.at(0);
  EXPECT_EQ(told["eventName"].string(), "AssumeRole");
  EXPECT_EQ(told["userIdentity"]["arn"].string(), "arn:aws:sts::111122223333:assumed-role/workers/i-0a1b2c3d4e5f60718");
  EXPECT_THAT(kube::print_json(told), testing::Not(HasSubstr(session.secret)));
}

TEST_F(Nodes, OthersHaveNothing) {
  EXPECT_EQ(ask("").status, 403);
  EXPECT_EQ(ask("w1").status, 404) << "in no cluster";
  index.follow({.before = instance, .after = {}});
  EXPECT_EQ(ask().status, 404) << "it was given back";
  index.follow({.before = {}, .after = instance});
  EXPECT_EQ(ask().status, 200);
  Json moved = instance;
  moved.set("status", Json::object({{"phase", "Running"}, {"node", "w7"}}));
  site.api.update_status(api::kInstances, moved).value();
  EXPECT_EQ(ask().status, 404) << "what is kept of the index is of before";
}

TEST_F(Nodes, AClusterThatWasMadeAnewIsAnother) {
  ASSERT_TRUE(site.api.remove(api::kClusters, {"", "blue"}, {}));
  EXPECT_EQ(ask().status, 404);
  Json anew = cluster;
  anew.child("metadata").erase("uid");
  anew.child("metadata").erase("resourceVersion");
  ASSERT_TRUE(site.api.create(api::kClusters, anew));
  EXPECT_EQ(ask().status, 404);
}

TEST_F(Nodes, ARoleThatIsOffOrTrustsNoMoreIsNotGiven) {
  const auto refused = [&](const char* why) {
    site.clock.advance(1s);
    const auto said = ask();
    EXPECT_EQ(said.status, 200);
    EXPECT_TRUE(said.json["credentials"].is_null()) << why;
    EXPECT_THAT(said.json["problem"].string(), HasSubstr(why));
    EXPECT_EQ(said.json["instanceId"].string(), "i-0a1b2c3d4e5f60718");
  };
  role(Json::object({{"disabled", true}}));
  refused("is disabled");
  role(Json::object({{"trustPolicy", R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}})"}}));
  refused("does not let sagemaker.amazonaws.com");
  role(Json::object({{"trustPolicy", R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole", "Condition": {"StringEquals": {"aws:SourceAccount": "999988887777"}}}})"}}));
  refused("does not let sagemaker.amazonaws.com");
  site.directory.drop_identity(api::identities::object_name(api::identities::Type::Role, "workers"));
  refused("does not exist");
}

TEST_F(Nodes, ANodeThatAsksWithoutEndWaits) {
  int served = 0, refused = 0;
  for (int i = 0; i < 10; ++i) (ask().status == 200 ? served : refused) += 1;
  EXPECT_EQ(served, 4);
  EXPECT_EQ(refused, 6);
  EXPECT_EQ(ask("w1").status, 404) << "another has its own turns";
}

// Of several threads, which TinyApi is not for.
struct Shared final : Racing {
  using Racing::Racing;
  std::mutex mutex;
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override {
    const std::lock_guard lock(mutex);
    return Racing::get(resource, key);
  }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override {
    const std::lock_guard lock(mutex);
    return Racing::list(resource, space, options);
  }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override {
    const std::lock_guard lock(mutex);
    return Racing::watch(resource, space, options);
  }
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    const std::lock_guard lock(mutex);
    return Racing::create(resource, object);
  }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource) override {
    const std::lock_guard lock(mutex);
    return Racing::patch(resource, key, type, patch, subresource);
  }
};

// By TLS, to a door whose nodes' authority is the site's.
TEST(NodesDoor, BelievesCertificatesOfItsAuthorityThatCountStill) {
  http::TestSite site;
  log_info("a door is opened", {});  // before other threads do: the library's own set-up is not looked into
  kube::TinyApi objects;
  Shared api(objects);
  SystemClock clock;
  std::atomic<bool> gone = false;
  auto door = *Door::open(api, clock, {.certificate = site.server, .authority = site.ca, .node_ca_pem = site.ca.certificate_pem, .check_node = [&](const http::Peer& peer) -> Result<void> { return gone && peer.common_name == "system:node:w0" ? fail(Code::Unauthorized, "its key counts no more") : Result<void>(); }});
  const auto ask = [&](const http::KeyPair& own, const std::string& path = "/v1/node") {
    const auto client = *http::Client::make({.host = "127.0.0.1", .port = door->port(), .tls = true, .ca_pem = site.ca.certificate_pem, .certificate_pem = own.certificate_pem, .key_pem = own.key_pem});
    for (int tries = 0;; ++tries) {
      const auto said = client->request({.method = "GET", .target = path, .headers = {}, .body = {}});
      if (!said) return 0;
      if (said->status != 503 || tries > 100) return said->status;
      std::this_thread::sleep_for(50ms);  // it has just started
    }
  };
  const auto node = [&](const http::KeyPair& ca, const char* name) { return *http::issue(ca, {.common_name = std::string("system:node:") + name, .organizations = {"system:nodes"}, .client = true}, clock.now()); };
  EXPECT_EQ(ask(node(site.ca, "w0")), 404) << "believed, and no instance";
  EXPECT_EQ(ask({}), 403);
  EXPECT_EQ(ask(node(*http::make_ca("other", clock.now()), "w0")), 403) << "nobody";
  EXPECT_EQ(ask(*http::issue(site.ca, {.common_name = "w0", .organizations = {"system:nodes"}, .client = true}, clock.now())), 403);
  gone = true;
  EXPECT_EQ(ask(node(site.ca, "w0")), 403);
}

}  // namespace
}  // namespace fairlead::hyperpod
