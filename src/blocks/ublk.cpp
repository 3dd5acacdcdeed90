// SPDX-License-Identifier: Apache-2.0
#include "blocks/ublk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/encoding.h"
#include "base/files.h"
#include "blocks/block_devices.h"
#include "blocks/ublk_abi.h"

namespace fairlead::blocks {
namespace {

using namespace ublk;

constexpr const char* kLinks = "/dev/fairlead-ublk";
constexpr std::uint64_t kMakes = kRecovery | kFailsWithout | kGrows | kThreadEach | kSafeStop | kNoScan | kFormIsIoctl;
constexpr std::int64_t kSector512 = 512;
constexpr std::uint32_t kMostCleared = 8 << 20;  // 4 GiB of sectors of 512 bytes

Result<void> done(int result, const std::string& what) { return result >= 0 ? Result<void>() : Result<void>(fail_errno(-result, what)); }

}  // namespace

std::uint64_t ublk_mark(const std::string& name) {
  std::uint64_t out = 0;
  std::memcpy(&out, sha256(name).data(), sizeof out);
  return out;
}

Result<void> link_ublk(const std::string& name, int number) {
  if (auto made = make_dirs(kLinks, 0755); !made) return made;
  const std::string path = fmt::format("{}/{}", kLinks, name), target = fmt::format("../ublkb{}", number);
  (void)::unlink(path.c_str());
  return ::symlink(target.c_str(), path.c_str()) == 0 ? Result<void>() : Result<void>(fail_errno(errno, "make the link " + path));
}
void unlink_ublk(const std::string& name) { (void)::unlink(fmt::format("{}/{}", kLinks, name).c_str()); }
Result<std::vector<std::string>> ublk_links() {
  auto out = list_dir(kLinks);
  return out || out.error().code != Code::NotFound ? out : std::vector<std::string>();
}

bool sees_new_devices() {
  const auto all = mounts();
  const auto dev = all ? mount_at(*all, "/dev") : std::nullopt;
  return dev && dev->type == "devtmpfs";
}

Result<std::unique_ptr<Ublk>> Ublk::open() {
  Fd control(::open("/dev/ublk-control", O_RDWR | O_CLOEXEC));
  if (!control) return errno == ENOENT || errno == ENXIO || errno == ENODEV ? fail(Code::Unsupported, "there is no /dev/ublk-control: this kernel has no ublk, or its module ublk_drv is not loaded") : fail_errno(errno, "open /dev/ublk-control");
  auto out = std::unique_ptr<Ublk>(new Ublk(std::move(control)));
  std::uint64_t features = 0;
  if (const int result = out->command(kFeatures, -1, &features, sizeof features, 0); result < 0)
    return fail(Code::Unsupported, fmt::format("ublk does not say what it can do ({}): this kernel is too old, or io_uring is switched off (kernel.io_uring_disabled)", std::strerror(-result)));
  for (const auto& [feature, what] : {std::pair(kGrows, "its devices do not grow"), std::pair(kThreadEach, "not each request has a thread of its own"), std::pair(kFailsWithout, "its devices do not outlive their process"), std::pair(kSafeStop, "its devices are taken from who has them open"),
                                      std::pair(kNoScan, "it looks for partitions in what its devices show")})
    if ((features & feature) == 0) return fail(Code::Unsupported, fmt::format("this kernel's ublk is too old: {}", what));
  out->hands_pages_ = (features & kHandsPages) != 0;
  return out;
}

// A ring for each: they are few, and some wait.
int Ublk::command(std::uint32_t what, int number, void* at, std::size_t size, std::uint64_t word) {
  io_uring ring{};
  if (const int error = ::io_uring_queue_init(2, &ring, IORING_SETUP_SQE128); error < 0) return error;
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring);
  std::memset(entry, 0, 2 * sizeof *entry);
  entry->opcode = IORING_OP_URING_CMD;
  entry->fd = control_.get();
  entry->cmd_op = what;
  ublksrv_ctrl_cmd command{};
  command.dev_id = static_cast<std::uint32_t>(number);
  command.queue_id = 0xffff;
  command.addr = reinterpret_cast<std::uint64_t>(at);
  command.len = static_cast<std::uint16_t>(size);
  command.data[0] = word;
  std::memcpy(entry->cmd, &command, sizeof command);
  io_uring_cqe* end = nullptr;
  int result = ::io_uring_submit(&ring);
  while (result >= 0 && end == nullptr)
    if (result = ::io_uring_wait_cqe(&ring, &end); result == -EINTR) result = 0;
  if (end != nullptr) result = end->res;
  ::io_uring_queue_exit(&ring);
  return result;
}

