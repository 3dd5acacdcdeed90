// SPDX-License-Identifier: Apache-2.0
// On a real Ceph (tests/ceph_lib.sh), where FAIRLEAD_TEST_CEPH says where one is: images of others, and what deaths in the middle leave.
#include "ceph/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rbd/librbd.hpp>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>

#include "base/process.h"
#include "base/rng.h"
#include "ceph/image_use.h"
#include "ceph/rbd_image.h"
#include "ceph/rbd_medium.h"

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
    ::ceph::bufferlist bytes;
    bytes.append("bytes");
    ASSERT_EQ(image->get().write(4 * mib, 5, bytes), 5);
  }
  void snapshot(const std::string& name, const std::string& as) {
    const auto image = OpenImage::open(*other_, name, false);
    ASSERT_TRUE(image) << image.error().message;
    ASSERT_GE(image->get().snap_create(as.c_str()), 0);
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
    EXPECT_TRUE(image);
    return image ? image->id().value_or("") : "";
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
      std::list<librbd::image_watcher_t> watchers;
      if (!image || image->get().list_watchers(watchers) < 0) return {};
      if (!watchers.empty() && !image->is_watched(*other_).value_or(true)) return name;
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

// As librbd deletes an image: into the trash (cls_rbd, trash_add: source, name, two times, that it is on its way), the object of its name, its line in the directory. A death may come behind each.
TEST_F(Stores, WhatIsHalfRemovedIsGoneOnWith) {
  const auto text = [](const std::string& of) {
    const auto size = static_cast<std::uint32_t>(of.size());
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + of;
  };
  const auto into_trash = [&](const std::string& name, char source) {
    const std::string id = id_of(name), spec = std::string(1, source) + text(name) + std::string(16, '\0') + '\1';
    const std::string in = text(id) + std::string{2, 1} + text(spec);
    char out[16];
    EXPECT_GE(rados_exec(other_->io(), "rbd_trash", "rbd", "trash_add", in.data(), in.size(), out, sizeof out), 0);
    return id;
  };
  const auto in_trash = [&] { return other_->omap("rbd_trash").value_or(std::map<std::string, std::string>()).size(); };
  const auto goes = [&](const std::string& name) {
    EXPECT_EQ(kind(name), Image::Kind::Part);
    const auto gone = store_->drop(name, alive);
    EXPECT_TRUE(gone) << gone.error().message;
    EXPECT_EQ(kind(name), Image::Kind::None);
    EXPECT_THAT(*store_->ids(), Not(Contains(name)));
    EXPECT_EQ(in_trash(), 0u);
    make(name);
    EXPECT_EQ(kind(name), Image::Kind::Volume);
  };
  make("a");
  (void)into_trash("a", RBD_TRASH_IMAGE_SOURCE_REMOVING);
  EXPECT_EQ(kind("a"), Image::Kind::Volume) << "it has its name still";
  EXPECT_TRUE(store_->remove("a", alive));
  EXPECT_EQ(in_trash(), 0u);
  make("a");
  (void)into_trash("a", RBD_TRASH_IMAGE_SOURCE_REMOVING);
  ASSERT_TRUE(other_->remove("rbd_id.a"));
  store_->sweep();
  goes("a");
  // Somebody watches it: its name is free all the same, and it goes once nobody does.
  {
    const auto held = OpenImage::open(*other_, "a", false);
    ASSERT_TRUE(held);
    (void)into_trash("a", RBD_TRASH_IMAGE_SOURCE_REMOVING);
    ASSERT_TRUE(other_->remove("rbd_id.a"));
    EXPECT_EQ(kind("a"), Image::Kind::Part);
    const auto gone = store_->drop("a", alive);
    EXPECT_TRUE(gone) << gone.error().message;
    EXPECT_EQ(kind("a"), Image::Kind::None);
    EXPECT_THAT(*store_->ids(), Not(Contains("a")));
    make("a");
    EXPECT_EQ(kind("a"), Image::Kind::Volume);
    store_->sweep();
    EXPECT_EQ(in_trash(), 1u);
  }
  store_->sweep();
  EXPECT_EQ(in_trash(), 0u);
  EXPECT_EQ(kind("a"), Image::Kind::Volume);
  // All but its line in the directory is gone.
  const std::string id = into_trash("a", RBD_TRASH_IMAGE_SOURCE_REMOVING);
  const auto line = other_->listed_id("a");
  ASSERT_TRUE(line && *line == id);
  ASSERT_TRUE(other_->remove("rbd_id.a"));
  ASSERT_TRUE(other_->remove("rbd_header." + id));
  const std::string key = "id_" + id;
  const char* const entry = key.c_str();
  const std::size_t length = key.size();
  rados_write_op_t forget = rados_create_write_op();
  rados_write_op_omap_rm_keys2(forget, &entry, &length, 1);
  ASSERT_GE(rados_write_op_operate(forget, other_->io(), "rbd_trash", nullptr, LIBRADOS_OPERATION_NOFLAG), 0);
  rados_release_write_op(forget);
  goes("a");
  // All but that it has come to the trash.
  const std::string moved = into_trash("a", RBD_TRASH_IMAGE_SOURCE_REMOVING), in = text("a") + text(moved);
  char out[16];
  ASSERT_TRUE(other_->remove("rbd_id.a"));
  ASSERT_GE(rados_exec(other_->io(), "rbd_directory", "rbd", "dir_remove_image", in.data(), in.size(), out, sizeof out), 0);
  EXPECT_EQ(kind("a"), Image::Kind::None);
  EXPECT_EQ(in_trash(), 1u);
  store_->sweep();
  EXPECT_EQ(in_trash(), 0u);
  make("a");
  // The same, of one that was being made: it is asked for by its name.
  {
    const auto held = OpenImage::open(*other_, "a", false);
    ASSERT_TRUE(held);
    const std::string again = into_trash("a", RBD_TRASH_IMAGE_SOURCE_REMOVING), line_of = text("a") + text(again);
    ASSERT_TRUE(other_->remove("rbd_id.a"));
    ASSERT_GE(rados_exec(other_->io(), "rbd_directory", "rbd", "dir_remove_image", line_of.data(), line_of.size(), out, sizeof out), 0);
    for (int tries = 0; tries < 2; ++tries) {
      ASSERT_TRUE(other_->note("making.a", "plain 0", host_));
      EXPECT_EQ(kind("a"), Image::Kind::Part);
      const auto gone = store_->drop("a", alive);
      EXPECT_TRUE(gone) << gone.error().message;
      EXPECT_EQ(in_trash(), 1u);
    }
  }
  store_->sweep();
  EXPECT_EQ(in_trash(), 0u);
  make("a");
  // Who has lost the object of his name in another way is not taken for removed.
  const auto named = other_->read("rbd_id.a");
  ASSERT_TRUE(named && *named);
  ASSERT_TRUE(other_->remove("rbd_id.a"));
  EXPECT_EQ(kind("a"), Image::Kind::None);
  ASSERT_TRUE(other_->write("rbd_id.a", **named));
  EXPECT_EQ(kind("a"), Image::Kind::Volume);
  // What somebody wants in the trash stays his.
  (void)into_trash("a", RBD_TRASH_IMAGE_SOURCE_USER);
  ASSERT_TRUE(other_->remove("rbd_id.a"));
  EXPECT_EQ(kind("a"), Image::Kind::None);
  (void)store_->drop("a", alive);
  store_->sweep();
  EXPECT_EQ(in_trash(), 1u);
  EXPECT_TRUE(*other_->listed_id("a"));
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

// A piece of memory that is written and read again, as an engine's room is.
class Room final : disk::Completion {
 public:
  static constexpr std::size_t kSize = 512 << 10;
  void fill(char with) { std::memset(bytes_.get(), with, kSize); }
  const char* at() const { return bytes_.get(); }
  void write(disk::Medium& medium, std::int64_t at) { begin(), medium.write_async(bytes_.get(), kSize, at, *this); }
  void read(disk::Medium& medium, std::int64_t at) { begin(), medium.read_async(kSize, at, *this); }
  // 0 or an errno; nothing: it has not ended in half a minute.
  std::optional<int> wait() {
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, 30s, [&] { return ended_.has_value(); });
    return ended_;
  }
  const std::string& data() const { return read_; }

 private:
  void begin() {
    const std::lock_guard lock(mutex_);
    ended_.reset(), read_.clear();
  }
  void complete(int error, std::span<const iovec> data) override {
    const std::lock_guard lock(mutex_);
    for (const iovec& one : data) read_.append(static_cast<const char*>(one.iov_base), one.iov_len);
    ended_ = error;
    told_.notify_all();
  }
  struct Free { void operator()(char* at) const { std::free(at); } };
  std::unique_ptr<char, Free> bytes_{static_cast<char*>(std::aligned_alloc(4096, kSize))};
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<int> ended_;
  std::string read_;
};

TEST_F(Stores, AnEngineWritesWhatLiesInItsRoomsNow) {
  make("a");
  const auto opened = open_rbd_medium({.place = place_, .pool_id = store_->id(), .host = host_, .id = "a"});
  ASSERT_TRUE(opened) << opened.error().message;
  disk::Medium& medium = **opened;
  // They outlive the test if an end is never told.
  static auto& room = *new Room;
  for (const char with : {'x', 'y', 'z'}) {
    room.fill(with);
    room.write(medium, (with - 'x') * static_cast<std::int64_t>(Room::kSize));
    ASSERT_EQ(room.wait(), 0) << with;
    for (int tries = 0; medium.is_held(room.at()); ++tries) {
      ASSERT_LT(tries, 500) << "it has ended, and is not let go";
      std::this_thread::sleep_for(10ms);
    }
  }
  for (const char with : {'z', 'y', 'x'}) {
    room.read(medium, (with - 'x') * static_cast<std::int64_t>(Room::kSize));
    ASSERT_EQ(room.wait(), 0) << with;
    EXPECT_TRUE(room.data() == std::string(Room::kSize, with)) << with;
  }
  room.read(medium, 6 * mib);
  ASSERT_EQ(room.wait(), 0);
  EXPECT_TRUE(room.data() == std::string(Room::kSize, '\0')) << "never written";
  // Shut out while it writes, it hears of each end.
  const auto notes = other_->notes();
  ASSERT_TRUE(notes);
  const auto engine = engine_of(*notes, "a");
  ASSERT_TRUE(engine);
  static auto& rooms = *new std::array<Room, 8>;
  for (Room& one : rooms) one.fill('s');
  std::jthread shuts([&] { EXPECT_TRUE(other_->shut_out(engine->address, Cluster::State::Dead)); });
  bool out = false;
  for (int tries = 0; !out && tries < 1000; ++tries) {
    for (std::size_t i = 0; i < rooms.size(); ++i) rooms[i].write(medium, static_cast<std::int64_t>(i * Room::kSize));
    for (Room& one : rooms) {
      const auto ended = one.wait();
      ASSERT_TRUE(ended) << "the end of a write was never told";
      out = out || *ended == ESHUTDOWN;
    }
  }
  EXPECT_TRUE(out);
}

// An engine on a machine of its own, as far as Ceph sees it.
struct Client {
  std::unique_ptr<Cluster> cluster;
  std::optional<OpenImage> image;
  std::string host = random_uuid();
  Client(const Place& place, const std::string& id) {
    auto connected = Cluster::connect(place);
    EXPECT_TRUE(connected);
    if (!connected) return;
    cluster = std::move(*connected);
    auto opened = OpenImage::open(*cluster, id, false);
    EXPECT_TRUE(opened);
    if (opened) image.emplace(std::move(*opened));
  }
  Result<void> take(const std::string& id, std::int64_t generation, Use use) { return take_image(*cluster, *image, host, id, generation, use); }
  bool reads() const {
    ::ceph::bufferlist bytes;
    return image->get().read(4 * mib, 5, bytes) == 5;
  }
  // As a death leaves it: the connection ends, and nothing is let go.
  void die() { image.reset(), cluster.reset(); }
};

TEST_F(Stores, AnImageIsWrittenByOneOrReadByAnyNumber) {
  make("a");
  write("a");
  Client first(place_, "a"), second(place_, "a"), writer(place_, "a"), here(place_, "a");
  here.host = host_;
  const auto users = [&] {
    const auto all = users_of(*first.cluster, *here.image);
    EXPECT_TRUE(all);
    return all ? all->size() : 0;
  };
  EXPECT_EQ(first.take("a", 1, Use::Reads).error().code, Code::Conflict) << "nobody has allowed it";
  ASSERT_TRUE(store_->allow("a", first.host, 1, Use::Reads));
  ASSERT_TRUE(store_->allow("a", second.host, 2, Use::Reads));
  EXPECT_EQ(first.take("a", 2, Use::Reads).error().code, Code::Conflict) << "that is another's";
  EXPECT_EQ(first.take("a", 1, Use::Writes).error().code, Code::Conflict) << "it may read alone";
  for (Client* one : {&first, &second}) {
    const auto taken = one->take("a", one == &first ? 1 : 2, Use::Reads);
    ASSERT_TRUE(taken) << taken.error().message;
    EXPECT_TRUE(one->reads());
  }
  EXPECT_EQ(users(), 2u);
  ASSERT_TRUE(here.take("a", 0, Use::Reads)) << "beside them on the machine of the pool's daemon";
  let_go_of_use(*here.cluster, *here.image, 0);
  // Whatever the notes say, Ceph's lock is in the way.
  const auto refused = here.take("a", 0, Use::Writes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Conflict);
  EXPECT_THAT(refused.error().message, HasSubstr("is used by an engine of this pool"));
  ASSERT_TRUE(store_->allow("a", writer.host, 3, Use::Writes));
  EXPECT_FALSE(writer.take("a", 3, Use::Writes));
  EXPECT_TRUE(first.reads() && second.reads());
  // While they read it is grown and copied.
  ASSERT_TRUE(store_->grow("a", 16 * mib, alive));
  ASSERT_TRUE(store_->copy("b", "a", 16 * mib, alive));
  ASSERT_TRUE(store_->drop("b", alive));
  EXPECT_EQ(first.image->size().value_or(0), 16 * mib);
  // One is shut out, and it alone.
  const auto shut = store_->shut_out("a", 1, Use::Reads);
  ASSERT_TRUE(shut) << shut.error().message;
  EXPECT_FALSE(first.reads());
  EXPECT_TRUE(second.reads());
  EXPECT_EQ(users_of(*second.cluster, *second.image)->size(), 1u);
  EXPECT_TRUE(store_->shut_out("a", 1, Use::Reads)) << "once more is no error";
  // The other dies, as its machine tells.
  second.die();
  ASSERT_TRUE(store_->ended("a", 2));
  EXPECT_TRUE(users_of(*writer.cluster, *writer.image)->empty());
  ASSERT_TRUE(store_->allow("a", writer.host, 3, Use::Writes));
  const auto alone = writer.take("a", 3, Use::Writes);
  ASSERT_TRUE(alone) << alone.error().message;
  Client late(place_, "a");
  ASSERT_TRUE(store_->allow("a", late.host, 4, Use::Reads)) << "whoever has made this mistake";
  const auto beside = late.take("a", 4, Use::Reads);
  ASSERT_FALSE(beside);
  EXPECT_THAT(beside.error().message, HasSubstr("is written by an engine of this pool"));
  // It dies and says nothing: once it does not watch any more it is shut out by who comes next.
  writer.die();
  EXPECT_TRUE(late.take("a", 4, Use::Reads));
  late.die();
  ASSERT_TRUE(store_->ended("a", 4));
  for (Client* one : {&first, &here}) one->die();
  EXPECT_TRUE(store_->remove("a", alive));
  const auto notes = other_->notes();
  ASSERT_TRUE(notes);
  for (const auto& [key, text] : *notes) EXPECT_FALSE(key.starts_with("engine.a")) << key;
}

}  // namespace
}  // namespace fairlead::ceph
