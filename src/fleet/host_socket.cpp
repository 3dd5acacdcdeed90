// SPDX-License-Identifier: Apache-2.0
#include "fleet/host_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "kube/json.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

constexpr int kMostCalls = 32;
constexpr auto kAnswerLimit = std::chrono::milliseconds(120'000);  // above the host's own limits for start and stop

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof out.sun_path) return fail(Code::Invalid, fmt::format("socket {}: the path must have 1 to {} bytes", path, sizeof out.sun_path - 1));
  std::memcpy(out.sun_path, path.data(), path.size());
  return out;
}

Result<void> send_packet(int fd, const std::string& text) {
  if (text.size() > kLargestPacket) return fail(Code::Exhausted, fmt::format("message of {} bytes; {} are possible", text.size(), kLargestPacket));
  if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) return fail_errno(errno, "send");
  return {};
}

// Unavailable: the other side is gone, or says nothing for so long.
Result<std::string> receive_packet(int fd, std::chrono::milliseconds limit) {
  pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(limit.count()));
  if (ready < 0) return fail_errno(errno, "wait for an answer");
  if (ready == 0) return fail(Code::Unavailable, fmt::format("no answer within {} s", limit.count() / 1000));
  std::string text(kLargestPacket + 1, '\0');
  const ssize_t size = ::recv(fd, text.data(), text.size(), 0);
  if (size < 0) return fail_errno(errno, "receive");
  if (size == 0) return fail(Code::Unavailable, "the connection was closed");
  if (static_cast<std::size_t>(size) > kLargestPacket) return fail(Code::Invalid, "message too large");
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::vector<std::string> read_list(const Json& from) {
  std::vector<std::string> out;
  for (const Json& item : from.items()) out.push_back(item.string());
  return out;
}
Json list(const std::vector<std::string>& from) {
  Json out = Json::array();
  for (const auto& item : from) out.push(item);
  return out;
}

// ---- the side without root

class RemoteHost final : public LocalHost {
 public:
  explicit RemoteHost(RemoteHostOptions options) : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~RemoteHost() override {
    watcher_.request_stop();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
  }

  Result<void> ready() override {
    if (auto done = plain({.call = HostCall::Ready}); !done) return done;
    const std::lock_guard lock(mutex_);
    if (address_told_ || !options_.on_address) return {};
    if (auto done = options_.on_address(host_address(options_.ranges)); !done) return pass(std::move(done.error()), "listen on the host's address in the fabric");
    address_told_ = true;
    return {};
  }
  Result<Observation> observe(const std::string& name, const api::Seat& seat) override {
    auto seen = call(of(HostCall::Observe, name, seat));
    if (seen && seen->process) remember(name);
    return seen;
  }
  Result<ProcessIdentity> start(const api::Machine& machine) override {
    HostRequest request{.call = HostCall::Start, .machine = machine};
    auto seen = call(std::move(request));
    if (!seen) return std::unexpected(std::move(seen.error()));
    if (!seen->process) return fail(Code::Internal, "fairlead-machines started a node and names no process");
    remember(machine.name);
    return *seen->process;
  }
  Result<void> connect(const std::string& name, const api::Seat& seat) override { return plain(of(HostCall::Connect, name, seat)); }
  Result<void> set_link(const api::Seat& seat, api::Link link) override {
    HostRequest request = of(HostCall::SetLink, "", seat);
    request.link = link;
    return plain(std::move(request));
  }
  Result<void> kill(const std::string& name) override { return plain(of(HostCall::Kill, name, {})); }
  Result<void> stop(const std::string& name, std::chrono::milliseconds grace) override {
    HostRequest request = of(HostCall::Stop, name, {});
    request.grace = grace;
    return plain(std::move(request));
  }
  Result<void> remove(const std::string& name, const api::Seat& seat) override {
    auto done = plain(of(HostCall::Remove, name, seat));
    const std::lock_guard lock(mutex_);
    if (done) alive_.erase(name);
    return done;
  }
  void watch_exits(std::function<void(const std::string&)> callback) override {
    watcher_ = std::jthread([this, callback = std::move(callback)](const std::stop_token& stop) { watch(stop, callback); });
  }

 private:
  static HostRequest of(HostCall call, const std::string& name, const api::Seat& seat) {
    HostRequest request{.call = call};
    request.machine.name = name;
    request.machine.seat = seat;
    return request;
  }
  void remember(const std::string& name) {
    const std::lock_guard lock(mutex_);
    alive_.insert(name);
  }

