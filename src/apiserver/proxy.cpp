// SPDX-License-Identifier: Apache-2.0
#include "apiserver/proxy.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "apiserver/status.h"
#include "base/encoding.h"
#include "base/log.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.items()) out.push_back(item["name"].string());
  return out;
}

std::string query_text(const http::Query& query, std::initializer_list<std::string_view> taken) {
  std::string out;
  for (const auto& [name, value] : query) {
    if (std::find(taken.begin(), taken.end(), name) == taken.end()) continue;
    out += fmt::format("{}{}={}", out.empty() ? "?" : "&", name, http::escape(value));
  }
  return out;
}

std::string agent_path(std::string_view what, const Json& pod, const std::string& container) {
  return fmt::format("/{}/{}/{}/{}", what, http::escape(kube::space_of(pod)), http::escape(kube::name_of(pod)), http::escape(container));
}

// What an agent said no with: our own agents write a Status or plain text.
Status status_from_agent(int code, const std::string& body) {
  Status status{.code = code, .reason = code == 404 ? "NotFound" : code == 400 ? "BadRequest" : "InternalError", .message = std::string(trim(body))};
  if (const auto parsed = kube::parse_json(body); parsed && (*parsed)["kind"].string() == "Status") status.message = (*parsed)["message"].string();
  if (status.message.empty()) status.message = fmt::format("the node's agent answered {}", code);
  return status;
}

Status agent_unreachable(const Error& error) {
  // No 503: clients would repeat it by themselves for a minute.
  return {.code = 500, .reason = "InternalError", .message = "error dialing backend: " + error.message};
}

constexpr auto client_pause = 10ms;  // how often a slow reader is looked at

}  // namespace

Result<std::string> choose_container(const kube::Json& pod, std::string_view asked) {
  const auto main = names_of(pod["spec"]["containers"]), init = names_of(pod["spec"]["initContainers"]);
  if (asked.empty()) {
    if (main.size() == 1 && init.empty()) return main.front();
    const std::string& preferred = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].string();
    if (std::find(main.begin(), main.end(), preferred) != main.end()) return preferred;
    if (main.size() == 1) return main.front();
    std::string text = fmt::format("a container name must be specified for pod {}, choose one of: [{}]", kube::name_of(pod), fmt::join(main, " "));
    if (!init.empty()) text += fmt::format(" or one of the init containers: [{}]", fmt::join(init, " "));
    return fail(Code::Invalid, std::move(text));
  }
  for (const auto* names : {&main, &init}) {
    if (std::find(names->begin(), names->end(), asked) != names->end()) return std::string(asked);
  }
  return fail(Code::Invalid, fmt::format("container {} is not valid for pod {}", asked, kube::name_of(pod)));
}

