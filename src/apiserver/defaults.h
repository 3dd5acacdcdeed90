// SPDX-License-Identifier: Apache-2.0
// What Kubernetes fills in where a client left a field out. Pure.
#pragma once
#include "kube/object.h"

namespace fairlead::apiserver {

// The defaults of a built-in kind; nothing for others. Repeating it changes nothing. Wrong types are left for the validation.
void apply_defaults(const kube::Resource& resource, kube::Json& object);
// What the server itself says of a new object: its first status (what the client sent there is dropped, except for nodes), a namespace's finalizer and label.
void set_initial_state(const kube::Resource& resource, kube::Json& object);
// Secret: stringData goes into data.
void merge_string_data(kube::Json& secret);

}  // namespace fairlead::apiserver
