// SPDX-License-Identifier: Apache-2.0
#include "node/plan/container_spec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/encoding.h"
#include "node/plan/oci_spec.h"
#include "node/plan/refusal.h"

namespace fairlead::node {
namespace {
using kube::Json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json parse(const char* text) { return *kube::parse_json(text); }

EnvironmentSources sources() {
  return {.config_map = [](const std::string& name) -> Result<Json> {
            if (name == "conf") return parse(R"({"data": {"a": "1", "b c": "2"}, "binaryData": {"bin": "AAE="}})");
            return fail(Code::NotFound, "configmap \"" + name + "\" not found");
          },
          .secret = [](const std::string& name) -> Result<Json> {
            if (name == "hidden") return Json::object({{"data", Json::object({{"token", base64("s3")}})}});
            return fail(Code::NotFound, "secret \"" + name + "\" not found");
          },
          .pod_ip = "10.1.0.2",
          .host_ip = "10.0.0.1",
          .node_name = "n1",
          .node_cpu = MilliCpu{2000},
          .node_memory = 4_GiB};
}

const Json pod = parse(R"({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x", "tier": "y"}},
  "spec": {"serviceAccountName": "sa", "containers": [{"name": "m", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}}}]}})");

TEST(Expand, ReplacesKnownNamesOnly) {
  const std::vector<std::pair<std::string, std::string>> variables{{"A", "1"}, {"B", "$(A)"}};
  EXPECT_EQ(expand("x$(A)y$(B)", variables), "x1y$(A)");
  EXPECT_EQ(expand("$(NONE) $$(A) $A $( $", variables), "$(NONE) $(A) $A $( $");
}

struct EnvCase {
  const char* name;
  const char* container;
  std::vector<std::pair<std::string, std::string>> want;
  const char* error = nullptr;
};
class Environment : public testing::TestWithParam<EnvCase> {};
TEST_P(Environment, IsMadeFrom) {
  const auto made = make_environment(pod, parse(GetParam().container), sources());
  if (GetParam().error != nullptr) {
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr(GetParam().error));
    return;
  }
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(*made, GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(
    Sources, Environment,
    testing::Values(
        EnvCase{"values_in_order",
                R"({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}, {"name": "A", "value": "3"}]})",
                {{"A", "3"}, {"B", "12"}}},
        EnvCase{"a_key_of_a_config_map", R"({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}}]})", {{"A", "1"}}},
        EnvCase{"a_key_of_a_secret", R"({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "token"}}}]})", {{"A", "s3"}}},
        EnvCase{"all_of_both",
                R"({"envFrom": [{"configMapRef": {"name": "conf"}}, {"prefix": "S_", "secretRef": {"name": "hidden"}}]})",
                {{"a", "1"}, {"b c", "2"}, {"S_token", "s3"}}},
        EnvCase{"own_values_win",
                R"({"envFrom": [{"configMapRef": {"name": "conf"}}], "env": [{"name": "a", "value": "x"}]})",
                {{"a", "x"}, {"b c", "2"}}},
        EnvCase{"a_missing_object",
                R"({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}]})",
                {},
                "secret \"none\" not found"},
        EnvCase{"a_missing_key",
                R"({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "zz"}}}]})",
                {},
                "couldn't find key zz"},
        EnvCase{"a_missing_optional_one",
                R"({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": true}}}]})",
                {}},
        EnvCase{
            "fields",
            R"({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                                      {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]})",
            {{"A", "x"}, {"B", "10.1.0.2"}, {"C", "n1"}}},
        EnvCase{"an_unknown_field", R"({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.secret"}}}]})", {}, "spec.secret"},
        EnvCase{"resources",
                R"({"name": "m", "env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                                      {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                                      {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}}]})",
                {{"A", "2"}, {"B", "1024"}, {"C", "250"}}}),
    [](const auto& row) { return row.param.name; });

const Accounts accounts{.passwd = "root:x:0:0::/root:/bin/sh\nslurm:x:64030:64030::/home/slurm:/bin/sh\n",
                        .group = "root:x:0:\nwheel:x:10:slurm\nslurm:x:64030:\n"};
const std::vector<std::string> held{"CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"};

ContainerSpec spec_of(
    const char* container, const char* spec = "{}",
    ImageConfig image = {
        .reference = "i:1", .id = {}, .rootfs = {}, .entrypoint = {"/e"}, .cmd = {"c"}, .env = {"IMG=1"}, .user = {}, .working_dir = "/w"}) {
  Json object = pod;
  const Json members = parse(spec);
  for (const auto& [key, value] : members.members()) object.child("spec").set(key, value);
  auto made = make_container_spec(object, parse(container), 0, image, accounts, sources(), held);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : ContainerSpec{};
}

