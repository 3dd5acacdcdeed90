// SPDX-License-Identifier: Apache-2.0
#include "kube/rest_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "kube/credentials.h"

namespace fairlead::kube {
namespace {

constexpr int watch_seconds = 600;  // the server ends a watch after that; the informer resumes
constexpr std::size_t error_body_limit = 1 << 20;
constexpr const char* json_type = "application/json";

std::optional<std::chrono::seconds> retry_after(const http::Headers& headers) {
  const std::string_view text = http::find(headers, "Retry-After");
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::nullopt;
  return std::chrono::seconds(seconds);
}

void add_query(std::string& target, std::string_view name, std::string_view value) {
  target += target.find('?') == std::string::npos ? '?' : '&';
  target += fmt::format("{}={}", name, http::escape(value));
}

class RestWatch final : public Watch {
 public:
  explicit RestWatch(std::unique_ptr<http::BodyReader> reader) : reader_(std::move(reader)) {}
  Result<std::optional<WatchEvent>> next(std::chrono::milliseconds limit) override {
    const auto deadline = SystemClock{}.monotonic() + limit;
    for (;;) {
      // The server was asked to end it before: whoever holds the connection now (a proxy) says nothing any more.
      if (SystemClock{}.monotonic() > overdue_) return fail(Code::Unavailable, "the watch did not end in time");
      if (const auto end = text_.find('\n', searched_); end != std::string::npos) {
        const std::string_view line = std::string_view(text_).substr(begin_, end - begin_);
        auto event = line.empty() ? Result<std::optional<WatchEvent>>(std::nullopt) : read_event(line);
        begin_ = searched_ = end + 1;
        if (begin_ == text_.size()) {
          text_.clear();
          begin_ = searched_ = 0;
        }
        if (!event || event->has_value()) return event;
        continue;
      }
      if (begin_ > 0) text_.erase(0, begin_);
      begin_ = 0;
      searched_ = text_.size();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SystemClock{}.monotonic());
      auto more = reader_->read(std::max(left, std::chrono::milliseconds(0)));
      if (!more) return pass(std::move(more.error()), "watch");
      if (!more->has_value()) return std::optional<WatchEvent>();
      if ((*more)->empty()) return fail(Code::Unavailable, "the watch has ended");
      text_ += **more;
    }
  }
  void close() override { reader_->close(); }

 private:
  static Result<std::optional<WatchEvent>> read_event(std::string_view line) {
    auto value = parse_json(line);
    if (!value) return fail(Code::Unavailable, "watch: an event cannot be read: " + value.error().message);
    const std::string& type = (*value)["type"].string();
    Json* const object = value->find("object");
    if (object == nullptr) return fail(Code::Unavailable, "watch: an event without an object");
    if (type == "ERROR") return std::unexpected(error_of_status(*object));
    if (type == "ADDED") return WatchEvent{EventType::Added, std::move(*object)};
    if (type == "MODIFIED") return WatchEvent{EventType::Modified, std::move(*object)};
    if (type == "DELETED") return WatchEvent{EventType::Deleted, std::move(*object)};
    if (type == "BOOKMARK") return WatchEvent{EventType::Bookmark, std::move(*object)};
    return std::optional<WatchEvent>();  // a type that we do not know tells us nothing
  }

  std::unique_ptr<http::BodyReader> reader_;
  const std::chrono::nanoseconds overdue_ = SystemClock{}.monotonic() + std::chrono::seconds(watch_seconds) + 60s;
  std::string text_;
  std::size_t begin_ = 0, searched_ = 0;
};

void fill_type(Json& object, const Resource& resource) {
  if (!object.has("apiVersion")) object.set("apiVersion", resource.api_version());
  if (!object.has("kind")) object.set("kind", resource.kind);
}

}  // namespace

std::string path_of(const Resource& resource, const std::string& space, const std::string& name, const std::string& subresource) {
  std::string out = resource.group.empty() ? "/api/" + http::escape(resource.version) : "/apis/" + http::escape(resource.group) + "/" + http::escape(resource.version);
  if (resource.namespaced && !space.empty()) out += "/namespaces/" + http::escape(space);
  out += "/" + http::escape(resource.plural);
  if (!name.empty()) out += "/" + http::escape(name);
  if (!subresource.empty()) out += "/" + subresource;
  return out;
}

