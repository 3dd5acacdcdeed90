// SPDX-License-Identifier: Apache-2.0
#include "agent/join.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "agent/host_facts.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"
#include "http/client.h"
#include "http/pki.h"
#include "kube/json.h"
#include "node/cgroup.h"
#include "node/control/route_controller.h"
#include "node/mounts.h"
#include "node/netlink.h"

namespace fairlead::agent {

using kube::Json;
using namespace std::chrono_literals;

namespace {

constexpr auto kPause = 1s;

// "https://10.0.0.5:6443" for the client; what follows the host and its port does not count.
Result<http::ClientOptions> client_for(const std::string& server, const std::string& ca_pem) {
  constexpr std::string_view scheme = "https://";
  if (!server.starts_with(scheme)) return fail(Code::Invalid, server + " is not the URL of a server");
  const std::string place = server.substr(scheme.size(), server.find('/', scheme.size()) - scheme.size());
  const std::size_t colon = place.rfind(':');
  http::ClientOptions out{.host = place.substr(0, colon), .ca_pem = ca_pem, .request_timeout = 30s, .kept_connections = 1};
  if (colon != std::string::npos) {
    const std::string port = place.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65'535) return fail(Code::Invalid, server + " is not the URL of a server");
    out.port = static_cast<unsigned short>(std::stoi(port));
  }
  return out;
}

// The words of a refusal.
std::string words_of(const http::Response& response) {
  auto json = kube::parse_json(response.body);
  const std::string message = json ? (*json)["message"].string() : "";
  return message.empty() ? fmt::format("the server answered {}", response.status) : message;
}

Result<http::Response> post(const http::ClientOptions& where, const char* path, std::string body) {
  auto client = http::Client::make(where);
  if (!client) return std::unexpected(std::move(client.error()));
  return (*client)->request({.method = "POST", .target = path, .headers = {{"Content-Type", "application/json"}, {"User-Agent", "fairlead-agent/" FAIRLEAD_VERSION}}, .body = std::move(body)});
}

// Unavailable: asked again. What the server says of the request itself is not.
Code code_of(int status) {
  switch (status) {
    case 401: return Code::Unauthorized;
    case 409: return Code::Conflict;
    case 400: case 413: case 422: return Code::Invalid;
    default: return Code::Unavailable;
  }
}

struct Asked {
  api::JoinAnswer answer;
  std::string server;
};
// Each server in turn, until one lets us in or refuses; for as long as patience lasts.
Result<Asked> ask(const JoinOptions& options, const std::string& body, const Clock& clock) {
  const auto deadline = clock.monotonic() + options.patience;
  std::string told;
  while (true) {
    Error last{Code::Unavailable, "the token names no server"};
    for (const std::string& server : options.token.servers) {
      const auto where = client_for(server, options.token.ca_pem);
      if (!where) return std::unexpected(where.error());
      auto response = post(*where, api::kJoinPath, body);
      if (response && response->status == 200) {
        auto answer = api::parse_join_answer(response->body);
        if (!answer) return fail(Code::Internal, answer.error().message);
        return Asked{std::move(*answer), server};
      }
      last = response ? Error{code_of(response->status), words_of(*response)} : response.error();
      if (last.code != Code::Unavailable) return std::unexpected(std::move(last));
    }
    if (clock.monotonic() >= deadline) return std::unexpected(std::move(last));
    if (last.message != told) options.tell("waiting: " + last.message);
    told = last.message;
    std::this_thread::sleep_for(kPause);
  }
}

// The key that is asked with: written down before anybody is asked to certify it, beside the one that may be in use. `made`: by this call.
Result<std::string> key_of(const JoinOptions& options, bool& made) {
  const std::string path = options.places.next_key();
  if (exists(path)) return read_file(path, 64_KiB);
  auto key = http::make_key();
  if (!key) return key;
  if (auto done = make_dirs(options.places.config_dir, 0755); !done) return std::unexpected(std::move(done.error()));
  if (auto done = write_file_durably(path, *key, 0600); !done) return std::unexpected(std::move(done.error()));
  made = true;
  return key;
}

Result<void> write_down(const JoinOptions& options, const Asked& asked, const std::string& address) {
  const JoinPlaces& places = options.places;
  const api::JoinAnswer& answer = asked.answer;
  Json labels = Json::object();
  for (const auto& [key, value] : answer.labels) labels.set(key, value);
  Json config = Json::object({{"node_name", options.token.name},
                              {"node_ip", address},
                              {"pod_cidr", answer.pod_cidr},
                              {"api_server", asked.server},
                              {"ca_file", places.config_dir + "/ca.crt"},
                              {"cert_file", places.certificate()},
                              {"key_file", places.key()},
                              {"node_dir", places.state_dir + "/node"},
                              {"run_dir", places.run_dir},
                              {"images_dir", places.state_dir + "/images"},
                              {"volumes_dir", answer.volumes_dir},
                              {"cgroup_parent", places.cgroup_parent},
                              {"labels", std::move(labels)},
                              {"taints", answer.taints},
                              {"cluster_domain", answer.cluster_domain},
                              {"masquerade", true},
                              {"joined", true},
                              {"cdi_dirs", Json::array(std::vector<Json>(places.cdi_dirs.begin(), places.cdi_dirs.end()))},
                              {"boot_id_file", places.boot_id_file},
                              {"pods_range", answer.pods_range},
                              {"reboot_command", places.reboot_command}});
  if (!answer.companion_dir.empty()) config.set("companion_dir", answer.companion_dir);
  // Joining anew keeps it. Where it is off there is no word of it: an agent of before would not know it.
  const auto before = exists(places.config()) ? node::read_node_config(places.config()) : Result<node::NodeConfig>(node::NodeConfig());
  if (options.metadata || (before && before->metadata)) config.set("metadata", true);
  const std::string text = kube::print_json_indented(config) + "\n";
  // Nothing is put in the place of what is in use before the agent would take it.
  if (auto read = node::parse_node_config(text); !read) return std::unexpected(std::move(read.error()));
  for (const auto& [path, bytes] : {std::pair(places.config_dir + "/ca.crt", answer.ca_pem), std::pair(places.certificate(), answer.certificate), std::pair(places.config(), text)})
    if (auto done = write_file_durably(path, bytes, 0644); !done) return done;
  // Last: until then the same key asks again.
  if (::rename(places.next_key().c_str(), places.key().c_str()) != 0) return fail_errno(errno, "put the key in its place");
  return {};
}

// A join that was cut off when all but the key was in its place.
Result<void> finish(const JoinPlaces& places) {
  if (!exists(places.next_key()) || !exists(places.config())) return {};
  auto key = read_file(places.next_key(), 64_KiB), certificate = read_file(places.certificate(), 64_KiB);
  if (!key || !certificate) return {};
  const auto own = http::fingerprint_of_key(*key), its = http::fingerprint_of_certificate(*certificate);
  if (!own || !its || *own != *its) return {};
  if (::rename(places.next_key().c_str(), places.key().c_str()) != 0) return fail_errno(errno, "put the key in its place");
  return {};
}

}  // namespace

Result<Joined> join(const JoinOptions& options, const Clock& clock) {
  const JoinPlaces& places = options.places;
  // A key that still waits is of a join that was cut off.
  if (auto done = finish(places); !done) return std::unexpected(std::move(done.error()));
  const bool unfinished = exists(places.next_key());
  if (exists(places.config()) && !options.again) {
    auto there = node::read_node_config(places.config());
    if (!there) return pass(std::move(there.error()), "this host has a configuration already");
    const bool same = there->joined && there->node_name == options.token.name && std::ranges::find(options.token.servers, there->api_server) != options.token.servers.end();
    if (!same) return fail(Code::Exists, fmt::format("this host is a node already, {} at {}: `fairlead leave` ends that, --again joins anew in its place", there->node_name, there->api_server));
    if (!unfinished && options.metadata && !there->metadata) return fail(Code::Exists, fmt::format("this host has joined without --metadata: write \"metadata\": true into {} and start the agent anew (systemctl restart fairlead-agent)", places.config()));
    if (!unfinished) return Joined{.name = there->node_name, .address = there->node_ip, .server = there->api_server, .pod_cidr = there->pod_cidr, .facts = {}, .before = true};
  }
  std::string address = options.address;
  if (address.empty()) {
    auto own = address_towards(options.token.servers.front());
    if (!own) return pass(std::move(own.error()), "which address others reach this host at (--address says it)");
    address = std::move(*own);
  }
  if (address.starts_with("127.")) return fail(Code::Invalid, fmt::format("others do not reach this host at {}: say at which address by --address", address));
  auto facts = look_at_host(address, {.cdi_dirs = places.cdi_dirs});
  if (!facts) return std::unexpected(std::move(facts.error()));
  Joined out{.name = options.token.name, .address = address, .server = options.token.servers.front(), .pod_cidr = {}, .facts = *facts};
  if (options.dry_run) return out;
  bool made = false;
  auto key = key_of(options, made);
  if (!key) return pass(std::move(key.error()), "the key of this host");
  auto request = http::make_signing_request(*key, options.token.name);
  if (!request) return std::unexpected(std::move(request.error()));
  auto asked = ask(options, api::print_join_request({.name = options.token.name, .secret = options.token.secret, .signing_request = *request, .facts = std::move(*facts)}), clock);
  if (!asked) {
    // Who was refused has joined nothing, and keeps no key for it. One that was there before may be the machine's by now, of an answer that got lost.
    if (made && (asked.error().code == Code::Unauthorized || asked.error().code == Code::Conflict || asked.error().code == Code::Invalid)) ::unlink(places.next_key().c_str());
    return std::unexpected(std::move(asked.error()));
  }
  if (auto done = write_down(options, *asked, address); !done) return pass(std::move(done.error()), "write what the server answered");
  out.server = asked->server;
  out.pod_cidr = asked->answer.pod_cidr;
  return out;
}

bool renewal_is_due(Instant begin, Instant end, Instant now) { return end <= begin || (end - now) < (end - begin) / 3; }

Result<void> renew_certificate(const node::NodeConfig& config) {
  std::string ca, certificate, key;
  for (const auto& [path, into] : {std::pair(&config.ca_file, &ca), std::pair(&config.cert_file, &certificate), std::pair(&config.key_file, &key)}) {
    auto text = read_file(*path, 1_MiB);
    if (!text) return std::unexpected(std::move(text.error()));
    *into = std::move(*text);
  }
  auto request = http::make_signing_request(key, config.node_name);
  if (!request) return std::unexpected(std::move(request.error()));
  auto where = client_for(config.api_server, ca);
  if (!where) return std::unexpected(std::move(where.error()));
  where->certificate_pem = certificate;
  where->key_pem = key;
  auto response = post(*where, api::kRenewPath, kube::print_json(Json::object({{"request", *request}})));
  if (!response) return std::unexpected(std::move(response.error()));
  if (response->status != 200) return fail(code_of(response->status), words_of(*response));
  auto json = kube::parse_json(response->body);
  const std::string text = json ? (*json)["certificate"].string() : "";
  const auto own = http::fingerprint_of_key(key), its = http::fingerprint_of_certificate(text);
  if (!own || !its || *own != *its) return fail(Code::Invalid, "the server's answer is no certificate of this host's key");
  return write_file_durably(config.cert_file, text, 0644);
}

Result<Fd> lock_agent(const std::string& run_dir) {
  if (auto done = make_dirs(run_dir, 0711); !done) return std::unexpected(std::move(done.error()));
  const std::string path = run_dir + "/agent.lock";
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, "open " + path);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) return fail_errno(errno, "lock " + path);
  return fail(Code::Conflict, "the agent of this host runs: stop it first");
}

