// SPDX-License-Identifier: Apache-2.0
// identity create|list|delete|enable|disable, identity key add|list|activate|deactivate|delete: users and roles of the AWS face, and their access keys (docs/identities.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "api/identity_crds.h"
#include "base/encoding.h"
#include "cli/command.h"
#include "cli/identities.h"
#include "iam/policy.h"
#include "iam/simulate.h"

namespace fairlead::cli {

using api::identities::AccessKey;
using kube::Json;

namespace {

struct Options {
  std::string name, path, trust, boundary, description, key_id;
  std::vector<std::string> policies;
  std::int64_t max_session = 0;
  bool role = false, dry_run = false, with_keys = false;
};

api::identities::Type type_of(const Options& options) { return options.role ? api::identities::Type::Role : api::identities::Type::User; }

Result<std::string> read_checked(const std::string& path, iam::PolicyKind kind) {
  auto text = read_policy_text(path);
  if (!text) return text;
  auto policy = iam::read_policy(*text, kind);
  if (!policy) return pass(std::move(policy.error()), path);
  for (const std::string& doubt : iam::doubts(*policy, kind)) fmt::print(stderr, "{}: {}\n", path, clean(doubt));
  return text;
}

// "NAME=FILE", or FILE, whose name without its ending it has then.
std::pair<std::string, std::string> name_and_file(const std::string& text) {
  if (const auto equals = text.find('='); equals != std::string::npos && equals > 0 && text.substr(0, equals).find('/') == std::string::npos) return {text.substr(0, equals), text.substr(equals + 1)};
  std::string name = text.substr(text.rfind('/') == std::string::npos ? 0 : text.rfind('/') + 1);
  if (const auto dot = name.rfind('.'); dot != std::string::npos && dot > 0) name.resize(dot);
  return {name == "-" ? "stdin" : name, text};
}

Result<int> create(Context& context, const Options& options) {
  if (!api::identities::is_name(options.name)) return fail(Code::Invalid, fmt::format("\"{}\": a name has 1 to 64 of letters, digits and +=,.@_-", options.name));
  if (options.role && options.trust.empty()) return fail(Code::Invalid, "a role needs --trust FILE: a policy that says who may assume it");
  if (!options.role && (!options.trust.empty() || options.max_session != 0)) return fail(Code::Invalid, "--trust and --max-session are of a role: say --role, too");
  Json spec = Json::object({{"type", std::string(text(type_of(options)))}, {"name", options.name}});
  if (!options.path.empty()) spec.set("path", options.path);
  if (!options.description.empty()) spec.set("description", options.description);
  if (options.max_session != 0) spec.set("maxSessionSeconds", options.max_session);
  Json policies = Json::array();
  for (const std::string& one : options.policies) {
    const auto [name, file] = name_and_file(one);
    auto document = read_checked(file, iam::PolicyKind::Identity);
    if (!document) return std::unexpected(std::move(document.error()));
    if (std::ranges::any_of(policies.items(), [&](const Json& other) { return other["name"].string() == name; })) return fail(Code::Invalid, fmt::format("two policies {}: give one another name, by NAME=FILE", name));
    policies.push(Json::object({{"name", name}, {"document", *document}}));
  }
  if (!policies.items().empty()) spec.set("policies", std::move(policies));
  for (const auto& [file, field, kind] : {std::tuple{&options.trust, "trustPolicy", iam::PolicyKind::Resource}, {&options.boundary, "permissionsBoundary", iam::PolicyKind::Identity}}) {
    if (file->empty()) continue;
    auto document = read_checked(*file, kind);
    if (!document) return std::unexpected(std::move(document.error()));
    spec.set(field, *document);
  }
  const std::string object = api::identities::object_name(type_of(options), options.name);
  const Json identity = Json::object({{"apiVersion", api::identities::identities.api_version()}, {"kind", "Identity"}, {"metadata", Json::object({{"name", object}})}, {"spec", std::move(spec)}});
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const auto done = apply_document(*session, identity, {.dry_run = options.dry_run});
  if (!done) return std::unexpected(done.error());
  const char* const word = *done == Applied::Created ? "created" : *done == Applied::Configured ? "changed" : "as it was";
  fmt::print("identity/{} {}{}\n", object, word, options.dry_run ? " (dry run: nothing was changed)" : "");
  if (*done == Applied::Created && !options.dry_run) {
    if (options.policies.empty()) fmt::print(stderr, "It may do nothing yet: give it policies by --policy FILE.\n");
    if (!options.role) fmt::print(stderr, "Make it a key with `fairlead identity key add {}`.\n", options.name);
  }
  return 0;
}

Result<int> list(Context& context, const Options&) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto objects = identities_of(*session);
  if (!objects) return std::unexpected(std::move(objects.error()));
  const auto keys = keys_of(*session);  // who may not read Secrets still sees identities
  const auto settings = settings_of(*session);
  Json out = Json::array();
  for (const Json& object : *objects) {
    const Json& spec = object["spec"];
    std::int64_t active = 0;
    if (keys) active = std::ranges::count_if(*keys, [&](const AccessKey& key) { return key.identity == kube::name_of(object) && key.active; });
    Json names = Json::array();
    for (const Json& policy : spec["policies"].items()) names.push(policy["name"]);
    for (const Json& arn : spec["attachedPolicies"].items()) names.push(arn.string().substr(arn.string().rfind('/') + 1));
    const bool user = spec["type"].string() == "User";
    out.push(Json::object({{"type", spec["type"]}, {"name", spec["name"]}, {"arn", fmt::format("arn:aws:iam::{}:{}{}{}", settings ? settings->account : "?", user ? "user" : "role", spec["path"].string_or("/"), spec["name"].string())}, {"policies", std::move(names)}, {"disabled", spec["disabled"].boolean()}, {"activeKeys", keys ? Json(active) : Json()}}));
  }
  if (!context.wants("table")) {
    print_json_or_yaml(out, context.globals.output);
    return 0;
  }
  if (out.items().empty()) {
    fmt::print(stderr, "There are no identities: fairlead identity create NAME --policy FILE\n");
    return 0;
  }
  std::vector<Row> rows{{}};
  for (const char* title : {"TYPE", "NAME", "KEYS", "POLICIES", "ARN"}) rows.front().push_back({.text = title, .style = Style::Dim});
  for (const Json& one : out.items()) {
    std::vector<std::string> names;
    for (const Json& name : one["policies"].items()) names.push_back(clean(name.string()));
    const bool off = one["disabled"].boolean();
    rows.push_back({{.text = clean(one["type"].string())}, {.text = clean(one["name"].string()) + (off ? " (disabled)" : ""), .style = off ? Style::Warn : Style::Plain}, {.text = one["type"].string() == "Role" ? "–" : one["activeKeys"].is_null() ? "?" : fmt::format("{}", one["activeKeys"].integer())}, {.text = names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))}, {.text = clean(one["arn"].string())}});
  }
  fmt::print("{}", draw_rows(rows, "", context.look()));
  return 0;
}

