// SPDX-License-Identifier: Apache-2.0
// Credentials from a program of the user's (client.authentication.k8s.io/v1): aws eks get-token, gke-gcloud-auth-plugin and the like.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"

namespace fairlead::kube {

struct ExecPlugin {
  std::string command;  // a path, or a name looked up in PATH
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> environment;  // beside our own
  std::string api_version = "client.authentication.k8s.io/v1";   // or .../v1beta1
  std::string install_hint;
  Json cluster;  // what it is told of the server (provideClusterInfo); null: nothing
};

struct Credentials {
  std::string token, certificate_pem, key_pem;
  std::optional<Instant> expires;  // none: until refused
};

// Of users[].user.exec. Unsupported: another version, interactiveMode Always. `folder`: of the kubeconfig, for commands given by a relative path.
Result<ExecPlugin> parse_exec_plugin(const Json& exec, const std::string& folder);
// What the program has printed. Invalid: neither token nor certificate, another apiVersion.
Result<Credentials> parse_exec_credential(std::string_view text, const std::string& api_version);
// Runs it without a terminal, for at most a minute. Unauthorized: it is not there or fails; the message has its last words and the install hint.
Result<Credentials> run_exec_plugin(const ExecPlugin& plugin);

}  // namespace fairlead::kube
