// SPDX-License-Identifier: Apache-2.0
// slurm export: a whole Slurm cluster goes into a file, and is given away or comes back (docs/slurm-move.md).
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <thread>

#include "api/network_ways.h"
#include "api/node_set.h"
#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "cli/move.h"
#include "cli/move_archive.h"
#include "cli/move_objects.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

std::vector<Json> pods_of(const std::vector<Json>& pods, const char* role) {
  std::vector<Json> out;
  for (const Json& pod : pods)
    if (pod["metadata"]["labels"][api::kSlurmRoleLabel].string() == role && pod["status"]["phase"].string() == "Running") out.push_back(pod);
  return out;
}

Result<std::vector<Json>> pods_of_cluster(Session& session, const SetKeeper& keeper) { return session.list(kube::resources::pods, keeper.space, fmt::format("{}={}", api::kSlurmClusterLabel, keeper.cluster)); }

// A command on the head that answers.
Result<kube::ExecResult> on_head(Session& session, const SetKeeper& keeper, const std::vector<std::string>& command) {
  auto pods = pods_of_cluster(session, keeper);
  if (!pods) return std::unexpected(std::move(pods.error()));
  Error why{Code::Unavailable, "no head of the cluster runs"};
  for (const Json& pod : pods_of(*pods, "controller")) {
    auto ran = session.api().exec(kube::key_of(pod), "slurmctld", command, "", 60s);
    if (ran && ran->exit_code == 0) return ran;
    why = ran ? Error{Code::Unavailable, std::string(trim(ran->err))} : ran.error();
  }
  return std::unexpected(std::move(why));
}

// Jobs that have begun and have not ended.
Result<std::vector<std::string>> running_jobs(Session& session, const SetKeeper& keeper) {
  auto ran = on_head(session, keeper, {"squeue", "-a", "-h", "-t", "all", "-o", "%A %T"});
  if (!ran) return pass(std::move(ran.error()), "ask Slurm which jobs run");
  std::vector<std::string> out;
  for (const std::string& line : split(ran->out, '\n')) {
    const auto words = split(trim(line), ' ');
    static const std::vector<std::string> on_nodes = {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "STOPPED", "SIGNALING", "RESIZING"};
    if (words.size() == 2 && std::find(on_nodes.begin(), on_nodes.end(), words[1]) != on_nodes.end()) out.push_back(words[0]);
  }
  return out;
}

// Workers on which a job still runs. One that cannot be asked counts.
Result<std::vector<std::string>> busy_workers(Session& session, const SetKeeper& keeper) {
  auto pods = pods_of_cluster(session, keeper);
  if (!pods) return std::unexpected(std::move(pods.error()));
  std::vector<std::string> out;
  for (const Json& pod : pods_of(*pods, "worker")) {
    auto ran = session.api().exec(kube::key_of(pod), "slurmd", {"sh", "-c", "for f in /proc/[0-9]*/comm; do read -r c < \"$f\" && [ \"$c\" = slurmstepd ] && echo busy; done 2> /dev/null; echo asked"}, "", 30s);
    if (!ran || ran->out.find("busy") != std::string::npos || ran->out.find("asked") == std::string::npos) out.push_back(kube::name_of(pod));
  }
  return out;
}

// Of keys that the target makes itself: those of its own database and of the voters among its heads.
bool made_anew(const std::string& cluster, const std::string& secret) { return secret == cluster + "-acct-db" || secret == cluster + "-quorum"; }

