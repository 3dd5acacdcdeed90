// SPDX-License-Identifier: Apache-2.0
// Where the lines of the decision log go (plan/decision_record.h): a port, and a file of limited size.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/units.h"

namespace fairlead::governance {

// Never waits for what it writes to: decisions go on, whatever a disk does. Any thread, one at a time.
struct DecisionSink {
  virtual ~DecisionSink() = default;
  enum class Then {
    GoOn,
    BeginAnew,  // it has grown large: begin() is expected next
    Off,        // these lines are lost, and so are those that follow, until a begin() that says otherwise
  };
  virtual bool ready() = 0;                         // may begin() be tried?
  virtual Then begin(std::string lines) = 0;   // of a new part, which can be replayed alone
  virtual Then append(std::string lines) = 0;  // whole lines
};

struct DecisionLogOptions {
  std::string path;
  Bytes limit = 32_MiB;
  std::chrono::nanoseconds retry = std::chrono::minutes(1), most_retry = std::chrono::hours(1);  // after trouble it rests so long, and twice as long each time, until something was written
  std::function<ssize_t(int, const void*, std::size_t)> write;                                   // of tests: for that of the system
};

// FILE, and FILE.1 with what was there before: each at most twice as large as the limit, both together at most four times. A line is whole or, after a crash, cut off when the file is opened; nothing is synced. A thread of its own
// writes; what waits for it is at most as much as the limit. Mode 0600, of this process' user; the folder must be there. While another process writes the file, this one has none.
class DecisionLogFile final : public DecisionSink {
 public:
  explicit DecisionLogFile(DecisionLogOptions options);  // waits a second for the file to be there
  ~DecisionLogFile() override;                           // writes what waits
  bool ready() override;
  Then begin(std::string lines) override;
  Then append(std::string lines) override;
  void flush();            // returns when all is written or lost
  std::string problem();   // why it rests; empty: it does not

 private:
  struct Piece {
    bool begins = false;
    std::string lines;
  };
  void run(const std::stop_token& stop);
  void rest(std::string why);  // under mutex_
  Then put(Piece piece);       // under mutex_
  // Of the thread, without mutex_.
  Result<void> open_file(int more_flags);
  Result<void> cut_open_line();
  Result<void> write(const Piece& piece);
  [[nodiscard]] bool takes_a_new_file(const Piece& piece, std::int64_t size) const;  // if the file has that size then

  const DecisionLogOptions options_;
  Fd file_;                // of the thread
  std::int64_t size_ = 0;  // of the thread

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Piece> todo_;
  std::int64_t waiting_ = 0;    // bytes that wait or are being written
  std::int64_t will_be_ = 0;    // bytes in the file once they are written
  bool open_ = false, lost_ = true, resting_ = false, writing_ = false;
  std::string problem_;
  std::chrono::nanoseconds retry_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace fairlead::governance
