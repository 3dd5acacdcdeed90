// SPDX-License-Identifier: GPL-3.0-or-later
#include "exporter.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/fd.h"
#include "base/log.h"
#include "metrics.h"

namespace fairlead::companion {
namespace {

constexpr int kMostConnections = 16;
constexpr std::size_t kMostHead = 8 << 10;
constexpr auto kPatience = 5s;  // for a client, from connecting to the last byte

// The text of the last look, kept by one thread for many.
class Collector {
 public:
  explicit Collector(std::chrono::seconds interval) : interval_(interval) {}
  void run(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    while (!stop.stop_requested()) {
      auto text = look();
      if (!text) log_warn("Slurm was not asked to the end", {{"reason", text.error().message}});
      {
        const std::lock_guard lock(mutex_);
        if (text) text_ = std::move(*text), at_ = clock_.monotonic();
        else why_ = text.error().message;
      }
      std::unique_lock lock(mutex);
      ended.wait_for(lock, stop, interval_, [] { return false; });
    }
  }
  HttpAnswer metrics() const {
    const std::lock_guard lock(mutex_);
    // Old figures would look like a cluster where nothing happens.
    if (!at_ || clock_.monotonic() - *at_ > 3 * interval_ + 60s) return {.status = 503, .body = fmt::format("Slurm does not tell: {}\n", why_.empty() ? "it was not asked yet" : why_)};
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = text_};
  }

 private:
  Result<std::string> look() {
    auto nodes_text = ask_slurm({"scontrol", "-o", "show", "nodes"});
    if (!nodes_text) return pass(std::move(nodes_text.error()), "scontrol show nodes");
    auto nodes = read_metric_nodes(*nodes_text);
    if (!nodes) return pass(std::move(nodes.error()), "scontrol show nodes");
    auto queue = ask_slurm({"squeue", "-h", "-a", "-t", "all", "-o", kMetricJobFormat});
    if (!queue) return pass(std::move(queue.error()), "squeue");
    auto details = ask_slurm({"scontrol", "-o", "show", "jobs"});
    if (!details) return pass(std::move(details.error()), "scontrol show jobs");
    auto sdiag = ask_slurm({"sdiag"});
    if (!sdiag) return pass(std::move(sdiag.error()), "sdiag");
    auto controller = read_sdiag(*sdiag);
    if (!controller) return std::unexpected(std::move(controller.error()));
    history_.look(*nodes, clock_.monotonic());
    return print_metrics(*nodes, read_metric_jobs(*queue, *details), *controller, history_, clock_.now());
  }

  const SystemClock clock_;
  const std::chrono::seconds interval_;
  MetricHistory history_;  // of the one thread that runs
  mutable std::mutex mutex_;
  std::string text_, why_;
  std::optional<std::chrono::nanoseconds> at_;
};

bool ready(int fd, short what, std::chrono::nanoseconds deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SystemClock().monotonic()).count();
  pollfd one{fd, what, 0};
  return left > 0 && ::poll(&one, 1, static_cast<int>(left)) == 1;
}

void serve(const Fd& fd, const Collector& collector) {
  const auto deadline = SystemClock().monotonic() + kPatience;
  std::string head;
  while (head.find("\r\n\r\n") == head.npos && head.size() < kMostHead && ready(fd.get(), POLLIN, deadline)) {
    char buffer[2048];
    const auto got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) break;
    head.append(buffer, static_cast<std::size_t>(got));
  }
  HttpAnswer answer{.status = 404, .body = "/metrics and /healthz are served\n"};
  const auto question = head.find("\r\n\r\n") == head.npos ? Result<HttpQuestion>(fail(Code::Invalid, "no request")) : read_question(head);
  if (!question) answer = {.status = 400, .body = "this is no request\n"};
  else if (question->method != "GET" && question->method != "HEAD") answer = {.status = 405, .body = "GET is served\n"};
  else if (question->path == "/healthz") answer = {.body = "ok\n"};
  else if (question->path == "/metrics") answer = collector.metrics();
  const std::string out = print_answer(answer, !question || question->method != "HEAD");
  for (std::size_t sent = 0; sent < out.size() && ready(fd.get(), POLLOUT, deadline);) {
    const auto n = ::send(fd.get(), out.data() + sent, out.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return;
    if (n > 0) sent += static_cast<std::size_t>(n);
  }
}

