// SPDX-License-Identifier: Apache-2.0
#include "kube/many.h"

namespace fairlead::kube {
namespace {

Result<void> outcome_of(Result<Json> written) {
  if (!written) return std::unexpected(std::move(written.error()));
  return {};
}

}  // namespace

std::vector<Result<void>> create_all(KubeApi& api, const Resource& resource, std::vector<Json> objects) {
  if (auto* const many = dynamic_cast<ManyWrites*>(&api)) return many->create_all(resource, std::move(objects));
  std::vector<Result<void>> out;
  out.reserve(objects.size());
  for (const Json& object : objects) out.push_back(outcome_of(api.create(resource, object)));
  return out;
}

std::vector<Result<void>> post_all(KubeApi& api, const Resource& resource, const std::string& subresource, std::vector<Posting> postings) {
  if (auto* const many = dynamic_cast<ManyWrites*>(&api)) return many->post_all(resource, subresource, std::move(postings));
  std::vector<Result<void>> out;
  out.reserve(postings.size());
  for (const Posting& one : postings) out.push_back(outcome_of(api.post(resource, one.key, subresource, one.body)));
  return out;
}

}  // namespace fairlead::kube
