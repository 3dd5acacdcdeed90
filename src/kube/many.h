// SPDX-License-Identifier: Apache-2.0
// Many writes of one kind at once. They must not build on each other; what comes of them is not handed back.
#pragma once
#include <string>
#include <vector>

#include "kube/kube_api.h"

namespace fairlead::kube {

struct Posting {
  ObjectKey key;
  Json body;
};

// What a KubeApi is, too, that can have many writes under way and make them durable together.
class ManyWrites {
 public:
  virtual ~ManyWrites() = default;
  virtual std::vector<Result<void>> create_all(const Resource& resource, std::vector<Json> objects) = 0;
  virtual std::vector<Result<void>> post_all(const Resource& resource, const std::string& subresource, std::vector<Posting> postings) = 0;
};

// One answer for each, in their order. On an API that is no ManyWrites: one after the other.
std::vector<Result<void>> create_all(KubeApi& api, const Resource& resource, std::vector<Json> objects);
std::vector<Result<void>> post_all(KubeApi& api, const Resource& resource, const std::string& subresource, std::vector<Posting> postings);

}  // namespace fairlead::kube
