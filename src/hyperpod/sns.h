// SPDX-License-Identifier: Apache-2.0
// SNS over NotificationTopics of one namespace: a topic is one, a subscription a channel of it, a published message a Notification, which the server's courier delivers (docs/design/062). Source: docs.aws.amazon.com, SNS API reference 2010-03-31.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "http/message.h"
#include "hyperpod/front.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

// Keys of the site's settings (ConfigMap fairlead-aws) by which mail is sent to whom Subscribe names: a channel's server, from, tls (StartTLS where it is not said), port, and credentialsSecret.
inline constexpr const char *kMailServer = "sns-mail-server", *kMailFrom = "sns-mail-from", *kMailTls = "sns-mail-tls", *kMailPort = "sns-mail-port", *kMailSecret = "sns-mail-credentials";

inline constexpr std::size_t kMostTopics = 100;                 // that CreateTopic makes in the namespace
inline constexpr std::size_t kMostKeptBytes = 64 << 20;         // of published messages in the namespace, whatever became of them
inline constexpr std::size_t kMostKeptBytesOfTopic = 16 << 20;  // so that no topic takes all of that

// How many bytes of published messages the store holds, so that who may publish cannot fill it. Counted by a list every 15 seconds at most while something is published; what this server takes between is added, what others take is seen at the next look. Thread-safe.
class KeptMessages {
 public:
  explicit KeptMessages(const Clock& clock) : clock_(clock) {}
  // Counts them in. ThrottlingException: there is no room; a failed list: nobody knows whether there is. Blocks for a list of kMostKeptBytes.
  Answer<void> take(kube::KubeApi& api, const std::string& space, const std::string& topic, std::size_t bytes);

 private:
  const Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, std::size_t> kept_, taken_;  // by the topic's object; `taken_`: while somebody looks
  std::optional<std::chrono::nanoseconds> looked_;
  bool looking_ = false;
};

bool is_sns_action(std::string_view action);
std::string topic_arn(const Site& site, std::string_view name);  // "arn:aws:sns:REGION:ACCOUNT:NAME"
// What is inside of <ACTIONResult>. CreateTopic, DeleteTopic, ListTopics, GetTopicAttributes, Subscribe, Unsubscribe, ListSubscriptions, ListSubscriptionsByTopic, Publish, PublishBatch. Needs the permission of the same name on the topic's ARN.
// A published message is stored before the answer; one call that is sent again by the SDK is one message. InvalidParameter, NotFound, AuthorizationError, TopicLimitExceeded, Throttled (200 messages wait already, or KeptMessages has no room).
Answer<std::string> answer_sns(const std::string& action, const http::Query& form, const Call& call, kube::KubeApi& api, const std::string& space, KeptMessages& kept);

}  // namespace fairlead::hyperpod
