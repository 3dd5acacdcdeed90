// SPDX-License-Identifier: Apache-2.0
// Small questions about kinds that the writing files share.
#pragma once
#include "apiserver/apply_managed.h"
#include "apiserver/policy_kinds.h"
#include "apiserver/registry_impl.h"
#include "apiserver/workload_kinds.h"

namespace fairlead::apiserver {

inline bool same_resource(const kube::Resource& a, const kube::Resource& b) { return a.plural == b.plural && a.group == b.group; }
inline bool is_pod(const kube::Resource& resource) { return same_resource(resource, kube::resources::pods); }
inline bool is_namespace(const kube::Resource& resource) { return same_resource(resource, kube::resources::namespaces); }
inline bool is_crd(const kube::Resource& resource) { return same_resource(resource, kube::resources::crds); }
// metadata.generation is kept for kinds with a spec whose controllers compare it.
inline bool counts_generations(const Kind& kind) { return kind.schema || is_pod(kind.resource) || is_crd(kind.resource) || is_workload(kind.resource) || is_policy_kind(kind.resource); }
// The writer of fields that a request stands for.
FieldWriter field_writer(const WriteContext& context, const Kind& kind, const std::string& subresource, Instant now);

}  // namespace fairlead::apiserver
