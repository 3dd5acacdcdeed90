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
// Hands on what was printed until now, in pieces of any size, each line with its time in front (RFC 3339, a space), until `take` wants no more (false). Blocks until then, `limit` at most. Thread-safe.
// NotFound: the pod is gone. Invalid: the container has printed nothing, since it has not begun. Unavailable: its node does not answer, or not in time; what was handed on is not all.
using PodLog = std::function<Result<void>(const Json& pod, const PodLogQuery& query, std::chrono::milliseconds limit, const std::function<bool(std::string_view piece)>& take)>;

PodLog pod_log_of(std::shared_ptr<RestApi> api);
// Reads such a body to its end. For adapters.
Result<void> hand_on(http::BodyReader& body, std::chrono::milliseconds limit, const std::function<bool(std::string_view piece)>& take);

}  // namespace fairlead::kube