Result<int> set_disabled(Context& context, const Options& options, bool disabled) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const std::string object = api::identities::object_name(type_of(options), options.name);
  const auto done = session->api().patch(api::identities::identities, {"", object}, kube::PatchType::Merge, Json::object({{"spec", Json::object({{"disabled", disabled}})}}));
  if (!done && done.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no {} {}: see `fairlead identity list`", options.role ? "role" : "user", options.name));
  if (!done) return pass(done.error(), "change identity " + object);
  fmt::print("identity/{} {}\n", object, disabled ? "disabled: its keys and sessions are refused from now on" : "enabled");
  return 0;
}

Result<int> remove(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const std::string object = api::identities::object_name(type_of(options), options.name);
  auto keys = keys_of(*session);
  if (!keys) return std::unexpected(std::move(keys.error()));
  std::erase_if(*keys, [&](const AccessKey& key) { return key.identity != object; });
  if (std::ranges::any_of(*keys, [](const AccessKey& key) { return key.active; }) && !options.with_keys)
    return fail(Code::Conflict, fmt::format("{} has an active access key; deactivate it first and see that nothing needs it (fairlead identity key deactivate {}), or say --with-keys", options.name, keys->front().id));
  if (options.dry_run) {
    fmt::print("identity/{} and {} access keys would be deleted (dry run)\n", object, keys->size());
    return 0;
  }
  // The identity first: from then on its keys are worth nothing, whatever becomes of this command.
  const auto done = session->api().remove(api::identities::identities, {"", object});
  if (!done && done.error().code != Code::NotFound) return pass(done.error(), "delete identity " + object);
  for (const AccessKey& key : *keys)
    if (auto gone = session->api().remove(kube::resources::secrets, {api::identities::default_space, api::identities::key_object_name(key.id)}); !gone && gone.error().code != Code::NotFound) return pass(gone.error(), "delete key " + key.id);
  if (!done && keys->empty()) return fail(Code::NotFound, fmt::format("there is no {} {}: see `fairlead identity list`", options.role ? "role" : "user", options.name));
  fmt::print("identity/{} deleted{}\n", object, keys->empty() ? "" : fmt::format(", with {} access keys", keys->size()));
  return 0;
}

