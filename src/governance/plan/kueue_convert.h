// SPDX-License-Identifier: Apache-2.0
// Kueue's objects from one version of the API to the other (docs/design/027). What has no place in the other version travels in the annotation `fairlead.dev/kept` and goes back to its place, unless what stands
// there was changed meanwhile: so there and back is the identity, whichever version is stored.
#pragma once
#include <string_view>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::governance {

inline constexpr std::string_view kept_annotation = "fairlead.dev/kept";
inline constexpr std::size_t most_kept = 32 * 1024;  // bytes of that annotation; beyond it the largest parts are left out

// `to`: "kueue.x-k8s.io/v1beta1" or ".../v1beta2". Invalid: another group or version on either side, or no object. Kinds that are the same in both change their apiVersion alone. O(size).
Result<kube::Json> convert_kueue(const kube::Json& object, std::string_view to);

// apiextensions.k8s.io/v1 ConversionReview: the answer to a request. An object that cannot be converted fails all, as kube-apiserver wants it, and is named.
kube::Json answer_conversion(const kube::Json& review);

}  // namespace fairlead::governance
