// SPDX-License-Identifier: Apache-2.0
// Evaluation of the tree.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cel/cel_node.h"

namespace fairlead::cel {

std::unexpected<Error> wrong(std::string text) { return fail(Code::Invalid, std::move(text)); }
std::unexpected<Error> too_dear() { return wrong("the expression takes too many steps: cost limit exceeded"); }
std::unexpected<Error> no_overload() { return wrong("no such overload"); }

std::shared_ptr<const re2::RE2> make_pattern(const std::string& text) {
  re2::RE2::Options options(re2::RE2::Quiet);
  options.set_max_mem(1 << 20);
  auto out = std::make_shared<re2::RE2>(text, options);
  return out->ok() ? out : nullptr;
}

namespace {

Result<Value> bounded(__int128 value) {
  if (value > INT64_MAX || value < INT64_MIN) return wrong("integer overflow");
  return Value(static_cast<std::int64_t>(value));
}
Result<Value> bounded_uint(__int128 value) {
  if (value > static_cast<__int128>(UINT64_MAX) || value < 0) return wrong("unsigned integer overflow");
  return Value(static_cast<std::uint64_t>(value));
}
Result<Value> bounded_time(__int128 value) {
  if (value > INT64_MAX || value < INT64_MIN) return wrong("timestamp overflow");
  return Value(Instant(Nanoseconds(static_cast<std::int64_t>(value))));
}
Result<Value> bounded_duration(__int128 value) {
  if (value > INT64_MAX || value < INT64_MIN) return wrong("duration overflow");
  return Value(Nanoseconds(static_cast<std::int64_t>(value)));
}

template <class Bound>
Result<Value> whole_numbers(Node::Op op, __int128 a, __int128 b, const Bound& bound) {
  switch (op) {
    case Node::Op::Add: return bound(a + b);
    case Node::Op::Subtract: return bound(a - b);
    case Node::Op::Multiply: return bound(a * b);
    case Node::Op::Divide: return b == 0 ? wrong("division by zero") : bound(a / b);
    case Node::Op::Modulo: return b == 0 ? wrong("modulus by zero") : bound(a % b);
    default: return no_overload();
  }
}

Result<Value> arithmetic(Machine& machine, Node::Op op, const Value& a, const Value& b) {
  if (const auto *x = a.get<std::int64_t>(), *y = b.get<std::int64_t>(); x != nullptr && y != nullptr) return whole_numbers(op, *x, *y, bounded);
  if (const auto *x = a.get<std::uint64_t>(), *y = b.get<std::uint64_t>(); x != nullptr && y != nullptr) return whole_numbers(op, static_cast<__int128>(*x), static_cast<__int128>(*y), bounded_uint);
  if (const auto *x = a.get<double>(), *y = b.get<double>(); x != nullptr && y != nullptr) {
    switch (op) {
      case Node::Op::Add: return Value(*x + *y);
      case Node::Op::Subtract: return Value(*x - *y);
      case Node::Op::Multiply: return Value(*x * *y);
      case Node::Op::Divide: return Value(*x / *y);
      default: return no_overload();
    }
  }
  const auto *at = a.get<Instant>(), *bt = b.get<Instant>();
  const auto *ad = a.get<Nanoseconds>(), *bd = b.get<Nanoseconds>();
  const auto nanos = [](const Instant& time) { return static_cast<__int128>(time.time_since_epoch().count()); };
  if (op == Node::Op::Add) {
    if (const auto *x = a.get<std::string>(), *y = b.get<std::string>(); x != nullptr && y != nullptr) {
      if (!machine.spend((x->size() + y->size()) / 64)) return too_dear();
      return Value(*x + *y);
    }
    if (const auto *x = a.get<Bytes>(), *y = b.get<Bytes>(); x != nullptr && y != nullptr) {
      if (!machine.spend((x->data.size() + y->data.size()) / 64)) return too_dear();
      return Value(Bytes{x->data + y->data});
    }
    if (a.is_list() && b.is_list()) {
      if (!machine.spend(a.size() + b.size())) return too_dear();
      auto out = std::make_shared<List>();
      for (std::size_t i = 0; i < a.size(); ++i) out->push_back(a.at(i));
      for (std::size_t i = 0; i < b.size(); ++i) out->push_back(b.at(i));
      return Value(std::shared_ptr<const List>(std::move(out)));
    }
    if (at && bd) return bounded_time(nanos(*at) + bd->count());
    if (ad && bt) return bounded_time(nanos(*bt) + ad->count());
    if (ad && bd) return bounded_duration(static_cast<__int128>(ad->count()) + bd->count());
  }
  if (op == Node::Op::Subtract) {
    if (at && bt) return bounded_duration(nanos(*at) - nanos(*bt));
    if (at && bd) return bounded_time(nanos(*at) - bd->count());
    if (ad && bd) return bounded_duration(static_cast<__int128>(ad->count()) - bd->count());
  }
  return no_overload();
}

bool is_number(const Value& value) { return value.get<std::int64_t>() != nullptr || value.get<std::uint64_t>() != nullptr || value.get<double>() != nullptr; }

// What comparing costs: all that is inside.
std::size_t weight(const Value& value, int depth = 0) {
  if (const auto* text = value.get<std::string>()) return 1 + text->size() / 64;
  if (const auto* bytes = value.get<Bytes>()) return 1 + bytes->data.size() / 64;
  std::size_t out = 1;
  if (depth > 100) return out;
  if (value.is_list())
    for (std::size_t i = 0; i < value.size() && out < usual_budget; ++i) out += weight(value.at(i), depth + 1);
  if (value.is_map())
    for (std::size_t i = 0; i < value.size() && out < usual_budget; ++i) out += weight(value.entry(i).second, depth + 1) + value.size() / 8;
  return out;
}

Result<Value> index(const Value& of, const Value& key) {
  if (of.is_map()) {
    Value room;
    const Value* found = of.find(key, room);
    if (found != nullptr) return *found;
    const std::string* name = key.get<std::string>();
    return wrong(name == nullptr ? "no such key" : "no such key: " + *name);
  }
  if (!of.is_list()) return no_overload();
  std::int64_t at = -1;
  if (const auto* x = key.get<std::int64_t>()) at = *x;
  else if (const auto* u = key.get<std::uint64_t>()) at = *u > INT64_MAX ? -1 : static_cast<std::int64_t>(*u);
  else if (const auto* d = key.get<double>(); d != nullptr && std::trunc(*d) == *d && *d >= 0 && *d < 1e15) at = static_cast<std::int64_t>(*d);
  else return no_overload();
  if (at < 0 || static_cast<std::size_t>(at) >= of.size()) return wrong(fmt::format("index out of bounds: {}", at));
  return of.at(static_cast<std::size_t>(at));
}

// One side decides alone; else an error of the other counts.
Result<Value> logic(Machine& machine, const Node& node, bool decides) {
  auto left = machine.run(*node.children[0]);
  if (left && left->get<bool>() != nullptr && *left->get<bool>() == decides) return Value(decides);
  if (!left && machine.budget < 0) return left;
  auto right = machine.run(*node.children[1]);
  if (right && right->get<bool>() != nullptr && *right->get<bool>() == decides) return Value(decides);
  if (!left) return left;
  if (!right) return right;
  if (left->get<bool>() == nullptr || right->get<bool>() == nullptr) return no_overload();
  return Value(!decides);
}

Result<Value> fold(Machine& machine, const Node& node) {
  auto over = machine.run(*node.children[0]);
  if (!over) return over;
  if (!over->is_list() && !over->is_map()) return no_overload();
  const bool list = over->is_list();
  const std::size_t count = over->size();
  const Node& test = *node.children[1];
  std::optional<Error> first_error;
  std::size_t hits = 0;
  auto made = std::make_shared<List>();
  machine.locals.emplace_back(node.name, Value());
  const std::size_t slot = machine.locals.size() - 1;
  const auto leave = [&](Result<Value> out) {
    machine.locals.pop_back();
    return out;
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (!machine.spend()) return leave(too_dear());
    const Value item = list ? over->at(i) : over->entry(i).first;
    machine.locals[slot].second = item;
    auto found = machine.run(test);
    if (machine.budget < 0) return leave(too_dear());
    if (node.macro == Node::Macro::Each && node.children.size() == 2) {
      if (!found) return leave(found);
      made->push_back(std::move(*found));
      continue;
    }
    if (found && found->get<bool>() == nullptr) found = no_overload();
    const bool yes = found && *found->get<bool>();
    switch (node.macro) {
      case Node::Macro::All:
        if (found && !yes) return leave(Value(false));
        if (!found && !first_error) first_error = found.error();
        break;
      case Node::Macro::Exists:
        if (yes) return leave(Value(true));
        if (!found && !first_error) first_error = found.error();
        break;
      case Node::Macro::ExistsOne:
        if (!found) return leave(found);
        hits += yes ? 1 : 0;
        break;
      case Node::Macro::Filter:
        if (!found) return leave(found);
        if (yes) made->push_back(item);
        break;
      case Node::Macro::Each:
        if (!found) return leave(found);
        if (!yes) break;
        if (auto mapped = machine.run(*node.children[2])) made->push_back(std::move(*mapped));
        else return leave(mapped);
        break;
    }
  }
  if (first_error) return leave(std::unexpected(std::move(*first_error)));
  switch (node.macro) {
    case Node::Macro::All: return leave(Value(true));
    case Node::Macro::Exists: return leave(Value(false));
    case Node::Macro::ExistsOne: return leave(Value(hits == 1));
    default: return leave(Value(std::shared_ptr<const List>(std::move(made))));
  }
}

}  // namespace

Result<Value> binary(Machine& machine, Node::Op op, const Value& a, const Value& b) {
  switch (op) {
    case Node::Op::Equal:
    case Node::Op::NotEqual:
      if (!machine.spend(weight(a))) return too_dear();
      return Value(equal(a, b) == (op == Node::Op::Equal));
    case Node::Op::Less:
    case Node::Op::LessEqual:
    case Node::Op::Greater:
    case Node::Op::GreaterEqual: {
      if (!machine.spend(weight(a))) return too_dear();
      const auto order = compare(a, b);
      if (!order) return is_number(a) && is_number(b) ? Result<Value>(Value(false)) : Result<Value>(no_overload());  // not a number
      if (op == Node::Op::Less) return Value(*order < 0);
      if (op == Node::Op::LessEqual) return Value(*order <= 0);
      if (op == Node::Op::Greater) return Value(*order > 0);
      return Value(*order >= 0);
    }
    case Node::Op::In:
      if (b.is_list()) {
        for (std::size_t i = 0; i < b.size(); ++i) {
          if (!machine.spend(weight(a))) return too_dear();
          if (equal(b.at(i), a)) return Value(true);
        }
        return Value(false);
      }
      if (b.is_map()) {
        Value room;
        if (!machine.spend(b.size() / 8)) return too_dear();
        return Value(b.find(a, room) != nullptr);
      }
      return no_overload();
    default: return arithmetic(machine, op, a, b);
  }
}

Result<Value> Machine::run(const Node& node) {
  if (!spend()) return too_dear();
  switch (node.kind) {
    case Node::Kind::Literal: return node.literal;
    case Node::Kind::Name:
      for (auto at = locals.rbegin(); at != locals.rend(); ++at)
        if (at->first == node.name) return at->second;
      for (const auto& [name, value] : bindings)
        if (name == node.name) return value;
      if (source != nullptr) return source->find(node.name, budget);
      return wrong(fmt::format("no such attribute: {}", node.name));
    case Node::Kind::Select:
    case Node::Kind::Has: {
      auto of = run(*node.children[0]);
      if (!of) return of;
      if (!of->is_map()) return node.kind == Node::Kind::Has ? Result<Value>(no_overload()) : Result<Value>(wrong(fmt::format("no such key: {}", node.name)));
      if (!spend(of->size() / 8)) return too_dear();
      Value room;
      const Value* found = of->find(Value(node.name), room);
      if (node.kind == Node::Kind::Has) return Value(found != nullptr);
      if (found == nullptr) return wrong(fmt::format("no such key: {}", node.name));
      return *found;
    }
    case Node::Kind::Index: {
      auto of = run(*node.children[0]);
      if (!of) return of;
      auto key = run(*node.children[1]);
      if (!key) return key;
      if (!spend(of->is_map() ? of->size() / 8 : 0)) return too_dear();
      return index(*of, *key);
    }
    case Node::Kind::Call: {
      std::vector<Value> arguments;
      for (const auto& child : node.children) {
        auto value = run(*child);
        if (!value) return value;
        if (const auto* text = value->get<std::string>(); text != nullptr && !spend(text->size() / 64)) return too_dear();
        arguments.push_back(std::move(*value));
      }
      return node.function->call(*this, node, arguments);
    }
    case Node::Kind::MakeList: {
      auto out = std::make_shared<List>();
      for (const auto& child : node.children) {
        auto value = run(*child);
        if (!value) return value;
        out->push_back(std::move(*value));
      }
      return Value(std::shared_ptr<const List>(std::move(out)));
    }
    case Node::Kind::MakeMap: {
      auto out = std::make_shared<Map>();
      for (std::size_t i = 0; i + 1 < node.children.size(); i += 2) {
        auto key = run(*node.children[i]);
        if (!key) return key;
        if (key->get<bool>() == nullptr && key->get<std::int64_t>() == nullptr && key->get<std::uint64_t>() == nullptr && key->get<std::string>() == nullptr) return wrong("unsupported key type");
        auto value = run(*node.children[i + 1]);
        if (!value) return value;
        if (!spend(out->size())) return too_dear();
        for (const auto& [other, ignored] : *out)
          if (equal(other, *key)) return wrong("insert failed: key already exists");
        out->emplace_back(std::move(*key), std::move(*value));
      }
      return Value(std::shared_ptr<const Map>(std::move(out)));
    }
    case Node::Kind::Not: {
      auto of = run(*node.children[0]);
      if (!of) return of;
      const bool* value = of->get<bool>();
      if (value == nullptr) return no_overload();
      return Value(!*value);
    }
    case Node::Kind::Negate: {
      auto of = run(*node.children[0]);
      if (!of) return of;
      if (const auto* whole = of->get<std::int64_t>()) return bounded(-static_cast<__int128>(*whole));
      if (const auto* number = of->get<double>()) return Value(-*number);
      return no_overload();
    }
    case Node::Kind::And: return logic(*this, node, false);
    case Node::Kind::Or: return logic(*this, node, true);
    case Node::Kind::Choice: {
      auto test = run(*node.children[0]);
      if (!test) return test;
      const bool* value = test->get<bool>();
      if (value == nullptr) return no_overload();
      return run(*node.children[*value ? 1 : 2]);
    }
    case Node::Kind::Binary: {
      auto a = run(*node.children[0]);
      if (!a) return a;
      auto b = run(*node.children[1]);
      if (!b) return b;
      return binary(*this, node.op, *a, *b);
    }
    case Node::Kind::Fold: return fold(*this, node);
  }
  return no_overload();
}

Result<Value> Program::run(const Bindings& bindings, std::int64_t& budget, Source* source) const {
  Machine machine{bindings, budget, source};
  return machine.run(*root_);
}

}  // namespace fairlead::cel
