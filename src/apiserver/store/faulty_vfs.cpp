// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/faulty_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "base/result.h"

namespace fairlead::apiserver {
namespace {

constexpr std::int64_t sector = 512;

// A change that is not synced yet. A write carries bytes; a truncate sets the size.
struct Unsynced {
  bool truncate = false;
  std::int64_t offset = 0;  // of a truncate: the new size
  std::string bytes;
};

struct File {
  bool exists = true;             // as programs see it now
  bool durable_exists = false;    // after a power cut
  std::string now;
  std::string durable;
  std::vector<Unsynced> unsynced;
  std::vector<std::unique_ptr<char[]>> shared;  // the wal-index: memory, gone with the power

  void write(std::int64_t offset, std::string_view bytes) {
    if (bytes.empty()) return;
    put(now, offset, bytes);
    unsynced.push_back({false, offset, std::string(bytes)});
  }
  static void put(std::string& image, std::int64_t offset, std::string_view bytes) {
    const auto end = static_cast<std::size_t>(offset) + bytes.size();
    if (image.size() < end) image.resize(end, '\0');
    std::memcpy(image.data() + offset, bytes.data(), bytes.size());
  }
};

}  // namespace

struct FaultyDisk::State {
  explicit State(std::uint64_t seed) : rng(seed) {}
  mutable std::mutex mutex;
  Rng rng;
  std::map<std::string, std::shared_ptr<File>> files;
  std::uint64_t operations = 0;
  std::optional<std::uint64_t> dark_after;
  bool dark = false;
  std::optional<Fault> fault;
  int fault_skip = 0;
  std::int64_t limit = -1;
  std::uint64_t lost_pieces = 0;
  std::string name;
  sqlite3_vfs vfs{};