TEST(ContainerSpec, CommandAndArgumentsReplaceThoseOfTheImageAsKubernetesDoes) {
  EXPECT_THAT(spec_of(R"({"name": "m"})").argv, ElementsAre("/e", "c"));
  EXPECT_THAT(spec_of(R"({"name": "m", "args": ["x"]})").argv, ElementsAre("/e", "x"));
  EXPECT_THAT(spec_of(R"({"name": "m", "command": ["y"]})").argv, ElementsAre("y"));
  EXPECT_THAT(spec_of(R"j({"name": "m", "command": ["y", "$(A)"], "args": ["z"], "env": [{"name": "A", "value": "1"}]})j").argv,
              ElementsAre("y", "1", "z"));
  EXPECT_EQ(spec_of(R"({"name": "m"})").cwd, "/w");
  EXPECT_THAT(spec_of(R"({"name": "m"})").env, testing::AllOf(Contains("IMG=1"), Contains("HOME=/root"), Contains("HOSTNAME=p")));
}

TEST(ContainerSpec, UsersAreNumbersNamesAndGroups) {
  ImageConfig image{.reference = "i:1", .id = {}, .rootfs = {}, .entrypoint = {"/e"}, .cmd = {}, .env = {}, .user = "slurm", .working_dir = {}};
  const ContainerSpec named = spec_of(R"({"name": "m"})", R"({"securityContext": {"fsGroup": 7, "supplementalGroups": [8]}})", image);
  EXPECT_EQ(named.uid, 64030);
  EXPECT_EQ(named.gid, 64030);
  EXPECT_THAT(named.groups, ElementsAre(64030, 10, 8, 7));
  EXPECT_THAT(named.env, Contains("HOME=/home/slurm"));
  const ContainerSpec own =
      spec_of(R"({"name": "m", "securityContext": {"runAsUser": 1000, "runAsGroup": 1001}})", R"({"securityContext": {"runAsUser": 5}})", image);
  EXPECT_EQ(own.uid, 1000);
  EXPECT_EQ(own.gid, 1001);
  auto root = make_container_spec(pod, parse(R"({"name": "m", "securityContext": {"runAsNonRoot": true}})"), 0,
                                  {.reference = "i", .entrypoint = {"e"}, .cmd = {}, .env = {}}, accounts, sources(), held);
  ASSERT_FALSE(root);
  EXPECT_THAT(root.error().message, HasSubstr("runAsNonRoot"));
}

TEST(ContainerSpec, CapabilitiesAreAddedDroppedAndNeverMoreThanTheNodeHas) {
  EXPECT_THAT(spec_of(R"({"name": "m"})").capabilities, ElementsAre("CAP_CHOWN", "CAP_KILL"));
  EXPECT_THAT(spec_of(R"({"name": "m", "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}})").capabilities,
              ElementsAre("CAP_NET_ADMIN"));
  EXPECT_THAT(spec_of(R"({"name": "m", "securityContext": {"capabilities": {"add": ["SYS_RESOURCE", "sys_admin"]}}})").capabilities,
              ElementsAre("CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN"));
  EXPECT_EQ(spec_of(R"({"name": "m", "securityContext": {"privileged": true}})").capabilities, held);
}

TEST(OciSpec, SecuritySettingsReachTheRuntime) {
  const SandboxPaths paths{.network = "/n", .ipc = "/i", .uts = "/u", .shm = "/s", .cgroup = "/g"};
  const auto config = [&](const char* container) {
    return make_oci_config(spec_of(container), paths, "/root", Json::object({{"defaultAction", "x"}}));
  };
  const Json plain = config(R"({"name": "m"})");
  EXPECT_FALSE(plain["process"]["noNewPrivileges"].boolean());
  EXPECT_FALSE(plain["root"]["readonly"].boolean());
  EXPECT_TRUE(plain["linux"].has("seccomp"));
  EXPECT_TRUE(plain["linux"].has("maskedPaths"));
  EXPECT_FALSE(plain["linux"]["resources"]["devices"].items()[0]["allow"].boolean());
  const Json tight =
      config(R"({"name": "m", "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsUser": 5}})");
  EXPECT_TRUE(tight["process"]["noNewPrivileges"].boolean());
  EXPECT_TRUE(tight["root"]["readonly"].boolean());
  EXPECT_TRUE(tight["process"]["capabilities"]["effective"].items().empty());
  const Json wide = config(R"({"name": "m", "securityContext": {"privileged": true}})");
  EXPECT_FALSE(wide["linux"].has("seccomp"));
  EXPECT_FALSE(wide["linux"].has("maskedPaths"));
  EXPECT_TRUE(wide["linux"]["resources"]["devices"].items()[0]["allow"].boolean());
  EXPECT_FALSE(config(R"({"name": "m", "securityContext": {"seccompProfile": {"type": "Unconfined"}}})")["linux"].has("seccomp"));
}

