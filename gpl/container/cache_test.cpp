// SPDX-License-Identifier: GPL-3.0-or-later
#include "cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/files.h"
#include "test_tar.h"

namespace fairlead::companion {
namespace {

using testing::HasSubstr;

struct TestImage {
  std::string hex_of, layer;
  ImageManifest manifest;
  OpenBlob open = nullptr;
};

class ImageCache : public testing::Test {
 protected:
  ImageCache() {
    char name[] = "/tmp/fairlead-cache-XXXXXX";
    options_.folder = ::mkdtemp(name);
    options_.limit = 64 << 20;
  }
  ~ImageCache() override { (void)remove_tree(options_.folder); }

  TestImage image(const std::string& content, std::size_t size = 10) {
    TestImage out;
    out.layer = gzipped(TestTar().file("name", content).file("data", std::string(size, 'x')).folder("deep/folder").text());
    out.manifest.layers.push_back({.digest = "sha256:" + hex(sha256(out.layer)), .size = out.layer.size()});
    out.hex_of = hex(sha256(content));
    out.open = [this, bytes = out.layer](const ImagePart&) -> Result<ByteSource> {
      ++opened_;
      return [bytes, at = std::size_t{0}](char* to, std::size_t room) mutable -> Result<std::size_t> {
        const std::size_t got = bytes.copy(to, room, at);
        at += got;
        return got;
      };
    };
    return out;
  }
  Result<std::string> provide(const TestImage& image, ProcessIdentity user) { return provide_image(options_, image.hex_of, image.manifest, image.open, user); }
  static ProcessIdentity me() { return *identify(::getpid()); }
  static ProcessIdentity nobody() { return {.pid = ::getpid(), .start_ticks = 1}; }
  bool has(const TestImage& image) { return exists(options_.folder + "/sha256-" + image.hex_of); }

  CacheOptions options_;
  int opened_ = 0;
};

TEST_F(ImageCache, AnImageIsUnpackedOnce) {
  const auto one = image("one");
  for (int i = 0; i < 2; ++i) {
    auto root = provide(one, me());
    ASSERT_TRUE(root) << root.error().message;
    EXPECT_EQ(read_file(*root + "/name").value_or(""), "one");
  }
  EXPECT_EQ(opened_, 1);
}

TEST_F(ImageCache, ADamagedLayerIsNoImage) {
  auto one = image("one");
  one.manifest.layers[0].digest = "sha256:" + std::string(64, '0');
  auto root = provide(one, me());
  ASSERT_FALSE(root);
  EXPECT_THAT(root.error().message, HasSubstr("is not what its manifest says"));
  EXPECT_FALSE(has(one));
  EXPECT_FALSE(exists(options_.folder + "/sha256-" + one.hex_of + ".tmp"));
}

TEST_F(ImageCache, TheOldestThatNobodyUsesGivesWay) {
  options_.limit = 2500000;
  const auto used = image("used", 1000000), free = image("free", 1000000), next = image("next", 1000000), huge = image("huge", 9000000);
  ASSERT_TRUE(provide(used, me()));
  ASSERT_TRUE(provide(free, nobody()));
  ASSERT_TRUE(provide(next, me()));
  EXPECT_TRUE(has(used));
  EXPECT_FALSE(has(free));
  auto refused = provide(huge, me());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Exhausted);
  EXPECT_TRUE(has(used) && has(next) && !has(huge));
}

TEST_F(ImageCache, KilledAtAnyStepItIsWholeOrNotThere) {
  options_.limit = 2500000;
  for (int kill_at = 1;; ++kill_at) {
    const auto first = image("first", 1000000), second = image("second", 1000000), third = image("third", 1000000);
    const pid_t child = ::fork();
    if (child == 0) {
      int steps = 0;
      options_.on_step = [&] {
        if (++steps == kill_at) ::raise(SIGKILL);
      };
      for (const auto* one : {&first, &second, &third})
        if (!provide(*one, nobody())) ::_exit(1);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    for (const auto* one : {&first, &second, &third}) {
      auto root = provide(*one, nobody());
      ASSERT_TRUE(root) << kill_at << ": " << root.error().message;
      ASSERT_EQ(read_file(*root + "/data").value_or("").size(), 1000000u) << kill_at;
      ASSERT_TRUE(exists(*root + "/deep/folder")) << kill_at;
    }
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      EXPECT_GT(kill_at, 10);
      // Nothing half done is left.
      const auto left = list_dir(options_.folder).value_or(std::vector<std::string>());
      for (const auto& name : left) EXPECT_FALSE(name.ends_with(".tmp")) << name;
      return;
    }
    const auto all = list_dir(options_.folder).value_or(std::vector<std::string>());
    for (const auto& name : all) ASSERT_TRUE(remove_tree(options_.folder + "/" + name));
  }
}

}  // namespace
}  // namespace fairlead::companion
