// SPDX-License-Identifier: Apache-2.0
// The Common Expression Language (github.com/google/cel-spec, doc/langdef.md) with the parts of Kubernetes' environment that docs/design/046-cel.md lists. Pure; programs are immutable and may be run by many threads.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"

namespace fairlead::cel {

// What a schema knows of a JSON value beyond the JSON itself.
class Shape {
 public:
  enum class Kind : std::uint8_t { Plain, Double, Timestamp, Duration, Bytes };  // of numbers and strings
  virtual ~Shape() = default;
  virtual Kind shape_kind() const = 0;
  virtual const Shape* shape_of(std::string_view member) const = 0;  // null: nothing is known
  virtual const Shape* shape_of_items() const = 0;
};

class Value;
using List = std::vector<Value>;
using Map = std::vector<std::pair<Value, Value>>;  // in the order of the expression; keys differ

struct Bytes {
  std::string data;
};
struct Type {
  std::string_view name;  // of a literal
};
// An object or a list of JSON that outlives the value.
struct Ref {
  const kube::Json* json = nullptr;
  const Shape* shape = nullptr;
};
using Nanoseconds = std::chrono::nanoseconds;

class Value {
 public:
  using Of = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Bytes, std::shared_ptr<const List>, std::shared_ptr<const Map>, Ref, Instant, Nanoseconds, Type>;
  Value() : of_(nullptr) {}
  template <class T>
    requires std::is_constructible_v<Of, T>
  Value(T of) : of_(std::move(of)) {}
  // Scalars become values of the language, by their shape; objects and lists are looked at where they are. Text that is not of its shape stays text.
  static Value of_json(const kube::Json& json, const Shape* shape = nullptr);

  const Of& of() const { return of_; }
  template <class T>
  const T* get() const {
    return std::get_if<T>(&of_);
  }
  std::string_view type() const;  // "int", "list", "google.protobuf.Timestamp" ...

  // Lists and maps in either form.
  bool is_list() const;
  bool is_map() const;
  std::size_t size() const;        // of lists and maps
  Value at(std::size_t i) const;   // of lists: i < size()
  std::pair<Value, Value> entry(std::size_t i) const;  // of maps
  const Value* find(const Value& key, Value& room) const;  // of maps; null: it is not there. The value is in `room` or in the map.

 private:
  Of of_;
};

bool equal(const Value& a, const Value& b);
// Negative, 0, positive; none: they have no order.
std::optional<int> compare(const Value& a, const Value& b);

using Bindings = std::vector<std::pair<std::string_view, Value>>;  // few

// Variables that are worked out when they are first named.
class Source {
 public:
  virtual ~Source() = default;
  virtual Result<Value> find(std::string_view name, std::int64_t& budget) = 0;
};

inline constexpr std::size_t longest_text = 16'384;  // of an expression, bytes
inline constexpr std::int64_t usual_budget = 1'000'000;  // steps: a tenth of a second or so

struct Node;

class Program {
 public:
  // `variables`: the names that run() will be given; "a.b" is one name. Invalid: "ERROR: 1:7: undeclared reference to 'x'".
  static Result<Program> compile(std::string_view text, const std::set<std::string>& variables);
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  // Invalid: what went wrong, in cel-go's words where it has some ("no such key: x", "division by zero"). `budget` is in and out: what is left. `source` is asked for names that have no binding.
  Result<Value> run(const Bindings& bindings, std::int64_t& budget, Source* source = nullptr) const;
  bool uses(std::string_view variable) const;
  const std::string& text() const { return text_; }

 private:
  Program(std::string text, std::shared_ptr<const Node> root);
  std::string text_;
  std::shared_ptr<const Node> root_;
};

}  // namespace fairlead::cel
