// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/script_store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"

namespace fairlead::fleet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

struct Folder : testing::Test {
  std::string work;
  void SetUp() override {
    char name[] = "/dev/shm/fairlead-s3-XXXXXX";
    work = ::mkdtemp(name);
    put("bucket/base/on_create.sh", "#!/bin/sh\n");
    put("bucket/base/utils/lib.sh", "lib");
    put("bucket/other/x", "x");
    put("secret", "of this machine");
  }
  void TearDown() override { (void)remove_tree(work); }
  void put(const std::string& path, const std::string& bytes) const {
    const std::string whole = work + "/" + path;
    ASSERT_TRUE(make_dirs(whole.substr(0, whole.rfind('/'))));
    ASSERT_TRUE(write_file_atomically(whole, bytes, 0644));
  }
  Result<ScriptFiles> read(const std::string& bucket, const std::string& prefix) const { return ScriptFolder(work).read(bucket, prefix); }
};

TEST_F(Folder, GivesWhatLiesBelowThePrefix) {
  const auto files = read("bucket", "base");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_THAT(*files, ElementsAre(Pair("on_create.sh", "#!/bin/sh\n"), Pair("utils/lib.sh", "lib")));
  EXPECT_EQ(read("bucket", "")->size(), 3u);
}

TEST_F(Folder, WhatIsNoFileOrIsOfNoUseIsLeftOut) {
  put("bucket/base/.git/config", "x");
  put("bucket/base/.fairlead-upload-1", "half");
  ASSERT_EQ(::mkfifo((work + "/bucket/base/pipe").c_str(), 0600), 0);  // opening one would wait for a writer
  EXPECT_EQ(read("bucket", "base")->size(), 2u);
  put("bucket/base/.env", "A=1\n");
  put("bucket/base/.config/x", "y");
  EXPECT_EQ(read("bucket", "base")->at(".env"), "A=1\n") << "S3 knows of no hidden files";
  EXPECT_EQ(read("bucket", "base")->size(), 4u);
}

TEST_F(Folder, LinksStayWithinTheBucket) {
  ASSERT_EQ(::symlink("../other/x", (work + "/bucket/base/shared").c_str()), 0);
  EXPECT_EQ(read("bucket", "base")->at("shared"), "x");
  ASSERT_EQ(::symlink("../../secret", (work + "/bucket/base/out").c_str()), 0);
  EXPECT_EQ(read("bucket", "base").error().code, Code::Forbidden);
  ASSERT_EQ(::unlink((work + "/bucket/base/out").c_str()), 0);
  ASSERT_EQ(::symlink("/etc/shadow", (work + "/bucket/base/out").c_str()), 0);
  EXPECT_EQ(read("bucket", "base").error().code, Code::Forbidden);
  ASSERT_EQ(::unlink((work + "/bucket/base/out").c_str()), 0);
  ASSERT_EQ(::symlink(".", (work + "/bucket/base/round").c_str()), 0);
  EXPECT_EQ(read("bucket", "base").error().code, Code::Exhausted);
}

TEST_F(Folder, WhatIsNotThereIsNamed) {
  EXPECT_THAT(read("none", "base").error().message, HasSubstr("there is no folder " + work + "/none/base: put the scripts there"));
  EXPECT_EQ(read("bucket", "none").error().code, Code::NotFound);
  ASSERT_TRUE(make_dirs(work + "/bucket/empty"));
  EXPECT_THAT(read("bucket", "empty").error().message, HasSubstr("is empty"));
  EXPECT_FALSE(read("bucket", "../..")) << "nobody asks for this: names were checked before";
}

TEST_F(Folder, TooMuchIsRefused) {
  put("bucket/large/x", std::string(kMostScriptBytes, 'x'));
  EXPECT_TRUE(read("bucket", "large"));
  put("bucket/large/y", "y");
  EXPECT_EQ(read("bucket", "large").error().code, Code::Exhausted);
  for (std::size_t i = 0; i <= kMostScriptFiles; ++i) put("bucket/many/" + std::to_string(i), "");
  EXPECT_THAT(read("bucket", "many").error().message, HasSubstr("more than 1000 files"));
}

}  // namespace
}  // namespace fairlead::fleet
