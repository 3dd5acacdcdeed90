// SPDX-License-Identifier: Apache-2.0
#include "node/plan/cdi.h"

#include <gmock/gmock.h>
#include <sys/sysmacros.h>

#include "base/files.h"
#include "node/cdi_files.h"
#include "node/oci_records.h"
#include "node/plan/oci_spec.h"

namespace fairlead::node {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;

// As nvidia-ctk writes them.
constexpr const char* kNvidia = R"(
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: "10"
  containerEdits: {deviceNodes: [{path: /dev/nvidia10}]}
- name: "2"
  containerEdits:
    deviceNodes: [{path: /dev/nvidia2, hostPath: /dev/zero, type: c}]
    env: [SECOND=yes]
- name: GPU-5c1d
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl, hostPath: /dev/null}]
  hooks:
  - {hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib], env: [NVIDIA_CTK_DEBUG=false]}
  mounts:
  - {hostPath: /usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1, options: [ro, nosuid, nodev, bind]}
  - {hostPath: /usr/bin/nvidia-smi, containerPath: /usr/bin/nvidia-smi, options: [ro]}
)";

TEST(Cdi, ReadsWhatNvidiasToolWrites) {
  const auto kind = parse_cdi(kNvidia);
  ASSERT_TRUE(kind) << kind.error().message;
  EXPECT_EQ(kind->kind, "nvidia.com/gpu");
  EXPECT_THAT(handed_out(*kind), ElementsAre("0", "2", "10"));
  const CdiEdits edits = edits_for(*kind, {{"0", {}}, {"2", {}}});
  EXPECT_THAT(edits.env, ElementsAre("NVIDIA_VISIBLE_DEVICES=void", "SECOND=yes"));
  ASSERT_EQ(edits.nodes.size(), 3U);
  EXPECT_EQ(edits.nodes[0].host_path, "/dev/null");
  EXPECT_EQ(edits.nodes[1].host_path, "/dev/nvidia0");
  EXPECT_EQ(edits.nodes[2].host_path, "/dev/zero");
  EXPECT_THAT(edits.mounts[0].options, ElementsAre("ro", "nosuid", "nodev", "bind"));
  EXPECT_THAT(edits.mounts[1].options, ElementsAre("ro", "rbind"));
  ASSERT_EQ(edits.hooks.size(), 1U);
  EXPECT_EQ(edits.hooks[0], (ContainerHook{.stage = "createContainer", .path = "/usr/bin/nvidia-cdi-hook", .args = {"nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib"}, .env = {"NVIDIA_CTK_DEBUG=false"}}));
}

TEST(Cdi, TheSameDeviceUnderSeveralNamesIsGivenOutOnce) {
  const auto names = [](std::vector<std::string> all) {
    CdiKind kind{.kind = "x/y", .commons = {}, .devices = {}};
    for (std::string& name : all) kind.devices.emplace(std::move(name), CdiDevice());
    return handed_out(kind);
  };
  EXPECT_THAT(names({"all", "1", "0", "GPU-a", "0:1"}), ElementsAre("0", "1"));
  EXPECT_THAT(names({"all", "0:10", "0:2", "MIG-a"}), ElementsAre("0:2", "0:10"));
  EXPECT_THAT(names({"all", "b", "a"}), ElementsAre("a", "b"));
  EXPECT_THAT(names({"all"}), testing::IsEmpty());
  EXPECT_THAT(names({}), testing::IsEmpty());
}

TEST(Cdi, WhatSomebodyHasIsNotGivenAgain) {
  const auto has = [](std::string name, std::vector<std::string> nodes) { return GrantedDevice{.name = std::move(name), .nodes = std::move(nodes)}; };
  const auto kind = *parse_cdi(kNvidia);
  const auto names = [&](const std::vector<GrantedDevice>& taken, std::int64_t count) {
    std::vector<std::string> out;
    const auto chosen = choose_devices(kind, taken, count);
    for (const GrantedDevice& one : *chosen) out.push_back(one.name);
    return out;
  };
  EXPECT_THAT(names({}, 2), ElementsAre("0", "2"));
  EXPECT_EQ(choose_devices(kind, {}, 2)->back(), has("2", {"/dev/zero"}));
  EXPECT_THAT(names({has("0", {"/dev/nvidia0"})}, 2), ElementsAre("2", "10"));
  EXPECT_THAT(names({has("0", {}), has("gone", {})}, 0), testing::IsEmpty());
  // Files change under containers that run: the same device by another name, another by the same.
  EXPECT_THAT(names({has("GPU-5c1d", {"/dev/nvidia0"})}, 2), ElementsAre("2", "10"));
  EXPECT_THAT(names({has("0", {"/dev/zero"})}, 1), ElementsAre("10"));
  EXPECT_THAT(names({has("x", {"/dev/nvidia0", "/dev/nvidia1"})}, 1), ElementsAre("0"));  // a part of one shares some of its nodes
  const auto too_many = choose_devices(kind, {has("0", {})}, 3);
  EXPECT_EQ(too_many.error().code, Code::Exhausted);
  EXPECT_EQ(too_many.error().message, "3 of nvidia.com/gpu are asked for, 2 are free on this node");
}

