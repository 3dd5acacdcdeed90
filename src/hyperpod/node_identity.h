// SPDX-License-Identifier: Apache-2.0
// Which instance a node is, and the role that its processes have: what a node's metadata service tells them. docs/design/066-node-metadata.md.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "http/message.h"
#include "hyperpod/aws_error.h"
#include "hyperpod/directory.h"
#include "hyperpod/session_token.h"
#include "kube/cache.h"

namespace fairlead::hyperpod {

// Instances by the node that they have. Thread-safe.
class NodeIndex {
 public:
  void follow(const kube::Change& change);  // of an Instance
  // Nothing: there is none, or more than one says so, and nobody knows whose the node is.
  std::optional<std::string> instance_on(const std::string& node) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::set<std::string>, std::less<>> by_node_;
};

// The name of the node whose verified certificate this is; empty: it is none's.
std::string node_of(const http::Peer& peer);

struct NodeDocument {
  kube::Json body;
  std::string arn, user_id;  // of the session that it holds; empty: none
};
// api::node_identity::document_path. ResourceNotFoundException (404): no instance has this node.
Answer<NodeDocument> node_document(const std::string& node, const NodeIndex& index, const kube::Reader& instances, const kube::Reader& clusters, const Directory& directory, const SessionSeal& seal, Instant now);

}  // namespace fairlead::hyperpod
