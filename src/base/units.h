// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <compare>
#include <cstdint>
#include <string>

namespace fairlead {

struct Bytes {
  std::int64_t value = 0;
  friend auto operator<=>(Bytes, Bytes) = default;
};
constexpr Bytes operator""_KiB(unsigned long long n) { return {static_cast<std::int64_t>(n) << 10}; }
constexpr Bytes operator""_MiB(unsigned long long n) { return {static_cast<std::int64_t>(n) << 20}; }
constexpr Bytes operator""_GiB(unsigned long long n) { return {static_cast<std::int64_t>(n) << 30}; }
std::string print(Bytes bytes);  // "1.5 GiB": for people

struct MilliCpu {
  std::int64_t value = 0;
  friend auto operator<=>(MilliCpu, MilliCpu) = default;
};

}  // namespace fairlead
