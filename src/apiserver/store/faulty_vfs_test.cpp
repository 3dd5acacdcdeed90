// SPDX-License-Identifier: Apache-2.0
// The disk that the crash tests trust: does it forget, tear and fail as it says?
#include "apiserver/store/faulty_vfs.h"

#include <gtest/gtest.h>

#include <set>

#include "apiserver/store/sqlite_handle.h"

namespace fairlead::apiserver {
namespace {

// One file on the disk, without SQLite in between.
class RawFile {
 public:
  RawFile(const FaultyDisk& disk, const char* name) : vfs_(sqlite3_vfs_find(disk.vfs().c_str())), memory_(static_cast<std::size_t>(vfs_->szOsFile)) {
    INVARIANT(vfs_->xOpen(vfs_, name, file(), SQLITE_OPEN_CREATE | SQLITE_OPEN_READWRITE, nullptr) == SQLITE_OK);
  }
  ~RawFile() { file()->pMethods->xClose(file()); }
  int write(std::int64_t at, const std::string& bytes) { return file()->pMethods->xWrite(file(), bytes.data(), static_cast<int>(bytes.size()), at); }
  int sync() { return file()->pMethods->xSync(file(), SQLITE_SYNC_NORMAL); }
  int truncate(std::int64_t size) { return file()->pMethods->xTruncate(file(), size); }
  std::string read(std::size_t count) {
    std::string out(count, '?');
    file()->pMethods->xRead(file(), out.data(), static_cast<int>(count), 0);
    return out;
  }

 private:
  sqlite3_file* file() { return reinterpret_cast<sqlite3_file*>(memory_.data()); }
  sqlite3_vfs* vfs_;
  std::vector<char> memory_;
};

TEST(FaultyDisk, KeepsWhatWasSyncedAndLosesAnyPartOfTheRest) {
  std::set<std::string> outcomes;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    FaultyDisk disk(seed);
    {
      RawFile file(disk, "f");
      file.write(0, std::string(1024, 'a'));
      EXPECT_EQ(file.sync(), SQLITE_OK);
      file.write(256, std::string(768, 'b'));  // half of the first sector, all of the second
      EXPECT_EQ(file.read(1024), std::string(256, 'a') + std::string(768, 'b')) << "a program sees its own writes";
    }
    disk.power_cycle();
    const std::string after = RawFile(disk, "f").read(1024);
    EXPECT_EQ(after.substr(0, 256), std::string(256, 'a')) << "bytes beside a write are never harmed";
    for (const auto& piece : {after.substr(256, 256), after.substr(512, 512)}) {
      EXPECT_TRUE(piece.find_first_not_of(piece[0]) == std::string::npos) << "a sector is written whole or not at all";
    }
    outcomes.insert({after[300], after[600]});
  }
  EXPECT_EQ(outcomes, (std::set<std::string>{"aa", "ab", "ba", "bb"})) << "also the later without the earlier";
}

TEST(FaultyDisk, AFileThatWasNeverSyncedMayBeGone) {
  int gone = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    FaultyDisk disk(seed);
    RawFile(disk, "f").write(0, "x");
    disk.power_cycle();
    gone += disk.size_of("f") < 0 ? 1 : 0;
  }
  EXPECT_GT(gone, 10);
  EXPECT_LT(gone, 100);
}

TEST(FaultyDisk, NothingWorksAfterThePowerIsCut) {
  FaultyDisk disk(1);
  {
    RawFile file(disk, "f");
    disk.cut_power_after(1);
    EXPECT_EQ(file.write(0, "x"), SQLITE_OK);
    EXPECT_EQ(file.write(0, "y"), SQLITE_IOERR_WRITE);
    EXPECT_TRUE(disk.dark());
    EXPECT_EQ(file.sync(), SQLITE_IOERR_FSYNC);
    EXPECT_EQ(file.truncate(0), SQLITE_IOERR_TRUNCATE);
  }
  disk.power_cycle();
  RawFile file(disk, "f");
  EXPECT_EQ(file.write(0, "z"), SQLITE_OK);
}

TEST(FaultyDisk, FailsOnceWhereTold) {
  FaultyDisk disk(1);
  RawFile file(disk, "f");
  disk.fail_next(FaultyDisk::Fault::SyncIo, 1);
  EXPECT_EQ(file.sync(), SQLITE_OK);
  EXPECT_EQ(file.sync(), SQLITE_IOERR_FSYNC);
  EXPECT_FALSE(disk.fault_pending());
  EXPECT_EQ(file.sync(), SQLITE_OK);
  disk.limit_size(600);
  EXPECT_EQ(file.write(0, std::string(500, 'x')), SQLITE_OK);
  EXPECT_EQ(file.write(500, std::string(500, 'x')), SQLITE_FULL);
  EXPECT_EQ(disk.size(), 600) << "a short write, as a full file system makes";
  EXPECT_EQ(file.write(0, std::string(500, 'y')), SQLITE_OK) << "overwriting needs no room";
}

}  // namespace
}  // namespace fairlead::apiserver
