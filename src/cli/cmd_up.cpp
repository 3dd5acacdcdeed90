// SPDX-License-Identifier: Apache-2.0
// up: the server runs, the file's objects are there, everything is ready. down: nothing is left.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <set>
#include <thread>

#include "api/crds.h"
#include "api/queue_crds.h"
#include "base/encoding.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/probe.h"
#include "cli/readiness.h"
#include "cli/site_volumes.h"
#include "kube/selector.h"

namespace fairlead::cli {

using kube::Json;
namespace resources = kube::resources;

namespace {

constexpr auto kPause = std::chrono::milliseconds(100);

struct UpOptions {
  std::vector<std::string> files;
  bool wait = true, dry_run = false, skip_checks = false, force = false;
  double timeout = 600;
  std::optional<unsigned short> port;
  std::string node_range, pod_range, service_range, advertise_address, root_key_command, prometheus_url, prometheus_ca, prometheus_token, volumes;
};

std::string last_lines(const std::string& path, std::size_t count) {
  auto text = read_file(path);
  if (!text) return "";
  auto lines = split(trim(*text), '\n');
  std::string out;
  for (std::size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i) out += "\n    " + clean(lines[i]);
  return out;
}

// Refuses with every objection at once, each a sentence.
Result<void> check_machine(Context& context, const SiteSettings& settings, bool needs_image) {
  Needs needs{.state_dir = context.globals.state_dir, .port = settings.port, .image_present = !needs_image, .debian = false, .memory_bytes = 1'000'000'000};
  const auto objections = object_to(probe_machine(context, settings), needs);
  if (objections.empty()) return {};
  if (objections.size() == 1) return fail(Code::Unavailable, objections.front().sentence());
  std::string text = "this machine is not ready:";
  for (const auto& objection : objections) text += "\n  - " + objection.sentence();
  return fail(Code::Unavailable, text);
}

// True once the API answers.
bool answers(Context& context) {
  auto session = context.session();
  return session && session->request("GET", "/version");
}

// While a change of what holds the root key is under way both are written down, and given to the server, which takes the keys as it finds them: a death in between loses neither.
Result<void> start_server(Context& context, const SiteSettings& settings, Progress& progress) {
  const std::string& dir = context.globals.state_dir;
  const std::string program = find_sibling(context.own_dir, "fairlead-server");
  if (program.empty()) return fail(Code::NotFound, fmt::format("fairlead-server is not beside fairlead in {}: build or install it whole", context.own_dir));
  if (auto made = make_dirs(dir + "/run", 0755); !made) return made;
  if (auto written = write_settings(dir, settings); !written) return written;
  const std::string log_path = dir + "/run/server.log";
  const Fd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) return fail_errno(errno, "open " + log_path);
  std::vector<std::string> argv{program, "--state-dir", dir, "--listen", fmt::format("{}:{}", settings.advertise_address.empty() ? "127.0.0.1" : "0.0.0.0", settings.port), "--node-range", settings.node_range, "--pod-range", settings.pod_range};
  if (!settings.service_range.empty()) argv.insert(argv.end(), {"--service-range", settings.service_range});
  if (!settings.root_key_command.empty()) argv.insert(argv.end(), {"--root-key-command", settings.root_key_command});
  if (!settings.old_root_key_command.empty()) argv.insert(argv.end(), {"--old-root-key-command", settings.old_root_key_command});
  for (const auto& [option, value] : {std::pair("--prometheus-url", settings.prometheus_url), {"--prometheus-ca", settings.prometheus_ca}, {"--prometheus-token-file", settings.prometheus_token}})
    if (!value.empty()) argv.insert(argv.end(), {option, value});
  if (!settings.advertise_address.empty()) argv.insert(argv.end(), {"--advertise-address", settings.advertise_address});
  auto child = Child::start({.argv = std::move(argv), .environment = {}, .working_directory = "/", .stdout_fd = log.get(), .stderr_fd = log.get(), .new_session = true});
  if (!child) return std::unexpected(std::move(child.error()));
  // A holder of the root key has a minute for each of up to four questions.
  const bool asks = !(settings.root_key_command + settings.old_root_key_command).empty();
  const auto deadline = context.clock.monotonic() + std::chrono::seconds(asks ? 300 : 60);
  // It writes down who it is before it acts: until then nobody else could end it.
  while (!answers(context) || !running_server(dir)) {
    auto exit = child->wait(kPause);
    if (!exit) return std::unexpected(std::move(exit.error()));
    if (*exit) return fail(Code::Unavailable, fmt::format("fairlead-server ended with status {}; the end of its log ({}):{}", (*exit)->code, log_path, last_lines(log_path, 3)));
    if (context.clock.monotonic() > deadline) return fail(Code::Unavailable, fmt::format("fairlead-server does not answer after {} minutes; see {}", asks ? 5 : 1, log_path));
    progress.redraw();
  }
  child->detach();
  if (settings.old_root_key_command.empty()) return {};
  SiteSettings done = settings;
  done.old_root_key_command.clear();
  return write_settings(dir, done);
}

// Ends the server alone: machines, pods and their containers run on, and the next one takes them over.
Result<void> stop_server(Context& context, Progress& progress) {
  const std::string& dir = context.globals.state_dir;
  const auto identity = running_server(dir);
  if (!identity) return fail(Code::Unavailable, fmt::format("the server that answers was not started in {}: end it where it was started, then run this again", dir));
  auto process = open_process(*identity);
  if (!process && process.error().code == Code::NotFound) return {};
  if (!process) return std::unexpected(std::move(process.error()));
  if (::syscall(SYS_pidfd_send_signal, process->get(), SIGTERM, nullptr, 0) != 0 && errno != ESRCH) return fail_errno(errno, fmt::format("end fairlead-server (process {})", identity->pid));
  const auto deadline = context.clock.monotonic() + std::chrono::seconds(60);
  for (pollfd ended{.fd = process->get(), .events = POLLIN, .revents = 0}; ::poll(&ended, 1, 100) <= 0;) {
    if (context.clock.monotonic() > deadline) return fail(Code::Unavailable, fmt::format("fairlead-server (process {}) has not ended after a minute", identity->pid));
    progress.redraw();
  }
  return {};
}

// A change with which the server does not start is taken back, so that the site runs. What is told of that.
std::string go_back(Context& context, const SiteSettings& tried, const SiteSettings& before, Progress& progress) {
  auto again = start_server(context, before, progress);
  if (!again && tried.root_key_command != before.root_key_command) {  // some of the keys may be under it by now
    SiteSettings both = before;
    both.old_root_key_command = tried.root_key_command;
    again = start_server(context, both, progress);
  }
  return again ? "; the server runs again, as before" : "; as before it does not start either: " + again.error().message;
}

Result<void> ensure_crds(Context& context, Session& session, Progress& progress) {
  const auto deadline = context.clock.monotonic() + std::chrono::seconds(60);
  auto there = session.list(resources::crds);
  if (!there) return pass(std::move(there.error()), "look for definitions");
  const bool foreign_queues = api::foreign_queue_crd(*there) != nullptr;
  for (const Json& crd : api::crds()) {
    if (foreign_queues && api::is_queue_crd(crd)) continue;
    bool applied = false;
    for (;;) {
      auto now = session.get(resources::crds, "", kube::name_of(crd));
      if (now && readiness_of(*now).state == Readiness::State::Ready) break;
      if (!now && now.error().code == Code::NotFound && !applied) {
        // Another engine's API: there nobody but us installs them.
        auto done = session.request("POST", kube::path_of(resources::crds, ""), crd);
        if (!done && done.error().code != Code::Exists) return pass(std::move(done.error()), "install " + kube::name_of(crd));
        applied = true;
      } else if (!now && now.error().code != Code::NotFound) {
        return std::unexpected(std::move(now.error()));
      }
      if (context.clock.monotonic() > deadline) return fail(Code::Unavailable, fmt::format("{} is not established after a minute", kube::name_of(crd)));
      progress.redraw();
      std::this_thread::sleep_for(kPause);
    }
  }
  return {};
}

// What a document's object and everything that follows from it is waiting for.
Result<Readiness> look_at(Session& session, const Json& document) {
  auto kind = session.find_kind(document["apiVersion"].string(), document["kind"].string());
  if (!kind) return std::unexpected(std::move(kind.error()));
  const std::string space = kube::space_of(document).empty() ? session.default_namespace() : kube::space_of(document);
  auto object = session.get(kind->resource, kind->resource.namespaced ? space : "", kube::name_of(document));
  if (!object) return std::unexpected(std::move(object.error()));
  Json node;
  if (document["kind"].string() == "Machine")
    if (auto found = session.get(resources::nodes, "", kube::name_of(document))) node = std::move(*found);
  return readiness_of(*object, node);
}

// Which local image an up of these documents needs and does not have.
std::vector<std::string> missing_images(const std::string& state_dir, const std::vector<Json>& documents) {
  std::set<std::string> wanted;
  const std::function<void(const Json&)> walk = [&](const Json& value) {
    for (const auto& [key, member] : value.members()) {
      if (key == "image" && member.is_string() && !member.string().empty()) wanted.insert(member.string());
      walk(member);
    }
    for (const auto& item : value.items()) walk(item);
  };
  for (const auto& document : documents)
    if (document["kind"].string() == "Pod" || document["kind"].string() == "SlurmCluster") walk(document);
  std::vector<std::string> missing;
  for (const auto& image : wanted)
    if (image.find('/') == std::string::npos && !exists(image_dir(state_dir, image) + "/image.json")) missing.push_back(image);
  return missing;
}

Result<int> wait_until_ready(Context& context, Session& session, const std::vector<Json>& documents, double timeout, Progress& progress) {
  const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout));
  std::vector<Json> open;
  for (const auto& document : documents) {
    const std::string& kind = document["kind"].string();
    if (kind == "Machine" || kind == "Cluster" || kind == "SlurmCluster" || kind == "Pod" || kind == "PersistentVolumeClaim") open.push_back(document);
  }
  // A claim may be bound only when its first pod comes: what stands for itself first.
  std::stable_sort(open.begin(), open.end(), [](const auto& a, const auto& b) { return (a["kind"].string() == "Machine") > (b["kind"].string() == "Machine"); });
  for (const auto& document : open) {
    progress.begin(title_of(document));
    for (;;) {
      auto readiness = look_at(session, document);
      if (!readiness && readiness.error().code != Code::Unavailable) {
        progress.fail();
        return std::unexpected(std::move(readiness.error()).in("wait for " + title_of(document)));
      }
      if (readiness && readiness->state == Readiness::State::Ready) {
        progress.end(readiness->why);
        break;
      }
      if (readiness && readiness->state == Readiness::State::Refused) {
        progress.fail(readiness->why);
        return fail(Code::Invalid, fmt::format("{} is refused: {}", title_of(document), readiness->why));
      }
      if (context.clock.monotonic() > deadline) {
        progress.fail(readiness ? readiness->why : "");
        return fail(Code::Unavailable, fmt::format("{} is not ready after {}{}; see `fairlead status`, or go on waiting with the same command", title_of(document), print_seconds(timeout), readiness ? ": " + readiness->why : ""));
      }
      progress.note(readiness ? readiness->why : readiness.error().message);
      std::this_thread::sleep_for(kPause);
    }
  }
  return 0;
}