Result<int> key_add(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto key = add_key(*session, options.name);
  if (!key) return std::unexpected(std::move(key.error()));
  if (!context.wants("table")) {
    print_json_or_yaml(Json::object({{"AccessKey", Json::object({{"UserName", options.name}, {"AccessKeyId", key->id}, {"SecretAccessKey", key->secret}, {"Status", "Active"}})}}), context.globals.output);
    return 0;
  }
  fmt::print("aws_access_key_id = {}\naws_secret_access_key = {}\n", key->id, key->secret);
  fmt::print(stderr, "Keep the secret; or have it put into an environment each time: fairlead aws run {} -- aws sts get-caller-identity\n", options.name);
  return 0;
}

Result<int> key_list(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto keys = keys_of(*session);
  if (!keys) return std::unexpected(std::move(keys.error()));
  const std::string wanted = options.name.empty() ? "" : api::identities::object_name(api::identities::Type::User, options.name);
  Json out = Json::array();
  for (const AccessKey& key : *keys)
    if (wanted.empty() || key.identity == wanted) out.push(Json::object({{"AccessKeyId", key.id}, {"identity", key.identity}, {"Status", key.active ? "Active" : "Inactive"}}));
  if (!context.wants("table")) {
    print_json_or_yaml(out, context.globals.output);
    return 0;
  }
  if (out.items().empty()) {
    fmt::print(stderr, "There are no access keys{}: fairlead identity key add USER\n", options.name.empty() ? "" : " of " + options.name);
    return 0;
  }
  std::vector<Row> rows{{}};
  for (const char* title : {"KEY", "STATUS", "IDENTITY"}) rows.front().push_back({.text = title, .style = Style::Dim});
  for (const Json& one : out.items()) rows.push_back({{.text = clean(one["AccessKeyId"].string())}, {.text = one["Status"].string(), .style = one["Status"].string() == "Active" ? Style::Plain : Style::Warn}, {.text = clean(one["identity"].string())}});
  fmt::print("{}", draw_rows(rows, "", context.look()));
  return 0;
}

Result<int> key_status(Context& context, const Options& options, bool active) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const kube::ObjectKey key{api::identities::default_space, api::identities::key_object_name(options.key_id)};
  const auto done = session->api().patch(kube::resources::secrets, key, kube::PatchType::Merge, Json::object({{"data", Json::object({{"status", base64(active ? "Active" : "Inactive")}})}}));
  if (!done && done.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no access key {}: see `fairlead identity key list`", options.key_id));
  if (!done) return pass(done.error(), "change key " + options.key_id);
  fmt::print("{} {}\n", clean(options.key_id), active ? "is active" : "is refused from now on");
  return 0;
}

Result<int> key_delete(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const kube::ObjectKey key{api::identities::default_space, api::identities::key_object_name(options.key_id)};
  const auto there = session->api().get(kube::resources::secrets, key);
  if (!there && there.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no access key {}: see `fairlead identity key list`", options.key_id));
  if (!there) return pass(there.error(), "read key " + options.key_id);
  if (const auto done = session->api().remove(kube::resources::secrets, key); !done && done.error().code != Code::NotFound) return pass(done.error(), "delete key " + options.key_id);
  fmt::print("{} deleted\n", clean(options.key_id));
  return 0;
}

}  // namespace

