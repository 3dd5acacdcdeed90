// SPDX-License-Identifier: Apache-2.0
#include "apiserver/status.h"

#include <fmt/format.h>

#include <array>

#include "apiserver/policy.h"

namespace fairlead::apiserver {
namespace {

struct Mapping {
  Code code;
  int http;
  std::string_view reason;
};
constexpr std::array mappings{
    Mapping{Code::NotFound, 404, "NotFound"},
    Mapping{Code::Exists, 409, "AlreadyExists"},
    Mapping{Code::Conflict, 409, "Conflict"},
    Mapping{Code::Invalid, 400, "BadRequest"},
    Mapping{Code::Forbidden, 403, "Forbidden"},
    Mapping{Code::Unauthorized, 401, "Unauthorized"},
    Mapping{Code::Exhausted, 507, "InsufficientStorage"},
    Mapping{Code::Expired, 410, "Expired"},
    Mapping{Code::Unavailable, 503, "ServiceUnavailable"},
    Mapping{Code::Unsupported, 501, "NotImplemented"},
    Mapping{Code::Internal, 500, "InternalError"},
};

// The field error kinds of apimachinery, by the text that follows the path.
struct FieldError {
  std::string_view text, reason;
};
constexpr std::array field_errors{
    FieldError{"Required value", "FieldValueRequired"},   FieldError{"Invalid value", "FieldValueInvalid"},
    FieldError{"Duplicate value", "FieldValueDuplicate"}, FieldError{"Unsupported value", "FieldValueNotSupported"},
    FieldError{"Forbidden", "FieldValueForbidden"},       FieldError{"Not found", "FieldValueNotFound"},
    FieldError{"Too long", "FieldValueTooLong"},          FieldError{"Too many", "FieldValueTooMany"},
    FieldError{"Internal error", "InternalError"},
};

const FieldError* field_error_at(std::string_view text) {
  for (const auto& candidate : field_errors) {
    if (text.substr(0, candidate.text.size()) == candidate.text) return &candidate;
  }
  return nullptr;
}

// "spec.a: Required value" or "[spec.a: Required value, spec.b: Invalid value: 3: must be ...]". A detail may hold ", ": a new cause starts
// only where a path and a known field error follow.
std::vector<Cause> parse_causes(std::string_view text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  struct Start {
    std::size_t at, message;
    const FieldError* error;
  };
  std::vector<Start> starts;
  for (std::size_t colon = text.find(": "); colon != std::string_view::npos; colon = text.find(": ", colon + 1)) {
    const FieldError* error = field_error_at(text.substr(colon + 2));
    if (error == nullptr) continue;
    const std::size_t comma = text.rfind(", ", colon);
    const std::size_t at = comma == std::string_view::npos ? 0 : comma + 2;
    const std::string_view path = text.substr(at, colon - at);
    if (path.empty() || path.substr(0, path.find('[')).find(' ') != std::string_view::npos) continue;  // a key in brackets may hold one
    starts.push_back({at, colon + 2, error});
  }
  if (starts.empty() || starts.front().at != 0) return {};
  std::vector<Cause> causes;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t end = i + 1 < starts.size() ? starts[i + 1].at - 2 : text.size();
    const std::string_view message = text.substr(starts[i].message, end - starts[i].message);
    const bool of_type = message.starts_with("Invalid value") && message.find(" in body must be of type ") != std::string_view::npos;
    causes.push_back({of_type ? "FieldValueTypeInvalid" : std::string(starts[i].error->reason), std::string(message),
                      std::string(text.substr(starts[i].at, starts[i].message - 2 - starts[i].at))});
  }
  return causes;
}

// "Apply failed with 2 conflicts: conflicts with \"a\" using v1:\n- .x\n- .y", or with 1 conflict: "conflict with \"a\": .x".
std::vector<Cause> apply_causes(std::string_view text) {
  constexpr std::string_view reason = "FieldManagerConflict";
  std::vector<Cause> causes;
  constexpr std::string_view one = "conflict with ", many = "conflicts with ";
  if (text.starts_with(one)) {
    std::size_t quote = one.size() + 1;  // behind the manager's name, which may hold anything
    while (quote < text.size() && text[quote] != '"') quote += text[quote] == '\\' ? 2 : 1;
    const std::size_t colon = quote < text.size() ? text.find(": ", quote) : std::string_view::npos;
    if (colon != std::string_view::npos) causes.push_back({std::string(reason), std::string(text.substr(0, colon)), std::string(text.substr(colon + 2))});
    return causes;
  }
  std::string message;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with(many)) message = std::string(one) + std::string(line.substr(many.size(), line.size() - many.size() - 1));
    else if (line.starts_with("- ")) causes.push_back({std::string(reason), message, std::string(line.substr(2))});
  }
  return causes;
}

}  // namespace

