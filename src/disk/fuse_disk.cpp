// SPDX-License-Identifier: Apache-2.0
#include "disk/fuse_disk.h"

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "disk/control.h"

namespace fairlead::disk {
namespace {

constexpr fuse_ino_t kFile = 2;
constexpr std::size_t kMost = 512 << 10;         // bytes of a request, if the kernel allows as many (fs.fuse.max_pages_limit; 128 KiB before 4.20). 1 MiB reads faster, but 16 of them are more memory than an engine may have, and fewer threads fewer requests at once
constexpr std::size_t kHeaders = 80;             // before what is written: fuse_in_header and fuse_write_in, 40 bytes each
constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kSmall = kCopied;          // bytes of a request that a small room holds: what may be held is in large ones
constexpr int kThreads = 16;
constexpr int kThreadsAsync = 8;                 // where reads and writes end later: what is waited for are flushes, zeroes and limits
constexpr int kSmallOnes = 16;                   // small rooms there; what is more is carried in large ones
constexpr int kLarge = 8;                        // large ones there: 4 MiB, which is what four writes of 1 MiB are
constexpr std::int64_t kMostRead = 4 << 20;      // bytes there that are being read at once
constexpr int kReady = 4;                        // threads that wait for requests, if there are as many: others are woken below that alone
constexpr int kReadyAsync = 1;                   // where I/O ends later, and no more than that: it goes on with the next before another is woken
constexpr int kPatience = 100;                   // milliseconds and somewhat more, for which a room whose write has ended may be held still
constexpr unsigned kInFlight = 128;              // asked for at once by the kernel; 12 were its own choice
constexpr double kForEver = 1e9;                 // seconds: attributes change only when we say so, and a look at the device asks nobody
constexpr std::uint32_t kDirect = 1 << 0, kParallelWrites = 1 << 6;  // FOPEN_DIRECT_IO; FOPEN_PARALLEL_DIRECT_WRITES, which libfuse 3.14 does not know

struct Free {
  void operator()(char* at) const { std::free(at); }
};
using Memory = std::unique_ptr<char, Free>;

std::uint32_t what_is(const char* request, std::size_t size) {
  fuse_in_header header{};
  if (size >= sizeof header) std::memcpy(&header, request, sizeof header);
  return header.opcode;
}
// Rooms for requests: a large one for each thread, in which any request may be received, read and written. Where I/O ends later half as many, and small ones, to one of which is taken what fits, so that the large one is free for the next: what is small is copied once more, which is little where it goes over a network. What is read has no room there: it is where the medium has it.
// A request's headers are at the end of a room's first page, so that what is written lies aligned for direct I/O where the kernel puts it, without a copy; what is read, or encrypted, takes its place.
// In huge pages where they are to be had: the kernel looks up and pins each page of a request twice, which in small ones takes as long as to copy it. Had from the start, so that no I/O waits for memory.
class Rooms {
 public:
  explicit Rooms(const Image& image) : image_(image), ready_(image.is_async() ? kReadyAsync : kReady), most_receiving_(image.is_async() ? kReadyAsync : kThreads) {
    const std::size_t small = image.is_async() ? kSmallOnes * kEachSmall : 0, large = image.is_async() ? kLarge : kThreads, all = small + large * kEach;
    at_ = make(all, kHugePage);
    (void)::madvise(at_.get(), all, MADV_HUGEPAGE);  // what is more than whole ones is had in small ones
    (void)::madvise(at_.get(), all, MADV_POPULATE_WRITE);  // Linux 5.14; else it is had as it is used
    for (std::size_t i = 0; i < large; ++i) free_.push_back(at_.get() + small + i * kEach + Image::kSector);
    for (std::size_t i = 0; i < small; i += kEachSmall) free_small_.push_back(at_.get() + i + Image::kSector);
  }
  // What is held still is left as it is until the process ends.
  ~Rooms() {
    if (std::ranges::none_of(free_, [&](const char* one) { return image_.is_held(one); })) return;
    static std::mutex mutex;
    static auto& left = *new std::vector<Memory>;
    const std::lock_guard lock(mutex);
    left.push_back(std::move(at_));
    std::ranges::move(more_, std::back_inserter(left));
  }
  Rooms(const Rooms&) = delete;
  Rooms& operator=(const Rooms&) = delete;
  // A small one for a request that was received, until it is given back; nothing: it is to be carried where it is.
  char* small(std::size_t size) {
    if (size > kHeaders + kSmall) return nullptr;
    const std::lock_guard lock(mutex_);
    if (free_small_.empty()) return nullptr;
    char* const out = free_small_.back();
    free_small_.pop_back();
    return out;
  }
  void give_small(char* small) {
    const std::lock_guard lock(mutex_);
    free_small_.push_back(small);
  }
  // A large one, to wait for a request in; nothing: it is over.
  char* take() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    char* out = nullptr;
    for (int looked = 0; out == nullptr; ++looked) {
      given_.wait(lock, [&] { return over_ || (!free_.empty() && receiving_ < most_receiving_); });
      if (over_) break;
      // The one given back last is in the processor's cache.
      if (const auto found = std::find_if(free_.rbegin(), free_.rend(), [&](const char* one) { return !image_.is_held(one); }); found != free_.rend()) {
        out = *found;
        free_.erase(std::prev(found.base()));
      } else if (looked < 2 * kPatience) {  // mostly it is for as long as who tells of the end is busy with that
        given_.wait_for(lock, looked < kPatience ? std::chrono::microseconds(20) : std::chrono::milliseconds(1));
      } else {  // they may be held for ever, by messages that nobody sends any more
        more_.push_back(make(kEach, Image::kSector));
        out = more_.back().get() + Image::kSector;
      }
    }
    --waiting_;
    if (out != nullptr) ++receiving_;
    return out;
  }
  // A request has come into a large one, which is kept until `give`, or until it is received in `again`.
  void received() {
    const std::lock_guard lock(mutex_);
    --receiving_;
    wake();
  }
  void again() {
    const std::lock_guard lock(mutex_);
    ++receiving_;
  }
  void give(char* large) {
    const std::lock_guard lock(mutex_);
    free_.push_back(large);
    wake();
  }
  // Waits until as much may be read at once; until `was_read`.
  void will_read(std::int64_t size) {
    std::unique_lock lock(mutex_);
    read_.wait(lock, [&] { return reading_ == 0 || reading_ + size <= kMostRead; });
    reading_ += size;
  }
  void was_read(std::int64_t size) {
    const std::lock_guard lock(mutex_);
    reading_ -= size;
    read_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    given_.notify_all();
  }

