// SPDX-License-Identifier: Apache-2.0
#include "volumes/file_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <openssl/crypto.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "base/rng.h"
#include "volumes/engine_keeper.h"
#include "volumes/luks.h"
#include "volumes/plan/ledger.h"
#include "volumes/shown.h"

namespace fairlead::volumes {
namespace {

constexpr const char* mark = "user.fairlead.volume";
constexpr const char* luks_mark = "user.fairlead.luks";
constexpr const char* id_file = "pool.id";
constexpr const char *volume_end = ".volume", *snapshot_end = ".snapshot", *part_end = ".part";

std::unexpected<Error> trouble(int error, const std::string& doing) { return error == ENOSPC || error == EDQUOT ? fail(Code::Exhausted, doing + ": " + std::strerror(error)) : fail_errno(error, doing); }

class FilePool final : public Pool {
 public:
  FilePool(std::string folder, Fd fd, std::string id, std::string engine, Keyring* keyring, std::string shows) : folder_(std::move(folder)), fd_(std::move(fd)), id_(std::move(id)), engine_(engine.starts_with(kKeeperAt) ? "" : engine), keeper_(engine.starts_with(kKeeperAt) ? engine.substr(kKeeperAt.size()) : ""), keyring_(keyring), shows_(std::move(shows)), shown_(id_) {}

  Result<std::string> id() override { return id_; }
  bool is_distributed() override { return false; }

  Result<Room> room() override {
    struct statvfs about {};
    if (::fstatvfs(fd_.get(), &about) != 0) return fail_errno(errno, "look at " + folder_);
    return Room{static_cast<std::int64_t>(about.f_blocks * about.f_frsize), static_cast<std::int64_t>(about.f_bavail * about.f_frsize)};
  }

  Result<Sight> look(const std::string& id) override {
    struct stat about {};
    auto out = see_files(id, about);
    if (!out || !out->volume) return out;
    auto devices = shown_.devices(id, &about);
    if (!devices) return std::unexpected(std::move(devices.error()));
    out->devices = std::move(*devices);
    auto engine = shown_.engine(id);
    if (!engine) return std::unexpected(std::move(engine.error()));
    out->engine = std::move(*engine);
    return out;
  }
  Result<Sight> look_at_files(const std::string& id) override {
    struct stat about {};
    return see_files(id, about);
  }
  std::optional<bool> is_used(const std::string& device) override { return Shown::is_used(device); }

  Result<std::vector<std::string>> ids() override {
    const auto names = list_dir(folder_);
    if (!names) return std::unexpected(names.error());
    std::set<std::string> out;
    for (const std::string& name : *names)
      for (const char* const end : {volume_end, snapshot_end, part_end})
        if (name.ends_with(end) && is_volume_id(name.substr(0, name.size() - std::strlen(end)))) out.insert(name.substr(0, name.size() - std::strlen(end)));
    return std::vector<std::string>(out.begin(), out.end());
  }

  Result<void> can_encrypt() override { return keyring_ != nullptr ? Result<void>() : fail(Code::Unsupported, "this pool has no keys: nothing is encrypted in it"); }
  Result<std::int64_t> key_version(const std::string& key) override {
    if (auto can = can_encrypt(); !can) return std::unexpected(std::move(can.error()));
    return keyring_->current(key);
  }
  Result<std::int64_t> rewrap(const std::string& id, bool snapshot) override {
    if (auto can = can_encrypt(); !can) return std::unexpected(std::move(can.error()));
    return rewrap_luks(folder_ + "/" + id + (snapshot ? snapshot_end : volume_end), *keyring_);
  }
  Result<void> make_part(const std::string& id, std::int64_t size, const std::string& key) override {
    auto file = new_part(id);
    if (!file) return std::unexpected(std::move(file.error()));
    if (key.empty()) return finish_part(*file, id, size);
    if (auto can = can_encrypt(); !can) return can;
    if (::fsetxattr(file->get(), luks_mark, "1", 1, 0) != 0) return trouble(errno, "mark " + id + part_end);
    if (auto done = finish_part(*file, id, size + kLuksHeader); !done) return done;
    if (auto done = format_luks(folder_ + "/" + id + part_end, key, *keyring_); !done) return done;
    return ::fsync(file->get()) == 0 ? Result<void>() : Result<void>(trouble(errno, "make " + id + part_end));
  }