  Result<Fd> dial(HostRequest request) {
    auto address = address_of(options_.socket);
    if (!address) return std::unexpected(std::move(address.error()));
    Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!fd) return fail_errno(errno, "socket");
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
      return fail(Code::Unavailable, fmt::format("local machines need the root helper, which does not answer at {} ({}): systemctl start fairlead-machines", options_.socket, std::strerror(errno)));
    request.site = {.node_range = print_nodes(options_.ranges), .pod_range = print_pods(options_.ranges), .api_port = options_.api_port, .ca_pem = options_.ca_pem};
    if (auto sent = send_packet(fd.get(), print_request(request)); !sent) return pass(std::move(sent.error()), "ask fairlead-machines");
    return fd;
  }

  Result<Observation> call(HostRequest request) {
    const std::string name = request.machine.name;
    auto fd = dial(std::move(request));
    if (!fd) return std::unexpected(std::move(fd.error()));
    while (true) {
      auto text = receive_packet(fd->get(), kAnswerLimit);
      if (!text) return pass(std::move(text.error()), "fairlead-machines");
      auto json = kube::parse_json(*text, {.depth_limit = 16});
      if (!json) return pass(std::move(json.error()), "fairlead-machines");
      if (!json->has("issue")) return parse_answer(*text);
      if (auto sent = send_packet(fd->get(), certificate(name, (*json)["issue"])); !sent) return pass(std::move(sent.error()), "fairlead-machines");
    }
  }
  Result<void> plain(HostRequest request) {
    auto done = call(std::move(request));
    if (!done) return std::unexpected(std::move(done.error()));
    return {};
  }

  std::string certificate(const std::string& name, const Json& asked) const {
    const auto refuse = [](const Error& error) { return print_answer(Result<Observation>(std::unexpected(error))); };
    const http::CertificateRequest request{.common_name = "system:node:" + name,
                                           .organizations = {"system:nodes"},
                                           .dns_names = read_list(asked["dns"]),
                                           .ip_addresses = read_list(asked["addresses"]),
                                           .server = true,
                                           .client = true};
    if (asked["name"].string() != request.common_name) return refuse({Code::Forbidden, "a certificate for another name than the node's"});
    auto pair = options_.issue(request);
    if (!pair) return refuse(pair.error());
    return kube::print_json(Json::object({{"certificate", pair->certificate_pem}, {"key", pair->key_pem}}));
  }

  // Holds one connection on which the helper names nodes that end. After a gap every node that was alive is looked at again: it may have ended unseen.
  void watch(const std::stop_token& stop, const std::function<void(const std::string&)>& callback) {
    bool gap = false;
    while (!stop.stop_requested()) {
      auto fd = dial({.call = HostCall::Watch});
      if (fd && gap) {
        std::set<std::string> names;
        {
          const std::lock_guard lock(mutex_);
          names = alive_;
        }
        for (const auto& name : names) callback(name);
      }
      while (fd) {
        std::array<pollfd, 2> wait{pollfd{.fd = fd->get(), .events = POLLIN, .revents = 0}, pollfd{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
        if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) break;
        if (stop.stop_requested()) return;
        if (wait[0].revents == 0) continue;
        auto text = receive_packet(fd->get(), std::chrono::milliseconds(0));
        auto json = text ? kube::parse_json(*text, {.depth_limit = 4}) : Result<Json>(std::unexpected(text.error()));
        if (!json) break;
        callback((*json)["ended"].string());
      }
      gap = true;
      pollfd wait{.fd = wake_.get(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, 1000);
    }
  }

  const RemoteHostOptions options_;
  const Fd wake_;
  std::mutex mutex_;
  bool address_told_ = false;
  std::set<std::string> alive_;
  std::jthread watcher_;  // last: stops before the rest goes
};

// ---- the side with root

// The connection of the call that this thread serves: where a certificate is asked for while a node starts.
thread_local int asking_fd = -1;

Result<http::KeyPair> ask_for_certificate(const http::CertificateRequest& request) {
  INVARIANT(asking_fd >= 0);
  const Json asked = Json::object({{"name", request.common_name}, {"dns", list(request.dns_names)}, {"addresses", list(request.ip_addresses)}});
  if (auto sent = send_packet(asking_fd, kube::print_json(Json::object({{"issue", asked}}))); !sent) return std::unexpected(std::move(sent.error()));
  auto text = receive_packet(asking_fd, std::chrono::seconds(30));
  if (!text) return std::unexpected(std::move(text.error()));
  auto json = kube::parse_json(*text, {.depth_limit = 16});
  if (!json) return std::unexpected(std::move(json.error()));
  if (json->has("error")) {
    auto refused = parse_answer(*text);
    return std::unexpected(refused ? Error{Code::Internal, "no certificate"} : std::move(refused.error()));
  }
  http::KeyPair pair{.certificate_pem = (*json)["certificate"].string(), .key_pem = (*json)["key"].string()};
  if (pair.certificate_pem.empty() || pair.key_pem.empty()) return fail(Code::Invalid, "the server gave no certificate");
  return pair;
}

class Service final : public MachinesService {
 public:
  Service(Options options, Fd listener) : options_(std::move(options)), listener_(std::move(listener)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    acceptor_ = std::jthread([this](const std::stop_token& stop) { accept_calls(stop); });
  }
  ~Service() override {
    acceptor_.request_stop();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
    changed_.notify_all();
    acceptor_.join();
    std::unique_lock lock(mutex_);
    for (const int fd : watchers_) ::shutdown(fd, SHUT_RDWR);
    changed_.wait(lock, [&] { return calls_ == 0; });
    ::unlink(options_.socket.c_str());
  }

 private:
  void accept_calls(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return calls_ < kMostCalls || stop.stop_requested(); });
      }
      std::array<pollfd, 2> wait{pollfd{.fd = listener_.get(), .events = POLLIN, .revents = 0}, pollfd{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
      if (::poll(wait.data(), wait.size(), -1) < 0 || wait[0].revents == 0) continue;
      Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) continue;
      {
        const std::lock_guard lock(mutex_);
        ++calls_;
      }
      std::thread([this, held = std::make_shared<Fd>(std::move(fd))] {
        serve(held->get());
        held->reset();
        const std::lock_guard lock(mutex_);
        --calls_;
        changed_.notify_all();
      }).detach();
    }
  }

  bool may_ask(int fd) const {
    ucred who{};
    socklen_t size = sizeof who;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && (who.uid == 0 || who.uid == options_.user);
  }

  void serve(int fd) {
    const auto answer = [&](const Result<Observation>& of) { [[maybe_unused]] auto sent = send_packet(fd, print_answer(of)); };
    if (!may_ask(fd)) return answer(fail(Code::Forbidden, "only the user of fairlead-server may ask for machines"));
    auto text = receive_packet(fd, std::chrono::seconds(10));
    if (!text) return;
    auto request = parse_request(*text);
    if (!request) {
      log_warn("request refused", {{"why", request.error().message}});
      return answer(std::unexpected(request.error()));
    }
    const std::shared_ptr<LocalHost> host = host_of(request->site);
    if (request->call == HostCall::Watch) return watch(fd);
    asking_fd = fd;
    answer(carry_out(*host, *request));
    asking_fd = -1;
  }

  static Result<Observation> carry_out(LocalHost& host, const HostRequest& request) {
    const auto& [name, seat] = std::pair(request.machine.name, request.machine.seat);
    const auto plain = [](Result<void> done) -> Result<Observation> {
      if (!done) return std::unexpected(std::move(done.error()));
      return Observation{};
    };
    switch (request.call) {
      case HostCall::Observe: return host.observe(name, seat);
      case HostCall::Start: {
        auto process = host.start(request.machine);
        if (!process) return std::unexpected(std::move(process.error()));
        return Observation{.process = *process};
      }
      case HostCall::Connect: return plain(host.connect(name, seat));
      case HostCall::SetLink: return plain(host.set_link(seat, request.link));
      case HostCall::Kill: return plain(host.kill(name));
      case HostCall::Stop: return plain(host.stop(name, request.grace));
      case HostCall::Remove: return plain(host.remove(name, seat));
      case HostCall::Ready: return plain(host.ready());
      case HostCall::Watch: break;
    }
    return Observation{};
  }

  std::shared_ptr<LocalHost> host_of(const SiteFacts& site) {
    std::shared_ptr<LocalHost> old;  // goes after the lock: its thread may be about to tell of an end
    const std::lock_guard lock(mutex_);
    if (host_ && site == site_) return host_;
    old = std::exchange(host_, options_.make_host(site, ask_for_certificate));
    site_ = site;
    host_->watch_exits([this](const std::string& name) { tell(name); });
    return host_;
  }

  // Until the other side closes. What it missed before, it asks for (see RemoteHost::watch).
  void watch(int fd) {
    {
      const std::lock_guard lock(mutex_);
      watchers_.insert(fd);
    }
    char byte = 0;
    while (::recv(fd, &byte, 1, 0) > 0) {
    }
    const std::lock_guard lock(mutex_);
    watchers_.erase(fd);
  }
  void tell(const std::string& name) {
    const std::string text = kube::print_json(Json::object({{"ended", name}}));
    const std::lock_guard lock(mutex_);
    for (const int fd : watchers_)
      if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) ::shutdown(fd, SHUT_RDWR);  // full or gone: it comes again and looks at all
  }

  const Options options_;
  const Fd listener_, wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  std::set<int> watchers_;
  SiteFacts site_;
  std::shared_ptr<LocalHost> host_;
  std::jthread acceptor_;
};

}  // namespace

std::unique_ptr<LocalHost> make_remote_host(RemoteHostOptions options) { return std::make_unique<RemoteHost>(std::move(options)); }

Result<std::unique_ptr<MachinesService>> MachinesService::start(Options options) {
  auto address = address_of(options.socket);
  if (!address) return std::unexpected(std::move(address.error()));
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!listener) return fail_errno(errno, "socket");
  if (::connect(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) return fail(Code::Exists, "another fairlead-machines serves " + options.socket);
  ::unlink(options.socket.c_str());
  listener = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const mode_t before = ::umask(0177);  // nobody gets in between bind and chown
  const int bound = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int error = errno;
  ::umask(before);
  if (bound != 0) return fail_errno(error, "listen on " + options.socket);
  if ((::geteuid() == 0 && ::chown(options.socket.c_str(), 0, options.group) != 0) || ::chmod(options.socket.c_str(), 0660) != 0) return fail_errno(errno, "set owner and mode of " + options.socket);
  if (::listen(listener.get(), 64) != 0) return fail_errno(errno, "listen on " + options.socket);
  return std::unique_ptr<MachinesService>(std::make_unique<Service>(std::move(options), std::move(listener)));
}

}  // namespace fairlead::fleet
