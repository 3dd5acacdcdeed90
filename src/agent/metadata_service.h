// SPDX-License-Identifier: Apache-2.0
// The metadata service of a node, for its own processes and pods with hostNetwork: answers by agent/metadata.h, out of the document that the site's AWS face has of the node. docs/design/066-node-metadata.md.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "agent/face_client.h"
#include "agent/metadata.h"
#include "api/node_identity.h"
#include "base/clock.h"

namespace fairlead::agent {

struct MetadataServiceOptions {
  std::string address = api::node_identity::metadata_host;
  unsigned short port = 80;             // 0: any free one
  NodeFacts facts;
  std::set<std::string> own;            // addresses by which the node's processes come, beside `address` and 127.0.0.1
  std::function<std::string(const std::string& address)> slurm_cluster_of{};  // "NAMESPACE/NAME" of the Slurm cluster whose node the pod with this address is; empty, or none given: no such pod. It is answered if the instance is of that cluster
  FaceClient::Find find_face;
  std::chrono::milliseconds patience{800};  // of a question, while the face is asked: SDKs wait a second
  FaceClient::Certificate certificate;  // of the node
};

class MetadataService {
 public:
  // Unavailable: the port is taken. The address has to be there.
  static Result<std::unique_ptr<MetadataService>> start(const Clock& clock, MetadataServiceOptions options);
  virtual ~MetadataService() = default;
  virtual unsigned short port() const = 0;
};

}  // namespace fairlead::agent
