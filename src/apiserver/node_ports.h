// SPDX-License-Identifier: Apache-2.0
// Which Service has which node port. As ServiceAddresses, which owns it: in memory, a port that a write is about to use is held for it.
#pragma once
#include <map>
#include <set>
#include <string>

#include "apiserver/validation.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// One owner; not thread-safe.
class NodePorts {
 public:
  static constexpr int first = 30000, last = 32767;
  // Fills in the node ports of a service whose type has them, and takes away those of a type that has them no more. An update that leaves them out keeps them, by the ports' names.
  void assign(kube::Json& spec, const kube::Json* old, const std::string& uid, FieldErrors& errors);
  // What is stored of this service from now on: other ports that it had are free.
  void note(const std::string& uid, const kube::Json& spec);
  void drop(const std::string& uid);
  std::size_t held() const { return holders_.size(); }

 private:
  int take(const std::string& uid);  // 0: all are taken
  // What refuses it; empty: it is held for this service now.
  std::string hold(std::int64_t port, const std::string& uid);
  std::map<int, std::string> holders_;            // uid by port
  std::map<std::string, std::set<int>> stored_;  // by uid
  int next_ = first + static_band;
  static constexpr int static_band = 86;  // left for ports that users choose, as Kubernetes does
};

}  // namespace fairlead::apiserver
