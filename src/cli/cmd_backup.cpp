// SPDX-License-Identifier: Apache-2.0
// slurm backup list|now|check, slurm restore: sets of a whole Slurm cluster (docs/slurm-backup.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "api/network_ways.h"
#include "base/encoding.h"
#include "cli/command.h"
#include "cli/set_keeper.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

constexpr const char* kProgram = "/opt/fairlead/bin/fairlead-slurm";

struct Options {
  std::string cluster, space, set, parts;
  bool dry_run = false, yes = false;
};

}  // namespace

Result<SetKeeper> find_set_keeper(Session& session, const std::string& space, const std::string& cluster) {
  auto clusters = session.list_visible(kube::resources::slurm_clusters);
  if (!clusters) return std::unexpected(std::move(clusters.error()));
  std::erase_if(*clusters, [&](const Json& one) { return (!space.empty() && kube::space_of(one) != space) || (!cluster.empty() && kube::name_of(one) != cluster); });
  if (clusters->empty()) return fail(Code::NotFound, cluster.empty() ? "there is no Slurm cluster" : fmt::format("there is no Slurm cluster {}{}", cluster, space.empty() ? "" : " in namespace " + space));
  if (clusters->size() > 1) return fail(Code::Invalid, "there are several Slurm clusters: name one with --cluster, with -n its namespace");
  const Json& one = clusters->front();
  SetKeeper out{kube::space_of(one), kube::name_of(one), kube::name_of(one) + "-backup-0"};
  if (!one["spec"]["extensions"]["backup"].is_object())
    return fail(Code::Invalid, fmt::format("no sets are made of Slurm cluster {}: add spec.extensions.backup, e.g. `kubectl -n {} patch slurmcluster {} --type merge -p '{{\"spec\":{{\"extensions\":{{\"backup\":{{\"enabled\":true}}}}}}}}'`", out.cluster, out.space, out.cluster));
  auto pod = session.get(kube::resources::pods, out.space, out.pod);
  if (!pod || (*pod)["status"]["phase"].string() != "Running") {
    const Json* condition = kube::find_condition(one, "BackupFresh");
    return fail(Code::Unavailable, fmt::format("pod {} does not run yet: {}", out.pod, condition ? (*condition)["message"].string() : "see `fairlead status`"));
  }
  return out;
}

Result<kube::ExecResult> ask_set_keeper(Session& session, const SetKeeper& keeper, std::vector<std::string> words, std::chrono::milliseconds limit, const std::string& input) {
  words.insert(words.begin(), kProgram);
  auto ran = session.api().exec({keeper.space, keeper.pod}, "backup", words, input, limit);
  if (!ran) return pass(std::move(ran.error()), fmt::format("ask pod {}", keeper.pod));
  return ran;
}

