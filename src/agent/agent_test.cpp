// SPDX-License-Identifier: Apache-2.0
// The whole agent with real containers against an API in memory.
#include "agent/agent.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <csignal>

#include "base/encoding.h"
#include "http/client.h"
#include "kube/object.h"
#include "node/memory_api.h"
#include "node/node_fixture.h"

namespace fairlead::agent {
namespace {
using kube::Json;
using namespace std::chrono_literals;
using node::busybox;
using node::images_dir;
using testing::HasSubstr;

class AgentTest : public node::NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (HasFatalFailure()) return;
    config_ = {.node_name = "n1",
               .node_ip = "127.0.0.1",
               .pod_cidr = "10.99.7.0/24",
               .listen_port = 10250,
               .api_server = {},
               .ca_file = {},
               .cert_file = {},
               .key_file = {},
               .node_dir = root_ + "/node",
               .run_dir = root_ + "/run",
               .images_dir = images_dir(),
               .volumes_dir = root_ + "/volumes",
               .cgroup_parent = cgroup(),
               .bridge = "flt0",
               .masquerade = false,
               .labels = {{"role", "test"}},
               .annotations = {},
               .taints = Json(),
               .capacity = {{"cpu", "2"}, {"memory", "1Gi"}},
               .cluster_domain = "cluster.local"};
    start_agent();
  }
  void start_agent() {
    auto agent = Agent::start(api_, clock_, {.config = config_, .answer_names = true, .serve = false, .answer_credentials = false, .at_step = {}});
    ASSERT_TRUE(agent) << agent.error().message;
    agent_ = std::move(*agent);
  }
  void TearDown() override {
    agent_.reset();
    if (!root_.empty()) {
      // Clean up what a failed test left.
      auto options = NodeTest::options();
      auto runtime = node::OciRuntime::open(options, clock_);
      ASSERT_TRUE(runtime);
      runtime_ = std::move(*runtime);
    }
    NodeTest::TearDown();
  }
  Json pod(const std::string& name, const std::string& script, const char* policy = "Always") {
    Json container = Json::object({{"name", "main"}, {"image", busybox()}, {"command", Json::array({"/bin/sh", "-c", script})}});
    return Json::object({{"apiVersion", "v1"},
                         {"kind", "Pod"},
                         {"metadata", Json::object({{"name", name}, {"namespace", "default"}})},
                         {"spec", Json::object({{"nodeName", "n1"},
                                                {"restartPolicy", policy},
                                                {"terminationGracePeriodSeconds", 30},
                                                {"containers", Json::array({std::move(container)})}})}});
  }
  // Null before the agent has written a status.
  static const Json& first_container(const Json& status) {
    static const Json none;
    const auto& all = status["containerStatuses"].items();
    return all.empty() ? none : all[0];
  }
  static Json& main_container(Json& object) { return object.find("spec")->find("containers")->items()[0]; }
  const Json* find(const node::MemoryApi::Objects& objects, const std::string& name) {
    const auto it = objects.find({"pods", {"default", name}});
    return it == objects.end() ? nullptr : &it->second;
  }
  template <class Holds>
  bool wait_pod(const std::string& name, const Holds& holds, std::chrono::milliseconds limit = 20s) {
    const bool did = api_.wait_until(
        [&](const auto& objects) {
          const Json* one = find(objects, name);
          return one != nullptr && holds((*one)["status"]);
        },
        limit);
    if (!did) {
      auto now = api_.get(kube::resources::pods, {"default", name});
      ADD_FAILURE() << name << " is " << (now ? kube::print_json_indented((*now)["status"]) : now.error().message);
    }
    return did;
  }
  bool wait_phase(const std::string& name, const std::string& phase, std::chrono::milliseconds limit = 20s) {
    return wait_pod(name, [&](const Json& status) { return status["phase"].string() == phase; }, limit);
  }
  bool wait_ready(const std::string& name) {
    return wait_pod(name, [](const Json& status) { return kube::condition_is_true(Json::object({{"status", status}}), "Ready"); });
  }
  bool wait_gone(const std::string& name, std::chrono::milliseconds limit = 20s) {
    return api_.wait_until([&](const auto& objects) { return find(objects, name) == nullptr; }, limit);
  }
  Json status(const std::string& name) { return (*api_.get(kube::resources::pods, {"default", name}))["status"]; }
  std::string uid(const std::string& name) { return kube::uid_of(*api_.get(kube::resources::pods, {"default", name})); }
  std::string log(const std::string& name, const std::string& container = "main", int attempt = 0) {
    auto text = read_file(root_ + "/node/logs/default_" + name + "_" + uid(name) + "/" + container + "/" + std::to_string(attempt) + ".log");
    return text ? *text : text.error().message;
  }
  // Looks until the log has this text. What a container writes can be waited for only by looking.
  bool wait_log(const std::string& name, const std::string& text) {
    for (int i = 0; i < 1000 && log(name).find(text) == std::string::npos; ++i) ::poll(nullptr, 0, 20);
    return log(name).find(text) != std::string::npos;
  }
  void create(const Json& object) { ASSERT_TRUE(api_.create(kube::resources::pods, object)); }

