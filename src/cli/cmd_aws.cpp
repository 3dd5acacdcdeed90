// SPDX-License-Identifier: Apache-2.0
// aws env, aws run: an environment in which AWS's own tools speak to this site (docs/hyperpod-api.md).
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "cli/command.h"
#include "cli/identities.h"

namespace fairlead::cli {

using api::identities::AccessKey;
using kube::Json;

namespace {

struct Options {
  std::string user;
  std::vector<std::string> command;
};

struct Environment {
  std::vector<std::pair<std::string, std::string>> set;
  std::vector<std::string> unset;
};

// The site's authority lies in a file, since that is how all of AWS's tools take one.
Result<std::string> write_ca(const AwsSettings& settings) {
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  // Whoever can put another file there reads all that is sent: no folder that others may write.
  const std::string base = state != nullptr && *state != '\0' ? state : home != nullptr && *home != '\0' ? std::string(home) + "/.local/state" : "";
  if (base.empty() || base[0] != '/') return fail(Code::Invalid, "HOME is not set: the site's certificate authority is written below it");
  const std::string folder = base + "/fairlead";
  if (auto made = make_dirs(folder, 0700); !made) return std::unexpected(made.error());
  const std::string path = fmt::format("{}/aws-ca-{}.pem", folder, settings.account);
  if (auto have = read_file(path); have && *have == settings.ca_pem) return path;
  if (auto done = write_file_durably(path, settings.ca_pem, 0644); !done) return std::unexpected(done.error());
  return path;
}

Result<Environment> environment(Context& context, const std::string& user) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto settings = settings_of(*session);
  if (!settings) return std::unexpected(std::move(settings.error()));
  auto ca = write_ca(*settings);
  if (!ca) return std::unexpected(std::move(ca.error()));
  Environment out{{{"AWS_ENDPOINT_URL", settings->endpoint}, {"AWS_REGION", settings->region}, {"AWS_DEFAULT_REGION", settings->region}, {"AWS_CA_BUNDLE", *ca}, {"NODE_EXTRA_CA_CERTS", *ca}}, {}};
  // Of the AWS account that a user may have as well.
  out.unset = {"AWS_ENDPOINT_URL_SAGEMAKER", "AWS_ENDPOINT_URL_STS", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"};
  if (user.empty()) return out;
  auto keys = keys_of(*session);
  if (!keys) return std::unexpected(std::move(keys.error()));
  const std::string object = api::identities::object_name(api::identities::Type::User, user);
  const auto key = std::find_if(keys->begin(), keys->end(), [&](const AccessKey& one) { return one.identity == object && one.active; });
  if (key == keys->end()) return fail(Code::NotFound, fmt::format("user {} has no active access key: fairlead identity key add {}", user, user));
  out.set.emplace_back("AWS_ACCESS_KEY_ID", key->id);
  out.set.emplace_back("AWS_SECRET_ACCESS_KEY", key->secret);
  for (const char* const name : {"AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"}) out.unset.emplace_back(name);
  return out;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Result<int> env(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto made = environment(context, options.user);
  if (!made) return std::unexpected(std::move(made.error()));
  if (!context.wants("table")) {
    Json out = Json::object();
    for (const auto& [name, value] : made->set) out.set(name, value);
    print_json_or_yaml(out, context.globals.output);
    return 0;
  }
  if (!made->unset.empty()) fmt::print("unset {}\n", fmt::join(made->unset, " "));
  for (const auto& [name, value] : made->set) fmt::print("export {}={}\n", name, quoted(value));
  return 0;
}

Result<int> run(Context& context, const Options& options) {
  auto made = environment(context, options.user);
  if (!made) return std::unexpected(std::move(made.error()));
  for (const std::string& name : made->unset) ::unsetenv(name.c_str());
  for (const auto& [name, value] : made->set) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : options.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int error = errno;
  return fail(error == ENOENT ? Code::NotFound : Code::Invalid, fmt::format("{}: {}", options.command.front(), std::strerror(error)));
}

}  // namespace

void add_aws(CLI::App& app, Context& context) {
  CLI::App* aws = app.add_subcommand("aws", "Have AWS's own tools (boto3, the AWS CLI, the SDKs, hyp) speak to this site");
  aws->require_subcommand(1);
  set_examples(*aws, {{"fairlead aws run ada -- aws sagemaker list-clusters", "one command"}, {"eval \"$(fairlead aws env ada)\"", "this shell"}});
  auto options = std::make_shared<Options>();
  CLI::App* shown = aws->add_subcommand("env", "Variables for a shell: endpoint, region, authority and, with a user, an access key");
  add_globals(*shown, context);
  shown->add_option("user", options->user, "whose key");
  shown->callback([options, &context] { context.action = [options, &context] { return env(context, *options); }; });
  set_examples(*shown, {{"eval \"$(fairlead aws env ada)\"", "as user ada from now on"}, {"fairlead aws env -o json", "without a key, for a program"}});
  CLI::App* started = aws->add_subcommand("run", "Run one command with them; no secret is shown");
  add_globals(*started, context);
  started->add_option("user", options->user, "whose key")->required();
  add_command_words(*started, options->command, "and its arguments, behind --")->required();
  started->callback([options, &context] { context.action = [options, &context] { return run(context, *options); }; });
  set_examples(*started, {{"fairlead aws run ada -- aws sts get-caller-identity", "who am I"}, {"fairlead aws run ada -- python3 train.py", "a script with boto3"}});
}

}  // namespace fairlead::cli
