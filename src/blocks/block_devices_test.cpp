// SPDX-License-Identifier: Apache-2.0
// What is read of the kernel, and staging on real devices in mount tables of their own: what is not certainly empty is never formatted.
#include "blocks/block_devices.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <thread>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "base/rng.h"
#include "blocks/staging.h"

namespace fairlead::blocks {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Mounts, AreReadAsTheKernelWritesThem) {
  const auto all = parse_mounts("25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n90 25 7:3 / /data/a\\040b ro,nosuid shared:2 master:1 - xfs /dev/loop3 rw,attr2\n91 25 0:5 /loop3 /dev/x rw - devtmpfs udev rw\n92 25 7:4 / /ro rw - ext4 /dev/loop4 ro\n");
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 4u);
  EXPECT_EQ((*all)[1], (MountEntry{.major = 7, .minor = 3, .root = "/", .place = "/data/a b", .type = "xfs", .read_only = true}));
  EXPECT_TRUE((*all)[3].read_only) << "its file system is";
  const Device loop3{.path = "/dev/loop3", .major = 7, .minor = 3, .read_only = false};
  EXPECT_TRUE(shows((*all)[1], loop3));
  EXPECT_TRUE(shows((*all)[2], loop3)) << "its file is bound there";
  EXPECT_FALSE(shows((*all)[3], loop3));
  EXPECT_FALSE(shows((*all)[2], {.path = "/dev/loop33", .major = 7, .minor = 33, .read_only = false}));
  for (const char* wrong : {"25 1 8:1 / /", "25 1 8 / / rw - ext4 x rw", "a b c:d e f g h i j k l"}) EXPECT_FALSE(parse_mounts(wrong)) << wrong;
}

TEST(Places, AreAbsoluteAndNoLinks) {
  const std::string folder = testing::TempDir() + "fairlead-place-" + random_uuid();
  ASSERT_TRUE(make_dirs(folder));
  ASSERT_EQ(::symlink("/etc", (folder + "/link").c_str()), 0);
  EXPECT_TRUE(check_place(folder + "/new"));
  EXPECT_THAT(check_place(folder + "/link").error().message, HasSubstr("is a link"));
  for (const std::string& wrong : {std::string("relative"), std::string(""), folder + "/../x", folder + "/./x", "/" + std::string(5000, 'x')}) EXPECT_FALSE(check_place(wrong)) << wrong.substr(0, 60);
  EXPECT_TRUE(remove_tree(folder));
}

