// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/custom_config.h"

#include <gmock/gmock.h>

#include "slurm/plan/config_keys.h"
#include "slurm/plan/render.h"

namespace fairlead::slurm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

api::SlurmCluster demo(const std::string& custom = "") {
  api::SlurmCluster cluster;
  cluster.name = "demo";
  cluster.space = "lab";
  cluster.controller.main.port = 6817;
  cluster.worker.main.port = 6818;
  cluster.cgroup_version = "v1";
  cluster.config.custom = custom;
  return cluster;
}

std::vector<std::string> problems(const api::SlurmCluster& cluster) {
  std::vector<std::string> out;
  for (const auto& problem : read_custom_config(cluster).problems) out.push_back(describe(problem));
  return out;
}
std::string conf(const api::SlurmCluster& cluster) { return render_config(cluster, {})["slurm.conf"]; }

// Keys of later releases (read_config.c of each), and whether anybody has to ask which Slurm the image holds.
struct Released {
  const char* name;
  const char* text;
  const char* release;  // "": not known
  const char* says;     // "": it is taken
  bool asks;
};
class Releases : public testing::TestWithParam<Released> {};
TEST_P(Releases, HaveKeysOfTheirOwn) {
  const auto& row = GetParam();
  const CustomConfig got = read_custom_config(demo(row.text), {.name = row.release});
  EXPECT_EQ(got.depends_on_release, row.asks);
  const std::string_view says = row.says, name = row.name;
  ASSERT_EQ(got.problems.size(), says.empty() ? 0U : 1U);
  if (!says.empty()) {
    EXPECT_THAT(describe(got.problems[0]), HasSubstr(std::string(says)));
  }
  const bool of_none = name.starts_with("typo") || name.starts_with("owned");
  EXPECT_EQ(read_custom_config(demo(row.text), {.name = {}, .any = true}).problems.size(), of_none ? 1U : 0U) << "what is rendered was checked before";
}
INSTANTIATE_TEST_SUITE_P(Keys, Releases,
                         testing::Values(Released{"old_in_2205", "KillWait=60", "22.05", "", false}, Released{"old_in_2511", "KillWait=60", "25.11", "", false}, Released{"new_in_2302", "MaxBatchRequeue=3", "23.02", "", false},
                                         Released{"new_in_2205", "MaxBatchRequeue=3", "22.05", "Slurm 22.05 has no such key, and slurmctld would not start with it; it came with 23.02", false},
                                         Released{"new_in_an_unknown_one", "MaxBatchRequeue=3", "", "it came with 23.02, and which Slurm", true}, Released{"later_than_ours", "PrologTimeout=3", "24.11", "it came with 25.05", false},
                                         Released{"beyond_the_table", "PrologTimeout=3", "31.05", "", false}, Released{"typo_in_2505", "PrologTimeuot=3", "25.05", "Slurm 25.05 has no such key, and slurmctld would not start with it; did you mean PrologTimeout?", false},
                                         Released{"typo_in_2205", "PrologTimeuot=3", "22.05", "Slurm 22.05 has no such key, and slurmctld would not start with it", false}, Released{"typo_in_an_unknown_one", "MinJobAeg=3", "", "did you mean MinJobAge?", false},
                                         Released{"owned_later", "TLSType=tls/s2n", "25.05", "it is not yours to set", false}, Released{"option_of_a_later_one", "SchedulerParameters=bf_topopt_enable", "25.05", "", false},
                                         Released{"option_in_2205", "SchedulerParameters=bf_topopt_enable", "22.05", "Slurm 22.05 does not know bf_topopt_enable", false},
                                         Released{"option_in_an_unknown_one", "SchedulerParameters=bf_topopt_enable", "", "Slurm 22.05 does not know bf_topopt_enable", true},
                                         Released{"line_of_a_later_one", "PartitionName=a Nodes=ALL MaxCPUsPerSocket=2", "23.11", "", false},
                                         Released{"line_in_2205", "PartitionName=a Nodes=ALL MaxCPUsPerSocket=2", "22.05", "no key of a PartitionName line of Slurm 22.05, and slurmctld would not start with it; it came with 23.02", false}),
                         [](const auto& row) { return row.param.name; });

TEST(CustomConfig, TheReleaseIsThatOfTheHeadsImage) {
  const auto status = kube::parse_yaml("{upgrade: {versions: {'slurm:a': 24.05.3, 'slurm:b': soon}}}")->at(0);
  EXPECT_EQ(config_release(status, "slurm:a").name, "24.05");
  EXPECT_EQ(config_release(status, "slurm:b").name, "");
  EXPECT_EQ(config_release(status, "slurm:c").name, "");
}

