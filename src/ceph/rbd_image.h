// SPDX-License-Identifier: Apache-2.0
// Images of volumes and snapshots: what is noted at them, and who has them. Sources: librbd.h of Ceph 16.2; docs.ceph.com: "RBD exclusive locks", "Snapshots" (clone v2).
// An image's key `fairlead.volume` says "ID volume|snapshot plain|luks DEPTH": whose it is, once it is whole, and how many copies of copies lie below it. One key: it is set at once, or not.
#pragma once
#include <rados/librados_fwd.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ceph/cluster.h"

// As rbd/librbd.hpp has it, which names a namespace `ceph`.
namespace librbd {
class Image;
}

namespace fairlead::ceph {

struct Mark {
  std::string id;
  bool snapshot = false, luks = false;
  int depth = 0;
  friend bool operator==(const Mark&, const Mark&) = default;
};
std::string print(const Mark& mark);
std::optional<Mark> read_mark(std::string_view text);  // nothing: it is none

// Where an engine on this machine claims a volume, by flock: as long as that is held it is alive.
std::string engine_lock(const std::string& pool_id, const std::string& id);

enum class Use { Writes, Reads };

// What the pool notes of the engine that has a volume alone, or had; of those that read it beside others, each by the generation of its attachment; and under what it notes which may (ceph/image_use.h).
struct Engine {
  std::string host, client, address;
};
std::string note_of(const std::string& id, std::int64_t generation, Use use);
std::optional<Engine> engine_of(const std::map<std::string, std::string>& notes, const std::string& id);
std::optional<Engine> reader_of(const std::map<std::string, std::string>& notes, const std::string& id, std::int64_t generation);
std::vector<std::string> engine_notes_of(const std::map<std::string, std::string>& notes, const std::string& id);  // all of them
std::string allowance_of(const std::string& id);

// The same connection, as the library's classes have it.
librados::IoCtx io_of(const Cluster& cluster);

class OpenImage {
 public:
  // NotFound: there is none of that name.
  static Result<OpenImage> open(const Cluster& cluster, const std::string& name, bool read_only);
  OpenImage(OpenImage&&) noexcept;
  OpenImage& operator=(OpenImage&&) = delete;
  ~OpenImage();
  librbd::Image& get() const { return *image_; }
  Result<std::int64_t> size() const;
  Result<std::string> id() const;              // of the image, within its pool
  Result<std::string> header() const;          // the object that is its header
  Result<std::optional<Mark>> mark() const;    // nothing: none that is ours
  Result<std::optional<std::string>> owner() const;  // of its exclusive lock: the address of who has it
  Result<bool> is_watched_by(const std::string& address) const;
  Result<bool> is_watched_by_client(const std::string& client) const;  // "client.4123"
  // By somebody who lives, or may. An OSD of Ceph 16, and of others without the mending of tracker.ceph.com 58120, keeps the watch of a client that died while it was being set until it is started anew, and librbd removes no image that has one; it is told from others by a notification, of which the OSD reports who has answered, and who has not. Takes up to 3 s.
  Result<bool> is_watched(const Cluster& cluster) const;

 private:
  explicit OpenImage(std::unique_ptr<librbd::Image> image);
  std::unique_ptr<librbd::Image> image_;  // closed with it
};

// An engine that had the image's lock and is dead has it no more when this returns, and is shut out. That it is dead is certain alone of one of this machine, whose flock is free; whoever else has it keeps it.
Result<void> free_of_dead(Cluster& cluster, const OpenImage& image, const std::string& pool_id, const std::string& host, const std::string& id);
// The same for an engine, which has the flock itself, and from here on the image: alone, or beside others that read it. generation: 0 on the machine of the pool's daemon; elsewhere that of the attachment for which it may. Conflict: somebody else has it, or it may not (any more).
Result<void> take_image(Cluster& cluster, const OpenImage& image, const std::string& host, const std::string& id, std::int64_t generation, Use use);

}  // namespace fairlead::ceph
