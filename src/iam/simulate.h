// SPDX-License-Identifier: Apache-2.0
// A decision with what each statement had to say, as a value for people and programs. Pure.
#pragma once
#include <string>
#include <vector>

#include "iam/decide.h"
#include "kube/json.h"

namespace fairlead::iam {

// {action, resource, caller, decision: allowed | explicitDeny | implicitDeny, reason, statements: [{from: identity | boundary | session | resource, document, statement (from 1), sid?, effect, verdict: applies | otherPrincipal | otherAction |
// otherResource | conditionFails, unknown?, detail?}]}. The names of decisions are those of IAM's SimulatePrincipalPolicy.
kube::Json simulate(const Call& call, const Attached& attached);

// Keys and roles: their own policy has to allow, whatever the caller's say (kms:*, sts:AssumeRole*, and what goes with it: TagSession, SetSourceIdentity, SetContext).
bool resource_must_allow(std::string_view action);

// What is in the grammar and yet hardly what its author meant, a sentence each with its place: keys that nobody knows, variables that are not replaced, everything allowed to everybody.
std::vector<std::string> doubts(const Policy& policy, PolicyKind kind);

}  // namespace fairlead::iam
