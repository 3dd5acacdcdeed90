// SPDX-License-Identifier: Apache-2.0
// logs, exec, attach
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/fd.h"
#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;

namespace {

volatile std::sig_atomic_t g_resized = 0;
void note_resize(int) { g_resized = 1; }

// "POD" or "NAMESPACE/POD".
std::pair<std::string, std::string> split_pod(const std::string& text, const std::string& space, const std::string& otherwise) {
  const auto slash = text.find('/');
  if (slash != std::string::npos && text.substr(0, slash) != "pod" && text.substr(0, slash) != "pods") return {text.substr(0, slash), text.substr(slash + 1)};
  return {space.empty() ? otherwise : space, slash == std::string::npos ? text : text.substr(slash + 1)};
}

// Sends our stdin to the container until it ends or `done` is written to.
void pump_stdin(http::ClientWebSocket& socket, int done_fd, bool tty) {
  char buffer[16384];
  const auto send_size = [&] {
    const WindowSize size = window_size(STDOUT_FILENO);
    (void)socket.send(std::string(1, '\x04') + fmt::format("{{\"Width\":{},\"Height\":{}}}", size.columns, size.rows));
  };
  if (tty) send_size();
  for (;;) {
    pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}, {.fd = done_fd, .events = POLLIN, .revents = 0}};
    const int ready = ::poll(fds, 2, -1);
    if (g_resized != 0 && tty) {
      g_resized = 0;
      send_size();
    }
    if (ready < 0) continue;
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n <= 0) break;
    if (!socket.send('\0' + std::string(buffer, static_cast<std::size_t>(n)))) return;
  }
  if (socket.subprotocol() == "v5.channel.k8s.io") (void)socket.send(std::string("\xff\0", 2));
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Where a command goes if the user names none: the annotated default, or the container that is the pod's point.
std::string default_container(const Json& pod) {
  if (auto annotations = kube::annotations_of(pod); annotations.contains("kubectl.kubernetes.io/default-container")) return annotations["kubectl.kubernetes.io/default-container"];
  const auto& containers = pod["spec"]["containers"].items();
  for (const auto& container : containers)
    if (container["name"].string() != "munge") return container["name"].string();
  return containers.empty() ? "" : containers.front()["name"].string();
}

}  // namespace

