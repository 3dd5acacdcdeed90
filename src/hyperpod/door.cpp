// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/door.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "api/cluster.h"
#include "base/encoding.h"
#include "base/log.h"
#include "base/rng.h"
#include "http/memory_tls.h"
#include "hyperpod/cloudformation.h"
#include "hyperpod/ec2.h"
#include "hyperpod/iam_service.h"
#include "hyperpod/kms.h"
#include "hyperpod/logs.h"
#include "hyperpod/pod_associations.h"
#include "hyperpod/secrets_manager.h"
#include "hyperpod/sns.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t most_waiting = 256;      // calls; more are told to come again
constexpr std::size_t most_connections = 1000;

bool is_region(std::string_view text) {
  return text.size() >= 9 && text.size() <= 16 && std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

Json settings_object(const std::string& space, const Site& site) {
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "ConfigMap"},
                       {"metadata", Json::object({{"name", api::identities::settings_name}, {"namespace", space}})},
                       {"data", Json::object({{"account", site.account}, {"region", site.region}})}});
}

std::string random_account() {
  std::string out;
  for (const char c : secret_bytes(12)) out += static_cast<char>('0' + static_cast<unsigned char>(c) % 10);
  if (out.front() == '0') out.front() = '1';  // what leads with 0 is cut by whoever takes it for a number
  return out;
}

Result<void> ensure_space(kube::KubeApi& api, const std::string& space) {
  // Who may not look at namespaces runs where one was made for it.
  if (const auto there = api.get(kube::resources::namespaces, {"", space}); there || there.error().code != Code::NotFound) return {};
  const auto made = api.create(kube::resources::namespaces, Json::object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", Json::object({{"name", space}})}}));
  if (!made && made.error().code != Code::Exists) return pass(made.error(), "make namespace " + space);
  return {};
}

void follow_identities(Directory& directory, const kube::Change& change) {
  if (change.after) directory.put_identity(*change.after);
  else directory.drop_identity(kube::name_of(change.object()));
}
void follow_policies(Directory& directory, const kube::Change& change) {
  if (change.after) directory.put_policy(*change.after);
  else directory.drop_policy(kube::name_of(change.object()));
}
FrontOptions with_services(const DoorOptions& door, kube::KubeApi& api, const Sources& sources, const Clock& clock, std::function<PodSite()> pod_site) {
  FrontOptions options = door.front;
  options.review_account = [&api, &clock](std::string_view token, const std::string& audience) { return review_account_token(api, token, audience, clock.now()); };
  options.association = [&api](const std::string& space, const std::string& account) { return find_association(api, space, account); };
  options.pod_review = [&api, site = std::move(pod_site)](const Json& review) { return answer_pod_review(review, [&api](const kube::Resource& resource, const kube::ObjectKey& key) { return api.get(resource, key); }, site()); };
  options.eks_cluster = door.eks.name;
  options.eks = [&api, cluster = door.eks](const http::Request& request, const Call& call) { return answer_eks(request, call, api, cluster); };
  options.ec2 = [sources](const std::string& action, const http::Query& form, const Call& call) { return answer_ec2(action, form, call, sources); };
  options.cloudformation = [sources](const std::string& action, const http::Query& form, const Call& call) { return answer_cloudformation(action, form, call, sources); };
  options.kms = [&api](const std::string& operation, const Json& input, const Call& call) { return answer_kms(operation, input, call, api); };
  options.secrets = [&api, space = door.space](const std::string& operation, const Json& input, const Call& call) { return answer_secrets(operation, input, call, api, space); };
  options.sns = [&api, space = door.space, kept = std::make_shared<KeptMessages>(clock)](const std::string& action, const http::Query& form, const Call& call) { return answer_sns(action, form, call, api, space, *kept); };
  options.logs = [sources, &clock, log = door.logs](const std::string& operation, const Json& input, const Call& call) { return answer_logs(operation, input, call, {sources, log, clock}); };
  options.iam = [&api, space = door.space](const std::string& action, const http::Query& form, const Call& call) { return answer_iam(action, form, call, api, space); };
  return options;
}

Result<std::vector<std::string>> session_keys(const Json& secret) {
  std::vector<std::string> keys;
  for (const char* const name : {"current", "previous"}) {
    const Json& field = secret["data"][name];
    if (field.is_null() && !keys.empty()) continue;
    auto bytes = parse_base64(field.string());
    if (!bytes) return fail(Code::Invalid, fmt::format("data.{} cannot be read", name));
    keys.push_back(std::move(*bytes));
  }
  return keys;
}

}  // namespace

