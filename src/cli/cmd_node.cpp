// SPDX-License-Identifier: Apache-2.0
// node list | kill | cut | heal | reboot: machines, and drills with local ones. cmd_host.cpp has node add | remove | bmc.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <thread>

#include "base/rng.h"
#include "cli/command.h"
#include "cli/readiness.h"

namespace fairlead::cli {

using kube::Json;
namespace resources = kube::resources;

namespace {

constexpr auto kPause = std::chrono::milliseconds(100);

// Patches the machine and waits until it is so; with `node_ready` also until its node tells that it is well (or no longer does).
Result<int> change(Context& context, const std::string& name, Json spec, const std::string& phase, std::optional<bool> node_ready, bool wait, double timeout, const std::string& told, bool force = false) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  if (auto machine = session->get(resources::machines, "", name); machine && (*machine)["spec"]["host"].is_object()) {
    if (spec["link"].string() == "Cut") return fail(Code::Unsupported, fmt::format("{} is a host: its network is not ours to cut", name));
    if (!(*machine)["spec"]["host"]["bmc"].is_object()) return fail(Code::Unsupported, fmt::format("{} is a host, and nobody has said where its BMC is, by which its power is switched: fairlead node bmc {} ADDRESS", name, name));
    if (spec["power"].string() == "Off" && !force) {
      auto busy = pods_on(*session, name);
      if (!busy) return std::unexpected(std::move(busy.error()));
      if (!busy->empty()) return fail(Code::Conflict, fmt::format("{} pods are on {} ({}{}): drain it first (kubectl drain {} --ignore-daemonsets), or say --force", busy->size(), name, busy->front(), busy->size() > 1 ? ", ..." : "", name));
    }
  }
  auto patched = session->request("PATCH", kube::path_of(resources::machines, "", name), Json::object({{"spec", std::move(spec)}}), "application/merge-patch+json");
  if (!patched && patched.error().code == Code::NotFound) {
    if (session->get(resources::nodes, "", name)) return fail(Code::Unsupported, fmt::format("{} is not a machine that Fairlead brought up, so its power and link are not ours", name));
    return fail(Code::NotFound, fmt::format("there is no machine \"{}\": see `fairlead node list`", name));
  }
  if (!patched) return std::unexpected(std::move(patched.error()));
  const std::int64_t generation = (*patched)["metadata"]["generation"].integer();
  Progress progress(context.look());
  progress.begin("machine " + name);
  const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout));
  bool machine_done = false;
  for (;;) {
    auto machine = session->get(resources::machines, "", name);
    if (!machine) {
      progress.fail();
      return std::unexpected(std::move(machine.error()));
    }
    const Json& status = (*machine)["status"];
    std::string waits_for = "the machine to be " + phase;
    if (!machine_done && status["phase"].string() == phase && status["observedGeneration"].integer() >= generation) {
      progress.end(told);
      machine_done = true;
      if (!wait || !node_ready) return 0;
      progress.begin("node " + name);
    }
    if (machine_done) {
      auto node = session->get(resources::nodes, "", name);
      const bool ready = node && kube::condition_is_true(*node, "Ready");
      if (ready == *node_ready) {
        progress.end(ready ? "ready again" : "the cluster has noticed: not ready");
        return 0;
      }
      waits_for = *node_ready ? "the node to be ready" : "the cluster to notice (its lease runs out)";
    } else if (const Json* condition = kube::find_condition(*machine, "Ready"); condition && (*condition)["reason"].string() == "StepFailed") {
      waits_for = (*condition)["message"].string();
    } else if (const std::string& power = status["power"]["message"].string(); !power.empty()) {
      waits_for += " (" + power + ")";
    }
    if (context.clock.monotonic() > deadline) {
      progress.fail(waits_for);
      return fail(Code::Unavailable, fmt::format("after {} still waiting for {}", print_seconds(timeout), waits_for));
    }
    progress.note("waiting for " + waits_for);
    std::this_thread::sleep_for(kPause);
  }
}

Result<void> no_reboot_under_way(const Json& machine, const std::string& name) {
  if (machine["spec"]["power"].string() == "Off") return fail(Code::Conflict, fmt::format("the power of {} is off: fairlead node heal {}", name, name));
  if (const std::string& asked = machine["spec"]["reboot"]["id"].string(); !asked.empty() && asked != machine["status"]["reboot"]["id"].string())
    return fail(Code::Conflict, fmt::format("a reboot of {} is asked for already, by {}", name, machine["spec"]["reboot"]["by"].string_or("somebody")));
  return {};
}

