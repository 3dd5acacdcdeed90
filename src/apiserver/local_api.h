// SPDX-License-Identifier: Apache-2.0
// KubeApi in process: the controllers of fairlead-server on the embedded engine. The same semantics as over HTTP, since both use the Registry.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "apiserver/registry.h"

namespace fairlead::apiserver {

// Runs a command in a pod (through its agent). Set by the program; without it exec answers Unsupported.
using ExecPort = std::function<Result<kube::ExecResult>(const kube::Json& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input,
                                                        std::chrono::milliseconds limit)>;
// Answers a kind that only answers a question (a TokenReview), asked by the server itself. NotFound: no such kind.
using ReviewPort = std::function<Result<kube::Json>(const kube::Resource& resource, const kube::Json& body)>;
inline constexpr const char *controllers_user = "system:fairlead", *server_user = "system:apiserver";  // what the latter writes no admission policy is asked about: none can keep the server from starting
std::unique_ptr<kube::KubeApi> make_local_api(Registry& registry, ExecPort exec = {}, const std::string& user = controllers_user, ReviewPort review = {});

}  // namespace fairlead::apiserver
