// SPDX-License-Identifier: Apache-2.0
// Templates of CloudFormation as values: read from JSON or YAML, and checked as far as that needs no parameter. Pure. Source: docs.aws.amazon.com, CloudFormation User Guide, "Template anatomy", "Intrinsic function reference" and "Quotas".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace fairlead::formation {

using kube::Json;

inline constexpr std::size_t kTemplateBytes = 51'200;  // of a template that comes in a request

struct Parameter {
  std::string name, type;                  // String, Number, CommaDelimitedList, List<Number>
  std::string description, constraint;     // constraint: ConstraintDescription
  std::optional<std::string> fallback;     // Default
  std::vector<std::string> allowed;        // AllowedValues; empty: any
  std::string pattern;                     // AllowedPattern, of the whole value; empty: any
  std::optional<std::int64_t> shortest, longest;
  std::optional<double> least, most;
  bool hidden = false;                     // NoEcho
  bool is_list() const { return type == "CommaDelimitedList" || type == "List<Number>"; }
};

enum class DeletionPolicy : std::uint8_t { Delete, Retain, RetainExceptOnCreate };
std::string_view text(DeletionPolicy policy);

struct Resource {
  std::string id, type;                    // id: the logical one
  Json properties;                         // an object
  std::string condition;                   // empty: always
  std::vector<std::string> depends_on;
  DeletionPolicy deletion = DeletionPolicy::Delete;
};

struct Output {
  std::string key, description, condition;
  Json value, export_name;                 // export_name: null: it is exported nowhere
};

struct Template {
  std::string description;
  std::vector<Parameter> parameters;
  Json mappings, conditions;               // objects; null: none
  std::vector<Resource> resources;         // by logical id; what depends on another stands anywhere
  std::vector<Output> outputs;
  const Parameter* parameter(std::string_view name) const;
  const Resource* resource(std::string_view id) const;
};

// Invalid: a sentence in AWS's words ("Template format error: ..."). What has another meaning than people believe is refused: unknown sections and members, functions that are not there, references to nothing, circles. O(size).
Result<Template> read_template(std::string_view text);

// The functions by which a value is computed ("Fn::Sub", "Ref"); Condition is one where a condition is expected alone.
bool is_function(std::string_view name);

}  // namespace fairlead::formation
