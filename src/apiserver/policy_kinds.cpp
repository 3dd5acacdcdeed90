// SPDX-License-Identifier: Apache-2.0
#include "apiserver/policy_kinds.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>

#include "apiserver/columns.h"
#include "apiserver/rbac_kinds.h"
#include "cel/cel.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;
namespace r = kube::resources;

namespace {

constexpr std::size_t most_conditions = 64, most_notes = 20, longest_note = 5 * 1024;
// What Kubernetes' environment has and ours has not (046): told apart from what is nowhere.
constexpr std::array<std::string_view, 16> not_ours{"authorizer", "quantity", "isQuantity", "url", "isURL", "ip", "isIP", "ip.isCanonical", "cidr", "isCIDR", "format", "semver", "isSemver", "optional", "jsonpatch", "cel"};

std::string trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n\v\f";
  const auto first = text.find_first_not_of(blank), last = text.find_last_not_of(blank);
  return first == std::string_view::npos ? std::string() : std::string(text.substr(first, last - first + 1));
}

// As Go prints such lists: []string{"*", "CREATE"}.
std::string go_list(std::string_view type, const Json& list) {
  std::string out = fmt::format("[]{}{{", type);
  for (const Json& one : list.items()) out.append(out.back() == '{' ? "" : ", ").append(kube::print_json(one));
  return out + "}";
}

void default_match(Json& match) {
  if (!match.is_object()) return;
  if (match["matchPolicy"].string().empty()) match.set("matchPolicy", "Equivalent");
  for (const char* name : {"namespaceSelector", "objectSelector"})
    if (match[name].is_null()) match.set(name, Json::object());
  for (const char* name : {"resourceRules", "excludeResourceRules"})
    if (Json* rules = match.find(name); rules != nullptr && rules->is_array())
      for (Json& rule : rules->items())
        if (rule.is_object() && rule["scope"].is_null()) rule.set("scope", "*");
}

// As Go's String() prints a selector.
std::string go_selector(const Json& selector) {
  std::map<std::string, std::string> labels;
  for (const auto& [key, value] : selector["matchLabels"].members()) labels.emplace(key, value.string());
  std::string out = "&LabelSelector{MatchLabels:map[string]string{";
  for (const auto& [key, value] : labels) out += fmt::format("{}: {},", key, value);
  out += "},MatchExpressions:[]LabelSelectorRequirement{";
  for (const Json& one : selector["matchExpressions"].items()) {
    out += fmt::format("LabelSelectorRequirement{{Key:{},Operator:{},Values:[", one["key"].string(), one["operator"].string());
    for (const Json& value : one["values"].items()) out.append(out.back() == '[' ? "" : " ").append(value.string());
    out += "],},";
  }
  return out + "},}";
}

bool has_star(const Json& list) {
  return std::any_of(list.items().begin(), list.items().end(), [](const Json& one) { return one.string() == "*"; });
}

// A list that is not empty, and of "*" alone if at all.
void check_names(const std::string& at, const Json& list, std::string_view what, std::string_view go_type, FieldErrors& errors) {
  if (list.items().empty()) errors.required(at);
  if (list.items().size() > 1 && has_star(list)) errors.invalid_as(at, go_list(go_type, list), fmt::format("if '*' is present, must not specify other {}", what));
}

void check_resources(const std::string& at, const Json& list, FieldErrors& errors) {
  if (list.items().empty()) errors.required(at);
  bool all = false, every = false, plain = false;
  std::set<std::string> whole, everywhere;  // "pods/*", "*/status"
  const auto& items = list.items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string& text = items[i].string();
    if (text.empty()) errors.required(fmt::format("{}[{}]", at, i));
    all = all || text == "*/*";
    every = every || text == "*";
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) {
      plain = plain || text != "*";
      continue;
    }
    const std::string resource = text.substr(0, slash), sub = text.substr(slash + 1);
    if (whole.contains(resource)) errors.invalid(fmt::format("{}[{}]", at, i), text, fmt::format("if '{}/*' is present, must not specify {}", resource, text));
    if (everywhere.contains(sub)) errors.invalid(fmt::format("{}[{}]", at, i), text, fmt::format("if '*/{}' is present, must not specify {}", sub, text));
    if (sub == "*") whole.insert(resource);
    if (resource == "*") everywhere.insert(sub);
  }
  if (items.size() > 1 && all) errors.invalid_as(at, go_list("string", list), "if '*/*' is present, must not specify other resources");
  if (every && plain) errors.invalid_as(at, go_list("string", list), "if '*' is present, must not specify other resources without subresources");
}