Result<Json> objects_of(Session& session, const SetKeeper& keeper, std::vector<std::string>& missing) {
  auto cluster = session.get(kube::resources::slurm_clusters, keeper.space, keeper.cluster);
  if (!cluster) return cluster;
  std::vector<Json> others, first;
  auto sets = session.list(api::kNodeSets, keeper.space);
  if (!sets) return std::unexpected(std::move(sets.error()));
  for (Json& set : *sets)
    if (const std::string of = api::cluster_of_node_set(set); of == keeper.cluster || of.empty()) others.push_back(std::move(set.set("apiVersion", "slurm.nebius.ai/v1alpha1").set("kind", "NodeSet")));  // a list leaves both out
  auto checks = session.list(api::kActiveChecks, keeper.space);
  if (!checks) return std::unexpected(std::move(checks.error()));
  for (Json& check : *checks)
    if (check["spec"]["slurmClusterRefName"].string() == keeper.cluster) others.push_back(std::move(check.set("apiVersion", "slurm.nebius.ai/v1alpha1").set("kind", "ActiveCheck")));
  others.push_back(*cluster);
  std::set<std::pair<std::string, std::string>> named;
  for (const Json& one : others) named.merge(references_of(one));
  auto secrets = session.list(kube::resources::secrets, keeper.space, fmt::format("{}={}", api::kSlurmClusterLabel, keeper.cluster));
  if (!secrets) return pass(std::move(secrets.error()), "read the keys of the cluster");
  for (const Json& secret : *secrets)
    if (!made_anew(keeper.cluster, kube::name_of(secret))) named.emplace("Secret", kube::name_of(secret));
  for (const auto& [kind, name] : named) {
    const kube::Resource& resource = kind == "ConfigMap" ? kube::resources::config_maps : kind == "Secret" ? kube::resources::secrets : kube::resources::claims;
    auto object = session.get(resource, keeper.space, name);
    if (object) first.push_back(std::move(object->set("apiVersion", "v1").set("kind", kind)));
    else if (object.error().code == Code::NotFound) missing.push_back(fmt::format("{} {}", kind, name));
    else return object;
  }
  Json out = Json::array();
  for (const auto* group : {&first, &others})
    for (const Json& one : *group) out.push(portable(one));
  return out;
}

std::string file_name(const MoveOptions& options, const std::string& cluster, const std::string& id) {
  struct stat info {};
  if (options.to.empty()) return fmt::format("{}-{}.fairlead", cluster, id);
  if (::stat(options.to.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return fmt::format("{}/{}-{}.fairlead", options.to, cluster, id);
  return options.to;
}

Result<void> end_running_jobs(Context& context, Session& session, const SetKeeper& keeper, const MoveOptions& options, Progress& progress) {
  auto jobs = running_jobs(session, keeper);
  if (!jobs) return std::unexpected(std::move(jobs.error()));
  if (jobs->empty()) return {};
  const std::string named = fmt::format("{}", fmt::join(std::vector<std::string>(jobs->begin(), jobs->begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(jobs->size(), 10))), ", ")) + (jobs->size() > 10 ? ", ..." : "");
  if (!options.requeue) return fail(Code::Conflict, fmt::format("{} jobs run ({}): what runs cannot move. Wait for them, end them with scancel, or say --requeue-running, and they go back to the queue and begin anew at the target", jobs->size(), named));
  progress.note(fmt::format("{} jobs go back to the queue", jobs->size()));
  for (const std::string& job : *jobs) (void)on_head(session, keeper, {"scontrol", "requeue", job});
  const auto began = context.clock.monotonic();
  while (context.clock.monotonic() - began < 300s) {
    jobs = running_jobs(session, keeper);
    if (jobs && jobs->empty()) return {};
    progress.redraw();
    std::this_thread::sleep_for(1s);
  }
  return fail(Code::Conflict, fmt::format("jobs still run after five minutes: {}; what cannot be requeued is to be ended with scancel", jobs ? fmt::format("{}", fmt::join(*jobs, ", ")) : jobs.error().message));
}

Result<void> write_archive(Session& session, const SetKeeper& keeper, const Json& moving, const std::string& path, const std::string& passphrase, Context& context, Progress& progress) {
  std::vector<std::string> missing;
  auto objects = objects_of(session, keeper, missing);
  if (!objects) return std::unexpected(std::move(objects.error()));
  for (const std::string& one : missing) progress.line(fmt::format("{} is named by the cluster and is not there: it does not travel", one));
  ArchiveHeader header{.id = moving["id"].string(), .cluster = keeper.cluster, .space = keeper.space, .time = print_time(context.clock.now()), .code_sum = moving["sum"].string(), .set = moving["set"].string(), .slurm = "", .salt = std::string(32, '\0')};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(header.salt.data()), static_cast<int>(header.salt.size())) != 1) return fail(Code::Internal, "no random numbers");
  auto writer = ArchiveWriter::create(path, header, passphrase);
  if (!writer) return std::unexpected(std::move(writer.error()));
  const std::string text = kube::print_json(*objects);
  std::string size;
  for (int i = 7; i >= 0; --i) size += static_cast<char>(text.size() >> (8 * i));
  if (auto written = writer->write(size + text); !written) return written;
  Result<void> going;
  std::uint64_t bytes = 0;
  std::string complaint;
  auto ran = exec_in_pod(session, {.space = keeper.space, .pod = keeper.pod, .container = "backup", .command = {"/opt/fairlead/bin/fairlead-slurm", "export-read"},
                                   .on_out = [&](std::string_view some) {
                                     bytes += some.size();
                                     if (going) going = writer->write(some);
                                     progress.note(fmt::format("{} MiB", bytes >> 20));
                                     progress.redraw();
                                   },
                                   .on_err = [&](std::string_view some) { complaint += some.substr(0, 4096 - std::min<std::size_t>(complaint.size(), 4096)); }});
  if (!ran) return std::unexpected(std::move(ran.error()));
  if (!going) return going;
  if (*ran != 0) return fail(Code::Unavailable, fmt::format("the set could not be read: {}", trim(complaint)));
  if (bytes == 0) return fail(Code::Unavailable, "the pod sent nothing of the set");
  return writer->finish();
}

