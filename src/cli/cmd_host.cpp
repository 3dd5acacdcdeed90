// SPDX-License-Identifier: Apache-2.0
// node add | node remove | node bmc: hosts of one's own as nodes of a site; join | leave: on such a host.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <thread>

#include "api/cluster.h"
#include "api/identity_crds.h"
#include "api/instance_types.h"
#include "api/join.h"
#include "api/machine.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/rng.h"
#include "cli/command.h"
#include "cli/site_files.h"

namespace fairlead::cli {

using kube::Json;
namespace resources = kube::resources;

namespace {

struct AddOptions {
  std::string name, type, address;
  std::vector<std::string> servers, labels;
  double hours = 1;
  bool spare = false, again = false, gone = false, dry_run = false;
};

struct Place {
  std::vector<std::string> servers;
  std::string ca_pem;
};
// Where hosts find this site, as its server says, or a person.
Result<Place> place_of(Session& session, const AddOptions& options) {
  auto told = session.request("GET", api::kJoinPath);
  if (!told && told.error().code == Code::NotFound) return fail(Code::Unsupported, "hosts join the embedded engine; to this Kubernetes cluster they come by its own means (kubeadm join), and are taken by their labels (docs/hosts.md)");
  if (!told) return std::unexpected(std::move(told.error()));
  Place out{.servers = options.servers, .ca_pem = (*told)["ca"].string()};
  if (out.servers.empty())
    for (const Json& server : (*told)["servers"].items()) out.servers.push_back(server.string());
  if (out.servers.empty()) return fail(Code::Unavailable, (*told)["message"].string_or("the server does not say where hosts find it: --server URL"));
  return out;
}

Result<Json> wanted_machine(const AddOptions& options, const std::optional<Json>& there, const std::string& hash, const std::string& expires) {
  Json out = there ? *there : Json::object({{"apiVersion", "fairlead.dev/v1alpha1"}, {"kind", "Machine"}, {"metadata", Json::object({{"name", options.name}})}, {"spec", Json::object({{"host", Json::object()}})}});
  Json& host = out.child("spec").child("host");
  if (!options.type.empty()) host.set("instanceType", options.type);
  if (!options.address.empty()) host.set("address", options.address);
  host.erase("gone");  // it was said of the one before
  host.set("join", Json::object({{"tokenHash", hash}, {"expires", expires}}));
  if (options.spare) out.child("spec").child("labels").set(api::kSpareLabel, "true");
  for (const std::string& label : options.labels) {
    const std::size_t at = label.find('=');
    if (at == std::string::npos || at == 0) return fail(Code::Invalid, fmt::format("--label {}: KEY=VALUE is expected", label));
    out.child("spec").child("labels").set(label.substr(0, at), label.substr(at + 1));
  }
  return out;
}

// Another host would start at once what the one of before may still run.
Result<void> ended_there(Session& session, const AddOptions& options, const std::optional<Json>& there) {
  if (!there || (*there)["status"]["host"]["key"].string().empty() || options.gone) return {};
  auto pods = pods_on(session, options.name);
  if (!pods) return std::unexpected(std::move(pods.error()));
  if (pods->empty()) return {};
  return fail(Code::Conflict, fmt::format("{} pods are bound to {} ({}{}), which the host of before may still run: drain it first (kubectl drain {} --ignore-daemonsets), or say --gone if nothing of it runs any more", pods->size(), options.name, pods->front(), pods->size() > 1 ? ", ..." : "", options.name));
}

constexpr int kTurns = 10;
constexpr std::chrono::milliseconds kTurn{20};
enum class Written { Yes, Overtaken };

Result<Written> write_machine(Session& session, const AddOptions& options, const std::string& hash, const std::string& expires) {
  std::optional<Json> there;
  if (auto got = session.get(resources::machines, "", options.name)) there = std::move(*got);
  else if (got.error().code != Code::NotFound) return std::unexpected(std::move(got.error()));
  if (there && !(*there)["spec"]["host"].is_object()) return fail(Code::Conflict, fmt::format("{} is a local machine: choose another name", options.name));
  if (there && kube::deleting(*there)) return fail(Code::Conflict, fmt::format("{} is being deleted: try again in a moment", options.name));
  if (there && !(*there)["status"]["host"]["key"].string().empty() && !options.again)
    return fail(Code::Exists, fmt::format("{} has joined already, at {}: --again gives out a token for another host in its place, or for the same one installed anew", options.name, (*there)["status"]["host"]["address"].string()));
  if (auto free = ended_there(session, options, there); !free) return std::unexpected(std::move(free.error()));
  auto wanted = wanted_machine(options, there, hash, expires);
  if (!wanted) return std::unexpected(std::move(wanted.error()));
  const std::string target = there ? kube::path_of(resources::machines, "", options.name) : kube::path_of(resources::machines, "", "");
  auto answer = session.request(there ? "PUT" : "POST", options.dry_run ? target + "?dryRun=All" : target, *wanted);
  if (answer) return Written::Yes;
  if (answer.error().code == (there ? Code::Conflict : Code::Exists)) return Written::Overtaken;
  return std::unexpected(std::move(answer.error()));
}

Result<int> add(Context& context, const AddOptions& options) {
  if (!options.type.empty() && api::find_instance_type(options.type) == nullptr) return fail(Code::Invalid, fmt::format("--type {}: HyperPod's API has no such type", options.type));
  if (options.name.size() > api::kLongestHostName) return fail(Code::Invalid, fmt::format("{}: the name of a host has {} characters at most", options.name, api::kLongestHostName));
  if (options.spare && options.type.empty()) return fail(Code::Invalid, "--spare: a spare machine is taken by its type: say --type as well");
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto place = place_of(*session, options);
  if (!place) return std::unexpected(std::move(place.error()));
  const std::string secret = hex(secret_bytes(32));
  const std::string expires = print_time(context.clock.now() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double, std::ratio<3600>>(options.hours)));
  // Controllers write to the same object: who was overtaken looks anew, at what is there now.
  for (int turn = 1;; ++turn) {
    auto written = write_machine(*session, options, api::hash_of_secret(secret), expires);
    if (!written) return std::unexpected(std::move(written.error()));
    if (*written == Written::Yes) break;
    if (turn == kTurns) return fail(Code::Conflict, fmt::format("machine/{} was changed by others each time that it was to be written: try again", options.name));
    std::this_thread::sleep_for(turn * kTurn);
  }
  const std::string token = options.dry_run ? "" : api::print_join_token({.servers = place->servers, .ca_pem = place->ca_pem, .name = options.name, .secret = secret});
  if (!context.wants("table")) {
    Json out = Json::object({{"machine", options.name}, {"expires", expires}, {"servers", Json::array(std::vector<Json>(place->servers.begin(), place->servers.end()))}, {"dryRun", options.dry_run}});
    if (!token.empty()) out.set("token", token);
    print_json_or_yaml(out, context.globals.output);
    return 0;
  }
  if (options.dry_run) {
    fmt::print("machine/{} would wait for its host; hosts would look for {}\n", options.name, fmt::join(place->servers, ", "));
    return 0;
  }
  fmt::print("machine/{} waits for its host until {}. There, as root, with the packages fairlead and fairlead-agent:\n\n  fairlead join {}\n\nThe token works once, and for this machine alone. `fairlead node list` tells when it has come.\n", options.name, expires, token);
  return 0;
}

struct RemoveOptions {
  std::string name;
  bool force = false, gone = false, dry_run = false;
};

Result<int> remove(Context& context, const RemoveOptions& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto machine = session->get(resources::machines, "", options.name);
  if (!machine && machine.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no machine \"{}\": see `fairlead node list`", options.name));
  if (!machine) return std::unexpected(std::move(machine.error()));
  if (!(*machine)["spec"]["host"].is_object()) return fail(Code::Conflict, fmt::format("{} is a local machine: `fairlead delete machine {}` takes it away with all that is on it", options.name, options.name));
  auto node = session->get(resources::nodes, "", options.name);
  if (const std::string owner = node ? (*node)["metadata"]["labels"][api::kInstanceLabel].string() : ""; !owner.empty() && !options.force)
    return fail(Code::Conflict, fmt::format("{} is instance {} of cluster {}: take it out there first (BatchDeleteClusterNodes), or say --force", options.name, owner, (*node)["metadata"]["labels"]["fairlead.dev/cluster"].string()));
  auto found = pods_on(*session, options.name);
  if (!found) return std::unexpected(std::move(found.error()));
  const std::vector<std::string>& busy = *found;
  if (!busy.empty() && !options.force && !options.gone && !options.dry_run)
    return fail(Code::Conflict, fmt::format("{} pods are on {} ({}{}): drain it first (kubectl drain {} --ignore-daemonsets). --gone: nothing of it runs any more, so that they may start elsewhere; --force: shut it out, whatever runs there", busy.size(), options.name, busy.front(), busy.size() > 1 ? ", ..." : "", options.name));
  if (!options.dry_run && options.gone)
    if (auto said = session->request("PATCH", kube::path_of(resources::machines, "", options.name), Json::object({{"spec", Json::object({{"host", Json::object({{"gone", true}})}})}}), "application/merge-patch+json"); !said) return std::unexpected(std::move(said.error()));
  if (!options.dry_run)
    if (auto gone = session->request("DELETE", kube::path_of(resources::machines, "", options.name)); !gone) return std::unexpected(std::move(gone.error()));
  if (!context.wants("table")) {
    print_json_or_yaml(Json::object({{"machine", options.name}, {"dryRun", options.dry_run}, {"pods", Json::array(std::vector<Json>(busy.begin(), busy.end()))}}), context.globals.output);
    return 0;
  }
  if (options.dry_run) fmt::print("{} would be removed; {} pods are on it\n", options.name, busy.size());
  else if (busy.empty() || options.gone) fmt::print("{} is removed: its certificate counts no more. `fairlead leave` on the host takes away what is left there\n", options.name);
  else fmt::print("{} is shut out: its certificate counts no more. What runs there goes on, and starts nowhere else, until `fairlead leave` there and `fairlead node remove {} --gone` here\n", options.name, options.name);
  return 0;
}