Result<int> up(Context& context, const UpOptions& options) {
  if (options.files.empty() && !context.own_site()) return fail(Code::Invalid, "usage: --filename is required on a cluster: there is no site to start");
  auto documents = options.files.empty() ? Result<std::vector<Json>>(std::vector<Json>()) : read_documents(options.files);
  if (!documents) return std::unexpected(std::move(documents.error()));
  const std::string& dir = context.globals.state_dir;
  const SiteSettings before = read_settings(dir);
  SiteSettings settings = before;
  if (options.port) settings.port = *options.port;
  if (!options.node_range.empty()) settings.node_range = options.node_range;
  if (!options.pod_range.empty()) settings.pod_range = options.pod_range;
  if (!options.service_range.empty()) settings.service_range = options.service_range;
  const bool own_site = context.own_site();
  bool running = answers(context);
  const std::string of_prometheus = options.prometheus_url + options.prometheus_ca + options.prometheus_token;
  if (!own_site && !(options.advertise_address + options.root_key_command + of_prometheus + options.volumes).empty()) return fail(Code::Invalid, "usage: --advertise-address, --root-key-command, --volumes and --prometheus-* are of a site of this machine");
  if (!options.volumes.empty()) {
    if (exists(dir + "/pool.img") && !before.volumes.empty() && before.volumes != options.volumes) return fail(Code::Conflict, fmt::format("the site has a pool of volumes of {} already: it keeps its size", before.volumes));
    if (find_sibling(context.own_dir, "fairlead-volumes").empty()) return fail(Code::NotFound, fmt::format("--volumes: fairlead-volumes is not beside fairlead in {}: install its package, or build it (ninja fairlead-volumes)", context.own_dir));
    settings.volumes = options.volumes;
  }
  for (const auto& [given, kept] : {std::pair(&options.prometheus_url, &settings.prometheus_url), {&options.prometheus_ca, &settings.prometheus_ca}, {&options.prometheus_token, &settings.prometheus_token}})
    if (!given->empty()) *kept = *given == "off" ? "" : *given;
  if (options.prometheus_url == "off") settings.prometheus_ca = settings.prometheus_token = "";
  if (settings.prometheus_url.empty() && !(settings.prometheus_ca + settings.prometheus_token).empty()) return fail(Code::Invalid, "usage: --prometheus-ca and --prometheus-token-file go with --prometheus-url");
  if (!options.advertise_address.empty()) settings.advertise_address = options.advertise_address == "off" ? "" : options.advertise_address;
  if (!options.root_key_command.empty()) settings.root_key_command = options.root_key_command == "off" ? "" : options.root_key_command;
  if (settings.root_key_command != before.root_key_command) {
    if (!before.root_key_command.empty() && !before.old_root_key_command.empty() && before.old_root_key_command != settings.root_key_command)
      return fail(Code::Conflict, fmt::format("a change of the root key from {} to {} is not through: `fairlead up` first, or --root-key-command with one of the two", before.old_root_key_command, before.root_key_command));
    settings.old_root_key_command = before.root_key_command.empty() ? before.old_root_key_command : before.root_key_command;
    if (settings.old_root_key_command == settings.root_key_command) settings.old_root_key_command.clear();
  }
  std::vector<std::string> changes;
  if (settings.advertise_address != before.advertise_address) changes.push_back("to be reached " + (settings.advertise_address.empty() ? "by this machine alone" : "at " + settings.advertise_address));
  if (settings.root_key_command != before.root_key_command) changes.push_back(settings.root_key_command.empty() ? "its keys open" : "its keys under " + settings.root_key_command);
  if (std::tie(settings.prometheus_url, settings.prometheus_ca, settings.prometheus_token) != std::tie(before.prometheus_url, before.prometheus_ca, before.prometheus_token)) changes.push_back(settings.prometheus_url.empty() ? "without alarms" : "its alarms those of " + settings.prometheus_url);
  const bool restarts = running && !changes.empty();

  if (options.dry_run) {
    std::optional<Session> session;
    if (running)
      if (auto opened = context.session()) session.emplace(std::move(*opened));
    if (!settings.volumes.empty() && !exists(dir + "/pool.img")) fmt::print("would make a pool of volumes of {} in {}/pool.img\n", settings.volumes, dir);
    if (!running) fmt::print("would start the site in {} (API on port {}{})\n", dir, settings.port, settings.advertise_address.empty() ? "" : ", reached at " + settings.advertise_address);
    if (restarts) fmt::print("would restart the server, {}; what runs goes on\n", fmt::join(changes, ", "));
    for (const Json& document : *documents) {
      std::string word = "would be created";
      if (session) {
        auto applied = apply_document(*session, document, {.dry_run = true, .force = options.force});
        if (!applied && applied.error().code != Code::NotFound) return std::unexpected(std::move(applied.error()));
        if (applied) word = *applied == Applied::Created ? "would be created" : *applied == Applied::Configured ? "would be changed" : "is as it should be";
      }
      fmt::print("{} {}\n", title_of(document), word);
    }
    for (const auto& image : missing_images(dir, *documents)) fmt::print("image {} is missing: sudo fairlead image build {}\n", image, image.substr(0, image.find(':')));
    return 0;
  }

  const auto missing = own_site ? missing_images(dir, *documents) : std::vector<std::string>{};
  if (own_site && !options.skip_checks && !running) {
    if (auto fine = check_machine(context, settings, false); !fine) return std::unexpected(std::move(fine.error()));
  }
  if (!missing.empty())
    return fail(Code::NotFound, fmt::format("the image {} is not in {}/images: build it with `sudo fairlead image build {}`", missing.front(), dir, missing.front().substr(0, missing.front().find(':'))));

  Progress progress(context.look());
  progress.begin("server");
  if (restarts) {
    progress.note(fmt::format("restarts, {}", fmt::join(changes, ", ")));
    if (auto stopped = stop_server(context, progress); !stopped) {
      progress.fail();
      return std::unexpected(std::move(stopped.error()));
    }
    running = false;
  }
  if (!running) {
    if (!own_site) {
      progress.fail();
      auto opened = context.session();
      if (!opened) return std::unexpected(std::move(opened.error()));
      const auto reached = opened->request("GET", "/version");
      return fail(Code::Unavailable, "the cluster does not answer: " + (reached ? std::string("try again") : reached.error().message));
    }
    if (auto started = start_server(context, settings, progress); !started) {
      if (restarts) started.error().message += go_back(context, settings, before, progress);
      else if (!exists(dir + "/pki/root.json")) (void)write_settings(dir, before);  // nothing came under a root key that could not be had
      progress.fail();
      return std::unexpected(std::move(started.error()));
    }
  }
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  progress.end(running ? "runs already" : session->server());

  if (own_site && (!settings.volumes.empty() || exists(dir + "/pool.img"))) {
    progress.begin("volumes");
    auto started = start_volumes(context, settings, progress);
    if (!started) {
      progress.fail();
      return std::unexpected(std::move(started.error()));
    }
    progress.end(*started);
    // What could not be made is not asked for at each later up.
    if (running && settings.volumes != before.volumes)
      if (auto written = write_settings(dir, settings); !written) return std::unexpected(std::move(written.error()));
  }

  progress.begin("objects");
  if (auto done = ensure_crds(context, *session, progress); !done) {
    progress.fail();
    return std::unexpected(std::move(done.error()));
  }
  int counts[3] = {0, 0, 0};
  for (const Json& document : *documents) {
    progress.note(title_of(document));
    auto applied = apply_document(*session, document, {.force = options.force});
    if (!applied) {
      progress.fail();
      return std::unexpected(std::move(applied.error()));
    }
    ++counts[static_cast<int>(*applied)];
  }
  std::string told;
  for (const auto& [count, word] : {std::pair(counts[0], "created"), {counts[1], "changed"}, {counts[2], "unchanged"}})
    if (count > 0) told += fmt::format("{}{} {}", told.empty() ? "" : ", ", count, word);
  progress.end(documents->empty() ? "none asked for" : told);
  if (!options.wait) return 0;
  auto done = wait_until_ready(context, *session, *documents, options.timeout, progress);
  if (!done) return done;
  fmt::print(stderr, "  ready after {}; see it with `fairlead status`\n", print_seconds(progress.seconds()));
  return 0;
}

