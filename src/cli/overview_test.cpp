// SPDX-License-Identifier: Apache-2.0
// The picture from a snapshot: pure, so it is compared as a whole.
#include "cli/overview.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

namespace fairlead::cli {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Instant kNow = *parse_time("2026-03-01T12:00:00Z");

std::vector<Json> yaml(std::string_view text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? *parsed : std::vector<Json>{};
}

std::string node(const std::string& name, const std::string& ready, const std::string& gpus = "") {
  return "metadata: {name: " + name + "}\nstatus: {allocatable: {cpu: 2, memory: 4Gi" + (gpus.empty() ? "" : ", nvidia.com/gpu: " + gpus) + "}, addresses: [{type: InternalIP, address: 10.77.1.1}], conditions: [{type: Ready, status: '" +
         ready + "', message: agent silent}]}\n---\n";
}
std::string pod(const std::string& name, const std::string& role, const std::string& on, bool ready, const std::string& cpu = "1") {
  return "metadata: {name: " + name + ", namespace: demo, creationTimestamp: '2026-03-01T11:50:00Z', labels: {fairlead.dev/slurm-cluster: demo, fairlead.dev/slurm-role: " + role + "}}\nspec: {nodeName: " + on +
         ", containers: [{name: main, resources: {requests: {cpu: " + cpu + ", memory: 1Gi}}}], volumes: [{persistentVolumeClaim: {claimName: jail-pvc}}]}\nstatus: {phase: Running, podIP: 10.78.1.2, conditions: [{type: Ready, status: '" + (ready ? "True" : "False") +
         "'}], containerStatuses: [{name: main, ready: " + (ready ? "true" : "false") + ", restartCount: 0, state: {running: {}}}]}\n---\n";
}

SiteSnapshot healthy() {
  SiteSnapshot snapshot{.now = kNow, .state_dir = "/var/lib/fairlead", .server_version = "0.1.0"};
  snapshot.nodes = yaml(node("head-0", "True") + node("worker-0", "True", "1"));
  snapshot.machines = yaml("metadata: {name: head-0}\nspec: {local: {}}\n---\nmetadata: {name: worker-0}\nspec: {local: {}}\n");
  snapshot.pods = yaml(pod("controller-0", "controller", "head-0", true) + pod("worker-0", "worker", "worker-0", true, "2") + pod("login-0", "login", "head-0", true, "500m"));
  snapshot.slurm_clusters = yaml("metadata: {name: demo, namespace: demo}\nspec: {slurmNodes: {worker: {size: 1}, login: {size: 1}}}\nstatus: {phase: Available}\n");
  snapshot.claims = yaml("metadata: {name: jail-pvc, namespace: demo}\nspec: {resources: {requests: {storage: 10Gi}}}\nstatus: {phase: Bound, capacity: {storage: 10Gi}}\n");
  snapshot.slurm = {{.cluster = "demo", .space = "demo", .asked = true, .error = "", .squeue = "3|train-gpt|ada|RUNNING|0:31|1|worker-0\n2|old|ada|COMPLETED|1:00|1|worker-0\n", .sinfo = "worker-0|allocated|none\n",
                     .ping = "Slurmctld(primary) at controller-0 is UP\n"}};
  snapshot.images = {{.name = "slurm:22.05", .digest = "abc", .size_bytes = 1'300'000'000, .created = *parse_time("2026-03-01T09:00:00Z")}};
  snapshot.disk_free_bytes = 50'000'000'000;
  snapshot.disk_size_bytes = 100'000'000'000;
  return snapshot;
}

TEST(StatusPicture, AnExporterIsCountedWhereOneIsAskedFor) {
  SiteSnapshot snapshot = healthy();
  snapshot.slurm_clusters[0].child("spec").child("slurmNodes").set("exporter", Json::object({{"enabled", true}}));
  EXPECT_THAT(draw(overview_of(snapshot), {.width = 120, .color = false, .unicode = true}), HasSubstr("login 1/1   metrics 0/1"));
  auto more = yaml(pod("exporter-0", "exporter", "head-0", true));
  snapshot.pods.insert(snapshot.pods.end(), more.begin(), more.end());
  EXPECT_THAT(draw(overview_of(snapshot), {.width = 120, .color = false, .unicode = true}), HasSubstr("login 1/1   metrics 1/1   all is well"));
}

TEST(StatusPicture, AHealthySite) {
  EXPECT_EQ(draw(overview_of(healthy()), {.width = 96, .color = false, .unicode = true}),
            " ● demo   Available   workers 1/1   login 1/1   all is well                      fairlead 0.1.0\n"
            "\n Head\n"
            "   ●  controller-0  slurmctld answers  on head-0  10.78.1.2  10m\n"
            "\n Nodes (2)\n"
            "      NAME      STATE  CPU             MEMORY (GiB)  GPU  PODS  SLURM      ADDRESS\n"
            "   ●  head-0    Ready  ██████░░ 1.5/2  ████░░░░ 2/4  –       2  –          10.77.1.1\n"
            "   ●  worker-0  Ready  ████████ 2/2    ██░░░░░░ 1/4  0/1     1  allocated  10.77.1.1\n"
            "\n Jobs (2)\n"
            "      ID  NAME       USER  STATE      TIME  NODES  WHERE OR WHY\n"
            "   ●   3  train-gpt  ada   RUNNING    0:31      1  worker-0\n"
            "   ●   2  old        ada   COMPLETED  1:00      1  worker-0\n"
            "\n Pods (3)\n"
            "      NAME               READY  STATE    NODE      RESTARTS  AGE\n"
            "   ●  demo/controller-0  1/1    Running  head-0           0  10m\n"
            "   ●  demo/login-0       1/1    Running  head-0           0  10m\n"
            "   ●  demo/worker-0      1/1    Running  worker-0         0  10m\n"
            "\n Storage\n"
            "   ●  demo/jail-pvc  Bound    10Gi  used by controller-0, login-0, worker-0\n"
            "   ●  slurm:22.05    image  1.3 GB  built 3h ago\n"
            "   50 GB of 100 GB free below /var/lib/fairlead\n");
}

TEST(StatusPicture, ProblemsComeFirstWithWhatToDo) {
  SiteSnapshot snapshot = healthy();
  snapshot.machines = yaml("metadata: {name: head-0}\nspec: {local: {}}\n---\nmetadata: {name: worker-0}\nspec: {local: {}, link: Cut}\n");
  snapshot.nodes = yaml(node("head-0", "True") + node("worker-0", "Unknown", "1"));
  snapshot.slurm[0].sinfo = "worker-0|down*|Not responding\n";
  const std::string picture = draw(overview_of(snapshot), {.width = 96, .color = false, .unicode = true});
  EXPECT_THAT(picture, HasSubstr(" ✗ demo   Available   workers 0/1   login 1/1   2 problems"));
  EXPECT_THAT(picture, HasSubstr("\n Problems (2)\n"
                                 "   ✗ worker-0  its network link is cut\n"
                                 "               → fairlead node heal worker-0\n"
                                 "   ✗ worker-0  Slurm has it as down*: Not responding\n"));
  EXPECT_LT(picture.find("Problems"), picture.find("Nodes"));
  EXPECT_THAT(picture, HasSubstr("demo/worker-0      1/1    Unknown  worker-0"));  // what was told before the cut counts no more
}

TEST(StatusPicture, FitsANarrowPlainTerminal) {
  const std::string picture = draw(overview_of(healthy()), {.width = 60, .color = false, .unicode = false});
  std::size_t at = 0;
  while (at < picture.size()) {
    const auto end = picture.find('\n', at);
    EXPECT_LE(columns_of(picture.substr(at, end - at)), 60) << picture.substr(at, end - at);
    at = end + 1;
  }
  for (const char byte : picture) EXPECT_LT(static_cast<unsigned char>(byte), 0x80);
}

TEST(StatusPicture, ColoursOnlyWhereAsked) {
  EXPECT_THAT(draw(overview_of(healthy()), {.width = 96, .color = false}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(draw(overview_of(healthy()), {.width = 96, .color = true}), HasSubstr("\x1b[32m●"));
}

TEST(StatusPicture, AnEmptySiteSaysHowToGoOn) { EXPECT_THAT(draw(overview_of({.now = kNow, .state_dir = "/x", .server_version = "1"}), {}), HasSubstr("examples/demo.yaml")); }

struct Case {
  const char* name;
  std::function<void(SiteSnapshot&)> change;
  const char* subject;
  const char* what;
};
class StatusProblem : public testing::TestWithParam<Case> {};
TEST_P(StatusProblem, IsTold) {
  SiteSnapshot snapshot = healthy();
  GetParam().change(snapshot);
  const auto problems = overview_of(snapshot).problems;
  ASSERT_THAT(problems, Not(IsEmpty()));
  EXPECT_EQ(problems.front().subject, GetParam().subject);
  EXPECT_THAT(problems.front().what, HasSubstr(GetParam().what));
}
INSTANTIATE_TEST_SUITE_P(
    Cli, StatusProblem,
    testing::Values(Case{"power_off", [](auto& s) { s.machines = yaml("metadata: {name: worker-0}\nspec: {local: {}, power: 'Off'}\n"); }, "worker-0", "power is off"},
                    Case{"silent_node", [](auto& s) { s.nodes = yaml(node("worker-0", "Unknown")); s.machines.clear(); }, "worker-0", "agent silent"},
                    Case{"refused_machine", [](auto& s) { s.machines.push_back(yaml("metadata: {name: x-0}\nspec: {local: {cpu: two}}\nstatus: {phase: Refused, conditions: [{type: Ready, message: bad cpu}]}\n")[0]); }, "x-0", "bad cpu"},
                    Case{"unschedulable", [](auto& s) { s.pods.push_back(yaml("metadata: {name: p, namespace: ns}\nstatus: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: 0/2 nodes have 8 cpu}]}\n")[0]); }, "ns/p", "0/2 nodes have 8 cpu"},
                    Case{"crash_loop", [](auto& s) { s.pods.push_back(yaml("metadata: {name: p, namespace: ns}\nstatus: {phase: Running, containerStatuses: [{name: c, ready: false, restartCount: 7, state: {waiting: {reason: CrashLoopBackOff, message: back-off 40s}}}]}\n")[0]); }, "ns/p", "back-off 40s"},
                    Case{"controls_in_messages", [](auto& s) { s.pods.push_back(yaml("metadata: {name: p, namespace: ns}\nstatus: {phase: Failed, message: \"a\\x1b[2Jb\"}\n")[0]); }, "ns/p", "a [2Jb"},
                    Case{"slurm_silent", [](auto& s) { s.slurm[0].error = "connection refused"; }, "demo", "Slurm does not answer: connection refused"},
                    Case{"claim_pending", [](auto& s) { s.claims = yaml("metadata: {name: c, namespace: ns}\nstatus: {phase: Pending}\n"); }, "ns/c", "Pending"},
                    Case{"worker_not_ready_yet", [](auto& s) { s.pods[1] = yaml("metadata: {name: worker-0, namespace: demo, creationTimestamp: '2026-03-01T11:59:50Z', labels: {fairlead.dev/slurm-cluster: demo, fairlead.dev/slurm-role: worker}}\nspec: {nodeName: worker-0, containers: [{name: c}]}\nstatus: {phase: Running, containerStatuses: [{name: c, ready: false, state: {running: {}}}]}\n")[0]; }, "demo", "0 of 1 workers ready"},
                    Case{"worker_not_made_yet", [](auto& s) { s.slurm_clusters = yaml("metadata: {name: demo, namespace: demo}\nspec: {slurmNodes: {worker: {size: 2}, login: {size: 1}}}\nstatus: {phase: Available}\n"); }, "demo", "1 of 2 workers ready"},
                    Case{"disk", [](auto& s) { s.disk_free_bytes = 1'000'000'000; }, "disk", "1.0 GB free"}),
    [](const auto& row) { return row.param.name; });

struct Word {
  const char* name;
  const char* status;
  const char* want;
  Health health;
};
class StatusWord : public testing::TestWithParam<Word> {};
TEST_P(StatusWord, IsThatOfGet) {
  const auto overview = overview_of({.now = kNow, .pods = yaml(fmt::format("metadata: {{name: p, namespace: ns}}\nspec: {{containers: [{{name: c}}]}}\nstatus: {}\n", GetParam().status))});
  ASSERT_EQ(overview.pods.size(), 1u);
  EXPECT_EQ(overview.pods[0].state, GetParam().want);
  EXPECT_EQ(overview.pods[0].health, GetParam().health);
}
INSTANTIATE_TEST_SUITE_P(Cli, StatusWord,
                         testing::Values(Word{"completed", "{phase: Succeeded, containerStatuses: [{name: c, state: {terminated: {exitCode: 0, reason: Completed}}}]}", "Completed", Health::Off},
                                         Word{"killed_with_status_0", "{phase: Succeeded, containerStatuses: [{name: c, state: {terminated: {exitCode: 0, reason: OOMKilled}}}]}", "OOMKilled", Health::Off},
                                         Word{"failed", "{phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 3}}}]}", "ExitCode:3", Health::Bad},
                                         Word{"nobody_takes_it", "{phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}", "Pending", Health::Bad},
                                         Word{"starts", "{phase: Running, containerStatuses: [{name: c, ready: false, state: {running: {}}}]}", "Running", Health::Waiting}),
                         [](const auto& row) { return row.param.name; });

TEST(StatusJson, HasTheSameFacts) {
  const Json json = to_json(overview_of(healthy()));
  EXPECT_EQ(json["nodes"].items().size(), 2u);
  EXPECT_EQ(json["nodes"].items()[1]["gpus"].number(), 1);
  EXPECT_EQ(json["jobs"].items()[0]["state"].string(), "RUNNING");
  EXPECT_TRUE(json["problems"].items().empty());
  EXPECT_TRUE(kube::parse_json(kube::print_json(json)));
}

}  // namespace
}  // namespace fairlead::cli