struct RestApi::State {
  State(const RestConfig& config, http::ClientOptions o, std::string p) : options(std::move(o)), prefix(std::move(p)), user_agent(config.user_agent), patience(config.patience), credentials(config) {}

  // A client with the newest credentials, and the request with their token.
  struct Ready {
    std::shared_ptr<http::Client> client;
    std::uint64_t generation = 0;
  };
  Result<Ready> ready(http::ClientRequest& request);
  http::ClientRequest prepare(std::string method, const std::string& target, const std::string& accept) const;
  Result<http::Response> send(http::ClientRequest request);
  Result<Json> send_json(std::string method, const std::string& target, const Json& body, const char* type = json_type);
  Result<Json> read_json(const http::Response& response);
  Result<std::unique_ptr<http::BodyReader>> open(const std::string& target, const std::string& accept);

  const http::ClientOptions options;  // certificates apart
  const std::string prefix;
  const std::string user_agent;
  const std::chrono::nanoseconds patience;
  CredentialSource credentials;
  std::mutex mutex;
  std::shared_ptr<http::Client> client;  // under mutex; made for `made_for`
  std::uint64_t made_for = 0;
};

http::ClientRequest RestApi::State::prepare(std::string method, const std::string& target, const std::string& accept) const {
  return {.method = std::move(method), .target = prefix + target, .headers = {{"Accept", accept}, {"User-Agent", user_agent}}, .body = ""};
}

Result<RestApi::State::Ready> RestApi::State::ready(http::ClientRequest& request) {
  auto shown = credentials.get(SystemClock{}.now());
  if (!shown) return std::unexpected(std::move(shown.error()));
  std::erase_if(request.headers, [](const auto& header) { return header.first == "Authorization"; });
  if (!shown->token.empty()) {
    if (!options.tls && options.unix_socket.empty()) return fail(Code::Invalid, "a token is not sent without TLS");
    request.headers.emplace_back("Authorization", "Bearer " + shown->token);
  }
  const std::lock_guard lock(mutex);
  if (!client || made_for != shown->certificate_generation) {
    http::ClientOptions fresh = options;
    fresh.certificate_pem = shown->certificate_pem;
    fresh.key_pem = shown->key_pem;
    auto made = http::Client::make(std::move(fresh));
    if (!made && !client) return std::unexpected(std::move(made.error()));
    if (made) client = std::move(*made);
    made_for = shown->certificate_generation;  // a pair that does not fit (half renewed) is not tried again before it changes
  }
  return Ready{client, shown->generation};
}

// A refused eviction: 429 by the disruption budget, which no waiting of ours changes.
bool is_verdict(const http::Response& response) { return response.body.find("DisruptionBudget") != std::string::npos; }

// The answer, if it is a success.
Result<http::Response> RestApi::State::send(http::ClientRequest request) {
  std::chrono::nanoseconds waited{};
  bool renewed = false;
  for (;;) {
    auto use = ready(request);
    if (!use) return std::unexpected(std::move(use.error()));
    auto response = use->client->request(request);
    if (!response) return response;
    if (response->status < 400) return response;
    if (response->status == 401 && !renewed && credentials.refused(use->generation)) {
      renewed = true;
      continue;
    }
    const auto pause = retry_after(response->headers);
    const bool put_off = (response->status == 429 && !is_verdict(*response)) || (response->status == 503 && request.method == "GET");
    if (!put_off || !pause || waited + *pause > patience) return std::unexpected(error_of(response->status, response->body));
    // At least a moment, so that "Retry-After: 0" cannot turn us into a storm.
    const auto moment = std::max<std::chrono::nanoseconds>(*pause, 100ms);
    waited += moment;
    std::this_thread::sleep_for(moment);
  }
}

Result<Json> RestApi::State::read_json(const http::Response& response) {
  auto value = parse_json(response.body);
  if (!value) return fail(Code::Unavailable, "the answer cannot be read: " + value.error().message);
  return value;
}