Result<int> dry_export(Session& session, const SetKeeper& keeper) {
  std::vector<std::string> missing;
  auto objects = objects_of(session, keeper, missing);
  if (!objects) return std::unexpected(std::move(objects.error()));
  auto jobs = running_jobs(session, keeper);
  fmt::print("would travel: the state of slurmctld, its accounting database where the cluster has one of its own, and {}\n", titles_of(*objects));
  for (const std::string& one : missing) fmt::print("named and not there: {}\n", one);
  fmt::print("not: the shared root, the keys of the database and of the voters (made anew)\n");
  if (!jobs) fmt::print("which jobs run is not known: {}\n", jobs.error().message);
  else fmt::print("{}\n", jobs->empty() ? "no job runs: the export can begin" : fmt::format("jobs run, and what runs cannot move: {}", fmt::join(*jobs, ", ")));
  fmt::print("nothing is changed\n");
  return 0;
}

Result<int> abort_export(Context& context, Session& session, const SetKeeper& keeper) {
  auto done = said(session, keeper, {"export-abort"}, 180s);
  if (!done) return std::unexpected(std::move(done.error()));
  if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"cluster", keeper.cluster}, {"namespace", keeper.space}, {"aborted", true}})));
  else fmt::print("{}\n", *done);
  return 0;
}

