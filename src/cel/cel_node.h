// SPDX-License-Identifier: Apache-2.0
// The tree of an expression; inside of cel.h.
#pragma once
#include <re2/re2.h>

#include <memory>
#include <string>
#include <vector>

#include "cel/cel.h"

namespace fairlead::cel {

struct Machine;
struct Function;

struct Node {
  enum class Kind : std::uint8_t { Literal, Name, Select, Has, Index, Call, MakeList, MakeMap, Not, Negate, And, Or, Choice, Binary, Fold };
  enum class Op : std::uint8_t { Add, Subtract, Multiply, Divide, Modulo, Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In };
  enum class Macro : std::uint8_t { All, Exists, ExistsOne, Each, Filter };
  Kind kind = Kind::Literal;
  Op op = Op::Add;
  Macro macro = Macro::All;
  Value literal;
  std::string name;                                // Name, Select, Has; of Fold: its variable
  const Function* function = nullptr;              // Call: its arguments are the children, the receiver first if it has one
  std::vector<std::shared_ptr<const Node>> children;
  std::shared_ptr<const re2::RE2> pattern;         // Call of a function with a pattern that is a literal
};

// A function by its name and how it is called.
struct Function {
  std::string_view name;
  bool method = false;
  std::size_t least = 0, most = 0;  // arguments, without the receiver
  Result<Value> (*call)(Machine& machine, const Node& node, const std::vector<Value>& arguments) = nullptr;
  bool has_pattern = false;  // its last argument but a limit is a regular expression
};
const Function* find_function(std::string_view name, bool method);

// A run.
struct Machine {
  const Bindings& bindings;
  std::int64_t& budget;
  Source* source = nullptr;
  std::vector<std::pair<std::string_view, Value>> locals = {};

  Result<Value> run(const Node& node);
  bool spend(std::size_t steps = 1) {
    budget -= static_cast<std::int64_t>(steps);
    return budget >= 0;
  }
};

std::unexpected<Error> wrong(std::string text);
std::unexpected<Error> too_dear();
std::unexpected<Error> no_overload();

Result<Value> binary(Machine& machine, Node::Op op, const Value& a, const Value& b);
std::shared_ptr<const re2::RE2> make_pattern(const std::string& text);  // null: it is none


}  // namespace fairlead::cel
