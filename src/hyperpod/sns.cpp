// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/sns.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "api/identity_crds.h"
#include "api/notification.h"
#include "base/encoding.h"
#include "base/rng.h"
#include "hyperpod/entity.h"
#include "hyperpod/log_events.h"
#include "hyperpod/paging.h"
#include "hyperpod/query_protocol.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t kMostChannels = 16, kMostRecipients = 16;  // of a topic, and of a mail channel, as its definition says
constexpr const char* kMailChannel = "sns-mail";                 // of all addresses that Subscribe was given
constexpr auto kLook = std::chrono::seconds(15);
constexpr const char* kDisplayNote = "fairlead.dev/sns-display-name";

std::unexpected<AwsError> wrong(std::string why) { return refuse("InvalidParameter", "Invalid parameter: " + std::move(why)); }
std::unexpected<AwsError> no_topic() { return refuse("NotFound", "Topic does not exist", 404); }
AwsError failed(const Error& error, const char* doing) {
  switch (error.code) {
    case Code::NotFound: return {"NotFound", "Topic does not exist", 404};
    case Code::Conflict: return {"ConcurrentAccess", "The topic was changed at the same time; try again.", 400};
    case Code::Invalid: return {"InvalidParameter", fmt::format("Invalid parameter: {}", error.message), 400};
    default: return aws_error(error, doing);
  }
}

bool is_topic_name(std::string_view name) {
  return !name.empty() && name.size() <= 256 && std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; });
}
bool by_create(const Json& topic) { return topic["metadata"]["annotations"].has(api::kTopicNameNote); }  // by CreateTopic
std::string sns_name(const Json& topic) { return topic["metadata"]["annotations"][api::kTopicNameNote].string_or(kube::name_of(topic)); }
// A host and a path without what would end a line or hide who is asked; the carrier reads it again.
bool is_endpoint(std::string_view url, std::string_view protocol) {
  const std::string begin = std::string(protocol) + "://";
  if (!url.starts_with(begin) || url.size() > 2048 || std::ranges::any_of(url, [](unsigned char c) { return c <= ' ' || c >= 0x7f; })) return false;
  const std::string_view authority = url.substr(begin.size(), url.substr(begin.size()).find_first_of("/?#"));
  return !authority.empty() && authority.find('@') == std::string_view::npos;
}
bool is_mail(std::string_view text) {
  const auto at = text.find('@');
  const auto fits = [](std::string_view part, std::string_view others) { return !part.empty() && part.front() != '.' && part.back() != '.' && std::ranges::all_of(part, [&](unsigned char c) { return std::isalnum(c) || others.find(static_cast<char>(c)) != others.npos; }); };
  return at != text.npos && at <= 64 && text.size() <= 254 && fits(text.substr(0, at), ".!#$%&'*+/=?^_`{|}~-") && fits(text.substr(at + 1), ".-");
}

// The name of a channel that Subscribe makes says which address it has: one that somebody wrote or changed is told by it, on topics of anybody.
std::string channel_name(std::string_view protocol, std::string_view endpoint) { return protocol == "email" ? kMailChannel : "sns-" + hex(sha256(fmt::format("{} {}", protocol, endpoint))).substr(0, 16); }

struct Subscription {
  std::string arn, protocol, endpoint;
  std::string channel, recipient;  // of the topic
  bool own = false;                // Subscribe made it
};

class Sns {
 public:
  Sns(const http::Query& form, const Call& call, kube::KubeApi& api, const std::string& space, KeptMessages& kept) : form_(form), call_(call), api_(api), space_(space), kept_(kept) {}

  // What is not of the operation is refused by its name: who asks for a filter must not be sent everything.
  Answer<void> only(std::initializer_list<std::string_view> known) const {
    for (const auto& [name, value] : form_) {
      if (name == "Action" || name == "Version") continue;
      const std::string_view head = std::string_view(name).substr(0, name.find('.'));
      if (std::ranges::find(known, head) == known.end()) return wrong(fmt::format("{} is not served here (docs/hyperpod-compatibility.md)", cut(std::string(head), 64)));
    }
    return {};
  }

