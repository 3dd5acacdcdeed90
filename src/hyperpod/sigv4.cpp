// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/sigv4.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/encoding.h"
#include "iam/policy.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::string_view algorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view terminator = "aws4_request";
constexpr std::string_view unsigned_payload = "UNSIGNED-PAYLOAD";
constexpr std::string_view unsigned_chunks = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";  // of S3: the body comes in chunks, and TLS keeps it whole

using iam::lower;

bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }); }

// RFC 3986: what is not unreserved is escaped; of a path the slashes stay.
std::string escape(std::string_view text, bool path) {
  static constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~' || (path && c == '/');
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += digits[byte >> 4U];
      out += digits[byte & 15U];
    }
  }
  return out;
}

// RFC 3986 section 5.2.4, and runs of slashes as one.
std::string normalize_path(std::string_view path) {
  std::vector<std::string_view> kept;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!kept.empty()) kept.pop_back();
    } else {
      kept.push_back(part);
    }
  }
  std::string out;
  for (const std::string_view part : kept) {
    out += '/';
    out += part;
  }
  if (out.empty()) return "/";
  if (path.ends_with('/')) out += '/';
  return out;
}

// The path was escaped once to be sent; it is escaped again to be signed, but not for S3, whose keys may hold "//" and "..".
std::string canonical_path(const Signature& signature, std::string_view path) {
  if (path.empty()) return "/";
  return signature.service == "s3" ? std::string(path) : escape(normalize_path(path), true);
}

std::string canonical_query(const http::Query& query) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (const auto& [name, value] : query)
    if (name != "X-Amz-Signature") parts.emplace_back(escape(name, false), escape(value, false));
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const auto& [name, value] : parts) {
    if (!out.empty()) out += '&';
    out += name;
    out += '=';
    out += value;
  }
  return out;
}