Result<std::vector<UblkDevice>> Ublk::devices() {
  std::vector<UblkDevice> out;
  const auto names = list_dir("/sys/class/ublk-char");
  if (!names) return names.error().code == Code::NotFound ? Result<std::vector<UblkDevice>>(out) : std::unexpected(names.error());
  for (const std::string& name : *names) {
    int number = -1;
    if (!name.starts_with("ublkc") || std::from_chars(name.data() + 5, name.data() + name.size(), number).ec != std::errc()) continue;
    ublksrv_ctrl_dev_info about{};
    const int result = command(kLook, number, &about, sizeof about, 0);
    if (result == -ENODEV || result == -EINVAL) continue;  // it went meanwhile
    if (result < 0) return fail_errno(-result, "look at " + name);
    out.push_back({.number = number, .mark = about.ublksrv_flags, .served = about.state == kLive});
  }
  std::sort(out.begin(), out.end(), [](const UblkDevice& a, const UblkDevice& b) { return a.number < b.number; });
  return out;
}

Result<bool> Ublk::is(int number, std::uint64_t mark) {
  const auto all = devices();
  if (!all) return std::unexpected(all.error());
  return std::any_of(all->begin(), all->end(), [&](const UblkDevice& one) { return one.number == number && one.mark == mark; });
}

Result<UblkDevice> Ublk::make(unsigned depth, std::uint32_t most_bytes, std::uint64_t mark, Data data) {
  const std::uint64_t asked = kMakes | (data == Data::Pages ? kHandsPages : 0);
  ublksrv_ctrl_dev_info about{};
  about.nr_hw_queues = 1;
  about.queue_depth = static_cast<std::uint16_t>(depth);
  about.max_io_buf_bytes = most_bytes;
  about.dev_id = static_cast<std::uint32_t>(-1);
  about.ublksrv_pid = ::getpid();
  about.flags = asked;
  about.ublksrv_flags = mark;
  if (const int result = command(kAdd, -1, &about, sizeof about, 0); result < 0) return fail_errno(-result, "make a ublk device");
  UblkDevice out{.number = static_cast<int>(about.dev_id), .mark = mark, .served = false};
  if ((about.flags & asked) == asked) return out;
  (void)remove(out.number);
  return fail(Code::Unsupported, "the kernel makes a ublk device without what was asked for");
}

Result<void> Ublk::start(int number, std::int64_t size, bool read_only, std::uint32_t most_bytes, Data data) {
  Parameters parameters{.attributes = kCaches | (read_only ? kReadOnly : 0), .most_sectors = most_bytes / 512, .sectors = static_cast<std::uint64_t>(size / kSector512), .most_discarded = kMostCleared, .most_zeroed = kMostCleared};
  if (data == Data::Pages) parameters.types |= kAligned;
  if (auto set = done(command(kSetParameters, number, &parameters, sizeof parameters, 0), "shape a ublk device"); !set) return set;
  return done(command(kStart, number, nullptr, 0, static_cast<std::uint64_t>(::getpid())), "start a ublk device");
}

Result<void> Ublk::grow(int number, std::int64_t size) { return done(command(kUpdateSize, number, nullptr, 0, static_cast<std::uint64_t>(size / kSector512)), "grow a ublk device"); }

Result<void> Ublk::stop(int number) {
  const int result = command(kTryStop, number, nullptr, 0, 0);
  if (result == -EBUSY) return fail(Code::Conflict, fmt::format("/dev/ublkb{} is open", number));
  return result == -ENODEV || result == -EINVAL ? Result<void>() : done(result, "stop a ublk device");
}

Result<void> Ublk::remove(int number) {
  const int result = command(kDelete, number, nullptr, 0, 0);
  return result == -ENODEV || result == -EINVAL ? Result<void>() : done(result, "remove a ublk device");
}

}  // namespace fairlead::blocks
