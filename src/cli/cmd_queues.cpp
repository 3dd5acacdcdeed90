// SPDX-License-Identifier: Apache-2.0
// quota, queue: who has what, who waits in which order. The views are made by the engine that decides (hooks), of the objects as the API has them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "api/queue_crds.h"
#include "api/queue_views.h"
#include "api/team_crds.h"
#include "cli/command.h"
#include "cli/inquiry.h"
#include "cli/quota_picture.h"

namespace fairlead::cli {

using kube::Json;
namespace queues = api::queues;

Result<std::vector<Json>> queue_objects(Session& session) {
  std::vector<Json> objects;
  // Workloads last: what they refer to is older than they are.
  for (const kube::Resource& resource : {kube::resources::namespaces, queues::flavors, queues::topologies, kube::resources::nodes, kube::resources::pods, queues::checks, queues::cohorts, queues::cluster_queues, queues::local_queues, queues::workloads}) {
    const bool of_places = resource.plural == kube::resources::nodes.plural || resource.plural == kube::resources::pods.plural;
    if (of_places && !api::places_matter(objects)) continue;
    auto all = session.list(resource);
    if (!all && all.error().code == Code::Forbidden)
      return fail(Code::Forbidden, fmt::format("{}: the quotas of a cluster are told as a whole; ask for a role that may list {} in all namespaces", all.error().message, resource.plural));
    if (!all && all.error().code == Code::NotFound && !resource.group.empty()) return fail(Code::NotFound, fmt::format("there are no {} here: task governance is not installed (see docs/task-governance.md)", resource.plural));
    if (!all) return pass(std::move(all.error()), "list " + resource.plural);
    for (Json& object : *all) objects.push_back(std::move(object));
  }
  // Whether compute is shared by weight.
  auto policies = session.list(api::teams::configs);
  if (!policies && policies.error().code != Code::NotFound) return pass(std::move(policies.error()), "list " + api::teams::configs.plural);
  if (policies)
    for (Json& object : *policies) objects.push_back(std::move(object));
  return objects;
}

std::optional<Error> unknown_form(const Context& context) {
  for (const char* form : {"table", "json", "yaml"})
    if (context.wants(form)) return std::nullopt;
  return Error{Code::Invalid, fmt::format("usage: -o {} is not known here; use table, json or yaml", context.globals.output)};
}

void add_quota(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>(), space = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("quota", "Who has what: cohorts and queues with quotas, use, what is borrowed and lent");
  command->add_option("name", *name, "only this queue, cohort or team");
  command->add_option("-n,--namespace", *space, "where the server is asked, if you may not read all queues yourself")->type_name("NAME");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead quota", "the whole tree"}, {"fairlead quota vision", "of one team or queue"}, {"fairlead quota -o json", "for a script"}});
  command->callback([name, space, &context] {
    context.action = [name, space, &context]() -> Result<int> {
      if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      auto objects = queue_objects(*session);
      auto asked = objects ? Result<Json>(api::part_of_quotas(context.hooks.quotas(*objects), *name))
                           : ask_instead(objects, context, *session, space->empty() ? session->default_namespace() : *space, Json::object({{"quota", name->empty() ? Json::object() : Json::object({{"name", *name}})}}));
      if (!asked) return std::unexpected(std::move(asked.error()));
      const Json& view = *asked;
      if (view.is_null()) return fail(Code::NotFound, fmt::format("there is no queue, cohort or team {}: `fairlead quota` shows those that are there", *name));
      if (!context.wants("table")) print_json_or_yaml(view, context.globals.output);
      else if (view["tree"].items().empty()) fmt::print(stderr, "There are no ClusterQueues: docs/task-governance.md tells how to make some.\n");
      else fmt::print("{}", draw_quotas(view, context.look()));
      return 0;
    };
  });
}

void add_queue(CLI::App& app, Context& context) {
  auto filter = std::make_shared<api::QueueFilter>();
  CLI::App* command = app.add_subcommand("queue", "Who waits: in the order in which the queues look at them, and what each waits for");
  command->add_option("-n,--namespace", filter->space, "only of this namespace")->type_name("NAME");
  command->add_option("--queue", filter->queue, "only of this ClusterQueue, LocalQueue or team")->type_name("NAME");
  command->add_flag("--all", filter->all, "those that run, too");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead queue", "all that wait"}, {"fairlead queue --queue vision --all", "of one team, with what runs"}, {"fairlead explain job/train", "why one of them waits"}});
  command->callback([filter, &context] {
    context.action = [filter, &context]() -> Result<int> {
      if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      auto objects = queue_objects(*session);
      auto asked = objects ? Result<Json>(api::part_of_queue(context.hooks.queues(*objects), *filter))
                           : ask_instead(objects, context, *session, filter->space.empty() ? session->default_namespace() : filter->space, Json::object({{"queue", Json::object({{"queue", filter->queue}, {"all", filter->all}})}}));
      if (!asked) return std::unexpected(std::move(asked.error()));
      const Json& view = *asked;
      if (!context.wants("table")) print_json_or_yaml(view, context.globals.output);
      else if (view["workloads"].items().empty()) fmt::print(stderr, "{}\n", filter->all ? "Nothing waits and nothing runs." : "Nothing waits (--all shows what runs).");
      else fmt::print("{}", draw_queue(view, context.clock.now(), context.look()));
      return 0;
    };
  });
}

}  // namespace fairlead::cli
