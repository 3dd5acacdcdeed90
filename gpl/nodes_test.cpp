// SPDX-License-Identifier: GPL-3.0-or-later
#include "nodes.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// As Slurm 22.05.8 prints it.
std::string node(const std::string& state, int given = 0, const std::string& tail = "", const std::string& name = "worker-0") {
  return "NodeName=" + name + " Arch=x86_64 CoresPerSocket=1  CPUAlloc=" + std::to_string(given) +
         " CPUEfctv=4 CPUTot=4 CPULoad=1.33 AvailableFeatures=worker ActiveFeatures=worker Gres=(null) NodeAddr=10.99.0.1 NodeHostName=head Version=22.05.8 OS=Linux 6.18.44 #1 SMP @0  "
         "RealMemory=24105 AllocMem=0 FreeMem=17226 Sockets=4 Boards=1 State=" +
         state +
         " ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=main  BootTime=2026-11-21T06:06:49 SlurmdStartTime=2026-11-21T20:12:57 CfgTRES=cpu=4 AllocTRES= CapWatts=n/a "
         "ExtSensorsTemp=n/s" +
         tail + "\n";
}
const std::string kOurs = " Reason=fairlead: scale-down of ab generation 3 [root@2026-11-21T20:13:01]";

TEST(Nodes, AreReadAsSlurmPrintsThem) {
  auto read = read_nodes(node("MIXED+DRAIN+DYNAMIC_NORM", 3, kOurs) + node("IDLE*+DYNAMIC_NORM", 0, "", "worker-1") + node("IDLE+DYNAMIC_NORM+NOT_RESPONDING", 0, "", "worker-2"));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 3u);
  const auto& first = read->at(0);
  EXPECT_EQ(first.name, "worker-0");
  EXPECT_THAT(first.state, ElementsAre("MIXED", "DRAIN", "DYNAMIC_NORM"));
  EXPECT_EQ(first.cpus_given, 3);
  EXPECT_EQ(first.address, "10.99.0.1");
  EXPECT_EQ(first.reason, "fairlead: scale-down of ab generation 3");
  EXPECT_EQ(first.by, "root");
  EXPECT_EQ(first.since, "2026-11-21T20:13:01Z");
  EXPECT_EQ(first.started, "2026-11-21T20:12:57Z");
  auto down = node("DOWN+DYNAMIC_NORM");
  down.replace(down.find("2026-11-21T20:12:57"), 19, "None");
  auto unknown = read_nodes(down);
  ASSERT_TRUE(unknown) << unknown.error().message;
  EXPECT_EQ(unknown->at(0).started, "");
  for (const std::size_t i : {1u, 2u}) EXPECT_TRUE(read->at(i).has("NOT_RESPONDING")) << i;
  EXPECT_TRUE(read_nodes("No nodes in the system\n")->empty());
  EXPECT_TRUE(read_nodes("")->empty());
}

struct Reason {
  const char* tail;
  const char* reason;
  bool ours;
};
class Reasons : public testing::TestWithParam<Reason> {};
TEST_P(Reasons, AreWhatWasGivenAndBelongToWhoGaveThem) {
  auto read = read_nodes(node("IDLE+DRAIN", 0, GetParam().tail));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->at(0).reason, GetParam().reason);
  EXPECT_EQ(reason_is_ours(read->at(0).reason), GetParam().ours);
  EXPECT_THAT(read->at(0).state, ElementsAre("IDLE", "DRAIN"));
}
INSTANTIATE_TEST_SUITE_P(Rows, Reasons,
                         testing::Values(Reason{"", "", false}, Reason{" Reason=fairlead: scale-down [root@2026-11-21T20:13:01]", "fairlead: scale-down", true},
                                         Reason{" Reason=by me State=IDLE [root@2026-11-21T20:14:30]        second line Comment=hm Reason=x Extra=Reason=y", "by me State=IDLE", false},
                                         Reason{" Reason=see [1] for fairlead: scale-down [ada@2026-11-21T20:14:30]", "see [1] for fairlead: scale-down", false},
                                         Reason{" Reason=disk Comment=x Reason=fairlead: scale-down [root@2026-11-21T20:13:01]", "disk Comment=x Reason=fairlead: scale-down", false},
                                         Reason{" Reason=fairlead: the worker restarted and its processes are gone [root@2026-11-21T20:13:01]", "fairlead: the worker restarted and its processes are gone", false},
                                         Reason{" Reason=cut off [root@2026", "cut off [root@2026", false}));