  // Counts an operation. True: it goes through; false: the power went out with it.
  bool operate() {
    if (dark) return false;
    if (dark_after && operations >= *dark_after) {
      dark = true;
      return false;
    }
    ++operations;
    return true;
  }
  bool faulty(Fault kind) {
    if (fault != kind || fault_skip-- > 0) return false;
    fault.reset();
    return true;
  }
  std::int64_t size() const {
    std::int64_t sum = 0;
    for (const auto& [_, file] : files) {
      if (file->exists) sum += static_cast<std::int64_t>(file->now.size());
    }
    return sum;
  }
};

namespace {

using State = FaultyDisk::State;

struct Handle {
  sqlite3_file base;
  State* disk;
  std::shared_ptr<File>* file;
  const char* name;  // owned by SQLite until close; null: a temporary file
};
Handle& handle(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file); }
State& disk_of(sqlite3_vfs* vfs) { return *static_cast<State*>(vfs->pAppData); }
sqlite3_vfs* system_vfs() { return sqlite3_vfs_find("unix"); }

int close_file(sqlite3_file* raw) {
  Handle& h = handle(raw);
  delete h.file;
  h.file = nullptr;
  return SQLITE_OK;
}

int read_file_at(sqlite3_file* raw, void* into, int count, sqlite3_int64 offset) {
  Handle& h = handle(raw);
  const std::lock_guard lock(h.disk->mutex);
  if (h.disk->dark) return SQLITE_IOERR_READ;
  const std::string& bytes = (*h.file)->now;
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  const auto have = std::clamp<sqlite3_int64>(size - offset, 0, count);
  if (have > 0) std::memcpy(into, bytes.data() + offset, static_cast<std::size_t>(have));
  if (have == count) return SQLITE_OK;
  std::memset(static_cast<char*>(into) + have, 0, static_cast<std::size_t>(count - have));
  return SQLITE_IOERR_SHORT_READ;
}

int write_file_at(sqlite3_file* raw, const void* from, int count, sqlite3_int64 offset) {
  Handle& h = handle(raw);
  const std::lock_guard lock(h.disk->mutex);
  State& disk = *h.disk;
  File& file = **h.file;
  std::string_view bytes(static_cast<const char*>(from), static_cast<std::size_t>(count));
  const bool was_dark = disk.dark;
  if (!disk.operate()) {
    if (!was_dark) file.write(offset, bytes);  // under way when the power went: any part of it may be there
    return SQLITE_IOERR_WRITE;
  }
  if (disk.faulty(FaultyDisk::Fault::WriteIo)) {
    file.write(offset, bytes.substr(0, disk.rng.below(bytes.size() + 1)));
    return SQLITE_IOERR_WRITE;
  }
  const auto grows = std::max<std::int64_t>(0, offset + count - static_cast<std::int64_t>(file.now.size()));
  if (disk.limit >= 0 && grows > 0 && disk.size() + grows > disk.limit) {  // a short write, as a full file system does
    const auto fits = std::max<std::int64_t>(0, count - (disk.size() + grows - disk.limit));
    file.write(offset, bytes.substr(0, static_cast<std::size_t>(fits)));
    return SQLITE_FULL;
  }
  file.write(offset, bytes);
  return SQLITE_OK;
}

int truncate_file(sqlite3_file* raw, sqlite3_int64 size) {
  Handle& h = handle(raw);
  const std::lock_guard lock(h.disk->mutex);
  if (!h.disk->operate() || h.disk->faulty(FaultyDisk::Fault::TruncateIo)) return SQLITE_IOERR_TRUNCATE;
  File& file = **h.file;
  file.now.resize(static_cast<std::size_t>(size), '\0');
  file.unsynced.push_back({true, size, {}});
  return SQLITE_OK;
}

int sync_file(sqlite3_file* raw, int) {
  Handle& h = handle(raw);
  const std::lock_guard lock(h.disk->mutex);
  if (!h.disk->operate() || h.disk->faulty(FaultyDisk::Fault::SyncIo)) return SQLITE_IOERR_FSYNC;
  File& file = **h.file;
  file.durable = file.now;
  file.unsynced.clear();
  file.durable_exists = file.exists;
  return h.disk->faulty(FaultyDisk::Fault::SyncIoThough) ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}

int file_size(sqlite3_file* raw, sqlite3_int64* size) {
  Handle& h = handle(raw);
  const std::lock_guard lock(h.disk->mutex);
  *size = static_cast<sqlite3_int64>((*h.file)->now.size());
  return SQLITE_OK;
}

// One store has one connection: locks always hold.
int lock_file(sqlite3_file*, int) { return SQLITE_OK; }
int check_reserved(sqlite3_file*, int* reserved) { return *reserved = 0, SQLITE_OK; }
int control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int sector_size(sqlite3_file*) { return static_cast<int>(sector); }
int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

int map_shared(sqlite3_file* raw, int region, int size, int extend, void volatile** out) {
  Handle& h = handle(raw);
  const std::lock_guard lock(h.disk->mutex);
  auto& shared = (*h.file)->shared;
  *out = nullptr;
  if (static_cast<int>(shared.size()) <= region && extend == 0) return SQLITE_OK;
  while (static_cast<int>(shared.size()) <= region) shared.push_back(std::make_unique<char[]>(static_cast<std::size_t>(size)));
  *out = shared[static_cast<std::size_t>(region)].get();
  return SQLITE_OK;
}
int lock_shared(sqlite3_file*, int, int, int) { return SQLITE_OK; }
void barrier(sqlite3_file* raw) { const std::lock_guard lock(handle(raw).disk->mutex); }  // a full fence that thread sanitizer understands
int unmap_shared(sqlite3_file* raw, int) {
  Handle& h = handle(raw);
  const std::lock_guard lock(h.disk->mutex);
  (*h.file)->shared.clear();  // the last user is gone: a new one recovers
  return SQLITE_OK;
}

const sqlite3_io_methods methods = {2,           close_file, read_file_at,   write_file_at, truncate_file, sync_file,       file_size,  lock_file, lock_file,
                                    check_reserved, control, sector_size, characteristics, map_shared,  lock_shared, barrier, unmap_shared, nullptr, nullptr};

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* raw, int flags, int* out_flags) {
  State& disk = disk_of(vfs);
  const std::lock_guard lock(disk.mutex);
  raw->pMethods = nullptr;
  std::shared_ptr<File> file;
  if (name == nullptr) {
    file = std::make_shared<File>();
  } else {
    if (disk.dark) return SQLITE_CANTOPEN;
    const auto found = disk.files.find(name);
    const bool there = found != disk.files.end() && found->second->exists;
    if (!there && ((flags & SQLITE_OPEN_CREATE) == 0 || !disk.operate())) return SQLITE_CANTOPEN;
    auto& slot = disk.files[name];
    if (!there) {
      if (slot == nullptr) slot = std::make_shared<File>();
      slot->exists = true;  // the name is durable with the first sync, as SQLite syncs the folder then
    }
    file = slot;
  }
  Handle& h = handle(raw);
  h.disk = &disk;
  h.file = new std::shared_ptr<File>(std::move(file));
  h.name = name;
  h.base.pMethods = &methods;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs* vfs, const char* name, int sync_folder) {
  State& disk = disk_of(vfs);
  const std::lock_guard lock(disk.mutex);
  if (!disk.operate()) return SQLITE_IOERR_DELETE;
  const auto it = disk.files.find(name);
  if (it == disk.files.end() || !it->second->exists) return SQLITE_IOERR_DELETE_NOENT;
  File& file = *it->second;
  file.exists = false;
  file.now.clear();
  if (sync_folder != 0) {
    file.durable_exists = false;
    file.durable.clear();
    file.unsynced.clear();
  }
  return SQLITE_OK;
}

