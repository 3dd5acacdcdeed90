// SPDX-License-Identifier: Apache-2.0
#include "kube/kubeconfig.h"

#include <fmt/format.h>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::kube {
namespace {

// The named entry of `clusters`, `users` or `contexts`: [{name, cluster: {...}}].
Result<Json> entry_of(const Json& config, const char* list, const char* field, const std::string& name) {
  for (const auto& entry : config[list].items()) {
    if (entry["name"].string() == name) return entry[field];
  }
  return fail(Code::NotFound, fmt::format("{} \"{}\" is not in {}", field, name, list));
}

std::string resolve(const std::string& folder, const std::string& path) { return path.empty() || path[0] == '/' ? path : folder + "/" + path; }

// "x-data" in base64, or the file that "x" names. Data wins, as in client-go.
Result<std::string> bytes_of(const Json& entry, const std::string& name, const std::string& folder) {
  if (const std::string& data = entry[name + "-data"].string(); !data.empty()) {
    auto bytes = parse_base64(data);
    if (!bytes) return pass(std::move(bytes.error()), name + "-data");
    return bytes;
  }
  const std::string& path = entry[name].string();
  if (path.empty()) return std::string();
  auto bytes = read_file(resolve(folder, path), 1_MiB);
  if (!bytes) return pass(std::move(bytes.error()), name);
  return bytes;
}

Result<void> read_user(const Json& user, const std::string& folder, RestConfig& rest) {
  for (const char* const field : {"exec", "auth-provider", "username", "password"}) {
    if (!user.has(field)) continue;
    return fail(Code::Unsupported, fmt::format("\"{}\" is not supported: use a client certificate, a token or a tokenFile", field));
  }
  auto certificate = bytes_of(user, "client-certificate", folder);
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  auto key = bytes_of(user, "client-key", folder);
  if (!key) return std::unexpected(std::move(key.error()));
  if (certificate->empty() != key->empty()) return fail(Code::Invalid, "client-certificate and client-key are needed together");
  rest.certificate_pem = std::move(*certificate);
  rest.key_pem = std::move(*key);
  rest.token_file = resolve(folder, user["tokenFile"].string());
  rest.token = user["token"].string();
  return {};
}

Result<void> read_cluster(const Json& cluster, const std::string& folder, InsecureServer insecure, RestConfig& rest) {
  rest.server = cluster["server"].string();
  if (rest.server.empty()) return fail(Code::Invalid, "no server");
  if (!cluster["proxy-url"].string().empty()) return fail(Code::Unsupported, "\"proxy-url\" is not supported");
  rest.server_name = cluster["tls-server-name"].string();
  rest.trust_any_server = cluster["insecure-skip-tls-verify"].boolean();
  if (rest.trust_any_server && insecure == InsecureServer::Refuse) {
    return fail(Code::Unsupported, "\"insecure-skip-tls-verify\" would let anybody play the server: give its certificate-authority-data instead");
  }
  auto ca = bytes_of(cluster, "certificate-authority", folder);
  if (!ca) return std::unexpected(std::move(ca.error()));
  rest.ca_pem = std::move(*ca);
  return {};
}

}  // namespace

Result<Kubeconfig> parse_kubeconfig(const std::string& text, const std::string& folder, const std::string& context, InsecureServer insecure) {
  auto documents = parse_yaml(text);
  if (!documents) return std::unexpected(std::move(documents.error()));
  if (documents->size() != 1 || !(*documents)[0].is_object()) return fail(Code::Invalid, "not a kubeconfig");
  const Json& config = (*documents)[0];
  Kubeconfig out;
  out.context = context.empty() ? config["current-context"].string() : context;
  if (out.context.empty()) return fail(Code::Invalid, "current-context is not set and no context was named");
  const auto chosen = entry_of(config, "contexts", "context", out.context);
  if (!chosen) return std::unexpected(chosen.error());
  out.user = (*chosen)["user"].string();
  if (const std::string& space = (*chosen)["namespace"].string(); !space.empty()) out.space = space;
  const std::string& cluster_name = (*chosen)["cluster"].string();
  const auto cluster = entry_of(config, "clusters", "cluster", cluster_name);
  if (!cluster) return std::unexpected(cluster.error());
  if (auto read = read_cluster(*cluster, folder, insecure, out.rest); !read) return pass(std::move(read.error()), fmt::format("cluster \"{}\"", cluster_name));
  if (!out.user.empty()) {
    const auto user = entry_of(config, "users", "user", out.user);
    if (!user) return std::unexpected(user.error());
    if (auto read = read_user(*user, folder, out.rest); !read) return pass(std::move(read.error()), fmt::format("user \"{}\"", out.user));
  }
  return out;
}

Result<Kubeconfig> read_kubeconfig(const std::string& path, const std::string& context, InsecureServer insecure) {
  auto text = read_file(path, 4_MiB);
  if (!text) return pass(std::move(text.error()), "read kubeconfig");
  const auto slash = path.rfind('/');
  auto out = parse_kubeconfig(*text, slash == std::string::npos ? "." : path.substr(0, slash), context, insecure);
  if (!out) return pass(std::move(out.error()), "kubeconfig " + path);
  return out;
}

std::string print_kubeconfig(const RestConfig& rest, const std::string& name, const std::string& space) {
  Json cluster = Json::object({{"server", rest.server}});
  if (!rest.ca_pem.empty()) cluster.set("certificate-authority-data", base64(rest.ca_pem));
  if (!rest.server_name.empty()) cluster.set("tls-server-name", rest.server_name);
  if (rest.trust_any_server) cluster.set("insecure-skip-tls-verify", true);
  Json user = Json::object();
  if (!rest.certificate_pem.empty()) {
    user.set("client-certificate-data", base64(rest.certificate_pem));
    user.set("client-key-data", base64(rest.key_pem));
  }
  if (!rest.token.empty()) user.set("token", rest.token);
  if (!rest.token_file.empty()) user.set("tokenFile", rest.token_file);
  const Json config = Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Config"},
       {"current-context", name},
       {"clusters", Json::array({Json::object({{"name", name}, {"cluster", cluster}})})},
       {"users", Json::array({Json::object({{"name", name}, {"user", user}})})},
       {"contexts",
        Json::array({Json::object({{"name", name}, {"context", Json::object({{"cluster", name}, {"user", name}, {"namespace", space}})}})})}});
  return print_yaml(config);
}

Result<void> write_kubeconfig(const std::string& path, const RestConfig& rest, const std::string& name, const std::string& space) {
  return write_file_atomically(path, print_kubeconfig(rest, name, space), 0600);
}

}  // namespace fairlead::kube
