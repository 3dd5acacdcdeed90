// SPDX-License-Identifier: Apache-2.0
// Any bytes as a pod's token and as an AdmissionReview: nothing crashes, a patch fits the pod that it is for, and a pod that was equipped is left alone.
#include <cstdint>
#include <string>

#include "base/encoding.h"
#include "hyperpod/pod_credentials.h"
#include "hyperpod/web_identity.h"
#include "kube/patch.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)hyperpod::read_token_claims(text);
  std::string payload = base64(text);
  while (payload.ends_with('=')) payload.pop_back();
  for (char& c : payload) c = c == '+' ? '-' : c == '/' ? '_' : c;
  if (const auto claims = hyperpod::read_token_claims("e30." + payload + ".x"); claims && (claims->issuer.empty() || claims->subject.empty())) __builtin_trap();

  const auto json = kube::parse_json(text, {.depth_limit = 100});
  if (!json) return 0;
  const hyperpod::PodSite site{.endpoint = "https://h:1", .region = "fairlead-1", .ca_pem = "PEM"};
  const kube::Json account = *kube::parse_json(R"({"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/r"}}})");
  const hyperpod::Look look = [&](const kube::Resource& resource, const kube::ObjectKey&) -> Result<kube::Json> { return resource.plural == kube::resources::service_accounts.plural ? Result<kube::Json>(account) : fail(Code::NotFound, ""); };
  (void)hyperpod::answer_pod_review(*json, look, site);
  const kube::Json& pod = (*json)["request"]["object"].is_object() ? (*json)["request"]["object"] : *json;
  if (!pod["metadata"].is_object() || !pod["spec"].is_object()) return 0;
  const auto equipped = kube::json_patch(pod, hyperpod::plan_pod_credentials(pod, account, nullptr, site));
  if (!equipped) __builtin_trap();
  if (!hyperpod::plan_pod_credentials(*equipped, account, nullptr, site).items().empty()) __builtin_trap();
  return 0;
}
