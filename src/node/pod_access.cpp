// SPDX-License-Identifier: Apache-2.0
#include "node/pod_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/files.h"
#include "kube/json.h"
#include "node/exec_session.h"
#include "node/log_reader.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;

constexpr std::size_t session_limit = 128;

http::Response status(int code, const char* reason, const std::string& message) {
  return {.status = code,
          .headers = {{"Content-Type", "application/json"}},
          .body = kube::print_json(Json::object({{"kind", "Status"},
                                                 {"apiVersion", "v1"},
                                                 {"metadata", Json::object()},
                                                 {"status", "Failure"},
                                                 {"message", message},
                                                 {"reason", reason},
                                                 {"code", code}}))};
}

http::Response status_of(const Error& error) {
  switch (error.code) {
    case Code::NotFound:
      return status(404, "NotFound", error.message);
    case Code::Invalid:
      return status(400, "BadRequest", error.message);
    default:
      return status(500, "InternalError", error.message);
  }
}

bool asked(const http::Query& query, std::string_view name) {
  const auto value = http::find(query, name);
  return value == "true" || value == "1";
}

std::optional<std::int64_t> number(const http::Query& query, std::string_view name) {
  const std::string text(http::find(query, name));
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (*end != '\0' || value < 0) return std::nullopt;
  return value;
}

}  // namespace

PodAccess::PodAccess(Runtime& runtime, const Clock& clock, std::string node_name, Allow allow)
    : runtime_(runtime), clock_(clock), node_name_(std::move(node_name)), allow_(std::move(allow)) {}

PodAccess::~PodAccess() {
  std::list<Session> sessions;
  {
    const std::lock_guard lock(mutex_);
    sessions.swap(sessions_);
  }
  for (Session& session : sessions) session.thread.request_stop();
}

bool PodAccess::start(std::function<void(const std::stop_token&)> session) {
  const std::lock_guard lock(mutex_);
  std::erase_if(sessions_, [](const Session& one) { return one.ended->load(); });
  if (sessions_.size() >= session_limit) return false;
  auto ended = std::make_shared<std::atomic<bool>>(false);
  sessions_.push_back({.thread = std::jthread([session = std::move(session), ended](const std::stop_token& stop) {
                         session(stop);
                         ended->store(true);
                       }),
                       .ended = ended});
  return true;
}

void PodAccess::handle(http::Request request, std::shared_ptr<http::Exchange> exchange) {
  const auto& peer = request.peer;
  if (peer.common_name.empty()) return exchange->respond(status(401, "Unauthorized", "a client certificate is needed"));
  const bool trusted = peer.common_name == "fairlead-server" ||
                       std::find(peer.organizations.begin(), peer.organizations.end(), "system:masters") != peer.organizations.end();
  const auto forbidden = [](const std::string& who) { return status(403, "Forbidden", "\"" + who + "\" may not ask this node"); };
  if (!trusted && !allow_) return exchange->respond(forbidden(peer.common_name));
  const auto& segments = request.target.segments;
  const std::string what = segments.empty() ? "" : segments[0];
  if (trusted && what == "healthz" && segments.size() == 1)
    return exchange->respond({.status = 200, .headers = {{"Content-Type", "text/plain"}}, .body = "ok", .parts = {}});
  enum class Kind { Logs, Exec, Attach, Stats, Pods, Health };
  std::optional<Kind> kind;
  if (segments.size() == 4 && what == "containerLogs") kind = Kind::Logs;
  if (segments.size() == 4 && what == "exec") kind = Kind::Exec;
  if (segments.size() == 4 && what == "attach") kind = Kind::Attach;
  if (segments.size() == 1 && what == "stats") kind = Kind::Stats;
  if (segments.size() == 1 && what == "pods") kind = Kind::Pods;
  if (segments.size() == 1 && what == "healthz") kind = Kind::Health;
  if (!kind) return exchange->respond(status(404, "NotFound", "the node does not serve " + request.target.path));
  if (request.method != "GET" && !(request.method == "POST" && (kind == Kind::Exec || kind == Kind::Attach)))
    return exchange->respond(status(405, "MethodNotAllowed", "only GET is served here"));
  auto shared = std::make_shared<http::Request>(std::move(request));
  const bool started = start([this, shared, exchange, kind, trusted, forbidden](const std::stop_token& stop) {
    if (!trusted && !allow_(shared->peer)) return exchange->respond(forbidden(shared->peer.common_name));
    const auto json = [&](std::string body) {
      exchange->respond({.status = 200, .headers = {{"Content-Type", "application/json"}}, .body = std::move(body), .parts = {}});
    };
    switch (*kind) {
      case Kind::Stats:
        return json(usage());
      case Kind::Pods:
        return json(pods());
      case Kind::Health:
        return exchange->respond({.status = 200, .headers = {{"Content-Type", "text/plain"}}, .body = "ok", .parts = {}});
      case Kind::Logs:
        return logs(*shared, exchange, stop);
      case Kind::Exec:
        return exec(*shared, exchange, stop);
      case Kind::Attach:
        return attach(*shared, exchange, stop);
    }
  });
  if (!started) exchange->respond(status(429, "TooManyRequests", "too many open sessions on this node"));
}

