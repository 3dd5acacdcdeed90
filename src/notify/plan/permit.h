// SPDX-License-Identifier: Apache-2.0
// Which Secrets a NotificationTopic may use, and for which host. Who writes topics may not be one who reads Secrets: the server reads for them only what its owner has set apart. Pure.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::notify {

inline constexpr const char* kMeantFor = "fairlead.dev/notifications";  // label of a Secret; "true": topics of its namespace may use it
inline constexpr const char* kOnlyHost = "fairlead.dev/host";           // annotation of a Secret: the one host that what it holds, or what it signs, is sent to

// Forbidden: the label is not there. The sentence has the command that sets it. Nothing of data is looked at.
Result<void> meant_for_notifications(const kube::Json& secret);

// Forbidden: the Secret names another host. `host`: a name or an address without brackets, as it is connected to; empty (it is not known) is another.
Result<void> meant_for_host(const kube::Json& secret, const std::string& host);

// Whether a channel may connect to this address, which its host has at this moment. Forbidden: this machine and its links (loopback, link-local with the metadata services of clouds,
// "any", many at once), also where an IPv6 address only wraps such an IPv4 one (mapped, NAT64, 6to4); and what is no address.
Result<void> may_connect(std::string_view address);

}  // namespace fairlead::notify
