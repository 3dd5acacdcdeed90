// SPDX-License-Identifier: Apache-2.0
// OpenAPI v3 from the type table and the CRDs' schemas: one document per group version, for kubectl's create, apply, edit and explain.
// Descriptions are those of CRDs only: the type table holds names and numbers.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apiserver/discovery.h"
#include "apiserver/registry.h"
#include "http/message.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// The document of one group version. Pure.
kube::Json open_api_document(const KindTable& table, const GroupVersion& group_version);
// "io.k8s.api.core.v1.Pod"; of a CRD "dev.fairlead.v1alpha1.Machine".
std::string schema_name(const Kind& kind);

// Documents as bytes, made when first asked for and kept until their kinds change. Thread-safe.
class OpenApi {
 public:
  struct Document {
    std::string hash;  // hex; also the ETag
    http::Buffer bytes;
  };
  // {"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=..."}}}
  http::Buffer index(const KindTable& table);
  std::optional<Document> document(const KindTable& table, const GroupVersion& group_version);  // empty: not served

 private:
  struct Cached {
    std::vector<std::shared_ptr<const Kind>> kinds;
    Document document;
  };
  Document document_locked(const KindTable& table, const GroupVersion& group_version);
  std::mutex mutex_;
  std::map<GroupVersion, Cached> cached_;
};

}  // namespace fairlead::apiserver
