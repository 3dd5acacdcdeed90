// SPDX-License-Identifier: Apache-2.0
#include "ceph/rbd_image.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rbd/librbd.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <list>
#include <set>
#include <vector>

#include "base/encoding.h"
#include "base/fd.h"
#include "ceph/image_use.h"

namespace fairlead::ceph {
namespace {

constexpr const char* key = "fairlead.volume";

using Watcher = librbd::image_watcher_t;
Result<std::list<Watcher>> watchers_of(librbd::Image& image) {
  std::list<Watcher> out;
  if (const int error = image.list_watchers(out); error < 0) return fail_ceph(error, "ask who watches an image");
  return out;
}

Result<void> break_lock(Cluster& cluster, const OpenImage& image, const Engine& dead) {
  if (auto done = cluster.shut_out(dead.address, Cluster::State::Dead); !done) return done;
  const int error = image.get().lock_break(RBD_LOCK_MODE_EXCLUSIVE, dead.address);
  return error < 0 && error != -ENOENT ? Result<void>(fail_ceph(error, "take the lock of an image from an engine that is dead")) : Result<void>();
}

}  // namespace

std::string print(const Mark& mark) { return fmt::format("{} {} {} {}", mark.id, mark.snapshot ? "snapshot" : "volume", mark.luks ? "luks" : "plain", mark.depth); }
std::optional<Mark> read_mark(std::string_view text) {
  const auto words = split(text, ' ');
  if (words.size() != 4 || (words[1] != "volume" && words[1] != "snapshot") || (words[2] != "plain" && words[2] != "luks")) return std::nullopt;
  Mark out{.id = words[0], .snapshot = words[1] == "snapshot", .luks = words[2] == "luks", .depth = 0};
  const auto read = std::from_chars(words[3].data(), words[3].data() + words[3].size(), out.depth);
  return read.ec == std::errc() && read.ptr == words[3].data() + words[3].size() && out.depth >= 0 ? std::optional(out) : std::nullopt;
}

namespace {
std::optional<Engine> engine_in(const std::map<std::string, std::string>& notes, const std::string& note) {
  const auto found = notes.find(note);
  if (found == notes.end()) return std::nullopt;
  const auto words = split(found->second, ' ');
  return words.size() == 3 ? std::optional(Engine{words[0], words[1], words[2]}) : std::nullopt;
}
}  // namespace
std::string note_of(const std::string& id, std::int64_t generation, Use use) { return use == Use::Writes ? "engine." + id : fmt::format("engine.{}.{}", id, generation); }
std::optional<Engine> engine_of(const std::map<std::string, std::string>& notes, const std::string& id) { return engine_in(notes, note_of(id, 0, Use::Writes)); }
std::optional<Engine> reader_of(const std::map<std::string, std::string>& notes, const std::string& id, std::int64_t generation) { return engine_in(notes, note_of(id, generation, Use::Reads)); }
std::vector<std::string> engine_notes_of(const std::map<std::string, std::string>& notes, const std::string& id) {
  std::vector<std::string> out;
  for (const auto& [note, text] : notes)
    if (note == "engine." + id || note.starts_with("engine." + id + ".")) out.push_back(note);
  return out;
}
std::string allowance_of(const std::string& id) { return "may." + id; }

std::string engine_lock(const std::string& pool_id, const std::string& id) { return fmt::format("/run/fairlead-volumes/{}/{}.lock", pool_id.substr(0, 8), id); }

librados::IoCtx io_of(const Cluster& cluster) {
  librados::IoCtx out;
  librados::IoCtx::from_rados_ioctx_t(cluster.io(), out);
  return out;
}

OpenImage::OpenImage(std::unique_ptr<librbd::Image> image) : image_(std::move(image)) {}
OpenImage::OpenImage(OpenImage&&) noexcept = default;
OpenImage::~OpenImage() = default;
Result<OpenImage> OpenImage::open(const Cluster& cluster, const std::string& name, bool read_only) {
  librados::IoCtx io = io_of(cluster);
  auto image = std::make_unique<librbd::Image>();
  librbd::RBD rbd;
  const int error = read_only ? rbd.open_read_only(io, *image, name.c_str(), nullptr) : rbd.open(io, *image, name.c_str());
  if (error < 0) return fail_ceph(error, "open the image " + name);
  return OpenImage(std::move(image));
}
Result<std::int64_t> OpenImage::size() const {
  std::uint64_t out = 0;
  if (const int error = image_->size(&out); error < 0) return fail_ceph(error, "ask for the size of an image");
  return static_cast<std::int64_t>(out);
}
Result<std::string> OpenImage::id() const {
  std::string out;
  if (const int error = image_->get_id(&out); error < 0) return fail_ceph(error, "ask for the id of an image");
  return out;
}
Result<std::string> OpenImage::header() const {
  auto all = id();
  return all ? Result<std::string>("rbd_header." + *all) : std::unexpected(std::move(all.error()));
}
Result<std::optional<Mark>> OpenImage::mark() const {
  std::string text;
  const int error = image_->metadata_get(key, &text);
  if (error == -ENOENT) return std::nullopt;
  if (error < 0) return fail_ceph(error, "read the mark of an image");
  return read_mark(text);
}
Result<std::optional<std::string>> OpenImage::owner() const {
  rbd_lock_mode_t mode = RBD_LOCK_MODE_EXCLUSIVE;
  std::list<std::string> owners;
  const int error = image_->lock_get_owners(&mode, &owners);
  if (error == -ENOENT) return std::nullopt;
  if (error < 0) return fail_ceph(error, "ask who has the lock of an image");
  return owners.empty() ? std::nullopt : std::optional(owners.front());
}
Result<bool> OpenImage::is_watched_by(const std::string& address) const {
  const auto all = watchers_of(*image_);
  if (!all) return std::unexpected(all.error());
  return std::ranges::any_of(*all, [&](const Watcher& one) { return one.addr == address; });
}
Result<bool> OpenImage::is_watched_by_client(const std::string& client) const {
  const auto all = watchers_of(*image_);
  if (!all) return std::unexpected(all.error());
  return std::ranges::any_of(*all, [&](const Watcher& one) { return fmt::format("client.{}", one.id) == client; });
}
Result<bool> OpenImage::is_watched(const Cluster& cluster) const {
  const auto all = watchers_of(*image_);
  if (!all) return std::unexpected(all.error());
  if (all->empty()) return false;
  const auto object = header();
  if (!object) return std::unexpected(object.error());
  // An empty one tells watchers that the image may have changed: they look.
  char* reply = nullptr;
  std::size_t size = 0;
  const int error = rados_notify2(cluster.io(), object->c_str(), "", 0, 3'000, &reply, &size);
  if (error < 0 && error != -ETIMEDOUT) {
    rados_buffer_free(reply);
    return fail_ceph(error, "ask those who watch an image");
  }
  notify_ack_t* answered = nullptr;
  notify_timeout_t* silent = nullptr;
  std::size_t answers = 0, silences = 0;
  const int decoded = rados_decode_notify_response(reply, size, &answered, &answers, &silent, &silences);
  rados_buffer_free(reply);
  if (decoded < 0) return fail_ceph(decoded, "read who watches an image");
  std::set<std::pair<std::uint64_t, std::uint64_t>> known;
  for (std::size_t i = 0; i < answers; ++i) known.emplace(answered[i].notifier_id, answered[i].cookie);
  for (std::size_t i = 0; i < silences; ++i) known.emplace(silent[i].notifier_id, silent[i].cookie);
  rados_free_notify_response(answered, answers, silent);
  return std::ranges::any_of(*all, [&](const Watcher& one) { return known.contains({static_cast<std::uint64_t>(one.id), one.cookie}); });
}

Result<void> free_of_dead(Cluster& cluster, const OpenImage& image, const std::string& pool_id, const std::string& host, const std::string& id) {
  const auto owner = image.owner();
  const auto own = cluster.address();
  if (!owner) return std::unexpected(owner.error());
  if (!own) return std::unexpected(own.error());
  if (!*owner || **owner == *own) return {};
  const auto notes = cluster.notes();
  if (!notes) return std::unexpected(notes.error());
  const auto engine = engine_of(*notes, id);
  if (!engine || engine->address != **owner || engine->host != host) return {};
  const Fd lock(::open(engine_lock(pool_id, id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock && errno != ENOENT) return fail_errno(errno, "look whether the engine of " + id + " lives");
  if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};  // it lives
  return break_lock(cluster, image, *engine);
}

Result<void> take_image(Cluster& cluster, const OpenImage& image, const std::string& host, const std::string& id, std::int64_t generation, Use use) {
  const auto notes = cluster.notes();
  if (!notes) return std::unexpected(notes.error());
  const auto before = engine_of(*notes, id);
  const auto address = cluster.address();
  if (!address) return std::unexpected(address.error());
  // Those of this machine are dead, as we have their flock.
  std::set<std::string> dead;
  for (const std::string& each : engine_notes_of(*notes, id))
    if (const auto one = engine_in(*notes, each); one && one->host == host && one->address != *address) dead.insert(one->address);
  // First of all it is noted: a death after this leaves one that is known. Fails if the pool is another machine's by now, or if this one may not have the image.
  const std::string text = fmt::format("{} {} {}", host, cluster.client(), *address), note = note_of(id, generation, use);
  if (generation == 0) {
    if (auto done = cluster.note(note, text, host); !done) return done;
  } else {
    const auto noted = notes->find(allowance_of(id));
    const auto allowed = noted == notes->end() ? std::nullopt : read_allowance(noted->second);
    // As it was read: one more that reads meanwhile is a reason to look again.
    const bool may = allowed && allowed->use == use && std::ranges::find(allowed->who, std::pair(host, generation)) != allowed->who.end();
    if (auto done = cluster.note_if(note, text, allowance_of(id), may ? noted->second : print(Allowance{.use = use, .who = {{host, generation}}})); !done) return done;
  }
  if (auto done = take_use(cluster, image, id, use, generation, dead); !done) return done;
  auto alone = [&]() -> Result<void> {
    const auto claimed = cluster.claimed_by();
    if (!claimed) return std::unexpected(claimed.error());
    for (int tries = 0;; ++tries) {
      const auto owner = image.owner();
      if (!owner) return std::unexpected(owner.error());
      if (!*owner || **owner == *address || *owner == *claimed) break;  // the pool's daemon lets go when it is asked to
      // The one before of this machine.
      if (before && before->address == **owner && dead.contains(**owner)) {
        if (auto done = break_lock(cluster, image, *before); !done) return done;
        break;
      }
      const auto lives = image.is_watched_by(**owner);
      if (!lives) return std::unexpected(lives.error());
      // It is gone for long, or shut out: librbd shuts it out before it takes its place.
      if (!*lives && use == Use::Writes) break;
      if (!*lives) {
        if (auto done = cluster.shut_out(**owner, Cluster::State::MayBeAway); !done) return done;
        if (const int error = image.get().lock_break(RBD_LOCK_MODE_EXCLUSIVE, **owner); error < 0 && error != -ENOENT) return fail_ceph(error, "take the lock of an image from who is gone");
        break;
      }
      if (tries == 10) return fail(Code::Conflict, fmt::format("the image of {} is used by {}, which is none of this pool's engines (rbd status, rbd lock ls): it has to let go first", id, **owner));
      ::usleep(200'000);
    }
    if (use == Use::Reads) return {};
    if (const int error = image.get().lock_acquire(RBD_LOCK_MODE_EXCLUSIVE); error < 0) return fail_ceph(error, "take the image of " + id + " alone");
    bool owns = false;
    if (const int error = image.get().is_exclusive_lock_owner(&owns); error < 0 || !owns) return fail(Code::Conflict, "the image of " + id + " is not to be had alone");
    return {};
  }();
  if (!alone) let_go_of_use(cluster, image, generation);
  return alone;
}

}  // namespace fairlead::ceph