// A volume of a pool, as its daemon shows it: a file ID.volume behind a loop device with sectors of 4096 bytes.
class Devices : public testing::Test {
 protected:
  void with(const std::function<void(const std::string& volume, const std::string& device, const std::string& folder)>& work) {
    if (::geteuid() != 0 || !exists("/dev/loop-control") || !exists("/usr/sbin/mkfs.xfs") || !exists("/usr/sbin/mkfs.ext4")) GTEST_SKIP() << "needs root, loop devices, xfsprogs and e2fsprogs";
    const std::string folder = testing::TempDir() + "fairlead-blocks-" + random_uuid(), volume = "t-" + random_uuid();
    ASSERT_TRUE(make_dirs(folder));
    std::thread([&] {
      ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
      ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
      const std::string file = folder + "/" + volume + ".volume";
      ASSERT_TRUE(run_checked({.argv = {"truncate", "-s", "320M", file}}, 10s));
      auto shown = run_checked({.argv = {"losetup", "--find", "--show", "--sector-size", "4096", file}}, 10s);
      // Its name is what the pool's daemon gives it; what losetup made has a path there.
      EXPECT_FALSE(device_of(volume)) << "somebody's";
      if (shown) name_device(std::string(trim(*shown)), volume);
      ASSERT_TRUE(shown) << shown.error().message;
      while (!shown->empty() && shown->back() == '\n') shown->pop_back();
      work(volume, *shown, folder);
      (void)unmount(folder + "/a"), (void)unmount(folder + "/b");
      // By the name that it has: the number may be somebody else's by now.
      if (const auto left = device_of(volume)) {
        EXPECT_TRUE(run_checked({.argv = {"losetup", "-d", left->path}}, 10s));
      }
    }).join();
    EXPECT_TRUE(remove_tree(folder));
  }
  static void name_device(const std::string& device, const std::string& volume) {
    const Fd loop(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
    loop_info64 about{};
    ASSERT_EQ(::ioctl(loop.get(), LOOP_GET_STATUS64, &about), 0);
    std::snprintf(reinterpret_cast<char*>(about.lo_file_name), LO_NAME_SIZE, "%s", volume.c_str());
    ASSERT_EQ(::ioctl(loop.get(), LOOP_SET_STATUS64, &about), 0);
  }
  static void put(const std::string& device, std::int64_t at, const std::string& text) {
    const Fd fd(::open(device.c_str(), O_WRONLY | O_CLOEXEC | O_SYNC));
    ASSERT_TRUE(fd);
    ASSERT_EQ(::pwrite(fd.get(), text.data(), text.size(), at), static_cast<ssize_t>(text.size()));
  }
  static std::string sum(const std::string& device) { return run_checked({.argv = {"sha256sum", device}}, 60s).value_or("?"); }
};

TEST_F(Devices, AnEmptyOneIsFormattedOnceAndMountedWhereverItIsAskedFor) {
  with([](const std::string& volume, const std::string& device, const std::string& folder) {
    EXPECT_EQ(device_of(volume).value().path, device);
    EXPECT_EQ(device_of("t-none").error().code, Code::NotFound);
    EXPECT_EQ(file_system_on(*device_of(volume)).value(), "");
    ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = "xfs", .flags = {"noatime"}, .read_only = false}));
    ASSERT_TRUE(write_file_durably(folder + "/a/file", "kept", 0644));
    ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = "xfs", .flags = {}, .read_only = false})) << "again is nothing";
    const auto other = stage({.volume = volume, .place = folder + "/b", .type = "", .flags = {}, .read_only = false});
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_EQ(read_file(folder + "/b/file").value(), "kept") << "a second place has the same";
    EXPECT_EQ(stage({.volume = volume, .place = folder + "/a", .type = "ext4", .flags = {}, .read_only = false}).error().code, Code::Exists);
    ASSERT_TRUE(unmount(folder + "/a") && unmount(folder + "/b"));
    EXPECT_THAT(stage({.volume = volume, .place = folder + "/a", .type = "ext4", .flags = {}, .read_only = false}).error().message, HasSubstr("it is not formatted anew"));
    ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = "", .flags = {}, .read_only = true}));
    EXPECT_FALSE(write_file_atomically(folder + "/a/file", "x", 0644));
  });
}

// Another site of this machine has a volume of the same name.
TEST_F(Devices, OfTwoThatBearAVolumesNameTheOneIsMeantThatItsPoolTells) {
  with([](const std::string& volume, const std::string& device, const std::string& folder) {
    ASSERT_TRUE(make_dirs(folder + "/other"));
    const std::string file = folder + "/other/" + volume + ".volume";
    ASSERT_TRUE(run_checked({.argv = {"truncate", "-s", "320M", file}}, 10s));
    auto shown = run_checked({.argv = {"losetup", "--find", "--show", "--sector-size", "4096", file}}, 10s);
    ASSERT_TRUE(shown) << shown.error().message;
    const std::string theirs(trim(*shown));
    name_device(theirs, volume);
    EXPECT_THAT(device_of(volume).error().message, HasSubstr("which of them is meant is not known"));
    const auto nobody_said = stage({.volume = volume, .place = folder + "/a", .type = "xfs", .flags = {}, .read_only = false});
    EXPECT_EQ(nobody_said.error().code, Code::Conflict);
    const std::string before = sum(theirs);
    ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = "xfs", .flags = {}, .read_only = false, .device = device}));
    EXPECT_EQ(sum(theirs), before);
    // What is there already is known by its mount.
    ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = "xfs", .flags = {}, .read_only = false}));
    const auto all = mounts();
    const auto there = mount_at(*all, folder + "/a");
    ASSERT_TRUE(there);
    EXPECT_EQ(device_of(volume, "", &*there).value().path, device);
    EXPECT_EQ(device_of(volume, theirs, nullptr).value().path, theirs);
    EXPECT_FALSE(device_of(volume, "/dev/loop-none", nullptr)) << "a word of before the last boot";
    EXPECT_TRUE(run_checked({.argv = {"losetup", "-d", theirs}}, 10s));
    for (int tries = 0; tries < 1000 && !device_of(volume); ++tries) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(device_of(volume, "/dev/loop-none", nullptr).value().path, device) << "the only one";
  });
}

