// SPDX-License-Identifier: Apache-2.0
// apply, delete
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <thread>

#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;

void add_apply(CLI::App& app, Context& context) {
  struct Options {
    std::vector<std::string> files;
    bool dry_run = false, force = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("apply", "Create or change the objects of a file");
  command->add_option("-f,--filename", options->files, "YAML or JSON file, folder, or - for stdin")->required()->type_name("FILE");
  command->add_flag("--dry-run", options->dry_run, "let the server check, change nothing");
  command->add_flag("--force-conflicts", options->force, "take fields over that others have set");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead apply -f pod.yaml", "create or change it"}, {"fairlead apply -f - < pod.yaml", "from stdin"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      auto documents = read_documents(options->files);
      if (!documents) return std::unexpected(std::move(documents.error()));
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      for (const Json& document : *documents) {
        auto applied = apply_document(*session, document, {.dry_run = options->dry_run, .force = options->force});
        if (!applied) return std::unexpected(std::move(applied.error()));
        constexpr const char* kWords[] = {"created", "configured", "unchanged"};
        fmt::print("{} {}{}\n", title_of(document), kWords[static_cast<int>(*applied)], options->dry_run ? " (dry run)" : "");
      }
      return 0;
    };
  });
}

void add_delete(CLI::App& app, Context& context) {
  struct Options {
    std::vector<std::string> files, what;
    std::string space, selector;
    int grace = -1;
    bool wait = true, ignore_missing = false;
    double timeout = 120;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("delete", "Delete objects by file or by name");
  command->add_option("what", options->what, "KIND NAME..., or KIND/NAME...");
  command->add_option("-f,--filename", options->files, "the objects of this file")->type_name("FILE");
  command->add_option("-n,--namespace", options->space, "namespace")->type_name("NAME");
  command->add_option("--grace-period", options->grace, "seconds that a pod has to end; 0: at once");
  command->add_flag("!--no-wait", options->wait, "do not wait until they are gone");
  command->add_flag("--ignore-not-found", options->ignore_missing, "what is not there is fine");
  command->add_option("--timeout", options->timeout, "seconds to wait")->capture_default_str();
  add_globals(*command, context);
  set_examples(*command, {{"fairlead delete pod web", "by name"}, {"fairlead delete -f pod.yaml", "what the file names"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      struct Target {
        kube::Resource resource;
        std::string space, name;
        std::string uid{};  // of what was deleted
      };
      std::vector<Target> targets;
      if (!options->files.empty()) {
        auto documents = read_documents(options->files);
        if (!documents) return std::unexpected(std::move(documents.error()));
        for (auto it = documents->rbegin(); it != documents->rend(); ++it) {
          auto kind = session->find_kind((*it)["apiVersion"].string(), (*it)["kind"].string());
          if (!kind) return std::unexpected(std::move(kind.error()));
          const std::string space = kube::space_of(*it).empty() ? session->default_namespace() : kube::space_of(*it);
          targets.push_back({kind->resource, kind->resource.namespaced ? space : "", kube::name_of(*it)});
        }
      }
      std::string kind_text;
      for (const auto& word : options->what) {
        const auto slash = word.find('/');
        const std::string name = slash == std::string::npos ? word : word.substr(slash + 1);
        if (slash != std::string::npos) kind_text = word.substr(0, slash);
        if (slash == std::string::npos && kind_text.empty()) {
          kind_text = word;
          continue;
        }
        auto kind = session->find_kind(kind_text);
        if (!kind) return std::unexpected(std::move(kind.error()));
        const std::string space = options->space.empty() ? session->default_namespace() : options->space;
        targets.push_back({kind->resource, kind->resource.namespaced ? space : "", name});
        if (slash != std::string::npos) kind_text.clear();
      }
      if (targets.empty()) return fail(Code::Invalid, "usage: fairlead delete KIND NAME, or fairlead delete -f FILE");
      Json body = Json::object({{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}});
      if (options->grace >= 0) body.set("gracePeriodSeconds", options->grace);
      for (auto& target : targets) {
        auto done = session->request("DELETE", kube::path_of(target.resource, target.space, target.name), body);
        if (!done && !(options->ignore_missing && done.error().code == Code::NotFound)) return std::unexpected(std::move(done.error()));
        if (!done) continue;
        // The object as it goes, or a Status about it.
        target.uid = (*done)[(*done)["kind"].string() == "Status" ? "details" : "metadata"]["uid"].string();
        fmt::print("{} \"{}\" deleted\n", target.resource.plural, target.name);
      }
      if (!options->wait) return 0;
      const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(options->timeout));
      for (const auto& target : targets)
        for (;;) {
          auto there = session->get(target.resource, target.space, target.name);
          if (!there && there.error().code == Code::NotFound) break;
          if (!there) return std::unexpected(std::move(there.error()));
          if (!target.uid.empty() && kube::uid_of(*there) != target.uid) break;  // another one of this name, made by a controller
          if (context.clock.monotonic() > deadline)
            return fail(Code::Unavailable, fmt::format("{} {} is still there after {}: see its finalizers with `fairlead get {} {} -o yaml`", target.resource.plural, target.name, print_seconds(options->timeout), target.resource.plural, target.name));
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
      return 0;
    };
  });
}

}  // namespace fairlead::cli
