// SPDX-License-Identifier: Apache-2.0
#include "apiserver/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "apiserver/policy_kinds.h"
#include "apiserver/registry_names.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::int64_t budget_of_all = 10 * cel::usual_budget;          // of a policy with one parameter; one expression has the usual one
constexpr std::int64_t budget_of_conditions = cel::usual_budget / 4 * 10;  // Kubernetes' RuntimeCELCostBudgetMatchConditions
constexpr std::size_t longest_message = 5 * 1024, longest_note = 10 * 1024;

std::string trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n\v\f";
  const auto first = text.find_first_not_of(blank), last = text.find_last_not_of(blank);
  return first == std::string_view::npos ? std::string() : std::string(text.substr(first, last - first + 1));
}

Json group_version(const kube::Resource& resource, const std::string& version, const char* what, const std::string& value) {
  return Json::object({{"group", resource.group}, {"version", version}, {what, value}});
}

// The variables `request` and `namespaceObject`, made when they are first named, and the policy's own ones.
class Variables final : public cel::Source {
 public:
  Variables(const Policy& policy, const PolicyCall& call, const std::string& version, const PolicyRequester& who, PolicyWorld& world, bool early)
      : policy_(policy), call_(call), version_(version), who_(who), world_(world), early_(early) {}

  Result<cel::Value> find(std::string_view name, std::int64_t& budget) override {
    if (name == "request") return request();
    if (name == "namespaceObject") return space();
    const auto known = values_.find(std::string(name));
    if (known != values_.end()) return known->second;
    const auto at = std::find_if(policy_.variables.begin(), policy_.variables.end(), [&](const auto& one) { return one.first == name; });
    if (at == policy_.variables.end() || bindings_ == nullptr) return fail(Code::Invalid, fmt::format("no such attribute: {}", name));
    // A variable that names one that names one: each is a level of this stack.
    if (depth_ >= deepest) return fail(Code::Invalid, fmt::format("variables name one another {} deep, no more than that is evaluated", deepest));
    ++depth_;
    auto value = at->second.run(*bindings_, budget, this);
    --depth_;
    if (!value) value = fail(Code::Invalid, fmt::format("composited variable \"{}\" fails to evaluate: {}", name.substr(name.find('.') + 1), value.error().message));
    values_.insert_or_assign(at->first, value);
    return value;
  }
  void bind(const cel::Bindings& bindings) { bindings_ = &bindings; }

 private:
  static constexpr int deepest = 100;
  int depth_ = 0;
  Result<cel::Value> request() {
    if (request_.is_null()) {
      const kube::Resource& of = call_.resource;
      const std::string sub(call_.subresource);
      request_ = Json::object({{"kind", group_version(of, version_, "kind", of.kind)}, {"resource", group_version(of, version_, "resource", of.plural)}});
      request_.set("requestKind", group_version(of, of.version, "kind", of.kind)).set("requestResource", group_version(of, of.version, "resource", of.plural));
      if (!sub.empty()) request_.set("subResource", sub).set("requestSubResource", sub);
      if (!call_.name.empty()) request_.set("name", call_.name);
      if (!call_.space.empty()) request_.set("namespace", call_.space);
      request_.set("operation", std::string(call_.operation)).set("userInfo", to_user_info(who_.user)).set("dryRun", who_.dry_run);
    }
    return cel::Value::of_json(request_);
  }
  Result<cel::Value> space() {
    const bool itself = call_.resource.group.empty() && call_.resource.plural == kube::resources::namespaces.plural;
    if (early_ || itself || call_.space.empty()) return cel::Value();  // match conditions are asked without it
    const auto found = world_.space();
    if (!found) return std::unexpected(found.error());
    return cel::Value::of_json(**found);
  }

  const Policy& policy_;
  const PolicyCall& call_;
  const std::string& version_;
  const PolicyRequester& who_;
  PolicyWorld& world_;
  const bool early_;
  const cel::Bindings* bindings_ = nullptr;
  Json request_;
  std::map<std::string, Result<cel::Value>> values_;
};

// One policy, one parameter (or none): what its expressions say.
class Judge {
 public:
  Judge(const Policy& policy, const PolicyCall& call, const std::string& version, const PolicyRequester& who, PolicyWorld& world, const Json* param) : policy_(policy), call_(call), version_(version), who_(who), world_(world) {
    const auto object = [](const Json* json) { return json == nullptr ? cel::Value() : cel::Value::of_json(*json); };
    bindings_ = {{"object", object(call.object)}, {"oldObject", object(call.old)}};
    if (!policy.param_kind.empty()) bindings_.emplace_back("params", object(param));
  }

  struct Decision {
    std::size_t index = 0;
    std::string message, reason;
  };
  std::vector<Decision> denied;
  std::vector<std::pair<std::string, std::string>> notes;
  std::vector<std::string> failed_notes;

