// SPDX-License-Identifier: Apache-2.0
// IMDSv2 as a function: a request to http://169.254.169.254 and what is known of this node in, the answer out. Source: docs.aws.amazon.com, EC2 user guide, "Use the Instance Metadata Service", "Instance metadata categories". docs/design/066-node-metadata.md.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "http/message.h"
#include "kube/json.h"

namespace fairlead::agent {

// Tokens of IMDSv2 without a state: a time of expiry and a MAC. What another key has made is none.
class MetadataTokens {
 public:
  explicit MetadataTokens(std::string key) : key_(std::move(key)) {}
  std::string make(Instant now, std::chrono::seconds life) const;
  bool good(std::string_view token, Instant now) const;

 private:
  const std::string key_;
};

// Which rules a request meets before anything is looked up. Pure.
enum class MetadataAsk { Refused, Token, Look };
struct MetadataQuestion {
  MetadataAsk ask = MetadataAsk::Refused;
  std::string path;          // of Look: below /latest/, without a slash at its end
  http::Response answer;     // of Refused and Token
};
// `own`: is this an address of the node itself, or of a pod that is to be answered as one? What comes from elsewhere, such as a pod's network, is refused whatever it asks.
MetadataQuestion read_metadata_question(const http::Request& request, bool own, const MetadataTokens& tokens, Instant now);

http::Response not_for_pods();

// What is known of the node. `document`: of the site (api/node_identity.h); nothing: it is no instance of a cluster.
struct NodeFacts {
  std::string name, address, address6, architecture;  // "arm64", "x86_64"
};
// All that is told, by path: "meta-data/instance-id" and so on.
std::map<std::string, std::string> metadata_tree(const NodeFacts& facts, const std::optional<kube::Json>& document, Instant now);
http::Response answer_metadata(const std::map<std::string, std::string>& tree, const std::string& path);

// Is this a document that the face sends? Its credentials, when there are any, have all of their members. Invalid: which is missing.
Result<void> check_document(const kube::Json& document);

}  // namespace fairlead::agent
