// SPDX-License-Identifier: Apache-2.0
// Templates: any bytes. What is read can be evaluated, twice alike, and comes to no more than it may.
#include <cstddef>
#include <cstdint>
#include <string>

#include "formation/evaluate.h"
#include "formation/pattern.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto of = formation::read_template(text);
  if (!of) return 0;
  INVARIANT(!of->resources.empty());
  formation::Values given;
  for (const formation::Parameter& one : of->parameters)
    if (!one.fallback) given[one.name] = one.allowed.empty() ? "1" : one.allowed.front();
  const auto parameters = formation::settle_parameters(*of, given);
  if (!parameters) return 0;
  const auto evaluation = formation::Evaluation::make(*of, *parameters, {.account = "111122223333", .region = "fairlead-1", .stack_id = "arn:aws:cloudformation:fairlead-1:111122223333:stack/s/1", .stack_name = "s"});
  if (!evaluation) return 0;
  for (const formation::Resource& one : of->resources) {
    if (!evaluation->is_made(one)) continue;
    const auto once = evaluation->properties(one), again = evaluation->properties(one);
    INVARIANT(once.has_value() == again.has_value());
    if (once) INVARIANT(*once == *again && kube::print_json(*once).size() < std::size_t{64} << 20);
  }
  (void)evaluation->outputs([](const std::string& id, const std::string& name) { return std::optional(id + name); });
  return 0;
}
