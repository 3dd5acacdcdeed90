// SPDX-License-Identifier: Apache-2.0
// status: collects the snapshot and draws it.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <poll.h>
#include <sys/signalfd.h>

#include "cli/command.h"
#include "cli/overview.h"
#include "cli/site_files.h"

namespace fairlead::cli {

using kube::Json;
namespace resources = kube::resources;

namespace {

constexpr std::string_view kMark = "--8<--";

// Asks a cluster's own Slurm, from its first ready head or login pod.
SiteSnapshot::SlurmAnswer ask_slurm(Session& session, const Json& cluster, const std::vector<Json>& pods) {
  SiteSnapshot::SlurmAnswer answer{.cluster = kube::name_of(cluster), .space = kube::space_of(cluster)};
  for (const char* role : {"controller", "login"})
    for (const auto& pod : pods) {
      auto labels = kube::labels_of(pod);
      if (kube::space_of(pod) != answer.space || labels["fairlead.dev/slurm-cluster"] != answer.cluster || labels["fairlead.dev/slurm-role"] != role) continue;
      if (!kube::condition_is_true(pod, "Ready") || kube::deleting(pod)) continue;
      if (pod["spec"]["containers"].items().size() == 1 && role == std::string_view("controller")) continue;  // a witness knows nothing of Slurm
      answer.asked = true;
      const std::string script = fmt::format("timeout 5 scontrol ping; echo '{0}'; timeout 5 squeue --states=all --noheader --format='{1}'; echo '{0}'; timeout 5 sinfo --Node --noheader --format='{2}'", kMark, kSqueueFormat, kSinfoFormat);
      int code = 0;
      auto out = exec_output(session, answer.space, kube::name_of(pod), std::string_view(role) == "controller" ? "slurmctld" : "sshd", {"sh", "-c", script}, &code);
      if (!out) {
        answer.error = out.error().message;
        continue;
      }
      answer.error.clear();
      const auto first = out->find(kMark), second = out->find(kMark, first + 1);
      if (first == std::string::npos || second == std::string::npos) {
        answer.error = "an answer that cannot be read";
        continue;
      }
      answer.ping = out->substr(0, first);
      answer.squeue = out->substr(first + kMark.size(), second - first - kMark.size());
      answer.sinfo = out->substr(second + kMark.size());
      return answer;
    }
  return answer;
}

// Kinds of a CRD may not be there on another cluster, and a user of it may not see its nodes: that is no error.
Result<std::vector<Json>> list_if_served(Session& session, const kube::Resource& resource) {
  auto all = session.list_visible(resource);
  const bool hidden = !all && all.error().code == Code::Forbidden && !resource.namespaced;
  if (hidden || (!all && (all.error().code == Code::NotFound || all.error().code == Code::Unsupported))) return std::vector<Json>{};
  return all;
}

Result<SiteSnapshot> take_snapshot(Context& context, Session& session) {
  SiteSnapshot snapshot{.now = context.clock.now(), .state_dir = context.globals.state_dir, .server_version = FAIRLEAD_VERSION};
  const std::pair<kube::Resource, std::vector<Json>*> wanted[] = {{resources::machines, &snapshot.machines}, {resources::nodes, &snapshot.nodes}, {resources::pods, &snapshot.pods},
                                                                  {resources::slurm_clusters, &snapshot.slurm_clusters}, {resources::claims, &snapshot.claims}};
  for (const auto& [resource, into] : wanted) {
    auto all = list_if_served(session, resource);
    if (!all) return std::unexpected(std::move(all.error()));
    *into = std::move(*all);
  }
  for (const auto& cluster : snapshot.slurm_clusters) snapshot.slurm.push_back(ask_slurm(session, cluster, snapshot.pods));
  if (!context.own_site()) return snapshot;
  snapshot.images = list_images(context.globals.state_dir);
  struct statvfs disk {};
  if (::statvfs(context.globals.state_dir.c_str(), &disk) == 0) {
    snapshot.disk_free_bytes = static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
    snapshot.disk_size_bytes = static_cast<std::int64_t>(disk.f_blocks) * static_cast<std::int64_t>(disk.f_frsize);
  }
  return snapshot;
}

}  // namespace

void add_status(CLI::App& app, Context& context) {
  struct Options {
    bool watch = false;
    double every = 2;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("status", "A picture of the site: problems first, then head, nodes, jobs, pods, storage");
  command->add_flag("-w,--watch", options->watch, "draw it again and again");
  command->add_option("--every", options->every, "seconds between pictures")->capture_default_str();
  add_globals(*command, context);
  set_examples(*command, {{"fairlead status", "once"}, {"fairlead status -w", "until ctrl-C"}, {"fairlead status -o json | jq .problems", "for a script"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      if (!options->watch) {
        auto snapshot = take_snapshot(context, *session);
        if (!snapshot) return std::unexpected(std::move(snapshot.error()));
        const Overview overview = overview_of(*snapshot);
        if (context.wants("json") || context.wants("yaml"))
          print_json_or_yaml(to_json(overview), context.globals.output);
        else
          fmt::print("{}", draw(overview, context.look()));
        return 0;
      }
      sigset_t ends;
      sigemptyset(&ends);
      sigaddset(&ends, SIGINT);
      sigaddset(&ends, SIGTERM);
      ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
      const Fd end_fd(::signalfd(-1, &ends, SFD_CLOEXEC));
      const bool live = is_terminal(STDOUT_FILENO);
      if (live) fmt::print("\x1b[?1049h\x1b[?25l");
      for (;;) {
        auto snapshot = take_snapshot(context, *session);
        std::string picture;
        if (snapshot && (context.wants("json") || context.wants("yaml")))
          picture = kube::print_json(to_json(overview_of(*snapshot))) + "\n";
        else if (snapshot)
          picture = draw(overview_of(*snapshot), context.look());
        else
          picture = " " + paint(snapshot.error().message, Style::Bad, context.look()) + "\n";
        if (live) {
          // No line more than the screen has, each cleared to its end: no flicker, nothing left of the picture before.
          std::string out = "\x1b[H";
          int row = 0;
          const int rows = window_size(STDOUT_FILENO).rows;
          for (std::size_t at = 0; at < picture.size() && row < rows - 1; ++row) {
            const auto end = std::min(picture.find('\n', at), picture.size());
            out += picture.substr(at, end - at) + "\x1b[K\n";
            at = end + 1;
          }
          picture = out + "\x1b[J";
        }
        fmt::print("{}", picture);
        std::fflush(stdout);
        pollfd fd{.fd = end_fd.get(), .events = POLLIN, .revents = 0};
        if (::poll(&fd, 1, static_cast<int>(options->every * 1000)) > 0) break;
      }
      if (live) fmt::print("\x1b[?25h\x1b[?1049l");
      return 0;
    };
  });
}

}  // namespace fairlead::cli
