// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/eks_token.h"

#include <algorithm>
#include <array>

#include "base/encoding.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::array allowed_parameters{"Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders"};
constexpr std::size_t most_token_bytes = 20 << 10;

std::unexpected<AwsError> none(const char* why) { return refuse("InvalidIdentityToken", std::string("not a token of `aws eks get-token` for this cluster: ") + why); }

std::optional<std::string> decode(std::string_view text) {  // base64url, with or without padding
  std::string plain(text);
  for (char& c : plain) c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (plain.ends_with('=')) plain.pop_back();
  plain.append((4 - plain.size() % 4) % 4, '=');
  auto bytes = parse_base64(plain);
  return bytes ? std::optional(std::move(*bytes)) : std::nullopt;
}

}  // namespace

Answer<http::Request> read_eks_token(std::string_view token, std::string_view cluster) {
  if (!token.starts_with(eks_token_prefix) || token.size() > most_token_bytes) return none("its form");
  const auto url = decode(token.substr(eks_token_prefix.size()));
  if (!url || !url->starts_with("https://")) return none("what is in it is no https URL");
  const std::string_view rest = std::string_view(*url).substr(8);
  const auto slash = rest.find('/');
  const std::string_view host = rest.substr(0, slash);
  if (host.empty() || slash == rest.npos || host.find_first_of("@ ?#\\") != host.npos) return none("its host");
  auto target = http::parse_target(rest.substr(slash));
  if (!target || target->path != "/") return none("its path");
  for (const auto& [name, value] : target->query)
    if (std::find(allowed_parameters.begin(), allowed_parameters.end(), name) == allowed_parameters.end() || std::count_if(target->query.begin(), target->query.end(), [&](const auto& pair) { return pair.first == name; }) != 1)
      return none("a parameter that it must not have, or one twice");
  if (http::find(target->query, "Action") != "GetCallerIdentity") return none("its action");
  http::Request request{.method = "GET", .target = std::move(*target), .headers = {{"host", std::string(host)}, {"x-k8s-aws-id", std::string(cluster)}}, .body = {}, .peer = {}};
  const auto signature = read_signature(request);
  if (!signature || !signature->presigned || signature->service != "sts") return none("its signature");
  // Its cluster is what keeps it from being used elsewhere: the header has to be signed, and only with this name the signature holds.
  if (std::find(signature->signed_headers.begin(), signature->signed_headers.end(), "x-k8s-aws-id") == signature->signed_headers.end()) return none("it is signed for no cluster");
  if (signature->expires > std::chrono::seconds(longest_eks_token)) return none("it holds for longer than 15 minutes");
  return request;
}

bool is_reserved_name(std::string_view name) {
  for (const std::string_view begin : {"system:", "eks:", "aws:", "amazon:", "iam:", "kubeadm:", "fairlead:"})
    if (iam::lower(name).starts_with(begin)) return true;
  return name.empty();
}

std::string problem_of_username(std::string_view name, bool role) {
  static constexpr std::string_view session = "{{SessionName}}";
  const auto at = name.find(session);
  if (at == name.npos) return "";
  if (!role) return "only a role has sessions";
  if (name.find(session, at + 1) != name.npos) return "{{SessionName}} stands there twice";
  return name.substr(0, at).find(':') == name.npos ? "there is no : before {{SessionName}}" : "";
}

Answer<KubernetesUser> kubernetes_user(const Principal& who) {
  const Identity& identity = *who.identity;
  if (!identity.access_entry) return refuse("AccessDeniedException", identity.arn + " has no access entry for Kubernetes");
  KubernetesUser out{.name = identity.access_entry->username, .uid = identity.id, .groups = identity.access_entry->groups, .arn = who.arn, .session = who.session ? who.session->name : ""};
  if (out.name.empty()) out.name = who.arn;
  if (!problem_of_username(out.name, identity.type == api::identities::Type::Role).empty()) return refuse("AccessDeniedException", identity.arn + "'s access entry has a user name that nobody may have");
  if (const auto at = out.name.find("{{SessionName}}"); at != out.name.npos) {
    std::string session = out.session;
    std::replace(session.begin(), session.end(), '@', '-');
    out.name.replace(at, 15, session);
  }
  if (is_reserved_name(out.name) || std::any_of(out.groups.begin(), out.groups.end(), is_reserved_name)) return refuse("AccessDeniedException", identity.arn + "'s access entry has names that nobody may have");
  out.groups.insert(out.groups.end(), identity.access_entry->policy_groups.begin(), identity.access_entry->policy_groups.end());
  return out;
}

}  // namespace fairlead::hyperpod
