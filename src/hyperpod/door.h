// SPDX-License-Identifier: Apache-2.0
// Serves the AWS face by HTTPS: keeps what it needs of the API's objects fresh, and answers on threads of its own, since what is asked for may be written.
//   ConfigMap fairlead-aws: account, region, endpoint, ca.crt (what `fairlead aws env` needs), pod-endpoint (how pods reach it)
// What it asks of the API stands in api::identities::aws_access.
//   Secret fairlead-aws-sessions: current, previous: keys of session tokens, 32 bytes each; made by the first server
//   Secret fairlead-aws-webhook: path: 32 bytes, of which the path is made where a kube-apiserver asks about pods
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "http/pki.h"
#include "http/server.h"
#include "hyperpod/eks.h"
#include "hyperpod/eks_token.h"
#include "hyperpod/operations.h"
#include "hyperpod/pod_credentials.h"
#include "kube/cache.h"
#include "kube/pod_log.h"

namespace fairlead::hyperpod {

struct DoorOptions {
  std::string address = "127.0.0.1";
  unsigned short port = 0;              // 0: any free one
  http::KeyPair certificate, authority; // of the second only the certificate is used: clients are told whom to believe
  std::string endpoint;                 // how clients reach it; empty: https://ADDRESS:PORT
  std::string pod_host;                 // at which pods reach it, on the port that is listened at ("10.77.1.1"); empty: as `endpoint` says
  std::string space = api::identities::default_space;
  std::string account, region;          // empty: as the ConfigMap says; where there is none yet, an account of twelve random digits and fairlead-1
  Names names = Names::AsInAws;
  int workers = 16;                     // calls at once; each waits for the API behind it
  EksCluster eks;                       // the Kubernetes that this server works with
  // How a kube-apiserver asks about new pods; null: it does not, the engine calls `plan_pod` itself.
  struct PodHook {
    std::string service;                // in `space`, at 443; empty: at `endpoint`
  };
  std::optional<PodHook> pod_hook;
  kube::PodLog logs;                    // of containers; null: CloudWatch Logs has no lines
  // Nodes prove by client certificates of these authorities who they are, and are told of their instance (node_identity.h); empty: they are not. `check_node`: why a certificate that verifies counts no more.
  std::string node_ca_pem = {};
  std::function<Result<void>(const http::Peer&)> check_node = {};
  ReadObject read_object = {};          // of S3; null: it is not served
  std::shared_ptr<const api::Alarms> alarms = nullptr;  // by which updates of software are rolled back; null: there are none
  FrontOptions front;
};

// The site's account and region: of the ConfigMap, made where it is not there. Conflict: `account` or `region` are given and are not those that the site has; all ARNs would change.
Result<Site> settle_site(kube::KubeApi& api, const DoorOptions& options);
// The keys of session tokens, made where there are none; a Secret that is changed later is followed.
Result<SessionSeal> settle_sessions(kube::KubeApi& api, const std::string& space);

// What stands behind Front::pod_review_path, made where there is none; in hex.
Result<std::string> settle_pod_secret(kube::KubeApi& api, const std::string& space);
// The MutatingWebhookConfiguration, made or brought up to date; what others have put beside its webhooks (labels) stays.
Result<void> settle_pod_webhook(kube::KubeApi& api, const PodWebhook& webhook);

class Door {
 public:
  // Unavailable: the port is taken. `api` must outlive it.
  static Result<std::unique_ptr<Door>> open(kube::KubeApi& api, const Clock& clock, DoorOptions options);
  ~Door();
  unsigned short port() const { return server_->port(); }
  const Site& site() const { return directory_.site(); }
  // Of a token of `aws eks get-token`; an error: it is none, or lets nobody in.
  Answer<KubernetesUser> kubernetes_user_of(std::string_view token) const { return front_.kubernetes_user_of(token); }
  // On a further address (the fabric's, once it is there), which the certificate has. Nothing to do where all addresses are listened at.
  Result<void> also_listen(const std::string& address) { return everywhere() ? Result<void>() : server_->also_listen(address, port()); }
  // What pods that are made get to find this site. Any thread.
  PodSite pod_site() const;

 private:
  Door(kube::KubeApi& api, const Clock& clock, DoorOptions options, Site site, SessionSeal seal, Model model);
  Sources sources_of(kube::KubeApi& api) const;
  void work(std::stop_token stop);
  void take(http::Request request, std::shared_ptr<http::Exchange> exchange);
  FrontOptions front_options(kube::KubeApi& api, const Clock& clock);
  void follow_secret(const kube::Change& change);
  bool known() const { return identities_.synced() && policies_.synced() && keys_.synced() && clusters_.synced() && nodes_.synced() && made_.synced() && instances_.synced(); }
  Result<void> publish(kube::KubeApi& api) const;
  std::string own_endpoint() const;
  bool everywhere() const { return options_.address == "0.0.0.0" || options_.address == "::"; }

  struct Job {
    http::Request request;
    std::shared_ptr<http::Exchange> exchange;
  };
  const DoorOptions options_;
  std::atomic<int> port_ = 0;  // 0: not listened at yet
  Model model_;
  SessionSeal seal_;
  Directory directory_;
  ClusterIndex index_;
  NodeIndex node_index_;
  kube::Informer clusters_, nodes_, made_, instances_, identities_, policies_, keys_;
  Front front_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> waiting_;
  std::vector<std::jthread> workers_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace fairlead::hyperpod
