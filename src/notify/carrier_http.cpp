// SPDX-License-Identifier: Apache-2.0
// Webhooks and SNS-style documents: one POST, no redirects, the server's certificate checked.
#include <fmt/format.h>

#include "http/client.h"
#include "notify/courier.h"
#include "notify/plan/permit.h"
#include "notify/plan/render.h"

namespace fairlead::notify {

Result<void> carry_by_http(const Parcel& parcel, Instant now, Reach reach) {
  const Channel& channel = parcel.channel;
  auto url = parse_url(channel.url.empty() ? parcel.secrets.url : channel.url);
  if (!url) return pass(std::move(url.error()), "address");
  if (!url->tls && !channel.plain_http) return fail(Code::Invalid, "the address is http://, which insecureHTTP: true would permit");
  std::string key;
  if (channel.hmac) {
    auto read = read_signing_key(parcel.secrets.hmac_key);
    if (!read) return pass(std::move(read.error()), "hmacSecret");
    key = std::move(*read);
  }
  Post post = channel.kind == Channel::Kind::Sns ? render_sns(parcel.event, parcel.of, channel.topic_arn, url->tls ? "https" : "http", key, now) : render_webhook(parcel.event, key, now);
  post.headers.emplace_back("User-Agent", "fairlead-notify/" FAIRLEAD_VERSION);

  const std::string at = fmt::format("{}:{}", url->host, url->port);
  // Whatever a library says of the request: a path may be a password.
  const auto fit = [&](std::string message) {
    for (std::size_t found; url->target.size() > 1 && (found = message.find(url->target)) != std::string::npos;) message.replace(found, url->target.size(), "...");
    return fmt::format("{}: {}", at, message);
  };
  const auto half = std::chrono::milliseconds(channel.timeout) / 2;
  std::function<Result<void>(const std::string&)> permit;
  if (reach == Reach::World) permit = [](const std::string& address) { return may_connect(address); };
  auto client = http::Client::make({.host = url->host, .port = url->port, .tls = url->tls, .ca_pem = parcel.secrets.ca_pem, .may_connect = std::move(permit), .connect_timeout = half, .request_timeout = half, .kept_connections = 0});
  if (!client) return fail(client.error().code, fit(client.error().message));
  // Only the status is read: what a receiver says is neither kept nor told.
  auto answer = (*client)->open({.method = "POST", .target = url->target, .headers = std::move(post.headers), .body = std::move(post.body)});
  if (!answer) return fail(answer.error().code, fit(answer.error().message));
  const int status = (*answer)->status();
  (*answer)->close();
  if (status >= 200 && status < 300) return {};
  if (status >= 300 && status < 400) return fail(Code::Invalid, fmt::format("{}: answered {}; redirects are not followed", at, status));
  return fail(status >= 500 || status == 429 || status == 408 ? Code::Unavailable : Code::Invalid, fmt::format("{}: answered {}", at, status));
}

}  // namespace fairlead::notify