struct BmcOptions {
  std::string name, address, user, password_file, secret, key, ca_file, system;
  int shutdown = -1;
  bool remove = false, dry_run = false;
  double timeout = 60;
};

Result<std::string> password_of(const std::string& file) {
  std::string text;
  if (file == "-") {
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0 && text.size() < 1 << 16;) text.append(buffer, static_cast<std::size_t>(got));
  } else {
    auto read = read_file(file);
    if (!read) return std::unexpected(std::move(read.error()));
    text = std::move(*read);
  }
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (text.empty()) return fail(Code::Invalid, fmt::format("{} holds no password", file));
  return text;
}

// The Secret with user and password: made, or written anew.
Result<void> keep_secret(Session& session, const BmcOptions& options, const std::string& name) {
  auto password = password_of(options.password_file);
  if (!password) return std::unexpected(std::move(password.error()));
  const Json secret = Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", Json::object({{"name", name}, {"namespace", api::identities::default_space}})}, {"data", Json::object({{"username", base64(options.user)}, {"password", base64(*password)}})}});
  auto written = session.request("PATCH", kube::path_of(resources::secrets, api::identities::default_space, name), Json::object({{"data", secret["data"]}}), "application/merge-patch+json");
  if (!written && written.error().code == Code::NotFound) written = session.request("POST", kube::path_of(resources::secrets, api::identities::default_space, ""), secret);
  if (!written) return std::unexpected(std::move(written.error()));
  return {};
}

