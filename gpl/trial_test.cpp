// SPDX-License-Identifier: GPL-3.0-or-later
#include "trial.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/files.h"
#include "reconfigure.h"
#include "slurmd_conf.h"

namespace fairlead::companion {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(TrialFiles, AreReadOneAfterTheOther) {
  auto files = read_trial_files("cgroup.conf 0\nslurm.conf 8\nA=1\nB=2\n");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->at("slurm.conf"), "A=1\nB=2\n");
  EXPECT_EQ(files->at("cgroup.conf"), "");
}

TEST(TrialFiles, NothingLeavesTheFolder) {
  for (const char* bad : {"../slurm.conf 0\n", "a/b 0\n", ".hidden 0\n", "slurm.conf 9\nA=1", "slurm.conf\n", "slurm.conf -1\n", "slurm.conf 0\nslurm.conf 0\n", "x", "cgroup.conf 0\n", ""})
    EXPECT_FALSE(read_trial_files(bad)) << bad;
}

TEST(SlurmdConf, IsReplacedAsAWholeAndNothingElseIsTouched) {
  char folder[] = "/tmp/fairlead-slurmd-conf-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string in = folder;
  EXPECT_EQ(put_slurmd_conf(in, {{"slurm.conf", "A=1\n"}}).error().code, Code::NotFound) << "slurmd has not been there yet";
  for (const char* name : {"slurm.conf", "gres.conf", "mine.txt"}) ASSERT_TRUE(write_file_atomically(in + "/" + name, "of before\n", 0644));
  ASSERT_TRUE(put_slurmd_conf(in, {{"slurm.conf", "A=1\n"}, {"cgroup.conf", "B=1\n"}, {"../x.conf", "C=1\n"}}));
  EXPECT_EQ(read_file(in + "/slurm.conf").value_or(""), "A=1\n");
  EXPECT_EQ(read_file(in + "/cgroup.conf").value_or(""), "B=1\n");
  EXPECT_EQ(read_file(in + "/mine.txt").value_or(""), "of before\n");
  EXPECT_FALSE(exists(in + "/gres.conf"));
  EXPECT_FALSE(exists(in + "/../x.conf"));
  std::filesystem::remove_all(in);
}

TEST(TrialConf, NamesNothingOfTheDaemonThatRuns) {
  const std::string conf = conf_for_trial("ClusterName=demo\nslurmctldhost=controller-0(controller-0.svc)\nSlurmctldPort=6817\nStateSaveLocation=/var/spool/slurmctld\nSlurmctldPrimaryOnProg=/bin/x\nKillWait=3\n", "box", 4242, "/t");
  EXPECT_THAT(conf, AllOf(HasSubstr("SlurmctldHost=box(127.0.0.1)\n"), HasSubstr("SlurmctldPort=4242\n"), HasSubstr("StateSaveLocation=/t/state\n"), HasSubstr("KillWait=3\n"), HasSubstr("ClusterName=demo\n")));
  EXPECT_THAT(conf, AllOf(Not(HasSubstr("6817")), Not(HasSubstr("controller-0")), Not(HasSubstr("/var/spool")), Not(HasSubstr("/bin/x"))));
}

TEST(TrialConf, TheDatabaseIsNotTold) {
  const std::string conf = conf_for_trial("AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\nPriorityType=priority/multifactor\nJobCompType=jobcomp/mysql\nJobCompLoc=x\n", "box", 1, "/t");
  EXPECT_THAT(conf, AllOf(Not(HasSubstr("Accounting")), Not(HasSubstr("priority/")), Not(HasSubstr("JobComp"))));
  EXPECT_THAT(conf_for_trial("AccountingStorageType=accounting_storage/none\nPriorityType=priority/x\n", "box", 1, "/t"), AllOf(HasSubstr("AccountingStorageType=accounting_storage/none"), HasSubstr("priority/x")));
}

TEST(TrialWords, AreTheReasonsWithoutTimesAndFolders) {
  EXPECT_EQ(words_of_daemon("slurmctld: debug: x\n[2026-01-01T00:00:00.000] error: Parse error in file /t/slurm.conf line 3: \"Foo=1\"\nslurmctld: fatal: Unable to process configuration file\n", "/t"),
            "error: Parse error in file /etc/slurm/slurm.conf line 3: \"Foo=1\"; fatal: Unable to process configuration file");
  EXPECT_EQ(words_of_daemon("all is well\n", "/t"), "");
}

TEST(TrialPlugins, OfWorkersAreNamedByTheirFiles) {
  const auto plugins = worker_plugins("JobContainerType=job_container/tmpfs\nTaskPlugin=task/cgroup,task/affinity\nProctrackType=proctrack/../../x\nAcctGatherEnergyType=acct_gather_energy/none\n");
  EXPECT_EQ(plugins.at("JobContainerType"), "job_container_tmpfs.so");
  EXPECT_EQ(plugins.at("TaskPlugin"), "task_affinity.so");
  EXPECT_EQ(plugins.at("ProctrackType").find('/'), std::string::npos);
  EXPECT_FALSE(plugins.contains("AcctGatherEnergyType"));
}

TEST(Reconfigure, KnowsWhoseFileItIs) {
  EXPECT_TRUE(same_hash("Configuration data as of x\nHASH_VAL                = Match\n"));
  EXPECT_FALSE(same_hash("HASH_VAL                = Different Ours=0x1 Slurmctld=0x2\n"));
  EXPECT_FALSE(same_hash(""));
  EXPECT_EQ(generation_of("# Generation 0123abcd\nA=1\n"), "0123abcd");
  EXPECT_EQ(generation_of("A=1\n# Generation 0123abcd\n"), "");
}

}  // namespace
}  // namespace fairlead::companion