 private:
  static constexpr std::size_t kEach = Image::kSector + kMost, kEachSmall = Image::kSector + kSmall;
  static Memory make(std::size_t size, std::size_t alignment) {
    Memory out(static_cast<char*>(std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)));
    INVARIANT(out != nullptr);
    return out;
  }
  void wake() {
    if (receiving_ < ready_ && waiting_ > 0 && !free_.empty()) given_.notify_one();
  }
  const Image& image_;
  const int ready_, most_receiving_;
  Memory at_;
  std::vector<Memory> more_;
  std::mutex mutex_;
  std::condition_variable given_, read_;
  std::vector<char*> free_, free_small_;
  std::int64_t reading_ = 0;
  int receiving_ = 0, waiting_ = 0;
  bool over_ = false;
};
// The request that this thread carries.
struct Carried {
  char* room = nullptr;     // for what is read or written
  bool is_small = false, ends_later = false;
  bool begun = false;       // it ends later, and its room is given back then
};
thread_local Carried carried;

struct Disk final : Serving {
  Disk(Image& what, const Clock& clock, const DiskPlace& place) : Serving(what, clock), name(place.name), mounted(place.folder + "/disk"), rooms(what) {}
  Result<void> grew(std::int64_t size) override;
  Result<void> end() override;
  const std::string name, mounted;
  Rooms rooms;
  std::atomic<int> pending = 0;  // requests that others carry on
  fuse_session* session = nullptr;
};
Disk& of(fuse_req_t request) { return *static_cast<Disk*>(fuse_req_userdata(request)); }

struct stat attributes(const Disk& disk, fuse_ino_t node) {
  struct stat out {};
  out.st_ino = node;
  out.st_mode = node == kFile ? S_IFREG | (disk.image.read_only() ? 0400 : 0600) : S_IFDIR | 0500;
  out.st_nlink = node == kFile ? 1 : 2;
  if (node == kFile) out.st_size = disk.image.size(), out.st_blksize = Image::kSector;
  return out;
}

