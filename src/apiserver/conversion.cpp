// SPDX-License-Identifier: Apache-2.0
#include "apiserver/conversion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/encoding.h"
#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

// Messages have the names of Kubernetes' internal type, here as there.
constexpr std::string_view client_config = "spec.conversion.webhookClientConfig", review_versions = "spec.conversion.conversionReviewVersions";
constexpr std::string_view form = "; desired format: https://host[/path]";

void check_url(const std::string& url, const std::string& path, FieldErrors& errors) {
  const auto colon = url.find("://");
  const std::string scheme = colon == std::string::npos ? std::string() : url.substr(0, colon);
  if (scheme != "https") errors.invalid(path, scheme, fmt::format("'https' is the only allowed URL scheme{}", form));
  if (colon == std::string::npos) return errors.invalid(path, "", fmt::format("host must be specified{}", form));
  const std::string rest = url.substr(colon + 3);
  const std::string host = rest.substr(0, rest.find_first_of("/?#"));
  const auto at = host.rfind('@');
  if (host.empty() || at + 1 == host.size()) errors.invalid(path, "", fmt::format("host must be specified{}", form));
  if (at != std::string::npos) errors.invalid(path, host.substr(0, at), "user information is not permitted in the URL");
  if (const auto fragment = url.find('#'); fragment != std::string::npos && fragment + 1 < url.size()) errors.invalid(path, url.substr(fragment + 1), "fragments are not permitted in the URL");
  if (const auto query = url.substr(0, url.find('#')).find('?'); query != std::string::npos && query + 1 < url.size())
    errors.invalid(path, url.substr(query + 1, url.find('#') - query - 1), "query parameters are not permitted in the URL");
}

void check_service_path(const std::string& url_path, const std::string& path, FieldErrors& errors) {
  if (url_path.empty() || url_path == "/") return;
  if (url_path == "//") return errors.invalid(path, url_path, "segment[0] may not be empty");
  if (!url_path.starts_with('/')) errors.invalid(path, url_path, "must start with a '/'");
  std::string steps = url_path.substr(1);
  if (steps.ends_with('/')) steps.pop_back();
  const auto parts = split(steps, '/');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) errors.invalid(path, url_path, fmt::format("segment[{}] may not be empty", i));
    else if (const auto why = kube::check_dns_subdomain(parts[i]); !why.empty()) errors.invalid(path, url_path, fmt::format("segment[{}]: {}", i, why));
  }
}

void check_service(const Json& service, const std::string& path, FieldErrors& errors) {
  if (service["name"].string().empty()) errors.required(path + ".name", "service name is required");
  if (service["namespace"].string().empty()) errors.required(path + ".namespace", "service namespace is required");
  if (const std::int64_t port = service["port"].integer(443); port < 1 || port > 65535) errors.invalid(path + ".port", port, "port is not valid: must be between 1 and 65535, inclusive");
  check_service_path(service["path"].string(), path + ".path", errors);
}

void check_client(const Json& config, FieldErrors& errors) {
  const std::string path(client_config);
  if (config.is_null()) return errors.required(path, "required when strategy is set to Webhook");
  const bool url = !config["url"].is_null(), service = !config["service"].is_null();
  if (url == service) errors.required(path, "exactly one of url or service is required");
  else if (url) check_url(config["url"].string(), path + ".url", errors);
  else check_service(config["service"], path + ".service", errors);
  if (const std::string& bundle = config["caBundle"].string(); !bundle.empty()) {
    const auto pem = parse_base64(bundle);
    if (!pem || pem->find("-----BEGIN CERTIFICATE-----") == std::string::npos) errors.invalid_as(path + ".caBundle", "[]byte{...}", "unable to load root certificates: unable to parse bytes as PEM block");
  }
}

void check_review_versions(const Json& versions, FieldErrors& errors) {
  const std::string path(review_versions);
  if (versions.items().empty()) return errors.required(path);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < versions.items().size(); ++i) {
    const std::string& version = versions.items()[i].string();
    if (!seen.insert(version).second) errors.invalid(fmt::format("{}[{}]", path, i), version, "duplicate version");
    else if (const auto why = check_dns_1035_label(version); !why.empty()) errors.invalid(fmt::format("{}[{}]", path, i), version, why);
  }
  if (!seen.contains("v1") && !seen.contains("v1beta1")) return errors.invalid_as(path, fmt::format("[]string{{\"{}\"}}", fmt::join(seen, "\", \"")), "must include at least one of v1, v1beta1");
  if (!seen.contains("v1")) errors.not_supported_here(path, "reviews are asked in v1 alone");
}

std::string version_and_kind(const Json& object) { return fmt::format("{}, Kind={}", object["apiVersion"].string(), object["kind"].string()); }

std::unexpected<Error> failed(std::string why) { return fail(Code::Internal, std::move(why)); }

// What is wrong with one object of an answer; empty: nothing.
std::string difference(const Json& was, const Json& is) {
  for (const auto& [word, field] : {std::pair{"name", "name"}, {"namespace", "namespace"}, {"UID", "uid"}})
    if (was["metadata"][field].string() != is["metadata"][field].string())
      return fmt::format("must have the same {}: {} != {}", word, was["metadata"][field].string(), is["metadata"][field].string());
  return {};
}

