// SPDX-License-Identifier: Apache-2.0
// kubeconfig, version, render, completion
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/files.h"
#include "cli/command.h"
#include "cli/program.h"

namespace fairlead::cli {

using kube::Json;

void add_site(CLI::App& app, Context& context) {
  CLI::App* kubeconfig = app.add_subcommand("kubeconfig", "Print the path of the site's kubeconfig");
  add_globals(*kubeconfig, context);
  set_examples(*kubeconfig, {{"export KUBECONFIG=$(fairlead kubeconfig)", "and then kubectl"}});
  kubeconfig->callback([&context] {
    context.action = [&context]() -> Result<int> {
      if (auto session = context.session(); !session) return std::unexpected(std::move(session.error()));
      fmt::print("{}\n", context.kubeconfig());
      return 0;
    };
  });

  CLI::App* version = app.add_subcommand("version", "Versions of this program and of the site's server");
  add_globals(*version, context);
  set_examples(*version, {{"fairlead version -o json", ""}});
  version->callback([&context] {
    context.action = [&context]() -> Result<int> {
      std::string server;
      if (auto session = context.session())
        if (auto answer = session->request("GET", "/version")) server = (*answer)["gitVersion"].string();
      if (!context.wants("table"))
        print_json_or_yaml(Json::object({{"client", FAIRLEAD_VERSION}, {"server", server.empty() ? Json() : Json(server)}}), context.globals.output);
      else
        fmt::print("fairlead {}\nserver   {}\n", FAIRLEAD_VERSION, server.empty() ? "not running" : server);
      return 0;
    };
  });
}

void add_render(CLI::App& app, Context& context) {
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("render", "Print what a file's objects lead to, e.g. slurm.conf, without a site");
  command->add_option("-f,--filename", *files, "YAML or JSON file, folder, or - for stdin")->required()->type_name("FILE");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead render -f examples/demo.yaml", "slurm.conf, gres.conf, cgroup.conf of the demo"}, {"fairlead render -f examples/demo.yaml -o json", "by object and file name"}});
  command->callback([files, &context] {
    context.action = [files, &context]() -> Result<int> {
      auto documents = read_documents(*files);
      if (!documents) return std::unexpected(std::move(documents.error()));
      Json all = Json::object();
      std::string text;
      for (const auto& document : *documents) {
        if (!context.hooks.render) break;
        auto rendered = context.hooks.render(document);
        if (!rendered) return std::unexpected(std::move(rendered.error()).in(title_of(document)));
        if (rendered->empty()) continue;
        Json of = Json::object();
        for (const auto& [name, content] : *rendered) {
          of.set(name, content);
          text += fmt::format("# ---- {} {}\n{}{}", title_of(document), name, content, content.ends_with('\n') ? "\n" : "\n\n");
        }
        all.set(title_of(document), std::move(of));
      }
      if (!context.wants("table"))
        print_json_or_yaml(all, context.globals.output);
      else if (text.empty())
        for (const auto& document : *documents) fmt::print("---\n{}", kube::print_yaml(document));
      else
        fmt::print("{}", text);
      return 0;
    };
  });
}

void add_completion(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  add_globals(*command, context);
  set_examples(*command, {{"source <(fairlead completion bash)", "in ~/.bashrc"}, {"fairlead completion fish > ~/.config/fish/completions/fairlead.fish", ""}});
  command->callback([shell, &app, &context] {
    context.action = [shell, &app]() -> Result<int> {
      auto script = completion_script(app, *shell);
      if (!script) return std::unexpected(std::move(script.error()));
      fmt::print("{}", *script);
      return 0;
    };
  });
}

}  // namespace fairlead::cli
