// SPDX-License-Identifier: Apache-2.0
#include "kube/pod_log.h"

#include <algorithm>

#include "http/client.h"
#include "kube/rest_client.h"

namespace fairlead::kube {

Result<void> hand_on(http::BodyReader& body, std::chrono::milliseconds limit, const std::function<bool(std::string_view piece)>& take) {
  const auto deadline = SystemClock{}.monotonic() + limit;
  if (!take({})) return {};  // the log is open, however long its first line takes
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SystemClock{}.monotonic());
    if (left.count() <= 0) return fail(Code::Unavailable, "its log was not read to its end in time");
    auto piece = body.read(left);
    if (!piece) return pass(std::move(piece.error()), "read the log");
    if (!*piece) continue;
    if ((*piece)->empty() || !take(**piece)) return {};
  }
}

PodLog pod_log_of(std::shared_ptr<RestApi> api) {
  return [api = std::move(api)](const Json& pod, const PodLogQuery& query, std::chrono::milliseconds limit, const std::function<bool(std::string_view)>& take) -> Result<void> {
    LogOptions options{.container = query.container, .follow = false, .previous = query.previous, .timestamps = true};
    // Counted on the node's clock: what is too early is left out by whoever asks.
    if (query.since) options.since_seconds = std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::seconds>(SystemClock{}.now() - *query.since).count() + 120);
    auto body = api->open_log(key_of(pod), options);
    // All of an apiserver's 500 and 503 are Unavailable. That it could not connect to a kubelet is said by Go's "dial tcp ADDRESS: ..." and by tunnels' "while dialing": only these speak of the node.
    if (!body && body.error().code == Code::Unavailable && body.error().message.find("dial") == std::string::npos) return fail(Code::Internal, std::move(body.error().message));
    if (!body) return std::unexpected(std::move(body.error()));
    return hand_on(**body, limit, take);
  };
}

}  // namespace fairlead::kube