  Answer<std::string> create() {
    if (auto done = only({"Name", "Attributes"}); !done) return std::unexpected(done.error());
    const std::string name = given("Name");
    if (name.ends_with(".fifo")) return wrong("Topic Name: FIFO topics are not served here: order is not promised");
    if (!is_topic_name(name)) return wrong("Topic Name: 1 to 256 of letters, digits, - and _");
    const std::string arn = topic_arn(call_.site, name);
    if (auto done = call_.allow("sns:CreateTopic", arn); !done) return std::unexpected(done.error());
    std::string display;
    for (const auto& [key, value] : entries("Attributes", "key", "value")) {
      if (key == "DisplayName" && value.size() <= 100) display = value;
      else if (!(key == "FifoTopic" && value == "false")) return wrong(fmt::format("Attributes: {} is not served here; DisplayName (100 characters) is", cut(key, 64)));
    }
    auto there = find(name);
    if (there) return xml_element("TopicArn", arn);
    if (there.error().code != "NotFound") return std::unexpected(there.error());
    const auto others = all();
    if (!others) return std::unexpected(others.error());
    if (std::ranges::count_if(*others, by_create) >= static_cast<std::ptrdiff_t>(kMostTopics)) return refuse("TopicLimitExceeded", fmt::format("CreateTopic makes {} topics at most; delete one, or make a NotificationTopic in namespace {} by kubectl", kMostTopics, space_), 403);
    Json notes = Json::object({{api::kTopicNameNote, name}});
    if (!display.empty()) notes.set(kDisplayNote, as_utf8(display));
    Json object = Json::object({{"apiVersion", api::kTopics.api_version()}, {"kind", api::kTopics.kind}, {"metadata", Json::object({{"name", object_name_of(name)}, {"namespace", space_}, {"annotations", std::move(notes)}})}, {"spec", Json::object({{"channels", Json::array()}})}});
    const auto made = api_.create(api::kTopics, object);
    if (!made && made.error().code != Code::Exists) return std::unexpected(failed(made.error(), "create topic"));
    if (made) return xml_element("TopicArn", arn);
    // Somebody was faster, or an object of that name is another topic.
    if (auto again = find(name); !again) return again.error().code == "NotFound" ? Answer<std::string>(wrong(fmt::format("Topic Name: the NotificationTopic {}/{} is another topic", space_, object_name_of(name)))) : std::unexpected(again.error());
    return xml_element("TopicArn", arn);
  }

  Answer<std::string> remove() {
    if (auto done = only({"TopicArn"}); !done) return std::unexpected(done.error());
    const auto topic = allowed("sns:DeleteTopic", given("TopicArn"));
    if (!topic) return topic.error().code == "NotFound" ? Answer<std::string>("") : std::unexpected(topic.error());
    const auto gone = api_.remove(api::kTopics, kube::key_of(*topic), {.grace_seconds = {}, .uid = kube::uid_of(*topic), .resource_version = {}});
    if (!gone && gone.error().code != Code::NotFound) return std::unexpected(failed(gone.error(), "delete topic"));
    return "";
  }

  Answer<std::string> list() {
    if (auto done = only({"NextToken"}); !done) return std::unexpected(done.error());
    if (auto done = call_.allow("sns:ListTopics", "*"); !done) return std::unexpected(done.error());
    const auto topics = all();
    if (!topics) return std::unexpected(topics.error());
    std::vector<std::string> names;
    for (const Json& one : *topics) names.push_back(sns_name(one));
    return page(names, [&](std::size_t i) { return "<member>" + xml_element("TopicArn", topic_arn(call_.site, names[i])) + "</member>"; }, "Topics", "topics");
  }

  Answer<std::string> attributes() {
    if (auto done = only({"TopicArn"}); !done) return std::unexpected(done.error());
    const auto topic = allowed("sns:GetTopicAttributes", given("TopicArn"));
    if (!topic) return std::unexpected(topic.error());
    std::string out = "<Attributes>";
    const auto entry = [&](const char* key, const std::string& value) { out += "<entry>" + xml_element("key", key) + xml_element("value", value) + "</entry>"; };
    entry("TopicArn", topic_arn(call_.site, sns_name(*topic)));
    entry("Owner", call_.site.account);
    entry("DisplayName", (*topic)["metadata"]["annotations"][kDisplayNote].string());
    entry("SubscriptionsConfirmed", std::to_string(subscriptions(*topic).size()));
    entry("SubscriptionsPending", "0");
    entry("SubscriptionsDeleted", "0");
    return out + "</Attributes>";
  }

