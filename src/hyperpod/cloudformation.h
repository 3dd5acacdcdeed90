// SPDX-License-Identifier: Apache-2.0
// CloudFormation for templates of clusters, over Stack objects: all of a stack is evaluated, checked and allowed in the request; what becomes of it is the controller's of stacks (docs/design/060-stacks.md).
// Source: docs.aws.amazon.com, AWS CloudFormation API reference 2010-05-15.
#pragma once
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {

bool is_cloudformation_action(std::string_view action);
// What is inside of <ACTIONResult>. Needs the permission of the same name on the stack's ARN ("stack/NAME/*" where there is none yet), and for what a stack does to clusters the same permissions as SageMaker's operations.
// ValidationException (ValidationError on the wire), AlreadyExistsException, AccessDeniedException, ChangeSetNotFound, InvalidChangeSetStatus, LimitExceededException.
Answer<std::string> answer_cloudformation(const std::string& action, const http::Query& form, const Call& call, const Sources& sources);

}  // namespace fairlead::hyperpod
