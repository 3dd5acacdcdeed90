// SPDX-License-Identifier: Apache-2.0
// Where objects are in the store and how errors call them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "apiserver/registry.h"

namespace fairlead::apiserver {

// "/core/pods/default/web", "/coordination.k8s.io/leases/ns/x", "/core/nodes/n1": "core" stands for the core group (CRD groups have a dot, so it is free).
std::string store_prefix(const kube::Resource& resource, std::string_view space = {});  // ends with '/'
std::string store_key(const kube::Resource& resource, const kube::ObjectKey& key);
// The object's key from its store key. `prefix_length` is that of store_prefix(resource).
kube::ObjectKey object_key(const kube::Resource& resource, std::string_view store_key);

std::string resource_text(const kube::Resource& resource);  // "pods", "leases.coordination.k8s.io"
std::string kind_text(const kube::Resource& resource);      // "Pod", "Lease.coordination.k8s.io"

std::unexpected<Error> not_found(const kube::Resource& resource, std::string_view name);
std::unexpected<Error> already_exists(const kube::Resource& resource, std::string_view name);
std::unexpected<Error> modified(const kube::Resource& resource, std::string_view name);  // the optimistic lock failed
std::unexpected<Error> cannot_fulfil(const kube::Resource& resource, std::string_view name, std::string_view why);  // Conflict
std::unexpected<Error> forbidden(const kube::Resource& resource, std::string_view name, std::string_view why);
std::unexpected<Error> not_served();  // the server could not find the requested resource

}  // namespace fairlead::apiserver
