// SPDX-License-Identifier: Apache-2.0
// What the client sends and what it makes of answers: pure functions and the limits they know.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/client.h"
#include "http/proxy.h"
#include "http/socket.h"

namespace fairlead::http {

constexpr std::uint32_t client_header_limit = 256 << 10;
constexpr std::uint64_t client_body_limit = 1ull << 30;       // of request(); what is read piece by piece has none
constexpr std::size_t client_message_limit = 64 << 20;        // of a WebSocket
constexpr std::chrono::seconds kept_for{60};                  // shorter than any server's idle time, so a kept connection is rarely found closed
constexpr std::chrono::seconds goodbye_time{2};
constexpr KeepAlive client_keep_alive{.idle = std::chrono::seconds(30), .every = std::chrono::seconds(10), .count = 3};

// "host:6443", "[2001:db8::1]:6443", or the socket's path.
std::string where(const ClientOptions& options);
std::string host_header(const ClientOptions& options);

// Request line and header, body not included. Invalid: a target, method or header that would end its line.
Result<std::string> request_head(const ClientOptions& options, const ClientRequest& request);

// What a caller does about an answer that is not the one asked for.
Code code_of_status(unsigned status);

// Asking a proxy for a connection (RFC 9110 section 9.3.6), and its answer up to and with the empty line. Unavailable: it refuses, or is no proxy.
std::string connect_head(const Proxy& proxy, const std::string& server);
Result<void> check_connect_answer(const Proxy& proxy, const std::string& server, std::string_view answer);
std::string name_of(const Proxy& proxy);  // for messages: no password

}  // namespace fairlead::http
