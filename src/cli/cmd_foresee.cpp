// SPDX-License-Identifier: Apache-2.0
// eta, whatif: when a job starts, and what a change would do. Answered by the engine that decides (hooks), run on a copy of the objects; nothing is written.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "api/queue_crds.h"
#include "api/team_crds.h"
#include "cli/command.h"
#include "cli/inquiry.h"
#include "cli/quota_picture.h"

namespace fairlead::cli {

using kube::Json;
namespace queues = api::queues;

namespace {

const kube::Resource batch_jobs{"batch", "v1", "jobs", "Job", true};
const kube::Resource pod_priorities{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false};

Result<void> add_all(Session& session, const kube::Resource& resource, const std::string& kind, std::vector<Json>& into) {
  auto all = session.list(resource);
  if (!all) return pass(std::move(all.error()), "list " + resource.plural);
  for (Json& object : *all) {
    object.set("kind", kind);
    into.push_back(std::move(object));
  }
  return {};
}

// Would the API take it? A misspelt field must not look like a change without effect. What it cannot tell is no fault of the document.
Result<void> check(Session& session, const Json& document) {
  auto taken = apply_document(session, document, {.dry_run = true, .force = true});
  if (taken) return {};
  // Rights, a namespace that comes with another document, a kind that is not there yet.
  const Code code = taken.error().code;
  if (code != Code::Forbidden && code != Code::Unauthorized && code != Code::NotFound && code != Code::Unsupported && code != Code::Conflict) return std::unexpected(std::move(taken.error()));
  fmt::print(stderr, "{} was not checked by the API: {}\n", title_of(document), taken.error().message);
  return {};
}

}  // namespace

void add_eta(CLI::App& app, Context& context) {
  struct Options {
    std::string what, space;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("eta", "When a job starts, as a range; of one that runs, when it ends\n"
                                                "The engine is run forward on a copy. How long others run is known from their annotation fairlead.dev/run-time, from activeDeadlineSeconds and the like; what is unknown stays open.");
  command->add_option("what", options->what, "job/NAME, jobset/NAME, hyperpodpytorchjob/NAME ... or workload/NAME")->required();
  command->add_option("-n,--namespace", options->space, "of the job")->type_name("NAME");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead eta -n vision job/train", "a Job"}, {"fairlead eta job/train -o json | jq -r .starts.notAfter", "for a script"}, {"fairlead explain -n vision job/train", "why it waits"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      auto objects = queue_objects(*session);
      const std::string space = options->space.empty() ? session->default_namespace() : options->space;
      if (objects) {
        auto jobs = session->list(batch_jobs, "", "kueue.x-k8s.io/queue-name");
        if (!jobs) fmt::print(stderr, "Jobs cannot be read, so their limits are unknown: {}\n", jobs.error().message);
        else
          for (Json& job : *jobs) {
            job.set("kind", "Job");
            objects->push_back(std::move(job));
          }
      }
      auto view = objects ? context.hooks.eta(*objects, space, options->what, context.clock.now()) : ask_instead(objects, context, *session, space, Json::object({{"eta", Json::object({{"workload", options->what}})}}));
      if (!view) return std::unexpected(std::move(view.error()));
      if (context.wants("table")) fmt::print("{}", draw_eta(*view, context.look()));
      else print_json_or_yaml(*view, context.globals.output);
      return 0;
    };
  });
}

void add_whatif(CLI::App& app, Context& context) {
  struct Options {
    std::vector<std::string> files, without;
    std::string space;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("whatif", "What a change would do: who would start, be stopped or wait elsewhere. Nothing is written\n"
                                                   "A document is merged into the object of its name (what it names is changed, lists are replaced whole), or is a new one: ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, Job, Pod, ComputeQuota, "
                                                   "SchedulerConfig, priority classes, Namespace. The answer is that of the engine, on a copy.");
  command->add_option("-f,--filename", options->files, "files, folders, - for stdin")->type_name("FILE");
  command->add_option("--without", options->without, "leave this out: job/NAME, workload/NAME, clusterqueue/NAME ...")->type_name("KIND/NAME");
  command->add_option("-n,--namespace", options->space, "of what names none")->type_name("NAME");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead whatif -f quota.yaml", "another quota"}, {"fairlead whatif -n vision -f job.yaml", "a Job that is not submitted yet"}, {"fairlead whatif -n vision --without job/train", "if that one were gone"}, {"fairlead whatif -f quota.yaml -o json | jq .stops", "for a script"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
      if (options->files.empty() && options->without.empty()) return fail(Code::Invalid, "usage: a change is expected: -f FILE or --without KIND/NAME");
      std::vector<Json> changes;
      if (!options->files.empty()) {
        auto read = read_documents(options->files);
        if (!read) return std::unexpected(std::move(read.error()));
        changes = std::move(*read);
      }
      const auto show = [&context](const Json& view) {
        if (context.wants("table")) fmt::print("{}", draw_whatif(view, context.look()));
        else print_json_or_yaml(view, context.globals.output);
        return 0;
      };
      const auto needs = context.hooks.whatif_needs(changes, options->without);
      if (!needs) return std::unexpected(needs.error());
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      const std::string space = options->space.empty() ? session->default_namespace() : options->space;
      auto objects = queue_objects(*session);
      if (!objects && objects.error().code == Code::Forbidden) {
        Json question = Json::object({{"changes", Json::array()}, {"without", Json::array()}});
        for (const Json& document : changes) question.child("changes").push(kube::print_json(document));
        for (const std::string& one : options->without) question.child("without").push(one);
        auto view = ask_server(context, *session, space, Json::object({{"whatIf", std::move(question)}}), objects.error());
        if (!view) return std::unexpected(std::move(view.error()));
        return show(*view);
      }
      if (!objects) return std::unexpected(std::move(objects.error()));
      if (auto done = add_all(*session, queues::priority_classes, "WorkloadPriorityClass", *objects); !done) return std::unexpected(std::move(done.error()));
      if (needs->jobs) {
        if (auto done = add_all(*session, pod_priorities, "PriorityClass", *objects); !done) return std::unexpected(std::move(done.error()));
        for (const Json& document : changes) {
          const bool is_pod = document["kind"].string() == "Pod";
          if (!is_pod && document["kind"].string() != "Job") continue;
          auto job = session->get(is_pod ? kube::resources::pods : batch_jobs, kube::space_of(document).empty() ? space : kube::space_of(document), kube::name_of(document));
          if (!job && job.error().code != Code::NotFound) return pass(std::move(job.error()), "read " + title_of(document));
          if (job) objects->push_back(std::move(*job));
        }
      }
      if (needs->teams) {
        if (auto done = add_all(*session, api::teams::quotas, "ComputeQuota", *objects); !done) return std::unexpected(std::move(done.error()));
        if (auto done = add_all(*session, kube::resources::nodes, "Node", *objects); !done) return std::unexpected(std::move(done.error()));
      }
      for (Json document : changes) {
        if (document["metadata"]["namespace"].is_null() && !options->space.empty())
          if (const auto kind = session->find_kind(document["apiVersion"].string(), document["kind"].string()); kind && kind->resource.namespaced) document.child("metadata").set("namespace", space);
        if (auto done = check(*session, document); !done) return std::unexpected(std::move(done.error()));
      }
      auto view = context.hooks.whatif(*objects, changes, options->without, space, context.clock.now());
      if (!view) return std::unexpected(std::move(view.error()));
      return show(*view);
    };
  });
}

}  // namespace fairlead::cli
