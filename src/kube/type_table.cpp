// SPDX-License-Identifier: Apache-2.0
#include "kube/type_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::kube {

namespace {

using enum FieldType;

struct Kind {
  std::string_view api_version, kind;
  const Type* type;
};

#include "kube/type_table_data.inc"

// Where a walk is; the text is made only when somebody asks for it. Names live in the walked object.
class Path {
 public:
  void enter(std::string_view name) { steps_.push_back({name, 0}); }
  void enter(std::size_t item) { steps_.push_back({{}, item}); }
  void leave() { steps_.pop_back(); }
  std::string text() const {
    std::string out;
    for (const Step& step : steps_) {
      if (step.name.data() == nullptr) {
        out += fmt::format("[{}]", step.item);
      } else {
        if (!out.empty()) out += '.';
        out += step.name;
      }
    }
    return out;
  }

 private:
  struct Step {
    std::string_view name;  // without data: an item of a list
    std::size_t item;
  };
  std::vector<Step> steps_;
};

// Walks an object beside its type and calls visit(path, value, field) for each member; `field` is null where the type has none.
template <class Visit>
class Walk {
 public:
  explicit Walk(Visit visit) : visit_(std::move(visit)) {}

  void object(const Json& value, const Type& type) {
    for (const auto& [key, member] : value.members()) {
      path_.enter(std::string_view(key));
      const Field* found = type.find(key);
      if (visit_(std::as_const(path_), member, found) && found) field(member, *found);
      path_.leave();
    }
  }

 private:
  void field(const Json& value, const Field& field) {
    if (field.type != Message && field.type != SchemaOr) return;
    for (std::size_t i = 0; field.repeated && i < value.items().size(); ++i) at(i, value.items()[i], field);
    if (field.map)
      for (const auto& [key, member] : value.members()) at(std::string_view(key), member, field);
    if (!field.repeated && !field.map) one(value, field);
  }
  template <class Step>
  void at(Step step, const Json& value, const Field& field) {
    path_.enter(step);
    one(value, field);
    path_.leave();
  }
  void one(const Json& value, const Field& field) {
    if (field.type == Message) {
      if (!field.message->bare_list()) object(value, *field.message);
      return;
    }
    const Field* schema = field.message->find("schema");
    for (std::size_t i = 0; i < value.items().size(); ++i) at(i, value.items()[i], *schema);
    object(value, *schema->message);
  }

  Visit visit_;
  Path path_;
};

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::Type::Null: return "null";
    case Json::Type::Bool: return "boolean";
    case Json::Type::Int: return "integer";
    case Json::Type::Double: return "number";
    case Json::Type::String: return "string";
    case Json::Type::Array: return "array";
    case Json::Type::Object: return "object";
  }
  return "";
}

bool is_whole(const Json& value) { return value.is_number() && value.integer(0) == value.integer(1); }

// Go's layout for it names six digits: neither fewer nor more.
bool has_microseconds(std::string_view time) {
  const std::size_t dot = time.find_first_of(".,"), end = time.find_first_not_of("0123456789", dot == std::string_view::npos ? dot : dot + 1);
  return dot != std::string_view::npos && end != std::string_view::npos && end - dot == 7;
}

// What was expected of a single value (not a list or map); empty: fine.
std::string_view expected(const Json& value, const Field& field) {
  if (value.is_null()) return "";
  switch (field.type) {
    case String: return value.is_string() ? "" : "string";
    case Bool: return value.is_bool() ? "" : "boolean";
    case Int32: return !is_whole(value) ? "integer" : value.integer() < INT32_MIN || value.integer() > INT32_MAX ? "32-bit integer" : "";
    case Int64: return is_whole(value) ? "" : "integer";
    case Double: return value.is_number() ? "" : "number";
    case Bytes: {
      if (!value.is_string()) return "base64 string";
      std::string packed = value.string();
      std::erase_if(packed, [](char c) { return c == '\n' || c == '\r'; });  // Go's decoder skips line ends
      return parse_base64(packed) ? "" : "base64 string";
    }
    case Message:
      if (field.message->bare_list()) {
        for (const Json& item : value.items())
          if (!item.is_string()) return "array of string";
        return value.is_array() ? "" : "array of string";
      }
      return value.is_object() ? "" : "object";
    case Quantity: return kube::Quantity::from_json(value) ? "" : "quantity";
    case IntOrString: return value.is_string() || is_whole(value) ? "" : "integer or string";
    case Time: return value.is_string() && parse_time(value.string()) ? "" : "RFC 3339 time";
    case MicroTime: return value.is_string() && has_microseconds(value.string()) && parse_time(value.string()) ? "" : "RFC 3339 time with microseconds";
    case Any: return "";
    case SchemaOr:
      if (field.message->find("allows")) return value.is_object() || value.is_bool() ? "" : "object or boolean";
      return value.is_object() || value.is_array() ? "" : "object or array";
  }
  return "";
}

}  // namespace

const Field* Type::find(std::string_view json) const {
  if (json.empty()) return nullptr;
  for (const Field& field : fields) {
    // Most names differ in length or in their first letter: no call then.
    const bool alike = field.json.size() == json.size() && field.json.front() == json.front();
    if (alike && field.json == json) return &field;
    if (field.inlined && field.message)
      if (const Field* inner = field.message->find(json)) return inner;
  }
  return nullptr;
}

const Field* Type::find(std::uint32_t number) const {
  for (const Field& field : fields)
    if (field.number == number) return &field;
  return nullptr;
}

bool Type::bare_list() const { return fields.size() == 1 && fields[0].json.empty() && fields[0].repeated; }

const TypeTable& TypeTable::builtin() {
  static const TypeTable table;
  return table;
}