  node::MemoryApi api_;
  node::NodeConfig config_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, RegistersTheNodeAndRenewsItsLease) {
  ASSERT_TRUE(api_.wait_until([](const auto& objects) { return objects.contains({"leases", {"kube-node-lease", "n1"}}); }));
  const Json node = *api_.get(kube::resources::nodes, {"", "n1"});
  EXPECT_TRUE(kube::condition_is_true(node, "Ready"));
  EXPECT_EQ(node["metadata"]["labels"]["kubernetes.io/hostname"].string(), "n1");
  EXPECT_EQ(node["metadata"]["labels"]["role"].string(), "test");
  EXPECT_EQ(node["spec"]["podCIDR"].string(), "10.99.7.0/24");
  EXPECT_EQ(node["status"]["capacity"]["cpu"].string(), "2");
  EXPECT_EQ(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].integer(), 10250);
}

TEST_F(AgentTest, APodRunsIsReadyAndEndsGracefully) {
  create(pod("web", "trap 'echo bye; exit 0' TERM; echo hi; while true; do sleep 0.05; done"));
  ASSERT_TRUE(wait_ready("web") && wait_log("web", "F hi"));  // by then the shell has set its trap
  const Json seen = status("web");
  EXPECT_EQ(seen["phase"].string(), "Running");
  EXPECT_THAT(seen["podIP"].string(), testing::StartsWith("10.99.7."));
  EXPECT_EQ(first_container(seen)["restartCount"].integer(), 0);
  EXPECT_THAT(first_container(seen)["imageID"].string(), testing::StartsWith("sha256:"));
  ASSERT_TRUE(api_.remove(kube::resources::pods, {"default", "web"}, {}));
  ASSERT_TRUE(wait_gone("web"));
  EXPECT_THAT(*list_dir(root_ + "/node/pods"), testing::IsEmpty());
  EXPECT_THAT(*list_dir(root_ + "/run/pods"), testing::IsEmpty());
}

TEST_F(AgentTest, ExitCodesBecomePhases) {
  create(pod("good", "exit 0", "Never"));
  create(pod("bad", "echo broken > /dev/termination-log; exit 3", "Never"));
  ASSERT_TRUE(wait_phase("good", "Succeeded"));
  ASSERT_TRUE(wait_phase("bad", "Failed"));
  const Json end = first_container(status("bad"))["state"]["terminated"];
  EXPECT_EQ(end["exitCode"].integer(), 3);
  EXPECT_EQ(end["message"].string(), "broken\n");
}

TEST_F(AgentTest, InitContainersRunInOrderBeforeTheMainOnes) {
  Json object = pod("ordered", "cat /work/*; sleep 600");
  object.child("spec").set("volumes", Json::array({Json::object({{"name", "work"}, {"emptyDir", Json::object()}})}));
  const Json mounts = Json::array({Json::object({{"name", "work"}, {"mountPath", "/work"}})});
  main_container(object).set("volumeMounts", mounts);
  Json inits = Json::array();
  for (const char* name : {"first", "second"})
    inits.push(Json::object({{"name", name},
                             {"image", busybox()},
                             {"volumeMounts", mounts},
                             {"command", Json::array({"/bin/sh", "-c", std::string("echo $(ls /work) ") + name + " > /work/" + name})}}));
  object.child("spec").set("initContainers", std::move(inits));
  create(object);
  ASSERT_TRUE(wait_ready("ordered"));
  EXPECT_TRUE(wait_log("ordered", "second"));
  EXPECT_THAT(log("ordered"), testing::AllOf(HasSubstr("F first\n"), HasSubstr("F first second\n")));
  EXPECT_TRUE(kube::condition_is_true(*api_.get(kube::resources::pods, {"default", "ordered"}), "Initialized"));
}

