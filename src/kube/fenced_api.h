// SPDX-License-Identifier: Apache-2.0
// Writes of a leader. A process may be stopped between "I lead" and the write, so leading in memory is needed and never enough: every write also says which
// state of the object it was decided on, and the server refuses it if that is not the state any more.
#pragma once
#include <functional>
#include <string>

#include "kube/kube_api.h"

namespace fairlead::kube {

inline constexpr const char* kEpochAnnotation = "fairlead.dev/leader-epoch";

// The epoch (leaseTransitions) that we lead in, proved by the monotonic clock at this moment. Unavailable: not the leader, or not provably.
using Fence = std::function<Result<std::int64_t>()>;

// Thread-safe. Reads pass. Invalid, and a defect of the caller:
//  update, update_status  without metadata.resourceVersion
//  patch, apply           that names neither metadata.resourceVersion nor metadata.uid (a JSON patch: no `test` of one of them)
//  remove                 without both uid and resourceVersion
//  create                 by generateName, but of a review, of which nothing is kept: of two creates under one name the second is refused, under made-up names neither is
// Creates carry the epoch as an annotation. Commands (exec) need the fence alone: they must be harmless when late.
class FencedApi final : public KubeApi {
 public:
  FencedApi(KubeApi& api, Fence fence) : api_(api), fence_(std::move(fence)) {}

  Result<Json> get(const Resource& resource, const ObjectKey& key) override { return api_.get(resource, key); }
  Result<List> list(const Resource& resource, const std::string& space, const ListOptions& options = {}) override { return api_.list(resource, space, options); }
  Result<std::unique_ptr<Watch>> watch(const Resource& resource, const std::string& space, const WatchOptions& options) override { return api_.watch(resource, space, options); }
  Result<Json> create(const Resource& resource, const Json& object) override;
  Result<Json> update(const Resource& resource, const Json& object) override;
  Result<Json> update_status(const Resource& resource, const Json& object) override;
  Result<Json> patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& subresource = "") override;
  Result<Json> apply(const Resource& resource, const Json& object, const ApplyOptions& options = {}) override;
  Result<Json> post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) override;
  Result<void> remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options = {}) override;
  Result<ExecResult> exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input,
                          std::chrono::milliseconds limit) override;

 private:
  KubeApi& api_;
  const Fence fence_;
};

}  // namespace fairlead::kube
