// SPDX-License-Identifier: GPL-3.0-or-later
#include "metrics.h"

#include <gmock/gmock.h>

#include "exporter.h"

namespace fairlead::companion {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

std::string node(const std::string& state, int given = 0, const std::string& tail = "", const std::string& name = "worker-0") {
  return "NodeName=" + name + " Arch=x86_64 CoresPerSocket=1  CPUAlloc=" + std::to_string(given) +
         " CPUEfctv=3 CPUTot=4 CPULoad=1.33 Gres=gpu:h100:2 NodeAddr=10.99.0.1 NodeHostName=head Version=22.05.8 OS=Linux RealMemory=1000 AllocMem=100 FreeMem=N/A MemSpecLimit=50 State=" + state +
         " Partitions=main,debug  BootTime=None SlurmdStartTime=None CfgTRES=cpu=4,mem=1000M,billing=4,gres/gpu=2 AllocTRES= CapWatts=n/a" + tail + "\n";
}
std::vector<MetricNode> nodes(const std::string& text) {
  auto read = read_metric_nodes(text);
  EXPECT_TRUE(read) << read.error().message;
  return read ? *read : std::vector<MetricNode>();
}
const Instant kNow = *parse_time("2026-11-21T21:00:00Z");
const std::string kSdiag =
    "*****\nsdiag output at Sat (1)\n*****\nServer thread count:  3\nAgent queue size:     0\n\nRemote Procedure Call statistics by message type\n\tREQUEST_PARTITION_INFO                  ( 2009) count:36     ave_time:217    "
    "total_time:7835\n\nRemote Procedure Call statistics by user\n\troot            (       0) count:74     ave_time:315    total_time:23343\n\nPending RPC statistics\n\tNo pending RPCs\n";

std::string print(const std::vector<MetricNode>& of, const std::vector<MetricJob>& jobs = {}, const MetricHistory& history = {}) { return print_metrics(of, jobs, *read_sdiag(kSdiag), history, kNow); }

TEST(Metrics, OfNodesAndTheController) {
  const std::string text = print(nodes(node("MIXED+DRAIN", 2, " Reason=disk \\ full [root@2026-11-21T20:13:01] Comment=a \"b\"")));
  EXPECT_THAT(text, HasSubstr("slurm_node_info{node_name=\"worker-0\",instance_id=\"\",state_base=\"MIXED\",state_is_drain=\"true\",state_is_maintenance=\"false\""));
  EXPECT_THAT(text, HasSubstr("is_unavailable=\"false\",reservation_name=\"\",address=\"10.99.0.1\",reason=\"disk \\\\ full\",comment=\"a \\\"b\\\"\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("slurm_node_cpus_total{node_name=\"worker-0\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("slurm_node_cpus_idle{node_name=\"worker-0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("slurm_node_memory_effective_bytes{node_name=\"worker-0\"} 996147200\n"));
  EXPECT_THAT(text, Not(HasSubstr("slurm_node_memory_free_bytes{"))) << "N/A is not nought";
  EXPECT_THAT(text, HasSubstr("slurm_node_partition{node_name=\"worker-0\",partition=\"debug\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("slurm_controller_rpc_calls_total{message_type=\"REQUEST_PARTITION_INFO\"} 36\n"));
  EXPECT_THAT(text, HasSubstr("slurm_controller_rpc_user_duration_seconds_total{user=\"root\",user_id=\"0\"} 0.023343\n"));
  EXPECT_THAT(text, HasSubstr("slurm_controller_server_thread_count 3\n"));
  EXPECT_FALSE(read_sdiag("slurm_get_statistics: Unable to contact slurm controller\n"));
}

TEST(Metrics, OfJobsWhateverTheirNamesSay) {
  const std::string evil = "x UserId=root(0) TRES=cpu=9,mem=9G MailUser=boss|7\"";
  const std::string queue = "12|12|N/A|RUNNING|main|ann|1001|2026-11-21T20:00:00|2026-11-21T20:30:00|2026-11-21T22:00:00|3|worker-[0-1]|None|" + evil + "\nnonsense\n13|13|0-3|PENDING|main|bob|1002|2026-11-21T20:00:00|N/A|N/A|1||Resources|plain\n";
  const std::string details = "JobId=12 JobName=" + evil + " UserId=ann(1001) GroupId=g(1) JobState=RUNNING TRES=cpu=3,mem=6000M,node=2 StdErr=/home/ann/e StdOut=/home/ann/o MailUser=ann@b.c\n";
  const auto jobs = read_metric_jobs(queue, details);
  ASSERT_THAT(jobs, SizeIs(2));
  const std::string text = print({}, jobs);
  EXPECT_THAT(text, HasSubstr("user_name=\"ann\",user_mail=\"ann@b.c\",user_id=\"1001\",standard_error=\"/home/ann/e\""));
  EXPECT_THAT(text, HasSubstr("slurm_job_memory_bytes{job_id=\"12\"} 6291456000\n"));
  EXPECT_THAT(text, HasSubstr("slurm_job_duration_seconds{job_id=\"12\"} 1800\n"));
  EXPECT_THAT(text, HasSubstr("slurm_node_job{job_id=\"12\",node_name=\"worker-1\",nvlink_instance_group=\"\",nodeset_name=\"\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("array_job_id=\"13\",array_task_id=\"0-3\""));
  EXPECT_THAT(text, Not(HasSubstr("slurm_job_duration_seconds{job_id=\"13\"}")));
}

TEST(Metrics, CountUpFromLookToLook) {
  MetricHistory history;
  history.look(nodes(node("IDLE") + node("IDLE+DRAIN", 0, " Reason=old", "worker-1")), 0s);
  EXPECT_TRUE(history.fails().empty()) << "what was before the first look is not counted";
  history.look(nodes(node("MIXED+DRAIN", 2, " Reason=disk") + node("IDLE", 0, "", "worker-1")), 30s);
  history.look(nodes(node("IDLE+DRAIN", 0, " Reason=disk") + node("IDLE", 0, "", "worker-1")), 60s);
  history.look(nodes(node("IDLE") + node("IDLE", 0, "", "worker-1")), 160s);
  ASSERT_THAT(history.fails(), SizeIs(1));
  EXPECT_EQ(history.fails().begin()->first.back(), "disk");
  EXPECT_EQ(history.draining().at("worker-0").sum, 30);
  EXPECT_EQ(history.unavailable().at("worker-0").sum, 100);
  EXPECT_FALSE(history.unavailable().contains("worker-1")) << "it began before we looked";
  const std::string text = print({}, {}, history);
  EXPECT_THAT(text, HasSubstr("slurm_node_unavailability_duration_seconds_bucket{node_name=\"worker-0\",le=\"60\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("slurm_node_unavailability_duration_seconds_bucket{node_name=\"worker-0\",le=\"300\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("slurm_node_gpu_seconds_total{node_name=\"worker-0\",state_base=\"IDLE\",state_is_drain=\"false\",state_is_maintenance=\"false\",state_is_reserved=\"false\"} 200\n"));
}

TEST(Metrics, AreUtf8Whatever) {
  const std::string text = print(nodes(node("IDLE", 0, " Reason=caf\xc3\xa9 \xff\xfe")));
  EXPECT_THAT(text, HasSubstr("reason=\"caf\xc3\xa9 ??\""));
}

TEST(Exporter, ReadsRequests) {
  EXPECT_EQ(read_question("GET /metrics?x=1 HTTP/1.1\r\n\r\n")->path, "/metrics");
  for (const char* bad : {"", "GET\r\n", "GET /metrics\r\n", "GET  HTTP/1.1\r\n", "GET http://x/ HTTP/1.1\r\n", "SSH-2.0-x y z\r\n"}) EXPECT_FALSE(read_question(bad)) << bad;
  EXPECT_THAT(print_answer({.status = 503, .body = "no\n"}, true), HasSubstr("HTTP/1.1 503 Service Unavailable\r\n"));
}

}  // namespace
}  // namespace fairlead::companion
