// SPDX-License-Identifier: GPL-3.0-or-later
#include "users.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>

#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

struct Users : testing::Test {
  std::string work, volume, jail;
  void SetUp() override {
    char name[] = "/dev/shm/fairlead-users-XXXXXX";
    work = ::mkdtemp(name);
    volume = work + "/volume";
    jail = work + "/jail";
    for (const char* version : {"v1", "v2"}) ASSERT_TRUE(make_dirs(volume + "/versions/" + version + "/etc"));
    ASSERT_TRUE(write_file_atomically(volume + "/.fairlead-jail", "versions\n", 0644));
    flip("v1");
    follow("v1");
  }
  void TearDown() override { (void)remove_tree(work); }
  void flip(const std::string& version) const { lead("versions/" + version, volume + "/current"); }
  void follow(const std::string& version) const { lead(volume + "/versions/" + version, jail); }
  static void lead(const std::string& to, const std::string& link) {
    ASSERT_EQ(::symlink(to.c_str(), (link + ".new").c_str()), 0);
    ASSERT_EQ(::rename((link + ".new").c_str(), link.c_str()), 0);
  }
  std::string of(const char* version) const { return volume + "/versions/" + version; }
};

// Whether somebody else would have to wait for it.
bool locked(const std::string& root) {
  const Fd fd(::open((root + "/etc/.pwd.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  return ::fcntl(fd.get(), F_OFD_SETLK, &whole) != 0;
}

TEST_F(Users, OfTheCurrentVersionAreLocked) {
  {
    const auto users = lock_users(jail, volume, 0ms);
    ASSERT_TRUE(users) << users.error().message;
    EXPECT_EQ(users->root, of("v1"));
    EXPECT_TRUE(locked(of("v1")));
  }
  EXPECT_FALSE(locked(of("v1")));
}

// The node is still in the old version: a user who is made there would be known nowhere.
TEST_F(Users, OfAnOldVersionAreNotChanged) {
  flip("v2");
  const auto refused = lock_users(jail, volume, 0ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Unavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("v2 is the shared root now"));
  EXPECT_FALSE(locked(of("v1")));
  follow("v2");
  const auto users = lock_users(jail, volume, 0ms);
  ASSERT_TRUE(users);
  EXPECT_EQ(users->root, of("v2"));
}

// An update holds the lock until another version is current; who waited for it goes on in that one.
TEST_F(Users, WhoWaitedThroughAnUpdateGoesOnInTheNewVersion) {
  auto update = lock_users(jail, volume, 0ms);
  ASSERT_TRUE(update);
  auto waiting = std::async(std::launch::async, [&] { return lock_users(jail, volume, 60s); });
  flip("v2");
  update->lock.reset();
  follow("v2");
  const auto users = waiting.get();
  ASSERT_TRUE(users) << users.error().message;
  EXPECT_EQ(users->root, of("v2"));
  EXPECT_TRUE(locked(of("v2")));
  EXPECT_FALSE(locked(of("v1")));
}

TEST_F(Users, WithoutVersionsTheRootIsTheJail) {
  ASSERT_TRUE(make_dirs(work + "/plain/etc"));
  const auto without = lock_users(work + "/plain", work + "/no-volume", 0ms);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->root, work + "/plain");
  EXPECT_FALSE(lock_users(work + "/absent", volume, 0ms));
}

}  // namespace
}  // namespace fairlead::companion
