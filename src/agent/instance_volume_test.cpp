// SPDX-License-Identifier: Apache-2.0
#include "agent/instance_volume.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "agent/heartbeat.h"
#include "base/fd.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"
#include "base/rng.h"
#include "node/memory_api.h"

namespace fairlead::agent {
namespace {

using kube::Json;
using testing::HasSubstr;
using Step = VolumePlan::Step;
using Due = VolumePlan::Due;

constexpr const char* a = "i-0123456789abcdef0";
constexpr const char* b = "i-fedcba98765432100";
api::VolumeOrder order(const char* instance, std::int64_t gib) { return {.instance = instance, .gib = gib, .released = false}; }
api::VolumeOrder pool_order(const char* instance, std::int64_t gib) { return {.instance = instance, .gib = gib, .released = false, .pool = true}; }
api::VolumeOrder release(const char* instance) { return {.instance = instance, .gib = 0, .released = true}; }

struct Case {
  const char* name;
  std::optional<api::VolumeOrder> order;
  VolumeView seen;
  std::vector<Due> steps;
  const char* refused = "";
};
struct VolumePlans : testing::TestWithParam<Case> {};
TEST_P(VolumePlans, Are) {
  const VolumePlan plan = plan_volume(GetParam().order, GetParam().seen);
  EXPECT_EQ(plan.steps, GetParam().steps);
  EXPECT_THAT(plan.refused, HasSubstr(GetParam().refused));
  EXPECT_EQ(plan.refused.empty(), *GetParam().refused == '\0');
}
INSTANTIATE_TEST_SUITE_P(
    All, VolumePlans,
    testing::Values(Case{"first", order(a, 10), {}, {{Step::Make, a, 10}, {Step::Mount, a, 0}}},
                    Case{"at_rest", order(a, 10), {.images = {{a, 10}}, .mounted = a}, {}},
                    Case{"after_a_reboot", order(a, 10), {.images = {{a, 10}}}, {{Step::Mount, a, 0}}},
                    Case{"before_the_order_is_known", std::nullopt, {.images = {{a, 10}}}, {{Step::Mount, a, 0}}},
                    Case{"no_order_deletes_nothing", std::nullopt, {.images = {{a, 10}, {b, 5}}, .mounted = a}, {}},
                    Case{"two_and_no_order", std::nullopt, {.images = {{a, 10}, {b, 5}}}, {}, "no order says whose"},
                    Case{"no_order_and_files_in_the_place", std::nullopt, {.images = {{a, 10}}, .occupied = true}, {}, "there are files in /opt/sagemaker"},
                    Case{"no_order_and_no_volume", std::nullopt, {.foreign = true}, {}},
                    Case{"grows", order(a, 20), {.images = {{a, 10}}, .mounted = a}, {{Step::Grow, a, 20}}},
                    Case{"grows_after_a_death", order(a, 20), {.images = {{a, 0}}}, {{Step::Mount, a, 0}, {Step::Grow, a, 20}}},
                    Case{"never_shrinks", order(a, 5), {.images = {{a, 10}}, .mounted = a}, {}},
                    Case{"another_instance", order(b, 5), {.images = {{a, 10}}, .mounted = a}, {}, "the volume of instance i-0123456789abcdef0 is there: it is deleted when it is released"},
                    Case{"another_instance_after_a_reboot", order(b, 5), {.images = {{a, 10}}}, {}, "is there: it is deleted when it is released"},
                    Case{"both_and_the_other_is_mounted", order(b, 5), {.images = {{a, 10}, {b, 5}}, .mounted = a}, {}, "is there: it is deleted when it is released"},
                    Case{"both_after_a_reboot", order(b, 5), {.images = {{a, 10}, {b, 5}}}, {{Step::Mount, b, 0}}, "is there: it is deleted when it is released"},
                    Case{"released", release(a), {.images = {{a, 10}}, .mounted = a}, {{Step::Unmount, a, 0}, {Step::Delete, a, 0}}},
                    Case{"released_and_gone", release(a), {}, {}},
                    Case{"files_are_not_hidden", order(a, 10), {.occupied = true}, {}, "there are files in /opt/sagemaker"},
                    Case{"a_mount_of_somebody", order(a, 10), {.foreign = true}, {}, "something else is mounted"},
                    Case{"released_takes_no_other", release(a), {.images = {{a, 10}, {b, 5}}, .mounted = b}, {{Step::Delete, a, 0}}},
                    Case{"a_late_release_takes_nothing", release(a), {.images = {{b, 5}}, .mounted = b}, {}},
                    Case{"released_under_a_mount_of_somebody", release(a), {.images = {{a, 10}}, .foreign = true}, {}, "something else is mounted at /opt/sagemaker: unmount it, and the volume"},
                    Case{"released_and_gone_beside_a_mount_of_somebody", release(a), {.foreign = true}, {}},
                    Case{"of_a_pool", pool_order(a, 10), {}, {{Step::Make, a, 10, true}, {Step::Mount, a, 0, true}}},
                    Case{"of_a_pool_after_a_reboot", std::nullopt, {.images = {{a, 10, true}}}, {{Step::Mount, a, 0, true}}},
                    Case{"of_a_pool_grows", pool_order(a, 20), {.images = {{a, 10, true}}, .mounted = a}, {{Step::Grow, a, 20, true}}},
                    Case{"of_a_pool_released", release(a), {.images = {{a, 10, true}}, .mounted = a}, {{Step::Unmount, a, 0, true}, {Step::Delete, a, 0, true}}},
                    Case{"a_file_does_not_become_one_of_a_pool", pool_order(a, 10), {.images = {{a, 10}}, .mounted = a}, {}, "is a file of this machine, and one of a pool is ordered: replace the instance"},
                    Case{"nor_the_other_way_round", order(a, 10), {.images = {{a, 10, true}}, .mounted = a}, {}, "is one of a pool, and a file of this machine is ordered: replace the instance"}),
    [](const auto& row) { return row.param.name; });

TEST(VolumeLitter, WhatWasLeftHalfMadeGoesByAnOrder) {
  const VolumeView seen{.images = {{a, 10}}, .mounted = a, .litter = {"x.img.new", "y.grows"}};
  EXPECT_EQ(plan_volume(order(a, 10), seen).litter, seen.litter);
  EXPECT_EQ(plan_volume(release(a), seen).litter, seen.litter);
  EXPECT_TRUE(plan_volume(std::nullopt, seen).litter.empty());
}

TEST(VolumeOrders, TellWhoseVolumeIsThereStill) {
  const auto node = [](const std::string& order, const api::VolumeState& state, const char* version = "v1.30.0-fairlead.1") {
    return Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kVolumeNote, order}, {api::kVolumeStateNote, api::print_volume_state(state)}})}})}, {"status", Json::object({{"nodeInfo", Json::object({{"kubeletVersion", version}})}})}});
  };
  EXPECT_EQ(api::volume_of_another(node("", {}), ""), "");
  EXPECT_EQ(api::volume_of_another(node("", {.instance = a, .gib = 1, .of = "", .failed = ""}), ""), a);
  EXPECT_EQ(api::volume_of_another(node("", {.instance = a, .gib = 1, .of = "", .failed = ""}), a), "");
  EXPECT_EQ(api::volume_of_another(node("", {.instance = a, .gib = 1, .of = "", .failed = ""}), b), a);
  const std::string released = api::print_volume_order(release(a));
  EXPECT_EQ(api::volume_of_another(node(released, {.instance = "", .gib = 0, .of = a, .failed = ""}), b), "") << "it says that it did";
  EXPECT_EQ(api::volume_of_another(node(released, {.instance = "", .gib = 0, .of = a, .failed = "cannot look"}), b), a);
  EXPECT_EQ(api::volume_of_another(node(released, {}), b), a) << "it has not answered";
  EXPECT_EQ(api::volume_of_another(node(released, {}, "v1.33.1"), b), "") << "a kubelet has no volumes, and never answers";
}

