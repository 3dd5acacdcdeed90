// SPDX-License-Identifier: Apache-2.0
// NotificationTopic (fairlead.dev/v1alpha1) as a value: where administrators are told.
#pragma once
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/notification.h"
#include "notify/plan/event.h"
#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::notify {

using api::kNotifications;
using api::kTopics;

// Where an HTTP channel posts to. `target`: escaped path and query, never empty. It may be a secret by itself (chat services): only host and port are ever shown.
struct Url {
  bool tls = true;
  std::string host;  // a name or an address, an IPv6 one without brackets
  unsigned short port = 443;
  std::string target = "/";
  friend bool operator==(const Url&, const Url&) = default;
};
// Invalid: not http(s)://HOST[:PORT][/PATH]; a user or password in it (those belong into a Secret); characters that would end a line of a request.
Result<Url> parse_url(std::string_view text);

// One mailbox, user@host, plain ASCII: nothing in it can end a line or an argument of SMTP.
bool is_mail_address(std::string_view text);

struct SecretKey {
  std::string name, key;
  friend bool operator==(const SecretKey&, const SecretKey&) = default;
};

struct Channel {
  enum class Kind { Webhook, Email, Sns };
  enum class Tls { Start, Always, None };
  std::string name;
  Kind kind = Kind::Webhook;
  std::chrono::seconds timeout{10};
  std::string problem;  // a sentence; not empty: nothing is sent by this channel
  // Webhook, Sns
  std::string url;
  std::optional<SecretKey> url_from, hmac;
  bool plain_http = false;
  std::string topic_arn;
  // Email
  std::string server, from;
  unsigned short port = 0;
  Tls tls = Tls::Start;
  std::vector<std::string> to;
  std::string credentials;  // a Secret with username and password; empty: none
  // all
  std::optional<SecretKey> ca;
};

// Where a channel connects to; `secret_url`: what urlFrom names. Empty: its address cannot be read.
std::string host_of(const Channel& channel, const std::string& secret_url);

// Of which ClusterEvents a topic is told.
struct ClusterEventRule {
  std::set<DetailType> types{DetailType::ClusterEvent};
  std::set<std::string> levels{"Warn", "Error"};  // these and `kinds` are of DetailType::ClusterEvent
  std::set<std::string> clusters, kinds;  // by ClusterName or the object's; empty: all
};
struct Topic {
  std::string name, space, uid;
  std::optional<Instant> made;
  std::int64_t generation = 0;
  std::vector<Channel> channels;  // names are unique
  std::optional<ClusterEventRule> cluster_events;  // none: it is told of none
  std::string problem;            // of the whole; a sentence
};
// Never fails: what cannot be read becomes a problem.
Topic read_topic(const kube::Json& object);

// Is the topic told of this ClusterEvent in this form? Those of the site's own namespace may be of all clusters, others of the cluster alone whose namespace they are in. What happened before a topic was there it is not told.
bool is_told(const Topic& topic, DetailType type, const kube::Json& event, const std::string& title, const std::string& site_space);

// What is delivered or not by itself: a channel, of mail each of its recipients. "pager", "mail/ops@example.com".
struct Target {
  const Channel* channel = nullptr;
  std::string recipient;  // of mail
  std::string name() const { return recipient.empty() ? channel->name : channel->name + "/" + recipient; }
};
std::vector<Target> targets_of(const Topic& topic);  // pointers into the topic

std::string_view text(Channel::Kind kind);  // webhook, email, sns

}  // namespace fairlead::notify