void check_rule(const std::string& at, const Json& rule, FieldErrors& errors) {
  std::set<std::string> names;
  const auto& given = rule["resourceNames"].items();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string path = fmt::format("{}.resourceNames[{}]", at, i);
    if (const std::string why = check_path_segment(given[i].string()); !why.empty()) errors.invalid(path, given[i], why);
    if (!names.insert(given[i].string()).second) errors.duplicate(path, given[i]);
  }
  check_names(at + ".operations", rule["operations"], "operations", "admissionregistration.OperationType", errors);
  const auto& operations = rule["operations"].items();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const std::string& operation = operations[i].string();
    const std::string path = fmt::format("{}.operations[{}]", at, i);
    if (operation == "CONNECT") errors.not_supported_here(path, "commands in pods are not asked about");
    else if (operation != "*" && operation != "CREATE" && operation != "UPDATE" && operation != "DELETE") errors.unsupported_value(path, operation, {"*", "CONNECT", "CREATE", "DELETE", "UPDATE"});
  }
  check_names(at + ".apiGroups", rule["apiGroups"], "API groups", "string", errors);
  check_names(at + ".apiVersions", rule["apiVersions"], "API versions", "string", errors);
  const auto& versions = rule["apiVersions"].items();
  for (std::size_t i = 0; i < versions.size(); ++i)
    if (versions[i].string().empty()) errors.required(fmt::format("{}.apiVersions[{}]", at, i));
  check_resources(at + ".resources", rule["resources"], errors);
  const std::string& scope = rule["scope"].string();
  if (scope != "*" && scope != "Cluster" && scope != "Namespaced") errors.unsupported_value(at + ".scope", scope, {"*", "Cluster", "Namespaced"});
}

void check_selector(const std::string& at, const Json& selector, FieldErrors& errors) {
  if (selector.is_null()) return errors.required(at);
  if (const auto read = kube::LabelSelector::from_object(selector); !read) errors.invalid(at, selector, read.error().message);
}

void check_match(const std::string& at, const Json& match, FieldErrors& errors) {
  const std::string& policy = match["matchPolicy"].string();
  if (policy != "Equivalent" && policy != "Exact") errors.unsupported_value(at + ".matchPolicy", policy, {"Equivalent", "Exact"});
  check_selector(at + ".namespaceSelector", match["namespaceSelector"], errors);
  check_selector(at + ".objectSelector", match["objectSelector"], errors);
  for (const char* name : {"resourceRules", "excludeResourceRules"}) {
    const auto& rules = match[name].items();
    for (std::size_t i = 0; i < rules.size(); ++i) check_rule(fmt::format("{}.{}[{}]", at, name, i), rules[i], errors);
  }
}

void check_param_kind(const std::string& at, const Json& kind, FieldErrors& errors) {
  const std::string &version = kind["apiVersion"].string(), &name = kind["kind"].string();
  if (version.empty()) errors.required(at + ".apiVersion");
  else if (std::count(version.begin(), version.end(), '/') > 1) errors.invalid(at + ".apiVersion", version, fmt::format("unexpected GroupVersion string: {}", version));
  else if (version.ends_with('/')) errors.invalid(at + ".apiVersion", version, "version must be specified");
  if (name.empty()) errors.required(at + ".kind");
}

// Compiles it; false: it was refused.
bool check_expression(const std::string& at, const std::string& text, const std::set<std::string>& names, FieldErrors& errors) {
  const auto program = cel::Program::compile(text, names);
  if (program) return true;
  const std::string& why = program.error().message;
  const auto named = std::find_if(not_ours.begin(), not_ours.end(), [&](std::string_view name) { return why.find(fmt::format("undeclared reference to '{}'", name)) != std::string::npos; });
  if (named != not_ours.end()) errors.not_supported_here(at, fmt::format("its CEL has no {}", *named));
  else errors.invalid(at, text, "compilation failed: " + why);
  return false;
}

bool has_line_break(const std::string& text) { return text.find_first_of("\r\n") != std::string::npos; }

void check_qualified_name(const std::string& at, const std::string& name, FieldErrors& errors) {
  if (const std::string why = kube::check_label_key(name); !why.empty()) errors.invalid(at, name, why);
}

void check_conditions(const Json& spec, FieldErrors& errors) {
  const auto names = condition_names(spec);
  const auto& conditions = spec["matchConditions"].items();
  if (conditions.size() > most_conditions) errors.too_many("spec.matchConditions", conditions.size(), most_conditions);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    const std::string at = fmt::format("spec.matchConditions[{}]", i);
    const std::string text = trimmed(conditions[i]["expression"].string()), name = conditions[i]["name"].string();
    if (text.empty()) errors.required(at + ".expression");
    else check_expression(at + ".expression", text, names, errors);
    if (name.empty()) errors.required(at + ".name");
    else check_qualified_name(at + ".name", name, errors);
    if (!name.empty() && !seen.insert(name).second) errors.duplicate(at + ".name", name);
  }
}