// Everything but labels and annotations as it was; Internal: with what is wrong about these.
Result<void> restore_metadata(const Json& was, Json& is) {
  const Json given = is["metadata"];
  if (given.is_null()) return failed("missing metadata in converted object");
  if (!given.is_object()) return failed("invalid metadata in converted object");
  Json metadata = was["metadata"].is_object() ? was["metadata"] : Json::object();
  for (const char* field : {"labels", "annotations"}) {
    metadata.erase(field);
    const Json& map = given[field];
    if (map.is_null()) continue;
    if (!map.is_object()) return failed(fmt::format("invalid metadata.{} in converted object", field));
    for (const auto& [key, value] : map.members())
      if (!value.is_string()) return failed(fmt::format("metadata.{}[{}] must be a string in converted object", field, key));
    metadata.set(field, map);
  }
  is.set("metadata", std::move(metadata));
  FieldErrors errors;
  check_metadata({}, Json::object({{"metadata", is["metadata"]}}), errors);
  for (const std::string& text : errors.texts())
    if (text.starts_with("metadata.labels") || text.starts_with("metadata.annotations")) return failed(text);
  return {};
}

}  // namespace

std::shared_ptr<const ConversionHook> hook_of(const Json& crd) {
  const Json& conversion = crd["spec"]["conversion"];
  if (conversion["strategy"].string() != "Webhook") return nullptr;
  const Json &config = conversion["webhook"]["clientConfig"], &service = config["service"];
  auto hook = std::make_shared<ConversionHook>();
  hook->url = config["url"].string();
  hook->space = service["namespace"].string();
  hook->name = service["name"].string();
  hook->path = service["path"].string();
  hook->port = static_cast<unsigned short>(service["port"].integer(443));
  if (auto pem = parse_base64(config["caBundle"].string())) hook->ca_pem = std::move(*pem);
  return hook;
}

void check_conversion(const Json& conversion, FieldErrors& errors) {
  const std::string& strategy = conversion["strategy"].string();
  if (conversion.is_null()) return;
  if (strategy.empty()) errors.required("spec.conversion.strategy");
  else if (strategy != "None" && strategy != "Webhook") errors.unsupported_value("spec.conversion.strategy", strategy, {"None", "Webhook"});
  const Json& webhook = conversion["webhook"];
  if (strategy == "Webhook") {
    check_client(webhook["clientConfig"], errors);
    check_review_versions(webhook["conversionReviewVersions"], errors);
    return;
  }
  if (!webhook["clientConfig"].is_null()) errors.forbidden(std::string(client_config), "should not be set when strategy is not set to Webhook");
  if (!webhook["conversionReviewVersions"].items().empty()) errors.forbidden(std::string(review_versions), "should not be set when strategy is not set to Webhook");
}

Json conversion_review(const std::string& uid, const std::string& to, const std::vector<Json>& objects) {
  return Json::object({{"kind", "ConversionReview"}, {"apiVersion", "apiextensions.k8s.io/v1"}, {"request", Json::object({{"uid", uid}, {"desiredAPIVersion", to}, {"objects", Json::array(objects)}})}});
}

std::string conversion_title(const Json& object) { return fmt::format("conversion webhook for {}", version_and_kind(object)); }

Result<std::vector<Json>> converted_objects(const Json& answer, const std::string& uid, const std::string& to, const std::vector<Json>& objects) {
  INVARIANT(!objects.empty());
  const std::string title = conversion_title(objects.front());
  if (answer["apiVersion"].string() != "apiextensions.k8s.io/v1" || answer["kind"].string() != "ConversionReview")
    return failed(fmt::format("{} failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {}", title, version_and_kind(answer)));
  const Json& response = answer["response"];
  if (!response.is_object()) return failed(fmt::format("{} failed: no response provided", title));
  if (response["uid"].string() != uid) return failed(fmt::format("{} failed: expected response.uid=\"{}\", got \"{}\"", title, uid, response["uid"].string()));
  if (const std::string& status = response["result"]["status"].string(); status != "Success") {
    const std::string& message = response["result"]["message"].string();
    return failed(fmt::format("{} failed: {}", title, message.empty() ? fmt::format("response.result.status was '{}', not 'Success'", status) : message));
  }
  const auto& given = response["convertedObjects"].items();
  if (given.size() != objects.size()) return failed(fmt::format("{} returned {} objects, expected {}", title, given.size(), objects.size()));
  std::vector<Json> out;
  out.reserve(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    Json one = given[i];
    const Json& was = objects[i];
    const std::string at = fmt::format("at index {}", i);
    if (one["apiVersion"].string() != to) return failed(fmt::format("{} returned invalid object {}: invalid groupVersion (expected {}, received {})", title, at, to, one["apiVersion"].string()));
    if (one["kind"].string() != was["kind"].string())
      return failed(fmt::format("{} returned invalid object {}: invalid kind (expected {}, received {})", title, at, was["kind"].string(), one["kind"].string()));
    if (const std::string why = difference(was, one); !why.empty()) return failed(fmt::format("{} returned invalid object: {}", title, why));
    if (auto restored = restore_metadata(was, one); !restored) return failed(fmt::format("{} returned invalid metadata: {}", title, restored.error().message));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace fairlead::apiserver
