// SPDX-License-Identifier: Apache-2.0
#include "kube/type_table.h"

namespace {

using namespace fairlead;
using namespace fairlead::kube;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const TypeTable& table = TypeTable::builtin();
  const auto object = decode_protobuf(text, table);
  if (!object) return 0;
  INVARIANT(parse_json(print_json(*object)));  // within the depth that readers accept
  if (const Type* type = table.find_kind((*object)["apiVersion"].string(), (*object)["kind"].string())) {
    (void)unknown_fields(*object, *type);
    (void)type_errors(*object, *type);
  }
  return 0;
}