// Nobody's reason is lost: not to a drain, and not to a restart of the worker.
struct Kept {
  const char* state;
  const char* reason;
  bool by_drain, by_restart;  // is the reason kept?
};
class Keeps : public testing::TestWithParam<Kept> {};
TEST_P(Keeps, ReasonsOfOthers) {
  const auto& [state, reason, by_drain, by_restart] = GetParam();
  const std::string tail = *reason ? " Reason=" + std::string(reason) + " [ada@2026-11-21T20:13:01]" : "";
  const auto record = read_nodes(node(state, 0, tail))->at(0);
  EXPECT_EQ(reason_of_drain(record, "ours"), by_drain ? reason : "ours");
  EXPECT_EQ(reason_of_death(record, "restarted"), by_restart ? reason : "fairlead: the worker restarted");
}
INSTANTIATE_TEST_SUITE_P(Rows, Keeps,
                         testing::Values(Kept{"IDLE", "", false, false}, Kept{"MIXED", "seen to be slow", false, false}, Kept{"DOWN", "disk broken", true, true}, Kept{"DOWN*", "Not responding", false, false},
                                         Kept{"DOWN", "", false, false}, Kept{"DOWN", "fairlead: the worker restarted and its processes are gone", false, false}, Kept{"DOWN", "fairlead: scale-down of ab generation 2", false, false},
                                         Kept{"MIXED+DRAIN", "disk broken", false, true}, Kept{"MIXED+DRAIN", "fairlead: scale-down of ab generation 3", false, true}, Kept{"ALLOCATED+DRAIN", "", false, false},
                                         Kept{"ALLOCATED+FAIL", "fan", false, true}, Kept{"DOWN+DRAIN", "disk broken", true, true}));

TEST(Nodes, EmptyMeansNothingRunsAndNothingIsGivenOut) {
  const auto one = [](const std::string& state, int given) { return read_nodes(node(state, given))->at(0); };
  EXPECT_TRUE(is_empty(one("IDLE+DRAIN", 0), {}));
  EXPECT_TRUE(is_empty(one("DOWN*+DRAIN", 0), {}));
  for (const char* state : {"ALLOCATED+DRAIN", "MIXED+DRAIN", "IDLE+COMPLETING+DRAIN", "UNKNOWN+DRAIN", "ERROR", "FUTURE"}) EXPECT_FALSE(is_empty(one(state, 0), {})) << state;
  EXPECT_FALSE(is_empty(one("IDLE+DRAIN", 1), {}));
  // A suspended or completing job holds no CPU and is there all the same.
  EXPECT_FALSE(is_empty(one("IDLE+DRAIN", 0), *read_jobs("3_3|COMPLETING|worker-[0,7]||2026-11-21T20:24:30|root\n")));
  EXPECT_TRUE(is_empty(one("IDLE+DRAIN", 0), *read_jobs("3|RUNNING|worker-[1-7]||NONE|root\n")));
}

TEST(Jobs, AreReadAsSqueuePrintsThem) {
  auto read = read_jobs(
      "2|CONFIGURING|worker-[0,7]|worker-[0,7]|2026-11-21T20:24:28|root\n"
      "4|PENDING||worker-0|N/A|ada\n"
      "3_1|RUNNING|worker-0||NONE|root\n"
      "2_[4-10]|PENDING|||N/A|u|x\n");
  EXPECT_FALSE(read) << "a column too many";
  read = read_jobs(
      "2|CONFIGURING|worker-[0,7]|worker-[0,7]|2026-11-21T20:24:28|root\n"
      "4|PENDING||worker-0|N/A|ada\n"
      "3_1|RUNNING|worker-0||NONE|root\n"
      "2_[4-10%2]|PENDING|(null)||N/A|root\n");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 4u);
  EXPECT_THAT(read->at(0).nodes, ElementsAre("worker-0", "worker-7"));
  EXPECT_EQ(read->at(0).end, "2026-11-21T20:24:28Z");
  EXPECT_THAT(read->at(1).nodes, IsEmpty());
  EXPECT_THAT(read->at(1).requested, ElementsAre("worker-0"));
  EXPECT_EQ(read->at(1).user, "ada");
  EXPECT_EQ(read->at(2).id, "3_1");
  EXPECT_EQ(read->at(2).end, "");
  EXPECT_THAT(read->at(3).nodes, IsEmpty());
}