Status status_of(const Error& error, StatusDetails about) {
  Status status{.message = error.message, .details = std::move(about)};
  for (const auto& mapping : mappings) {
    if (mapping.code != error.code) continue;
    status.code = mapping.http;
    status.reason = mapping.reason;
  }
  if (auto policy = policy_status(error)) {
    status.code = policy->code;
    status.reason = std::move(policy->reason);
    status.details.name = std::move(policy->name);
    status.details.causes = {{"", std::move(policy->cause), ""}};
    return status;
  }
  if (const std::size_t mark = status.message.find(fresh_token_mark); error.code == Code::Expired && mark != std::string::npos) {
    status.continue_token = status.message.substr(mark + 1);
    status.message.resize(mark);
  }
  if (constexpr std::string_view converting = "conversion webhook for "; error.code == Code::Internal && error.message.starts_with(converting)) {  // kube-apiserver has neither reason nor details for it
    status.reason.clear();
    status.details = {};
    status.empty_details = false;
    return status;
  }
  if (error.code == Code::Exhausted || error.code == Code::Unavailable) status.details.retry_after_seconds = 5;
  // The cause by which controllers tell this refusal from a lack of rights.
  constexpr std::string_view into = "unable to create new content in namespace ", ending = " because it is being terminated";
  if (const auto begin = error.message.find(into); error.code == Code::Forbidden && begin != std::string::npos && error.message.ends_with(ending)) {
    const std::string space = error.message.substr(begin + into.size(), error.message.size() - ending.size() - begin - into.size());
    status.details.causes.push_back({"NamespaceTerminating", fmt::format("namespace {} is being terminated", space), "metadata.namespace"});
  }
  constexpr std::string_view invalid = " is invalid: ";
  const std::size_t at = error.message.find(invalid);
  const std::size_t quote = error.message.find(" \"");
  if (error.code == Code::Invalid && at != std::string::npos && quote < at) {
    status.code = 422;
    status.reason = "Invalid";
    status.details.kind = error.message.substr(0, quote);
    if (const std::size_t dot = status.details.kind.find('.'); dot != std::string::npos) {  // "Deployment.apps"
      status.details.group = status.details.kind.substr(dot + 1);
      status.details.kind.resize(dot);
    }
    status.details.name = error.message.substr(quote + 2, at - quote - 3);
    status.details.causes = parse_causes(std::string_view(error.message).substr(at + invalid.size()));
  }
  if (error.code == Code::Invalid && error.message.starts_with(rejected_patch)) {
    status.code = 422;
    status.reason = "Invalid";
    status.message = rejected_patch;
    status.details = {};
    const std::size_t why = rejected_patch.size() + 2;
    if (error.message.size() > why) status.details.causes.push_back({"", error.message.substr(why), ""});
  }
  constexpr std::string_view too_large = "Too large resource version";
  if (error.code == Code::Unavailable && error.message.starts_with(too_large)) {  // clients know it by its cause
    status.code = 504;
    status.reason = "Timeout";
    status.message = "Timeout: " + error.message;
    status.details = {.causes = {{"ResourceVersionTooLarge", std::string(too_large), ""}}, .retry_after_seconds = 1};
  }
  if ((error.code == Code::Exists || error.code == Code::Forbidden) && status.details.name.empty()) {  // `pods "x" already exists`
    const std::size_t start = error.message.find(" \""), end = error.message.find("\" ", start + 2);
    const bool named = start != std::string::npos && end != std::string::npos && error.message.find(' ') == start;
    if (named) status.details.name = error.message.substr(start + 2, end - start - 2);
  }
  // What is missing need not be what was asked for: a create may lack its namespace.
  if (const std::size_t start = status.message.find(" \""); error.code == Code::NotFound && status.message.ends_with("\" not found") && status.message.find(' ') == start) {
    const std::string plural = status.message.substr(0, start);
    const std::size_t dot = plural.find('.');
    status.details.kind = plural.substr(0, dot);
    status.details.group = dot == std::string::npos ? "" : plural.substr(dot + 1);
    status.details.name = status.message.substr(start + 2, status.message.size() - start - 2 - std::string_view("\" not found").size());
  }
  constexpr std::string_view cannot = "Operation cannot be fulfilled on ";
  if (error.code == Code::Conflict && error.message.starts_with(cannot)) {
    const std::string_view named = std::string_view(error.message).substr(cannot.size());
    status.details.kind = named.substr(0, named.find_first_of(" ."));
  }
  // Of an eviction that a budget forbids: the message, and on a line of its own the cause.
  if (constexpr std::string_view evicting = "Cannot evict pod"; error.code == Code::Exhausted && error.message.starts_with(evicting)) {
    const std::size_t line = error.message.find('\n');
    status.code = 429;
    status.reason = "TooManyRequests";
    status.message = error.message.substr(0, line);
    status.details = {};
    if (line == std::string::npos) return status;
    status.details.causes = {{"DisruptionBudget", error.message.substr(line + 1), ""}};
    if (error.message.ends_with("is still being processed by the server.")) status.details.retry_after_seconds = 10;
  }
  constexpr std::string_view apply_failed = "Apply failed with ";
  if (error.code == Code::Conflict && error.message.starts_with(apply_failed)) {
    const std::size_t colon = error.message.find(": ");
    status.details = {.causes = colon == std::string::npos ? std::vector<Cause>() : apply_causes(std::string_view(error.message).substr(colon + 2))};
  }
  if (status.reason == "BadRequest") status.details = {};
  return status;
}

