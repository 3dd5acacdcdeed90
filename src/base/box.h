// SPDX-License-Identifier: Apache-2.0
// Bytes that only who has the key can read, and nobody without it can change.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead {

// AES-256-GCM: nonce, ciphertext, tag. `key` is 32 bytes, `nonce` kBoxNonce bytes that were never used with it; `about` has to be the same when it is opened.
inline constexpr std::size_t kBoxNonce = 12;
std::string close_box(std::string_view key, std::string_view about, std::string_view plain, const std::string& nonce);
Result<std::string> open_box(std::string_view key, std::string_view about, std::string_view box);  // Internal: another key, about something else, or damaged

}  // namespace fairlead