TEST_F(AgentTest, ACrashIsRestartedAndThenBackedOff) {
  create(pod("crash", "exit 1"));
  ASSERT_TRUE(wait_pod("crash", [](const Json& seen) {
    const Json& one = first_container(seen);
    return one["state"]["waiting"]["reason"].string() == "CrashLoopBackOff" && one["restartCount"].integer() >= 1;
  }));
  EXPECT_EQ(first_container(status("crash"))["lastState"]["terminated"]["exitCode"].integer(), 1);
  ASSERT_TRUE(api_.remove(kube::resources::pods, {"default", "crash"}, {}));
  EXPECT_TRUE(wait_gone("crash"));
}

TEST_F(AgentTest, EnvironmentAndVolumesComeFromObjectsAndFollowThem) {
  ASSERT_TRUE(api_.create(kube::resources::config_maps, Json::object({{"metadata", Json::object({{"name", "conf"}, {"namespace", "default"}})},
                                                                      {"data", Json::object({{"key", "one"}, {"other", "x"}})}})));
  ASSERT_TRUE(api_.create(kube::resources::secrets, Json::object({{"metadata", Json::object({{"name", "hidden"}, {"namespace", "default"}})},
                                                                  {"data", Json::object({{"token", base64("s3cret")}})}})));
  Json object =
      pod("configured",
          "echo $KEY $TOKEN $NAME $IP; stat -L -c %a /secret/token; while ! grep -q two /conf/key; do sleep 0.1; done; echo seen; sleep 600");
  main_container(object)
      .set("env",
           Json::array(
               {Json::object({{"name", "KEY"}, {"valueFrom", Json::object({{"configMapKeyRef", Json::object({{"name", "conf"}, {"key", "key"}})}})}}),
                Json::object(
                    {{"name", "TOKEN"}, {"valueFrom", Json::object({{"secretKeyRef", Json::object({{"name", "hidden"}, {"key", "token"}})}})}}),
                Json::object({{"name", "NAME"}, {"valueFrom", Json::object({{"fieldRef", Json::object({{"fieldPath", "metadata.name"}})}})}}),
                Json::object({{"name", "IP"}, {"valueFrom", Json::object({{"fieldRef", Json::object({{"fieldPath", "status.podIP"}})}})}})}))
      .set("volumeMounts",
           Json::array({Json::object({{"name", "conf"}, {"mountPath", "/conf"}}), Json::object({{"name", "secret"}, {"mountPath", "/secret"}})}));
  object.child("spec").set(
      "volumes", Json::array({Json::object({{"name", "conf"}, {"configMap", Json::object({{"name", "conf"}})}}),
                              Json::object({{"name", "secret"}, {"secret", Json::object({{"secretName", "hidden"}, {"defaultMode", 0400}})}})}));
  create(object);
  ASSERT_TRUE(wait_ready("configured"));
  ASSERT_TRUE(api_.patch(kube::resources::config_maps, {"default", "conf"}, kube::PatchType::Merge,
                         Json::object({{"data", Json::object({{"key", "two"}})}}), ""));
  EXPECT_TRUE(wait_log("configured", "F seen"));
  EXPECT_THAT(log("configured"), testing::AllOf(HasSubstr("F one s3cret configured 10.99.7."), HasSubstr("F 400\n"), HasSubstr("F seen\n")));
}

