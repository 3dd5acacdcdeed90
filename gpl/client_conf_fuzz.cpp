// SPDX-License-Identifier: GPL-3.0-or-later
// slurm.conf, in which users have lines of their own: any bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "client_conf.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string conf(reinterpret_cast<const char*>(data), size), out = companion::client_conf(conf);
  INVARIANT(out.starts_with(conf));
  // 4096 names at most, each with its address, whatever the text claims; a name can be as long as the text.
  INVARIANT(out.size() <= size + 4096 * (3 * size + 100) + 200);
  return 0;
}
