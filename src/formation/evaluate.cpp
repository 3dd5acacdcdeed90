// SPDX-License-Identifier: Apache-2.0
#include "formation/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "formation/pattern.h"

namespace fairlead::formation {
namespace {

constexpr std::size_t kLongestValue = 4'096;
constexpr std::size_t kMostOutputs = std::size_t{128} << 10;  // of all together
constexpr std::size_t kMostElements = 256;  // of a list that is given as a parameter
constexpr std::size_t kMostText = std::size_t{4} << 20;

template <class... Args>
std::unexpected<Error> wrong(fmt::format_string<Args...> form, Args&&... args) {
  return fail(Code::Invalid, fmt::format(form, std::forward<Args>(args)...));
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::vector<std::string> parts_of(const Parameter& parameter, const std::string& value) {
  if (!parameter.is_list()) return {value};
  std::vector<std::string> out;
  for (const std::string& part : split(value, ',')) out.push_back(trimmed(part));
  return out;
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// A hidden value is told to nobody, not even where it is wrong. `steps`: what the patterns of all parameters have taken.
Result<void> check_value(const Parameter& of, const std::string& value, std::size_t& steps) {
  const auto no = [&](const std::string& otherwise) { return wrong("Parameter '{}' {}", of.name, of.constraint.empty() ? otherwise : "failed to satisfy constraint: " + of.constraint); };
  if (value.size() > kLongestValue) return wrong("Parameter '{}' has more than {} bytes", of.name, kLongestValue);
  const std::vector<std::string> parts = parts_of(of, value);
  if (parts.size() > kMostElements) return wrong("Parameter '{}' has {} elements; a list has at most {} here", of.name, parts.size(), kMostElements);
  const auto spend = [&](std::size_t more) -> Result<void> {
    steps += more;
    if (steps > kMostPatternSteps) return wrong("Parameter '{}': AllowedPattern: the patterns of this template take too much time on these values: make them or the values shorter", of.name);
    return {};
  };
  std::optional<Pattern> pattern;
  if (!of.pattern.empty()) {
    auto made = Pattern::make(of.pattern);
    if (!made) return wrong("Parameter '{}': AllowedPattern: {}", of.name, made.error().message);
    if (auto done = spend(made->cost_to_make()); !done) return done;
    pattern = std::move(*made);
  }
  for (const std::string& part : parts) {
    if (of.type == "Number" || of.type == "List<Number>") {
      double number = 0;
      const std::string text = trimmed(part);
      const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
      const auto read = std::from_chars(begin, text.data() + text.size(), number);
      if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size() || !(number - number == 0)) return wrong("Parameter '{}' must be a number.", of.name);
      if (of.least && number < *of.least) return no(fmt::format("must be a number not less than {}", *of.least));
      if (of.most && number > *of.most) return no(fmt::format("must be a number not greater than {}", *of.most));
    }
    if (!of.allowed.empty() && std::find(of.allowed.begin(), of.allowed.end(), part) == of.allowed.end()) return no(fmt::format("must be one of AllowedValues: {}", fmt::join(of.allowed, ", ")));
    if (pattern) {
      if (auto done = spend(pattern->cost_to_match(part.size())); !done) return done;
      if (!pattern->matches_whole(part)) return no(fmt::format("must match pattern {}", of.pattern));
    }
  }
  const auto length = static_cast<std::int64_t>(characters(value));
  if (of.shortest && length < *of.shortest) return no(fmt::format("must contain at least {} characters", *of.shortest));
  if (of.longest && length > *of.longest) return no(fmt::format("must contain at most {} characters", *of.longest));
  return {};
}

}  // namespace

Result<Values> settle_parameters(const Template& of, const Values& given) {
  for (const auto& [name, value] : given)
    if (of.parameter(name) == nullptr) return wrong("Parameters: [{}] do not exist in the template", name);
  Values out;
  std::size_t steps = 0;
  std::vector<std::string> missing;
  for (const Parameter& one : of.parameters) {
    const auto found = given.find(one.name);
    if (found == given.end() && !one.fallback) {
      missing.push_back(one.name);
      continue;
    }
    const std::string& value = found == given.end() ? *one.fallback : found->second;
    if (auto done = check_value(one, value, steps); !done) return std::unexpected(done.error());
    out.emplace(one.name, value);
  }
  if (!missing.empty()) return wrong("Parameters: [{}] must have values", fmt::join(missing, ", "));
  return out;
}

// One evaluation: what it has cost, and where it stands.
struct Evaluation::Run {
  const Evaluation& in;
  const Attributes* attributes;  // null: nothing is there yet
  std::size_t spent = 0;

