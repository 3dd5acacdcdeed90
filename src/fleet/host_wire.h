// SPDX-License-Identifier: Apache-2.0
// What fairlead-server and the root helper fairlead-machines say to each other, as text and as values. Pure. Everything that comes in is checked here, since the helper is root and
// its caller is not: names are labels, seats are those of the ranges, sizes are bounded.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "fleet/local_host.h"

namespace fairlead::fleet {

// What the helper must know of the site beside what stands on its command line; comes with each request, so that neither side keeps what the other may have forgotten.
struct SiteFacts {
  std::string node_range, pod_range;  // as parse_ranges takes them
  unsigned short api_port = 6443;
  std::string ca_pem;
  friend bool operator==(const SiteFacts&, const SiteFacts&) = default;
};

enum class HostCall { Ready, Observe, Start, Connect, SetLink, Kill, Stop, Remove, Watch };

struct HostRequest {
  HostCall call = HostCall::Ready;
  SiteFacts site;
  api::Machine machine;  // name and seat; for Start the spec too
  api::Link link = api::Link::Connected;
  std::chrono::milliseconds grace{0};
};
std::string print_request(const HostRequest& request);
// Invalid: which field, and why.
Result<HostRequest> parse_request(std::string_view text);

// The answer to a call. `observation.process` is what Start gives.
std::string print_answer(const Result<Observation>& answer);
Result<Observation> parse_answer(std::string_view text);

inline constexpr std::size_t kLargestPacket = 128 * 1024;

}  // namespace fairlead::fleet
