// SPDX-License-Identifier: Apache-2.0
#include "kube/kubeconfig.h"

#include <fmt/format.h>

#include "base/encoding.h"
#include "base/files.h"
#include "http/proxy.h"

namespace fairlead::kube {
namespace {

struct ConfigFile {
  Json config;
  std::string folder;
};

// The named entry of `clusters`, `users` or `contexts`: [{name, cluster: {...}}], and the folder that its paths are relative to.
Result<std::pair<Json, std::string>> entry_of(const std::vector<ConfigFile>& files, const char* list, const char* field, const std::string& name) {
  for (const auto& file : files)
    for (const auto& entry : file.config[list].items())
      if (entry["name"].string() == name) return std::pair(entry[field], file.folder);
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
  for (const char* const field : {"auth-provider", "username", "password"}) {
    if (!user.has(field)) continue;
    return fail(Code::Unsupported, fmt::format("\"{}\" is not supported: use a client certificate, a token, a tokenFile or an exec plug-in", field));
  }
  auto certificate = bytes_of(user, "client-certificate", folder);
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  auto key = bytes_of(user, "client-key", folder);
  if (!key) return std::unexpected(std::move(key.error()));
  if (certificate->empty() != key->empty()) return fail(Code::Invalid, "client-certificate and client-key are needed together");
  rest.certificate_pem = std::move(*certificate);
  rest.key_pem = std::move(*key);
  if (user["client-certificate-data"].string().empty()) rest.certificate_file = resolve(folder, user["client-certificate"].string());
  if (user["client-key-data"].string().empty()) rest.key_file = resolve(folder, user["client-key"].string());
  rest.token_file = resolve(folder, user["tokenFile"].string());
  rest.token = user["token"].string();
  if (user["exec"].is_object() && rest.token.empty() && rest.token_file.empty() && rest.certificate_pem.empty()) {  // what is said outright wins, as in client-go
    auto plugin = parse_exec_plugin(user["exec"], folder);
    if (!plugin) return std::unexpected(std::move(plugin.error()));
    rest.exec = std::move(*plugin);
  }
  return {};
}

// What a plug-in that asks for it is told of the server.
Json cluster_info(const Json& cluster, const RestConfig& rest) {
  Json out = Json::object({{"server", rest.server}});
  if (!rest.server_name.empty()) out.set("tls-server-name", rest.server_name);
  if (!rest.ca_pem.empty()) out.set("certificate-authority-data", base64(rest.ca_pem));
  if (!rest.proxy.empty()) out.set("proxy-url", rest.proxy);
  for (const auto& extension : cluster["extensions"].items())
    if (extension["name"].string() == "client.authentication.k8s.io/exec") out.set("config", extension["extension"]);
  return out;
}

Result<void> read_cluster(const Json& cluster, const std::string& folder, InsecureServer insecure, RestConfig& rest) {
  rest.server = cluster["server"].string();
  if (rest.server.empty()) return fail(Code::Invalid, "no server");
  rest.proxy = cluster["proxy-url"].string();
  if (!rest.proxy.empty())
    if (auto proxy = http::parse_proxy(rest.proxy); !proxy) return pass(std::move(proxy.error()), "proxy-url");
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

namespace {

Result<Json> parse_file(const std::string& text) {
  auto documents = parse_yaml(text);
  if (!documents) return std::unexpected(std::move(documents.error()));
  if (documents->size() != 1 || !(*documents)[0].is_object()) return fail(Code::Invalid, "not a kubeconfig");
  return std::move((*documents)[0]);
}

Result<Kubeconfig> choose(const std::vector<ConfigFile>& files, const std::string& context, InsecureServer insecure) {
  Kubeconfig out;
  out.context = context;
  for (const auto& file : files)
    if (out.context.empty()) out.context = file.config["current-context"].string();
  if (out.context.empty()) return fail(Code::Invalid, "current-context is not set and no context was named");
  const auto chosen = entry_of(files, "contexts", "context", out.context);
  if (!chosen) return std::unexpected(chosen.error());
  out.user = chosen->first["user"].string();
  if (const std::string& space = chosen->first["namespace"].string(); !space.empty()) out.space = space;
  const std::string& cluster_name = chosen->first["cluster"].string();
  const auto cluster = entry_of(files, "clusters", "cluster", cluster_name);
  if (!cluster) return std::unexpected(cluster.error());
  if (auto read = read_cluster(cluster->first, cluster->second, insecure, out.rest); !read) return pass(std::move(read.error()), fmt::format("cluster \"{}\"", cluster_name));
  if (out.user.empty()) return out;
  const auto user = entry_of(files, "users", "user", out.user);
  if (!user) return std::unexpected(user.error());
  if (auto read = read_user(user->first, user->second, out.rest); !read) return pass(std::move(read.error()), fmt::format("user \"{}\"", out.user));
  if (out.rest.exec && user->first["exec"]["provideClusterInfo"].boolean()) out.rest.exec->cluster = cluster_info(cluster->first, out.rest);
  return out;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Result<Kubeconfig> in_cluster(const LoadOptions& options, const std::string& host) {
  Kubeconfig out;
  const std::string port = options.environment("KUBERNETES_SERVICE_PORT");
  out.rest.server = fmt::format("https://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port.empty() ? "443" : port);
  out.rest.token_file = options.service_account + "/token";
  auto ca = read_file(options.service_account + "/ca.crt", 1_MiB);
  if (!ca) return pass(std::move(ca.error()), "service account");
  out.rest.ca_pem = std::move(*ca);
  out.context = "in-cluster";
  if (auto space = read_file(options.service_account + "/namespace", 1_MiB); space && !trim(*space).empty()) out.space = std::string(trim(*space));
  return out;
}

}  // namespace

Result<Kubeconfig> parse_kubeconfig(const std::string& text, const std::string& folder, const std::string& context, InsecureServer insecure) {
  auto config = parse_file(text);
  if (!config) return std::unexpected(std::move(config.error()));
  return choose({ConfigFile{std::move(*config), folder}}, context, insecure);
}

Result<Kubeconfig> read_kubeconfig(const std::string& path, const std::string& context, InsecureServer insecure) {
  std::vector<ConfigFile> files;
  std::optional<Error> missing;
  for (const std::string& one : split(path, ':')) {
    if (one.empty()) continue;
    auto text = read_file(one, 4_MiB);
    if (!text && text.error().code == Code::NotFound) {
      missing = std::move(text.error());
      continue;
    }
    if (!text) return pass(std::move(text.error()), "read kubeconfig");
    auto config = parse_file(*text);
    if (!config) return pass(std::move(config.error()), "kubeconfig " + one);
    files.push_back({std::move(*config), folder_of(one)});
  }
  if (files.empty()) return pass(missing ? std::move(*missing) : Error{Code::NotFound, "no file is named"}, "read kubeconfig");
  auto out = choose(files, context, insecure);
  if (!out) return pass(std::move(out.error()), "kubeconfig " + path);
  return out;
}

Result<Kubeconfig> load_config(const LoadOptions& options) {
  const auto environment = [&](const char* upper, const char* small) {
    std::string value = options.environment(upper);
    return value.empty() ? options.environment(small) : value;
  };
  Result<Kubeconfig> out = fail(Code::NotFound, "which cluster? Neither --kubeconfig nor $KUBECONFIG names a file, this is no pod with a service account, and $HOME/.kube/config is not there");
  const std::string named = options.kubeconfig.empty() ? options.environment("KUBECONFIG") : options.kubeconfig;
  const std::string host = options.environment("KUBERNETES_SERVICE_HOST"), home = options.environment("HOME");
  if (!named.empty()) {
    out = read_kubeconfig(named, options.context, options.insecure);
  } else if (!host.empty() && exists(options.service_account + "/token") && options.context.empty()) {
    out = in_cluster(options, host);
  } else if (!home.empty() && exists(home + "/.kube/config")) {
    out = read_kubeconfig(home + "/.kube/config", options.context, options.insecure);
  }
  if (!out || !out->rest.proxy.empty()) return out;
  auto url = parse_server(out->rest.server);
  if (!url) return std::unexpected(std::move(url.error()));
  const http::ProxySettings settings{.http = environment("HTTP_PROXY", "http_proxy"), .https = environment("HTTPS_PROXY", "https_proxy"), .none = environment("NO_PROXY", "no_proxy")};
  out->rest.proxy = http::choose_proxy(settings, url->tls, url->host, url->port);
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
