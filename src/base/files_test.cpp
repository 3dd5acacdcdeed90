// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>

namespace fairlead {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/files_test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(root_)); }
  std::string at(const std::string& name) const { return root_ + "/" + name; }
  std::string root_;
};

TEST_F(Files, WrittenContentIsReadBackAndTheModeIsExact) {
  ::umask(077);
  ASSERT_TRUE(write_file_durably(at("a"), "one", 0644));
  ASSERT_TRUE(write_file_atomically(at("a"), std::string("t\0wo", 4), 0640));
  EXPECT_EQ(*read_file(at("a")), std::string("t\0wo", 4));
  struct stat info{};
  ASSERT_EQ(::stat(at("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640U);
  EXPECT_THAT(*list_dir(root_), testing::ElementsAre("a"));  // no temporary file is left
  ::umask(022);
}

TEST_F(Files, AFailedWriteLeavesTheOldContentAndNoTemporaryFile) {
  ASSERT_TRUE(make_dirs(at("folder/in")));
  EXPECT_FALSE(write_file_durably(at("folder"), "x", 0600));  // a folder cannot be replaced by a file
  EXPECT_THAT(*list_dir(root_), testing::ElementsAre("folder"));
  const auto nowhere = write_file_durably(at("none/x"), "x", 0600);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::NotFound);
}

TEST_F(Files, ReadingSaysWhenAFileIsMissingOrTooLarge) {
  EXPECT_EQ(read_file(at("none")).error().code, Code::NotFound);
  ASSERT_TRUE(write_file_atomically(at("big"), std::string(2000, 'x'), 0600));
  EXPECT_EQ(read_file(at("big"), 1_KiB).error().code, Code::Exhausted);
  EXPECT_TRUE(read_file("/proc/self/stat"));  // its size is 0
  EXPECT_EQ(read_file("/proc/self/environ", {0}).error().code, Code::Exhausted);
}

TEST_F(Files, MakingFoldersIsRepeatableAndRefusesAFileInTheWay) {
  ASSERT_TRUE(make_dirs(at("a/b/c")));
  ASSERT_TRUE(make_dirs(at("a/b/c/")));
  ASSERT_TRUE(write_file_atomically(at("file"), "", 0600));
  EXPECT_EQ(make_dirs(at("file")).error().code, Code::Exists);
  EXPECT_FALSE(make_dirs(at("file/below")));
}

TEST_F(Files, RemovingATreeDoesNotFollowLinks) {
  ASSERT_TRUE(make_dirs(at("keep")));
  ASSERT_TRUE(write_file_atomically(at("keep/x"), "x", 0600));
  ASSERT_TRUE(make_dirs(at("tree/a/b")));
  ASSERT_EQ(::symlink(at("keep").c_str(), at("tree/a/link").c_str()), 0);
  ASSERT_EQ(::mkfifo(at("tree/a/fifo").c_str(), 0600), 0);
  ASSERT_TRUE(remove_tree(at("tree")));
  EXPECT_FALSE(exists(at("tree")));
  EXPECT_TRUE(exists(at("keep/x")));
  EXPECT_TRUE(remove_tree(at("tree")));  // again: nothing to do
  ASSERT_EQ(::symlink(at("keep").c_str(), at("link").c_str()), 0);
  EXPECT_TRUE(remove_tree(at("link")));
  EXPECT_TRUE(exists(at("keep/x")));
}

TEST_F(Files, RemovesATreeDeeperThanItsOpenDescriptors) {
  ASSERT_TRUE(make_dirs(at("tree")));
  Fd folder(::open(at("tree").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(::mkdirat(folder.get(), "d", 0755), 0);
    folder = Fd(::openat(folder.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(bool(folder));
  }
  EXPECT_TRUE(remove_tree(at("tree")));
  EXPECT_FALSE(exists(at("tree")));
}

// In a mount namespace of a child process, so that nothing is left on the machine.
TEST_F(Files, RemovingATreeStopsAtABindMount) {
  ASSERT_TRUE(make_dirs(at("keep")));
  ASSERT_TRUE(write_file_atomically(at("keep/x"), "x", 0600));
  ASSERT_TRUE(make_dirs(at("tree/mounted")));
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(3);
    if (::mount(at("keep").c_str(), at("tree/mounted").c_str(), nullptr, MS_BIND, nullptr) != 0) ::_exit(4);
    const auto inside = remove_tree(at("tree"));
    const auto itself = remove_tree(at("tree/mounted"));
    ::_exit(!inside && inside.error().code == Code::Unavailable && !itself && itself.error().code == Code::Unavailable ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "needs root";
  EXPECT_TRUE(exists(at("keep/x")));
}

TEST_F(Files, APathFromAUserCannotLeaveItsFolder) {
  ASSERT_TRUE(make_dirs(at("root/sub")));
  ASSERT_TRUE(write_file_atomically(at("secret"), "s", 0600));
  ASSERT_TRUE(write_file_atomically(at("root/sub/ok"), "o", 0600));
  ASSERT_EQ(::symlink("../..", at("root/out").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", at("root/absolute").c_str()), 0);
  ASSERT_EQ(::symlink("sub/ok", at("root/inside").c_str()), 0);
  const std::string root = at("root");
  EXPECT_TRUE(open_beneath(root, "sub/ok", O_RDONLY));
  EXPECT_TRUE(open_beneath(root, "inside", O_RDONLY));
  EXPECT_TRUE(open_beneath(root, "sub/../sub/ok", O_RDONLY));
  EXPECT_TRUE(open_beneath(root, "", O_RDONLY | O_DIRECTORY));
  EXPECT_TRUE(open_beneath(root, "sub/new", O_WRONLY | O_CREAT, 0600));
  for (const char* path : {"../secret", "out/secret", "absolute/passwd", "/etc/passwd", "sub/../../secret"})
    EXPECT_EQ(open_beneath(root, path, O_RDONLY).error().code, Code::Forbidden) << path;
  EXPECT_EQ(open_beneath(root, "none", O_RDONLY).error().code, Code::NotFound);
  EXPECT_EQ(open_beneath(root, std::string("a\0b", 3), O_RDONLY).error().code, Code::Invalid);
}

TEST(Units, BytesForPeople) {
  EXPECT_EQ(print(Bytes{0}), "0 B");
  EXPECT_EQ(print(Bytes{1023}), "1023 B");
  EXPECT_EQ(print(1_KiB), "1 KiB");
  EXPECT_EQ(print(Bytes{1536}), "1.5 KiB");
  EXPECT_EQ(print(Bytes{(1 << 20) - 1}), "1 MiB");
  EXPECT_EQ(print(64_GiB), "64 GiB");
  EXPECT_EQ(print(Bytes{-2048}), "-2 KiB");
}

}  // namespace
}  // namespace fairlead
