// SPDX-License-Identifier: Apache-2.0
// The conversion webhook of one replica on a cluster: its authority from the Secret that all replicas share, a certificate of its own, and the port. Tried again until the cluster's API answers.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "api/queue_crds.h"
#include "governance/conversion_server.h"

namespace fairlead::governance {

class ConversionPoint {
 public:
  struct Options {
    std::string address;         // where it listens
    unsigned short port = 0;
    std::string service;         // by which the cluster reaches it, in `secret.space`; empty: at `address` itself
    kube::ObjectKey secret;
  };
  ConversionPoint(kube::KubeApi& api, const Clock& clock, Options options);
  ~ConversionPoint();
  // Where it is, once it serves; nullopt: not within `limit`.
  std::optional<api::QueueWebhook> where(std::chrono::milliseconds limit);

 private:
  Result<api::QueueWebhook> serve();

  kube::KubeApi& api_;
  const Clock& clock_;
  const Options options_;
  std::mutex mutex_;  // guards the following
  std::condition_variable_any changed_;
  std::optional<api::QueueWebhook> where_;
  std::unique_ptr<http::Server> server_;
  std::jthread thread_;
};

}  // namespace fairlead::governance
