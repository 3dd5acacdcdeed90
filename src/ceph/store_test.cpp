// SPDX-License-Identifier: Apache-2.0
// On a real Ceph (tests/ceph_lib.sh), where FAIRLEAD_TEST_CEPH says where one is: images of others, and what deaths in the middle leave.
#include "ceph/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "base/process.h"
#include "base/rng.h"
#include "ceph/rbd_image.h"

namespace fairlead::ceph {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::int64_t mib = 1 << 20;
const Store::Alive alive;

class Stores : public testing::Test {
 protected:
  void SetUp() override {
    const char* const there = std::getenv("FAIRLEAD_TEST_CEPH");
    if (there == nullptr) GTEST_SKIP() << "needs FAIRLEAD_TEST_CEPH (tests/integration/ceph_test.sh)";
    place_ = {.conf = std::string(there) + "/ceph.conf", .user = "suite", .pool = "volumes", .space = ""};
    {
      auto all = Cluster::connect(place_);
      ASSERT_TRUE(all) << all.error().message;
      place_.space = "store-" + random_uuid();
      ASSERT_GE(rbd_namespace_create((*all)->io(), place_.space.c_str()), 0);
    }
    auto store = Store::open({.place = place_, .host = host_});
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(*store);
    auto other = Cluster::connect(place_);
    ASSERT_TRUE(other) << other.error().message;
    other_ = std::move(*other);
  }
  void TearDown() override {
    store_.reset();
    other_.reset();
  }
  Image::Kind kind(const std::string& id) {
    const auto seen = store_->look(id);
    EXPECT_TRUE(seen) << seen.error().message;
    return seen ? seen->kind : Image::Kind::None;
  }
  void make(const std::string& id) {
    const auto made = store_->make(id, 8 * mib, "");
    ASSERT_TRUE(made) << made.error().message;
    const auto published = store_->publish(id, false);
    ASSERT_TRUE(published) << published.error().message;
  }
  // An image as others make it.
  void create(const std::string& name) {
    int order = 0;
    ASSERT_GE(rbd_create3(other_->io(), name.c_str(), 8 * mib, RBD_FEATURE_LAYERING | RBD_FEATURE_EXCLUSIVE_LOCK, &order, 0, 0), 0);
  }
  void write(const std::string& name) {
    const auto image = OpenImage::open(*other_, name, false);
    ASSERT_TRUE(image) << image.error().message;
    ASSERT_EQ(rbd_write(image->get(), 4 * mib, 5, "bytes"), 5);
  }
  void snapshot(const std::string& name, const std::string& as) {
    const auto image = OpenImage::open(*other_, name, false);
    ASSERT_TRUE(image) << image.error().message;
    ASSERT_GE(rbd_snap_create(image->get(), as.c_str()), 0);
  }
  void clone(const std::string& name, const std::string& snap, const std::string& to) {
    rbd_image_options_t options = nullptr;
    rbd_image_options_create(&options);
    rbd_image_options_set_uint64(options, RBD_IMAGE_OPTION_CLONE_FORMAT, 2);
    EXPECT_GE(rbd_clone3(other_->io(), name.c_str(), snap.c_str(), other_->io(), to.c_str(), options), 0);
    rbd_image_options_destroy(options);
  }
  std::string id_of(const std::string& name) {
    const auto image = OpenImage::open(*other_, name, true);
    char id[256] = {};
    EXPECT_TRUE(image);
    if (!image) return {};
    EXPECT_GE(rbd_get_id(image->get(), id, sizeof id), 0);
    return id;
  }
  // A volume that a client has begun to watch as it died, and that is not forgotten. Each try has one of its own: a watch that the OSD knows would be in the way for half a minute. Empty: this Ceph forgets them all, or none died in time.
  std::string watched_by_the_dead() {
    ::setenv("FAIRLEAD_TEST_SPACE", place_.space.c_str(), 1);
    for (int tries = 0; tries < 24; ++tries) {
      const std::string name = fmt::format("w{}", tries);
      make(name);
      ::setenv("FAIRLEAD_TEST_OBJECT", ("rbd_header." + id_of(name)).c_str(), 1);
      ::setenv("FAIRLEAD_TEST_MICROSECONDS", std::to_string(std::array{200, 100, 0, 50, 400, 800}[static_cast<std::size_t>(tries) % 6]).c_str(), 1);
      (void)run_checked({.argv = {"/proc/self/exe", "--gtest_filter=Watcher.DiesAsItBegins"}}, 60s);
      std::this_thread::sleep_for(100ms);  // until what it has sent is done
      const auto image = OpenImage::open(*other_, name, true);
      rbd_image_watcher_t watchers[4];
      std::size_t count = 4;
      if (!image || rbd_watchers_list(image->get(), watchers, &count) < 0) return {};
      rbd_watchers_list_cleanup(watchers, count);
      if (count > 0 && !image->is_watched(*other_).value_or(true)) return name;
    }
    return {};
  }