  void run() {
    if (!applies()) return;
    Variables variables(policy_, call_, version_, who_, world_, false);
    variables.bind(bindings_);
    for (std::size_t i = 0; i < policy_.validations.size(); ++i) validate(i, policy_.validations[i], variables);
    left_ = budget_of_all;
    for (const Policy::Note& note : policy_.notes) annotate(note, variables);
  }

 private:
  Result<cel::Value> evaluate(const cel::Program& program, cel::Source& source, std::string_view word = "expression") {
    const std::int64_t before = std::min(left_, cel::usual_budget);
    std::int64_t budget = before;
    auto found = program.run(bindings_, budget, &source);
    left_ -= before - budget;
    if (!found) return fail(Code::Invalid, fmt::format("{} '{}' resulted in error: {}", word, program.text(), found.error().message));
    return found;
  }

  // Any condition that is false: no. Else errors count.
  bool applies() {
    left_ = budget_of_conditions;
    Variables variables(policy_, call_, version_, who_, world_, true);
    std::vector<std::string> errors;
    for (const Policy::Condition& condition : policy_.conditions) {
      const auto found = evaluate(condition.test, variables);
      const bool* truth = found ? found->get<bool>() : nullptr;
      if (!found) errors.push_back(found.error().message);
      else if (truth != nullptr && !*truth) return false;
    }
    left_ = budget_of_all;
    if (errors.empty()) return true;
    if (policy_.closed) denied.push_back({.message = errors.size() == 1 ? errors.front() : fmt::format("[{}]", fmt::join(errors, ", ")), .reason = ""});
    return false;
  }

  void validate(std::size_t index, const Policy::Validation& validation, Variables& variables) {
    const auto found = evaluate(validation.test, variables);
    if (!found) {
      if (policy_.closed) denied.push_back({index, found.error().message, ""});
      return;
    }
    if (const bool* truth = found->get<bool>(); truth != nullptr && *truth) return;
    std::string message;
    if (validation.message_of) {
      const auto made = evaluate(*validation.message_of, variables);
      const std::string* text = made ? made->get<std::string>() : nullptr;
      if (text != nullptr) message = trimmed(*text);
      if (message.size() > longest_message || message.find('\n') != std::string::npos) message.clear();
    }
    if (message.empty()) message = trimmed(validation.message);
    if (message.empty()) message = "failed expression: " + trimmed(validation.test.text());
    denied.push_back({index, std::move(message), validation.reason});
  }

  void annotate(const Policy::Note& note, Variables& variables) {
    const auto found = evaluate(note.value, variables);
    if (!found) {
      if (policy_.closed) failed_notes.push_back(found.error().message);
      return;
    }
    if (const std::string* text = found->get<std::string>()) {
      if (std::string value = trimmed(*text).substr(0, longest_note); !value.empty()) notes.emplace_back(note.key, std::move(value));
    } else if (found->get<std::nullptr_t>() == nullptr) {
      failed_notes.push_back(fmt::format("valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.", note.value.text(), found->type()));
    }
  }

  const Policy& policy_;
  const PolicyCall& call_;
  const std::string& version_;
  const PolicyRequester& who_;
  PolicyWorld& world_;
  cel::Bindings bindings_;
  std::int64_t left_ = budget_of_all;
};

class Court {
 public:
  Court(const PolicySet& set, const PolicyCall& call, const PolicyRequester& who, PolicyWorld& world) : set_(set), call_(call), who_(who), world_(world) {}

  PolicyVerdict run() {
    for (const auto& [name, policy] : set_.policies) look(*policy);
    return std::move(out_);
  }

 private:
  void deny(const Policy& policy, const PolicyBinding* binding, const std::string& reason, std::string_view message) {
    if (out_.refusal) return;
    const std::string with = binding == nullptr ? std::string() : fmt::format(" with binding '{}'", binding->name);
    out_.refusal = {reason.empty() ? "Invalid" : reason, fmt::format("ValidatingAdmissionPolicy '{}'{} denied request: {}", policy.name, with, message)};
  }
  // Something is wrong with the policy, not with the request.
  void misconfigured(const Policy& policy, const PolicyBinding* binding, const std::string& why) {
    if (policy.closed) deny(policy, binding, "", fmt::format("failed to configure {}: {}", binding == nullptr ? "policy" : "binding", why));
  }

