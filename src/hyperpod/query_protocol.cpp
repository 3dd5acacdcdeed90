// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/query_protocol.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "base/encoding.h"

namespace fairlead::hyperpod {
namespace {

std::string_view namespace_of(std::string_view service) {
  if (service == "ec2") return "http://ec2.amazonaws.com/doc/2016-11-15/";
  if (service == "cloudformation") return "http://cloudformation.amazonaws.com/doc/2010-05-15/";
  if (service == "sns") return "http://sns.amazonaws.com/doc/2010-03-31/";
  return service == "iam" ? "https://iam.amazonaws.com/doc/2010-05-08/" : "https://sts.amazonaws.com/doc/2011-06-15/";
}

struct QueryCode {
  std::string_view json, query;
  int status;
};
// docs.aws.amazon.com, STS "Common Errors".
constexpr std::array codes{
    QueryCode{"UnrecognizedClientException", "InvalidClientTokenId", 403},
    QueryCode{"InvalidSignatureException", "SignatureDoesNotMatch", 403},
    QueryCode{"MissingAuthenticationTokenException", "MissingAuthenticationToken", 403},
    QueryCode{"IncompleteSignatureException", "IncompleteSignature", 400},
    QueryCode{"ExpiredTokenException", "ExpiredToken", 403},
    QueryCode{"AccessDeniedException", "AccessDenied", 403},
    QueryCode{"ThrottlingException", "Throttling", 400},
    QueryCode{"UnknownOperationException", "InvalidAction", 400},
    QueryCode{"ValidationException", "ValidationError", 400},
    QueryCode{"SerializationException", "MalformedQueryString", 404},
};

std::string decode(std::string_view text, bool& good) {
  std::string plain(text);
  for (char& c : plain)
    if (c == '+') c = ' ';
  auto decoded = percent_decode(plain);
  if (!decoded) {
    good = false;
    return {};
  }
  return std::move(*decoded);
}

}  // namespace

Answer<http::Query> read_form(const http::Request& request) {
  if (request.method == "GET") return request.target.query;
  if (request.method != "POST") return refuse("SerializationException", "GET or POST is expected");
  http::Query out;
  bool good = true;
  if (!request.body.empty())
    for (const std::string& part : split(request.body, '&')) {
      if (out.size() >= 1000) return refuse("SerializationException", "more than 1000 parameters");
      const auto equals = part.find('=');
      out.emplace_back(decode(std::string_view(part).substr(0, equals), good), equals == part.npos ? "" : decode(std::string_view(part).substr(equals + 1), good));
      if (!good) return refuse("SerializationException", "the body is not application/x-www-form-urlencoded");
    }
  return out;
}

std::string xml_escape(std::string_view text) {
  static constexpr std::string_view replacement = "\xEF\xBF\xBD";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      ++at;
      switch (byte) {
        case '&': out += "&amp;"; break;
        case '<': out += "&lt;"; break;
        case '>': out += "&gt;"; break;
        case '"': out += "&quot;"; break;
        case '\r': out += "&#13;"; break;  // as itself it would be read as a newline
        // XML 1.0 has no other control characters, not even as references.
        default: out += byte >= 0x20 || byte == '\t' || byte == '\n' ? static_cast<char>(byte) : ' ';
      }
      continue;
    }
    // A whole character of UTF-8 that XML has, or the sign for one that it has not.
    const std::size_t size = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    std::uint32_t point = byte & (0xFFU >> (size + 1));
    bool whole = byte >= 0xC2 && byte <= 0xF4 && at + size <= text.size();
    for (std::size_t i = 1; whole && i < size; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      whole = (next & 0xC0U) == 0x80U;
      point = point << 6U | (next & 0x3FU);
    }
    whole = whole && point >= (size == 2 ? 0x80U : size == 3 ? 0x800U : 0x10000U) && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF) && point != 0xFFFE && point != 0xFFFF;
    if (whole) out += text.substr(at, size);
    else out += replacement;
    const bool forbidden = point == 0xFFFE || point == 0xFFFF;
    at += whole || (forbidden && at + size <= text.size()) ? size : 1;
  }
  return out;
}

std::string xml_element(std::string_view name, std::string_view text) { return fmt::format("<{0}>{1}</{0}>", name, xml_escape(text)); }

http::Response query_answer(std::string_view service, std::string_view action, std::string_view result, const std::string& request_id) {
  // EC2's is an older form: no <ACTIONResult>, and the id in front.
  if (service == "ec2")
    return {.status = 200, .headers = {{"Content-Type", "text/xml;charset=UTF-8"}, {"x-amzn-RequestId", request_id}}, .body = fmt::format("<{0}Response xmlns=\"{1}\">{2}{3}</{0}Response>", action, namespace_of(service), xml_element("requestId", request_id), result), .parts = {}};
  return {.status = 200,
          .headers = {{"Content-Type", "text/xml"}, {"x-amzn-RequestId", request_id}},
          .body = fmt::format("<{0}Response xmlns=\"{1}\"><{0}Result>{2}</{0}Result><ResponseMetadata>{3}</ResponseMetadata></{0}Response>", action, namespace_of(service), result, xml_element("RequestId", request_id)),
          .parts = {}};
}

http::Response query_error(std::string_view service, const AwsError& error, const std::string& request_id) {
  std::string_view code = error.code;
  int status = error.status;
  for (const QueryCode& one : codes)
    if (one.json == error.code) code = one.query, status = one.status;
  if (service == "ec2") {
    // EC2's own names, docs.aws.amazon.com, EC2 "Error codes for the Amazon EC2 API".
    if (code == "AccessDenied") code = "UnauthorizedOperation";
    if (code == "InvalidClientTokenId" || code == "SignatureDoesNotMatch") code = "AuthFailure";
    if (code == "ValidationError") code = "InvalidParameterValue";
    if (code == "Throttling") code = "RequestLimitExceeded", status = 503;
    return {.status = status, .headers = {{"Content-Type", "text/xml;charset=UTF-8"}, {"x-amzn-RequestId", request_id}}, .body = fmt::format("<Response><Errors><Error>{}{}</Error></Errors>{}</Response>", xml_element("Code", code), xml_element("Message", error.message), xml_element("RequestID", request_id)), .parts = {}};
  }
  // SNS has names of its own for these.
  if (service == "sns" && code == "AccessDenied") code = "AuthorizationError";
  if (service == "sns" && code == "ValidationError") code = "InvalidParameter";
  if (service == "sns" && code == "Throttling") code = "Throttled", status = 429;
  return {.status = status,
          .headers = {{"Content-Type", "text/xml"}, {"x-amzn-RequestId", request_id}},
          .body = fmt::format("<ErrorResponse xmlns=\"{}\"><Error>{}{}{}</Error>{}</ErrorResponse>", namespace_of(service), xml_element("Type", status < 500 ? "Sender" : "Receiver"), xml_element("Code", code), xml_element("Message", error.message),
                              xml_element("RequestId", request_id)),
          .parts = {}};
}

}  // namespace fairlead::hyperpod
