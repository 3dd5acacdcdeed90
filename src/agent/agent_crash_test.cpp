// SPDX-License-Identifier: Apache-2.0
// An agent that dies after any step of a pod's start or removal: the next one converges and leaves nothing behind.
#include <gmock/gmock.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>

#include "agent/agent.h"
#include "agent/node_init.h"
#include "base/encoding.h"
#include "kube/object.h"
#include "node/memory_api.h"
#include "node/netlink.h"
#include "node/node_fixture.h"

namespace fairlead::agent {
namespace {
using kube::Json;
using namespace std::chrono_literals;

class AgentCrash : public node::NodeTest {
 protected:
  node::NodeConfig config() const {
    return {.node_name = "n1",
            .node_ip = "127.0.0.1",
            .pod_cidr = "10.99.7.0/24",
            .listen_port = 10250,
            .api_server = {},
            .ca_file = {},
            .cert_file = {},
            .key_file = {},
            .node_dir = root_ + "/node",
            .run_dir = root_ + "/run",
            .images_dir = node::images_dir(),
            .volumes_dir = root_ + "/volumes",
            .cgroup_parent = cgroup(),
            .bridge = "flt0",
            .masquerade = false,
            .labels = {},
            .annotations = {},
            .taints = Json(),
            .capacity = {{"cpu", "2"}, {"memory", "1Gi"}},
            .cluster_domain = "cluster.local"};
  }
  static Json pod() {
    return *kube::parse_json(R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "uid-steps"},
      "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 1, "volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}],
      "initContainers": [{"name": "init", "image": "busybox:1", "command": ["sh", "-c", "echo x >> /m/ran"], "volumeMounts": [{"name": "m", "mountPath": "/m"}]}],
      "containers": [{"name": "main", "image": "busybox:1", "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.05; done"], "volumeMounts": [{"name": "m", "mountPath": "/m"}]}]}})");
  }
  // In a child process: an agent that is killed at its `count`-th step. True: it was; false: the pod came up and went first.
  bool run_until_step(int count, std::string& at) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      node::MemoryApi api;
      std::atomic<int> steps{0};
      (void)api.create(kube::resources::pods, pod());
      auto agent = Agent::start(api, clock_, {.config = config(), .answer_names = false, .serve = false, .answer_credentials = false, .at_step = [&](std::string_view step) {
                                                if (++steps != count) return;
                                                (void)!::write(ends[1], step.data(), step.size());
                                                ::kill(::getpid(), SIGKILL);
                                              }});
      if (!agent) ::_exit(3);
      const kube::ObjectKey key{"default", "p"};
      if (!api.wait_until([&](const auto& objects) { return kube::condition_is_true(objects.at({"pods", key}), "Ready"); })) ::_exit(4);
      (void)api.remove(kube::resources::pods, key, {});
      if (!api.wait_until([&](const auto& objects) { return !objects.contains({"pods", key}); })) ::_exit(5);
      ::_exit(0);
    }
    ::close(ends[1]);
    char text[64] = {};
    (void)!::read(ends[0], text, sizeof text - 1);
    ::close(ends[0]);
    at = text;
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
    EXPECT_EQ(status, 0);
    return false;
  }
  void expect_nothing_left(const std::string& when) {
    for (const char* folder : {"/node/pods", "/run/pods", "/run/containers", "/run/crun", "/run/exits"})
      EXPECT_THAT(*list_dir(root_ + folder), testing::IsEmpty()) << when << folder;
    EXPECT_FALSE(exists("/sys/fs/cgroup/memory" + cgroup() + "/poduid-steps")) << when;
    const auto addresses = list_dir(root_ + "/run/cni/pods");
    EXPECT_THAT(addresses ? *addresses : std::vector<std::string>(), testing::Each(testing::Not(testing::StartsWith("10.")))) << when;
    const std::string mounts = *read_file("/proc/self/mountinfo");
    int below = 0;
    for (const std::string& line : split(mounts, '\n')) below += line.find(" " + root_ + "/") != std::string::npos;
    EXPECT_EQ(below, 1) << when << mounts;  // the test's own /run
    std::vector<std::string> links;
    struct if_nameindex* all = ::if_nameindex();
    for (auto* one = all; one->if_index != 0; ++one)
      if (std::string(one->if_name).starts_with("veth")) links.push_back(one->if_name);
    ::if_freenameindex(all);
    EXPECT_THAT(links, testing::IsEmpty()) << when;
    const auto processes = list_dir("/proc");  // named: the loop would not keep it
    for (const std::string& name : *processes) {
      if (name[0] < '0' || name[0] > '9') continue;
      auto command = read_file("/proc/" + name + "/cmdline");
      EXPECT_TRUE(!command || command->find(root_ + "/run") == std::string::npos) << when << *command;
    }
  }
};

