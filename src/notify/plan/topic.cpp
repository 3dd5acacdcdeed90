// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/topic.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/cluster.h"

namespace fairlead::notify {
namespace {

using kube::Json;

constexpr std::size_t kMaxChannels = 16, kMaxRecipients = 16;

std::optional<SecretKey> read_secret(const Json& from) {
  if (!from.is_object()) return std::nullopt;
  return SecretKey{from["name"].string(), from["key"].string()};
}

bool host_characters(std::string_view host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':'; });
}

std::string http_problem(const Channel& channel) {
  if (channel.url.empty() == !channel.url_from) return "give exactly one of url and urlFrom";
  if (channel.url.empty()) return "";
  const auto url = parse_url(channel.url);
  if (!url) return "url: " + url.error().message;
  if (!url->tls && !channel.plain_http) return "url: https:// is expected; insecureHTTP: true permits http://";
  return "";
}

std::string mail_problem(const Channel& channel) {
  if (!host_characters(channel.server)) return fmt::format("server: \"{}\" is not a host", channel.server.substr(0, 64));
  if (!is_mail_address(channel.from)) return "from: an address such as fairlead@example.com is expected";
  if (channel.to.empty() || channel.to.size() > kMaxRecipients) return fmt::format("to: 1 to {} addresses are expected", kMaxRecipients);
  std::set<std::string> seen;
  for (const auto& to : channel.to) {
    if (!is_mail_address(to)) return "to: addresses such as ops@example.com are expected";
    if (!seen.insert(to).second) return "to: an address is there twice";
  }
  if (channel.tls == Channel::Tls::None && !channel.credentials.empty()) return "credentialsSecret: a password is never sent without TLS; set tls to StartTLS or TLS";
  return "";
}

Channel read_channel(const Json& from) {
  Channel out{.name = from["name"].string()};
  const std::int64_t seconds = from["timeoutSeconds"].integer(10);
  out.timeout = std::chrono::seconds(std::clamp<std::int64_t>(seconds, 1, 30));
  int kinds = 0;
  for (const auto& [kind, member] : {std::pair{Channel::Kind::Webhook, "webhook"}, {Channel::Kind::Email, "email"}, {Channel::Kind::Sns, "sns"}}) {
    if (!from[member].is_object()) continue;
    out.kind = kind;
    ++kinds;
  }
  if (kinds != 1) {
    out.problem = "give exactly one of webhook, email and sns";
    return out;
  }
  const Json& how = from[text(out.kind)];
  out.ca = read_secret(how["caSecret"]);
  if (out.kind == Channel::Kind::Email) {
    out.server = how["server"].string();
    out.from = how["from"].string();
    for (const Json& to : how["to"].items()) out.to.push_back(to.string());
    const std::string tls = how["tls"].string_or("StartTLS");
    out.tls = tls == "TLS" ? Channel::Tls::Always : tls == "None" ? Channel::Tls::None : Channel::Tls::Start;
    const std::int64_t port = how["port"].integer(tls == "TLS" ? 465 : tls == "None" ? 25 : 587);
    out.credentials = how["credentialsSecret"]["name"].string();
    out.problem = port < 1 || port > 65'535 ? "port: 1 to 65535 is expected" : mail_problem(out);
    if (tls != "StartTLS" && tls != "TLS" && tls != "None") out.problem = "tls: StartTLS, TLS or None is expected";
    if (out.problem.empty()) out.port = static_cast<unsigned short>(port);
    return out;
  }
  out.url = how["url"].string();
  out.url_from = read_secret(how["urlFrom"]);
  out.hmac = read_secret(how["hmacSecret"]);
  out.plain_http = how["insecureHTTP"].boolean();
  out.topic_arn = how["topicArn"].string();
  if (out.topic_arn.find_first_of("\r\n") != std::string::npos) out.problem = "topicArn: it holds a line break";
  else out.problem = http_problem(out);
  return out;
}

}  // namespace

std::string_view text(Channel::Kind kind) {
  switch (kind) {
    case Channel::Kind::Webhook: return "webhook";
    case Channel::Kind::Email: return "email";
    case Channel::Kind::Sns: return "sns";
  }
  return "webhook";
}

