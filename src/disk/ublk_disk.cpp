// SPDX-License-Identifier: Apache-2.0
#include "disk/ublk_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "blocks/ublk_abi.h"
#include "disk/control.h"

namespace fairlead::disk {
namespace {

using namespace std::chrono_literals;
namespace ublk = blocks::ublk;

constexpr std::size_t kMost = 512 << 10;  // bytes of a request, and of each thread's room
constexpr unsigned kThreads = 16;         // each has one request at a time
constexpr std::size_t kHugePage = 2 << 20;
constexpr std::int64_t kSector512 = 512;

struct Free {
  void operator()(char* at) const { std::free(at); }
};

// What one thread waits for: the request of one number, again and again; and I/O with its data.
class Fetcher {
 public:
  // room: where the kernel copies data from and to; null: it hands over pages.
  Fetcher(int device, std::uint16_t tag, char* room) : device_(device), tag_(tag), room_(room) {}
  ~Fetcher() {
    if (made_) ::io_uring_queue_exit(&ring_);
  }
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;
  char* room() const { return room_; }
  // By the thread that fetches. 0, or -errno.
  int make() {
    const int error = ::io_uring_queue_init(2, &ring_, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    made_ = error == 0;
    return error != 0 || room_ != nullptr ? error : ::io_uring_register_buffers_sparse(&ring_, 1);
  }
  // The next request, once the one before is answered: 0, or -errno: there are no more (ENODEV: the device is stopped).
  int next(bool first, int result) {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) return -EBUSY;
    std::memset(entry, 0, sizeof *entry);  // `addr` of 0: pages are handed over as buffer 0 of this ring
    entry->opcode = IORING_OP_URING_CMD;
    entry->fd = device_;
    entry->cmd_op = first ? ublk::kFetch : ublk::kCommitAndFetch;
    ublksrv_io_cmd command{};
    command.tag = tag_;
    command.result = result;
    command.addr = reinterpret_cast<std::uint64_t>(room_);
    std::memcpy(entry->cmd, &command, sizeof command);
    return submit();
  }
  // The data of the request that was fetched, by its pages, from the file or to it: 0 or an errno.
  int move(bool is_read, int file, std::size_t size, std::int64_t at) {
    for (std::size_t done = 0; done < size;) {
      io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
      if (entry == nullptr) return EBUSY;
      // Where it lies is counted from the beginning of the request's data.
      void* const where = reinterpret_cast<void*>(done);
      const auto left = static_cast<unsigned>(size - done);
      const auto from = static_cast<std::uint64_t>(at) + done;
      if (is_read) ::io_uring_prep_read_fixed(entry, file, where, left, from, 0);
      else ::io_uring_prep_write_fixed(entry, file, where, left, from, 0);
      const int moved = submit();
      if (moved == -EINTR || moved == -EAGAIN) continue;
      if (moved <= 0) return moved == 0 ? EIO : -moved;
      done += static_cast<std::size_t>(moved);
    }
    return 0;
  }

 private:
  // What was prepared, to its end.
  int submit() {
    io_uring_cqe* end = nullptr;
    int error = ::io_uring_submit_and_wait(&ring_, 1);
    while ((error >= 0 || error == -EINTR) && end == nullptr) error = ::io_uring_wait_cqe(&ring_, &end);
    if (end == nullptr) return error;
    const int out = end->res;
    ::io_uring_cqe_seen(&ring_, end);
    return out;
  }

  io_uring ring_{};
  bool made_ = false;
  const int device_;
  const std::uint16_t tag_;
  char* const room_;
};

class UblkDisk final : public Serving {
 public:
  UblkDisk(Image& what, const Clock& clock, blocks::Ublk& control, int number, std::uint64_t mark) : Serving(what, clock), control_(control), number_(number), mark_(mark) {}
  Result<void> grew(std::int64_t size) override {
    const auto ours = is_ours();
    if (!ours) return std::unexpected(ours.error());
    return *ours ? control_.grow(number_, size) : fail(Code::Conflict, "its device was taken away");
  }
  Result<void> end() override {
    const auto ours = is_ours();
    if (!ours) return std::unexpected(ours.error());
    if (!*ours) return {};
    auto stopped = control_.stop(number_);
    return !stopped && stopped.error().code == Code::Conflict ? fail(Code::Conflict, "the volume's device is there still") : stopped;
  }
  int shown_as() const override { return number_; }
  bool is_over() const override { return over; }
  std::atomic<bool> over = false;