  Result<void> copy_part(const std::string& id, const std::string& source, bool of_snapshot, std::int64_t size) override {
    const std::string from = source + (of_snapshot ? snapshot_end : volume_end);
    const Fd old(::openat(fd_.get(), from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!old) return errno == ENOENT ? fail(Code::NotFound, source + " is not there") : fail_errno(errno, "open " + from);
    auto file = new_part(id);
    if (!file) return std::unexpected(std::move(file.error()));
    if (::ioctl(file->get(), FICLONE, old.get()) != 0) {
      if (errno == EOPNOTSUPP || errno == EINVAL || errno == EXDEV || errno == ENOTTY) return fail(Code::Unsupported, folder_ + " makes no copies that share their blocks: it has to be on XFS with reflink=1");
      return trouble(errno, "copy " + from);
    }
    const std::int64_t begins = begin_of(old);
    if (begins > 0 && ::fsetxattr(file->get(), luks_mark, "1", 1, 0) != 0) return trouble(errno, "mark " + id + part_end);
    return finish_part(*file, id, size + begins);
  }

  Result<void> drop_part(const std::string& id) override { return unlink(id + part_end); }
  Result<void> remove(const std::string& id, bool snapshot) override {
    const std::string name = id + (snapshot ? snapshot_end : volume_end);
    const Fd file(::openat(fd_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    // Its key goes first: what the disk keeps of its data is of no use then.
    if (file && begin_of(file) > 0)
      if (auto done = erase_luks(folder_ + "/" + name); !done) return done;
    return unlink(name);
  }

  Result<void> publish(const std::string& id, bool snapshot) override {
    const std::string name = id + (snapshot ? snapshot_end : volume_end);
    if (::renameat2(fd_.get(), (id + part_end).c_str(), fd_.get(), name.c_str(), RENAME_NOREPLACE) != 0) return fail_errno(errno, "name " + name);
    return sync_folder();
  }

  Result<void> grow_file(const std::string& id, std::int64_t size) override {
    const Fd file(::openat(fd_.get(), (id + volume_end).c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0) return fail_errno(errno, "open " + id + volume_end);
    size += begin_of(file);
    if (about.st_size > size) return fail(Code::Internal, id + " is larger than that: it does not shrink");
    if (::ftruncate(file.get(), size) != 0 || ::fsync(file.get()) != 0) return trouble(errno, "grow " + id);
    return {};
  }

  Result<void> grow_device(const std::string& id, const std::string& device) override {
    const auto file = file_of(id);
    return file ? shown_.grow(id, device, &*file) : std::unexpected(file.error());
  }

  Result<std::optional<EngineSeen>> engine(const std::string& id) override { return shown_.engine(id); }
  bool has_engines() override { return keeper_.empty() ? !engine_.empty() && exists(engine_) && exists("/dev/fuse") : keeper_answers(keeper_); }
  Result<void> start_engine(const std::string& id, bool read_only, const blocks::DiskLimits& limits) override {
    if (!has_engines()) return fail(Code::Unavailable, fmt::format("{} has an engine of its own, and none can be started here: {}", id, keeper_.empty() ? fmt::format("{} and /dev/fuse are needed", engine_.empty() ? "fairlead-disk" : engine_) : fmt::format("nobody answers at {} (fairlead-volumes engines)", keeper_)));
    if (auto made = make_dirs(shown_.run_folder(), 0700); !made) return made;
    std::vector<std::string> arguments{"serve", "--file", folder_ + "/" + id + volume_end, "--folder", shown_.folder_of(id), "--name", shown_.served_as(id), "--iops", std::to_string(limits.iops), "--throughput", std::to_string(limits.bytes_per_second), "--as", shows_};
    if (read_only) arguments.push_back("--read-only");
    std::string key;
    {
      const Fd file(::openat(fd_.get(), (id + volume_end).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (!file) return fail_errno(errno, "open " + id + volume_end);
      if (begin_of(file) > 0) {
        if (auto can = can_encrypt(); !can) return can;
        auto opened = open_luks(folder_ + "/" + id + volume_end, id, *keyring_);
        if (!opened) return pass(std::move(opened.error()), fmt::format("{} is encrypted", id));
        key = std::move(*opened);
        arguments.insert(arguments.end(), {"--begins", std::to_string(kLuksHeader), "--key-stdin"});
      }
    }
    const auto done = begin_engine(std::move(arguments), key);
    OPENSSL_cleanse(key.data(), key.size());
    return done ? Result<void>() : Result<void>(pass(done.error(), "start the engine of " + id));
  }
  // The process lets go of the volume's file a moment after its answer.
  Result<void> stop_engine(const std::string& id) override { return shown_.stop_engine(id, Fd(::openat(fd_.get(), (id + volume_end).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW))); }
  Result<void> grow_engine(const std::string& id) override { return shown_.grow_engine(id); }
  Result<void> limit(const std::string& id, const blocks::DiskLimits& limits) override { return shown_.limit(id, limits); }
  Result<void> attach(const std::string& id, bool read_only, bool managed) override { return shown_.attach(id, managed ? "" : folder_ + "/" + id + volume_end, read_only); }
  Result<void> detach(const std::string& id, const std::string& device) override {
    const auto file = file_of(id);
    return file ? shown_.detach(id, device, &*file) : std::unexpected(file.error());
  }

 private:
  // Devices and engine aside. about: of its file, where there is one.
  Result<Sight> see_files(const std::string& id, struct stat& about) {
    Sight out;
    for (const auto& [end, into] : {std::pair(volume_end, &out.volume), {snapshot_end, &out.snapshot}, {part_end, &out.part}}) {
      const Fd file(::openat(fd_.get(), (id + end).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
      if (!file) {
        if (errno == ENOENT) continue;
        if (errno == ELOOP) {
          *into = FileSeen{.size = 0, .ours = false, .allocated = 0, .extents = 0, .born = 0};
          continue;
        }
        return fail_errno(errno, "look at " + id + end);
      }
      struct stat seen {};
      if (::fstat(file.get(), &seen) != 0) return fail_errno(errno, "look at " + id + end);
      char text[256];
      const ssize_t got = ::fgetxattr(file.get(), mark, text, sizeof text);
      if (got < 0 && errno != ENODATA && errno != ERANGE) return fail_errno(errno, "read the mark of " + id + end);
      // A death may come between a part's beginning and its mark.
      const bool marked = got > 0 && std::string_view(text, static_cast<std::size_t>(got)) == id, fresh = end == part_end && got < 0 && errno == ENODATA && seen.st_size == 0;
      fsxattr more{};
      struct statx times {};
      const std::int64_t begins = begin_of(file);
      *into = FileSeen{.size = std::max<std::int64_t>(0, seen.st_size - begins), .ours = S_ISREG(seen.st_mode) && (marked || fresh), .allocated = static_cast<std::int64_t>(seen.st_blocks) * 512, .extents = ::ioctl(file.get(), FS_IOC_FSGETXATTR, &more) == 0 ? static_cast<std::int64_t>(more.fsx_nextents) : 0,
                       .born = ::statx(file.get(), "", AT_EMPTY_PATH, STATX_BTIME, &times) == 0 && (times.stx_mask & STATX_BTIME) != 0 ? times.stx_btime.tv_sec * 1'000'000'000 + times.stx_btime.tv_nsec : 0};
      if (end == volume_end) about = seen;
    }
    return out;
  }

  Result<void> begin_engine(std::vector<std::string> arguments, const std::string& key) const {
    constexpr std::chrono::seconds limit(20);
    if (!keeper_.empty()) return ask_keeper(keeper_, arguments, limit, key);
    arguments.insert(arguments.begin(), engine_);
    auto done = run_checked({.argv = std::move(arguments), .environment = {}, .working_directory = {}, .before_exec = {}}, limit, key);
    return done ? Result<void>() : Result<void>(std::unexpected(std::move(done.error())));
  }
  // At which byte of the file the data begins.
  static std::int64_t begin_of(const Fd& file) {
    char text[2];
    return ::fgetxattr(file.get(), luks_mark, text, sizeof text) == 1 ? kLuksHeader : 0;
  }
  Result<struct stat> file_of(const std::string& id) {
    struct stat out {};
    return ::fstatat(fd_.get(), (id + volume_end).c_str(), &out, AT_SYMLINK_NOFOLLOW) == 0 ? Result<struct stat>(out) : Result<struct stat>(fail_errno(errno, "look at " + id + volume_end));
  }
  Result<Fd> new_part(const std::string& id) {
    Fd out(::openat(fd_.get(), (id + part_end).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!out) return trouble(errno, "make " + id + part_end);
    // First of all whose it is: a death after this leaves one that we know.
    if (::fsetxattr(out.get(), mark, id.data(), id.size(), 0) != 0) return trouble(errno, "mark " + id + part_end);
    return out;
  }
  Result<void> finish_part(const Fd& file, const std::string& id, std::int64_t size) {
    if (::ftruncate(file.get(), size) != 0 || ::fsync(file.get()) != 0) return trouble(errno, "make " + id + part_end);
    return sync_folder();
  }
  Result<void> unlink(const std::string& name) {
    if (::unlinkat(fd_.get(), name.c_str(), 0) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + name);
    return sync_folder();
  }
  Result<void> sync_folder() { return ::fsync(fd_.get()) == 0 ? Result<void>() : Result<void>(fail_errno(errno, "sync " + folder_)); }

  const std::string folder_;
  const Fd fd_;
  const std::string id_;
  const std::string engine_, keeper_;  // one at most: the program, or the socket of who starts it
  Keyring* const keyring_;
  const std::string shows_;  // by its engines
  const Shown shown_;
};

}  // namespace

Result<std::unique_ptr<Pool>> open_file_pool(const std::string& folder, const std::string& engine, Keyring* keyring, const std::string& shows) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno(errno, "open " + folder);
  // For as long as this lives: two would write one journal.
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? fail(Code::Conflict, folder + " is another process's pool") : fail_errno(errno, "lock " + folder);
  const std::string path = folder + "/" + id_file;
  auto id = read_file(path, 1_KiB);
  if (!id && exists(path)) return std::unexpected(std::move(id.error()));
  if (!id) {
    const auto names = list_dir(folder);
    if (!names) return std::unexpected(names.error());
    for (const std::string& name : *names)
      if (name != "lost+found" && !name.starts_with("journal") && !name.starts_with(".")) return fail(Code::Invalid, fmt::format("{} is no pool and is not empty: {} is there", folder, name));
    if (auto made = write_file_durably(path, random_uuid() + "\n", 0600); !made) return std::unexpected(std::move(made.error()));
    id = read_file(path, 1_KiB);
    if (!id) return std::unexpected(std::move(id.error()));
  }
  while (id->ends_with('\n')) id->pop_back();
  if (id->size() != 36) return fail(Code::Invalid, fmt::format("{} holds no id of a pool", path));
  return std::make_unique<FilePool>(folder, std::move(fd), std::move(*id), engine, keyring, shows);
}

}  // namespace fairlead::volumes