TEST(Queue, IsReadAsSqueuePrintsIt) {
  const auto room = [](std::string id, std::string tres, std::string node = "N/A", std::string job = "N/A", std::string task = "N/A", std::string tasks = "1") {
    id.resize(128, ' '), tres.resize(160, ' '), node.resize(80, ' '), job.resize(80, ' '), task.resize(80, ' ');
    return id + tres + node + job + task + tasks + "\n";
  };
  const std::string jobs =
      "7_[0-3%2]|1|2|ada|main,gpu|worker-0|worker-[2-3]|(null)|OK|ReqNodeNotAvail, UnavailableNodes:worker-[0-2]|a|b\n"
      "8|2|4|ada|main||(null)|night|NO|Resources|(null)\n"
      "9|1|1|ada|main|||(null)|OK|None|(null)\n";
  auto read = read_queue(jobs, room("7_[0-3%2]", "cpu=2,mem=1.50G,node=1,billing=2", "gres:gpu:a100:2") + room("8", "cpu=4,mem=512M,node=2", "N/A", "gres:gpu:3"));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2u) << "a job of which not all is known is left out";
  const QueuedJob& array = read->at(0);
  EXPECT_EQ(array.room.cpus, 2);
  EXPECT_EQ(array.room.memory, 1536);
  EXPECT_EQ(array.room.gpus, 2);
  EXPECT_EQ(array.features, "a|b");
  EXPECT_EQ(array.reason, "ReqNodeNotAvail, UnavailableNodes:worker-[0-2]");
  EXPECT_THAT(array.partitions, ElementsAre("main", "gpu"));
  EXPECT_THAT(array.requested, ElementsAre("worker-0"));
  EXPECT_THAT(array.excluded, ElementsAre("worker-2", "worker-3"));
  EXPECT_FALSE(array.exclusive);
  EXPECT_TRUE(read->at(1).exclusive);
  EXPECT_EQ(read->at(1).reservation, "night");
  EXPECT_EQ(read->at(1).room.gpus, 3);
  EXPECT_EQ(read->at(1).features, "");
  EXPECT_FALSE(read_queue("8|2|4|ada|main\n", ""));
  EXPECT_FALSE(read_queue("8|x|4|ada|main|||(null)|OK|None|(null)\n", ""));
  EXPECT_FALSE(read_queue("8|2|4|ada|main|||(null)|OK|None|(null)", "")) << "cut off";
  EXPECT_FALSE(read_queue("", room("8", "mem=many")));
}

TEST(Queue, NodesTellTheirRoom) {
  auto nodes = read_nodes("NodeName=worker-0 Arch=x86_64 CPUAlloc=2 CPUTot=8 CPULoad=0.5 AvailableFeatures=worker ActiveFeatures=worker,a100 Gres=gpu:a100:4(S:0-1),nic:1 GresUsed=gpu:a100:1(IDX:0,2),nic:0 NodeAddr=10.0.0.1 "
                          "RealMemory=2048 AllocMem=512 State=MIXED+DYNAMIC_NORM Partitions=main,night CfgTRES=cpu=8,mem=2G AllocTRES=cpu=2,mem=512M\n");
  ASSERT_TRUE(nodes) << nodes.error().message;
  const NodeRecord& node = nodes->at(0);
  EXPECT_EQ(node.total.cpus, 8);
  EXPECT_EQ(node.total.memory, 2048);
  EXPECT_EQ(node.total.gpus, 4);
  EXPECT_EQ(node.given.cpus, 2);
  EXPECT_EQ(node.given.memory, 512);
  EXPECT_EQ(node.given.gpus, 1);
  EXPECT_THAT(node.partitions, ElementsAre("main", "night"));
  EXPECT_THAT(node.features, ElementsAre("worker", "a100"));
}

