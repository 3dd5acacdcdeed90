// SPDX-License-Identifier: Apache-2.0
// What a template says once its parameters are known: which resources, with which properties, and which outputs. Pure.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formation/template.h"

namespace fairlead::formation {

using Values = std::map<std::string, std::string>;  // of parameters, as they are given

// Those given, and defaults for the rest. Invalid: in AWS's words, of all that does not hold the first: one that is not in the template or has no value, that is not allowed, does not match, is too long or too large. Lists have 256 elements at most; patterns a budget of kMostPatternSteps, over all parameters.
Result<Values> settle_parameters(const Template& of, const Values& given);

// The pseudo parameters.
struct Place {
  std::string account, region, stack_id, stack_name;
};

// What a resource that is there is: its "Ref", or an attribute by Fn::GetAtt; nothing: it has no such attribute.
using Attributes = std::function<std::optional<std::string>(const std::string& id, const std::string& attribute)>;

struct Told {
  std::string key, description, value;
};

class Evaluation {
 public:
  // `of` must outlive it; `parameters`: as settle_parameters gives them. Invalid: a condition cannot be decided.
  static Result<Evaluation> make(const Template& of, const Values& parameters, Place place);

  bool is_made(const Resource& resource) const { return holds(resource.condition); }
  // Its Properties. Invalid: what they need of another resource is not known before that is there: refused, as all of a stack is settled before anything is made; and what a function cannot do. Text that comes to more than 4 MiB in all is refused.
  Result<Json> properties(const Resource& resource) const;
  // Each of 4,096 bytes at most.
  Result<std::vector<Told>> outputs(const Attributes& attributes) const;

 private:
  Evaluation(const Template& of, Place place) : of_(of), place_(std::move(place)) {}
  struct Run;
  bool holds(const std::string& condition) const;

  const Template& of_;
  Place place_;
  std::map<std::string, Json> parameters_;      // lists are lists
  std::map<std::string, bool, std::less<>> conditions_;
};

}  // namespace fairlead::formation
