// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/model.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/clock.h"
#include "base/encoding.h"
#include "hyperpod/text.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::string_view own_model =
#include "hyperpod/api_model.inc"
    ;

// Shapes whose pattern is relaxed: what is not made by AWS has no such name.
const std::set<std::string_view> aws_names{"AvailabilityZone", "AvailabilityZoneId", "ClusterAvailabilityZone", "ClusterAvailabilityZoneId", "ClusterDnsName", "ClusterMountName", "ClusterNetworkInterfaceId", "ClusterNodeId", "ClusterPrivateDnsHostname", "VolumeDeviceName", "VolumeId"};

using Matcher = std::function<bool(std::string_view)>;

Result<Matcher> compile(const std::string& pattern) {
  // RE2 has no lookahead; the model has two patterns with it, at their beginning.
  static constexpr std::string_view not_blank = "(?!\\s*$)", at_most_255 = "(?=.{1,255}$)";
  if (pattern.starts_with(not_blank)) {
    auto rest = compile(pattern.substr(not_blank.size()));
    if (!rest) return rest;
    return Matcher([rest = std::move(*rest)](std::string_view text) { return text.find_first_not_of(" \t\n\v\f\r") != text.npos && rest(text); });
  }
  if (pattern.starts_with(at_most_255)) {
    auto rest = compile(pattern.substr(at_most_255.size()));
    if (!rest) return rest;
    return Matcher([rest = std::move(*rest)](std::string_view text) { return !text.empty() && code_points(text) <= 255 && rest(text); });
  }
  RE2::Options options;
  options.set_log_errors(false);
  auto compiled = std::make_shared<RE2>(pattern, options);
  if (!compiled->ok()) return fail(Code::Invalid, fmt::format("pattern {}: {}", pattern, compiled->error()));
  return Matcher([compiled](std::string_view text) { return RE2::FullMatch(re2::StringPiece(text.data(), text.size()), *compiled); });
}

bool is_printable_word(std::string_view text) { return !text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; }); }

std::optional<Model::Kind> kind_of(std::string_view type) {
  using enum Model::Kind;
  static const std::map<std::string_view, Model::Kind> kinds{{"structure", Structure}, {"list", List}, {"map", Map}, {"string", String}, {"integer", Integer}, {"long", Long}, {"float", Float}, {"boolean", Boolean}, {"timestamp", Timestamp}};
  const auto found = kinds.find(type);
  return found == kinds.end() ? std::nullopt : std::optional(found->second);
}

std::string lower_camel(std::string_view name) {
  std::string out(name);
  if (!out.empty() && out[0] >= 'A' && out[0] <= 'Z') out[0] = static_cast<char>(out[0] - 'A' + 'a');
  return out;
}

std::string said(const Json& value) {
  std::string text = value.is_string() ? value.string() : kube::print_json(value);
  return text.size() > 256 ? cut(std::move(text), 256) + "..." : text;
}

const char* type_of(const Json& value) {
  switch (value.type()) {
    case Json::Type::Null: return "NULL_VALUE";
    case Json::Type::Bool: return "BOOLEAN_VALUE";
    case Json::Type::Int:
    case Json::Type::Double: return "NUMBER_VALUE";
    case Json::Type::String: return "STRING_VALUE";
    case Json::Type::Array: return "Start of list";
    case Json::Type::Object: return "Start of structure or map";
  }
  return "";
}

// One pass over a value: the first wrong type ends it, constraints are collected.
class Check {
 public:
  explicit Check(const std::vector<Model::Shape>& shapes) : shapes_(shapes) {}

  Answer<void> run(const Model::Shape& shape, const Json& value) {
    visit(shape, value, "");
    if (!wrong_type_.empty()) return refuse("SerializationException", wrong_type_);
    if (found_.empty()) return {};
    std::string text = fmt::format("{} validation error{} detected: ", found_.size() + left_out_, found_.size() + left_out_ == 1 ? "" : "s");
    for (std::size_t i = 0; i < found_.size(); ++i) text += (i == 0 ? "" : "; ") + found_[i];
    if (left_out_ > 0) text += fmt::format("; and {} more", left_out_);
    return invalid(text);
  }

