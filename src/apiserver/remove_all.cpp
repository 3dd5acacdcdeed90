// SPDX-License-Identifier: Apache-2.0
#include "apiserver/remove_all.h"

namespace fairlead::apiserver {

Result<std::size_t> remove_all(kube::KubeApi& api, const kube::Resource& resource, const std::string& space) {
  constexpr std::int64_t page_size = 500;
  std::size_t seen = 0;
  kube::ListOptions page{.limit = page_size};
  do {
    auto list = api.list(resource, space, page);
    if (!list && list.error().code == Code::Expired) return seen + 1;  // too slow for one snapshot: come again
    if (!list) return pass(std::move(list.error()), "list " + resource.plural);
    for (const kube::Json& object : list->items) {
      ++seen;
      if (kube::deleting(object)) continue;
      auto removed = api.remove(resource, kube::key_of(object), {.uid = kube::uid_of(object)});
      const bool gone = removed || removed.error().code == Code::NotFound || removed.error().code == Code::Conflict;
      if (!gone) return pass(std::move(removed.error()), "delete " + resource.plural + " " + kube::key_of(object).text());
    }
    page.continue_token = list->continue_token;
  } while (!page.continue_token.empty());
  return seen;
}

}  // namespace fairlead::apiserver