TEST_F(Devices, AnOpenOneKeepsItsNumber) {
  with([](const std::string& volume, const std::string& device, const std::string&) {
    EXPECT_EQ(open_device("t-none").error().code, Code::NotFound);
    auto held = open_device(volume);
    ASSERT_TRUE(held) << held.error().message;
    EXPECT_EQ(held->device, *device_of(volume));
    // Somebody takes it away: it stays until nobody has it open, and nobody else gets its number.
    ASSERT_TRUE(run_checked({.argv = {"losetup", "-d", device}}, 10s));
    EXPECT_EQ(device_of(volume).value().path, device);
    const std::string file = testing::TempDir() + "fairlead-other-" + random_uuid();
    ASSERT_TRUE(run_checked({.argv = {"truncate", "-s", "64M", file}}, 10s));
    const auto other = run_checked({.argv = {"losetup", "--find", "--show", file}}, 10s);
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_NE(std::string(trim(*other)), device);
    EXPECT_TRUE(run_checked({.argv = {"losetup", "-d", std::string(trim(*other))}}, 10s));
    (void)::unlink(file.c_str());
    held->open.reset();
    for (int tries = 0; tries < 1000 && device_of(volume); ++tries) std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(device_of(volume)) << "and goes then";
  });
}

TEST_F(Devices, WhatIsNotCertainlyEmptyIsNotFormatted) {
  for (const std::int64_t at : {std::int64_t{4096}, std::int64_t{100} << 20, std::int64_t{320} * 1024 * 1024 - 4096})
    with([&](const std::string& volume, const std::string& device, const std::string& folder) {
      put(device, at, std::string(4096, 'd'));
      const std::string before = sum(device);
      const auto done = stage({.volume = volume, .place = folder + "/a", .type = "xfs", .flags = {}, .read_only = false});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, Code::Conflict);
      EXPECT_THAT(done.error().message, HasSubstr("holds data of no known kind"));
      EXPECT_EQ(sum(device), before);
    });
}

TEST_F(Devices, ADamagedFileSystemIsLeftAsItIs) {
  with([](const std::string& volume, const std::string& device, const std::string& folder) {
    ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = "ext4", .flags = {}, .read_only = false}));
    ASSERT_TRUE(write_file_durably(folder + "/a/file", "somebody's data", 0644));
    ASSERT_TRUE(unmount(folder + "/a"));
    // Its group descriptors and what follows.
    put(device, 4096, std::string(4096 * 64, '\x5a'));
    const auto uuid = [&] { return run_checked({.argv = {"blkid", "-p", "-s", "UUID", "-o", "value", device}}, 10s).value_or("?"); };
    const std::string before = uuid(), all = sum(device);
    const auto done = stage({.volume = volume, .place = folder + "/a", .type = "ext4", .flags = {}, .read_only = false});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::Internal);
    EXPECT_EQ(uuid(), before) << "it was not made anew: " << done.error().message;
    EXPECT_EQ(sum(device), all) << "and nothing of it was changed";
    EXPECT_TRUE(run_checked({.argv = {"grep", "-qa", "somebody's data", device}}, 60s)) << "what is on it is there still";
  });
}

TEST_F(Devices, AFormatThatWasBrokenOffIsBegunAnew) {
  for (const char* type : {"ext4", "xfs"})
    with([&](const std::string& volume, const std::string& device, const std::string& folder) {
      const Device about = *device_of(volume);
      ASSERT_TRUE(make_file_system(about, type));
      EXPECT_EQ(file_system_on(about).value(), type) << "a whole one has no mark";
      // Half of one, with the mark that is there till it is whole.
      std::string mark = "fairlead: a file system is being made here, and nothing else is on this device\n";
      mark.resize(4096, '\0');
      put(device, (std::int64_t{320} << 20) - (1 << 20), mark);
      put(device, 4096, std::string(4096 * 16, '\x5a'));
      EXPECT_EQ(file_system_on(about).value(), "");
      const auto done = stage({.volume = volume, .place = folder + "/a", .type = type, .flags = {}, .read_only = false});
      ASSERT_TRUE(done) << done.error().message;
    });
}