Result<Fd> listen_at(const std::string& address, int port) {
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  sockaddr_in6 v6{.sin6_family = AF_INET6, .sin6_port = htons(static_cast<std::uint16_t>(port))};
  const bool six = ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1;
  if (!six && ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) != 1) return fail(Code::Invalid, fmt::format("{} is not an address", address));
  Fd fd(::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (six) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // "::" is everybody
  const auto* where = six ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  if (!fd || ::bind(fd.get(), where, six ? sizeof v6 : sizeof v4) != 0 || ::listen(fd.get(), 64) != 0) return fail_errno(errno, fmt::format("listen at {} port {}", address, port));
  return fd;
}

// Both families where the machine has both.
Result<Fd> listen_anywhere(int port) {
  auto both = listen_at("::", port);
  return both ? std::move(both) : listen_at("0.0.0.0", port);
}

int usage() {
  fmt::print(stderr, "usage: fairlead-slurm exporter [--address ADDRESS] [--port 1-65535] [--interval SECONDS]\n");
  return 2;
}

}  // namespace

Result<HttpQuestion> read_question(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const auto first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last || !line.substr(last + 1).starts_with("HTTP/1.")) return fail(Code::Invalid, "no request");
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!target.starts_with('/') || target.find(' ') != target.npos) return fail(Code::Invalid, "no request");
  return HttpQuestion{std::string(line.substr(0, first)), std::string(target.substr(0, target.find('?')))};
}

std::string print_answer(const HttpAnswer& answer, bool body) {
  const char* const word = answer.status == 200 ? "OK" : answer.status == 400 ? "Bad Request" : answer.status == 404 ? "Not Found" : answer.status == 405 ? "Method Not Allowed" : "Service Unavailable";
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", answer.status, word, answer.type, answer.body.size(), body ? answer.body : "");
}

int run_exporter(const std::vector<std::string>& arguments) {
  std::string address;
  int port = 8080, interval = 30;
  const auto number = [](const std::string& text, int most) { return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == text.npos && std::stoi(text) >= 1 && std::stoi(text) <= most ? std::stoi(text) : 0; };
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) return usage();
    if (arguments[i] == "--address") address = arguments[i + 1];
    else if (arguments[i] == "--port") port = number(arguments[i + 1], 65'535);
    else if (arguments[i] == "--interval") interval = number(arguments[i + 1], 3600);
    else return usage();
  }
  if (port == 0 || interval == 0) return usage();
  auto listening = address.empty() ? listen_anywhere(port) : listen_at(address, port);
  if (!listening) {
    log_error("cannot start", {{"error", listening.error().message}});
    return listening.error().code == Code::Invalid ? 2 : 1;
  }
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const Fd told(::signalfd(-1, &signals, SFD_CLOEXEC));
  Collector collector(std::chrono::seconds{interval});
  std::jthread looking([&collector](const std::stop_token& stop) { collector.run(stop); });
  std::atomic<int> open{0};
  log_info("serving metrics", {{"address", address.empty() ? "any" : address}, {"port", std::to_string(port)}});
  for (;;) {
    pollfd both[] = {{told.get(), POLLIN, 0}, {listening->get(), POLLIN, 0}};
    if (::poll(both, 2, -1) < 0 && errno != EINTR) break;
    if (both[0].revents != 0) break;
    if (both[1].revents == 0) continue;
    Fd fd(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd || open.load() >= kMostConnections) continue;
    ++open;
    std::thread([&collector, &open, held = std::move(fd)] {
      serve(held, collector);
      --open;
    }).detach();
  }
  looking.request_stop();
  const auto until = SystemClock().monotonic() + kPatience + 1s;
  while (open.load() > 0 && SystemClock().monotonic() < until) std::this_thread::sleep_for(20ms);
  ::_exit(0);  // a tool of Slurm that does not answer, or a client, is waited for no longer
}

}  // namespace fairlead::companion
