// SPDX-License-Identifier: Apache-2.0
// What the DNS of a node knows follows the API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/object.h"
#include "kube/tiny_api.h"
#include "node/dns_server.h"

namespace fairlead::node {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::IsEmpty;
namespace resources = kube::resources;

struct DnsBook : testing::Test {
  kube::TinyApi api;
  std::shared_ptr<DnsController::Book> book = DnsController::make_book("cluster.local");
  DnsController controller{book};
  std::vector<kube::Controller::Source> sources = controller.sources();
  void SetUp() override { controller.start(api); }
  void tell(const kube::Resource& resource, const kube::Change& change) {
    for (const auto& source : sources)
      if (source.resource == resource) { EXPECT_THAT(source.keys(change), IsEmpty()); }
  }
  void put(const kube::Resource& resource, const char* text) {
    const Json object = *kube::parse_json(text);
    ASSERT_TRUE(api.put(resource, object));
    tell(resource, {.before = {}, .after = object});
  }
  void remove(const kube::Resource& resource, const char* name) {
    const Json object = api.get(resource, {"a", name}).value();
    ASSERT_TRUE(api.remove(resource, {"a", name}));
    tell(resource, {.before = object, .after = {}});
  }
  std::vector<std::string> ask(const std::string& name, std::uint16_t type = dns_a) {
    const DnsAnswer answer = DnsController::resolve(*book, {.id = 1, .flags = 0, .name = name, .type = type});
    return answer.pointer.empty() ? answer.addresses : std::vector<std::string>{answer.pointer};
  }
};

constexpr const char* service = R"({"metadata": {"name": "workers", "namespace": "a"}, "spec": {"clusterIP": "None", "selector": {"app": "w"}}})";
std::string pod(const std::string& name, const std::string& ip, const char* phase = "Running", const char* ready = "True") {
  return R"({"metadata": {"name": ")" + name + R"(", "namespace": "a", "labels": {"app": "w"}}, "spec": {"hostname": ")" + name + R"(", "subdomain": "workers"}, "status": {"phase": ")" + phase + R"(", "podIP": ")" + ip + R"(", "conditions": [{"type": "Ready", "status": ")" + ready + R"("}]}})";
}

TEST_F(DnsBook, FollowsPodsAndServices) {
  EXPECT_THAT(ask("workers.a.svc.cluster.local"), IsEmpty());
  put(resources::services, service);
  put(resources::pods, pod("w0", "10.0.0.1").c_str());
  put(resources::pods, pod("w1", "10.0.0.2", "Running", "False").c_str());
  EXPECT_THAT(ask("workers.a.svc.cluster.local"), ElementsAre("10.0.0.1"));
  EXPECT_THAT(ask("w0.workers.a.svc.cluster.local"), ElementsAre("10.0.0.1"));
  EXPECT_THAT(ask("1.0.0.10.in-addr.arpa", dns_ptr), ElementsAre("w0.workers.a.svc.cluster.local"));
  put(resources::pods, pod("w1", "10.0.0.2").c_str());
  EXPECT_THAT(ask("workers.a.svc.cluster.local"), ElementsAre("10.0.0.1", "10.0.0.2"));
  put(resources::pods, pod("w0", "10.0.0.7").c_str());
  EXPECT_THAT(ask("w0.workers.a.svc.cluster.local"), ElementsAre("10.0.0.7"));
  EXPECT_THAT(ask("1.0.0.10.in-addr.arpa", dns_ptr), IsEmpty());
  put(resources::pods, pod("w1", "10.0.0.2", "Failed").c_str());
  EXPECT_THAT(ask("workers.a.svc.cluster.local"), ElementsAre("10.0.0.7"));
  remove(resources::pods, "w0");
  EXPECT_THAT(ask("workers.a.svc.cluster.local"), IsEmpty());
  remove(resources::services, "workers");
  EXPECT_EQ(DnsController::resolve(*book, {.id = 1, .flags = 0, .name = "workers.a.svc.cluster.local", .type = dns_a}).kind, DnsAnswer::Kind::NoSuchName);
}

// Told of an older state after a newer one: what is there now counts.
TEST_F(DnsBook, ReadsTheNewestWhateverItIsTold) {
  put(resources::services, service);
  const Json before = *kube::parse_json(pod("w0", "10.0.0.1"));
  put(resources::pods, pod("w0", "10.0.0.9").c_str());
  tell(resources::pods, {.before = {}, .after = before});
  EXPECT_THAT(ask("w0.workers.a.svc.cluster.local"), ElementsAre("10.0.0.9"));
}

}  // namespace
}  // namespace fairlead::node
