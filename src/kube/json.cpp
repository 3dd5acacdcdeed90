// SPDX-License-Identifier: Apache-2.0
// The value itself: construction, reading, writing, comparison. Text is in json_text.cpp and yaml.cpp.
#include "kube/json.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace fairlead::kube {

namespace {

const Json& null_json() {
  static const Json null;
  return null;
}

// Exactly: 2^63 - 1 and 2^63 differ although both convert to the same double.
bool same_number(std::int64_t whole, double number) {
  if (!(number >= -9223372036854775808.0 && number < 9223372036854775808.0)) return false;
  return static_cast<double>(static_cast<std::int64_t>(number)) == number && static_cast<std::int64_t>(number) == whole;
}

bool same_members(const Json::ObjectType& a, const Json::ObjectType& b) {
  if (a.size() != b.size()) return false;
  std::size_t same_place = 0;
  while (same_place < a.size() && a[same_place].first == b[same_place].first) {
    if (!(a[same_place].second == b[same_place].second)) return false;
    ++same_place;
  }
  if (same_place == a.size()) return true;
  std::unordered_map<std::string_view, const Json*> rest;
  for (std::size_t i = same_place; i < b.size(); ++i) rest.emplace(b[i].first, &b[i].second);
  for (std::size_t i = same_place; i < a.size(); ++i) {
    const auto other = rest.find(a[i].first);
    if (other == rest.end() || !(a[i].second == *other->second)) return false;
  }
  return true;
}

}  // namespace

Json::Json() : value_(nullptr) {}
Json::Json(std::nullptr_t) : value_(nullptr) {}
Json::Json(bool value) : value_(value) {}
Json::Json(int value) : value_(static_cast<std::int64_t>(value)) {}
Json::Json(std::int64_t value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::~Json() = default;

Json Json::array() { return array({}); }
Json Json::array(std::vector<Json> items) {
  Json made;
  made.value_ = std::make_unique<ArrayType>(std::move(items));
  return made;
}
Json Json::object() { return object({}); }
Json Json::object(std::vector<JsonMember> members) {
  Json made;
  made.value_ = std::make_unique<ObjectType>(std::move(members));
  return made;
}

Json::Json(const Json& other) : value_(nullptr) {
  switch (other.type()) {
    case Type::Null: break;
    case Type::Bool: value_ = std::get<bool>(other.value_); break;
    case Type::Int: value_ = std::get<std::int64_t>(other.value_); break;
    case Type::Double: value_ = std::get<double>(other.value_); break;
    case Type::String: value_ = std::get<std::string>(other.value_); break;
    case Type::Array: value_ = std::make_unique<ArrayType>(*std::get<std::unique_ptr<ArrayType>>(other.value_)); break;
    case Type::Object: value_ = std::make_unique<ObjectType>(*std::get<std::unique_ptr<ObjectType>>(other.value_)); break;
  }
}

// A moved-from value is null, so that it can never be an object without members behind it.
Json::Json(Json&& other) noexcept : value_(std::move(other.value_)) { other.value_ = nullptr; }

Json& Json::operator=(const Json& other) { return *this = Json(other); }

Json& Json::operator=(Json&& other) noexcept {
  auto taken = std::move(other.value_);  // first: `other` may live inside this value and die with it
  other.value_ = nullptr;
  value_ = std::move(taken);
  return *this;
}

Json::Type Json::type() const { return static_cast<Type>(value_.index()); }

const std::string& Json::string() const {
  static const std::string none;
  const auto* text = std::get_if<std::string>(&value_);
  return text ? *text : none;
}

std::string Json::string_or(std::string_view otherwise) const {
  const auto* text = std::get_if<std::string>(&value_);
  return text ? *text : std::string(otherwise);
}

bool Json::boolean(bool otherwise) const {
  const auto* value = std::get_if<bool>(&value_);
  return value ? *value : otherwise;
}

std::int64_t Json::integer(std::int64_t otherwise) const {
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return *whole;
  if (const auto* number = std::get_if<double>(&value_)) {
    if (*number >= -9223372036854775808.0 && *number < 9223372036854775808.0 && std::trunc(*number) == *number) return static_cast<std::int64_t>(*number);
  }
  return otherwise;
}

double Json::number(double otherwise) const {
  if (const auto* number = std::get_if<double>(&value_)) return *number;
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
  return otherwise;
}

const Json::ArrayType& Json::items() const {
  static const ArrayType none;
  const auto* items = std::get_if<std::unique_ptr<ArrayType>>(&value_);
  return items ? **items : none;
}

const Json::ObjectType& Json::members() const {
  static const ObjectType none;
  const auto* members = std::get_if<std::unique_ptr<ObjectType>>(&value_);
  return members ? **members : none;
}

Json::ArrayType& Json::items() {
  if (is_null()) value_ = std::make_unique<ArrayType>();
  INVARIANT(is_array());
  return *std::get<std::unique_ptr<ArrayType>>(value_);
}

Json::ObjectType& Json::members() {
  if (is_null()) value_ = std::make_unique<ObjectType>();
  INVARIANT(is_object());
  return *std::get<std::unique_ptr<ObjectType>>(value_);
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : members())
    if (name == key) return &value;
  return nullptr;
}

Json* Json::find(std::string_view key) {
  const auto* found = std::as_const(*this).find(key);
  return const_cast<Json*>(found);  // this value is not const
}

const Json& Json::operator[](std::string_view key) const {
  const Json* found = find(key);
  return found ? *found : null_json();
}

const Json& Json::at(std::string_view dotted) const {
  const Json* here = this;
  while (true) {
    const auto dot = dotted.find('.');
    here = &(*here)[dotted.substr(0, dot)];
    if (dot == std::string_view::npos) return *here;
    dotted.remove_prefix(dot + 1);
  }
}

Json& Json::set(std::string_view key, Json value) {
  child(key) = std::move(value);
  return *this;
}

Json& Json::child(std::string_view key) {
  ObjectType& all = members();
  if (Json* found = find(key)) return *found;
  return all.emplace_back(std::string(key), Json()).second;
}

bool Json::erase(std::string_view key) {
  if (!is_object()) return false;
  return std::erase_if(members(), [&](const JsonMember& member) { return member.first == key; }) > 0;
}

void Json::push(Json value) { items().push_back(std::move(value)); }

bool operator==(const Json& a, const Json& b) {
  using Type = Json::Type;
  if (a.type() == Type::Int && b.type() == Type::Double) return same_number(std::get<std::int64_t>(a.value_), std::get<double>(b.value_));
  if (a.type() == Type::Double && b.type() == Type::Int) return same_number(std::get<std::int64_t>(b.value_), std::get<double>(a.value_));
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::Null: return true;
    case Type::Array: return a.items() == b.items();
    case Type::Object: return same_members(a.members(), b.members());
    case Type::Bool: return a.boolean() == b.boolean();
    case Type::Int: return std::get<std::int64_t>(a.value_) == std::get<std::int64_t>(b.value_);
    case Type::Double: return std::get<double>(a.value_) == std::get<double>(b.value_);
    case Type::String: return a.string() == b.string();
  }
  return false;
}

}  // namespace fairlead::kube