  // Bytes, or -errno.
  int carry_out(const ublksrv_io_desc& request, Fetcher& fetcher) {
    const std::int64_t at = static_cast<std::int64_t>(request.start_sector) * kSector512, size = static_cast<std::int64_t>(request.nr_sectors) * kSector512;
    const auto bytes = static_cast<std::size_t>(size);
    const std::uint32_t what = request.op_flags & 0xff, flags = request.op_flags & ~std::uint32_t{0xff};
    if (what == UBLK_IO_OP_FLUSH) return -image.sync();
    if (at < 0 || size < 0 || at > image.size() || size > image.size() - at) return -EIO;
    const bool is_read = what == UBLK_IO_OP_READ, is_write = what == UBLK_IO_OP_WRITE;
    if ((is_read || is_write) && bytes > kMost) return -EIO;
    if (!is_read && !is_write && what != UBLK_IO_OP_DISCARD && what != UBLK_IO_OP_WRITE_ZEROES) return -EOPNOTSUPP;
    limiter.admit(is_read || is_write ? size : 0);
    if (!is_read && !is_write) return -image.zero(at, size, what == UBLK_IO_OP_DISCARD || (flags & ublk::kNoUnmap) == 0);
    char* const room = fetcher.room();
    const int error = room == nullptr ? by_pages(is_read, bytes, at, fetcher) : is_read ? image.read(room, bytes, at) : image.write(room, bytes, at, room);
    if (error != 0) return -error;
    count(is_read ? reads : writes, 1), count(is_read ? read_bytes : written_bytes, size);
    return static_cast<int>(size);
  }

