// SPDX-License-Identifier: Apache-2.0
// What domains that meet in NotificationTopics and Notifications share: where they are, and a message that somebody publishes to a topic (docs/notifications.md).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kTopics{"fairlead.dev", "v1alpha1", "notificationtopics", "NotificationTopic", true};
inline const kube::Resource kNotifications{"fairlead.dev", "v1alpha1", "notifications", "Notification", true};

inline constexpr const char* kTopicNameNote = "fairlead.dev/sns-topic";  // annotation of a NotificationTopic that SNS's API made: its name there. It may have no channels
inline constexpr std::size_t kMostMessageBytes = 256 << 10;              // of a published message with its subject and attributes, as in SNS
inline constexpr std::size_t kMostWaiting = 200;                         // Notifications of a topic; beyond it the oldest are dropped and counted (notify/plan/delivery.h)

// `id`: 32 hex digits. "evt-" and these, and the same as a UUID.
std::string event_id_of(std::string_view digits);
std::string message_id_of(std::string_view digits);

struct Published {
  std::string digits;   // 32 of 0-9a-f: the same message, however often it is published, is one object
  Instant time{};
  std::string text;     // UTF-8
  std::string subject;  // may be empty
  kube::Json attributes;  // {NAME: {Type, Value}}, or null
  kube::Json texts;       // by protocol (http, https, email) in place of `text`, or null
};
// The Notification in which it waits for the topic, in its namespace. spec.event: {id, type: "Message", time, summary, cluster: {namespace}, message: {text, subject, attributes, texts}}.
kube::Json published_notification(const Published& message, const kube::Json& topic);

}  // namespace fairlead::api