  using Value = std::optional<Json>;  // nothing: AWS::NoValue

  Result<void> spend(std::size_t bytes) {
    spent += bytes + 1;
    if (spent > kMostText) return wrong("the template comes to more than {} bytes of text", kMostText);
    return {};
  }
  Result<std::string> text(const Json& of, const std::string& where) {
    auto value = evaluate(of, where);
    if (!value) return std::unexpected(value.error());
    if (*value && (*value)->is_string()) return (*value)->string();
    if (*value && (*value)->is_bool()) return std::string((*value)->boolean() ? "true" : "false");
    if (*value && (*value)->is_number()) return kube::print_json(**value);
    return wrong("{}: a text is expected", where);
  }
  Result<std::vector<std::string>> texts(const Json& of, const std::string& where) {
    auto value = evaluate(of, where);
    if (!value) return std::unexpected(value.error());
    if (!*value || !(*value)->is_array()) return wrong("{}: a list is expected", where);
    std::vector<std::string> out;
    for (const Json& one : (*value)->items()) {
      if (one.is_array() || one.is_object() || one.is_null()) return wrong("{}: a list of texts is expected", where);
      out.push_back(one.is_string() ? one.string() : kube::print_json(one));
    }
    return out;
  }
  Result<std::string> attribute(const std::string& id, const std::string& name, const std::string& where) {
    if (attributes == nullptr) return wrong("{}: {} of resource {} is used. Properties are settled before anything is made here: only Outputs may use what another resource becomes; for an order alone there is DependsOn", where, name, id);
    const Resource* resource = in.of_.resource(id);
    if (resource == nullptr || !in.is_made(*resource)) return wrong("{}: resource {} is not made, by its condition", where, id);
    auto value = (*attributes)(id, name);
    if (!value) return wrong("{}: resource {} has no attribute {}", where, id, name);
    if (auto done = spend(value->size()); !done) return std::unexpected(done.error());
    return std::move(*value);
  }
  Result<Value> ref(const std::string& name, const std::string& where) {
    if (name == "AWS::NoValue") return Value();
    if (const auto found = in.parameters_.find(name); found != in.parameters_.end()) {
      if (auto done = spend(kube::print_json(found->second).size()); !done) return std::unexpected(done.error());
      return Value(found->second);
    }
    for (const auto& [pseudo, value] : {std::pair<std::string_view, std::string_view>{"AWS::AccountId", in.place_.account}, {"AWS::Region", in.place_.region}, {"AWS::StackId", in.place_.stack_id}, {"AWS::StackName", in.place_.stack_name}, {"AWS::Partition", "aws"}, {"AWS::URLSuffix", "amazonaws.com"}})
      if (name == pseudo) return Value(Json(value));
    auto value = attribute(name, "Ref", where);
    if (!value) return std::unexpected(value.error());
    return Value(Json(std::move(*value)));
  }
  Result<Value> sub(const Json& of, const std::string& where) {
    const bool with_values = of.is_array();
    const std::string form = with_values ? of.items()[0].string() : of.string();
    std::map<std::string, std::string> values;
    if (with_values)
      for (const auto& [key, value] : of.items()[1].members()) {
        auto read = text(value, where);
        if (!read) return std::unexpected(read.error());
        values.emplace(key, std::move(*read));
      }
    std::string out;
    std::size_t at = 0;
    while (true) {
      const auto begin = form.find("${", at);
      const auto end = begin == form.npos ? form.npos : form.find('}', begin);
      if (end == form.npos) break;
      out += form.substr(at, begin - at);
      const std::string name = form.substr(begin + 2, end - begin - 2);
      at = end + 1;
      std::string part;
      if (name.starts_with('!')) {
        part = "${" + name.substr(1) + "}";
      } else if (const auto found = values.find(name); found != values.end()) {
        part = found->second;
      } else if (const auto dot = name.find('.'); dot != name.npos) {
        auto value = attribute(name.substr(0, dot), name.substr(dot + 1), where);
        if (!value) return std::unexpected(value.error());
        part = std::move(*value);
      } else {
        auto value = text(Json::object({{"Ref", name}}), where);
        if (!value) return std::unexpected(value.error());
        part = std::move(*value);
      }
      if (auto done = spend(part.size()); !done) return std::unexpected(done.error());
      out += part;
    }
    out += form.substr(at);
    if (auto done = spend(out.size()); !done) return std::unexpected(done.error());
    return Value(Json(std::move(out)));
  }
  Result<Value> join(const Json& of, const std::string& where) {
    const auto between = text(of.items()[0], where);
    if (!between) return std::unexpected(between.error());
    const auto all = texts(of.items()[1], where + ": Fn::Join");
    if (!all) return std::unexpected(all.error());
    std::size_t size = 0;
    for (const std::string& one : *all) size += one.size() + between->size();
    if (auto done = spend(size); !done) return std::unexpected(done.error());
    return Value(Json(fmt::format("{}", fmt::join(*all, *between))));
  }
  Result<Value> split_text(const Json& of, const std::string& where) {
    const auto between = text(of.items()[0], where), whole = text(of.items()[1], where + ": Fn::Split");
    if (!between || !whole) return std::unexpected((between ? whole : between).error());
    if (between->empty()) return wrong("{}: Fn::Split: what it is split by is empty", where);
    Json out = Json::array();
    std::size_t at = 0, next = 0;
    for (; (next = whole->find(*between, at)) != whole->npos; at = next + between->size()) out.push(whole->substr(at, next - at));
    out.push(whole->substr(at));
    if (auto done = spend(whole->size() + out.items().size()); !done) return std::unexpected(done.error());
    return Value(std::move(out));
  }
  Result<Value> select(const Json& of, const std::string& where) {
    const auto which = text(of.items()[0], where);
    if (!which) return std::unexpected(which.error());
    const auto all = texts(of.items()[1], where + ": Fn::Select");
    if (!all) return std::unexpected(all.error());
    std::size_t index = 0;
    if (const auto read = std::from_chars(which->data(), which->data() + which->size(), index); read.ec != std::errc() || read.ptr != which->data() + which->size() || index >= all->size()) return wrong("{}: Fn::Select cannot select nonexistent value at index {}", where, *which);
    return Value(Json((*all)[index]));
  }
  Result<Value> in_map(const Json& of, const std::string& where) {
    std::vector<std::string> keys;
    for (const Json& one : of.items()) {
      auto key = text(one, where);
      if (!key) return std::unexpected(key.error());
      keys.push_back(std::move(*key));
    }
    const Json* found = &in.of_.mappings;
    for (const std::string& key : keys) found = found == nullptr ? nullptr : found->find(key);
    if (found == nullptr) return wrong("{}: Unable to get mapping for {}", where, fmt::join(keys, "::"));
    if (auto done = spend(kube::print_json(*found).size()); !done) return std::unexpected(done.error());
    return Value(*found);
  }
  Result<Value> call(const std::string& name, const Json& of, const std::string& where) {
    if (name == "Ref") return ref(of.string(), where);
    if (name == "Fn::Sub") return sub(of, where);
    if (name == "Fn::Join") return join(of, where);
    if (name == "Fn::Split") return split_text(of, where);
    if (name == "Fn::Select") return select(of, where);
    if (name == "Fn::FindInMap") return in_map(of, where);
    if (name == "Fn::If") return evaluate(of.items()[in.holds(of.items()[0].string()) ? 1 : 2], where);
    if (name == "Fn::GetAtt") {
      const std::string path = of.string();
      const auto dot = path.find('.');
      auto value = of.is_string() ? attribute(path.substr(0, dot), dot == path.npos ? "" : path.substr(dot + 1), where) : attribute(of.items()[0].string(), of.items()[1].string(), where);
      if (!value) return std::unexpected(value.error());
      return Value(Json(std::move(*value)));
    }
    if (name == "Fn::Base64") {
      const auto plain = text(of, where);
      if (!plain) return std::unexpected(plain.error());
      return Value(Json(base64(*plain)));
    }
    return wrong("{}: {} is not served here", where, name);
  }
  Result<Value> evaluate(const Json& of, const std::string& where) {
    if (auto done = spend(of.is_string() ? of.string().size() : 0); !done) return std::unexpected(done.error());
    if (of.is_array()) {
      Json out = Json::array();
      for (const Json& one : of.items()) {
        auto value = evaluate(one, where);
        if (!value) return value;
        if (*value) out.push(std::move(**value));
      }
      return Value(std::move(out));
    }
    if (!of.is_object()) return Value(of);
    if (of.members().size() == 1)
      if (const auto& [name, part] = of.members().front(); is_function(name)) return call(name, part, where);
    Json out = Json::object();
    for (const auto& [name, part] : of.members()) {
      auto value = evaluate(part, where + "." + name);
      if (!value) return value;
      if (*value) out.set(name, std::move(**value));
    }
    return Value(std::move(out));
  }
  // Circles are none: read_template has seen to that.
  Result<bool> condition(const Json& of, std::map<std::string, bool, std::less<>>& known, const std::string& where) {
    const auto& [name, part] = of.members().front();
    if (name == "Condition") return named(part.string(), known);
    if (name == "Fn::Equals") {
      if (auto done = needs(part, known); !done) return std::unexpected(done.error());
      const auto a = text(part.items()[0], where), b = text(part.items()[1], where);
      if (!a || !b) return std::unexpected((a ? b : a).error());
      return *a == *b;
    }
    bool all = true, any = false;
    for (const Json& one : part.items()) {
      const auto holds = condition(one, known, where);
      if (!holds) return holds;
      all = all && *holds, any = any || *holds;
    }
    return name == "Fn::Not" ? !any : name == "Fn::And" ? all : any;
  }
  Result<bool> named(const std::string& name, std::map<std::string, bool, std::less<>>& known) {
    if (const auto found = known.find(name); found != known.end()) return found->second;
    const auto holds = condition(in.of_.conditions[name], known, "Conditions." + name);
    if (holds) known[name] = *holds;
    return holds;
  }
  // Fn::If inside of a condition's values.
  Result<void> needs(const Json& of, std::map<std::string, bool, std::less<>>& known) {
    for (const Json& one : of.items())
      if (auto done = needs(one, known); !done) return done;
    for (const auto& [name, part] : of.members()) {
      if (name == "Fn::If")
        if (const auto holds = named(part.items()[0].string(), known); !holds) return std::unexpected(holds.error());
      if (auto done = needs(part, known); !done) return done;
    }
    return {};
  }
};

bool Evaluation::holds(const std::string& condition) const {
  if (condition.empty()) return true;
  const auto found = conditions_.find(condition);
  return found != conditions_.end() && found->second;
}

Result<Evaluation> Evaluation::make(const Template& of, const Values& parameters, Place place) {
  Evaluation out(of, std::move(place));
  for (const Parameter& one : of.parameters) {
    const auto found = parameters.find(one.name);
    if (found == parameters.end()) return wrong("Parameters: [{}] must have values", one.name);
    if (!one.is_list()) {
      out.parameters_.emplace(one.name, Json(found->second));
      continue;
    }
    Json list = Json::array();
    for (std::string& part : parts_of(one, found->second)) list.push(std::move(part));
    out.parameters_.emplace(one.name, std::move(list));
  }
  Run run{out, nullptr};
  for (const auto& [name, condition] : of.conditions.members())
    if (const auto holds = run.named(name, out.conditions_); !holds) return std::unexpected(holds.error());
  return out;
}

Result<Json> Evaluation::properties(const Resource& resource) const {
  Run run{*this, nullptr};
  auto value = run.evaluate(resource.properties, "Resources." + resource.id);
  if (!value) return std::unexpected(value.error());
  if (!*value || !(*value)->is_object()) return wrong("Resources.{}: Properties come to no object", resource.id);
  return std::move(**value);
}

Result<std::vector<Told>> Evaluation::outputs(const Attributes& attributes) const {
  Run run{*this, &attributes};
  std::vector<Told> out;
  std::size_t all = 0;
  for (const Output& one : of_.outputs) {
    if (!holds(one.condition)) continue;
    auto value = run.text(one.value, "Outputs." + one.key);
    if (!value) return std::unexpected(value.error());
    all += one.key.size() + one.description.size() + value->size();
    if (value->size() > kLongestValue || all > kMostOutputs) return wrong("Outputs.{}: an output has at most {} bytes, and all together {}", one.key, kLongestValue, kMostOutputs);
    out.push_back({one.key, one.description, std::move(*value)});
  }
  return out;
}

}  // namespace fairlead::formation