TEST(VolumeOrders, AreReadAsTheyAreWritten) {
  for (const auto& one : {order(a, 10), pool_order(a, 10), release(b)}) EXPECT_EQ(*api::parse_volume_order(api::print_volume_order(one)), one);
  for (const char* const wrong : {"", "[]", R"({"gib": 1})", R"({"instance": "i-../../etc", "gib": 1})", R"({"instance": "i-0", "gib": 0})", R"({"instance": "i-0", "gib": 20000})", R"({"instance": "x-0", "gib": 1})"}) EXPECT_FALSE(api::parse_volume_order(wrong)) << wrong;
  const api::VolumeState state{.instance = a, .gib = 3, .of = b, .failed = "no room", .pool = true};
  EXPECT_EQ(api::read_volume_state(Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kVolumeStateNote, api::print_volume_state(state)}})}})}})), state);
  EXPECT_EQ(api::read_volume_state(Json::object()), api::VolumeState());
}

// A real file system, in a folder of the test.
struct RealVolume : testing::Test {
  RealVolume() {
    char folder[] = "/var/tmp/fairlead-volume-XXXXXX";
    top = ::mkdtemp(folder);
    places = {.folder = top + "/images", .mount_point = top + "/at"};
  }
  ~RealVolume() override {
    for (const std::string& at : {top + "/elsewhere", top + "/real/at", places.mount_point, places.mount_point}) ::umount2(at.c_str(), MNT_DETACH);
    (void)set_flags(flags() & ~FS_IMMUTABLE_FL);
    EXPECT_TRUE(remove_tree(top));
  }
  void SetUp() override {
    if (::geteuid() != 0 || !exists("/dev/loop-control")) GTEST_SKIP() << "needs root and loop devices";
  }
  // Of the place; -1: its file system has none.
  int flags() const {
    const Fd opened(::open(places.mount_point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int out = 0;
    return opened && ::ioctl(opened.get(), FS_IOC_GETFLAGS, &out) == 0 ? out : -1;
  }
  bool set_flags(int wanted) const {
    const Fd opened(::open(places.mount_point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return opened && ::ioctl(opened.get(), FS_IOC_SETFLAGS, &wanted) == 0;
  }
  std::string image(const char* instance) const { return places.folder + "/" + instance + ".img"; }
  double gib_there() const {
    struct statvfs of {};
    EXPECT_EQ(::statvfs(places.mount_point.c_str(), &of), 0);
    return static_cast<double>(of.f_blocks) * static_cast<double>(of.f_frsize) / (1 << 30);
  }
  std::string top;
  VolumePlaces places;
};

TEST_F(RealVolume, LivesAsLongAsItsInstance) {
  auto state = settle_volume(places, order(a, 1));
  ASSERT_EQ(state, (api::VolumeState{.instance = a, .gib = 1, .of = a, .failed = ""}));
  EXPECT_GT(gib_there(), 0.9);
  EXPECT_LT(gib_there(), 1.0);
  struct stat there {};
  ASSERT_EQ(::stat(places.mount_point.c_str(), &there), 0);
  EXPECT_EQ(trim(*read_file("/sys/block/loop" + std::to_string(minor(there.st_dev)) + "/loop/dio", 64_KiB)), "1");
  ASSERT_TRUE(write_file_atomically(places.mount_point + "/kept", "yes", 0644));
  EXPECT_EQ(settle_volume(places, order(a, 1)), state) << "again is nothing";
  // A reboot: nothing is mounted, and the agent has not heard of the order yet.
  ASSERT_EQ(::umount2(places.mount_point.c_str(), 0), 0);
  {
    VolumeKeeper keeper(places, [] {});
    EXPECT_EQ(*read_file(places.mount_point + "/kept", 64_KiB), "yes");
  }
  // It grows where it is.
  state = settle_volume(places, order(a, 2));
  EXPECT_EQ(state, (api::VolumeState{.instance = a, .gib = 2, .of = a, .failed = ""}));
  EXPECT_GT(gib_there(), 1.8);
  EXPECT_EQ(*read_file(places.mount_point + "/kept", 64_KiB), "yes");
  // Cut off while it grew: it is grown to the end.
  ASSERT_TRUE(write_file_atomically(places.folder + "/" + a + ".grows", "", 0600));
  EXPECT_EQ(settle_volume(places, order(a, 2)), state);
  EXPECT_FALSE(exists(places.folder + "/" + a + ".grows"));
  EXPECT_EQ(settle_volume(places, order(a, 1)).gib, 2) << "it does not shrink";
  // An order of another instance is no leave to delete it; after its release that one finds nothing of it.
  state = settle_volume(places, order(b, 1));
  EXPECT_EQ(state.instance, a);
  EXPECT_THAT(state.failed, HasSubstr("it is deleted when it is released"));
  EXPECT_EQ(*read_file(places.mount_point + "/kept", 64_KiB), "yes");
  EXPECT_EQ(settle_volume(places, release(a)), (api::VolumeState{.instance = "", .gib = 0, .of = a, .failed = ""}));
  state = settle_volume(places, order(b, 1));
  EXPECT_EQ(state, (api::VolumeState{.instance = b, .gib = 1, .of = b, .failed = ""}));
  EXPECT_FALSE(exists(places.mount_point + "/kept"));
  EXPECT_FALSE(exists(places.folder + "/" + a + ".img"));
  EXPECT_EQ(settle_volume(places, release(b)), (api::VolumeState{.instance = "", .gib = 0, .of = b, .failed = ""}));
  EXPECT_FALSE(exists(places.folder + "/" + b + ".img"));
  EXPECT_TRUE(std::filesystem::is_empty(places.mount_point));
}

// A device that shows a file by the name that a pool's has, in place of a pool.
struct PoolVolume : RealVolume {
  void SetUp() override {
    RealVolume::SetUp();
    if (IsSkipped()) return;
    file = fmt::format("{}/{}.{}.disk", top, a, random_uuid());
    const Fd made(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::ftruncate(made.get(), std::int64_t{1} << 30), 0);
  }
  ~PoolVolume() override {
    ::umount2(places.mount_point.c_str(), MNT_DETACH);
    hide();
  }
  void show() {
    auto shown = run_checked({.argv = {"losetup", "--find", "--show", file}}, std::chrono::seconds(20));
    ASSERT_TRUE(shown) << shown.error().message;
    device = std::string(trim(*shown));
  }
  void hide() {
    if (!device.empty()) {
      EXPECT_TRUE(run_checked({.argv = {"losetup", "--detach", device}}, std::chrono::seconds(20)));
    }
    device.clear();
  }
  std::string file, device;
};

TEST_F(PoolVolume, IsFormattedOnceAndMountedWhereverItIsShown) {
  auto state = settle_volume(places, pool_order(a, 1));
  EXPECT_THAT(state.failed, HasSubstr("is not shown on this machine"));
  EXPECT_EQ(state.instance, "");
  show();
  const api::VolumeState there{.instance = a, .gib = 1, .of = a, .failed = "", .pool = true};
  ASSERT_EQ(settle_volume(places, pool_order(a, 1)), there);
  ASSERT_TRUE(write_file_atomically(places.mount_point + "/kept", "yes", 0644));
  EXPECT_EQ(settle_volume(places, pool_order(a, 1)), there) << "again is nothing";
  // A reboot: it is shown later than the agent looks. Nobody writes below it.
  ASSERT_EQ(::umount2(places.mount_point.c_str(), 0), 0);
  hide();
  {
    VolumeKeeper keeper(places, [] {});
    EXPECT_EQ(keeper.state()->instance, a);
    EXPECT_THAT(keeper.state()->failed, HasSubstr("is not shown"));
    EXPECT_TRUE(flags() == -1 || (flags() & FS_IMMUTABLE_FL) != 0);
  }
  // Where it was noted on the way down: the note was lost, and what it holds is its own.
  ASSERT_TRUE(remove_tree(places.folder));
  show();
  EXPECT_EQ(settle_volume(places, pool_order(a, 1)), there);
  EXPECT_EQ(*read_file(places.mount_point + "/kept", 64_KiB), "yes");
  // It grows once its device has.
  EXPECT_THAT(settle_volume(places, pool_order(a, 2)).failed, HasSubstr("has 1 GiB yet"));
  ASSERT_EQ(::truncate(file.c_str(), std::int64_t{2} << 30), 0);
  ASSERT_TRUE(run_checked({.argv = {"losetup", "--set-capacity", device}}, std::chrono::seconds(20)));
  EXPECT_EQ(settle_volume(places, pool_order(a, 2)).gib, 2);
  EXPECT_GT(gib_there(), 1.8);
  // Nobody else gets the machine while anybody has it mounted.
  const std::string elsewhere = top + "/elsewhere";
  ASSERT_TRUE(make_dirs(elsewhere));
  ASSERT_EQ(::mount(device.c_str(), elsewhere.c_str(), "xfs", 0, ""), 0);
  state = settle_volume(places, release(a));
  EXPECT_EQ(state.instance, a);
  EXPECT_THAT(state.failed, HasSubstr("is in use: what has it mounted"));
  ASSERT_EQ(::umount2(elsewhere.c_str(), 0), 0);
  EXPECT_EQ(settle_volume(places, release(a)), (api::VolumeState{.instance = "", .gib = 0, .of = a, .failed = ""}));
  hide();
  EXPECT_EQ(settle_volume(places, release(a)), (api::VolumeState{.instance = "", .gib = 0, .of = a, .failed = ""}));
}

TEST_F(PoolVolume, WhatIsNotItsOwnIsNotFormatted) {
  const Fd opened(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::pwrite(opened.get(), "somebody's", 10, 4096), 10);
  show();
  EXPECT_THAT(settle_volume(places, pool_order(a, 1)).failed, HasSubstr("holds data of no known kind"));
  ASSERT_TRUE(run_checked({.argv = {"mkfs.ext4", "-q", "-F", device}}, std::chrono::seconds(20)));
  EXPECT_THAT(settle_volume(places, pool_order(a, 1)).failed, HasSubstr("holds ext4, which is none of this instance's"));
  EXPECT_EQ(trim(run_checked({.argv = {"blkid", "-p", "-s", "TYPE", "-o", "value", device}}, std::chrono::seconds(20)).value_or("")), "ext4");
}

TEST_F(RealVolume, WhatWasCutOffIsMadeAnewAndWhatIsInTheWayStays) {
  ASSERT_TRUE(make_dirs(places.folder, 0700));
  ASSERT_TRUE(write_file_atomically(places.folder + "/" + a + ".img.new", "half", 0600));
  ASSERT_TRUE(make_dirs(places.mount_point));
  ASSERT_TRUE(write_file_atomically(places.mount_point + "/mine", "x", 0644));
  auto state = settle_volume(places, order(a, 1));
  EXPECT_THAT(state.failed, HasSubstr("there are files in"));
  EXPECT_EQ(state.instance, "");
  EXPECT_EQ(*read_file(places.mount_point + "/mine", 64_KiB), "x");
  ASSERT_TRUE(std::filesystem::remove(places.mount_point + "/mine"));
  EXPECT_EQ(settle_volume(places, order(a, 1)).instance, a);
  EXPECT_FALSE(exists(places.folder + "/" + a + ".img.new"));
  // In use: nothing is deleted under whoever uses it.
  {
    const Fd held(::open((places.mount_point).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(held);
    state = settle_volume(places, release(a));
    EXPECT_THAT(state.failed, HasSubstr("is in use"));
    EXPECT_EQ(state.instance, a);
    EXPECT_TRUE(exists(places.folder + "/" + a + ".img"));
  }
  EXPECT_EQ(settle_volume(places, release(a)).failed, "");
  EXPECT_THAT(settle_volume(places, order(a, api::kMostVolumeGib)).failed, HasSubstr("make room, or ask for less"));
}

TEST_F(RealVolume, IsFoundWhereItsPlaceIsALink) {
  ASSERT_TRUE(make_dirs(top + "/real"));
  ASSERT_EQ(::symlink((top + "/real").c_str(), (top + "/link").c_str()), 0);
  VolumePlaces linked = places;
  linked.mount_point = top + "/link/at";
  const api::VolumeState there{.instance = a, .gib = 1, .of = a, .failed = ""};
  EXPECT_EQ(settle_volume(linked, order(a, 1)), there);
  EXPECT_EQ(settle_volume(linked, order(a, 1)), there) << "it is not mounted twice";
  {
    const Fd held(::open(linked.mount_point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto state = settle_volume(linked, release(a));
    EXPECT_EQ(state.instance, a);
    EXPECT_THAT(state.failed, HasSubstr("is in use"));
    EXPECT_TRUE(exists(image(a)));
  }
  EXPECT_EQ(settle_volume(linked, release(a)).failed, "");
  EXPECT_FALSE(exists(image(a)));
}

TEST_F(RealVolume, WhatAPodHasMountedStillIsNotDeleted) {
  ASSERT_EQ(settle_volume(places, order(a, 1)).failed, "");
  ASSERT_TRUE(write_file_atomically(places.mount_point + "/kept", "yes", 0644));
  // As a pod's namespace has it: our own can be unmounted.
  ASSERT_TRUE(make_dirs(top + "/elsewhere"));
  ASSERT_EQ(::mount(places.mount_point.c_str(), (top + "/elsewhere").c_str(), nullptr, MS_BIND, nullptr), 0);
  for (const auto& [asked, why] : {std::pair(release(a), "the volume of " + std::string(a) + " is in use"), {release(a), "is in use"}, {order(b, 1), "it is deleted when it is released"}}) {
    const auto state = settle_volume(places, asked);
    EXPECT_EQ(state.instance, a) << "it is there still";
    EXPECT_EQ(state.gib, 0);
    EXPECT_THAT(state.failed, HasSubstr(why));
    EXPECT_TRUE(exists(image(a)));
    EXPECT_FALSE(exists(image(b)));
  }
  EXPECT_EQ(*read_file(top + "/elsewhere/kept", 64_KiB), "yes");
  ASSERT_EQ(::umount2((top + "/elsewhere").c_str(), 0), 0);
  EXPECT_EQ(settle_volume(places, release(a)), (api::VolumeState{.instance = "", .gib = 0, .of = a, .failed = ""}));
  EXPECT_FALSE(exists(image(a)));
  EXPECT_EQ(settle_volume(places, order(b, 1)), (api::VolumeState{.instance = b, .gib = 1, .of = b, .failed = ""}));
  // Something on top of it.
  ASSERT_EQ(::mount("tmpfs", places.mount_point.c_str(), "tmpfs", 0, "size=1m"), 0);
  const auto state = settle_volume(places, release(b));
  EXPECT_EQ(state.instance, b);
  EXPECT_THAT(state.failed, HasSubstr("something else is mounted at"));
  EXPECT_TRUE(exists(image(b)));
  ASSERT_EQ(::umount2(places.mount_point.c_str(), 0), 0);
  EXPECT_EQ(settle_volume(places, release(b)), (api::VolumeState{.instance = "", .gib = 0, .of = b, .failed = ""}));
}

TEST_F(RealVolume, NothingIsWrittenBelowOneThatCannotBeMounted) {
  ASSERT_TRUE(make_dirs(places.folder, 0700));
  ASSERT_TRUE(make_dirs(places.mount_point));
  ASSERT_TRUE(write_file_atomically(image(a), "no file system", 0600));
  if (flags() < 0 || !set_flags(flags() | FS_IMMUTABLE_FL) || !set_flags(flags() & ~FS_IMMUTABLE_FL)) GTEST_SKIP() << "this file system knows no immutable folders";
  const auto writable = [&] { return write_file_atomically(places.mount_point + "/x", "x", 0644) && std::filesystem::remove(places.mount_point + "/x"); };
  auto state = settle_volume(places, std::nullopt);
  EXPECT_EQ(state.instance, a);
  EXPECT_EQ(state.gib, 0);
  EXPECT_THAT(state.failed, HasSubstr("mount the volume"));
  EXPECT_FALSE(writable());
  // Two, and nobody says whose is right.
  ASSERT_TRUE(write_file_atomically(image(b), "nor here", 0600));
  EXPECT_THAT(settle_volume(places, std::nullopt).failed, HasSubstr("no order says whose"));
  EXPECT_FALSE(writable());
  // It is mounted in the same place once it can be.
  state = settle_volume(places, release(b));
  EXPECT_EQ(state.instance, a);
  EXPECT_FALSE(exists(image(b)));
  EXPECT_FALSE(writable());
  ASSERT_EQ(settle_volume(places, release(a)).failed, "");
  EXPECT_TRUE(writable());
  ASSERT_EQ(settle_volume(places, order(a, 1)).failed, "");
  EXPECT_TRUE(writable());
  ASSERT_EQ(::umount2(places.mount_point.c_str(), 0), 0);
  EXPECT_GE(flags(), 0);
  EXPECT_EQ(flags() & FS_IMMUTABLE_FL, 0);
  ASSERT_TRUE(set_flags(flags() | FS_IMMUTABLE_FL));
  EXPECT_EQ(settle_volume(places, std::nullopt).gib, 1);
  EXPECT_TRUE(writable());
}

TEST_F(RealVolume, WhereNoneWasKeptItsPlaceMayBeAnything) {
  ASSERT_TRUE(write_file_atomically(places.mount_point, "no folder", 0644));
  EXPECT_EQ(settle_volume(places, std::nullopt), api::VolumeState());
  EXPECT_NE(settle_volume(places, order(a, 1)).failed, "");
  ASSERT_TRUE(make_dirs(places.folder, 0700));
  EXPECT_NE(settle_volume(places, std::nullopt).failed, "") << "whether one is mounted there is not known";
}

TEST_F(RealVolume, LeavesNothingHalfMadeOfOthers) {
  ASSERT_TRUE(make_dirs(places.folder, 0700));
  for (const std::string& name : {std::string(b) + ".img.new", std::string(b) + ".grows", std::string("notes")}) ASSERT_TRUE(write_file_atomically(places.folder + "/" + name, "x", 0600));
  EXPECT_EQ(settle_volume(places, std::nullopt), api::VolumeState());
  EXPECT_TRUE(exists(places.folder + "/" + b + ".img.new"));
  EXPECT_EQ(settle_volume(places, release(a)).failed, "");
  EXPECT_FALSE(exists(places.folder + "/" + b + ".img.new"));
  EXPECT_FALSE(exists(places.folder + "/" + b + ".grows"));
  EXPECT_TRUE(exists(places.folder + "/notes"));
  // What says that an image which is there has begun to grow stays.
  ASSERT_TRUE(write_file_atomically(image(b), "x", 0600));
  ASSERT_TRUE(write_file_atomically(places.folder + "/" + b + ".grows", "", 0600));
  (void)settle_volume(places, release(a));
  EXPECT_TRUE(exists(places.folder + "/" + b + ".grows"));
}

TEST_F(RealVolume, ANodeThatIsRegisteredAnewSaysWhoseIsThere) {
  ASSERT_EQ(settle_volume(places, order(a, 1)).failed, "");
  node::MemoryApi api;
  const SystemClock clock;
  std::atomic<int> changes = 0;
  VolumeKeeper keeper(places, [&] { ++changes; });
  ASSERT_TRUE(keeper.state()) << "it is known before anybody asks";
  EXPECT_EQ(keeper.state()->instance, a);
  node::NodeConfig config{.node_name = "n1", .node_ip = "10.0.0.1", .pod_cidr = "10.1.0.0/24", .node_dir = top, .run_dir = top};
  Heartbeat heartbeat(api, clock, config, look_at_machine(config), &keeper);
  ASSERT_TRUE(heartbeat.beat());
  const auto told = [&] { return api::read_volume_state(*api.get(kube::resources::nodes, {"", "n1"})); };
  EXPECT_EQ(told(), (api::VolumeState{.instance = a, .gib = 1, .of = "", .failed = ""})) << "from its first moment";
  // Taken away by somebody: told again, without any order.
  ASSERT_TRUE(api.patch(kube::resources::nodes, {"", "n1"}, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kVolumeStateNote, nullptr}})}})}}), ""));
  ASSERT_TRUE(heartbeat.beat());
  EXPECT_EQ(told().instance, a);
}

