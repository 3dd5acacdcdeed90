// SPDX-License-Identifier: Apache-2.0
// A decision log with anything in it: it is refused or replayed, and never stops the program.
#include <string>
#include <string_view>

#include "governance/replay/decision_replay.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::governance;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)replay_decisions(text);
  // Behind lines that are right, so that more than the reader is reached.
  std::string log =
      "{\"log\":\"fairlead decisions\",\"version\":1,\"at\":\"2026-11-23T00:00:00Z\"}\n"
      "{\"e\":\"config\",\"revision\":1,\"spec\":{\"fair\":true,\"nodes\":[{\"name\":\"a\",\"parent\":\"pool\",\"leaf\":true,\"weight\":1,\"quotas\":[[\"f\",\"cpu\",4,9223372036854775807,9223372036854775807]]},"
      "{\"name\":\"b\",\"parent\":\"pool\",\"leaf\":true,\"weight\":2,\"quotas\":[[\"f\",\"cpu\",2,3,9223372036854775807]]}],"
      "\"queues\":[{\"name\":\"a\",\"within\":\"LowerPriority\",\"reclaim\":\"Any\",\"groups\":[{\"resources\":[\"cpu\"],\"flavors\":[\"f\"]}]},{\"name\":\"b\",\"within\":\"Never\",\"reclaim\":\"Any\",\"groups\":[{\"resources\":[\"cpu\"],\"flavors\":[\"f\"]}]}]}}\n"
      "{\"e\":\"class\",\"id\":0,\"class\":{\"queue\":\"a\",\"priority\":0,\"podSets\":[{\"total\":[[\"cpu\",2]],\"barred\":[]}]}}\n"
      "{\"e\":\"class\",\"id\":1,\"class\":{\"queue\":\"b\",\"priority\":1,\"podSets\":[{\"total\":[[\"cpu\",3]],\"barred\":[]}]}}\n"
      "{\"e\":\"adopt\",\"job\":0,\"class\":1,\"uid\":\"00000000000000000000000000000001\",\"created\":1,\"workload\":\"x/y\",\"flavors\":[[\"f\"]],\"as\":\"Running\"}\n"
      "{\"e\":\"submit\",\"job\":1,\"class\":0,\"uid\":\"00000000000000000000000000000002\",\"created\":2,\"workload\":\"x/z\"}\n";
  log += text;
  log += '\n';
  (void)replay_decisions(log);
  return 0;
}
