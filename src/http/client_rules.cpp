// SPDX-License-Identifier: Apache-2.0
#include "http/client_rules.h"

#include <fmt/format.h>

namespace fairlead::http {
namespace {

bool has_line_break(std::string_view text) { return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos; }

bool is_word(std::string_view text) { return !text.empty() && text.find(' ') == std::string_view::npos && !has_line_break(text); }

}  // namespace

std::string where(const ClientOptions& options) {
  if (!options.unix_socket.empty()) return options.unix_socket;
  const bool ip6 = options.host.find(':') != std::string::npos;
  return ip6 ? fmt::format("[{}]:{}", options.host, options.port) : fmt::format("{}:{}", options.host, options.port);
}

std::string host_header(const ClientOptions& options) { return options.unix_socket.empty() ? where(options) : options.host; }

Result<std::string> request_head(const ClientOptions& options, const ClientRequest& request) {
  if (!is_word(request.target) || request.target[0] != '/') return fail(Code::Invalid, fmt::format("\"{}\" is not a request target", request.target));
  if (!is_word(request.method)) return fail(Code::Invalid, "bad method");
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target, host_header(options));
  for (const auto& [name, value] : request.headers) {
    // Not the value: it may be a token.
    if (has_line_break(name) || has_line_break(value)) return fail(Code::Invalid, fmt::format("header {} has a line break", name));
    out += name + ": " + value + "\r\n";
  }
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH") {
    out += fmt::format("Content-Length: {}\r\n", request.body.size());
  }
  out += "\r\n";
  return out;
}

Code code_of_status(unsigned status) {
  switch (status) {
    case 400: return Code::Invalid;
    case 401: return Code::Unauthorized;
    case 403: return Code::Forbidden;
    case 404: return Code::NotFound;
    case 405:
    case 501: return Code::Unsupported;
    case 409: return Code::Conflict;
    case 429: return Code::Exhausted;
    default: return status < 500 ? Code::Invalid : Code::Unavailable;
  }
}

std::string name_of(const Proxy& proxy) { return fmt::format("proxy {}:{}", proxy.host, proxy.port); }

std::string connect_head(const Proxy& proxy, const std::string& server) {
  std::string out = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n", server);
  if (!proxy.authorization.empty()) out += "Proxy-Authorization: " + proxy.authorization + "\r\n";
  return out + "\r\n";
}

Result<void> check_connect_answer(const Proxy& proxy, const std::string& server, std::string_view answer) {
  const std::string name = name_of(proxy);
  const std::string_view line = answer.substr(0, answer.find("\r\n"));
  const auto space = line.find(' ');
  if (!line.starts_with("HTTP/1.") || space == std::string_view::npos) return fail(Code::Unavailable, name + " does not speak HTTP");
  const std::string_view status = line.substr(space + 1);
  if (!status.starts_with('2')) return fail(Code::Unavailable, fmt::format("{} refuses to connect to {}: {}", name, server, status));
  // Bytes behind the header would be taken for the server's.
  if (!answer.ends_with("\r\n\r\n")) return fail(Code::Unavailable, name + ": the server spoke before it was spoken to");
  return {};
}

}  // namespace fairlead::http
