// SPDX-License-Identifier: Apache-2.0
#include "cli/identities.h"

#include <fmt/format.h>

#include <algorithm>

#include "iam/policy.h"

namespace fairlead::cli {

using api::identities::AccessKey;
using kube::Json;

Result<AwsSettings> settings_of(Session& session) {
  const auto map = session.get(kube::resources::config_maps, api::identities::default_space, api::identities::settings_name);
  if (!map && map.error().code == Code::NotFound) return fail(Code::NotFound, "AWS clients are not served here: fairlead-server does it with --aws-listen (docs/hyperpod-api.md)");
  if (!map) return pass(map.error(), fmt::format("read ConfigMap {}/{}", api::identities::default_space, api::identities::settings_name));
  const Json& data = (*map)["data"];
  AwsSettings out{data["account"].string(), data["region"].string(), data["endpoint"].string(), data["ca.crt"].string()};
  if (!iam::is_account(out.account)) return fail(Code::Invalid, fmt::format("ConfigMap {}/{}: its account is not twelve digits", api::identities::default_space, api::identities::settings_name));
  if (out.endpoint.empty()) return fail(Code::Unavailable, "AWS clients are not served here at the moment: the server's log says why");
  return out;
}

Result<std::vector<Json>> identities_of(Session& session) {
  auto objects = session.list(api::identities::identities);
  if (!objects && objects.error().code == Code::NotFound) return fail(Code::NotFound, "there are no Identities here: is fairlead-server of this version? (on a Kubernetes cluster: fairlead upgrade)");
  if (!objects) return pass(std::move(objects.error()), "list identities");
  std::ranges::sort(*objects, {}, [](const Json& object) { return kube::name_of(object); });
  return objects;
}

Result<std::vector<AccessKey>> keys_of(Session& session) {
  auto secrets = session.list(kube::resources::secrets, api::identities::default_space);  // by their type, as the server takes them
  if (!secrets) return pass(std::move(secrets.error()), fmt::format("list Secrets of {}", api::identities::default_space));
  std::vector<AccessKey> out;
  for (const Json& secret : *secrets)
    if (auto key = api::identities::read_key(secret)) out.push_back(std::move(*key));
  return out;
}

Result<AccessKey> add_key(Session& session, const std::string& user) {
  const std::string object = api::identities::object_name(api::identities::Type::User, user);
  const auto there = session.get(api::identities::identities, "", object);
  if (!there && there.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no user {}: fairlead identity create {} --policy FILE", user, user));
  if (!there) return pass(there.error(), "read identity " + object);
  auto keys = keys_of(session);
  if (!keys) return std::unexpected(std::move(keys.error()));
  std::vector<std::string> has;
  for (const AccessKey& key : *keys)
    if (key.identity == object) has.push_back(key.id + (key.active ? "" : " (inactive)"));
  if (has.size() >= api::identities::most_keys) return fail(Code::Exhausted, fmt::format("{} has {} access keys, the most there may be: {}; delete the one that is not needed (fairlead identity key delete ID)", user, has.size(), fmt::join(has, ", ")));
  AccessKey key = api::identities::new_key(object, kube::uid_of(*there));
  const auto made = session.api().create(kube::resources::secrets, api::identities::write_key(key, api::identities::default_space));
  if (!made) return pass(made.error(), "write the key");
  return key;
}

}  // namespace fairlead::cli