TEST_F(AgentTest, WhatIsMissingIsSaidAndWaitedFor) {
  Json object = pod("lacking", "sleep 600");
  main_container(object).set("image", "nowhere:1");
  create(object);
  Json claim = pod("unbound", "cat /data/x; sleep 600");
  claim.child("spec").set("volumes",
                          Json::array({Json::object({{"name", "data"}, {"persistentVolumeClaim", Json::object({{"claimName", "data"}})}})}));
  main_container(claim).set("volumeMounts", Json::array({Json::object({{"name", "data"}, {"mountPath", "/data"}})}));
  ASSERT_TRUE(api_.create(kube::resources::claims, Json::object({{"metadata", Json::object({{"name", "data"}, {"namespace", "default"}})},
                                                                 {"status", Json::object({{"phase", "Pending"}})}})));
  create(claim);
  ASSERT_TRUE(wait_pod("lacking", [](const Json& seen) {
    return first_container(seen)["state"]["waiting"]["message"].string().find("fairlead image build") != std::string::npos;
  }));
  ASSERT_TRUE(wait_pod("unbound", [](const Json& seen) {
    return first_container(seen)["state"]["waiting"]["message"].string().find("not bound") != std::string::npos;
  }));
  ASSERT_TRUE(make_dirs(root_ + "/volumes/default/u1"));
  ASSERT_TRUE(write_file_atomically(root_ + "/volumes/default/u1/x", "shared\n", 0644));
  ASSERT_TRUE(api_.patch(kube::resources::claims, {"default", "data"}, kube::PatchType::Merge,
                         Json::object({{"spec", Json::object({{"volumeName", "v"}})}, {"status", Json::object({{"phase", "Bound"}})}}), ""));
  const kube::Resource volumes{"", "v1", "persistentvolumes", "PersistentVolume", false};
  const Json bound = Json::object({{"namespace", "default"}, {"name", "data"}, {"uid", kube::uid_of(*api_.get(kube::resources::claims, {"default", "data"}))}});
  ASSERT_TRUE(api_.create(volumes, Json::object({{"metadata", Json::object({{"name", "v"}})}, {"spec", Json::object({{"claimRef", bound}, {"nfs", Json::object({{"path", "/x"}})}})}})));
  // A kind of volume that this node does not mount: said in an event, and mended without the pod being made anew.
  ASSERT_TRUE(api_.wait_until([](const auto& objects) {
    return std::any_of(objects.begin(), objects.end(), [](const auto& item) {
      return item.first.first == "events" && item.second["reason"].string() == "FailedMount" && item.second["message"].string().find("does not mount (nfs)") != std::string::npos;
    });
  }));
  ASSERT_TRUE(api_.patch(volumes, {"", "v"}, kube::PatchType::Merge,
                         Json::object({{"spec", Json::object({{"nfs", Json()}, {"hostPath", Json::object({{"path", root_ + "/volumes/default/u1"}})}})}}), ""));
  ASSERT_TRUE(wait_ready("unbound"));
}

TEST_F(AgentTest, WhatIsNotSupportedIsRefusedClearly) {
  Json object = pod("odd", "sleep 600");
  object.child("spec").set("runtimeClassName", "kata");
  create(object);
  ASSERT_TRUE(wait_phase("odd", "Failed"));
  EXPECT_THAT(status("odd")["message"].string(), HasSubstr("spec.runtimeClassName"));
  ASSERT_TRUE(api_.wait_until([](const auto& objects) {
    for (const auto& [at, one] : objects)
      if (at.first == "events" && one["reason"].string() == "Unsupported") return true;
    return false;
  }));
}

TEST_F(AgentTest, AFullEmptyDirIsEvicted) {
  Json object = pod("full", "dd if=/dev/zero of=/d/x bs=1M count=4; sleep 600");
  object.child("spec").set("terminationGracePeriodSeconds", 1);
  object.child("spec").set("volumes", Json::array({Json::object({{"name", "d"}, {"emptyDir", Json::object({{"sizeLimit", "1Mi"}})}})}));
  main_container(object).set("volumeMounts", Json::array({Json::object({{"name", "d"}, {"mountPath", "/d"}})}));
  create(object);
  ASSERT_TRUE(wait_phase("full", "Failed", 40s));
  EXPECT_EQ(status("full")["reason"].string(), "Evicted");
}

