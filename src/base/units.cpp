// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace fairlead {

std::string print(Bytes bytes) {
  static constexpr std::array<const char*, 7> names{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = static_cast<double>(bytes.value);
  std::size_t unit = 0;
  // 1023.95 would be printed as "1024.0": the next unit says it better.
  for (; std::abs(amount) >= 1023.95 && unit + 1 < names.size(); ++unit) amount /= 1024;
  if (unit == 0) return fmt::format("{} B", bytes.value);
  const double rounded = std::round(amount * 10) / 10;
  return rounded == std::floor(rounded) ? fmt::format("{:.0f} {}", rounded, names[unit]) : fmt::format("{:.1f} {}", rounded, names[unit]);
}

}  // namespace fairlead
