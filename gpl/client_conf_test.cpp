// SPDX-License-Identifier: GPL-3.0-or-later
#include "client_conf.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kConf =
    "# Generation 7\n"
    "ClusterName=demo\n"
    "SlurmctldHost=controller-0(controller-0.demo-controller-svc.lab.svc.cluster.local)\n"
    "MaxNodeCount=3\n"
    "NodeSet=worker Feature=worker\n"
    "NodeSet=gpu-large Feature=gpu-large\n"
    "NodeSet=fast Feature=a100\n"
    "PartitionName=main Nodes=worker,gpu-large\n";

TEST(ClientConf, NamesEachWorkerThatThereMayBe) {
  const std::string out = client_conf(kConf);
  EXPECT_THAT(out, StartsWith(kConf)) << "what says which configuration it is stays first";
  EXPECT_THAT(out, HasSubstr("\nNodeName=worker-[0-2] NodeAddr=worker-0.demo-worker-svc.lab.svc.cluster.local,worker-1.demo-worker-svc.lab.svc.cluster.local,worker-2.demo-worker-svc.lab.svc.cluster.local\n"));
  EXPECT_THAT(out, HasSubstr("\nNodeName=gpu-large-[0-2] NodeAddr=gpu-large-0.demo-worker-svc.lab"));
  EXPECT_THAT(out, Not(HasSubstr("NodeName=fast"))) << "a set of the user's own names no pods";
}

TEST(ClientConf, OfSeveralHeadsAndWithoutADomain) {
  EXPECT_THAT(client_conf("ClusterName=demo\nSlurmctldHost=controller(demo-controller-active.lab.svc.k8s.example.org)\nMaxNodeCount=1\nNodeSet=worker Feature=worker"),
              EndsWith("\nNodeName=worker-[0-0] NodeAddr=worker-0.demo-worker-svc.lab.svc.k8s.example.org\n"));
  EXPECT_THAT(client_conf("ClusterName=demo\nSlurmctldHost=head(10.0.0.1)\nNodeSet=worker Feature=worker\n"), EndsWith("\nNodeName=worker-[0-511]\n"));
  EXPECT_THAT(client_conf("ClusterName=demo\nSlurmctldHost=x(x.other-demo-controller-svc.lab)\nMaxNodeCount=2\nNodeSet=worker Feature=worker\n"), EndsWith("\nNodeName=worker-[0-1]\n")) << "another cluster's name";
  for (const char* odd : {"", "NodeSet=\n", "NodeSet= Feature=\n", "SlurmctldHost=)(\n", "MaxNodeCount=-4\nNodeSet=w Feature=w", "MaxNodeCount=99999999999999999999\nNodeSet=w Feature=w", "nodeset = w Feature=w"}) (void)client_conf(odd);
  EXPECT_THAT(client_conf("MaxNodeCount=60000\nNodeSet=w Feature=w\nNodeSet=v Feature=v\n"), HasSubstr("NodeName=w-[0-2047]\n"));
}

class ClientConfFolder : public testing::Test {
 protected:
  ClientConfFolder() {
    char path[] = "/tmp/fairlead-client-conf-XXXXXX";
    root_ = ::mkdtemp(path);
    for (const char* dir : {"/from", "/to"}) std::filesystem::create_directory(root_ + dir);
  }
  ~ClientConfFolder() override { std::filesystem::remove_all(root_); }
  void give(const std::string& name, const std::string& text) { ASSERT_TRUE(write_file_atomically(root_ + "/from/" + name, text, 0644)); }
  std::string has(const std::string& name) {
    auto text = read_file(root_ + "/to/" + name);
    return text ? *text : "absent";
  }
  bool follow() { return follow_conf(root_ + "/from", root_ + "/to"); }
  std::string root_;
};

TEST_F(ClientConfFolder, FollowsWhatChangesAndWhatGoes) {
  EXPECT_TRUE(follow()) << "nothing is there yet";
  std::filesystem::create_directory(root_ + "/from/..2026");
  give("slurm.conf", kConf);
  give("gres.conf", "AutoDetect=off\n");
  give("generation", "7\n");
  ASSERT_TRUE(follow());
  EXPECT_EQ(has("slurm.conf"), client_conf(kConf));
  EXPECT_EQ(has("gres.conf"), "AutoDetect=off\n");
  EXPECT_EQ(has("generation"), "7\n");
  struct stat before {}, after {};
  ASSERT_EQ(::stat((root_ + "/to/slurm.conf").c_str(), &before), 0);
  ASSERT_TRUE(follow());
  ASSERT_EQ(::stat((root_ + "/to/slurm.conf").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "written again without need";
  // Somebody's edit of the copy is put right; a file that went goes.
  ASSERT_TRUE(write_file_atomically(root_ + "/to/slurm.conf", "ClusterName=other\n", 0644));
  std::filesystem::remove(root_ + "/from/gres.conf");
  ASSERT_TRUE(follow());
  EXPECT_EQ(has("slurm.conf"), client_conf(kConf));
  EXPECT_EQ(has("gres.conf"), "absent");
  // While the folder is being replaced nothing is taken away.
  for (const char* name : {"slurm.conf", "generation"}) std::filesystem::remove(root_ + "/from/" + name);
  ASSERT_TRUE(follow());
  EXPECT_EQ(has("generation"), "7\n");
}

TEST_F(ClientConfFolder, TellsWhatCannotBeWritten) {
  give("slurm.conf", kConf);
  std::filesystem::remove(root_ + "/to");
  EXPECT_FALSE(follow());
}

}  // namespace
}  // namespace fairlead::companion
