// SPDX-License-Identifier: Apache-2.0
// One suite on a pool in memory, on XFS with the kernel's loop devices and, where FAIRLEAD_TEST_CEPH says where one is (tests/ceph_lib.sh), in a Ceph pool; and, in memory, a death at every step.
#include "volumes/volume_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <type_traits>

#include "api/volume_key.h"
#include "base/fd.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/rng.h"
#include "blocks/block_devices.h"
#include "blocks/ublk.h"
#include "volumes/fake_machine.h"
#include "volumes/fake_pool.h"
#include "volumes/engine_keeper.h"
#include "volumes/file_pool.h"
#include "kube/tiny_api.h"
#include "volumes/luks.h"
#include "volumes/memory_journal.h"
#include "volumes/rbd_machine.h"
#include "volumes/rbd_pool.h"

namespace fairlead::volumes {
namespace {

using namespace std::chrono_literals;
using kube::Json;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::int64_t mib = 1 << 20;

// ---- both

struct Kind {
  const char* name;
  bool real;
  bool managed = false;  // by engines
  bool encrypted = false;
  bool ceph = false;
  bool kept = false;  // started by an EngineKeeper
};
class Pools : public testing::TestWithParam<Kind> {
 protected:
  // In a thread with mounts of its own: whatever happens, nothing of it stays.
  void with_pool(const std::function<void(Pool&, VolumePool&)>& work) {
    if (!GetParam().real) {
      FakePool pool;
      auto opened = VolumePool::open(pool, std::make_unique<MemoryJournal>(disk_));
      ASSERT_TRUE(opened) << opened.error().message;
      return work(pool, **opened);
    }
    if (GetParam().ceph) return with_ceph(work);
    if (::geteuid() != 0 || !exists("/usr/sbin/mkfs.xfs") || !exists("/dev/loop-control")) GTEST_SKIP() << "needs root, xfsprogs and loop devices";
    const auto beside = program_beside("bin/fairlead-disk");
    const std::string engine = beside && GetParam().managed ? *beside : "";
    if (GetParam().managed && (!exists(engine) || !exists("/dev/fuse"))) GTEST_SKIP() << "needs fairlead-disk and /dev/fuse";
    if (GetParam().encrypted && !exists("/usr/sbin/cryptsetup")) GTEST_SKIP() << "needs cryptsetup";
    const std::string folder = testing::TempDir() + "fairlead-pool-" + random_uuid();
    ASSERT_TRUE(make_dirs(folder + "/pool"));
    folder_ = folder + "/pool";
    std::thread([&] {
      ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
      ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
      const auto run = [](std::vector<std::string> argv) {
        auto done = run_checked({.argv = std::move(argv)}, 60s);
        ASSERT_TRUE(done) << done.error().message;
      };
      run({"/usr/bin/truncate", "-s", "640M", folder + "/image"});
      run({"/usr/sbin/mkfs.xfs", "-q", "-m", "reflink=1", folder + "/image"});
      run({"/bin/mount", "-o", "loop", folder + "/image", folder + "/pool"});
      if (testing::Test::HasFatalFailure()) return;
      {
        std::optional<Child> keeper;  // a process of its own, as it reaps whatever is its child
        const std::string socket = folder + "/engines.sock";
        if (GetParam().kept) {
          const auto program = program_beside("bin/fairlead-volumes");
          ASSERT_TRUE(program);
          auto begun = Child::start({.argv = {*program, "engines", "--socket", socket, "--engine", engine}});
          ASSERT_TRUE(begun) << begun.error().message;
          keeper = std::move(*begun);
          for (int i = 0; i < 1000 && !keeper_answers(socket); ++i) std::this_thread::sleep_for(10ms);
          ASSERT_TRUE(keeper_answers(socket));
        }
        auto pool = open_file_pool(folder + "/pool", keeper ? std::string(kKeeperAt) + socket : engine, keyring_.get());
        ASSERT_TRUE(pool) << pool.error().message;
        auto opened = VolumePool::open(**pool, std::make_unique<MemoryJournal>(disk_));
        ASSERT_TRUE(opened) << opened.error().message;
        work(**pool, **opened);
        end_all(**pool);
        if (keeper) {
          EXPECT_TRUE(keeper->signal(SIGTERM));
          const auto ended = keeper->wait(20s);
          EXPECT_TRUE(ended && *ended && (*ended)->code == 0) << "it waits for its engines, of which none is left";
        }
      }
      EXPECT_EQ(::umount2((folder + "/pool").c_str(), MNT_DETACH), 0);
    }).join();
    EXPECT_TRUE(remove_tree(folder));
  }
  // In a namespace of its own.
  void with_ceph(const std::function<void(Pool&, VolumePool&)>& work) {
    const char* const there = std::getenv("FAIRLEAD_TEST_CEPH");
    const auto program = program_beside("bin/fairlead-rbd");
    if (::geteuid() != 0 || there == nullptr || !program || !exists(*program) || !exists("/dev/fuse")) GTEST_SKIP() << "needs root, FAIRLEAD_TEST_CEPH (tests/integration/ceph_test.sh), fairlead-rbd and /dev/fuse";
    ceph_ = {.program = *program, .conf = std::string(there) + "/ceph.conf", .user = "suite", .pool = "volumes", .space = "suite-" + random_uuid(), .host = random_uuid()};
    ASSERT_TRUE(ceph_tool({"rbd", "namespace", "create", "--pool", "volumes", "--namespace", ceph_.space}));
    auto store = StoreProcess::start(ceph_);
    ASSERT_TRUE(store) << store.error().message;
    store_ = store->get();
    const auto pool = rbd_pool(**store, 640 * mib, keyring_.get());
    {
      auto opened = VolumePool::open(*pool, rbd_journal(**store));
      ASSERT_TRUE(opened) << opened.error().message;
      work(*pool, **opened);
    }
    end_all(*pool);
    // All that was answered is in the journal, in the Ceph pool.
    auto again = VolumePool::open(*pool, rbd_journal(**store));
    ASSERT_TRUE(again) << again.error().message;
    const auto entries = (*again)->entries();
    for (const auto& [id, entry] : entries)
      for (const auto& [node, generation] : entry.nodes) EXPECT_TRUE((*again)->detach(id, node, generation)) << id;
    for (const auto& [id, entry] : entries) {
      const auto gone = (*again)->remove(id);
      EXPECT_TRUE(gone) << id << ": " << gone.error().message;
    }
    EXPECT_THAT(*pool->ids(), IsEmpty());
    // What was kept for copies goes with the last of them, or when a store begins: one that goes through it while the last copy is removed has it in its hands. Where an OSD keeps the watch of a store that was killed, an image is kept for that (ceph/store_test.cpp).
    std::string left = "?";
    for (int tries = 0; tries < 15 && !left.empty(); ++tries) {
      if (tries > 0) {
        const auto next = StoreProcess::start(ceph_);
        ASSERT_TRUE(next) << next.error().message;
        std::this_thread::sleep_for(1s);
      }
      const auto images = ceph_tool({"rbd", "ls", "--pool", "volumes", "--namespace", ceph_.space});
      const auto trash = ceph_tool({"rbd", "trash", "ls", "--all", "--pool", "volumes", "--namespace", ceph_.space});
      ASSERT_TRUE(images && trash);
      EXPECT_THAT(split(*images, '\n'), Each(AnyOf(IsEmpty(), StartsWith("fairlead.left."))));
      left = "";
      for (const std::string& line : images->empty() ? split(*trash, '\n') : std::vector<std::string>()) {
        if (line.empty()) continue;
        const auto status = ceph_tool({"rbd", "status", "--pool", "volumes", "--namespace", ceph_.space, "--image-id", split(line, ' ').front()});
        if (status && status->find("watcher=") == status->npos) left += line + "\n";
      }
    }
    EXPECT_EQ(left, "");
  }
  Result<std::string> ceph_tool(std::vector<std::string> argv) {
    argv.insert(argv.begin() + 1, {"--conf", ceph_.conf, "--id", ceph_.user});
    return run_checked({.argv = std::move(argv)}, 60s);
  }
  static void end_all(Pool& pool) {
    const auto ids = pool.ids();
    ASSERT_TRUE(ids);
    for (const std::string& id : *ids)
      if (const auto seen = pool.look(id))
        for (const DeviceSeen& device : seen->devices) (void)pool.detach(id, device.name);
    for (const std::string& id : *ids)
      if (const auto seen = pool.look(id); seen && seen->engine) { EXPECT_TRUE(pool.stop_engine(id)); }
  }
  // All that lies on disk of a volume, and its header.
  std::string bytes_of(const std::string& id) {
    if (!GetParam().ceph) return read_file(folder_ + "/" + id + ".volume").value();
    const std::string path = testing::TempDir() + "fairlead-export-" + random_uuid();
    EXPECT_TRUE(ceph_tool({"rbd", "export", "--no-progress", "--pool", "volumes", "--namespace", ceph_.space, id, path}));
    const std::string out = read_file(path).value_or("");
    ::unlink(path.c_str());
    return out;
  }
  std::string header_of(const std::string& id) { return GetParam().ceph ? ceph_tool({"rados", "-p", "volumes", "-N", ceph_.space, "get", "fairlead.luks." + id, "-"}).value_or("") : bytes_of(id); }
  static Result<void> create(VolumePool& volumes, const std::string& id, std::int64_t size, const std::string& source = "") { return volumes.create(id, size, source, "", GetParam().managed ? std::optional(Limits()) : std::nullopt, GetParam().encrypted && source.empty() ? kServiceKey : ""); }
  // The first bytes of a device or, in memory, of what stands for them.
  static void put(Pool& pool, const std::string& id, const std::string& device, const std::string& text) {
    if (auto* fake = dynamic_cast<FakePool*>(&pool)) {
      fake->files.at(id + ".volume").content = text;
      return;
    }
    std::string block(4096, '\0');
    block.replace(0, text.size(), text);
    const Fd fd(::open(device.c_str(), O_WRONLY | O_CLOEXEC | O_SYNC));
    ASSERT_TRUE(fd) << device;
    ASSERT_EQ(::pwrite(fd.get(), block.data(), block.size(), 0), 4096);
  }
  static std::string got(Pool& pool, const std::string& id, const std::string& device) {
    if (auto* fake = dynamic_cast<FakePool*>(&pool)) return fake->files.at(id + ".volume").content;
    std::string block(4096, '\0');
    const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::pread(fd.get(), block.data(), block.size(), 0), 4096) << device;
    return block.substr(0, block.find('\0'));
  }
  static int sector_of(Pool& pool, const std::string& device) {
    if (dynamic_cast<FakePool*>(&pool) != nullptr) return 4096;
    const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
    int size = 0;
    EXPECT_EQ(::ioctl(fd.get(), BLKSSZGET, &size), 0) << device;
    return size;
  }
  std::string folder_;  // of the pool
  CephPlace ceph_;
  StoreProcess* store_ = nullptr;
  kube::TinyApi api_;
  const std::unique_ptr<Keyring> keyring_ = api_keyring(api_);
  MemoryDisk disk_;
};

TEST_P(Pools, VolumesComeAreShownAndGo) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    ASSERT_TRUE(create(volumes, "a", 16 * mib)) << "again is nothing";
    EXPECT_EQ(create(volumes, "a", 32 * mib).error().code, Code::Exists);
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    EXPECT_EQ(at->generation, 1);
    EXPECT_EQ(volumes.attach("a", "w0")->device, at->device);
    EXPECT_THAT(volumes.attach("a", "w1").error().message, HasSubstr("is attached to w0"));
    const auto seen = pool.look("a");
    ASSERT_TRUE(seen);
    ASSERT_EQ(seen->devices.size(), 1u);
    EXPECT_EQ(seen->devices[0].size, 16 * mib);
    EXPECT_EQ(pool.is_used(at->device), std::optional(false));
    EXPECT_EQ(got(pool, "a", at->device), "") << "zeros";
    EXPECT_EQ(volumes.remove("a").error().code, Code::Conflict);
    ASSERT_TRUE(volumes.grow("a", 24 * mib));
    EXPECT_EQ(pool.look("a")->devices[0].size, 24 * mib) << "while it is shown";
    EXPECT_THAT(volumes.grow("a", 16 * mib).error().message, HasSubstr("does not shrink"));
    EXPECT_EQ(volumes.detach("a", "w1", 1).error().code, Code::Conflict);
    EXPECT_EQ(volumes.detach("a", "w0", 2).error().code, Code::Conflict) << "of another attachment";
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
    ASSERT_TRUE(volumes.detach("a", "w0", 1)) << "again is nothing";
    EXPECT_THAT(pool.look("a")->devices, IsEmpty());
    EXPECT_EQ(volumes.attach("a", "w1")->generation, 2);
    EXPECT_EQ(volumes.detach("a", "w1", 1).error().code, Code::Conflict) << "who comes late undoes nothing";
    ASSERT_TRUE(volumes.detach("a", "w1", 2));
    ASSERT_TRUE(volumes.remove("a"));
    ASSERT_TRUE(volumes.remove("a"));
    EXPECT_THAT(*pool.ids(), IsEmpty());
    EXPECT_EQ(volumes.attach("a", "w0").error().code, Code::NotFound);
  });
}

