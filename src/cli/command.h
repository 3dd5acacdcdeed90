// SPDX-License-Identifier: Apache-2.0
// What every command gets, and how commands are hung into the tree. One add_NAME per command, in cmd_NAME.cpp.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "kube/access.h"

namespace CLI {
class App;
class Option;
}

namespace fairlead::cli {

struct Globals {
  std::string state_dir = "/var/lib/fairlead";
  std::string kubeconfig, context;  // empty: the site's own
  std::string output = "table";
  bool no_color = false, verbose = false;
};

// What other folders do for us: given by apps/, because folders of one level do not include one another.
struct Hooks {
  // Removes all of a site from this machine without its server; tells each thing done. `before_files`: done once no node runs.
  std::function<Result<void>(const std::string& state_dir, bool keep_images, bool keep_data, const std::function<Result<void>()>& before_files, const std::function<void(const std::string&)>& tell)> teardown;
  std::function<std::vector<std::string>(const std::string& state_dir)> leftovers;
  // Is a range of local machines in use by something else here? A sentence; empty: free.
  std::function<std::string(const std::string& state_dir, const std::string& node_range, const std::string& pod_range)> network_conflict;
  // The files that an object would lead to (slurm.conf and so on), by name. Empty map: nothing to show for this kind.
  std::function<Result<std::vector<std::pair<std::string, std::string>>>(const kube::Json& object)> render;
  // What fairlead-server asks of a cluster's API (of one namespace, or "" : all; with local machines or not): its roles are made from this.
  std::function<kube::Access(const std::string& space, bool local_machines, bool clusters)> server_access;
  // A Notification that says it is a test, for this NotificationTopic, and what its channels would send (notify/plan/preview.h).
  std::function<std::pair<kube::Json, kube::Json>(const kube::Json& topic, const std::string& id, Instant now)> test_notification;
  // Of the objects of task governance, by the engine that decides on them (governance/plan/views.h): the tree of quotas; who waits and runs.
  std::function<kube::Json(const std::vector<kube::Json>& objects)> quotas, queues;
  // ... why "job/NAME" or "workload/NAME" waits, and what would start it.
  std::function<Result<kube::Json>(const std::vector<kube::Json>& objects, const std::string& space, const std::string& what)> explain;
  // ... when it starts; `objects` with the Jobs, as far as they may be read.
  std::function<Result<kube::Json>(const std::vector<kube::Json>& objects, const std::string& space, const std::string& what, Instant now)> eta;
  // ... what documents, and leaving out "KIND/NAME", would change (governance/plan/whatif.h); and what else that has to be read for it.
  struct WhatIfNeeds {
    bool jobs = false, teams = false;
  };
  std::function<Result<WhatIfNeeds>(const std::vector<kube::Json>& changes, const std::vector<std::string>& without)> whatif_needs;
  std::function<Result<kube::Json>(const std::vector<kube::Json>& objects, const std::vector<kube::Json>& changes, const std::vector<std::string>& without, const std::string& space, Instant now)> whatif;
};

struct Context {
  Globals globals;
  Hooks hooks;
  const Clock& clock;
  std::string own_dir;  // of this program: its siblings are found there
  std::function<Result<int>()> action;  // set by the command that was named

