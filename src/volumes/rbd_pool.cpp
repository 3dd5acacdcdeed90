// SPDX-License-Identifier: Apache-2.0
#include "volumes/rbd_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "base/rng.h"
#include "kube/json.h"
#include "volumes/luks.h"
#include "volumes/plan/ledger.h"
#include "volumes/rbd_engine.h"
#include "volumes/shown.h"

namespace fairlead::volumes {
namespace {

using blocks::Words;
using namespace std::chrono_literals;

std::int64_t number(const std::string& text) {
  std::int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

class RbdPool final : public Pool {
 public:
  RbdPool(StoreProcess& store, std::int64_t most, Keyring* keyring) : store_(store), most_(most), keyring_(keyring), shown_(store.pool_id()) {}

  Result<std::string> id() override { return store_.pool_id(); }
  bool is_distributed() override { return true; }
  Result<Room> room() override {
    auto text = store_.ask({"room"});
    if (!text) return std::unexpected(std::move(text.error()));
    return read_room(text->empty() ? "" : text->front(), store_.place().pool, most_);
  }

  Result<Sight> look(const std::string& id) override {
    const auto seen = image(id);
    if (!seen) return std::unexpected(seen.error());
    Sight out;
    const FileSeen file{.size = std::max<std::int64_t>(0, seen->size - seen->begins), .ours = seen->kind != "foreign", .allocated = 0, .extents = 0, .born = seen->born};
    if (seen->kind == "part") out.part = file;
    if (seen->kind == "snapshot") out.snapshot = file;
    if (seen->kind != "volume" && seen->kind != "foreign") return out;
    out.volume = file;
    auto devices = shown_.devices(id, nullptr);
    if (!devices) return std::unexpected(std::move(devices.error()));
    out.devices = std::move(*devices);
    auto engine = shown_.engine(id);
    if (!engine) return std::unexpected(std::move(engine.error()));
    out.engine = std::move(*engine);
    return out;
  }
  std::optional<bool> is_used(const std::string& device) override { return Shown::is_used(device); }
  Result<std::vector<std::string>> ids() override {
    auto all = store_.ask({"ids"});
    if (!all) return std::unexpected(std::move(all.error()));
    std::erase_if(*all, [](const std::string& one) { return !is_volume_id(one); });
    return std::move(*all);
  }

  Result<void> make_part(const std::string& id, std::int64_t size, const std::string& key) override {
    if (key.empty()) return done({"make", id, std::to_string(size), ""});
    if (auto can = can_encrypt(); !can) return can;
    const auto file = header_file(id, "");
    if (!file) return std::unexpected(file.error());
    if (auto made = format_luks(file->path(), key, *keyring_); !made) return made;
    const auto bytes = file->bytes();
    if (!bytes) return std::unexpected(bytes.error());
    return done({"make", id, std::to_string(size + kLuksHeader), base64(*bytes)});
  }
  Result<void> copy_part(const std::string& id, const std::string& source, bool, std::int64_t size) override {
    const auto from = image(source);
    if (!from) return std::unexpected(from.error());
    if (from->kind == "none") return fail(Code::NotFound, source + " is not there");
    return done({"copy", id, source, std::to_string(size + from->begins)});
  }
  Result<void> drop_part(const std::string& id) override { return done({"drop", id}); }
  Result<void> publish(const std::string& id, bool snapshot) override { return done({"publish", id, snapshot ? "snapshot" : "volume"}); }
  Result<void> remove(const std::string& id, bool) override {
    if (auto gone = done({"remove", id}); !gone) return gone;
    (void)::unlink(lock_of(id).c_str());
    (void)::rmdir(shown_.run_folder().c_str());  // if it was the last
    return {};
  }
  Result<void> grow_file(const std::string& id, std::int64_t size) override {
    const auto seen = image(id);
    return seen ? done({"grow", id, std::to_string(size + seen->begins)}) : std::unexpected(seen.error());
  }
  Result<void> grow_device(const std::string& id, const std::string& device) override { return shown_.grow(id, device, nullptr); }

  Result<void> can_encrypt() override { return keyring_ != nullptr ? Result<void>() : fail(Code::Unsupported, "this pool has no keys: nothing is encrypted in it"); }
  Result<std::int64_t> key_version(const std::string& key) override {
    if (auto can = can_encrypt(); !can) return std::unexpected(std::move(can.error()));
    return keyring_->current(key);
  }
  // The object is written as a whole: the older header or the newer one is there.
  Result<std::int64_t> rewrap(const std::string& id, bool) override {
    if (auto can = can_encrypt(); !can) return std::unexpected(std::move(can.error()));
    const auto before = header(id);
    if (!before) return std::unexpected(before.error());
    const auto file = header_file(id, *before);
    if (!file) return std::unexpected(file.error());
    auto version = rewrap_luks(file->path(), *keyring_);
    const auto after = version ? file->bytes() : Result<std::string>(*before);
    if (!after) return std::unexpected(after.error());
    if (*after != *before)
      if (auto set = done({"set-header", id, base64(*after)}); !set) return std::unexpected(std::move(set.error()));
    return version;
  }

  Result<std::optional<EngineSeen>> engine(const std::string& id) override { return shown_.engine(id); }
  bool has_engines() override { return exists(store_.place().program) && exists("/dev/fuse"); }
  Result<void> start_engine(const std::string& id, bool read_only, const blocks::DiskLimits& limits) override {
    if (!has_engines()) return fail(Code::Unavailable, fmt::format("{} is shown by an engine of its own, and none can be started here: {} and /dev/fuse are needed", id, store_.place().program));
    if (auto made = make_dirs(shown_.run_folder(), 0700); !made) return made;
    const auto seen = image(id);
    if (!seen) return std::unexpected(seen.error());
    std::string key;
    if (seen->begins > 0) {
      auto opened = open_key(id);
      if (!opened) return pass(std::move(opened.error()), fmt::format("{} is encrypted", id));
      key = std::move(*opened);
    }
    return start_rbd_engine({.place = store_.place(), .pool_id = store_.pool_id(), .id = id, .generation = 0, .folder = shown_.folder_of(id), .name = shown_.served_as(id), .read_only = read_only, .limits = limits}, std::move(key));
  }
  Result<void> stop_engine(const std::string& id) override { return shown_.stop_engine(id, Fd(::open(lock_of(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW))); }
  Result<void> grow_engine(const std::string& id) override { return shown_.grow_engine(id); }
  Result<void> limit(const std::string& id, const blocks::DiskLimits& limits) override { return shown_.limit(id, limits); }
  Result<void> allow(const std::string& id, const std::string& host, std::int64_t generation, bool read_only) override { return done({"allow", id, host, std::to_string(generation), uses(read_only)}); }
  Result<void> withdraw(const std::string& id, std::int64_t generation) override { return done({"withdraw", id, std::to_string(generation)}); }
  Result<void> shut_out(const std::string& id, std::int64_t generation, bool read_only) override { return done({"shut-out", id, std::to_string(generation), uses(read_only)}); }
  Result<void> ended(const std::string& id, std::int64_t generation) override { return done({"ended", id, std::to_string(generation)}); }
  Result<void> attach(const std::string& id, bool read_only, bool managed) override { return managed ? shown_.attach(id, "", read_only) : fail(Code::Unsupported, id + " lies in a Ceph pool: it is shown by an engine of its own alone"); }
  Result<void> detach(const std::string& id, const std::string& device) override { return shown_.detach(id, device, nullptr); }

 private:
  static std::string uses(bool read_only) { return read_only ? "reads" : "writes"; }
  struct ImageSeen {
    std::string kind;
    std::int64_t size = 0, born = 0, begins = 0;
  };
  Result<ImageSeen> image(const std::string& id) {
    const auto words = store_.ask({"look", id});
    if (!words) return std::unexpected(words.error());
    if (words->size() != 4) return fail(Code::Internal, "what is said of an image is not understood");
    return ImageSeen{.kind = (*words)[0], .size = number((*words)[1]), .born = number((*words)[2]), .begins = (*words)[3] == "luks" ? kLuksHeader : 0};
  }
  Result<void> done(Words request) {
    auto words = store_.ask(std::move(request));
    return words ? Result<void>() : Result<void>(std::unexpected(std::move(words.error())));
  }
  // As ceph/rbd_image.h has it.
  std::string lock_of(const std::string& id) const { return shown_.folder_of(id) + ".lock"; }
  Result<std::string> header(const std::string& id) {
    const auto words = store_.ask({"header", id});
    if (!words) return std::unexpected(words.error());
    auto bytes = words->size() == 1 ? parse_base64(words->front()) : fail(Code::Invalid, "one word is expected");
    if (!bytes || bytes->size() != static_cast<std::size_t>(kLuksHeader)) return fail(Code::Internal, "the header of " + id + " is damaged");
    return std::move(*bytes);
  }
  Result<HeaderFile> header_file(const std::string& id, const std::string& bytes) {
    if (auto made = make_dirs(shown_.run_folder(), 0700); !made) return std::unexpected(std::move(made.error()));
    return HeaderFile::make(shown_.folder_of(id) + ".header", bytes);
  }
  Result<std::string> open_key(const std::string& id) {
    if (auto can = can_encrypt(); !can) return std::unexpected(std::move(can.error()));
    const auto bytes = header(id);
    if (!bytes) return std::unexpected(bytes.error());
    const auto file = header_file(id, *bytes);
    return file ? open_luks(file->path(), id, *keyring_) : std::unexpected(file.error());
  }

  StoreProcess& store_;
  const std::int64_t most_;
  Keyring* const keyring_;
  const Shown shown_;
};

// What was appended goes out with the next sync, as one write that is done or not.
class RbdJournal final : public JournalFile {
 public:
  explicit RbdJournal(StoreProcess& store) : store_(store) {}
  Result<std::string> read() override {
    const auto words = store_.ask({"journal"});
    if (!words) return std::unexpected(words.error());
    return words->size() == 1 ? parse_base64(words->front()) : fail(Code::Internal, "what is said of the journal is not understood");
  }
  Result<void> append(std::string_view bytes) override {
    pending_ += bytes;
    return {};
  }
  Result<void> sync() override {
    if (pending_.empty()) return {};
    auto words = store_.ask({"append", base64(pending_)});
    if (!words) return std::unexpected(std::move(words.error()));
    pending_.clear();
    return {};
  }
  Result<void> cut(std::size_t size) override {
    auto words = store_.ask({"cut", std::to_string(size)});
    return words ? Result<void>() : Result<void>(std::unexpected(std::move(words.error())));
  }
  Result<void> replace(std::string_view bytes) override {
    auto words = store_.ask({"replace", base64(bytes)});
    return words ? Result<void>() : Result<void>(std::unexpected(std::move(words.error())));
  }

 private:
  StoreProcess& store_;
  std::string pending_;
};

}  // namespace

Result<Host> claim_host(const std::string& folder) {
  if (auto made = make_dirs(folder, 0700); !made) return std::unexpected(std::move(made.error()));
  if (exists(folder + "/pool.id")) return fail(Code::Invalid, folder + " holds a pool of files: choose another --folder for a pool in Ceph");
  Host out{.id = {}, .lock = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW))};
  if (!out.lock) return fail_errno(errno, "open " + folder);
  if (::flock(out.lock.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? fail(Code::Conflict, folder + " is another process's") : fail_errno(errno, "lock " + folder);
  const std::string path = folder + "/host.id";
  if (!exists(path))
    if (auto made = write_file_durably(path, random_uuid() + "\n", 0600); !made) return std::unexpected(std::move(made.error()));
  auto id = read_file(path, 1_KiB);
  if (!id) return std::unexpected(std::move(id.error()));
  while (id->ends_with('\n')) id->pop_back();
  if (id->size() != 36 || id->find(' ') != id->npos) return fail(Code::Invalid, path + " holds no id of a host");
  out.id = std::move(*id);
  return out;
}

Result<Room> read_room(std::string_view json, const std::string& pool, std::int64_t most) {
  const auto all = kube::parse_json(std::string(json), {.depth_limit = 8});
  if (!all) return fail(Code::Unavailable, "how much room the Ceph pool has is not understood: " + all.error().message);
  for (const kube::Json& one : (*all)["pools"].items()) {
    if (one["name"].string() != pool) continue;
    const std::int64_t used = one["stats"]["stored"].integer(), left = one["stats"]["max_avail"].integer();
    if (used == 0 && left == 0) return fail(Code::Unavailable, fmt::format("Ceph does not say how much room the pool {} has: is a manager (ceph-mgr) running?", pool));
    const std::int64_t size = most > 0 ? std::min(most, used + left) : used + left;
    return Room{.size = size, .free = std::min(left, size)};
  }
  return fail(Code::Unavailable, fmt::format("Ceph says nothing of the room of the pool {}", pool));
}

std::unique_ptr<Pool> rbd_pool(StoreProcess& store, std::int64_t most, Keyring* keyring) { return std::make_unique<RbdPool>(store, most, keyring); }
std::unique_ptr<JournalFile> rbd_journal(StoreProcess& store) { return std::make_unique<RbdJournal>(store); }

}  // namespace fairlead::volumes
