// SPDX-License-Identifier: Apache-2.0
// What TLS we speak, and to whom: 1.2 and 1.3, no resumption, http/1.1. Private to the two Beast files, as wire.h.
#pragma once
#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "http/client.h"
#include "http/server.h"

namespace fairlead::http {

// Invalid: a file that does not hold what it should, with its name.
Result<boost::asio::ssl::context> make_server_tls(const TlsFiles& files);
// Invalid: certificates or key of the options.
Result<std::shared_ptr<boost::asio::ssl::context>> make_client_tls(const ClientOptions& options);

// For the handshake of a client: the name or address that the server's certificate must be for. Invalid: OpenSSL takes it for neither.
Result<void> expect_server(SSL* tls, const std::string& name);

// After the handshake of a client: has the server exactly this key? Unavailable: it has another, which is told; nothing has been sent to it.
Result<void> check_server_key(SSL* tls, const std::string& fingerprint);

// After the handshake of a server: who the client is by its certificate. Names stay empty if none was shown, or one with several common names.
void read_peer_name(SSL* tls, Peer& peer);

}  // namespace fairlead::http
