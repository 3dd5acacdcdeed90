// SPDX-License-Identifier: Apache-2.0
// Text for people on a terminal: widths, colours, bars, columns. Pure: how the terminal is comes as an argument.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::cli {

// How to draw.
struct Look {
  int width = 100;      // columns
  bool color = false;
  bool unicode = true;  // false: plain ASCII
};

enum class Style { Plain, Bold, Dim, Good, Warn, Bad, Accent };
std::string paint(std::string_view text, Style style, const Look& look);

// Columns that a text takes on the terminal: code points, escape sequences not counted.
int columns_of(std::string_view text);
std::string cut_to(std::string_view text, int columns, const Look& look);  // with an ellipsis where it was cut
std::string pad_to(std::string text, int columns);                         // blanks behind
std::string clean(std::string_view text);  // control characters of outside texts become blanks: nobody else moves our cursor

// A bar of `cells` columns, filled by `part` of `whole`; green, yellow from 70 %, red from 95 %.
std::string bar(double part, double whole, int cells, const Look& look);

struct Cell {
  std::string text;  // plain
  Style style = Style::Plain;
  bool drawn = false;  // text holds escapes already (a bar)
  bool right = false;  // aligned right
};
using Row = std::vector<Cell>;
// Columns as wide as they must be with two blanks between; rows are cut at the look's width, the last column first. Each line starts with `indent`.
std::string draw_rows(const std::vector<Row>& rows, std::string_view indent, const Look& look);

std::string plural(std::int64_t count, std::string_view one, std::string_view many = "");  // "1 node", "3 nodes"
// "0.4 s", "12 s", "3 min 5 s"
std::string print_seconds(double seconds);

// Puts a prefix before every line of a text that comes in pieces.
class LinePrefix {
 public:
  explicit LinePrefix(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string add(std::string_view piece);

 private:
  const std::string prefix_;
  bool inside_ = false;  // of a line
};

// Whole lines of a text that comes in pieces, for an output that several share. A line of more than 64 KiB is given out in parts.
class LineJoin {
 public:
  std::string add(std::string_view piece);
  std::string rest();  // what has no end yet

 private:
  std::string open_;
};

}  // namespace fairlead::cli