TEST_P(Pools, ManyReadItAndNobodyWritesBesideThem) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    put(pool, "a", at->device, "text");
    EXPECT_THAT(volumes.attach("a", "w1", true).error().message, HasSubstr("is attached to w0: one node at a time"));
    EXPECT_EQ(volumes.attach("a", "w0", true).error().code, Code::Exists);
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
    at = volumes.attach("a", "w0", true);
    const auto also = volumes.attach("a", "w1", true);
    ASSERT_TRUE(at && also) << also.error().message;
    EXPECT_EQ(at->device, also->device) << "they share it";
    EXPECT_EQ(at->generation, 2);
    EXPECT_EQ(also->generation, 3);
    EXPECT_EQ(volumes.attach("a", "w0", true)->generation, 2) << "again is nothing";
    EXPECT_EQ(got(pool, "a", at->device), "text");
    if (dynamic_cast<FakePool*>(&pool) == nullptr) {
      const Fd fd(::open(at->device.c_str(), O_WRONLY | O_CLOEXEC));
      const std::string block(4096, 'x');
      EXPECT_FALSE(fd && ::pwrite(fd.get(), block.data(), block.size(), 0) > 0) << "nobody writes to it";
    }
    EXPECT_THAT(volumes.attach("a", "w2").error().message, HasSubstr("is attached to w0, w1, read-only"));
    EXPECT_EQ(volumes.remove("a").error().code, Code::Conflict);
    EXPECT_EQ(volumes.detach("a", "w0", 3).error().code, Code::Conflict) << "of another attachment";
    ASSERT_TRUE(volumes.detach("a", "w0", 2));
    ASSERT_TRUE(volumes.detach("a", "w0", 2)) << "again is nothing";
    EXPECT_EQ(got(pool, "a", at->device), "text") << "the others have it still";
    EXPECT_EQ(volumes.attach("a", "w2").error().code, Code::Conflict);
    ASSERT_TRUE(volumes.detach("a", "w1", 3));
    EXPECT_THAT(pool.look("a")->devices, IsEmpty());
    at = volumes.attach("a", "w2");
    ASSERT_TRUE(at) << at.error().message;
    EXPECT_EQ(at->generation, 4);
    put(pool, "a", at->device, "more");
  });
}

// The pool itself has it for a moment; who dies meanwhile leaves nothing.
TEST_P(Pools, ItWorksOnWhatNobodyHas) {
  with_pool([this](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    int times = 0;
    const auto work = [&](const std::string& id) -> Result<void> {
      ++times;
      const auto entry = volumes.entry(id);
      EXPECT_FALSE(entry->read_only);
      put(pool, id, entry->places.at("").device, "settled");
      EXPECT_EQ(volumes.attach(id, "w0").error().code, Code::Conflict) << "meanwhile nobody else has it";
      EXPECT_THAT(volumes.settle(id, [](const std::string&) -> Result<void> { return fail(Code::Internal, "at once"); }).error().message, HasSubstr("works on a already"));
      return {};
    };
    ASSERT_TRUE(volumes.settle("a", work));
    EXPECT_FALSE(volumes.entry("a")->attached());
    EXPECT_THAT(volumes.settle("a", [](const std::string&) -> Result<void> { return fail(Code::Internal, "damaged"); }).error().message, HasSubstr("damaged"));
    EXPECT_FALSE(volumes.entry("a")->attached());
    const auto at = volumes.attach("a", "w0", true);
    ASSERT_TRUE(at);
    EXPECT_EQ(got(pool, "a", at->device), "settled");
    EXPECT_EQ(volumes.settle("a", work).error().code, Code::Conflict);
    EXPECT_EQ(times, 1);
    ASSERT_TRUE(volumes.detach("a", "w0", at->generation));
    // The next to open the pool lets go of what this one had for itself.
    ASSERT_TRUE(volumes.attach("a", kItself));
    MemoryDisk copy = disk_;
    auto again = VolumePool::open(pool, store_ != nullptr ? rbd_journal(*store_) : std::make_unique<MemoryJournal>(copy));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_FALSE((*again)->entry("a")->attached());
    EXPECT_THAT(pool.look("a")->devices, IsEmpty());
  });
}

