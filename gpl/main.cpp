// SPDX-License-Identifier: GPL-3.0-or-later
// fairlead-slurm: companion of Slurm's daemons inside their containers. It talks to Slurm through its command line tools.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "accounting.h"
#include "admission.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "checks.h"
#include "client_conf.h"
#include "container/container.h"
#include "database.h"
#include "exporter.h"
#include "exporter_pod.h"
#include "failure.h"
#include "head.h"
#include "hold.h"
#include "id_mark.h"
#include "jail.h"
#include "deep_check.h"
#include "lifecycle.h"
#include "link_check.h"
#include "limits.h"
#include "mark.h"
#include "nodes.h"
#include "past.h"
#include "populate.h"
#include "prepare.h"
#include "probe.h"
#include "reach.h"
#include "reconfigure.h"
#include "rest.h"
#include "rights.h"
#include "sessions.h"
#include "set_keeper.h"
#include "state_files.h"
#include "submit.h"
#include "supervise.h"
#include "terms.h"
#include "trial.h"
#include "users.h"

namespace fairlead::companion {
namespace {

int complain(const Error& error) {
  log_error("cannot start", {{"error", error.message}});
  return 1;
}

std::string env_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

Result<Output> tool(std::vector<std::string> argv, std::chrono::milliseconds limit, const char* slurm_conf = nullptr) {
  Command command{.argv = std::move(argv)};
  if (slurm_conf) command.environment = std::map<std::string, std::string>{{"PATH", env_or("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}, {"SLURM_CONF", slurm_conf}};
  return run(std::move(command), limit);
}

int run_munge() {
  for (const char* dir : {"/run/munge", "/etc/munge", "/var/log/munge", "/var/lib/munge"})
    if (auto made = owned_dir(dir, "munge", std::string_view(dir) == "/run/munge" ? 0755 : 0700); !made) return complain(made.error());
  auto key = read_file("/etc/fairlead/munge/munge.key");
  if (!key) return complain(key.error());
  if (auto written = write_file_atomically("/etc/munge/munge.key", *key, 0400); !written) return complain(written.error());
  auto owner = run_checked({.argv = {"chown", "munge:munge", "/etc/munge/munge.key"}}, 5s);
  if (!owner) return complain(owner.error());
  return supervise({.command = {.argv = {"setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged", "--foreground"}, .stdout_fd = 1, .stderr_fd = 2}});
}

// Slurm's tools and daemons fail at once without munge; the two containers of a pod start together.
bool wait_for_munge() {
  for (int i = 0; i < 600; ++i) {
    auto out = tool({"munge", "-n"}, 5s);
    if (out && out->exit.code == 0) return true;
    std::this_thread::sleep_for(100ms);
  }
  log_error("munge does not answer after a minute", {{"socket", "/run/munge/munge.socket.2"}, {"remedy", "look at the log of container munge"}});
  return false;
}

int run_witness() {
  auto options = head_options(own_environment());
  if (!options) return complain(options.error());
  return run_witness(std::move(*options));
}

// status [--unless ROLE:TERM [--limit-ms N]] | step-down
int ask_own_head(const std::vector<std::string>& arguments) {
  std::string known;
  std::chrono::milliseconds limit = 10s;
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--unless") known = arguments[i + 1];
    else if (arguments[i] == "--limit-ms") limit = std::chrono::milliseconds(std::clamp(std::atoi(arguments[i + 1].c_str()), 0, 60'000));
    else return complain({Code::Invalid, "status takes --unless ROLE:TERM and --limit-ms N, not " + arguments[i]});
  }
  auto answer = known.empty() ? ask_head("/run/slurm", arguments[0]) : wait_for_change("/run/slurm", known, limit);
  if (!answer) {
    std::fprintf(stderr, "%s\n", answer.error().message.c_str());
    return 1;
  }
  std::fputs(answer->c_str(), stdout);
  return 0;
}

// What the daemon is about to read: `reconfigure` compares with it.
void note_generation() {
  if (auto generation = read_file("/etc/slurm/generation")) (void)write_file_atomically(kGeneration, *generation, 0644);
}

// Of a head that serves alone: a hold on the volume ends slurmctld, and that it has ended is said there. A volume that cannot be read starts none, and ends none that runs.
bool kept_from_running(const std::string& volume, bool runs) {
  static std::string told;
  auto hold = read_hold(volume);
  const bool kept = runs ? hold && *hold : !hold || *hold;
  const std::string why = !kept ? "" : hold ? (*hold)->reason : hold.error().message;
  if (why != told && kept) log_warn("slurmctld is kept from running", {{"reason", why}});
  told = why;
  if (kept && !runs && hold && !(*hold)->id.empty())
    if (auto noted = note_held(volume, (*hold)->id); !noted) log_warn("the volume could not be told that slurmctld has ended", {{"reason", noted.error().message}});
  return kept;
}

// Of a head that serves alone: from its first save on nothing is started there without it.
void note_saved(const std::string& volume) {
  static bool noted = false;
  if (noted) return;
  auto marked = mark_saved(volume, {0, volume});
  if (!marked) log_warn("the volume could not be marked", {{"reason", marked.error().message}});
  noted = !marked || *marked;  // a volume that cannot be written now is marked after the next start
}

std::optional<std::pair<uid_t, gid_t>> user_of(const char* name) {
  const passwd* user = ::getpwnam(name);
  return user ? std::optional(std::pair(user->pw_uid, user->pw_gid)) : std::nullopt;
}

int run_controller() {
  for (const char* dir : {"/run/slurm", "/var/spool/slurmctld", "/var/log/slurm"})
    if (auto made = owned_dir(dir, "slurm", 0755); !made) return complain(made.error());
  if (auto jail = prepare_jail(); !jail) return complain(jail.error());
  if (auto users = prepare_users(); !users) return complain(users.error());
  auto environment = durable_environment();
  if (!environment) return complain(environment.error());
  if (!wait_for_munge()) return 1;
  if (const std::string needs = env_or("FAIRLEAD_CONF_NEEDS", ""); !needs.empty() && !wait_for_settings("/etc/slurm/slurm.conf", needs))
    return complain({Code::Unavailable, "/etc/slurm/slurm.conf does not hold what this pod was made for after 90 s: " + needs});
  std::vector<std::string> states = {"/var/spool/slurmctld"};
  if (auto terms = list_dir("/var/spool/slurmctld/terms"))
    for (const std::string& term : *terms) states.push_back("/var/spool/slurmctld/terms/" + term);
  const auto contact = look_for_first_contact("/etc/slurm/slurm.conf", states, 45s);
  const auto before_start = [contact](const std::string& state) {
    note_generation();
    if (auto placed = place_token_key(); !placed) log_error("slurmctld has no key for tokens", {{"error", placed.error().message}});
    if (contact) place_first_contact(*contact, state);
  };
  const bool durable = environment->contains("LD_PRELOAD") && environment->at("LD_PRELOAD").find("/durable.so") != std::string::npos;
  const auto ids = std::make_shared<IdKeeper>("/run/slurm", "/etc/slurm/slurm.conf");
  const auto prepare = [before_start, ids, durable](const std::string& place, std::map<std::string, std::string>& variables) -> Result<void> {
    const auto as = user_of("slurm");
    if (!as) return fail(Code::NotFound, "the image has no user slurm");
    if (auto removed = remove_unfinished_saves(place); !removed) return removed;
    if (auto given = give_state_to(place, as->first, as->second); !given) return given;
    if (auto good = check_state(place, was_saved("/var/spool/slurmctld"), as->first, as->second); !good) return good;
    before_start(place);
    return durable ? ids->before_start(place, variables) : Result<void>();
  };
  if (environment->contains("FAIRLEAD_HEADS")) {
    if (!durable) return complain({Code::Invalid, "one of several heads needs durable acknowledgement: leave FAIRLEAD_DURABLE at its default"});
    auto options = head_options(*environment);
    if (!options) return complain(options.error());
    options->volume = "/var/spool/slurmctld";
    options->state_link = "/run/slurm/state";
    options->run_dir = "/run/slurm";
    options->slurm_conf = "/etc/slurm/slurm.conf";
    options->environment = std::move(*environment);
    options->before_start = [prepare](std::map<std::string, std::string>& variables) { return prepare("/run/slurm/state", variables); };
    options->after_end = [ids] { ids->after_end("/run/slurm/state"); };
    return run_head(std::move(*options));
  }
  auto state = list_dir("/var/spool/slurmctld");
  if (!state) return complain(state.error());
  if (std::find(state->begin(), state->end(), "terms") != state->end())
    return complain({Code::Invalid, "the state in /var/spool/slurmctld belongs to several heads (terms/N); one alone would start without jobs. Set spec.slurmNodes.controller.size to what it was"});
  return supervise({.command = {.argv = {"slurmctld", "-D"}, .environment = std::move(*environment), .stdout_fd = 1, .stderr_fd = 2},
                    .restart_in_place = true,
                    .kept = [](bool runs) {
                      if (runs) note_saved("/var/spool/slurmctld");
                      return kept_from_running("/var/spool/slurmctld", runs);
                    },
                    .prepare = [prepare](Command& command) { return prepare("/var/spool/slurmctld", *command.environment); },
                    .after_end = [ids] { ids->after_end("/var/spool/slurmctld"); }});
}

// Slurm gives this worker work as soon as slurmd has registered, but its address may not have come to every node yet: packet filters there still close their ports to it, and the first job would lose its output. So it asks
// the others first. Whoever is silent for ten seconds is cut off or gone for another reason, and no reason to keep a worker idle.
void wait_until_peers_know_us(const std::string& head, const std::string& own) {
  std::vector<sockaddr_in> peers;
  auto nodes = tool({"scontrol", "-o", "show", "nodes"}, 10s, "/etc/fairlead/slurm/slurm.conf");
  if (nodes && nodes->exit.code == 0) peers = live_nodes(nodes->out, own, 6818);
  // HEAD.CLUSTER-controller-svc.NAMESPACE..., or CLUSTER-controller-active.NAMESPACE...: the login nodes' service has a name like it.
  for (const std::string marker : {"-controller-svc.", "-controller-active."})
    if (const auto at = head.find(marker); at != std::string::npos) {
      const auto dot = head.rfind('.', at);
      const std::string cluster = head.substr(dot == std::string::npos ? 0 : dot + 1, at - (dot == std::string::npos ? 0 : dot + 1));
      // Where people come in by a Service with an address, the pods' own addresses stand behind another name.
      auto login = addresses_of(cluster + "-login-headless-svc." + head.substr(at + marker.size()), 22);
      if (login.empty()) login = addresses_of(cluster + "-login-svc." + head.substr(at + marker.size()), 22);
      peers.insert(peers.end(), login.begin(), login.end());
    }
  const SystemClock clock;
  const auto started = clock.monotonic();
  const auto silent = silent_peers(peers, 10s);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock.monotonic() - started);
  if (silent.empty()) {
    log_info("the other nodes know this worker", {{"nodes", std::to_string(peers.size())}, {"ms", std::to_string(took.count())}});
    return;
  }
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &silent[0].sin_addr, text, sizeof text);
  log_warn("some nodes do not answer this worker; jobs over them will fail", {{"silent", std::to_string(silent.size())}, {"of", std::to_string(peers.size())}, {"first", text}});
}

int run_worker() {
  const std::string server = env_or("FAIRLEAD_CONF_SERVER", "");
  const std::string definition = env_or("FAIRLEAD_NODE_DEFINITION", "");
  if (server.empty() || definition.empty()) return complain({Code::Invalid, "FAIRLEAD_CONF_SERVER and FAIRLEAD_NODE_DEFINITION must be set"});
  for (const char* dir : {"/run/slurm", "/var/spool/slurmd", "/var/log/slurm", "/etc/slurm"})
    if (auto made = make_dirs(dir, 0755); !made) return complain(made.error());
  // Commands typed on a worker read what slurmd fetched from the head, and where its fellows are.
  keep_client_conf("/run/slurm/conf", "/etc/slurm");
  if (auto jail = prepare_jail(); !jail) return complain(jail.error());
  if (auto users = prepare_users(); !users) return complain(users.error());
  keep_jail();
  if (auto made = prepare_mock_gpus(std::atoi(env_or("FAIRLEAD_MOCK_GPUS", "0").c_str())); !made) return complain(made.error());
  if (!wait_for_munge()) return 1;
  const auto colon = server.rfind(':');
  for (int i = 0; !reachable(server.substr(0, colon), server.substr(colon + 1)); ++i) {
    if (i == 0) log_info("waiting for the head", {{"address", server}});
    if (i > 1200) return complain({Code::Unavailable, "the head at " + server + " has not answered for ten minutes"});
    std::this_thread::sleep_for(250ms);
  }
  const std::string host = own_node();
  settle_the_past(host, server);
  wait_until_peers_know_us(server.substr(0, colon), host);
  const int status = supervise({.command = {.argv = {"slurmd", "-D", "-Z", "--conf-server", server, "--conf", definition}, .stdout_fd = 1, .stderr_fd = 2}, .restart_in_place = false});
  leave_jail();
  return status;
}

int run_login() {
  for (const char* dir : {"/run/sshd", "/etc/ssh/fairlead", "/run/slurm", "/etc/slurm"})
    if (auto made = make_dirs(dir, 0755); !made) return complain(made.error());
  keep_client_conf("/etc/fairlead/slurm", "/etc/slurm");
  if (auto jail = prepare_jail(); !jail) return complain(jail.error());
  if (auto users = prepare_users(); !users) return complain(users.error());
  keep_jail();  // while there is the right to mount
  for (const char* kind : {"rsa", "ecdsa", "ed25519"})
    for (const char* half : {"", ".pub"}) {
      const std::string name = fmt::format("ssh_host_{}_key{}", kind, half);
      auto key = read_file("/etc/fairlead/sshd-keys/" + name);
      if (!key) return complain(key.error());
      if (auto written = write_file_atomically("/etc/ssh/fairlead/" + name, *key, *half ? 0644 : 0600); !written) return complain(written.error());
    }
  if (!wait_for_munge()) return 1;
  // All mounts are made. A session of root would else mount what its chroot hides, and more.
  for (const int right : {CAP_SYS_ADMIN, CAP_SYS_PTRACE})
    if (auto given_up = give_up(right); !given_up) return complain(given_up.error());
  std::vector<std::string> sshd = {"/usr/sbin/sshd", "-D", "-e", "-f", "/etc/fairlead/ssh/sshd_config"};
  if (lives_in_jail()) sshd.insert(sshd.end(), {"-o", std::string("ChrootDirectory=") + kJail});
  const int status = supervise({.command = {.argv = std::move(sshd), .stdout_fd = 1, .stderr_fd = 2}});
  leave_jail();
  return status;
}

int run_check_of_machine() {
  const auto options = deep_check_options(own_environment());
  if (!options) return complain(options.error());
  return run_deep_check(*options);
}

// Until it is ended.
int run_link_listener() {
  const auto options = link_check_options(own_environment());
  if (!options) return complain(options.error());
  const auto socket = link_socket(options->port);
  if (!socket) return complain(socket.error());
  serve_links(*socket, options->token);
  return 0;
}

int run_check_of_links() {
  const auto options = link_check_options(own_environment());
  if (!options) return complain(options.error());
  return run_link_check(*options);
}

// A script of a machine's life, where Slurm's commands work if there is Slurm.
int run_script() {
  auto options = lifecycle_options(own_environment());
  if (!options) return complain(options.error());
  std::optional<Child> munge;
  const auto refuse = [&](const Error& error) {
    if (const Fd word(::open(options->last_word.c_str(), O_WRONLY | O_CLOEXEC)); word && ::write(word.get(), error.message.data(), error.message.size()) < 0) log_warn("its last words were lost");
    return complain(error);
  };
  if (lives_in_jail()) {
    for (const char* dir : {"/run/slurm", "/etc/slurm"})
      if (auto made = make_dirs(dir, 0755); !made) return refuse(made.error());
    keep_client_conf("/etc/fairlead/slurm", "/etc/slurm");
    if (auto jail = prepare_jail(); !jail) return refuse(jail.error());
    if (auto users = prepare_users(); !users) return refuse(users.error());
    auto started = Child::start({.argv = {"/proc/self/exe", "munge"}, .stdout_fd = 2, .stderr_fd = 2, .die_with_parent = true});
    if (!started) return refuse(started.error());
    munge = std::move(*started);
    (void)wait_for_munge();  // without it a script runs as well, but Slurm's commands
    options->root = kJail;
    options->shared_root = true;
  }
  const Fd old_root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const int status = run_lifecycle(*options);
  if (lives_in_jail() && ::fchdir(old_root.get()) == 0 && ::chroot(".") == 0) leave_jail();
  return status;
}

// Root's keys: those of the resource and the site's own. Read at each login, so an edit counts at once.
int print_authorized_keys(const std::string& user) {
  if (user != "root") return 0;
  for (const char* path : {"/etc/fairlead/ssh-root-keys/authorized_keys", "/etc/fairlead/ssh-client-key/authorized_keys"}) {
    auto keys = read_file(path);
    if (keys) std::fputs(keys->c_str(), stdout);
  }
  return 0;
}

int check(const std::string& what) {
  if (what == "accounting") return check_accounting();
  if (what == "database") return check_database();
  if (what == "backups") return check_backups();
  if (what == "sets") return check_sets();
  if (what == "rest") return check_rest();
  if (what == "munge") {
    auto out = tool({"munge", "-n"}, 4s);
    return out && out->exit.code == 0 ? 0 : 1;
  }
  if (what == "controller" && exists("/run/slurm/head.sock")) {
    // One of several: it serves, or it votes and knows who does.
    auto status = ask_head("/run/slurm", "status");
    const bool up = status && (status->find("\"role\":\"active\"") != std::string::npos || (status->find("\"role\":\"standby\"") != std::string::npos && status->find("\"active\":null") == std::string::npos));
    if (!up) std::fprintf(stderr, "no head serves, as this one sees it: %s\n", status ? std::string(trim(*status)).c_str() : status.error().message.c_str());
    return up ? 0 : 1;
  }
  if (what == "controller") {
    auto out = tool({"scontrol", "ping"}, 6s);
    const bool up = out && out->exit.code == 0 && out->out.find("is UP") != std::string::npos;
    if (!up) std::fprintf(stderr, "slurmctld does not answer: %s\n", out ? std::string(trim(out->out)).c_str() : out.error().message.c_str());
    return up ? 0 : 1;
  }
  if (what == "worker") {
    auto out = tool({"scontrol", "-o", "show", "node", own_node()}, 6s, "/etc/fairlead/slurm/slurm.conf");
    if (!out || out->exit.code != 0) {
      std::fputs("not registered with the head\n", stderr);
      return 1;
    }
    // While this worker waits for the end of a pod that had its name, what Slurm says is of that one.
    const auto nodes = read_nodes(out->out);
    const auto mark = nodes && nodes->size() == 1 ? read_mark(nodes->front().extra) : std::nullopt;
    if (const std::string own = env_or("FAIRLEAD_POD_UID", ""); mark && !own.empty() && mark->pod != own) {
      std::fprintf(stderr, "Slurm knows the slurmd of another pod here, on %s\n", mark->machine.c_str());
      return 1;
    }
    const auto at = out->out.find("State=");
    const std::string state = at == std::string::npos ? "UNKNOWN" : out->out.substr(at + 6, out->out.find(' ', at) - at - 6);
    const bool up = state.find("DOWN") == std::string::npos && state.find('*') == std::string::npos && state.find("UNKNOWN") == std::string::npos;
    if (!up) std::fprintf(stderr, "Slurm shows this node as %s\n", state.c_str());
    return up ? 0 : 1;
  }
  if (what == "login") {
    std::string port = "22";
    if (auto config = read_file("/etc/fairlead/ssh/sshd_config"))
      for (const auto& line : split(*config, '\n'))
        if (line.starts_with("Port ")) port = line.substr(5);
    if (!reachable("127.0.0.1", port)) {
      std::fprintf(stderr, "sshd does not listen on port %s\n", port.c_str());
      return 1;
    }
    return 0;
  }
  std::fprintf(stderr, "fairlead-slurm check: munge, controller, worker, login, accounting, database, backups, sets or rest, not \"%s\"\n", what.c_str());
  return 2;
}

// A user for the whole cluster. Accepts the options of Debian's adduser that scripts use; there is no password: logins are by key.
int add_user(const std::vector<std::string>& arguments) {
  std::string name, uid, shell = "/bin/bash", key;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto value = [&]() -> std::string { return i + 1 < arguments.size() ? arguments[++i] : ""; };
    const std::string& argument = arguments[i];
    if (argument == "--uid") uid = value();
    else if (argument == "--shell") shell = value();
    else if (argument == "--ssh-key") key = value();
    else if (argument == "--gecos" || argument == "--comment" || argument == "--home") (void)value();
    else if (argument == "--help") {
      std::puts("usage: adduser [--uid N] [--shell PATH] [--ssh-key \"ssh-ed25519 ...\"] NAME\nMakes a user that is known on every node of this Slurm cluster, with a home in the shared /home.");
      return 0;
    } else if (argument.starts_with("-")) continue;  // --disabled-password, --quiet, ...
    else name = argument;
  }
  if (name.empty()) {
    std::fputs("adduser: give a name: adduser NAME\n", stderr);
    return 2;
  }
  // useradd locks the container's own /etc; another node may be at it, too, or an update of the shared root.
  auto users = lock_users(kJail, kJailVolume, 120s);
  if (!users) {
    std::fprintf(stderr, "adduser: %s\n", users.error().message.c_str());
    return 1;
  }
  std::vector<std::string> argv = {"useradd", "--prefix", users->root, "--create-home", "--user-group", "--shell", shell};
  if (!uid.empty()) argv.insert(argv.end(), {"--uid", uid});
  argv.push_back(name);
  auto out = tool(argv, 30s);
  if (!out || out->exit.code != 0) {
    std::fprintf(stderr, "adduser: %s\n", out ? std::string(trim(out->err)).c_str() : out.error().message.c_str());
    return out ? out->exit.code : 1;
  }
  if (!key.empty()) {
    const std::string folder = users->root + "/home/" + name + "/.ssh";
    if (auto made = make_dirs(folder, 0700); !made) return complain(made.error());
    if (auto written = write_file_atomically(folder + "/authorized_keys", key + "\n", 0600); !written) return complain(written.error());
    auto owner = run_checked({.argv = {"chown", "-R", name + ":" + name, folder}}, 10s);
    if (!owner) return complain(owner.error());
  }
  std::printf("user %s is known on every node of this cluster\n", name.c_str());
  return 0;
}

int main_of(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  const std::string first = arguments.size() > 1 ? arguments[1] : "";
  start_logging("fairlead-slurm", "info");
  if (command == "munge" || command == "controller" || command == "worker" || command == "login" || command == "rest" || (command == "exporter" && first == "--pod"))
    if (auto taken = take_limits(env_or("FAIRLEAD_LIMITS", "")); !taken) return complain(taken.error());
  if (command == "munge") return run_munge();
  if (command == "controller") return run_controller();
  if (command == "witness") return run_witness();
  if (command == "probe") return run_probe();
  if (command == "status" || command == "step-down") return ask_own_head({arguments.begin(), arguments.end()});
  if (command == "ids") return print_ids(exists("/run/slurm/state") ? "/run/slurm/state" : "/var/spool/slurmctld", first == "--at-least" && arguments.size() > 2 ? arguments[2] : "");
  if (command == "worker") return run_worker();
  if (command == "login") return run_login();
  if (command == "lifecycle") return run_script();
  if (command == "deep-check") return run_check_of_machine();
  if (command == "answer-links") return run_link_listener();
  if (command == "check-links") return run_check_of_links();
  if (command == "accounting") return run_accounting();
  if (command == "rest") return run_rest();
  if (command == "meet-accounting" && !first.empty()) return meet_accounting(first);
  if (command == "database") return run_database();
  if (command == "backups") return run_backups();
  if (command == "list-backups") return list_backups();
  if (command == "restore-accounting") return restore_accounting({arguments.begin() + 1, arguments.end()});
  if (command == "keep-sets") return run_set_keeper();
  if (is_set_command(command)) return run_set_command(arguments);
  if (command == "check") return check(first);
  if (command == "reconfigure") return reconfigure({arguments.begin() + 1, arguments.end()});
  if (command == "await" && !first.empty()) return await_files(first);
  if (command == "take-config") return take_config(first);
  if (command == "generation") return print_generation();
  if (command == "sessions") return print_sessions();
  if (command == "check-config") return run_trial();
  if (command == "authorized-keys") return print_authorized_keys(first.empty() ? "root" : first);
  if (command == "populate") return run_populate(arguments);
  if (command == "submit") return run_submit({arguments.begin() + 1, arguments.end()});
  if (command == "container") return run_container(arguments);
  if (command == "adduser") return add_user({arguments.begin() + 1, arguments.end()});
  if (command == "died") return run_died(arguments);
  if (command == "exporter" && first == "--pod") {
    if (auto prepared = prepare_exporter_pod(); !prepared) return complain(prepared.error());
    return run_exporter({arguments.begin() + 2, arguments.end()});
  }
  if (command == "exporter") return run_exporter({arguments.begin() + 1, arguments.end()});
  if (is_admission_command(command)) return run_admission_command(arguments);
  if (is_check_command(command)) return run_check_command(arguments);
  if (is_node_command(command)) return run_node_command(arguments);
  if (command == "version" || command == "--version") {
    std::puts("fairlead-slurm " FAIRLEAD_VERSION);
    return 0;
  }
  std::fputs(
      "fairlead-slurm: companion of Slurm's daemons, run inside their containers.\n"
      "  munge | controller | worker | login | accounting | database | rest   prepare the container and run that daemon\n"
      "  deep-check                            try processors, memory, disk and devices of a machine, and end with 10 if it has a fault\n"
      "  check-links | answer-links            try the ways to other machines; answer those who try\n"
      "  lifecycle                             run a script of a machine's life, once, and end with its status\n"
      "  backups                               of the accounting database, one now and then\n"
      "  list-backups | restore-accounting NAME|latest [--force]\n"
      "  keep-sets                             of state, database and shared root, one now and then\n"
      "  export-begin | export-status [ID] | export-abort | export-hand-over | export-read\n"
      "  import-begin ID CLUSTER SUM SET BYTES | import-put ID OFFSET | import-fill ID | import-open\n"
      "  sets | make-set | check-set SET | restore-set SET|latest [--parts A,B] [--dry-run]\n"
      "  witness                               a voter among several heads, which runs no daemon\n"
      "  status                                who serves, as this head sees it (JSON)\n"
      "  step-down                             slurmctld saves and ends here, another head takes over\n"
      "  ids [--at-least N]                    the mark of issued job ids beside the saved state; while no slurmctld runs on it, raise it\n"
      "  check munge|controller|worker|login|accounting|database|backups|sets|rest   readiness: exit status 0 when it answers\n"
      "  check-config                          try a configuration (files by stdin) on a slurmctld of its own\n"
      "  await HASH                            wait for the files of that configuration\n"
      "  reconfigure HASH [--always] [--restart]   wait for them, then tell slurmctld and the nodes to read them, and see that it stands them\n"
      "  take-config HASH                      on a worker that slurmctld could not tell: give slurmd that configuration (files by stdin)\n"
      "  generation                            of the configuration in use here\n"
      "  sessions                              who is in this login container (JSON)\n"
      "  nodes | drain | undrain | lift | forget | requeue | cancel   what Slurm knows of its nodes, and steps of a scale-down\n"
      "  check-look | check-run | check-cancel | check-drain | check-comment | check-try | check-settle   checks of nodes as jobs, and what follows from them\n"
      "  queue-look | queue-hold | queue-release | queue-requeue | queue-comment   jobs whose quotas are kept by Fairlead, and steps of their admission\n"
      "  died NODE ENDED|- WHY [POD-UID@MACHINE]   its processes are gone: Slurm requeues their jobs, which start again without delay\n"
      "  populate --version V [--volume DIR] [--renew [--nodes A,B]]   fill the shared root from this container's image, or adopt the one that is there; make that version the current one\n"
      "  container KEY=VALUE...                what the plug-in for srun --container-image calls\n"
      "  exporter [--pod] [--port N] [--interval S]   serve Slurm's metrics to Prometheus; --pod: as nobody, with the names of the shared root\n"
      "  submit [--key K] SBATCH-ARGUMENTS     sbatch, tried until there is an answer; it makes one job, however often it is tried\n"
      "  adduser NAME                          a user known on every node\n"
      "  authorized-keys USER                  keys for sshd\n",
      stderr);
  return command == "help" || command == "--help" ? 0 : 2;
}

}  // namespace
}  // namespace fairlead::companion

int main(int argc, char** argv) { return fairlead::companion::main_of(argc, argv); }
