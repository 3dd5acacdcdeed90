// SPDX-License-Identifier: Apache-2.0
#include "api/machine.h"

#include <gmock/gmock.h>

#include "api/crds.h"

namespace fairlead::api {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json yaml(std::string_view text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}

TEST(MachineView, ReadsAWholeMachine) {
  const Machine machine = read_machine(yaml(R"(
metadata: {name: worker-0, uid: u1, generation: 3, finalizers: [fairlead.dev/machine]}
spec:
  local: {cpu: 2, memory: 4Gi, resources: {nvidia.com/gpu: 1}}
  labels: {role: worker}
  taints: [{key: gpu, effect: NoSchedule}]
  power: "Off"
  link: Cut
status: {phase: "Off", index: 3, address: 10.77.1.3, podCIDR: 10.78.3.0/24}
)"));
  EXPECT_THAT(machine.problems, IsEmpty());
  EXPECT_EQ(machine.spec.capacity, (std::map<std::string, std::string>{{"cpu", "2"}, {"memory", "4Gi"}, {"nvidia.com/gpu", "1"}}));
  EXPECT_EQ(machine.spec.labels.at("role"), "worker");
  EXPECT_EQ(machine.spec.taints.items().size(), 1u);
  EXPECT_EQ(machine.spec.power, Power::Off);
  EXPECT_EQ(machine.spec.link, Link::Cut);
  EXPECT_EQ(machine.seat, (Seat{3, "10.77.1.3", "10.78.3.0/24"}));
  EXPECT_TRUE(machine.finalizer);
  EXPECT_FALSE(machine.deleting);
}

TEST(MachineView, ASeatMayHaveAddressesOfBothFamilies) {
  const Machine machine = read_machine(yaml(R"(
metadata: {name: worker-0}
spec: {local: {}}
status: {index: 3, address: 10.77.1.3, podCIDR: 10.78.3.0/24, addresses: [10.77.1.3, "fd00:77::103"], podCIDRs: [10.78.3.0/24, "fd00:78:0:3::/64"]}
)"));
  EXPECT_EQ(machine.seat, (Seat{3, "10.77.1.3", "10.78.3.0/24", "fd00:77::103", "fd00:78:0:3::/64"}));
}

TEST(MachineView, AnEmptyLocalHasDefaults) {
  const Machine machine = read_machine(yaml("{metadata: {name: a}, spec: {local: {}}}"));
  EXPECT_THAT(machine.problems, IsEmpty());
  EXPECT_EQ(machine.spec.capacity, (std::map<std::string, std::string>{{"cpu", "1"}, {"memory", "2Gi"}}));
  EXPECT_EQ(machine.seat.index, 0);
}

struct Bad {
  const char* name;
  const char* text;
  const char* want;
};
class MachineProblems : public testing::TestWithParam<Bad> {};
TEST_P(MachineProblems, AreSentences) { EXPECT_THAT(read_machine(yaml(GetParam().text)).problems, ElementsAre(HasSubstr(GetParam().want))); }
INSTANTIATE_TEST_SUITE_P(Machine, MachineProblems,
                         testing::Values(Bad{"no_local", "{metadata: {name: a}, spec: {}}", "spec.local"}, Bad{"bad_cpu", "{metadata: {name: a}, spec: {local: {cpu: two}}}", "\"two\""},
                                         Bad{"negative", "{metadata: {name: a}, spec: {local: {memory: \"-1\"}}}", "spec.local.memory"},
                                         Bad{"bad_label", "{metadata: {name: a}, spec: {local: {}, labels: {\"a b\": x}}}", "spec.labels.a b"},
                                         Bad{"dotted_name", "{metadata: {name: a.b}, spec: {local: {}}}", "metadata.name"}),
                         [](const auto& row) { return row.param.name; });

TEST(Crds, AreNamedAfterWhatTheyDefine) {
  for (const Json& crd : crds()) {
    EXPECT_EQ(crd["kind"].string(), "CustomResourceDefinition");
    EXPECT_EQ(kube::name_of(crd), crd["spec"]["names"]["plural"].string() + "." + crd["spec"]["group"].string());
    EXPECT_FALSE(crd["spec"]["versions"].items().empty());
  }
  const Json machine = machine_crd();
  EXPECT_EQ(machine["spec"]["versions"].items()[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["power"]["default"].string(), "On");
}

}  // namespace
}  // namespace fairlead::api