Result<Url> parse_url(std::string_view text) {
  const auto refuse = [](const char* why) { return fail(Code::Invalid, why); };  // never the text itself: it may be a secret
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f; })) return refuse("a character of it must be escaped");
  Url out;
  if (text.starts_with("https://")) text.remove_prefix(8);
  else if (text.starts_with("http://")) text.remove_prefix(7), out.tls = false, out.port = 80;
  else return refuse("https://HOST[:PORT]/PATH is expected");
  const std::size_t end = text.find_first_of("/?#");
  std::string_view authority = text.substr(0, end);
  std::string_view rest = end == std::string_view::npos ? "" : text.substr(end);
  rest = rest.substr(0, rest.find('#'));
  out.target = rest.starts_with('/') ? std::string(rest) : "/" + std::string(rest);
  if (authority.find('@') != std::string_view::npos) return refuse("a user or password does not belong into an address");
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return refuse("[ without ]");
    out.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
  } else {
    const std::size_t colon = authority.find(':');
    out.host = authority.substr(0, colon);
    port = colon == std::string_view::npos ? "" : authority.substr(colon);
    if (out.host.find(':') != std::string::npos) return refuse("an IPv6 address stands in brackets");
  }
  if (!host_characters(out.host)) return refuse("it names no host");
  if (!port.empty()) {
    port.remove_prefix(port.starts_with(':') ? 1 : port.size());
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos) return refuse("its port is not one");
    const int number = std::stoi(std::string(port));
    if (number < 1 || number > 65'535) return refuse("its port is not one");
    out.port = static_cast<unsigned short>(number);
  }
  return out;
}

std::string host_of(const Channel& channel, const std::string& secret_url) {
  if (channel.kind == Channel::Kind::Email) return channel.server;
  const auto url = parse_url(channel.url.empty() ? secret_url : channel.url);
  return url ? url->host : "";
}

bool is_mail_address(std::string_view text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string_view::npos || at == 0 || at > 64 || text.size() > 254) return false;
  const auto local = text.substr(0, at), host = text.substr(at + 1);
  if (!host_characters(host) || host.find(':') != std::string_view::npos || host.front() == '.' || host.back() == '.' || host.front() == '-') return false;
  // The atoms of RFC 5322 section 3.2.3; quoted local parts are left out on purpose.
  return local.front() != '.' && local.back() != '.' &&
         std::all_of(local.begin(), local.end(), [](unsigned char c) { return std::isalnum(c) || std::string_view(".!#$%&'*+/=?^_`{|}~-").find(static_cast<char>(c)) != std::string_view::npos; });
}

Topic read_topic(const Json& object) {
  Topic out{.name = kube::name_of(object), .space = kube::space_of(object), .uid = kube::uid_of(object), .generation = object["metadata"]["generation"].integer()};
  std::set<std::string> seen;
  for (const Json& one : object["spec"]["channels"].items()) {
    Channel channel = read_channel(one);
    if (channel.name.empty() || !seen.insert(channel.name).second) out.problem = "spec.channels: each has a name of its own";
    else if (out.channels.size() == kMaxChannels) out.problem = fmt::format("spec.channels: {} are possible", kMaxChannels);
    else out.channels.push_back(std::move(channel));
  }
  // What SNS's API makes has no subscribers at first.
  if (out.channels.empty() && !object["metadata"]["annotations"].has(api::kTopicNameNote)) out.problem = "spec.channels: there is none";
  if (const auto made = parse_time(object["metadata"]["creationTimestamp"].string())) out.made = *made;
  if (const Json& events = object["spec"]["clusterEvents"]; events.is_object()) {
    ClusterEventRule& rule = out.cluster_events.emplace();
    const auto read = [&](const char* field, std::set<std::string>& into) {
      if (!events.has(field)) return;
      into.clear();
      for (const Json& one : events[field].items()) into.insert(one.string());
    };
    if (events.has("detailTypes")) rule.types.clear();
    for (const Json& one : events["detailTypes"].items())
      for (const DetailType type : kDetailTypes)
        if (one.string() == text(type)) rule.types.insert(type);
    read("levels", rule.levels), read("clusters", rule.clusters), read("kinds", rule.kinds);
  }
  return out;
}

bool is_told(const Topic& topic, DetailType type, const Json& event, const std::string& title, const std::string& site_space) {
  if (!topic.cluster_events || (topic.space != site_space && topic.space != kube::space_of(event))) return false;
  const Json& spec = event["spec"];
  const ClusterEventRule& rule = *topic.cluster_events;
  if (!rule.types.contains(type)) return false;
  if (type == DetailType::ClusterEvent && (!rule.levels.contains(spec["level"].string()) || (!rule.kinds.empty() && !rule.kinds.contains(spec["kind"].string())))) return false;
  if (!rule.clusters.empty() && !rule.clusters.contains(title) && !rule.clusters.contains(event["metadata"]["labels"][api::kClusterLabel].string())) return false;
  const auto time = parse_time(spec["time"].string());
  return time && (!topic.made || *time >= *topic.made);
}

std::vector<Target> targets_of(const Topic& topic) {
  std::vector<Target> out;
  for (const Channel& channel : topic.channels) {
    if (channel.kind != Channel::Kind::Email || !channel.problem.empty()) out.push_back({&channel, ""});
    else
      for (const auto& to : channel.to) out.push_back({&channel, to});
  }
  return out;
}

}  // namespace fairlead::notify