Result<Json> RestApi::State::send_json(std::string method, const std::string& target, const Json& body, const char* type) {
  auto request = prepare(std::move(method), target, json_type);
  if (!body.is_null()) {
    request.headers.emplace_back("Content-Type", type);
    request.body = print_json(body);
  }
  auto response = send(std::move(request));
  if (!response) return std::unexpected(std::move(response.error()));
  return read_json(*response);
}

Result<std::unique_ptr<http::BodyReader>> RestApi::State::open(const std::string& target, const std::string& accept) {
  auto request = prepare("GET", target, accept);
  bool renewed = false;
  for (;;) {
    auto use = ready(request);
    if (!use) return std::unexpected(std::move(use.error()));
    auto reader = use->client->open(request);
    if (!reader || (*reader)->status() < 400) return reader;
    if ((*reader)->status() == 401 && !renewed && credentials.refused(use->generation)) {
      renewed = true;
      continue;
    }
    std::string body;
    while (body.size() < error_body_limit) {
      const auto more = (*reader)->read(5s);
      if (!more || !more->has_value() || (*more)->empty()) break;
      body += **more;
    }
    // Put off: our caller comes again after a pause of its own, but not before the server's.
    if (const auto pause = retry_after((*reader)->headers()); pause && ((*reader)->status() == 429 || (*reader)->status() == 503))
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(*pause, std::min<std::chrono::nanoseconds>(patience, 10s)));
    return std::unexpected(error_of((*reader)->status(), body));
  }
}

RestApi::RestApi(std::unique_ptr<State> state) : state_(std::move(state)) {}
RestApi::~RestApi() = default;

Result<std::shared_ptr<RestApi>> RestApi::make(RestConfig config) {
  http::ClientOptions options{.ca_pem = config.ca_pem,
                              .proxy = config.proxy,
                              .server_name = config.server_name,
                              .trust_any_server = config.trust_any_server,
                              .connect_timeout = config.connect_timeout,
                              .request_timeout = config.request_timeout};
  std::string prefix;
  if (!config.unix_socket.empty()) {
    options.unix_socket = config.unix_socket;
    options.host = "localhost";
    options.tls = false;
  } else {
    auto url = parse_server(config.server);
    if (!url) return std::unexpected(std::move(url.error()));
    if (!url->tls && (!config.token.empty() || !config.token_file.empty() || config.exec)) {
      return fail(Code::Invalid, fmt::format("server \"{}\": a token is not sent without TLS", config.server));
    }
    options.host = url->host;
    options.port = url->port;
    options.tls = url->tls;
    prefix = url->prefix;
  }
  auto state = std::make_unique<State>(config, std::move(options), std::move(prefix));
  if (!config.exec) {
    // Bad certificates are told now and not at the first request.
    http::ClientOptions whole = state->options;
    whole.certificate_pem = config.certificate_pem;
    whole.key_pem = config.key_pem;
    auto client = http::Client::make(std::move(whole));
    if (!client) return std::unexpected(std::move(client.error()));
    state->client = std::move(*client);
    state->made_for = 1;
  }
  return std::shared_ptr<RestApi>(new RestApi(std::move(state)));
}

Result<Json> RestApi::get(const Resource& resource, const ObjectKey& key) {
  if (key.name.empty()) return fail(Code::Invalid, fmt::format("{}: no name", resource.plural));
  return state_->send_json("GET", path_of(resource, key.space, key.name), Json());
}

Result<List> RestApi::list(const Resource& resource, const std::string& space, const ListOptions& options) {
  std::string target = path_of(resource, space);
  if (!options.label_selector.empty()) add_query(target, "labelSelector", options.label_selector);
  if (!options.field_selector.empty()) add_query(target, "fieldSelector", options.field_selector);
  if (options.limit > 0) add_query(target, "limit", std::to_string(options.limit));
  if (!options.continue_token.empty()) add_query(target, "continue", options.continue_token);
  if (!options.resource_version.empty()) add_query(target, "resourceVersion", options.resource_version);
  auto body = state_->send_json("GET", target, Json());
  if (!body) return std::unexpected(std::move(body.error()));
  List out{.resource_version = (*body)["metadata"]["resourceVersion"].string(), .continue_token = (*body)["metadata"]["continue"].string()};
  if (Json* const items = body->find("items"); items != nullptr && items->is_array()) out.items = std::move(items->items());
  for (auto& item : out.items) fill_type(item, resource);  // kube-apiserver leaves both out in lists
  return out;
}

