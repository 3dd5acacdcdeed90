// SPDX-License-Identifier: Apache-2.0
// Reads a container's log (CRI format, rotated files beside it) as `kubectl logs` asks for it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace fairlead::node {

struct LogQuery {
  bool timestamps = false;
  std::optional<std::int64_t> tail_lines, limit_bytes;
  std::optional<Instant> since;
};

// One entry of a log file: "2026-01-02T03:04:05.678901234+00:00 stdout F text".
struct LogEntry {
  std::string_view time, stream, text;
  bool partial = false;  // without the line's end
};
std::optional<LogEntry> parse_log_entry(std::string_view line);

class LogReader {
 public:
  // `path`: the newest file; "path.1" is the one before, and so on.
  LogReader(std::string path, LogQuery query);
  // The next piece of output, at most about 64 KiB; empty: nothing more for now. After `limit_bytes` done() is true.
  Result<std::string> next();
  // The same as entries, `timestamps` and `limit_bytes` aside. False: nothing more for now.
  Result<bool> next_entries(const std::function<void(const LogEntry&)>& each);
  bool done() const { return query_.limit_bytes && *query_.limit_bytes <= 0; }

 private:
  void open_first();
  void seek_tail();
  void format(const LogEntry& entry, std::string& out);
  Result<bool> read_on();
  void take_lines(const std::function<void(const LogEntry&)>& each);
  std::string path_;
  LogQuery query_;
  std::vector<Fd> older_;  // still to be read, the oldest last
  Fd file_;
  std::string rest_;  // the beginning of an entry whose end is not written yet
  bool opened_ = false, line_open_ = false;
};

}  // namespace fairlead::node