  const std::string host_ = random_uuid();
  Place place_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Cluster> other_;
};

TEST(Watcher, DiesAsItBegins) {
  const char *const there = std::getenv("FAIRLEAD_TEST_CEPH"), *const space = std::getenv("FAIRLEAD_TEST_SPACE"), *const object = std::getenv("FAIRLEAD_TEST_OBJECT");
  if (there == nullptr || space == nullptr || object == nullptr) GTEST_SKIP() << "is begun by another test";
  auto cluster = Cluster::connect({.conf = std::string(there) + "/ceph.conf", .user = "suite", .pool = "volumes", .space = space});
  ASSERT_TRUE(cluster) << cluster.error().message;
  std::uint64_t size = 0, handle = 0;
  time_t when = 0;
  ASSERT_GE(rados_stat((*cluster)->io(), object, &size, &when), 0);  // so that it is connected
  rados_completion_t done = nullptr;
  ASSERT_GE(rados_aio_create_completion2(nullptr, nullptr, &done), 0);
  ASSERT_GE(rados_aio_watch2((*cluster)->io(), object, done, &handle, [](void*, std::uint64_t, std::uint64_t, std::uint64_t, void*, std::size_t) {}, [](void*, std::uint64_t, int) {}, 30, nullptr), 0);
  const char* const pause = std::getenv("FAIRLEAD_TEST_MICROSECONDS");
  ::usleep(static_cast<useconds_t>(pause == nullptr ? 0 : std::atoi(pause)));
  ::kill(::getpid(), SIGKILL);
}

TEST_F(Stores, WhatOnlyTheDeadWatchIsDeleted) {
  const std::string name = watched_by_the_dead();
  if (name.empty()) GTEST_SKIP() << "this Ceph forgets watches of the dead, or none died in time";
  // As a death within a rename leaves it.
  const std::string id = id_of(name), aside = "fairlead.left." + id;
  ASSERT_TRUE(other_->write("rbd_id." + aside, "torn"));
  const auto gone = store_->remove(name, alive);
  ASSERT_TRUE(gone) << gone.error().message;
  EXPECT_EQ(kind(name), Image::Kind::None);
  EXPECT_THAT(*store_->ids(), Not(Contains(name)));
  // And as one just behind it.
  const auto named = other_->read("rbd_id." + aside);
  ASSERT_TRUE(named && *named);
  ASSERT_TRUE(other_->write("rbd_id." + name, **named));
  EXPECT_EQ(kind(name), Image::Kind::Volume);
  const auto again = store_->remove(name, alive);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(kind(name), Image::Kind::None);
  make(name);
  EXPECT_THAT(*store_->ids(), Contains(name));
  EXPECT_EQ(id_of(aside), id) << "it is kept as long as the watch is there";
  store_->sweep();
  EXPECT_EQ(kind(name), Image::Kind::Volume);
  EXPECT_TRUE(store_->remove(name, alive));
}

TEST_F(Stores, WhatSomebodyWatchesStays) {
  make("a");
  {
    const auto held = OpenImage::open(*other_, "a", false);
    ASSERT_TRUE(held);
    const auto refused = store_->remove("a", alive);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::Unavailable);
    EXPECT_THAT(refused.error().message, HasSubstr("watched by somebody"));
    EXPECT_EQ(kind("a"), Image::Kind::Volume);
  }
  EXPECT_TRUE(store_->remove("a", alive));
  EXPECT_EQ(kind("a"), Image::Kind::None);
}