TEST_F(RealVolume, TheHeartbeatTellsOfIt) {
  node::MemoryApi api;
  const SystemClock clock;
  std::atomic<int> changes = 0;
  VolumeKeeper keeper(places, [&] { ++changes; });
  node::NodeConfig config{.node_name = "n1", .node_ip = "10.0.0.1", .pod_cidr = "10.1.0.0/24", .node_dir = top, .run_dir = top};
  Heartbeat heartbeat(api, clock, config, look_at_machine(config), &keeper);
  ASSERT_TRUE(heartbeat.beat());
  for (int i = 0; i < 1000 && changes == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  changes = 0;
  ASSERT_TRUE(keeper.state());
  EXPECT_EQ(*keeper.state(), api::VolumeState()) << "nobody has ordered anything";
  EXPECT_FALSE((*api.get(kube::resources::nodes, {"", "n1"}))["metadata"]["annotations"].has(api::kVolumeStateNote)) << "and a node without one has nothing to tell";
  ASSERT_TRUE(api.patch(kube::resources::nodes, {"", "n1"}, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kVolumeNote, api::print_volume_order(order(a, 1))}})}})}}), ""));
  ASSERT_TRUE(heartbeat.beat());
  for (int i = 0; i < 1000 && changes == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(heartbeat.beat());
  EXPECT_EQ(api::read_volume_state(*api.get(kube::resources::nodes, {"", "n1"})).instance, a);
}

}  // namespace
}  // namespace fairlead::agent
