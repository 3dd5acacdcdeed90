// SPDX-License-Identifier: Apache-2.0
#include "apiserver/api_handler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "apiserver/admission.h"
#include "apiserver/api_handler_objects.h"
#include "apiserver/auth_reviews.h"
#include "apiserver/discovery.h"
#include "apiserver/local_api.h"
#include "apiserver/openapi.h"
#include "apiserver/waiting_threads.h"
#include "base/encoding.h"
#include "base/log.h"
#include "base/rng.h"
#include "kube/selector.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;

std::string selected_name(std::string_view field_selector) {
  const auto selector = kube::FieldSelector::parse(field_selector);
  if (!selector) return {};
  for (const auto& term : selector->terms()) {
    if (term.field == "metadata.name" && term.equal) return term.value;
  }
  return {};
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// What rights are asked about. A namespace is inside itself, as Kubernetes has it: a role in it may name it.
Attributes attributes_of(const Call& call) {
  const Route& route = call.route;
  Attributes asked{.verb = call.verb, .group = route.group, .resource = route.plural, .subresource = route.subresource, .space = route.space, .name = route.name};
  if (route.group.empty() && route.plural == kube::resources::namespaces.plural) asked.space = route.name;
  if (call.verb == "list" || call.verb == "watch" || call.verb == "deletecollection") asked.selected_name = selected_name(call.query("fieldSelector"));
  return asked;
}

class Handler final : public ApiHandler {
 public:
  Handler(Registry& registry, const Clock& clock, HandlerOptions options)
      : registry_(registry),
        options_(std::move(options)),
        clock_(clock),
        access_(registry, clock, {.tokens = options_.tokens, .keys = options_.token_keys, .site = options_.token_site, .foreign = options_.foreign_tokens}),
        watches_(registry, clock),
        proxy_(registry, options_),
        objects_(registry, clock, watches_, proxy_, in_flight_) {
    registry_.set_admission(&admission_);
  }
  ~Handler() override {
    drain();
    registry_.set_admission(nullptr);
  }

  void drain() override {
    draining_ = true;
    watches_.stop();
    proxy_.stop();
    if (!in_flight_.wait_until_none(std::chrono::seconds(3))) log_warn("writes were still under way when the API stopped");
  }

  Result<Json> review(const kube::Resource& resource, const Json& body) const override {
    const Review* const review = find_review(resource.group, resource.version, resource.plural);
    if (review == nullptr || review->kind != "TokenReview") return fail(Code::NotFound, fmt::format("{} are not served here", resource.plural));
    return answer_review(access_, User{.name = std::string(controllers_user), .groups = {std::string(masters_group)}}, *review, "", body, clock_.now());
  }

  void handle(http::Request request, std::shared_ptr<http::Exchange> exchange) override {
    auto call = std::make_shared<Call>();
    call->route = parse_route(request.target);
    call->request = std::move(request);
    call->exchange = std::move(exchange);
    call->pretty = flag(call->request.target.query, "pretty");
    const bool watch = flag(call->request.target.query, "watch");
    call->verb = verb_of(call->request.method, call->route, watch);
    if (draining_) return call->refuse({.code = 503, .reason = "ServiceUnavailable", .message = "the server is shutting down", .details = {.retry_after_seconds = 1}});
    if (call->route.what == Route::What::Health) {
      return call->exchange->respond({.status = 200, .headers = {{"Content-Type", "text/plain; charset=utf-8"}, {"X-Content-Type-Options", "nosniff"}}, .body = "ok"});
    }
    if (call->route.what == Route::What::Version) return version(*call);
    if (options_.check_peer && !call->request.peer.common_name.empty())
      if (auto stands = options_.check_peer(call->request.peer); !stands) {
        log_debug("a client certificate was refused", {{"name", call->request.peer.common_name}, {"reason", stands.error().message}});
        return call->refuse(status_of(stands.error().code == Code::Unauthorized ? Error{Code::Unauthorized, "Unauthorized"} : stands.error()));
      }
    if (options_.beside && options_.beside(call->request, call->exchange)) return;
    auto caller = access_.authenticate(call->request);
    if (caller) {
      call->user = *caller->user;
      call->real_user = std::move(caller->real);
      const User& real = call->real_user ? *call->real_user : call->user;
      if (!options_.brief_watches.first.empty() && real.in(options_.brief_watches.first)) call->longest_watch = options_.brief_watches.second;
    }
    if (options_.audit) record(*call);
    if (!caller) return call->refuse(status_of(caller.error()));
    auto entered = limits_.enter(call->real_user ? *call->real_user : call->user, clock_.monotonic());
    if (entered.retry_after) {
      return call->refuse({.code = 429,
                           .reason = "TooManyRequests",
                           .message = "Too many requests, please try again later.",
                           .details = {.retry_after_seconds = static_cast<int>(entered.retry_after->count())}});
    }
    call->ticket = std::move(entered.ticket);
    if (call->route.what == Route::What::Object) return object(call);
    document(*call);
  }

 private:
  // From here on the answer is written to the audit log.
  void record(Call& call) const {
    const bool resource = call.route.what == Route::What::Object;
    const http::Request& request = call.request;
    AuditRecord out{.id = random_uuid(), .method = request.method, .uri = request.target.path, .source = request.peer.address, .user = call.user, .real = call.real_user};
    out.verb = resource ? call.verb : lower(request.method);
    out.agent = std::string(http::find(request.headers, "User-Agent")).substr(0, 256);
    for (const auto& [name, value] : request.target.query) out.uri += fmt::format("{}{}={}", out.uri.find('?') == std::string::npos ? '?' : '&', http::escape(name), http::escape(value));
    out.about = attributes_of(call);
    out.about.resource_request = resource;
    out.version = call.route.version;
    out.received = clock_.now();
    out.notes = call.notes = std::make_shared<AuditNotes>();
    call.exchange = audited(std::move(call.exchange), *options_.audit, clock_, std::move(out));
  }

  void version(const Call& call) const {
    // "v1.33.0+fairlead": clients compare major and minor.
    const auto parts = split(std::string_view(options_.git_version).substr(1), '.');
    call.answer(200, Json::object({{"major", parts.at(0)},
                                   {"minor", parts.at(1)},
                                   {"gitVersion", options_.git_version},
                                   {"gitCommit", ""},
                                   {"gitTreeState", "clean"},
                                   {"buildDate", "1970-01-01T00:00:00Z"},
                                   {"goVersion", ""},
                                   {"compiler", "g++"},
                                   {"platform", "linux/amd64"}}));
  }

  // Discovery and OpenAPI: what is no object.
  void document(Call& call) {
    Attributes asked;
    asked.verb = lower(call.request.method);
    asked.resource_request = false;
    asked.path = call.request.target.path;
    const Verdict verdict = access_.authorize(call.user, asked);
    if (!verdict.allowed) return call.refuse(status_of({Code::Forbidden, forbidden_message(call.user, asked, verdict)}));
    const Route& route = call.route;
    if (call.request.method == "GET" && token_document(call)) return;
    if (route.what == Route::What::Unknown) {
      log_debug("a path that is not served was asked for", {{"method", call.request.method}, {"path", call.request.target.path}});
      return call.refuse(not_served(call.request.target.path));
    }
    if (call.request.method != "GET") {
      return call.refuse(method_not_allowed());
    }
    const bool open_api = route.what == Route::What::OpenApiIndex || route.what == Route::What::OpenApiDocument;
    const bool top = route.what == Route::What::CoreVersions || route.what == Route::What::Groups;
    const auto form = choose_form(http::find(call.request.headers, "Accept"), top ? Asked::Discovery : Asked::Plain);
    if (!form) return not_acceptable(call);
    call.form = *form;
    const auto kinds = registry_.kinds();
    if (open_api) return open_api_answer(call, *kinds);
    if (top && *form == Form::DiscoveryV2) {
      const Json json = aggregated(*kinds, route.what == Route::What::CoreVersions);
      return call.exchange->respond({.headers = {{"Content-Type", std::string(content_type(*form))}, {"Vary", "Accept"}}, .body = print_json(json) + "\n"});
    }
    std::optional<Json> json;
    if (route.what == Route::What::CoreVersions) json = core_versions(std::string(http::find(call.request.headers, "Host")));
    if (route.what == Route::What::Groups) json = group_list(*kinds);
    if (route.what == Route::What::Group) json = group(*kinds, route.group);
    if (route.what == Route::What::Resources) json = resource_list(*kinds, route.group, route.version);
    if (!json) return call.refuse(not_served(call.request.target.path));
    call.answer(200, *json);
  }

  // What others need to verify tokens of service accounts (OpenID Connect discovery).
  bool token_document(const Call& call) const {
    const std::string& path = call.request.target.path;
    const auto& keys = access_.keys();
    if (!keys) return false;
    if (path == "/openid/v1/jwks") {
      call.exchange->respond({.headers = {{"Content-Type", "application/jwk-set+json"}, {"Cache-Control", "public, max-age=3600"}}, .body = print_json(keys->jwks())});
      return true;
    }
    if (path != "/.well-known/openid-configuration") return false;
    const std::vector<std::string> algorithms = keys->algorithms();
    Json json = Json::object({{"issuer", access_.site().issuer}, {"jwks_uri", fmt::format("https://{}/openid/v1/jwks", http::find(call.request.headers, "Host"))}});
    json.set("response_types_supported", Json::array({"id_token"})).set("subject_types_supported", Json::array({"public"}));
    json.set("id_token_signing_alg_values_supported", Json::array(std::vector<Json>(algorithms.begin(), algorithms.end())));
    call.exchange->respond({.headers = {{"Content-Type", "application/json"}, {"Cache-Control", "public, max-age=3600"}}, .body = print_json(json)});
    return true;
  }

  void open_api_answer(const Call& call, const KindTable& kinds) {
    if (call.route.what == Route::What::OpenApiIndex) {
      return call.exchange->respond({.headers = {{"Content-Type", "application/json"}}, .parts = {open_api_.index(kinds)}});
    }
    const auto document = open_api_.document(kinds, {call.route.group, call.route.version});
    if (!document) return call.refuse(not_served(call.request.target.path));
    const std::string tag = "\"" + document->hash + "\"";
    http::Headers headers{{"Content-Type", "application/json"}, {"ETag", tag}, {"Vary", "Accept"}};
    // Only an address that names this very content may be kept for good.
    const bool pinned = call.query("hash") == document->hash;
    headers.emplace_back("Cache-Control", pinned ? "public, immutable" : "no-cache, private");
    if (pinned) headers.emplace_back("Expires", "Fri, 31 Dec 2100 23:59:59 GMT");
    if (http::find(call.request.headers, "If-None-Match").find(tag) != std::string_view::npos) return call.exchange->respond({.status = 304, .headers = std::move(headers)});
    call.exchange->respond({.headers = std::move(headers), .parts = {document->bytes}});
  }

  void not_acceptable(const Call& call) const {
    // As in Kubernetes: with empty details only where no media type is one of ours, not where its form is not.
    const auto media = parse_accept(http::find(call.request.headers, "Accept"));
    const bool known = std::any_of(media.begin(), media.end(), [](const MediaType& one) {
      return one.type == "application/json" || one.type == "application/yaml" || one.type == "application/vnd.kubernetes.protobuf";
    });
    call.refuse({.code = 406,
                 .reason = "NotAcceptable",
                 .message = "only the following media types are accepted: application/json, application/yaml, application/json;as=Table;v=v1;g=meta.k8s.io",
                 .empty_details = !known});
  }

  void object(const std::shared_ptr<Call>& call) {
    const Route& route = call->route;
    if (call->verb.empty()) {
      return call->refuse(method_not_allowed(call->about()));
    }
    Attributes asked = attributes_of(*call);
    std::optional<Body> body;
    if (call->verb == "create" && route.name.empty() && !call->user.node().empty()) {  // a node may create only what bears its name
      auto parsed = parse_body(http::find(call->request.headers, "Content-Type"), call->request.body);
      if (!parsed) return call->refuse(status_of(parsed.error()));
      asked.name = kube::name_of(parsed->json);
      body = std::move(*parsed);
    }
    const Verdict verdict = access_.authorize(call->user, asked);
    if (!verdict.allowed) return call->refuse(status_of({Code::Forbidden, forbidden_message(call->user, asked, verdict)}, call->about()));
    const Review* review = find_review(route.group, route.version, route.plural);
    if (review != nullptr && route.name.empty() && review->namespaced == !route.space.empty()) return review_answer(*call, *review, std::move(body));
    if (route.subresource == "token" && route.group.empty() && route.plural == kube::resources::service_accounts.plural) return token_answer(*call);
    const auto kind = registry_.kinds()->find(route.group, route.version, route.plural);
    if (!kind) return call->refuse(not_served(call->request.target.path));
    // Output of a container is what it is: Accept does not apply.
    if (route.subresource != "log" && route.subresource != "exec" && route.subresource != "attach") {
      const auto form = choose_form(http::find(call->request.headers, "Accept"), Asked::Objects);
      if (!form) return not_acceptable(*call);
      call->form = *form;
    }
    if (!kind->converts) return about(call, kind, std::move(asked), std::move(body));
    // Its webhook is asked: not on a thread that serves everybody.
    auto held = std::make_shared<std::optional<Body>>(std::move(body));
    const bool taken = waiting_.post([this, call, kind, asked = std::move(asked), held, token = in_flight_.begin()] {
      if (draining_) return call->refuse(Error{Code::Unavailable, "the server is shutting down"});
      about(call, kind, asked, std::move(*held));
    });
    if (!taken) call->refuse(Error{Code::Exhausted, "too many requests wait for conversion webhooks, please try again later"});
  }

  void about(const std::shared_ptr<Call>& call, const std::shared_ptr<const Kind>& kind, Attributes asked, std::optional<Body> body) {
    const Route& route = call->route;
    // An apply that makes the object is a create, too.
    const bool apply = call->verb == "patch" && route.subresource.empty() && http::find(call->request.headers, "Content-Type").starts_with("application/apply-patch");
    if (apply && !exists(*kind, {route.space, route.name})) {
      asked.verb = "create";
      const Verdict create = access_.authorize(call->user, asked);
      if (!create.allowed) return call->refuse(status_of({Code::Forbidden, forbidden_message(call->user, asked, create)}, call->about()));
    }
    objects_.handle(call, kind, std::move(body));
  }

  bool exists(const Kind& kind, const kube::ObjectKey& key) const {
    const auto object = registry_.get(kind, key);
    return object || object.error().code != Code::NotFound;
  }

  // The body of a POST that stores nothing; empty: refused.
  std::optional<Json> posted(const Call& call, std::optional<Body> body = std::nullopt) const {
    if (call.verb != "create") {
      call.refuse(method_not_allowed(call.about()));
      return std::nullopt;
    }
    if (!body) {
      auto parsed = parse_body(http::find(call.request.headers, "Content-Type"), call.request.body);
      if (!parsed) {
        call.refuse(parsed.error().code == Code::Unsupported ? unsupported_media_type(parsed.error().message) : status_of(parsed.error()));
        return std::nullopt;
      }
      body = std::move(*parsed);
    }
    return std::move(body->json);
  }

  void review_answer(Call& call, const Review& review, std::optional<Body> body) const {
    auto json = posted(call, std::move(body));
    if (!json) return;
    const auto answer = answer_review(access_, call.user, review, call.route.space, std::move(*json), clock_.now());
    if (!answer) return call.refuse(answer.error());
    call.answer(201, *answer);
  }

  void token_answer(const Call& call) const {
    auto json = posted(call);
    if (!json) return;
    const auto answer = access_.request_token(*json, {call.route.space, call.route.name}, call.user);
    if (!answer) return call.refuse(answer.error());
    call.answer(201, *answer);
  }

  Registry& registry_;
  const HandlerOptions options_;
  const Clock& clock_;
  Access access_;
  const AccessAdmission admission_{access_, registry_, options_.check_node, options_.equip_pod};
  Limits limits_{options_.limits};
  OpenApi open_api_;
  InFlight in_flight_;
  WatchHub watches_;
  Proxy proxy_;
  Objects objects_;
  std::atomic<bool> draining_{false};
  WaitingThreads waiting_{16, 1'000};  // the last: what runs there uses all of the above
};

}  // namespace

std::unique_ptr<ApiHandler> ApiHandler::make(Registry& registry, const Clock& clock, HandlerOptions options) {
  return std::make_unique<Handler>(registry, clock, std::move(options));
}

}  // namespace fairlead::apiserver
