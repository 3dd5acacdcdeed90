// SPDX-License-Identifier: Apache-2.0
// What a Prometheus answers, whatever it is, becomes alarms or an error: each that was asked for, in printable words.
#include <cstdlib>

#include "fleet/prometheus.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string> names{"HighLatency", "NodeDown"};
  const auto alarms = fleet::read_alert_rules({reinterpret_cast<const char*>(data), size}, names, *parse_time("2026-11-27T06:00:00Z"));
  if (!alarms) return 0;
  if (alarms->size() != names.size()) std::abort();
  for (const auto& [name, alarm] : *alarms)
    for (const char c : alarm.message)
      if (c < ' ' || c >= 0x7f) std::abort();
  return 0;
}
