// SPDX-License-Identifier: Apache-2.0
// SNS over NotificationTopics of one namespace: a topic is one, a subscription a channel of it, a published message a Notification, which the server's courier delivers (docs/design/062). Source: docs.aws.amazon.com, SNS API reference 2010-03-31.
#pragma once
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/front.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

// Keys of the site's settings (ConfigMap fairlead-aws) by which mail is sent to whom Subscribe names: a channel's server, from, tls (StartTLS where it is not said), port, and credentialsSecret.
inline constexpr const char *kMailServer = "sns-mail-server", *kMailFrom = "sns-mail-from", *kMailTls = "sns-mail-tls", *kMailPort = "sns-mail-port", *kMailSecret = "sns-mail-credentials";

bool is_sns_action(std::string_view action);
std::string topic_arn(const Site& site, std::string_view name);  // "arn:aws:sns:REGION:ACCOUNT:NAME"
// What is inside of <ACTIONResult>. CreateTopic, DeleteTopic, ListTopics, GetTopicAttributes, Subscribe, Unsubscribe, ListSubscriptions, ListSubscriptionsByTopic, Publish, PublishBatch. Needs the permission of the same name on the topic's ARN.
// A published message is stored before the answer; one call that is sent again by the SDK is one message. InvalidParameter, NotFound, AuthorizationError, Throttled (200 messages wait already).
Answer<std::string> answer_sns(const std::string& action, const http::Query& form, const Call& call, kube::KubeApi& api, const std::string& space);

}  // namespace fairlead::hyperpod
