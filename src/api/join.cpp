// SPDX-License-Identifier: Apache-2.0
#include "api/join.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/instance_types.h"
#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr std::string_view kTokenBegin = "flj1.";
constexpr std::string_view kPemBegin = "-----BEGIN CERTIFICATE-----", kPemEnd = "-----END CERTIFICATE-----";
constexpr std::size_t kTextLimit = 256, kPemLimit = 16'384;

// The lines of the first certificate, joined; and back, 64 to a line.
std::string body_of_pem(std::string_view pem) {
  const std::size_t begin = pem.find(kPemBegin), end = pem.find(kPemEnd);
  std::string out;
  if (begin == std::string_view::npos || end == std::string_view::npos) return out;
  for (const char c : pem.substr(begin + kPemBegin.size(), end - begin - kPemBegin.size()))
    if (c != '\n' && c != '\r') out += c;
  return out;
}
std::string pem_of_body(std::string_view body) {
  std::string out(kPemBegin);
  for (std::size_t i = 0; i < body.size(); i += 64) out += fmt::format("\n{}", body.substr(i, 64));
  return out + "\n" + std::string(kPemEnd) + "\n";
}

std::string to_url(std::string text) {
  while (text.ends_with('=')) text.pop_back();
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}
Result<std::string> from_url(std::string_view text) {
  std::string plain(text);
  std::ranges::replace(plain, '-', '+');
  std::ranges::replace(plain, '_', '/');
  plain.append((4 - plain.size() % 4) % 4, '=');
  return parse_base64(plain);
}

bool is_secret(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }
bool is_printable(std::string_view text) { return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7f; }); }

// A member that has to be a text of at most so many bytes; what is wrong goes to `problem`, the first of them stays.
std::string text_of(const Json& from, const char* key, std::size_t limit, std::string& problem, bool needed = true) {
  const Json& value = from[key];
  if (value.is_null() && !needed) return "";
  const std::string& text = value.string();
  if (problem.empty() && (!value.is_string() || (needed && text.empty()) || text.size() > limit)) problem = fmt::format("{}: a text of {} to {} bytes is expected", key, needed ? 1 : 0, limit);
  return text;
}

Json strings(const std::map<std::string, std::string>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map) out.set(key, value);
  return out;
}