Result<int> down(Context& context, bool keep_images, bool keep_data, bool yes) {
  const std::string& dir = context.globals.state_dir;
  if (!context.own_site()) return fail(Code::Invalid, "usage: `down` removes the site of a state folder on this machine; on a cluster, `fairlead delete -f FILE` removes what a file names and `fairlead uninstall` Fairlead itself");
  if (::geteuid() != 0) return fail(Code::Forbidden, "not root: namespaces, links and cgroups are removed, so run it again with sudo");
  const bool there = exists(dir + "/pool.img") || exists(dir + "/run") || exists(dir + "/pki") || exists(dir + "/nodes") || !context.hooks.leftovers(dir).empty();
  if (!there && (keep_images || !exists(dir + "/images"))) {
    fmt::print("Nothing to do: no site runs in {}.\n", dir);
    return 0;
  }
  // Claims hold people's data; whoever sits at a terminal is asked.
  auto claims = list_dir(dir + "/volumes");
  if (!keep_data && !yes && ((claims && !claims->empty()) || exists(dir + "/pool.img")) && is_terminal(STDIN_FILENO)) {
    fmt::print("This removes the site in {} with the data of its claims{}. Go on? [y/N] ", dir, keep_images ? "; images stay" : " and its images");
    std::fflush(stdout);
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != "y" && answer != "Y" && answer != "yes") {
      fmt::print("Nothing was changed. (--keep-data stops the site and keeps its objects and data.)\n");
      return 1;
    }
  }
  Progress progress(context.look());
  progress.begin("site " + dir);
  auto done = context.hooks.teardown(dir, keep_images, keep_data, [&] { return end_volumes(context, keep_data); }, [&](const std::string& what) { progress.line(what); });
  if (!done) {
    progress.fail();
    return std::unexpected(std::move(done.error()).in("not everything could be removed, run `fairlead down` again"));
  }
  const auto left = context.hooks.leftovers(dir);
  if (!left.empty()) {
    progress.fail();
    std::string text = "still on this machine, run `fairlead down` again:";
    for (const auto& one : left) text += "\n  - " + one;
    return fail(Code::Unavailable, text);
  }
  progress.end("nothing is left running");
  return 0;
}

}  // namespace

