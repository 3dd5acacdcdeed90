// SPDX-License-Identifier: Apache-2.0
// The Service by which people reach sshd from outside (spec.slurmNodes.login.sshdServiceType). Named CLUSTER-login-svc, as in the source operator; the pods' own names then hang on CLUSTER-login-headless-svc.
#pragma once
#include <optional>
#include <string>

#include "api/slurm_cluster.h"
#include "kube/object.h"

namespace fairlead::slurm {

// On which the names of the login pods hang: it has no address of its own.
std::string login_names_service(const api::SlurmCluster& cluster);
std::optional<kube::Json> desired_login_service(const api::SlurmCluster& cluster, kube::Json metadata);

// What is to be done about the Service that is there (null: none). Make: there is none, or it was taken away as Renew says, since a Service without an address of its own cannot get one.
struct LoginServicePlan {
  enum class What { Nothing, Make, Change, Renew } what = What::Nothing;
  kube::Json object;  // to be made, or the changed one; of Renew the one to be deleted
};
LoginServicePlan plan_login_service(const kube::Json& have, const kube::Json& wanted);

// Condition LoginReachable: where people find sshd, or why not yet. None: no type was asked for.
std::optional<kube::Condition> login_condition(const api::SlurmCluster& cluster, const kube::Json& have);

}  // namespace fairlead::slurm
