// SPDX-License-Identifier: Apache-2.0
// policy check, policy simulate: documents in the grammar of IAM, read and tried before they are in force. They need no site, unless an identity of one is asked about.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>

#include "api/identity_crds.h"
#include "cli/command.h"
#include "cli/identities.h"
#include "cli/policy_picture.h"
#include "iam/simulate.h"

namespace fairlead::cli {

using kube::Json;

Result<std::string> read_policy_text(const std::string& path) {
  const auto read = [&](std::istream& in) {
    std::string out(iam::most_policy_bytes + 1, '\0');
    in.read(out.data(), static_cast<std::streamsize>(out.size()));
    out.resize(static_cast<std::size_t>(in.gcount()));
    return out;
  };
  if (path == "-") return read(std::cin);
  std::ifstream in(path, std::ios::binary);
  std::string out = in ? read(in) : std::string();
  if (!in && !in.eof()) return fail(Code::NotFound, fmt::format("{}: it cannot be read; name a file with a policy document, or - for what comes in", path));
  return out;
}

namespace {

Result<iam::Document> read_document(const std::string& path, iam::PolicyKind kind) {
  auto text = read_policy_text(path);
  if (!text) return std::unexpected(std::move(text.error()));
  auto policy = iam::read_policy(*text, kind);
  if (!policy) return pass(std::move(policy.error()), path);
  return iam::Document{path, std::move(*policy)};
}

Result<std::optional<iam::Bundle>> read_bundle(const std::vector<std::string>& paths, iam::PolicyKind kind, std::vector<iam::Document> all = {}) {
  for (const std::string& path : paths) {
    auto one = read_document(path, kind);
    if (!one) return std::unexpected(std::move(one.error()));
    all.push_back(std::move(*one));
  }
  if (all.empty()) return std::nullopt;
  return std::optional<iam::Bundle>(std::in_place, std::move(all), kind);
}

// A document with a principal is a resource's, unless one says which it is.
Result<iam::PolicyKind> kind_of(const std::string& text, const std::string& named) {
  if (named == "identity") return iam::PolicyKind::Identity;
  if (named == "resource") return iam::PolicyKind::Resource;
  if (named != "auto") return fail(Code::Invalid, fmt::format("usage: --kind {} is not known; say identity or resource", named));
  const auto json = kube::parse_json(text);
  if (!json) return iam::PolicyKind::Identity;  // what is wrong with it is said when it is read
  const Json& statements = (*json)["Statement"];
  for (const Json& one : statements.is_array() ? statements.items() : std::vector<Json>{statements})
    if (one.has("Principal") || one.has("NotPrincipal")) return iam::PolicyKind::Resource;
  return iam::PolicyKind::Identity;
}

Result<int> check(const std::vector<std::string>& paths, const std::string& named, const Context& context) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  Json results = Json::array();
  int wrong = 0;
  for (const std::string& path : paths) {
    Json result = Json::object({{"document", path}});
    auto text = read_policy_text(path);
    const auto kind = text ? kind_of(*text, named) : Result<iam::PolicyKind>(iam::PolicyKind::Identity);
    if (!kind) return std::unexpected(kind.error());
    const auto policy = text ? iam::read_policy(*text, *kind) : Result<iam::Policy>(std::unexpected(text.error()));
    if (!policy) {
      ++wrong;
      result.set("valid", false).set("error", policy.error().message);
    } else {
      Json doubts = Json::array();
      for (std::string& one : iam::doubts(*policy, *kind)) doubts.push(std::move(one));
      result.set("valid", true).set("kind", *kind == iam::PolicyKind::Identity ? "identity" : "resource").set("statements", static_cast<std::int64_t>(policy->statements.size())).set("doubts", std::move(doubts));
    }
    results.push(std::move(result));
  }
  if (!context.wants("table")) {
    print_json_or_yaml(results, context.globals.output);
    return wrong == 0 ? 0 : 1;
  }
  const Look look = context.look();
  for (const Json& one : results.items()) {
    const std::string document = clean(one["document"].string());
    if (!one["valid"].boolean()) {
      const std::string error = clean(one["error"].string());
      fmt::print("{} {}\n", paint("wrong", Style::Bad, look), error.starts_with(document) ? error : document + ": " + error);
      continue;
    }
    fmt::print("{}    {}: {} for {}\n", paint("ok", Style::Good, look), document, plural(one["statements"].integer(), "statement"), one["kind"].string() == "identity" ? "an identity" : "a resource");
    for (const Json& doubt : one["doubts"].items()) fmt::print("      {} {}\n", paint("!", Style::Warn, look), clean(doubt.string()));
  }
  return wrong == 0 ? 0 : 1;
}

struct Question {
  std::vector<std::string> policies, boundaries, sessions, actions, resources{"*"}, keys;
  std::string resource_policy, resource_account, caller, expect, identity;
};

// What an identity of the site has: its own policies, those that are attached to it, its boundary; and its ARN, by which it calls.
struct Stored {
  std::vector<iam::Document> policies, boundary;
  std::string arn;
};
Result<Stored> read_stored(Context& context, const std::string& named) {
  namespace names = api::identities;
  const bool role = named.starts_with("role/");
  const std::string name = role || named.starts_with("user/") ? named.substr(5) : named;
  if (!names::is_name(name)) return fail(Code::Invalid, fmt::format("--identity {}: NAME of a user, or role/NAME, is expected", named));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const auto settings = settings_of(*session);
  if (!settings) return pass(settings.error(), "the site's account");
  const auto object = session->get(names::identities, "", names::object_name(role ? names::Type::Role : names::Type::User, name));
  if (!object) return std::unexpected(object.error());
  const Json& spec = (*object)["spec"];
  Stored out{.policies = {}, .boundary = {}, .arn = fmt::format("arn:aws:iam::{}:{}{}{}", settings->account, role ? "role" : "user", spec["path"].string_or("/"), spec["name"].string())};
  if (spec["disabled"].boolean()) return fail(Code::Invalid, fmt::format("{} is disabled: it may do nothing", out.arn));
  // As the server does: what cannot be read takes all rights.
  const auto add = [&](std::vector<iam::Document>& to, const std::string& as, const Json& document) -> Result<void> {
    auto policy = iam::read_policy(document.is_string() ? document.string() : kube::print_json(document), iam::PolicyKind::Identity);
    if (!policy) return fail(Code::Invalid, fmt::format("{} may do nothing: {}: {}", out.arn, as, policy.error().message));
    to.push_back({as, std::move(*policy)});
    return {};
  };
  for (const Json& one : spec["policies"].items())
    if (auto done = add(out.policies, "policy " + one["name"].string(), one["document"]); !done) return std::unexpected(done.error());
  for (const Json& one : spec["attachedPolicies"].items()) {
    const std::string& arn = one.string();
    if (names::is_aws_policy(arn)) continue;  // it allows nothing here
    const std::string of = arn.substr(arn.rfind('/') + 1);
    const auto policy = names::is_policy_name(of) ? session->get(names::managed_policies, "", names::policy_object_name(of)) : Result<Json>(fail(Code::NotFound, ""));
    if (!policy && policy.error().code != Code::NotFound) return std::unexpected(policy.error());
    if (!policy || fmt::format("arn:aws:iam::{}:policy{}{}", settings->account, (*policy)["spec"]["path"].string_or("/"), (*policy)["spec"]["name"].string()) != arn) return fail(Code::Invalid, fmt::format("{} may do nothing: {} is attached to it and is not there", out.arn, arn));
    if (auto done = add(out.policies, "attached policy " + arn, (*policy)["spec"]["document"]); !done) return std::unexpected(done.error());
  }
  if (!spec["permissionsBoundary"].is_null())
    if (auto done = add(out.boundary, "permissionsBoundary", spec["permissionsBoundary"]); !done) return std::unexpected(done.error());
  return out;
}

// Its keys: those that are given (one that is given twice has two values), the time, and what follows from the call.
Result<iam::Call> make_call(const Question& of, const std::string& action, const std::string& resource, Instant now) {
  iam::Call out{.caller = {}, .action = action, .resource = resource, .resource_account = of.resource_account, .keys = {}};
  const std::size_t colon = action.find(':');
  if (colon == action.npos || colon == 0 || colon + 1 == action.size() || action.find_first_of("*? ") != action.npos) return fail(Code::Invalid, fmt::format("--action {}: one action is expected, such as sagemaker:DescribeCluster", action));
  if (resource != "*" && (!resource.starts_with("arn:") || std::count(resource.begin(), resource.end(), ':') < 5)) return fail(Code::Invalid, fmt::format("--resource {}: an ARN is expected, such as arn:aws:sagemaker:us-east-1:111122223333:cluster/abc, or * for a call about no resource", resource));
  std::string who = of.caller;
  if (who.empty()) {  // a user of the resource's account
    const std::string account(iam::is_account(iam::arn_field(resource, 4)) ? iam::arn_field(resource, 4) : "111122223333");
    who = fmt::format("arn:aws:iam::{}:user/somebody", out.resource_account.empty() ? account : out.resource_account);
    if (out.resource_account.empty()) out.resource_account = account;
  }
  auto caller = iam::read_caller(who);
  if (!caller) return pass(std::move(caller.error()), "--as");
  out.caller = std::move(*caller);
  std::map<std::string, std::vector<std::string>> given;
  for (const std::string& pair : of.keys) {
    const std::size_t equals = pair.find('=');
    if (equals == pair.npos || equals == 0) return fail(Code::Invalid, fmt::format("--context-key {}: KEY=VALUE is expected, such as aws:SourceIp=10.0.0.1", pair));
    given[iam::lower(pair.substr(0, equals))].push_back(pair.substr(equals + 1));
  }
  for (auto& [key, values] : given) out.keys.set(key, std::move(values));
  out.keys.set_default("aws:CurrentTime", print_time(now));
  out.keys.set_default("aws:EpochTime", fmt::format("{}", std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count()));
  out.keys.set_default("aws:SecureTransport", "true");
  if (!of.resource_account.empty() && !iam::is_account(of.resource_account)) return fail(Code::Invalid, fmt::format("--resource-account {}: twelve digits are expected", of.resource_account));
  iam::fill_keys(out);
  return out;
}

Result<int> simulate(Question of, Context& context) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  if (!of.expect.empty() && of.expect != "allowed" && of.expect != "denied") return fail(Code::Invalid, fmt::format("usage: --expect {} is not known; say allowed or denied", of.expect));
  if (of.policies.empty() && of.resource_policy.empty() && of.identity.empty()) return fail(Code::Invalid, "usage: name documents: --policy FILE (of the caller), --identity NAME (one of the site), --resource-policy FILE (of a key, a role, a bucket)");
  Stored stored;
  if (!of.identity.empty() && !of.boundaries.empty()) return fail(Code::Invalid, "usage: --identity has its own boundary: leave --boundary out");
  if (!of.identity.empty()) {
    auto read = read_stored(context, of.identity);
    if (!read) return std::unexpected(std::move(read.error()));
    stored = std::move(*read);
    if (of.caller.empty()) of.caller = stored.arn;
  }
  const auto identity = read_bundle(of.policies, iam::PolicyKind::Identity, std::move(stored.policies)), boundary = read_bundle(of.boundaries, iam::PolicyKind::Identity, std::move(stored.boundary)), session = read_bundle(of.sessions, iam::PolicyKind::Identity),
             resource = read_bundle(of.resource_policy.empty() ? std::vector<std::string>{} : std::vector{of.resource_policy}, iam::PolicyKind::Resource);
  for (const auto* one : {&identity, &boundary, &session, &resource})
    if (!*one) return std::unexpected(one->error());
  const auto at = [](const Result<std::optional<iam::Bundle>>& one) { return *one ? &**one : nullptr; };
  Json views = Json::array();
  bool as_expected = true, unasked = false;
  for (const std::string& action : of.actions)
    for (const std::string& arn : of.resources) {
      const auto call = make_call(of, action, arn, context.clock.now());
      if (!call) return std::unexpected(call.error());
      const bool must = iam::resource_must_allow(action);
      unasked = unasked || (must && !*resource);
      views.push(iam::simulate(*call, {.identity = at(identity), .boundary = at(boundary), .session = at(session), .resource = at(resource), .resource_must_allow = must && resource->has_value()}));
      as_expected = as_expected && (of.expect.empty() || (views.items().back()["decision"].string() == "allowed") == (of.expect == "allowed"));
    }
  if (!context.wants("table")) {
    print_json_or_yaml(views, context.globals.output);
  } else {
    for (std::size_t i = 0; i < views.items().size(); ++i) fmt::print("{}{}", i == 0 ? "" : "\n", draw_simulation(views.items()[i], context.look()));
  }
  if (unasked) fmt::print(stderr, "The policy of the key or role itself has to allow this too; it was not given (--resource-policy FILE) and is no part of the answer.\n");
  if (unasked && of.expect == "allowed") return fail(Code::Invalid, "it cannot be told whether every call is allowed: give the policy of the key or role (--resource-policy FILE)");
  if (!as_expected) return fail(Code::Invalid, fmt::format("not every call is {}", of.expect));
  return 0;
}

}  // namespace