bool is_identifier(const std::string& name) {
  static const re2::RE2 form("[_a-zA-Z][_a-zA-Z0-9]*");
  static const std::set<std::string> reserved{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while"};
  return re2::RE2::FullMatch(name, form) && !reserved.contains(name);
}

// Leaves the names that what follows may use.
std::set<std::string> check_variables(const Json& spec, FieldErrors& errors) {
  auto names = condition_names(spec);
  const auto& variables = spec["variables"].items();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::string at = fmt::format("spec.variables[{}]", i);
    const std::string &name = variables[i]["name"].string(), &text = variables[i]["expression"].string();
    if (trimmed(name).empty()) errors.required(at + ".name", "name is not specified");
    else if (!is_identifier(name)) errors.invalid(at + ".name", name, "name is not a valid CEL identifier");
    if (trimmed(text).empty()) errors.required(at + ".expression", "expression is not specified");
    else check_expression(at + ".expression", text, names, errors);
    names.insert(variable_name(name));
  }
  return names;
}

void check_validation(const std::string& at, const Json& one, const std::set<std::string>& names, FieldErrors& errors) {
  const std::string &text = one["expression"].string(), &message = one["message"].string(), &of = one["messageExpression"].string(), &reason = one["reason"].string();
  if (trimmed(text).empty()) errors.required(at + ".expression", "expression is not specified");
  else check_expression(at + ".expression", text, names, errors);
  if (!of.empty() && trimmed(of).empty()) errors.invalid(at + ".messageExpression", of, "must be non-empty if specified");
  else if (!of.empty()) check_expression(at + ".messageExpression", of, names, errors);
  if (!message.empty() && trimmed(message).empty()) errors.invalid(at + ".message", message, "message must be non-empty if specified");
  else if (has_line_break(trimmed(message))) errors.invalid(at + ".message", message, "message must not contain line breaks");
  constexpr std::array<std::string_view, 3> reasons{"Forbidden", "Invalid", "RequestEntityTooLarge"};  // documented is Unauthorized as well, and refused
  if (!one["reason"].is_null() && std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) errors.unsupported_value(at + ".reason", reason, {reasons.begin(), reasons.end()});
}

void check_notes(const Json& object, const std::set<std::string>& names, FieldErrors& errors) {
  const auto& notes = object["spec"]["auditAnnotations"].items();
  if (notes.size() > most_notes) errors.invalid("spec.auditAnnotations", object["spec"]["auditAnnotations"], fmt::format("must not have more than {} auditAnnotations", most_notes));
  std::set<std::string> keys;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const std::string at = fmt::format("spec.auditAnnotations[{}]", i);
    const std::string &key = notes[i]["key"].string(), text = trimmed(notes[i]["valueExpression"].string());
    if (kube::name_of(object).empty()) errors.invalid(at + ".key", key, "requires metadata.name be non-empty");
    else check_qualified_name(at + ".key", fmt::format("{}/{}", kube::name_of(object), key), errors);
    if (text.empty()) errors.required(at + ".valueExpression", "valueExpression is not specified");
    else if (text.size() > longest_note) errors.required(at + ".valueExpression", fmt::format("must not exceed {} bytes in length", longest_note));
    else check_expression(at + ".valueExpression", text, names, errors);
    if (!keys.insert(key).second) errors.duplicate(at + ".key", key);
  }
}

void check_one_policy(const Json& object, FieldErrors& errors) {
  const Json& spec = object["spec"];
  const std::string& failure = spec["failurePolicy"].string();
  if (failure != "Fail" && failure != "Ignore") errors.unsupported_value("spec.failurePolicy", failure, {"Fail", "Ignore"});
  if (!spec["paramKind"].is_null()) check_param_kind("spec.paramKind", spec["paramKind"], errors);
  const Json& match = spec["matchConstraints"];
  if (match.is_null()) {
    errors.required("spec.matchConstraints");
  } else {
    check_match("spec.matchConstraints", match, errors);
    if (match["resourceRules"].items().empty()) errors.required("spec.matchConstraints.resourceRules");
  }
  check_conditions(spec, errors);
  const auto names = check_variables(spec, errors);
  const auto& validations = spec["validations"].items();
  if (validations.empty() && spec["auditAnnotations"].items().empty()) {
    for (const char* name : {"validations", "auditAnnotations"}) errors.required(fmt::format("spec.{}", name), "validations or auditAnnotations must contain at least one item");
    return;
  }
  for (std::size_t i = 0; i < validations.size(); ++i) check_validation(fmt::format("spec.validations[{}]", i), validations[i], names, errors);
  check_notes(object, names, errors);
}

