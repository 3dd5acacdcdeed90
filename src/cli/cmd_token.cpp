// SPDX-License-Identifier: Apache-2.0
// slurm token: a token by which a user's program speaks to slurmrestd (docs/slurm-rest.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "api/slurm_container.h"
#include "base/encoding.h"
#include "cli/command.h"
#include "cli/slurm_words.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

constexpr const char* kClusterLabel = "fairlead.dev/slurm-cluster";

struct Options {
  std::string user, cluster, space, lifespan = "30m";
  bool administrator = false;
};

// Any head will do: each asks the one that serves.
Result<kube::ObjectKey> find_head(Session& session, const Options& options) {
  auto pods = session.list_visible(kube::resources::pods, "fairlead.dev/slurm-role=controller");
  if (!pods) return std::unexpected(std::move(pods.error()));
  std::erase_if(*pods, [&](const Json& one) {
    return (!options.space.empty() && kube::space_of(one) != options.space) || (!options.cluster.empty() && kube::labels_of(one)[kClusterLabel] != options.cluster);
  });
  if (pods->empty()) return fail(Code::NotFound, options.cluster.empty() ? "there is no Slurm cluster" : fmt::format("there is no Slurm cluster {}", options.cluster));
  for (const Json& one : *pods)
    if (kube::space_of(one) != kube::space_of(pods->front()) || kube::labels_of(one)[kClusterLabel] != kube::labels_of(pods->front())[kClusterLabel])
      return fail(Code::Invalid, "there are several Slurm clusters: name one with --cluster, and its namespace with -n");
  for (const Json& one : *pods)
    if (kube::condition_is_true(one, "Ready") && !kube::deleting(one)) return kube::key_of(one);
  return fail(Code::Unavailable, "no head is ready: see `fairlead status`");
}

Result<int> print_token(Context& context, const Options& options) {
  if (const std::string trouble = trouble_of_user(options.user); !trouble.empty()) return fail(Code::Invalid, trouble);
  if ((options.user == "root" || options.user == "slurm") && !options.administrator)
    return fail(Code::Invalid, fmt::format("a token of {} may do everything in the cluster, also in the name of every user; say --administrator if that is meant", options.user));
  const auto lifespan = api::read_duration(options.lifespan);
  if (!lifespan || *lifespan < 1s) return fail(Code::Invalid, fmt::format("--lifespan: \"{}\" is not a time like 90s, 30m or 12h (up to a year)", options.lifespan));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto head = find_head(*session, options);
  if (!head) return std::unexpected(std::move(head.error()));
  auto known = session->api().exec(*head, "slurmctld", {"getent", "passwd", options.user}, "", 20s);
  if (!known) return pass(std::move(known.error()), fmt::format("ask {} for the user", head->name));
  if (known->exit_code != 0) return fail(Code::NotFound, fmt::format("the cluster has no user {}: make one with `adduser {}` on a login node", options.user, options.user));
  auto made = session->api().exec(*head, "slurmctld", {"scontrol", "token", "username=" + options.user, fmt::format("lifespan={}", lifespan->count())}, "", 30s);
  if (!made) return pass(std::move(made.error()), fmt::format("ask {} for a token", head->name));
  const std::string token = token_of(made->out);
  if (made->exit_code != 0 || token.empty())
    return fail(Code::Unavailable, fmt::format("slurmctld gives no token ({}): is spec.slurmNodes.rest.enabled true, and condition RestAvailable?", std::string(trim(made->err))));
  if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"user", options.user}, {"lifespanSeconds", lifespan->count()}, {"token", token}})));
  else fmt::print("{}\n", token);
  return 0;
}

}  // namespace

void add_slurm_token(CLI::App& app, Context& context) {
  CLI::App* slurm = app.get_subcommand("slurm");
  auto options = std::make_shared<Options>();
  CLI::App* command = slurm->add_subcommand("token", "Print a token by which a program speaks to slurmrestd as a user of the cluster\nIt goes to stdout and nowhere else. It counts until it expires; a new key (docs/slurm-rest.md) ends all at once.");
  command->add_option("user", options->user, "whose")->required();
  command->add_option("--lifespan", options->lifespan, "how long it counts: 90s, 30m, 12h")->capture_default_str()->type_name("TIME");
  command->add_option("--cluster", options->cluster, "which cluster, if there are several")->type_name("NAME");
  command->add_option("-n,--namespace", options->space, "of the cluster")->type_name("NAME");
  command->add_flag("--administrator", options->administrator, "allow a token of root or slurm");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead slurm token ada --lifespan 12h > token", "for a program of ada's, half a day"}});
  command->callback([options, &context] { context.action = [options, &context]() -> Result<int> { return print_token(context, *options); }; });
}

}  // namespace fairlead::cli
