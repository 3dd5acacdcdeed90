// SPDX-License-Identifier: Apache-2.0
#include "node/dns_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "base/log.h"
#include "kube/object.h"

namespace fairlead::node {
namespace {
using kube::Json;

std::string answer_to(std::string_view packet, const DnsServer::Resolve& resolve, std::size_t limit) {
  const auto question = parse_dns_query(packet);
  if (!question) return print_dns_error(packet);
  return print_dns_answer(*question, resolve(*question), limit);
}

std::vector<std::pair<std::string, std::string>> pairs(const Json& object) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, value] : object.members()) out.emplace_back(key, value.string());
  return out;
}

}  // namespace

Result<std::unique_ptr<DnsServer>> DnsServer::start(const std::string& address, unsigned short port, Resolve resolve) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &at.sin_addr) != 1) return fail(Code::Invalid, "\"" + address + "\" is not an address");
  Fd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  ::setsockopt(tcp.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const std::string doing = fmt::format("answer names at {}:{}", address, port);
  if (::bind(udp.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return fail_errno(errno, doing);
  socklen_t size = sizeof at;
  if (::getsockname(udp.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) return fail_errno(errno, doing);
  if (::bind(tcp.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 || ::listen(tcp.get(), 16) != 0) return fail_errno(errno, doing);
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return std::unique_ptr<DnsServer>(new DnsServer(std::move(udp), std::move(tcp), std::move(wake), ntohs(at.sin_port), std::move(resolve)));
}

DnsServer::DnsServer(Fd udp, Fd tcp, Fd wake, unsigned short port, Resolve resolve)
    : udp_(std::move(udp)), tcp_(std::move(tcp)), wake_(std::move(wake)), port_(port), resolve_(std::move(resolve)), thread_([this] { serve(); }) {}

DnsServer::~DnsServer() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void DnsServer::serve() {
  struct Connection {
    Fd fd;
    std::string in;
    std::chrono::steady_clock::time_point since;
  };
  constexpr std::size_t connection_limit = 32;
  std::list<Connection> connections;
  while (true) {
    std::vector<pollfd> waits{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                              {.fd = udp_.get(), .events = POLLIN, .revents = 0},
                              {.fd = tcp_.get(), .events = POLLIN, .revents = 0}};
    for (const Connection& one : connections) waits.push_back({.fd = one.fd.get(), .events = POLLIN, .revents = 0});
    if (::poll(waits.data(), waits.size(), connections.empty() ? -1 : 1000) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    // Bounded, so that a flood of datagrams does not starve the connections.
    for (int i = 0; i < 64; ++i) {
      char packet[4096];
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const ssize_t n = ::recvfrom(udp_.get(), packet, sizeof packet, 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (n < 0) break;
      const std::string answer = answer_to({packet, static_cast<std::size_t>(n)}, resolve_, 512);
      if (!answer.empty()) ::sendto(udp_.get(), answer.data(), answer.size(), 0, reinterpret_cast<const sockaddr*>(&from), size);
    }
    std::size_t index = 3;
    const auto now = std::chrono::steady_clock::now();
    for (auto it = connections.begin(); it != connections.end();) {
      const short events = index < waits.size() ? waits[index++].revents : static_cast<short>(0);
      bool keep = now - it->since < std::chrono::seconds(10);
      if (events != 0) {
        char chunk[4096];
        const ssize_t n = ::recv(it->fd.get(), chunk, sizeof chunk, 0);
        keep = keep && n > 0;
        if (n > 0) it->in.append(chunk, static_cast<std::size_t>(n));
        while (it->in.size() >= 2) {
          const std::size_t length = static_cast<std::size_t>(static_cast<unsigned char>(it->in[0]) << 8 | static_cast<unsigned char>(it->in[1]));
          if (it->in.size() < 2 + length) break;
          const std::string answer = answer_to(std::string_view(it->in).substr(2, length), resolve_, 65535);
          it->in.erase(0, 2 + length);
          if (answer.empty()) continue;
          std::string framed{static_cast<char>(answer.size() >> 8), static_cast<char>(answer.size() & 255)};
          framed += answer;
          // A reader that does not take a whole answer at once is cut.
          if (::send(it->fd.get(), framed.data(), framed.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(framed.size())) keep = false;
        }
      }
      it = keep ? std::next(it) : connections.erase(it);
    }
    if (waits[2].revents != 0) {
      Fd accepted(::accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (accepted && connections.size() < connection_limit) connections.push_back({.fd = std::move(accepted), .in = {}, .since = now});
    }
  }
}

namespace {
// Of both families; older objects have the first alone.
std::vector<std::string> service_addresses(const Json& spec) {
  std::vector<std::string> out;
  for (const Json& one : spec["clusterIPs"].items()) out.push_back(one.string());
  if (out.empty()) out.push_back(spec["clusterIP"].string());
  std::erase_if(out, [](const std::string& one) { return one.empty() || one == "None"; });
  return out;
}
std::vector<std::string> pod_addresses(const Json& status) {
  std::vector<std::string> out;
  for (const Json& one : status["podIPs"].items()) out.push_back(one["ip"].string());
  if (out.empty()) out.push_back(status["podIP"].string());
  std::erase(out, "");
  return out;
}
}  // namespace

// What is asked for often is kept as it is asked: Slurm has each node resolve all the others, and to read all pods for each name would be a hundred thousand of them for fifty nodes.
struct DnsController::Book {
  std::string domain;
  std::atomic<const kube::Reader*> services{nullptr}, pods{nullptr};

  // Of what has changed the newest is read, by one after the other: what is read last is stored last.
  void follow_pod(const kube::Change& change) {
    const kube::Reader* all = pods;
    if (all == nullptr || (change.before && change.after && read_pod(*change.before) == read_pod(*change.after))) return;
    const kube::ObjectKey key = kube::key_of(change.object());
    const std::lock_guard lock(mutex_);
    const auto object = all->get(key);
    auto& space = pods_[key.space];
    const auto before = space.find(key.name);
    std::optional<DnsPod> now = object ? read_pod(*object) : std::nullopt;
    if (now ? before != space.end() && before->second == *now : before == space.end()) return;
    if (now) space.insert_or_assign(key.name, std::move(*now));
    else space.erase(before);
    lists_.erase(key.space);
    lists_.erase("");
  }
  void follow_service(const kube::Change& change) {
    const kube::Reader* all = services;
    if (all == nullptr) return;
    const kube::ObjectKey key = kube::key_of(change.object());
    const std::lock_guard lock(mutex_);
    const auto object = all->get(key);
    if (!object) {
      services_.erase(key);
      return;
    }
    const Json& spec = (*object)["spec"];
    services_.insert_or_assign(key, DnsService{.space = key.space, .name = key.name, .addresses = service_addresses(spec), .selector = pairs(spec["selector"]), .not_ready_too = spec["publishNotReadyAddresses"].boolean()});
  }
  std::optional<DnsService> service(const kube::ObjectKey& key) {
    const std::lock_guard lock(mutex_);
    const auto found = services_.find(key);
    return found == services_.end() ? std::nullopt : std::optional(found->second);
  }
  DnsPods pods_of(const std::string& space) {
    const std::lock_guard lock(mutex_);
    DnsPods& out = lists_[space];
    if (out) return out;
    auto list = std::make_shared<std::vector<DnsPod>>();
    for (const auto& [name, all] : pods_)
      if (space.empty() || name == space)
        for (const auto& [pod, known] : all) list->push_back(known);
    return out = std::move(list);
  }

 private:
  static std::optional<DnsPod> read_pod(const Json& pod) {
    const std::string& phase = pod["status"]["phase"].string();
    if (phase == "Succeeded" || phase == "Failed") return std::nullopt;
    return DnsPod{.space = kube::space_of(pod), .name = kube::name_of(pod), .hostname = pod["spec"]["hostname"].string(), .subdomain = pod["spec"]["subdomain"].string(), .addresses = pod_addresses(pod["status"]), .labels = pairs(pod["metadata"]["labels"]), .ready = kube::condition_is_true(pod, "Ready") && !kube::deleting(pod)};
  }

  std::mutex mutex_;
  std::map<std::string, std::map<std::string, DnsPod>> pods_;  // by namespace and name
  std::map<kube::ObjectKey, DnsService> services_;
  std::map<std::string, DnsPods> lists_;  // of a namespace, "" of all, while nothing there changes
};

std::shared_ptr<DnsController::Book> DnsController::make_book(std::string domain) {
  auto book = std::make_shared<Book>();
  book->domain = std::move(domain);
  return book;
}

std::vector<kube::Controller::Source> DnsController::sources() const {
  // They are followed, and there is nothing to reconcile.
  const auto of = [book = book_](void (Book::*follow)(const kube::Change&)) {
    return [book, follow](const kube::Change& change) {
      (book.get()->*follow)(change);
      return std::vector<kube::ObjectKey>();
    };
  };
  return {{.resource = kube::resources::services, .space = "", .keys = of(&Book::follow_service)}, {.resource = kube::resources::pods, .space = "", .keys = of(&Book::follow_pod)}};
}

void DnsController::start(const kube::Caches& caches) {
  book_->services = &caches.of(kube::resources::services);
  book_->pods = &caches.of(kube::resources::pods);
}

Result<kube::Next> DnsController::reconcile(const kube::ObjectKey&) { return kube::Next{}; }

std::vector<Json> DnsController::services(const Book& book) {
  const kube::Reader* services = book.services;
  return services != nullptr ? services->list("") : std::vector<Json>();
}

DnsAnswer DnsController::resolve(Book& book, const DnsQuestion& question) {
  return resolve_name(question, {.domain = book.domain, .service = [&](const std::string& space, const std::string& name) { return book.service({space, name}); }, .pods = [&](const std::string& space) { return book.pods_of(space); }});
}

}  // namespace fairlead::node