void add_policy(CLI::App& app, Context& context) {
  CLI::App* group = app.add_subcommand("policy", "Permissions in the grammar of AWS IAM: check documents, and try what they allow");
  group->require_subcommand(1);
  set_examples(*group, {{"fairlead policy check *.json", "before they are in force"}, {"fairlead policy simulate --policy a.json --action s3:GetObject --resource ARN", "why, or why not"}});
  auto paths = std::make_shared<std::vector<std::string>>();
  auto kind = std::make_shared<std::string>("auto");
  CLI::App* checks = group->add_subcommand("check", "Are these documents in the grammar, and do they mean what they seem to?");
  checks->add_option("files", *paths, "policy documents; - is what comes in")->required()->type_name("FILE");
  checks->add_option("--kind", *kind, "identity or resource; else a document that names principals is a resource's")->type_name("KIND");
  add_globals(*checks, context);
  set_examples(*checks, {{"fairlead policy check trainers.json", "of an identity"}, {"fairlead policy check --kind resource key.json", "of a key: it has to name principals"}});
  checks->callback([paths, kind, &context] { context.action = [paths, kind, &context] { return check(*paths, *kind, context); }; });

  auto question = std::make_shared<Question>();
  CLI::App* simulates = group->add_subcommand("simulate", "May this caller do that? Each statement says what part it has in the answer");
  simulates->add_option("--policy", question->policies, "of the caller (may be repeated)")->type_name("FILE")->allow_extra_args(false);
  simulates->add_option("--identity", question->identity, "a user of the site, or role/NAME: what it has, attached policies and boundary included, beside what is given here")->type_name("NAME");
  simulates->add_option("--boundary", question->boundaries, "the caller's permissions boundary: it only takes away")->type_name("FILE")->allow_extra_args(false);
  simulates->add_option("--session-policy", question->sessions, "given when the role was assumed: it only takes away")->type_name("FILE")->allow_extra_args(false);
  simulates->add_option("--resource-policy", question->resource_policy, "of what is asked for: a key's policy, a role's trust")->type_name("FILE");
  simulates->add_option("--action", question->actions, "what the call does (may be repeated)")->required()->type_name("SERVICE:ACTION")->allow_extra_args(false);
  simulates->add_option("--resource", question->resources, "what it is about (may be repeated); *: no resource")->type_name("ARN")->allow_extra_args(false);
  simulates->add_option("--resource-account", question->resource_account, "whose it is, where the ARN does not say so (buckets)")->type_name("ACCOUNT");
  simulates->add_option("--as", question->caller, "who calls: the ARN of a user, role or session, an account (its root), a service, anonymous; else a user of the resource's account")->type_name("CALLER");
  simulates->add_option("--context-key", question->keys, "a condition key of the call (repeat it for several values)")->type_name("KEY=VALUE")->allow_extra_args(false);
  simulates->add_option("--expect", question->expect, "allowed or denied: exit status 1 where it is otherwise, for tests of policies")->type_name("WHAT");
  add_globals(*simulates, context);
  set_examples(*simulates, {{"fairlead policy simulate --policy a.json --action sagemaker:DescribeCluster --resource ARN", "why, or why not"},
                            {"fairlead policy simulate --policy a.json --action s3:GetObject --context-key aws:SourceIp=10.0.0.1", "with a condition key"},
                            {"fairlead policy simulate --identity ada --action sagemaker:CreateCluster", "by what she has on the site"},
                            {"fairlead policy simulate --resource-policy key.json --as ROLE --action kms:Decrypt --expect denied", "in a test"}});
  simulates->callback([question, &context] { context.action = [question, &context] { return simulate(*question, context); }; });
}

}  // namespace fairlead::cli