  // The site of the state folder, rather than a cluster that was named.
  bool own_site() const { return globals.kubeconfig.empty() && globals.context.empty(); }
  std::string kubeconfig() const;
  Result<Session> session() const;  // the error says how to start the site
  Result<Session> cluster_session() const;  // of a cluster that need not be named: as kubectl finds it
  Look look() const { return look_of_stdout(globals.no_color); }
  bool wants(const char* format) const { return globals.output == format; }
};

// Options that every command has.
void add_globals(CLI::App& command, Context& context);
// "Examples:" below the help of a command.
void set_examples(CLI::App& command, const std::vector<std::pair<std::string, std::string>>& examples);

void add_up(CLI::App& app, Context& context);
void add_down(CLI::App& app, Context& context);
void add_status(CLI::App& app, Context& context);
void add_get(CLI::App& app, Context& context);
void add_apply(CLI::App& app, Context& context);
void add_delete(CLI::App& app, Context& context);
void add_logs(CLI::App& app, Context& context);
void add_exec(CLI::App& app, Context& context);
void add_attach(CLI::App& app, Context& context);
void add_ssh(CLI::App& app, Context& context);
void add_run(CLI::App& app, Context& context);
void add_failover(CLI::App& app, Context& context);
void add_jail(CLI::App& app, Context& context);
void add_slurm_token(CLI::App& app, Context& context);  // behind add_slurm
void add_slurm(CLI::App& app, Context& context);
void add_notify(CLI::App& app, Context& context);
void add_quota(CLI::App& app, Context& context);
void add_queue(CLI::App& app, Context& context);
void add_explain(CLI::App& app, Context& context);
void add_eta(CLI::App& app, Context& context);
void add_whatif(CLI::App& app, Context& context);
void add_team(CLI::App& app, Context& context);
void add_policy(CLI::App& app, Context& context);
void add_identity(CLI::App& app, Context& context);
// A command of the user's own, behind --: its words as they were typed.
CLI::Option* add_command_words(CLI::App& command, std::vector<std::string>& words, const char* help);
inline constexpr char kGuard = '\x01';      // before such a word while it goes through the tree
std::string as_typed(std::string word);     // without it
void add_aws(CLI::App& app, Context& context);
void add_image(CLI::App& app, Context& context);
void add_render(CLI::App& app, Context& context);
void add_node(CLI::App& app, Context& context);
void add_node_hosts(CLI::App& node, Context& context);  // behind add_node
Result<std::vector<std::string>> pods_on(Session& session, const std::string& node);  // that are bound to it and have not ended, "default/web-0"
void add_join(CLI::App& app, Context& context);         // join, leave
void add_site(CLI::App& app, Context& context);  // kubeconfig, version
void add_ports(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);
void add_preflight(CLI::App& app, Context& context);
void add_cluster(CLI::App& app, Context& context);
void add_volume(CLI::App& app, Context& context);
void add_install(CLI::App& app, Context& context);  // install, upgrade, uninstall

// Shared by commands.
Result<std::vector<kube::Json>> read_documents(const std::vector<std::string>& paths);  // files, folders of *.yaml|*.json, "-"; each with apiVersion, kind and a name
Result<std::string> read_policy_text(const std::string& path);  // of a file or "-", as far as a policy may go
std::string title_of(const kube::Json& object);  // "machine/head-0", "slurmcluster/demo"
enum class Applied { Created, Configured, Unchanged };
struct ApplyHow {
  bool dry_run = false;
  bool force = false;  // take fields over that other managers own
};
// By server-side apply as "fairlead": what the document named before and does not name now is removed.
Result<Applied> apply_document(Session& session, const kube::Json& document, ApplyHow how = {});
void print_json_or_yaml(const kube::Json& value, const std::string& output);
Result<std::vector<kube::Json>> queue_objects(Session& session);   // all of task governance, as the hooks take them
std::optional<Error> unknown_form(const Context& context);         // of the output, where it is a table, JSON or YAML

// Runs a command in a container. `input`: sent to its stdin, then closed; ignored with a terminal, which is joined instead.
struct ExecOptions {
  std::string space, pod, container;
  std::vector<std::string> command;
  bool stdin_open = false, tty = false;
  const std::string* input = nullptr;             // instead of our stdin
  std::function<void(std::string_view)> on_out;   // instead of our stdout
  std::function<void(std::string_view)> on_err;
};
Result<int> exec_in_pod(Session& session, const ExecOptions& options);
// Joins the streams of a running container; `command` and `input` are not used.
Result<int> attach_to_pod(Session& session, const ExecOptions& options);
// The output of a command, its own exit status in `code`.
Result<std::string> exec_output(Session& session, const std::string& space, const std::string& pod, const std::string& container, std::vector<std::string> command, int* code = nullptr,
                                const std::string& input = "");

// The login pod that "ssh" and "run" go to.
struct LoginPod {
  std::string space, cluster, pod, address;
};
Result<LoginPod> find_login_pod(Session& session, const std::string& cluster, const std::string& pod = "");

}  // namespace fairlead::cli