Result<void> leave(const JoinPlaces& places, const std::function<void(const std::string&)>& tell) {
  auto config = node::read_node_config(places.config());
  if (config && !config->joined) return fail(Code::Invalid, fmt::format("{} was not written by `fairlead join`: whoever made this host a node takes it back", places.config()));
  if (!config && config.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("this host has not joined: there is no {}", places.config()));
  if (!config) return std::unexpected(std::move(config.error()));
  auto alone = lock_agent(config->run_dir);
  if (!alone) return std::unexpected(std::move(alone.error()));
  auto cgroups = node::CgroupTree::open();
  if (!cgroups) return std::unexpected(std::move(cgroups.error()));
  // Unavailable: they are still dying.
  for (int attempt = 0;; ++attempt) {
    auto done = cgroups->remove(config->cgroup_parent);
    if (done) break;
    if (done.error().code != Code::Unavailable || attempt >= 100) return pass(std::move(done.error()), "end what runs in pods");
    std::this_thread::sleep_for(100ms);
  }
  tell("what ran in its pods has ended");
  for (const std::string& folder : {config->run_dir, config->node_dir})
    if (auto done = node::unmount_below(folder); !done) return done;
  tell("their mounts are gone");
  (void)run({.argv = {"nft", "delete", "table", "inet", "fairlead"}}, 10s);
  if (auto routes = node::our_routes()) {
    for (const auto& [range, gateway] : *routes) {
      if (!node::is_within(range, config->pods_range)) continue;
      if (auto done = node::delete_route(range); !done) return done;
    }
  }
  (void)run({.argv = {"ip", "link", "delete", config->bridge}}, 10s);
  tell("links, routes and packet rules are gone");
  for (const std::string& folder : {config->node_dir, config->run_dir})
    if (exists(folder))
      if (auto done = remove_tree(folder); !done) return done;
  // Last the configuration: until then leave() can be called again.
  for (const std::string& path : {places.certificate(), places.key(), places.next_key(), places.config_dir + "/ca.crt", places.config()})
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + path);
  tell("certificate and configuration are gone; images and volumes stay");
  return {};
}

}  // namespace fairlead::agent
