// SPDX-License-Identifier: Apache-2.0
// What the API server asks of a node: logs, exec and attach of its containers, its pods, health, usage. Who may ask is the business of `Allow`.
#pragma once
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "http/server.h"
#include "node/runtime.h"

namespace fairlead::node {

class PodAccess {
 public:
  // Whether this peer, whose certificate the site's authority has signed, may ask. May block; called on a session's thread.
  using Allow = std::function<bool(const http::Peer&)>;
  PodAccess(Runtime& runtime, const Clock& clock, std::string node_name, Allow allow = {});
  ~PodAccess();  // ends all sessions
  // For http::Server. Sessions run on threads of their own, at most 128.
  void handle(http::Request request, std::shared_ptr<http::Exchange> exchange);

 private:
  struct Found {
    PodOnNode pod;
    std::string container;
  };
  Result<Found> find(const http::Request& request);
  void logs(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange, const std::stop_token& stop);
  void exec(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange, const std::stop_token& stop);
  void attach(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange, const std::stop_token& stop);
  std::string pods();
  std::string usage();
  bool start(std::function<void(const std::stop_token&)> session);

  Runtime& runtime_;
  const Clock& clock_;
  const std::string node_name_;
  const Allow allow_;
  struct Session {
    std::jthread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  std::mutex mutex_;
  std::list<Session> sessions_;  // under mutex_
};

}  // namespace fairlead::node
