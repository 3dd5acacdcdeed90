// SPDX-License-Identifier: Apache-2.0
#include "blocks/disk_control.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>

#include "base/encoding.h"
#include "base/fd.h"

namespace fairlead::blocks {
namespace {

using Do = DiskRequest::Do;
constexpr std::array<std::string_view, 4> verbs{"status", "limit", "grow", "stop"};
constexpr std::array codes{Code::Conflict, Code::Invalid, Code::Unavailable, Code::Unsupported, Code::Internal};

std::string_view line_of(std::string_view text) { return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text; }

// "WORD name=number name=number": each name once, no number below 0.
Result<std::map<std::string, std::int64_t, std::less<>>> read_numbers(std::string_view text) {
  std::map<std::string, std::int64_t, std::less<>> out;
  while (!text.empty()) {
    const auto space = text.find(' ');
    const std::string_view one = text.substr(0, space);
    text.remove_prefix(space == text.npos ? text.size() : space + 1);
    const auto equals = one.find('=');
    std::int64_t value = 0;
    const char* const end = one.data() + one.size();
    if (equals == one.npos || equals == 0) return fail(Code::Invalid, "NAME=NUMBER is expected");
    if (const auto read = std::from_chars(one.data() + equals + 1, end, value); read.ec != std::errc() || read.ptr != end || value < 0) return fail(Code::Invalid, "a number that is not negative is expected");
    if (!out.emplace(one.substr(0, equals), value).second) return fail(Code::Invalid, "a name is there twice");
  }
  return out;
}
std::pair<std::string_view, std::string_view> word_and_rest(std::string_view line) {
  const auto space = line.find(' ');
  return {line.substr(0, space), space == line.npos ? std::string_view() : line.substr(space + 1)};
}

}  // namespace

Result<DiskRequest> read_disk_request(std::string_view text) {
  const auto [word, rest] = word_and_rest(line_of(text));
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    if (word != verbs[i]) continue;
    DiskRequest out{.what = static_cast<Do>(i), .limits = {}};
    if (out.what != Do::Limit) return rest.empty() ? Result<DiskRequest>(out) : fail(Code::Invalid, "nothing more is expected");
    auto numbers = read_numbers(rest);
    if (!numbers) return std::unexpected(std::move(numbers.error()));
    if (numbers->size() != 2 || !numbers->contains("iops") || !numbers->contains("throughput")) return fail(Code::Invalid, "iops and throughput are expected");
    out.limits = {.iops = numbers->at("iops"), .bytes_per_second = numbers->at("throughput")};
    return out;
  }
  return fail(Code::Invalid, "status, limit, grow or stop is expected");
}

std::string print(const DiskRequest& request) {
  const std::string_view verb = verbs[static_cast<std::size_t>(request.what)];
  return request.what == Do::Limit ? fmt::format("{} iops={} throughput={}\n", verb, request.limits.iops, request.limits.bytes_per_second) : fmt::format("{}\n", verb);
}

std::string print(const DiskStatus& s) {
  return fmt::format("ok pid={} size={} iops={} throughput={} reads={} writes={} read={} written={} waited={}{} failed={}\n", s.pid, s.size, s.limits.iops, s.limits.bytes_per_second, s.reads, s.writes, s.read_bytes, s.written_bytes, s.waited_ns,
                     s.ublk >= 0 ? fmt::format(" ublk={}", s.ublk) : "", s.failed ? 1 : 0);
}

std::string print_disk_error(const Error& error) {
  std::string out = fmt::format("{} {}", name(error.code), error.message);
  for (char& one : out)
    if (one == '\n') one = ' ';
  return out.substr(0, kDiskLine - 1) + "\n";
}

Result<DiskStatus> read_disk_answer(std::string_view text) {
  const auto [word, rest] = word_and_rest(line_of(text));
  if (word != "ok") {
    for (const Code code : codes)
      if (word == name(code)) return fail(code, std::string(rest));
    return fail(Code::Internal, "the volume's engine answers what is not understood");
  }
  auto numbers = read_numbers(rest);
  if (!numbers) return fail(Code::Internal, "the volume's engine answers what is not understood: " + numbers.error().message);
  const auto of = [&](const char* name) { return numbers->contains(name) ? numbers->at(name) : 0; };
  if (!numbers->contains("size")) return fail(Code::Internal, "the volume's engine does not say its size");
  return DiskStatus{.pid = of("pid"), .size = of("size"), .limits = {.iops = of("iops"), .bytes_per_second = of("throughput")}, .reads = of("reads"), .writes = of("writes"), .read_bytes = of("read"), .written_bytes = of("written"), .waited_ns = of("waited"), .ublk = numbers->contains("ublk") ? of("ublk") : -1, .failed = of("failed") != 0};
}

Result<DiskStatus> ask_disk(const std::string& socket, const DiskRequest& request, std::chrono::milliseconds limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path) return fail(Code::Invalid, socket + " is too long for a socket's name");
  std::memcpy(address.sun_path, socket.data(), socket.size());
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "make a socket");
  const timeval time{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) != 0 || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) != 0) return fail_errno(errno, "set the time limits of a socket");
  const auto silent = [&] { return fail(Code::Unavailable, fmt::format("the volume's engine does not answer within {} ms: whether it serves is not known", limit.count())); };
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return fail(Code::NotFound, "no engine serves the volume");
    return errno == EAGAIN ? silent() : fail_errno(errno, "reach the volume's engine");
  }
  const std::string line = print(request);
  if (::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) return silent();
  std::string answer;
  char buffer[kDiskLine];
  while (!answer.ends_with('\n') && answer.size() < 2 * kDiskLine) {
    const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return silent();
    if (got == 0) break;
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  // It has ended while it was asked.
  if (!answer.ends_with('\n')) return fail(Code::Unavailable, "the volume's engine has broken off its answer");
  return read_disk_answer(answer);
}

}  // namespace fairlead::blocks
