// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/secrets_manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "hyperpod/entity.h"
#include "hyperpod/paging.h"

namespace fairlead::hyperpod {

namespace {

constexpr std::size_t kLongestId = 2'048;

std::unexpected<AwsError> none() { return refuse("ResourceNotFoundException", "Secrets Manager can't find the specified secret."); }
std::unexpected<AwsError> none_of(const char* what, const std::string& which) { return refuse("ResourceNotFoundException", fmt::format("Secrets Manager can't find the specified secret value for {}: {}", what, cut(which, 256))); }

std::string suffix_of(const Site& site, const std::string& name) { return hex(sha256(site.account + "/" + site.region + "/" + name)).substr(0, 6); }

// A name, an ARN, or an ARN without its last six characters.
Answer<std::string> name_of_id(const std::string& id, const Site& site) {
  if (!id.starts_with("arn:")) return id;
  const std::string begin = fmt::format("arn:aws:secretsmanager:{}:{}:secret:", site.region, site.account);
  if (!id.starts_with(begin)) return none();
  std::string name = id.substr(begin.size());
  if (name.size() > 7 && name[name.size() - 7] == '-')
    if (const std::string without = name.substr(0, name.size() - 7); name.substr(name.size() - 6) == suffix_of(site, without)) return without;
  return name;
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 512 && std::ranges::all_of(name, [](unsigned char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || std::string_view("/_+=.@-").find(static_cast<char>(c)) != std::string_view::npos; });
}

std::string served_name(const Json& secret) {
  if (secret["metadata"]["labels"][kServedSecret].string() != "true") return "";
  return secret["metadata"]["annotations"][kSecretName].string_or(kube::name_of(secret));
}

// Of several of one name (two annotations alike) none: which of them is meant is nobody's guess.
Answer<Json> find(const std::string& name, kube::KubeApi& api, const std::string& space) {
  auto all = api.list(kube::resources::secrets, space, {.label_selector = std::string(kServedSecret) + "=true"});
  if (!all) return std::unexpected(aws_error(all.error(), "GetSecretValue"));
  std::vector<const Json*> found;
  for (const Json& secret : all->items)
    if (served_name(secret) == name) found.push_back(&secret);
  if (found.empty()) return none();
  if (found.size() > 1) return refuse("InvalidRequestException", fmt::format("{} Secrets say that they are {}: {} and {}", found.size(), name, kube::name_of(*found[0]), kube::name_of(*found[1])));
  return *found.front();
}

}  // namespace

std::string secret_arn(const Site& site, const std::string& name) { return fmt::format("arn:aws:secretsmanager:{}:{}:secret:{}-{}", site.region, site.account, name, suffix_of(site, name)); }

bool is_secrets_operation(std::string_view operation) { return operation == "GetSecretValue"; }

Answer<Json> secret_picture(const Json& secret, const std::string& name, const Site& site) {
  const std::string digest = hex(sha256(kube::print_json(secret["data"])));
  Json out = Json::object({{"ARN", secret_arn(site, name)}, {"Name", name}, {"CreatedDate", epoch(created_at(secret))}, {"VersionStages", Json::array({Json("AWSCURRENT")})},
                           {"VersionId", fmt::format("{}-{}-{}-{}-{}", digest.substr(0, 8), digest.substr(8, 4), digest.substr(12, 4), digest.substr(16, 4), digest.substr(20, 12))}});
  const Json& data = secret["data"];
  if (const Json* binary = data.find("SecretBinary")) {
    out.set("SecretBinary", *binary);
    return out;
  }
  Json pairs = Json::object();
  for (const auto& [key, value] : data.members()) {
    auto bytes = parse_base64(value.string());
    if (!bytes) return refuse("DecryptionFailure", fmt::format("Secret {}: data.{} cannot be read", kube::name_of(secret), key));
    if (key == "SecretString") {
      out.set("SecretString", std::move(*bytes));
      return out;
    }
    pairs.set(key, std::move(*bytes));
  }
  if (pairs.members().empty()) return none_of("staging label", "AWSCURRENT");
  out.set("SecretString", kube::print_json(pairs));
  return out;
}

Answer<Json> answer_secrets(const std::string& operation, const Json& input, const Call& call, kube::KubeApi& api, const std::string& space) {
  if (!is_secrets_operation(operation)) return refuse("UnknownOperationException", fmt::format("Secrets Manager: GetSecretValue is served here, not {}", cut(operation, 64)));
  for (const auto& [key, value] : input.members()) {
    if (key != "SecretId" && key != "VersionId" && key != "VersionStage") return refuse("InvalidParameterException", fmt::format("{} is no parameter of GetSecretValue", cut(key, 64)));
    if (!value.is_string()) return refuse("InvalidParameterException", fmt::format("{}: a text is expected", key));
  }
  const std::string &id = input["SecretId"].string(), stage = input["VersionStage"].string_or("AWSCURRENT");
  if (id.empty() || id.size() > kLongestId) return refuse("InvalidParameterException", fmt::format("SecretId: a text of 1 to {} characters is expected", kLongestId));
  const auto name = name_of_id(id, call.site);
  if (!name) return std::unexpected(name.error());
  if (!is_name(*name)) return refuse("InvalidParameterException", "Invalid name. Must be a valid name containing alphanumeric characters, or any of the following: -/_+=.@!");
  iam::Keys keys;
  keys.set("secretsmanager:SecretId", {id});
  keys.set("secretsmanager:VersionStage", {stage});
  if (const std::string& version = input["VersionId"].string(); !version.empty()) keys.set("secretsmanager:VersionId", {version});
  // By what it would be called, so that who may not learns nothing of what is there.
  if (auto done = call.allow("secretsmanager:GetSecretValue", secret_arn(call.site, *name), keys, id); !done) return std::unexpected(done.error());
  const auto secret = find(*name, api, space);
  if (!secret) return std::unexpected(secret.error());
  auto out = secret_picture(*secret, *name, call.site);
  if (!out) return out;
  if (stage != "AWSCURRENT") return none_of("staging label", stage);
  if (const std::string& version = input["VersionId"].string(); !version.empty() && version != (*out)["VersionId"].string()) return none_of("VersionId", version);
  return out;
}

}  // namespace fairlead::hyperpod
