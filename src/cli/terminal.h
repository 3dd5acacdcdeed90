// SPDX-License-Identifier: Apache-2.0
// This process's terminal: its size, its modes, and progress lines with elapsed time.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include <termios.h>

#include "cli/text.h"

namespace fairlead::cli {

// Colours only on a terminal that is not dumb and where NO_COLOR is not set.
Look look_of_stdout(bool no_color);
struct WindowSize {
  int columns = 80, rows = 24;
};
WindowSize window_size(int fd);
bool is_terminal(int fd);

// Raw mode of stdin while it lives. Nothing where stdin is no terminal.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  bool raw_ = false;
  termios before_{};
};

// Steps of a longer command on stderr: "✓ server            0.8 s". On a terminal the running step is redrawn in place with the time that has passed;
// elsewhere each step is a line when it ends. One owner.
class Progress {
 public:
  explicit Progress(Look look, bool quiet = false);
  void begin(const std::string& title);
  void note(const std::string& text);  // what is going on within the step; shown behind the time
  void end(const std::string& text = "");
  void fail(const std::string& text = "");
  void line(const std::string& text);  // a line of its own, above the running step
  double seconds() const;              // since the first step
  void redraw();                       // call now and then while waiting

 private:
  void draw_running();
  void clear_running();
  void finish(const std::string& mark, Style style, const std::string& text);
  Look look_;
  bool quiet_, live_;
  std::chrono::steady_clock::time_point start_, step_start_;
  std::string title_, note_;
  bool running_ = false, drawn_ = false;
};

}  // namespace fairlead::cli
