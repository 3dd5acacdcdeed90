// SPDX-License-Identifier: Apache-2.0
// HTTP as values: what the server hands to a handler and the client to a caller. Beast stays in server_beast.cpp and client_beast.cpp.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fairlead::http {

using Headers = std::vector<std::pair<std::string, std::string>>;  // names compared without case
std::string_view find(const Headers& headers, std::string_view name);  // empty: not there

using Query = std::vector<std::pair<std::string, std::string>>;  // decoded, in order; a name may repeat
// Splits "/a%20b/c?x=1&x=2". The path keeps %2F encoded within a segment: split first, then decode each segment.
// Invalid: bad escapes, control characters.
struct Target {
  std::string path;                   // as sent, without the query
  std::vector<std::string> segments;  // decoded; "/" gives none
  Query query;
};
Result<Target> parse_target(std::string_view target);
std::string_view find(const Query& query, std::string_view name);
std::string escape(std::string_view text);  // for one path segment or query value

struct Peer {
  std::string address;                      // "127.0.0.1"
  std::string common_name;                  // of the verified client certificate; empty: none was shown
  std::vector<std::string> organizations;   // its O fields
  std::string key;                          // SHA-256, in hex, of its public key (http/pki.h)
};

struct Request {
  std::string method;  // "GET"
  Target target;
  Headers headers;
  std::string body;
  Peer peer;
};

using Buffer = std::shared_ptr<const std::string>;  // shared by all who send the same bytes

// Bytes of something that is shared and does not change.
struct BodyPart {
  std::shared_ptr<const void> owner;
  std::string_view bytes;
  BodyPart(Buffer whole) : bytes(whole ? std::string_view(*whole) : std::string_view()) { owner = std::move(whole); }
  BodyPart(std::shared_ptr<const void> of, std::string_view some) : owner(std::move(of)), bytes(some) {}
};

struct Response {
  int status = 200;
  Headers headers;  // Content-Length, Date and Connection are added
  std::string body;
  // A body in parts that are sent one after the other without being joined (a list of shared objects). Used if not empty.
  std::vector<BodyPart> parts;
};

}  // namespace fairlead::http
