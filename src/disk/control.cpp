// SPDX-License-Identifier: Apache-2.0
#include "disk/control.h"

#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/log.h"
#include "disk/resident.h"

namespace fairlead::disk {
namespace {

// Memory that has to be written out to be had must not be waited for by who writes it out.
bool lock_memory() {
  const bool done = ::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0;
  if (!done) log_warn("memory is not locked", {{"why", std::strerror(errno)}});
  return done;
}

}  // namespace

void Serving::settle() {
  give_back_code();
  locked_ = lock_memory();
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);  // allocations do not wait for I/O; needs CAP_SYS_RESOURCE, and is an addition to the lock
}

void Serving::give_back() {
  const bool unlocked = locked_ && (!image.is_encrypted() || has_no_swap()) && ::munlockall() == 0;
  (void)::malloc_trim(0);
  give_back_code();
  if (unlocked) locked_ = lock_memory();
}

Result<std::unique_ptr<Control>> Control::listen(Serving& disk, const std::string& path, const Clock& clock) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(Code::Invalid, fmt::format("{} is too long for a socket's name: {} bytes at most", path, sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "make a socket");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + path);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd.get(), 8) != 0) return fail_errno(errno, "listen at " + path);
  return std::unique_ptr<Control>(new Control(disk, std::move(fd), clock));
}

void Control::run(const std::atomic<bool>& ended) {
  for (Rest rest; !ended;) {
    if (rest.begins(disk_.reads + disk_.writes, clock_.monotonic())) disk_.give_back();
    pollfd waiting{fd_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 200) <= 0) continue;
    const Fd peer(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) continue;
    const timeval limit{.tv_sec = 2, .tv_usec = 0};
    (void)::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)::setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    std::string line;
    char piece[blocks::kDiskLine];
    while (!line.ends_with('\n') && line.size() < blocks::kDiskLine) {
      const ssize_t got = ::recv(peer.get(), piece, sizeof piece, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      line.append(piece, static_cast<std::size_t>(got));
    }
    const auto request = line.ends_with('\n') ? blocks::read_disk_request(line) : fail(Code::Invalid, "a line is expected");
    const auto answer = request ? carry_out(*request) : Result<blocks::DiskStatus>(std::unexpected(request.error()));
    const std::string words = answer ? blocks::print(*answer) : blocks::print_disk_error(answer.error());
    (void)::send(peer.get(), words.data(), words.size(), MSG_NOSIGNAL);
    if (request && request->what == blocks::DiskRequest::Do::Stop && answer) return;
  }
}

Result<blocks::DiskStatus> Control::carry_out(const blocks::DiskRequest& request) {
  using Do = blocks::DiskRequest::Do;
  if (request.what == Do::Limit) {
    disk_.limiter.set(request.limits);
    log_info("limits", {{"iops", std::to_string(request.limits.iops)}, {"bytes_per_second", std::to_string(request.limits.bytes_per_second)}});
  }
  if (request.what == Do::Grow) {
    const auto size = disk_.image.look_again();
    if (!size) return std::unexpected(size.error());
    if (auto told = disk_.grew(*size); !told) return std::unexpected(std::move(told.error()));
  }
  if (request.what == Do::Stop)
    if (auto over = disk_.end(); !over) return std::unexpected(std::move(over.error()));
  return blocks::DiskStatus{.pid = ::getpid(), .size = disk_.image.size(), .limits = disk_.limiter.limits(), .reads = disk_.reads, .writes = disk_.writes, .read_bytes = disk_.read_bytes, .written_bytes = disk_.written_bytes, .waited_ns = disk_.limiter.waited().count(), .ublk = disk_.shown_as(), .failed = disk_.image.failed() || (request.what != Do::Stop && disk_.is_over())};
}

}  // namespace fairlead::disk
