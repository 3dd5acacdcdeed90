// SPDX-License-Identifier: Apache-2.0
// Volumes and pools as anybody may have written them: read without harm, and what is taken holds what it says.
#include <cstdlib>

#include "api/volume.h"
#include "api/volume_host.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)api::ec2_id(text, "vol-");
  if (!api::is_volume_name(api::name_for(text, "vol-"))) std::abort();
  const auto json = kube::parse_json(text, {.depth_limit = 16});
  if (!json) return 0;
  if (const auto spec = api::read_volume(*json)) {
    if (spec->size < api::kLeastVolume || spec->size > api::kMostVolume || spec->size % (1 << 20) != 0 || !api::is_volume_name(spec->pool)) std::abort();
    // What is written again is the same.
    if (api::read_volume(api::new_volume(kube::name_of(*json), *spec)).value() != *spec) std::abort();
  }
  const auto pool = api::read_pool(*json);
  const auto chosen = api::choose_pool({pool}, {.size = api::kLeastVolume, .pools = {}, .node = {}}, Instant());
  if (chosen && pool.left() < api::kLeastVolume) std::abort();
  // A machine reads what is asked of it as it was asked.
  for (const auto& one : api::read_volume_host(*json).asked) {
    auto again = api::new_volume_host("p", "h", "");
    again.child("spec").set("volumes", kube::Json::array({api::to_json(one)}));
    if (api::read_volume_host(again).asked != std::vector{one}) std::abort();
  }
  return 0;
}
