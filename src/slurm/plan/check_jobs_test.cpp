// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/check_jobs.h"

#include <gmock/gmock.h>

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message) << "\n" << text;
  return parsed ? parsed->at(0) : Json();
}
Json check(const std::string& spec) {
  return yaml("{apiVersion: slurm.nebius.ai/v1alpha1, kind: ActiveCheck, metadata: {name: net.all, namespace: lab, uid: u-1}, spec: {name: net, slurmClusterRefName: demo, checkType: k8sJob, activeDeadlineSeconds: 90, " + spec + "}}");
}
constexpr const char* kContainer = "k8sJobSpec: {jobContainer: {image: i, command: [ping, -c1, gw]}}";

Json job_of(const Json& object, const std::string& worker, const std::string& status) {
  Json job = check_job(object, read_check(object), "17", worker, "", "");
  job.child("metadata").set("uid", "j-" + worker);
  job.set("status", yaml(status));
  return job;
}
Json pod_of(const std::string& worker, const std::string& status) { return yaml("{metadata: {name: p, ownerReferences: [{kind: Job, name: j, uid: j-" + worker + ", controller: true}]}, status: " + status + "}"); }

TEST(CheckJobs, AreMadeOfWhatTheCheckSays) {
  const Json object = check("nodeSelector: {a: b}, hostUsers: false, k8sJobSpec: {scriptRefName: scripts, jobContainer: {image: i, imagePullPolicy: Always, appArmorProfile: localhost/x, env: [{name: A, value: b}], "
                            "volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}]}}");
  const Json job = check_job(object, read_check(object), "17", "-", "", "run.sh");
  EXPECT_THAT(kube::name_of(job), MatchesRegex("net-all-17-[0-9a-f]{8}"));
  EXPECT_EQ((*kube::controller_of(job))["uid"].string(), "u-1");
  EXPECT_EQ(job["spec"]["backoffLimit"].integer(-1), 0);
  EXPECT_EQ(job["spec"]["activeDeadlineSeconds"].integer(), 90);
  const Json& pod = job["spec"]["template"]["spec"];
  EXPECT_EQ(pod["restartPolicy"].string(), "Never");
  EXPECT_FALSE(pod["automountServiceAccountToken"].boolean(true));
  EXPECT_FALSE(pod["hostUsers"].boolean(true));
  EXPECT_EQ(pod["nodeSelector"], yaml("{a: b}"));
  EXPECT_EQ(pod["volumes"], yaml("[{name: v, emptyDir: {}}, {name: fairlead-check-script, configMap: {name: scripts, defaultMode: 365, items: [{key: run.sh, path: script}]}}]"));
  const Json& container = pod["containers"].items()[0];
  EXPECT_EQ(container["command"], yaml("[/run/fairlead-check/script]"));
  EXPECT_EQ(container["volumeMounts"], yaml("[{name: v, mountPath: /v}, {name: fairlead-check-script, mountPath: /run/fairlead-check, readOnly: true}]"));
  EXPECT_EQ(container["env"], yaml("[{name: FAIRLEAD_CHECK, value: net.all}, {name: FAIRLEAD_CHECK_WORKER, value: ''}, {name: A, value: b}]"));
  EXPECT_EQ(container["securityContext"], yaml("{appArmorProfile: {type: Localhost, localhostProfile: x}}"));
  EXPECT_THAT(read_check(object).problems, IsEmpty());
}

TEST(CheckJobs, OfAWorkerAreBoundToItsMachine) {
  const Json object = check(std::string("nodeSelector: {a: b}, extensions: {eachWorker: true}, ") + kContainer);
  const Json job = check_job(object, read_check(object), "17", "worker-3", "n7", "");
  EXPECT_EQ(job["spec"]["template"]["spec"]["nodeName"].string(), "n7");
  EXPECT_TRUE(job["spec"]["template"]["spec"]["nodeSelector"].is_null());
  EXPECT_EQ(job["spec"]["template"]["spec"]["containers"].items()[0]["env"].items()[1]["value"].string(), "worker-3");
  EXPECT_NE(kube::name_of(job), kube::name_of(check_job(object, read_check(object), "17", "worker-4", "n7", "")));
  EXPECT_NE(kube::name_of(job), kube::name_of(check_job(object, read_check(object), "18", "worker-3", "n7", "")));
}

