// SPDX-License-Identifier: Apache-2.0
// What was synced through an engine is there after a power cut: the engine as it is, under a loop device of the kernel, over a medium that keeps what was synced and drops or tears what was not. And requests of all sizes, of several threads, arrive as they are. Needs root, FUSE and loop devices.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/rng.h"
#include "disk/fuse_disk.h"

namespace fairlead::disk {
namespace {

constexpr std::int64_t kSize = 4 << 20, kBlocks = kSize / kSector;

class Recorder final : public Medium {
 public:
  explicit Recorder(bool syncs) : syncs_(syncs) {}
  std::string name() const override { return "the recorder"; }
  Result<std::int64_t> size() override { return kSize; }
  int read(char* into, std::size_t size, std::int64_t at) override {
    const std::lock_guard lock(mutex_);
    std::memcpy(into, now_.data() + at, size);
    return 0;
  }
  int write(const char* from, std::size_t size, std::int64_t at) override { return take({at, std::string(from, size)}); }
  std::int64_t seek(std::int64_t at, int whence) override { return whence == SEEK_DATA ? at : kSize; }
  int zero(std::int64_t at, std::int64_t size, bool) override { return take({at, std::string(static_cast<std::size_t>(size), '\0')}); }
  int sync() override {
    const std::lock_guard lock(mutex_);
    ++syncs_seen_;
    if (!syncs_) return 0;
    kept_ = now_;
    waiting_.clear();
    return 0;
  }
  // Of what was not synced any part may be there, in pieces of 512 bytes, and in any order.
  std::string cut(Rng& rng) {
    const std::lock_guard lock(mutex_);
    std::string out = kept_;
    for (const auto& [at, bytes] : waiting_)
      for (std::size_t piece = 0; piece < bytes.size(); piece += 512)
        if (rng.below(2) == 0) out.replace(static_cast<std::size_t>(at) + piece, 512, bytes, piece, 512);
    return out;
  }
  std::size_t syncs_seen() {
    const std::lock_guard lock(mutex_);
    return syncs_seen_;
  }

