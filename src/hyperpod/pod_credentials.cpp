// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/pod_credentials.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/encoding.h"

namespace fairlead::hyperpod {

using kube::Json;
namespace names = api::pod_identity;

namespace {

constexpr std::int64_t longest_token = 86'400, shortest_token = 600;

using Variables = std::vector<std::pair<std::string, std::string>>;

Json add(std::string path, Json value) { return Json::object({{"op", "add"}, {"path", std::move(path)}, {"value", std::move(value)}}); }

std::string pointer(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
  return out;
}

// Seconds that the token is for: the pod's wish, then the account's, as EKS reads them; what is none counts as a day.
std::int64_t token_life(const Json& pod, const Json& account) {
  for (const Json* const of : {&pod, &account}) {
    const std::string& text = (*of)["metadata"]["annotations"][names::expiration_note].string();
    std::int64_t seconds = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (!text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size()) return std::clamp(seconds, shortest_token, longest_token);
  }
  return longest_token;
}

bool has_named(const Json& list, std::string_view field, std::string_view value) {
  return std::any_of(list.items().begin(), list.items().end(), [&](const Json& one) { return one[std::string(field)].string() == value; });
}

// Into a list of which `there` is what it holds now: each of `more` behind it, or all of them as a new list.
void extend(Json& patch, const std::string& path, const Json& there, std::vector<Json> more) {
  if (more.empty()) return;
  if (!there.is_array()) {
    patch.push(add(path, Json::array(std::move(more))));
    return;
  }
  for (Json& one : more) patch.push(add(path + "/-", std::move(one)));
}

}  // namespace

Json plan_pod_credentials(const Json& pod, const Json& account, const Json* association, const PodSite& site) {
  Json patch = Json::array();
  const Json& spec = pod["spec"];
  const std::string role = association != nullptr ? (*association)["spec"]["roleArn"].string() : account["metadata"]["annotations"][names::role_note].string();
  // A pod that a node runs of its own accord has no account, and may have no token.
  if (role.empty() || !spec.is_object() || pod["metadata"]["annotations"].has("kubernetes.io/config.mirror")) return patch;
  const bool container = association != nullptr;
  const std::string folder = container ? names::container_folder : names::web_folder, volume = container ? names::container_volume : names::web_volume, file = container ? names::container_file : names::web_file;
  const std::string ca = folder + "/ca.crt";
  Variables variables;
  if (container) {
    variables = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", fmt::format("http://{}{}", names::credentials_host, names::credentials_path)}, {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", folder + "/" + file}};
  } else {
    variables = {{"AWS_ROLE_ARN", role}, {"AWS_WEB_IDENTITY_TOKEN_FILE", folder + "/" + file}};
  }
  for (auto& one : Variables{{"AWS_STS_REGIONAL_ENDPOINTS", "regional"}, {"AWS_DEFAULT_REGION", site.region}, {"AWS_REGION", site.region}, {"AWS_ENDPOINT_URL", site.endpoint}, {"AWS_CA_BUNDLE", ca}, {"NODE_EXTRA_CA_CERTS", ca}}) variables.push_back(std::move(one));

  std::vector<std::string> skipped;
  for (const std::string& one : split(pod["metadata"]["annotations"][names::skip_note].string(), ',')) skipped.emplace_back(trim(one));
  for (const char* const list : {"initContainers", "containers"}) {
    const auto& containers = spec[list].items();
    for (std::size_t i = 0; i < containers.size(); ++i) {
      const Json& one = containers[i];
      if (!one.is_object() || std::find(skipped.begin(), skipped.end(), one["name"].string()) != skipped.end()) continue;
      const std::string path = fmt::format("/spec/{}/{}", list, i);
      std::vector<Json> env, mounts;
      for (const auto& [name, value] : variables)
        if (!has_named(one["env"], "name", name)) env.push_back(Json::object({{"name", name}, {"value", value}}));
      extend(patch, path + "/env", one["env"], std::move(env));
      if (!has_named(one["volumeMounts"], "mountPath", folder)) mounts.push_back(Json::object({{"name", volume}, {"readOnly", true}, {"mountPath", folder}}));
      extend(patch, path + "/volumeMounts", one["volumeMounts"], std::move(mounts));
    }
  }
  if (!has_named(spec["volumes"], "name", volume)) {
    const Json token = Json::object({{"serviceAccountToken", Json::object({{"audience", container ? names::container_audience : names::web_audience}, {"expirationSeconds", token_life(pod, account)}, {"path", file}})}});
    // From an annotation of the pod: a ConfigMap would have to be in each namespace, before the pod.
    const Json authority = Json::object({{"downwardAPI", Json::object({{"items", Json::array({Json::object({{"path", "ca.crt"}, {"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", fmt::format("metadata.annotations['{}']", names::authority_note)}})}})})}})}});
    extend(patch, "/spec/volumes", spec["volumes"], {Json::object({{"name", volume}, {"projected", Json::object({{"defaultMode", 420}, {"sources", Json::array({token, authority})}})}})});
  }
  const Json& notes = pod["metadata"]["annotations"];
  if (notes[names::authority_note].string() != site.ca_pem || !notes.has(names::authority_note)) {
    if (notes.is_object()) patch.push(add("/metadata/annotations/" + pointer(names::authority_note), site.ca_pem));
    else patch.push(add("/metadata/annotations", Json::object({{names::authority_note, site.ca_pem}})));
  }
  return patch;
}

