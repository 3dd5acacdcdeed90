// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/join_door.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "api/machine.h"
#include "fleet/control/machine_controller.h"
#include "fleet/fake_host.h"
#include "kube/tiny_api.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::HasSubstr;
namespace resources = kube::resources;

const std::string kSecret(64, 'a');

// What one write of status does to the API, before or after its effect.
class Unsteady final : public kube::KubeApi {
 public:
  explicit Unsteady(kube::TinyApi& api) : api_(api) {}
  std::function<void()> before_status;      // somebody else is quicker
  bool lose_answer = false, refuse = false;

  Result<Json> get(const kube::Resource& r, const kube::ObjectKey& k) override { const std::lock_guard lock(mutex_); return api_.get(r, k); }
  Result<kube::List> list(const kube::Resource& r, const std::string& s, const kube::ListOptions& o) override { const std::lock_guard lock(mutex_); return api_.list(r, s, o); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return fail(Code::Unsupported, "no"); }
  Result<Json> create(const kube::Resource& r, const Json& o) override { const std::lock_guard lock(mutex_); return api_.create(r, o); }
  Result<Json> update(const kube::Resource& r, const Json& o) override { const std::lock_guard lock(mutex_); return api_.update(r, o); }
  Result<Json> update_status(const kube::Resource& r, const Json& o) override {
    if (auto other = std::exchange(before_status, {})) other();
    const std::lock_guard lock(mutex_);
    if (std::exchange(refuse, false)) return fail(Code::Unavailable, "the store is full");
    auto done = api_.update_status(r, o);
    if (std::exchange(lose_answer, false)) return fail(Code::Unavailable, "the answer was lost");
    return done;
  }
  Result<Json> patch(const kube::Resource&, const kube::ObjectKey&, kube::PatchType, const Json&, const std::string&) override { return fail(Code::Unsupported, "no"); }
  Result<Json> apply(const kube::Resource&, const Json&, const kube::ApplyOptions&) override { return fail(Code::Unsupported, "no"); }
  Result<Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const Json&) override { return fail(Code::Unsupported, "no"); }
  Result<void> remove(const kube::Resource& r, const kube::ObjectKey& k, const kube::DeleteOptions& o) override { const std::lock_guard lock(mutex_); return api_.remove(r, k, o); }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return fail(Code::Unsupported, "no"); }

 private:
  kube::TinyApi& api_;
  std::mutex mutex_;  // TinyApi is for one thread
};

