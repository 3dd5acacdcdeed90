// SPDX-License-Identifier: Apache-2.0
// One command's connection to the site's API: kinds by the names people type, requests as JSON, errors as sentences.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "kube/kubeconfig.h"
#include "kube/object.h"
#include "kube/rest_client.h"

namespace fairlead::cli {

struct ApiKind {
  kube::Resource resource;
  std::string singular;
  std::vector<std::string> short_names, categories;
};

class Session {
 public:
  // Does not connect yet.
  static Result<Session> open(kube::Kubeconfig config);

  // Any answer below 300, as JSON. Errors carry the API's own message and code; Unavailable: nobody answers.
  Result<kube::Json> request(const std::string& method, const std::string& target, const kube::Json& body = {}, const std::string& content_type = "application/json",
                             const std::string& accept = "application/json");
  kube::RestApi& api() { return *api_; }
  const std::string& server() const { return server_; }
  const std::string& default_namespace() const { return namespace_; }

  // "pods", "pod", "po", "machines.fairlead.dev", "SlurmCluster". NotFound: with what to do.
  Result<ApiKind> find_kind(const std::string& text);
  Result<ApiKind> find_kind(const std::string& api_version, const std::string& kind);
  Result<std::vector<ApiKind>> kinds();

  Result<kube::Json> get(const kube::Resource& resource, const std::string& space, const std::string& name);
  Result<std::vector<kube::Json>> list(const kube::Resource& resource, const std::string& space = "", const std::string& label_selector = "");
  // Of all namespaces, or of our own where we may not look into others.
  Result<std::vector<kube::Json>> list_visible(const kube::Resource& resource, const std::string& label_selector = "");

 private:
  std::shared_ptr<kube::RestApi> api_;
  std::string server_, namespace_ = "default";
  std::vector<ApiKind> kinds_;
};

// By the names people type; pure.
const ApiKind* match_kind(const std::vector<ApiKind>& kinds, const std::string& text);
// From aggregated discovery (apidiscovery.k8s.io/v2).
std::vector<ApiKind> parse_discovery(const kube::Json& list);

}  // namespace fairlead::cli