Result<Site> settle_site(kube::KubeApi& api, const DoorOptions& options) {
  if (!options.account.empty() && !iam::is_account(options.account)) return fail(Code::Invalid, fmt::format("account {}: twelve digits are expected", options.account));
  if (!options.region.empty() && !is_region(options.region)) return fail(Code::Invalid, fmt::format("region {}: 9 to 16 of a-z, 0-9 and - are expected, as ARNs of scheduler policies have them", options.region));
  if (auto done = ensure_space(api, options.space); !done) return std::unexpected(done.error());
  const kube::ObjectKey key{options.space, api::identities::settings_name};
  for (int tries = 0; tries < 3; ++tries) {
    const auto there = api.get(kube::resources::config_maps, key);
    if (there) {
      const Json& data = (*there)["data"];
      const Site site{data["account"].string(), data["region"].string(), created_at(*there)};
      if (!iam::is_account(site.account) || !is_region(site.region)) return fail(Code::Invalid, fmt::format("ConfigMap {}: account and region are not what they should be ({}, {})", key.text(), site.account, site.region));
      if (!options.account.empty() && options.account != site.account) return fail(Code::Conflict, fmt::format("this site is account {}, not {}: all ARNs would change. To have it so, delete ConfigMap {}", site.account, options.account, key.text()));
      if (!options.region.empty() && options.region != site.region) return fail(Code::Conflict, fmt::format("this site is region {}, not {}: all ARNs would change. To have it so, delete ConfigMap {}", site.region, options.region, key.text()));
      return site;
    }
    if (there.error().code != Code::NotFound) return pass(there.error(), "read ConfigMap " + key.text());
    Site site{options.account.empty() ? random_account() : options.account, options.region.empty() ? Site().region : options.region, {}};
    const auto made = api.create(kube::resources::config_maps, settings_object(options.space, site));
    if (made) {
      site.founded = created_at(*made);
      return site;
    }
    if (made.error().code != Code::Exists) return pass(made.error(), "make ConfigMap " + key.text());  // another server was faster: what it chose counts
  }
  return fail(Code::Unavailable, fmt::format("ConfigMap {} comes and goes", key.text()));
}

