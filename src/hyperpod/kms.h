// SPDX-License-Identifier: Apache-2.0
// The part of AWS KMS that is about keys of volumes, over VolumeKeys: their life, policies, aliases, tags and grants. Nothing is encrypted by it for anybody but volumes, and it never sees a key's material. Source: docs.aws.amazon.com, AWS KMS
// API reference 2014-11-01. docs/design/076-volume-keys.md.
#pragma once
#include <string>
#include <string_view>

#include "hyperpod/front.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

bool is_kms_operation(std::string_view operation);
// Each needs the permission of its name, by the key's policy and the caller's. UnsupportedOperationException: what KMS has and is not for volumes, by name.
Answer<Json> answer_kms(const std::string& operation, const Json& input, const Call& call, kube::KubeApi& api);

}  // namespace fairlead::hyperpod
