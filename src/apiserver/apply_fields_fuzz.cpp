// SPDX-License-Identifier: Apache-2.0
// managedFields come from clients (an update may carry them): any JSON must be taken or refused, and what was taken must survive being written and read again.
#include <cstddef>
#include <cstdint>

#include "apiserver/apply_managed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const auto parsed = kube::parse_json({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  if (const auto set = apiserver::FieldSet::parse(*parsed)) {
    std::string text;
    set->append(text);
    const auto again = kube::parse_json(text, {.depth_limit = 300});
    INVARIANT(again.has_value());
    const auto same = apiserver::FieldSet::parse(*again);
    INVARIANT(same.has_value() && *same == *set);
    set->each([](const apiserver::FieldPath& path) { (void)apiserver::path_text(path); });
    INVARIANT(set->without(*set).empty() && set->united(*set) == *set);
  }
  if (const auto managed = apiserver::parse_managed(*parsed)) {
    const auto again = kube::parse_json(apiserver::print_managed(*managed), {.depth_limit = 300});
    INVARIANT(again.has_value() && apiserver::parse_managed(*again).has_value());
  }
  (void)apiserver::resets_managed(*parsed);
  return 0;
}
