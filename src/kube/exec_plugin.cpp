// SPDX-License-Identifier: Apache-2.0
#include "kube/exec_plugin.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/process.h"

namespace fairlead::kube {
namespace {

constexpr std::chrono::milliseconds longest_run = 60s;

std::string last_words(const std::string& text) {
  const std::string_view all = trim(text);
  std::string out(all.size() > 400 ? all.substr(all.size() - 400) : all);
  for (char& one : out)
    if (static_cast<unsigned char>(one) < ' ') one = ' ';
  return out;
}

// The program needs ours: HOME, PATH, AWS_PROFILE and what else it knows.
std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> out;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const auto equals = entry.find('=');
    if (equals != std::string_view::npos) out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return out;
}

}  // namespace

Result<ExecPlugin> parse_exec_plugin(const Json& exec, const std::string& folder) {
  ExecPlugin out;
  out.command = exec["command"].string();
  if (out.command.empty()) return fail(Code::Invalid, "\"exec\" names no command");
  if (out.command.find('/') != std::string::npos && out.command[0] != '/') out.command = folder + "/" + out.command;
  for (const auto& arg : exec["args"].items()) out.args.push_back(arg.string());
  for (const auto& one : exec["env"].items()) {
    if (one["name"].string().empty() || one["name"].string().find('=') != std::string::npos) return fail(Code::Invalid, "\"exec.env\" has an entry without a name");
    out.environment.emplace_back(one["name"].string(), one["value"].string());
  }
  if (const std::string& version = exec["apiVersion"].string(); !version.empty()) out.api_version = version;
  if (out.api_version != "client.authentication.k8s.io/v1" && out.api_version != "client.authentication.k8s.io/v1beta1")
    return fail(Code::Unsupported, fmt::format("\"exec.apiVersion\" {} is not supported: client.authentication.k8s.io/v1 is", out.api_version));
  if (exec["interactiveMode"].string() == "Always") return fail(Code::Unsupported, "\"exec.interactiveMode: Always\" needs a terminal, which this program does not give to it");
  out.install_hint = exec["installHint"].string();
  return out;
}

Result<Credentials> parse_exec_credential(std::string_view text, const std::string& api_version) {
  auto value = parse_json(text);
  if (!value) return fail(Code::Invalid, "what it printed is not JSON");  // not the text: it may hold the credentials
  if ((*value)["kind"].string() != "ExecCredential") return fail(Code::Invalid, "what it printed is no ExecCredential");
  if ((*value)["apiVersion"].string() != api_version) return fail(Code::Invalid, fmt::format("it printed an ExecCredential of {}, not {}", (*value)["apiVersion"].string(), api_version));
  const Json& status = (*value)["status"];
  Credentials out{.token = status["token"].string(), .certificate_pem = status["clientCertificateData"].string(), .key_pem = status["clientKeyData"].string(), .expires = {}};
  if (out.certificate_pem.empty() != out.key_pem.empty()) return fail(Code::Invalid, "its clientCertificateData and clientKeyData are needed together");
  if (out.token.empty() && out.certificate_pem.empty()) return fail(Code::Invalid, "its ExecCredential has neither token nor certificate");
  if (out.token.find_first_of("\r\n") != std::string::npos) return fail(Code::Invalid, "its token has a line break");
  if (const std::string& until = status["expirationTimestamp"].string(); !until.empty()) {
    auto time = parse_time(until);
    if (!time) return pass(std::move(time.error()), "its expirationTimestamp");
    out.expires = *time;
  }
  return out;
}

Result<Credentials> run_exec_plugin(const ExecPlugin& plugin) {
  const auto failed = [&](const std::string& why) {
    return fail(Code::Unauthorized, fmt::format("credentials by {}: {}{}{}", plugin.command, why, plugin.install_hint.empty() ? "" : "; ", last_words(plugin.install_hint)));
  };
  Command command{.argv = {plugin.command}, .environment = own_environment(), .working_directory = ""};
  command.argv.insert(command.argv.end(), plugin.args.begin(), plugin.args.end());
  for (const auto& [name, value] : plugin.environment) (*command.environment)[name] = value;
  Json spec = Json::object({{"interactive", false}});
  if (!plugin.cluster.is_null()) spec.set("cluster", plugin.cluster);
  (*command.environment)["KUBERNETES_EXEC_INFO"] = print_json(Json::object({{"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", spec}}));
  command.die_with_parent = true;
  auto output = run(std::move(command), longest_run);
  if (!output) return failed(output.error().message);
  if (output->exit.code != 0) return failed(fmt::format("exit status {}: {}", output->exit.code, last_words(output->err)));
  auto credentials = parse_exec_credential(output->out, plugin.api_version);
  if (!credentials) return failed(credentials.error().message);
  return credentials;
}

}  // namespace fairlead::kube
