// SPDX-License-Identifier: Apache-2.0
// The process that reaches a Ceph pool for its daemon (fairlead-rbd store, src/ceph). It is ended where it does not answer, and the next one has Ceph shut it out before anything else: what it had sent is not done later.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "blocks/words.h"

namespace fairlead::volumes {

struct CephPlace {
  std::string program;           // fairlead-rbd
  std::string conf, user, pool, space;
  std::string host;              // whose the pool is: stays the same for this machine
  bool take_over = false;        // from another one, which is dead; of the first start alone
  std::vector<std::string> arguments() const;  // of both kinds of processes
};

// Thread-safe.
class StoreProcess {
 public:
  // Conflict: the pool is another host's. Errors of the cluster.
  static Result<std::unique_ptr<StoreProcess>> start(CephPlace place);
  ~StoreProcess();  // ends it
  const std::string& pool_id() const { return id_; }
  const CephPlace& place() const { return place_; }
  // Unavailable: no sign of life for `limit`, or it has ended; whether it was done is not known, and the next question is asked of a new process. Blocks.
  Result<blocks::Words> ask(blocks::Words request, std::chrono::milliseconds limit = std::chrono::seconds(30));

 private:
  class Session;
  explicit StoreProcess(CephPlace place) : place_(std::move(place)) {}
  Result<std::shared_ptr<Session>> session();
  CephPlace place_;
  std::string id_;
  std::mutex mutex_;
  std::shared_ptr<Session> session_;
};

}  // namespace fairlead::volumes