Result<http::ClientOptions> agent_of(const Registry& registry, const kube::Json& pod, const HandlerOptions& options) {
  const std::string& node_name = pod["spec"]["nodeName"].string();
  if (node_name.empty()) return fail(Code::Invalid, fmt::format("pod {} does not have a host assigned", kube::name_of(pod)));
  const auto kinds = registry.kinds();
  const auto kind = kinds->find("", "v1", "nodes");
  if (!kind) return fail(Code::Unsupported, "nodes are not served");
  const auto object = registry.get(*kind, {"", node_name});
  if (!object) return std::unexpected(object.error());
  const auto node = kube::parse_json(*object->bytes);
  if (!node) return std::unexpected(node.error());
  http::ClientOptions out{.ca_pem = options.ca_pem, .certificate_pem = options.client_certificate_pem, .key_pem = options.client_key_pem, .kept_connections = 0};
  for (const Json& address : (*node)["status"]["addresses"].items()) {
    if (address["type"].string() == "InternalIP" && out.host.empty()) out.host = address["address"].string();
  }
  if (out.host.empty()) return fail(Code::NotFound, fmt::format("node {} has no InternalIP yet", node_name));
  out.port = static_cast<unsigned short>((*node)["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].integer(10250));
  return out;
}

std::string choose_subprotocol(std::string_view offered) {
  for (const char* known : {"v5.channel.k8s.io", "v4.channel.k8s.io"}) {
    for (const std::string& one : split(offered, ',')) {
      if (trim(one) == known) return known;
    }
  }
  return {};
}

namespace {

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// How a client and the agent talk to each other through us.
struct Speech {
  bool spdy = false;
  std::string protocol;  // of the channels

  Result<std::unique_ptr<http::ClientWebSocket>> ask(http::Client& agent, http::ClientRequest request) const {
    if (!spdy) return agent.open_websocket(request, {protocol});
    request.method = "POST";
    request.headers.emplace_back("X-Stream-Protocol-Version", protocol);
    return agent.open_upgrade(request, "SPDY/3.1");
  }
  Result<std::shared_ptr<http::WebSocket>> accept(http::Exchange& client) const {
    return spdy ? client.accept_upgrade("SPDY/3.1", {{"X-Stream-Protocol-Version", protocol}}) : client.accept_websocket(protocol);
  }
};

// Invalid: nothing that is spoken here.
Result<Speech> choose_speech(std::string_view what, const http::Request& request) {
  const std::string_view upgrade = http::find(request.headers, "Upgrade");
  if (upgrade.empty()) return fail(Code::Invalid, "Upgrade request required");
  std::string offered;  // clients of SPDY name each in a header of its own
  const bool spdy = same_letters(upgrade, "SPDY/3.1");
  if (!spdy && !same_letters(upgrade, "websocket")) return fail(Code::Invalid, fmt::format("{} is served over WebSocket and SPDY/3.1, not over {}", what, upgrade));
  for (const auto& [name, value] : request.headers)
    if (same_letters(name, spdy ? "X-Stream-Protocol-Version" : "Sec-WebSocket-Protocol")) offered += (offered.empty() ? "" : ",") + value;
  Speech speech{.spdy = spdy, .protocol = choose_subprotocol(offered)};
  if (speech.protocol.empty()) return fail(Code::Invalid, "no known subprotocol was offered; v5.channel.k8s.io and v4.channel.k8s.io are served");
  if (spdy) speech.protocol = "v4.channel.k8s.io";  // v5 is of WebSockets alone; who speaks that offers this one, too
  return speech;
}

}  // namespace

// One log or exec under way: what to close when it shall end. Shared by its threads and its connections.
class Proxy::Session {
 public:
  // Ends it, from any thread, any number of times.
  void close() {
    std::unique_lock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    changed_.notify_all();
    // Under the lock: the owner takes them away under it before they go.
    if (reader_ != nullptr) reader_->close();
    if (agent_ != nullptr) agent_->close();
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  // Waits until the client has taken what it was sent, to about `window`. False: the session is over.
  template <class Sink>
  bool wait_for_client(const Sink& sink, std::size_t window) {
    std::unique_lock lock(mutex_);
    while (!closed_ && sink.waiting() > window) changed_.wait_for(lock, client_pause);
    return !closed_;
  }
  // Takes part in close() as long as the guard lives.
  class Guard {
   public:
    Guard(Session& session, http::BodyReader* reader, http::ClientWebSocket* agent) : session_(session) {
      const std::lock_guard lock(session.mutex_);
      session.reader_ = reader;
      session.agent_ = agent;
      if (session.closed_ && reader != nullptr) reader->close();
      if (session.closed_ && agent != nullptr) agent->close();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      const std::lock_guard lock(session_.mutex_);
      session_.reader_ = nullptr;
      session_.agent_ = nullptr;
    }

   private:
    Session& session_;
  };

  // Input of an exec: pushed on a server thread, which is slowed down a little when too much waits.
  void push_input(std::string message, const Limits& limits) {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    input_bytes_ += message.size();
    input_.push_back(std::move(message));
    changed_.notify_all();
    if (input_bytes_ > limits.input_queue) changed_.wait_for(lock, 20ms, [&] { return closed_ || input_bytes_ <= limits.input_queue; });
    const bool hopeless = input_bytes_ > limits.input_most;
    lock.unlock();
    if (hopeless) {
      log_warn("exec or attach cut: the container does not read its input", {{"bytes", std::to_string(limits.input_most)}});
      close();
    }
  }
  std::optional<std::string> next_input() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !input_.empty(); });
    if (closed_) return std::nullopt;
    std::string out = std::move(input_.front());
    input_.pop_front();
    input_bytes_ -= out.size();
    changed_.notify_all();
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  http::BodyReader* reader_ = nullptr;
  http::ClientWebSocket* agent_ = nullptr;
  std::deque<std::string> input_;
  std::size_t input_bytes_ = 0;
};

struct Proxy::Sessions {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  std::set<std::shared_ptr<Session>> running;
};

Proxy::Proxy(const Registry& registry, const HandlerOptions& options, Limits limits)
    : registry_(registry), options_(options), limits_(limits), sessions_(std::make_shared<Sessions>()) {}

Proxy::~Proxy() { stop(); }

void Proxy::stop() {
  std::unique_lock lock(sessions_->mutex);
  sessions_->stopping = true;
  const auto running = sessions_->running;
  lock.unlock();
  for (const auto& session : running) session->close();
  lock.lock();
  sessions_->changed.wait(lock, [&] { return sessions_->running.empty(); });
}

void Proxy::start(std::shared_ptr<Session> session, std::shared_ptr<http::Exchange> exchange, std::function<void()> work) {
  {
    const std::lock_guard lock(sessions_->mutex);
    if (sessions_->stopping || sessions_->running.size() >= limits_.sessions) {
      exchange->respond(to_response({.code = 429, .reason = "TooManyRequests", .message = "too many logs and execs are open", .details = {.retry_after_seconds = 1}}));
      return;
    }
    sessions_->running.insert(session);
  }
  // Detached, but stop() waits for it: nothing of this object is touched after the session left the set.
  std::thread([session, sessions = sessions_, work = std::move(work)]() mutable {
    work();
    work = nullptr;
    session->close();
    const std::lock_guard lock(sessions->mutex);
    sessions->running.erase(session);
    sessions->changed.notify_all();
  }).detach();
}

void Proxy::log(const http::Request& request, kube::Json pod, std::shared_ptr<http::Exchange> exchange) {
  const http::Query& query = request.target.query;
  const auto container = choose_container(pod, http::find(query, "container"));
  if (!container) return exchange->respond(to_response(status_of(container.error())));
  const http::Headers headers{{"Content-Type", "text/plain"}, {"Cache-Control", "no-cache, private"}};
  if (pod["spec"]["nodeName"].string().empty()) {  // nothing has run: no output, as kube-apiserver has it
    exchange->respond({.status = 204, .headers = {{"Cache-Control", "no-cache, private"}}});
    return;
  }
  auto agent = agent_of(registry_, pod, options_);
  if (!agent) return exchange->respond(to_response(status_of(agent.error())));
  http::ClientRequest ask{.target = agent_path("containerLogs", pod, *container) +
                                    query_text(query, {"follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes"})};
  auto session = std::make_shared<Session>();
  start(session, exchange, [this, session, exchange, ask, headers, agent = std::move(*agent)] {
    auto client = http::Client::make(agent);
    if (!client) return exchange->respond(to_response(agent_unreachable(client.error())));
    auto reader = (*client)->open(ask);
    if (!reader) return exchange->respond(to_response(agent_unreachable(reader.error())));
    const Session::Guard guard(*session, reader->get(), nullptr);
    if ((*reader)->status() != 200) {
      std::string body;
      while (body.size() < 64 << 10) {
        auto more = (*reader)->read(5s);
        if (!more || !*more || (*more)->empty()) break;
        body += **more;
      }
      return exchange->respond(to_response(status_from_agent((*reader)->status(), body)));
    }
    auto stream = exchange->stream(200, headers);
    stream->on_close([session] { session->close(); });
    while (session->wait_for_client(*stream, limits_.window)) {
      auto more = (*reader)->read(1s);
      if (!more) break;      // the agent is gone: the output ends here
      if (!*more) continue;  // nothing new in a followed log
      if ((*more)->empty()) break;
      if (!stream->write(std::make_shared<const std::string>(std::move(**more)))) break;
    }
  });
}

void Proxy::exec(const http::Request& request, kube::Json pod, std::shared_ptr<http::Exchange> exchange) {
  const http::Query& query = request.target.query;
  const auto refuse = [&](Status status) { exchange->respond(to_response(status)); };
  const std::string& phase = pod["status"]["phase"].string();
  if (phase == "Succeeded" || phase == "Failed") return refuse(bad_request("cannot exec into a container in a completed pod; current phase is " + phase));
  const auto container = choose_container(pod, http::find(query, "container"));
  if (!container) return refuse(status_of(container.error()));
  if (http::find(query, "command").empty()) return refuse(bad_request("you must specify at least one command for the container"));
  join("exec", request, pod, *container, std::move(exchange));
}

void Proxy::attach(const http::Request& request, kube::Json pod, std::shared_ptr<http::Exchange> exchange) {
  const auto container = choose_container(pod, http::find(request.target.query, "container"));
  if (!container) return exchange->respond(to_response(status_of(container.error())));
  join("attach", request, pod, *container, std::move(exchange));
}

// A client and an agent that speak the same, joined: messages, or bytes, are handed on as they are.
void Proxy::join(std::string_view what, const http::Request& request, const kube::Json& pod, const std::string& container, std::shared_ptr<http::Exchange> exchange) {
  const auto refuse = [&](Status status) { exchange->respond(to_response(status)); };
  auto agent = agent_of(registry_, pod, options_);
  if (!agent) return refuse(status_of(agent.error()));
  auto speech = choose_speech(what, request);
  if (!speech) return refuse(status_of(speech.error()));
  http::ClientRequest ask{.target = agent_path(what, pod, container) + query_text(request.target.query, {"command", "stdin", "stdout", "stderr", "tty"})};
  auto session = std::make_shared<Session>();
  start(session, exchange, [this, session, exchange, ask, speech = std::move(*speech), agent = std::move(*agent)] {
    auto client = http::Client::make(agent);
    if (!client) return exchange->respond(to_response(agent_unreachable(client.error())));
    auto socket = speech.ask(**client, ask);
    if (!socket) return exchange->respond(to_response(agent_unreachable(socket.error())));
    const Session::Guard guard(*session, nullptr, socket->get());
    auto accepted = speech.accept(*exchange);
    if (!accepted) return exchange->respond(to_response(status_of(accepted.error())));
    const auto caller = *accepted;
    caller->start([session, limits = limits_](std::string message) { session->push_input(std::move(message), limits); }, [session] { session->close(); });
    std::thread sender([&] {
      while (auto message = session->next_input()) {
        if (!(*socket)->send(std::move(*message))) break;
      }
    });
    while (session->wait_for_client(*caller, limits_.window)) {
      auto message = (*socket)->receive();
      if (!message || !*message) break;
      if (!caller->send(std::move(**message))) break;
    }
    session->close();
    sender.join();
    caller->close();
  });
}

kube::PodLog make_agent_log(const Registry& registry, HandlerOptions options) {
  return [&registry, options = std::move(options)](const Json& pod, const kube::PodLogQuery& query, std::chrono::milliseconds limit, const std::function<bool(std::string_view)>& take) -> Result<void> {
    auto container = choose_container(pod, query.container);
    if (!container) return std::unexpected(std::move(container.error()));
    auto agent = agent_of(registry, pod, options);
    if (!agent) return std::unexpected(std::move(agent.error()));
    agent->connect_timeout = std::min(agent->connect_timeout, limit);
    auto client = http::Client::make(*agent);
    if (!client) return pass(std::move(client.error()), "log");
    http::ClientRequest ask{.target = agent_path("containerLogs", pod, *container) + "?timestamps=true"};
    if (query.previous) ask.target += "&previous=true";
    if (query.since) ask.target += "&sinceTime=" + http::escape(print_time(*query.since));
    auto reader = (*client)->open(ask);
    if (!reader) return fail(Code::Unavailable, "log: " + reader.error().message);
    if ((*reader)->status() == 200) return kube::hand_on(**reader, limit, take);
    std::string body;
    (void)kube::hand_on(**reader, std::min<std::chrono::milliseconds>(limit, 5s), [&](std::string_view piece) {
      body += piece.substr(0, 4096 - std::min<std::size_t>(4096, body.size()));
      return body.size() < 4096;
    });
    const Status said = status_from_agent((*reader)->status(), body);
    return fail(said.code == 404 ? Code::NotFound : said.code == 400 ? Code::Invalid : Code::Internal, said.message);
  };
}

ExecPort make_agent_exec(const Registry& registry, HandlerOptions options) {
  return [&registry, options = std::move(options)](const Json& pod, const std::string& asked, const std::vector<std::string>& command, const std::string& input,
                                                   std::chrono::milliseconds limit) -> Result<kube::ExecResult> {
    constexpr std::size_t most = 1 << 20;
    auto container = choose_container(pod, asked);
    if (!container) return std::unexpected(std::move(container.error()));
    auto agent = agent_of(registry, pod, options);
    if (!agent) return std::unexpected(std::move(agent.error()));
    agent->connect_timeout = std::min(agent->connect_timeout, limit);
    auto client = http::Client::make(*agent);
    if (!client) return pass(std::move(client.error()), "exec");
    http::ClientRequest ask{.target = agent_path("exec", pod, *container) + "?stdout=true&stderr=true"};
    if (!input.empty()) ask.target += "&stdin=true";
    for (const std::string& word : command) ask.target += "&command=" + http::escape(word);
    auto socket = (*client)->open_websocket(ask, {"v5.channel.k8s.io"});
    if (!socket) return pass(std::move(socket.error()), "exec");

    // Cuts the connection when the time is up; the blocked receive() below then ends.
    std::mutex mutex;
    std::condition_variable_any changed;
    bool late = false;
    const std::jthread watchdog([&](std::stop_token stop) {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, stop, limit, [] { return false; });
      if (stop.stop_requested()) return;
      late = true;
      (*socket)->close();
    });

    kube::ExecResult result;
    std::thread sender([&] {
      if (input.empty()) return;
      for (std::size_t at = 0; at < input.size(); at += 32 << 10) {
        if (!(*socket)->send(std::string(1, '\0') + input.substr(at, 32 << 10))) return;
      }
      (void)(*socket)->send(std::string("\xff\x00", 2)).has_value();  // v5: no more input
    });
    std::optional<Error> broken;
    Json status;
    bool cut = false;
    while (!cut) {
      auto message = (*socket)->receive();
      if (!message) broken = message.error();
      if (!message || !*message) break;
      if ((*message)->empty()) continue;
      const char channel = (**message)[0];
      const std::string_view data = std::string_view(**message).substr(1);
      if (channel == 1 || channel == 2) {
        std::string& out = channel == 1 ? result.out : result.err;
        cut = data.size() > most - out.size();
        if (!cut) out += data;
      } else if (channel == 3) {
        if (auto parsed = kube::parse_json(data)) status = std::move(*parsed);
      }
    }
    (*socket)->close();
    sender.join();
    if (cut) return fail(Code::Unsupported, fmt::format("exec in pod {}: the command wrote more than {} bytes", kube::key_of(pod).text(), most));
    if (status.is_null()) {
      const std::lock_guard lock(mutex);
      if (late) return fail(Code::Unavailable, fmt::format("exec in pod {}: not finished within {} ms", kube::key_of(pod).text(), limit.count()));
      return fail(Code::Unavailable, fmt::format("exec in pod {}: the connection to its node broke{}", kube::key_of(pod).text(), broken ? ": " + broken->message : ""));
    }
    if (status["status"].string() == "Success") return result;
    for (const Json& cause : status["details"]["causes"].items()) {
      if (cause["reason"].string() == "ExitCode") {
        result.exit_code = std::atoi(cause["message"].string().c_str());
        return result;
      }
    }
    return fail(Code::Internal, fmt::format("exec in pod {}: {}", kube::key_of(pod).text(), status["message"].string()));
  };
}

}  // namespace fairlead::apiserver
