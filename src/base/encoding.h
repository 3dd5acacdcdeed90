// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead {

std::string base64(std::string_view bytes);               // RFC 4648 section 4, padded
Result<std::string> parse_base64(std::string_view text);  // strict: padding and alphabet checked
std::string hex(std::string_view bytes);
std::string sha256(std::string_view bytes);  // 32 raw bytes
std::string sha1(std::string_view bytes);    // 20 raw bytes; for names that others make in the same way, never for trust
std::string hmac_sha256(std::string_view key, std::string_view bytes);  // RFC 2104; 32 raw bytes

// RFC 3986 section 2.1; `others` are those that are escaped beside control characters and "%" itself. Nothing: an escape that is none.
std::string percent_encode(std::string_view text, std::string_view others = "");
std::optional<std::string> percent_decode(std::string_view text);

std::vector<std::string> split(std::string_view text, char by);  // "a,,b" gives three; "" gives one empty
std::size_t code_points(std::string_view utf8);
std::string_view trim(std::string_view text);
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace fairlead
