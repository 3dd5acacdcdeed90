// SPDX-License-Identifier: Apache-2.0
#include "api/check_fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "api/field_names.h"

namespace fairlead::api {
namespace {

using kube::Json;

std::vector<std::string> ignored(const std::string& spec) {
  const auto parsed = kube::parse_yaml(fmt::format("{{metadata: {{name: gpu}}, spec: {{slurmClusterRefName: demo, {}}}}}", spec));
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? ignored_of_check(parsed->at(0)) : std::vector<std::string>{};
}

struct Case {
  const char *name, *spec;
  std::vector<std::string> want;
};
class CheckFields : public testing::TestWithParam<Case> {};
TEST_P(CheckFields, WithoutEffectAreNamed) { EXPECT_EQ(ignored(GetParam().spec), GetParam().want); }
INSTANTIATE_TEST_SUITE_P(
    Rows, CheckFields,
    testing::Values(
        Case{"mistyped", "checkType: slurmJob, slurmJobSpec: {sbatchScript: x, eachWorkerJob: true}", {"spec.slurmJobSpec.eachWorkerJob (no such field; did you mean eachWorkerJobs?)"}},
        Case{"mistyped_own", "checkType: slurmJob, extensions: {maxDrain: 1, failurs: 2}", {"spec.extensions.failurs (no such field; did you mean failures?)", "spec.extensions.maxDrain (no such field; did you mean maxDrained?)"}},
        Case{"mistyped_in_a_reaction", "checkType: slurmJob, failureReactions: {drainSlurmNode: {drainReasonPrefx: x}}", {"spec.failureReactions.drainSlurmNode.drainReasonPrefx (no such field; did you mean drainReasonPrefix?)"}},
        Case{"history_of_a_slurm_job", "checkType: slurmJob, successfulJobsHistoryLimit: 5, failedJobsHistoryLimit: 0",
             {"spec.failedJobsHistoryLimit (Slurm keeps its own record of jobs)", "spec.successfulJobsHistoryLimit (Slurm keeps its own record of jobs)"}},
        Case{"history_as_the_kind_fills_it_in", "checkType: slurmJob, successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 16", {}},
        Case{"of_pods_given_to_a_slurm_job", "checkType: slurmJob, extensions: {eachWorker: true, maxJobs: 3}",
             {"spec.extensions.eachWorker (of a slurmJob it is spec.slurmJobSpec.eachWorkerJobs)", "spec.extensions.maxJobs (of a slurmJob it is spec.slurmJobSpec.maxNumberOfJobs)"}},
        Case{"most_jobs_of_one", "checkType: slurmJob, slurmJobSpec: {maxNumberOfJobs: 4}", {"spec.slurmJobSpec.maxNumberOfJobs (it is one job: see spec.slurmJobSpec.eachWorkerJobs)"}},
        Case{"of_no_worker", "extensions: {failures: 2, of: 3, maxDrained: 1, maxJobs: 2, reboot: {}}, failureReactions: {drainSlurmNode: {}}",
             {"spec.extensions.failures (it is of no worker: see spec.extensions.eachWorker)", "spec.extensions.maxDrained (it is of no worker: see spec.extensions.eachWorker)",
              "spec.extensions.maxJobs (it is one Job: see spec.extensions.eachWorker)", "spec.extensions.of (it is of no worker: see spec.extensions.eachWorker)",
              "spec.extensions.reboot (it is of no worker: see spec.extensions.eachWorker)", "spec.failureReactions.drainSlurmNode (it is of no worker: see spec.extensions.eachWorker)"}},
        Case{"where_workers_are", "nodeSelector: {a: b}, extensions: {eachWorker: true}", {"spec.nodeSelector"}},
        Case{"script_of_the_other_type", "k8sJobSpec: {jobContainer: {image: i, imag: j}}, slurmJobSpec: {sbatchScript: x, eachWorkerJobs: false}",
             {"spec.k8sJobSpec.jobContainer.imag (no such field; did you mean image?)", "spec.slurmJobSpec"}},
        Case{"another_name", "name: other", {"spec.name (the check goes by metadata.name, gpu)"}},
        Case{"all_of_slurms", "checkType: slurmJob, suspend: false, schedule: '0 * * * *', dependsOn: [a], slurmJobSpec: {eachWorkerJobs: true, maxNumberOfJobs: 3, sbatchScriptRefName: s}, failureReactions: {drainSlurmNode: {drainReasonPrefix: x}, "
                              "commentSlurmNode: {}}, extensions: {failures: 2, of: 3, maxDrained: 10%, reboot: {perDay: 1}}", {}},
        Case{"all_of_pods", "hostUsers: true, tolerations: [{operator: Exists}], successfulJobsHistoryLimit: 9, k8sJobSpec: {scriptRefName: s, jobContainer: {image: i, env: [{name: A, value: b}]}}, extensions: {eachWorker: true, maxJobs: 3}", {}}),
    [](const auto& row) { return row.param.name; });

// Every field of the source's table, given alone, is in effect or named, for each type.
TEST(CheckFieldsTable, EachIsInEffectOrNamed) {
  const FieldNames all = field_names(
#include "api/active_check_fields.inc"
  );
  const FieldNames always = {"activeDeadlineSeconds", "dependsOn", "failureReactions.commentSlurmNode.commentPrefix", "failureReactions.drainSlurmNode.drainReasonPrefix", "name", "runAfterCreation", "schedule", "slurmClusterRefName",
                             "successReactions.commentSlurmNode.commentPrefix", "suspend", "checkType"};
  const FieldNames pods = {"affinity", "failedJobsHistoryLimit", "hostUsers", "nodeSelector", "successfulJobsHistoryLimit", "tolerations", "k8sJobSpec.scriptRefName"};
  const FieldNames slurm = {"slurmJobSpec.eachWorkerJobs", "slurmJobSpec.sbatchScript", "slurmJobSpec.sbatchScriptRefName"};
  int leaves = 0;
  for (const std::string& path : all) {
    const auto next = all.lower_bound(path + ".");
    if (path.find("[]") != path.npos || (next != all.end() && next->starts_with(path + "."))) continue;
    for (const char* type : {"k8sJob", "slurmJob"}) {
      const bool of_pods = std::string_view(type) == "k8sJob";
      std::vector<std::string> parts;
      std::string_view rest = path;
      for (auto dot = rest.find('.'); dot != rest.npos; dot = rest.find('.')) {
        parts.emplace_back(rest.substr(0, dot));
        rest.remove_prefix(dot + 1);
      }
      Json spec = Json::object({{std::string(rest), "x"}});
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) spec = Json::object({{*part, std::move(spec)}});
      if (path != "checkType") spec.set("checkType", type);
      const auto told = ignored_of_check(Json::object({{"metadata", Json::object({{"name", "x"}})}, {"spec", std::move(spec)}}));
      const bool named = std::any_of(told.begin(), told.end(), [&](const std::string& one) { return ("spec." + path).starts_with(one.substr(0, one.find(' '))); });
      // Of a Job that is of no worker the reactions are named, the fields in them with the whole.
      const bool effect = path == "checkType" || (always.contains(path) && !(of_pods && path.find("Reactions.") != path.npos)) || (of_pods ? pods.contains(path) || path.starts_with("k8sJobSpec.jobContainer.") : slurm.contains(path));
      EXPECT_EQ(named, !effect) << path << " of a " << type << ": " << testing::PrintToString(told);
    }
    ++leaves;
  }
  EXPECT_GT(leaves, 45);
}

TEST(FieldNames, AHugeNameIsNotCompared) {
  EXPECT_EQ(with_suggestion("spec." + std::string(1 << 20, 'a'), {"aaaa"}).size(), 5U + (1 << 20) + std::string(" (no such field)").size());
}

}  // namespace
}  // namespace fairlead::api
