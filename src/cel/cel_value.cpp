// SPDX-License-Identifier: Apache-2.0
// Values: what JSON becomes, equality and order over kinds of numbers.
#include <charconv>
#include <cmath>
#include <compare>

#include "base/encoding.h"
#include "cel/cel_duration.h"
#include "cel/cel_node.h"

namespace fairlead::cel {

using kube::Json;

namespace {

// Exact, whatever the kinds; none: one is no number.
template <class T>
int three_way(T a, T b) {
  return a < b ? -1 : b < a ? 1 : 0;
}
int with_double(std::int64_t a, double b) {
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const auto whole = static_cast<std::int64_t>(b);
  if (a != whole) return three_way(a, whole);
  return three_way(0.0, b - static_cast<double>(whole));
}
int with_double(std::uint64_t a, double b) {
  if (b < 0) return 1;
  if (b >= 18446744073709551616.0) return -1;
  const auto whole = static_cast<std::uint64_t>(b);
  if (a != whole) return three_way(a, whole);
  return three_way(0.0, b - static_cast<double>(whole));
}

struct Numbers {
  bool both = false, ordered = false;  // ordered: none is NaN
  int order = 0;
};
Numbers numbers(const Value& a, const Value& b) {
  const auto *ai = a.get<std::int64_t>(), *bi = b.get<std::int64_t>();
  const auto *au = a.get<std::uint64_t>(), *bu = b.get<std::uint64_t>();
  const auto *ad = a.get<double>(), *bd = b.get<double>();
  if (!(ai || au || ad) || !(bi || bu || bd)) return {};
  if ((ad && std::isnan(*ad)) || (bd && std::isnan(*bd))) return {true, false, 0};
  if (ai && bi) return {true, true, three_way(*ai, *bi)};
  if (au && bu) return {true, true, three_way(*au, *bu)};
  if (ad && bd) return {true, true, three_way(*ad, *bd)};
  if (ai && bu) return {true, true, *ai < 0 ? -1 : three_way(static_cast<std::uint64_t>(*ai), *bu)};
  if (au && bi) return {true, true, *bi < 0 ? 1 : three_way(*au, static_cast<std::uint64_t>(*bi))};
  if (ai && bd) return {true, true, with_double(*ai, *bd)};
  if (au && bd) return {true, true, with_double(*au, *bd)};
  if (ad && bi) return {true, true, -with_double(*bi, *ad)};
  return {true, true, -with_double(*bu, *ad)};
}

}  // namespace

Value Value::of_json(const Json& json, const Shape* shape) {
  const Shape::Kind kind = shape == nullptr ? Shape::Kind::Plain : shape->shape_kind();
  if (json.is_bool()) return json.boolean();
  if (json.type() == Json::Type::Int) return kind == Shape::Kind::Double ? Value(static_cast<double>(json.integer())) : Value(json.integer());
  if (json.is_number()) return json.number();
  if (json.is_string()) {
    if (kind == Shape::Kind::Timestamp)
      if (const auto time = parse_time(json.string())) return *time;
    if (kind == Shape::Kind::Duration)
      if (const auto duration = parse_duration(json.string())) return *duration;
    if (kind == Shape::Kind::Bytes)
      if (auto bytes = parse_base64(json.string())) return Bytes{std::string(bytes->begin(), bytes->end())};
    return json.string();
  }
  if (json.is_null()) return {};
  return Ref{&json, shape};
}

std::string_view Value::type() const {
  if (is_list()) return "list";
  if (is_map()) return "map";
  switch (of_.index()) {
    case 0: return "null_type";
    case 1: return "bool";
    case 2: return "int";
    case 3: return "uint";
    case 4: return "double";
    case 5: return "string";
    case 6: return "bytes";
    case 10: return "google.protobuf.Timestamp";
    case 11: return "google.protobuf.Duration";
    default: return "type";
  }
}

bool Value::is_list() const {
  const Ref* ref = get<Ref>();
  return ref != nullptr ? ref->json->is_array() : get<std::shared_ptr<const List>>() != nullptr;
}
bool Value::is_map() const {
  const Ref* ref = get<Ref>();
  return ref != nullptr ? ref->json->is_object() : get<std::shared_ptr<const Map>>() != nullptr;
}
std::size_t Value::size() const {
  if (const Ref* ref = get<Ref>()) return ref->json->is_array() ? ref->json->items().size() : ref->json->members().size();
  if (const auto* list = get<std::shared_ptr<const List>>()) return (*list)->size();
  if (const auto* map = get<std::shared_ptr<const Map>>()) return (*map)->size();
  return 0;
}
Value Value::at(std::size_t i) const {
  if (const Ref* ref = get<Ref>()) return of_json(ref->json->items()[i], ref->shape == nullptr ? nullptr : ref->shape->shape_of_items());
  return (**get<std::shared_ptr<const List>>())[i];
}
std::pair<Value, Value> Value::entry(std::size_t i) const {
  if (const Ref* ref = get<Ref>()) {
    const auto& [name, member] = ref->json->members()[i];
    return {Value(name), of_json(member, ref->shape == nullptr ? nullptr : ref->shape->shape_of(name))};
  }
  return (**get<std::shared_ptr<const Map>>())[i];
}
const Value* Value::find(const Value& key, Value& room) const {
  if (const Ref* ref = get<Ref>()) {
    const std::string* name = key.get<std::string>();
    const Json* found = name == nullptr ? nullptr : ref->json->find(*name);
    if (found == nullptr) return nullptr;
    room = of_json(*found, ref->shape == nullptr ? nullptr : ref->shape->shape_of(*name));
    return &room;
  }
  for (const auto& [one, value] : **get<std::shared_ptr<const Map>>())
    if (equal(one, key)) return &value;
  return nullptr;
}

bool equal(const Value& a, const Value& b) {
  if (const Numbers both = numbers(a, b); both.both) return both.ordered && both.order == 0;
  if (a.is_list() && b.is_list()) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!equal(a.at(i), b.at(i))) return false;
    return true;
  }
  if (a.is_map() && b.is_map()) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto [key, value] = a.entry(i);
      Value room;
      const Value* other = b.find(key, room);
      if (other == nullptr || !equal(value, *other)) return false;
    }
    return true;
  }
  if (a.of().index() != b.of().index()) return false;
  if (a.get<std::nullptr_t>() != nullptr) return true;
  if (const auto* x = a.get<bool>()) return *x == *b.get<bool>();
  if (const auto* x = a.get<std::string>()) return *x == *b.get<std::string>();
  if (const auto* x = a.get<Bytes>()) return x->data == b.get<Bytes>()->data;
  if (const auto* x = a.get<Instant>()) return *x == *b.get<Instant>();
  if (const auto* x = a.get<Nanoseconds>()) return *x == *b.get<Nanoseconds>();
  if (const auto* x = a.get<Type>()) return x->name == b.get<Type>()->name;
  return false;
}

std::optional<int> compare(const Value& a, const Value& b) {
  if (const Numbers both = numbers(a, b); both.both) return both.ordered ? std::optional(both.order) : std::nullopt;
  if (a.of().index() != b.of().index()) return std::nullopt;
  if (const auto* x = a.get<bool>()) return three_way<int>(*x, *b.get<bool>());
  if (const auto* x = a.get<std::string>()) return three_way(x->compare(*b.get<std::string>()), 0);
  if (const auto* x = a.get<Bytes>()) return three_way(x->data.compare(b.get<Bytes>()->data), 0);
  if (const auto* x = a.get<Instant>()) return three_way(*x, *b.get<Instant>());
  if (const auto* x = a.get<Nanoseconds>()) return three_way(*x, *b.get<Nanoseconds>());
  return std::nullopt;
}

}  // namespace fairlead::cel
