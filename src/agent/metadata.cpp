// SPDX-License-Identifier: Apache-2.0
#include "agent/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"

namespace fairlead::agent {
namespace {

constexpr const char *token_header = "x-aws-ec2-metadata-token", *life_header = "x-aws-ec2-metadata-token-ttl-seconds";
constexpr int longest_life = 21'600;
constexpr std::string_view root = "/latest";

http::Response say(int status, std::string body, const char* type = "text/plain") { return {.status = status, .headers = {{"Content-Type", type}, {"Server", "EC2ws"}, {"Cache-Control", "no-store"}}, .body = std::move(body), .parts = {}}; }

MetadataQuestion refuse(int status, std::string why) { return {.ask = MetadataAsk::Refused, .path = {}, .answer = say(status, std::move(why))}; }

std::optional<int> whole(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value) : std::nullopt;
}

std::string json(std::initializer_list<std::pair<std::string, kube::Json>> members) {
  kube::Json out = kube::Json::object();
  for (const auto& [name, value] : members)
    if (!value.is_null()) out.set(name, value);
  return kube::print_json_indented(out);
}

}  // namespace

std::string MetadataTokens::make(Instant now, std::chrono::seconds life) const {
  const std::string until = std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count() + life.count());
  return until + "." + hex(hmac_sha256(key_, until));
}

bool MetadataTokens::good(std::string_view token, Instant now) const {
  const auto dot = token.find('.');
  if (token.size() > 128 || dot == token.npos || dot == 0) return false;
  const std::string_view until = token.substr(0, dot);
  if (!equal_in_constant_time(token.substr(dot + 1), hex(hmac_sha256(key_, until)))) return false;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(until.data(), until.data() + until.size(), seconds);
  return error == std::errc() && end == until.data() + until.size() && now.time_since_epoch() < std::chrono::seconds(seconds);
}

http::Response not_for_pods() { return say(403, "the metadata service is for processes of the node, pods with hostNetwork and the pods of its Slurm cluster: other pods have the role of their service account\n"); }

MetadataQuestion read_metadata_question(const http::Request& request, bool own, const MetadataTokens& tokens, Instant now) {
  if (!own) return {.ask = MetadataAsk::Refused, .path = {}, .answer = not_for_pods()};
  const std::string& path = request.target.path;
  if (path == std::string(root) + "/api/token") {
    if (request.method != "PUT") return refuse(405, "PUT is expected\n");
    // What came through a proxy is somebody else's question.
    if (!http::find(request.headers, "x-forwarded-for").empty()) return refuse(403, "not through a proxy\n");
    const auto life = whole(http::find(request.headers, life_header));
    if (!life || *life < 1 || *life > longest_life) return refuse(400, fmt::format("{}: 1 to {} is expected\n", life_header, longest_life));
    MetadataQuestion out{.ask = MetadataAsk::Token, .path = {}, .answer = say(200, tokens.make(now, std::chrono::seconds(*life)))};
    out.answer.headers.emplace_back(life_header, std::to_string(*life));
    return out;
  }
  if (request.method != "GET") return refuse(405, "GET is expected\n");
  if (!tokens.good(http::find(request.headers, token_header), now)) return refuse(401, "a token is expected (IMDSv2): PUT /latest/api/token\n");
  if (!path.starts_with(root) || (path.size() > root.size() && path[root.size()] != '/')) return refuse(404, "/latest is served\n");
  std::string below = path.substr(root.size());
  while (below.ends_with('/')) below.pop_back();
  if (below.starts_with('/')) below.erase(0, 1);
  return {.ask = MetadataAsk::Look, .path = std::move(below), .answer = {}};
}

std::map<std::string, std::string> metadata_tree(const NodeFacts& facts, const std::optional<kube::Json>& document, Instant now) {
  std::map<std::string, std::string> out{{"meta-data/hostname", facts.name}, {"meta-data/local-hostname", facts.name}, {"meta-data/local-ipv4", facts.address}, {"meta-data/services/domain", "amazonaws.com"}, {"meta-data/services/partition", "aws"}};
  if (!facts.address6.empty()) out["meta-data/ipv6"] = facts.address6;
  if (!document) return out;
  const kube::Json& of = *document;
  const std::string &region = of["region"].string(), &role = of["roleName"].string(), &problem = of["problem"].string();
  out["meta-data/instance-id"] = of["instanceId"].string();
  out["meta-data/instance-type"] = of["instanceType"].string();
  out["meta-data/placement/region"] = region;
  out["dynamic/instance-identity/document"] = json({{"accountId", of["accountId"]}, {"architecture", facts.architecture}, {"instanceId", of["instanceId"]}, {"instanceType", of["instanceType"]}, {"privateIp", facts.address}, {"region", region}, {"version", "2017-09-30"}});
  if (role.empty()) return out;
  const kube::Json& its = of["credentials"];
  const std::string at = its.is_null() ? print_time(now) : its["LastUpdated"].string();
  const std::string code = its.is_null() ? "AssumeRoleUnauthorizedAccess" : "Success";
  out["meta-data/iam/info"] = json({{"Code", code}, {"LastUpdated", at}, {"InstanceProfileArn", of["roleArn"]}, {"InstanceProfileId", of["roleId"]}});
  const std::string place = "meta-data/iam/security-credentials/" + role;
  if (its.is_null()) out[place] = json({{"Code", code}, {"LastUpdated", at}, {"Message", problem}});
  else out[place] = json({{"Code", code}, {"LastUpdated", at}, {"Type", "AWS-HMAC"}, {"AccessKeyId", its["AccessKeyId"]}, {"SecretAccessKey", its["SecretAccessKey"]}, {"Token", its["Token"]}, {"Expiration", its["Expiration"]}});
  return out;
}

http::Response answer_metadata(const std::map<std::string, std::string>& tree, const std::string& path) {
  if (const auto at = tree.find(path); at != tree.end()) return say(200, at->second, at->second.starts_with('{') ? "application/json" : "text/plain");
  const std::string folder = path.empty() ? "" : path + "/";
  std::string listed, last;
  for (auto at = tree.lower_bound(folder); at != tree.end() && at->first.starts_with(folder); ++at) {
    const std::string rest = at->first.substr(folder.size());
    const std::string name = rest.substr(0, rest.find('/')) + (rest.find('/') == rest.npos ? "" : "/");
    if (name != last) listed += (listed.empty() ? "" : "\n") + name;
    last = name;
  }
  return listed.empty() ? say(404, "not found\n") : say(200, std::move(listed));
}

Result<void> check_document(const kube::Json& document) {
  for (const char* const name : {"accountId", "region", "instanceId", "instanceType"})
    if (document[name].string().empty()) return fail(Code::Invalid, fmt::format("the document of this node has no {}", name));
  if (document["roleName"].string().find('/') != std::string::npos) return fail(Code::Invalid, "the document of this node has a role with a path in its name");
  const kube::Json& its = document["credentials"];
  if (its.is_null()) return {};
  for (const char* const name : {"AccessKeyId", "SecretAccessKey", "Token", "LastUpdated", "Expiration"})
    if (its[name].string().empty()) return fail(Code::Invalid, fmt::format("the credentials of this node have no {}", name));
  if (!parse_time(its["Expiration"].string())) return fail(Code::Invalid, "the credentials of this node end nobody knows when");
  return {};
}

}  // namespace fairlead::agent
