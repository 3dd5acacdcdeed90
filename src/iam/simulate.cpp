// SPDX-License-Identifier: Apache-2.0
#include "iam/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace fairlead::iam {

using kube::Json;

Json simulate(const Call& call, const Attached& attached) {
  constexpr std::array outcomes{"allowed", "explicitDeny", "implicitDeny"};
  constexpr std::array verdicts{"applies", "otherPrincipal", "otherAction", "otherResource", "conditionFails"};
  const Decision decision = decide(call, attached);
  Json statements = Json::array();
  for (const auto& [from, bundle] : {std::pair("identity", attached.identity), std::pair("boundary", attached.boundary), std::pair("session", attached.session), std::pair("resource", attached.resource)}) {
    if (bundle == nullptr) continue;
    for (const StatementView& view : bundle->explain(call)) {
      const Document& document = bundle->documents()[view.document];
      const Statement& statement = document.policy.statements[view.statement];
      Json one = Json::object({{"from", from}, {"document", document.name}, {"statement", static_cast<std::int64_t>(view.statement + 1)}});
      if (!statement.sid.empty()) one.set("sid", statement.sid);
      one.set("effect", statement.effect == Effect::Allow ? "Allow" : "Deny").set("verdict", verdicts[static_cast<std::size_t>(view.verdict)]);
      if (view.unknown) one.set("unknown", true);
      if (!view.detail.empty()) one.set("detail", view.detail);
      statements.push(std::move(one));
    }
  }
  return Json::object({{"action", call.action}, {"resource", call.resource}, {"caller", call.caller.type == Caller::Type::Anonymous ? "anonymous" : call.caller.arn}, {"decision", outcomes[static_cast<std::size_t>(decision.outcome)]}, {"reason", decision.reason}, {"statements", std::move(statements)}});
}

bool resource_must_allow(std::string_view action) {
  const std::string name = lower(action);
  return name.starts_with("kms:") || name.starts_with("sts:assumerole") || name == "sts:tagsession" || name == "sts:setsourceidentity" || name == "sts:setcontext";
}

std::vector<std::string> doubts(const Policy& policy, PolicyKind kind) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < policy.statements.size(); ++i) {
    const Statement& statement = policy.statements[i];
    const std::string at = statement.sid.empty() ? fmt::format("statement {}", i + 1) : fmt::format("statement {}", statement.sid);
    bool variables = std::any_of(statement.resources.begin(), statement.resources.end(), [](const std::string& one) { return one.find("${") != one.npos; });
    for (const Condition& condition : statement.conditions) {
      variables = variables || std::any_of(condition.values.begin(), condition.values.end(), [](const std::string& one) { return one.find("${") != one.npos; });
      if (!known_key(condition.lookup))
        out.push_back(fmt::format("{}: no condition key {} is known: {}", at, condition.key, statement.effect == Effect::Allow ? "this Allow never holds where a call does not have it" : "this Deny always holds where a call does not have it"));
    }
    if (variables && !policy.variables) out.push_back(fmt::format("{}: its ${{...}} is taken letter by letter; variables need \"Version\": \"2012-10-17\"", at));
    const auto any = [](const std::vector<std::string>& texts) { return std::find(texts.begin(), texts.end(), "*") != texts.end(); };
    if (statement.effect == Effect::Allow && !statement.not_actions && !statement.not_resources && any(statement.actions) && any(statement.resources) && statement.conditions.empty() && kind == PolicyKind::Identity)
      out.push_back(fmt::format("{}: allows everything on everything", at));
    if (statement.effect == Effect::Allow && statement.conditions.empty() && std::any_of(statement.principals.begin(), statement.principals.end(), [](const Principal& one) { return one.type == Principal::Type::Everyone; }))
      out.push_back(fmt::format("{}: lets everybody in, callers without a name too", at));
  }
  return out;
}

}  // namespace fairlead::iam
