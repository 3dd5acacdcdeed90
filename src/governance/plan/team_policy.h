// SPDX-License-Identifier: Apache-2.0
// No work past the queues: what the namespaces of teams take (docs/design/047-admission-policies.md), as a ValidatingAdmissionPolicy and its binding. HyperPod's task governance has such a policy (pods and jobs without
// kueue.x-k8s.io/queue-name are refused where both quota labels are set); what is made by a controller for something that was looked at is let through here by its owner and by who made it. Pure.
#pragma once
#include <set>
#include <string>

#include "kube/json.h"

namespace fairlead::governance {

inline constexpr const char* kTeamPolicy = "fairlead-team-queues";  // both objects
inline constexpr const char* kQuotaAllocationId = "sagemaker.amazonaws.com/quota-allocation-id";
inline constexpr const char* kActivateQuota = "sagemaker.amazonaws.com/activate-quota";

inline constexpr std::size_t most_classes_checked = 100;
// Where the controllers of the kinds that wait in queues run by their own manifests; spec.controllerNamespaces of the SchedulerConfig takes their place.
inline constexpr const char* kControllerSpaces[] = {"kube-system", "jobset-system", "kubeflow", "mpi-operator", "aws-hyperpod"};

struct TeamPolicyInput {
  std::set<std::string> classes;      // WorkloadPriorityClasses that jobs may name; with more than most_classes_checked nobody is refused for another (their adapters tell them)
  std::set<std::string> controllers;  // namespaces whose service accounts are controllers: what they make for something that was looked at is let through
  std::string server;                 // the user that fairlead-server is for the API; empty: one of system:masters
};
// Their specs. The namespaces are those with both labels.
kube::Json team_policy_spec(const TeamPolicyInput& in);
// `mode`: Refuse, Warn (of SchedulerConfig's spec.unqueuedWork).
kube::Json team_policy_binding_spec(const std::string& mode);

}  // namespace fairlead::governance