TEST(Hosts, AreExpanded) {
  EXPECT_THAT(*expand_hosts("worker-0"), ElementsAre("worker-0"));
  EXPECT_THAT(*expand_hosts("worker-[0-2,5],login-0"), ElementsAre("worker-0", "worker-1", "worker-2", "worker-5", "login-0"));
  EXPECT_THAT(*expand_hosts("n[08-10]"), ElementsAre("n08", "n09", "n10"));
  EXPECT_THAT(*expand_hosts(""), IsEmpty());
  for (const char* bad : {"worker-[", "worker-[]", "worker-[0-]", "worker-[2-1]", "worker-[0-99999999]", "worker-[0-999999999999999]", "worker-[0]x", "worker-[0],", "a,,b", "a,", ",a", "a b", "[0-1]", "worker-[0-1", "worker-0]", "\xff"})
    EXPECT_FALSE(expand_hosts(bad)) << bad;
}

// What is not understood makes the whole answer unknown: a job or a node that is left out would look like an empty worker.
TEST(Damaged, OutputIsUnknown) {
  for (const std::string& bad : {std::string("slurm_load_node error: Unable to contact slurm controller\n"), std::string("NodeName=worker-0\n"), std::string("NodeName= State=IDLE CPUAlloc=0\n"), node("IDLE", -1),
                                node(""), node("IDLE+"), node("IDLE+DR/AIN"), node("IDLE").substr(0, 300), " " + node("IDLE"), node("IDLE") + "x\n"})
    EXPECT_FALSE(read_nodes(bad)) << bad;
  for (const char* bad : {"slurm_load_jobs error\n", "3|RUNNING|worker-0||NONE\n", "|RUNNING|worker-0||NONE|root\n", "x|RUNNING|worker-0||NONE|root\n", "3||worker-0||NONE|root\n",
                          "3|RUNNING|worker-[0||NONE|root\n", "3|RUNNING|worker-0||soon|root\n", "3|RUNNING|worker-0||NONE|root"})
    EXPECT_FALSE(read_jobs(bad)) << bad;
}

// Every single damaged byte, and every cut: either an error or values whose names and states are words.
TEST(Damaged, OutputNeverGivesNonsense) {
  const std::string nodes = node("MIXED+DRAIN+DYNAMIC_NORM", 3, kOurs), jobs = "3_1|RUNNING|worker-[0,7]|worker-[0-2]|2026-11-21T20:24:28|root\n";
  const auto check = [](const std::string& node_text, const std::string& job_text) {
    if (auto read = read_nodes(node_text)) {
      for (const auto& one : *read) EXPECT_FALSE(one.name.empty() || one.state.empty() || one.cpus_given < 0) << node_text;
    }
    if (auto read = read_jobs(job_text)) {
      for (const auto& one : *read) EXPECT_FALSE(one.id.empty() || one.state.empty()) << job_text;
    }
  };
  for (const char byte : {'\0', '\n', ' ', '=', '|', '[', ']', ',', '-', '9', '\xff'}) {
    for (std::size_t i = 0; i < nodes.size(); ++i) check(std::string(nodes).replace(i, 1, 1, byte), "");
    for (std::size_t i = 0; i < jobs.size(); ++i) check("", std::string(jobs).replace(i, 1, 1, byte));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) check(nodes.substr(0, i), jobs.substr(0, std::min(i, jobs.size())));
}

