// SPDX-License-Identifier: Apache-2.0
// jail status|update|rollback: versions of a Slurm cluster's shared root (docs/slurm-jail.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "api/slurm_cluster.h"
#include "base/encoding.h"
#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

struct Options {
  std::string cluster, space, version;
  double timeout = 900;
  bool no_wait = false;
};

Result<Json> find_cluster(Session& session, const Options& options) {
  auto clusters = session.list_visible(kube::resources::slurm_clusters);
  if (!clusters) return std::unexpected(std::move(clusters.error()));
  std::erase_if(*clusters, [&](const Json& one) { return (!options.space.empty() && kube::space_of(one) != options.space) || (!options.cluster.empty() && kube::name_of(one) != options.cluster); });
  if (clusters->empty()) return fail(Code::NotFound, options.cluster.empty() ? "there is no Slurm cluster" : fmt::format("there is no Slurm cluster {}", options.cluster));
  if (clusters->size() > 1) return fail(Code::Invalid, "there are several Slurm clusters: name one, with -n its namespace");
  Json one = std::move(clusters->front());
  if (one["spec"]["populateJail"]["image"].string().empty()) return fail(Code::Invalid, fmt::format("Slurm cluster {} has no shared root: set spec.populateJail.image", kube::name_of(one)));
  return one;
}

const Json& jail_of(const Json& cluster) { return cluster["status"]["jail"]; }

std::string condition(const Json& cluster, const char* type) {
  const Json* found = kube::find_condition(cluster, type);
  return found ? fmt::format("{} {}: {}", (*found)["status"].string(), (*found)["reason"].string(), (*found)["message"].string()) : "";
}

bool holds(const Json& versions, const std::string& version) {
  return std::any_of(versions.items().begin(), versions.items().end(), [&](const Json& one) { return one.string() == version; });
}

Result<int> tell(const Context& context, const Json& cluster) {
  const Json& jail = jail_of(cluster);
  if (context.wants("json")) {
    fmt::print("{}\n", kube::print_json(jail));
    return 0;
  }
  fmt::print("current   {}\n", jail["layout"].string() == "adopted" ? "the root that was on the volume" : jail["version"].string_or("none yet"));
  std::string others;
  for (const Json& one : jail["versions"].items())
    if (one.string() != jail["version"].string()) others += (others.empty() ? "" : " ") + one.string();
  fmt::print("kept      {}\n", others.empty() ? "none" : others);
  const auto annotations = kube::annotations_of(cluster);
  if (const auto at = annotations.find(api::kJailVersion); at != annotations.end()) fmt::print("asked     {}\n", at->second);
  for (const char* type : {"JailReady", "JailUpdated"})
    if (const std::string text = condition(cluster, type); !text.empty()) fmt::print("{}={}\n", type, text);
  for (const Json& one : jail["update"]["kept"].items()) fmt::print("not removed {}\n", one.string());
  return 0;
}

Result<int> ask_for(Context& context, Session& session, const Options& options, const Json& cluster, const std::string& version) {
  const Json patch = Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kJailVersion, version}})}})}});
  auto asked = session.api().patch(kube::resources::slurm_clusters, kube::key_of(cluster), kube::PatchType::Merge, patch);
  if (!asked) return pass(std::move(asked.error()), "ask for another version");
  if (options.no_wait) {
    fmt::print("version {} is asked for: see `fairlead jail status`\n", version);
    return 0;
  }
  const auto began = context.clock.monotonic();
  std::string shown;
  while (true) {
    auto now = session.get(kube::resources::slurm_clusters, kube::space_of(cluster), kube::name_of(cluster));
    if (!now) return std::unexpected(std::move(now.error()));
    // While a pod is at work for another version nobody knows for how long this one stays.
    if (const Json& jail = jail_of(*now); jail["version"].string() == version && !jail["unsure"].boolean()) return tell(context, *now);
    const std::string text = condition(*now, "JailUpdated");
    if (text != shown && !text.empty() && context.globals.verbose) fmt::print(stderr, "{}\n", text);
    shown = text;
    if (const Json* found = kube::find_condition(*now, "JailUpdated"); found && ((*found)["reason"].string() == "InvalidName" || (*found)["reason"].string() == "Adopted")) return fail(Code::Invalid, (*found)["message"].string());
    if (std::chrono::duration<double>(context.clock.monotonic() - began).count() > options.timeout)
      return fail(Code::Unavailable, fmt::format("version {} is not the shared root after {:.0f} s ({}); it is tried on, see `fairlead jail status`", version, options.timeout, shown));
    std::this_thread::sleep_for(200ms);
  }
}

