// SPDX-License-Identifier: Apache-2.0
// For tests: a disk that loses, or tears, what was not synced when it crashes, and a journal on it.
#pragma once
#include <functional>
#include <string>
#include <utility>

#include "base/rng.h"
#include "volumes/journal.h"

namespace fairlead::volumes {

// Unsynced bytes are lost at a crash, or there in part.
struct MemoryDisk {
  std::string durable, pending;
  bool syncs = true;
  std::function<bool(bool after)> dies;
  std::function<bool()> full;  // then half of what is appended is there
  void crash(Rng& rng) {
    durable += pending.substr(0, rng.below(pending.size() + 1));
    pending.clear();
  }
};
class MemoryJournal final : public JournalFile {
 public:
  explicit MemoryJournal(MemoryDisk& disk) : disk_(disk) {}
  Result<std::string> read() override { return disk_.durable + disk_.pending; }
  Result<void> append(std::string_view bytes) override {
    if (disk_.dies && disk_.dies(false)) return fail(Code::Unavailable, "died");
    if (disk_.full && disk_.full()) {
      disk_.pending += bytes.substr(0, bytes.size() / 2);
      return fail(Code::Exhausted, "no space left on device");
    }
    disk_.pending += bytes;
    return {};
  }
  Result<void> sync() override {
    if (disk_.dies && disk_.dies(false)) return fail(Code::Unavailable, "died");
    if (disk_.syncs) disk_.durable += std::exchange(disk_.pending, {});
    if (disk_.dies && disk_.dies(true)) return fail(Code::Unavailable, "died");
    return {};
  }
  Result<void> cut(std::size_t size) override {
    disk_.durable = (disk_.durable + disk_.pending).substr(0, size);
    disk_.pending.clear();
    return {};
  }
  Result<void> replace(std::string_view bytes) override {
    disk_.durable = bytes;
    disk_.pending.clear();
    return {};
  }

 private:
  MemoryDisk& disk_;
};

}  // namespace fairlead::volumes