Result<SessionSeal> settle_sessions(kube::KubeApi& api, const std::string& space) {
  const kube::ObjectKey key{space, api::identities::sessions_name};
  for (int tries = 0; tries < 3; ++tries) {
    const auto there = api.get(kube::resources::secrets, key);
    if (there) {
      auto keys = session_keys(*there);
      if (!keys) return pass(std::move(keys.error()), "Secret " + key.text());
      auto seal = SessionSeal::make(std::move(*keys));
      if (!seal) return pass(std::move(seal.error()), "Secret " + key.text());
      return seal;
    }
    if (there.error().code != Code::NotFound) return pass(there.error(), "read Secret " + key.text());
    const auto made = api.create(kube::resources::secrets, Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", Json::object({{"name", api::identities::sessions_name}, {"namespace", space}})}, {"type", "Opaque"}, {"data", Json::object({{"current", base64(secret_bytes(32))}})}}));
    if (!made && made.error().code != Code::Exists) return pass(made.error(), "make Secret " + key.text());
  }
  return fail(Code::Unavailable, fmt::format("Secret {} comes and goes", key.text()));
}

Result<std::string> settle_pod_secret(kube::KubeApi& api, const std::string& space) {
  const kube::ObjectKey key{space, api::pod_identity::webhook_secret};
  for (int tries = 0; tries < 3; ++tries) {
    const auto there = api.get(kube::resources::secrets, key);
    if (there) {
      const auto bytes = parse_base64((*there)["data"]["path"].string());
      if (!bytes || bytes->size() < 16) return fail(Code::Invalid, fmt::format("Secret {}: data.path has no 16 bytes or more; delete it, and the next start makes another", key.text()));
      return hex(*bytes);
    }
    if (there.error().code != Code::NotFound) return pass(there.error(), "read Secret " + key.text());
    const auto made = api.create(kube::resources::secrets, Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", Json::object({{"name", key.name}, {"namespace", space}})}, {"type", "Opaque"}, {"data", Json::object({{"path", base64(secret_bytes(32))}})}}));
    if (!made && made.error().code != Code::Exists) return pass(made.error(), "make Secret " + key.text());
  }
  return fail(Code::Unavailable, fmt::format("Secret {} comes and goes", key.text()));
}

Result<void> settle_pod_webhook(kube::KubeApi& api, const PodWebhook& webhook) {
  const Json wanted = pod_webhook_configuration(webhook);
  const auto made = api.create(api::pod_identity::mutating_webhooks, wanted);
  if (made) return {};
  if (made.error().code != Code::Exists) return pass(made.error(), "make MutatingWebhookConfiguration " + kube::name_of(wanted));
  const auto done = api.patch(api::pod_identity::mutating_webhooks, kube::key_of(wanted), kube::PatchType::Merge, Json::object({{"webhooks", wanted["webhooks"]}}));
  if (!done) return pass(done.error(), "write MutatingWebhookConfiguration " + kube::name_of(wanted));
  return {};
}

static void follow_cluster(ClusterIndex& index, const kube::Change& change) {
  if (change.after) index.put(*change.after);
  else index.drop(kube::key_of(change.object()));
}

Door::Door(kube::KubeApi& api, const Clock& clock, DoorOptions options, Site site, SessionSeal seal, Model model)
    : options_(std::move(options)),
      model_(std::move(model)),
      seal_(std::move(seal)),
      directory_(std::move(site)),
      clusters_(api, kube::resources::slurm_clusters, "", [this](const kube::Change& change) { follow_cluster(index_, change); }),
      nodes_(api, kube::resources::nodes, "", [](const kube::Change&) {}),
      made_(api, api::kClusters, "", [this](const kube::Change& change) { follow_cluster(index_, change); }),
      instances_(api, api::kInstances, "", [this](const kube::Change& change) { node_index_.follow(change); }),
      identities_(api, api::identities::identities, "", [this](const kube::Change& change) { follow_identities(directory_, change); }),
      policies_(api, api::identities::managed_policies, "", [this](const kube::Change& change) { follow_policies(directory_, change); }),
      keys_(api, kube::resources::secrets, options_.space, [this](const kube::Change& change) { follow_secret(change); }),
      front_(model_, directory_, seal_, all_operations(sources_of(api)), clock, front_options(api, clock)) {}

FrontOptions Door::front_options(kube::KubeApi& api, const Clock& clock) {
  FrontOptions out = with_services(options_, api, sources_of(api), clock, [this] { return pod_site(); });
  if (options_.node_ca_pem.empty()) return out;
  out.node_document = [this, &clock](const http::Peer& peer) -> Answer<NodeDocument> {
    if (options_.check_node)
      if (const auto done = options_.check_node(peer); !done) {
        if (done.error().code != Code::Unauthorized) return refuse("ServiceUnavailable", "whether this certificate counts is not known now; try again", 503);
        return refuse("AccessDeniedException", done.error().message);
      }
    return node_document(node_of(peer), node_index_, instances_.cache(), made_.cache(), directory_, seal_, clock.now());
  };
  return out;
}

Sources Door::sources_of(kube::KubeApi& api) const { return {api, model_, clusters_.cache(), index_, nodes_.cache(), made_.cache(), instances_.cache(), directory_, options_.eks.name, options_.eks.version, options_.eks.authentication_mode, options_.space, options_.read_object, options_.alarms.get()}; }

Result<std::unique_ptr<Door>> Door::open(kube::KubeApi& api, const Clock& clock, DoorOptions options) {
  auto model = Model::load_own(options.names);
  if (!model) return std::unexpected(std::move(model.error()));
  auto site = settle_site(api, options);
  if (!site) return std::unexpected(std::move(site.error()));
  options.eks.created = site->founded;
  auto seal = settle_sessions(api, options.space);
  if (!seal) return std::unexpected(std::move(seal.error()));
  if (options.pod_hook) {
    auto secret = settle_pod_secret(api, options.space);
    if (!secret) return std::unexpected(std::move(secret.error()));
    options.front.pod_review_secret = std::move(*secret);
  }
  std::unique_ptr<Door> door(new Door(api, clock, std::move(options), std::move(*site), std::move(*seal), std::move(*model)));
  const DoorOptions& chosen = door->options_;
  for (int i = 0; i < chosen.workers; ++i) door->workers_.emplace_back([self = door.get()](std::stop_token stop) { self->work(stop); });
  auto server = http::serve_with_certificate({.address = chosen.address, .port = chosen.port, .unix_socket = {}, .tls = {}, .threads = 2, .body_limit = 1_MiB, .connection_limit = most_connections, .refusal = refused_unread}, chosen.certificate,
                                             [self = door.get()](http::Request request, std::shared_ptr<http::Exchange> exchange) { self->take(std::move(request), std::move(exchange)); }, chosen.node_ca_pem);
  if (!server) return std::unexpected(std::move(server.error()));
  door->server_ = std::move(*server);
  door->port_ = door->server_->port();
  if (auto done = door->publish(api); !done) return std::unexpected(done.error());
  return door;
}

Door::~Door() {
  server_.reset();
  for (std::jthread& worker : workers_) worker.request_stop();
  changed_.notify_all();
  workers_.clear();
}

void Door::follow_secret(const kube::Change& change) {
  const std::string& name = kube::name_of(change.object());
  if (name == api::identities::sessions_name && change.after) {
    auto keys = session_keys(*change.after);
    const auto done = keys ? seal_.rekey(std::move(*keys)) : Result<void>(std::unexpected(keys.error()));
    if (!done) log_warn("keys of session tokens stay as they were", {{"secret", kube::key_of(*change.after).text()}, {"why", done.error().message}});
    return;
  }
  // What is no key any more, whatever it is now, lets nobody in.
  if (change.after) directory_.put_key(*change.after);
  else directory_.drop_key(name);
}

// On a thread of the server: what nobody can have signed gets no further.
void Door::take(http::Request request, std::shared_ptr<http::Exchange> exchange) {
  // Who is not known yet must not be told that nobody is. What pods get depends on nobody.
  if (!known() && !request.target.path.starts_with(Front::pod_review_path)) return exchange->respond(Front::busy(request, "this server has just started and does not know its identities yet; try again"));
  if (auto refusal = front_.turn_away(request)) return exchange->respond(std::move(*refusal));
  std::unique_lock lock(mutex_);
  if (waiting_.size() >= most_waiting) {
    lock.unlock();
    return exchange->respond(Front::busy(request, "too many calls are waiting; try again"));
  }
  waiting_.push_back({std::move(request), std::move(exchange)});
  changed_.notify_one();
}

void Door::work(std::stop_token stop) {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    try {
      job.exchange->respond(front_.answer(job.request));
    } catch (const std::exception& error) {  // out of memory: this call fails, the site goes on; an exchange that is dropped answers 500
      log_error("a call of an AWS client failed", {{"why", error.what()}});
    }
  }
}

std::string Door::own_endpoint() const {
  if (!options_.endpoint.empty()) return options_.endpoint;
  // Everywhere is no address that a client can go to: this machine is, and the certificate says so.
  const std::string host = everywhere() ? "127.0.0.1" : options_.address.find(':') == std::string::npos ? options_.address : "[" + options_.address + "]";
  return fmt::format("https://{}:{}", host, port_.load());
}

PodSite Door::pod_site() const {
  PodSite out{.endpoint = {}, .region = directory_.site().region, .ca_pem = options_.authority.certificate_pem};
  if (port_ != 0) out.endpoint = options_.pod_host.empty() ? own_endpoint() : fmt::format("https://{}:{}", options_.pod_host, port_.load());
  return out;
}

Result<void> Door::publish(kube::KubeApi& api) const {
  if (options_.endpoint.empty() && everywhere()) log_warn("AWS clients on other machines are not told where to go: say so by --aws-endpoint");
  const kube::ObjectKey key{options_.space, api::identities::settings_name};
  const Json patch = Json::object({{"data", Json::object({{"endpoint", own_endpoint()}, {"pod-endpoint", pod_site().endpoint}, {"ca.crt", options_.authority.certificate_pem}})}});
  if (const auto done = api.patch(kube::resources::config_maps, key, kube::PatchType::Merge, patch); !done) return pass(done.error(), "write ConfigMap " + key.text());
  // Without it pods are made as before, and everything else works: an older role of this server lacks the right.
  if (options_.pod_hook)
    if (const auto done = settle_pod_webhook(api, {.url = own_endpoint(), .space = options_.space, .service = options_.pod_hook->service, .path = std::string(Front::pod_review_path) + options_.front.pod_review_secret, .ca_pem = options_.authority.certificate_pem}); !done) log_warn("pods get no AWS credentials of their service accounts", {{"why", done.error().message}});
  return {};
}

}  // namespace fairlead::hyperpod
