// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/login_service.h"

#include <gmock/gmock.h>

#include "slurm/plan/objects.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::HasSubstr;
using What = LoginServicePlan::What;

api::SlurmCluster demo(std::string type) {
  api::SlurmCluster cluster;
  cluster.name = "demo";
  cluster.space = "lab";
  cluster.login.main.port = 22;
  cluster.login_service = {.type = std::move(type), .load_balancer_ip = "192.0.2.7", .node_port = 30022, .annotations = {{"example.com/pool", "a"}}, .source_ranges = {"198.51.100.0/24"}};
  return cluster;
}
Json wanted(const api::SlurmCluster& cluster) { return *desired_login_service(cluster, Json::object({{"namespace", "lab"}})); }
// As an API server gives it back.
Json made(Json service, std::int64_t node_port) {
  service.child("metadata").set("uid", "u");
  service.child("spec").set("clusterIP", "10.0.0.9").set("sessionAffinity", "None");
  if (node_port) service.child("spec").child("ports").items()[0].set("nodePort", node_port);
  return service;
}

TEST(LoginService, SaysToTheClusterWhatTheResourceSays) {
  const Json spec = wanted(demo("LoadBalancer"))["spec"];
  EXPECT_EQ(spec["loadBalancerIP"].string(), "192.0.2.7");
  EXPECT_EQ(spec["ports"].items()[0]["nodePort"].integer(), 30022);
  EXPECT_EQ(kube::print_json(spec["loadBalancerSourceRanges"]), R"(["198.51.100.0/24"])");
  EXPECT_EQ(wanted(demo("LoadBalancer"))["metadata"]["annotations"]["example.com/pool"].string(), "a");
  const Json inside = wanted(demo("ClusterIP"))["spec"];
  EXPECT_FALSE(inside["ports"].items()[0].has("nodePort"));
  EXPECT_FALSE(inside.has("loadBalancerIP"));
  EXPECT_EQ(desired_login_service(demo(""), Json::object()), std::nullopt);
}

TEST(LoginService, IsMadeChangedAndMadeAnewWhereItCannotBeChanged) {
  auto cluster = demo("NodePort");
  EXPECT_EQ(plan_login_service({}, wanted(cluster)).what, What::Make);
  const Json have = made(wanted(cluster), 30022);
  EXPECT_EQ(plan_login_service(have, wanted(cluster)).what, What::Nothing);
  cluster.login_service.node_port = 0;
  EXPECT_EQ(plan_login_service(have, wanted(cluster)).what, What::Nothing) << "the number that it has stays";
  cluster.login_service.node_port = 30023;
  EXPECT_EQ(plan_login_service(have, wanted(cluster)).object["spec"]["ports"].items()[0]["nodePort"].integer(), 30023);
  cluster.login_service.type = "LoadBalancer";
  const auto changed = plan_login_service(have, wanted(cluster));
  EXPECT_EQ(changed.what, What::Change);
  EXPECT_EQ(changed.object["spec"]["clusterIP"].string(), "10.0.0.9");
  Json others = have;
  others.child("metadata").child("annotations").set("lb.example.com/id", "7");
  cluster = demo("NodePort");
  EXPECT_EQ(plan_login_service(others, wanted(cluster)).what, What::Nothing) << "what others noted there is theirs";
  Json headless = have;
  headless.child("spec").set("clusterIP", "None");
  EXPECT_EQ(plan_login_service(headless, wanted(cluster)).what, What::Renew);
}

TEST(LoginService, TheConditionSaysWhereToGo) {
  EXPECT_EQ(login_condition(demo(""), {}), std::nullopt);
  EXPECT_EQ(login_condition(demo("NodePort"), {})->reason, "Making");
  EXPECT_THAT(login_condition(demo("NodePort"), made(wanted(demo("NodePort")), 30022))->message, HasSubstr("port 30022 of any node"));
  Json balanced = made(wanted(demo("LoadBalancer")), 30022);
  EXPECT_THAT(login_condition(demo("LoadBalancer"), balanced)->message, HasSubstr("asked for: 192.0.2.7"));
  balanced.child("status").child("loadBalancer").set("ingress", Json::array({Json::object({{"ip", "192.0.2.7"}})}));
  EXPECT_EQ(login_condition(demo("LoadBalancer"), balanced)->message, "ssh to 192.0.2.7, port 22");
}

TEST(LoginService, PodsHaveTheirNamesElsewhereThen) {
  const auto of = [](const char* type) { return desired_pod(demo(type), Role::Login, 0, {})["spec"]["subdomain"].string(); };
  EXPECT_EQ(of(""), "demo-login-svc");
  EXPECT_EQ(of("NodePort"), "demo-login-headless-svc");
}

}  // namespace
}  // namespace fairlead::slurm
