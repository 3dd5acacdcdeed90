// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace fairlead::cli {

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

WindowSize window_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return {.columns = size.ws_col, .rows = size.ws_row};
  if (const char* columns = std::getenv("COLUMNS"); columns && std::atoi(columns) > 0) return {.columns = std::atoi(columns), .rows = 24};
  return {.columns = 100, .rows = 24};
}

namespace {

bool speaks_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) return std::string_view(value).find("UTF-8") != std::string_view::npos || std::string_view(value).find("utf8") != std::string_view::npos;
  return true;  // nothing is said (sudo drops it): nearly every terminal does
}

Look look_of(int fd, bool no_color) {
  const char* term = std::getenv("TERM");
  const char* no = std::getenv("NO_COLOR");
  const bool dumb = term && std::string_view(term) == "dumb";
  return {.width = window_size(fd).columns, .color = !no_color && !(no && *no) && !dumb && is_terminal(fd), .unicode = speaks_utf8()};
}

}  // namespace

Look look_of_stdout(bool no_color) { return look_of(STDOUT_FILENO, no_color); }

RawTerminal::RawTerminal() {
  if (!is_terminal(STDIN_FILENO) || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
  termios raw = before_;
  ::cfmakeraw(&raw);
  raw_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}
RawTerminal::~RawTerminal() {
  if (raw_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

Progress::Progress(Look look, bool quiet) : look_(look), quiet_(quiet), live_(is_terminal(STDERR_FILENO)), start_(std::chrono::steady_clock::now()), step_start_(start_) {
  look_.width = window_size(STDERR_FILENO).columns;
  look_.color = look_.color || (live_ && look_of(STDERR_FILENO, false).color);
}

double Progress::seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

void Progress::begin(const std::string& title) {
  title_ = title;
  note_.clear();
  step_start_ = std::chrono::steady_clock::now();
  running_ = true;
  draw_running();
}

void Progress::note(const std::string& text) {
  note_ = clean(text);
  draw_running();
}
void Progress::redraw() { draw_running(); }

void Progress::clear_running() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  drawn_ = false;
}

void Progress::draw_running() {
  if (!live_ || quiet_ || !running_) return;
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - step_start_).count();
  constexpr std::string_view kFrames[] = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
  const std::string frame(look_.unicode ? kFrames[static_cast<std::size_t>(passed * 10) % 10] : std::string_view("*"));
  std::string line = fmt::format("  {} {}  {}", paint(frame, Style::Accent, look_), pad_to(title_, 42), paint(pad_to(print_seconds(passed), 8), Style::Dim, look_));
  if (!note_.empty()) line += "  " + paint(cut_to(note_, look_.width - 60, look_), Style::Dim, look_);
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::finish(const std::string& mark, Style style, const std::string& text) {
  if (!running_) return;
  running_ = false;
  clear_running();
  if (quiet_) return;
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - step_start_).count();
  fmt::print(stderr, "  {} {}  {}{}\n", paint(mark, style, look_), pad_to(title_, 42), paint(text.empty() ? print_seconds(passed) : pad_to(print_seconds(passed), 8), Style::Dim, look_),
             text.empty() ? "" : "  " + text);
  std::fflush(stderr);
}
void Progress::end(const std::string& text) { finish(look_.unicode ? "✓" : "+", Style::Good, text); }
void Progress::fail(const std::string& text) { finish(look_.unicode ? "✗" : "x", Style::Bad, text); }

void Progress::line(const std::string& text) {
  if (quiet_) return;
  clear_running();
  fmt::print(stderr, "    {}\n", text);
  draw_running();
}

}  // namespace fairlead::cli
