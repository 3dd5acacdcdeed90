// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "fleet/host_wire.h"

// Whatever the helper accepts means the same when said again, and no name leads out of the folder of nodes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::fleet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto request = parse_request(text)) {
    INVARIANT(request->machine.name.find('/') == std::string::npos || request->call == HostCall::Ready || request->call == HostCall::SetLink || request->call == HostCall::Watch);
    auto again = parse_request(print_request(*request));
    INVARIANT(again && again->call == request->call && again->site == request->site && again->machine.seat == request->machine.seat && again->machine.name == request->machine.name);
  }
  if (auto answer = parse_answer(text)) {
    auto again = parse_answer(print_answer(answer));
    INVARIANT(again && *again == *answer);
  }
  return 0;
}