Result<std::unique_ptr<Watch>> RestApi::watch(const Resource& resource, const std::string& space, const WatchOptions& options) {
  std::string target = path_of(resource, space) + "?watch=true";
  if (options.bookmarks) add_query(target, "allowWatchBookmarks", "true");
  add_query(target, "timeoutSeconds", std::to_string(watch_seconds));
  if (!options.resource_version.empty()) add_query(target, "resourceVersion", options.resource_version);
  if (!options.label_selector.empty()) add_query(target, "labelSelector", options.label_selector);
  if (!options.field_selector.empty()) add_query(target, "fieldSelector", options.field_selector);
  auto reader = state_->open(target, json_type);
  if (!reader) return std::unexpected(std::move(reader.error()));
  return std::make_unique<RestWatch>(std::move(*reader));
}

Result<Json> RestApi::create(const Resource& resource, const Json& object) {
  const std::string& space = space_of(object);
  if (resource.namespaced && space.empty()) return fail(Code::Invalid, fmt::format("create {}: no namespace", resource.plural));
  Json body = object;
  fill_type(body, resource);
  return state_->send_json("POST", path_of(resource, space), body);
}

Result<Json> RestApi::update(const Resource& resource, const Json& object) {
  if (name_of(object).empty()) return fail(Code::Invalid, fmt::format("update {}: no name", resource.plural));
  Json body = object;
  fill_type(body, resource);
  return state_->send_json("PUT", path_of(resource, space_of(object), name_of(object)), body);
}

Result<Json> RestApi::update_status(const Resource& resource, const Json& object) {
  if (name_of(object).empty()) return fail(Code::Invalid, fmt::format("update status of {}: no name", resource.plural));
  Json body = object;
  fill_type(body, resource);
  return state_->send_json("PUT", path_of(resource, space_of(object), name_of(object), "status"), body);
}

Result<Json> RestApi::apply(const Resource& resource, const Json& object, const ApplyOptions& options) {
  if (name_of(object).empty()) return fail(Code::Invalid, fmt::format("apply {}: no name", resource.plural));
  Json body = object;
  fill_type(body, resource);
  body.child("metadata").erase("managedFields");
  std::string target = path_of(resource, space_of(object), name_of(object), options.subresource);
  add_query(target, "fieldManager", options.field_manager);
  if (options.force) add_query(target, "force", "true");
  if (options.dry_run) add_query(target, "dryRun", "All");
  return state_->send_json("PATCH", target, body, "application/apply-patch+yaml");  // JSON is YAML
}

Result<Json> RestApi::patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& subresource) {
  if (type == PatchType::Apply) return fail(Code::Invalid, "apply names its manager: KubeApi::apply");
  const char* const media = type == PatchType::Merge       ? "application/merge-patch+json"
                            : type == PatchType::JsonPatch ? "application/json-patch+json"
                                                           : "application/strategic-merge-patch+json";
  return state_->send_json("PATCH", path_of(resource, key.space, key.name, subresource), patch, media);
}

Result<Json> RestApi::post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) {
  return state_->send_json("POST", path_of(resource, key.space, key.name, subresource), body);
}