void init(void*, fuse_conn_info* connection) {
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
  connection->want |= connection->capable & FUSE_CAP_ASYNC_DIO;
  connection->max_write = connection->max_read = kMost;
  connection->max_background = kInFlight;
  connection->congestion_threshold = kInFlight;
}
void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const Disk& disk = of(request);
  if (parent != FUSE_ROOT_ID || name != disk.name) return void(fuse_reply_err(request, ENOENT));
  const fuse_entry_param entry{.ino = kFile, .generation = 1, .attr = attributes(disk, kFile), .attr_timeout = kForEver, .entry_timeout = kForEver};
  fuse_reply_entry(request, &entry);
}
void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
  const struct stat out = attributes(of(request), node);
  fuse_reply_attr(request, &out, kForEver);
}
void open(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  if ((file->flags & O_ACCMODE) != O_RDONLY && of(request).image.read_only()) return void(fuse_reply_err(request, EROFS));
  const struct { std::uint64_t handle; std::uint32_t flags; std::int32_t padding; } out{.handle = 0, .flags = kDirect | kParallelWrites, .padding = 0};  // fuse_open_out
  fuse_reply_buf(request, reinterpret_cast<const char*>(&out), sizeof out);
}
bool within(const Disk& disk, std::int64_t size, std::int64_t at) { return at >= 0 && size >= 0 && size <= static_cast<std::int64_t>(kMost) && at <= disk.image.size() && size <= disk.image.size() - at; }

// A request that was begun, and is answered by whoever is told of its end.
struct Pending final : Completion {
  Pending(fuse_req_t one, bool writing, std::size_t bytes, std::int64_t where) : request(one), room(writing ? carried.room : nullptr), is_small(carried.is_small), writes(writing), size(bytes), at(where) {
    carried.begun = true;
    Disk& disk = of(request);
    ++disk.pending;
    if (!writes) disk.rooms.will_read(static_cast<std::int64_t>(size));
  }
  void complete(int error, std::span<const iovec> data) override {
    Disk& disk = of(request);
    iovec opened{};
    if (writes) error = disk.image.finish_write(error);
    else if (error != 0 || !disk.image.is_encrypted()) error = disk.image.finish_read(error, nullptr, size, at);
    else opened = {.iov_base = in_one_piece(data), .iov_len = size}, data = {&opened, 1}, error = disk.image.finish_read(0, static_cast<char*>(opened.iov_base), size, at);
    if (error == 0) count(writes ? disk.writes : disk.reads, 1), count(writes ? disk.written_bytes : disk.read_bytes, static_cast<std::int64_t>(size));
    if (error != 0) fuse_reply_err(request, error);
    else if (writes) fuse_reply_write(request, size);
    else fuse_reply_iov(request, data.data(), static_cast<int>(data.size()));
    if (!writes) disk.rooms.was_read(static_cast<std::int64_t>(size));
    else if (is_small) disk.rooms.give_small(room);
    else disk.rooms.give(room);
    delete this;
    --disk.pending;
  }
  // Of each thread that tells of ends, of which librbd has one here.
  static char* in_one_piece(std::span<const iovec> data) {
    thread_local const Memory text(static_cast<char*>(std::aligned_alloc(Image::kSector, kMost)));
    INVARIANT(text != nullptr);
    for (char* to = text.get(); const iovec& one : data) to = static_cast<char*>(std::memcpy(to, one.iov_base, one.iov_len)) + one.iov_len;
    return text.get();
  }
  const fuse_req_t request;
  char* const room;
  const bool is_small, writes;
  const std::size_t size;
  const std::int64_t at;
};

