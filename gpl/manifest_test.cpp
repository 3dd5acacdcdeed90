// SPDX-License-Identifier: GPL-3.0-or-later
#include "manifest.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fd.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::HasSubstr;

TEST(Manifest, IsReadAsItWasWritten) {
  Manifest manifest;
  manifest["/a b%\n\xff"] = {.type = 'f', .mode = 04755, .uid = 1, .gid = 2, .size = 3, .mtime = -4, .ctime = 5, .hash = std::string(32, '\x07')};
  manifest["/l"] = {.type = 'l', .mode = 0777, .target = "-"};
  manifest["/dev/null"] = {.type = 'c', .mode = 0666, .size = 259};
  const auto read = parse_manifest(print_manifest(manifest));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, manifest);
}

class BadManifest : public testing::TestWithParam<const char*> {};
TEST_P(BadManifest, IsRefused) { EXPECT_FALSE(parse_manifest(GetParam())); }
INSTANTIATE_TEST_SUITE_P(All, BadManifest,
                         testing::Values("", "fairlead-manifest 1\n", "fairlead-manifest 2\nend 0\n", "fairlead-manifest 1\nend 1\n", "fairlead-manifest 1\nend 0\nmore\n", "fairlead-manifest 1\nend 0",
                                         "fairlead-manifest 1\nf 644 0 0 0 0 0 - - /a/../b\nend 1\n", "fairlead-manifest 1\nf 644 0 0 0 0 0 - - a\nend 1\n", "fairlead-manifest 1\nf 10644 0 0 0 0 0 - - /a\nend 1\n",
                                         "fairlead-manifest 1\nx 644 0 0 0 0 0 - - /a\nend 1\n", "fairlead-manifest 1\nf 644 0 0 0 0 0 abc - /a\nend 1\n", "fairlead-manifest 1\nf 644 0 0 0 0 0 - - /a%0\nend 1\n",
                                         "fairlead-manifest 1\nf 644 0 0 0 0 0 - - /a\nf 644 0 0 0 0 0 - - /a\nend 2\n", "fairlead-manifest 1\nf 644 0 0 0 0 0 - - /a%00\nend 1\n"));

struct Scan : testing::Test {
  std::string work;
  void SetUp() override {
    char name[] = "/dev/shm/fairlead-scan-XXXXXX";
    work = ::mkdtemp(name);
    ASSERT_TRUE(make_dirs(work + "/etc/sub"));
    ASSERT_TRUE(write_file_atomically(work + "/etc/a", "one", 0640));
    ASSERT_TRUE(write_file_atomically(work + "/etc/sub/b", "two", 0644));
    ASSERT_EQ(::symlink("a", (work + "/etc/l").c_str()), 0);
  }
  void TearDown() override { (void)remove_tree(work); }
  Manifest scan(ScanOptions options = {}) const {
    const Fd fd(::open(work.c_str(), O_RDONLY | O_DIRECTORY));
    auto done = scan_tree(fd.get(), options);
    EXPECT_TRUE(done);
    return done ? *done : Manifest();
  }
};

TEST_F(Scan, SeesWhatThereIs) {
  const auto all = scan();
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(all.at("/etc/a").mode, 0640U);
  EXPECT_EQ(all.at("/etc/a").size, 3U);
  EXPECT_EQ(all.at("/etc/a").hash.size(), 32U);
  EXPECT_EQ(all.at("/etc/l").target, "a");
  EXPECT_EQ(all.at("/etc/sub").type, 'd');
  EXPECT_EQ(scan({.leave_out = {"/etc/sub"}, .known = nullptr, .on_entry = {}}).size(), 3U);
}

// The time of a change cannot be set by a user: a file with another is read, whatever its size and time of modification say.
TEST_F(Scan, ReadsAgainWhatMayHaveChanged) {
  auto before = scan();
  EXPECT_EQ(scan({.leave_out = {}, .known = &before, .on_entry = {}}), before);
  before["/etc/sub/b"].hash = std::string(32, 'x');  // not read: what is known stands
  EXPECT_EQ(scan({.leave_out = {}, .known = &before, .on_entry = {}}).at("/etc/sub/b").hash, std::string(32, 'x'));
  const auto original = before.at("/etc/a");
  before["/etc/a"].ctime -= 1;
  before["/etc/a"].hash = std::string(32, 'x');
  EXPECT_EQ(scan({.leave_out = {}, .known = &before, .on_entry = {}}).at("/etc/a").hash, original.hash);
}

}  // namespace
}  // namespace fairlead::companion