// A death between the note of what is made and its mark; meanwhile somebody makes one of that name.
TEST_F(Stores, WhatOthersMadeUnderANameThatIsNotedStays) {
  make("source");
  for (const char* const id : {"ours", "theirs"}) {
    ASSERT_TRUE(other_->note(fmt::format("making.{}", id), "plain 0", host_));
    create(id);
    EXPECT_EQ(kind(id), Image::Kind::Part) << "nothing was written to it";
  }
  write("theirs");
  EXPECT_EQ(kind("theirs"), Image::Kind::Foreign);
  EXPECT_FALSE(store_->drop("theirs", alive));
  EXPECT_EQ(kind("theirs"), Image::Kind::Foreign);
  EXPECT_TRUE(store_->drop("ours", alive));
  EXPECT_EQ(kind("ours"), Image::Kind::None);

  for (const char* const id : {"copy", "theirs-too"}) ASSERT_TRUE(other_->note(fmt::format("making.{}", id), "plain 1 source", host_));
  snapshot("source", "fairlead.copy");
  snapshot("source", "theirs");
  clone("source", "fairlead.copy", "copy");
  clone("source", "theirs", "theirs-too");
  EXPECT_EQ(kind("copy"), Image::Kind::Part);
  EXPECT_EQ(kind("theirs-too"), Image::Kind::Foreign);
  EXPECT_FALSE(store_->drop("theirs-too", alive));
  EXPECT_TRUE(store_->drop("copy", alive));
  EXPECT_EQ(kind("copy"), Image::Kind::None);
  EXPECT_EQ(kind("theirs-too"), Image::Kind::Foreign);
  EXPECT_EQ(kind("source"), Image::Kind::Volume);
}

// Of an image whose making has died at its first step there is a name, and nothing else.
TEST_F(Stores, ANameWithoutAnImageIsNotKept) {
  ASSERT_TRUE(other_->note("making.a", "plain 0", host_));
  ASSERT_TRUE(other_->write("rbd_id.a", std::string("\x04\0\0\0abcd", 8)));
  EXPECT_EQ(kind("a"), Image::Kind::Part);
  EXPECT_TRUE(store_->drop("a", alive));
  make("a");
  EXPECT_EQ(kind("a"), Image::Kind::Volume);
}

TEST_F(Stores, WhatIsHalfMadeIsKnownUntilItIsPublished) {
  make("source");
  write("source");
  ASSERT_TRUE(store_->copy("copy", "source", 12 * mib, alive));
  EXPECT_EQ(kind("copy"), Image::Kind::Part) << "it holds what its source does, and no snapshot of its name is left";
  ASSERT_TRUE(store_->publish("copy", true));
  EXPECT_EQ(kind("copy"), Image::Kind::Snapshot);
  ASSERT_TRUE(store_->drop("copy", alive)) << "what was published is not dropped";
  EXPECT_EQ(kind("copy"), Image::Kind::Snapshot);
  ASSERT_TRUE(store_->make("part", 8 * mib, ""));
  write("part");
  EXPECT_EQ(kind("part"), Image::Kind::Part);
  EXPECT_TRUE(store_->drop("part", alive));
  EXPECT_TRUE(store_->remove("source", alive));
  EXPECT_TRUE(store_->remove("copy", alive));
  EXPECT_THAT(*store_->ids(), IsEmpty());
}

}  // namespace
}  // namespace fairlead::ceph
