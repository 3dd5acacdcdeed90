// SPDX-License-Identifier: Apache-2.0
// The embedded engine as one value: state folder, certificates, store, registry and HTTPS server, put together in order and taken down in reverse.
//   STATE/pki/   ca.crt ca.key server.crt server.key agent-client.crt agent-client.key secrets.key admin.kubeconfig   (0700, keys 0600)
//                tokens.key signs tokens of service accounts; tokens-old/*.pem only verify them (move the key there to make a new one at the next start)
//                root.json where a root key holds them (root_key.h)
//   STATE/store.db
//   STATE/run/   server.lock (held while it runs)
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apiserver/api_handler.h"
#include "apiserver/local_api.h"
#include "apiserver/registry.h"
#include "apiserver/root_key.h"
#include "apiserver/store/store.h"
#include "base/clock.h"
#include "base/fd.h"
#include "http/pki.h"
#include "http/server.h"
#include "kube/pod_log.h"

namespace fairlead::apiserver {

struct EmbeddedOptions {
  std::string state_dir = "/var/lib/fairlead";  // absolute
  std::string address = "127.0.0.1";
  unsigned short port = 6443;                   // 0: any free one
  std::vector<std::string> names;               // further names and addresses of this server (its address in the fabric): in its certificate
  std::vector<TokenUser> tokens;
  std::function<Result<User>(std::string_view token)> foreign_tokens;  // bearer tokens of others (AccessOptions::foreign)
  std::function<bool(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange)> beside;  // HandlerOptions::beside
  std::function<Result<void>(const http::Peer& peer)> check_peer;                                            // HandlerOptions::check_peer
  std::function<Result<void>(const User& user, const kube::Json* old, const kube::Json& next)> check_node;  // HandlerOptions::check_node
  PodEquipment equip_pod;                                                                                  // HandlerOptions::equip_pod
  std::pair<std::string, std::chrono::seconds> brief_watches;                                              // HandlerOptions::brief_watches
  LimitOptions limits;
  AuditOptions audit;                           // no path: no log
  std::shared_ptr<RootKey> root_key, old_root_key;  // what the keys of the folder are under, and were (KeyFolder::open); nullptr: nothing
  int threads = 2;
  std::vector<std::string> service_ranges;      // of service addresses, one of each family; empty: services are headless
};

class EmbeddedServer {
 public:
  // Makes what is missing on the first start. Unavailable: another server runs on this state folder, or the port is taken (the message says which).
  // Invalid: the folder holds a store without its keys.
  static Result<std::unique_ptr<EmbeddedServer>> start(EmbeddedOptions options, const Clock& clock);
  ~EmbeddedServer();  // ends connections, watches and proxies, then the store

  Registry& registry() { return *registry_; }
  // For controllers in this process; exec goes through agents.
  kube::KubeApi& api() { return *api_; }
  const kube::PodLog& logs() const { return logs_; }  // of containers, through agents
  unsigned short port() const { return server_->port(); }
  // The same API on a further address (the fabric's, once it is there). The address must be in `names`.
  Result<void> also_listen(const std::string& address) { return server_->also_listen(address, port()); }
  const std::string& ca_pem() const { return ca_.certificate_pem; }
  Result<http::KeyPair> issue(const http::CertificateRequest& request) const;
  Result<std::string> sign(const std::string& signing_request, const http::CertificateRequest& request) const;  // for the key of a signing request (http/pki.h)
  std::string admin_kubeconfig() const { return options_.state_dir + "/pki/admin.kubeconfig"; }

 private:
  EmbeddedServer(EmbeddedOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  Result<void> lock();
  Result<void> make_keys();
  Result<void> make_token_keys();
  Result<void> serve();
  Result<void> write_admin();
  std::string path(std::string_view name) const { return options_.state_dir + "/" + std::string(name); }

  EmbeddedOptions options_;
  const Clock& clock_;
  Fd lock_;
  http::KeyPair ca_, agent_client_;
  std::optional<KeyFolder> keys_;
  std::string secret_key_;
  std::optional<TokenKeys> token_keys_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<kube::KubeApi> api_;
  kube::PodLog logs_;
  std::unique_ptr<ApiHandler> handler_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace fairlead::apiserver
