// SPDX-License-Identifier: Apache-2.0
// x-kubernetes-validations: rules in CEL of a schema's nodes (docs/design/046-cel.md). Words and paths as in apiextensions' celvalidator.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "apiserver/schema.h"
#include "apiserver/schema_node.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::int64_t budget_of_all = 10 * cel::usual_budget;  // of an object; one rule has the usual one

// What of a schema's complaints keeps rules from being asked.
constexpr const char* blocking[] = {": Required value", ": Unsupported value", ": Too long", ": Too many", " must be of type "};

// In one line, without spaces at its ends.
std::string in_one_line(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '\n' && c != '\r') out += c;
    else if (!out.empty() && out.back() != ' ') out += ' ';
  const std::size_t first = out.find_first_not_of(' '), last = out.find_last_not_of(' ');
  return first == std::string::npos ? std::string() : out.substr(first, last - first + 1);
}

class RuleChecker {
 public:
  explicit RuleChecker(FieldErrors& errors) : errors_(errors) {}

  void check(const Json& value, const Json* old, const SchemaNode& node, const std::string& path) {
    if (!node.rules || value.is_null()) return;
    if (old != nullptr && old->is_null()) old = nullptr;
    for (const SchemaRule& rule : node.own_rules) test(rule, value, old, node, path);
    if (value.is_object()) {
      for (const auto& [name, member] : value.members()) {
        const auto found = node.properties.find(name);
        const SchemaNode* child = found != node.properties.end() ? found->second.get() : node.additional.get();
        if (child != nullptr) check(member, old == nullptr || node.atomic_map ? nullptr : old->find(name), *child, path.empty() ? name : fmt::format("{}.{}", path, name));
      }
    } else if (value.is_array() && node.items) {
      for (std::size_t i = 0; i < value.items().size(); ++i) check(value.items()[i], old_item(value.items()[i], old, node), *node.items, fmt::format("{}[{}]", path, i));
    }
  }

 private:
  // Items are the same ones by their keys alone.
  static const Json* old_item(const Json& item, const Json* old, const SchemaNode& node) {
    if (old == nullptr || node.list_type != ListType::Map) return nullptr;
    for (const Json& one : old->items())
      if (std::all_of(node.list_map_keys.begin(), node.list_map_keys.end(), [&](const std::string& key) { return one[key] == item[key]; })) return &one;
    return nullptr;
  }

  Result<cel::Value> run(const cel::Program& program, const cel::Bindings& bindings) {
    const std::int64_t before = std::min(left_, cel::usual_budget);
    std::int64_t budget = before;
    auto found = program.run(bindings, budget);
    left_ -= before - budget;
    return found;
  }

  void test(const SchemaRule& rule, const Json& value, const Json* old, const SchemaNode& node, const std::string& path) {
    if (rule.transition && old == nullptr) return;
    cel::Bindings bindings{{"self", cel::Value::of_json(value, &node)}};
    if (old != nullptr) bindings.emplace_back("oldSelf", cel::Value::of_json(*old, &node));
    const auto found = run(rule.test, bindings);
    const bool* fits = found ? found->get<bool>() : nullptr;
    if (fits != nullptr && *fits) return;
    if (old != nullptr && !rule.transition && *old == value) return;  // it was so before
    std::string why;
    if (fits == nullptr) why = fmt::format("{} evaluating rule: {}", found ? "no such overload" : found.error().message, in_one_line(rule.message.empty() ? rule.test.text() : rule.message));
    else why = message(rule, bindings);
    std::string at = path + (path.empty() && rule.field_path.starts_with('.') ? rule.field_path.substr(1) : rule.field_path);
    if (node.additional && rule.field_path.starts_with('.')) at = fmt::format("{}.[{}]", path, rule.field_path.substr(1));  // a key of a map
    if (at.empty()) at = "<nil>";
    if (rule.reason == "FieldValueForbidden") errors_.forbidden(at, why);
    else if (rule.reason == "FieldValueRequired") errors_.required(at, why);
    else if (rule.reason == "FieldValueDuplicate") errors_.duplicate(at, node.type);
    else errors_.invalid(at, node.type, why);
  }

  std::string message(const SchemaRule& rule, const cel::Bindings& bindings) {
    if (rule.message_of) {
      const auto found = run(*rule.message_of, bindings);
      const std::string* text = found ? found->get<std::string>() : nullptr;
      if (text != nullptr && text->find('\n') == std::string::npos && text->size() <= 5'120)
        if (std::string shown = in_one_line(*text); !shown.empty()) return shown;
    }
    return rule.message.empty() ? "failed rule: " + in_one_line(rule.test.text()) : in_one_line(rule.message);
  }

  FieldErrors& errors_;
  std::int64_t left_ = budget_of_all;
};

void collect_left_out(const SchemaNode& node, const std::string& path, std::vector<std::string>& out) {
  for (const std::string& one : node.rules_left_out) out.push_back(path.empty() ? one : fmt::format("{}: {}", path, one));
  for (const auto& [name, child] : node.properties) collect_left_out(*child, path.empty() ? name : fmt::format("{}.{}", path, name), out);
  if (node.additional) collect_left_out(*node.additional, path + ".*", out);
  if (node.items) collect_left_out(*node.items, path + "[]", out);
}

}  // namespace

cel::Shape::Kind SchemaNode::shape_kind() const {
  if (type == "number") return Kind::Double;
  if (type != "string") return Kind::Plain;
  return format == "date-time" ? Kind::Timestamp : format == "duration" ? Kind::Duration : format == "byte" ? Kind::Bytes : Kind::Plain;
}

const cel::Shape* SchemaNode::shape_of(std::string_view member) const {
  const auto found = properties.find(member);
  return found != properties.end() ? found->second.get() : additional.get();
}

void compile_rules(const Json& from, SchemaNode& node) {
  for (const Json& one : from.items()) {
    const std::string& text = one["rule"].string();
    const auto leave_out = [&](const std::string& why) { node.rules_left_out.push_back(fmt::format("\"{}\": {}", in_one_line(text).substr(0, 200), why)); };
    if (one["optionalOldSelf"].boolean()) {
      leave_out("optionalOldSelf is not supported");
      continue;
    }
    auto test = cel::Program::compile(text, {"self", "oldSelf"});
    if (!test) {
      leave_out(test.error().message);
      continue;
    }
    SchemaRule rule{.test = std::move(*test), .message_of = {}, .message = one["message"].string(), .reason = one["reason"].string(), .field_path = one["fieldPath"].string()};
    rule.transition = rule.test.uses("oldSelf");
    if (const std::string& expression = one["messageExpression"].string(); !expression.empty()) {
      if (auto message = cel::Program::compile(expression, {"self", "oldSelf"})) rule.message_of = std::move(*message);
      else leave_out("its messageExpression (the rule holds, with its message): " + message.error().message);
    }
    node.own_rules.push_back(std::move(rule));
  }
}

void check_rules(const SchemaNode& root, const Json& object, const Json* old, FieldErrors& errors) {
  const bool blocked = std::any_of(errors.texts().begin(), errors.texts().end(), [](const std::string& text) {
    return std::any_of(std::begin(blocking), std::end(blocking), [&](const char* part) { return text.find(part) != std::string::npos; });
  });
  if (blocked) errors.add("<nil>: Invalid value: \"null\": some validation rules were not checked because the object was invalid; correct the existing errors to complete validation");
  else RuleChecker(errors).check(object, old, root, "");
}

std::vector<std::string> Schema::rules_left_out() const {
  std::vector<std::string> out;
  collect_left_out(*root_, "", out);
  return out;
}

}  // namespace fairlead::apiserver
