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
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
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

// How a medium carries what it is asked for: before it returns, as a file; by another thread, later and in any order; or so that it has told before it returns.
enum class Carries { AsAFile, Later, AtOnce };

class Recorder final : public Medium {
 public:
  explicit Recorder(bool syncs, Carries how = Carries::AsAFile) : syncs_(syncs), how_(how) {
    for (int i = 0; how == Carries::Later && i < 3; ++i) carriers_.emplace_back([this, i] { carry(static_cast<std::uint64_t>(i)); });
  }
  ~Recorder() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    more_.notify_all();
    carriers_.clear();
    EXPECT_TRUE(begun_.empty());
    EXPECT_FALSE(changed_) << "what was held stayed as it was";
  }
  bool is_async() const override { return how_ != Carries::AsAFile; }
  // What was read is in pieces, as a network has brought it.
  void read_async(std::size_t size, std::int64_t at, Completion& completion) override {
    begin([this, size, at, &completion](Rng& rng) {
      std::string text(size, '\0');
      const int error = read(text.data(), size, at);
      std::vector<iovec> pieces;
      for (std::size_t done = 0, now = 0; error == 0 && done < size; done += now) {
        now = std::min<std::size_t>(size - done, 1 + rng.below(100'000));
        pieces.push_back({.iov_base = text.data() + done, .iov_len = now});
      }
      completion.complete(error, pieces);
    });
  }
  // A message that is on its way still when it is answered.
  void write_async(const char* from, std::size_t size, std::int64_t at, Completion& completion) override {
    const bool lent = size > kCopied;
    if (lent) {
      const std::lock_guard lock(mutex_);
      ++held_[from];
    }
    begin([this, from, size, at, lent, &completion](Rng& rng) {
      const std::string seen(from, size);
      const int error = write(from, size, at);
      const bool for_ever = error != 0 && holds_;
      completion.complete(error, {});
      if (!lent || for_ever) return;
      if (rng.below(4) == 0) ::usleep(static_cast<useconds_t>(rng.below(3000)));
      const std::lock_guard lock(mutex_);
      changed_ = changed_ || std::memcmp(from, seen.data(), size) != 0;
      --held_[from];
    });
  }
  bool is_held(const char* from) const override {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(from);
    return found != held_.end() && found->second > 0;
  }
  // From now on what fails is held for ever.
  void hold_what_fails() { holds_ = true; }
  // From now on it fails with that; 0: not any more.
  void fail_with(int error) { error_ = error; }
  std::size_t begun() const { return told_later_; }
  std::string name() const override { return "the recorder"; }
  Result<std::int64_t> size() override { return kSize; }
  int read(char* into, std::size_t size, std::int64_t at) override {
    if (error_ != 0) return error_;
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
  void begin(std::function<void(Rng&)> one) {
    Rng rng(++told_later_);
    if (how_ == Carries::AtOnce) return one(rng);
    const std::lock_guard lock(mutex_);
    begun_.push_back(std::move(one));
    more_.notify_one();
  }
  void carry(std::uint64_t seed) {
    Rng rng(seed);
    std::unique_lock lock(mutex_);
    while (true) {
      more_.wait(lock, [&] { return over_ || !begun_.empty(); });
      if (begun_.empty()) return;
      const auto chosen = begun_.begin() + static_cast<std::ptrdiff_t>(rng.below(begun_.size()));
      const auto one = std::move(*chosen);
      begun_.erase(chosen);
      lock.unlock();
      one(rng);
      lock.lock();
    }
  }
  int take(Written one) {
    if (error_ != 0) return error_;
    const std::lock_guard lock(mutex_);
    now_.replace(static_cast<std::size_t>(one.at), one.bytes.size(), one.bytes);
    waiting_.push_back(std::move(one));
    return 0;
  }
  const bool syncs_;
  const Carries how_;
  std::atomic<int> error_ = 0;
  std::atomic<std::size_t> told_later_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::function<void(Rng&)>> begun_;
  std::map<const char*, int> held_;
  std::atomic<bool> holds_ = false;
  bool changed_ = false;
  bool over_ = false;
  std::string now_ = std::string(kSize, '\0'), kept_ = now_;
  std::vector<Written> waiting_;
  std::size_t syncs_seen_ = 0;
  std::vector<std::jthread> carriers_;
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
std::size_t lost_blocks(bool syncs, Carries how, std::uint64_t seed) {
  Recorder* recorder = nullptr;
  auto medium = std::make_unique<Recorder>(syncs, how);
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
void pieces_come_back(Carries how, std::unique_ptr<Cipher> cipher) {
  auto medium = std::make_unique<Recorder>(true, how);
  const Recorder& recorder = *medium;
  const Engine engine(std::move(medium), std::move(cipher));
  ASSERT_TRUE(engine.ready());
  const Loop loop(engine.file());
  ASSERT_TRUE(loop.device);
  {
  std::vector<std::jthread> users;
  for (std::uint64_t user = 0; user < 2; ++user)
    users.emplace_back([&, user] {
      constexpr std::size_t kHalf = kSize / 2;
      const auto begins = static_cast<off_t>(user * kHalf);
      Rng rng(7 + user);
      const Aligned piece(kHalf);
      std::string model(kHalf, '\0');
      for (int step = 0; step < 200; ++step) {
        // Half of them are small: such are copied where the medium tells later, and others lent to it.
        const auto a_size = [&](std::size_t most) { return (1 + rng.below(rng.below(2) == 0 ? most / kSector : std::min<std::size_t>(most / kSector, 16))) * kSector; };
        const std::size_t at = rng.below(kBlocks / 2) * kSector, size = a_size(kHalf - at);
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
        const std::size_t from = rng.below(kBlocks / 2) * kSector, much = a_size(kHalf - from);
        EXPECT_EQ(::pread(loop.device.get(), piece.bytes, much, begins + static_cast<off_t>(from)), static_cast<ssize_t>(much));
        ASSERT_EQ(std::memcmp(piece.bytes, model.data() + from, much), 0) << step;
      }
    });
  }
  EXPECT_EQ(recorder.begun() > 0, how != Carries::AsAFile);
}

class Durable : public testing::TestWithParam<Carries> {
  void SetUp() override {
    if (::geteuid() != 0 || !exists("/dev/fuse") || !exists("/dev/loop-control")) GTEST_SKIP() << "root, FUSE and loop devices are needed";
  }
};

INSTANTIATE_TEST_SUITE_P(All, Durable, testing::Values(Carries::AsAFile, Carries::Later, Carries::AtOnce),
                         [](const auto& about) { return std::string(about.param == Carries::AsAFile ? "AsAFile" : about.param == Carries::Later ? "Later" : "AtOnce"); });
TEST_P(Durable, WhatWasSyncedIsThereAfterAPowerCut) { EXPECT_EQ(lost_blocks(true, GetParam(), 1), 0u); }
TEST_P(Durable, PiecesOfAllSizesComeBack) { pieces_come_back(GetParam(), nullptr); }
TEST_P(Durable, EncryptedPiecesOfAllSizesComeBack) {
  std::string key(Cipher::kKey, 'k');
  key[0] = 'x';
  pieces_come_back(GetParam(), Cipher::make(key).value());
}
TEST_P(Durable, AnErrorIsTold) {
  auto medium = std::make_unique<Recorder>(true, GetParam());
  Recorder& recorder = *medium;
  const Engine engine(std::move(medium));
  ASSERT_TRUE(engine.ready());
  const Loop loop(engine.file());
  ASSERT_TRUE(loop.device);
  const Aligned piece(kSector);
  std::memset(piece.bytes, 'x', kSector);
  ASSERT_EQ(::pwrite(loop.device.get(), piece.bytes, kSector, 0), kSector);
  recorder.fail_with(ESHUTDOWN);
  EXPECT_EQ(::pwrite(loop.device.get(), piece.bytes, kSector, 0), -1);
  EXPECT_EQ(::pread(loop.device.get(), piece.bytes, kSector, 0), -1);
  recorder.fail_with(0);
  EXPECT_EQ(::pread(loop.device.get(), piece.bytes, kSector, 0), kSector);
  EXPECT_EQ(::fdatasync(loop.device.get()), -1) << "shut out once, nothing is said to be durable again";
}
// More of them than there are rooms.
TEST_P(Durable, WhatIsHeldForEverHoldsNothingUp) {
  auto medium = std::make_unique<Recorder>(true, GetParam());
  Recorder& recorder = *medium;
  const Engine engine(std::move(medium));
  ASSERT_TRUE(engine.ready());
  const Loop loop(engine.file());
  ASSERT_TRUE(loop.device);
  const Aligned piece(kSize);
  std::memset(piece.bytes, 'x', kSize);
  recorder.hold_what_fails();
  recorder.fail_with(ENOSPC);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(::pwrite(loop.device.get(), piece.bytes, kSize, 0), -1);
  recorder.fail_with(0);
  EXPECT_EQ(::pwrite(loop.device.get(), piece.bytes, kSize, 0), kSize);
  EXPECT_EQ(::pread(loop.device.get(), piece.bytes, kSize, 0), kSize);
}
// The first with syncing switched off: it finds what is lost.
TEST_P(Durable, WithoutSyncingThisTestFails) { EXPECT_GT(lost_blocks(false, GetParam(), 1), 0u); }

}  // namespace
}  // namespace fairlead::disk
