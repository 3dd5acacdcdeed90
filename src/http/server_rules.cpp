// SPDX-License-Identifier: Apache-2.0
#include "http/server_rules.h"

#include <fmt/format.h>
#include <strings.h>

#include <ctime>

namespace fairlead::http {
namespace {

constexpr std::size_t slowest_bytes_a_second = 64 << 10;

bool is(const std::string& name, std::string_view wanted) { return name.size() == wanted.size() && ::strncasecmp(name.data(), wanted.data(), wanted.size()) == 0; }

Response plain(int status, std::string text) { return {.status = status, .headers = {{"Content-Type", "text/plain"}}, .body = std::move(text)}; }

}  // namespace

std::chrono::seconds sending_time(std::size_t bytes) { return body_time + std::chrono::seconds(bytes / slowest_bytes_a_second); }

std::string http_date(Instant now) {
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

std::string answer_head(int status, std::string_view reason, const Headers& headers, Instant now) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason, http_date(now));
  for (const auto& [name, value] : headers) {
    if (is(name, "Content-Length") || is(name, "Transfer-Encoding") || is(name, "Connection") || is(name, "Date")) continue;
    const auto at = out.size();
    out += name;
    out += ": ";
    out += value;
    for (auto i = at; i < out.size(); ++i) {
      if (out[i] == '\r' || out[i] == '\n' || out[i] == '\0') out[i] = ' ';
    }
    out += "\r\n";
  }
  return out;
}

std::string body_head(Body body, std::size_t bytes, bool keep_alive) {
  std::string out;
  if (body == Body::Sized) out = fmt::format("Content-Length: {}\r\n", bytes);
  if (body == Body::Chunked) out = "Transfer-Encoding: chunked\r\n";
  out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

bool has_body(int status) { return status >= 200 && status != 204 && status != 304; }

std::size_t body_bytes(const Response& response) {
  std::size_t out = 0;
  for (const std::string_view piece : body_pieces(response)) out += piece.size();
  return out;
}

std::vector<std::string_view> body_pieces(const Response& response) {
  if (response.parts.empty()) return {response.body};
  std::vector<std::string_view> out;
  out.reserve(response.parts.size());
  for (const auto& part : response.parts) {
    if (!part.bytes.empty()) out.push_back(part.bytes);
  }
  return out;
}

Response refusal(BadRequest why, Bytes body_limit) {
  switch (why) {
    case BadRequest::BodyTooLarge: return plain(413, fmt::format("the body is larger than {} bytes\n", body_limit.value));
    case BadRequest::HeaderTooLarge: return plain(431, fmt::format("the header is larger than {} bytes\n", server_header_limit));
    case BadRequest::Malformed: break;
  }
  return refusal("this is not HTTP/1.1");
}

Response refusal(std::string why) { return plain(400, std::move(why) + "\n"); }

}  // namespace fairlead::http
