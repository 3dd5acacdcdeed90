// SPDX-License-Identifier: Apache-2.0
// The fields of a SlurmCluster's two shapes (1.14.10 and HEAD of the source operator) beyond those that make a cluster: which have an effect, how they are read, and what a mistyped one was meant to be.
#pragma once
#include <string>
#include <vector>

#include "api/field_names.h"
#include "api/slurm_cluster.h"

namespace fairlead::api {

// Paths below `spec` that change something; everything below such a path does too.
FieldNames shape_paths();
// Adds members that neither shape knows, wherever they stand, and values without an effect of fields that have one otherwise: `spec.ncclSettings.topologyType: "H100 GPU cluster"`.
void name_without_effect(const kube::Json& spec, std::vector<std::string>& ignored);
// As that of field_names.h, for the members of both shapes.
std::string with_suggestion(std::string path);
// Is it a field of either shape, whether or not it has an effect here? The path is below `spec`, list members as "[]".
bool known_field(std::string_view path);

// The table of docs/slurm.md: every field of both shapes, whole subtrees in one row where they fare alike, with what it does here.
std::string fields_markdown();

void read_container_extras(const kube::Json& from, const std::string& where, SlurmContainer& out, std::vector<std::string>& problems);
void read_role_extras(const kube::Json& from, const std::string& where, SlurmRole& out, std::vector<std::string>& problems);
void read_login_service(const kube::Json& login, SlurmCluster& out);
void read_nccl_topology(const kube::Json& settings, SlurmCluster& out);

}  // namespace fairlead::api