TEST_F(AgentCrash, AtEveryStepTheNextAgentConverges) {
  int count = 1;
  for (std::string at; run_until_step(count, at); ++count) {
    ASSERT_LT(count, 200);
    const std::string when = "killed at step " + std::to_string(count) + " (" + at + "): ";
    node::MemoryApi api;
    ASSERT_TRUE(api.create(kube::resources::pods, pod()));
    auto agent = Agent::start(api, clock_, {.config = config(), .answer_names = false, .serve = false, .answer_credentials = false, .at_step = {}});
    ASSERT_TRUE(agent) << agent.error().message;
    const kube::ObjectKey key{"default", "p"};
    ASSERT_TRUE(api.wait_until([&](const auto& objects) { return kube::condition_is_true(objects.at({"pods", key}), "Ready"); }))
        << when << kube::print_json_indented((*api.get(kube::resources::pods, key))["status"]);
    ASSERT_TRUE(api.remove(kube::resources::pods, key, {}));
    ASSERT_TRUE(api.wait_until([&](const auto& objects) { return !objects.contains({"pods", key}); })) << when;
    agent->reset();
    expect_nothing_left(when);
  }
  EXPECT_GT(count, 25) << "a start, an end and a removal have more steps";
}

// The same, with a pod that is gone from the API when the next agent looks.
TEST_F(AgentCrash, APodThatIsGoneIsRemovedWhateverWasLeftOfIt) {
  int count = 1;
  for (std::string at; run_until_step(count, at); count += 2) {
    ASSERT_LT(count, 200);
    node::MemoryApi api;
    auto agent = Agent::start(api, clock_, {.config = config(), .answer_names = false, .serve = false, .answer_credentials = false, .at_step = {}});
    ASSERT_TRUE(agent) << agent.error().message;
    for (int i = 0; i < 1000 && !list_dir(root_ + "/node/pods")->empty(); ++i) ::poll(nullptr, 0, 10);
    agent->reset();
    expect_nothing_left("killed at step " + std::to_string(count) + " (" + at + "): ");
  }
}

class NodeInit : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::geteuid(), 0U) << "namespaces need root";
    char name[] = "/tmp/fl-init.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    // Stands in for the agent: tells where it is and dies when told to.
    ASSERT_TRUE(write_file_atomically(
        root_ + "/program",
        "#!/bin/sh\necho \"$$ $* $(hostname) $(cat /proc/sys/net/ipv4/ip_forward) $(ls /proc | grep -c '^[0-9]')\" >> " + root_ +
            "/started\nsleep 600 &\nwhile true; do test -e " + root_ + "/die && rm " + root_ + "/die && exit 1; sleep 0.02; done\n",
        0755));
  }
  void TearDown() override {
    if (identity_.pid > 0)
      if (auto process = open_process(identity_)) ::kill(identity_.pid, SIGKILL);
    auto cgroups = node::CgroupTree::open();
    ASSERT_TRUE(cgroups);
    for (int i = 0; i < 200 && !cgroups->remove(parent()); ++i) ::poll(nullptr, 0, 10);
    EXPECT_TRUE(remove_tree(root_));
  }
  std::string parent() const { return "/fltest-init-" + std::to_string(::getpid()); }
  bool wait_for(const std::function<bool()>& holds) {
    for (int i = 0; i < 1000 && !holds(); ++i) ::poll(nullptr, 0, 10);
    return holds();
  }
  std::size_t starts() {
    auto text = read_file(root_ + "/started");
    return text ? static_cast<std::size_t>(std::count(text->begin(), text->end(), '\n')) : 0;
  }
  std::string root_;
  ProcessIdentity identity_;
};

