// SPDX-License-Identifier: Apache-2.0
// Whatever comes on an upgraded connection: in one piece and byte by byte it means the same.
#include <cstdint>
#include <string>

#include "node/spdy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto read = [&](std::size_t piece) {
    node::SpdyReader reader;
    std::string told;
    Result<void> fine;
    for (std::size_t at = 0; at < bytes.size() && fine; at += piece)
      fine = reader.feed(bytes.substr(at, piece), [&](const node::SpdyEvent& event) {
        told += std::to_string(static_cast<int>(event.kind)) + "/" + std::to_string(event.stream) + "/";
        for (const auto& [name, value] : event.headers) told += name + "=" + value + ";";
      });
    return fine.has_value();
  };
  INVARIANT(read(1) == read(size + 1));
  return 0;
}
