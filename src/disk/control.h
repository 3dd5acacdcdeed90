// SPDX-License-Identifier: Apache-2.0
// What an engine is, however it shows its volume: what it serves, what it has done, its memory, and the socket at which it is asked (blocks/disk_control.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "blocks/disk_control.h"
#include "disk/image.h"
#include "disk/limiter.h"

namespace fairlead::disk {

class Serving {
 public:
  Serving(Image& what, const Clock& clock) : image(what), limiter(clock) {}
  virtual ~Serving() = default;
  virtual Result<void> grew(std::int64_t size) = 0;  // the image has this size now: whoever sees it is told
  virtual Result<void> end() = 0;                    // shows it no more. Conflict: somebody has it open
  virtual int shown_as() const { return -1; }        // the number of its ublk device; -1: it has none
  virtual bool is_over() const { return false; }     // others have taken its device away: it serves nobody any more

  // Before it serves: takes what its beginning has touched out of memory, and locks the rest.
  void settle();
  // What requests have left behind, so that a volume that is only attached costs little. The heap gives back no more than its end while it is locked; where a key lies in it, it stays so if there is swap, to which the key could be written meanwhile.
  void give_back();

  Image& image;
  Limiter limiter;
  std::atomic<std::int64_t> reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;

 private:
  bool locked_ = false;  // its memory
};
inline void count(std::atomic<std::int64_t>& what, std::int64_t by) { what.fetch_add(by, std::memory_order_relaxed); }

class Control {
 public:
  static Result<std::unique_ptr<Control>> listen(Serving& disk, const std::string& path, const Clock& clock);
  // Until the disk is told to stop and nobody has it open, or `ended` says that it is over.
  void run(const std::atomic<bool>& ended);

 private:
  Control(Serving& disk, Fd fd, const Clock& clock) : disk_(disk), fd_(std::move(fd)), clock_(clock) {}
  Result<blocks::DiskStatus> carry_out(const blocks::DiskRequest& request);

  Serving& disk_;
  const Fd fd_;
  const Clock& clock_;
};

}  // namespace fairlead::disk
