// SPDX-License-Identifier: Apache-2.0
// An event in the forms that receivers know. Pure: equal arguments give equal bytes, so that a second attempt is the first one again.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "notify/plan/event.h"
#include "notify/plan/topic.h"

namespace fairlead::notify {

using HeaderLines = std::vector<std::pair<std::string, std::string>>;

struct Post {
  HeaderLines headers;  // with Content-Type
  std::string body;
};
// The headers of https://www.standardwebhooks.com, for which there are libraries in every language: webhook-id (the event's), webhook-timestamp (seconds; of this
// attempt), webhook-signature: "v1," and base64 of HMAC-SHA256 over "ID.TIMESTAMP.BODY". `key`: raw bytes; empty: not signed.
Post render_webhook(const Event& event, std::string_view key, Instant sent);
// The document and the headers that Amazon SNS sends to an HTTP(S) subscriber. MessageId is the event's id as a UUID. Not signed with X.509; with a key it has the
// headers of a webhook too. `topic_arn` empty: one made from the topic's name. `protocol`: http or https, for a message that says something else by each.
Post render_sns(const Event& event, const Topic& topic, const std::string& topic_arn, std::string_view protocol, std::string_view key, Instant sent);

// A whole message of RFC 5322 with CRLF lines of at most 78 characters, ASCII alone. Addresses must be is_mail_address.
std::string render_mail(const Event& event, const std::string& from, const std::string& to);

// Bytes of a signing key as a user wrote it: "whsec_" and base64, or as it is (line ends at its end are dropped). Invalid: less than 16 bytes, or not base64.
Result<std::string> read_signing_key(std::string_view text);
std::string webhook_signature(std::string_view key, std::string_view id, std::string_view timestamp, std::string_view body);

// RFC 2045 section 6.7, for a text with LF lines; out come CRLF lines.
std::string quoted_printable(std::string_view text);

}  // namespace fairlead::notify
