// SPDX-License-Identifier: Apache-2.0
// What RBD's trash says of an image: a value of the object rbd_trash (cls_rbd, TrashImageSpec of Ceph 16.2). Two versions of a byte each, a length of four bytes, the source, then the name behind its length; all of it little-endian. Pure.
#pragma once
#include <endian.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace fairlead::ceph {

struct Trashed {
  std::string name;
  std::uint8_t source = 0;  // rbd_trash_image_source_t
  friend bool operator==(const Trashed&, const Trashed&) = default;
};
// Nothing: it is not understood.
inline std::optional<Trashed> read_trashed(std::string_view value) {
  constexpr std::size_t head = 11;
  if (value.size() < head) return std::nullopt;
  std::uint32_t size = 0;
  std::memcpy(&size, value.data() + head - sizeof size, sizeof size);
  size = le32toh(size);
  if (size > value.size() - head) return std::nullopt;
  return Trashed{.name = std::string(value.substr(head, size)), .source = static_cast<std::uint8_t>(value[6])};
}

}  // namespace fairlead::ceph
