// SPDX-License-Identifier: Apache-2.0
#include "disk/fuse_disk.h"

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "disk/limiter.h"

namespace fairlead::disk {
namespace {

constexpr fuse_ino_t kFile = 2;
constexpr std::size_t kMost = 512 << 10;         // bytes of a request, if the kernel allows as many (fs.fuse.max_pages_limit; 128 KiB before 4.20). 1 MiB reads faster, but 16 of them are more memory than an engine may have, and fewer threads fewer requests at once
constexpr std::size_t kHeaders = 80;             // before what is written: fuse_in_header and fuse_write_in, 40 bytes each
constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kSmall = 64 << 10;         // bytes of a request that a small room holds
constexpr int kThreads = 16;
constexpr int kThreadsAsync = 10;                // where small requests end later: the rest is waited for, and no more of it than large rooms, flushes aside
constexpr int kSmallOnes = 16;                   // what is more is carried in large ones
constexpr int kLarge = 8;                        // requests of more than that at once where rooms are shared: 4 MiB, which is what four of 1 MiB are
constexpr int kReady = 4;                        // threads that wait for requests, if there are as many: others are woken below that alone. Where small requests end later no more than these: one goes on with the next before another is woken
constexpr unsigned kInFlight = 128;              // asked for at once by the kernel; 12 were its own choice
constexpr double kForEver = 1e9;                 // seconds: attributes change only when we say so, and a look at the device asks nobody
constexpr std::uint32_t kDirect = 1 << 0, kParallelWrites = 1 << 6;  // FOPEN_DIRECT_IO; FOPEN_PARALLEL_DIRECT_WRITES, which libfuse 3.14 does not know

// Whether a request, as it was received, can be carried in a small room.
bool is_small(const char* request, std::size_t size) {
  fuse_in_header header{};
  fuse_read_in read{};
  if (size > kHeaders + kSmall || size < sizeof header) return false;
  std::memcpy(&header, request, sizeof header);
  if (header.opcode != FUSE_READ) return true;
  std::memcpy(&read, request + sizeof header, std::min(sizeof read, size - sizeof header));
  return read.size <= kSmall;
}
bool reads_or_writes(const char* request, std::size_t size) {
  fuse_in_header header{};
  if (size < sizeof header) return false;
  std::memcpy(&header, request, sizeof header);
  return header.opcode == FUSE_READ || header.opcode == FUSE_WRITE;
}
// Rooms for requests: a large one for each thread, in which any request may be received. Or half as many that are shared, and small ones, to one of which is taken what fits, so that the large one is free for the next: what is small is copied once more, which is little where it goes over a network.
// A request's headers are at the end of a room's first page, so that what is written lies aligned for direct I/O where the kernel puts it, without a copy; what is read, or encrypted, takes its place.
// In huge pages where they are to be had: the kernel looks up and pins each page of a request twice, which in small ones takes as long as to copy it. Had from the start, so that no I/O waits for memory.
class Rooms {
 public:
  Rooms(bool shared, int most_receiving) : most_receiving_(most_receiving) {
    const std::size_t small = shared ? kSmallOnes * kEachSmall : 0, large = shared ? kLarge : kThreads, all = small + large * kEach;
    at_.reset(static_cast<char*>(std::aligned_alloc(kHugePage, (all + kHugePage - 1) / kHugePage * kHugePage)));
    INVARIANT(at_ != nullptr);
    (void)::madvise(at_.get(), all, MADV_HUGEPAGE);  // what is more than whole ones is had in small ones
    (void)::madvise(at_.get(), all, MADV_POPULATE_WRITE);  // Linux 5.14; else it is had as it is used
    for (std::size_t i = large; i-- > 0;) free_.push_back(at_.get() + small + i * kEach + Image::kSector);
    for (std::size_t i = small; i > 0; i -= kEachSmall) free_small_.push_back(at_.get() + i - kEachSmall + Image::kSector);
  }
  // One in which a request of that many bytes can be carried, until it is given back; nothing: it is to be carried where it is.
  char* small(const char* request, std::size_t size) {
    if (!is_small(request, size)) return nullptr;
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
    given_.wait(lock, [&] { return over_ || (!free_.empty() && receiving_ < most_receiving_); });
    --waiting_;
    if (over_) return nullptr;
    char* const out = free_.back();
    free_.pop_back();
    ++receiving_;
    return out;
  }
  // A request has come into a large one, which is free again, or kept (nullptr).
  void received(char* large) {
    const std::lock_guard lock(mutex_);
    --receiving_;
    if (large != nullptr) free_.push_back(large);
    if (receiving_ < kReady && waiting_ > 0 && !free_.empty()) given_.notify_one();
  }
  // What was kept is waited in again.
  void again() {
    const std::lock_guard lock(mutex_);
    ++receiving_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    given_.notify_all();
  }

