// SPDX-License-Identifier: Apache-2.0
// cluster preflight: can clusters that Kubernetes orchestrates be made here? The checks of CreateCluster, all of them, before anybody asks for one (docs/design/063).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "api/identity_crds.h"
#include "cli/command.h"
#include "orchestrator/look.h"

namespace fairlead::cli {

using kube::Json;

namespace {

struct Options {
  std::vector<std::string> subnets, roles;
  std::string cluster_role, space = api::identities::default_space, mode;
};

// "node", "arn:aws:iam::111122223333:role/node": is there such a role?
Result<bool> has_role(Session& session, const std::string& named) {
  const std::string name = named.substr(named.rfind('/') + 1);
  if (!api::identities::is_name(name)) return false;
  const auto there = session.api().get(api::identities::identities, {"", api::identities::object_name(api::identities::Type::Role, name)});
  if (!there && there.error().code != Code::NotFound) return pass(there.error(), "read role " + name);
  return there.has_value();
}

Result<int> preflight(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const auto version = session->request("GET", "/version");
  if (!version) return pass(version.error(), "ask the API for its version");
  orchestrator::Facts facts = orchestrator::look(session->api(), options.space);
  facts.version = (*version)["gitVersion"].string();
  if (facts.version.starts_with('v')) facts.version.erase(0, 1);
  facts.version = facts.version.substr(0, facts.version.find_first_not_of("0123456789."));
  facts.authentication_mode = options.mode;
  orchestrator::Asked asked{.subnets = options.subnets, .nodes = {}, .autoscaler = {}};
  for (const std::string& role : options.roles) {
    const auto found = has_role(*session, role);
    if (!found) return std::unexpected(found.error());
    asked.nodes.push_back({.of = "--role " + role, .arn = role, .accelerated = false, .found = *found});
  }
  if (!options.cluster_role.empty()) {
    const auto found = has_role(*session, options.cluster_role);
    if (!found) return std::unexpected(found.error());
    asked.autoscaler = {.of = "--cluster-role", .arn = options.cluster_role, .accelerated = false, .found = *found};
  }
  const auto findings = orchestrator::check(facts, asked);
  const bool ready = orchestrator::objections(findings).empty();
  if (!context.wants("table")) {
    print_json_or_yaml(orchestrator::to_json(findings), context.globals.output);
    return ready ? 0 : 1;
  }
  const Look look = context.look();
  for (const auto& one : findings) {
    const Style style = one.verdict == orchestrator::Verdict::Ok ? Style::Good : one.verdict == orchestrator::Verdict::Failed ? Style::Bad : Style::Warn;
    fmt::print("{} {:<15}{}\n", paint(fmt::format("{:<8}", orchestrator::text(one.verdict)), style, look), one.check, clean(one.what));
    if (!one.advice.empty()) fmt::print("{:24}{}\n", "", paint(clean(one.advice), Style::Dim, look));
  }
  return ready ? 0 : 1;
}

}  // namespace

void add_cluster(CLI::App& app, Context& context) {
  CLI::App* cluster = app.add_subcommand("cluster", "Clusters of HyperPod's API");
  cluster->require_subcommand(1);
  set_examples(*cluster, {{"fairlead cluster preflight", "the checks of CreateCluster with Orchestrator Eks"}});
  auto options = std::make_shared<Options>();
  CLI::App* command = cluster->add_subcommand("preflight", "Can clusters that Kubernetes orchestrates be made here?");
  command->add_option("--subnet", options->subnets, "of VpcConfig: is it private?")->type_name("ID");
  command->add_option("--role", options->roles, "an ExecutionRole: is it there?")->type_name("NAME|ARN");
  command->add_option("--cluster-role", options->cluster_role, "ClusterRole: is it there, and another one?")->type_name("NAME|ARN");
  command->add_option("--authentication-mode", options->mode, "as aws eks describe-cluster tells it")->type_name("MODE");
  command->add_option("-n,--namespace", options->space, "of fairlead-server")->type_name("NAMESPACE")->capture_default_str();
  add_globals(*command, context);
  set_examples(*command, {{"fairlead cluster preflight --subnet subnet-0a1b2c3d --role node", "exit status 0: yes; 1: each reason is told, with what to do"}, {"fairlead cluster preflight --kubeconfig ~/.kube/config -o json", "of a Kubernetes cluster, for programs"}});
  command->callback([options, &context] { context.action = [options, &context] { return preflight(context, *options); }; });
}

}  // namespace fairlead::cli
