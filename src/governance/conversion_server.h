// SPDX-License-Identifier: Apache-2.0
// The conversion webhook of Kueue's kinds by HTTPS (docs/design/027): POST /convert, a ConversionReview v1. It asks nobody and stores nothing, so every replica serves it, whoever leads. What it is sent is what it
// answers, so it asks nobody who he is.
#pragma once
#include <memory>
#include <string>

#include "base/clock.h"
#include "http/pki.h"
#include "http/server.h"
#include "kube/kube_api.h"

namespace fairlead::governance {

inline constexpr std::string_view conversion_path = "/convert";

http::Response answer_conversion_request(const http::Request& request);
// Listens until it is dropped. Port 0: any free one.
Result<std::unique_ptr<http::Server>> serve_conversion(const std::string& address, unsigned short port, const http::KeyPair& certificate);

// The authority that signs the webhook's certificates, in a Secret that all replicas share: ca.crt and ca.key. Made by the first; of several that begin at once one wins and the others take what it made.
// Invalid: the Secret is there and holds none.
Result<http::KeyPair> webhook_authority(kube::KubeApi& api, const kube::ObjectKey& secret, const Clock& clock);

}  // namespace fairlead::governance