TEST_P(Pools, SnapshotsHoldWhatWasThere) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at);
    put(pool, "a", at->device, "first");
    ASSERT_TRUE(volumes.take_snapshot("s", "a"));
    ASSERT_TRUE(volumes.take_snapshot("s", "a"));
    put(pool, "a", at->device, "second");
    ASSERT_TRUE(create(volumes, "old", 20 * mib, "s")) << "larger than what it is made of";
    ASSERT_TRUE(create(volumes, "twin", 16 * mib, "a"));
    EXPECT_EQ(create(volumes, "small", 8 * mib, "s").error().code, Code::Invalid);
    EXPECT_EQ(create(volumes, "none", 16 * mib, "x").error().code, Code::NotFound);
    const auto old = volumes.attach("old", "w1"), twin = volumes.attach("twin", "w1");
    ASSERT_TRUE(old) << old.error().message;
    ASSERT_TRUE(twin) << twin.error().message;
    for (const std::string& device : {at->device, old->device, twin->device}) EXPECT_EQ(sector_of(pool, device), 4096) << device << ": what was made on one is mounted on the other";
    EXPECT_EQ(got(pool, "old", old->device), "first");
    EXPECT_EQ(got(pool, "twin", twin->device), "second");
    EXPECT_EQ(pool.look("old")->devices[0].size, 20 * mib);
    put(pool, "twin", twin->device, "third");
    EXPECT_EQ(got(pool, "a", at->device), "second");
    EXPECT_EQ(volumes.attach("s", "w0").error().code, Code::NotFound) << "a snapshot is not attached";
    // What a snapshot was taken of may go.
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
    ASSERT_TRUE(volumes.remove("a"));
    ASSERT_TRUE(create(volumes, "again", 16 * mib, "s"));
    EXPECT_EQ(got(pool, "again", volumes.attach("again", "w0")->device), "first");
    ASSERT_TRUE(volumes.remove("s"));
  });
}

TEST_P(Pools, RoomIsPromisedOnce) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    const std::int64_t most = pool.room()->size / 10 * 9 / kBlock * kBlock;
    EXPECT_EQ(volumes.create("a", most + kBlock).error().code, Code::Exhausted);
    ASSERT_TRUE(volumes.create("a", most / 2 / kBlock * kBlock));
    EXPECT_EQ(volumes.create("b", most / 2 / kBlock * kBlock + 2 * kBlock).error().code, Code::Exhausted);
    ASSERT_TRUE(volumes.take_snapshot("s", "a")) << "as much as its source";
    EXPECT_EQ(volumes.create("c", 16 * mib).error().code, Code::Exhausted);
    EXPECT_EQ(volumes.grow("a", most).error().code, Code::Exhausted);
    ASSERT_TRUE(volumes.remove("s"));
    ASSERT_TRUE(volumes.create("c", 16 * mib));
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-4096}, std::int64_t{4097}, kMostBytes + kBlock}) EXPECT_EQ(volumes.create("d", size).error().code, Code::Invalid) << size;
    for (const char* const id : {"", "A", "a/b", "../a", "-a", "a-", ".", "a.volume"}) EXPECT_EQ(volumes.create(id, mib).error().code, Code::Invalid) << id;
    EXPECT_EQ(volumes.create(std::string(64, 'a'), mib).error().code, Code::Invalid);
  });
}

INSTANTIATE_TEST_SUITE_P(Both, Pools, testing::Values(Kind{"Memory", false}, Kind{"Xfs", true}, Kind{"MemoryEngine", false, true}, Kind{"XfsEngine", true, true}, Kind{"MemoryEncrypted", false, true, true}, Kind{"XfsEncrypted", true, true, true}, Kind{"XfsKept", true, true, true, false, true}, Kind{"Ceph", true, true, false, true}, Kind{"CephEncrypted", true, true, true, true}), [](const auto& one) { return one.param.name; });

// ---- the kernel alone

class Xfs : public Pools {};
TEST_P(Xfs, WhatIsMountedIsNotTakenAway) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(volumes.create("a", 320 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at);
    const auto run = [](std::vector<std::string> argv) { return run_checked({.argv = std::move(argv)}, 60s); };
    ASSERT_TRUE(run({"/usr/sbin/mkfs.xfs", "-q", at->device}));
    const std::string place = testing::TempDir() + "fairlead-mount-" + random_uuid();
    ASSERT_TRUE(make_dirs(place));
    ASSERT_TRUE(run({"/bin/mount", at->device, place}));
    EXPECT_EQ(pool.is_used(at->device), std::optional(true));
    EXPECT_THAT(volumes.detach("a", "w0", 1).error().message, HasSubstr("is mounted, or open"));
    ASSERT_EQ(pool.look("a")->devices.size(), 1u) << "it is there still";
    ASSERT_TRUE(write_file_durably(place + "/kept", "yes", 0600));
    ASSERT_TRUE(run({"/bin/umount", place}));
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
    EXPECT_TRUE(remove_tree(place));
  });
}

TEST_P(Xfs, FilesAndDevicesOfOthersStay) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(volumes.create("a", 16 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at);
    // A second device that somebody made on the same file: told, and nothing is guessed.
    ASSERT_TRUE(pool.attach("a", false, false));
    ASSERT_EQ(pool.look("a")->devices.size(), 2u);
    EXPECT_EQ(volumes.detach("a", "w0", 1).error().code, Code::Internal);
    EXPECT_EQ(pool.look("a")->devices.size(), 2u);
    EXPECT_EQ(volumes.under_way(), 1u) << "it is gone on with when that is mended";
    const auto seen = pool.look("a");
    for (const DeviceSeen& device : seen->devices)
      if (device.name != at->device) { ASSERT_TRUE(pool.detach("a", device.name)); }
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
  });
}
INSTANTIATE_TEST_SUITE_P(Kernel, Xfs, testing::Values(Kind{"Xfs", true}), [](const auto& one) { return one.param.name; });

// ---- engines

class Engines : public Pools {
 protected:
  static std::int64_t pid_of(Pool& pool, const std::string& id) {
    const auto status = blocks::ask_disk(fmt::format("/run/fairlead-volumes/{}/{}/control", pool.id()->substr(0, 8), id), {});
    return status ? status->pid : 0;
  }
  static bool reads_zeros(const std::string& device, std::int64_t at) {
    std::unique_ptr<char, decltype(&std::free)> block(static_cast<char*>(std::aligned_alloc(4096, 4096)), &std::free);
    const Fd fd(::open(device.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    return ::pread(fd.get(), block.get(), 4096, at) == 4096 && std::all_of(block.get(), block.get() + 4096, [](char c) { return c == 0; });
  }
};

TEST_P(Engines, LimitsHoldAndAreChangedWhileItIsShown) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(volumes.create("a", 64 * mib, "", "", Limits{.iops = 7, .bytes_per_second = 0}));
    ASSERT_TRUE(volumes.create("plain", 16 * mib));
    EXPECT_EQ(volumes.set_limits("plain", {.iops = 5}).error().code, Code::Unsupported);
    EXPECT_EQ(volumes.create("a", 64 * mib).error().code, Code::Exists) << "of another class";
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    EXPECT_EQ(pool.look("a")->engine->limits, (Limits{.iops = 7}));
    ASSERT_TRUE(volumes.set_limits("a", {.iops = 0, .bytes_per_second = 5 * mib}));
    EXPECT_EQ(pool.look("a")->engine->limits, (Limits{.bytes_per_second = 5 * mib}));
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
    EXPECT_FALSE(pool.look("a")->engine);
    ASSERT_TRUE(volumes.set_limits("a", {.iops = 9}));
    ASSERT_TRUE(volumes.attach("a", "w0"));
    EXPECT_EQ(pool.look("a")->engine->limits, (Limits{.iops = 9})) << "what was said while it was away";
  });
}

// By a device of ublk where the kernel has one that will do (tests/integration/ublk_machine_test.sh), and a loop device on the file that it serves elsewhere.
TEST_P(Engines, ShowsByWhatTheKernelHas) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    const bool expected = !GetParam().ceph && blocks::sees_new_devices() && blocks::Ublk::open().has_value();
    EXPECT_EQ(at->device.starts_with("/dev/ublkb"), expected) << at->device;
    EXPECT_EQ(at->device.starts_with("/dev/loop"), !expected) << at->device;
    // Nodes find it by the volume's name alone, and who has it open keeps it.
    auto found = blocks::open_device("a");
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->device.path, at->device);
    EXPECT_EQ(blocks::device_path(found->device.major, found->device.minor), at->device);
    if (expected) { EXPECT_EQ(pool.detach("a", at->device).error().code, Code::Conflict); }
    EXPECT_EQ(pool.look("a")->devices.size(), 1u);
    found->open.reset();
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
    EXPECT_EQ(blocks::device_of("a").error().code, Code::NotFound);
    EXPECT_TRUE(std::ranges::none_of(blocks::ublk_links().value(), [](const std::string& name) { return name.starts_with("a."); }));
  });
}

TEST_P(Engines, WhatIsPunchedReadsAsZeros) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    for (const unsigned long what : {static_cast<unsigned long>(BLKDISCARD), static_cast<unsigned long>(BLKZEROOUT)}) {
      put(pool, "a", at->device, "there");
      const Fd fd(::open(at->device.c_str(), O_RDWR | O_CLOEXEC));
      std::uint64_t range[2] = {0, 1 << 20};
      ASSERT_FALSE(reads_zeros(at->device, 0));
      ASSERT_EQ(::ioctl(fd.get(), what, range), 0) << what;
      EXPECT_TRUE(reads_zeros(at->device, 0)) << what;
    }
  });
}