int access_file(sqlite3_vfs* vfs, const char* name, int, int* out) {
  State& disk = disk_of(vfs);
  const std::lock_guard lock(disk.mutex);
  const auto it = disk.files.find(name);
  *out = it != disk.files.end() && it->second->exists ? 1 : 0;
  return SQLITE_OK;
}

int full_path(sqlite3_vfs*, const char* name, int size, char* out) {
  sqlite3_snprintf(size, out, "%s", name);
  return SQLITE_OK;
}

int randomness(sqlite3_vfs* vfs, int count, char* out) {
  State& disk = disk_of(vfs);
  const std::lock_guard lock(disk.mutex);
  for (int i = 0; i < count; ++i) out[i] = static_cast<char>(disk.rng.next());
  return count;
}
int sleep_for(sqlite3_vfs*, int micros) { return system_vfs()->xSleep(system_vfs(), micros); }
int current_time(sqlite3_vfs*, double* out) { return system_vfs()->xCurrentTime(system_vfs(), out); }
int last_error(sqlite3_vfs*, int, char*) { return 0; }

// Which pieces of an unsynced change survive; each sector of a write by itself.
void keep_some(File& file, Rng& rng, std::uint64_t keep_of_16, std::uint64_t& lost) {
  std::string image = file.durable;
  for (const Unsynced& change : file.unsynced) {
    if (change.truncate) {
      if (rng.below(16) < keep_of_16) image.resize(static_cast<std::size_t>(change.offset), '\0');
      continue;
    }
    std::int64_t at = change.offset;
    const std::int64_t end = at + static_cast<std::int64_t>(change.bytes.size());
    while (at < end) {
      const std::int64_t next = std::min(end, (at / sector + 1) * sector);
      if (rng.below(16) < keep_of_16) {
        File::put(image, at, std::string_view(change.bytes).substr(static_cast<std::size_t>(at - change.offset), static_cast<std::size_t>(next - at)));
      } else {
        ++lost;
      }
      at = next;
    }
  }
  file.now = file.durable = std::move(image);
  file.unsynced.clear();
}

}  // namespace

