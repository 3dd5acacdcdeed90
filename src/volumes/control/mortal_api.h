// SPDX-License-Identifier: Apache-2.0
// For tests of controllers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kube/tiny_api.h"

namespace fairlead::volumes {

// An API whose next writes are lost, before or after they came about.
class MortalApi final : public kube::KubeApi {
 public:
  explicit MortalApi(kube::TinyApi& api) : api_(api) {}
  std::function<int()> fate = [] { return 0; };  // 0: goes well; 1: lost; 2: done, and the answer is lost
  bool died = false;
  Result<kube::Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override { return api_.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return fail(Code::Unsupported, "no watch"); }
  Result<kube::Json> create(const kube::Resource& resource, const kube::Json& object) override { return write([&] { return api_.create(resource, object); }); }
  Result<kube::Json> update(const kube::Resource& resource, const kube::Json& object) override { return write([&] { return api_.update(resource, object); }); }
  Result<kube::Json> update_status(const kube::Resource& resource, const kube::Json& object) override { return write([&] { return api_.update_status(resource, object); }); }
  Result<kube::Json> patch(const kube::Resource&, const kube::ObjectKey&, kube::PatchType, const kube::Json&, const std::string&) override { return fail(Code::Unsupported, "no patch"); }
  Result<kube::Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const kube::Json&) override { return fail(Code::Unsupported, "no post"); }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override { return api_.remove(resource, key, options); }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return fail(Code::Unsupported, "no exec"); }

 private:
  template <class Work>
  Result<kube::Json> write(Work work) {
    const int how = died ? 1 : fate();
    if (how == 1) return died = true, Result<kube::Json>(fail(Code::Unavailable, "died"));
    auto done = work();
    if (how == 2) return died = true, Result<kube::Json>(fail(Code::Unavailable, "died"));
    return done;
  }
  kube::TinyApi& api_;
};

}  // namespace fairlead::volumes
