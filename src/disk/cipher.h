// SPDX-License-Identifier: Apache-2.0
// AES-256-XTS over sectors of 4096 bytes, as dm-crypt's aes-xts-plain64 has it: the tweak is the number of the sector's first 512 bytes, from where the data begins (cryptsetup(8), LUKS2 On-Disk Format 1.1.1).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::disk {

// Thread-safe. A sector that was never written, or was given back, lies on disk as zeros and is read as zeros: which those are is seen on the disk, as with dm-crypt that passes discards on.
class Cipher {
 public:
  static constexpr std::size_t kKey = 64;  // bytes: two keys of 256 bits
  // Invalid: it has another size, or its halves are the same (which XTS forbids).
  static Result<std::unique_ptr<Cipher>> make(std::string_view key);
  ~Cipher();
  // Whole sectors, at a byte that is a multiple of a sector's. False: the library failed.
  bool close(const char* from, char* into, std::size_t size, std::int64_t at) const;
  bool open(char* text, std::size_t size, std::int64_t at) const;

 private:
  Cipher();
  bool run(const char* from, char* into, std::size_t size, std::int64_t at, bool closes) const;
  const std::uint64_t number_;  // no other has it: addresses come again
  char key_[kKey];
};

}  // namespace fairlead::disk
