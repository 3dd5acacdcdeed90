// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_reviews.h"

#include <fmt/format.h>

#include "kube/type_table.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

std::unexpected<Error> invalid(const Review& review, std::string_view why) {
  return fail(Code::Invalid, fmt::format(".{} \"\" is invalid: {}", review.group, why));
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> out;
  for (const Json& one : list.items()) out.push_back(one.string());
  return out;
}

Result<Attributes> attributes_of(const Review& review, const Json& spec) {
  const Json& resource = spec["resourceAttributes"];
  const Json& path = spec["nonResourceAttributes"];
  if (resource.is_object() == path.is_object())
    return invalid(review, resource.is_object() ? "spec.nonResourceAttributes: Invalid value: \"\": cannot be specified in combination with resourceAttributes"
                                                : "spec.resourceAttributes: Invalid value: \"null\": exactly one of nonResourceAttributes or resourceAttributes must be specified");
  Attributes asked;
  asked.resource_request = resource.is_object();
  asked.verb = (asked.resource_request ? resource : path)["verb"].string();
  asked.path = path["path"].string();
  asked.group = resource["group"].string(), asked.resource = resource["resource"].string(), asked.subresource = resource["subresource"].string();
  asked.space = resource["namespace"].string(), asked.name = resource["name"].string();
  return asked;
}

// Of a SubjectAccessReview: the user that is asked about.
Result<User> subject_of(const Review& review, const Json& spec) {
  User user{.name = spec["user"].string(), .groups = texts(spec["groups"]), .uid = spec["uid"].string()};
  if (user.name.empty() && user.groups.empty()) return invalid(review, "spec.user: Invalid value: \"\": at least one of user or group must be specified");
  for (const auto& [key, values] : spec["extra"].members()) user.extra.emplace_back(key, texts(values));
  return user;
}

Json verdict_status(const Verdict& verdict) {
  Json status = Json::object({{"allowed", verdict.allowed}});
  if (!verdict.reason.empty()) status.set("reason", verdict.reason);
  return status;
}

Result<Json> access_review(const Access& access, const User& caller, const Review& review, const std::string& space, const Json& out) {
  const Json& spec = out["spec"];
  const auto asked = attributes_of(review, spec);
  if (!asked) return std::unexpected(asked.error());
  if (review.kind == "SelfSubjectAccessReview") return verdict_status(access.authorize(caller, *asked, true));
  const auto subject = subject_of(review, spec);
  if (!subject) return std::unexpected(subject.error());
  if (review.kind == "LocalSubjectAccessReview") {
    if (!asked->resource_request) return invalid(review, "spec.nonResourceAttributes: Invalid value: \"\": disallowed on this kind of request");
    if (asked->space != space) return invalid(review, "spec.resourceAttributes.namespace: Invalid value: \"\": must match metadata.namespace");
  }
  return verdict_status(access.authorize(*subject, *asked, true));
}

Result<Json> token_review(const Access& access, const Json& spec) {
  const std::string& token = spec["token"].string();
  if (token.empty()) return fail(Code::Invalid, "token is required for TokenReview in authentication");
  std::vector<std::string> audiences = texts(spec["audiences"]);
  const bool asked = !audiences.empty();
  const auto user = access.authenticate_token(token, audiences);
  if (!user) {
    // What is no token at all has no further reason.
    const bool token_like = parse_jwt(token).has_value();
    return Json::object({{"user", Json::object()}, {"error", token_like ? fmt::format("[invalid bearer token, {}]", user.error().message) : std::string("invalid bearer token")}});
  }
  Json status = Json::object({{"authenticated", true}, {"user", to_user_info(*user)}});
  if (audiences.empty() && asked) audiences = texts(spec["audiences"]);  // a token that knows no audiences is for all
  if (audiences.empty()) audiences = access.site().audiences;
  status.set("audiences", Json::array(std::vector<Json>(audiences.begin(), audiences.end())));
  return status;
}

}  // namespace

Result<Json> answer_review(const Access& access, const User& caller, const Review& review, const std::string& space, Json out, Instant now) {
  if (!out.is_object()) return fail(Code::Invalid, fmt::format("a {} was expected", review.kind));
  const std::string api_version = fmt::format("{}/{}", review.group, review.version);
  const std::string sent_kind = out["kind"].string_or(review.kind), sent_version = out["apiVersion"].string_or(api_version);
  if (sent_kind != review.kind || sent_version != api_version)
    return fail(Code::Invalid, fmt::format("the object sent is a {} of {}: a {} of {} was expected", sent_kind, sent_version, review.kind, api_version));
  if (const kube::Type* type = kube::TypeTable::builtin().find_kind(api_version, review.kind); type != nullptr) {
    if (const auto wrong = kube::type_errors(out, *type); !wrong.empty())
      return fail(Code::Invalid, fmt::format("{0} in version \"{1}\" cannot be handled as a {0}: {2}", review.kind, review.version, wrong.front()));
  }
  Result<Json> status = Json::object();
  const Json& spec = out["spec"];
  if (review.kind == "SelfSubjectReview") {
    status = Json::object({{"userInfo", to_user_info(caller)}});
  } else if (review.kind == "SelfSubjectRulesReview") {
    if (spec["namespace"].string().empty()) return fail(Code::Invalid, "no namespace on request");
    status = access.rules_review(caller, spec["namespace"].string());
  } else if (review.kind == "TokenReview") {
    status = token_review(access, spec);
  } else {
    status = access_review(access, caller, review, space, out);
  }
  if (!status) return status;
  // In the order in which Kubernetes writes them.
  Json answer = Json::object({{"kind", review.kind}, {"apiVersion", api_version}});
  Json metadata = out["metadata"].is_object() ? out["metadata"] : Json::object();
  if (!metadata.has("creationTimestamp")) metadata.set("creationTimestamp", review.kind == "SelfSubjectReview" ? Json(print_time(now)) : Json());
  answer.set("metadata", std::move(metadata));
  // Kubernetes does not repeat what rules were asked about.
  const bool repeat = spec.is_object() && review.kind != "SelfSubjectRulesReview";
  if (review.kind != "SelfSubjectReview") answer.set("spec", repeat ? spec : Json::object());
  answer.set("status", std::move(*status));
  return answer;
}

}  // namespace fairlead::apiserver