  Answer<std::string> subscribe() {
    if (auto done = only({"TopicArn", "Protocol", "Endpoint", "Attributes", "ReturnSubscriptionArn"}); !done) return std::unexpected(done.error());
    const std::string protocol = given("Protocol"), endpoint = given("Endpoint");
    iam::Keys keys;
    keys.set("sns:Protocol", {protocol});
    keys.set("sns:Endpoint", {endpoint});
    auto topic = allowed("sns:Subscribe", given("TopicArn"), keys);
    if (!topic) return std::unexpected(topic.error());
    for (const auto& [key, value] : entries("Attributes", "key", "value"))
      if (!(key == "RawMessageDelivery" && value == "false")) return wrong(fmt::format("Attributes: {} is not served here: subscribers get every message, in SNS's document", cut(key, 64)));
    if (protocol != "http" && protocol != "https" && protocol != "email") return wrong(fmt::format("Protocol: http, https and email are served here, not {}", cut(protocol, 32)));
    if (protocol == "email" ? !is_mail(endpoint) : !is_endpoint(endpoint, protocol)) return wrong(protocol == "email" ? "Endpoint: a mail address is expected" : fmt::format("Endpoint: {}://HOST[:PORT]/PATH without a user in it is expected", protocol));
    return change(std::move(*topic), [&](Json& now, bool& changed) { return add_channel(now, protocol, endpoint, changed); });
  }

  Answer<std::string> add_channel(Json& now, const std::string& protocol, const std::string& endpoint, bool& changed) const {
    Json* const topic = &now;
    const std::string name = sns_name(*topic);
    const std::string channel = channel_name(protocol, endpoint);
    for (const Subscription& one : subscriptions(*topic)) {
      if (protocol == "email" ? one.protocol == protocol && one.endpoint == endpoint : one.own && one.channel == channel) return xml_element("SubscriptionArn", one.arn);
      if (one.channel == channel && !one.own) return wrong(fmt::format("Endpoint: channel {} of NotificationTopic {} was changed and has another address; take it out of spec.channels, then subscribe", channel, kube::key_of(*topic).text()));
    }
    Json channels = (*topic)["spec"]["channels"].is_array() ? (*topic)["spec"]["channels"] : Json::array();
    bool room = true;
    if (protocol == "email") {
      auto& list = channels.items();
      const auto there = std::find_if(list.begin(), list.end(), [&](const Json& one) { return one["name"].string() == channel; });
      if (there != list.end()) {
        room = (*there)["email"]["to"].items().size() < kMostRecipients;
        if (room) there->child("email").child("to").push(endpoint);
      } else {
        auto mail = mail_channel();
        if (!mail) return std::unexpected(mail.error());
        mail->set("to", Json::array({Json(endpoint)}));
        channels.push(Json::object({{"name", channel}, {"email", std::move(*mail)}}));
      }
    } else {
      Json how = Json::object({{"url", endpoint}, {"topicArn", topic_arn(call_.site, name)}});
      if (protocol == "http") how.set("insecureHTTP", true);
      channels.push(Json::object({{"name", channel}, {"sns", std::move(how)}}));
    }
    if (!room || channels.items().size() > kMostChannels) return refuse("SubscriptionLimitExceeded", fmt::format("a topic has {} channels at most, and {} mail addresses", kMostChannels, kMostRecipients), 403);
    topic->child("spec").set("channels", std::move(channels));
    changed = true;
    return xml_element("SubscriptionArn", subscription_arn(*topic, channel, protocol == "email" ? endpoint : ""));
  }

