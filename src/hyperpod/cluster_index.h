// SPDX-License-Identifier: Apache-2.0
// Which clusters there are, by name and by id: what is looked up at every call, kept fresh from the API's objects. Thread-safe; a look is O(log n), the list O(n) without decoding an object.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::hyperpod {

struct ClusterRow {
  kube::ObjectKey key;     // of a SlurmCluster, or, without a namespace, of a Cluster
  std::string name, id;  // id: the last part of its ARN
  std::string status;    // ClusterStatus
  Instant created;
};
// Of a Cluster what its status says. Else Creating until a configuration was in force once: a head that is away for a moment does not take that back. Failed while the resource cannot be carried out and never was.
std::string cluster_status(const kube::Json& cluster);
bool software_update_waits(const kube::Json& cluster);  // it was asked for and is not taken up yet

class ClusterIndex {
 public:
  void put(const kube::Json& cluster);
  void drop(const kube::ObjectKey& key);
  std::vector<ClusterRow> named(std::string_view name) const;  // one in each namespace at most
  std::optional<ClusterRow> with_id(std::string_view id) const;
  std::vector<ClusterRow> all() const;
  std::size_t in_space(std::string_view space) const;

 private:
  void forget(const kube::ObjectKey& key);
  mutable std::shared_mutex mutex_;
  std::map<kube::ObjectKey, ClusterRow> rows_;
  std::map<std::string, std::set<kube::ObjectKey>, std::less<>> by_name_;
  std::map<std::string, kube::ObjectKey, std::less<>> by_id_;
  std::map<std::string, std::size_t, std::less<>> spaces_;
};

}  // namespace fairlead::hyperpod