void read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t at, fuse_file_info*) {
  Disk& disk = of(request);
  if (at >= 0 && at >= disk.image.size()) return void(fuse_reply_buf(request, nullptr, 0));
  size = std::min<std::size_t>(size, static_cast<std::size_t>(disk.image.size() - at));
  if (!within(disk, static_cast<std::int64_t>(size), at)) return void(fuse_reply_err(request, EINVAL));
  disk.limiter.admit(static_cast<std::int64_t>(size));
  if (carried.ends_later) return disk.image.read_async(size, at, *new Pending(request, false, size, at));
  if (const int error = disk.image.read(carried.room, size, at); error != 0) return void(fuse_reply_err(request, error));
  count(disk.reads, 1), count(disk.read_bytes, static_cast<std::int64_t>(size));
  fuse_reply_buf(request, carried.room, size);
}
void write(fuse_req_t request, fuse_ino_t, const char* data, std::size_t size, off_t at, fuse_file_info*) {
  Disk& disk = of(request);
  if (!within(disk, static_cast<std::int64_t>(size), at)) return void(fuse_reply_err(request, ENOSPC));
  disk.limiter.admit(static_cast<std::int64_t>(size));
  char* const room = carried.room;
  if (data != room) std::memmove(room, data, size);  // another libfuse, or protocol, which puts it elsewhere
  if (carried.ends_later) return disk.image.write_async(room, size, at, room, *new Pending(request, true, size, at));
  if (const int error = disk.image.write(room, size, at, room); error != 0) return void(fuse_reply_err(request, error));
  count(disk.writes, 1), count(disk.written_bytes, static_cast<std::int64_t>(size));
  fuse_reply_write(request, size);
}
void sync(fuse_req_t request, fuse_ino_t, int, fuse_file_info*) { fuse_reply_err(request, of(request).image.sync()); }
void done(fuse_req_t request, fuse_ino_t, fuse_file_info*) { fuse_reply_err(request, 0); }
// Of a loop device: discards punch, write-zeroes zero.
void fallocate(fuse_req_t request, fuse_ino_t, int mode, off_t at, off_t size, fuse_file_info*) {
  Disk& disk = of(request);
  if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) == 0 || (mode & FALLOC_FL_KEEP_SIZE) == 0) return void(fuse_reply_err(request, EOPNOTSUPP));
  if (at < 0 || size <= 0 || at > disk.image.size() || size > disk.image.size() - at) return void(fuse_reply_err(request, EINVAL));
  disk.limiter.admit(0);
  fuse_reply_err(request, disk.image.zero(at, size, (mode & FALLOC_FL_PUNCH_HOLE) != 0));
}
void seek(fuse_req_t request, fuse_ino_t, off_t at, int whence, fuse_file_info*) {
  const std::int64_t found = of(request).image.seek(at, whence);
  found < 0 ? fuse_reply_err(request, static_cast<int>(-found)) : fuse_reply_lseek(request, found);
}
void statfs(fuse_req_t request, fuse_ino_t) {
  const struct statvfs out{.f_bsize = Image::kSector, .f_frsize = Image::kSector, .f_namemax = 255};
  fuse_reply_statfs(request, &out);
}

const fuse_lowlevel_ops operations{.init = init, .lookup = lookup, .getattr = getattr, .open = open, .read = read, .write = write, .flush = done, .release = done, .fsync = sync, .statfs = statfs, .fallocate = fallocate, .lseek = seek};

// The kernel knows the size that it was told once, and an answer with a new one it drops where a write has ended since it asked (fuse_change_attributes, attr_version): reads of the new part would find the end of the file, for ever. A byte that is put there by us is counted at once (fuse_notify_store); its page is dropped with the attributes, so that whoever looks next asks.
Result<void> Disk::grew(std::int64_t size) {
  char zero = 0;
  fuse_bufvec byte FUSE_BUFVEC_INIT(1);
  byte.buf[0].mem = &zero;
  int error = size > 0 ? fuse_lowlevel_notify_store(session, kFile, size - 1, &byte, FUSE_BUF_NO_SPLICE) : 0;
  if (error == 0) error = fuse_lowlevel_notify_inval_inode(session, kFile, std::max<std::int64_t>(size - Image::kSector, 0), 0);
  return error != 0 && error != -ENOENT ? Result<void>(fail_errno(-error, "tell the kernel of the new size")) : Result<void>();
}
// The kernel knows whether it is open, and nobody can open it between the question and the end.
Result<void> Disk::end() {
  if (::umount2(mounted.c_str(), 0) == 0 || errno == EINVAL) return {};
  return errno == EBUSY ? fail(Code::Conflict, "the volume's device is there still") : fail_errno(errno, "unmount " + mounted);
}

}  // namespace

