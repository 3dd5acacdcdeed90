// SPDX-License-Identifier: Apache-2.0
// ssh, run: to the login node of a Slurm cluster.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>

#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/slurm_words.h"

namespace fairlead::cli {

using kube::Json;

namespace {

constexpr const char* kClusterLabel = "fairlead.dev/slurm-cluster";
constexpr const char* kRoleLabel = "fairlead.dev/slurm-role";

}  // namespace

Result<LoginPod> find_login_pod(Session& session, const std::string& cluster, const std::string& pod) {
  auto pods = session.list_visible(kube::resources::pods, std::string(kRoleLabel) + "=login");
  if (!pods) return std::unexpected(std::move(pods.error()));
  std::vector<LoginPod> ready;
  std::vector<std::string> clusters;
  bool any = false;
  for (const auto& object : *pods) {
    const std::string of = kube::labels_of(object)[kClusterLabel];
    if (!cluster.empty() && of != cluster) continue;
    if (!pod.empty() && kube::name_of(object) != pod) continue;
    any = true;
    if (!kube::condition_is_true(object, "Ready") || kube::deleting(object)) continue;
    ready.push_back({.space = kube::space_of(object), .cluster = of, .pod = kube::name_of(object), .address = object["status"]["podIP"].string()});
    if (std::find(clusters.begin(), clusters.end(), kube::space_of(object) + "/" + of) == clusters.end()) clusters.push_back(kube::space_of(object) + "/" + of);
  }
  if (clusters.size() > 1) {
    std::string all;
    for (const auto& one : clusters) all += (all.empty() ? "" : ", ") + one;
    return fail(Code::Invalid, fmt::format("there are several Slurm clusters ({}): name one", all));
  }
  if (!ready.empty()) return ready.front();
  const std::string of = cluster.empty() ? "" : " of " + cluster;
  if (any) return fail(Code::Unavailable, fmt::format("no login node{} is ready: see `fairlead status`", of));
  return fail(Code::NotFound, fmt::format("there is no login node{}: apply a SlurmCluster, e.g. `fairlead up -f examples/demo.yaml`", of));
}

void add_ssh(CLI::App& app, Context& context) {
  struct Options {
    std::string target;
    std::vector<std::string> command;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("ssh", "Log in to a Slurm cluster");
  command->add_option("target", options->target, "[USER@]CLUSTER or [USER@]LOGIN-POD; nothing if there is one cluster");
  add_command_words(*command, options->command, "run this instead of a shell, behind --");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead ssh", "root on the only cluster's login node"}, {"fairlead ssh ada@demo", "as user ada"}, {"fairlead ssh demo -- squeue", "one command"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      const auto at = options->target.find('@');
      const std::string user = at == std::string::npos ? "root" : options->target.substr(0, at);
      const std::string name = at == std::string::npos ? options->target : options->target.substr(at + 1);
      auto login = find_login_pod(*session, name.starts_with("login-") ? "" : name, name.starts_with("login-") ? name : "");
      if (!login) return std::unexpected(std::move(login.error()));

      // The site's own key opens root's account only; others are entered by way of the API. So is a cluster elsewhere, whose pods have no address here.
      auto secret = session->get(kube::resources::secrets, login->space, login->cluster + "-ssh-client-key");
      auto host_keys = session->get(kube::resources::secrets, login->space, login->cluster + "-sshd-keys");
      const bool has_ssh = exists("/usr/bin/ssh");
      if (context.own_site() && user == "root" && has_ssh && secret && !login->address.empty()) {
        auto key = parse_base64((*secret)["data"]["ssh_ed25519"].string());
        if (!key) return pass(std::move(key.error()), "read the site's ssh key");
        char pattern[] = "/tmp/fairlead-ssh-XXXXXX";
        if (!::mkdtemp(pattern)) return fail_errno(errno, "make a folder for the ssh key");
        const std::string dir = pattern;
        struct Remove {
          std::string path;
          ~Remove() { (void)remove_tree(path); }
        } remove{dir};
        std::string known;
        if (host_keys)
          for (const auto& [file, value] : (*host_keys)["data"].members())
            if (file.ends_with(".pub"))
              if (auto line = parse_base64(value.string())) known += login->cluster + " " + std::string(trim(*line)) + "\n";
        if (auto done = write_file_atomically(dir + "/key", *key, 0600); !done) return std::unexpected(std::move(done.error()));
        if (auto done = write_file_atomically(dir + "/known_hosts", known, 0600); !done) return std::unexpected(std::move(done.error()));
        std::vector<std::string> argv{"/usr/bin/ssh", "-i", dir + "/key", "-o", "UserKnownHostsFile=" + dir + "/known_hosts", "-o", "HostKeyAlias=" + login->cluster,
                                      "-o", "StrictHostKeyChecking=" + std::string(known.empty() ? "no" : "yes"), "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", user + "@" + login->address};
        argv.insert(argv.end(), options->command.begin(), options->command.end());
        auto child = Child::start({.argv = argv, .environment = {}, .working_directory = "", .stdin_fd = STDIN_FILENO, .stdout_fd = STDOUT_FILENO, .stderr_fd = STDERR_FILENO});
        if (!child) return std::unexpected(std::move(child.error()));
        std::signal(SIGINT, SIG_IGN);  // ctrl-C is for the other side
        for (;;) {
          auto exit = child->wait(std::chrono::hours(24));
          if (!exit) return std::unexpected(std::move(exit.error()));
          if (!*exit) continue;
          // 255 is ssh's own failure: then by way of the API.
          if ((*exit)->code != 255 || !options->command.empty()) return (*exit)->code;
          break;
        }
        fmt::print(stderr, "fairlead: ssh to {} did not work, going by way of the API\n", login->address);
      }
      ExecOptions exec{.space = login->space, .pod = login->pod, .container = "sshd", .stdin_open = true, .tty = is_terminal(STDIN_FILENO)};
      exec.command = {"runuser", "-l", user};
      if (!options->command.empty()) {
        std::string line;
        for (const auto& word : options->command) line += (line.empty() ? "" : " ") + word;
        exec.command.insert(exec.command.end(), {"-c", line});
      }
      return exec_in_pod(*session, exec);
    };
  });
}