Status bad_request(std::string message) { return {.code = 400, .reason = "BadRequest", .message = std::move(message)}; }

Status not_served(const std::string& path) {
  (void)path;  // Kubernetes does not repeat it
  return {.code = 404, .reason = "NotFound", .message = "the server could not find the requested resource"};
}

Status method_not_allowed(StatusDetails about) {
  return {.code = 405, .reason = "MethodNotAllowed", .message = "the server does not allow this method on the requested resource", .details = std::move(about)};
}

Status unsupported_media_type(std::string message) { return {.code = 415, .reason = "UnsupportedMediaType", .message = std::move(message)}; }

namespace {
kube::Json details_json(const StatusDetails& details) {
  kube::Json out = kube::Json::object();
  if (!details.name.empty()) out.set("name", details.name);
  if (!details.group.empty()) out.set("group", details.group);
  if (!details.kind.empty()) out.set("kind", details.kind);
  if (!details.uid.empty()) out.set("uid", details.uid);
  for (const auto& cause : details.causes) {
    kube::Json item = kube::Json::object();
    if (!cause.reason.empty()) item.set("reason", cause.reason);
    item.set("message", cause.message);
    if (!cause.field.empty()) item.set("field", cause.field);
    out.child("causes").push(std::move(item));
  }
  if (details.retry_after_seconds > 0) out.set("retryAfterSeconds", details.retry_after_seconds);
  return out;
}
kube::Json status_frame() {
  return kube::Json::object({{"kind", "Status"}, {"apiVersion", "v1"}, {"metadata", kube::Json::object()}});
}
}  // namespace

kube::Json to_json(const Status& status) {
  kube::Json out = status_frame();
  if (!status.continue_token.empty()) out.child("metadata").set("continue", status.continue_token);
  out.set("status", "Failure").set("message", status.message);
  if (!status.reason.empty()) out.set("reason", status.reason);
  kube::Json details = status.code == 405 ? kube::Json::object() : details_json(status.details);
  const bool without = status.reason == "BadRequest" || status.reason == "UnsupportedMediaType" || status.reason == "RequestEntityTooLarge";
  if (status.empty_details.value_or(!without) || !details.members().empty()) out.set("details", std::move(details));
  out.set("code", status.code);
  return out;
}

kube::Json success(const StatusDetails& about) {
  kube::Json out = status_frame();
  out.set("status", "Success").set("details", details_json(about));
  return out;
}

http::Response to_response(const Status& status, Form form) {
  http::Response response{.status = status.code, .headers = {{"Content-Type", std::string(content_type(form))}}, .body = text_in_form(to_json(status), form, false)};
  // With this header client-go tries again by itself, up to ten times: right when we are busy, wrong when a disk is full.
  const bool busy = status.code == 429 || status.code == 503;
  if (busy && status.details.retry_after_seconds > 0) response.headers.emplace_back("Retry-After", std::to_string(status.details.retry_after_seconds));
  if (status.code == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"fairlead\"");
  return response;
}

std::string error_line(const Status& status) {
  return print_json(kube::Json::object({{"type", "ERROR"}, {"object", to_json(status)}})) + "\n";
}

void add_warnings(http::Headers& headers, const std::vector<std::string>& warnings) {
  for (const auto& warning : warnings) {
    std::string text;
    for (const char c : warning) {  // a quoted-string of RFC 7234: no control characters in a header
      if (c == '"' || c == '\\') text += '\\';
      text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    headers.emplace_back("Warning", fmt::format("299 - \"{}\"", text));
  }
}

}  // namespace fairlead::apiserver