namespace {

using Keeper = SetKeeper;

Result<Keeper> find_keeper(Session& session, const Options& options) { return find_set_keeper(session, options.space, options.cluster); }
Result<kube::ExecResult> ask(Session& session, const Keeper& keeper, std::vector<std::string> words, std::chrono::milliseconds limit) { return ask_set_keeper(session, keeper, std::move(words), limit); }

Result<int> list(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto keeper = find_keeper(*session, options);
  if (!keeper) return std::unexpected(std::move(keeper.error()));
  auto ran = ask(*session, *keeper, {"sets"}, 30s);
  if (!ran) return std::unexpected(std::move(ran.error()));
  auto sets = kube::parse_json(ran->out);
  if (!sets) return pass(std::move(sets.error()), "what the pod said");
  if (context.wants("json")) {
    fmt::print("{}\n", kube::print_json(*sets));
    return 0;
  }
  fmt::print("{:<18}{:>12}  {:<22}{}\n", "SET", "SIZE", "PARTS", "NEXT JOB");
  for (const Json& set : (*sets)["sets"].items()) {
    if (!set["error"].string().empty()) {
      fmt::print("{:<18}cannot be read: {}\n", set["name"].string(), set["error"].string());
      continue;
    }
    std::string parts;
    for (const Json& part : set["parts"].items()) parts += (parts.empty() ? "" : ",") + part.string();
    fmt::print("{:<18}{:>12}  {:<22}{}\n", set["name"].string(), fmt::format("{:.1f} MiB", static_cast<double>(set["bytes"].integer()) / (1 << 20)), parts, set["nextJobId"].integer());
  }
  if (!(*sets)["error"].string().empty()) fmt::print("since {} none can be made: {}\n", (*sets)["failingSince"].string(), (*sets)["error"].string());
  if ((*sets)["restore"].is_object()) fmt::print("set {} is being restored: step {}\n", (*sets)["restore"]["set"].string(), (*sets)["restore"]["step"].string());
  return 0;
}

Result<int> make_now(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto keeper = find_keeper(*session, options);
  if (!keeper) return std::unexpected(std::move(keeper.error()));
  auto ran = ask(*session, *keeper, {"make-set"}, 4h);
  if (!ran) return std::unexpected(std::move(ran.error()));
  if (ran->exit_code != 0) return fail(Code::Unavailable, fmt::format("no set was made: {}", trim(ran->err)));
  const std::string name(trim(ran->out));
  if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"cluster", keeper->cluster}, {"namespace", keeper->space}, {"set", name}})));
  else fmt::print("set {} of Slurm cluster {} is made and was read back\n", name, keeper->cluster);
  return 0;
}

Result<int> check(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto keeper = find_keeper(*session, options);
  if (!keeper) return std::unexpected(std::move(keeper.error()));
  auto ran = ask(*session, *keeper, {"check-set", options.set}, 4h);
  if (!ran) return std::unexpected(std::move(ran.error()));
  if (ran->exit_code != 0) return fail(Code::Invalid, std::string(trim(ran->err)));
  fmt::print("{}", ran->out);
  return 0;
}

}  // namespace

Result<void> settle_restored(Context& context, Session& session, const SetKeeper& keeper) {
  auto pods = session.list(kube::resources::pods, keeper.space, fmt::format("{}={}", api::kSlurmClusterLabel, keeper.cluster));
  if (!pods) return std::unexpected(std::move(pods.error()));
  bool accounting = false;
  for (const Json& pod : *pods)
    if (pod["metadata"]["labels"][api::kSlurmRoleLabel].string() == "accounting") {
      accounting = true;
      if (auto gone = session.api().remove(kube::resources::pods, kube::key_of(pod), {}); !gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "renew " + kube::name_of(pod));
    }
  const auto began = context.clock.monotonic();
  std::string why = "no head answers";
  while (context.clock.monotonic() - began < 300s) {
    for (const Json& pod : *pods) {
      if (pod["metadata"]["labels"][api::kSlurmRoleLabel].string() != "controller") continue;
      const kube::ObjectKey key = kube::key_of(pod);
      auto up = session.api().exec(key, "slurmctld", {"scontrol", "ping"}, "", 20s);
      if (!up || up->out.find("is UP") == std::string::npos) continue;
      if (!accounting) return {};
      auto fixed = session.api().exec(key, "slurmctld", {"sacctmgr", "-i", "show", "runaway"}, "", 60s);
      if (fixed && fixed->exit_code == 0) return {};
      why = fixed ? std::string(trim(fixed->err)) : fixed.error().message;
    }
    std::this_thread::sleep_for(1s);
  }
  return fail(Code::Unavailable, fmt::format("the state and the records are in place, but {}; type `sacctmgr show runaway` on the login node when Slurm answers", why));
}

