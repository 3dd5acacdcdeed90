// SPDX-License-Identifier: Apache-2.0
// For tests that run real containers: a network and mount namespace of the test's own, the busybox image, and a folder.
#pragma once
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "base/files.h"
#include "base/process.h"
#include "node/cgroup.h"
#include "node/images.h"
#include "node/mounts.h"
#include "node/netlink.h"
#include "node/oci_runtime.h"

namespace fairlead::node {

inline const char* images_dir() { return "/var/lib/fairlead/images"; }
inline const char* busybox() { return "busybox:1"; }

// Once per process, on its only thread: what node-init does for a node.
inline void enter_test_namespaces() {
  static bool done = false;
  if (done) return;
  ASSERT_EQ(::geteuid(), 0U) << "these tests start real containers: run them as root";
  ASSERT_TRUE(find_image(images_dir(), busybox())) << "build the image first: images/build.sh busybox";
  ASSERT_EQ(::unshare(CLONE_NEWNS | CLONE_NEWNET), 0);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  // crun refuses a hybrid cgroup set-up; it makes folders where the version 2 mount was, so give it a place of its own.
  if (exists("/sys/fs/cgroup/unified/cgroup.procs")) {
    ASSERT_EQ(::umount2("/sys/fs/cgroup/unified", MNT_DETACH), 0);
    ASSERT_EQ(::mount("none", "/sys/fs/cgroup/unified", "tmpfs", 0, "size=1m"), 0);
  }
  ASSERT_TRUE(set_link_up("lo"));
  done = true;
}

class NodeTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_namespaces();
    if (HasFatalFailure()) return;
    char name[] = "/tmp/fl-node.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    ASSERT_EQ(::mkdir((root_ + "/run").c_str(), 0755), 0);
    ASSERT_EQ(::mount("run", (root_ + "/run").c_str(), "tmpfs", 0, "mode=755"), 0);
  }
  void TearDown() override {
    if (root_.empty()) return;
    if (runtime_) {
      auto uids = runtime_->list();
      ASSERT_TRUE(uids);
      for (const std::string& uid : *uids) EXPECT_TRUE(runtime_->forget(uid));
    }
    runtime_.reset();
    auto cgroups = CgroupTree::open();
    ASSERT_TRUE(cgroups);
    EXPECT_TRUE(cgroups->remove(cgroup()));
    EXPECT_TRUE(unmount_below(root_));
    EXPECT_TRUE(remove_tree(root_));
  }
  std::string cgroup() const { return "/fltest-" + std::to_string(owner_); }
  OciRuntimeOptions options() const {
    return {.state_dir = root_ + "/node",
            .run_dir = root_ + "/run",
            .logs_dir = root_ + "/logs",
            .cgroup_parent = cgroup(),
            .cni = {.pod_cidr = "10.99.7.0/24", .state_dir = ""},
            .at_step = {}};
  }
  void open_runtime() {
    auto runtime = OciRuntime::open(options(), clock_);
    ASSERT_TRUE(runtime) << runtime.error().message;
    runtime_ = std::move(*runtime);
  }

  SystemClock clock_;
  const pid_t owner_ = ::getpid();  // not that of a child that a test forks
  std::string root_;
  std::unique_ptr<OciRuntime> runtime_;
};

}  // namespace fairlead::node
