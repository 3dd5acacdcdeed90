// SPDX-License-Identifier: Apache-2.0
// What a node and the AWS face say to each other about the instance that the node is. docs/design/066-node-metadata.md.
#pragma once

namespace fairlead::api::node_identity {

// Where a node answers its own processes, as EC2 does.
inline constexpr const char *metadata_host = "169.254.169.254", *metadata_host6 = "fd00:ec2::254";

// GET, by the client certificate of a node: {accountId, region, instanceId, instanceType, clusterName, clusterArn, instanceGroupName, roleName, roleArn, roleId}, slurmCluster ("NAMESPACE/NAME", where Slurm orchestrates) and either credentials {AccessKeyId, SecretAccessKey, Token, LastUpdated,
// Expiration} or `problem`, why there are none. 404: the node is no instance of a cluster.
inline constexpr const char* document_path = "/v1/node";

// Of SlurmClusters: their nodes are instances, and so their pods have the role of the instance that they are on. Of those pods: the same. It opens a way; whether the instance is of that SlurmCluster, the document says.
inline constexpr const char* pods_note = "fairlead.dev/role-of-instance";  // "true"

}  // namespace fairlead::api::node_identity