Result<PodAccess::Found> PodAccess::find(const http::Request& request) {
  const auto& segments = request.target.segments;
  auto uids = runtime_.list();
  if (!uids) return std::unexpected(std::move(uids.error()));
  for (const std::string& uid : *uids) {
    auto pod = runtime_.peek(uid);
    if (!pod || pod->record.space != segments[1] || pod->record.name != segments[2]) continue;
    if (!pod->containers.contains(segments[3]))
      return fail(Code::Invalid, fmt::format("container \"{}\" in pod \"{}\" is waiting to start", segments[3], segments[2]));
    return Found{.pod = std::move(*pod), .container = segments[3]};
  }
  return fail(Code::NotFound, fmt::format("pod \"{}/{}\" is not on node {}", segments[1], segments[2], node_name_));
}

void PodAccess::logs(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange, const std::stop_token& stop) {
  auto found = find(request);
  if (!found) return exchange->respond(status_of(found.error()));
  const auto& query = request.target.query;
  const auto& container = found->pod.containers[found->container];
  const bool previous = asked(query, "previous");
  const auto& attempt = previous ? container.previous : container.latest;
  if (!attempt)
    return exchange->respond(
        status(400, "BadRequest",
               fmt::format("{} terminated container \"{}\" in pod \"{}\" not found", "previous", found->container, found->pod.record.name)));
  LogQuery wanted{
      .timestamps = asked(query, "timestamps"), .tail_lines = number(query, "tailLines"), .limit_bytes = number(query, "limitBytes"), .since = {}};
  if (const auto seconds = number(query, "sinceSeconds")) wanted.since = clock_.now() - std::chrono::seconds(*seconds);
  if (const auto time = parse_time(http::find(query, "sinceTime"))) wanted.since = *time;
  LogReader reader(runtime_.log_path(found->pod.record, found->container, attempt->number), wanted);
  const bool follow = asked(query, "follow") && !previous;
  const auto stream = exchange->stream(200, {{"Content-Type", "text/plain"}});
  struct Lost {
    std::mutex mutex;
    std::condition_variable_any changed;
    bool lost = false;
  };
  auto lost = std::make_shared<Lost>();
  stream->on_close([lost] {
    const std::lock_guard lock(lost->mutex);
    lost->lost = true;
    lost->changed.notify_all();
  });
  // New output is looked for at this pace; conmon's writes cannot be waited for across rotations any cheaper.
  constexpr auto pace = 100ms;
  const auto pause = [&] {
    std::unique_lock lock(lost->mutex);
    lost->changed.wait_for(lock, stop, pace, [&] { return lost->lost; });
    return !lost->lost && !stop.stop_requested();
  };
  bool ended = false;
  while (true) {
    auto piece = reader.next();
    if (!piece) return;
    if (!piece->empty()) {
      if (!stream->write(std::make_shared<const std::string>(std::move(*piece)))) return;
      while (stream->waiting() > (1 << 20))
        if (!pause()) return;
      continue;
    }
    if (!follow || ended || reader.done()) return;
    // Looked at before the last read: what was written until then will be seen.
    auto now = runtime_.peek(found->pod.record.uid);
    ended = !now || !now->containers[found->container].latest || now->containers[found->container].latest->number != attempt->number ||
            now->containers[found->container].latest->end.has_value();
    if (!ended && !pause()) return;
  }
}

