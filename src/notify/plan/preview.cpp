// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/preview.h"

#include "notify/plan/render.h"

namespace fairlead::notify {

using kube::Json;

Event test_event(const std::string& space, const std::string& id, Instant now) {
  return {.id = "evt-" + id, .type = EventType::Test, .time = now, .space = space, .cause = "somebody tries out the channels of a NotificationTopic", .next_step = "None: nothing has happened."};
}

Json preview(const Topic& topic, const Event& event, Instant now) {
  Json out = Json::array();
  for (const Target& target : targets_of(topic)) {
    const Channel& channel = *target.channel;
    Json one = Json::object({{"target", target.name()}, {"kind", std::string(text(channel.kind))}});
    if (!channel.problem.empty()) {
      one.set("problem", channel.problem);
    } else if (channel.kind == Channel::Kind::Email) {
      one.set("body", render_mail(event, channel.from, target.recipient));
    } else {
      const Post post = channel.kind == Channel::Kind::Sns ? render_sns(event, topic, channel.topic_arn, channel.url.starts_with("http://") ? "http" : "https", "", now) : render_webhook(event, "", now);
      Json headers = Json::array();
      for (const auto& [name, value] : post.headers) headers.push(Json::array({Json(name), Json(value)}));
      one.set("headers", std::move(headers)).set("body", post.body);
    }
    out.push(std::move(one));
  }
  return out;
}

}  // namespace fairlead::notify
