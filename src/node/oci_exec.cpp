// SPDX-License-Identifier: Apache-2.0
// Commands in running containers by `crun exec`, with pipes or a terminal.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/encoding.h"
#include "base/files.h"
#include "base/rng.h"
#include "node/oci_runtime.h"

namespace fairlead::node {
namespace {

constexpr std::chrono::seconds told_within{10};

Result<std::pair<Fd, Fd>> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

Result<Fd> listen_at(const std::string& path) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(Code::Invalid, "path of a socket is too long: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd.get(), 1) != 0)
    return fail_errno(errno, "listen at " + path);
  return fd;
}

// The terminal's master side, sent by crun. Empty: it ended without sending one.
Result<Fd> receive_terminal(const Fd& listener, const Child& child) {
  pollfd waits[2] = {{.fd = listener.get(), .events = POLLIN, .revents = 0}, {.fd = child.pidfd(), .events = POLLIN, .revents = 0}};
  int ready = 0;
  do ready = ::poll(waits, 2, 30'000);
  while (ready < 0 && errno == EINTR);
  if (ready <= 0) return fail(Code::Unavailable, "no terminal within 30 s");
  if (waits[0].revents == 0) return Fd();
  const Fd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection) return fail_errno(errno, "accept the terminal");
  char name[256];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec part{.iov_base = name, .iov_len = sizeof name};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do n = ::recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n <= 0) return Fd();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return Fd(fd);
  }
  return Fd();
}

}  // namespace

ExecProcess::~ExecProcess() {
  if (child.pidfd() < 0) return;  // moved from
  kill();
  for (const char* end : {".pid", ".json"}) ::unlink((stem + end).c_str());
}

void ExecProcess::kill() {
  // crun tells the number after the command has begun: what is not told yet may run already. While crun waits for the command (it is not reaped by us yet), the number in the file cannot belong to another process.
  for (const auto end = std::chrono::steady_clock::now() + told_within; std::chrono::steady_clock::now() < end;) {
    auto ended = child.wait(std::chrono::milliseconds(0));
    if (!ended || *ended) return;
    auto text = read_file(stem + ".pid", 4_KiB);
    if (const int pid = text ? std::atoi(text->c_str()) : 0; pid > 1) {
      ::kill(pid, SIGKILL);
      break;
    }
    (void)child.wait(std::chrono::milliseconds(10));
  }
  (void)child.wait(std::chrono::milliseconds(500));
}

std::string OciRuntime::running_attempt(const std::string& uid, const std::string& container) const {
  auto all = attempts(uid);
  if (!all) return {};
  for (const auto& [name, numbers] : *all) {
    if (name != container || numbers.empty()) continue;
    auto attempt = read_attempt(uid, container, numbers.back());
    if (attempt && attempt->running()) return attempt->id;
  }
  return {};
}

Result<bool> OciRuntime::has_stdin(const std::string& pod_uid, const std::string& container) {
  const std::string id = running_attempt(pod_uid, container);
  if (id.empty()) return fail(Code::NotFound, fmt::format("container {} is not running", container));
  auto config = read_file(bundle(id) + "/config.json");
  if (!config) return std::unexpected(std::move(config.error()));
  auto json = kube::parse_json(*config);
  if (!json) return std::unexpected(std::move(json.error()));
  return (*json)["annotations"]["fairlead.dev/stdin"].string() == "true";
}

