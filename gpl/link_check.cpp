// SPDX-License-Identifier: GPL-3.0-or-later
#include "link_check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>

#include "base/encoding.h"
#include "base/rng.h"

namespace fairlead::companion {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kGreeting = "fairlead-link\n";
constexpr std::size_t kBlock = 64 << 10;

// What came of a step on a socket. Silent: nothing for as long as was waited.
enum class Step { Done, Silent, Closed, Failed };

void set_patience(int fd, milliseconds patience) {
  const timeval limit{.tv_sec = patience.count() / 1000, .tv_usec = static_cast<suseconds_t>(patience.count() % 1000 * 1000)};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

Step send_all(int fd, std::span<const char> bytes, int& error) {
  while (!bytes.empty()) {
    const ssize_t put = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      error = errno;
      return error == EAGAIN || error == EWOULDBLOCK ? Step::Silent : Step::Failed;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return Step::Done;
}

Step receive_all(int fd, std::span<char> bytes, int& error) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got == 0) return Step::Closed;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error = errno;
      return error == EAGAIN || error == EWOULDBLOCK ? Step::Silent : Step::Failed;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return Step::Done;
}

void fill(std::span<char> block, std::uint64_t seed) {
  Rng random(seed);
  for (std::size_t i = 0; i + 8 <= block.size(); i += 8) {
    const std::uint64_t x = random.next();
    std::memcpy(block.data() + i, &x, 8);
  }
}

void answer(const Fd& link, const std::string& token) {
  set_patience(link.get(), std::chrono::seconds(30));
  const int yes = 1;
  ::setsockopt(link.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  int error = 0;
  std::string said;
  for (char one = 0; one != '\n' && said.size() <= token.size(); said += one)
    if (receive_all(link.get(), std::span(&one, 1), error) != Step::Done) return;
  if (said != token + "\n") return;
  if (send_all(link.get(), std::string_view(kGreeting), error) != Step::Done) return;
  std::vector<char> block(kBlock);
  for (;;) {
    const ssize_t got = ::recv(link.get(), block.data(), block.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    if (send_all(link.get(), std::span(block).first(static_cast<std::size_t>(got)), error) != Step::Done) return;
  }
}

struct Link {
  Fd socket;
  std::string wrong;     // why there is none
  bool fault = false;    // the link's; else it could not be tried
};

bool address_of(const std::string& text, std::uint16_t port, sockaddr_storage& out, socklen_t& size) {
  out = {};
  auto* const six = reinterpret_cast<sockaddr_in6*>(&out);
  if (::inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    size = sizeof *six;
    return true;
  }
  auto* const four = reinterpret_cast<sockaddr_in*>(&out);
  if (::inet_pton(AF_INET, text.c_str(), &four->sin_addr) != 1) return false;
  four->sin_family = AF_INET;
  four->sin_port = htons(port);
  size = sizeof *four;
  return true;
}

// Refused: the machine is reached, and nobody listens, perhaps not yet.
Link connect_to(const LinkPeer& peer, const LinkCheckOptions& options) {
  sockaddr_storage address;
  socklen_t size = 0;
  if (!address_of(peer.address, options.port, address, size)) return {{}, fmt::format("{} is not an address", peer.address), false};
  const auto end = Clock::now() + options.patience;
  for (;;) {
    Fd socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return {{}, fmt::format("no socket: {}", std::strerror(errno)), false};
    int error = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd watched{socket.get(), POLLOUT, 0};
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
      if (left <= 0 || ::poll(&watched, 1, static_cast<int>(left)) <= 0) return {{}, fmt::format("no connection in {:.0f} s", static_cast<double>(options.patience.count()) / 1000), true};
      socklen_t length = sizeof error;
      if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    }
    if (error == 0) {
      ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
      set_patience(socket.get(), options.patience);
      const int yes = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      return {std::move(socket), "", false};
    }
    if (Clock::now() + milliseconds(200) >= end) return {{}, error == ECONNREFUSED ? "nobody listens there" : std::strerror(error), error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH};
    std::this_thread::sleep_for(milliseconds(200));
  }
}

std::string try_link(const LinkPeer& peer, const LinkCheckOptions& options, milliseconds share, std::uint64_t seed) {
  const Link link = connect_to(peer, options);
  const auto unknown = [](const std::string& why) { return "unknown " + why; };
  const auto fault = [](const std::string& why) { return "fault " + why; };
  if (!link.socket) return link.fault ? fault(link.wrong) : unknown(link.wrong);
  const int fd = link.socket.get();
  int error = 0;
  const auto asked = Clock::now();
  std::string greeting(std::strlen(kGreeting), '\0');
  Step step = send_all(fd, options.token + "\n", error);
  if (step == Step::Done) step = receive_all(fd, greeting, error);
  if (step == Step::Silent) return fault("connected, and then nothing came");
  if (step != Step::Done || greeting != kGreeting) return unknown("another answers there");
  const double trip = std::chrono::duration<double, std::milli>(Clock::now() - asked).count();
  // One thread sends for its share of the time, this one compares what comes back.
  const auto began = Clock::now();
  std::atomic<std::uint64_t> sent = 0;
  std::atomic<bool> ended = false;
  Step sending = Step::Done;
  int sending_error = 0;
  std::jthread sender([&] {
    std::vector<char> block(kBlock);
    for (std::uint64_t at = 0; at == 0 || Clock::now() - began < share; at += kBlock) {
      fill(block, seed + at);
      sending = send_all(fd, block, sending_error);
      if (sending != Step::Done) break;
      sent += kBlock;
    }
    ended = true;
    ::shutdown(fd, SHUT_WR);
  });
  std::vector<char> wanted(kBlock), back(kBlock);
  std::uint64_t compared = 0;
  std::string words;
  for (;; compared += kBlock) {
    step = receive_all(fd, back, error);
    if (step != Step::Done) break;
    fill(wanted, seed + compared);
    if (std::memcmp(back.data(), wanted.data(), kBlock) != 0) {
      words = fault(fmt::format("what came back differs from what was sent, {} MiB in", compared >> 20));
      break;
    }
  }
  ::shutdown(fd, SHUT_RDWR);  // the sender ends, too
  sender.join();
  if (!words.empty()) return words;
  const bool all = ended && sending == Step::Done && compared == sent;
  if (step == Step::Closed && all) return fmt::format("ok {:.0f} MB/s each way, answers in {:.1f} ms", static_cast<double>(compared) / 1e6 / std::max(std::chrono::duration<double>(Clock::now() - began).count(), 1e-6), trip);
  if (step == Step::Silent || sending == Step::Silent) return fault(fmt::format("nothing came for {:.0f} s, {} MiB in", static_cast<double>(options.patience.count()) / 1000, compared >> 20));
  // The other end went: who listened there may have been ended.
  return unknown(fmt::format("the connection ended {} MiB in", compared >> 20));
}

}  // namespace

Result<LinkCheckOptions> link_check_options(const std::map<std::string, std::string>& environment) {
  LinkCheckOptions out;
  const auto value_of = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const auto number = [&](const char* name, long least, long most, long otherwise) -> Result<long> {
    const std::string text = value_of(name);
    if (text.empty()) return otherwise;
    long value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) return fail(Code::Invalid, fmt::format("{}: a number from {} to {}", name, least, most));
    return value;
  };
  const auto seconds = number("FAIRLEAD_CHECK_SECONDS", 1, 86'400, 20);
  if (!seconds) return std::unexpected(seconds.error());
  const auto port = number("FAIRLEAD_CHECK_PORT", 1, 65'535, out.port);
  if (!port) return std::unexpected(port.error());
  out.limit = std::chrono::seconds(*seconds);
  out.port = static_cast<std::uint16_t>(*port);
  out.token = value_of("FAIRLEAD_CHECK_TOKEN");
  if (out.token.empty() || out.token.size() > 200 || out.token.find('\n') != std::string::npos) return fail(Code::Invalid, "FAIRLEAD_CHECK_TOKEN: one line of 1 to 200 characters");
  for (const std::string& one : split(value_of("FAIRLEAD_CHECK_PEERS"), ' ')) {
    if (one.empty()) continue;
    const auto at = one.find('=');
    sockaddr_storage address;
    socklen_t size = 0;
    if (at == 0 || at == one.npos || !address_of(one.substr(at + 1), 1, address, size)) return fail(Code::Invalid, fmt::format("FAIRLEAD_CHECK_PEERS: \"{}\" is not ID=ADDRESS", one));
    out.peers.push_back({one.substr(0, at), one.substr(at + 1)});
  }
  return out;
}

Result<Fd> link_socket(std::uint16_t port) {
  for (const int family : {AF_INET6, AF_INET}) {
    Fd out(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!out) continue;  // a kernel without IPv6
    const int yes = 1, no = 0;
    ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6) ::setsockopt(out.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_storage address;
    socklen_t size = 0;
    address_of(family == AF_INET6 ? "::" : "0.0.0.0", port, address, size);
    if (::bind(out.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      if (family == AF_INET6 && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT)) continue;
      return fail_errno(errno, fmt::format("listen at port {}", port));
    }
    if (::listen(out.get(), 64) != 0) return fail_errno(errno, fmt::format("listen at port {}", port));
    return out;
  }
  return fail(Code::Unavailable, "there is neither IPv4 nor IPv6 here");
}

void serve_links(const Fd& socket, const std::string& token) {
  constexpr int kMost = 64;
  std::atomic<int> going = 0;
  std::vector<std::jthread> threads;
  for (;;) {
    Fd link(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!link) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EINVAL || errno == EBADF) return;  // it was shut down; those that are answered end by themselves
      std::this_thread::sleep_for(milliseconds(100));  // no descriptors, no memory
      continue;
    }
    if (going >= kMost) continue;
    if (going == 0) threads.clear();
    ++going;
    threads.emplace_back([&going, &token, own = std::move(link)] {
      answer(own, token);
      --going;
    });
  }
}

int run_link_check(const LinkCheckOptions& options) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string told;
  const auto share = options.limit / std::max<std::int64_t>(1, static_cast<std::int64_t>(options.peers.size()));
  for (std::size_t i = 0; i < options.peers.size(); ++i) {
    const std::string line = fmt::format("{} {}\n", options.peers[i].id, try_link(options.peers[i], options, share, i << 40));
    std::fputs(line.c_str(), stdout);
    told += line;
  }
  const Fd file(::open(options.last_word.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file || ::write(file.get(), told.data(), told.size()) != static_cast<ssize_t>(told.size())) {
    std::perror("last word");
    return 125;  // nobody would know
  }
  return 0;
}

}  // namespace fairlead::companion
