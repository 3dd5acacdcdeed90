// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fairlead::cli {

namespace {

const char* code_of(Style style) {
  switch (style) {
    case Style::Plain: return "";
    case Style::Bold: return "\x1b[1m";
    case Style::Dim: return "\x1b[2m";
    case Style::Good: return "\x1b[32m";
    case Style::Warn: return "\x1b[33m";
    case Style::Bad: return "\x1b[31m";
    case Style::Accent: return "\x1b[36m";
  }
  return "";
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string paint(std::string_view text, Style style, const Look& look) {
  if (!look.color || style == Style::Plain || text.empty()) return std::string(text);
  return std::string(code_of(style)) + std::string(text) + "\x1b[0m";
}

int columns_of(std::string_view text) {
  int columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    if (!continues(text[i])) ++columns;
  }
  return columns;
}

std::string cut_to(std::string_view text, int columns, const Look& look) {
  if (columns_of(text) <= columns) return std::string(text);
  if (columns <= 0) return "";
  int seen = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    if (!continues(text[end]) && seen++ == columns - 1) break;
    ++end;
  }
  return std::string(text.substr(0, end)) + (look.unicode ? "…" : "~");
}

std::string pad_to(std::string text, int columns) {
  const int missing = columns - columns_of(text);
  if (missing > 0) text.append(static_cast<std::size_t>(missing), ' ');
  return text;
}

std::string clean(std::string_view text) {
  std::string out(text);
  for (char& one : out)
    if (static_cast<unsigned char>(one) < 0x20 || one == 0x7f) one = ' ';
  return out;
}

std::string bar(double part, double whole, int cells, const Look& look) {
  const double share = whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0.0;
  int filled = static_cast<int>(std::lround(share * cells));
  if (part > 0 && filled == 0) filled = 1;  // something is not nothing
  const Style style = share >= 0.95 ? Style::Bad : share >= 0.7 ? Style::Warn : Style::Good;
  std::string on, off;
  for (int i = 0; i < cells; ++i) (i < filled ? on : off) += look.unicode ? (i < filled ? "█" : "░") : (i < filled ? "#" : ".");
  return paint(on, style, look) + paint(off, Style::Dim, look);
}

std::string draw_rows(const std::vector<Row>& rows, std::string_view indent, const Look& look) {
  std::vector<int> widths;
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], columns_of(row[i].text));
    }
  std::string out;
  for (const Row& row : rows) {
    std::string line(indent);
    int left = look.width - columns_of(indent);
    for (std::size_t i = 0; i < row.size() && left > 0; ++i) {
      const Cell& cell = row[i];
      const bool last = i + 1 == row.size();
      std::string text = cell.text;
      if (columns_of(text) > left) text = cell.drawn ? "" : cut_to(text, left, look);
      const int own = columns_of(text);
      const int blanks = last && !cell.right ? 0 : std::max(0, std::min(widths[i], left) - own);
      const std::string drawn = cell.drawn ? text : paint(text, cell.style, look);
      const std::string space(static_cast<std::size_t>(blanks), ' ');
      line += cell.right ? space + drawn : drawn + space;
      left -= own + blanks;
      if (!last) {
        line += "  ";
        left -= 2;
      }
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string plural(std::int64_t count, std::string_view one, std::string_view many) {
  if (count == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, many);
}

std::string print_seconds(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 100) return fmt::format("{} s", whole);
  return whole % 60 == 0 ? fmt::format("{} min", whole / 60) : fmt::format("{} min {} s", whole / 60, whole % 60);
}

std::string LinePrefix::add(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    if (!inside_) out += prefix_;
    const auto end = piece.find('\n');
    inside_ = end == std::string_view::npos;
    out += piece.substr(0, end == std::string_view::npos ? end : end + 1);
    piece.remove_prefix(inside_ ? piece.size() : end + 1);
  }
  return out;
}

std::string LineJoin::add(std::string_view piece) {
  open_ += piece;
  const auto end = open_.rfind('\n');
  std::string out;
  if (end != std::string::npos) {
    out = open_.substr(0, end + 1);
    open_.erase(0, end + 1);
  }
  if (open_.size() > 64 << 10) out += rest();
  return out;
}

std::string LineJoin::rest() { return std::exchange(open_, {}); }

}  // namespace fairlead::cli
