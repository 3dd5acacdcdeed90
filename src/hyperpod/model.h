// SPDX-License-Identifier: Apache-2.0
// The service model: operations, shapes and their constraints, read from data once; requests are checked against it before anything else looks at them. Pure.
// Source of the data: botocore's and the JavaScript SDK's models of SageMaker, August 2026 (api_model.inc names them). Form of the messages: what AWS answers.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyperpod/aws_error.h"
#include "kube/json.h"

namespace fairlead::hyperpod {

using kube::Json;

// Some patterns fit machines of AWS alone: names of FSx file systems, ids of nodes and volumes, zones. Relaxed: there any 1 to 253 printable ASCII characters without spaces will do.
enum class Names : std::uint8_t { AsInAws, Relaxed };

struct Operation {
  std::string name, group, input, output;  // input and output: shapes; output may be empty
};

class Model {
 public:
  enum class Kind : std::uint8_t { Structure, List, Map, String, Integer, Long, Float, Boolean, Timestamp };
  struct Member {
    std::string name;
    std::size_t shape = 0;
    bool required = false;
  };
  struct Shape {
    std::string name;
    Kind kind = Kind::Structure;
    bool is_union = false;              // exactly one member
    std::vector<Member> members;
    std::size_t element = 0, key = 0;   // of lists; of maps: value and key
    std::optional<double> least, most;  // of the value, or of its length
    std::vector<std::string> values;    // enum; empty: any
    std::string pattern;                // as the model has it
    std::function<bool(std::string_view)> matches;  // of pattern, whole text; null: any
  };

  // Invalid: not such a model, a shape that is not there, a pattern that cannot be compiled (it is named).
  static Result<Model> load(std::string_view json, Names names = Names::AsInAws);
  static Result<Model> load_own(Names names = Names::AsInAws);  // the one that comes with the program

  const Operation* operation(std::string_view name) const;  // nullptr: no such operation
  const std::map<std::string, Operation, std::less<>>& operations() const { return operations_; }
  const std::vector<Shape>& shapes() const { return shapes_; }
  const Shape& shape(std::string_view name) const;  // INVARIANT: it is there

  // SerializationException: something has another type. ValidationException: all that does not hold, in one text, as AWS words it; members that are not in the model are refused, too, since ignoring what a newer client asks for would be
  // worse. A null is as if it were not there. O(size of the value).
  Answer<void> check(const Shape& shape, const Json& value) const;

 private:
  std::map<std::string, Operation, std::less<>> operations_;
  std::vector<Shape> shapes_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace fairlead::hyperpod
