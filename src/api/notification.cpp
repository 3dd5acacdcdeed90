// SPDX-License-Identifier: Apache-2.0
#include "api/notification.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::api {

using kube::Json;

std::string event_id_of(std::string_view digits) { return fmt::format("evt-{}", digits); }
std::string message_id_of(std::string_view digits) { return fmt::format("{}-{}-{}-{}-{}", digits.substr(0, 8), digits.substr(8, 4), digits.substr(12, 4), digits.substr(16, 4), digits.substr(20)); }

Json published_notification(const Published& message, const Json& topic) {
  const std::string id = event_id_of(message.digits);
  Json body = Json::object({{"text", message.text}});
  if (!message.subject.empty()) body.set("subject", message.subject);
  if (message.attributes.is_object()) body.set("attributes", message.attributes);
  if (message.texts.is_object()) body.set("texts", message.texts);
  std::string summary = message.subject.empty() ? fmt::format("Message to topic {}", kube::name_of(topic)) : message.subject;
  std::replace_if(summary.begin(), summary.end(), [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
  return Json::object({{"apiVersion", kNotifications.api_version()},
                       {"kind", kNotifications.kind},
                       {"metadata", Json::object({{"name", id + "." + kube::name_of(topic)}, {"namespace", kube::space_of(topic)}, {"labels", Json::object({{"app.kubernetes.io/managed-by", "fairlead"}})}, {"ownerReferences", Json::array({kube::owner_reference(topic)})}})},
                       {"spec", Json::object({{"topic", kube::name_of(topic)}, {"event", Json::object({{"id", id}, {"type", "Message"}, {"time", print_time(message.time)}, {"summary", std::move(summary)}, {"cluster", Json::object({{"namespace", kube::space_of(topic)}})}, {"message", std::move(body)}})}})}});
}

}  // namespace fairlead::api