// Spaces at both ends go, runs of them become one.
std::string squeeze(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if ((c == ' ' || c == '\t') && (out.empty() || out.back() == ' ')) continue;
    out += c == '\t' ? ' ' : c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::optional<std::string> header_value(const http::Headers& headers, std::string_view lower_name) {
  std::optional<std::string> out;
  for (const auto& [name, value] : headers) {
    if (lower(name) != lower_name) continue;
    if (out) *out += ',';
    else out.emplace();
    *out += squeeze(value);
  }
  return out;
}

std::string payload_hash(const Signature& signature, const http::Request& request) {
  if (signature.service == "s3") {
    if (signature.presigned) return std::string(unsigned_payload);
    if (const auto said = header_value(request.headers, "x-amz-content-sha256"); said && (*said == unsigned_payload || *said == unsigned_chunks)) return *said;
  }
  return hex(sha256(request.body));
}

std::string scope_of(const Signature& signature) { return fmt::format("{}/{}/{}/{}", signature.date, signature.region, signature.service, terminator); }

std::string signature_value(const Signature& signature, const http::Request& request, std::string_view secret) {
  const std::string text = fmt::format("{}\n{}\n{}\n{}", algorithm, signature.timestamp, scope_of(signature), hex(sha256(canonical_request(signature, request))));
  std::string key = hmac_sha256("AWS4" + std::string(secret), signature.date);
  for (const std::string_view part : {std::string_view(signature.region), std::string_view(signature.service), terminator}) key = hmac_sha256(key, part);
  return hex(hmac_sha256(key, text));
}

std::optional<Instant> read_timestamp(std::string_view text) {  // "20261125T101112Z"
  if (text.size() != 16 || text[8] != 'T' || text[15] != 'Z' || !all_digits(text.substr(0, 8)) || !all_digits(text.substr(9, 6))) return std::nullopt;
  const auto part = [&](std::size_t from, std::size_t count) { return std::string(text.substr(from, count)); };
  auto time = parse_time(fmt::format("{}-{}-{}T{}:{}:{}Z", part(0, 4), part(4, 2), part(6, 2), part(9, 2), part(11, 2), part(13, 2)));
  if (!time) return std::nullopt;
  return *time;
}

Answer<void> read_scope(std::string_view credential, Signature& into) {
  // An access key has no slash, and neither has anything else of it.
  std::vector<std::string> parts = split(credential, '/');
  if (parts.size() != 5 || parts[4] != terminator)
    return refuse("IncompleteSignatureException", "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/aws4_request");
  if (parts[0].empty() || parts[0].size() > 128 || parts[1].size() != 8 || !all_digits(parts[1]) || parts[2].empty() || parts[3].empty())
    return refuse("IncompleteSignatureException", "Credential must be keyid/date/region/service/aws4_request, the date as yyyymmdd");
  into.key_id = std::move(parts[0]);
  into.date = std::move(parts[1]);
  into.region = std::move(parts[2]);
  into.service = std::move(parts[3]);
  return {};
}

Answer<void> read_authorization(std::string_view header, Signature& into) {
  if (!header.starts_with(algorithm) || (header.size() > algorithm.size() && header[algorithm.size()] != ' '))
    return refuse("IncompleteSignatureException", fmt::format("Authorization must be {}, with Credential, SignedHeaders and Signature", algorithm));
  std::map<std::string, std::string, std::less<>> parts;
  for (const std::string& part : split(header.substr(algorithm.size()), ',')) {
    const std::string_view pair = trim(part);
    const auto equals = pair.find('=');
    if (equals == pair.npos) continue;
    if (!parts.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second) return refuse("IncompleteSignatureException", "Authorization header has an element twice");
  }
  std::string missing;
  for (const char* const name : {"Credential", "Signature", "SignedHeaders"})
    if (parts[name].empty()) missing += fmt::format("{}Authorization header requires '{}' parameter.", missing.empty() ? "" : " ", name);
  if (!missing.empty()) return refuse("IncompleteSignatureException", missing);
  if (auto done = read_scope(parts["Credential"], into); !done) return done;
  into.signed_headers = split(parts["SignedHeaders"], ';');
  into.value = parts["Signature"];
  return {};
}

Answer<void> read_query(const http::Query& query, Signature& into) {
  into.presigned = true;
  for (const char* const name : {"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature"})
    if (std::count_if(query.begin(), query.end(), [&](const auto& pair) { return pair.first == name; }) != 1)
      return refuse("IncompleteSignatureException", fmt::format("AWS query-string parameters must include '{}' once.", name));
  if (http::find(query, "X-Amz-Algorithm") != algorithm) return refuse("IncompleteSignatureException", fmt::format("X-Amz-Algorithm must be {}", algorithm));
  if (auto done = read_scope(http::find(query, "X-Amz-Credential"), into); !done) return done;
  into.signed_headers = split(http::find(query, "X-Amz-SignedHeaders"), ';');
  into.value = http::find(query, "X-Amz-Signature");
  into.token = http::find(query, "X-Amz-Security-Token");
  into.timestamp = http::find(query, "X-Amz-Date");
  const std::string_view expires = http::find(query, "X-Amz-Expires");
  if (!all_digits(expires) || expires.size() > 6 || std::stol(std::string(expires)) > std::chrono::seconds(longest_presigned).count())
    return refuse("IncompleteSignatureException", fmt::format("X-Amz-Expires must be a number of seconds, at most {}", std::chrono::seconds(longest_presigned).count()));
  into.expires = std::chrono::seconds(std::stol(std::string(expires)));
  return {};
}

bool lists(const Signature& signature, std::string_view name) { return std::find(signature.signed_headers.begin(), signature.signed_headers.end(), name) != signature.signed_headers.end(); }

// What decides what is done has to be signed, and what is signed has to be there.
Answer<void> check_headers(const Signature& signature, const http::Request& request) {
  const auto& names = signature.signed_headers;
  if (!std::is_sorted(names.begin(), names.end()) || std::adjacent_find(names.begin(), names.end()) != names.end() || names.size() > 100)
    return refuse("IncompleteSignatureException", "SignedHeaders must be sorted names in lower case, each once");
  for (const std::string& name : names)
    if (name.empty() || lower(name) != name || !header_value(request.headers, name)) return refuse("InvalidSignatureException", fmt::format("'{}' is a signed header and must be in the request, in lower case in SignedHeaders", name));
  if (!lists(signature, "host")) return refuse("InvalidSignatureException", "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.");
  for (const char* const name : {"x-amz-date", "x-amz-target", "x-amz-security-token"})
    if (header_value(request.headers, name) && !lists(signature, name)) return refuse("InvalidSignatureException", fmt::format("'{}' must be a 'SignedHeader' in the AWS Authorization.", name));
  return {};
}

}  // namespace

std::string aws_timestamp(Instant time) {
  std::string text = print_time(std::chrono::floor<std::chrono::seconds>(time));  // 2026-11-25T10:11:12Z
  std::erase_if(text, [](char c) { return c == '-' || c == ':'; });
  return text;
}

bool is_signed(const http::Request& request) {
  return http::find(request.headers, "authorization").starts_with("AWS") || !http::find(request.target.query, "X-Amz-Algorithm").empty() || !http::find(request.target.query, "X-Amz-Signature").empty();
}