// Plays Slurm's tools: `show nodes` gives `node`, anything that changes something fails with `answer`.
class Tools : public testing::Test {
 protected:
  const std::string path_ = std::getenv("PATH");
  std::string folder_ = testing::TempDir() + "companion-tools-XXXXXX";
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  void play(const std::string& record, const std::string& answer, const std::string& queue = "") {
    std::ofstream(folder_ + "/nodes") << record;
    std::ofstream(folder_ + "/answer") << answer << '\n';
    std::ofstream(folder_ + "/jobs") << "7|RUNNING|worker-0||NONE|root\n8|RUNNING|worker-0||NONE|root\n9|PENDING||worker-1|N/A|ada\n10|PENDING|||N/A|ada\n";
    script("squeue", queue.empty() ? "cat " + folder_ + "/jobs" : queue);
    script("scontrol", "case $* in *show*) cat " + folder_ + "/nodes;; *) cat " + folder_ + "/answer >&2; exit 1;; esac");
    script("scancel", "echo $* >> " + folder_ + "/cancelled; cat " + folder_ + "/answer >&2; exit 1");
    ::setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  int status(const std::vector<std::string>& arguments) {
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int out = run_node_command(arguments);
    told_ = testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
    return out;
  }
  std::string told_;

 private:
  void script(const std::string& name, const std::string& text) {
    const std::string file = folder_ + "/" + name;
    std::ofstream(file) << "#!/bin/sh\n" << text << '\n';
    ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  }
};

TEST_F(Tools, SilenceIsToldApartFromARefusal) {
  for (const char* silence : {"slurm_update error: Unable to contact slurm controller (connect failure)", "slurm_update error: Socket timed out on send/recv operation", "slurm_update error: Slurm backup controller in standby mode"}) {
    play(node("IDLE"), silence);
    EXPECT_EQ(status({"drain", "worker-0", "x"}), 4) << told_;
  }
  play(node("IDLE"), "slurm_update error: Invalid node state specified");
  EXPECT_EQ(status({"drain", "worker-0", "x"}), 1);
  EXPECT_THAT(told_, testing::HasSubstr("Invalid node state specified"));
  play(node("IDLE"), "", "echo 'slurm_load_jobs error: anything' >&2; exit 1");
  EXPECT_EQ(status({"drain", "worker-0", "x"}), 4);
  EXPECT_THAT(told_, testing::HasSubstr("Slurm does not answer"));
}

TEST_F(Tools, JobsAreEndedUntilSlurmIsSilent) {
  const auto cancelled = [this] {
    std::ifstream file(folder_ + "/cancelled");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  play(node("MIXED+DRAIN", 2, kOurs), "Kill job error on job id 7: Access/permission denied");
  EXPECT_EQ(status({"cancel", "worker-0", "7", "8"}), 1);
  EXPECT_EQ(cancelled(), "7\n8\n") << "one refusal does not save the others";
  std::filesystem::remove(folder_ + "/cancelled");
  play(node("MIXED+DRAIN", 2, kOurs), "Kill job error on job id 7: Unable to contact slurm controller (connect failure)");
  EXPECT_EQ(status({"cancel", "worker-0", "7", "8"}), 4);
  EXPECT_EQ(cancelled(), "7\n");
}

TEST_F(Tools, WhatIsNotAsSupposedIsLeftAlone) {
  play(node("IDLE+FAIL", 0, " Reason=fan [ada@2026-11-21T20:13:01]"), "must not be asked");
  EXPECT_EQ(status({"drain", "worker-0", "x"}), 3);
  EXPECT_THAT(told_, testing::HasSubstr("set to fail by ada: fan"));
  EXPECT_EQ(status({"drain", "worker-1", "x"}), 3);
  play(node("IDLE+DRAIN+FAIL", 0, kOurs), "must not be asked");
  EXPECT_EQ(status({"drain", "worker-0", "x"}), 0) << "drained is drained";
  EXPECT_EQ(status({"undrain", "worker-0"}), 3);
}

TEST_F(Tools, JobsAreListedForTheNodesAskedFor) {
  play(node("IDLE"), "");
  const auto listed = [this](const std::vector<std::string>& arguments) {
    EXPECT_EQ(status(arguments), 0) << told_;
    std::vector<std::string> ids;
    for (const char* id : {"7", "8", "9", "10"})
      if (told_.find("{\"id\":\"" + std::string(id) + "\"") != std::string::npos) ids.push_back(id);
    EXPECT_THAT(told_, testing::HasSubstr("{\"name\":\"worker-0\"")) << "all nodes are listed always";
    return ids;
  };
  EXPECT_THAT(listed({"nodes"}), ElementsAre("7", "8", "9"));
  EXPECT_THAT(listed({"nodes", "--port", "6818", "--nodes", "worker-[0-1]"}), ElementsAre("7", "8", "9"));
  EXPECT_THAT(listed({"nodes", "--nodes", "worker-1"}), ElementsAre("9"));
  EXPECT_THAT(listed({"nodes", "--nodes", ""}), IsEmpty());
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"nodes", "--nodes"}, {"nodes", "--nodes", "worker-["}, {"nodes", "--port", "0"}, {"nodes", "x", "y"}, {"drain", "worker-0"}, {"undrain"}, {"cancel", "worker-0"}}) EXPECT_EQ(status(bad), 2);
}

// Half a queue would make busy workers look empty.
TEST_F(Tools, MoreThanIsReadIsUnknown) {
  play(node("IDLE"), "", "yes '7|RUNNING|worker-0||NONE|root' | head -c 34000000");
  EXPECT_EQ(status({"nodes"}), 4);
  EXPECT_THAT(told_, testing::HasSubstr("bytes of output"));
}

}  // namespace
}  // namespace fairlead::companion