TEST_F(NodeInit, MakesANodeThatKeepsItsAgentRunningAndEndsWhole) {
  const node::NodeConfig config{.node_name = "w0",
                                .node_ip = "127.0.0.1",
                                .pod_cidr = "10.98.2.0/24",
                                .api_server = {},
                                .ca_file = {},
                                .cert_file = {},
                                .key_file = {},
                                .node_dir = root_,
                                .run_dir = {},
                                .images_dir = root_,
                                .volumes_dir = root_,
                                .cgroup_parent = parent(),
                                .fabric_interface = "lo",
                                .labels = {},
                                .annotations = {},
                                .taints = Json(),
                                .capacity = {}};
  const pid_t outer = ::fork();  // it changes the namespaces of whoever calls it
  if (outer == 0) ::_exit(start_node(config, root_ + "/program", "/c.json") ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(outer, &status, 0), outer);
  ASSERT_EQ(status, 0);
  const Json record = *kube::parse_json(*read_file(root_ + "/init.json"));
  identity_ = *identify(static_cast<pid_t>(record["pid"].integer()));
  EXPECT_EQ(static_cast<std::int64_t>(identity_.start_ticks), record["start_ticks"].integer());
  ASSERT_TRUE(wait_for([&] { return starts() == 1; }));
  EXPECT_THAT(*read_file(root_ + "/started"), testing::HasSubstr("run --config /c.json --run-dir /run/fairlead w0 1 "));
  EXPECT_EQ(trim(*read_file("/proc/sys/kernel/hostname")), trim(*read_file("/etc/hostname")));  // ours is what it was
  EXPECT_TRUE(exists("/sys/fs/cgroup/memory" + parent() + "/agent"));
  // The agent dies: another one follows, and the orphan it left stays in the node.
  ASSERT_TRUE(write_file_atomically(root_ + "/die", "", 0644));
  ASSERT_TRUE(wait_for([&] { return starts() == 2; }));
  auto process = open_process(identity_);
  ASSERT_TRUE(process);
  ASSERT_EQ(::kill(identity_.pid, SIGTERM), 0);
  pollfd ended{.fd = process->get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, 15'000), 1);
  EXPECT_TRUE(wait_for([&] { return read_file("/sys/fs/cgroup/memory" + parent() + "/agent/cgroup.procs")->empty(); }));
}

TEST_F(NodeInit, AFailureLeavesNothing) {
  const node::NodeConfig config{.node_name = std::string(100, 'x'),
                                .node_ip = "127.0.0.1",
                                .pod_cidr = "10.98.2.0/24",
                                .api_server = {},
                                .ca_file = {},
                                .cert_file = {},
                                .key_file = {},
                                .node_dir = root_,
                                .run_dir = {},
                                .images_dir = root_,
                                .volumes_dir = root_,
                                .cgroup_parent = parent(),
                                .labels = {},
                                .annotations = {},
                                .taints = Json(),
                                .capacity = {}};
  const pid_t outer = ::fork();
  if (outer == 0) {
    const auto done = start_node(config, root_ + "/program", "/c.json");
    ::_exit(!done && done.error().message.find("host name") != std::string::npos ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(outer, &status, 0), outer);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(exists(root_ + "/init.json"));
}

}  // namespace
}  // namespace fairlead::agent