// Stops the machine's first process and everything on it, and starts it anew: the request that a check makes (docs/design/022), by a person.
Result<int> reboot(Context& context, const std::string& name, bool wait, double timeout, bool dry_run) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto machine = session->get(resources::machines, "", name);
  auto node = session->get(resources::nodes, "", name);
  if (!machine && machine.error().code == Code::NotFound)
    return node ? fail(Code::Unsupported, fmt::format("{} is not a machine that Fairlead brought up, so it cannot reboot it", name)) : fail(Code::NotFound, fmt::format("there is no machine \"{}\": see `fairlead node list`", name));
  if (!machine) return std::unexpected(std::move(machine.error()));
  if (auto free = no_reboot_under_way(*machine, name); !free) return std::unexpected(std::move(free.error()));
  if (dry_run) {
    auto pods = pods_on(*session, name);
    if (!pods) return std::unexpected(std::move(pods.error()));
    Json ended = Json::array(std::vector<Json>(pods->begin(), pods->end()));
    if (!context.wants("table")) {
      print_json_or_yaml(Json::object({{"machine", name}, {"dryRun", true}, {"pods", std::move(ended)}}), context.globals.output);
      return 0;
    }
    fmt::print("{} would be rebooted; the containers of {} pods there would end and start again{}\n", name, ended.items().size(), ended.items().empty() ? "" : ":");
    for (const Json& pod : ended.items()) fmt::print("  {}\n", pod.string());
    return 0;
  }
  const std::string id = random_uuid(), boot = node ? (*node)["status"]["nodeInfo"]["bootID"].string() : "";
  // Controllers write to the same object: overtaken by one, we look anew whether somebody else asked.
  for (int turn = 1;; ++turn) {
    const Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(*machine)}})}, {"spec", Json::object({{"reboot", Json::object({{"id", id}, {"by", "fairlead node reboot"}, {"why", nullptr}})}})}});
    auto patched = session->request("PATCH", kube::path_of(resources::machines, "", name), patch, "application/merge-patch+json");
    if (patched) break;
    if (patched.error().code != Code::Conflict || turn == 10) return std::unexpected(std::move(patched.error()));
    std::this_thread::sleep_for(turn * std::chrono::milliseconds(20));
    machine = session->get(resources::machines, "", name);
    if (!machine) return std::unexpected(std::move(machine.error()));
    if (auto free = no_reboot_under_way(*machine, name); !free) return std::unexpected(std::move(free.error()));
  }
  Progress progress(context.look());
  progress.begin("machine " + name);
  const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout));
  for (;;) {
    auto now = session->get(resources::machines, "", name);
    if (!now) {
      progress.fail();
      return std::unexpected(std::move(now.error()));
    }
    const Json& noted = (*now)["status"]["reboot"];
    std::string waits_for = "the machine to be stopped and started";
    if (noted["id"].string() == id && noted["phase"].string() == "Refused") {
      progress.fail(noted["message"].string());
      return fail(Code::Conflict, fmt::format("{} was not rebooted: {}", name, noted["message"].string()));
    }
    if (noted["id"].string() == id && noted["phase"].string() == "Done") {
      node = session->get(resources::nodes, "", name);
      if (!wait || (node && kube::condition_is_true(*node, "Ready") && (*node)["status"]["nodeInfo"]["bootID"].string() != boot)) {
        progress.end("rebooted: " + noted["message"].string());
        return 0;
      }
      waits_for = "its node to report";
    }
    if (context.clock.monotonic() > deadline) {
      progress.fail(waits_for);
      return fail(Code::Unavailable, fmt::format("after {} still waiting for {}", print_seconds(timeout), waits_for));
    }
    progress.note("waiting for " + waits_for);
    std::this_thread::sleep_for(kPause);
  }
}

std::string why_of(const Json& machine) {
  const Json* ready = kube::find_condition(machine, "Ready");
  return ready == nullptr ? "" : (*ready)["message"].string();
}

