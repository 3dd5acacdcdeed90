// SPDX-License-Identifier: Apache-2.0
// CustomResourceDefinitions: what they must be, and the kinds that they define. Pure.
#pragma once
#include <memory>
#include <vector>

#include "apiserver/registry.h"
#include "apiserver/validation.h"

namespace fairlead::apiserver {

inline constexpr std::string_view crd_finalizer = "customresourcecleanup.apiextensions.k8s.io";

void check_crd(const kube::Json& crd, FieldErrors& errors);
void check_crd_change(const kube::Json& old, const kube::Json& next, FieldErrors& errors);

// Names, conditions NamesAccepted and Established, stored versions: written by the registry itself with every write of a CRD, judged against what is served by others.
void set_crd_status(kube::Json& crd, const KindTable& others, Instant now);
// Warnings for what is kept but not done: x-kubernetes-validations that cannot be evaluated here.
std::vector<std::string> crd_warnings(const kube::Json& crd);

// One Kind for each served version. Empty: not established.
std::vector<std::shared_ptr<const Kind>> kinds_of(const kube::Json& crd);

}  // namespace fairlead::apiserver