void add_identity(CLI::App& app, Context& context) {
  CLI::App* identity = app.add_subcommand("identity", "Users and roles of the AWS face, their policies and access keys\nEach is an Identity object; plain YAML does the same (kubectl explain identity.spec). What no policy allows is refused.");
  identity->require_subcommand(1);
  set_examples(*identity, {{"fairlead identity create ada --policy trainers.json", "a user"}, {"fairlead identity key add ada", "a key for her"}, {"fairlead identity list", "who there is"}});
  auto options = std::make_shared<Options>();
  const auto add = [&](CLI::App* to, const char* name, const char* what, Result<int> (*work)(Context&, const Options&)) {
    CLI::App* command = to->add_subcommand(name, what);
    add_globals(*command, context);
    command->callback([options, work, &context] { context.action = [options, work, &context] { return work(context, *options); }; });
    return command;
  };
  CLI::App* created = add(identity, "create", "Make a user or a role, or change it to what is said now", create);
  created->add_option("--policy", options->policies, "what it may do: a document in the grammar of IAM; several")->type_name("[NAME=]FILE");
  created->add_option("--trust", options->trust, "of a role: who may assume it")->type_name("FILE");
  created->add_option("--boundary", options->boundary, "what it may do at most, whatever its policies say")->type_name("FILE");
  created->add_option("--path", options->path, "in its ARN: /team/")->type_name("PATH");
  created->add_option("--description", options->description, "for people")->type_name("TEXT");
  created->add_option("--max-session", options->max_session, "of a role: for how long it may be assumed, in seconds")->check(CLI::Range(3600, 43200));
  created->add_flag("--dry-run", options->dry_run, "say what would change, change nothing");
  set_examples(*created, {{"fairlead identity create ada --policy trainers.json", "a user"}, {"fairlead identity create --role deploy --trust who.json --policy deploy.json", "a role"}});
  CLI::App* listed = add(identity, "list", "Users and roles with their policies and keys", list);
  set_examples(*listed, {{"fairlead identity list -o json", "for a script"}});
  CLI::App* deleted = add(identity, "delete", "Delete one, with its inactive access keys", remove);
  deleted->add_flag("--with-keys", options->with_keys, "the active ones, too");
  deleted->add_flag("--dry-run", options->dry_run, "say what would be deleted, delete nothing");
  set_examples(*deleted, {{"fairlead identity delete ada", "a user"}, {"fairlead identity delete --role deploy", "a role"}});
  CLI::App* off = add(identity, "disable", "Refuse its keys and sessions at once, and keep all of it", [](Context& of, const Options& given) { return set_disabled(of, given, true); });
  set_examples(*off, {{"fairlead identity disable ada", "her laptop is gone"}});
  CLI::App* on = add(identity, "enable", "Let it in again", [](Context& of, const Options& given) { return set_disabled(of, given, false); });
  set_examples(*on, {{"fairlead identity enable ada", "it was found"}});
  for (CLI::App* command : {created, deleted, off, on}) {
    command->add_option("name", options->name, "as in its ARN")->required();
    command->add_flag("--role", options->role, "a role, not a user");
  }

  CLI::App* key = identity->add_subcommand("key", "Access keys of users: two at most, so that one can be changed while the other is in use");
  key->require_subcommand(1);
  set_examples(*key, {{"fairlead identity key add ada", "a key; then deactivate and delete the old one"}, {"fairlead identity key list", "all"}});
  CLI::App* key_added = add(key, "add", "Make one; its secret is shown once", key_add);
  key_added->add_option("user", options->name, "whose")->required();
  set_examples(*key_added, {{"fairlead identity key add ada", "as a credentials file has it"}, {"fairlead identity key add ada -o json", "as `aws iam create-access-key` prints it"}});
  CLI::App* key_listed = add(key, "list", "Keys without their secrets", key_list);
  key_listed->add_option("user", options->name, "only hers");
  set_examples(*key_listed, {{"fairlead identity key list ada", "of one user"}});
  CLI::App* key_off = add(key, "deactivate", "Refuse a key from now on; it can be activated again", [](Context& of, const Options& given) { return key_status(of, given, false); });
  set_examples(*key_off, {{"fairlead identity key deactivate AKIAIOSFODNN7EXAMPLE", "the old one"}});
  CLI::App* key_on = add(key, "activate", "Let a key in again", [](Context& of, const Options& given) { return key_status(of, given, true); });
  set_examples(*key_on, {{"fairlead identity key activate AKIAIOSFODNN7EXAMPLE", "something still needed it"}});
  CLI::App* key_gone = add(key, "delete", "Delete a key for good", key_delete);
  set_examples(*key_gone, {{"fairlead identity key delete AKIAIOSFODNN7EXAMPLE", "after a while without it"}});
  for (CLI::App* command : {key_off, key_on, key_gone}) command->add_option("key", options->key_id, "its id")->required();
}

}  // namespace fairlead::cli