 private:
  int by_pages(bool is_read, std::size_t size, std::int64_t at, Fetcher& fetcher) {
    if (!is_read && image.read_only()) return EROFS;
    const int error = fetcher.move(is_read, image.direct_file(), size, image.begins() + at);
    return is_read ? error : image.finish_write(error);
  }
  // Once the pool's daemon has taken it away its number may be another volume's.
  Result<bool> is_ours() { return over ? false : control_.is(number_, mark_); }
  blocks::Ublk& control_;
  const int number_;
  const std::uint64_t mark_;
};

// What an engine of this name has left when it died: errors for who has it open, until he closes it.
Result<void> clear_away(blocks::Ublk& control, std::uint64_t mark) {
  const auto devices = control.devices();
  if (!devices) return std::unexpected(devices.error());
  for (const auto& one : *devices) {
    if (one.mark != mark) continue;
    if (auto stopped = control.stop(one.number); !stopped) return fail(Code::Unavailable, fmt::format("{}, which an engine that died has left, goes first: {}", one.path(), stopped.error().message));
    if (auto removed = control.remove(one.number); !removed) return removed;
    log_info("a device of an engine that died is gone", {{"device", one.path()}});
  }
  return {};
}

// The kernel makes its file a moment after the device.
Fd open_requests(int number) {
  const std::string path = fmt::format("/dev/ublkc{}", number);
  for (int tries = 0;; ++tries) {
    Fd out(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (out || errno != ENOENT || tries == 500) return out;
    std::this_thread::sleep_for(10ms);
  }
}

}  // namespace

Result<void> serve_ublk(Image& image, const DiskPlace& place, const blocks::DiskLimits& limits, const Clock& clock, const std::function<void()>& ready) {
  if (image.is_async()) return fail(Code::Unsupported, "what ends later is shown as a file");
  auto control = blocks::Ublk::open();
  if (!control) return std::unexpected(std::move(control.error()));
  const std::uint64_t mark = blocks::ublk_mark(place.name);
  if (auto cleared = clear_away(**control, mark); !cleared) return cleared;
  if (auto made = make_dirs(place.folder, 0700); !made) return made;
  // What is encrypted has to be seen.
  const auto data = (*control)->hands_pages() && image.direct_file() >= 0 ? blocks::Ublk::Data::Pages : blocks::Ublk::Data::Copied;
  auto device = (*control)->make(kThreads, kMost, mark, data);
  if (!device) return std::unexpected(std::move(device.error()));
  struct Removed {
    blocks::Ublk& control;
    const int number;
    const std::uint64_t mark;
    const std::string& name;
    ~Removed() {
      const auto ours = control.is(number, mark);
      // Where somebody has it open still nobody serves it any more, and it is left, with errors for him.
      if (!ours || (*ours && !control.stop(number))) return;
      blocks::unlink_ublk(name);
      if (*ours) (void)control.remove(number);
    }
  } const removed{**control, device->number, mark, place.name};
  const Fd requests = open_requests(device->number);
  if (!requests) return fail_errno(errno, fmt::format("open /dev/ublkc{}", device->number));
  const std::size_t page = 4096, listed = (kThreads * sizeof(ublksrv_io_desc) + page - 1) / page * page;
  void* const list = ::mmap(nullptr, listed, PROT_READ, MAP_SHARED | MAP_POPULATE, requests.get(), UBLKSRV_CMD_BUF_OFFSET);
  if (list == MAP_FAILED) return fail_errno(errno, "see what a ublk device asks for");
  struct Unmapped {
    void* at;
    std::size_t size;
    ~Unmapped() { ::munmap(at, size); }
  } const unmapped{list, listed};
  // As the rooms of an engine under FUSE (fuse_disk.cpp): in huge pages, from the start.
  std::unique_ptr<char, Free> rooms;
  if (data == blocks::Ublk::Data::Copied) {
    rooms.reset(static_cast<char*>(std::aligned_alloc(kHugePage, kThreads * kMost)));
    INVARIANT(rooms != nullptr);
    (void)::madvise(rooms.get(), kThreads * kMost, MADV_HUGEPAGE);
    (void)::madvise(rooms.get(), kThreads * kMost, MADV_POPULATE_WRITE);
  }

  UblkDisk disk(image, clock, **control, device->number, mark);
  disk.limiter.set(limits);
  disk.settle();
  std::vector<std::jthread> threads;
  for (unsigned tag = 0; tag < kThreads; ++tag)
    threads.emplace_back([&, tag] {
      const auto* const request = static_cast<const ublksrv_io_desc*>(list) + tag;
      Fetcher fetcher(requests.get(), static_cast<std::uint16_t>(tag), rooms ? rooms.get() + tag * kMost : nullptr);
      int error = fetcher.make();
      for (int result = 0, first = 1; error == 0; first = 0) {
        error = fetcher.next(first != 0, result);
        if (error == 0) result = disk.carry_out(*request, fetcher);
      }
      if (error == -ENODEV) return void(disk.over = true);
      // With a request that nobody waits for it would hang whoever asks; without a process the kernel gives errors.
      log_error("a request cannot be waited for: the engine ends", {{"device", device->path()}, {"why", std::strerror(-error)}});
      ::_exit(1);
    });
  auto linked = blocks::link_ublk(place.name, device->number);  // before the device is there: whoever sees it finds its name
  auto started = !linked ? linked : (*control)->start(device->number, image.size(), image.read_only(), kMost, data);
  const std::string socket = place.folder + "/control";
  auto asked = started ? Control::listen(disk, socket, clock) : Result<std::unique_ptr<Control>>(std::unexpected(std::move(started.error())));
  if (asked) {
    ready();
    (*asked)->run(false);
  }
  // Where it was told to end the device is stopped, and the threads hear of it.
  if (!asked) (void)(*control)->remove(device->number);  // nobody was told of it; its threads hear of that
  threads.clear();
  (void)::unlink(socket.c_str());
  (void)::rmdir(place.folder.c_str());
  return asked ? Result<void>() : Result<void>(std::unexpected(std::move(asked.error())));
}

}  // namespace fairlead::disk