 private:
  // Names are those of the model or, cut, of the client.
  static std::string below(const std::string& path, std::string_view name) { return (path.empty() ? "" : path + ".") + cut(lower_camel(name), 128); }
  void add(std::string text) {
    if (found_.size() < 20) found_.push_back(std::move(text));
    else ++left_out_;
  }
  void broken(const std::string& path, const Json& value, const std::string& rule) { add(fmt::format("Value '{}' at '{}' failed to satisfy constraint: Member must {}", said(value), path, rule)); }
  void type(const std::string& path, const Json& value, const char* wanted) {
    if (wrong_type_.empty()) wrong_type_ = fmt::format("{} at '{}' can not be converted to {}", type_of(value), path.empty() ? "." : path, wanted);
  }

  void visit(const Model::Shape& shape, const Json& value, const std::string& path) {
    if (!wrong_type_.empty()) return;
    switch (shape.kind) {
      case Model::Kind::Structure: return structure(shape, value, path);
      case Model::Kind::List: return list(shape, value, path);
      case Model::Kind::Map: return map(shape, value, path);
      case Model::Kind::String: return string(shape, value, path);
      case Model::Kind::Integer:
      case Model::Kind::Long: return integer(shape, value, path);
      case Model::Kind::Float:
        if (!value.is_number()) return type(path, value, "a Float");
        return range(shape, value, path, value.number());
      case Model::Kind::Boolean:
        if (!value.is_bool()) type(path, value, "a Boolean");
        return;
      case Model::Kind::Timestamp:
        if (!value.is_number() && !(value.is_string() && parse_time(value.string()))) return type(path, value, "a Timestamp: seconds since 1970");
        if (value.is_number() && !(value.number() >= -62135596800.0 && value.number() <= 253402300799.0)) broken(path, value, "be a time between the years 1 and 9999");
        return;
    }
  }

  void structure(const Model::Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_object()) return type(path, value, "a structure");
    std::size_t given = 0;
    for (const Model::Member& member : shape.members) {
      const Json& part = value[member.name];
      if (part.is_null()) {
        if (member.required) add(fmt::format("Value null at '{}' failed to satisfy constraint: Member must not be null", below(path, member.name)));
        continue;
      }
      ++given;
      visit(shapes_[member.shape], part, below(path, member.name));
    }
    if (shape.is_union && given != 1) broken(path, value, fmt::format("have exactly one of its members set, and has {}", given));
    for (const auto& [name, part] : value.members())
      if (std::none_of(shape.members.begin(), shape.members.end(), [&](const Model::Member& member) { return member.name == name; })) broken(below(path, name), part, "be known: this server has no such member");
  }

  void list(const Model::Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_array()) return type(path, value, "a list");
    length(shape, value, path, value.items().size());
    std::size_t at = 0;
    for (const Json& item : value.items()) {
      const std::string here = fmt::format("{}.{}.member", path, ++at);
      if (item.is_null()) add(fmt::format("Value null at '{}' failed to satisfy constraint: Member must not be null", here));
      else visit(shapes_[shape.element], item, here);
    }
  }

  void map(const Model::Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_object()) return type(path, value, "a map");
    length(shape, value, path, value.members().size());
    for (const auto& [name, part] : value.members()) {
      visit(shapes_[shape.key], Json(name), path + ".key");
      if (part.is_null()) add(fmt::format("Value null at '{}.{}.value' failed to satisfy constraint: Member must not be null", path, cut(name, 128)));
      else visit(shapes_[shape.element], part, fmt::format("{}.{}.value", path, cut(name, 128)));
    }
  }

  void string(const Model::Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_string()) return type(path, value, "a String");
    length(shape, value, path, code_points(value.string()));
    if (!shape.values.empty() && std::find(shape.values.begin(), shape.values.end(), value.string()) == shape.values.end()) broken(path, value, fmt::format("satisfy enum value set: [{}]", fmt::join(shape.values, ", ")));
    if (shape.matches && !shape.matches(value.string())) broken(path, value, "satisfy regular expression pattern: " + shape.pattern);
  }

  void integer(const Model::Shape& shape, const Json& value, const std::string& path) {
    const bool is_int = shape.kind == Model::Kind::Integer;
    const double number = value.number();
    if (!value.is_number() || number != std::floor(number)) return type(path, value, is_int ? "an Integer" : "a Long");
    const double most = is_int ? std::numeric_limits<std::int32_t>::max() : 9007199254740992.0 * 1024;
    if (number > most || number < -most - 1) return type(path, value, is_int ? "an Integer: it is out of range" : "a Long: it is out of range");
    range(shape, value, path, number);
  }

  void range(const Model::Shape& shape, const Json& value, const std::string& path, double number) {
    if (shape.most && number > *shape.most) broken(path, value, fmt::format("have value less than or equal to {}", *shape.most));
    if (shape.least && number < *shape.least) broken(path, value, fmt::format("have value greater than or equal to {}", *shape.least));
  }
  void length(const Model::Shape& shape, const Json& value, const std::string& path, std::size_t size) {
    const auto number = static_cast<double>(size);
    if (shape.most && number > *shape.most) broken(path, value, fmt::format("have length less than or equal to {}", *shape.most));
    if (shape.least && number < *shape.least) broken(path, value, fmt::format("have length greater than or equal to {}", *shape.least));
  }

  const std::vector<Model::Shape>& shapes_;
  std::vector<std::string> found_;
  std::size_t left_out_ = 0;
  std::string wrong_type_;
};

}  // namespace

