// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/render.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"

namespace fairlead::notify {

using kube::Json;

namespace {

std::string seconds_text(Instant time) { return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count()); }

void sign(HeaderLines& headers, const Event& event, const std::string& body, std::string_view key, Instant sent) {
  const std::string timestamp = seconds_text(sent);
  headers.emplace_back("webhook-id", event.id);
  headers.emplace_back("webhook-timestamp", timestamp);
  if (!key.empty()) headers.emplace_back("webhook-signature", webhook_signature(key, event.id, timestamp, body));
}

std::string mail_text(const Event& event) {
  if (event.type == EventType::Message) return fmt::format("{}\n\nThe same message may come twice; its id is {}.\n", message_text(event, "email"), event.id);
  std::string out = summary(event) + "\n\n";
  const auto line = [&out](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("{:<12}{}\n", name, value);
  };
  line("Event:", std::string(text(event.type)));
  if (event.type == EventType::ClusterEvent) {
    const Json &detail = event.envelope["detail"], &details = detail["EventDetails"], &health = detail["HealthSummary"];
    line("Cluster:", event.cluster);
    line("Group:", details["InstanceGroupName"].string());
    line("Instance:", details["InstanceId"].string_or(detail["InstanceId"].string()));
    line("Repair:", health["RepairAction"].string());
    line("Advice:", health["Recommendation"].string());
    line("Time:", print_time(event.time));
    line("Why:", event.cause);
    return out + fmt::format("\nThe same event may come twice; its id is {}.\n", event.id);
  }
  line("Cluster:", event.cluster.empty() ? "" : event.space + "/" + event.cluster);
  line(event.witness ? "Witness:" : "Head:", event.head);
  line("State:", event.head.empty() ? "" : fmt::format("{} -> {}", event.old_state, event.new_state));
  line("Redundancy:", event.wanted == 0 ? "" : fmt::format("{} of {} heads serve or stand by", event.ready, event.wanted));
  line("Term:", event.term == 0 ? "" : std::to_string(event.term));
  line("Time:", print_time(event.time));
  line("Cause:", event.cause);
  line("Next step:", event.next_step);
  return out + fmt::format("\nThe same event may come twice; its id is {}.\n", event.id);
}

}  // namespace

std::string webhook_signature(std::string_view key, std::string_view id, std::string_view timestamp, std::string_view body) {
  return "v1," + base64(hmac_sha256(key, fmt::format("{}.{}.{}", id, timestamp, body)));
}

Result<std::string> read_signing_key(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  std::string key(text);
  if (text.starts_with("whsec_")) {
    auto decoded = parse_base64(text.substr(6));
    if (!decoded) return fail(Code::Invalid, "what follows whsec_ is not base64");
    key = std::move(*decoded);
  }
  if (key.size() < 16) return fail(Code::Invalid, "the key has less than 16 bytes");
  return key;
}

Post render_webhook(const Event& event, std::string_view key, Instant sent) {
  Post out{.headers = {{"Content-Type", "application/json"}}, .body = kube::print_json(body_of(event))};
  sign(out.headers, event, out.body, key, sent);
  return out;
}

Post render_sns(const Event& event, const Topic& topic, const std::string& topic_arn, std::string_view protocol, std::string_view key, Instant sent) {
  const std::string arn = topic_arn.empty() ? fmt::format("arn:aws:sns:fairlead:000000000000:{}", topic.name) : topic_arn;
  const std::string id = uuid_of(event.id);
  Post out{.headers = {{"Content-Type", "text/plain; charset=UTF-8"}, {"x-amz-sns-message-type", "Notification"}, {"x-amz-sns-message-id", id}, {"x-amz-sns-topic-arn", arn}}};
  Json body = Json::object({{"Type", "Notification"}, {"MessageId", id}, {"TopicArn", arn}});
  const bool published = event.type == EventType::Message;
  if (!published) body.set("Subject", summary(event).substr(0, 100));  // SNS has no longer ones
  else if (const std::string& subject = event.message["subject"].string(); !subject.empty()) body.set("Subject", subject);
  body.set("Message", published ? message_text(event, protocol) : kube::print_json(body_of(event))).set("Timestamp", print_time(event.time).substr(0, 19) + ".000Z");
  if (published && event.message["attributes"].is_object()) body.set("MessageAttributes", event.message["attributes"]);
  out.body = kube::print_json(body);
  sign(out.headers, event, out.body, key, sent);
  return out;
}

std::string quoted_printable(std::string_view text) {
  std::string out, line;
  const auto put = [&](std::string piece) {
    if (line.size() + piece.size() > 75) {
      out += line + "=\r\n";
      line.clear();
    }
    line += piece;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\n') {
      out += line + "\r\n";
      line.clear();
    } else if ((c == ' ' && i + 1 < text.size() && text[i + 1] != '\n') || (c > ' ' && c < 0x7f && c != '=')) {
      put(std::string(1, static_cast<char>(c)));
    } else {
      put(fmt::format("={:02X}", c));
    }
  }
  if (!line.empty()) out += line + "\r\n";
  return out;
}

std::string render_mail(const Event& event, const std::string& from, const std::string& to) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(event.time);
  // Names of days and months are English whatever the locale: fmt uses the classic one.
  const std::string date = fmt::format("{:%a, %d %b %Y %H:%M:%S} +0000", fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::system_clock::duration>(seconds))));
  std::string subject = (event.type == EventType::Message ? "" : "[Fairlead] ") + summary(event), folded;
  // Folded at spaces: lines of a header have 78 characters, 998 at the very most.
  for (std::size_t room = 69; subject.size() > room; room = 77) {
    std::size_t at = subject.rfind(' ', room);
    if (at == std::string::npos || at == 0) break;
    folded += subject.substr(0, at) + "\r\n";
    subject.erase(0, at);
  }
  folded += subject.substr(0, 900);
  const std::string host = from.substr(from.rfind('@') + 1);
  return fmt::format(
      "Date: {}\r\nFrom: Fairlead <{}>\r\nTo: <{}>\r\nSubject: {}\r\nMessage-ID: <{}@{}>\r\nAuto-Submitted: auto-generated\r\nX-Fairlead-Event-Id: {}\r\nX-Fairlead-Event-Type: {}\r\n"
      "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{}",
      date, from, to, folded, event.id, host, event.id, text(event.type), quoted_printable(mail_text(event)));
}

}  // namespace fairlead::notify