  Answer<std::string> unsubscribe() {
    if (auto done = only({"SubscriptionArn"}); !done) return std::unexpected(done.error());
    const std::string arn = given("SubscriptionArn");
    const auto colon = arn.rfind(':');
    if (colon == arn.npos || std::ranges::count(arn, ':') != 6) return wrong("SubscriptionArn: arn:aws:sns:REGION:ACCOUNT:TOPIC:ID is expected");
    auto topic = allowed("sns:Unsubscribe", arn.substr(0, colon));
    if (!topic) return topic.error().code == "NotFound" ? Answer<std::string>("") : std::unexpected(topic.error());
    return change(std::move(*topic), [&](Json& now, bool& changed) { return take_channel(now, arn, changed); });
  }

  Answer<std::string> take_channel(Json& now, const std::string& arn, bool& changed) const {
    Json* const topic = &now;
    for (const Subscription& one : subscriptions(*topic)) {
      if (one.arn != arn) continue;
      if (!one.own) return wrong(fmt::format("SubscriptionArn: channel {} was not made by Subscribe; take it out of spec.channels of NotificationTopic {}", one.channel, kube::key_of(*topic).text()));
      Json channels = Json::array();
      for (Json channel : (*topic)["spec"]["channels"].items()) {
        if (channel["name"].string() == one.channel) {
          if (one.recipient.empty()) continue;
          Json to = Json::array();
          for (const Json& address : channel["email"]["to"].items())
            if (address.string() != one.recipient) to.push(address);
          if (to.items().empty()) continue;
          channel.child("email").set("to", std::move(to));
        }
        channels.push(std::move(channel));
      }
      topic->child("spec").set("channels", std::move(channels));
      changed = true;
      break;
    }
    return "";  // one that is not there is no error
  }

  Answer<std::string> list_subscriptions(bool of_topic) {
    if (auto done = only({"NextToken", of_topic ? "TopicArn" : "NextToken"}); !done) return std::unexpected(done.error());
    std::vector<Json> topics;
    if (of_topic) {
      auto topic = allowed("sns:ListSubscriptionsByTopic", given("TopicArn"));
      if (!topic) return std::unexpected(topic.error());
      topics.push_back(std::move(*topic));
    } else {
      if (auto done = call_.allow("sns:ListSubscriptions", "*"); !done) return std::unexpected(done.error());
      auto list = all();
      if (!list) return std::unexpected(list.error());
      topics = std::move(*list);
    }
    std::vector<std::string> names, shown;
    for (const Json& topic : topics)
      for (const Subscription& one : subscriptions(topic)) {
        names.push_back(one.arn);
        shown.push_back("<member>" + xml_element("SubscriptionArn", one.arn) + xml_element("Owner", call_.site.account) + xml_element("Protocol", one.protocol) + xml_element("Endpoint", one.endpoint) + xml_element("TopicArn", topic_arn(call_.site, sns_name(topic))) + "</member>");
      }
    return page(names, [&](std::size_t i) { return shown[i]; }, "Subscriptions", "subscriptions " + given("TopicArn"));
  }

  Answer<std::string> publish() {
    if (auto done = only({"TopicArn", "TargetArn", "Message", "Subject", "MessageStructure", "MessageAttributes"}); !done) return std::unexpected(done.error());
    if (given("TopicArn").empty() == given("TargetArn").empty()) return wrong("TopicArn: exactly one of TopicArn and TargetArn is expected");
    const auto topic = allowed("sns:Publish", given("TopicArn", given("TargetArn")));
    if (!topic) return std::unexpected(topic.error());
    std::size_t bytes = 0;
    auto message = read_message("", "", bytes);
    if (!message) return std::unexpected(message.error());
    if (bytes > api::kMostMessageBytes) return wrong("Message too long: 256 KiB at most");
    if (auto done = store(*message, *topic); !done) return std::unexpected(done.error());
    return xml_element("MessageId", api::message_id_of(message->digits));
  }