Answer<Signature> read_signature(const http::Request& request) {
  Signature out;
  const std::string_view authorization = http::find(request.headers, "authorization");
  const bool in_query = !http::find(request.target.query, "X-Amz-Algorithm").empty() || !http::find(request.target.query, "X-Amz-Signature").empty();
  if (authorization.empty() && !in_query) return refuse("MissingAuthenticationTokenException", "Missing Authentication Token");
  if (!authorization.empty() && in_query) return refuse("IncompleteSignatureException", "Only one way of signing is allowed; X-Amz-Algorithm of the query and the Authorization header were both found");
  if (in_query) {
    if (auto done = read_query(request.target.query, out); !done) return std::unexpected(done.error());
  } else {
    if (auto done = read_authorization(authorization, out); !done) return std::unexpected(done.error());
    const auto date = header_value(request.headers, "x-amz-date");
    if (!date) return refuse("IncompleteSignatureException", "Authorization header requires existence of an 'X-Amz-Date' header.");
    out.timestamp = *date;
    out.token = header_value(request.headers, "x-amz-security-token").value_or("");
  }
  const auto at = read_timestamp(out.timestamp);
  if (!at) return refuse("IncompleteSignatureException", "Date must be in ISO-8601 'basic format', such as 20261125T101112Z");
  out.at = *at;
  if (out.timestamp.substr(0, 8) != out.date) return refuse("InvalidSignatureException", fmt::format("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{}' != '{}'", out.date, out.timestamp.substr(0, 8)));
  if (auto done = check_headers(out, request); !done) return std::unexpected(done.error());
  return out;
}

Answer<void> check_time(const Signature& signature, Instant now) {
  const Instant at = signature.at;
  if (at - now > clock_window)
    return refuse("InvalidSignatureException", fmt::format("Signature not yet current: {} is still later than {} ({} + 15 min.)", signature.timestamp, aws_timestamp(now + clock_window), aws_timestamp(now)));
  if (signature.presigned) {
    if (now - at > signature.expires) return refuse("ExpiredTokenException", fmt::format("The presigned request has expired: it was made at {} for {} s", signature.timestamp, signature.expires.count()));
    return {};
  }
  if (now - at > clock_window)
    return refuse("InvalidSignatureException", fmt::format("Signature expired: {} is now earlier than {} ({} - 15 min.)", signature.timestamp, aws_timestamp(now - clock_window), aws_timestamp(now)));
  return {};
}

std::string canonical_request(const Signature& signature, const http::Request& request) {
  std::string out = request.method + "\n" + canonical_path(signature, request.target.path) + "\n" + canonical_query(request.target.query) + "\n";
  std::string names;
  for (const std::string& name : signature.signed_headers) {
    out += name + ":" + header_value(request.headers, name).value_or("") + "\n";
    if (!names.empty()) names += ';';
    names += name;
  }
  return out + "\n" + names + "\n" + payload_hash(signature, request);
}

Answer<void> check_signature(const Signature& signature, const http::Request& request, std::string_view secret) {
  const bool good = equal_in_constant_time(signature_value(signature, request, secret), signature.value);
  // A hash that the client sends along is part of what it signed; another body was not.
  const auto said = header_value(request.headers, "x-amz-content-sha256");
  const bool unsigned_body = said && (*said == unsigned_payload || (signature.service == "s3" && *said == unsigned_chunks));
  if (!good || (said && !unsigned_body && !equal_in_constant_time(*said, hex(sha256(request.body)))))
    return refuse("InvalidSignatureException", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.");
  return {};
}

void sign_request(http::Request& request, const Credentials& credentials, std::string_view region, std::string_view service, Instant now) {
  std::erase_if(request.headers, [](const auto& header) {
    const std::string name = lower(header.first);
    return name == "authorization" || name == "x-amz-date" || name == "x-amz-security-token";
  });
  request.headers.emplace_back("X-Amz-Date", aws_timestamp(now));
  if (!credentials.token.empty()) request.headers.emplace_back("X-Amz-Security-Token", credentials.token);
  Signature signature{.key_id = credentials.key_id, .date = aws_timestamp(now).substr(0, 8), .region = std::string(region), .service = std::string(service), .token = {}, .signed_headers = {}, .value = {}, .timestamp = aws_timestamp(now), .at = now};
  for (const auto& header : request.headers) {
    const std::string name = lower(header.first);
    if (name == "host" || name == "content-type" || name.starts_with("x-amz-")) signature.signed_headers.push_back(name);
  }
  std::sort(signature.signed_headers.begin(), signature.signed_headers.end());
  signature.signed_headers.erase(std::unique(signature.signed_headers.begin(), signature.signed_headers.end()), signature.signed_headers.end());
  std::string names;
  for (const std::string& name : signature.signed_headers) names += (names.empty() ? "" : ";") + name;
  request.headers.emplace_back("Authorization", fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", algorithm, credentials.key_id, scope_of(signature), names, signature_value(signature, request, credentials.secret)));
}

}  // namespace fairlead::hyperpod
