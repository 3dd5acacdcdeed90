// SPDX-License-Identifier: Apache-2.0
// What is accepted and yet worth a word: Kubernetes' Warning headers about objects of built-in kinds. Pure.
#pragma once
#include <string>
#include <vector>

#include "kube/object.h"

namespace fairlead::apiserver {

// Of a Secret of type kubernetes.io/tls: what Go's crypto/tls says of its certificate and key. Of a ResourceQuota: quota_kinds.h. Nothing of other kinds.
std::vector<std::string> object_warnings(const kube::Resource& resource, const kube::Json& object);
// What is wrong with a pair in PEM, in the words of tls.X509KeyPair; empty: nothing.
std::string key_pair_error(const std::string& certificate_pem, const std::string& key_pem);

}  // namespace fairlead::apiserver
