// SPDX-License-Identifier: Apache-2.0
// The HTTP face of the Registry: routing, authentication, discovery, OpenAPI v3, Tables, watches as chunked lines, protobuf request bodies, logs and exec by way of
// the agents. Never blocks a server thread: writes answer when they are durable, proxied streams run on threads of their own (bounded).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/admission.h"
#include "apiserver/auth_access.h"
#include "apiserver/audit.h"
#include "apiserver/limits.h"
#include "apiserver/registry.h"
#include "http/server.h"

namespace fairlead::apiserver {

struct HandlerOptions {
  std::vector<TokenUser> tokens;
  std::optional<TokenKeys> token_keys;  // of service accounts; none: they get no tokens
  TokenSite token_site;
  std::function<Result<User>(std::string_view token)> foreign_tokens;  // AccessOptions::foreign
  // What others serve at paths of their own, before anybody is asked who he is; it may block. False: not its path.
  std::function<bool(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange)> beside;
  // Asked of each verified client certificate; an error is Unauthorized.
  std::function<Result<void>(const http::Peer& peer)> check_peer;
  // Asked of what a node writes of its own Node, its status included, beside what holds for all nodes; an error is Forbidden. `old` is null where it registers.
  std::function<Result<void>(const User& user, const kube::Json* old, const kube::Json& next)> check_node;
  // What the site gives a new pod beside what its service account does; null: nothing. Asked in the write, after the account's defaults: it must not block.
  PodEquipment equip_pod;
  // Group of users whose watches last no longer than this, so that who is let in no more sees no more.
  std::pair<std::string, std::chrono::seconds> brief_watches;
  LimitOptions limits;
  std::shared_ptr<AuditLog> audit;      // none: nothing is recorded
  // How to reach agents for logs and exec: the server's client certificate, shown to https://<node InternalIP>:<kubelet port>.
  std::string ca_pem, client_certificate_pem, client_key_pem;
  std::string git_version = "v1.33.0+fairlead";  // what /version says: chooses kubectl's dispatch
};

class ApiHandler {
 public:
  static std::unique_ptr<ApiHandler> make(Registry& registry, const Clock& clock, HandlerOptions options);
  virtual ~ApiHandler() = default;  // as drain(); no handle() may run or come
  virtual void handle(http::Request request, std::shared_ptr<http::Exchange> exchange) = 0;
  // Ends all watches and proxies, answers new requests with 503 and waits (up to 3 s) for writes under way. Call before the http::Server goes.
  virtual void drain() = 0;
  // A TokenReview that the server itself asks (ReviewPort). NotFound: another kind.
  virtual Result<kube::Json> review(const kube::Resource& resource, const kube::Json& body) const = 0;
};

}  // namespace fairlead::apiserver
