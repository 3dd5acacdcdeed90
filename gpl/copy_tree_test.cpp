// SPDX-License-Identifier: GPL-3.0-or-later
#include "copy_tree.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/fd.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::ElementsAre;

struct CopyTree : testing::Test {
  std::string work, from, to;
  void SetUp() override {
    char name[] = "/var/tmp/fairlead-copy-XXXXXX";
    work = ::mkdtemp(name);
    from = work + "/from";
    to = work + "/to";
    ASSERT_TRUE(make_dirs(from));
    ASSERT_TRUE(make_dirs(to));
  }
  void TearDown() override { (void)remove_tree(work); }
  Result<Copied> copy(CopyOptions options = {}) {
    const Fd a(::open(from.c_str(), O_RDONLY | O_DIRECTORY)), b(::open(to.c_str(), O_RDONLY | O_DIRECTORY));
    return copy_tree(a.get(), b.get(), options);
  }
  static struct stat facts(const std::string& path) {
    struct stat out{};
    EXPECT_EQ(::lstat(path.c_str(), &out), 0) << path;
    return out;
  }
};

TEST_F(CopyTree, KeepsContentModeOwnerTimesAndLinks) {
  ASSERT_TRUE(make_dirs(from + "/a/b", 0711));
  ASSERT_TRUE(write_file_atomically(from + "/a/tool", std::string(300'000, 'x'), 0755));
  ASSERT_EQ(::link((from + "/a/tool").c_str(), (from + "/a/b/same").c_str()), 0);
  ASSERT_EQ(::symlink("../../etc", (from + "/a/out").c_str()), 0);
  ASSERT_EQ(::mkfifo((from + "/pipe").c_str(), 0620), 0);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::chown((from + "/a/tool").c_str(), 1234, 4321), 0);
    ASSERT_EQ(::chmod((from + "/a/tool").c_str(), 04755), 0);
  }
  const timespec times[2] = {{1000, 5}, {2000, 7}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (from + "/a/tool").c_str(), times, 0), 0);
  ASSERT_EQ(::utimensat(AT_FDCWD, (from + "/a").c_str(), times, 0), 0);
  const auto done = copy();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->entries, 6u);
  EXPECT_EQ(done->bytes, 300'000u);
  EXPECT_EQ(*read_file(to + "/a/tool"), std::string(300'000, 'x'));
  const auto tool = facts(to + "/a/tool");
  EXPECT_EQ(tool.st_ino, facts(to + "/a/b/same").st_ino);
  EXPECT_EQ(tool.st_nlink, 2u);
  EXPECT_EQ(tool.st_mtim.tv_sec, 2000);
  EXPECT_EQ(tool.st_mtim.tv_nsec, 7);
  EXPECT_EQ(facts(to + "/a").st_mtim.tv_sec, 2000);
  EXPECT_EQ(facts(to + "/pipe").st_mode, static_cast<mode_t>(S_IFIFO | (facts(from + "/pipe").st_mode & 07777)));
  if (root) {
    EXPECT_EQ(tool.st_uid, 1234u);
    EXPECT_EQ(tool.st_gid, 4321u);
    EXPECT_EQ(tool.st_mode & 07777, 04755u);  // a change of owner clears it: it must be set after
  }
  char target[64] = {};
  ASSERT_EQ(::readlink((to + "/a/out").c_str(), target, sizeof target), 9);
  EXPECT_STREQ(target, "../../etc");
}

TEST_F(CopyTree, KeepsAttributesAndHoles) {
  {
    const Fd file(::open((from + "/sparse").c_str(), O_CREAT | O_WRONLY, 0600));
    ASSERT_EQ(::pwrite(file.get(), "end", 3, 8 << 20), 3);
  }
  ASSERT_EQ(::setxattr((from + "/sparse").c_str(), "user.note", "kept", 4, 0), 0);
  ASSERT_TRUE(copy());
  EXPECT_EQ(facts(to + "/sparse").st_size, (8 << 20) + 3);
  EXPECT_LT(facts(to + "/sparse").st_blocks, 1000);  // of 512 bytes
  EXPECT_EQ(read_file(to + "/sparse")->substr(8 << 20), "end");
  char value[8] = {};
  EXPECT_EQ(::getxattr((to + "/sparse").c_str(), "user.note", value, sizeof value), 4);
  EXPECT_STREQ(value, "kept");
}

TEST_F(CopyTree, LeavesPlacesForWhatIsMounted) {
  ASSERT_TRUE(make_dirs(from + "/proc/1"));
  ASSERT_TRUE(make_dirs(from + "/tmp/x"));
  ASSERT_EQ(::chmod((from + "/tmp").c_str(), 01777), 0);
  ASSERT_TRUE(make_dirs(from + "/etc"));
  ASSERT_TRUE(write_file_atomically(from + "/etc/hosts", "of the container", 0644));
  ASSERT_TRUE(copy({.leave_out = {"/proc", "/tmp", "/etc/hosts", "/not/there"}}));
  EXPECT_THAT(*list_dir(to), ElementsAre("etc", "proc", "tmp"));
  EXPECT_THAT(*list_dir(to + "/proc"), ElementsAre());
  EXPECT_EQ(facts(to + "/tmp").st_mode & 07777, 01777u);
  EXPECT_EQ(*read_file(to + "/etc/hosts"), "");
}

TEST_F(CopyTree, SaysWhatCannotBeCopied) {
  std::string deep = from;
  for (int i = 0; i < 600; ++i) deep += "/d";
  ASSERT_TRUE(make_dirs(deep));
  const auto done = copy();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Exhausted);
}

}  // namespace
}  // namespace fairlead::companion
