// SPDX-License-Identifier: Apache-2.0
// Which fields of a spec have no effect, and what a mistyped one was meant to be. Of every kind: what is in effect is listed, and all else that is given is named.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

using FieldNames = std::set<std::string, std::less<>>;  // paths below `spec`; members of lists as "[]"

// Lines that begin with a path; whatever follows a blank is left out.
FieldNames field_names(std::string_view lines);

// The paths ("spec.a.b") of what is given, is not among `effective` nor below one of these, and of which `says_nothing` is false; whole sections where nothing of them is in effect.
std::vector<std::string> ignored_fields(const kube::Json& spec, const FieldNames& effective, const std::function<bool(std::string_view path, const kube::Json& value)>& says_nothing);

// "spec.pauze" -> "spec.pauze (no such field; did you mean pause?)": a member that is not `known`, and whose name is like one that belongs there. Others, and those that have a word beside them already, are given back as they are.
std::string with_suggestion(std::string path, const FieldNames& known);

}  // namespace fairlead::api
