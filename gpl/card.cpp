// SPDX-License-Identifier: GPL-3.0-or-later
#include "card.h"

#include <fmt/format.h>

#include <charconv>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

bool is_name(std::string_view name) { return !name.empty() && name.size() <= 64 && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == name.npos; }

}  // namespace

std::string print_card(std::string_view kind, const Card& card) {
  std::string out = fmt::format("fairlead-{} 1\n", kind);
  for (const auto& [name, value] : card) {
    INVARIANT(is_name(name));
    out += fmt::format("{} {}\n", name, percent_encode(value));
  }
  return out + fmt::format("sum {}\n", hex(sha256(out)));
}

Result<Card> parse_card(std::string_view kind, std::string_view text) {
  const std::string first = fmt::format("fairlead-{} 1\n", kind);
  if (!text.starts_with(first)) return fail(Code::Invalid, fmt::format("this is no {} that this version knows", kind));
  const auto last = text.size() < 70 ? text.npos : text.size() - 69;  // "sum ", 64 digits, line break
  if (last == text.npos || last < first.size() || text[last - 1] != '\n' || text.substr(last) != fmt::format("sum {}\n", hex(sha256(text.substr(0, last))))) return fail(Code::Invalid, fmt::format("the {} is cut off or was changed", kind));
  Card out;
  for (std::string_view rest = text.substr(first.size(), last - first.size()); !rest.empty();) {
    const auto end = rest.find('\n'), space = rest.find(' ');
    if (end == rest.npos || space >= end || !is_name(rest.substr(0, space))) return fail(Code::Invalid, fmt::format("a line of the {} is not understood", kind));
    auto value = percent_decode(rest.substr(space + 1, end - space - 1));
    if (!value || !out.emplace(rest.substr(0, space), std::move(*value)).second)
      return fail(Code::Invalid, fmt::format("a line of the {} is not understood", kind));
    rest.remove_prefix(end + 1);
  }
  return out;
}

Result<Card> read_card(std::string_view kind, const std::string& path) {
  auto text = read_file(path, 1_MiB);
  if (!text) return std::unexpected(std::move(text.error()));
  auto card = parse_card(kind, *text);
  if (!card) return pass(std::move(card.error()), path);
  return card;
}

Result<void> write_card(std::string_view kind, const std::string& path, const Card& card, unsigned mode) { return write_file_durably(path, print_card(kind, card), mode); }

std::string value_of(const Card& card, const std::string& name) {
  const auto at = card.find(name);
  return at == card.end() ? "" : at->second;
}

std::int64_t number_of(const Card& card, const std::string& name, std::int64_t otherwise) {
  const std::string text = value_of(card, name);
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? out : otherwise;
}

}  // namespace fairlead::companion