// slurmctld takes each of these, and slurmd ends: nothing but this check stands between them and the jobs.
TEST(CustomConfig, WhatWouldEndSlurmdIsRefused) {
  const auto why = [](const std::string& custom, const char* cgroups) {
    auto cluster = demo(custom);
    cluster.cgroup_version = cgroups;
    return problems(cluster);
  };
  for (const char* ends : {"JobAcctGatherParams=NoShared,overmemorykill", "JobContainerType=job_container/tmpfs", "JobContainerType=none,tmpfs", "CoreSpecPlugin=core_spec/cray_aries", "AcctGatherProfileType=acct_gather_profile/hdf5"}) {
    const auto got = why(ends, "v1");
    ASSERT_THAT(got, SizeIs(1)) << ends;
    EXPECT_THAT(got[0], AllOf(HasSubstr("slurmd would end with"), HasSubstr("line 1"))) << ends;
  }
  // Without cgroups nothing else watches memory, and slurmd lives.
  EXPECT_THAT(why("JobAcctGatherParams=OverMemoryKill", "v2"), IsEmpty());
  EXPECT_THAT(why("JobAcctGatherParams=NoShared", "v1"), IsEmpty());
  EXPECT_THAT(why("JobContainerType=job_container/none", "v1"), IsEmpty());
}

struct Line {
  const char* name;
  const char* text;
  std::vector<std::string> want;  // KEY=VALUE ..., or "!" and a part of the problem
};
class Lines : public testing::TestWithParam<Line> {};
TEST_P(Lines, AreReadAsSlurmReadsThem) {
  const ConfigText read = read_config_text(GetParam().text);
  std::vector<std::string> got;
  for (const auto& entry : read.entries) got.push_back(std::to_string(entry.line) + " " + print_config(entry));
  for (const auto& problem : read.problems) got.push_back("!" + describe(problem));
  ASSERT_THAT(got, SizeIs(GetParam().want.size())) << testing::PrintToString(got);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_THAT(got[i], HasSubstr(GetParam().want[i]));
}
INSTANTIATE_TEST_SUITE_P(ConfigText, Lines,
                         testing::Values(Line{"plain", "MinJobAge=300\n", {"1 MinJobAge=300"}}, Line{"spaces_around", "  MinJobAge =  300  ", {"1 MinJobAge=300"}},
                                         Line{"comment", "# all\n\nMinJobAge=300 # five minutes\n", {"3 MinJobAge=300"}}, Line{"escaped_hash", "MailDomain=a\\#b\n", {"1 MailDomain=a\\#b"}},
                                         Line{"continued", "PartitionName=a \\\n  Nodes=worker\nMinJobAge=1", {"1 PartitionName=a Nodes=worker", "3 MinJobAge=1"}},
                                         Line{"continued_behind_a_comment", "PartitionName=a \\ # more\n Nodes=ALL", {"1 PartitionName=a Nodes=ALL"}},
                                         Line{"escaped_backslash_ends_no_line_over", "MailDomain=a\\\\\nMinJobAge=1", {"1 MailDomain=a\\\\", "2 MinJobAge=1"}},
                                         Line{"quoted", "SallocDefaultCommand=\"srun -n1 bash\"", {"1 SallocDefaultCommand=\"srun -n1 bash\""}},
                                         Line{"quote_open", "Prolog=\"/a b", {"!line 1, Prolog: the quotation mark"}}, Line{"glued", "Prolog=\"/a\"b", {"!line 1, Prolog: the quotation mark"}},
                                         Line{"crlf", "MinJobAge=1\r\nKillWait=2\r\n", {"1 MinJobAge=1", "2 KillWait=2"}}, Line{"no_pair", "hello world", {"!line 1, hello: \"hello world\" is not KEY=VALUE"}},
                                         Line{"operation", "MinJobAge+=3", {"!line 1, MinJobAge: \"+=\""}}, Line{"empty_value", "MinJobAge=", {"!line 1, MinJobAge: no value"}},
                                         Line{"include", "a=1\nInclude /etc/passwd", {"1 a=1", "!line 2, Include: other files"}}, Line{"include_in_capitals", "INCLUDE x", {"!line 1, Include"}},
                                         Line{"control", "A=\x01", {"!line 1: a control character"}}, Line{"nothing", "", {}}),
                         [](const auto& row) { return row.param.name; });