  Answer<std::string> publish_batch() {
    if (auto done = only({"TopicArn", "PublishBatchRequestEntries"}); !done) return std::unexpected(done.error());
    const auto topic = allowed("sns:Publish", given("TopicArn"));
    if (!topic) return std::unexpected(topic.error());
    std::vector<std::string> ids;
    for (int i = 1; i <= 11; ++i)
      if (const std::string id = given(fmt::format("PublishBatchRequestEntries.member.{}.Id", i)); !id.empty()) ids.push_back(id);
      else break;
    if (ids.empty()) return refuse("EmptyBatchRequest", "The batch request doesn't contain any entries.");
    if (ids.size() > 10) return refuse("TooManyEntriesInBatchRequest", "The batch request contains more entries than permissible (10).");
    if (std::set<std::string>(ids.begin(), ids.end()).size() != ids.size()) return refuse("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.");
    for (const std::string& id : ids)
      if (id.size() > 80 || !is_topic_name(id)) return refuse("InvalidBatchEntryId", "The Id of a batch entry: 1 to 80 of letters, digits, - and _");
    std::string good, bad;
    std::vector<Answer<api::Published>> messages;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) messages.push_back(read_message(fmt::format("PublishBatchRequestEntries.member.{}.", i + 1), ids[i], bytes));
    if (bytes > api::kMostMessageBytes) return refuse("BatchRequestTooLong", "The length of all the batch messages put together is more than the limit: 256 KiB.");
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Answer<void> done;
      if (!messages[i]) done = std::unexpected(messages[i].error());
      else done = store(*messages[i], *topic);
      if (done) good += "<member>" + xml_element("Id", ids[i]) + xml_element("MessageId", api::message_id_of(messages[i]->digits)) + "</member>";
      else bad += "<member>" + xml_element("Id", ids[i]) + xml_element("Code", done.error().code) + xml_element("Message", done.error().message) + xml_element("SenderFault", done.error().status < 500 ? "true" : "false") + "</member>";
    }
    return "<Successful>" + good + "</Successful><Failed>" + bad + "</Failed>";
  }

  Answer<std::string> confirm() { return refuse("UnknownOperationException", "ConfirmSubscription is not needed here: a subscription is in force when Subscribe answers"); }

 private:
  std::string given(std::string_view name, std::string_view otherwise = "") const {
    const auto value = http::find(form_, name);
    return std::string(value.empty() ? otherwise : value);
  }
  std::map<std::string, std::string> entries(std::string_view of, const char* key, const char* value) const {
    std::map<std::string, std::string> out;
    for (int i = 1; i <= 100; ++i)
      if (const std::string name = given(fmt::format("{}.entry.{}.{}", of, i, key)); !name.empty()) out[name] = given(fmt::format("{}.entry.{}.{}", of, i, value));
      else break;
    return out;
  }

  Answer<std::vector<Json>> all() const {
    auto list = api_.list(api::kTopics, space_);
    if (!list) return std::unexpected(aws_error(list.error(), "list topics"));
    std::erase_if(list->items, [](const Json& one) { return kube::deleting(one); });
    return std::move(list->items);
  }
  // NotFound: none, or its object is another's.
  Answer<Json> find(const std::string& name) const {
    auto topic = api_.get(api::kTopics, {space_, object_name_of(name)});
    if (!topic && topic.error().code != Code::NotFound) return std::unexpected(failed(topic.error(), "read topic"));
    if (!topic || kube::deleting(*topic) || sns_name(*topic) != name) return no_topic();
    return std::move(*topic);
  }
  // The courier writes the topic's status meanwhile: who was faster is read again.
  Answer<std::string> change(Json topic, const std::function<Answer<std::string>(Json& now, bool& changed)>& apply) const {
    for (int tries = 0;; ++tries) {
      bool changed = false;
      auto out = apply(topic, changed);
      if (!out || !changed) return out;
      const auto done = api_.update(api::kTopics, topic);
      if (done) return out;
      if (done.error().code != Code::Conflict || tries >= 9) return std::unexpected(failed(done.error(), "change topic"));
      auto again = find(sns_name(topic));
      if (!again) return std::unexpected(again.error());
      topic = std::move(*again);
    }
  }
  Answer<Json> allowed(const char* action, const std::string& arn, const iam::Keys& keys = {}) const {
    const std::string begin = topic_arn(call_.site, "");
    if (!arn.starts_with("arn:") || std::ranges::count(arn, ':') != 5) return wrong("TopicArn: arn:aws:sns:REGION:ACCOUNT:NAME is expected");
    if (auto done = call_.allow(action, arn, keys); !done) return std::unexpected(done.error());
    if (!arn.starts_with(begin) || !is_topic_name(std::string_view(arn).substr(begin.size()))) return no_topic();
    return find(arn.substr(begin.size()));
  }

  std::string subscription_arn(const Json& topic, const std::string& channel, const std::string& recipient) const {
    return topic_arn(call_.site, sns_name(topic)) + ":" + api::message_id_of(hex(sha256(fmt::format("{}/{}/{}", kube::uid_of(topic), channel, recipient))).substr(0, 32));
  }
  std::vector<Subscription> subscriptions(const Json& topic) const {
    std::vector<Subscription> out;
    for (const Json& channel : topic["spec"]["channels"].items()) {
      const std::string& name = channel["name"].string();
      bool own = name == kMailChannel && channel["email"].is_object();
      const auto add = [&](std::string protocol, std::string endpoint, const std::string& recipient) { out.push_back({subscription_arn(topic, name, recipient), std::move(protocol), std::move(endpoint), name, recipient, own}); };
      if (channel["email"].is_object()) {
        for (const Json& to : channel["email"]["to"].items()) add("email", to.string(), to.string());
        continue;
      }
      const std::string& url = channel[channel["sns"].is_object() ? "sns" : "webhook"]["url"].string();
      // An address that an administrator wrote may be a secret by its path.
      const auto scheme = url.find("://");
      const std::string host = scheme == url.npos ? "..." : url.substr(scheme + 3, url.find_first_of("/?#", scheme + 3) - scheme - 3);
      const std::string protocol = url.starts_with("http://") ? "http" : "https";
      own = channel["sns"].is_object() && name == channel_name(protocol, url);
      add(protocol, own ? url : fmt::format("{}://{}/...", protocol, host), "");
    }
    return out;
  }
  Answer<Json> mail_channel() const {
    const auto settings = api_.get(kube::resources::config_maps, {space_, api::identities::settings_name});
    if (!settings && settings.error().code != Code::NotFound) return std::unexpected(failed(settings.error(), "read the site's settings"));
    const Json data = settings ? (*settings)["data"] : Json();
    if (data[kMailServer].string().empty() || !is_mail(data[kMailFrom].string()))
      return wrong(fmt::format("Protocol: email needs the site's mail server: kubectl -n {} patch configmap {} --type=merge -p '{{\"data\": {{\"{}\": \"smtp.example.com\", \"{}\": \"fairlead@example.com\"}}}}' (docs/notifications.md)", space_, api::identities::settings_name, kMailServer, kMailFrom));
    Json out = Json::object({{"server", data[kMailServer]}, {"from", data[kMailFrom]}});
    if (const std::string& tls = data[kMailTls].string(); !tls.empty()) out.set("tls", tls);
    if (const std::string& port = data[kMailPort].string(); !port.empty()) out.set("port", static_cast<std::int64_t>(std::atoi(port.c_str())));
    if (const std::string& secret = data[kMailSecret].string(); !secret.empty()) out.set("credentialsSecret", Json::object({{"name", secret}}));
    return out;
  }

  Answer<api::Published> read_message(const std::string& begin, const std::string& id, std::size_t& bytes) const {
    for (const char* unserved : {"MessageGroupId", "MessageDeduplicationId"})
      if (!given(begin + unserved).empty()) return wrong(fmt::format("{}: FIFO topics are not served here", unserved));
    api::Published out{.digits = {}, .time = call_.now, .text = given(begin + "Message"), .subject = given(begin + "Subject"), .attributes = {}, .texts = {}};
    const std::string raw = out.text;
    bytes += raw.size() + out.subject.size();
    if (out.text.empty()) return wrong("Empty message");
    if (as_utf8(out.text) != out.text) return wrong("Message: UTF-8 is expected");
    if (!out.subject.empty() && (out.subject.size() > 100 || std::ranges::any_of(out.subject, [](unsigned char c) { return c < ' ' || c >= 0x7f; }))) return wrong("Subject: at most 100 printable characters of ASCII");
    const std::string structure = given(begin + "MessageStructure");
    if (structure == "json") {
      const auto texts = kube::parse_json(out.text, {.depth_limit = 2});
      if (!texts || !texts->is_object() || !(*texts)["default"].is_string()) return wrong("Message Structure - No default entry in JSON message body");
      out.text = (*texts)["default"].string();
      out.texts = Json::object();
      for (const char* protocol : {"http", "https", "email"})
        if ((*texts)[protocol].is_string()) out.texts.set(protocol, (*texts)[protocol]);
    } else if (!structure.empty()) {
      return wrong("MessageStructure: json is expected");
    }
    std::string all = raw;
    for (int i = 1; i <= 101; ++i) {
      const std::string at = fmt::format("{}MessageAttributes.entry.{}.", begin, i), name = given(at + "Name"), type = given(at + "Value.DataType"), text = given(at + "Value.StringValue"), binary = given(at + "Value.BinaryValue");
      if (name.empty()) break;
      if (i > 100 || name.size() > 256 || type.size() > 256 || as_utf8(name + type + text) != name + type + text) return wrong("MessageAttributes: at most 100 of names with 256 characters");
      if (!type.starts_with("String") && !type.starts_with("Number") && !type.starts_with("Binary")) return wrong(fmt::format("MessageAttributes: DataType of {} is String, String.Array, Number or Binary", cut(name, 64)));
      if (type.starts_with("Binary") && !parse_base64(binary)) return wrong(fmt::format("MessageAttributes: BinaryValue of {} is no base64", cut(name, 64)));
      if (!out.attributes.is_object()) out.attributes = Json::object();
      out.attributes.set(name, Json::object({{"Type", type}, {"Value", type.starts_with("Binary") ? binary : text}}));
      bytes += name.size() + type.size() + text.size() + binary.size();
      all += fmt::format("\n{}:{}:{}{}", name, type, text, binary);
    }
    // What an SDK sends again, since no answer came, is the same message.
    const std::string call = call_.invocation.empty() ? random_uuid() : call_.invocation;
    std::string whole;
    for (const std::string& part : {call_.who.arn, call, id, given("TopicArn", given("TargetArn")), out.subject, structure, all}) whole += fmt::format("{}:{}", part.size(), part);
    out.digits = hex(sha256(whole)).substr(0, 32);
    return out;
  }
  // Durable once it returns. What nobody is subscribed to goes nowhere, as in SNS.
  Answer<void> store(const api::Published& message, const Json& topic) const {
    if (topic["spec"]["channels"].items().empty()) return {};
    // One more would push out the oldest that still waits.
    for (const Json& one : topic["status"]["channels"].items())
      if (one["waiting"].integer() >= static_cast<std::int64_t>(api::kMostWaiting)) return refuse("ThrottlingException", fmt::format("{} messages of this topic wait for {} already: kubectl -n {} describe notificationtopic {}", one["waiting"].integer(), one["target"].string(), space_, kube::name_of(topic)));
    const Json object = api::published_notification(message, topic);
    if (auto done = kept_.take(api_, space_, kube::name_of(topic), kube::print_json(object["spec"]).size()); !done) return done;
    const auto made = api_.create(api::kNotifications, object);
    if (!made && made.error().code != Code::Exists) return std::unexpected(failed(made.error(), "publish"));
    return {};
  }

  Answer<std::string> page(const std::vector<std::string>& names, const std::function<std::string(std::size_t)>& show, const std::string& element, const std::string& question) const {
    std::vector<Entry> rows;
    for (std::size_t i = 0; i < names.size(); ++i) rows.push_back({.name = names[i], .id = names[i], .created = {}, .status = {}, .cluster = {}, .at = i});
    Json input = Json::object({{"SortBy", "Name"}, {"MaxResults", 100}, {"of", "sns " + question}});
    if (const std::string token = given("NextToken"); !token.empty()) input.set("NextToken", token);
    const auto some = page_of(std::move(rows), input, [&](const Entry& one) { return Json(show(one.at)); });
    if (!some) return wrong("NextToken: the token of a former answer to the same question is expected");
    std::string out = "<" + element + ">";
    for (const Json& one : some->items.items()) out += one.string();
    out += "</" + element + ">";
    return some->next.empty() ? out : out + xml_element("NextToken", some->next);
  }

  const http::Query& form_;
  const Call& call_;
  kube::KubeApi& api_;
  const std::string& space_;
  KeptMessages& kept_;
};