Result<int> hand_over(Context& context, Session& session, const SetKeeper& keeper, const MoveOptions& options) {
  if (!options.code_file.empty() && options.code_file != "-") {  // before anything is final
    const Fd fd(::open(options.code_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return fail_errno(errno, "write " + options.code_file);
  }
  auto code = said(session, keeper, {"export-hand-over"}, 60s);
  if (!code) return std::unexpected(std::move(code.error()));
  const bool file = !options.code_file.empty() && options.code_file != "-";
  if (file)
    if (auto written = write_file_durably(options.code_file, *code + "\n", 0600); !written) return pass(std::move(written.error()), "the cluster is handed over, and its code could not be written: say --hand-over again");
  if (context.wants("json")) {
    Json out = Json::object({{"cluster", keeper.cluster}, {"namespace", keeper.space}, {"moved", true}});
    if (file) out.set("codeFile", options.code_file);
    else out.set("code", *code);
    fmt::print("{}\n", kube::print_json(out));
  } else if (file) {
    fmt::print("cluster {} is given away: slurmctld never runs here again. Its code is in {}; at the target: fairlead slurm import FILE --code-file {}\n", keeper.cluster, options.code_file, options.code_file);
  } else {
    fmt::print("{}\n", *code);
  }
  return 0;
}

}  // namespace

Result<int> run_export(Context& context, const MoveOptions& options) {
  if (options.abort + options.hand_over + options.dry_run > 1) return fail(Code::Invalid, "say one of --abort, --hand-over and --dry-run");
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto found = find_set_keeper(*session, options.space, options.cluster);
  if (!found) return std::unexpected(std::move(found.error()));
  const SetKeeper keeper = *found;
  if (options.dry_run) return dry_export(*session, keeper);
  if (options.abort) return abort_export(context, *session, keeper);
  if (options.hand_over) return hand_over(context, *session, keeper, options);

  auto moving = under_way(*session, keeper, "export");
  if (!moving) return std::unexpected(std::move(moving.error()));
  auto passphrase = passphrase_of(options, true);
  if (!passphrase) return std::unexpected(std::move(passphrase.error()));
  if (!options.to.empty())
    if (const std::string path = file_name(options, keeper.cluster, "x"); path == options.to && exists(path)) return fail(Code::Exists, path + " is there already: remove it, or name another file with --to");

  Progress progress(context.look(), context.wants("json"));
  if (!moving->is_object()) {
    progress.begin("jobs");
    if (auto ended = end_running_jobs(context, *session, keeper, options, progress); !ended) {
      progress.fail();
      return std::unexpected(std::move(ended.error()));
    }
    progress.end("none runs");
  }
  progress.begin("slurmctld ends, a set is made");
  moving = state_of(*session, keeper, {"export-begin"});
  if (!moving) return std::unexpected(std::move(moving.error()));
  const std::string id = (*moving)["id"].string();
  while ((*moving)["step"].string() != "ready") {
    const std::string step = (*moving)["step"].string();
    if (step == "moved" || step == "moving") return fail(Code::Conflict, fmt::format("cluster {} was handed over (export {}): `fairlead slurm export {} --hand-over` tells the code again", keeper.cluster, id, keeper.cluster));
    if (step == "abort") {
      progress.fail();
      return fail(Code::Unavailable, fmt::format("the export was aborted, and the cluster runs on: {}", (*moving)["error"].string().empty() ? "somebody asked for it" : (*moving)["error"].string()));
    }
    progress.note(step);
    progress.redraw();
    std::this_thread::sleep_for(500ms);
    moving = state_of(*session, keeper, {"export-status", id});
    if (!moving) return pass(std::move(moving.error()), "the export goes on by itself; type the same again, or --abort");
  }
  progress.end();
  const auto give_up = [&](Error error) -> Result<int> {
    progress.fail();
    return pass(std::move(error), fmt::format("slurmctld is kept from running: type the same again, or `fairlead slurm export {} -n {} --abort`", keeper.cluster, keeper.space));
  };
  // A job that began between the look and the end of slurmctld would run twice.
  progress.begin("no job runs on any worker");
  auto busy = busy_workers(*session, keeper);
  if (!busy) return give_up(std::move(busy.error()));
  if (!busy->empty()) {
    progress.fail();
    auto back = said(*session, keeper, {"export-abort"}, 180s);
    return fail(Code::Conflict, fmt::format("a job runs on {}, or that cannot be known; the export {}", fmt::join(*busy, ", "), back ? "is aborted and the cluster runs on: try again" : "could not be aborted: " + back.error().message));
  }
  progress.end();
  progress.begin("archive");
  const std::string path = file_name(options, keeper.cluster, id);
  if (auto written = write_archive(*session, keeper, *moving, path, *passphrase, context, progress); !written) return give_up(std::move(written.error()));
  progress.end(path);
  if (context.wants("json")) {
    fmt::print("{}\n", kube::print_json(Json::object({{"cluster", keeper.cluster}, {"namespace", keeper.space}, {"export", id}, {"file", path}, {"codeSha256", (*moving)["sum"]}, {"nextJobId", (*moving)["next-id"]}})));
    return 0;
  }
  fmt::print("cluster {} is in {} (encrypted), and slurmctld is kept from running. Next:\n  at the target   fairlead slurm import {} -n NAMESPACE\n  here            fairlead slurm export {} -n {} --hand-over --code-file CODE   (or --abort)\n  at the target   fairlead slurm import {} -n NAMESPACE --code-file CODE\n", keeper.cluster, path, path,
             keeper.cluster, keeper.space, path);
  return 0;
}

}  // namespace fairlead::cli