// The kernel drops what it is told of a file's size while writes to it end; what was added must be readable all the same.
TEST_P(Engines, WhatGrowsUnderWritesIsReadToItsNewEnd) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    std::vector<std::jthread> writers;
    std::atomic<int> failed = 0;
    for (int i = 0; i < 8; ++i)
      writers.emplace_back([&, i](const std::stop_token& stop) {
        const std::unique_ptr<char, decltype(&std::free)> block(static_cast<char*>(std::aligned_alloc(4096, 4096)), &std::free);
        std::fill_n(block.get(), 4096, static_cast<char>('a' + i));
        const Fd fd(::open(at->device.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
        for (std::int64_t n = 0; !stop.stop_requested(); ++n)
          if (::pwrite(fd.get(), block.get(), 4096, (i * mib) + n % 256 * 4096) != 4096) ++failed;
      });
    for (std::int64_t size = 18 * mib; size <= 80 * mib; size += 2 * mib) {
      ASSERT_TRUE(volumes.grow("a", size));
      EXPECT_TRUE(reads_zeros(at->device, size - 4096)) << size;
      EXPECT_EQ(pool.look("a")->devices.at(0).size, size);
    }
    writers.clear();
    EXPECT_EQ(failed, 0);
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
  });
}

// Its device gives errors from then on, which is told; what was synced is there when it is attached anew.
TEST_P(Engines, WhoseEngineIsKilledComesBackWithAllThatWasSynced) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 320 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    put(pool, "a", at->device, "synced");
    const auto end_engine = [&] {
      const std::int64_t pid = pid_of(pool, "a");
      ASSERT_GT(pid, 1);
      ASSERT_EQ(::kill(static_cast<pid_t>(pid), SIGKILL), 0);
      for (int i = 0; i < 100 && pid_of(pool, "a") != 0; ++i) std::this_thread::sleep_for(20ms);
      EXPECT_EQ(pool.look("a")->devices.size(), 1u) << "the kernel keeps the device";
    };
    end_engine();
    auto again = volumes.attach("a", "w0");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->generation, 1) << "the same attachment";
    EXPECT_EQ(got(pool, "a", again->device), "synced");
    // In use it is told, and taken from nobody.
    const auto run = [](std::vector<std::string> argv) { return run_checked({.argv = std::move(argv)}, 60s); };
    ASSERT_TRUE(run({"/usr/sbin/mkfs.xfs", "-q", "-f", again->device}));
    const std::string place = testing::TempDir() + "fairlead-mount-" + random_uuid();
    ASSERT_TRUE(make_dirs(place));
    ASSERT_TRUE(run({"/bin/mount", again->device, place}));
    ASSERT_TRUE(write_file_durably(place + "/kept", "yes", 0600));
    end_engine();
    EXPECT_THAT(volumes.attach("a", "w0").error().message, HasSubstr("has ended: unmount it"));
    EXPECT_THAT(volumes.detach("a", "w0", 1).error().message, HasSubstr("is mounted, or open"));
    ASSERT_EQ(::umount2(place.c_str(), 0), 0);
    again = volumes.attach("a", "w0");
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_TRUE(run({"/bin/mount", again->device, place}));
    EXPECT_EQ(read_file(place + "/kept").value_or(""), "yes");
    ASSERT_EQ(::umount2(place.c_str(), 0), 0);
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
    ASSERT_TRUE(volumes.remove("a"));
    EXPECT_TRUE(remove_tree(place));
  });
}

// One that hangs is neither dead nor alive: nothing is done, for this volume alone.
TEST_P(Engines, OneThatDoesNotAnswerIsUnknown) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    ASSERT_TRUE(create(volumes, "b", 16 * mib));
    ASSERT_TRUE(volumes.attach("a", "w0"));
    const auto pid = static_cast<pid_t>(pid_of(pool, "a"));
    ASSERT_GT(pid, 1);
    ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    EXPECT_EQ(pool.look("a").error().code, Code::Unavailable);
    EXPECT_EQ(volumes.detach("a", "w0", 1).error().code, Code::Unavailable);
    ASSERT_TRUE(volumes.attach("b", "w0")) << "its neighbours go on";
    ASSERT_TRUE(volumes.detach("b", "w0", 1));
    ASSERT_EQ(::kill(pid, SIGCONT), 0);
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
  });
}
class OfUblk : public Engines {};
// Others took its device away: its engine is of no use, and another one comes.
TEST_P(OfUblk, WhoseDeviceWasTakenAwayIsAttachedAnew) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    auto control = blocks::Ublk::open();
    if (!control) GTEST_SKIP() << control.error().message;
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    put(pool, "a", at->device, "kept");
    ASSERT_TRUE(pool.detach("a", at->device));
    const auto again = volumes.attach("a", "w0");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->generation, 1) << "the same attachment";
    EXPECT_EQ(got(pool, "a", again->device), "kept");
    ASSERT_TRUE(volumes.detach("a", "w0", 1));
  });
}

class Encrypted : public Engines {};
TEST_P(Encrypted, NothingOfItLiesOnDiskAndItsKeyOpensIt) {
  with_pool([this](Pool& pool, VolumePool& volumes) {
    const std::string text = "a text that is looked for";
    ASSERT_TRUE(create(volumes, "a", 16 * mib));
    auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    put(pool, "a", at->device, text);
    EXPECT_EQ(got(pool, "a", at->device), text);
    ASSERT_TRUE(volumes.take_snapshot("s", "a"));
    EXPECT_EQ(volumes.create("plain", 16 * mib, "s").error().code, Code::Unsupported) << "of a class without an engine";
    EXPECT_EQ(volumes.create("other", 16 * mib, "s", "", Limits(), "mine").error().code, Code::Unsupported) << "by another key";
    ASSERT_TRUE(create(volumes, "b", 20 * mib, "s"));
    const auto twin = volumes.attach("b", "w0");
    ASSERT_TRUE(twin) << twin.error().message;
    EXPECT_EQ(got(pool, "b", twin->device), text);
    EXPECT_EQ(volumes.entry("b")->key, kServiceKey);
    const std::string bytes = bytes_of("a");
    EXPECT_EQ(bytes.size(), static_cast<std::size_t>(17 * mib));
    EXPECT_NE(bytes.find_first_not_of('\0', mib), std::string::npos);
    EXPECT_EQ(bytes.find(text), std::string::npos);
    EXPECT_EQ(header_of("a").substr(0, 4), "LUKS");
    // Its key is disabled: what runs goes on and ends, and nothing begins.
    kube::Json secret = api_.get(kube::resources::secrets, {kKeySpace, kServiceKey}).value();
    kube::Json disabled = secret;
    disabled.child("metadata").child("annotations").set(kDisabledKey, "true");
    ASSERT_TRUE(api_.put(kube::resources::secrets, disabled));
    EXPECT_EQ(got(pool, "a", at->device), text);
    ASSERT_TRUE(volumes.detach("a", "w0", 1)) << "a detachment needs no key";
    const auto refused = volumes.attach("a", "w0");
    EXPECT_EQ(refused.error().code, Code::Forbidden);
    EXPECT_THAT(refused.error().message, HasSubstr("key service is disabled"));
    EXPECT_EQ(volumes.create("c", 16 * mib, "", "", Limits(), kServiceKey).error().code, Code::Forbidden);
    EXPECT_EQ(volumes.under_way(), 0u);
    EXPECT_FALSE(pool.look("a")->engine);
    // Another key under its name opens nothing.
    kube::Json wrong = secret;
    wrong.child("data").set("v1", base64(std::string(32, 'x')));
    ASSERT_TRUE(api_.put(kube::resources::secrets, wrong));
    EXPECT_FALSE(volumes.attach("a", "w0"));
    ASSERT_TRUE(api_.put(kube::resources::secrets, secret));
    at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    EXPECT_EQ(got(pool, "a", at->device), text);
    ASSERT_TRUE(volumes.detach("a", "w0", at->generation));
    // A new version of the key: all are closed by it, attached or not, and the old one may go.
    secret = api_.get(kube::resources::secrets, {kKeySpace, kServiceKey}).value();
    kube::Json rotated = secret;
    rotated.child("data").set("v2", base64(std::string(32, 'y')));
    ASSERT_TRUE(api_.put(kube::resources::secrets, rotated));
    EXPECT_EQ(volumes.rewrap(1).value_or(99), 2U) << "one after the other";
    EXPECT_EQ(volumes.rewrap(9).value_or(99), 0U);
    rotated = api_.get(kube::resources::secrets, {kKeySpace, kServiceKey}).value();
    rotated.child("data").erase("v1");
    ASSERT_TRUE(api_.put(kube::resources::secrets, rotated));
    EXPECT_EQ(got(pool, "b", twin->device), text) << "what is served knows nothing of it";
    at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    EXPECT_EQ(got(pool, "a", at->device), text);
    ASSERT_TRUE(volumes.detach("a", "w0", at->generation));
    ASSERT_TRUE(create(volumes, "later", 20 * mib, "s"));
    const auto later = volumes.attach("later", "w0");
    ASSERT_TRUE(later) << later.error().message;
    EXPECT_EQ(got(pool, "later", later->device), text) << "its snapshot was closed anew, too";
    // Its key goes with it, whatever is left of its data.
    if (!GetParam().ceph) { ASSERT_EQ(::link((folder_ + "/a.volume").c_str(), (folder_ + "/.kept").c_str()), 0); }
    ASSERT_TRUE(volumes.remove("a"));
    if (!GetParam().ceph) { EXPECT_EQ(read_file(folder_ + "/.kept").value().substr(0, 1 << 20), std::string(1 << 20, '\0')); }
    else { EXPECT_EQ(header_of("a"), ""); }
    EXPECT_EQ(got(pool, "b", twin->device), text) << "copies have theirs";
  });
}
TEST_P(Encrypted, AKeyThatAsksForGrantsServesByOne) {
  ASSERT_TRUE(api_.create(api::kVolumeKeys, kube::Json::object({{"metadata", kube::Json::object({{"name", "mine"}})}, {"spec", kube::Json::object({{"grants", "Required"}})}})));
  with_pool([this](Pool&, VolumePool& volumes) {
    ASSERT_TRUE(volumes.create("a", 16 * mib, "", "", Limits(), "mine"));
    const auto refused = volumes.attach("a", "w0");
    EXPECT_EQ(refused.error().code, Code::Forbidden);
    EXPECT_THAT(refused.error().message, HasSubstr("asks for grants"));
    EXPECT_EQ(volumes.under_way(), 0u);
    kube::Json attachment = api::new_attachment("a", "here", "w0", false);
    api::set_grant(attachment, "mine", "arn:aws:iam::111122223333:user/ada");
    ASSERT_TRUE(api_.create(api::kAttachments, attachment));
    const auto at = volumes.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    // Taken back: what is served goes on and is closed anew by newer versions.
    attachment = api_.get(api::kAttachments, kube::key_of(attachment)).value();
    attachment.child("metadata").set("annotations", kube::Json::object({{api::kGrantRevokedNote, "true"}}));
    ASSERT_TRUE(api_.put(api::kAttachments, attachment));
    kube::Json key = api_.get(api::kVolumeKeys, {"", "mine"}).value();
    key.child("spec").set("version", 2);
    ASSERT_TRUE(api_.put(api::kVolumeKeys, key));
    EXPECT_EQ(volumes.rewrap(9).value_or(99), 0U);
    ASSERT_TRUE(volumes.detach("a", "w0", at->generation));
    EXPECT_EQ(volumes.attach("a", "w0").error().code, Code::Forbidden);
  });
}
INSTANTIATE_TEST_SUITE_P(Kernel, OfUblk, testing::Values(Kind{"XfsEngine", true, true}, Kind{"XfsEncrypted", true, true, true}, Kind{"XfsKept", true, true, true, false, true}), [](const auto& one) { return one.param.name; });
INSTANTIATE_TEST_SUITE_P(Kernel, Encrypted, testing::Values(Kind{"XfsEncrypted", true, true, true}, Kind{"XfsKept", true, true, true, false, true}, Kind{"CephEncrypted", true, true, true, true}), [](const auto& one) { return one.param.name; });
INSTANTIATE_TEST_SUITE_P(Kernel, Engines, testing::Values(Kind{"XfsEngine", true, true}, Kind{"XfsEncrypted", true, true, true}, Kind{"XfsKept", true, true, true, false, true}, Kind{"Ceph", true, true, false, true}, Kind{"CephEncrypted", true, true, true, true}), [](const auto& one) { return one.param.name; });

