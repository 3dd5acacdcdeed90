// SPDX-License-Identifier: Apache-2.0
#include "node/cni.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include "base/process.h"
#include "kube/json.h"

namespace fairlead::node {
using kube::Json;

Result<std::string> Cni::call(const char* command, const std::string& sandbox, const std::string& netns) const {
  Json ranges = Json::array({Json::array({Json::object({{"subnet", options_.pod_cidr}})})});
  Json routes = Json::array({Json::object({{"dst", "0.0.0.0/0"}})});
  if (!options_.pod_cidr6.empty()) {
    ranges.push(Json::array({Json::object({{"subnet", options_.pod_cidr6}})}));
    routes.push(Json::object({{"dst", "::/0"}}));
  }
  const Json config = Json::object({{"cniVersion", "1.0.0"},
                                    {"name", "pods"},
                                    {"type", "ptp"},
                                    {"ipam", Json::object({{"type", "host-local"},
                                                           {"dataDir", options_.state_dir},
                                                           {"ranges", std::move(ranges)},
                                                           {"routes", std::move(routes)}})}});
  Command plugin{.argv = {options_.plugins_dir + "/ptp"},
                 .environment = {{{"CNI_COMMAND", command},
                                  {"CNI_CONTAINERID", sandbox},
                                  {"CNI_NETNS", netns},
                                  {"CNI_IFNAME", "eth0"},
                                  {"CNI_PATH", options_.plugins_dir},
                                  {"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}}}};
  const std::string input = kube::print_json(config);
  auto output = fairlead::run(std::move(plugin), std::chrono::seconds(30), input);
  if (!output) return pass(std::move(output.error()), fmt::format("CNI {}", command));
  if (output->exit.code == 0) return std::move(output->out);
  // A plug-in reports its error as JSON on stdout.
  std::string why = output->err;
  if (auto json = kube::parse_json(output->out); json && (*json)["msg"].is_string())
    why = (*json)["msg"].string() + " " + (*json)["details"].string();
  return fail(Code::Unavailable, fmt::format("CNI {}: {}", command, why.empty() ? fmt::format("exit status {}", output->exit.code) : why));
}

Result<std::string> Cni::add(const std::string& sandbox, const std::string& netns) const {
  auto text = call("ADD", sandbox, netns);
  if (!text) return text;
  auto json = kube::parse_json(*text);
  if (!json) return pass(std::move(json.error()), "read the result of CNI ADD");
  std::string four, six;
  for (const Json& ip : (*json)["ips"].items()) {
    const std::string address = ip["address"].string().substr(0, ip["address"].string().find('/'));
    std::string& into = address.find(':') == std::string::npos ? four : six;
    if (into.empty()) into = address;
  }
  if (four.empty() || six.empty() != options_.pod_cidr6.empty()) return fail(Code::Internal, "CNI ADD gave no address of a family that it was asked for");
  return six.empty() ? four : four + "," + six;
}

Result<void> Cni::remove(const std::string& sandbox, const std::string& netns) const {
  if (auto done = call("DEL", sandbox, netns); !done) return std::unexpected(std::move(done.error()));
  return {};
}

Result<std::string> Cni::gateway() const {
  const auto slash = options_.pod_cidr.find('/');
  in_addr address{};
  if (slash == std::string::npos || ::inet_pton(AF_INET, options_.pod_cidr.substr(0, slash).c_str(), &address) != 1)
    return fail(Code::Invalid, "pod_cidr \"" + options_.pod_cidr + "\" is not an IPv4 range");
  address.s_addr = htonl(ntohl(address.s_addr) + 1);
  char text[INET_ADDRSTRLEN];
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return std::string(text);
}

Result<std::string> Cni::gateway6() const {
  const auto slash = options_.pod_cidr6.find('/');
  in6_addr address{};
  if (slash == std::string::npos || ::inet_pton(AF_INET6, options_.pod_cidr6.substr(0, slash).c_str(), &address) != 1)
    return fail(Code::Invalid, "pod_cidr6 \"" + options_.pod_cidr6 + "\" is not an IPv6 range");
  address.s6_addr[15] |= 1;
  char text[INET6_ADDRSTRLEN];
  return std::string(::inet_ntop(AF_INET6, &address, text, sizeof text));
}

}  // namespace fairlead::node