TEST(CustomConfig, NothingGivenChangesNothing) {
  EXPECT_THAT(problems(demo()), IsEmpty());
  EXPECT_THAT(conf(demo()), AllOf(HasSubstr("MinJobAge=86400\n"), HasSubstr("SchedulerParameters=sched_interval=5,bf_interval=10\n"), HasSubstr("SlurmctldParameters=enable_configless,cloud_reg_addrs\n"),
                                  HasSubstr("PartitionName=main Nodes=worker Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO\n")));
}

TEST(CustomConfig, TakesThePlaceOfOurValueWhateverItsSpelling) {
  const std::string text = conf(demo("minjobage=300\nKillWait=60\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("\nMinJobAge=300\n"), HasSubstr("\nKillWait=60\n"), Not(HasSubstr("86400"))));
}

TEST(CustomConfig, FieldsOfTheResourceAreSettingsToo) {
  api::SlurmCluster cluster = demo();
  cluster.config.settings = {{"spec.slurmConfig.minJobAge", "MinJobAge", "300"}, {"spec.slurmConfig.defMemPerNode", "DefMemPerNode", "0"}};
  EXPECT_THAT(conf(cluster), AllOf(HasSubstr("\nMinJobAge=300\n"), HasSubstr("\nDefMemPerNode=0\n")));
  cluster.config.custom = "MinJobAge=5";
  EXPECT_THAT(problems(cluster), ElementsAre("spec.customSlurmConfig, line 1, MinJobAge: it is given twice: spec.slurmConfig.minJobAge has it, too; keep one"));
  cluster.config = {.settings = {{"spec.slurmConfig.prolog", "Prolog", "/a\nAuthType=auth/none"}}};
  EXPECT_THAT(problems(cluster), ElementsAre(HasSubstr("control characters")));
}

TEST(CustomConfig, TheHealthCheckIsTheUsers) {
  auto object = kube::parse_yaml("{metadata: {name: demo, namespace: lab}, spec: {healthCheckConfig: {healthCheckProgram: /opt/check.sh, healthCheckInterval: 60, healthCheckNodeState: [{state: IDLE}, {state: CYCLE}]}}}");
  ASSERT_TRUE(object);
  api::SlurmCluster cluster = demo();
  cluster.config = api::read_slurm_cluster(object->at(0), "slurm:22.05").config;
  EXPECT_THAT(conf(cluster), AllOf(HasSubstr("\nHealthCheckProgram=/opt/check.sh\n"), HasSubstr("\nHealthCheckInterval=60\n"), HasSubstr("\nHealthCheckNodeState=IDLE,CYCLE\n"), Not(HasSubstr("/bin/true\nHealth"))));
  cluster.config.settings = {{"spec.healthCheckConfig.healthCheckNodeState", "HealthCheckNodeState", "IDLE,NONDRAINED_IDLE"}};
  EXPECT_THAT(problems(cluster), ElementsAre(HasSubstr("NONDRAINED_IDLE"))) << "Slurm 22.05 knows no such state, and would take it for none";
}

TEST(CustomConfig, OptionsOfOursStayBesideTheUsers) {
  const std::string text = conf(demo("SlurmctldParameters=user_resv_delete\nSchedulerParameters=bf_interval=30,defer\nSlurmdParameters=config_overrides,l3cache_as_socket"));
  EXPECT_THAT(text, AllOf(HasSubstr("SlurmctldParameters=enable_configless,cloud_reg_addrs,user_resv_delete\n"), HasSubstr("SchedulerParameters=sched_interval=5,bf_interval=30,defer\n"),
                          HasSubstr("SlurmdParameters=config_overrides,l3cache_as_socket\n")));
}

struct Refused {
  const char* name;
  const char* text;
  const char* key_at;  // "line N, KEY: "
  const char* says;
};
class Refusals : public testing::TestWithParam<Refused> {};
TEST_P(Refusals, NameLineKeyReasonAndRemedy) {
  const auto& row = GetParam();
  const auto found = problems(demo(row.text));
  ASSERT_THAT(found, Not(IsEmpty()));
  EXPECT_THAT(found[0], AllOf(HasSubstr(std::string("spec.customSlurmConfig, ") + row.key_at), HasSubstr(row.says)));
}
INSTANTIATE_TEST_SUITE_P(
    CustomConfig, Refusals,
    testing::Values(Refused{"typo", "KillWait=3\nMinJobAeg=300", "line 2, MinJobAeg: ", "did you mean MinJobAge?"}, Refused{"nonsense", "FooBarBazQuux=1", "line 1, FooBarBazQuux: ", "no such key"},
                    Refused{"owned_port", "SlurmctldPort=1", "line 1, SlurmctldPort: ", "spec.slurmNodes.controller.slurmctld.port"}, Refused{"owned_any_case", "clustername=x", "line 1, clustername: ", "metadata.name"},
                    Refused{"authentication", "AuthType=auth/none", "line 1, AuthType: ", "munge"}, Refused{"state", "StateSaveLocation=/tmp", "line 1, StateSaveLocation: ", "volumes.spool"},
                    Refused{"host", "SlurmctldHost=a", "line 1, SlurmctldHost: ", "spec.slurmNodes.controller.size"}, Refused{"nodes", "NodeName=n[0-9]", "line 1, NodeName: ", "register themselves"},
                    Refused{"twice", "KillWait=1\nkillwait=2", "line 2, killwait: ", "customSlurmConfig line 1 has it, too"}, Refused{"two_on_a_line", "KillWait=1 MinJobAge=2", "line 1, KillWait: ", "one KEY=VALUE on each line"},
                    Refused{"rpc_queue", "SlurmctldParameters=enable_rpc_queue", "line 1, SlurmctldParameters: ", "durable"}, Refused{"ignored_option", "SchedulerParameters=bf_intervall=3", "line 1, SchedulerParameters: ", "did you mean bf_interval?"},
                    Refused{"ignored_value", "SchedulerParameters=bf_window=long", "line 1, SchedulerParameters: ", "takes a whole number"}, Refused{"no_value", "SchedulerParameters=bf_window", "line 1, SchedulerParameters: ", "needs a value"},
                    Refused{"one_of", "SchedulerParameters=bf_hetjob_prio=most", "line 1, SchedulerParameters: ", "min, avg, max"}, Refused{"value_too_much", "LaunchParameters=test_exec=1", "line 1, LaunchParameters: ", "takes no value"},
                    Refused{"hash", "DebugFlags=NO_CONF_HASH", "line 1, DebugFlags: ", "verifies"}, Refused{"number", "MessageTimeout=ten", "line 1, MessageTimeout: ", "whole number"},
                    Refused{"number_too_large", "MessageTimeout=70000", "line 1, MessageTimeout: ", "65533"}, Refused{"yes_no", "DisableRootJobs=perhaps", "line 1, DisableRootJobs: ", "neither YES nor NO"},
                    Refused{"impatient", "SlurmdTimeout=10", "line 1, SlurmdTimeout: ", "60 or more"}, Refused{"unknown_node", "PartitionName=p Nodes=gpu-7", "line 1, Nodes: ", "no node set gpu-7"},
                    Refused{"single_node", "PartitionName=p Nodes=worker-[0-3]", "line 1, Nodes: ", "single nodes cannot be named"}, Refused{"near_node_set", "PartitionName=p Nodes=workers", "line 1, Nodes: ", "did you mean worker?"},
                    Refused{"partition_key", "PartitionName=p Nodes=worker MaxTimes=3", "line 1, MaxTimes: ", "did you mean MaxTime?"}, Refused{"partition_twice", "PartitionName=p Nodes=ALL\nPartitionName=p Nodes=ALL", "line 2, PartitionName: ", "there already"},
                    Refused{"two_defaults", "PartitionName=p Default=YES Nodes=ALL\nPartitionName=q Default=yes Nodes=ALL", "line 2, Default: ", "p is the default, too"},
                    Refused{"alternate", "PartitionName=p Nodes=ALL Alternate=q", "line 1, Alternate: ", "no partition q"}, Refused{"node_set_by_names", "NodeSet=a Nodes=worker-1", "line 1, Nodes: ", "Feature=worker"},
                    Refused{"password", "JobCompPass=secret", "line 1, JobCompPass: ", "secrets"}, Refused{"no_pair_with_a_typo", "MinJobAeg 300", "line 1, MinJobAeg: ", "did you mean MinJobAge?"}),
    [](const auto& row) { return row.param.name; });

TEST(CustomConfig, PartitionsBesideMainAndInsteadOfIt) {
  api::SlurmCluster cluster = demo("NodeSet=fast Feature=fast\nPartitionName=p Nodes=fast,worker Default=YES MaxTime=1:00:00\n");
  EXPECT_THAT(problems(cluster), IsEmpty());
  EXPECT_THAT(conf(cluster), HasSubstr("NodeSet=worker Feature=worker\nNodeSet=fast Feature=fast\nPartitionName=main Nodes=worker Default=NO MaxTime=INFINITE State=UP OverSubscribe=NO\n"
                                       "PartitionName=p Nodes=fast,worker Default=YES MaxTime=1:00:00\n"));
  cluster = demo();
  cluster.config.partitions = "custom";
  EXPECT_THAT(problems(cluster), ElementsAre(HasSubstr("no partition is left")));
  cluster.config.raw_partitions = {"PartitionName=low Nodes=ALL PriorityTier=1", "KillWait=3"};
  EXPECT_THAT(problems(cluster), ElementsAre(AllOf(HasSubstr("spec.partitionConfiguration.rawConfig[1], KillWait: "), HasSubstr("spec.customSlurmConfig"))));
  cluster.config.raw_partitions.pop_back();
  EXPECT_THAT(problems(cluster), IsEmpty());
  EXPECT_THAT(conf(cluster), AllOf(HasSubstr("PartitionName=low Nodes=ALL PriorityTier=1\n"), Not(HasSubstr("PartitionName=main"))));
  cluster.config.partitions = "structured";
  EXPECT_THAT(problems(cluster), testing::Contains(HasSubstr("spec.partitionConfiguration.configType: structured")));
}

TEST(CustomConfig, KnowsWhatNeedsARestart) {
  const auto keys = [](const char* custom) { return restart_keys(conf(demo()), conf(demo(custom))); };
  EXPECT_THAT(keys("MinJobAge=300\nSchedulerParameters=defer").head, IsEmpty());
  EXPECT_THAT(keys("MaxNodeCount=1024\nMaxJobCount=5").head, ElementsAre("MaxJobCount", "MaxNodeCount"));
  EXPECT_THAT(keys("MaxNodeCount=1024").workers, IsEmpty());
  EXPECT_THAT(keys("AcctGatherEnergyType=acct_gather_energy/rapl").workers, ElementsAre("AcctGatherEnergyType"));
  api::SlurmCluster gpus = demo();
  gpus.worker.main.resources["nvidia.com/gpu"] = "1";
  EXPECT_THAT(restart_keys(conf(demo()), conf(gpus)).head, IsEmpty());
  EXPECT_THAT(restart_keys("", "GresTypes=gpu\n").head, ElementsAre("GresTypes")) << "of a version that did not name it always";
  // slurmctld asks slurmdbd's port once, when it starts; hosts it asks anew with each connection (dbd_conn.c).
  const std::string dbd = "AccountingStorageType=accounting_storage/slurmdbd\n";
  EXPECT_THAT(restart_keys(dbd + "AccountingStoragePort=6819\n", dbd + "AccountingStoragePort=6820\nAccountingStorageHost=other\n").head, ElementsAre("AccountingStoragePort"));
  EXPECT_THAT(restart_keys("JobAcctGatherType=jobacct_gather/none\n", "JobAcctGatherType=jobacct_gather/linux\n").head, ElementsAre("JobAcctGatherType"));
}

TEST(CustomConfig, TheDaemonsWordsFindTheirLine) {
  const CustomConfig config = read_custom_config(demo("KillWait=3\nPreemptMode=SUSPEND\nPriorityType=priority/nonsense\nPartitionName=odd Nodes=ALL"));
  EXPECT_EQ(explain_refusal(config, "fatal: PreemptMode=SUSPEND requires GANG too"), "spec.customSlurmConfig, line 2, PreemptMode: slurmctld refuses: fatal: PreemptMode=SUSPEND requires GANG too");
  EXPECT_THAT(explain_refusal(config, "error: cannot find priority plugin for priority/nonsense"), HasSubstr("line 3, PriorityType: "));
  EXPECT_THAT(explain_refusal(config, "fatal: partition odd"), HasSubstr("line 4, PartitionName: "));
  EXPECT_EQ(explain_refusal(config, "fatal: no memory"), "slurmctld refuses: fatal: no memory");
}

TEST(ConfigKeys, EveryKeyIsThereOnceAndOwnedOnesSayWhatToDo) {
  for (const char* name : {"ClusterName", "SlurmctldHost", "AuthType", "StateSaveLocation", "SlurmctldPort", "NodeName", "TaskPlugin"}) {
    ASSERT_NE(find_config_key(name), nullptr) << name;
    EXPECT_EQ(find_config_key(name)->use, KeyUse::Owned) << name;
    EXPECT_FALSE(find_config_key(name)->remedy.empty()) << name;
  }
  EXPECT_EQ(find_config_key("maxnodecount")->use, KeyUse::Restart);
  EXPECT_EQ(find_config_key("Foo"), nullptr);
}

}  // namespace
}  // namespace fairlead::slurm