// ---- Ceph alone

class Ceph : public Pools {
 protected:
  // The process that reaches Ceph for us, if there is one.
  static pid_t store() {
    const auto names = list_dir("/proc");
    for (const std::string& name : *names) {
      const auto stat = read_file("/proc/" + name + "/stat", 4_KiB);
      int parent = 0;
      if (stat && stat->find("(fairlead-rbd) ") != stat->npos && std::sscanf(stat->c_str() + stat->rfind(')'), ") %*c %d", &parent) == 1 && parent == ::getpid()) return std::atoi(name.c_str());
    }
    return 0;
  }
};
// Copies of copies, until one is made flat; deleted from the first on.
TEST_P(Ceph, CopiesOfCopiesHoldWhateverIsDeleted) {
  with_pool([](Pool& pool, VolumePool& volumes) {
    constexpr int most = 10;
    ASSERT_TRUE(create(volumes, "c0", 16 * mib));
    const auto at = volumes.attach("c0", "w0");
    ASSERT_TRUE(at) << at.error().message;
    put(pool, "c0", at->device, "first");
    ASSERT_TRUE(volumes.detach("c0", "w0", at->generation));
    for (int i = 1; i <= most; ++i) ASSERT_TRUE(create(volumes, fmt::format("c{}", i), 16 * mib, fmt::format("c{}", i - 1))) << i;
    for (int i = 0; i < most; ++i) ASSERT_TRUE(volumes.remove(fmt::format("c{}", i))) << i;
    if (const pid_t pid = store(); pid > 0) ::kill(pid, SIGKILL);  // the next one goes through the trash
    Result<std::vector<std::string>> ids;
    for (int tries = 0; tries < 10 && !(ids = pool.ids()); ++tries) {}
    ASSERT_TRUE(ids) << ids.error().message;
    ASSERT_TRUE(create(volumes, "other", 16 * mib));
    const auto last = volumes.attach(fmt::format("c{}", most), "w0");
    ASSERT_TRUE(last) << last.error().message;
    EXPECT_EQ(got(pool, fmt::format("c{}", most), last->device), "first");
  });
}

// What cannot be answered is gone on with when it is asked for again; and nothing else is left.
TEST_P(Ceph, WhatIsAskedComesAboutHoweverOftenItsStoreIsKilled) {
  with_pool([this](Pool& pool, VolumePool& first) {
    ASSERT_TRUE(create(first, "a", 16 * mib));
    const auto at = first.attach("a", "w0");
    ASSERT_TRUE(at) << at.error().message;
    put(pool, "a", at->device, "kept");
    std::unique_ptr<VolumePool> volumes;  // as the daemon, who begins anew once its journal could not be written
    std::atomic<bool> ended = false;
    std::atomic<int> kills = 0;
    std::thread killer([&] {
      Rng rng(7);
      while (!ended && kills < 40) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200 + rng.below(700)));
        if (const pid_t pid = store(); pid > 0 && !ended) ::kill(pid, SIGKILL), ++kills;
      }
    });
    std::string last;
    const auto until_done = [&](const std::function<Result<void>()>& ask) {
      for (int tries = 0; tries < 100; ++tries) {
        if (!volumes || !volumes->usable()) {
          auto opened = VolumePool::open(pool, rbd_journal(*store_));
          if (opened) volumes = std::move(*opened);
          else last = opened.error().message;
          if (!opened) continue;
        }
        const auto done = ask();
        if (done) return true;
        last = done.error().message;
        if (done.error().code != Code::Unavailable) return false;
      }
      return false;
    };
    for (int round = 0; round < 6; ++round) {
      const std::string s = fmt::format("s{}", round), b = fmt::format("b{}", round);
      EXPECT_TRUE(until_done([&] { return volumes->take_snapshot(s, "a"); })) << s << last;
      EXPECT_TRUE(until_done([&] { return create(*volumes, b, 32 * mib, s); })) << b << last;
      EXPECT_TRUE(until_done([&] { return volumes->grow("a", (17 + round) * mib); })) << last;
      if (round % 2 == 0) { EXPECT_TRUE(until_done([&] { return volumes->remove(s); })) << s << last; }
    }
    ended = true;
    killer.join();
    EXPECT_GT(kills, 3);
    EXPECT_EQ(got(pool, "a", at->device), "kept") << "its engine knows nothing of it";
    ASSERT_TRUE(until_done([] { return Result<void>(); })) << last;
    EXPECT_EQ(volumes->under_way(), 0u);
    const auto copy = volumes->attach("b5", "w1");
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ(got(pool, "b5", copy->device), "kept");
    for (const auto& [id, entry] : volumes->entries()) {
      const auto seen = pool.look(id);
      ASSERT_TRUE(seen) << id;
      EXPECT_FALSE(seen->part) << id;
      EXPECT_EQ((entry.snapshot ? seen->snapshot : seen->volume).value_or(FileSeen()).size, entry.size) << id;
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Kernel, Ceph, testing::Values(Kind{"Ceph", true, true, false, true}), [](const auto& one) { return one.param.name; });

// ---- further machines: one suite in memory and on Ceph

