// SPDX-License-Identifier: Apache-2.0
// Images of volumes and snapshots: what is noted at them, and who has them. Sources: librbd.h of Ceph 16.2; docs.ceph.com: "RBD exclusive locks", "Snapshots" (clone v2).
// An image's key `fairlead.volume` says "ID volume|snapshot plain|luks DEPTH": whose it is, once it is whole, and how many copies of copies lie below it. One key: it is set at once, or not.
#pragma once
#include <rbd/librbd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ceph/cluster.h"

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

// What the pool notes of the engine that serves a volume, or has; and under what it notes which may.
struct Engine {
  std::string host, client, address;
};
std::optional<Engine> engine_of(const std::map<std::string, std::string>& notes, const std::string& id);
std::string allowance_of(const std::string& id);

class OpenImage {
 public:
  // NotFound: there is none of that name.
  static Result<OpenImage> open(const Cluster& cluster, const std::string& name, bool read_only);
  OpenImage(OpenImage&& other) noexcept : image_(std::exchange(other.image_, nullptr)) {}
  OpenImage& operator=(OpenImage&&) = delete;
  ~OpenImage();
  rbd_image_t get() const { return image_; }
  Result<std::int64_t> size() const;
  Result<std::optional<Mark>> mark() const;    // nothing: none that is ours
  Result<std::optional<std::string>> owner() const;  // of its exclusive lock: the address of who has it
  Result<bool> is_watched_by(const std::string& address) const;
  // By somebody who lives, or may. An OSD of Ceph 16, and of others without the mending of tracker.ceph.com 58120, keeps the watch of a client that died while it was being set until it is started anew, and librbd removes no image that has one; it is told from others by a notification, of which the OSD reports who has answered, and who has not. Takes up to 3 s.
  Result<bool> is_watched(const Cluster& cluster) const;

 private:
  explicit OpenImage(rbd_image_t image) : image_(image) {}
  rbd_image_t image_ = nullptr;
};

// An engine that had the image's lock and is dead has it no more when this returns, and is shut out. That it is dead is certain alone of one of this machine, whose flock is free; whoever else has it keeps it.
Result<void> free_of_dead(Cluster& cluster, const OpenImage& image, const std::string& pool_id, const std::string& host, const std::string& id);
// The same for an engine, which has the flock itself, and the image alone from here on. generation: 0 on the machine of the pool's daemon; elsewhere that of the attachment for which it may. Conflict: somebody else has it, or it may not (any more).
Result<void> take_image(Cluster& cluster, const OpenImage& image, const std::string& host, const std::string& id, std::int64_t generation);

}  // namespace fairlead::ceph