 private:
  struct Written {
    std::int64_t at;
    std::string bytes;
  };
  int take(Written one) {
    const std::lock_guard lock(mutex_);
    now_.replace(static_cast<std::size_t>(one.at), one.bytes.size(), one.bytes);
    waiting_.push_back(std::move(one));
    return 0;
  }
  const bool syncs_;
  std::mutex mutex_;
  std::string now_ = std::string(kSize, '\0'), kept_ = now_;
  std::vector<Written> waiting_;
  std::size_t syncs_seen_ = 0;
};

struct Aligned {
  explicit Aligned(std::size_t size) : bytes(static_cast<char*>(std::aligned_alloc(kSector, size))) {}
  Aligned(const Aligned&) = delete;
  ~Aligned() { std::free(bytes); }
  char* const bytes;
};

// The kernel's device on the engine's file; gone with it.
class Loop {
 public:
  explicit Loop(const std::string& file) {
    const Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC)), backing(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    for (int tries = 0; tries < 64 && control && backing && !device; ++tries) {
      const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
      Fd loop(::open(fmt::format("/dev/loop{}", number).c_str(), O_RDWR | O_CLOEXEC | O_DIRECT));
      loop_config config{};
      config.fd = static_cast<__u32>(backing.get());
      config.block_size = kSector;
      config.info.lo_flags = LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR;
      if (loop && ::ioctl(loop.get(), LOOP_CONFIGURE, &config) == 0) device = std::move(loop);
    }
  }
  Fd device;
};

// An engine in this process.
class Engine {
 public:
  explicit Engine(std::unique_ptr<Medium> medium, std::unique_ptr<Cipher> cipher = nullptr) : image_(Image::open(std::move(medium), false, 0, std::move(cipher)).value()) {
    EXPECT_NE(::mkdtemp(folder_), nullptr);
    thread_ = std::jthread([this] {
      const auto done = serve_disk(*image_, {.folder = folder_, .name = "data"}, {}, clock_, [this] { ready_ = true; });
      EXPECT_TRUE(done) << done.error().message;
      ended_ = true;
    });
    while (!ready_ && !ended_) ::usleep(1000);
  }
  ~Engine() {
    for (int tries = 0; ready_ && !ended_ && tries < 100; ++tries) {
      (void)blocks::ask_disk(std::string(folder_) + "/control", {.what = blocks::DiskRequest::Do::Stop, .limits = {}});
      ::usleep(20'000);
    }
    thread_.join();
    (void)remove_tree(folder_);
  }
  bool ready() const { return ready_; }
  std::string file() const { return fmt::format("{}/disk/data", folder_); }

 private:
  const std::unique_ptr<Image> image_;
  const SystemClock clock_;
  char folder_[64] = "/tmp/fairlead-durable-XXXXXX";
  std::atomic<bool> ready_ = false, ended_ = false;
  std::jthread thread_;
};

// How many blocks were found to hold less than what had been synced, over all cuts.
std::size_t lost_blocks(bool syncs, std::uint64_t seed) {
  Recorder* recorder = nullptr;
  auto medium = std::make_unique<Recorder>(syncs);
  recorder = medium.get();
  const Engine engine(std::move(medium));
  std::size_t lost = 0;
  if (engine.ready()) {
    Loop loop(engine.file());
    EXPECT_TRUE(loop.device);
    std::mutex mutex;
    std::vector<std::uint64_t> synced(kBlocks, 0);
    std::atomic<bool> stop = false;
    {
      std::vector<std::jthread> writers;
      for (std::int64_t writer = 0; loop.device && writer < 4; ++writer)
        writers.emplace_back([&, writer] {
          Rng rng(seed + static_cast<std::uint64_t>(writer));
          std::vector<std::uint64_t> written(kBlocks, 0);
          const Aligned block(kSector);
          for (std::uint64_t version = 1; !stop; ++version) {
            const std::int64_t at = static_cast<std::int64_t>(rng.below(kBlocks / 4)) * 4 + writer;
            for (std::size_t word = 0; word < kSector / 8; ++word) std::memcpy(block.bytes + word * 8, &version, 8);
            EXPECT_EQ(::pwrite(loop.device.get(), block.bytes, kSector, at * kSector), kSector);
            written[static_cast<std::size_t>(at)] = version;
            if (rng.below(8) != 0) continue;
            EXPECT_EQ(::fdatasync(loop.device.get()), 0);
            const std::lock_guard lock(mutex);
            for (std::size_t i = static_cast<std::size_t>(writer); i < written.size(); i += 4) synced[i] = written[i];
          }
        });
      Rng rng(seed + 100);
      for (int cuts = 0; cuts < 50; ++cuts) {
        ::usleep(4000);
        std::vector<std::uint64_t> least;
        {
          const std::lock_guard lock(mutex);
          least = synced;
        }
        const std::string disk = recorder->cut(rng);
        for (std::size_t i = 0; i < least.size(); ++i) {
          bool older = false;
          for (std::size_t word = 0; word < kSector / 8; ++word) {
            std::uint64_t version = 0;
            std::memcpy(&version, disk.data() + i * kSector + word * 8, 8);
            older = older || version < least[i];
          }
          lost += older ? 1 : 0;
        }
      }
      stop = true;
    }
    EXPECT_GT(recorder->syncs_seen(), 0u) << "a flush of the device reaches the medium";
  }
  return lost;
}

// Each of two threads has a half, and writes, zeroes and reads pieces of it.
void pieces_come_back(std::unique_ptr<Cipher> cipher) {
  const Engine engine(std::make_unique<Recorder>(true), std::move(cipher));
  ASSERT_TRUE(engine.ready());
  const Loop loop(engine.file());
  ASSERT_TRUE(loop.device);
  std::vector<std::jthread> users;
  for (std::uint64_t user = 0; user < 2; ++user)
    users.emplace_back([&, user] {
      constexpr std::size_t kHalf = kSize / 2;
      const auto begins = static_cast<off_t>(user * kHalf);
      Rng rng(7 + user);
      const Aligned piece(kHalf);
      std::string model(kHalf, '\0');
      for (int step = 0; step < 200; ++step) {
        const std::size_t at = rng.below(kBlocks / 2) * kSector, size = (1 + rng.below((kHalf - at) / kSector)) * kSector;
        if (rng.below(4) == 0) {
          std::uint64_t range[2] = {static_cast<std::uint64_t>(begins) + at, size};
          EXPECT_EQ(::ioctl(loop.device.get(), BLKZEROOUT, range), 0);
          model.replace(at, size, size, '\0');
        } else {
          for (std::size_t word = 0; word < size; word += 8) {
            const std::uint64_t value = rng.next();
            std::memcpy(piece.bytes + word, &value, 8);
          }
          EXPECT_EQ(::pwrite(loop.device.get(), piece.bytes, size, begins + static_cast<off_t>(at)), static_cast<ssize_t>(size));
          model.replace(at, size, piece.bytes, size);
        }
        if (rng.below(4) == 0) { EXPECT_EQ(::fdatasync(loop.device.get()), 0); }
        const std::size_t from = rng.below(kBlocks / 2) * kSector, much = (1 + rng.below((kHalf - from) / kSector)) * kSector;
        EXPECT_EQ(::pread(loop.device.get(), piece.bytes, much, begins + static_cast<off_t>(from)), static_cast<ssize_t>(much));
        ASSERT_EQ(std::memcmp(piece.bytes, model.data() + from, much), 0) << step;
      }
    });
}

class Durable : public testing::Test {
  void SetUp() override {
    if (::geteuid() != 0 || !exists("/dev/fuse") || !exists("/dev/loop-control")) GTEST_SKIP() << "root, FUSE and loop devices are needed";
  }
};

TEST_F(Durable, WhatWasSyncedIsThereAfterAPowerCut) { EXPECT_EQ(lost_blocks(true, 1), 0u); }
TEST_F(Durable, PiecesOfAllSizesComeBack) { pieces_come_back(nullptr); }
TEST_F(Durable, EncryptedPiecesOfAllSizesComeBack) {
  std::string key(Cipher::kKey, 'k');
  key[0] = 'x';
  pieces_come_back(Cipher::make(key).value());
}
// The first with syncing switched off: it finds what is lost.
TEST_F(Durable, WithoutSyncingThisTestFails) { EXPECT_GT(lost_blocks(false, 1), 0u); }

}  // namespace
}  // namespace fairlead::disk
