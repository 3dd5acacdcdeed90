// SPDX-License-Identifier: Apache-2.0
// From what a server answers to our codes: the mirror of apiserver/status.h.
#include <fmt/format.h>

#include <charconv>

#include "base/encoding.h"
#include "kube/rest_client.h"

namespace fairlead::kube {
namespace {

Code code_of(int status, const std::string& reason) {
  if (reason == "AlreadyExists") return Code::Exists;
  if (reason == "Expired" || reason == "Gone") return Code::Expired;
  switch (status) {
    case 400:
    case 413:
    case 422: return Code::Invalid;
    case 401: return Code::Unauthorized;
    case 403: return Code::Forbidden;
    case 404: return Code::NotFound;
    case 405:
    case 406:
    case 415:
    case 501: return Code::Unsupported;
    case 409: return Code::Conflict;
    case 410: return Code::Expired;
    case 429:
    case 507: return Code::Exhausted;
    default: return status >= 500 ? Code::Unavailable : Code::Invalid;
  }
}

}  // namespace

Error error_of_status(const Json& status, int http_status) {
  const int code = http_status != 0 ? http_status : static_cast<int>(status["code"].integer(500));
  std::string message = status["message"].string();
  if (message.empty()) message = status["reason"].string();
  if (message.empty()) message = fmt::format("the server answered {}", code);
  return {code_of(code, status["reason"].string()), std::move(message)};
}

Error error_of(int http_status, const std::string& body) {
  if (const auto status = parse_json(body); status && (*status)["kind"].string() == "Status") return error_of_status(*status, http_status);
  const std::string_view text = trim(std::string_view(body).substr(0, 1000));
  std::string message = fmt::format("the server answered {}", http_status);
  if (!text.empty()) message += fmt::format(": {}", text);
  return {code_of(http_status, ""), std::move(message)};
}

Result<int> exit_code_of(const Json& status) {
  if (status["status"].string() == "Success") return 0;
  if (status["reason"].string() == "NonZeroExitCode") {
    for (const auto& cause : status["details"]["causes"].items()) {
      if (cause["reason"].string() != "ExitCode") continue;
      const std::string& text = cause["message"].string();
      int code = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), code).ec == std::errc()) return code;
    }
  }
  const std::string& message = status["message"].string();
  return fail(Code::Unavailable, message.empty() ? "the server does not say how the command ended" : message);
}

}  // namespace fairlead::kube
