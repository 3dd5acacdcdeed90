// SPDX-License-Identifier: Apache-2.0
// What needs no Ceph; the rest is tried on a real one (store_test.cpp, and the pool's suite: volumes/volume_pool_test.cpp).
#include "ceph/rbd_image.h"

#include <gmock/gmock.h>

#include <cerrno>

namespace fairlead::ceph {
namespace {

TEST(Mark, WhatIsPrintedIsRead) {
  for (const Mark& mark : {Mark{"a", false, false, 0}, Mark{"a-1", true, true, 8}}) EXPECT_EQ(read_mark(print(mark)), mark);
  EXPECT_EQ(print({.id = "data", .snapshot = true, .luks = false, .depth = 2}), "data snapshot plain 2");
  for (const char* const bad : {"", "a", "a volume", "a volume plain", "a disk plain 0", "a volume open 0", "a volume plain -1", "a volume plain x", "a volume plain 1 more"}) EXPECT_FALSE(read_mark(bad)) << bad;
}

TEST(Errors, OfCephSayWhatToDo) {
  EXPECT_EQ(fail_ceph(-ENOSPC, "x").error().code, Code::Exhausted);
  EXPECT_EQ(fail_ceph(-ENOENT, "x").error().code, Code::NotFound);
  EXPECT_EQ(fail_ceph(-EPERM, "x").error().code, Code::Forbidden);
  EXPECT_EQ(fail_ceph(-ESHUTDOWN, "x").error().code, Code::Unavailable);
  EXPECT_EQ(fail_ceph(-ETIMEDOUT, "x").error().code, Code::Unavailable);
}

}  // namespace
}  // namespace fairlead::ceph
