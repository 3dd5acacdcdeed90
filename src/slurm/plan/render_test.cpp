// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/render.h"

#include <gmock/gmock.h>

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::Not;

api::SlurmCluster demo() {
  api::SlurmCluster cluster;
  cluster.name = "demo";
  cluster.space = "lab";
  cluster.controller.main.port = 6817;
  cluster.worker.main.port = 6818;
  cluster.login.main.port = 22;
  cluster.worker.main.resources = {{"cpu", "1500m"}, {"memory", "1Gi"}};
  cluster.cgroup_version = "v1";
  return cluster;
}

TEST(Render, NamesOneHeadByItsStableAddress) {
  EXPECT_THAT(render_config(demo(), {})["slurm.conf"], HasSubstr("SlurmctldHost=controller-0(controller-0.demo-controller-svc.lab.svc.cluster.local)\n"));
}

TEST(Render, WorkersJoinThePartitionByTheirFeature) {
  EXPECT_THAT(render_config(demo(), {})["slurm.conf"], HasSubstr("NodeSet=worker Feature=worker\nPartitionName=main Nodes=worker Default=YES"));
  EXPECT_EQ(worker_definition(demo()), "CPUs=2 Boards=1 SocketsPerBoard=2 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1024 Feature=worker");
}

TEST(Render, HoldsAreAskedForByAFile) {
  api::SlurmCluster cluster = demo();
  EXPECT_FALSE(render_config(cluster, {}).contains("fairlead-admission"));
  cluster.holds_jobs = true;
  EXPECT_TRUE(render_config(cluster, {}).contains("fairlead-admission"));
}

TEST(Render, GpusBecomeGres) {
  api::SlurmCluster cluster = demo();
  EXPECT_THAT(render_config(cluster, {})["slurm.conf"], HasSubstr("GresTypes=gpu\n")) << "a slurmctld that was once started without would never know GPUs that come later";
  EXPECT_EQ(render_config(cluster, {})["gres.conf"], "");
  cluster.worker.main.resources["nvidia.com/gpu"] = "2";
  EXPECT_THAT(render_config(cluster, {})["slurm.conf"], HasSubstr("GresTypes=gpu\n"));
  EXPECT_EQ(render_config(cluster, {})["gres.conf"], "Name=gpu File=/dev/nvidia[0-1]\n");
  EXPECT_THAT(worker_definition(cluster), HasSubstr(" Gres=gpu:2"));
  cluster.mock_gpus = true;
  cluster.worker.main.resources["nvidia.com/gpu"] = "1";
  EXPECT_EQ(render_config(cluster, {})["gres.conf"], "Name=gpu File=/dev/fairlead-gpu0\n");
  cluster.gpus = false;
  EXPECT_EQ(render_config(cluster, {})["gres.conf"], "");
}

struct Confined {
  const char* name;
  const char* version;
  bool bind_cores;
  const char *proctrack, *task;
  bool cores, memory;
};
class Confinements : public testing::TestWithParam<Confined> {};
TEST_P(Confinements, FollowTheCgroupVersionAndSayWhy) {
  const auto& row = GetParam();
  api::SlurmCluster cluster = demo();
  cluster.cgroup_version = row.version;
  cluster.bind_cores = row.bind_cores;
  auto files = render_config(cluster, {});
  EXPECT_THAT(files["slurm.conf"], HasSubstr(std::string("ProctrackType=") + row.proctrack + "\n"));
  EXPECT_THAT(files["slurm.conf"], HasSubstr(std::string("TaskPlugin=") + row.task + "\n"));
  EXPECT_EQ(files["cgroup.conf"].find("ConstrainCores=yes") != std::string::npos, row.cores);
  EXPECT_EQ(files["cgroup.conf"].find("ConstrainRAMSpace=yes") != std::string::npos, row.memory);
  // Left to itself, slurmd chooses v2 where the host has it, and ends for want of systemd.
  EXPECT_THAT(files["cgroup.conf"], HasSubstr("CgroupPlugin=cgroup/v1\n"));
  EXPECT_FALSE(confinement_of(cluster).message.empty());
}
INSTANTIATE_TEST_SUITE_P(Rows, Confinements,
                         testing::Values(Confined{"v1", "v1", true, "proctrack/cgroup", "task/cgroup,task/affinity", true, true},
                                         Confined{"v1_shared_cores", "v1", false, "proctrack/cgroup", "task/cgroup", false, true},
                                         Confined{"v2", "v2", true, "proctrack/linuxproc", "task/affinity", false, false},
                                         Confined{"v2_shared_cores", "v2", false, "proctrack/linuxproc", "task/none", false, false}),
                         [](const auto& row) { return row.param.name; });

TEST(Render, NoKeyIsGivenTwice) {
  api::SlurmCluster cluster = demo();
  cluster.worker.main.resources["nvidia.com/gpu"] = "1";
  std::map<std::string, int> seen;
  const std::string conf = render_config(cluster, {})["slurm.conf"];
  for (std::size_t at = 0; at < conf.size();) {
    const std::size_t end = conf.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = conf.substr(at, end - at);
    at = end + 1;
    if (line.starts_with('#')) continue;
    const std::string key = line.substr(0, line.find('='));
    if (key != "NodeSet" && key != "PartitionName") { EXPECT_EQ(++seen[key], 1) << key; }
  }
}

}  // namespace
}  // namespace fairlead::slurm
