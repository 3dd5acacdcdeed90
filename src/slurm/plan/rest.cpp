// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/rest.h"

#include <fmt/format.h>

#include "base/encoding.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/pod_parts.h"

namespace fairlead::slurm {

using api::SlurmCluster;
using kube::Json;

namespace {
constexpr std::pair<const char*, const char*> kTypes{"AuthAltTypes", "auth/jwt"};
}

std::string token_secret(const SlurmCluster& cluster) { return cluster.name + "-rest-jwt-key"; }
std::string rest_service_name(const SlurmCluster& cluster) { return cluster.name + "-rest-svc"; }

Json rest_service(const SlurmCluster& cluster) {
  const std::string role(text(Role::Rest));
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Service"},
                       {"metadata", metadata(cluster, rest_service_name(cluster), role)},
                       {"spec", Json::object({{"selector", Json::object({{kClusterLabel, cluster.name}, {kRoleLabel, role}})},
                                              {"ports", Json::array({Json::object({{"name", role}, {"port", cluster.rest.main.port}, {"protocol", "TCP"}})})}})}});
}

std::vector<std::pair<std::string, std::string>> token_config() { return {kTypes, {"AuthAltParameters", fmt::format("jwt_key={}", kTokenKey)}}; }

bool takes_tokens(const std::string& conf_needs) { return conf_needs.find(fmt::format("{}={}", kTypes.first, kTypes.second)) != std::string::npos; }

std::string token_mark(const Json& secret) {
  const std::string& key = secret["data"][kTokenKeyFile].string();
  return key.empty() ? "" : hex(sha256("fairlead token mark " + key)).substr(0, 16);
}

std::string rest_asks(const SlurmCluster& cluster, const RenderFacts& facts) {
  std::string out = fmt::format("{}:{}", controller_address(cluster, facts), cluster.controller.main.port);
  if (runs_accounting(cluster)) out += fmt::format(" {}:{} of {}", accounting_service(cluster), cluster.accounting.dbd.port, cluster.accounting.replicas);
  return out;
}

}  // namespace fairlead::slurm