Result<Attachment> OciRuntime::attach(const std::string& pod_uid, const std::string& container) {
  const std::string id = running_attempt(pod_uid, container);
  if (id.empty()) return fail(Code::NotFound, fmt::format("container {} is not running", container));
  // Asked before the monitor is: it takes whoever connects and leaves for the one whose stdin has ended.
  auto has = has_stdin(pod_uid, container);
  if (!has) return std::unexpected(std::move(has.error()));
  if (!*has) return fail(Code::Unsupported, fmt::format("container {} has no stdin", container));
  Attachment out;
  out.socket = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!out.socket) return fail_errno(errno, "attach to " + container);
  // By a descriptor, for the path may be longer than a socket's address.
  const Fd folder(::open(bundle(id).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return fail_errno(errno, "attach to " + container);
  const std::string path = fmt::format("/proc/self/fd/{}/attach", folder.get());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(out.socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(errno, "attach to " + container);
  out.window = Fd(::open((bundle(id) + "/winsz").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  return out;
}

Result<ExecProcess> OciRuntime::exec(const std::string& pod_uid, const std::string& container, const ExecOptions& options) {
  const std::string id = running_attempt(pod_uid, container);
  if (id.empty()) return fail(Code::NotFound, fmt::format("container {} is not running", container));
  if (options.argv.empty()) return fail(Code::Invalid, "exec: no command");
  const std::string stem = options_.run_dir + "/exec-" + hex(secret_bytes(6));
  // The process as the container's own, with another command: `crun exec --env` would replace the whole environment.
  auto config = read_file(bundle(id) + "/config.json");
  if (!config) return std::unexpected(std::move(config.error()));
  auto json = kube::parse_json(*config);
  if (!json) return std::unexpected(std::move(json.error()));
  kube::Json spec = (*json)["process"];
  kube::Json arguments = kube::Json::array();
  for (const std::string& argument : options.argv) arguments.push(argument);
  spec.set("args", std::move(arguments)).set("terminal", options.terminal);
  if (options.terminal) spec.child("env").push("TERM=xterm");
  if (auto written = write_file_atomically(stem + ".json", kube::print_json(spec), 0600); !written)
    return std::unexpected(std::move(written.error()));
  Command command{
      .argv = {options_.crun, "--root=" + options_.run_dir + "/crun", "exec", "--pid-file=" + stem + ".pid", "--process=" + stem + ".json"}};
  if (options.terminal) command.argv.push_back("--console-socket=" + stem + ".sock");
  command.argv.push_back(id);

  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  if (!in || !out || !err) return fail(Code::Exhausted, "exec: no pipe");
  command.stderr_fd = err->second.get();
  Fd listener;
  if (options.terminal) {
    auto listening = listen_at(stem + ".sock");
    if (!listening) return std::unexpected(std::move(listening.error()));
    listener = std::move(*listening);
  } else {
    command.stdout_fd = out->second.get();
    if (options.in) command.stdin_fd = in->first.get();
  }
  auto child = Child::start(command);
  if (!child) {
    for (const char* end : {".sock", ".json"}) ::unlink((stem + end).c_str());
    return std::unexpected(std::move(child.error()));
  }
  ExecProcess process(std::move(*child));
  process.stem = stem;
  err->second.reset();
  if (options.terminal) {
    auto terminal = receive_terminal(listener, process.child);
    ::unlink((stem + ".sock").c_str());
    if (!terminal) return std::unexpected(std::move(terminal.error()));
    if (!*terminal) {
      auto why = read_file(fmt::format("/proc/self/fd/{}", err->first.get()), 64_KiB);
      return fail(Code::Invalid, fmt::format("exec: {}", why ? trim(*why) : "the command could not be started"));
    }
    process.terminal = std::move(*terminal);
    return process;
  }
  if (options.in) process.in = std::move(in->second);
  process.out = std::move(out->first);
  process.err = std::move(err->first);
  return process;
}

Result<Output> run_in_container(Runtime& runtime, const std::string& pod_uid, const std::string& container, const std::vector<std::string>& argv,
                                std::chrono::milliseconds limit, std::size_t limit_bytes) {
  auto process = runtime.exec(pod_uid, container, {.argv = argv, .in = false, .terminal = false});
  if (!process) return std::unexpected(std::move(process.error()));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (const int fd : {process->out.get(), process->err.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  Output output;
  const auto drain = [&](Fd& fd, std::string& into) {
    char chunk[16 * 1024];
    while (fd) {
      const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) fd.reset();
      if (n <= 0) return;
      if (into.size() < limit_bytes) into.append(chunk, std::min(static_cast<std::size_t>(n), limit_bytes - into.size()));
    }
  };
  bool exited = false;
  while (!exited) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return fail(Code::Unavailable, fmt::format("command timed out after {} ms", limit.count()));
    pollfd waits[3] = {{.fd = process->child.pidfd(), .events = POLLIN, .revents = 0},
                       {.fd = process->out.get(), .events = POLLIN, .revents = 0},
                       {.fd = process->err.get(), .events = POLLIN, .revents = 0}};
    const int ready = ::poll(waits, 3, static_cast<int>(std::min<std::int64_t>(left, 1 << 30)));
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "wait for the command");
    if (ready <= 0) continue;
    exited = waits[0].revents != 0;
    if (exited || waits[1].revents != 0) drain(process->out, output.out);
    if (exited || waits[2].revents != 0) drain(process->err, output.err);
  }
  auto exit = process->child.wait(std::chrono::seconds(10));
  if (!exit) return std::unexpected(std::move(exit.error()));
  if (!*exit) return fail(Code::Internal, "the command has no exit status");
  output.exit = **exit;
  return output;
}

}  // namespace fairlead::node