TEST_F(AgentTest, SecuritySettingsHoldInTheContainer) {
  Json object = pod("tight",
                    "id; touch /x 2>/dev/null && echo wrote; touch /data/y && echo data; grep NoNewPrivs /proc/self/status; grep CapBnd "
                    "/proc/self/status; cat /proc/sys/net/core/somaxconn; "
                    "unshare -U true 2>/dev/null && echo unshared; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; grep Seccomp: "
                    "/proc/self/status; ls -ld /data | cut -d' ' -f1-12",
                    "Never");
  object.child("spec")
      .set("securityContext",
           *kube::parse_json(
               R"({"runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002, "sysctls": [{"name": "net.core.somaxconn", "value": "77"}]})"))
      .set("volumes", Json::array({Json::object({{"name", "d"}, {"emptyDir", Json::object()}})}));
  main_container(object)
      .set("securityContext",
           *kube::parse_json(R"({"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})"))
      .set("volumeMounts", Json::array({Json::object({{"name", "d"}, {"mountPath", "/data"}})}));
  create(object);
  ASSERT_TRUE(wait_phase("tight", "Succeeded"));
  EXPECT_THAT(log("tight"), testing::AllOf(HasSubstr("F uid=1000 gid=1001 groups=1001,1002"), HasSubstr("F data\n"), HasSubstr("NoNewPrivs:\t1"),
                                           HasSubstr("CapBnd:\t0000000000000000"), HasSubstr("F 77\n"), HasSubstr("Seccomp:\t2")));
  EXPECT_THAT(log("tight"), testing::Not(testing::AnyOf(HasSubstr("wrote"), HasSubstr("unshared"), HasSubstr("mounted"))));
}

TEST_F(AgentTest, PrivilegedAndHostNetworkPodsSeeTheNode) {
  Json object = pod("wide",
                    "hostname; ip -o link | grep -c flt0; mount -t tmpfs x /tmp && echo mounted; test -c /dev/kmsg && echo devices; grep Seccomp: "
                    "/proc/self/status; "
                    "mkdir /sys/fs/cgroup/memory/inner && echo cgroup",
                    "Never");
  object.child("spec").set("hostNetwork", true);
  main_container(object).set("securityContext", *kube::parse_json(R"({"privileged": true})"));
  create(object);
  ASSERT_TRUE(wait_phase("wide", "Succeeded"));
  EXPECT_THAT(log("wide"),
              testing::AllOf(HasSubstr("F 1\n"), HasSubstr("mounted"), HasSubstr("devices"), HasSubstr("Seccomp:\t0"), HasSubstr("F cgroup\n")));
  EXPECT_EQ(status("wide")["podIP"].string(), "127.0.0.1");
}

TEST_F(AgentTest, ProbesDecideReadinessAndRestarts) {
  Json object = pod("probed", "touch /alive; sleep 1; touch /ready; sleep 600");
  const auto probe = [](const char* file) {
    return Json::object({{"exec", Json::object({{"command", Json::array({"test", "-e", file})}})}, {"periodSeconds", 1}, {"failureThreshold", 1}});
  };
  main_container(object).set("readinessProbe", probe("/ready")).set("livenessProbe", probe("/alive"));
  object.child("spec").set("terminationGracePeriodSeconds", 1);
  create(object);
  ASSERT_TRUE(wait_phase("probed", "Running"));
  EXPECT_FALSE(kube::condition_is_true(*api_.get(kube::resources::pods, {"default", "probed"}), "Ready"));
  ASSERT_TRUE(wait_ready("probed"));
  auto options = NodeTest::options();
  auto runtime = node::OciRuntime::open(options, clock_);
  ASSERT_TRUE(runtime);
  ASSERT_TRUE(node::run_in_container(**runtime, uid("probed"), "main", {"rm", "/alive"}, 10s));
  EXPECT_TRUE(wait_pod("probed", [](const Json& seen) { return first_container(seen)["restartCount"].integer() == 1; }));
}