Result<int> update(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto cluster = find_cluster(*session, options);
  if (!cluster) return std::unexpected(std::move(cluster.error()));
  const std::string of_image = hex(sha256((*cluster)["spec"]["populateJail"]["image"].string())).substr(0, 12), version = options.version.empty() ? of_image : options.version;
  if (options.version.empty() && holds(jail_of(*cluster)["versions"], version))
    return fail(Code::Exists, fmt::format("version {}, of the image that spec.populateJail.image names, is on the volume already: name another with --version to build it anew, or go back to it with `fairlead jail rollback --version {}`", version, version));
  return ask_for(context, *session, options, *cluster, version);
}

Result<int> roll_back(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto cluster = find_cluster(*session, options);
  if (!cluster) return std::unexpected(std::move(cluster.error()));
  const Json& jail = jail_of(*cluster);
  const std::string version = options.version.empty() ? jail["update"]["from"].string() : options.version;
  if (version.empty()) return fail(Code::Invalid, "no version served before this one: name one of `fairlead jail status` with --version");
  if (!holds(jail["versions"], version)) return fail(Code::NotFound, fmt::format("version {} is not on the volume: see `fairlead jail status`", version));
  return ask_for(context, *session, options, *cluster, version);
}

}  // namespace

void add_jail(CLI::App& app, Context& context) {
  CLI::App* jail = app.add_subcommand("jail", "Versions of the shared root of a Slurm cluster\nA new one is built beside the old one; packages and files that people added are carried over, and running steps keep the old one.");
  jail->require_subcommand(1);
  set_examples(*jail, {{"fairlead jail status", "which version is in use"}, {"fairlead jail update", "build one of the image in the resource"}, {"fairlead jail rollback", "back to the version before"}});
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, const char* what, Result<int> (*work)(Context&, const Options&)) {
    CLI::App* command = jail->add_subcommand(name, what);
    command->add_option("cluster", options->cluster, "which cluster, if there are several");
    command->add_option("-n,--namespace", options->space, "of the cluster")->type_name("NAME");
    add_globals(*command, context);
    command->callback([options, work, &context] { context.action = [options, work, &context] { return work(context, *options); }; });
    return command;
  };
  CLI::App* status = add("status", "Which version is in use, which are kept, what was not carried over", [](Context& of, const Options& given) -> Result<int> {
    auto session = of.session();
    if (!session) return std::unexpected(std::move(session.error()));
    auto cluster = find_cluster(*session, given);
    if (!cluster) return std::unexpected(std::move(cluster.error()));
    return tell(of, *cluster);
  });
  set_examples(*status, {{"fairlead jail status", "of the only cluster"}});
  CLI::App* updated = add("update", "Build a version from the image that spec.populateJail.image names, and make it the shared root", update);
  CLI::App* back = add("rollback", "Make a version that is kept the shared root again, as it was left", roll_back);
  updated->add_option("--version", options->version, "its name; without: made from the image's")->type_name("NAME");
  back->add_option("--version", options->version, "which; without: the one that served before")->type_name("NAME");
  for (CLI::App* command : {updated, back}) {
    command->add_option("--timeout", options->timeout, "seconds to wait for it")->capture_default_str();
    command->add_flag("--no-wait", options->no_wait, "only ask for it");
  }
  set_examples(*updated, {{"fairlead jail update", "after the image in the resource was changed"}, {"fairlead jail update --version 2026-11", "the same image's newer content"}});
  set_examples(*back, {{"fairlead jail rollback", "to the version before"}});
}

}  // namespace fairlead::cli