TEST(Cdi, WhatIsNoneIsRefused) {
  for (const char* const bad : {"", "[]", "7", "kind: nvidia.com/gpu", "{cdiVersion: 0.5.0, kind: gpu}", "{cdiVersion: 0.5.0, kind: a/b/c}", "{cdiVersion: 0.5.0, kind: a.b/c, devices: [{}]}", "{cdiVersion: 0.5.0, kind: a.b/c, devices: [{name: x}, {name: x}]}",
                                "{cdiVersion: 0.5.0, kind: a.b/c, containerEdits: {env: [x]}}", "{cdiVersion: 0.5.0, kind: a.b/c, containerEdits: {deviceNodes: [{path: relative}]}}", "{cdiVersion: 0.5.0, kind: a.b/c, containerEdits: {mounts: [{hostPath: /a}]}}", "{cdiVersion: 0.5.0, kind: a.b/c, containerEdits: {deviceNodes: [{path: /a, permissions: rx}]}}", "{cdiVersion: 0.5.0, kind: a.b/c, containerEdits: {deviceNodes: [{path: /a, uid: -1}]}}",
                                "{cdiVersion: 0.5.0, kind: a.b/c, containerEdits: {hooks: [{hookName: never, path: /x}]}}", "{cdiVersion: 0.5.0, kind: a.b/c, containerEdits: {hooks: [{hookName: prestart, path: x}]}}", "a: 1\n---\nb: 2\n"})
    EXPECT_FALSE(parse_cdi(bad)) << bad;
  EXPECT_TRUE(parse_cdi("{\"cdiVersion\": \"0.5.0\", \"kind\": \"a.b/c\", \"annotations\": {\"x\": \"y\"}}"));
}

TEST(Cdi, AContainerAsksByItsLimits) {
  const auto asked = [](const char* resources) { return asked_devices(*kube::parse_json(std::string(R"({"resources": )") + resources + "}")); };
  EXPECT_EQ(asked(R"({"limits": {"nvidia.com/gpu": 2, "cpu": "4"}})"), (std::map<std::string, std::int64_t>{{"nvidia.com/gpu", 2}}));
  EXPECT_EQ(asked(R"({"requests": {"nvidia.com/gpu": "1"}})"), (std::map<std::string, std::int64_t>{{"nvidia.com/gpu", 1}}));
  EXPECT_TRUE(asked(R"({"limits": {"nvidia.com/gpu": 0, "memory": "1Gi"}})").empty());
  EXPECT_TRUE(asked_devices(Json::object()).empty());
}

class CdiFiles : public testing::Test {
 protected:
  CdiFiles() {
    char name[] = "/tmp/fairlead-cdi-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~CdiFiles() override { (void)remove_tree(root_); }
  void put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(make_dirs(root_ + path.substr(0, path.rfind('/'))));
    ASSERT_TRUE(write_file_atomically(root_ + path, text, 0644));
  }
  std::string root_;
};

TEST_F(CdiFiles, OneBadFileDoesNotCostTheOthers) {
  put("/etc/nvidia.yaml", kNvidia);
  put("/etc/bad.json", "{");
  put("/etc/README", "cdiVersion: 0.5.0");
  put("/run/nvidia.json", R"({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "3", "containerEdits": {}}, {"name": "0", "containerEdits": {"env": ["NEWER=1"]}}], "containerEdits": {}})");
  put("/run/other.json", R"({"cdiVersion": "0.6.0", "kind": "x.y/nic", "devices": [{"name": "mlx0", "containerEdits": {}}]})");
  std::vector<std::string> complaints;
  const auto kinds = read_cdi({root_ + "/etc", root_ + "/run", root_ + "/none"}, &complaints);
  EXPECT_THAT(complaints, ElementsAre(HasSubstr("/etc/bad.json: ")));
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_THAT(handed_out(kinds[0]), ElementsAre("0", "2", "3", "10"));
  // What is common to the devices of a file is so for them alone.
  EXPECT_THAT(edits_for(kinds[0], {{"0", {}}}).env, ElementsAre("NEWER=1"));
  EXPECT_THAT(edits_for(kinds[0], {{"2", {}}, {"0", {}}, {"10", {}}}).env, ElementsAre("NVIDIA_VISIBLE_DEVICES=void", "SECOND=yes", "NEWER=1"));
  EXPECT_THAT(handed_out(kinds[1]), ElementsAre("mlx0"));
  EXPECT_TRUE(read_cdi({}).empty());
}