  // Nullopt: it is not about this request. Empty: whether it is could not be told; then it counted already.
  std::optional<std::string> matches(const MatchRules& rules, const Policy& policy, const PolicyBinding* binding) {
    auto version = rules.version(call_);
    if (!version || !rules.asks_for_space(call_)) return version;
    const bool itself = call_.resource.plural == kube::resources::namespaces.plural && call_.resource.group.empty();
    if (itself) {
      const Json* space = call_.object != nullptr && call_.subresource.empty() ? call_.object : call_.old;
      return space != nullptr && rules.fits_space(*space) ? version : std::nullopt;
    }
    const auto space = world_.space();
    if (!space) {
      misconfigured(policy, binding, space.error().message);
      return std::nullopt;
    }
    return rules.fits_space(**space) ? version : std::nullopt;
  }

  void look(const Policy& policy) {
    if (!policy.match.version(call_)) return;  // most are about something else
    std::vector<const PolicyBinding*> bindings;
    for (const auto& [name, binding] : set_.bindings)
      if (binding->policy == policy.name) bindings.push_back(binding.get());
    if (bindings.empty()) return;
    const auto version = matches(policy.match, policy, nullptr);
    if (!version) return;
    if (!policy.broken.empty()) return misconfigured(policy, nullptr, policy.broken);
    std::vector<std::pair<std::string, std::string>> notes;
    for (const PolicyBinding* binding : bindings) look(policy, *binding, *version, notes);
    // Several bindings may say something under one key.
    std::map<std::string, std::vector<std::string>> by_key;
    for (auto& [key, value] : notes)
      if (auto& values = by_key[key]; std::find(values.begin(), values.end(), value) == values.end()) values.push_back(std::move(value));
    for (const auto& [key, values] : by_key) out_.notes.emplace_back(fmt::format("{}/{}", policy.name, key), fmt::format("{}", fmt::join(values, ", ")));
  }

  void look(const Policy& policy, const PolicyBinding& binding, const std::string& version, std::vector<std::pair<std::string, std::string>>& notes) {
    if (binding.match && !binding.match->broken().empty()) return misconfigured(policy, &binding, binding.match->broken());
    if (binding.match && !matches(*binding.match, policy, &binding)) return;
    auto params = params_of(policy, binding);
    if (!params) return misconfigured(policy, &binding, params.error().message);
    PolicyCall call = call_;
    Json object, old;
    if (version != call_.resource.version) {  // as the policy's author knows it
      for (const auto& [from, to, at] : {std::tuple(call_.object, &object, &call.object), std::tuple(call_.old, &old, &call.old)}) {
        if (from == nullptr) continue;
        auto converted = world_.in_version(*from, version);
        if (!converted) return misconfigured(policy, nullptr, "failed to convert object version: " + converted.error().message);
        *to = std::move(*converted);
        *at = to;
      }
    }
    for (const Json& param : *params) judge_with(policy, binding, call, version, param.is_null() ? nullptr : &param, notes);
  }

  // One null where the policy has none; empty where none are there and that is allowed.
  Result<std::vector<Json>> params_of(const Policy& policy, const PolicyBinding& binding) {
    if (policy.param_kind.empty() || binding.param_ref.is_null()) return std::vector<Json>(1);
    const Json& ref = binding.param_ref;
    PolicyWorld::ParamQuery query{policy.param_api_version, policy.param_kind, ref["name"].string(), ref["namespace"].string(), ref["selector"].is_null() ? nullptr : &ref["selector"]};
    auto found = world_.params(query);
    if (!found) return std::unexpected(std::move(found.error()));
    if (found->objects.empty() && ref["parameterNotFoundAction"].string() != "Allow") return fail(Code::NotFound, "no params found for policy binding with `Deny` parameterNotFoundAction");
    return std::move(found->objects);
  }

  void judge_with(const Policy& policy, const PolicyBinding& binding, const PolicyCall& call, const std::string& version, const Json* param, std::vector<std::pair<std::string, std::string>>& notes) {
    Judge judge(policy, call, version, who_, world_, param);
    judge.run();
    for (const Judge::Decision& decision : judge.denied) {
      if (binding.has("Deny")) deny(policy, &binding, decision.reason, decision.message);
      if (binding.has("Warn")) out_.warnings.push_back(fmt::format("Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}", policy.name, binding.name, decision.message));
      if (binding.has("Audit")) note_failure(binding, decision);
    }
    notes.insert(notes.end(), judge.notes.begin(), judge.notes.end());
    for (const std::string& why : judge.failed_notes) deny(policy, &binding, "", why);
  }

  void note_failure(const PolicyBinding& binding, const Judge::Decision& decision) {
    constexpr const char* key = "validation.policy.admission.k8s.io/validation_failure";
    if (std::any_of(out_.notes.begin(), out_.notes.end(), [&](const auto& one) { return one.first == key; })) return;  // the first one stays
    Json actions = Json::array();
    for (const std::string& action : binding.actions) actions.push(action);
    Json failure = Json::object({{"message", decision.message}, {"policy", binding.policy}, {"binding", binding.name}, {"expressionIndex", static_cast<std::int64_t>(decision.index)}});
    failure.set("validationActions", std::move(actions));
    out_.notes.emplace_back(key, print_json(Json::array({std::move(failure)})));
  }

