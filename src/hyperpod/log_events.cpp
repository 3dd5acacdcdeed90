// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/log_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

namespace fairlead::hyperpod {
namespace {

// Bytes of the character of UTF-8 at `at`; 0: there is none.
std::size_t character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + size > text.size()) return 0;
  std::uint32_t point = first & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) return 0;
    point = point << 6U | (byte(at + i) & 0x3FU);
  }
  return point >= (size == 2 ? 0x80U : size == 3 ? 0x800U : 0x10000U) && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF) ? size : 0;
}

}  // namespace

std::string as_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = character(bytes, at);
    if (size == 0) out += "\xEF\xBF\xBD";
    else out += bytes.substr(at, size);
    at += std::max<std::size_t>(size, 1);
  }
  return out;
}

std::string write_place(const LogPlace& place) { return fmt::format("{}.{}", place.time.time_since_epoch().count(), place.nth); }

std::optional<LogPlace> read_place(std::string_view text) {
  std::int64_t time = 0;
  int nth = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, time);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, nth);
  if (second.ec != std::errc() || second.ptr != end || nth < -1) return std::nullopt;
  return LogPlace{Instant(std::chrono::nanoseconds(time)), nth};
}

bool LogLines::give(Instant time, std::string text, const Take& take) {
  if (time > last_.time) last_ = {time, 0};
  else ++last_.nth;
  return take({last_, std::move(text)});
}

bool LogLines::give_part(std::string_view text, const Take& take) { return give(last_.time, as_utf8(text), take); }

bool LogLines::line(std::string_view text, const Take& take) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (cut_) return text.empty() || give_part(text, take);
  const auto space = text.find(' ');
  // As nodes write it; what has none is of the line before.
  const auto time = text.substr(0, space).size() > 40 ? Result<Instant>(fail(Code::Invalid, "")) : parse_time(text.substr(0, space));
  if (!time) return give(last_.time == Instant::min() ? Instant() : last_.time, as_utf8(text), take);
  return give(*time, space == text.npos ? "" : as_utf8(text.substr(space + 1)), take);
}

bool LogLines::add(std::string_view piece, const Take& take) {
  while (!piece.empty()) {
    const auto newline = piece.find('\n');
    const std::size_t room = kMostEventBytes - open_.size();
    if (newline == piece.npos || newline > room) {
      open_ += piece.substr(0, room);
      piece.remove_prefix(std::min(room, piece.size()));
      if (open_.size() < kMostEventBytes) return true;
      std::string full;  // up to a whole character
      std::size_t end = open_.size();
      while (end > open_.size() - 4 && (static_cast<unsigned char>(open_[end - 1]) & 0xC0U) == 0x80U) --end;
      if ((static_cast<unsigned char>(open_[end - 1]) & 0xC0U) == 0xC0U && character(open_, end - 1) == 0) --end;
      else end = open_.size();
      full = open_.substr(end);
      open_.resize(end);
      const bool more = line(open_, take);
      open_ = std::move(full), cut_ = true;
      if (!more) return false;
      continue;
    }
    std::string_view text = piece.substr(0, newline);
    if (!open_.empty()) open_ += text, text = open_;
    piece.remove_prefix(newline + 1);
    const bool more = line(text, take);
    open_.clear(), cut_ = false;
    if (!more) return false;
  }
  return true;
}

bool LogLines::end(const Take& take) {
  const std::string rest = std::move(open_);
  open_.clear();
  const bool more = rest.empty() || line(rest, take);
  cut_ = false;
  return more;
}

bool FilterPattern::matches(std::string_view text) const {
  const auto has = [&](const std::string& term) { return text.find(term) != text.npos; };
  return std::ranges::all_of(all, has) && (any.empty() || std::ranges::any_of(any, has)) && std::ranges::none_of(none, has);
}

Result<FilterPattern> read_filter_pattern(std::string_view text) {
  if (text.size() > 1024) return fail(Code::Invalid, "filterPattern has 1,024 bytes at most");
  FilterPattern out;
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  for (std::size_t at = 0; at < text.size();) {
    if (is_space(text[at])) {
      ++at;
      continue;
    }
    if (text[at] == '{') return fail(Code::Invalid, "filterPattern: patterns of JSON ({ $.field = ... }) are not served here; terms, \"quoted terms\", ?any and -not are");
    if (text[at] == '[') return fail(Code::Invalid, "filterPattern: patterns of fields ([ip, user, ...]) are not served here; terms, \"quoted terms\", ?any and -not are");
    std::vector<std::string>* into = &out.all;
    if (text[at] == '?') into = &out.any, ++at;
    else if (text[at] == '-') into = &out.none, ++at;
    std::string term;
    if (at < text.size() && text[at] == '%') return fail(Code::Invalid, "filterPattern: regular expressions (%...%) are not served here; terms, \"quoted terms\", ?any and -not are");
    if (at < text.size() && text[at] == '"') {
      bool closed = false;
      for (++at; at < text.size() && !closed; ++at) {
        if (text[at] == '"') closed = true;
        else if (text[at] == '\\' && at + 1 < text.size()) term += text[++at];
        else term += text[at];
      }
      if (!closed) return fail(Code::Invalid, "filterPattern: a quote is not closed");
      if (at < text.size() && !is_space(text[at])) return fail(Code::Invalid, "filterPattern: a space is expected after a quoted term");
    } else {
      for (; at < text.size() && !is_space(text[at]); ++at) {
        const auto c = static_cast<unsigned char>(text[at]);
        if (c < 0x80 && !std::isalnum(c) && c != '_') return fail(Code::Invalid, fmt::format("filterPattern: a term with '{}' stands in double quotes", static_cast<char>(c >= ' ' && c < 0x7f ? c : '?')));
        term += text[at];
      }
    }
    if (term.empty()) return fail(Code::Invalid, "filterPattern: an empty term");
    into->push_back(std::move(term));
  }
  if (!out.any.empty() && !(out.all.empty() && out.none.empty())) return fail(Code::Invalid, "filterPattern: ? does not stand beside other terms");
  return out;
}

}  // namespace fairlead::hyperpod
