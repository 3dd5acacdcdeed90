// SPDX-License-Identifier: Apache-2.0
// notify test: sends an event that says it is a test by every channel of a NotificationTopic, and tells what came of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "base/encoding.h"
#include "base/rng.h"
#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

const kube::Resource kTopics{"fairlead.dev", "v1alpha1", "notificationtopics", "NotificationTopic", true};
const kube::Resource kNotifications{"fairlead.dev", "v1alpha1", "notifications", "Notification", true};

struct Options {
  std::string topic, space;
  double timeout = 60;
  bool dry_run = false;
};

Result<Json> find_topic(Session& session, const Options& options) {
  auto topics = session.list_visible(kTopics);
  if (!topics) return std::unexpected(std::move(topics.error()));
  std::erase_if(*topics, [&](const Json& one) { return kube::name_of(one) != options.topic || (!options.space.empty() && kube::space_of(one) != options.space); });
  if (topics->empty()) return fail(Code::NotFound, fmt::format("there is no NotificationTopic {}", options.topic));
  if (topics->size() > 1) return fail(Code::Invalid, fmt::format("there are NotificationTopics {} in several namespaces: name one with -n", options.topic));
  return std::move(topics->front());
}

void print_preview(const Json& deliveries) {
  for (const Json& one : deliveries.items()) {
    fmt::print("--- {} ({})\n", one["target"].string(), one["kind"].string());
    if (one.has("problem")) fmt::print("problem: {}\n", one["problem"].string());
    for (const Json& header : one["headers"].items()) fmt::print("{}: {}\n", header.items()[0].string(), header.items()[1].string());
    std::string body = one["body"].string();
    std::erase(body, '\r');
    if (one.has("headers")) fmt::print("\n");
    fmt::print("{}{}", body, body.ends_with('\n') ? "" : "\n");
  }
}

bool settled(const Json& deliveries) {
  return !deliveries.items().empty() &&
         std::all_of(deliveries.items().begin(), deliveries.items().end(), [](const Json& one) { return one["state"].string() != "Waiting" || one["attempts"].integer() > 0; });
}

Result<int> send(Context& context, Session& session, const Options& options, const Json& notification, const Json& preview) {
  auto made = session.api().create(kNotifications, notification);
  if (!made) return pass(std::move(made.error()), "make the test event");
  const kube::ObjectKey key = kube::key_of(*made);
  const auto began = context.clock.monotonic();
  Json deliveries;
  bool withdrawn = false;
  for (;;) {
    auto now = session.get(kNotifications, key.space, key.name);
    if (!now) return pass(std::move(now.error()), "look what became of the test event");
    deliveries = (*now)["status"]["deliveries"];
    const bool late = context.clock.monotonic() - began > std::chrono::duration<double>(options.timeout);
    if (settled(deliveries) || late) break;
    // A channel that cannot be used as it is written has no attempt: do not wait for it alone.
    const bool rest = !deliveries.items().empty() && std::all_of(deliveries.items().begin(), deliveries.items().end(), [&](const Json& one) {
      return one["state"].string() != "Waiting" || one["attempts"].integer() > 0 ||
             std::any_of(preview.items().begin(), preview.items().end(), [&](const Json& seen) { return seen["target"] == one["target"] && seen.has("problem"); });
    });
    if (rest) break;
    std::this_thread::sleep_for(100ms);
  }
  const bool all = !deliveries.items().empty() && std::all_of(deliveries.items().begin(), deliveries.items().end(), [](const Json& one) { return one["state"].string() == "Delivered"; });
  if (!all) withdrawn = session.api().remove(kNotifications, key).has_value();  // or a test would be tried for a week
  Json results = Json::array();
  for (const Json& seen : preview.items()) {
    Json one = Json::object({{"target", seen["target"]}, {"kind", seen["kind"]}, {"delivered", false}});
    std::string reason = seen["problem"].string_or(deliveries.items().empty() ? "the server has not begun: does fairlead-server run?" : "no answer yet");
    for (const Json& delivery : deliveries.items()) {
      if (delivery["target"] != seen["target"]) continue;
      one.set("delivered", delivery["state"].string() == "Delivered").set("attempts", delivery["attempts"]);
      if (!delivery["reason"].string().empty()) reason = delivery["reason"].string();
    }
    if (!one["delivered"].boolean()) one.set("reason", reason);
    results.push(std::move(one));
  }
  if (context.wants("json")) {
    fmt::print("{}\n", kube::print_json(Json::object({{"topic", options.topic}, {"namespace", key.space}, {"event", notification["spec"]["event"]["id"]}, {"delivered", all}, {"withdrawn", withdrawn}, {"deliveries", results}})));
  } else {
    for (const Json& one : results.items())
      fmt::print("{} ({}): {}\n", one["target"].string(), one["kind"].string(), one["delivered"].boolean() ? "delivered" : "not delivered: " + one["reason"].string());
    if (withdrawn) fmt::print("the test event {} is withdrawn\n", notification["spec"]["event"]["id"].string());
  }
  return all ? 0 : 1;
}

}  // namespace

void add_notify(CLI::App& app, Context& context) {
  CLI::App* notify = app.add_subcommand("notify", "Notifications of administrators (docs/notifications.md)");
  notify->require_subcommand(1);
  auto options = std::make_shared<Options>();
  set_examples(*notify, {{"fairlead notify test operators", "send a test to a topic's channels"}});
  CLI::App* command = notify->add_subcommand("test", "Send an event that says it is a test by every channel of a topic\nThe server sends it, with its own network and Secrets; the exit status is 1 if a channel fails.");
  command->add_option("topic", options->topic, "name of a NotificationTopic")->required();
  command->add_option("-n,--namespace", options->space, "of the topic")->type_name("NAME");
  command->add_option("--timeout", options->timeout, "seconds to wait for the first attempt of every channel")->capture_default_str();
  command->add_flag("--dry-run", options->dry_run, "print what would be sent, without signatures; send nothing");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead notify test operators", "is every channel in order?"}, {"fairlead notify test operators --dry-run", "what would they get?"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      auto topic = find_topic(*session, *options);
      if (!topic) return std::unexpected(std::move(topic.error()));
      std::string id = random_uuid();
      std::erase(id, '-');
      const auto [notification, preview] = context.hooks.test_notification(*topic, id, context.clock.now());
      if (!options->dry_run) return send(context, *session, *options, notification, preview);
      if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"topic", options->topic}, {"namespace", kube::space_of(*topic)}, {"event", notification["spec"]["event"]}, {"deliveries", preview}, {"dryRun", true}})));
      else print_preview(preview);
      return 0;
    };
  });
}

}  // namespace fairlead::cli