void add_up(CLI::App& app, Context& context) {
  auto options = std::make_shared<UpOptions>();
  CLI::App* command = app.add_subcommand("up", "Start the site if need be, apply a file, wait until all is ready");
  command->add_option("-f,--filename", options->files, "YAML or JSON file, folder, or - for stdin; without: a site with nothing in it")->type_name("FILE");
  command->add_flag("--wait,!--no-wait", options->wait, "wait until all is ready (default)");
  command->add_option("--timeout", options->timeout, "seconds to wait")->capture_default_str();
  command->add_flag("--dry-run", options->dry_run, "tell what would be done, change nothing");
  command->add_flag("--force-conflicts", options->force, "take fields over that others have set");
  command->add_option("--port", options->port, "port of the API (first start; default 6443)");
  command->add_option("--node-range", options->node_range, "addresses of local nodes, a /16, and for both families a comma and an IPv6 range (first start; default 10.77.0.0/16, and fd00:77::/64 where pods have one)")->type_name("NETWORK");
  command->add_option("--pod-range", options->pod_range, "addresses of their pods, a /16, and for both families a comma and an IPv6 /56, such as 10.78.0.0/16,fd00:78::/56 (first start; default 10.78.0.0/16)")->type_name("NETWORK");
  command->add_option("--service-range", options->service_range, "addresses of services, for both families such as 10.79.0.0/16,fd00:79::/112 (first start; default 10.79.0.0/16)")->type_name("NETWORK");
  command->add_option("--advertise-address", options->advertise_address, "at which hosts that join reach this machine; the API then listens at all of its addresses (a site that runs is restarted for it, and what runs there goes on); off: for this machine alone, the default")
      ->type_name("ADDRESS|off")
      ->check([](const std::string& text) {
        in_addr address{};
        const bool good = ::inet_pton(AF_INET, text.c_str(), &address) == 1 && address.s_addr != 0 && !text.starts_with("127.");
        return text == "off" || good ? std::string() : "\"" + text + "\" is not an IPv4 address at which other machines reach this one";
      });
  command->add_option("--root-key-command", options->root_key_command, "a program that holds the root key of this site's keys, in a TPM or a KMS (docs/root-key.md; a site that runs is restarted for it); off: the keys are as they are, the default")
      ->type_name("PROGRAM|off")
      ->check([](const std::string& text) { return text == "off" || text.starts_with('/') ? std::string() : "\"" + text + "\": the full path of a program is expected"; });
  const auto file = [](const std::string& text) { return text == "off" || text.starts_with('/') ? std::string() : "\"" + text + "\": the full path of a file is expected"; };
  command->add_option("--prometheus-url", options->prometheus_url, "a Prometheus whose alerting rules are the alarms that roll an update of software back (docs/clusters.md; a site that runs is restarted for it); off: none, the default")->type_name("URL|off");
  command->add_option("--prometheus-ca", options->prometheus_ca, "authority of its certificate; off: the system's, the default")->type_name("FILE|off")->check(file);
  command->add_option("--prometheus-token-file", options->prometheus_token, "bearer token that is sent to it; off: none, the default")->type_name("FILE|off")->check(file);
  command->add_option("--volumes", options->volumes, "a pool of block volumes of this size on this machine, such as 50Gi (docs/volumes.md); its room is set aside at once, and it is there at each later up")
      ->type_name("SIZE")
      ->check([](const std::string& text) {
        const auto size = kube::Quantity::parse(text);
        return size && size->value() >= (std::int64_t{1} << 30) ? std::string() : "\"" + text + "\": a size of 1Gi at least is expected";
      });
  command->add_flag("--skip-checks", options->skip_checks, "do not look at the machine first");
  add_globals(*command, context);
  set_examples(*command, {{"sudo fairlead up -f examples/demo.yaml", "start the demo"}, {"sudo fairlead up", "a site with nothing in it, for CreateCluster"}, {"sudo fairlead up --advertise-address 10.0.0.5", "the same, which hosts can join"}, {"fairlead up -f cluster.yaml --context prod", "on a Kubernetes cluster where Fairlead is installed"}, {"fairlead up -f site.yaml --dry-run", "what would be done"}});
  command->callback([options, &context] { context.action = [options, &context] { return up(context, *options); }; });
}

