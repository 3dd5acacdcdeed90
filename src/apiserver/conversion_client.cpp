// SPDX-License-Identifier: Apache-2.0
#include "apiserver/conversion_client.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "http/client.h"
#include "kube/rest_client.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::chrono::seconds connect_limit{3};
constexpr std::size_t most_clients = 64;

class WebhookConverter final : public Converter {
 public:
  WebhookConverter(EndpointFinder find, std::function<std::string()> new_uid) : find_(std::move(find)), new_uid_(std::move(new_uid)) {}

  Result<std::vector<Json>> convert(const ConversionHook& hook, const std::string& to, const std::vector<Json>& objects) const override {
    const std::string uid = new_uid_();
    auto answer = ask(hook, kube::print_json(conversion_review(uid, to, objects)));
    if (!answer) return fail(Code::Internal, fmt::format("{} failed: {}", conversion_title(objects.front()), answer.error().message));
    return converted_objects(*answer, uid, to, objects);
  }

 private:
  Result<Json> ask(const ConversionHook& hook, std::string body) const {
    http::ClientOptions options{.ca_pem = hook.ca_pem, .connect_timeout = connect_limit, .request_timeout = conversion_limit - connect_limit};
    std::string path, shown = hook.url;
    if (hook.url.empty()) {
      auto endpoint = find_(hook.space, hook.name, hook.port);
      if (!endpoint) return std::unexpected(std::move(endpoint.error()));
      options.host = endpoint->address;
      options.port = endpoint->port;
      options.server_name = fmt::format("{}.{}.svc", hook.name, hook.space);
      path = hook.path;
      shown = fmt::format("https://{}:{}{}", options.server_name, hook.port, path);
    } else {
      auto url = kube::parse_server(hook.url);
      if (!url) return std::unexpected(std::move(url.error()));
      options.host = url->host;
      options.port = url->port;
      path = url->prefix;
    }
    auto client = client_of(std::move(options));
    if (!client) return std::unexpected(std::move(client.error()));
    auto answer = (*client)->request({.method = "POST", .target = path.empty() ? "/" : path, .headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}}, .body = std::move(body)});
    if (!answer) return fail(answer.error().code, fmt::format("Post \"{}\": {}", shown, answer.error().message));
    if (answer->status < 200 || answer->status > 299) return fail(Code::Unavailable, fmt::format("Post \"{}\": the webhook answered with status {}", shown, answer->status));
    auto json = kube::parse_json(answer->body);
    if (!json) return fail(Code::Unavailable, fmt::format("Post \"{}\": the webhook's answer is no JSON: {}", shown, json.error().message));
    return json;
  }

  Result<std::shared_ptr<http::Client>> client_of(http::ClientOptions options) const {
    const std::string key = fmt::format("{}|{}|{}|{}", options.host, options.port, options.server_name, options.ca_pem);
    const std::lock_guard lock(mutex_);
    if (const auto found = clients_.find(key); found != clients_.end()) return found->second;
    auto made = http::Client::make(std::move(options));
    if (!made) return made;
    if (clients_.size() >= most_clients) clients_.clear();  // pods come and go
    clients_.emplace(key, *made);
    return made;
  }

  const EndpointFinder find_;
  const std::function<std::string()> new_uid_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<http::Client>> clients_;
};

}  // namespace

std::shared_ptr<const Converter> make_webhook_converter(EndpointFinder find, std::function<std::string()> new_uid) {
  return std::make_shared<const WebhookConverter>(std::move(find), std::move(new_uid));
}

}  // namespace fairlead::apiserver