Result<Json> plan_pod_credentials(const Json& pod, const std::string& space, const Look& look, const PodSite& site) {
  if (site.endpoint.empty()) return fail(Code::Unavailable, "the server starts: it does not know yet at which port pods reach it");
  const std::string account_name = pod["spec"]["serviceAccountName"].string_or("default");
  auto account = look(kube::resources::service_accounts, {space, account_name});
  if (!account && account.error().code != Code::NotFound) return pass(std::move(account.error()), fmt::format("read service account {}/{}", space, account_name));
  auto association = look(names::associations, {"", names::association_name(space, account_name)});
  // Where its definition is not there yet nobody has any.
  if (!association && association.error().code != Code::NotFound) return pass(std::move(association.error()), "read pod identity associations");
  const bool meant = association && (*association)["spec"]["namespace"].string() == space && (*association)["spec"]["serviceAccount"].string() == account_name;
  return plan_pod_credentials(pod, account ? *account : Json::object(), meant ? &*association : nullptr, site);
}

std::optional<Json> answer_pod_review(const Json& review, const Look& look, const PodSite& site) {
  const Json& request = review["request"];
  if (review["kind"].string() != "AdmissionReview" || review["apiVersion"].string() != "admission.k8s.io/v1" || request["uid"].string().empty()) return std::nullopt;
  Json response = Json::object({{"uid", request["uid"]}, {"allowed", true}});
  const Json& kind = request["kind"];
  if (kind["kind"].string() == "Pod" && kind["group"].string().empty() && request["operation"].string() == "CREATE" && request["subResource"].string().empty() && request["object"].is_object()) {
    const auto patch = plan_pod_credentials(request["object"], request["namespace"].string(), look, site);
    if (!patch) {
      response.set("warnings", Json::array({Json("fairlead: the pod has no AWS credentials of its service account, should it have any: " + patch.error().message)}));
    } else if (!patch->items().empty()) {
      response.set("patchType", "JSONPatch");
      response.set("patch", base64(kube::print_json(*patch)));
    }
  }
  return Json::object({{"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"response", std::move(response)}});
}

Json pod_webhook_configuration(const PodWebhook& webhook) {
  Json client = Json::object({{"caBundle", base64(webhook.ca_pem)}});
  if (webhook.service.empty()) client.set("url", webhook.url + webhook.path);
  else client.set("service", Json::object({{"name", webhook.service}, {"namespace", webhook.space}, {"port", 443}, {"path", webhook.path}}));
  const Json elsewhere = Json::object({{"matchExpressions", Json::array({Json::object({{"key", "kubernetes.io/metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({Json(webhook.space)})}})})}});
  const Json rule = Json::object({{"apiGroups", Json::array({Json("")})}, {"apiVersions", Json::array({Json("v1")})}, {"operations", Json::array({Json("CREATE")})}, {"resources", Json::array({Json("pods")})}, {"scope", "Namespaced"}});
  const Json hook = Json::object({{"name", "pod-credentials.fairlead.dev"},
                                  {"admissionReviewVersions", Json::array({Json("v1")})},
                                  {"clientConfig", std::move(client)},
                                  {"failurePolicy", "Ignore"},  // a pod that needs no credentials must not wait for us
                                  {"matchPolicy", "Equivalent"},
                                  {"namespaceSelector", elsewhere},
                                  {"objectSelector", Json::object()},
                                  {"reinvocationPolicy", "IfNeeded"},
                                  {"rules", Json::array({rule})},
                                  {"sideEffects", "None"},
                                  {"timeoutSeconds", 3}});
  return Json::object({{"apiVersion", names::mutating_webhooks.api_version()}, {"kind", names::mutating_webhooks.kind}, {"metadata", Json::object({{"name", names::webhook_name}})}, {"webhooks", Json::array({hook})}});
}

}  // namespace fairlead::hyperpod
