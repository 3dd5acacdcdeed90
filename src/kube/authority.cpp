// SPDX-License-Identifier: Apache-2.0
#include "kube/authority.h"

#include <fmt/format.h>

#include "base/encoding.h"

namespace fairlead::kube {
namespace {

Result<http::KeyPair> pair_of(const Json& secret, const ObjectKey& key) {
  auto certificate = parse_base64(secret["data"]["ca.crt"].string()), pem = parse_base64(secret["data"]["ca.key"].string());
  if (!certificate || !pem || certificate->empty() || pem->empty()) return fail(Code::Invalid, fmt::format("the Secret {} holds no ca.crt and ca.key: delete it, and another authority is made", key.text()));
  return http::KeyPair{std::move(*certificate), std::move(*pem)};
}

}  // namespace

Result<http::KeyPair> shared_authority(KubeApi& api, const ObjectKey& secret, const std::string& common_name, const Clock& clock) {
  const std::string doing = "authority " + common_name;
  auto now = api.get(resources::secrets, secret);
  if (now) return pair_of(*now, secret);
  if (now.error().code != Code::NotFound) return pass(std::move(now.error()), doing);
  auto made = http::make_ca(common_name, clock.now());
  if (!made) return made;
  const Json object = Json::object({{"apiVersion", "v1"},
                                    {"kind", "Secret"},
                                    {"metadata", Json::object({{"name", secret.name}, {"namespace", secret.space}, {"labels", Json::object({{"app.kubernetes.io/part-of", "fairlead"}})}})},
                                    {"type", "Opaque"},
                                    {"data", Json::object({{"ca.crt", base64(made->certificate_pem)}, {"ca.key", base64(made->key_pem)}})}});
  auto created = api.create(resources::secrets, object);
  if (created) return made;
  if (created.error().code != Code::Exists) return pass(std::move(created.error()), doing);
  now = api.get(resources::secrets, secret);  // another replica was first
  if (!now) return pass(std::move(now.error()), doing);
  return pair_of(*now, secret);
}

}  // namespace fairlead::kube