Result<HostFacts> parse_facts(const Json& json) {
  HostFacts out;
  if (!json.is_object()) return fail(Code::Invalid, "facts: an object is expected");
  out.cpus = json["cpus"].integer();
  out.memory_mib = json["memoryMiB"].integer();
  if (out.cpus < 1 || out.cpus > 65'536) return fail(Code::Invalid, "facts.cpus: a number of 1 to 65536 is expected");
  if (out.memory_mib < 1 || out.memory_mib > (std::int64_t{1} << 40)) return fail(Code::Invalid, "facts.memoryMiB: a number from 1 on is expected");
  if (!json["devices"].is_null() && !json["devices"].is_object()) return fail(Code::Invalid, "facts.devices: an object is expected");
  for (const auto& [name, count] : json["devices"].members()) {
    if (name != kGpuResource && name != kNeuronResource) return fail(Code::Invalid, fmt::format("facts.devices: {} and {} are known", kGpuResource, kNeuronResource));
    const std::int64_t many = count.integer();
    if (many < 1 || many > 1'024) return fail(Code::Invalid, fmt::format("facts.devices.{}: a number of 1 to 1024 is expected", name));
    out.devices[name] = many;
  }
  std::string problem;
  for (const auto& [key, into] : {std::pair("address", &out.address), std::pair("devicesText", &out.devices_text), std::pair("os", &out.os), std::pair("kernel", &out.kernel), std::pair("architecture", &out.architecture), std::pair("version", &out.version)}) {
    *into = text_of(json, key, kTextLimit, problem, std::string_view(key) == "address");
    if (problem.empty() && !is_printable(*into)) problem = fmt::format("{}: printable text is expected", key);
  }
  if (!problem.empty()) return fail(Code::Invalid, "facts." + problem);
  return out;
}

}  // namespace

std::string print_join_token(const JoinToken& token) {
  const Json json = Json::object({{"s", Json::array(std::vector<Json>(token.servers.begin(), token.servers.end()))}, {"a", body_of_pem(token.ca_pem)}, {"n", token.name}, {"t", token.secret}});
  return std::string(kTokenBegin) + to_url(base64(kube::print_json(json)));
}

Result<JoinToken> parse_join_token(std::string_view text) {
  const auto no = [](std::string_view why) { return fail(Code::Invalid, fmt::format("this is not a token to join by: {}; `fairlead node add NAME` makes one", why)); };
  text = trim(text);
  if (!text.starts_with(kTokenBegin)) return no("it does not begin with flj1.");
  if (text.size() > kPemLimit) return no("it is too long");
  auto bytes = from_url(text.substr(kTokenBegin.size()));
  auto json = bytes ? kube::parse_json(*bytes) : Result<Json>(std::unexpected(bytes.error()));
  if (!json || !json->is_object()) return no("a part of it is missing");
  JoinToken out{.servers = {}, .ca_pem = {}, .name = (*json)["n"].string(), .secret = (*json)["t"].string()};
  for (const Json& server : (*json)["s"].items()) {
    if (!server.string().starts_with("https://") || server.string().size() > kTextLimit || !is_printable(server.string())) return no("it names no server");
    out.servers.push_back(server.string());
  }
  const std::string& body = (*json)["a"].string();
  if (out.servers.empty()) return no("it names no server");
  if (body.empty() || !parse_base64(body)) return no("it names no authority");
  if (!kube::check_dns_label(out.name).empty()) return no("it names no machine");
  if (!is_secret(out.secret)) return no("it holds no secret");
  out.ca_pem = pem_of_body(body);
  return out;
}

std::string hash_of_secret(std::string_view secret) { return hex(sha256(secret)); }

Json to_json(const HostFacts& facts) {
  Json devices = Json::object();
  for (const auto& [name, count] : facts.devices) devices.set(name, count);
  Json out = Json::object({{"cpus", facts.cpus}, {"memoryMiB", facts.memory_mib}, {"address", facts.address}});
  if (!facts.devices.empty()) out.set("devices", std::move(devices));
  for (const auto& [key, value] : {std::pair("devicesText", &facts.devices_text), std::pair("os", &facts.os), std::pair("kernel", &facts.kernel), std::pair("architecture", &facts.architecture), std::pair("version", &facts.version)})
    if (!value->empty()) out.set(key, *value);
  return out;
}

std::map<std::string, std::string> capacity_of(const HostFacts& facts) {
  std::map<std::string, std::string> out{{"cpu", std::to_string(facts.cpus)}, {"memory", fmt::format("{}Mi", facts.memory_mib)}};
  for (const auto& [name, count] : facts.devices) out[name] = std::to_string(count);
  return out;
}

std::string print_join_request(const JoinRequest& request) {
  return kube::print_json(Json::object({{"name", request.name}, {"secret", request.secret}, {"request", request.signing_request}, {"facts", to_json(request.facts)}}));
}

Result<JoinRequest> parse_join_request(std::string_view text) {
  auto json = kube::parse_json(text);
  if (!json || !json->is_object()) return fail(Code::Invalid, "a JSON object is expected");
  std::string problem;
  JoinRequest out{.name = text_of(*json, "name", 63, problem), .secret = text_of(*json, "secret", 64, problem), .signing_request = text_of(*json, "request", kPemLimit, problem), .facts = {}};
  if (!problem.empty()) return fail(Code::Invalid, std::move(problem));
  if (!kube::check_dns_label(out.name).empty()) return fail(Code::Invalid, "name: the name of a machine is expected");
  if (!is_secret(out.secret)) return fail(Code::Invalid, "secret: 64 hex digits are expected");
  auto facts = parse_facts((*json)["facts"]);
  if (!facts) return std::unexpected(std::move(facts.error()));
  out.facts = std::move(*facts);
  return out;
}

std::string print_join_answer(const JoinAnswer& answer) {
  return kube::print_json(Json::object({{"certificate", answer.certificate}, {"ca", answer.ca_pem}, {"podCIDR", answer.pod_cidr}, {"podsRange", answer.pods_range}, {"clusterDomain", answer.cluster_domain}, {"volumesDir", answer.volumes_dir}, {"companionDir", answer.companion_dir}, {"labels", strings(answer.labels)}, {"taints", answer.taints}}));
}

Result<JoinAnswer> parse_join_answer(std::string_view text) {
  auto json = kube::parse_json(text);
  if (!json || !json->is_object()) return fail(Code::Invalid, "the server's answer is no JSON object");
  std::string problem;
  JoinAnswer out{.certificate = text_of(*json, "certificate", kPemLimit, problem), .ca_pem = text_of(*json, "ca", kPemLimit, problem), .pod_cidr = text_of(*json, "podCIDR", 64, problem), .cluster_domain = text_of(*json, "clusterDomain", 253, problem), .pods_range = text_of(*json, "podsRange", 64, problem), .volumes_dir = text_of(*json, "volumesDir", 4'096, problem), .companion_dir = text_of(*json, "companionDir", 4'096, problem, false), .labels = {}, .taints = Json::array()};
  if (!problem.empty()) return fail(Code::Invalid, "the server's answer: " + problem);
  if (!out.volumes_dir.starts_with('/') || (!out.companion_dir.empty() && !out.companion_dir.starts_with('/'))) return fail(Code::Invalid, "the server's answer: a folder's path begins with a slash");
  for (const auto& [key, value] : (*json)["labels"].members()) out.labels[key] = value.string();
  if ((*json)["taints"].is_array()) out.taints = (*json)["taints"];
  return out;
}

}  // namespace fairlead::api