 private:
  static constexpr std::size_t kEach = Image::kSector + kMost, kEachSmall = Image::kSector + kSmall;
  struct Free { void operator()(char* at) const { std::free(at); } };
  const int most_receiving_;
  std::unique_ptr<char, Free> at_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<char*> free_, free_small_;
  int receiving_ = 0, waiting_ = 0;
  bool over_ = false;
};
thread_local char* room = nullptr;  // of the request that this thread carries
thread_local bool* later = nullptr;  // the request may end later, with its room kept until then: then this is set. Nothing: it is to end here

struct Disk {
  Image& image;
  Limiter limiter;
  const std::string name;
  Rooms rooms;
  std::atomic<int> pending = 0;  // requests that others carry on
  fuse_session* session = nullptr;
  std::atomic<std::int64_t> reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;
};
Disk& of(fuse_req_t request) { return *static_cast<Disk*>(fuse_req_userdata(request)); }
void count(std::atomic<std::int64_t>& what, std::int64_t by) { what.fetch_add(by, std::memory_order_relaxed); }

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
  Pending(fuse_req_t one, bool writing, std::size_t bytes, std::int64_t where) : request(one), room(disk::room), writes(writing), size(bytes), at(where) {
    *later = true;
    ++of(request).pending;
  }
  void complete(int error) override {
    Disk& disk = of(request);
    error = writes ? disk.image.finish_write(error) : disk.image.finish_read(error, room, size, at);
    if (error == 0) count(writes ? disk.writes : disk.reads, 1), count(writes ? disk.written_bytes : disk.read_bytes, static_cast<std::int64_t>(size));
    if (error != 0) fuse_reply_err(request, error);
    else if (writes) fuse_reply_write(request, size);
    else fuse_reply_buf(request, room, size);
    disk.rooms.give_small(room);
    delete this;
    --disk.pending;
  }
  const fuse_req_t request;
  char* const room;
  const bool writes;
  const std::size_t size;
  const std::int64_t at;
};

void read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t at, fuse_file_info*) {
  Disk& disk = of(request);
  if (at >= 0 && at >= disk.image.size()) return void(fuse_reply_buf(request, nullptr, 0));
  size = std::min<std::size_t>(size, static_cast<std::size_t>(disk.image.size() - at));
  if (!within(disk, static_cast<std::int64_t>(size), at)) return void(fuse_reply_err(request, EINVAL));
  disk.limiter.admit(static_cast<std::int64_t>(size));
  if (later != nullptr) return disk.image.read_async(room, size, at, *new Pending(request, false, size, at));
  if (const int error = disk.image.read(room, size, at); error != 0) return void(fuse_reply_err(request, error));
  count(disk.reads, 1), count(disk.read_bytes, static_cast<std::int64_t>(size));
  fuse_reply_buf(request, room, size);
}
void write(fuse_req_t request, fuse_ino_t, const char* data, std::size_t size, off_t at, fuse_file_info*) {
  Disk& disk = of(request);
  if (!within(disk, static_cast<std::int64_t>(size), at)) return void(fuse_reply_err(request, ENOSPC));
  disk.limiter.admit(static_cast<std::int64_t>(size));
  if (data != room) std::memmove(room, data, size);  // another libfuse, or protocol, which puts it elsewhere
  if (later != nullptr) return disk.image.write_async(room, size, at, room, *new Pending(request, true, size, at));
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

// ---- the socket

class Control {
 public:
  static Result<std::unique_ptr<Control>> listen(Disk& disk, const std::string& path, std::string mounted) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return fail(Code::Invalid, fmt::format("{} is too long for a socket's name: {} bytes at most", path, sizeof address.sun_path - 1));
    std::memcpy(address.sun_path, path.data(), path.size());
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return fail_errno(errno, "make a socket");
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + path);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd.get(), 8) != 0) return fail_errno(errno, "listen at " + path);
    return std::unique_ptr<Control>(new Control(disk, std::move(fd), std::move(mounted)));
  }
  // Until the disk is told to stop and nobody has it open, or `ended` says that it is unmounted.
  void run(const std::atomic<bool>& ended) {
    while (!ended) {
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

 private:
  Control(Disk& disk, Fd fd, std::string mounted) : disk_(disk), fd_(std::move(fd)), mounted_(std::move(mounted)) {}
  // The kernel knows the size that it was told once, and an answer with a new one it drops where a write has ended since it asked (fuse_change_attributes, attr_version): reads of the new part would find the end of the file, for ever. A byte that is put there by us is counted at once (fuse_notify_store); its page is dropped with the attributes, so that whoever looks next asks.
  Result<void> grow() {
    const auto size = disk_.image.look_again();
    if (!size) return std::unexpected(size.error());
    char zero = 0;
    fuse_bufvec byte FUSE_BUFVEC_INIT(1);
    byte.buf[0].mem = &zero;
    int error = *size > 0 ? fuse_lowlevel_notify_store(disk_.session, kFile, *size - 1, &byte, FUSE_BUF_NO_SPLICE) : 0;
    if (error == 0) error = fuse_lowlevel_notify_inval_inode(disk_.session, kFile, std::max<std::int64_t>(*size - Image::kSector, 0), 0);
    return error != 0 && error != -ENOENT ? Result<void>(fail_errno(-error, "tell the kernel of the new size")) : Result<void>();
  }
  Result<blocks::DiskStatus> carry_out(const blocks::DiskRequest& request) {
    using Do = blocks::DiskRequest::Do;
    if (request.what == Do::Limit) {
      disk_.limiter.set(request.limits);
      log_info("limits", {{"iops", std::to_string(request.limits.iops)}, {"bytes_per_second", std::to_string(request.limits.bytes_per_second)}});
    }
    if (request.what == Do::Grow)
      if (auto grown = grow(); !grown) return std::unexpected(std::move(grown.error()));
    // The kernel knows whether it is open, and nobody can open it between the question and the end.
    if (request.what == Do::Stop && ::umount2(mounted_.c_str(), 0) != 0 && errno != EINVAL) return errno == EBUSY ? fail(Code::Conflict, "the volume's device is there still") : fail_errno(errno, "unmount " + mounted_);
    return blocks::DiskStatus{.pid = ::getpid(), .size = disk_.image.size(), .limits = disk_.limiter.limits(), .reads = disk_.reads, .writes = disk_.writes, .read_bytes = disk_.read_bytes, .written_bytes = disk_.written_bytes, .waited_ns = disk_.limiter.waited().count(), .failed = disk_.image.failed()};
  }

  Disk& disk_;
  const Fd fd_;
  const std::string mounted_;
};

}  // namespace

