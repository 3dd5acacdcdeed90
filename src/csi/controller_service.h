// SPDX-License-Identifier: Apache-2.0
// The Controller service: requests become objects, and what the pool makes of them is waited for. It has no state; docs/design/071-csi.md. All that it asks of an API is api::driver_access() (api/volume_access.h).
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "base/clock.h"
#include "csi/busy.h"
#include "csi/csi.grpc.pb.h"
#include "csi/requests.h"
#include "kube/change_notifier.h"
#include "kube/kube_api.h"

namespace fairlead::csi {

struct ControllerOptions {
  std::chrono::nanoseconds patience{std::chrono::seconds(10)};  // that a call waits for the pool
  int most_volumes_per_node = 128;
};

// Called on gRPC's threads, several at once; each may block for as long as `patience`.
class ControllerService final : public wire::Controller::Service {
 public:
  ControllerService(kube::KubeApi& api, const Clock& clock, ControllerOptions options = {});

  using Context = grpc::ServerContext;
  Status CreateVolume(Context*, const wire::CreateVolumeRequest* request, wire::CreateVolumeResponse* response) override;
  Status DeleteVolume(Context*, const wire::DeleteVolumeRequest* request, wire::DeleteVolumeResponse* response) override;
  Status ControllerPublishVolume(Context*, const wire::ControllerPublishVolumeRequest* request, wire::ControllerPublishVolumeResponse* response) override;
  Status ControllerUnpublishVolume(Context*, const wire::ControllerUnpublishVolumeRequest* request, wire::ControllerUnpublishVolumeResponse* response) override;
  Status ValidateVolumeCapabilities(Context*, const wire::ValidateVolumeCapabilitiesRequest* request, wire::ValidateVolumeCapabilitiesResponse* response) override;
  Status ListVolumes(Context*, const wire::ListVolumesRequest* request, wire::ListVolumesResponse* response) override;
  Status GetCapacity(Context*, const wire::GetCapacityRequest* request, wire::GetCapacityResponse* response) override;
  Status ControllerGetCapabilities(Context*, const wire::ControllerGetCapabilitiesRequest* request, wire::ControllerGetCapabilitiesResponse* response) override;
  Status CreateSnapshot(Context*, const wire::CreateSnapshotRequest* request, wire::CreateSnapshotResponse* response) override;
  Status DeleteSnapshot(Context*, const wire::DeleteSnapshotRequest* request, wire::DeleteSnapshotResponse* response) override;
  Status ListSnapshots(Context*, const wire::ListSnapshotsRequest* request, wire::ListSnapshotsResponse* response) override;
  Status GetSnapshot(Context*, const wire::GetSnapshotRequest* request, wire::GetSnapshotResponse* response) override;
  Status ControllerExpandVolume(Context*, const wire::ControllerExpandVolumeRequest* request, wire::ControllerExpandVolumeResponse* response) override;
  Status ControllerGetVolume(Context*, const wire::ControllerGetVolumeRequest* request, wire::ControllerGetVolumeResponse* response) override;
  Status ControllerModifyVolume(Context*, const wire::ControllerModifyVolumeRequest* request, wire::ControllerModifyVolumeResponse* response) override;

 private:
  struct Wanted;
  // Until `done` says so, looked at when it is told to have changed. ABORTED: not in time. What failed: RESOURCE_EXHAUSTED, FAILED_PRECONDITION; `made`: it is this call's, and is taken away.
  Status await(const kube::Resource& resource, const std::string& name, const std::function<bool(const kube::Json&)>& done, bool made, kube::Json& out);
  Status await_gone(const kube::Resource& resource, const std::string& name, const std::string& uid);
  Status find(const kube::Resource& resource, const std::string& id, kube::Json& out);  // NOT_FOUND
  Status change(const std::string& id, const std::function<Status(kube::Json&)>& edit, kube::Json& out);
  Result<std::vector<kube::Json>> attachments_of(const std::string& volume);

  kube::KubeApi& api_;
  const Clock& clock_;
  const ControllerOptions options_;
  Busy busy_;
  kube::ChangeNotifier changes_;
};

}  // namespace fairlead::csi
