// SPDX-License-Identifier: Apache-2.0
#include "apiserver/service_addresses.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace fairlead::apiserver {
namespace {
using kube::Json;
using testing::HasSubstr;

Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }
Json service(const std::string& uid, const std::string& spec) { return yaml("{metadata: {namespace: a, name: " + uid + ", uid: " + uid + "}, spec: {" + spec + "}}"); }

class NodePortsTest : public testing::Test {
 protected:
  // The service as it is stored, or what refuses it.
  Json write(const std::string& uid, const std::string& spec, const Json* old = nullptr) {
    Json next = service(uid, spec);
    FieldErrors errors;
    addresses_->assign(next, old, errors);
    said_ = errors.empty() ? "" : errors.texts()[0];
    if (errors.empty()) addresses_->note("/core/services/a/" + uid, &next);
    else if (old == nullptr) addresses_->forget(uid);
    return next;
  }
  static std::int64_t port(const Json& service, std::size_t i = 0) { return service["spec"]["ports"].items()[i]["nodePort"].integer(); }
  std::unique_ptr<ServiceAddresses> addresses_ = *ServiceAddresses::make({"10.79.0.0/16"});
  std::string said_;
};

TEST_F(NodePortsTest, AreGivenOutOnceAndKept) {
  const Json a = write("a", "type: NodePort, ports: [{name: x1, port: 80}, {name: z1, port: 81}]"), b = write("b", "type: NodePort, ports: [{port: 80}]");
  EXPECT_EQ(port(a), 30086) << "the first ones are for those who choose";
  EXPECT_EQ(std::set<std::int64_t>({port(a), port(a, 1), port(b)}).size(), 3U);
  EXPECT_EQ(port(write("own", "type: NodePort, ports: [{port: 80, nodePort: 30000}]")), 30000);
  (void)write("again", "type: NodePort, ports: [{port: 80, nodePort: 30000}]");
  EXPECT_EQ(said_, "spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated");
  (void)write("far", "type: NodePort, ports: [{port: 80, nodePort: 80}]");
  EXPECT_THAT(said_, HasSubstr("provided port is not in the valid range. The range of valid ports is 30000-32767"));
  // An update that leaves them out keeps them by name, whatever their order.
  const Json kept = write("a", "type: NodePort, ports: [{name: z1, port: 81}, {name: x1, port: 8080}, {name: z, port: 82}]", &a);
  EXPECT_EQ(port(kept), port(a, 1));
  EXPECT_EQ(port(kept, 1), port(a));
  EXPECT_EQ(port(kept, 2), 30089);
}

TEST_F(NodePortsTest, AreFreeAgainWhenTheServiceChangesOrGoes) {
  const Json a = write("a", "type: NodePort, ports: [{port: 80, nodePort: 30001}]");
  const Json moved = write("a", "type: NodePort, ports: [{port: 80, nodePort: 30002}]", &a);
  EXPECT_EQ(port(write("heir", "type: NodePort, ports: [{port: 80, nodePort: 30001}]")), 30001);
  // A patch of the type alone leaves the port and its policy where they were.
  Json before = moved;
  before.child("spec").set("externalTrafficPolicy", "Cluster");
  const Json plain = write("a", "type: ClusterIP, externalTrafficPolicy: Cluster, ports: [{port: 80, nodePort: 30002}]", &before);
  EXPECT_FALSE(plain["spec"]["ports"].items()[0].has("nodePort"));
  EXPECT_FALSE(plain["spec"].has("externalTrafficPolicy"));
  EXPECT_EQ(port(write("next", "type: NodePort, ports: [{port: 80, nodePort: 30002}]")), 30002);
  addresses_->note("/core/services/a/next", nullptr);
  EXPECT_EQ(port(write("last", "type: NodePort, ports: [{port: 80, nodePort: 30002}]")), 30002);
  EXPECT_EQ(said_, "");
  (void)write("lost", "type: NodePort, ports: [{port: 80, nodePort: 30003}, {port: 81, nodePort: 30002}]");
  EXPECT_THAT(said_, HasSubstr("spec.ports[1].nodePort: Invalid value: 30002: provided port is already allocated"));
  EXPECT_EQ(port(write("found", "type: NodePort, ports: [{port: 80, nodePort: 30003}]")), 30003) << "what came to nothing holds nothing";
}

TEST_F(NodePortsTest, OneNumberServesBothProtocolsOfAPort) {
  const Json dns = write("dns", "type: NodePort, ports: [{name: u, port: 53, protocol: UDP}, {name: t, port: 53, protocol: TCP}]");
  EXPECT_EQ(port(dns), port(dns, 1));
  (void)write("twice", "type: NodePort, ports: [{name: a, port: 1, nodePort: 30005}, {name: b, port: 2, nodePort: 30005}]");
  EXPECT_THAT(said_, HasSubstr("spec.ports[1].nodePort: Duplicate value: 30005"));
  EXPECT_EQ(port(write("none", "type: ClusterIP, ports: [{port: 80}]")), 0);
}

TEST_F(NodePortsTest, RunOut) {
  std::string ports;
  for (int i = 0; i <= NodePorts::last - NodePorts::first; ++i) ports += fmt::format("{}{{name: p{}, port: {}}}", i == 0 ? "" : ", ", i, i + 1);
  (void)write("all", "type: NodePort, ports: [" + ports + "]");
  EXPECT_EQ(said_, "");
  (void)write("more", "type: NodePort, ports: [{port: 80}]");
  EXPECT_THAT(said_, HasSubstr("range 30000-32767 is full"));
}

}  // namespace
}  // namespace fairlead::apiserver