// As a snapshot of a volume that is mounted: what was synced lies in its log alone.
TEST_F(Devices, WhatWasSyncedIsReadOnceTheLogIsReplayed) {
  for (const char* type : {"ext4", "xfs"})
    with([&](const std::string& volume, const std::string& device, const std::string& folder) {
      EXPECT_EQ(settle("t-none").error().code, Code::NotFound);
      ASSERT_TRUE(settle(volume)) << "an empty one is left as it is";
      EXPECT_EQ(file_system_on(*device_of(volume)).value(), "");
      ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = type, .flags = {}, .read_only = false}));
      ASSERT_TRUE(write_file_durably(folder + "/a/file", "synced", 0644));
      // Its file at this moment, in place of the device's own.
      const std::string file = folder + "/" + volume + ".volume", copy = folder + "/copy";
      ASSERT_TRUE(run_checked({.argv = {"cp", "--sparse=always", file, copy}}, 60s));
      ASSERT_TRUE(unmount(folder + "/a"));
      ASSERT_TRUE(run_checked({.argv = {"losetup", "-d", device}}, 10s));
      ASSERT_EQ(::rename(copy.c_str(), file.c_str()), 0);
      const auto show = [&](bool read_only) {
        if (const auto before = device_of(volume)) (void)run_checked({.argv = {"losetup", "-d", before->path}}, 10s);
        std::vector<std::string> argv{"losetup", "--find", "--show", "--sector-size", "4096", file};
        if (read_only) argv.insert(argv.begin() + 1, "--read-only");
        const auto shown = run_checked({.argv = argv}, 10s);
        ASSERT_TRUE(shown) << shown.error().message;
        name_device(std::string(trim(*shown)), volume);
      };
      const auto reads = [&] {
        EXPECT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = "", .flags = {}, .read_only = false}));
        auto out = read_file(folder + "/a/file").value_or("not there");
        EXPECT_FALSE(write_file_atomically(folder + "/a/other", "x", 0644));
        EXPECT_TRUE(unmount(folder + "/a"));
        return out;
      };
      show(true);
      EXPECT_EQ(reads(), "not there") << type << ": or this tests nothing";
      show(false);
      const auto done = settle(volume);
      ASSERT_TRUE(done) << done.error().message;
      show(true);
      EXPECT_EQ(reads(), "synced") << type;
      ASSERT_TRUE(settle(volume)) << "one that is read-only is left as it is";
    });
}

TEST_F(Devices, WhatIsOfNoKnownKindIsNotSettled) {
  with([&](const std::string& volume, const std::string& device, const std::string&) {
    put(device, 4096, std::string(4096, 'd'));
    const std::string before = sum(device);
    ASSERT_TRUE(settle(volume));
    EXPECT_EQ(sum(device), before);
  });
}

TEST_F(Devices, ExtFourGrowsAtRestAndXfsWhileItIsMounted) {
  for (const char* type : {"ext4", "xfs"})
    with([&](const std::string& volume, const std::string& device, const std::string& folder) {
      ASSERT_TRUE(stage({.volume = volume, .place = folder + "/a", .type = type, .flags = {}, .read_only = false}));
      const auto blocks_of = [&] { return std::stoll(run_checked({.argv = {"stat", "-f", "-c", "%b", folder + "/a"}}, 10s).value_or("0")); };
      const auto before = blocks_of();
      std::int64_t known = device_size(*device_of(volume)).value();
      ASSERT_TRUE(run_checked({.argv = {"truncate", "-s", "800M", folder + "/" + volume + ".volume"}}, 10s));
      ASSERT_TRUE(run_checked({.argv = {"losetup", "-c", device}}, 10s));
      if (type == std::string("xfs")) {
        ASSERT_TRUE(grow_to_device(folder + "/a", known));
        EXPECT_EQ(known, std::int64_t{800} << 20);
      } else {
        ASSERT_TRUE(unmount(folder + "/a"));
        const auto again = stage({.volume = volume, .place = folder + "/a", .type = type, .flags = {}, .read_only = false});
        ASSERT_TRUE(again) << again.error().message;
      }
      EXPECT_GT(blocks_of(), before * 3 / 2) << type;
      EXPECT_TRUE(grow_to_device(folder + "/none", known)) << "nothing is mounted there";
    });
}

}  // namespace
}  // namespace fairlead::blocks
