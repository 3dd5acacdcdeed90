// SPDX-License-Identifier: Apache-2.0
// The file that kubectl and every other client reads to find a cluster and its credentials.
#pragma once
#include <string>

#include "kube/rest_client.h"

namespace fairlead::kube {

struct Kubeconfig {
  RestConfig rest;
  std::string context, user;
  std::string space = "default";  // the context's namespace
};

enum class InsecureServer { Refuse, Allow };  // what insecure-skip-tls-verify means to us

// `context` "" : current-context. Relative paths in it are relative to its folder.
// NotFound: no such file or context. Invalid: not a kubeconfig. Unsupported: exec plug-ins, auth providers, passwords, proxies, and an insecure
// server unless it is allowed.
Result<Kubeconfig> read_kubeconfig(const std::string& path, const std::string& context = "", InsecureServer insecure = InsecureServer::Refuse);
Result<Kubeconfig> parse_kubeconfig(const std::string& text, const std::string& folder, const std::string& context = "",
                                    InsecureServer insecure = InsecureServer::Refuse);

// One cluster, user and context named `name`, with everything inside it (no paths but a token file). Mode 0600, replaced atomically.
std::string print_kubeconfig(const RestConfig& rest, const std::string& name, const std::string& space = "default");
Result<void> write_kubeconfig(const std::string& path, const RestConfig& rest, const std::string& name, const std::string& space = "default");

}  // namespace fairlead::kube
