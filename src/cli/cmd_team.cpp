// SPDX-License-Identifier: Apache-2.0
// team list|members|add-member|remove-member: teams, and who may use their namespaces and queues (docs/task-governance.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "api/team_crds.h"
#include "api/user_roles.h"
#include "cli/command.h"
#include "cli/team_members.h"

namespace fairlead::cli {

using kube::Json;

namespace {

struct Options {
  std::string team;
  std::vector<std::string> who;
  bool dry_run = false;
};

Result<std::vector<Json>> teams_of(Session& session) {
  auto quotas = session.list(api::teams::quotas);
  if (!quotas && quotas.error().code == Code::NotFound) return fail(Code::NotFound, "there are no ComputeQuotas here: task governance is not installed (see docs/task-governance.md)");
  if (!quotas) return pass(std::move(quotas.error()), "list teams");
  std::erase_if(*quotas, [](const Json& one) { return one["status"]["namespace"].string().empty(); });  // refused ones are no teams yet
  return quotas;
}

Result<Json> binding_of(Session& session, const std::string& team) {
  auto teams = teams_of(session);
  if (!teams && teams.error().code != Code::Forbidden) return std::unexpected(std::move(teams.error()));
  const std::string space = "hyperpod-ns-" + team;
  if (teams && std::ranges::none_of(*teams, [&](const Json& one) { return one["status"]["namespace"].string() == space; })) {
    std::vector<std::string> names;
    for (const Json& one : *teams) names.push_back(one["status"]["inForce"]["teamName"].string());
    return fail(Code::NotFound, fmt::format("there is no team {}; there are: {}", team, names.empty() ? "none (a ComputeQuota makes one)" : fmt::format("{}", fmt::join(names, ", "))));
  }
  auto binding = session.get(api::rbac::role_bindings, space, "team-members");
  if (!binding && binding.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("namespace {} has no RoleBinding team-members yet: fairlead-server makes it; is it running, and of this version?", space));
  if (!binding) return pass(std::move(binding.error()), fmt::format("read RoleBinding {}/team-members", space));
  return binding;
}

Result<int> list(Context& context, const Options&) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto teams = teams_of(*session);
  if (!teams) return std::unexpected(std::move(teams.error()));
  Json out = Json::array();
  for (const Json& one : *teams) {
    const std::string& space = one["status"]["namespace"].string();
    const auto binding = session->get(api::rbac::role_bindings, space, "team-members");
    Json members = Json();
    if (binding) {
      members = Json::array();
      for (const Json& subject : (*binding)["subjects"].items()) members.push(text_of_subject(subject));
    }
    const Json* accepted = kube::find_condition(one, "Accepted");
    out.push(Json::object({{"team", one["status"]["inForce"]["teamName"]}, {"quota", kube::name_of(one)}, {"namespace", space}, {"localQueue", one["status"]["localQueue"]}, {"weight", one["status"]["inForce"]["fairShareWeight"].integer()},
                           {"accepted", accepted != nullptr && (*accepted)["status"].string() == "True"}, {"members", std::move(members)}}));
  }
  if (!context.wants("table")) {
    print_json_or_yaml(out, context.globals.output);
    return 0;
  }
  if (out.items().empty()) {
    fmt::print(stderr, "There are no teams: a ComputeQuota makes one (docs/task-governance.md).\n");
    return 0;
  }
  std::vector<Row> rows{{}};
  for (const char* title : {"TEAM", "WEIGHT", "MEMBERS", "NAMESPACE", "QUOTA"}) rows.front().push_back({.text = title, .style = Style::Dim});
  for (const Json& one : out.items()) {
    const bool fine = one["accepted"].boolean();
    rows.push_back({{.text = clean(one["team"].string())}, {.text = fmt::format("{}", one["weight"].integer())}, {.text = one["members"].is_null() ? "?" : fmt::format("{}", one["members"].items().size())}, {.text = clean(one["namespace"].string())},
                    {.text = clean(one["quota"].string()) + (fine ? "" : " (its last change was refused)"), .style = fine ? Style::Plain : Style::Warn}});
  }
  fmt::print("{}", draw_rows(rows, "", context.look()));
  return 0;
}

Result<int> members(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto binding = binding_of(*session, options.team);
  if (!binding) return std::unexpected(std::move(binding.error()));
  Json out = Json::array();
  for (const Json& subject : (*binding)["subjects"].items()) out.push(text_of_subject(subject));
  if (!context.wants("table")) print_json_or_yaml(out, context.globals.output);
  else if (out.items().empty()) fmt::print(stderr, "Team {} has no members: fairlead team add-member {} USER\n", options.team, options.team);
  else
    for (const Json& one : out.items()) fmt::print("{}\n", clean(one.string()));
  return 0;
}

Result<int> change(Context& context, const Options& options, bool add) {
  std::vector<Json> who;
  for (const std::string& text : options.who) {
    auto subject = read_subject(text);
    if (!subject) return std::unexpected(std::move(subject.error()));
    who.push_back(std::move(*subject));
  }
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  for (int attempt = 0;; ++attempt) {
    auto binding = binding_of(*session, options.team);
    if (!binding) return std::unexpected(std::move(binding.error()));
    std::string told;
    const bool changed = change_members(*binding, who, add, [&](const Json& subject, bool news) {
      told += fmt::format("{} {}{}\n", clean(text_of_subject(subject)), add ? (news ? "is a member of team " : "is a member already of team ") : (news ? "is no member any more of team " : "was no member of team "), options.team);
    });
    if (changed && !options.dry_run) {
      auto written = session->api().update(api::rbac::role_bindings, *binding);
      if (!written && written.error().code == Code::Conflict && attempt < 5) continue;  // somebody else changed it
      if (!written) return pass(std::move(written.error()), fmt::format("change RoleBinding {}/team-members", kube::space_of(*binding)));
    }
    fmt::print("{}{}", told, options.dry_run ? "(dry run: nothing was changed)\n" : "");
    return 0;
  }
}

}  // namespace

