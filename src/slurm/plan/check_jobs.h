// SPDX-License-Identifier: Apache-2.0
// Kubernetes Jobs of an ActiveCheck of type k8sJob: what they look like, and what they say of their workers. Pure.
#pragma once
#include <string>
#include <vector>

#include "slurm/plan/checks.h"

namespace fairlead::slurm {

inline const kube::Resource kJobs{"batch", "v1", "jobs", "Job", true};
inline constexpr const char* kCheckLabel = "fairlead.dev/check";  // of Jobs and their pods: the check's uid

// Of one run on one worker, or "-": always the same, so that none is made twice.
std::string check_job_name(const CheckRules& rules, const std::string& run, const std::string& worker);
// One pod, tried once. `machine`: the Node that it is bound to; empty: any. `script_key`: of the ConfigMap spec.k8sJobSpec.scriptRefName.
kube::Json check_job(const kube::Json& check, const CheckRules& rules, const std::string& run, const std::string& worker, const std::string& machine, const std::string& script_key);
// What cannot run, in sentences. Refused before a Job is made.
std::vector<std::string> job_problems(const kube::Json& spec);

// `jobs` and `pods` of the namespace with this check's label, the pods read after the Jobs. A Job that is not controlled by the check, or has not the name of its run, is not looked at.
// Only a container that ran to its end and said no (exit status 1 to 125) says that the worker is bad; a pod that somebody ended, that was evicted or whose end nobody saw says nothing.
std::vector<CheckJob> read_check_jobs(const CheckRules& rules, const std::vector<kube::Json>& jobs, const std::vector<kube::Json>& pods);

}  // namespace fairlead::slurm
