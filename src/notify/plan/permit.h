// SPDX-License-Identifier: Apache-2.0
// Which Secrets a NotificationTopic may use, and for which host. Who writes topics may not be one who reads Secrets: the server reads for them only what its owner has set apart. Pure.
#pragma once
#include <string>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::notify {

inline constexpr const char* kMeantFor = "fairlead.dev/notifications";  // label of a Secret; "true": topics of its namespace may use it
inline constexpr const char* kOnlyHost = "fairlead.dev/host";           // annotation of a Secret: the one host that what it holds, or what it signs, is sent to

// Forbidden: the label is not there. The sentence has the command that sets it. Nothing of data is looked at.
Result<void> meant_for_notifications(const kube::Json& secret);

// Forbidden: the Secret names another host. `host`: a name or an address without brackets, as it is connected to; empty (it is not known) is another.
Result<void> meant_for_host(const kube::Json& secret, const std::string& host);

}  // namespace fairlead::notify
