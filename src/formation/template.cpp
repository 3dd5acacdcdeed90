// SPDX-License-Identifier: Apache-2.0
#include "formation/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <set>

#include "formation/pattern.h"
#include "kube/yaml_tags.h"

namespace fairlead::formation {
namespace {

constexpr std::size_t kMostParameters = 200, kMostMappings = 200, kMostResources = 500, kMostOutputs = 200, kMostDescription = 1'024, kMostName = 255;

constexpr std::array<std::string_view, 13> functions{"Ref", "Fn::Sub", "Fn::Join", "Fn::Select", "Fn::Split", "Fn::FindInMap", "Fn::If", "Fn::GetAtt", "Fn::Equals", "Fn::And", "Fn::Or", "Fn::Not", "Fn::Base64"};

template <class... Args>
std::unexpected<Error> wrong(fmt::format_string<Args...> form, Args&&... args) {
  return fail(Code::Invalid, "Template format error: " + fmt::format(form, std::forward<Args>(args)...));
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
  return text;
}

// !Ref x is {"Ref": "x"}, !GetAtt a.b is {"Fn::GetAtt": ["a", "b"]}, !Join [...] is {"Fn::Join": [...]}.
Result<Json> of_short_tag(std::string_view tag, Json value) {
  const std::string name(tag.substr(1));
  if (name == "Ref" || name == "Condition") {
    if (value.is_string()) value = trimmed(value.string());
    return Json::object({{name, std::move(value)}});
  }
  if (name == "GetAtt" && value.is_string()) {
    const std::string path = trimmed(value.string());
    const auto dot = path.find('.');
    if (dot == path.npos) return fail(Code::Invalid, fmt::format("!GetAtt {}: RESOURCE.ATTRIBUTE is expected", path));
    return Json::object({{"Fn::GetAtt", Json::array({Json(path.substr(0, dot)), Json(path.substr(dot + 1))})}});
  }
  return Json::object({{"Fn::" + name, std::move(value)}});
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMostName && std::ranges::all_of(text, [](unsigned char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

// A scalar as text: CloudFormation's own values know no other type.
std::optional<std::string> scalar(const Json& value) {
  if (value.is_string()) return value.string();
  if (value.is_bool()) return std::string(value.boolean() ? "true" : "false");
  if (value.is_number()) return kube::print_json(value);
  return std::nullopt;
}

Result<void> only(const Json& of, const std::string& where, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : of.members())
    if (std::find(known.begin(), known.end(), name) == known.end()) return wrong("{}: {} is no member of it, or is not served here", where, name);
  return {};
}

// `steps`: what making the patterns of all parameters has taken.
Result<Parameter> read_parameter(const std::string& name, const Json& of, std::size_t& steps) {
  Parameter out{.name = name, .type = of["Type"].string(), .description = of["Description"].string(), .constraint = of["ConstraintDescription"].string(), .fallback = {}, .allowed = {}, .pattern = {}, .shortest = {}, .longest = {}, .least = {}, .most = {}};
  const std::string where = "Parameters." + name;
  if (!is_name(name)) return wrong("{}: letters and digits are expected, {} at most", where, kMostName);
  if (!of.is_object()) return wrong("{}: an object is expected", where);
  if (auto done = only(of, where, {"Type", "Description", "ConstraintDescription", "Default", "AllowedValues", "AllowedPattern", "MinLength", "MaxLength", "MinValue", "MaxValue", "NoEcho"}); !done) return std::unexpected(done.error());
  if (out.type.empty()) return wrong("Every Parameters object must contain a Type member.");
  if (out.type != "String" && out.type != "Number" && out.type != "CommaDelimitedList" && out.type != "List<Number>") return wrong("{}: Type {} is not served here: String, Number, CommaDelimitedList and List<Number> are", where, out.type);
  if (const Json* value = of.find("Default")) {
    out.fallback = scalar(*value);
    if (!out.fallback) return wrong("{}: Default: a text or a number is expected", where);
  }
  if (const Json* values = of.find("AllowedValues")) {
    if (!values->is_array() || values->items().empty()) return wrong("{}: AllowedValues: a list is expected", where);
    for (const Json& one : values->items()) {
      auto text = scalar(one);
      if (!text) return wrong("{}: AllowedValues: texts or numbers are expected", where);
      out.allowed.push_back(std::move(*text));
    }
  }
  out.pattern = of["AllowedPattern"].string();
  if (of.has("AllowedPattern") && (out.pattern.empty() || out.type == "Number" || out.type == "List<Number>")) return wrong("{}: AllowedPattern: a regular expression for texts is expected", where);
  if (!out.pattern.empty()) {
    const auto pattern = Pattern::make(out.pattern);
    if (!pattern) return wrong("{}: AllowedPattern: {}", where, pattern.error().message);
    steps += pattern->cost_to_make();
    if (steps > kMostPatternSteps) return wrong("{}: AllowedPattern: the patterns of this template are too large: repeat less in them", where);
  }
  for (const auto& [member, into] : {std::pair<const char*, std::optional<std::int64_t>*>{"MinLength", &out.shortest}, {"MaxLength", &out.longest}}) {
    const Json* value = of.find(member);
    if (value == nullptr) continue;
    const auto text = scalar(*value);
    std::int64_t number = -1;
    if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ptr != text->data() + text->size() || number < 0 || out.type != "String") return wrong("{}: {}: a whole number, for a String", where, member);
    *into = number;
  }
  for (const auto& [member, into] : {std::pair<const char*, std::optional<double>*>{"MinValue", &out.least}, {"MaxValue", &out.most}}) {
    const Json* value = of.find(member);
    if (value == nullptr) continue;
    const auto text = scalar(*value);
    double number = 0;
    if (!text || text->empty() || std::from_chars(text->data(), text->data() + text->size(), number).ptr != text->data() + text->size() || out.type == "String" || out.type == "CommaDelimitedList") return wrong("{}: {}: a number, for a Number", where, member);
    *into = number;
  }
  if (const Json* hidden = of.find("NoEcho")) {
    const std::string word = scalar(*hidden).value_or("");
    if (word != "true" && word != "false" && word != "True" && word != "False") return wrong("{}: NoEcho: true or false is expected", where);
    out.hidden = word == "true" || word == "True";
  }
  return out;
}

Result<Resource> read_resource(const std::string& id, const Json& of) {
  Resource out{.id = id, .type = of["Type"].string(), .properties = of["Properties"], .condition = of["Condition"].string(), .depends_on = {}};
  const std::string where = "Resources." + id;
  if (!is_name(id)) return wrong("Resource name {} is non alphanumeric.", id);
  if (!of.is_object()) return wrong("{}: an object is expected", where);
  if (auto done = only(of, where, {"Type", "Properties", "Condition", "DependsOn", "DeletionPolicy", "UpdateReplacePolicy", "Metadata"}); !done) return std::unexpected(done.error());
  if (out.type.empty()) return wrong("[/Resources/{}] Every Resources object must contain a Type member.", id);
  if (out.properties.is_null()) out.properties = Json::object();
  if (!out.properties.is_object()) return wrong("{}: Properties: an object is expected", where);
  if (of.has("Condition") && out.condition.empty()) return wrong("{}: Condition: the name of one is expected", where);
  const Json& needs = of["DependsOn"];
  if (needs.is_string()) out.depends_on.push_back(needs.string());
  for (const Json& one : needs.items()) {
    if (!one.is_string()) return wrong("{}: DependsOn: logical ids are expected", where);
    out.depends_on.push_back(one.string());
  }
  if (!needs.is_null() && !needs.is_string() && !needs.is_array()) return wrong("{}: DependsOn: logical ids are expected", where);
  for (const char* const member : {"DeletionPolicy", "UpdateReplacePolicy"})
    if (const Json* policy = of.find(member)) {
      if (policy->string() == "Delete") continue;
      if (policy->string() != "Retain" && (policy->string() != "RetainExceptOnCreate" || member[0] == 'U')) return wrong("{}: {} {} is not served here: Delete and Retain are", where, member, policy->is_string() ? policy->string() : "(no text)");
      if (member[0] == 'D') out.deletion = policy->string() == "Retain" ? DeletionPolicy::Retain : DeletionPolicy::RetainExceptOnCreate;
    }
  return out;
}

Result<Output> read_output(const std::string& key, const Json& of) {
  Output out{.key = key, .description = of["Description"].string(), .condition = of["Condition"].string(), .value = of["Value"], .export_name = Json()};
  const std::string where = "Outputs." + key;
  if (!is_name(key)) return wrong("{}: letters and digits are expected, {} at most", where, kMostName);
  if (auto done = only(of, where, {"Description", "Condition", "Value", "Export"}); !done) return std::unexpected(done.error());
  if (!of.has("Value") || out.value.is_null()) return wrong("{}: a Value is expected", where);
  if (const Json* sent = of.find("Export")) {
    if (sent->members().size() != 1 || !sent->has("Name")) return wrong("{}: Export: a Name is expected", where);
    return wrong("{}: Export is not served here, as there is no Fn::ImportValue: give the value as a parameter", where);
  }
  return out;
}

Result<const Json*> section(const Json& of, const char* name, std::size_t most) {
  const Json* out = of.find(name);
  if (out == nullptr || out->is_null()) return nullptr;
  if (!out->is_object()) return wrong("{}: an object is expected", name);
  if (out->members().size() > most) return wrong("{}: {} at most", name, most);
  return out;
}

// What an expression speaks of, and that it speaks of things that are there.
class Checker {
 public:
  explicit Checker(const Template& of) : of_(of) {}

  Result<void> expression(const Json& value, const std::string& where) const {
    if (value.is_null()) return wrong("{}: 'null' values are not allowed in templates", where);
    if (value.is_array()) {
      for (const Json& one : value.items())
        if (auto done = expression(one, where); !done) return done;
      return {};
    }
    for (const auto& [name, part] : value.members()) {
      const bool function = name == "Ref" || name.starts_with("Fn::");
      if (!function) {
        if (auto done = expression(part, where); !done) return done;
        continue;
      }
      if (value.members().size() != 1) return wrong("{}: {} stands alone in its object", where, name);
      if (!is_function(name)) return wrong("{}: {} is not served here", where, name);
      if (auto done = call(name, part, where); !done) return done;
    }
    return {};
  }
  Result<void> condition(const Json& value, const std::string& where) const {
    if (value.is_object() && value.members().size() == 1) {
      const auto& [name, part] = value.members().front();
      if (name == "Condition") return named(part.string(), where);
      if (name == "Fn::Not" || name == "Fn::And" || name == "Fn::Or") {
        const std::size_t least = name == "Fn::Not" ? 1 : 2, most = name == "Fn::Not" ? 1 : 10;
        if (!part.is_array() || part.items().size() < least || part.items().size() > most) return wrong("{}: {}: a list of {} to {} conditions is expected", where, name, least, most);
        for (const Json& one : part.items())
          if (auto done = condition(one, where); !done) return done;
        return {};
      }
      if (name == "Fn::Equals") {
        if (part.items().size() != 2) return wrong("{}: Fn::Equals: two values are expected", where);
        return expression(part, where);
      }
    }
    return wrong("{}: Fn::Equals, Fn::And, Fn::Or, Fn::Not or Condition is expected", where);
  }
  Result<void> named(const std::string& name, const std::string& where) const {
    if (name.empty() || !of_.conditions.has(name)) return fail(Code::Invalid, fmt::format("Template validation error: {}: unresolved condition dependency {} in the Conditions block of the template", where, name.empty() ? "(no text)" : name));
    return {};
  }

 private:
  Result<void> refers(const std::string& to, const std::string& where) const {
    static constexpr std::array<std::string_view, 8> pseudo{"AWS::AccountId", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackId", "AWS::StackName", "AWS::URLSuffix", "AWS::NotificationARNs"};
    if (std::find(pseudo.begin(), pseudo.end() - 1, to) != pseudo.end() - 1 || of_.parameter(to) != nullptr || of_.resource(to) != nullptr) return {};
    return wrong("Unresolved resource dependencies [{}] in {}", to.empty() ? "(no text)" : to, where);
  }
  Result<void> call(const std::string& name, const Json& part, const std::string& where) const {
    if (name == "Ref") return refers(part.string(), where);
    if (name == "Fn::GetAtt") {
      const auto& path = part.items();
      if (part.is_string()) return refers_to_resource(part.string().substr(0, part.string().find('.')), where);
      if (path.size() != 2 || !path[0].is_string() || !path[1].is_string()) return wrong("{}: Fn::GetAtt: a logical id and an attribute are expected, as texts", where);
      return refers_to_resource(path[0].string(), where);
    }
    if (name == "Fn::If") {
      if (part.items().size() != 3 || !part.items()[0].is_string()) return wrong("{}: Fn::If: the name of a condition and two values are expected", where);
      if (auto done = named(part.items()[0].string(), where); !done) return done;
      for (std::size_t i : {1, 2})
        if (auto done = expression(part.items()[i], where); !done) return done;
      return {};
    }
    if (name == "Fn::Equals" || name == "Fn::And" || name == "Fn::Or" || name == "Fn::Not") return wrong("{}: {} stands in Conditions alone; name the condition by Fn::If", where, name);
    if (name == "Fn::Sub") return sub(part, where);
    const std::size_t wanted = name == "Fn::FindInMap" ? 3 : name == "Fn::Base64" ? 0 : 2;
    if (wanted != 0 && part.items().size() != wanted) return wrong("{}: {}: a list of {} is expected", where, name, wanted);
    return expression(part, where);
  }
  Result<void> refers_to_resource(const std::string& id, const std::string& where) const {
    if (of_.resource(id) == nullptr) return wrong("{}: instance of Fn::GetAtt references undefined resource {}", where, id);
    return {};
  }
  Result<void> sub(const Json& part, const std::string& where) const {
    const bool with_values = part.is_array();
    if (!part.is_string() && (part.items().size() != 2 || !part.items()[0].is_string() || !part.items()[1].is_object())) return wrong("{}: Fn::Sub: a text, or a text and an object of values is expected", where);
    static const Json none = Json::object();
    const std::string& text = with_values ? part.items()[0].string() : part.string();
    const Json& values = with_values ? part.items()[1] : none;
    for (const auto& [key, value] : values.members())
      if (auto done = expression(value, where); !done) return done;
    for (std::size_t at = 0; (at = text.find("${", at)) != text.npos;) {
      const auto end = text.find('}', at);
      if (end == text.npos) return wrong("{}: Fn::Sub: \"${{\" without an end", where);
      const std::string name = text.substr(at + 2, end - at - 2);
      at = end + 1;
      if (name.starts_with('!') || values.has(name)) continue;
      if (name.find('.') != name.npos) {
        if (auto done = refers_to_resource(name.substr(0, name.find('.')), where); !done) return done;
      } else if (auto done = refers(name, where); !done) {
        return done;
      }
    }
    return {};
  }

  const Template& of_;
};

// A name of a circle among those that need one another; nothing: there is none.
std::optional<std::string> circle(const std::map<std::string, std::vector<std::string>>& needs) {
  std::map<std::string, std::size_t> open;
  std::map<std::string, std::vector<std::string>> needed_by;
  for (const auto& [name, others] : needs) {
    const std::set<std::string> different(others.begin(), others.end());
    open[name] = different.size();
    for (const std::string& other : different) needed_by[other].push_back(name);
  }
  std::vector<std::string> free;
  for (const auto& [name, count] : open)
    if (count == 0) free.push_back(name);
  std::size_t done = 0;
  while (!free.empty()) {
    const std::string name = std::move(free.back());
    free.pop_back();
    ++done;
    for (const std::string& other : needed_by[name])
      if (--open[other] == 0) free.push_back(other);
  }
  if (done == needs.size()) return std::nullopt;
  for (const auto& [name, count] : open)
    if (count != 0) return name;
  return std::nullopt;
}

void conditions_in(const Json& value, std::vector<std::string>& out) {
  for (const Json& one : value.items()) conditions_in(one, out);
  for (const auto& [name, part] : value.members()) {
    if (name == "Condition" && part.is_string()) out.push_back(part.string());
    if (name == "Fn::If" && !part.items().empty()) out.push_back(part.items()[0].string());
    conditions_in(part, out);
  }
}

Result<void> check(const Template& of) {
  const Checker checker(of);
  std::map<std::string, std::vector<std::string>> needs;
  for (const auto& [name, value] : of.conditions.members()) {
    if (auto done = checker.condition(value, "Conditions." + name); !done) return done;
    conditions_in(value, needs[name]);
  }
  if (const auto name = circle(needs)) return wrong("Circular dependency between conditions: {}", *name);
  needs.clear();
  for (const Resource& one : of.resources) {
    const std::string where = "the Resources block of the template: " + one.id;
    if (!one.condition.empty())
      if (auto done = checker.named(one.condition, where); !done) return done;
    for (const std::string& other : one.depends_on)
      if (of.resource(other) == nullptr) return wrong("Unresolved resource dependencies [{}] in {}", other, where);
    needs[one.id] = one.depends_on;
    if (auto done = checker.expression(one.properties, where); !done) return done;
  }
  if (const auto name = circle(needs)) return fail(Code::Invalid, fmt::format("Circular dependency between resources: [{}]", *name));
  for (const Output& one : of.outputs) {
    const std::string where = "the Outputs block of the template: " + one.key;
    if (!one.condition.empty())
      if (auto done = checker.named(one.condition, where); !done) return done;
    if (auto done = checker.expression(one.value, where); !done) return done;
  }
  return {};
}

Result<Json> read_text(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return wrong("the template is empty");
  if (text[first] == '{') {
    std::vector<std::string> twice;
    auto json = kube::parse_json(text, {.depth_limit = 100, .duplicates = &twice});
    if (json && !twice.empty()) return wrong("JSON not well-formed: {} is there twice", twice.front());
    if (json) return json;
    // YAML may begin so, too.
    if (auto yaml = kube::parse_tagged_yaml(text, of_short_tag); yaml && yaml->size() == 1) return std::move(yaml->front());
    return wrong("JSON not well-formed. {}", json.error().message);
  }
  auto yaml = kube::parse_tagged_yaml(text, of_short_tag);
  if (!yaml) return wrong("YAML not well-formed. {}", yaml.error().message);
  if (yaml->size() != 1) return wrong("one document is expected, there are {}", yaml->size());
  return std::move(yaml->front());
}

}  // namespace

std::string_view text(DeletionPolicy policy) { return policy == DeletionPolicy::Delete ? "Delete" : policy == DeletionPolicy::Retain ? "Retain" : "RetainExceptOnCreate"; }

bool is_function(std::string_view name) { return std::find(functions.begin(), functions.end(), name) != functions.end(); }

const Parameter* Template::parameter(std::string_view name) const {
  for (const Parameter& one : parameters)
    if (one.name == name) return &one;
  return nullptr;
}
const Resource* Template::resource(std::string_view id) const {
  for (const Resource& one : resources)
    if (one.id == id) return &one;
  return nullptr;
}

Result<Template> read_template(std::string_view text) {
  if (text.size() > kTemplateBytes) return fail(Code::Invalid, fmt::format("Member must have length less than or equal to {}: the template has {} bytes", kTemplateBytes, text.size()));
  const auto json = read_text(text);
  if (!json) return std::unexpected(json.error());
  if (!json->is_object()) return wrong("unsupported structure.");
  for (const auto& [name, value] : json->members()) {
    static constexpr std::array<std::string_view, 8> known{"AWSTemplateFormatVersion", "Description", "Metadata", "Parameters", "Mappings", "Conditions", "Resources", "Outputs"};
    if (name == "Transform" || name == "Rules" || name == "Hooks") return wrong("{} is not served here: leave it out", name);
    if (std::find(known.begin(), known.end(), name) == known.end()) return fail(Code::Invalid, fmt::format("Invalid template property or properties [{}]", name));
  }
  if (const Json* version = json->find("AWSTemplateFormatVersion"); version != nullptr && version->string() != "2010-09-09") return wrong("unsupported value for AWSTemplateFormatVersion: 2010-09-09 is expected");
  Template out;
  if (const Json* said = json->find("Description"); said != nullptr && (!said->is_string() || said->string().size() > kMostDescription)) return wrong("Description: a text of {} bytes at most is expected", kMostDescription);
  out.description = (*json)["Description"].string();
  const auto parameters = section(*json, "Parameters", kMostParameters), mappings = section(*json, "Mappings", kMostMappings), conditions = section(*json, "Conditions", kMostResources), resources = section(*json, "Resources", kMostResources), outputs = section(*json, "Outputs", kMostOutputs);
  for (const auto* one : {&parameters, &mappings, &conditions, &resources, &outputs})
    if (!*one) return std::unexpected(one->error());
  std::size_t steps = 0;
  if (*parameters != nullptr)
    for (const auto& [name, value] : (*parameters)->members()) {
      auto one = read_parameter(name, value, steps);
      if (!one) return std::unexpected(one.error());
      out.parameters.push_back(std::move(*one));
    }
  if (*mappings != nullptr) {
    out.mappings = **mappings;
    for (const auto& [name, map] : out.mappings.members())
      for (const auto& [top, second] : map.members()) {
        if (!second.is_object() || second.members().empty()) return wrong("Every Mappings attribute must be a String or a List: Mappings.{}.{}", name, top);
        for (const auto& [key, value] : second.members()) {
          bool good = scalar(value).has_value() || value.is_array();
          for (const Json& item : value.items()) good = good && scalar(item).has_value();
          if (!good) return wrong("Every Mappings attribute must be a String or a List: Mappings.{}.{}.{}", name, top, key);
        }
      }
  }
  out.conditions = *conditions != nullptr ? **conditions : Json::object();
  if (*resources == nullptr || (*resources)->members().empty()) return wrong("At least one Resources member must be defined.");
  for (const auto& [id, value] : (*resources)->members()) {
    auto one = read_resource(id, value);
    if (!one) return std::unexpected(one.error());
    if (out.parameter(id) != nullptr) return wrong("{} is both a parameter and a resource", id);
    out.resources.push_back(std::move(*one));
  }
  std::sort(out.resources.begin(), out.resources.end(), [](const Resource& a, const Resource& b) { return a.id < b.id; });
  if (*outputs != nullptr)
    for (const auto& [key, value] : (*outputs)->members()) {
      auto one = read_output(key, value);
      if (!one) return std::unexpected(one.error());
      out.outputs.push_back(std::move(*one));
    }
  if (auto done = check(out); !done) return std::unexpected(done.error());
  return out;
}

}  // namespace fairlead::formation
