// SPDX-License-Identifier: Apache-2.0
// The file that kubectl and every other client reads to find a cluster and its credentials.
#pragma once
#include <functional>
#include <string>

#include "kube/rest_client.h"

namespace fairlead::kube {

struct Kubeconfig {
  RestConfig rest;
  std::string context, user;
  std::string space = "default";  // the context's namespace
};

enum class InsecureServer { Refuse, Allow };  // what insecure-skip-tls-verify means to us

// `context` "" : current-context. Relative paths in it are relative to its folder. `path` may be several by colon, as $KUBECONFIG: the first that names
// something wins, missing ones are skipped.
// NotFound: no such file or context. Invalid: not a kubeconfig. Unsupported: auth providers, passwords, plug-ins that need a terminal, and an insecure
// server unless it is allowed.
Result<Kubeconfig> read_kubeconfig(const std::string& path, const std::string& context = "", InsecureServer insecure = InsecureServer::Refuse);
Result<Kubeconfig> parse_kubeconfig(const std::string& text, const std::string& folder, const std::string& context = "",
                                    InsecureServer insecure = InsecureServer::Refuse);

struct LoadOptions {
  std::string kubeconfig;  // --kubeconfig; empty: $KUBECONFIG, then the pod's service account, then $HOME/.kube/config
  std::string context;
  InsecureServer insecure = InsecureServer::Refuse;
  std::function<std::string(const char*)> environment;  // "" where unset
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};
// How to reach the cluster that is meant, proxies included (proxy-url, else HTTPS_PROXY and NO_PROXY). NotFound: nothing says which; the message tells where was looked.
Result<Kubeconfig> load_config(const LoadOptions& options);

// One cluster, user and context named `name`, with everything inside it (no paths but a token file). Mode 0600, replaced atomically.
std::string print_kubeconfig(const RestConfig& rest, const std::string& name, const std::string& space = "default");
Result<void> write_kubeconfig(const std::string& path, const RestConfig& rest, const std::string& name, const std::string& space = "default");

}  // namespace fairlead::kube