class Machines : public Pools {};
TEST_P(Machines, AnEngineServesWhoMayAndNobodyElse) {
  with_pool([&](Pool& pool, VolumePool& volumes) {
    const std::string host = random_uuid();
    auto* const fake = dynamic_cast<FakePool*>(&pool);
    const auto world = fake == nullptr ? nullptr : std::make_unique<FakeMachine::World>(*fake);
    CephPlace place = ceph_;
    place.host = host;
    const auto machine = fake == nullptr ? rbd_machine(place, store_->pool_id(), *keyring_) : std::make_unique<FakeMachine>(*world, host);
    ASSERT_TRUE(create(volumes, "a", 64 * mib));
    const Showing one{"a", 3};
    const api::AskedVolume asked{.id = "a", .generation = 3, .show = true, .read_only = false, .encrypted = GetParam().encrypted, .size = 64 * mib, .iops = 1000};
    api::AskedVolume older = asked;
    older.generation = 2;
    EXPECT_FALSE(machine->start_engine(asked)) << "nobody has allowed it";
    ASSERT_TRUE(pool.allow("a", host, 3, false));
    EXPECT_FALSE(machine->start_engine(older));
    auto started = machine->start_engine(asked);
    ASSERT_TRUE(started) << started.error().message;
    auto seen = machine->look(one);
    ASSERT_TRUE(seen && seen->engine);
    EXPECT_EQ(seen->engine->size, 64 * mib);
    EXPECT_EQ(seen->engine->limits.iops, 1000);
    EXPECT_THAT(seen->devices, IsEmpty());
    EXPECT_THAT(*machine->there(), testing::Contains(one));
    ASSERT_TRUE(machine->attach(one, false));
    seen = machine->look(one);
    ASSERT_TRUE(seen && seen->devices.size() == 1);
    const std::string device = seen->devices[0].name;
    EXPECT_EQ(machine->is_used(device), false);
    EXPECT_THAT(pool.look("a")->devices, IsEmpty()) << "it is not this machine's";
    EXPECT_THAT(machine->look({"a", 2})->devices, IsEmpty()) << "nor an older attachment's";
    EXPECT_FALSE(machine->stop_engine(one)) << "its device is there";
    EXPECT_FALSE(pool.start_engine("a", false, {})) << "another has it";
    put(pool, "a", device, "what was written there");
    ASSERT_TRUE(pool.grow_file("a", 128 * mib));
    ASSERT_TRUE(machine->grow_engine(one));
    ASSERT_TRUE(machine->grow_device(one, device));
    ASSERT_TRUE(machine->limit(one, {}));
    seen = machine->look(one);
    ASSERT_TRUE(seen && seen->engine && seen->devices.size() == 1);
    EXPECT_EQ(seen->devices[0].size, 128 * mib);
    EXPECT_EQ(seen->engine->limits.iops, 0);
    // By force.
    const auto shut = pool.shut_out("a", 3, false);
    ASSERT_TRUE(shut) << shut.error().message;
    EXPECT_TRUE(pool.shut_out("a", 3, false)) << "once more is no error";
    if (fake == nullptr) {
      const std::string block(4096, 'x');
      const Fd fd(::open(device.c_str(), O_WRONLY | O_CLOEXEC | O_SYNC));
      EXPECT_FALSE(fd && ::pwrite(fd.get(), block.data(), block.size(), 0) == 4096) << "it writes still";
    }
    ASSERT_TRUE(machine->detach(one, device));
    const auto stopped = machine->stop_engine(one);
    ASSERT_TRUE(stopped) << stopped.error().message;
    EXPECT_FALSE(machine->look(one)->engine);
    EXPECT_FALSE(machine->start_engine(asked)) << "it may not any more";
    const auto here = volumes.attach("a", "n0");
    ASSERT_TRUE(here) << here.error().message;
    EXPECT_EQ(got(pool, "a", here->device), "what was written there");
    ASSERT_TRUE(volumes.detach("a", "n0", here->generation));
    // Withdrawn before it has begun.
    ASSERT_TRUE(pool.allow("a", host, 5, false));
    ASSERT_TRUE(pool.withdraw("a", 5));
    api::AskedVolume later = asked;
    later.generation = 5, later.size = 128 * mib;
    EXPECT_FALSE(machine->start_engine(later));
    ASSERT_TRUE(pool.allow("a", host, 6, false));
    later.generation = 6;
    auto told = carry_out(*machine, later);
    EXPECT_EQ(told.message, "");
    EXPECT_TRUE(told.heard && told.engine && !told.device.empty());
    EXPECT_EQ(carry_out(*machine, later).device, told.device) << "it is so already";
    told = carry_out(*machine, {.id = "a", .generation = 6, .show = false});
    EXPECT_TRUE(told.heard && !told.there()) << told.message;
  });
}
// Two machines, which are two hosts to Ceph.
TEST_P(Machines, AnyNumberReadsAVolumeAndNoneWritesBesideThem) {
  with_pool([&](Pool& pool, VolumePool& volumes) {
    auto* const fake = dynamic_cast<FakePool*>(&pool);
    const auto world = fake == nullptr ? nullptr : std::make_unique<FakeMachine::World>(*fake);
    const std::string hosts[] = {random_uuid(), random_uuid()};
    std::vector<std::unique_ptr<Machine>> machines;
    for (const std::string& host : hosts) {
      CephPlace place = ceph_;
      place.host = host;
      if (fake != nullptr) machines.push_back(std::make_unique<FakeMachine>(*world, host));
      else machines.push_back(rbd_machine(place, store_->pool_id(), *keyring_));
    }
    ASSERT_TRUE(create(volumes, "a", 64 * mib));
    const auto at = volumes.attach("a", "n0");
    ASSERT_TRUE(at) << at.error().message;
    put(pool, "a", at->device, "for all");
    const auto asked = [&](std::int64_t generation, bool read_only) { return api::AskedVolume{.id = "a", .generation = generation, .show = true, .read_only = read_only, .encrypted = GetParam().encrypted, .size = 64 * mib}; };
    ASSERT_TRUE(pool.allow("a", hosts[0], 2, true));
    EXPECT_FALSE(machines[0]->start_engine(asked(2, true))) << "it is written here";
    ASSERT_TRUE(volumes.detach("a", "n0", at->generation));
    // One machine after the other: here they have one flock. A dead reader, whose machine is another, is not in the way of one that reads.
    EXPECT_FALSE(machines[0]->start_engine(asked(2, false))) << "it may read, and no more";
    EXPECT_FALSE(machines[1]->start_engine(asked(3, true))) << "nobody has allowed it";
    ASSERT_TRUE(pool.allow("a", hosts[1], 3, true));
    const auto first = machines[0]->start_engine(asked(2, true));
    ASSERT_TRUE(first) << first.error().message << ": what is allowed to the second is allowed to the first still";
    ASSERT_TRUE(machines[0]->attach({"a", 2}, true));
    const auto seen = machines[0]->look({"a", 2});
    ASSERT_TRUE(seen && seen->devices.size() == 1);
    EXPECT_EQ(got(pool, "a", seen->devices[0].name), "for all");
    EXPECT_FALSE(pool.start_engine("a", false, {})) << "it is read there";
    ASSERT_TRUE(pool.withdraw("a", 3));
    EXPECT_FALSE(machines[1]->start_engine(asked(3, true)));
    ASSERT_TRUE(pool.shut_out("a", 3, true)) << "of one that has never begun";
    EXPECT_FALSE(machines[0]->look({"a", 2})->engine->failed);
    EXPECT_EQ(got(pool, "a", seen->devices[0].name), "for all") << "that of the other goes on";
    // While it is read it grows, and is copied.
    ASSERT_TRUE(pool.grow_file("a", 128 * mib));
    ASSERT_TRUE(machines[0]->grow_engine({"a", 2}));
    EXPECT_EQ(machines[0]->look({"a", 2})->engine->size, 128 * mib);
    ASSERT_TRUE(pool.copy_part("b", "a", false, 128 * mib));
    ASSERT_TRUE(pool.drop_part("b"));
    const auto shut = pool.shut_out("a", 2, true);
    ASSERT_TRUE(shut) << shut.error().message;
    ASSERT_TRUE(machines[0]->detach({"a", 2}, seen->devices[0].name));
    ASSERT_TRUE(machines[0]->stop_engine({"a", 2}));
    ASSERT_TRUE(pool.ended("a", 2));
    const auto again = pool.start_engine("a", false, {});
    EXPECT_TRUE(again) << again.error().message << ": nobody reads it any more";
    EXPECT_TRUE(pool.stop_engine("a"));
  });
}
INSTANTIATE_TEST_SUITE_P(Both, Machines, testing::Values(Kind{"MemoryEngine", false, true}, Kind{"Ceph", true, true, false, true}, Kind{"CephEncrypted", true, true, true, true}), [](const auto& one) { return one.param.name; });

TEST(ReadShowing, NamesOfFoldersAndNothingElse) {
  EXPECT_EQ(read_showing("data.7"), (Showing{"data", 7}));
  for (const char* text : {"", "data", "data.", ".7", "data.0", "data.-1", "data.07", "data.7.header", "data.lock", "DATA.7", "data.99999999999999999999"}) EXPECT_FALSE(read_showing(text)) << text;
}

TEST(Luks, TheDumpOfAKeyIsReadAndNothingElse) {
  std::string text = "LUKS header information for f\nMK bits:       \t512\nMK dump:\t", key;
  for (int i = 0; i < 64; ++i) {
    text += fmt::format("{:02x} ", i * 3 % 256) + (i % 16 == 15 ? "\n\t\t" : "");
    key.push_back(static_cast<char>(i * 3 % 256));
  }
  EXPECT_EQ(read_key_dump(text).value(), key);
  for (const std::string& bad : {std::string(), std::string("MK dump:"), text.substr(0, text.size() - 8), text + "00", text + "xx", text + "0"}) EXPECT_FALSE(read_key_dump(bad)) << bad.size();
}