TEST(OciSpec, ADeviceIsAllowedWithItsRightsAlone) {
  ContainerSpec spec = spec_of(R"({"name": "m"})");
  spec.devices = {{.path = "/dev/xvda", .type = 'b', .major = 7, .minor = 3, .mode = 0440, .uid = 5, .gid = 6, .permissions = "r", .volume = "v"}};
  const Json config = make_oci_config(spec, {.network = "/n", .ipc = "/i", .uts = "/u", .shm = "/s", .cgroup = "/g"}, "/root", Json());
  EXPECT_EQ(config["linux"]["devices"].items()[0], parse(R"({"path": "/dev/xvda", "type": "b", "major": 7, "minor": 3, "fileMode": 288, "uid": 5, "gid": 6})"));
  EXPECT_EQ(config["linux"]["resources"]["devices"].items().back(), parse(R"({"allow": true, "type": "b", "major": 7, "minor": 3, "access": "r"})"));
}

TEST(Limits, SumUpForThePod) {
  const Json two = parse(R"({"spec": {"initContainers": [{"resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}],
    "containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, {"resources": {"limits": {"cpu": "500m", "memory": "2Gi"}}}]}})");
  EXPECT_EQ(pod_limits(two, 9), (Limits{.cpu_shares = 3072, .cpu = MilliCpu{3000}, .memory = 3_GiB, .pids = 9}));
  const Json open = parse(R"({"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}, {}]}})");
  EXPECT_EQ(pod_limits(open, 9), (Limits{.cpu_shares = 1026, .cpu = {}, .memory = {}, .pids = 9}));
}

struct Refusal {
  const char* name;
  const char* spec;
  const char* want;  // "": runs
};
class Refusals : public testing::TestWithParam<Refusal> {};
TEST_P(Refusals, AreNamed) {
  const std::string text = refusal_of(Json::object({{"spec", parse(GetParam().spec)}}));
  if (GetParam().want[0] == '\0')
    EXPECT_EQ(text, "");
  else
    EXPECT_THAT(text, HasSubstr(GetParam().want));
}
INSTANTIATE_TEST_SUITE_P(
    Fields, Refusals,
    testing::Values(
        Refusal{"plain", R"({"containers": [{"name": "m", "image": "i"}], "enableServiceLinks": true, "tolerations": [{"key": "x"}]})", ""},
        Refusal{"a_false_switch_says_nothing", R"({"shareProcessNamespace": false, "containers": []})", ""},
        Refusal{"shared_processes_run", R"({"shareProcessNamespace": true, "containers": []})", ""},
        Refusal{"an_unknown_volume", R"({"volumes": [{"name": "v", "nfs": {"server": "x"}}]})", "spec.volumes[v].nfs"},
        Refusal{"an_empty_dir_is_known", R"({"volumes": [{"name": "v", "emptyDir": {}}]})", ""},
        Refusal{"huge_pages", R"({"volumes": [{"name": "v", "emptyDir": {"medium": "HugePages"}}]})", "HugePages"},
        Refusal{"a_local_seccomp_profile",
                R"({"containers": [{"name": "m", "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}}]})",
                "Localhost"},
        Refusal{"selinux", R"({"securityContext": {"seLinuxOptions": {"level": "s0"}}})", "seLinuxOptions"},
        Refusal{"a_kernel_sysctl", R"({"securityContext": {"sysctls": [{"name": "kernel.panic", "value": "1"}]}})", "sysctl kernel.panic"},
        Refusal{"a_net_sysctl_runs", R"({"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}})", ""},
        Refusal{"a_side_car_runs", R"({"initContainers": [{"name": "s", "restartPolicy": "Always", "readinessProbe": {"grpc": {"port": 1}}}]})", ""},
        Refusal{"a_probe_of_a_plain_init_container", R"({"initContainers": [{"name": "s", "readinessProbe": {"grpc": {"port": 1}}}]})",
                "readinessProbe"},
        Refusal{"a_restart_policy_of_a_main_container", R"({"containers": [{"name": "m", "restartPolicy": "Always"}]})",
                "containers[m].restartPolicy"},
        Refusal{"a_grpc_probe_runs", R"({"containers": [{"name": "m", "livenessProbe": {"grpc": {"port": 1}, "terminationGracePeriodSeconds": 1}}]})",
                ""},
        Refusal{"a_tcp_hook", R"({"containers": [{"name": "m", "lifecycle": {"preStop": {"tcpSocket": {"port": 1}}}}]})", "preStop.tcpSocket"},
        Refusal{"a_terminal_runs", R"({"containers": [{"name": "m", "tty": true, "stdin": true, "stdinOnce": true}]})", ""},
        Refusal{"block_devices_run", R"({"containers": [{"name": "m", "volumeDevices": [{"name": "x", "devicePath": "/dev/xvda"}]}]})", ""},
        Refusal{"a_token_volume_runs", R"({"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]})", ""},
        Refusal{"user_namespaces", R"({"hostUsers": false, "containers": []})", "hostUsers"},
        Refusal{"a_host_port_runs", R"({"containers": [{"name": "m", "ports": [{"containerPort": 80, "hostPort": 80}]}]})", ""},
        Refusal{"a_cluster_trust_bundle", R"({"volumes": [{"name": "t", "projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}]})",
                "clusterTrustBundle"},
        Refusal{"a_runtime_class", R"({"runtimeClassName": "kata"})", "runtimeClassName"}),
    [](const auto& row) { return row.param.name; });