namespace {

Result<std::string> container_of(Session& session, const std::string& space, const std::string& pod) {
  auto object = session.get(kube::resources::pods, space, pod);
  if (!object) return std::unexpected(std::move(object.error()));
  return default_container(*object);
}

kube::ExecOptions streams_of(const ExecOptions& options, const std::string& container) {
  return {.container = container, .command = options.command, .in = options.stdin_open || options.input != nullptr, .out = true, .err = !options.tty, .tty = options.tty};
}

// Between our streams and the container's, to the closing status.
Result<int> join_streams(Result<std::unique_ptr<http::ClientWebSocket>> socket, const ExecOptions& options) {
  if (!socket) return std::unexpected(std::move(socket.error()));

  std::optional<RawTerminal> raw;
  std::jthread pump;
  const Fd done(::eventfd(0, EFD_CLOEXEC));
  if (options.input) {
    std::string_view rest = *options.input;
    while (!rest.empty()) {
      if (auto sent = (*socket)->send('\0' + std::string(rest.substr(0, 32768))); !sent) return std::unexpected(std::move(sent.error()));
      rest.remove_prefix(std::min<std::size_t>(rest.size(), 32768));
    }
    if ((*socket)->subprotocol() == "v5.channel.k8s.io") (void)(*socket)->send(std::string("\xff\0", 2));
  } else if (options.stdin_open) {
    if (options.tty) {
      raw.emplace();
      struct sigaction action {};
      action.sa_handler = note_resize;
      ::sigaction(SIGWINCH, &action, nullptr);
    }
    // Signals of the terminal go to that thread only because its poll is what they must end; this one waits in a read that has no time-out.
    pump = std::jthread([&] { pump_stdin(**socket, done.get(), options.tty); });
    sigset_t resize;
    sigemptyset(&resize);
    sigaddset(&resize, SIGWINCH);
    ::pthread_sigmask(SIG_BLOCK, &resize, nullptr);
  }

  Result<int> outcome = fail(Code::Unavailable, "the connection ended before the command did");
  for (;;) {
    auto message = (*socket)->receive();
    if (!message) {
      outcome = std::unexpected(std::move(message.error()));
      break;
    }
    if (!*message) break;
    const std::string& bytes = **message;
    if (bytes.empty()) continue;
    const std::string_view payload = std::string_view(bytes).substr(1);
    if (bytes[0] == 1) {
      if (options.on_out)
        options.on_out(payload);
      else
        write_all(STDOUT_FILENO, payload);
    } else if (bytes[0] == 2) {
      if (options.on_err)
        options.on_err(payload);
      else
        write_all(STDERR_FILENO, payload);
    } else if (bytes[0] == 3) {
      auto status = kube::parse_json(payload);
      outcome = status ? kube::exit_code_of(*status) : Result<int>(std::unexpected(std::move(status.error())));
      break;
    }
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(done.get(), &one, sizeof one);
  if (pump.joinable()) pump.join();
  (*socket)->close();
  return outcome;
}

}  // namespace

Result<int> exec_in_pod(Session& session, const ExecOptions& options) {
  auto container = options.container.empty() ? container_of(session, options.space, options.pod) : Result<std::string>(options.container);
  if (!container) return std::unexpected(std::move(container.error()));
  return join_streams(session.api().open_exec_websocket({options.space, options.pod}, streams_of(options, *container)), options);
}

Result<int> attach_to_pod(Session& session, const ExecOptions& options) {
  auto container = options.container.empty() ? container_of(session, options.space, options.pod) : Result<std::string>(options.container);
  if (!container) return std::unexpected(std::move(container.error()));
  return join_streams(session.api().open_attach_websocket({options.space, options.pod}, streams_of(options, *container)), options);
}

Result<std::string> exec_output(Session& session, const std::string& space, const std::string& pod, const std::string& container, std::vector<std::string> command, int* code, const std::string& input) {
  std::string out, err;
  const auto collect = [](std::string& into) { return [&into](std::string_view piece) { into += piece; }; };
  auto status = exec_in_pod(session, {.space = space, .pod = pod, .container = container, .command = std::move(command), .input = input.empty() ? nullptr : &input, .on_out = collect(out), .on_err = collect(err)});
  if (!status) return std::unexpected(std::move(status.error()));
  if (code) *code = *status;
  if (!code && *status != 0) return fail(Code::Internal, err.empty() ? fmt::format("exit status {}", *status) : clean(err));
  return out;
}

namespace {

struct LogsOptions {
  std::string pod, space, container;
  bool all_containers = false, prefix = false;
  kube::LogOptions log;
  std::int64_t tail = -1;
};

// Init containers first, as they run.
std::vector<std::string> containers_of(const Json& pod) {
  std::vector<std::string> out;
  for (const char* list : {"initContainers", "containers"})
    for (const Json& container : pod["spec"][list].items()) out.push_back(container["name"].string());
  return out;
}

// One container's log to our stdout. With `shared`, whole lines at a time and under it, for others print there too.
Result<void> print_log(Session& session, const kube::ObjectKey& pod, const kube::LogOptions& log, LinePrefix prefix, std::mutex* shared) {
  auto body = session.api().open_log(pod, log);
  if (!body) return std::unexpected(std::move(body.error()));
  LineJoin lines;
  const auto print = [&](const std::string& text) {
    std::unique_lock<std::mutex> lock;
    if (shared != nullptr) lock = std::unique_lock(*shared);
    write_all(STDOUT_FILENO, prefix.add(text));
  };
  for (;;) {
    auto piece = (*body)->read(std::chrono::hours(1));
    if (!piece) return std::unexpected(std::move(piece.error()));
    if (!*piece) continue;
    if ((*piece)->empty()) break;
    print(shared != nullptr ? lines.add(**piece) : **piece);
  }
  if (std::string rest = lines.rest(); !rest.empty()) print(rest + "\n");
  return {};
}

// All at once when they are followed, else one after the other. What one of them refuses is told, the others are shown all the same.
Result<int> print_logs(Session& session, const kube::ObjectKey& pod, const std::vector<std::string>& containers, const LogsOptions& options) {
  std::mutex shared;
  std::atomic<int> failed = 0;
  const auto print = [&](const std::string& container) {
    kube::LogOptions log = options.log;
    log.container = container;
    auto done = print_log(session, pod, log, LinePrefix(options.prefix ? fmt::format("[pod/{}/{}] ", pod.name, container) : ""), log.follow ? &shared : nullptr);
    if (done) return;
    ++failed;
    const std::lock_guard lock(shared);
    fmt::print(stderr, "fairlead: {}: {}\n", container, clean(done.error().message));
  };
  if (options.log.follow) {
    std::vector<std::jthread> threads;
    for (const std::string& container : containers) threads.emplace_back(print, container);
  } else {
    for (const std::string& container : containers) print(container);
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace

void add_logs(CLI::App& app, Context& context) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "Show what a container has printed");
  command->add_option("pod", options->pod, "POD or NAMESPACE/POD")->required();
  command->add_option("-n,--namespace", options->space, "namespace")->type_name("NAME");
  auto* const one = command->add_option("-c,--container", options->container, "container; else the pod's main one")->type_name("NAME");
  command->add_flag("--all-containers", options->all_containers, "of all containers of the pod")->excludes(one);
  command->add_flag("--prefix", options->prefix, "the pod and the container before each line");
  command->add_flag("-f,--follow", options->log.follow, "go on as it prints");
  command->add_flag("-p,--previous", options->log.previous, "of the run before the last restart");
  command->add_flag("--timestamps", options->log.timestamps, "with the time of each line");
  command->add_option("--tail", options->tail, "only the last N lines")->type_name("N");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead logs -f demo/controller-0", "follow the head of the demo"},
                          {"fairlead logs -n demo worker-0 -c munge --tail 20", "the end of another container's"},
                          {"fairlead logs demo/worker-0 --all-containers --prefix", "of all its containers, each line with its origin"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      const auto [space, pod] = split_pod(options->pod, options->space, session->default_namespace());
      if (options->tail >= 0) options->log.tail_lines = options->tail;
      if (options->all_containers) {
        auto object = session->get(kube::resources::pods, space, pod);
        if (!object) return std::unexpected(std::move(object.error()));
        return print_logs(*session, {space, pod}, containers_of(*object), *options);
      }
      auto container = options->container.empty() ? container_of(*session, space, pod) : Result<std::string>(options->container);
      if (!container) return std::unexpected(std::move(container.error()));
      options->log.container = *container;
      auto done = print_log(*session, {space, pod}, options->log, LinePrefix(options->prefix ? fmt::format("[pod/{}/{}] ", pod, *container) : ""), nullptr);
      if (!done) return std::unexpected(std::move(done.error()));
      return 0;
    };
  });
}

