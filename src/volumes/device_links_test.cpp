// SPDX-License-Identifier: Apache-2.0
#include "volumes/device_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace fairlead::volumes {
namespace {

using testing::HasSubstr;

TEST(DeviceLinks, ANameIsOneVolumesAndNobodyElsesIsTouched) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::thread([] {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("tmpfs", "/dev", "tmpfs", 0, "size=1m"), 0);
    const auto text = [](const char* path) {
      char out[64];
      const ssize_t size = ::readlink(path, out, sizeof out);
      return size < 0 ? std::string("none") : std::string(out, static_cast<std::size_t>(size));
    };
    ASSERT_TRUE(link_device("/dev/xvdf", "vol-1", "/dev/loop3"));
    ASSERT_TRUE(link_device("/dev/xvdf", "vol-1", "/dev/loop3")) << "again is nothing";
    EXPECT_EQ(text("/dev/xvdf"), "fairlead/vol-1");
    EXPECT_EQ(text("/dev/fairlead/vol-1"), "../loop3");
    EXPECT_THAT(link_device("/dev/xvdf", "vol-2", "/dev/loop4").error().message, HasSubstr("there is a /dev/xvdf on this machine already"));
    ASSERT_TRUE(unlink_device("/dev/xvdf", "vol-2", "/dev/loop4"));
    EXPECT_EQ(text("/dev/xvdf"), "fairlead/vol-1") << "another's";
    // Its engine ended, and the kernel gave its device to another meanwhile.
    ASSERT_TRUE(link_device("/dev/xvdg", "vol-2", "/dev/loop3"));
    ASSERT_TRUE(link_device("/dev/xvdf", "vol-1", "/dev/loop5"));
    EXPECT_EQ(text("/dev/fairlead/vol-1"), "../loop5");
    EXPECT_EQ(text("/dev/fairlead/vol-2"), "../loop3");
    ASSERT_TRUE(unlink_device("/dev/xvdf", "vol-1", "/dev/loop3")) << "by what it was shown by before";
    EXPECT_EQ(text("/dev/xvdf"), "none");
    EXPECT_EQ(text("/dev/fairlead/vol-1"), "none");
    EXPECT_EQ(text("/dev/fairlead/vol-2"), "../loop3");
    ASSERT_TRUE(unlink_device("/dev/xvdf", "vol-1", "/dev/loop3"));
    ASSERT_TRUE(unlink_device("/dev/xvdg", "vol-2", ""));
    EXPECT_NE(::access("/dev/fairlead", F_OK), 0) << "the folder goes with its last link";
    // Several names of one volume: each goes alone, and they follow together.
    for (const char* name : {"/dev/xvdf", "/dev/sdg"}) ASSERT_TRUE(link_device(name, "vol-1", "/dev/loop3"));
    ASSERT_TRUE(link_device("/dev/xvdh", "vol-2", "/dev/loop4"));
    EXPECT_EQ(device_names("vol-1")->names, (std::vector<std::string>{"/dev/sdg", "/dev/xvdf"}));
    EXPECT_EQ(device_names("vol-1")->device, "/dev/loop3");
    EXPECT_EQ(device_names("vol-3")->device + device_names("..")->device, "");
    ASSERT_TRUE(unlink_device("/dev/xvdf", "vol-1", ""));
    EXPECT_EQ(text("/dev/fairlead/vol-1"), "../loop3") << "the other leads there still";
    ASSERT_TRUE(link_device("/dev/xvdf", "vol-1", "/dev/loop3"));
    ASSERT_EQ(::symlink("../loop3", "/dev/fairlead/.vol-1"), 0) << "as a death in the middle leaves it";
    std::string asked;
    ASSERT_TRUE(unlink_volume("vol-1", Names::Go, [&](const std::string& device) { return asked = device, true; }));
    EXPECT_EQ(asked, "/dev/loop3");
    EXPECT_EQ(device_names("vol-1")->names.size(), 2u);
    ASSERT_TRUE(unlink_volume("vol-1", Names::Stay, [](const std::string&) { return false; }));
    EXPECT_EQ(text("/dev/sdg"), "fairlead/vol-1") << "nobody else has the name meanwhile";
    EXPECT_EQ(text("/dev/fairlead/vol-1"), "none") << "and it leads nowhere";
    EXPECT_EQ(link_device("/dev/sdg", "vol-2", "/dev/loop4").error().code, Code::Exists);
    ASSERT_TRUE(link_device("/dev/sdg", "vol-1", "/dev/loop3"));
    EXPECT_EQ(device_names("vol-1")->device, "/dev/loop3");
    ASSERT_TRUE(unlink_volume("vol-1", Names::Go, [](const std::string&) { return false; }));
    for (const char* name : {"/dev/xvdf", "/dev/sdg", "/dev/fairlead/vol-1", "/dev/fairlead/.vol-1"}) EXPECT_EQ(text(name), "none") << name;
    EXPECT_EQ(text("/dev/xvdh"), "fairlead/vol-2");
    // A death after the first link was removed: the names that are left lead nowhere, and go without anybody being asked.
    ASSERT_EQ(::symlink("fairlead/vol-1", "/dev/sdg"), 0);
    ASSERT_TRUE(unlink_volume("vol-1", Names::Go, [](const std::string&) { return true; }));
    EXPECT_EQ(text("/dev/sdg"), "none");
    ASSERT_TRUE(unlink_volume("vol-2", Names::Go, [](const std::string&) { return false; }));
    EXPECT_NE(::access("/dev/fairlead", F_OK), 0);
    // Made before names followed their volumes: a link to the device itself.
    ASSERT_EQ(::symlink("loop3", "/dev/xvdf"), 0);
    ASSERT_TRUE(link_device("/dev/xvdf", "vol-1", "/dev/loop3"));
    EXPECT_EQ(text("/dev/xvdf"), "fairlead/vol-1");
    ASSERT_TRUE(unlink_device("/dev/xvdf", "vol-1", "/dev/loop3"));
    ASSERT_EQ(::symlink("loop3", "/dev/xvdf"), 0);
    ASSERT_TRUE(unlink_device("/dev/xvdf", "vol-1", "/dev/loop4"));
    EXPECT_EQ(text("/dev/xvdf"), "loop3") << "another's";
    ASSERT_TRUE(unlink_device("/dev/xvdf", "vol-1", "/dev/loop3"));
    EXPECT_EQ(text("/dev/xvdf"), "none");
    // A device of the machine's own is nobody's link, whatever the volume's is called.
    ASSERT_EQ(::mknod("/dev/sdg", S_IFREG | 0600, 0), 0);
    for (const char* device : {"", "/dev/", "/dev/loop3"}) ASSERT_TRUE(unlink_device("/dev/sdg", "vol-1", device));
    EXPECT_EQ(::access("/dev/sdg", F_OK), 0);
    EXPECT_EQ(link_device("/dev/sdg", "vol-1", "/dev/loop3").error().code, Code::Exists);
    ASSERT_EQ(::symlink("sda", "/dev/sdf"), 0);
    EXPECT_EQ(link_device("/dev/sdf", "vol-1", "/dev/loop3").error().code, Code::Exists);
    ASSERT_TRUE(unlink_device("/dev/sdf", "vol-1", "/dev/loop3"));
    EXPECT_EQ(text("/dev/sdf"), "sda");
    ASSERT_EQ(::mkdir("/dev/fairlead", 0755) == 0 || errno == EEXIST, true);
    ASSERT_EQ(::mknod("/dev/fairlead/vol-3", S_IFREG | 0600, 0), 0);
    EXPECT_EQ(link_device("/dev/xvdh", "vol-3", "/dev/loop3").error().code, Code::Exists);
    EXPECT_EQ(text("/dev/xvdh"), "none");
    for (const char* wrong : {"/dev/sda1", "/dev/../etc/x", "/etc/passwd", "", "/dev/xvd", "/dev/loop3"}) EXPECT_EQ(link_device(wrong, "vol-1", "/dev/loop3").error().code, Code::Invalid) << wrong;
    for (const char* wrong : {"", "/dev/", "loop3", "/dev/mapper/x", "/etc/passwd"}) EXPECT_EQ(link_device("/dev/xvdf", "vol-1", wrong).error().code, Code::Invalid) << wrong;
    for (const char* wrong : {"", "../x", "a/b", "."}) EXPECT_EQ(link_device("/dev/xvdf", wrong, "/dev/loop3").error().code, Code::Invalid) << wrong;
  }).join();
}

}  // namespace
}  // namespace fairlead::volumes
