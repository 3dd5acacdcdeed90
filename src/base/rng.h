// SPDX-License-Identifier: Apache-2.0
// Chance is an argument: a seeded generator for decisions and simulation. Not for keys (see secret_bytes).
#pragma once
#include <cstdint>
#include <string>

namespace fairlead {

// SplitMix64 (Steele, Lea, Flood 2014). One owner; not thread-safe.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // In [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  double fraction() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

// From the kernel (getrandom): for keys, tokens, uids and seeds.
std::string secret_bytes(std::size_t count);
// RFC 4122 version 4, from the kernel's randomness.
std::string random_uuid();

}  // namespace fairlead
