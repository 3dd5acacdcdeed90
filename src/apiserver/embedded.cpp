// SPDX-License-Identifier: Apache-2.0
#include "apiserver/embedded.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apiserver/proxy.h"
#include "apiserver/rbac_defaults.h"
#include "apiserver/registry_bytes.h"
#include "apiserver/status.h"
#include "base/files.h"
#include "base/rng.h"
#include "kube/kubeconfig.h"

namespace fairlead::apiserver {
namespace {


bool is_address(const std::string& text) {
  in_addr four{};
  in6_addr six{};
  return ::inet_pton(AF_INET, text.c_str(), &four) == 1 || ::inet_pton(AF_INET6, text.c_str(), &six) == 1;
}

// NAME.crt and NAME.key; the key is written first, so that a certificate that is there has its key.
Result<void> write_pair(const std::string& stem, const http::KeyPair& pair) {
  if (auto done = write_file_durably(stem + ".key", pair.key_pem, 0600); !done) return done;
  return write_file_durably(stem + ".crt", pair.certificate_pem, 0644);
}

}  // namespace

Result<std::unique_ptr<EmbeddedServer>> EmbeddedServer::start(EmbeddedOptions options, const Clock& clock) {
  std::unique_ptr<EmbeddedServer> server(new EmbeddedServer(std::move(options), clock));
  for (const auto step : {&EmbeddedServer::lock, &EmbeddedServer::make_keys, &EmbeddedServer::make_token_keys, &EmbeddedServer::serve}) {
    if (auto done = ((*server).*step)(); !done) return std::unexpected(std::move(done.error()));
  }
  return server;
}

EmbeddedServer::~EmbeddedServer() {
  if (handler_) handler_->drain();
  server_.reset();  // no handler runs from here on
  handler_.reset();
  api_.reset();
  registry_.reset();
  store_.reset();
}

Result<void> EmbeddedServer::lock() {
  if (auto done = make_dirs(options_.state_dir, 0755); !done) return pass(std::move(done.error()), "state folder");
  if (auto done = make_dirs(path("run"), 0755); !done) return pass(std::move(done.error()), "state folder");
  const std::string file = path("run/server.lock");
  lock_ = Fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) return fail_errno(errno, "open " + file);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return fail_errno(errno, "lock " + file);
  return fail(Code::Unavailable, fmt::format("another fairlead-server runs on the state folder {}: stop it first, or choose another folder with --state-dir", options_.state_dir));
}

