// SPDX-License-Identifier: Apache-2.0
// Parts that the pods of every role are made of.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/plan/objects.h"

namespace fairlead::slurm {

kube::Json metadata(const api::SlurmCluster& cluster, std::string name, std::string_view role);  // labels of the role, owned by the cluster
kube::Json resources_json(const std::map<std::string, std::string>& resources);                  // requests equal limits
kube::Json mount(std::string name, std::string path, bool read_only = false);
kube::Json env(std::string name, std::string value);
kube::Json secret_volume(std::string name, std::string secret, int mode);
kube::Json config_volume(std::string name, std::string config_map);
kube::Json memory_volume(std::string name, const std::string& limit = "");
kube::Json chosen_volume(const api::SlurmCluster& cluster, const std::string& name, const api::SlurmVolume& volume, const std::string& claim);
kube::Json with_companion(const ObjectOptions& options, std::vector<kube::Json> mounts);
void push_companion_volume(kube::Json& volumes, const ObjectOptions& options);
void choose_nodes(const api::SlurmCluster& cluster, const std::string& filter_name, kube::Json& spec);  // of spec.k8sNodeFilters
kube::Json dressed(kube::Json container, const api::SlurmContainer& of);  // with what the user asks of it beyond image, port and resources
kube::Json munge_container(const api::SlurmContainer& munge, const ObjectOptions& options);
kube::Json pod_of(const api::SlurmCluster& cluster, const std::string& name, std::string_view role, kube::Json spec);  // with the hash of its spec

}  // namespace fairlead::slurm
