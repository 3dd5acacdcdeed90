// SPDX-License-Identifier: Apache-2.0
// Three lines of JSON: a policy, a binding, an object. Whatever they are, nothing crashes; what was found in order compiles; and the same question has the same answer.
#include <cstddef>
#include <cstdint>

#include "apiserver/policy.h"
#include "apiserver/policy_kinds.h"
#include "kube/json.h"

namespace {
struct Nowhere : fairlead::apiserver::PolicyWorld {
  fairlead::kube::Json object;
  fairlead::Result<const fairlead::kube::Json*> space() override { return &object; }
  fairlead::Result<Params> params(const ParamQuery&) override { return Params{false, {object}}; }
  fairlead::Result<fairlead::kube::Json> in_version(const fairlead::kube::Json& of, const std::string&) override { return of; }
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  using namespace fairlead::apiserver;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<kube::Json> parts;
  while (parts.size() < 3 && !text.empty()) {
    const auto end = text.find('\n');
    auto part = kube::parse_json(text.substr(0, end));
    if (!part) return 0;
    parts.push_back(std::move(*part));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  if (parts.size() < 3) return 0;
  default_policy(kube::resources::admission_policies, parts[0]);
  default_policy(kube::resources::admission_policy_bindings, parts[1]);
  FieldErrors errors, of_binding;
  check_policy(kube::resources::admission_policies, parts[0], errors);
  check_policy(kube::resources::admission_policy_bindings, parts[1], of_binding);
  PolicySet set;
  const auto policy = std::make_shared<const Policy>(parts[0]);
  INVARIANT(!errors.empty() || policy->broken.empty());
  set.policies.emplace(policy->name, policy);
  const auto binding = std::make_shared<const PolicyBinding>(parts[1]);
  set.bindings.emplace(binding->name, binding);
  PolicyCall call{.operation = "CREATE", .resource = kube::resources::pods, .other_versions = {"v2"}, .subresource = "", .name = "x", .space = "y"};
  call.object = &parts[2];
  Nowhere world;
  world.object = parts[2];
  const User user{.name = "u", .groups = {}, .uid = {}, .extra = {}};
  const auto once = judge(set, call, {user, false}, world), twice = judge(set, call, {user, false}, world);
  INVARIANT(once.refusal.has_value() == twice.refusal.has_value() && once.warnings == twice.warnings && once.notes == twice.notes);
  INVARIANT(!once.refusal || once.refusal->message == twice.refusal->message);
  return 0;
}
