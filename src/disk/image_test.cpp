// SPDX-License-Identifier: Apache-2.0
#include "disk/image.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/files.h"
#include "base/rng.h"
#include "disk/file_medium.h"

namespace fairlead::disk {
namespace {

using testing::HasSubstr;

Result<std::unique_ptr<Image>> open(const std::string& path, bool read_only, std::int64_t begins = 0, std::unique_ptr<Cipher> cipher = nullptr) {
  auto medium = open_file_medium(path, read_only);
  return medium ? Image::open(std::move(*medium), read_only, begins, std::move(cipher)) : Result<std::unique_ptr<Image>>(std::unexpected(medium.error()));
}

class ImageTest : public testing::Test {
 protected:
  ImageTest() {
    const Fd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(fd.get(), 1 << 20), 0);
  }
  ~ImageTest() override {
    ::unlink(path_.c_str());
    std::free(block_);
  }
  const std::string path_ = testing::TempDir() + "fairlead-image-" + random_uuid();
  char* const block_ = static_cast<char*>(std::aligned_alloc(4096, 8192));
};

TEST_F(ImageTest, HoldsWhatIsWrittenAndOneProcessHasIt) {
  auto image = open(path_, false);
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_THAT(open(path_, true).error().message, HasSubstr("served by another process"));
  std::memset(block_, 'x', 8192);
  EXPECT_EQ((*image)->write(block_, 8192, 4096, nullptr), 0);
  EXPECT_EQ((*image)->sync(), 0);
  std::memset(block_, 0, 8192);
  EXPECT_EQ((*image)->read(block_, 4096, 8192), 0);
  EXPECT_EQ(block_[0], 'x');
  EXPECT_EQ((*image)->zero(8192, 4096, true), 0);
  EXPECT_EQ((*image)->read(block_, 8192, 4096), 0);
  EXPECT_EQ(block_[0], 'x');
  EXPECT_EQ(block_[4096], 0);
  for (const auto& [size, at] : {std::pair<std::size_t, std::int64_t>{512, 0}, {4096, 512}}) EXPECT_EQ((*image)->write(block_, size, at, nullptr), EINVAL);
  EXPECT_EQ((*image)->read(block_ + 8, 4096, 0), EINVAL);
  EXPECT_EQ((*image)->read(block_, 4096, 1 << 20), EIO) << "beyond its end";
}

// The same as dm-crypt: sectors of 4096 bytes, the tweak counts 512 bytes from where the data begins.
TEST_F(ImageTest, WhatIsEncryptedLiesOnDiskAsNothingThatWasWritten) {
  std::string key(64, '\0');
  EXPECT_EQ(Cipher::make(key).error().code, Code::Invalid) << "two halves that are the same";
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<char>(i);
  auto image = open(path_, false, 64 << 10, *Cipher::make(key));
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ((*image)->size(), (1 << 20) - (64 << 10));
  char* const room = static_cast<char*>(std::aligned_alloc(4096, 8192));
  std::memset(block_, 'x', 8192);
  EXPECT_EQ((*image)->write(block_, 8192, 4096, room), 0);
  EXPECT_EQ((*image)->sync(), 0);
  std::memset(block_, 0, 8192);
  EXPECT_EQ((*image)->read(block_, 8192, 4096), 0);
  EXPECT_EQ(std::string(block_, 8192), std::string(8192, 'x'));
  const std::string file = read_file(path_).value();
  EXPECT_EQ(file.find("xxxx"), std::string::npos);
  EXPECT_NE(file.substr((64 << 10) + 4096, 4096), file.substr((64 << 10) + 8192, 4096)) << "each sector otherwise";
  EXPECT_EQ((*image)->read(block_, 4096, 0), 0);
  EXPECT_EQ(std::string(block_, 4096), std::string(4096, '\0')) << "what was never written is zeros";
  EXPECT_EQ((*image)->zero(4096, 4096, true), 0);
  EXPECT_EQ((*image)->read(block_, 8192, 4096), 0);
  EXPECT_EQ(std::string(block_, 4096), std::string(4096, '\0')) << "what was given back, too";
  EXPECT_EQ(std::string(block_ + 4096, 4096), std::string(4096, 'x'));
  std::memset(block_, 'z', 8192);
  EXPECT_EQ((*image)->write(block_, 8192, 4096, block_), 0) << "encrypted where it is";
  EXPECT_EQ((*image)->read(room, 8192, 4096), 0);
  EXPECT_EQ(std::string(room, 8192), std::string(8192, 'z'));
  image->reset();
  key[0] = 9;
  auto other = open(path_, false, 64 << 10, *Cipher::make(key));
  EXPECT_EQ((*other)->read(block_, 4096, 8192), 0);
  EXPECT_NE(block_[0], 'x') << "another key";
  std::free(room);
}

TEST_F(ImageTest, GrowsAndNeverShrinks) {
  auto image = open(path_, false);
  ASSERT_TRUE(image);
  ASSERT_EQ(::truncate(path_.c_str(), 2 << 20), 0);
  EXPECT_EQ((*image)->size(), 1 << 20);
  EXPECT_EQ((*image)->look_again().value_or(0), 2 << 20);
  ASSERT_EQ(::truncate(path_.c_str(), 1 << 20), 0);
  EXPECT_EQ((*image)->look_again().error().code, Code::Internal);
}

TEST_F(ImageTest, ReadOnlyIsSo) {
  auto image = open(path_, true);
  ASSERT_TRUE(image);
  std::memset(block_, 0, 4096);
  EXPECT_EQ((*image)->write(block_, 4096, 0, nullptr), EROFS);
  EXPECT_EQ((*image)->zero(0, 4096, true), EROFS);
  EXPECT_EQ((*image)->read(block_, 4096, 0), 0);
  image->reset();
  ASSERT_EQ(::truncate(path_.c_str(), 100), 0);
  EXPECT_EQ(open(path_, false).error().code, Code::Invalid) << "no whole blocks";
}

}  // namespace
}  // namespace fairlead::disk