TEST(ServiceVariables, TellOfServicesWithAnAddressInTheNamespace) {
  const auto service = [](const char* space, const char* name, const char* ip) {
    return *kube::parse_json(fmt::format(
        R"({{"metadata": {{"namespace": "{}", "name": "{}"}}, "spec": {{"clusterIP": "{}", "ports": [{{"name": "http-api", "port": 80}}, {{"port": 53, "protocol": "UDP"}}]}}}})",
        space, name, ip));
  };
  const std::vector<Json> all{service("default", "kubernetes", "10.96.0.1"), service("a", "my-db", "fd00::5"), service("a", "quiet", "None"),
                              service("b", "other", "10.96.0.9")};
  std::map<std::string, std::string> found;
  for (const auto& [key, value] : service_variables(all, "a", true)) found[key] = value;
  EXPECT_EQ(found["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
  EXPECT_EQ(found["MY_DB_SERVICE_HOST"], "fd00::5");
  EXPECT_EQ(found["MY_DB_SERVICE_PORT"], "80");
  EXPECT_EQ(found["MY_DB_SERVICE_PORT_HTTP_API"], "80");
  EXPECT_EQ(found["MY_DB_PORT"], "tcp://[fd00::5]:80");
  EXPECT_EQ(found["MY_DB_PORT_53_UDP_PROTO"], "udp");
  EXPECT_FALSE(found.contains("QUIET_SERVICE_HOST"));
  EXPECT_FALSE(found.contains("OTHER_SERVICE_HOST"));
  // Without links only the API's own.
  for (const auto& [key, value] : service_variables(all, "a", false)) EXPECT_TRUE(key.starts_with("KUBERNETES_")) << key;
}

TEST(PodLimits, SideCarsCountBesideWhatRunsAfterThem) {
  const auto limits = [](const char* text) { return pod_limits(*kube::parse_json(text), 10); };
  const Limits with = limits(R"({"spec": {"initContainers": [{"name": "big", "resources": {"limits": {"memory": "5Mi"}}},
      {"name": "side", "restartPolicy": "Always", "resources": {"limits": {"memory": "3Mi"}}}, {"name": "late", "resources": {"limits": {"memory": "9Mi"}}}],
      "containers": [{"name": "m", "resources": {"limits": {"memory": "4Mi"}}}]}})");
  EXPECT_EQ(with.memory, 12_MiB);  // late beside side
  const Limits open = limits(
      R"({"spec": {"initContainers": [{"name": "side", "restartPolicy": "Always"}], "containers": [{"name": "m", "resources": {"limits": {"memory": "4Mi"}}}]}})");
  EXPECT_FALSE(open.memory);
}

}  // namespace
}  // namespace fairlead::node
