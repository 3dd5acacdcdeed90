// SPDX-License-Identifier: Apache-2.0
// What a container answers to a gRPC probe: in one piece and byte by byte it means the same.
#include <cstdint>

#include "node/checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fairlead::node::GrpcHealthReader;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  GrpcHealthReader whole, pieces;
  std::string reply, replies;
  const auto state = whole.feed(bytes, reply);
  auto last = GrpcHealthReader::State::More;
  for (const char c : bytes) last = pieces.feed({&c, 1}, replies);
  INVARIANT(state == last);
  return 0;
}