  const PolicySet& set_;
  const PolicyCall& call_;
  const PolicyRequester& who_;
  PolicyWorld& world_;
  PolicyVerdict out_;
};

}  // namespace

Policy::Policy(const Json& object) : name(kube::name_of(object)), closed(object["spec"]["failurePolicy"].string() != "Ignore"), match(object["spec"]["matchConstraints"]) {
  const Json& spec = object["spec"];
  param_api_version = spec["paramKind"]["apiVersion"].string(), param_kind = spec["paramKind"]["kind"].string();
  broken = match.broken();
  const auto compile = [&](const std::string& text, const std::set<std::string>& names) -> std::optional<cel::Program> {
    auto program = cel::Program::compile(text, names);
    if (program) return std::move(*program);
    if (broken.empty()) broken = fmt::format("'{}': {}", text.substr(0, 200), program.error().message);
    return std::nullopt;
  };
  auto names = condition_names(spec);
  for (const Json& one : spec["matchConditions"].items())
    if (auto program = compile(trimmed(one["expression"].string()), names)) conditions.push_back({one["name"].string(), std::move(*program)});
  for (const Json& one : spec["variables"].items()) {
    const std::string variable = variable_name(one["name"].string());
    if (auto program = compile(one["expression"].string(), names)) variables.emplace_back(variable, std::move(*program));
    names.insert(variable);
  }
  for (const Json& one : spec["validations"].items()) {
    auto program = compile(one["expression"].string(), names);
    if (!program) continue;
    const std::string& of = one["messageExpression"].string();
    validations.push_back({std::move(*program), of.empty() ? std::nullopt : compile(of, names), one["message"].string(), one["reason"].string()});
  }
  for (const Json& one : spec["auditAnnotations"].items())
    if (auto program = compile(trimmed(one["valueExpression"].string()), names)) notes.push_back({one["key"].string(), std::move(*program)});
}

PolicyBinding::PolicyBinding(const Json& object) : name(kube::name_of(object)), policy(object["spec"]["policyName"].string()), param_ref(object["spec"]["paramRef"]) {
  if (const Json& rules = object["spec"]["matchResources"]; !rules.is_null()) match.emplace(rules);
  for (const Json& one : object["spec"]["validationActions"].items()) actions.push_back(one.string());
}

bool PolicyBinding::has(std::string_view action) const { return std::find(actions.begin(), actions.end(), action) != actions.end(); }

PolicyVerdict judge(const PolicySet& set, const PolicyCall& call, const PolicyRequester& who, PolicyWorld& world) { return Court(set, call, who, world).run(); }

bool is_subject_to_policies(const kube::Resource& resource) { return !is_policy_kind(resource); }

namespace {
struct ReasonRow {
  Code code;
  std::string_view reason;
  int http;
};
constexpr std::array reasons{ReasonRow{Code::Invalid, "Invalid", 422}, ReasonRow{Code::Forbidden, "Forbidden", 403}, ReasonRow{Code::Unauthorized, "Unauthorized", 401}, ReasonRow{Code::Exhausted, "RequestEntityTooLarge", 413}};
constexpr std::string_view refused = "\" is forbidden: ValidatingAdmissionPolicy '";
}  // namespace

std::unexpected<Error> policy_refusal(const kube::Resource& resource, std::string_view name, const PolicyVerdict::Refusal& refusal) {
  const auto row = std::find_if(reasons.begin(), reasons.end(), [&](const ReasonRow& one) { return one.reason == refusal.reason; });
  return fail(row == reasons.end() ? Code::Invalid : row->code, fmt::format("{} \"{}\" is forbidden: {}", resource_text(resource), name, refusal.message));
}

std::optional<PolicyStatus> policy_status(const Error& error) {
  const std::string& text = error.message;
  const std::size_t quote = text.find(" \""), end = text.find('"', quote == std::string::npos ? 0 : quote + 2);
  if (quote == std::string::npos || end == std::string::npos || text.find(' ') != quote || text.compare(end, refused.size(), refused) != 0) return std::nullopt;
  const auto row = std::find_if(reasons.begin(), reasons.end(), [&](const ReasonRow& one) { return one.code == error.code; });
  if (row == reasons.end()) return std::nullopt;
  constexpr std::size_t to_policy = std::string_view("\" is forbidden: ").size();
  return PolicyStatus{row->http, std::string(row->reason), text.substr(quote + 2, end - quote - 2), text.substr(end + to_policy)};
}

}  // namespace fairlead::apiserver