TEST(FilePool, AFolderOfOthersIsNone) {
  const std::string folder = testing::TempDir() + "fairlead-pool-" + random_uuid();
  ASSERT_TRUE(make_dirs(folder));
  ASSERT_TRUE(write_file_durably(folder + "/theirs", "x", 0600));
  EXPECT_THAT(open_file_pool(folder).error().message, HasSubstr("is no pool and is not empty: theirs is there"));
  ASSERT_TRUE(remove_tree(folder));
}

// ---- a death at every step

struct Model {
  struct One {
    bool snapshot = false;
    std::int64_t size = 0;
    std::string content;
    std::set<std::string> nodes{};
    bool managed = false;
    Limits limits{};
    bool reads = false;
  };
  std::map<std::string, One> all;
};

std::set<std::string> nodes_of(const Entry& entry) {
  std::set<std::string> out;
  for (const auto& [node, generation] : entry.nodes) out.insert(node);
  return out;
}

// One life: random operations, with a death at the n-th place where there can be one; or with a disk that is full at the n-th place where room is needed, of files and of the journal. Returns how many places there were; `wrong`: what was answered and does not hold.
int live(std::uint64_t seed, int dies_at, bool syncs, std::vector<std::string>& wrong, std::optional<int> full_at = {}) {
  Rng rng(seed);
  FakePool pool;
  pool.size = 200 * mib;
  MemoryDisk disk;
  disk.syncs = syncs;
  int places = 0;
  bool dead = false;
  const auto dies = [&](bool) { return dead = dead || places++ == dies_at; };
  pool.dies = disk.dies = dies;
  pool.full = [&] { return rng.below(12) == 0; };
  if (full_at) {
    pool.dies = disk.dies = {};
    pool.full = disk.full = [&] { return places++ == *full_at; };
  }
  Model model;
  const auto open = [&]() -> std::unique_ptr<VolumePool> {
    auto opened = VolumePool::open(pool, std::make_unique<MemoryJournal>(disk));
    if (!opened && full_at) opened = VolumePool::open(pool, std::make_unique<MemoryJournal>(disk));  // somebody made room
    if (!opened && !dead) wrong.push_back("it does not open: " + opened.error().message);
    return opened ? std::move(*opened) : nullptr;
  };
  auto volumes = open();
  int written = 0;
  std::string doubtful;  // the id of what a death has cut off
  const auto check = [&] {
    const auto entries = volumes->entries();
    for (const auto& [id, want] : model.all) {
      if (id == doubtful) continue;
      const auto has = entries.find(id);
      const auto file = pool.files.find(id + (want.snapshot ? ".snapshot" : ".volume"));
      if (has == entries.end() || !has->second.there || has->second.size != want.size || nodes_of(has->second) != want.nodes || (!want.nodes.empty() && has->second.read_only != want.reads) || file == pool.files.end() || file->second.size != want.size || file->second.content != want.content || has->second.managed != want.managed || has->second.limits != want.limits) wrong.push_back(fmt::format("seed {} death {}: {} is not as it was answered", seed, dies_at, id));
    }
    for (const auto& [id, has] : entries)
      if (id != doubtful && !model.all.contains(id)) wrong.push_back(fmt::format("seed {} death {}: {} was never answered, or is gone", seed, dies_at, id));
    for (const auto& [name, file] : pool.files)
      if (name.ends_with(".part") || !entries.contains(name.substr(0, name.find('.')))) wrong.push_back(fmt::format("seed {} death {}: {} is left", seed, dies_at, name));
    std::map<std::string, int> shown;
    for (const auto& [name, device] : pool.devices) ++shown[device.first];
    for (const auto& [id, has] : entries)
      if (shown[id] != (has.attached() ? 1 : 0)) wrong.push_back(fmt::format("seed {} death {}: {} is shown by {} devices", seed, dies_at, id, shown[id]));
    for (const auto& [id, has] : entries) {
      const auto engine = pool.engines.find(id);
      const bool served = engine != pool.engines.end();
      if (served != (has.managed && has.attached()) || (served && (engine->second.limits != has.limits || engine->second.size != has.size))) wrong.push_back(fmt::format("seed {} death {}: {} is not served as it is to be", seed, dies_at, id));
    }
    for (const auto& [id, engine] : pool.engines)
      if (!entries.contains(id)) wrong.push_back(fmt::format("seed {} death {}: an engine of {} is left", seed, dies_at, id));
  };
  for (int step = 0; step < 40 && volumes; ++step) {
    const std::string id(1, static_cast<char>('a' + rng.below(4))), other(1, static_cast<char>('a' + rng.below(4))), node = fmt::format("w{}", rng.below(2));
    const std::int64_t size = (8 + 8 * static_cast<std::int64_t>(rng.below(3))) * mib;
    const Limits limits{.iops = static_cast<std::int64_t>(rng.below(3)) * 100, .bytes_per_second = 0};
    const auto managed = rng.below(2) == 0 ? std::nullopt : std::optional(limits);
    const std::string key = managed && rng.below(2) == 0 ? "service" : "";
    pool.no_key = rng.below(8) == 0;
    const auto at = model.all.find(id);
    Result<void> done;
    Model after = model;
    switch (rng.below(9)) {
      case 0:
        done = volumes->create(id, size, "", "", managed, key);
        if (done && at == model.all.end()) after.all[id] = {false, size, "", {}, managed.has_value(), managed.value_or(Limits())};
        break;
      case 1:
        done = volumes->create(id, size, other, "", managed);
        if (done && at == model.all.end() && model.all.contains(other)) after.all[id] = {false, size, model.all.at(other).content, {}, managed.has_value(), managed.value_or(Limits())};
        break;
      case 2:
        done = volumes->take_snapshot(id, other);
        if (done && at == model.all.end() && model.all.contains(other)) after.all[id] = {true, model.all.at(other).size, model.all.at(other).content};
        break;
      case 3:
        done = volumes->grow(id, size);
        if (done) after.all.at(id).size = size;
        break;
      case 4:
        done = volumes->remove(id);
        if (done) after.all.erase(id);
        break;
      case 5: {
        const bool reads = rng.below(2) == 0;
        const auto attached = volumes->attach(id, node, reads);
        done = attached ? Result<void>() : Result<void>(std::unexpected(attached.error()));
        if (!done) break;
        auto& one = after.all.at(id);
        if (!one.nodes.empty() && !(one.nodes.contains(node) ? one.reads == reads : one.reads && reads)) wrong.push_back(fmt::format("seed {} death {}: {} has a writer beside others", seed, dies_at, id));
        one.nodes.insert(node), one.reads = reads;
        break;
      }
      case 6: {
        const auto entries = volumes->entries();
        const auto entry = entries.find(id);
        done = volumes->detach(id, node, entry != entries.end() && entry->second.nodes.contains(node) ? entry->second.nodes.at(node) : 1);
        if (done) after.all.at(id).nodes.erase(node);
        break;
      }
      case 7:
        done = volumes->set_limits(id, limits);
        if (done) after.all.at(id).limits = limits;
        break;
      default:  // somebody writes
        if (at != model.all.end() && !at->second.snapshot && !at->second.nodes.empty() && !at->second.reads) after.all.at(id).content = pool.files.at(id + ".volume").content = fmt::format("text {}", ++written);
    }
    if (dead || !volumes->usable()) {
      // The process is gone, and the machine's unsynced bytes; or its journal could not be written, and is read anew. What was asked for is done, or is not.
      doubtful = id;
      volumes.reset();
      if (dead) disk.crash(rng);
      dead = false;
      dies_at = -1;
      volumes = open();
      if (!volumes) break;
      check();
      // From here on it is what it is.
      const auto entries = volumes->entries();
      if (const auto has = entries.find(id); has == entries.end()) model.all.erase(id);
      else if (const auto file = pool.files.find(id + (has->second.snapshot ? ".snapshot" : ".volume")); file != pool.files.end()) model.all[id] = {has->second.snapshot, has->second.size, file->second.content, nodes_of(has->second), has->second.managed, has->second.limits, has->second.read_only};
      doubtful.clear();
      continue;
    }
    if (done) model = std::move(after);
    check();
    if (!wrong.empty()) break;
  }
  return places;
}

TEST(VolumePool, WhatWasAnsweredHoldsWhoeverDiesWhen) {
  std::vector<std::string> wrong;
  int deaths = 0;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    const int places = live(seed, -1, true, wrong);
    ASSERT_THAT(wrong, IsEmpty());
    for (int death = 0; death < places; ++death, ++deaths) {
      (void)live(seed, death, true, wrong);
      ASSERT_THAT(wrong, IsEmpty());
    }
  }
  EXPECT_GT(deaths, 1'000);
}

TEST(VolumePool, WhatWasAnsweredHoldsWhereverTheDiskIsFull) {
  std::vector<std::string> wrong;
  int times = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const int places = live(seed, -1, true, wrong, -1);
    ASSERT_THAT(wrong, IsEmpty());
    for (int full = 0; full < places; ++full, ++times) {
      (void)live(seed, -1, true, wrong, full);
      ASSERT_THAT(wrong, IsEmpty()) << "seed " << seed << ", full at the place " << full;
    }
  }
  EXPECT_GT(times, 1'000);
}