namespace {

ExecChannelSet channels_asked(const http::Query& query) {
  const auto any = [&](const char* a, const char* b) { return asked(query, a) || asked(query, b); };
  return {.in = any("stdin", "input"), .out = any("stdout", "output"), .err = any("stderr", "error"), .terminal = asked(query, "tty")};
}

}  // namespace

void PodAccess::exec(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange, const std::stop_token& stop) {
  const auto& query = request.target.query;
  const ExecChannelSet wanted = channels_asked(query);
  ExecOptions options{.argv = {}, .in = wanted.in, .terminal = wanted.terminal};
  for (const auto& [name, value] : query)
    if (name == "command") options.argv.push_back(value);
  if (options.argv.empty()) return exchange->respond(status(400, "BadRequest", "you must specify at least 1 command for the container"));
  auto found = find(request);
  auto channels = accept_channels(request, *exchange, wanted);
  if (!channels) return exchange->respond(status_of(channels.error()));
  auto process =
      found ? runtime_.exec(found->pod.record.uid, found->container, options) : Result<ExecProcess>(std::unexpected(std::move(found.error())));
  if (process) return run_exec_session(std::move(*process), *channels, stop);
  tell_failure(process.error(), *channels, stop);
}

void PodAccess::attach(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange, const std::stop_token& stop) {
  const ExecChannelSet wanted = channels_asked(request.target.query);
  auto found = find(request);
  const Attempt attempt = found ? found->pod.containers[found->container].latest.value_or(Attempt()) : Attempt();
  if (found && !attempt.running()) found = fail(Code::NotFound, fmt::format("container {} is not running", found->container));
  const bool joins = found && wanted.in && runtime_.has_stdin(found->pod.record.uid, found->container).value_or(false);
  LogReader log(found ? runtime_.log_path(found->pod.record, found->container, attempt.number) : "", {.tail_lines = 0});
  if (found && !joins) (void)log.next();  // its end: a client whose handshake is answered sees what comes from now on
  auto channels = accept_channels(request, *exchange, wanted);
  if (!channels) return exchange->respond(status_of(channels.error()));
  if (!found) return tell_failure(found.error(), *channels, stop);
  const std::string uid = found->pod.record.uid, container = found->container;
  if (joins) return run_attach_session([&] { return runtime_.attach(uid, container); }, *channels, stop);
  const auto running = [&] {
    auto now = runtime_.peek(uid);
    const auto latest = now ? now->containers[container].latest : std::nullopt;
    return latest && latest->number == attempt.number && !latest->end;
  };
  run_output_session(log, running, *channels, stop);
}

// What is on the node, as a list of pods with what identifies them: their specs are the API server's.
std::string PodAccess::pods() {
  Json items = Json::array();
  if (auto uids = runtime_.list())
    for (const std::string& uid : *uids) {
      auto pod = runtime_.peek(uid);
      if (!pod) continue;
      items.push(Json::object({{"metadata", Json::object({{"name", pod->record.name}, {"namespace", pod->record.space}, {"uid", uid}})},
                               {"spec", Json::object({{"nodeName", node_name_}})},
                               {"status", Json::object({{"podIP", pod->sandbox ? pod->sandbox->ip.substr(0, pod->sandbox->ip.find(',')) : ""}})}}));
    }
  return kube::print_json(Json::object({{"kind", "PodList"}, {"apiVersion", "v1"}, {"metadata", Json::object()}, {"items", std::move(items)}})) +
         "\n";
}

std::string PodAccess::usage() {
  Json pods = Json::array();
  for (const ContainerUsage& one : runtime_.usage())
    pods.push(Json::object({{"pod_uid", one.pod_uid},
                            {"container", one.container},
                            {"memory_bytes", one.memory_bytes},
                            {"cpu_nanoseconds", one.cpu_nanoseconds},
                            {"pids", one.pids}}));
  return kube::print_json(Json::object({{"node", node_name_}, {"containers", std::move(pods)}})) + "\n";
}

}  // namespace fairlead::node