// What exec and attach have in common: which container, and what is done with it.
static void on_streams(CLI::App& command, Context& context, const std::shared_ptr<ExecOptions>& options, Result<int> (*act)(Session&, const ExecOptions&)) {
  command.add_option("-n,--namespace", options->space, "namespace")->type_name("NAME");
  command.add_option("-c,--container", options->container, "container; else the pod's main one")->type_name("NAME");
  command.callback([options, &context, act] {
    context.action = [options, &context, act]() -> Result<int> {
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      std::tie(options->space, options->pod) = split_pod(options->pod, options->space, session->default_namespace());
      if (options->tty && !is_terminal(STDIN_FILENO)) options->tty = false;
      return act(*session, *options);
    };
  });
}

void add_exec(CLI::App& app, Context& context) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command = app.add_subcommand("exec", "Run a command in a container");
  command->add_option("pod", options->pod, "POD or NAMESPACE/POD")->required();
  add_command_words(*command, options->command, "the command, behind --")->required();
  command->add_flag("-i,--stdin", options->stdin_open, "send our stdin");
  command->add_flag("-t,--tty", options->tty, "with a terminal");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead exec -it demo/login-0 -- bash", "a shell on the login node"}, {"fairlead exec -n demo controller-0 -- sinfo", "what the head says of its nodes"}});
  on_streams(*command, context, options, exec_in_pod);
}

void add_attach(CLI::App& app, Context& context) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command = app.add_subcommand("attach", "Join what a running container reads and prints from now on");
  command->add_option("pod", options->pod, "POD or NAMESPACE/POD")->required();
  command->add_flag("-i,--stdin", options->stdin_open, "send our stdin (the container needs `stdin: true`)");
  command->add_flag("-t,--tty", options->tty, "its terminal (the container needs `tty: true`)");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead attach -it demo/shell", "the terminal of a container"}, {"fairlead attach -n demo worker-0 -c slurmd", "only what it prints"}});
  on_streams(*command, context, options, attach_to_pod);
}

}  // namespace fairlead::cli
