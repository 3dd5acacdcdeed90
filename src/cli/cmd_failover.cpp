// SPDX-License-Identifier: Apache-2.0
// failover: another head of a Slurm cluster takes over, as planned.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <thread>

#include "base/encoding.h"
#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

const kube::Resource kSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};

// Who serves a Slurm cluster of several heads.
struct Serving {
  std::string space, cluster, slice, pod;
  std::int64_t term = 0;
};

Serving serving_of(const Json& slice) {
  Serving out{.space = kube::space_of(slice), .slice = kube::name_of(slice)};
  if (!slice["endpoints"].items().empty()) out.pod = slice["endpoints"].items()[0]["targetRef"]["name"].string();
  out.term = std::atoll(kube::annotations_of(slice)["fairlead.dev/term"].c_str());
  return out;
}

Result<Serving> find_serving(Session& session, const std::string& space, const std::string& cluster) {
  auto clusters = session.list_visible(kube::resources::slurm_clusters);
  if (!clusters) return std::unexpected(std::move(clusters.error()));
  std::erase_if(*clusters, [&](const Json& one) { return (!space.empty() && kube::space_of(one) != space) || (!cluster.empty() && kube::name_of(one) != cluster); });
  if (clusters->empty()) return fail(Code::NotFound, cluster.empty() ? "there is no Slurm cluster" : fmt::format("there is no Slurm cluster {}", cluster));
  if (clusters->size() > 1) {
    std::string all;
    for (const auto& one : *clusters) all += (all.empty() ? "" : ", ") + kube::space_of(one) + "/" + kube::name_of(one);
    return fail(Code::Invalid, fmt::format("there are several Slurm clusters ({}): name one, with -n its namespace", all));
  }
  const Json& one = clusters->front();
  const std::string name = kube::name_of(one);
  if (one["spec"]["slurmNodes"]["controller"]["size"].integer(1) < 2)
    return fail(Code::Invalid, fmt::format("Slurm cluster {} has one head, and no other to take over; set spec.slurmNodes.controller.size to 2 or 3", name));
  auto slice = session.get(kSlices, kube::space_of(one), name + "-controller-active");
  if (!slice) return fail(Code::Unavailable, fmt::format("no head of Slurm cluster {} has been elected yet: see its condition HAReady ({})", name, slice.error().message));
  Serving out = serving_of(*slice);
  out.cluster = name;
  if (out.pod.empty()) return fail(Code::Unavailable, fmt::format("no head of Slurm cluster {} serves: see its condition HAReady", name));
  return out;
}

}  // namespace

void add_failover(CLI::App& app, Context& context) {
  struct Options {
    std::string cluster, space;
    double timeout = 30;
    bool dry_run = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("failover", "Have another head of a Slurm cluster take over\nThe one that serves saves its state and steps down; running jobs go on, commands wait for less than a second.");
  command->add_option("cluster", options->cluster, "which cluster, if there are several");
  command->add_option("-n,--namespace", options->space, "of the cluster")->type_name("NAME");
  command->add_option("--timeout", options->timeout, "seconds to wait for the other head")->capture_default_str();
  command->add_flag("--dry-run", options->dry_run, "tell which head would step down, change nothing");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead failover", "of the only cluster"}, {"fairlead failover demo --dry-run", "who would step down"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      auto before = find_serving(*session, options->space, options->cluster);
      if (!before) return std::unexpected(std::move(before.error()));
      if (options->dry_run) {
        if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"cluster", before->cluster}, {"namespace", before->space}, {"from", before->pod}, {"term", before->term}, {"dryRun", true}})));
        else fmt::print("{} of Slurm cluster {} would step down (term {}); nothing is changed\n", before->pod, before->cluster, before->term);
        return 0;
      }
      const auto began = context.clock.monotonic();
      auto asked = session->api().exec({before->space, before->pod}, "slurmctld", {"/opt/fairlead/bin/fairlead-slurm", "step-down"}, "", 10s);
      if (!asked) return pass(std::move(asked.error()), fmt::format("ask {} to step down", before->pod));
      if (asked->exit_code != 0) return fail(Code::Unavailable, fmt::format("{} does not step down: {}", before->pod, trim(asked->err)));
      while (true) {
        auto slice = session->get(kSlices, before->space, before->slice);
        const Serving now = slice ? serving_of(*slice) : Serving{};
        const double seconds = std::chrono::duration<double>(context.clock.monotonic() - began).count();
        if (now.term > before->term) {
          if (context.wants("json"))
            fmt::print("{}\n", kube::print_json(Json::object({{"cluster", before->cluster}, {"namespace", before->space}, {"from", before->pod}, {"to", now.pod}, {"term", now.term}, {"seconds", seconds}})));
          else fmt::print("{} serves Slurm cluster {} in place of {} (term {}) after {:.1f} s\n", now.pod, before->cluster, before->pod, now.term, seconds);
          return 0;
        }
        if (seconds > options->timeout) return fail(Code::Unavailable, fmt::format("{} was asked to step down, but no other head has taken over within {:.0f} s: see condition HAReady of the cluster", before->pod, options->timeout));
        std::this_thread::sleep_for(20ms);
      }
    };
  });
}

}  // namespace fairlead::cli
