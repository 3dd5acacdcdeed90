// SPDX-License-Identifier: Apache-2.0
// A server whose certificate and key are in no file system: the root of a pod is read-only, and keys are nobody else's.
#pragma once
#include <memory>

#include "http/pki.h"
#include "http/server.h"

namespace fairlead::http {

// As Server::start, by HTTPS with this certificate; `options.tls` is set here. `client_ca_pem`: client certificates are asked for and, if shown, those of these authorities tell who it is (others: nobody); empty: none are asked for.
Result<std::unique_ptr<Server>> serve_with_certificate(ServerOptions options, const KeyPair& certificate, Handler handler, const std::string& client_ca_pem = {});

}  // namespace fairlead::http
