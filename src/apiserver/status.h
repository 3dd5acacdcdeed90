// SPDX-License-Identifier: Apache-2.0
// metav1.Status: how every refusal looks on the wire. The one place where our error codes become HTTP statuses and Kubernetes reasons.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apiserver/negotiate.h"
#include "base/result.h"
#include "http/message.h"
#include "kube/json.h"

namespace fairlead::apiserver {

struct Cause {
  std::string reason, message, field;
};
// What the request was about; `kind` is the plural as kube-apiserver writes it, except in 422 (there the Kind).
struct StatusDetails {
  std::string name, group, kind, uid;
  std::vector<Cause> causes;
  int retry_after_seconds = 0;
};
struct Status {
  int code = 500;
  std::string reason, message;
  StatusDetails details;
  std::optional<bool> empty_details;  // whether `details: {}` is there when nothing is in them; unset: as Kubernetes has it for the reason
  std::string continue_token;  // metadata.continue: goes on with a list that lost its snapshot
};

// How a refused patch begins; what was wrong follows after ": ".
inline constexpr std::string_view rejected_patch = "the server rejected our request due to an error in our request";

// An Expired list with a continue token tells a fresh one behind this character.
inline constexpr char fresh_token_mark = '\x1f';

// Invalid becomes 422 when the message has the form `Pod "x" is invalid: field: reason` (its causes are taken apart), else 400.
Status status_of(const Error& error, StatusDetails about = {});
Status bad_request(std::string message);
Status not_served(const std::string& path);  // 404 for what is no resource here
Status unsupported_media_type(std::string message);
Status method_not_allowed(StatusDetails about = {});

kube::Json to_json(const Status& status);
http::Response to_response(const Status& status, Form form = Form::Json);  // Json or Yaml
// {"status":"Success"} with details, the answer to a finished delete.
kube::Json success(const StatusDetails& about);

// One line of a watch that ends it: {"type":"ERROR","object":{Status}}.
std::string error_line(const Status& status);

// Adds a `Warning: 299 - "text"` header for each.
void add_warnings(http::Headers& headers, const std::vector<std::string>& warnings);

}  // namespace fairlead::apiserver
