// SPDX-License-Identifier: GPL-3.0-or-later
#include "layer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fd.h"
#include "base/files.h"
#include "test_tar.h"

namespace fairlead::companion {
namespace {

using testing::HasSubstr;

class Layers : public testing::Test {
 protected:
  Layers() {
    char name[] = "/tmp/fairlead-layer-XXXXXX";
    folder_ = ::mkdtemp(name);
    EXPECT_TRUE(make_dirs(folder_ + "/root"));
    EXPECT_TRUE(write_file_atomically(folder_ + "/outside", "safe", 0600));
    root_ = Fd(::open((folder_ + "/root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~Layers() override { (void)remove_tree(folder_); }

  Result<LayerReport> apply(const std::string& tar, std::uint64_t limit = 64 << 20) {
    DiskShare room{.limit = limit};
    std::size_t at = 0;
    Unzip unzip([&](char* to, std::size_t most) -> Result<std::size_t> {
      // In odd pieces.
      const std::size_t size = std::min({most, tar.size() - at, std::size_t{777}});
      tar.copy(to, size, at);
      at += size;
      return size;
    });
    return apply_layer(root_.get(), [&](char* to, std::size_t most) { return unzip.read(to, most); }, room);
  }
  std::string text(const std::string& path) { return read_file(folder_ + "/root/" + path).value_or("absent"); }
  mode_t mode(const std::string& path) {
    struct stat info{};
    return ::lstat((folder_ + "/root/" + path).c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }

  std::string folder_;
  Fd root_;
};

TEST_F(Layers, FilesLinksAndFoldersAreMade) {
  const std::string longest(180, 'n');
  auto done = apply(TestTar().folder("./etc/", 0750).file("etc/a", "one", 04755).file("etc/secret", "two", 0600).link("etc/b", "a").hard("etc/c", "etc/a").file("no/folder/d", "three").pax({{"path", longest + "/" + longest}}).file("x", "long").entry("dev/null", '3').text());
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(text("etc/a"), "one");
  EXPECT_EQ(text("etc/b"), "one");
  EXPECT_EQ(text("etc/c"), "one");
  EXPECT_EQ(text("no/folder/d"), "three");
  EXPECT_EQ(text(longest + "/" + longest), "long");
  EXPECT_EQ(mode("etc/a"), 0755u);       // no set-user-id
  EXPECT_EQ(mode("etc/secret"), 0604u);  // whoever has the image may read it
  EXPECT_EQ(mode("etc"), 0755u);
  EXPECT_EQ(done->left_out, 1u);
}

TEST_F(Layers, GzipOfSeveralMembersIsTakenOff) {
  const std::string tar = TestTar().file("a", std::string(100000, 'x')).text();
  const std::string two = gzipped(tar.substr(0, 5000)) + gzipped(tar.substr(5000));
  auto done = apply(two);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(text("a").size(), 100000u);
  EXPECT_FALSE(apply(two.substr(0, two.size() - 20)));
  EXPECT_THAT(apply("\x28\xb5\x2f\xfd whatever").error().message, HasSubstr("zstd"));
}

TEST_F(Layers, WhiteoutsHideWhatLowerLayersBroughtAndNothingElse) {
  ASSERT_TRUE(apply(TestTar().file("d/old", "1").file("d/sub/old", "1").file("gone", "1").file("tree/a/b", "1").text()));
  auto done = apply(TestTar().file("d/new", "2").file("d/sub/new", "2").file("d/.wh..wh..opq", "").file(".wh.gone", "").file(".wh.tree", "").text());
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(text("d/new"), "2");
  EXPECT_EQ(text("d/sub/new"), "2");
  EXPECT_EQ(text("d/old"), "absent");
  EXPECT_EQ(text("d/sub/old"), "absent");
  EXPECT_EQ(text("gone"), "absent");
  EXPECT_FALSE(exists(folder_ + "/root/tree"));
  // A file takes the place of a folder, and the other way round.
  ASSERT_TRUE(apply(TestTar().file("d", "file").folder("gone").text()));
  EXPECT_EQ(text("d"), "file");
}

TEST_F(Layers, NothingLeadsOut) {
  const std::string up = "../../../../../../.." + folder_;
  for (const auto& tar : {TestTar().link("out", folder_).file("out/outside", "bad").text(), TestTar().link("out", up).file("out/outside", "bad").text(), TestTar().file("../outside", "bad").text(), TestTar().file(folder_ + "/outside", "bad").text(),
                          TestTar().hard("here", "../outside").file("here", "bad").text(), TestTar().link("out", folder_).hard("here", "out/outside").text(), TestTar().link("out", folder_).file("out/.wh.outside", "").text(),
                          TestTar().link("out", folder_).file("out/.wh..wh..opq", "").text(), TestTar().file("a/.wh...", "").text(), TestTar().link("outside", folder_ + "/outside").file("outside", "bad").text(),
                          TestTar().folder("w").file("w/x", "").link("w", folder_).file("w/outside", "bad").text()}) {
    (void)apply(tar);
    EXPECT_EQ(read_file(folder_ + "/outside").value_or("gone"), "safe");
  }
}

TEST_F(Layers, WhatIsNoArchiveIsRefused) {
  std::string tar = TestTar().file("a", "x").text();
  tar[0] = 'b';
  EXPECT_THAT(apply(tar).error().message, HasSubstr("checksum"));
  EXPECT_THAT(apply(TestTar().file("a", std::string(2000, 'x')).text().substr(0, 1500)).error().message, HasSubstr("ends in the middle"));
  EXPECT_FALSE(apply("hello"));
  EXPECT_FALSE(apply(TestTar().entry("a", 'S').text()));
}

TEST_F(Layers, NoMoreIsWrittenThanThereIsRoomFor) {
  auto done = apply(TestTar().file("a", std::string(100000, 'x')).text(), 50000);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Exhausted);
  TestTar many;
  for (int i = 0; i < 100; ++i) many.file(fmt::format("f{}", i), "");
  EXPECT_FALSE(apply(many.text(), 4096 * 50));
}

}  // namespace
}  // namespace fairlead::companion
