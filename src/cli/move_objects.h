// SPDX-License-Identifier: Apache-2.0
// Which objects belong to a Slurm cluster that moves, and what of them another cluster of Kubernetes can take. Pure.
#pragma once
#include <set>
#include <string>
#include <utility>

#include "kube/json.h"

namespace fairlead::cli {

// Kind (ConfigMap, Secret, PersistentVolumeClaim) and name of all that an object names in its namespace, however deep.
std::set<std::pair<std::string, std::string>> references_of(const kube::Json& object);
// Without what its API gave it: status, owners, uid, volume. What a user wrote stays.
kube::Json portable(const kube::Json& object);
// Of two objects of one name: does the second say what the first does? Claims always do: a person may have prepared them.
bool says_the_same(const kube::Json& wanted, const kube::Json& have);

}  // namespace fairlead::cli
