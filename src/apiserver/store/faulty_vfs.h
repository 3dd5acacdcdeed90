// SPDX-License-Identifier: Apache-2.0
// A disk in memory that forgets, for tests: a SQLite VFS that keeps what was written apart from what was synced. Cutting its power keeps any part of
// the unsynced writes, sector by sector, later ones without earlier ones too; and it fails operations where it is told to.
// Only tests use it. It promises what SQLite assumes of disks ("powersafe overwrite"): a write never harms bytes beside it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/rng.h"

namespace fairlead::apiserver {

// Thread-safe. Every database on it must be closed before power_cycle() and before it goes.
class FaultyDisk {
 public:
  explicit FaultyDisk(std::uint64_t seed);
  ~FaultyDisk();
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;
  const std::string& vfs() const;  // the name to give to SQLite

  // Operations that change something are counted: write, truncate, sync, create, delete. With the given count done, the power goes: that
  // operation may have left a part, and it and all later ones fail.
  void cut_power_after(std::uint64_t operations);
  std::uint64_t operations() const;
  bool dark() const;
  // What is on the disk when the power is back: every unsynced piece kept or lost by chance.
  void power_cycle();

  enum class Fault { WriteIo, SyncIo, TruncateIo, SyncIoThough };  // SyncIoThough: reports failure, yet the data is there
  void fail_next(Fault fault, int skip = 0);  // once, after `skip` more operations of its kind
  bool fault_pending() const;
  void limit_size(std::int64_t bytes);        // of all files together: ENOSPC beyond; negative: no limit
  std::int64_t size() const;
  // Flips one bit of a file as it is now, synced or not. False: no such file or shorter.
  bool flip_bit(const std::string& path, std::int64_t byte, int bit);
  std::int64_t size_of(const std::string& path) const;  // -1: none
  std::uint64_t lost_pieces() const;                    // sectors that power cuts took so far

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace fairlead::apiserver
