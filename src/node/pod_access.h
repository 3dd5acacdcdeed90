// SPDX-License-Identifier: Apache-2.0
// What the API server asks of a node: logs and exec of its containers, health, usage. Only the server's certificate is let in.
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
  PodAccess(Runtime& runtime, const Clock& clock, std::string node_name);
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
  std::string usage();
  bool start(std::function<void(const std::stop_token&)> session);

  Runtime& runtime_;
  const Clock& clock_;
  const std::string node_name_;
  struct Session {
    std::jthread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  std::mutex mutex_;
  std::list<Session> sessions_;  // under mutex_
};

}  // namespace fairlead::node
