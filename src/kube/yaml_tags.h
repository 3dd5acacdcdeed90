// SPDX-License-Identifier: Apache-2.0
// YAML with tags of its own, as CloudFormation's templates have them (`!Ref name`).
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace fairlead::kube {

// Makes the value of a node with a tag that begins with one `!` ("!Ref"); a scalar comes to it as text. An error is that of the document, with its place.
using YamlTagged = std::function<Result<Json>(std::string_view tag, Json value)>;
// parse_yaml, which passes over such tags. A key of a map cannot have one.
Result<std::vector<Json>> parse_tagged_yaml(std::string_view text, const YamlTagged& tagged);

}  // namespace fairlead::kube