void check_param_ref(const Json& ref, FieldErrors& errors) {
  if (ref.is_null()) return;
  const std::string& name = ref["name"].string();
  const bool selects = !ref["selector"].is_null();
  if (!name.empty()) {
    if (const std::string why = check_path_segment(name); !why.empty()) errors.invalid("spec.paramRef.name", name, why);
    if (selects) errors.forbidden("spec.paramRef.name", "name and selector are mutually exclusive");
  }
  if (selects) {
    check_selector("spec.paramRef.selector", ref["selector"], errors);
    if (!name.empty()) errors.forbidden("spec.paramRef.selector", "name and selector are mutually exclusive");
  }
  if (name.empty() && !selects) errors.required("spec.paramRef", "one of name or selector must be specified");
  const std::string& action = ref["parameterNotFoundAction"].string();
  if (action.empty()) errors.required("spec.paramRef.parameterNotFoundAction");
  else if (action != "Deny" && action != "Allow") errors.unsupported_value("spec.paramRef.parameterNotFoundAction", action, {"Deny", "Allow"});
}

void check_one_binding(const Json& object, FieldErrors& errors) {
  const Json& spec = object["spec"];
  const std::string& policy = spec["policyName"].string();
  if (policy.empty()) errors.required("spec.policyName");
  else if (const std::string why = kube::check_dns_subdomain(policy); !why.empty()) errors.invalid("spec.policyName", policy, why);
  check_param_ref(spec["paramRef"], errors);
  if (!spec["matchResources"].is_null()) check_match("spec.matchResources", spec["matchResources"], errors);
  const auto& actions = spec["validationActions"].items();
  std::set<std::string> seen;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const std::string& action = actions[i].string();
    const std::string at = fmt::format("spec.validationActions[{}]", i);
    if (action != "Deny" && action != "Warn" && action != "Audit") errors.unsupported_value(at, action, {"Audit", "Deny", "Warn"});
    if (!seen.insert(action).second) errors.duplicate(at, action);
  }
  if (seen.contains("Deny") && seen.contains("Warn"))
    errors.invalid_as("spec.validationActions", go_list("admissionregistration.ValidationAction", spec["validationActions"]),
                      "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
  if (actions.empty()) errors.required("spec.validationActions", "at least one validation action is required");
}

}  // namespace

bool is_policy_kind(const kube::Resource& resource) { return resource.group == r::admission_policies.group; }

std::string variable_name(const std::string& name) { return "variables." + name; }

std::set<std::string> condition_names(const Json& policy_spec) {
  std::set<std::string> out{"object", "oldObject", "request", "namespaceObject"};
  if (!policy_spec["paramKind"].is_null()) out.insert("params");
  return out;
}

void default_policy(const kube::Resource& resource, Json& object) {
  Json* spec = object.find("spec");
  if (spec == nullptr || !spec->is_object()) return;
  const bool binding = resource == r::admission_policy_bindings;
  if (Json* match = spec->find(binding ? "matchResources" : "matchConstraints")) default_match(*match);
  if (!binding && (*spec)["failurePolicy"].is_null()) spec->set("failurePolicy", "Fail");
}

void check_policy(const kube::Resource& resource, const Json& object, FieldErrors& errors) {
  if (resource == r::admission_policy_bindings) check_one_binding(object, errors);
  else check_one_policy(object, errors);
}

void set_policy_status(Json& policy) { policy.set("status", Json::object({{"observedGeneration", policy["metadata"]["generation"]}, {"typeChecking", Json::object()}})); }

std::vector<Column> policy_columns() {
  const auto kind = [](const Json& object, Instant) {
    const Json& of = object["spec"]["paramKind"];
    return Json(of.is_null() ? std::string("<unset>") : fmt::format("{}/{}", of["apiVersion"].string(), of["kind"].string()));
  };
  return {name_column(), Column{.name = "Validations", .type = "integer", .cell = [](const Json& object, Instant) { return Json(static_cast<std::int64_t>(object["spec"]["validations"].items().size())); }},
          Column{.name = "ParamKind", .cell = kind}, age_column()};
}

std::vector<Column> policy_binding_columns() {
  const auto ref = [](const Json& object, Instant) {
    const Json& to = object["spec"]["paramRef"];
    if (to.is_null()) return Json("<unset>");
    if (to["name"].string().empty()) return Json(go_selector(to["selector"]));
    return Json(to["namespace"].string().empty() ? to["name"].string() : fmt::format("{}/{}", to["namespace"].string(), to["name"].string()));
  };
  return {name_column(), Column{.name = "PolicyName", .cell = [](const Json& object, Instant) { return object["spec"]["policyName"]; }}, Column{.name = "ParamRef", .cell = ref}, age_column()};
}

}  // namespace fairlead::apiserver
