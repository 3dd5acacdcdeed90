// SPDX-License-Identifier: Apache-2.0
// The Node service: a volume that is attached becomes a mount, or a device file, at the place that is asked for. What is there is read from the kernel each time; docs/design/071-csi.md.
#pragma once
#include <string>
#include <vector>

#include "csi/busy.h"
#include "csi/csi.grpc.pb.h"
#include "csi/requests.h"

namespace fairlead::csi {

struct NodeOptions {
  std::string node;              // the Node's name
  std::vector<std::string> pools;  // that this node reaches; none: it tells no topology
  std::int64_t most_volumes = 128;
};

// Called on gRPC's threads, several at once. Needs root, and the mount namespace in which pods find what is mounted.
class NodeService final : public wire::Node::Service {
 public:
  explicit NodeService(NodeOptions options) : options_(std::move(options)) {}

  using Context = grpc::ServerContext;
  Status NodeStageVolume(Context*, const wire::NodeStageVolumeRequest* request, wire::NodeStageVolumeResponse* response) override;
  Status NodeUnstageVolume(Context*, const wire::NodeUnstageVolumeRequest* request, wire::NodeUnstageVolumeResponse* response) override;
  Status NodePublishVolume(Context*, const wire::NodePublishVolumeRequest* request, wire::NodePublishVolumeResponse* response) override;
  Status NodeUnpublishVolume(Context*, const wire::NodeUnpublishVolumeRequest* request, wire::NodeUnpublishVolumeResponse* response) override;
  Status NodeGetVolumeStats(Context*, const wire::NodeGetVolumeStatsRequest* request, wire::NodeGetVolumeStatsResponse* response) override;
  Status NodeExpandVolume(Context*, const wire::NodeExpandVolumeRequest* request, wire::NodeExpandVolumeResponse* response) override;
  Status NodeGetCapabilities(Context*, const wire::NodeGetCapabilitiesRequest* request, wire::NodeGetCapabilitiesResponse* response) override;
  Status NodeGetInfo(Context*, const wire::NodeGetInfoRequest* request, wire::NodeGetInfoResponse* response) override;

 private:
  const NodeOptions options_;
  Busy busy_;
};

}  // namespace fairlead::csi
