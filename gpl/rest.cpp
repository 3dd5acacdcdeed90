// SPDX-License-Identifier: GPL-3.0-or-later
#include "rest.h"

#include <arpa/inet.h>
#include <glob.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "accounting.h"
#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "exporter_pod.h"
#include "prepare.h"
#include "reach.h"
#include "supervise.h"

namespace fairlead::companion {
namespace {

using namespace std::chrono_literals;
constexpr const char* kMounted = "/etc/fairlead/token-key/rest_jwt.key";
constexpr const char* kConf = "/etc/slurm/slurm.conf";
constexpr std::size_t kLeastKey = 32;  // RFC 7518 section 3.2: as long as the hash

std::string variable(const char* name, const char* otherwise = "") {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

// Anything that begins like an answer: without a token it is 401, and whether Slurm answers behind it no probe may ask.
bool answers(const std::string& address, const std::string& port) {
  const auto peers = addresses_of(address, static_cast<std::uint16_t>(std::atoi(port.c_str())));
  if (peers.empty()) return false;
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{.tv_sec = 3, .tv_usec = 0};
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 || ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) return false;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&peers[0]), sizeof peers[0]) != 0) return false;
  const std::string question = "GET /openapi/v3 HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n";
  if (::send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(question.size())) return false;
  char begin[5];
  return ::recv(fd.get(), begin, sizeof begin, MSG_WAITALL) == sizeof begin && std::string_view(begin, sizeof begin) == "HTTP/";
}

// slurmrestd 22.05 ends where it has a plug-in for slurmdbd and slurm.conf names none. Nothing: all that it finds are good.
std::string plugins_without_accounting() {
  std::string out;
  for (const char* place : {"/usr/lib/*/slurm-wlm/", "/usr/lib/*/slurm/", "/usr/lib64/slurm/", "/usr/lib/slurm/"}) {
    glob_t found{};
    if (::glob((std::string(place) + "openapi_v*.so").c_str(), 0, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc; ++i) out += (out.empty() ? "" : ",") + plugin_of(found.gl_pathv[i]);
    ::globfree(&found);
  }
  return out;
}

}  // namespace

Result<void> place_token_key() {
  if (!exists(kMounted)) return {};
  auto key = read_file(kMounted);
  if (!key) return pass(std::move(key.error()), "key of tokens");
  if (key->size() < kLeastKey) return fail(Code::Invalid, fmt::format("the key of tokens has {} bytes; at least {} are needed: delete the Secret, and a key is made", key->size(), kLeastKey));
  return write_for_slurm(kTokenKey, *key, 0400);
}

int run_rest() {
  const std::string addresses = listen_addresses(variable("FAIRLEAD_POD_IPS"), variable("FAIRLEAD_REST_PORT", "6820"));
  const auto complain = [](const Error& error) {
    log_error("slurmrestd cannot be started", {{"error", error.message}});
    return 1;
  };
  if (addresses.empty()) return complain({Code::Invalid, "FAIRLEAD_POD_IPS names no IPv4 address: Slurm 22.05 speaks no other"});
  if (const std::string needs = variable("FAIRLEAD_CONF_NEEDS"); !needs.empty() && !wait_for_settings(kConf, needs)) return complain({Code::Unavailable, std::string(kConf) + " does not hold what this pod was made for after 90 s: " + needs});
  auto conf = read_file(kConf);
  if (!conf) return complain(conf.error());
  std::vector<std::string> argv = {"slurmrestd", "-a", "rest_auth/jwt", "-t", variable("FAIRLEAD_REST_THREADS", "3")};
  if (conf->find("\nAccountingStorageType=accounting_storage/slurmdbd") == std::string::npos)
    if (std::string plugins = plugins_without_accounting(); !plugins.empty()) argv.insert(argv.end(), {"-s", std::move(plugins)});
  if (auto prepared = prepare_exporter_pod(); !prepared) return complain(prepared.error());
  auto environment = own_environment();
  environment["SLURM_JWT"] = "daemon";  // auth/jwt alone: no munge is asked for
  environment["SLURMRESTD_LISTEN"] = addresses;
  // What it would share with nobody: this container runs nothing else, and some runtimes forbid unshare.
  environment["SLURMRESTD_SECURITY"] = "disable_unshare_sysv,disable_unshare_files";
  return supervise({.command = {.argv = std::move(argv), .environment = std::move(environment), .stdout_fd = 1, .stderr_fd = 2}, .restart_in_place = true});
}

int check_rest() {
  for (const std::string& one : split(listen_addresses(variable("FAIRLEAD_POD_IPS"), variable("FAIRLEAD_REST_PORT", "6820")), ',')) {
    const auto colon = one.rfind(':');
    if (colon == std::string::npos || answers(one.substr(0, colon), one.substr(colon + 1))) continue;
    std::fprintf(stderr, "slurmrestd does not answer at %s\n", one.c_str());
    return 1;
  }
  return 0;
}

}  // namespace fairlead::companion