class Door : public testing::Test {
 protected:
  void SetUp() override {
    controller_.start(api_);
    ASSERT_TRUE(api_.create(resources::machines, *kube::parse_json(R"({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Machine", "metadata": {"name": "a", "uid": "u"}, "spec": {"labels": {"rack": "r1"}, "host": {"join": {"tokenHash": ")" + api::hash_of_secret(kSecret) + R"(", "expires": "2027-01-20T00:00:00Z"}}}})")));
    settle();
  }
  void settle() {
    for (int i = 0; i < 5; ++i)
      for (const auto& [key, machine] : std::map(api_.all("machines"))) EXPECT_TRUE(controller_.reconcile(key));
  }
  Json machine() { return *api_.get(resources::machines, {"", "a"}); }
  http::Response ask(const std::string& key, const std::string& address = "10.0.0.7", const std::string& secret = kSecret) {
    return door_.answer({.method = "POST", .target = {.path = api::kJoinPath}, .headers = {}, .body = api::print_join_request({.name = "a", .secret = secret, .signing_request = *http::make_signing_request(key, "x"), .facts = {.cpus = 4, .memory_mib = 16'000, .devices = {}, .devices_text = {}, .address = address}}), .peer = {.address = address}});
  }
  http::Peer peer(const std::string& key, const std::string& name = "system:node:a") { return {.address = {}, .common_name = name, .organizations = {"system:nodes", api::kHostsGroup}, .key = *http::fingerprint_of_key(key)}; }

  ManualClock clock_{*parse_time("2027-01-19T12:00:00Z")};
  http::KeyPair ca_ = *http::make_ca("ca", clock_.now());
  kube::TinyApi api_;
  Unsteady unsteady_{api_};
  FakeHost host_{clock_};
  MachineController controller_{api_, host_, clock_};
  JoinDoor door_{unsteady_, clock_, {.servers = {"https://10.0.0.1:6443"}, .ca_pem = ca_.certificate_pem, .pods_range = "10.78.0.0/16", .volumes_dir = "/v", .companion_dir = "/b", .sign = [this](const std::string& request, const http::CertificateRequest& about) { return http::sign(ca_, request, about, clock_.now()); }}};
  const std::string key_ = *http::make_key(), other_ = *http::make_key();
};

TEST_F(Door, LetsInWhoHasTheTokenAndSignsForItsKey) {
  EXPECT_EQ(machine()["status"]["phase"].string(), "Waiting");
  EXPECT_EQ(machine()["status"]["podCIDR"].string(), "10.78.1.0/24");
  EXPECT_FALSE(machine()["status"].has("address"));
  const auto said = ask(key_);
  ASSERT_EQ(said.status, 200) << said.body;
  const auto answer = api::parse_join_answer(said.body);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(*http::fingerprint_of_certificate(answer->certificate), *http::fingerprint_of_key(key_));
  EXPECT_EQ(answer->pod_cidr, "10.78.1.0/24");
  EXPECT_EQ(answer->labels, (std::map<std::string, std::string>{{"rack", "r1"}, {api::kHostLabel, "true"}}));
  EXPECT_EQ(machine()["status"]["host"]["key"].string(), *http::fingerprint_of_key(key_));
  settle();
  EXPECT_EQ(machine()["status"]["phase"].string(), "Starting");
  EXPECT_EQ(machine()["status"]["address"].string(), "10.0.0.7");
  EXPECT_TRUE(door_.check(peer(key_)));
}

TEST_F(Door, OfTwoHostsWithOneTokenOneComesIn) {
  // The other is quicker, between our reading and our writing, by another server.
  JoinDoor elsewhere(api_, clock_, {.servers = {}, .ca_pem = ca_.certificate_pem, .pods_range = "10.78.0.0/16", .volumes_dir = "/v", .sign = [this](const std::string& request, const http::CertificateRequest& about) { return http::sign(ca_, request, about, clock_.now()); }});
  unsteady_.before_status = [&] {
    EXPECT_EQ(elsewhere.answer({.method = "POST", .target = {.path = api::kJoinPath}, .headers = {}, .body = api::print_join_request({.name = "a", .secret = kSecret, .signing_request = *http::make_signing_request(other_, "x"), .facts = {.cpus = 4, .memory_mib = 16'000, .devices = {}, .devices_text = {}, .address = "10.0.0.8"}}), .peer = {.address = "10.0.0.8"}}).status, 200);
  };
  const auto said = ask(key_);
  EXPECT_EQ(said.status, 409);
  EXPECT_THAT(said.body, HasSubstr("by a host at 10.0.0.8"));
  EXPECT_TRUE(door_.check(peer(other_)));
  EXPECT_EQ(door_.check(peer(key_)).error().code, Code::Unauthorized);
}

TEST_F(Door, OfManyThatComeAtOnceWithOneAddressOneComesIn) {
  constexpr int kHosts = 8;
  for (int i = 0; i < kHosts; ++i)
    ASSERT_TRUE(api_.create(resources::machines, *kube::parse_json(fmt::format(R"({{"apiVersion": "fairlead.dev/v1alpha1", "kind": "Machine", "metadata": {{"name": "m{}", "uid": "u{}"}}, "spec": {{"host": {{"join": {{"tokenHash": "{}", "expires": "2027-01-20T00:00:00Z"}}}}}}}})", i, i, api::hash_of_secret(kSecret)))));
  settle();
  std::vector<http::Request> requests;
  for (int i = 0; i < kHosts; ++i)
    requests.push_back({.method = "POST", .target = {.path = api::kJoinPath}, .headers = {}, .body = api::print_join_request({.name = fmt::format("m{}", i), .secret = kSecret, .signing_request = *http::make_signing_request(*http::make_key(), "x"), .facts = {.cpus = 4, .memory_mib = 16'000, .devices = {}, .devices_text = {}, .address = "10.0.0.7"}}), .peer = {.address = "10.0.0.7"}});
  std::atomic<int> in{0}, out{0};
  {
    std::vector<std::jthread> threads;
    for (const http::Request& request : requests) threads.emplace_back([&] { ++(door_.answer(request).status == 200 ? in : out); });
  }
  EXPECT_EQ(in, 1);
  EXPECT_EQ(out, kHosts - 1);
}

TEST_F(Door, TheControllerMayWriteMeanwhile) {
  unsteady_.before_status = [this] {
    Json object = machine();
    object.child("status").set("phase", "Waiting").set("observedGeneration", 7);
    ASSERT_TRUE(api_.update_status(resources::machines, object));
  };
  EXPECT_EQ(ask(key_).status, 200);
  EXPECT_EQ(machine()["status"]["observedGeneration"].integer(), 7);
}

TEST_F(Door, ADeathAtTheWriteIsGotOverByAskingAgain) {
  unsteady_.refuse = true;
  EXPECT_EQ(ask(key_).status, 503);
  EXPECT_EQ(machine()["status"]["host"], Json());
  unsteady_.lose_answer = true;
  EXPECT_EQ(ask(key_).status, 503);
  EXPECT_EQ(ask(other_).status, 409);  // it is the first one's by now, though it has not heard of it
  EXPECT_EQ(ask(key_).status, 200);
}

TEST_F(Door, ARemovedMachineAndAnotherKeyAreOut) {
  ASSERT_EQ(ask(key_).status, 200);
  Json object = machine();
  object.child("spec").child("host").child("join").set("tokenHash", api::hash_of_secret(std::string(64, 'b')));
  ASSERT_TRUE(api_.update(resources::machines, object));
  EXPECT_TRUE(door_.check(peer(key_)));  // until another has come
  ASSERT_EQ(ask(other_, "10.0.0.7", std::string(64, 'b')).status, 200);
  EXPECT_FALSE(door_.check(peer(key_)));
  EXPECT_TRUE(door_.check(peer(other_)));
  object = machine();
  object.child("metadata").set("deletionTimestamp", "2027-01-19T12:00:00Z");
  ASSERT_TRUE(api_.put(resources::machines, object));
  EXPECT_FALSE(door_.check(peer(other_)));
  settle();
  EXPECT_TRUE(api_.all("machines").empty());
  EXPECT_FALSE(door_.check(peer(other_)));
  EXPECT_EQ(ask(other_, "10.0.0.7", std::string(64, 'b')).status, 401);
}

TEST_F(Door, OthersCertificatesAreNotItsToJudge) {
  EXPECT_TRUE(door_.check({.address = {}, .common_name = "fairlead-admin", .organizations = {"system:masters"}, .key = "x"}));
  EXPECT_TRUE(door_.check({.address = {}, .common_name = "system:node:local", .organizations = {"system:nodes"}, .key = "x"}));
  EXPECT_FALSE(door_.check(peer(key_, "fairlead-admin")));
  EXPECT_FALSE(door_.check(peer(key_, "system:node:b")));
}

TEST_F(Door, WhatCannotBeSignedIsNotWrittenDown) {
  JoinDoor broken(api_, clock_, {.servers = {}, .ca_pem = ca_.certificate_pem, .pods_range = "10.78.0.0/16", .volumes_dir = "/v", .sign = [](const std::string&, const http::CertificateRequest&) -> Result<std::string> { return fail(Code::Internal, "no"); }});
  EXPECT_EQ(broken.answer({.method = "POST", .target = {.path = api::kJoinPath}, .headers = {}, .body = api::print_join_request({.name = "a", .secret = kSecret, .signing_request = *http::make_signing_request(key_, "x"), .facts = {.cpus = 4, .memory_mib = 16'000, .devices = {}, .devices_text = {}, .address = "10.0.0.7"}}), .peer = {.address = "10.0.0.7"}}).status, 500);
  EXPECT_EQ(machine()["status"]["host"], Json());
}

TEST_F(Door, AHostWritesOfItselfWhatItsMachineSays) {
  ASSERT_EQ(ask(key_).status, 200);
  const Json good = Json::object({{"metadata", Json::object({{"name", "a"}})}, {"spec", Json::object({{"podCIDR", "10.78.1.0/24"}})}}), bad = Json::object({{"metadata", Json::object({{"name", "a"}})}, {"spec", Json::object({{"podCIDR", "0.0.0.0/1"}})}});
  const std::vector<std::string> host{"system:nodes", api::kHostsGroup}, local{"system:nodes"};
  EXPECT_TRUE(door_.check_node("system:node:a", host, nullptr, good));
  EXPECT_EQ(door_.check_node("system:node:a", host, nullptr, bad).error().code, Code::Forbidden);
  EXPECT_FALSE(door_.check_node("system:node:b", host, nullptr, good));
  EXPECT_TRUE(door_.check_node("system:node:a", local, nullptr, bad));  // of a local node the server itself is sure
}

TEST_F(Door, TheNodeGetsItsLabelsOnceAndWhatPeopleChangeStays) {
  ASSERT_EQ(ask(key_).status, 200);
  ASSERT_TRUE(api_.create(resources::nodes, *kube::parse_json(R"({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "n1", "labels": {"fairlead.dev/host": "true", "rack": "r1"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})")));
  settle();
  EXPECT_EQ(machine()["status"]["phase"].string(), "Running");
  const auto labels = [this] { return (*api_.get(resources::nodes, {"", "a"}))["metadata"]["labels"]; };
  Json edited = *api_.get(resources::nodes, {"", "a"});
  edited.child("metadata").child("labels").set("rack", "r9");
  ASSERT_TRUE(api_.update(resources::nodes, edited));
  settle();
  EXPECT_EQ(labels()["rack"].string(), "r9");
  Json spec = machine();
  spec.child("spec").set("labels", Json::object({{"zone", "z"}}));
  ASSERT_TRUE(api_.update(resources::machines, spec));
  settle();
  EXPECT_FALSE(labels().has("rack"));
  EXPECT_EQ(labels()["zone"].string(), "z");
  EXPECT_EQ(labels()[api::kHostLabel].string(), "true");
}

TEST_F(Door, ADeletedMachineWaitsForWhatItMayStillRun) {
  ASSERT_EQ(ask(key_).status, 200);
  ASSERT_TRUE(api_.create(resources::nodes, *kube::parse_json(R"({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "n1", "labels": {"fairlead.dev/host": "true"}}})")));
  ASSERT_TRUE(api_.create(resources::pods, *kube::parse_json(R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}})")));
  Json object = machine();
  object.child("metadata").set("deletionTimestamp", "2027-01-19T12:00:00Z");
  ASSERT_TRUE(api_.put(resources::machines, object));
  settle();
  EXPECT_EQ(machine()["status"]["phase"].string(), "Removing");
  EXPECT_TRUE(api_.all("nodes").contains({"", "a"}));
  EXPECT_FALSE(door_.check(peer(key_)));
  object = machine();
  object.child("spec").child("host").set("gone", true);
  ASSERT_TRUE(api_.update(resources::machines, object));
  settle();
  EXPECT_TRUE(api_.all("machines").empty());
  EXPECT_TRUE(api_.all("nodes").empty());
}

TEST_F(Door, ANodeThatWasNeverItsOwnStays) {
  ASSERT_TRUE(api_.create(resources::nodes, *kube::parse_json(R"({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "n1"}})")));
  EXPECT_EQ(ask(key_).status, 409);
  Json object = machine();
  object.child("metadata").set("deletionTimestamp", "2027-01-19T12:00:00Z");
  ASSERT_TRUE(api_.put(resources::machines, object));
  settle();
  EXPECT_TRUE(api_.all("machines").empty());
  EXPECT_TRUE(api_.all("nodes").contains({"", "a"}));
}

TEST_F(Door, RenewsForTheSameKeyOfAHostThatIsIn) {
  const auto renew = [&](const http::Peer& who, const std::string& key) {
    return door_.answer({.method = "POST", .target = {.path = api::kRenewPath}, .headers = {}, .body = kube::print_json(Json::object({{"request", *http::make_signing_request(key, "x")}})), .peer = who});
  };
  EXPECT_EQ(renew(peer(key_), key_).status, 401);
  ASSERT_EQ(ask(key_).status, 200);
  clock_.advance(24h * 61);
  const auto said = renew(peer(key_), key_);
  ASSERT_EQ(said.status, 200) << said.body;
  const std::string certificate = (*kube::parse_json(said.body))["certificate"].string();
  EXPECT_EQ(*http::expiry(certificate), clock_.now() + 24h * 90);
  EXPECT_EQ(renew(peer(key_), other_).status, 401);  // another key is another host
  EXPECT_EQ(renew(peer(other_), key_).status, 401);
  EXPECT_EQ(renew(http::Peer{}, key_).status, 401);
  EXPECT_EQ(renew({.address = {}, .common_name = "system:node:a", .organizations = {"system:nodes"}, .key = *http::fingerprint_of_key(key_)}, key_).status, 401);
  EXPECT_EQ(door_.answer({.method = "POST", .target = {.path = api::kRenewPath}, .headers = {}, .body = "[", .peer = peer(key_)}).status, 400);
}

TEST_F(Door, WhatIsNoRequestIsNamed) {
  const auto say = [&](const char* method, std::string body) { return door_.answer({.method = method, .target = {.path = api::kJoinPath}, .headers = {}, .body = std::move(body), .peer = {}}); };
  EXPECT_EQ(say("POST", "x").status, 400);
  EXPECT_EQ(say("PUT", "").status, 405);
  EXPECT_THAT(say("GET", "").body, HasSubstr("https://10.0.0.1:6443"));
  for (const char* const bad : {"127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "169.254.1.1", "gpu-07", "::1"}) EXPECT_EQ(ask(key_, bad).status, 400) << bad;
  EXPECT_THAT(say("POST", api::print_join_request({.name = "a", .secret = kSecret, .signing_request = "no", .facts = {.cpus = 1, .memory_mib = 1, .devices = {}, .devices_text = {}, .address = "10.0.0.1"}})).body, HasSubstr("not a signing request"));
  EXPECT_EQ(machine()["status"]["host"], Json());
}

}  // namespace
}  // namespace fairlead::fleet