namespace {

Result<int> restore(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto keeper = find_keeper(*session, options);
  if (!keeper) return std::unexpected(std::move(keeper.error()));
  std::vector<std::string> words = {"restore-set", options.set};
  if (!options.parts.empty()) words.insert(words.end(), {"--parts", options.parts});
  auto dry = words;
  dry.push_back("--dry-run");
  auto looked = ask(*session, *keeper, dry, 4h);
  if (!looked) return std::unexpected(std::move(looked.error()));
  if (looked->exit_code != 0) return fail(Code::Invalid, std::string(trim(looked->err)));
  if (options.dry_run) {
    fmt::print("{}", looked->out);
    return 0;
  }
  if (!options.yes)
    return fail(Code::Invalid, fmt::format("{}. Jobs that were submitted since are forgotten, those that run and are not in the set are ended, and those that ended since and are in its queue run again. Say --yes to do it", trim(looked->out)));
  auto ran = ask(*session, *keeper, words, 4h);
  if (!ran) return pass(std::move(ran.error()), "the restore goes on by itself (`fairlead slurm backup list` tells its step)");
  if (ran->exit_code != 0) return fail(Code::Unavailable, std::string(trim(ran->err)));
  if (options.parts == "jail") {
    fmt::print("{}", ran->out);
    return 0;
  }
  if (auto settled = settle_restored(context, *session, *keeper); !settled) return std::unexpected(std::move(settled.error()));
  if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"cluster", keeper->cluster}, {"namespace", keeper->space}, {"said", std::string(trim(ran->out))}})));
  else fmt::print("{}", ran->out);
  return 0;
}

}  // namespace

void add_slurm(CLI::App& app, Context& context) {
  const auto there = app.get_subcommands([](const CLI::App* one) { return one->get_name() == "slurm"; });
  CLI::App* slurm = there.empty() ? app.add_subcommand("slurm", "Of a whole Slurm cluster: backups and their way back, moving it to another place, tokens for its REST") : there.front();
  slurm->require_subcommand(1);
  set_examples(*slurm, {{"fairlead slurm backup list", "which sets there are"}, {"fairlead slurm backup now", "make one"}, {"fairlead slurm restore latest --dry-run", "what would be restored"}});
  auto options = std::make_shared<Options>();
  const auto add = [&](CLI::App& to, const char* name, const char* what, Result<int> (*work)(Context&, const Options&)) {
    CLI::App* command = to.add_subcommand(name, what);
    command->add_option("--cluster", options->cluster, "which cluster, if there are several")->type_name("NAME");
    command->add_option("-n,--namespace", options->space, "of the cluster")->type_name("NAME");
    add_globals(*command, context);
    command->callback([options, work, &context] { context.action = [options, work, &context] { return work(context, *options); }; });
    return command;
  };
  CLI::App* backup = slurm->add_subcommand("backup", "Sets of state, database and shared root that fit together");
  backup->require_subcommand(1);
  set_examples(*backup, {{"fairlead slurm backup list", "which sets there are"}, {"fairlead slurm backup now", "make one beside the schedule"}});
  set_examples(*add(*backup, "list", "Which sets there are, and what failed last", list), {{"fairlead slurm backup list -o json", "for programs"}});
  set_examples(*add(*backup, "now", "Make a set now; Slurm goes on meanwhile", make_now), {{"fairlead slurm backup now", "of the only cluster"}});
  CLI::App* checked = add(*backup, "check", "Compare every byte of a set with what was written", check);
  checked->add_option("set", options->set, "its name")->required();
  set_examples(*checked, {{"fairlead slurm backup check 20261122T001500Z", "one set"}});
  CLI::App* restored = add(*slurm, "restore", "Put a set in the place of what is there\nslurmctld stops meanwhile; what is replaced is kept, and no job id is given a second time. Killed anywhere, it goes on by itself.", restore);
  restored->add_option("set", options->set, "its name, or latest")->required();
  restored->add_option("--parts", options->parts, "of state, database, jail; without: state and database as far as the set has them")->type_name("A,B");
  restored->add_flag("--dry-run", options->dry_run, "check the set and tell what would be done, change nothing");
  restored->add_flag("--yes", options->yes, "do it");
  set_examples(*restored, {{"fairlead slurm restore latest --dry-run", "what would be done"}, {"fairlead slurm restore 20261122T001500Z --yes", "state and database"}, {"fairlead slurm restore latest --parts jail --yes", "files of the shared root, to its folder restored"}});
  add_slurm_move(*slurm, context);
}

}  // namespace fairlead::cli
