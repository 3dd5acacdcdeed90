// SPDX-License-Identifier: Apache-2.0
#include "kube/patch.h"

namespace {

using namespace fairlead;
using namespace fairlead::kube;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // A target and a patch, one a line.
  const std::size_t line = text.find('\n');
  if (line == std::string_view::npos) return 0;
  const auto target = parse_json(text.substr(0, line)), patch = parse_json(text.substr(line + 1));
  if (!target || !patch) return 0;
  const Json merged = merge_patch(*target, *patch);
  INVARIANT(merge_patch(merged, *patch) == merged);  // idempotent
  if (const auto patched = json_patch(*target, *patch)) INVARIANT(parse_json(print_json(*patched)));
  const TypeTable& table = TypeTable::builtin();
  for (const Type* type : {table.find_kind("v1", "Pod"), table.find_kind("apps/v1", "Deployment"), static_cast<const Type*>(nullptr)})
    if (const auto strategic = strategic_merge(*target, *patch, table, type)) INVARIANT(parse_json(print_json(*strategic)));
  return 0;
}
