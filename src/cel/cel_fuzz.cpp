// SPDX-License-Identifier: Apache-2.0
// Any text is an expression or is refused, and what runs ends.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cel/cel.h"

namespace cel = fairlead::cel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fairlead::kube::Json self = *fairlead::kube::parse_json(R"({"a":[1,2.5,"x",null,{"b":true}],"m":{"k":"v","n":-9223372036854775808},"t":"2026-11-24T10:30:15Z","d":"1h"})");
  const auto program = cel::Program::compile(std::string_view(reinterpret_cast<const char*>(data), size), {"self", "oldSelf"});
  if (!program) return 0;
  std::int64_t budget = 20'000;
  const auto value = program->run({{"self", cel::Value::of_json(self)}, {"oldSelf", cel::Value::of_json(self["a"])}}, budget);
  if (value) {
    (void)cel::equal(*value, *value);
    (void)cel::compare(*value, *value);
  }
  return 0;
}
