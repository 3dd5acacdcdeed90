// SPDX-License-Identifier: Apache-2.0
// The port to what a container has printed, as pods/log of a Kubernetes API gives it. Adapters: pod_log_of (rest_client), apiserver::make_agent_log (in process).
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::http {
class BodyReader;
}

namespace fairlead::kube {

class RestApi;

struct PodLogQuery {
  std::string container;
  bool previous = false;         // of the run before the last restart
  std::optional<Instant> since;  // lines from then on; some before it may come, too
};
// Hands on what was printed until now, in pieces of any size (the first may be empty: the log is open), each line with its time in front (RFC 3339, a space), until `take` wants no more (false). Blocks until then, `limit` at most. Thread-safe.
// NotFound: the pod is gone. Invalid: the container has not begun, or the run before is not kept. Unavailable before any piece: its node cannot be reached. Any other error, also Unavailable after a piece (it was not read to its end in time): this log cannot be read now, which says nothing of others.
using PodLog = std::function<Result<void>(const Json& pod, const PodLogQuery& query, std::chrono::milliseconds limit, const std::function<bool(std::string_view piece)>& take)>;

PodLog pod_log_of(std::shared_ptr<RestApi> api);
// Reads such a body to its end. For adapters.
Result<void> hand_on(http::BodyReader& body, std::chrono::milliseconds limit, const std::function<bool(std::string_view piece)>& take);

}  // namespace fairlead::kube
