// SPDX-License-Identifier: GPL-3.0-or-later
// A small file of names and values, one a line, that tells when it was cut off or changed: what describes a set, an intent, a hold.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::companion {

using Card = std::map<std::string, std::string>;  // names of a-z, 0-9, "." and "-"; any values

// "fairlead-KIND 1", the lines, "sum SHA-256".
std::string print_card(std::string_view kind, const Card& card);
// Invalid: of another kind or a later form, cut off, or changed.
Result<Card> parse_card(std::string_view kind, std::string_view text);
Result<Card> read_card(std::string_view kind, const std::string& path);
Result<void> write_card(std::string_view kind, const std::string& path, const Card& card, unsigned mode = 0600);  // durable; the old one or the new one

std::string value_of(const Card& card, const std::string& name);  // empty: it is not there
std::int64_t number_of(const Card& card, const std::string& name, std::int64_t otherwise = 0);

}  // namespace fairlead::companion
