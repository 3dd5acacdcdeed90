// SPDX-License-Identifier: Apache-2.0
// explain: why a workload waits and what would start it; what one that runs has, and who could take it back.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/inquiry.h"
#include "cli/quota_picture.h"

namespace fairlead::cli {

void add_explain(CLI::App& app, Context& context) {
  struct Options {
    std::string what, space;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "Why a job waits: whose limit it is, how much is missing, who holds it, what would start it\nOf one that runs: what of it is borrowed, and who could take it back. Each change that is named was tried on a copy of the queues first.");
  command->add_option("what", options->what, "job/NAME, jobset/NAME, hyperpodpytorchjob/NAME ..., workload/NAME or slurm/CLUSTER/JOB")->required();
  command->add_option("-n,--namespace", options->space, "of the job")->type_name("NAME");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead explain -n vision job/train", "a Job"}, {"fairlead explain -n vision workload/job-train-1a2b3", "a Workload"}, {"fairlead explain -n slurm slurm/demo/7", "a job of SlurmCluster demo"}, {"fairlead explain job/train -o json | jq .wouldStartIt", "for a script"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      auto objects = queue_objects(*session);
      const std::string space = options->space.empty() ? session->default_namespace() : options->space;
      auto view = objects ? context.hooks.explain(*objects, space, options->what) : ask_instead(objects, context, *session, space, kube::Json::object({{"explain", kube::Json::object({{"workload", options->what}})}}));
      if (!view) return std::unexpected(std::move(view.error()));
      if (context.wants("table")) fmt::print("{}", draw_explanation(*view, context.look()));
      else print_json_or_yaml(*view, context.globals.output);
      return 0;
    };
  });
}

}  // namespace fairlead::cli