void add_run(CLI::App& app, Context& context) {
  struct Options {
    std::string cluster, user = "root";
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Run a command (srun) or submit a batch script (sbatch) on a Slurm cluster.\nOptions of srun or sbatch come before the command and are passed on.");
  command->add_option("--cluster", options->cluster, "which cluster, if there are several")->type_name("NAME");
  command->add_option("--user", options->user, "as this user of the cluster")->capture_default_str()->type_name("NAME");
  add_globals(*command, context);
  command->prefix_command();
  set_examples(*command, {{"fairlead run -N 2 hostname", "srun on two nodes"},
                          {"fairlead run --gres=gpu:1 nvidia-smi", "with a GPU"},
                          {"fairlead run -N 2 train.sh", "a local file that begins with #! is submitted with sbatch"}});
  command->callback([options, command, &context] {
    context.action = [options, command, &context]() -> Result<int> {
      std::vector<std::string> words = command->remaining();
      if (!words.empty() && words.front() == "--") words.erase(words.begin());
      for (std::string& word : words) word = as_typed(std::move(word));
      if (words.empty()) return fail(Code::Invalid, "usage: fairlead run COMMAND, e.g. `fairlead run -N 2 hostname`");
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      auto login = find_login_pod(*session, options->cluster);
      if (!login) return std::unexpected(std::move(login.error()));

      const auto is_script = [](const std::string& path) {
        struct stat about {};
        if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return false;
        auto text = read_file(path);
        return text && text->starts_with("#!");
      };
      const Words parts = split_words(words, is_script);
      std::string line = parts.script.empty() ? "srun" : "sbatch";
      for (const auto& word : parts.options) line += " " + shell_quote(word);
      std::string script;
      ExecOptions exec{.space = login->space, .pod = login->pod, .container = "sshd"};
      if (parts.script.empty()) {
        for (const auto& word : parts.command) line += " " + shell_quote(word);
        exec.stdin_open = true;
      } else {
        auto text = read_file(parts.script);
        if (!text) return std::unexpected(std::move(text.error()));
        script = std::move(*text);
        exec.input = &script;
        // sbatch reads the script from stdin and gives what follows "/dev/stdin" to it. Options given here win over those in the script.
        if (script.find("--job-name") == std::string::npos) line += " --job-name=" + shell_quote(parts.script.substr(parts.script.rfind('/') + 1));
        if (!parts.command.empty()) line += " /dev/stdin";
        for (const auto& word : parts.command) line += " " + shell_quote(word);
      }
      exec.command = {"runuser", "-l", options->user, "-c", line};
      return exec_in_pod(*session, exec);
    };
  });
}

}  // namespace fairlead::cli