Result<void> serve_disk(Image& image, const DiskPlace& place, const blocks::DiskLimits& limits, const Clock& clock, const std::function<void()>& ready) {
  const std::string mounted = place.folder + "/disk", socket = place.folder + "/control";
  // The image is locked: who was here before is dead. Its mount may be one that answers nothing but an error.
  while (::umount2(mounted.c_str(), MNT_DETACH) == 0) {}
  if (errno != EINVAL && errno != ENOENT) return fail_errno(errno, "clear " + mounted);
  if (auto made = make_dirs(mounted, 0700); !made) return made;
  Disk disk{.image = image, .limiter = Limiter(clock), .name = place.name, .rooms = Rooms(image.is_remote(), image.is_async() ? kReady : kThreads)};
  disk.limiter.set(limits);
  // Memory that has to be written out to be had must not be waited for by who writes it out.
  if (::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0) log_warn("memory is not locked", {{"why", std::strerror(errno)}});
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);  // allocations do not wait for I/O; needs CAP_SYS_RESOURCE, and is an addition to the lock
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
        char* const small = rooms.small(large - kHeaders, static_cast<std::size_t>(got));
        bool begun = false;
        later = small != nullptr && image.is_async() && reads_or_writes(large - kHeaders, static_cast<std::size_t>(got)) ? &begun : nullptr;
        const bool goes_on = later != nullptr;  // to receive, in the same large one
        room = small != nullptr ? small : large;
        if (small != nullptr) std::memcpy(small - kHeaders, large - kHeaders, static_cast<std::size_t>(got));
        if (!goes_on) rooms.received(small != nullptr ? large : nullptr);
        fuse_buf received{};
        received.mem = room - kHeaders;
        received.size = static_cast<std::size_t>(got);
        fuse_session_process_buf(disk.session, &received);
        if (small != nullptr && !begun) rooms.give_small(small);
        if (goes_on) continue;
        if (small != nullptr) large = rooms.take();
        else rooms.again();
      }
      rooms.end();
      ended = true;
      --running;
    });
  auto control = Control::listen(disk, socket, mounted);
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