TEST_F(CdiFiles, DeviceNodesAreWhatTheyAreOnTheMachine) {
  ContainerSpec spec;
  spec.env = {"A=b"};
  spec.devices = {{.path = "/dev/gpu0", .type = 'c', .major = 9, .minor = 9}};  // of a privileged container
  spec.mounts = {{.source = "/own", .target = "/usr/lib/x.so"}};
  ASSERT_TRUE(apply_edits({.env = {"B=c"}, .nodes = {{.path = "/dev/gpu0", .host_path = "/dev/zero", .mode = 0660, .uid = 7, .gid = 44, .permissions = "r"}, {.path = "/dev/ctl", .host_path = "/dev/null"}}, .mounts = {{.source = "/host", .target = "/usr/lib/x.so"}, {.source = "/host", .target = "/usr/lib/y.so"}}, .hooks = {{.stage = "prestart", .path = "/h", .args = {}, .env = {}}}}, spec));
  ASSERT_EQ(spec.devices.size(), 2U);
  EXPECT_EQ(spec.devices[0].major, 1);
  EXPECT_EQ(spec.devices[0].minor, 5);
  EXPECT_EQ(spec.devices[1].minor, 3);
  EXPECT_EQ(spec.devices[1].mode, 0666U);
  EXPECT_EQ(spec.devices[1].permissions, "rwm");
  const Json linux = make_oci_config(spec, {}, "/rootfs", {})["linux"];
  EXPECT_EQ(kube::print_json(linux["devices"].items()[0]), R"({"path":"/dev/gpu0","type":"c","major":1,"minor":5,"fileMode":432,"uid":7,"gid":44})");
  EXPECT_THAT(kube::print_json(linux["resources"]["devices"]), HasSubstr(R"("minor":5,"access":"r"})"));
  EXPECT_THAT(spec.env, ElementsAre("A=b", "B=c"));
  EXPECT_EQ(spec.mounts.size(), 2U);
  EXPECT_EQ(spec.mounts[0].source, "/own");  // the pod's own comes first
  EXPECT_THAT(apply_edits({.env = {}, .nodes = {{.path = "/dev/gpu9", .host_path = "/dev/none-such"}}, .mounts = {}, .hooks = {}}, spec).error().message, HasSubstr("/dev/none-such"));
  EXPECT_FALSE(apply_edits({.env = {}, .nodes = {{.path = "/dev/x", .host_path = "/etc/passwd"}}, .mounts = {}, .hooks = {}}, spec));
}

TEST(Cdi, HooksAreToldToTheRuntimeByTheirStage) {
  ContainerSpec spec;
  spec.hooks = {{.stage = "createContainer", .path = "/a", .args = {"a", "b"}, .env = {"K=v"}, .timeout_seconds = 7}, {.stage = "createContainer", .path = "/c", .args = {}, .env = {}}};
  const Json config = make_oci_config(spec, {}, "/rootfs", {});
  EXPECT_EQ(kube::print_json(config["hooks"]), R"({"createContainer":[{"path":"/a","args":["a","b"],"env":["K=v"],"timeout":7},{"path":"/c","args":["/c"]}]})");
  spec.hooks.clear();
  EXPECT_FALSE(make_oci_config(spec, {}, "/rootfs", {}).has("hooks"));
}

TEST(Cdi, WhoHasWhichDeviceOutlivesTheAgent) {
  Attempt attempt;
  attempt.number = 3;
  attempt.devices = {{"nvidia.com/gpu", {{"0", {"/dev/nvidia0"}}, {"2", {}}}}};
  EXPECT_EQ(parse_attempt(print_attempt(attempt))->devices, attempt.devices);
  EXPECT_TRUE(parse_attempt(R"({"number": 1})")->devices.empty());
}

}  // namespace
}  // namespace fairlead::node
