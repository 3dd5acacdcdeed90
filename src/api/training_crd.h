// SPDX-License-Identifier: Apache-2.0
// HyperPodPyTorchJob of sagemaker.amazonaws.com/v1: a kind of SageMaker's, for whose clients (`hyp`) we serve it. Where its own operator has brought the definition, that one is left alone.
#pragma once
#include "kube/json.h"

namespace fairlead::api {

inline constexpr const char* kTrainingCrd = "hyperpodpytorchjobs.sagemaker.amazonaws.com";
kube::Json training_crd();
bool is_training_crd(const kube::Json& crd);
bool is_our_training_crd(const kube::Json& crd);

}  // namespace fairlead::api
