// SPDX-License-Identifier: Apache-2.0
// What the server allows a client, and the texts of its answers: pure functions and the limits they know.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "http/message.h"
#include "http/socket.h"

namespace fairlead::http {

constexpr std::uint32_t server_header_limit = 64 << 10;
constexpr std::size_t server_message_limit = 4 << 20;    // of a WebSocket
constexpr std::chrono::seconds body_time{60};            // to send us a body
constexpr std::chrono::seconds linger_time{2};           // for a goodbye
constexpr KeepAlive server_keep_alive{.idle = std::chrono::seconds(60), .every = std::chrono::seconds(15), .count = 4};

// How long a client may take to read an answer of this size: 60 s, and what 64 KiB a second need. Slower ones are cut.
std::chrono::seconds sending_time(std::size_t bytes);

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 section 5.6.7)
std::string http_date(Instant now);

// Status line and the handler's headers, without the empty line at the end. What the server decides itself (lengths, connection, date) is left out of theirs, and no value
// can begin a new line.
std::string answer_head(int status, std::string_view reason, const Headers& headers, Instant now);

// The lines of the header that say how the body is sent, and the empty line. Without a length: in chunks, or (HTTP/1.0) to the end of the connection.
enum class Body { Absent, Sized, Chunked, ToTheEnd };
std::string body_head(Body body, std::size_t bytes, bool keep_alive);

bool has_body(int status);  // not 1xx, 204, 304
std::size_t body_bytes(const Response& response);
// What is sent behind the header, in order; views into `response`.
std::vector<std::string_view> body_pieces(const Response& response);

// Why what came is not a request that we take.
enum class BadRequest { HeaderTooLarge, BodyTooLarge, Malformed };
Response refusal(BadRequest why, Bytes body_limit);
Response refusal(std::string why);  // 400

}  // namespace fairlead::http
