// SPDX-License-Identifier: Apache-2.0
// The kinds that only answer a question: who am I, may I, may they, whose token is this. Nothing is stored.
#pragma once
#include <string>

#include "apiserver/auth_access.h"
#include "apiserver/discovery.h"

namespace fairlead::apiserver {

// The answered review. `space`: of a LocalSubjectAccessReview. Invalid: 400, or 422 in Kubernetes' form.
Result<kube::Json> answer_review(const Access& access, const User& caller, const Review& review, const std::string& space, kube::Json body, Instant now);

}  // namespace fairlead::apiserver