const Type* TypeTable::find_kind(std::string_view api_version, std::string_view kind) const {
  // Every group version registers DeleteOptions; clients send it with the one they speak.
  const bool any_version = kind == "DeleteOptions";
  for (const Kind& entry : kinds)
    if (entry.kind == kind && (any_version || entry.api_version == api_version)) return entry.type;
  return nullptr;
}

const Type* TypeTable::find(std::string_view name) const {
  for (const Type& type : types)
    if (type.name == name) return &type;
  return nullptr;
}

std::vector<const Type*> TypeTable::all() const {
  std::vector<const Type*> all;
  for (const Type& type : types) all.push_back(&type);
  return all;
}

std::string_view TypeTable::source_version() { return kube::source_version; }

std::vector<std::string> unknown_fields(const Json& object, const Type& type) {
  std::vector<std::string> unknown;
  Walk walk([&](const Path& path, const Json&, const Field* field) {
    if (!field) unknown.push_back(path.text());
    return true;
  });
  walk.object(object, type);
  return unknown;
}

std::vector<std::string> type_errors(const Json& object, const Type& type) {
  std::vector<std::string> errors;
  const auto complain = [&](const std::string& path, std::string_view want, const Json& got) {
    const bool of_text = want == "quantity" || want.starts_with("RFC 3339 time") || want == "base64 string";  // the text itself is what is wrong
    errors.push_back(fmt::format("{}: expected {}, got {}", path, want, of_text && got.is_string() ? "\"" + got.string().substr(0, 40) + "\"" : std::string(type_name(got))));
  };
  if (!object.is_object()) return {fmt::format("expected object, got {}", type_name(object))};
  Walk walk([&](const Path& path, const Json& value, const Field* field) {
    if (!field || value.is_null()) return true;
    if (field->repeated) {
      if (!value.is_array()) complain(path.text(), "array", value);
      for (std::size_t i = 0; i < value.items().size(); ++i)
        if (const auto want = expected(value.items()[i], *field); !want.empty()) complain(fmt::format("{}[{}]", path.text(), i), want, value.items()[i]);
      return true;
    }
    if (field->map) {
      if (!value.is_object()) complain(path.text(), "object", value);
      for (const auto& [key, member] : value.members())
        if (const auto want = expected(member, *field); !want.empty()) complain(path.text() + "." + key, want, member);
      return true;
    }
    if (const auto want = expected(value, *field); !want.empty()) complain(path.text(), want, value);
    return true;
  });
  walk.object(object, type);
  return errors;
}

namespace {

bool is_zero(const Json& value, const Field& field) {
  if (field.repeated || field.map) return value.is_null() || (value.is_array() && value.items().empty()) || (value.is_object() && value.members().empty());
  switch (field.type) {
    case String:
    case Bytes: return value.is_string() && value.string().empty();
    case Bool: return value.is_bool() && !value.boolean();
    case Int32:
    case Int64:
    case Double: return value.is_number() && value.number() == 0;
    default: return false;
  }
}

bool is_struct(const Field& field) { return field.type == Message && !field.repeated && !field.map && !field.inlined && !field.message->bare_list(); }

// Calls visit(object, type) for each object that a member of this type holds.
template <class Visit>
void each_inside(Json& value, const Field& field, const Visit& visit) {
  if (field.type != Message || field.message->bare_list()) return;
  if (field.repeated) {
    if (!value.is_array()) return;
    for (Json& item : value.items())
      if (item.is_object()) visit(item, *field.message);
  } else if (field.map) {
    if (!value.is_object()) return;
    for (auto& [key, item] : value.members())
      if (item.is_object()) visit(item, *field.message);
  } else if (value.is_object()) {
    visit(value, *field.message);
  }
}

void add_missing(Json& object, const Type& type) {
  for (const Field& field : type.fields) {
    if (field.inlined) {
      if (field.message && !field.atomic) add_missing(object, *field.message);
      continue;
    }
    const bool pointer = !field.required && !field.omit_empty;
    if (pointer || field.json.empty() || object.has(field.json)) continue;
    if (is_struct(field)) {
      Json inner = Json::object();
      add_missing(inner, *field.message);
      object.set(field.json, std::move(inner));
    } else if (!field.repeated && !field.map && (field.type == Time || field.type == MicroTime)) {
      object.set(field.json, nullptr);
    } else if (field.required && !field.repeated && !field.map) {
      if (field.type == String) object.set(field.json, "");
      if (field.type == Bool) object.set(field.json, false);
      if (field.type == Int32 || field.type == Int64) object.set(field.json, 0);
    }
  }
}

}  // namespace

void drop_zeros(Json& object, const Type& type) {
  if (!object.is_object()) return;
  std::erase_if(object.members(), [&](const JsonMember& member) {
    const Field* field = type.find(member.first);
    return field && field->omit_empty && is_zero(member.second, *field);
  });
  for (auto& [name, value] : object.members()) {
    const Field* field = type.find(name);
    if (field) each_inside(value, *field, [](Json& inner, const Type& of) { drop_zeros(inner, of); });
  }
}

void add_zeros(Json& object, const Type& type) {
  if (!object.is_object()) return;
  for (auto& [name, value] : object.members()) {
    const Field* field = type.find(name);
    if (field && field->json != "metadata") each_inside(value, *field, [](Json& inner, const Type& of) { add_zeros(inner, of); });
    // Of the objects inside, templates have metadata with a time that nobody sets.
    if (field && field->json == "metadata" && type.find("apiVersion") == nullptr && value.is_object()) add_missing(value, *field->message);
  }
  add_missing(object, type);
}

}  // namespace fairlead::kube