Result<void> EmbeddedServer::make_keys() {
  const std::string pki = path("pki");
  if (auto done = make_dirs(pki, 0700); !done) return pass(std::move(done.error()), "pki");
  if (::chmod(pki.c_str(), 0700) != 0) return fail_errno(errno, "chmod " + pki);
  const Instant now = clock_.now();
  const std::string secrets = pki + "/secrets.key", ca = pki + "/ca";
  if (exists(path("store.db")) && (!exists(secrets) || !exists(ca + ".key"))) {
    return fail(Code::Invalid, fmt::format("{} holds a store but not its keys (pki/secrets.key, pki/ca.key): put them back, or move store.db away to begin anew", options_.state_dir));
  }
  auto folder = KeyFolder::open(pki, options_.root_key.get(), options_.old_root_key.get());
  if (!folder) return std::unexpected(std::move(folder.error()));
  keys_ = std::move(*folder);
  if (!exists(secrets)) {
    if (auto done = keys_->write("secrets.key", "secrets", secret_bytes(32)); !done) return done;
  }
  auto key = keys_->read("secrets.key", "secrets");
  if (!key) return std::unexpected(std::move(key.error()));
  if (key->size() != 32) return fail(Code::Invalid, fmt::format("{} is not a key of 32 bytes", secrets));
  secret_key_ = std::move(*key);

  if (!exists(ca + ".crt")) {
    auto made = http::make_ca("fairlead-ca", now);
    if (!made) return std::unexpected(std::move(made.error()));
    // The key is written first, so that a certificate that is there has its key.
    if (auto done = keys_->write("ca.key", "ca", made->key_pem); !done) return done;
    if (auto done = write_file_durably(ca + ".crt", made->certificate_pem, 0644); !done) return done;
  }
  auto ca_certificate = read_file(ca + ".crt"), ca_key = keys_->read("ca.key", "ca");
  if (!ca_certificate) return std::unexpected(std::move(ca_certificate.error()));
  if (!ca_key) return std::unexpected(std::move(ca_key.error()));
  ca_ = {std::move(*ca_certificate), std::move(*ca_key)};
  const auto ca_end = http::expiry(ca_.certificate_pem);
  if (!ca_end) return pass(ca_end.error(), ca + ".crt");
  if (*ca_end < now) return fail(Code::Invalid, fmt::format("the site CA {}.crt has expired: move the pki folder away to make a new one", ca));

  // Anew at every start: the names may have changed, and nobody pins it (clients trust the CA).
  http::CertificateRequest server{.common_name = "fairlead-server",
                                  .dns_names = {"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
                                  .ip_addresses = {"127.0.0.1"},
                                  .server = true};
  if (is_address(options_.address) && options_.address != "0.0.0.0" && options_.address != "127.0.0.1") server.ip_addresses.push_back(options_.address);
  for (const std::string& name : options_.names) (is_address(name) ? server.ip_addresses : server.dns_names).push_back(name);
  auto server_pair = issue(server);
  if (!server_pair) return std::unexpected(std::move(server_pair.error()));
  if (auto done = write_pair(pki + "/server", *server_pair); !done) return done;
  auto agent_client = issue({.common_name = "fairlead-server", .organizations = {"system:masters"}, .client = true});
  if (!agent_client) return std::unexpected(std::move(agent_client.error()));
  agent_client_ = std::move(*agent_client);
  return write_pair(pki + "/agent-client", agent_client_);
}

Result<void> EmbeddedServer::make_token_keys() {
  const std::string file = path("pki/tokens.key"), folder = path("pki/tokens-old");
  if (!exists(file)) {
    auto made = make_token_key();
    if (!made) return std::unexpected(std::move(made.error()));
    if (auto done = keys_->write("tokens.key", "tokens", *made); !done) return done;
  }
  auto key = keys_->read("tokens.key", "tokens");
  if (!key) return std::unexpected(std::move(key.error()));
  std::vector<std::string> older;
  if (exists(folder)) {
    auto names = list_dir(folder);
    if (!names) return std::unexpected(std::move(names.error()));
    for (const std::string& name : *names) {
      if (name.starts_with('.')) continue;
      auto pem = keys_->read("tokens-old/" + name, "tokens");
      if (!pem) return std::unexpected(std::move(pem.error()));
      older.push_back(std::move(*pem));
    }
  }
  auto keys = TokenKeys::make(*key, older);
  if (!keys) return pass(std::move(keys.error()), fmt::format("{} and {}", file, folder));
  token_keys_ = std::move(*keys);
  return {};
}

Result<http::KeyPair> EmbeddedServer::issue(const http::CertificateRequest& request) const { return http::issue(ca_, request, clock_.now()); }

Result<std::string> EmbeddedServer::sign(const std::string& signing_request, const http::CertificateRequest& request) const { return http::sign(ca_, signing_request, request, clock_.now()); }

Result<void> EmbeddedServer::serve() {
  auto store = open_sqlite_store({.path = path("store.db"), .common = common_parts});
  if (!store) return std::unexpected(std::move(store.error()));
  store_ = std::move(*store);
  auto registry = Registry::open(*store_, clock_, {.secret_key = secret_key_, .service_ranges = options_.service_ranges});
  if (!registry) return std::unexpected(std::move(registry.error()));
  registry_ = std::move(*registry);
  if (auto done = reconcile_default_objects(*registry_); !done) return done;
  HandlerOptions handler{.tokens = options_.tokens,
                         .token_keys = token_keys_,
                         .foreign_tokens = options_.foreign_tokens,
                         .beside = options_.beside,
                         .check_peer = options_.check_peer,
                         .check_node = options_.check_node,
                         .equip_pod = options_.equip_pod,
                         .brief_watches = options_.brief_watches,
                         .limits = options_.limits,
                         .ca_pem = ca_.certificate_pem,
                         .client_certificate_pem = agent_client_.certificate_pem,
                         .client_key_pem = agent_client_.key_pem};
  if (!options_.audit.path.empty()) {
    auto audit = AuditLog::open(options_.audit);
    if (!audit) return std::unexpected(std::move(audit.error()));
    handler.audit = std::move(*audit);
  }
  api_ = make_local_api(*registry_, make_agent_exec(*registry_, handler), controllers_user, [this](const kube::Resource& resource, const kube::Json& body) -> Result<kube::Json> {
    return handler_ ? handler_->review(resource, body) : Result<kube::Json>(fail(Code::Unavailable, "the server starts or stops: try again"));
  });
  logs_ = make_agent_log(*registry_, handler);
  handler_ = ApiHandler::make(*registry_, clock_, std::move(handler));

  const std::string pki = path("pki");
  http::ServerOptions server{.address = options_.address, .port = options_.port, .threads = options_.threads};
  server.tls = http::TlsFiles{.certificate = pki + "/server.crt", .key = pki + "/server.key", .client_ca = pki + "/ca.crt"};
  // What the server refuses before the handler sees it (a body over the limit) reads like every other refusal.
  server.refusal = [](http::Response plain) {
    while (plain.body.ends_with('\n')) plain.body.pop_back();
    return to_response(Status{.code = plain.status, .reason = plain.status == 413 ? "RequestEntityTooLarge" : "BadRequest", .message = std::move(plain.body)});
  };
  auto started = http::Server::start(server, [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { handler_->handle(std::move(request), std::move(exchange)); });
  if (!started) return std::unexpected(std::move(started.error()));
  server_ = std::move(*started);
  return write_admin();
}

Result<void> EmbeddedServer::write_admin() {
  auto admin = issue({.common_name = "fairlead-admin", .organizations = {"system:masters"}, .client = true});
  if (!admin) return std::unexpected(std::move(admin.error()));
  const std::string host = options_.address == "0.0.0.0" ? "127.0.0.1" : options_.address;
  kube::RestConfig rest{.server = fmt::format("https://{}:{}", host, port()), .ca_pem = ca_.certificate_pem, .certificate_pem = admin->certificate_pem, .key_pem = admin->key_pem};
  return kube::write_kubeconfig(admin_kubeconfig(), rest, "fairlead");
}

}  // namespace fairlead::apiserver