TEST_F(AgentTest, APreStopHookRunsBeforeTheSignal) {
  Json object = pod("hooked", "trap 'test -e /data/hook && echo after > /data/order; exit 0' TERM; echo set; while true; do sleep 0.05; done");
  object.child("spec").set(
      "volumes",
      Json::array({Json::object({{"name", "d"}, {"hostPath", Json::object({{"path", root_ + "/host"}, {"type", "DirectoryOrCreate"}})}})}));
  main_container(object)
      .set("volumeMounts", Json::array({Json::object({{"name", "d"}, {"mountPath", "/data"}})}))
      .set("lifecycle", Json::object({{"preStop", Json::object({{"exec", Json::object({{"command", Json::array({"touch", "/data/hook"})}})}})}}));
  create(object);
  ASSERT_TRUE(wait_ready("hooked") && wait_log("hooked", "F set"));
  ASSERT_TRUE(api_.remove(kube::resources::pods, {"default", "hooked"}, {}));
  ASSERT_TRUE(wait_gone("hooked"));
  EXPECT_EQ(*read_file(root_ + "/host/order"), "after\n");
}

TEST_F(AgentTest, AnIgnoredSignalEndsInAKillAtTheDeadline) {
  Json object = pod("stubborn", "trap '' TERM; while true; do sleep 0.05; done");
  object.child("spec").set("terminationGracePeriodSeconds", 1);
  create(object);
  ASSERT_TRUE(wait_ready("stubborn"));
  ASSERT_TRUE(api_.remove(kube::resources::pods, {"default", "stubborn"}, {}));
  EXPECT_TRUE(wait_gone("stubborn", 10s));
}

TEST_F(AgentTest, ANewAgentAdoptsPodsAndRemovesWhatIsGone) {
  create(pod("kept", "sleep 600"));
  create(pod("dropped", "sleep 600"));
  ASSERT_TRUE(wait_ready("kept") && wait_ready("dropped"));
  const std::string id = first_container(status("kept"))["containerID"].string();
  agent_.reset();
  ASSERT_TRUE(api_.remove(kube::resources::pods, {"default", "dropped"}, {.grace_seconds = 0, .uid = {}, .resource_version = {}}));
  start_agent();
  create(pod("later", "sleep 600"));
  ASSERT_TRUE(wait_ready("later"));
  EXPECT_EQ(first_container(status("kept"))["containerID"].string(), id);
  EXPECT_EQ(first_container(status("kept"))["restartCount"].integer(), 0);
  for (int i = 0; i < 200 && list_dir(root_ + "/node/pods")->size() != 2; ++i) ::poll(nullptr, 0, 20);
  EXPECT_EQ(list_dir(root_ + "/node/pods")->size(), 2U);
}

// Else each upgrade of the agent would take the pods of its node out of their services, for as long as their first probes wait.
TEST_F(AgentTest, AReadyPodStaysReadyUnderANewAgent) {
  Json object = pod("served", "touch /ready; sleep 600");
  main_container(object).set("readinessProbe", Json::object({{"exec", Json::object({{"command", Json::array({"test", "-e", "/ready"})}})},
                                                             {"initialDelaySeconds", 2}, {"periodSeconds", 1}, {"failureThreshold", 600}}));
  create(object);
  ASSERT_TRUE(wait_ready("served"));
  auto options = NodeTest::options();
  auto runtime = node::OciRuntime::open(options, clock_);
  ASSERT_TRUE(runtime);
  ASSERT_TRUE(node::run_in_container(**runtime, uid("served"), "main", {"rm", "/ready"}, 10s));  // what a new agent sees first is a failure
  agent_.reset();
  start_agent();
  create(pod("later", "sleep 600"));
  ASSERT_TRUE(wait_ready("later"));
  const Json seen = *api_.get(kube::resources::pods, {"default", "served"});
  EXPECT_TRUE(kube::condition_is_true(seen, "Ready")) << kube::print_json(seen["status"]);
  EXPECT_TRUE(first_container(seen["status"])["ready"].boolean());
}