Result<void> RestApi::remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options) {
  if (key.name.empty()) return fail(Code::Invalid, fmt::format("delete {}: no name", resource.plural));
  Json body = Json::object({{"kind", "DeleteOptions"}, {"apiVersion", "v1"}});
  switch (options.propagation) {
    case DeleteOptions::Propagation::Background: body.set("propagationPolicy", "Background"); break;
    case DeleteOptions::Propagation::Foreground: body.set("propagationPolicy", "Foreground"); break;
    case DeleteOptions::Propagation::Orphan: body.set("propagationPolicy", "Orphan"); break;
  }
  if (options.grace_seconds) body.set("gracePeriodSeconds", *options.grace_seconds);
  if (!options.uid.empty()) body.child("preconditions").set("uid", options.uid);
  if (!options.resource_version.empty()) body.child("preconditions").set("resourceVersion", options.resource_version);
  auto done = state_->send_json("DELETE", path_of(resource, key.space, key.name), body);
  if (!done) return std::unexpected(std::move(done.error()));
  return {};
}

Result<std::string> RestApi::get_raw(const std::string& target, const std::string& accept) { return send_raw("GET", target, "", "", accept); }

Result<std::string> RestApi::send_raw(const std::string& method, const std::string& target, const std::string& body, const std::string& content_type, const std::string& accept) {
  auto request = state_->prepare(method, target, accept);
  if (!content_type.empty()) request.headers.emplace_back("Content-Type", content_type);
  request.body = body;
  auto response = state_->send(std::move(request));
  if (!response) return std::unexpected(std::move(response.error()));
  return std::move(response->body);
}

Result<std::unique_ptr<http::BodyReader>> RestApi::open_raw(const std::string& target, const std::string& accept) { return state_->open(target, accept); }

Result<std::unique_ptr<http::BodyReader>> RestApi::open_log(const ObjectKey& pod, const LogOptions& options) {
  std::string target = path_of(resources::pods, pod.space, pod.name, "log");
  if (!options.container.empty()) add_query(target, "container", options.container);
  if (options.follow) add_query(target, "follow", "true");
  if (options.previous) add_query(target, "previous", "true");
  if (options.timestamps) add_query(target, "timestamps", "true");
  if (options.tail_lines) add_query(target, "tailLines", std::to_string(*options.tail_lines));
  if (options.since_seconds) add_query(target, "sinceSeconds", std::to_string(*options.since_seconds));
  if (options.limit_bytes) add_query(target, "limitBytes", std::to_string(*options.limit_bytes));
  return state_->open(target, "*/*");
}

Result<std::unique_ptr<http::ClientWebSocket>> RestApi::open_exec_websocket(const ObjectKey& pod, const ExecOptions& options) { return open_channels(pod, "exec", options); }

Result<std::unique_ptr<http::ClientWebSocket>> RestApi::open_attach_websocket(const ObjectKey& pod, const ExecOptions& options) {
  ExecOptions wanted = options;
  wanted.command.clear();
  return open_channels(pod, "attach", wanted);
}

Result<std::unique_ptr<http::ClientWebSocket>> RestApi::open_channels(const ObjectKey& pod, const char* subresource, const ExecOptions& options) {
  std::string target = path_of(resources::pods, pod.space, pod.name, subresource);
  for (const auto& word : options.command) add_query(target, "command", word);
  if (!options.container.empty()) add_query(target, "container", options.container);
  if (options.in) add_query(target, "stdin", "true");
  if (options.out) add_query(target, "stdout", "true");
  if (options.err && !options.tty) add_query(target, "stderr", "true");
  if (options.tty) add_query(target, "tty", "true");
  auto request = state_->prepare("GET", target, "*/*");
  auto use = state_->ready(request);
  if (!use) return std::unexpected(std::move(use.error()));
  auto socket = use->client->open_websocket(request, {"v5.channel.k8s.io", "v4.channel.k8s.io"});
  if (!socket && socket.error().code == Code::Unauthorized && state_->credentials.refused(use->generation)) {
    use = state_->ready(request);
    if (!use) return std::unexpected(std::move(use.error()));
    socket = use->client->open_websocket(request, {"v5.channel.k8s.io", "v4.channel.k8s.io"});
  }
  if (!socket) {
    // A refusal's body is the message, and a Status is one for people.
    if (const auto status = parse_json(socket.error().message); status && (*status)["kind"].string() == "Status") return std::unexpected(error_of_status(*status));
    return std::unexpected(std::move(socket.error()));
  }
  return socket;
}

}  // namespace fairlead::kube