using Work = std::function<Answer<std::string>(Sns&)>;
const std::map<std::string, Work, std::less<>>& works() {
  static const std::map<std::string, Work, std::less<>> all{
      {"CreateTopic", [](Sns& sns) { return sns.create(); }},
      {"DeleteTopic", [](Sns& sns) { return sns.remove(); }},
      {"ListTopics", [](Sns& sns) { return sns.list(); }},
      {"GetTopicAttributes", [](Sns& sns) { return sns.attributes(); }},
      {"Subscribe", [](Sns& sns) { return sns.subscribe(); }},
      {"Unsubscribe", [](Sns& sns) { return sns.unsubscribe(); }},
      {"ListSubscriptions", [](Sns& sns) { return sns.list_subscriptions(false); }},
      {"ListSubscriptionsByTopic", [](Sns& sns) { return sns.list_subscriptions(true); }},
      {"ConfirmSubscription", [](Sns& sns) { return sns.confirm(); }},
      {"Publish", [](Sns& sns) { return sns.publish(); }},
      {"PublishBatch", [](Sns& sns) { return sns.publish_batch(); }},
  };
  return all;
}

}  // namespace

Answer<void> KeptMessages::take(kube::KubeApi& api, const std::string& space, const std::string& topic, std::size_t bytes) {
  std::unique_lock lock(mutex_);
  if (!looking_ && (!looked_ || clock_.monotonic() - *looked_ >= kLook)) {
    looking_ = true;
    taken_.clear();
    lock.unlock();
    std::map<std::string, std::size_t> found;
    std::size_t sum = 0;
    std::optional<Error> error;
    for (kube::ListOptions options{.label_selector = {}, .field_selector = {}, .limit = 100, .continue_token = {}, .resource_version = {}};;) {
      const auto some = api.list(api::kNotifications, space, options);
      if (!some) {
        error = some.error();
        break;
      }
      for (const Json& one : some->items)
        if (one["spec"]["event"]["type"].string() == "Message") {
          const std::size_t size = kube::print_json(one["spec"]).size();
          found[one["spec"]["topic"].string()] += size, sum += size;
        }
      options.continue_token = some->continue_token;
      if (options.continue_token.empty() || sum > kMostKeptBytes) break;  // more than there is room for is enough to know
    }
    lock.lock();
    looking_ = false;
    if (error) return std::unexpected(aws_error(*error, "count the messages that are kept"));
    for (const auto& [name, size] : taken_) found[name] += size;  // perhaps twice, until the next look
    kept_ = std::move(found), looked_ = clock_.monotonic();
  }
  std::size_t sum = 0;
  for (const auto& [name, size] : kept_) sum += size;
  const auto of_topic = kept_.find(topic);
  if (of_topic != kept_.end() && of_topic->second + bytes > kMostKeptBytesOfTopic) return refuse("ThrottlingException", fmt::format("the messages of this topic that are kept have {} MiB already; they go as they are delivered: kubectl -n {} describe notificationtopic {}", kMostKeptBytesOfTopic >> 20, space, topic));
  if (sum + bytes > kMostKeptBytes) return refuse("ThrottlingException", fmt::format("the published messages that are kept have {} MiB already; they go as they are delivered: kubectl -n {} get notifications, notificationtopics", kMostKeptBytes >> 20, space));
  kept_[topic] += bytes;
  if (looking_) taken_[topic] += bytes;
  return {};
}

std::string topic_arn(const Site& site, std::string_view name) { return fmt::format("arn:aws:sns:{}:{}:{}", site.region, site.account, name); }

bool is_sns_action(std::string_view action) { return works().contains(action); }

Answer<std::string> answer_sns(const std::string& action, const http::Query& form, const Call& call, kube::KubeApi& api, const std::string& space, KeptMessages& kept) {
  const auto found = works().find(action);
  if (found == works().end()) return refuse("UnknownOperationException", fmt::format("SNS: {} is not served here; topics, subscriptions and Publish are (docs/hyperpod-compatibility.md)", action.empty() ? "(no Action)" : cut(action, 128)));
  Sns sns(form, call, api, space, kept);
  return found->second(sns);
}

}  // namespace fairlead::hyperpod