struct End {
  const char *name, *job, *pod, *state;
  int exit;
  const char* why;
};
constexpr const char* kDone = "{conditions: [{type: Complete, status: 'True'}]}";
constexpr const char* kOver = "{conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}";
class CheckJobEnds : public testing::TestWithParam<End> {};
TEST_P(CheckJobEnds, SayWhatIsKnown) {
  const Json object = check(std::string("extensions: {eachWorker: true}, ") + kContainer);
  std::vector<Json> pods;
  if (*GetParam().pod) pods.push_back(pod_of("worker-3", GetParam().pod));
  const auto jobs = read_check_jobs(read_check(object), {job_of(object, "worker-3", GetParam().job)}, pods);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].state, GetParam().state);
  EXPECT_EQ(jobs[0].exit_code, GetParam().exit);
  EXPECT_THAT(jobs[0].why, HasSubstr(GetParam().why));
  EXPECT_EQ(jobs[0].requested, std::vector<std::string>{"worker-3"});
  EXPECT_EQ(verdict_of(jobs[0]) == CheckResult::Bad, std::string(GetParam().state) == "FAILED" && GetParam().exit >= 1 && GetParam().exit <= 125);
}
INSTANTIATE_TEST_SUITE_P(
    Rows, CheckJobEnds,
    testing::Values(End{"runs", "{active: 1}", "", "RUNNING", 0, ""}, End{"done", kDone, "", "COMPLETED", 0, ""},
                    End{"said_no", kOver, "{phase: Failed, containerStatuses: [{name: check, state: {terminated: {exitCode: 3, reason: Error}}}]}", "FAILED", 3, ""},
                    End{"not_found", kOver, "{phase: Failed, containerStatuses: [{name: check, state: {terminated: {exitCode: 127, reason: Error}}}]}", "FAILED", 127, ""},
                    End{"no_such_program", kOver, "{phase: Failed, containerStatuses: [{name: check, state: {terminated: {exitCode: 128, reason: StartError}}}]}", "TIMEOUT", 0, "StartError"},
                    End{"out_of_memory", kOver, "{phase: Failed, containerStatuses: [{name: check, state: {terminated: {exitCode: 1, reason: OOMKilled}}}]}", "TIMEOUT", 0, "OOMKilled"},
                    End{"evicted", kOver, "{phase: Failed, reason: Evicted, containerStatuses: [{name: check, state: {terminated: {exitCode: 1, reason: Error}}}]}", "TIMEOUT", 0, "Evicted"},
                    End{"disrupted", kOver, "{phase: Failed, conditions: [{type: DisruptionTarget, status: 'True'}], containerStatuses: [{name: check, state: {terminated: {exitCode: 1, reason: Error}}}]}", "TIMEOUT", 0, "evicted"},
                    End{"another_container", kOver, "{phase: Failed, containerStatuses: [{name: sidecar, state: {terminated: {exitCode: 1, reason: Error}}}]}", "TIMEOUT", 0, "nobody saw"},
                    End{"pod_gone", kOver, "", "TIMEOUT", 0, "its pod is gone"},
                    End{"too_late", "{conditions: [{type: Failed, status: 'True', reason: DeadlineExceeded}]}", "{phase: Pending, containerStatuses: [{name: check, state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]}", "TIMEOUT", 0,
                        "it had not ended after 90 s: ImagePullBackOff no such image"}),
    [](const auto& row) { return row.param.name; });

TEST(CheckJobs, OfOthersAreNotLookedAt) {
  const Json object = check(std::string("extensions: {eachWorker: true}, ") + kContainer);
  Json foreign = job_of(object, "worker-3", kOver), renamed = job_of(object, "worker-3", kOver), moved = job_of(object, "worker-3", kOver);
  foreign.child("metadata").erase("ownerReferences");
  renamed.child("metadata").set("name", "net-all-17-00000000");
  moved.child("metadata").child("annotations").set("fairlead.dev/check-worker", "worker-4");
  EXPECT_THAT(read_check_jobs(read_check(object), {foreign, renamed, moved}, {}), IsEmpty());
}

}  // namespace
}  // namespace fairlead::slurm