Result<int> list(Context& context) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto machines = session->list(resources::machines);
  if (!machines) return std::unexpected(std::move(machines.error()));
  if (!context.wants("table")) {
    print_json_or_yaml(Json::object({{"apiVersion", "v1"}, {"kind", "List"}, {"items", Json::array(*machines)}}), context.globals.output);
    return 0;
  }
  const Look look = context.look();
  std::vector<Row> rows{{{.text = "NAME", .style = Style::Dim}, {.text = "PHASE", .style = Style::Dim}, {.text = "NODE", .style = Style::Dim}, {.text = "ADDRESS", .style = Style::Dim}, {.text = "PODS", .style = Style::Dim},
                         {.text = "PID", .style = Style::Dim, .right = true}, {.text = "STARTS", .style = Style::Dim, .right = true}, {.text = "WHY", .style = Style::Dim}}};
  for (const auto& machine : *machines) {
    const Json& status = machine["status"];
    auto node = session->get(resources::nodes, "", kube::name_of(machine));
    const bool ready = node && kube::condition_is_true(*node, "Ready");
    const std::string phase = status["phase"].string_or("New");
    rows.push_back({{.text = kube::name_of(machine)}, {.text = phase, .style = phase == "Running" ? Style::Good : Style::Warn}, {.text = ready ? "Ready" : node ? "NotReady" : "-", .style = ready ? Style::Good : Style::Bad},
                    {.text = status["address"].string()}, {.text = status["podCIDR"].string()}, {.text = status.has("pid") ? std::to_string(status["pid"].integer()) : "-", .right = true},
                    {.text = machine["spec"]["host"].is_object() ? "-" : std::to_string(status["starts"].integer()), .right = true}, {.text = phase == "Running" ? "" : why_of(machine)}});
  }
  fmt::print("{}", draw_rows(rows, "", look));
  return 0;
}

}  // namespace

void add_node(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("node", "Machines: add hosts of yours, list, reboot, remove them, switch their power; cut the power or network of local ones for drills");
  command->require_subcommand(1);
  add_globals(*command, context);
  set_examples(*command, {{"fairlead node kill worker-0", "power cut: everything on it is gone at once"}, {"fairlead node cut worker-0", "its network link is taken away"}, {"fairlead node heal worker-0", "power and link are back"}, {"fairlead node reboot worker-0 --dry-run", "whose containers would end"}, {"fairlead node add gpu-07 --type ml.p5.48xlarge --spare", "a token by which a host joins"}});
  add_node_hosts(*command, context);

  CLI::App* listing = command->add_subcommand("list", "The machines, their nodes and first processes");
  add_globals(*listing, context);
  set_examples(*listing, {{"fairlead node list", ""}});
  listing->callback([&context] { context.action = [&context] { return list(context); }; });

  struct Options {
    std::string name;
    bool wait = true, dry_run = false, force = false;
    double timeout = 180;
  };
  std::shared_ptr<Options> last;
  const auto add = [&](const char* word, const char* about, auto make) {
    auto options = std::make_shared<Options>();
    last = options;
    CLI::App* sub = command->add_subcommand(word, about);
    sub->add_option("name", options->name, "machine")->required();
    sub->add_flag("--wait,!--no-wait", options->wait, "wait until the cluster has noticed (default)");
    sub->add_option("--timeout", options->timeout, "seconds to wait")->capture_default_str();
    add_globals(*sub, context);
    set_examples(*sub, {{std::string("fairlead node ") + word + " worker-0", about}});
    sub->callback([options, make, &context] { context.action = [options, make] { return make(*options); }; });
  };
  add("kill", "Power cut: everything on it is dead at once. Of a host by its BMC", [&context](const Options& options) {
    return change(context, options.name, Json::object({{"power", "Off"}}), "Off", false, options.wait, options.timeout, "power off; everything on it is dead", options.force);
  });
  command->get_subcommand("kill")->add_flag("--force", last->force, "even if pods are on that host");
  add("cut", "Partition: its network link is taken down, it runs on", [&context](const Options& options) {
    return change(context, options.name, Json::object({{"link", "Cut"}}), "Cut", false, options.wait, options.timeout, "link down; it runs on alone");
  });
  add("heal", "Power on and link up again", [&context](const Options& options) {
    return change(context, options.name, Json::object({{"power", "On"}, {"link", "Connected"}}), "Running", true, options.wait, options.timeout, "power on, link up");
  });

  auto options = std::make_shared<Options>();
  CLI::App* again = command->add_subcommand("reboot", "Stop it and start it anew: everything on it ends and starts again, whether somebody works there or not");
  again->add_option("name", options->name, "machine")->required();
  again->add_flag("--wait,!--no-wait", options->wait, "wait until its node reports again (default)");
  again->add_option("--timeout", options->timeout, "seconds to wait")->capture_default_str();
  again->add_flag("--dry-run", options->dry_run, "tell whose containers would end, change nothing");
  add_globals(*again, context);
  set_examples(*again, {{"fairlead node reboot worker-0", ""}, {"fairlead node reboot worker-0 --dry-run", "whose containers would end"}});
  again->callback([options, &context] { context.action = [options, &context] { return reboot(context, options->name, options->wait, options->timeout, options->dry_run); }; });
}

}  // namespace fairlead::cli