// The test would see it.
TEST(VolumePool, WithoutSyncingItDoesNot) {
  std::vector<std::string> wrong;
  for (std::uint64_t seed = 1; seed <= 10 && wrong.empty(); ++seed)
    for (int death = 0; death < 60 && wrong.empty(); ++death) (void)live(seed, death, false, wrong);
  EXPECT_FALSE(wrong.empty());
}

TEST(VolumePool, TheJournalOfAnotherPoolIsRefused) {
  FakePool pool;
  MemoryDisk disk;
  Ledger other("00000000-0000-4000-8000-000000000002");
  disk.durable = frame_record(kube::print_json(other.snapshot()));
  EXPECT_EQ(VolumePool::open(pool, std::make_unique<MemoryJournal>(disk)).error().code, Code::Invalid);
  disk.durable = frame_record(R"({"end": 7})");
  EXPECT_EQ(VolumePool::open(pool, std::make_unique<MemoryJournal>(disk)).error().code, Code::Internal) << "an end without a beginning";
}

// As it was written before several could read one, and as who wrote that would read it.
TEST(Ledger, OneNodeIsWrittenAsItAlwaysWas) {
  Ledger ledger("p");
  ASSERT_TRUE(ledger.apply(*kube::parse_json(R"({"pool": "p", "last": 9, "entries": {"a": {"size": 4096, "there": true, "node": "w0", "device": "/dev/loop1", "generation": 4}}, "underWay": []})")));
  EXPECT_EQ(ledger.entries().at("a").nodes, (std::map<std::string, std::int64_t>{{"w0", 4}}));
  EXPECT_FALSE(ledger.snapshot()["entries"]["a"].has("nodes"));
  EXPECT_EQ(ledger.snapshot()["entries"]["a"]["node"].string(), "w0");
  ASSERT_TRUE(ledger.apply(*kube::parse_json(R"({"pool": "p", "last": 9, "entries": {"a": {"size": 4096, "there": true, "readOnly": true, "node": "w0", "device": "/dev/loop1", "generation": 5, "nodes": {"w0": 4, "w1": 5}}}, "underWay": []})")));
  EXPECT_EQ(ledger.entries().at("a").nodes, (std::map<std::string, std::int64_t>{{"w0", 4}, {"w1", 5}}));
  const auto leaves = ledger.detach("a", "w1", 5);
  ASSERT_TRUE(leaves && *leaves);
  EXPECT_EQ((*leaves)->what, What::Leave);
  ASSERT_TRUE(ledger.apply(Ledger::record_of(**leaves)) && ledger.apply(Ledger::end_of(**leaves, false)));
  Ledger again("p");
  ASSERT_TRUE(again.apply(ledger.snapshot()));
  EXPECT_EQ(again.entries(), ledger.entries());
  EXPECT_EQ((*again.detach("a", "w0", 4))->what, What::Detach);
}

TEST(VolumePool, AForeignFileIsNeitherTakenNorRemoved) {
  FakePool pool;
  MemoryDisk disk;
  auto volumes = std::move(*VolumePool::open(pool, std::make_unique<MemoryJournal>(disk)));
  pool.files["a.volume"] = {"theirs", 7, false};
  EXPECT_THAT(volumes->create("a", mib).error().message, HasSubstr("that is not ours"));
  EXPECT_EQ(pool.files.at("a.volume").content, "theirs");
  EXPECT_TRUE(volumes->entries().empty());
  ASSERT_TRUE(volumes->create("b", mib));
  pool.files["b.volume"].ours = false;
  EXPECT_EQ(volumes->remove("b").error().code, Code::Conflict);
  EXPECT_TRUE(pool.files.contains("b.volume"));
}

// ---- many at once

// A pool whose steps take a while and may be taken by several threads, as those of files do.
class SlowPool final : public Pool {
 public:
  FakePool files;
  std::mutex mutex;
  Result<std::string> id() override { return files.id(); }
  bool is_distributed() override { return false; }
  Result<Room> room() override { return files.room(); }
  Result<Sight> look(const std::string& id) override { return locked([&] { return files.look(id); }); }
  std::optional<bool> is_used(const std::string& device) override { return locked([&] { return files.is_used(device); }); }
  Result<std::vector<std::string>> ids() override { return locked([&] { return files.ids(); }); }
  Result<void> can_encrypt() override { return {}; }
  Result<std::int64_t> key_version(const std::string& key) override { return files.key_version(key); }
  Result<std::int64_t> rewrap(const std::string& id, bool snapshot) override { return files.rewrap(id, snapshot); }
  Result<void> make_part(const std::string& id, std::int64_t size, const std::string& key) override { return slow([&] { return files.make_part(id, size, key); }); }
  Result<void> copy_part(const std::string& id, const std::string& source, bool of_snapshot, std::int64_t size) override { return slow([&] { return files.copy_part(id, source, of_snapshot, size); }); }
  Result<void> drop_part(const std::string& id) override { return slow([&] { return files.drop_part(id); }); }
  Result<void> publish(const std::string& id, bool snapshot) override { return slow([&] { return files.publish(id, snapshot); }); }
  Result<void> remove(const std::string& id, bool snapshot) override { return slow([&] { return files.remove(id, snapshot); }); }
  Result<void> grow_file(const std::string& id, std::int64_t size) override { return slow([&] { return files.grow_file(id, size); }); }
  Result<void> grow_device(const std::string& id, const std::string& device) override { return slow([&] { return files.grow_device(id, device); }); }
  bool has_engines() override { return true; }
  Result<void> start_engine(const std::string& id, bool read_only, const blocks::DiskLimits& limits) override { return slow([&] { return files.start_engine(id, read_only, limits); }); }
  Result<void> stop_engine(const std::string& id) override { return slow([&] { return files.stop_engine(id); }); }
  Result<void> grow_engine(const std::string& id) override { return slow([&] { return files.grow_engine(id); }); }
  Result<void> limit(const std::string& id, const blocks::DiskLimits& limits) override { return slow([&] { return files.limit(id, limits); }); }
  Result<void> attach(const std::string& id, bool read_only, bool managed) override { return slow([&] { return files.attach(id, read_only, managed); }); }
  Result<void> detach(const std::string& id, const std::string& device) override { return slow([&] { return files.detach(id, device); }); }

 private:
  template <class Work>
  std::invoke_result_t<Work> locked(Work work) {
    const std::lock_guard lock(mutex);
    return work();
  }
  template <class Work>
  Result<void> slow(Work work) {
    std::this_thread::sleep_for(50us);
    return locked(work);
  }
};

TEST(VolumePool, ManyAtOnceComeToWhatOneAfterTheOtherWould) {
  SlowPool files;
  MemoryDisk disk;
  auto opened = VolumePool::open(files, std::make_unique<MemoryJournal>(disk));
  ASSERT_TRUE(opened);
  VolumePool& pool = **opened;
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    threads.emplace_back([&pool, seed] {
      Rng rng(seed);
      for (int i = 0; i < 150; ++i) {
        const std::string id(1, static_cast<char>('a' + rng.below(4))), snapshot = "s" + id, node = "w" + std::to_string(rng.below(2));
        switch (rng.below(8)) {
          case 0: (void)pool.create(id, 16 * mib); break;
          case 1: (void)pool.create(id, 16 * mib, "s" + std::string(1, static_cast<char>('a' + rng.below(4)))); break;
          case 2: (void)pool.take_snapshot(snapshot, id); break;
          case 3: (void)pool.grow(id, static_cast<std::int64_t>(16 + 4 * rng.below(4)) * mib); break;
          case 4: (void)pool.attach(id, node, rng.below(2) == 0); break;
          case 5:
            if (const auto entry = pool.entry(id); entry && entry->attached()) (void)pool.detach(id, entry->nodes.begin()->first, entry->nodes.begin()->second);
            break;
          case 6: (void)pool.remove(rng.below(2) == 0 ? id : snapshot); break;
          default: (void)pool.space(), (void)pool.entries(); break;
        }
      }
    });
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(pool.under_way(), 0u);
  const auto entries = pool.entries();
  std::size_t there = 0;
  for (const auto& [name, file] : files.files.files) {
    ASSERT_FALSE(name.ends_with(".part")) << name;
    const auto entry = entries.find(name.substr(0, name.find('.')));
    ASSERT_NE(entry, entries.end()) << name;
    EXPECT_EQ(entry->second.size, file.size) << name;
    EXPECT_EQ(entry->second.snapshot, name.ends_with(".snapshot")) << name;
    ++there;
  }
  EXPECT_EQ(entries.size(), there);
  for (const auto& [id, entry] : entries) EXPECT_EQ(files.look(id)->devices.size(), entry.attached() ? 1u : 0u) << id;
  // And all of it is in the journal.
  auto again = VolumePool::open(files, std::make_unique<MemoryJournal>(disk));
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->entries(), entries);
}

}  // namespace
}  // namespace fairlead::volumes