// Where the BMC of a host is; then waits for what the server finds there.
Result<int> set_bmc(Context& context, const BmcOptions& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto machine = session->get(resources::machines, "", options.name);
  if (!machine && machine.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no machine \"{}\": see `fairlead node list`", options.name));
  if (!machine) return std::unexpected(std::move(machine.error()));
  if (!(*machine)["spec"]["host"].is_object()) return fail(Code::Unsupported, fmt::format("{} is a local machine: it has no BMC", options.name));
  const Json& before = (*machine)["spec"]["host"]["bmc"];
  Json bmc = before.is_object() ? before : Json::object();
  if (options.remove) {
    bmc = nullptr;
  } else {
    if (!options.address.empty()) bmc.set("address", options.address);
    if (auto read = api::read_bmc_address(bmc["address"].string()); !read) return fail(Code::Invalid, fmt::format("{}: {}", bmc["address"].string_or("no address"), read.error().message));
    if (options.user.empty() != options.password_file.empty()) return fail(Code::Invalid, "--user and --password-file: both, or a --secret that holds them");
    const std::string secret = !options.secret.empty() ? options.secret : bmc["secret"].string_or("bmc-" + options.name);
    if (options.user.empty() && options.secret.empty() && !before.is_object()) return fail(Code::Invalid, "by which user? --user NAME --password-file FILE, or --secret NAME");
    bmc.set("secret", secret).set("check", random_uuid());
    if (!options.system.empty()) bmc.set("system", options.system);
    if (!options.key.empty()) bmc.set("key", options.key), bmc.set("certificateAuthority", nullptr);
    if (!options.ca_file.empty()) {
      auto pem = read_file(options.ca_file);
      if (!pem) return std::unexpected(std::move(pem.error()));
      bmc.set("certificateAuthority", std::move(*pem)).set("key", nullptr);
    }
    if (!options.user.empty() && !options.dry_run)
      if (auto kept = keep_secret(*session, options, secret); !kept) return std::unexpected(std::move(kept.error()));
  }
  Json host = Json::object({{"bmc", std::move(bmc)}});
  if (options.shutdown >= 0) host.set("shutdownSeconds", options.shutdown);
  auto patched = session->request("PATCH", kube::path_of(resources::machines, "", options.name) + (options.dry_run ? "?dryRun=All" : ""), Json::object({{"spec", Json::object({{"host", std::move(host)}})}}), "application/merge-patch+json");
  if (!patched) return std::unexpected(std::move(patched.error()));
  if (const api::Machine read = api::read_machine(*patched); !options.remove && !read.problems.empty()) return fail(Code::Invalid, read.problems.front());
  if (options.dry_run || options.remove) {
    fmt::print("{} {}\n", options.name, options.remove ? (options.dry_run ? "would have no BMC any more" : "has no BMC any more: its power is not switched from here") : "would be switched by its BMC at " + (*patched)["spec"]["host"]["bmc"]["address"].string());
    return 0;
  }
  const std::int64_t generation = (*patched)["metadata"]["generation"].integer();
  Progress progress(context.look());
  progress.begin("BMC of " + options.name);
  const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(options.timeout));
  for (;;) {
    auto now = session->get(resources::machines, "", options.name);
    if (!now) {
      progress.fail();
      return std::unexpected(std::move(now.error()));
    }
    const Json& power = (*now)["status"]["power"];
    if (power["generation"].integer() >= generation) {
      const std::string& state = power["state"].string();
      if (!context.wants("table")) {
        print_json_or_yaml(Json::object({{"machine", options.name}, {"power", power}}), context.globals.output);
        return state == "Unknown" ? 1 : 0;
      }
      if (state == "Unknown") {
        progress.fail();
        return fail(Code::Unavailable, power["message"].string());
      }
      progress.end(fmt::format("it answers: power {}", state));
      return 0;
    }
    if (context.clock.monotonic() > deadline) {
      progress.fail();
      return fail(Code::Unavailable, fmt::format("after {} the server has told nothing of it; see `fairlead node list` and the server's log", print_seconds(options.timeout)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// The agent does it: it knows hosts. `input`: what it reads from stdin; its arguments can be seen by others.
Result<int> hand_over(const Context& context, std::vector<std::string> words, const std::optional<std::string>& input) {
  const std::string program = find_sibling(context.own_dir, "fairlead-agent");
  if (program.empty()) return fail(Code::NotFound, fmt::format("fairlead-agent is not beside fairlead in {}: install the package fairlead-agent", context.own_dir));
  words.insert(words.begin(), program);
  if (input) {
    const int file = ::memfd_create("token", 0);
    if (file < 0 || ::write(file, input->data(), input->size()) != static_cast<ssize_t>(input->size()) || ::lseek(file, 0, SEEK_SET) != 0 || ::dup2(file, STDIN_FILENO) < 0) return fail_errno(errno, "hand the token over");
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return fail_errno(errno, "run " + program);
}

}  // namespace

Result<std::vector<std::string>> pods_on(Session& session, const std::string& node) {
  auto pods = session.list(resources::pods);
  if (!pods) return std::unexpected(std::move(pods.error()));
  std::vector<std::string> out;
  for (const Json& pod : *pods)
    if (const std::string& phase = pod["status"]["phase"].string(); pod["spec"]["nodeName"].string() == node && phase != "Succeeded" && phase != "Failed") out.push_back(kube::key_of(pod).text());
  return out;
}

void add_node_hosts(CLI::App& node, Context& context) {
  auto adding = std::make_shared<AddOptions>();
  CLI::App* sub = node.add_subcommand("add", "Make a token by which a host of yours joins this site as a node");
  sub->add_option("name", adding->name, "of the machine and its node")->required();
  sub->add_option("--type", adding->type, "ml.* type that it is to be; it joins if it has what that has")->type_name("TYPE");
  sub->add_flag("--spare", adding->spare, "clusters of HyperPod's API may take it");
  sub->add_option("--label", adding->labels, "label of its node, as often as wanted")->type_name("KEY=VALUE");
  sub->add_option("--ttl", adding->hours, "hours that the token works")->capture_default_str()->check(CLI::Range(0.01, 24.0 * 30));
  sub->add_option("--server", adding->servers, "where hosts find the API, as often as wanted (default: what the server says)")->type_name("URL");
  sub->add_option("--address", adding->address, "at which it is to be (default: the one from which it asks; one of the server's own has to be said)")->type_name("ADDRESS");
  sub->add_flag("--again", adding->again, "it has joined before: another host takes its place, or the same one installed anew");
  sub->add_flag("--gone", adding->gone, "nothing of the host of before runs any more");
  sub->add_flag("--dry-run", adding->dry_run, "ask the server whether it would do it");
  add_globals(*sub, context);
  set_examples(*sub, {{"fairlead node add gpu-07 --type ml.p5.48xlarge --spare", "for clusters of HyperPod's API"}, {"fairlead node add rack-3", "for pods and Slurm"}});
  sub->callback([adding, &context] { context.action = [adding, &context] { return add(context, *adding); }; });

  auto board = std::make_shared<BmcOptions>();
  sub = node.add_subcommand("bmc", "Say where the BMC of a host is, by which its power is switched (Redfish, IPMI), and try it");
  sub->add_option("name", board->name, "machine")->required();
  sub->add_option("address", board->address, "https://ADDRESS (Redfish) or ipmi://ADDRESS");
  sub->add_option("--user", board->user, "of the BMC; may switch power (Redfish: role Operator)");
  sub->add_option("--password-file", board->password_file, "file with its password; - reads stdin")->type_name("FILE");
  sub->add_option("--secret", board->secret, "a Secret of the server's namespace that holds username and password (default: bmc-NAME)");
  sub->add_option("--key", board->key, "SHA-256 of the public key of its certificate, as the first try without it tells")->type_name("HEX");
  sub->add_option("--ca", board->ca_file, "in place of --key: whom its certificate is signed by")->type_name("FILE")->excludes("--key");
  sub->add_option("--system", board->system, "of several systems behind one service, which");
  sub->add_option("--shutdown", board->shutdown, "seconds that its system has to end before its power is cut (default: it is not asked)")->check(CLI::Range(0, 3600));
  sub->add_flag("--remove", board->remove, "its power is not switched from here any more");
  sub->add_flag("--dry-run", board->dry_run, "ask the server whether it would take that");
  sub->add_option("--timeout", board->timeout, "seconds to wait for what the server finds")->capture_default_str();
  add_globals(*sub, context);
  set_examples(*sub, {{"fairlead node bmc gpu-07 https://10.0.9.7 --user fairlead --password-file -", "tells the key that its certificate has"}, {"fairlead node bmc gpu-07 --key 3f0c...", "trusts that one, and tries it"}});
  sub->callback([board, &context] { context.action = [board, &context] { return set_bmc(context, *board); }; });

  auto removing = std::make_shared<RemoveOptions>();
  sub = node.add_subcommand("remove", "Take a host out of this site: its certificate counts no more");
  sub->add_option("name", removing->name, "machine")->required();
  sub->add_flag("--gone", removing->gone, "nothing of it runs any more (it is off, or `fairlead leave` was run there): its pods may start elsewhere");
  sub->add_flag("--force", removing->force, "even if pods are on it, or a cluster has it: it is shut out, its Node stays until its pods are gone");
  sub->add_flag("--dry-run", removing->dry_run, "tell what is on it, change nothing");
  add_globals(*sub, context);
  set_examples(*sub, {{"fairlead node remove gpu-07", ""}, {"fairlead node remove gpu-07 --gone", "it is off"}});
  sub->callback([removing, &context] { context.action = [removing, &context] { return remove(context, *removing); }; });
}

void add_join(CLI::App& app, Context& context) {
  struct Options {
    std::string token, address;
    bool again = false, dry_run = false, metadata = false, start = true, yes = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("join", "Make this host a node of a site, by a token of `fairlead node add`");
  sub->add_option("token", options->token, "the token, or - to read it from stdin")->required();
  sub->add_option("--address", options->address, "at which the server and other nodes reach this host (default: the one by which it reaches the server)")->type_name("ADDRESS");
  sub->add_flag("--metadata", options->metadata, "answer 169.254.169.254 on this host, so that its programs have the role of their instance group; not on a cloud's machine, which has a service of its own there");
  sub->add_flag("--again", options->again, "it has joined before: join anew, by a new key");
  sub->add_flag("--dry-run", options->dry_run, "look at this host, ask and write nothing");
  sub->add_flag("--start,!--no-start", options->start, "start the agent by systemd, where it runs (default)");
  add_globals(*sub, context);
  set_examples(*sub, {{"sudo fairlead join flj1.eyJzIjpb...", ""}, {"sudo fairlead join - < token", "no shell remembers it"}});
  sub->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      std::vector<std::string> words{"join", "-"};
      if (!options->address.empty()) words.insert(words.end(), {"--address", options->address});
      if (options->metadata) words.emplace_back("--metadata");
      if (options->again) words.emplace_back("--again");
      if (options->dry_run) words.emplace_back("--dry-run");
      if (!options->start) words.emplace_back("--no-start");
      if (context.wants("json")) words.insert(words.end(), {"-o", "json"});
      return hand_over(context, std::move(words), options->token == "-" ? std::nullopt : std::optional(options->token));
    };
  });

  auto leaving = std::make_shared<Options>();
  sub = app.add_subcommand("leave", "End what runs on this host and stop being a node; images and volumes stay");
  sub->add_flag("--yes", leaving->yes, "do not ask");
  add_globals(*sub, context);
  set_examples(*sub, {{"sudo fairlead leave --yes", ""}});
  sub->callback([leaving, &context] {
    context.action = [leaving, &context]() -> Result<int> {
      std::vector<std::string> words{"leave"};
      if (leaving->yes) words.emplace_back("--yes");
      return hand_over(context, std::move(words), std::nullopt);
    };
  });
}

}  // namespace fairlead::cli