// It has no readiness probe, so it is ready while its long start goes on; a liveness probe that came too early would end it.
TEST_F(AgentTest, ANewAgentKeepsTheInitialDelayOfAContainer) {
  Json object = pod("slow", "sleep 600");
  main_container(object).set("livenessProbe", Json::object({{"exec", Json::object({{"command", Json::array({"sh", "-c", "touch /probed; false"})}})},
                                                            {"initialDelaySeconds", 3600}, {"periodSeconds", 1}, {"failureThreshold", 600}}));
  create(object);
  ASSERT_TRUE(wait_ready("slow"));
  agent_.reset();
  start_agent();
  create(pod("later", "sleep 600"));
  ASSERT_TRUE(wait_ready("later"));
  auto options = NodeTest::options();
  auto runtime = node::OciRuntime::open(options, clock_);
  ASSERT_TRUE(runtime);
  const auto probed = node::run_in_container(**runtime, uid("slow"), "main", {"test", "-e", "/probed"}, 10s);
  ASSERT_TRUE(probed);
  EXPECT_NE(probed->exit.code, 0);
}

TEST_F(AgentTest, NamesOfHeadlessServicesAreAnswered) {
  ASSERT_TRUE(api_.create(kube::resources::services,
                          Json::object({{"metadata", Json::object({{"name", "peers"}, {"namespace", "default"}})},
                                        {"spec", Json::object({{"clusterIP", "None"}, {"selector", Json::object({{"app", "peer"}})}})}})));
  Json peer = pod("peer-0", "sleep 600");
  peer.child("metadata").set("labels", Json::object({{"app", "peer"}}));
  peer.child("spec").set("hostname", "peer-0").set("subdomain", "peers");
  create(peer);
  ASSERT_TRUE(wait_ready("peer-0"));
  create(pod("client",
             "for n in peers peer-0.peers peer-0.peers.default.svc.cluster.local; do nslookup -type=a $n || nslookup $n; ping -c 1 -W 2 $n && echo "
             "reached $n; done; "
             "nslookup nobody.peers.default.svc.cluster.local || echo none",
             "Never"));
  ASSERT_TRUE(wait_phase("client", "Succeeded", 60s));
  EXPECT_THAT(log("client"), testing::AllOf(HasSubstr("F reached peers\n"), HasSubstr("F reached peer-0.peers\n"), HasSubstr("F none\n")))
      << log("client");
}

TEST_F(AgentTest, ASidecarSharedProcessesAndTheTokenOfThePod) {
  Json object =
      pod("team", "while ! test -e /vol/side; do sleep 0.05; done; cat /token/t > /vol/seen; pidof sidecar-sleep > /vol/pids; exit 0", "Never");
  Json& spec = object.child("spec");
  spec.set("shareProcessNamespace", true);
  spec.set("volumes", *kube::parse_json(
                          R"([{"name": "v", "emptyDir": {}}, {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}])"));
  main_container(object).set("volumeMounts", *kube::parse_json(R"([{"name": "v", "mountPath": "/vol"}, {"name": "t", "mountPath": "/token"}])"));
  main_container(object).set("terminationMessagePath", "/vol/seen");
  spec.set(
      "initContainers",
      Json::array({Json::object({{"name", "side"},
                                 {"image", busybox()},
                                 {"restartPolicy", "Always"},
                                 {"command", Json::array({"/bin/sh", "-c", "touch /vol/side; trap 'exit 0' TERM; while true; do sleep 0.1; done"})},
                                 {"volumeMounts", *kube::parse_json(R"([{"name": "v", "mountPath": "/vol"}])")}})}));
  create(object);
  ASSERT_TRUE(wait_phase("team", "Succeeded"));
  const Json seen = status("team");
  EXPECT_TRUE(seen["initContainerStatuses"].items().at(0)["state"]["terminated"].is_object()) << kube::print_json(seen);
  ASSERT_TRUE(api_.remove(kube::resources::pods, {"default", "team"}, {.grace_seconds = 5}));
  ASSERT_TRUE(wait_gone("team"));
  // Nothing holds the processes' namespace any more.
  auto names = list_dir("/proc");
  ASSERT_TRUE(names);
  for (const std::string& name : *names) {
    // One that waits to be reaped has no command line; others' are in other groups.
    const bool holds = trim(read_file("/proc/" + name + "/comm", 4_KiB).value_or("")) == "fairlead-pause" &&
                       !read_file("/proc/" + name + "/cmdline", 64_KiB).value_or("").empty();
    EXPECT_FALSE(holds && read_file("/proc/" + name + "/cgroup", 64_KiB).value_or("").find(cgroup()) != std::string::npos) << name;
  }
}

}  // namespace
}  // namespace fairlead::agent