Result<Model> Model::load(std::string_view text, Names names) {
  auto json = kube::parse_json(text);
  if (!json) return pass(std::move(json.error()), "service model");
  Model model;
  const auto& shapes = (*json)["shapes"].members();
  if (shapes.empty()) return fail(Code::Invalid, "service model: it has no shapes");
  for (std::size_t i = 0; i < shapes.size(); ++i) model.by_name_[shapes[i].first] = i;
  const auto index = [&](const std::string& of, const Json& name) -> Result<std::size_t> {
    const auto found = model.by_name_.find(name.string());
    if (found == model.by_name_.end()) return fail(Code::Invalid, fmt::format("service model: {} names shape \"{}\", which is not there", of, name.string()));
    return found->second;
  };
  for (const auto& [name, from] : shapes) {
    Shape shape{.name = name};
    const auto kind = kind_of(from["type"].string());
    if (!kind) return fail(Code::Invalid, fmt::format("service model: {} has type \"{}\"", name, from["type"].string()));
    shape.kind = *kind;
    shape.is_union = from["union"].boolean();
    for (const auto& [member_name, member] : from["members"].members()) {
      const auto at = index(name, member["shape"]);
      if (!at) return std::unexpected(at.error());
      shape.members.push_back({member_name, *at, member["required"].boolean()});
    }
    for (const auto& [field, into] : {std::pair<const char*, std::size_t*>{shape.kind == Kind::Map ? "value" : "member", &shape.element}, {"key", &shape.key}}) {
      if (!from.has(field)) continue;
      const auto at = index(name, from[field]);
      if (!at) return std::unexpected(at.error());
      *into = *at;
    }
    if (from.has("min")) shape.least = from["min"].number();
    if (from.has("max")) shape.most = from["max"].number();
    for (const Json& value : from["enum"].items()) shape.values.push_back(value.string());
    shape.pattern = from["pattern"].string();
    if (!shape.pattern.empty()) {
      auto matcher = compile(shape.pattern);
      if (!matcher) return pass(std::move(matcher.error()), "service model: " + name);
      shape.matches = std::move(*matcher);
      if (names == Names::Relaxed && aws_names.contains(name)) {
        shape.least = 1, shape.most = 253;
        shape.pattern = "[!-~]{1,253}";
        shape.matches = is_printable_word;
      }
    }
    model.shapes_.push_back(std::move(shape));
  }
  for (const auto& [name, from] : (*json)["operations"].members()) {
    Operation operation{.name = name, .group = from["group"].string(), .input = from["input"].string(), .output = from["output"].string()};
    for (const char* const field : {"input", "output"})
      if (from.has(field))
        if (const auto at = index(name, from[field]); !at) return std::unexpected(at.error());
    if (operation.input.empty()) return fail(Code::Invalid, fmt::format("service model: {} has no input", name));
    model.operations_[name] = std::move(operation);
  }
  return model;
}

Result<Model> Model::load_own(Names names) { return load(own_model, names); }

const Operation* Model::operation(std::string_view name) const {
  const auto found = operations_.find(name);
  return found == operations_.end() ? nullptr : &found->second;
}

const Model::Shape& Model::shape(std::string_view name) const {
  const auto found = by_name_.find(name);
  INVARIANT(found != by_name_.end());
  return shapes_[found->second];
}

Answer<void> Model::check(const Shape& shape, const Json& value) const { return Check(shapes_).run(shape, value); }

}  // namespace fairlead::hyperpod
