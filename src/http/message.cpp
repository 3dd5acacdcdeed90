// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <fmt/format.h>
#include <strings.h>

namespace fairlead::http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

enum class Part { Segment, Query };

// A query may carry any text but NUL (a command line has newlines); a path segment names something and has no control characters.
Result<std::string> unescape(std::string_view text, Part part) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return fail(Code::Invalid, fmt::format("bad escape at \"{}\"", text.substr(i, 3)));
      c = static_cast<char>(high * 16 + low);
      i += 2;
      if (c == '\0') return fail(Code::Invalid, "a NUL character is not allowed");
      if (part == Part::Segment && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) {
        return fail(Code::Invalid, "control characters are not allowed in a path");
      }
    } else if (c == '+' && part == Part::Query) {
      c = ' ';
    }
    out += c;
  }
  return out;
}

}  // namespace

std::string_view find(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0) return value;
  }
  return {};
}

Result<Target> parse_target(std::string_view target) {
  if (target.empty() || target[0] != '/') return fail(Code::Invalid, "a request target begins with /");
  for (const char c : target) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return fail(Code::Invalid, "blanks and control characters are not allowed in a target");
    if (c == '#') return fail(Code::Invalid, "a fragment is not allowed in a target");
  }
  Target out;
  const auto question = target.find('?');
  const std::string_view path = target.substr(0, question);
  out.path = std::string(path);
  for (std::size_t at = 0; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    if (end > at) {
      auto segment = unescape(path.substr(at, end - at), Part::Segment);
      if (!segment) return std::unexpected(std::move(segment.error()));
      out.segments.push_back(std::move(*segment));
    }
    at = end + 1;
  }
  if (question == std::string_view::npos) return out;
  const std::string_view query = target.substr(question + 1);
  for (std::size_t at = 0; at < query.size();) {
    const auto end = std::min(query.find('&', at), query.size());
    const std::string_view pair = query.substr(at, end - at);
    if (!pair.empty()) {
      const auto equals = pair.find('=');
      auto name = unescape(pair.substr(0, equals), Part::Query);
      if (!name) return std::unexpected(std::move(name.error()));
      auto value = unescape(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1), Part::Query);
      if (!value) return std::unexpected(std::move(value.error()));
      out.query.emplace_back(std::move(*name), std::move(*value));
    }
    at = end + 1;
  }
  return out;
}

std::string escape(std::string_view text) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

}  // namespace fairlead::http