Result<void> serve_disk(Image& image, const DiskPlace& place, const blocks::DiskLimits& limits, const Clock& clock, const std::function<void()>& ready) {
  const std::string mounted = place.folder + "/disk", socket = place.folder + "/control";
  // The image is locked: who was here before is dead. Its mount may be one that answers nothing but an error.
  while (::umount2(mounted.c_str(), MNT_DETACH) == 0) {}
  if (errno != EINVAL && errno != ENOENT) return fail_errno(errno, "clear " + mounted);
  if (auto made = make_dirs(mounted, 0700); !made) return made;
  Disk disk(image, clock, place);
  disk.limiter.set(limits);
  disk.settle();
  std::vector<std::string> words{"fairlead-disk", "-o", fmt::format("fsname=fairlead,subtype=volume,nosuid,nodev,noexec,noatime,max_read={}", kMost)};
  std::vector<char*> argv;
  for (std::string& one : words) argv.push_back(one.data());
  fuse_args arguments FUSE_ARGS_INIT(static_cast<int>(argv.size()), argv.data());
  disk.session = fuse_session_new(&arguments, &operations, sizeof operations, &disk);
  fuse_opt_free_args(&arguments);
  if (disk.session == nullptr) return fail(Code::Internal, "libfuse makes no session");
  struct End {
    fuse_session* session;
    ~End() { fuse_session_destroy(session); }
  } const end{disk.session};
  if (fuse_session_mount(disk.session, mounted.c_str()) != 0) return fail(Code::Unavailable, fmt::format("{} cannot be mounted as FUSE: is there a /dev/fuse?", mounted));
  std::atomic<bool> ended = false;
  const int many = image.is_async() ? kThreadsAsync : kThreads;
  std::atomic<int> running = many;
  struct sigaction wakes {};
  wakes.sa_handler = [](int) {};  // a read that waits is broken off
  ::sigaction(SIGUSR1, &wakes, nullptr);
  Rooms& rooms = disk.rooms;
  std::vector<std::thread> threads;
  for (int i = 0; i < many; ++i)
    threads.emplace_back([&] {
      char* large = rooms.take();
      while (large != nullptr && fuse_session_exited(disk.session) == 0) {
        // Not by libfuse, which asks for as much as it can ever get: batches of what is forgotten would be as long.
        const ssize_t got = ::read(fuse_session_fd(disk.session), large - kHeaders, kHeaders + kMost);
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;  // ENOENT: the request was broken off
        if (got <= 0) break;  // it is unmounted
        const auto size = static_cast<std::size_t>(got);
        const std::uint32_t what = what_is(large - kHeaders, size);
        const bool reads = what == FUSE_READ, later = image.is_async() && (reads || what == FUSE_WRITE);
        // What is read has no room, and what is written a small one, if it can: then the large one is received in again by this thread.
        char* const small = later && !reads ? rooms.small(size) : nullptr;
        const bool is_kept = !later || (!reads && small == nullptr);
        // Who may have to wait for a limit lets another receive meanwhile.
        const bool goes_on = !is_kept && !disk.limiter.is_limited();
        carried = {.room = small != nullptr ? small : large, .is_small = small != nullptr, .ends_later = later};
        if (small != nullptr) std::memcpy(small - kHeaders, large - kHeaders, size);
        if (!goes_on) rooms.received();
        fuse_buf received{};
        received.mem = carried.room - kHeaders;
        received.size = size;
        fuse_session_process_buf(disk.session, &received);
        if (small != nullptr && !carried.begun) rooms.give_small(small);
        if (goes_on) continue;
        if (!image.is_async()) {
          rooms.again();
          continue;
        }
        if (!is_kept || !carried.begun) rooms.give(large);  // else its end does
        large = rooms.take();
      }
      rooms.end();
      ended = true;
      --running;
    });
  auto control = Control::listen(disk, socket, clock);
  if (control) {
    ready();
    (*control)->run(ended);
  }
  // Where nobody has it open the kernel lets go, and the threads hear of it.
  if (!control) (void)::umount2(mounted.c_str(), MNT_DETACH);
  // It is unmounted here; a mount namespace that was copied meanwhile may have it still, which nobody can have open there. Threads that wait for requests of it are woken until they see that it is over.
  fuse_session_exit(disk.session);
  rooms.end();
  for (const timespec moment{.tv_sec = 0, .tv_nsec = 5'000'000}; running > 0; ::nanosleep(&moment, nullptr))
    for (std::thread& one : threads) ::pthread_kill(one.native_handle(), SIGUSR1);
  for (std::thread& one : threads) one.join();
  for (const timespec moment{.tv_sec = 0, .tv_nsec = 5'000'000}; disk.pending > 0; ::nanosleep(&moment, nullptr)) {}  // theirs is the image, and what they were given
  fuse_session_unmount(disk.session);
  (void)::unlink(socket.c_str());
  (void)::rmdir(mounted.c_str());
  (void)::rmdir(place.folder.c_str());
  return control ? Result<void>() : Result<void>(std::unexpected(std::move(control.error())));
}

}  // namespace fairlead::disk
