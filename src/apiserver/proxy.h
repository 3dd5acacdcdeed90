// SPDX-License-Identifier: Apache-2.0
// Logs, exec and attach by way of the node's agent: https://<node InternalIP>:<kubelet port>/containerLogs/..., /exec/... and /attach/... with the server's
// client certificate. Each session blocks on threads of its own, bounded; either side's end ends the session.
#pragma once
#include <memory>
#include <string>

#include "apiserver/api_handler.h"
#include "apiserver/local_api.h"
#include "apiserver/registry.h"
#include "http/client.h"
#include "http/server.h"
#include "kube/pod_log.h"

namespace fairlead::apiserver {

// The container that a request is about. Invalid with Kubernetes' words when it must be named, or is not there.
Result<std::string> choose_container(const kube::Json& pod, std::string_view asked);
// Where its agent listens. Unavailable: not bound to a node. NotFound: the node has no address yet.
Result<http::ClientOptions> agent_of(const Registry& registry, const kube::Json& pod, const HandlerOptions& options);
// The subprotocol to speak, best first: v5.channel.k8s.io, v4.channel.k8s.io; empty: none that we know.
std::string choose_subprotocol(std::string_view offered);

class Proxy {
 public:
  struct Limits {
    std::size_t sessions = 64;
    std::size_t window = 1 << 20;           // bytes on their way to a client
    std::size_t input_queue = 1 << 20;      // bytes on their way to a container, then its sender is slowed down
    std::size_t input_most = 64 << 20;      // and cut here
  };
  Proxy(const Registry& registry, const HandlerOptions& options) : Proxy(registry, options, Limits()) {}
  Proxy(const Registry& registry, const HandlerOptions& options, Limits limits);
  ~Proxy();  // as stop()
  void log(const http::Request& request, kube::Json pod, std::shared_ptr<http::Exchange> exchange);
  void exec(const http::Request& request, kube::Json pod, std::shared_ptr<http::Exchange> exchange);
  void attach(const http::Request& request, kube::Json pod, std::shared_ptr<http::Exchange> exchange);
  void stop();  // ends all sessions and waits for them

 private:
  class Session;
  struct Sessions;
  void join(std::string_view what, const http::Request& request, const kube::Json& pod, const std::string& container, std::shared_ptr<http::Exchange> exchange);
  void start(std::shared_ptr<Session> session, std::shared_ptr<http::Exchange> exchange, std::function<void()> work);

  const Registry& registry_;
  const HandlerOptions& options_;
  const Limits limits_;
  std::shared_ptr<Sessions> sessions_;
};

// Exec for the in-process API: the same way, to the end, with captured output. `registry` must outlive it.
ExecPort make_agent_exec(const Registry& registry, HandlerOptions options);
// The same for what containers have printed.
kube::PodLog make_agent_log(const Registry& registry, HandlerOptions options);

}  // namespace fairlead::apiserver
