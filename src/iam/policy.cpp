// SPDX-License-Identifier: Apache-2.0
#include "iam/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "iam/condition.h"
#include "kube/json.h"

namespace fairlead::iam {

using kube::Json;

namespace {

std::unexpected<Error> wrong(const std::string& path, std::string_view why) { return fail(Code::Invalid, path.empty() ? std::string(why) : fmt::format("{}: {}", path, why)); }

// A text or a list of texts; numbers and booleans of conditions as their text.
Result<std::vector<std::string>> read_texts(const Json& json, const std::string& path, bool values = false) {
  std::vector<std::string> out;
  const auto one = [&](const Json& from, const std::string& at) -> Result<void> {
    if (from.is_string()) out.push_back(from.string());
    else if (values && (from.is_bool() || from.is_number())) out.push_back(kube::print_json(from));
    else return wrong(at, values ? "a text, a number, true or false is expected" : "a text is expected");
    return {};
  };
  if (!json.is_array()) {
    if (auto done = one(json, path); !done) return std::unexpected(std::move(done.error()));
    return out;
  }
  for (std::size_t i = 0; i < json.items().size(); ++i)
    if (auto done = one(json.items()[i], fmt::format("{}[{}]", path, i)); !done) return std::unexpected(std::move(done.error()));
  if (out.empty()) return wrong(path, "at least one is expected");
  return out;
}

// "AIDACKCEVSQ6C2EXAMPLE": what AWS writes in the place of somebody who was deleted.
bool is_unique_id(std::string_view text) { return text.size() >= 16 && text.front() == 'A' && text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == text.npos; }

Result<std::vector<Principal>> read_principals(const Json& json, const std::string& path) {
  if (json.is_string()) {
    if (json.string() != "*") return wrong(path, fmt::format("\"{}\": \"*\" is expected, or an object such as {{\"AWS\": \"arn:aws:iam::111122223333:role/name\"}}", json.string()));
    return std::vector<Principal>{{}};
  }
  if (!json.is_object() || json.members().empty()) return wrong(path, "\"*\" or an object with AWS, Service, Federated or CanonicalUser is expected");
  std::vector<Principal> out;
  constexpr std::array types{std::pair("AWS", Principal::Type::Aws), std::pair("Service", Principal::Type::Service), std::pair("Federated", Principal::Type::Federated), std::pair("CanonicalUser", Principal::Type::Canonical)};
  for (const auto& [name, value] : json.members()) {
    const auto type = std::find_if(types.begin(), types.end(), [&of = name](const auto& known) { return of == known.first; });
    if (type == types.end()) return wrong(path + "." + name, "unknown; AWS, Service, Federated and CanonicalUser are known");
    auto texts = read_texts(value, path + "." + name);
    if (!texts) return std::unexpected(std::move(texts.error()));
    for (std::string& text : *texts) {
      if (type->second == Principal::Type::Aws && text == "*") {
        out.emplace_back();
        continue;
      }
      if (type->second == Principal::Type::Aws && !is_account(text) && !is_unique_id(text) && !text.starts_with("arn:")) return wrong(path + ".AWS", fmt::format("\"{}\": an ARN, an account of twelve digits, or \"*\" is expected", text));
      if (text.find_first_of("*?") != text.npos) return wrong(path + "." + name, fmt::format("\"{}\": a principal is named whole; only \"*\" alone stands for everybody", text));
      out.push_back({type->second, std::move(text)});
    }
  }
  return out;
}

struct Operator {
  std::string_view name;
  Compare compare;
  bool negated;
};
constexpr Operator operators[] = {
    {"StringEquals", Compare::StringEquals, false}, {"StringNotEquals", Compare::StringEquals, true}, {"StringEqualsIgnoreCase", Compare::StringEqualsIgnoreCase, false}, {"StringNotEqualsIgnoreCase", Compare::StringEqualsIgnoreCase, true},
    {"StringLike", Compare::StringLike, false}, {"StringNotLike", Compare::StringLike, true},
    {"NumericEquals", Compare::NumericEquals, false}, {"NumericNotEquals", Compare::NumericEquals, true}, {"NumericLessThan", Compare::NumericLessThan, false}, {"NumericLessThanEquals", Compare::NumericLessThanEquals, false},
    {"NumericGreaterThan", Compare::NumericGreaterThan, false}, {"NumericGreaterThanEquals", Compare::NumericGreaterThanEquals, false},
    {"DateEquals", Compare::DateEquals, false}, {"DateNotEquals", Compare::DateEquals, true}, {"DateLessThan", Compare::DateLessThan, false}, {"DateLessThanEquals", Compare::DateLessThanEquals, false},
    {"DateGreaterThan", Compare::DateGreaterThan, false}, {"DateGreaterThanEquals", Compare::DateGreaterThanEquals, false},
    {"Bool", Compare::Bool, false}, {"BinaryEquals", Compare::Binary, false}, {"IpAddress", Compare::IpAddress, false}, {"NotIpAddress", Compare::IpAddress, true},
    {"ArnEquals", Compare::Arn, false}, {"ArnLike", Compare::Arn, false}, {"ArnNotEquals", Compare::Arn, true}, {"ArnNotLike", Compare::Arn, true}, {"Null", Compare::Null, false}};

Result<Condition> read_operator(const std::string& written, const std::string& path) {
  Condition out{.operation = written, .key = {}, .lookup = {}, .values = {}};
  std::string_view name = written;
  for (const auto& [prefix, quantifier] : {std::pair(std::string_view("ForAllValues:"), Quantifier::ForAllValues), std::pair(std::string_view("ForAnyValue:"), Quantifier::ForAnyValue)})
    if (name.starts_with(prefix)) {
      out.quantifier = quantifier, name.remove_prefix(prefix.size());
      break;  // one of the two
    }
  if (name.ends_with("IfExists")) out.if_exists = true, name.remove_suffix(8);
  const auto known = std::find_if(std::begin(operators), std::end(operators), [&](const Operator& one) { return one.name == name; });
  if (known == std::end(operators)) {
    std::string all;
    for (const Operator& one : operators) all += fmt::format("{}{}", all.empty() ? "" : ", ", one.name);
    return wrong(path, fmt::format("\"{}\" is no condition operator; there are {}, each also with IfExists behind it and ForAllValues: or ForAnyValue: before it", written, all));
  }
  if (known->compare == Compare::Null && out.if_exists) return wrong(path, "Null asks whether a key is there: it has no IfExists");
  out.compare = known->compare, out.negated = known->negated;
  return out;
}

Result<std::vector<Condition>> read_conditions(const Json& json, const std::string& path) {
  std::vector<Condition> out;
  if (!json.is_object()) return wrong(path, "an object of condition operators is expected");
  for (const auto& [name, keys] : json.members()) {
    const std::string at = path + "." + name;
    auto of = read_operator(name, at);
    if (!of) return std::unexpected(std::move(of.error()));
    if (!keys.is_object()) return wrong(at, "an object of keys with their values is expected");
    for (const auto& [key, values] : keys.members()) {
      if (key.empty()) return wrong(at, "a condition key is expected");
      auto texts = read_texts(values, at + "." + key, true);
      if (!texts) return std::unexpected(std::move(texts.error()));
      Condition one = *of;
      one.key = key, one.lookup = lower(key), one.values = std::move(*texts);
      for (const std::string& value : one.values)
        if (const std::string_view what = expected_value(one.compare, value); !what.empty()) return wrong(at + "." + key, fmt::format("\"{}\": {} is expected", value, what));
      out.push_back(std::move(one));
    }
  }
  return out;
}

Result<Statement> read_statement(const Json& json, const std::string& path, PolicyKind kind) {
  if (!json.is_object()) return wrong(path, "an object is expected");
  Statement out;
  bool has_effect = false, has_action = false, has_resource = false, has_principal = false;
  for (const auto& [name, value] : json.members()) {
    const std::string at = path + "." + name;
    if (name == "Sid") {
      if (!value.is_string()) return wrong(at, "a text is expected");
      out.sid = value.string();
    } else if (name == "Effect") {
      if (value.string() != "Allow" && value.string() != "Deny") return wrong(at, "Allow or Deny is expected");
      out.effect = value.string() == "Allow" ? Effect::Allow : Effect::Deny;
      has_effect = true;
    } else if (name == "Action" || name == "NotAction") {
      if (std::exchange(has_action, true)) return wrong(at, "Action and NotAction exclude one another");
      auto texts = read_texts(value, at);
      if (!texts) return std::unexpected(std::move(texts.error()));
      for (std::string& text : *texts) {
        if (text != "*" && (text.find(':') == text.npos || text.front() == ':' || text.back() == ':')) return wrong(at, fmt::format("\"{}\": SERVICE:ACTION or \"*\" is expected, such as sagemaker:DescribeCluster", text));
        text = lower(text);
      }
      out.not_actions = name == "NotAction", out.actions = std::move(*texts);
    } else if (name == "Resource" || name == "NotResource") {
      if (std::exchange(has_resource, true)) return wrong(at, "Resource and NotResource exclude one another");
      auto texts = read_texts(value, at);
      if (!texts) return std::unexpected(std::move(texts.error()));
      for (const std::string& text : *texts)
        if (text != "*" && !text.starts_with("arn:") && !text.starts_with("${")) return wrong(at, fmt::format("\"{}\": an ARN or \"*\" is expected", text));
      out.not_resources = name == "NotResource", out.resources = std::move(*texts);
    } else if (name == "Principal" || name == "NotPrincipal") {
      if (kind == PolicyKind::Identity) return wrong(at, "a policy of an identity is about that identity: it names no principal");
      if (std::exchange(has_principal, true)) return wrong(at, "Principal and NotPrincipal exclude one another");
      auto principals = read_principals(value, at);
      if (!principals) return std::unexpected(std::move(principals.error()));
      out.not_principals = name == "NotPrincipal", out.principals = std::move(*principals);
    } else if (name == "Condition") {
      auto conditions = read_conditions(value, at);
      if (!conditions) return std::unexpected(std::move(conditions.error()));
      out.conditions = std::move(*conditions);
    } else {
      return wrong(at, "unknown; Sid, Effect, Principal, NotPrincipal, Action, NotAction, Resource, NotResource and Condition are known");
    }
  }
  if (!has_effect) return wrong(path + ".Effect", "Allow or Deny is expected");
  if (!has_action) return wrong(path, "Action or NotAction is expected");
  if (!has_resource && kind == PolicyKind::Identity) return wrong(path, "Resource or NotResource is expected");
  if (!has_resource) out.resources = {"*"};  // that to which it is attached
  if (out.not_principals && out.effect == Effect::Allow) return wrong(path + ".NotPrincipal", "it goes with Deny only: with Allow everybody else, nobody excepted who comes later, would be let in");
  if (!has_principal && kind == PolicyKind::Resource) return wrong(path, "Principal or NotPrincipal is expected of a policy that is attached to a resource");
  return out;
}

}  // namespace

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool glob_matches(std::string_view pattern, std::string_view text) { return match_units(pattern, text, '*', '?'); }

bool is_account(std::string_view text) { return text.size() == 12 && text.find_first_not_of("0123456789") == text.npos; }

std::string_view arn_field(std::string_view arn, int field) {
  for (int i = 0; i < field; ++i) {
    const std::size_t colon = arn.find(':');
    if (colon == arn.npos) return {};
    arn.remove_prefix(colon + 1);
  }
  return field < 5 ? arn.substr(0, arn.find(':')) : arn;
}

Result<Policy> read_policy(std::string_view json, PolicyKind kind) {
  if (json.size() > most_policy_bytes) return fail(Code::Invalid, fmt::format("{} bytes; a policy has {} at most", json.size(), most_policy_bytes));
  std::vector<std::string> twice;
  auto read = kube::parse_json(json, {.depth_limit = 16, .duplicates = &twice});
  if (!read) return pass(std::move(read.error()), "a policy document is JSON");
  if (!twice.empty()) return wrong(twice.front(), "stands there twice: one of the two would be lost");
  if (!read->is_object()) return fail(Code::Invalid, "a policy document is an object with Version and Statement");
  Policy out;
  for (const auto& [name, value] : read->members()) {
    if (name == "Version") {
      if (value.string() != "2012-10-17" && value.string() != "2008-10-17") return wrong("Version", "2012-10-17 or 2008-10-17 is expected");
      out.variables = value.string() == "2012-10-17";
    } else if (name == "Id") {
      if (!value.is_string()) return wrong("Id", "a text is expected");
      out.id = value.string();
    } else if (name == "Statement") {
      const bool list = value.is_array();
      const std::size_t count = list ? value.items().size() : 1;
      if (count > most_statements) return wrong("Statement", fmt::format("{} of them; {} at most", count, most_statements));
      for (std::size_t i = 0; i < count; ++i) {
        auto statement = read_statement(list ? value.items()[i] : value, list ? fmt::format("Statement[{}]", i) : "Statement", kind);
        if (!statement) return std::unexpected(std::move(statement.error()));
        out.statements.push_back(std::move(*statement));
      }
    } else {
      return wrong(name, "unknown; Version, Id and Statement are known");
    }
  }
  if (!read->has("Statement")) return wrong("Statement", "a statement, or a list of them, is expected");
  return out;
}

}  // namespace fairlead::iam
