// SPDX-License-Identifier: Apache-2.0
// What would be sent, for people who look before they send.
#pragma once
#include "notify/plan/event.h"
#include "notify/plan/topic.h"

namespace fairlead::notify {

// An event that says of itself that it is a test. `id`: 32 hex digits.
Event test_event(const std::string& space, const std::string& id, Instant now);

// [{target, kind, problem} or {target, kind, headers: [[name, value]...], body}], in the topic's order. No secret is read: signatures are left out.
kube::Json preview(const Topic& topic, const Event& event, Instant now);

}  // namespace fairlead::notify
