// SPDX-License-Identifier: Apache-2.0
#include "node/plan/cdi.h"

// What is accepted can be given out, one by one and together, and no path is relative.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::node;
  const auto kind = parse_cdi(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!kind) return 0;
  const auto names = handed_out(*kind);
  const auto chosen = choose_devices(*kind, {}, static_cast<std::int64_t>(names.size()));
  INVARIANT(chosen && chosen->size() == names.size());
  INVARIANT(!choose_devices(*kind, {}, static_cast<std::int64_t>(names.size()) + 1));
  for (const CdiNode& node : edits_for(*kind, *chosen).nodes) INVARIANT(node.path.starts_with('/') && node.host_path.starts_with('/'));
  return 0;
}
