// SPDX-License-Identifier: Apache-2.0
// provisioning_parameters.json: how clusters from before SlurmConfig say which groups have controllers, login nodes and compute nodes. It lies beside the lifecycle scripts
// (AWS: "Customize SageMaker HyperPod clusters using lifecycle scripts", version 1.0.0). What else is in it is for the scripts themselves.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hyperpod/aws_error.h"
#include "kube/json.h"

namespace fairlead::hyperpod {

inline constexpr const char* kProvisioningFile = "provisioning_parameters.json";

// By group, its slurmConfig: {"nodeType": "Compute", "partitionNames": ["p"]}. Invalid: the text is no such file, with what is wrong with it.
Result<std::map<std::string, kube::Json>> read_provisioning(std::string_view text);

// An object of S3: its bytes. NotFound: there is none.
using ReadObject = std::function<Result<std::string>(const std::string& bucket, const std::string& key)>;

// Gives groups without slurmConfig the roles that the file says. `spec` of a Cluster (docs/design/050). Refused, with what to do: no file, or it knows nothing of the group; NodeProvisioningMode Continuous, as in AWS.
// Clusters of Kubernetes, and those whose groups all have it, are left as they are; then nothing is read. A null `read`: S3 is not served here.
Answer<void> settle_roles(kube::Json& spec, const ReadObject& read);

}  // namespace fairlead::hyperpod