void add_team(CLI::App& app, Context& context) {
  CLI::App* team = app.add_subcommand("team", "Teams, and who may use their namespaces and queues\nMembers are the subjects of RoleBinding team-members in the team's namespace; plain YAML does the same.");
  team->require_subcommand(1);
  set_examples(*team, {{"fairlead team list", "all teams"}, {"fairlead team add-member vision ada group:interns", "a user and a group"}, {"fairlead team members vision", "who may use it"}});
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, const char* what, Result<int> (*work)(Context&, const Options&)) {
    CLI::App* command = team->add_subcommand(name, what);
    add_globals(*command, context);
    command->callback([options, work, &context] { context.action = [options, work, &context] { return work(context, *options); }; });
    return command;
  };
  CLI::App* listed = add("list", "Teams with their namespaces, weights and numbers of members", list);
  set_examples(*listed, {{"fairlead team list -o json", "for a script"}});
  CLI::App* shown = add("members", "Who may use a team's namespace and queue", members);
  CLI::App* added = add("add-member", "Let users, groups or service accounts work in a team's namespace", [](Context& of, const Options& given) { return change(of, given, true); });
  CLI::App* removed = add("remove-member", "Take that right away; what they started goes on", [](Context& of, const Options& given) { return change(of, given, false); });
  for (CLI::App* command : {shown, added, removed}) command->add_option("team", options->team, "as in spec.teamName of its ComputeQuota")->required();
  for (CLI::App* command : {added, removed}) {
    command->add_option("who", options->who, "USER, group:NAME or serviceaccount:NAMESPACE/NAME")->required();
    command->add_flag("--dry-run", options->dry_run, "say what would change, change nothing");
  }
  set_examples(*shown, {{"fairlead team members vision", "users, groups and service accounts"}});
  set_examples(*added, {{"fairlead team add-member vision ada", "a user"}, {"fairlead team add-member vision group:interns serviceaccount:ci/runner", "a group and a service account"}});
  set_examples(*removed, {{"fairlead team remove-member vision ada", "a user"}});
}

}  // namespace fairlead::cli