FaultyDisk::FaultyDisk(std::uint64_t seed) : state_(std::make_unique<State>(seed)) {
  static std::atomic<std::uint64_t> counter{0};
  state_->name = "fairlead-faulty-" + std::to_string(counter++);
  sqlite3_initialize();
  sqlite3_vfs& vfs = state_->vfs;
  vfs.iVersion = 1;
  vfs.szOsFile = sizeof(Handle);
  vfs.mxPathname = 512;
  vfs.zName = state_->name.c_str();
  vfs.pAppData = state_.get();
  vfs.xOpen = open_file;
  vfs.xDelete = delete_file;
  vfs.xAccess = access_file;
  vfs.xFullPathname = full_path;
  vfs.xRandomness = randomness;
  vfs.xSleep = sleep_for;
  vfs.xCurrentTime = current_time;
  vfs.xGetLastError = last_error;
  INVARIANT(sqlite3_vfs_register(&vfs, 0) == SQLITE_OK);
}

FaultyDisk::~FaultyDisk() { sqlite3_vfs_unregister(&state_->vfs); }

const std::string& FaultyDisk::vfs() const { return state_->name; }

void FaultyDisk::cut_power_after(std::uint64_t operations) {
  const std::lock_guard lock(state_->mutex);
  state_->dark_after = state_->operations + operations;
}

std::uint64_t FaultyDisk::operations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->operations;
}

bool FaultyDisk::dark() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dark;
}

void FaultyDisk::power_cycle() {
  const std::lock_guard lock(state_->mutex);
  State& disk = *state_;
  constexpr std::uint64_t survival[] = {0, 4, 8, 14, 15, 16};  // of 16: from all lost to nothing lost
  for (auto it = disk.files.begin(); it != disk.files.end();) {
    File& file = *it->second;
    INVARIANT(it->second.use_count() == 1);  // closed
    const std::uint64_t keep = survival[disk.rng.below(std::size(survival))];
    if (!file.durable_exists && file.exists) file.durable_exists = disk.rng.below(16) < keep;  // a new name whose folder was not synced
    if (file.durable_exists && !file.exists) file.durable_exists = disk.rng.below(16) < 8;     // a removal not synced
    if (!file.durable_exists) {
      it = disk.files.erase(it);
      continue;
    }
    file.exists = true;
    keep_some(file, disk.rng, keep, disk.lost_pieces);
    file.shared.clear();
    ++it;
  }
  disk.dark = false;
  disk.dark_after.reset();
  disk.fault.reset();
}

void FaultyDisk::fail_next(Fault fault, int skip) {
  const std::lock_guard lock(state_->mutex);
  state_->fault = fault;
  state_->fault_skip = skip;
}

bool FaultyDisk::fault_pending() const {
  const std::lock_guard lock(state_->mutex);
  return state_->fault.has_value();
}

void FaultyDisk::limit_size(std::int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
}

std::int64_t FaultyDisk::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->size();
}

bool FaultyDisk::flip_bit(const std::string& path, std::int64_t byte, int bit) {
  const std::lock_guard lock(state_->mutex);
  const auto it = state_->files.find(path);
  if (it == state_->files.end() || byte >= static_cast<std::int64_t>(it->second->now.size())) return false;
  it->second->now[static_cast<std::size_t>(byte)] ^= static_cast<char>(1 << bit);
  if (byte < static_cast<std::int64_t>(it->second->durable.size())) it->second->durable[static_cast<std::size_t>(byte)] ^= static_cast<char>(1 << bit);
  return true;
}

std::int64_t FaultyDisk::size_of(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  const auto it = state_->files.find(path);
  return it == state_->files.end() || !it->second->exists ? -1 : static_cast<std::int64_t>(it->second->now.size());
}

std::uint64_t FaultyDisk::lost_pieces() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost_pieces;
}

}  // namespace fairlead::apiserver