void add_down(CLI::App& app, Context& context) {
  struct Options {
    bool keep_images = true, purge = false, keep_data = false, yes = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("down", "Stop the site and remove all that it made on this machine");
  command->add_flag("--keep-images,!--no-keep-images", options->keep_images, "keep the built images (default)");
  command->add_flag("--purge", options->purge, "remove images too");
  command->add_flag("--keep-data", options->keep_data, "only stop: objects, keys and data of claims stay for the next up");
  command->add_flag("-y,--yes", options->yes, "do not ask");
  add_globals(*command, context);
  set_examples(*command, {{"sudo fairlead down", "remove the site, keep its images"}, {"sudo fairlead down --purge", "remove images too"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      if (options->purge && options->keep_data) return fail(Code::Invalid, "usage: --purge and --keep-data contradict one another");
      return down(context, options->keep_images && !options->purge, options->keep_data, options->yes);
    };
  });
}

void add_preflight(CLI::App& app, Context& context) {
  struct Options {
    bool image_present = false;
    std::optional<unsigned short> port;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("preflight", "Can a site run on this machine?");
  command->add_flag("--image-present", options->image_present, "the node image is built already");
  command->add_option("--port", options->port, "port of the API");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead preflight", "exit status 0: yes; otherwise each reason is a sentence"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      SiteSettings settings = read_settings(context.globals.state_dir);
      if (options->port) settings.port = *options->port;
      Needs needs{.state_dir = context.globals.state_dir, .port = settings.port, .image_present = options->image_present, .debian = true};
      const auto objections = object_to(probe_machine(context, settings), needs);
      for (const auto& objection : objections) fmt::print("{}\n", objection.sentence());
      if (objections.empty()) fmt::print("This machine is ready.\n");
      return objections.empty() ? 0 : 1;
    };
  });
}

}  // namespace fairlead::cli
