// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::node {

// A mount that is undone unless kept.
class ScopedMount {
 public:
  // mount(2). `options` is its data argument.
  static Result<ScopedMount> make(const std::string& type, const std::string& source, std::string target, unsigned long flags,
                                  const std::string& options);
  // Binds what `source` refers to (a path, or a descriptor opened with O_PATH).
  static Result<ScopedMount> bind(const std::string& source, std::string target);
  static Result<ScopedMount> bind(const Fd& source, std::string target);
  ScopedMount(ScopedMount&& other) noexcept : target_(std::exchange(other.target_, {})) {}
  ScopedMount& operator=(ScopedMount&&) = delete;
  ~ScopedMount();
  void keep() && { target_.clear(); }

 private:
  explicit ScopedMount(std::string target) : target_(std::move(target)) {}
  std::string target_;
};

Result<bool> is_mount_point(const std::string& path);
// Unmounts everything at `path` and below it, the last mounted first. Repeatable.
Result<void> unmount_below(const std::string& path);

// Runs `work` in a child process of its own and gives its error: for unshare and setns, which must not touch a pool thread. After fork only
// system calls: `work` must not allocate or lock. It returns 0 or errno.
Result<void> in_child(const char* doing, const std::function<int()>& work);

}  // namespace fairlead::node
