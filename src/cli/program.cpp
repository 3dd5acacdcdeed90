// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "base/files.h"
#include "base/log.h"
#include "base/own_program.h"

namespace fairlead::cli {

namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string Context::kubeconfig() const {
  if (!globals.kubeconfig.empty()) return globals.kubeconfig;
  return globals.state_dir + "/pki/admin.kubeconfig";
}

Result<Session> Context::cluster_session() const {
  auto config = kube::load_config({.kubeconfig = globals.kubeconfig, .context = globals.context, .insecure = kube::InsecureServer::Allow, .environment = environment});
  if (!config) return std::unexpected(std::move(config.error()));
  return Session::open(std::move(*config));
}

Result<Session> Context::session() const {
  if (!own_site()) return cluster_session();
  const std::string path = kubeconfig();
  if (::access(path.c_str(), R_OK) != 0 && errno == EACCES) return fail(Code::Forbidden, fmt::format("{} cannot be read by you: run this with sudo", path));
  if (!exists(path)) return fail(Code::NotFound, fmt::format("no site runs in {}: start one with `fairlead up -f FILE`", globals.state_dir));
  auto config = kube::read_kubeconfig(path);
  if (!config) return std::unexpected(std::move(config.error()));
  return Session::open(std::move(*config));
}

void add_globals(CLI::App& command, Context& context) {
  auto& globals = context.globals;
  const std::string group = "Options of every command";
  command.add_option("--state-dir", globals.state_dir, "folder of the site (also: FAIRLEAD_STATE_DIR)")->capture_default_str()->group(group)->type_name("DIR");
  command.add_option("--kubeconfig", globals.kubeconfig, "another site, or any Kubernetes cluster, by its kubeconfig")->group(group)->type_name("FILE");
  command.add_option("--context", globals.context, "a context of that file, of $KUBECONFIG or of ~/.kube/config")->group(group)->type_name("NAME");
  command.add_option("-o,--output", globals.output, "form of the output: table, json, yaml (get also: wide, name)")->group(group)->type_name("FORM");
  command.add_flag("--no-color", globals.no_color, "no colours (also: NO_COLOR=1)")->group(group);
  command.add_flag("-v,--verbose", globals.verbose, "say more of what is done")->group(group);
}

void set_examples(CLI::App& command, const std::vector<std::pair<std::string, std::string>>& examples) {
  std::size_t widest = 0;
  for (const auto& [line, what] : examples) widest = std::max(widest, line.size());
  std::string text = "Examples:\n";
  for (const auto& [line, what] : examples) text += fmt::format("  {:<{}}   {}\n", line, widest, what);
  text.pop_back();
  command.footer(text);
}

std::unique_ptr<CLI::App> make_tree(Context& context) {
  auto app = std::make_unique<CLI::App>("Slurm and Kubernetes clusters on your own machines.", "fairlead");
  app->require_subcommand(1);
  app->get_formatter()->column_width(34);
  add_globals(*app, context);
  add_up(*app, context);
  add_down(*app, context);
  add_status(*app, context);
  add_get(*app, context);
  add_apply(*app, context);
  add_delete(*app, context);
  add_logs(*app, context);
  add_exec(*app, context);
  add_attach(*app, context);
  add_ssh(*app, context);
  add_run(*app, context);
  add_failover(*app, context);
  add_jail(*app, context);
  add_slurm(*app, context);
  add_slurm_token(*app, context);
  add_notify(*app, context);
  add_quota(*app, context);
  add_queue(*app, context);
  add_explain(*app, context);
  add_eta(*app, context);
  add_whatif(*app, context);
  add_team(*app, context);
  add_policy(*app, context);
  add_identity(*app, context);
  add_aws(*app, context);
  add_node(*app, context);
  add_join(*app, context);
  add_image(*app, context);
  add_render(*app, context);
  add_site(*app, context);
  add_ports(*app, context);
  add_preflight(*app, context);
  add_cluster(*app, context);
  add_volume(*app, context);
  add_install(*app, context);
  add_completion(*app, context);
  set_examples(*app, {{"sudo fairlead up -f examples/demo.yaml", "start the cluster of this file, wait until it is ready"},
                      {"sudo fairlead status", "a picture of it, problems first"},
                      {"sudo fairlead run -N 2 hostname", "a command on two Slurm nodes"},
                      {"sudo fairlead down", "stop and remove it"}});
  return app;
}

std::vector<std::string> guard_words(int argc, const char* const* argv) {
  std::vector<std::string> out;
  bool behind = false;
  for (int i = 1; i < argc; ++i) {
    out.emplace_back(argv[i]);
    if (behind && out.back().starts_with('[')) out.back().insert(0, 1, kGuard);
    behind = behind || out.back() == "--";
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::string as_typed(std::string word) {
  if (word.starts_with(kGuard)) word.erase(0, 1);
  return word;
}

CLI::Option* add_command_words(CLI::App& command, std::vector<std::string>& words, const char* help) { return command.add_option("command", words, help)->transform(as_typed, ""); }

namespace {

std::string folder_of_this_program() {
  const auto self = own_program();
  return self ? self->substr(0, self->rfind('/')) : ".";
}

int complain(const std::string& message, int status) {
  const Look look{.width = 100, .color = is_terminal(STDERR_FILENO) && std::getenv("NO_COLOR") == nullptr};
  fmt::print(stderr, "{} {}\n", paint("fairlead:", Style::Bad, look), message);
  return status;
}

std::string explain(const Error& error, bool own_site) {
  if (own_site && error.code == Code::Unavailable && error.message.find("connect") != std::string::npos)
    return error.message + ": the site's server does not answer; start it with `fairlead up -f FILE`, its log is run/server.log of the state folder";
  return error.message;
}

}  // namespace

int run_program(int argc, char** argv, Hooks hooks, const Clock& clock) {
  Context context{.globals = {}, .hooks = std::move(hooks), .clock = clock, .own_dir = folder_of_this_program(), .action = {}};
  // Not by the tree: an option of the program itself would be filled from the environment after that of the command was read, and win.
  if (const char* dir = std::getenv("FAIRLEAD_STATE_DIR"); dir && *dir) context.globals.state_dir = dir;
  auto app = make_tree(context);
  try {
    app->name(argv[0]);
    app->parse(guard_words(argc, argv));
  } catch (const CLI::Success& wish) {  // --help
    return app->exit(wish);
  } catch (const CLI::ParseError& error) {
    std::string path = "fairlead";
    for (const CLI::App* at = app.get();;) {
      const auto named = at->get_subcommands();
      if (named.empty()) break;
      at = named.front();
      path += " " + at->get_name();
    }
    std::string message = error.what();
    if (dynamic_cast<const CLI::RequiredError*>(&error) && message.find("subcommand") != std::string::npos) {
      std::string unknown;
      for (int i = 1; i < argc && unknown.empty(); ++i) {
        const CLI::Option* before = argv[i - 1][0] == '-' ? app->get_option_no_throw(argv[i - 1]) : nullptr;
        if (before && before->get_items_expected_min() > 0) continue;  // the value of an option
        if (argv[i][0] != '-' && app->get_subcommands([&](const CLI::App* one) { return one->get_name() == argv[i]; }).empty()) unknown = argv[i];
      }
      message = unknown.empty() || path != "fairlead" ? "a command is missing" : fmt::format("\"{}\" is not a command", unknown);
    }
    return complain(fmt::format("{}; see `{} --help`", message, path), 2);
  }
  start_logging("fairlead", context.globals.verbose ? "info" : "error");
  while (context.globals.state_dir.size() > 1 && context.globals.state_dir.back() == '/') context.globals.state_dir.pop_back();
  if (!context.action) return complain("nothing to do; see `fairlead --help`", 2);
  auto outcome = context.action();
  std::fflush(stdout);
  if (outcome) return *outcome;
  return complain(explain(outcome.error(), context.own_site()), outcome.error().code == Code::Invalid && outcome.error().message.starts_with("usage:") ? 2 : 1);
}

}  // namespace fairlead::cli
