// SPDX-License-Identifier: Apache-2.0
// The volume of the instance that this node is, at /opt/sagemaker: a file system of the size that was asked for, in a file of the node's folder (loop device). It outlives the agent and the node's reboots, and goes with the instance. One with a key is a Volume of a pool that is attached to the node (docs/design/081): the agent formats it where it is empty for certain, and mounts it.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/instance_volume.h"

namespace fairlead::agent {

// What is there. A file is named by its instance, and has that name once its file system is whole.
struct VolumeView {
  struct Image {
    std::string instance;
    std::int64_t gib = 0;         // of its file system; 0: it has begun to grow
    bool pool = false;            // it is a Volume of a pool; a file says so, and holds nothing of it
    friend bool operator==(const Image&, const Image&) = default;
  };
  std::vector<Image> images;      // by instance
  std::string mounted;            // instance whose image is mounted in its place; empty: none
  bool foreign = false;           // something else is mounted there
  bool occupied = false;          // nothing is mounted there, and there are files below it
  std::vector<std::string> litter;  // names of files that were left half made, of no image that is there
};
struct VolumePlan {
  enum class Step { Unmount, Delete, Make, Grow, Mount };
  struct Due {
    Step step;
    std::string instance;
    std::int64_t gib = 0;
    bool pool = false;
    friend bool operator==(const Due&, const Due&) = default;
  };
  std::vector<Due> steps;         // in this order; one that fails ends the round
  std::vector<std::string> litter;  // files that go before
  std::string refused;            // why nothing is done; empty: the steps lead to what was ordered
};
// Without an order: what is there is mounted, where that is one volume, and nothing is deleted. Volumes of others go only when another instance is ordered; with a release, that of the instance which it names, and no other: data is deleted by an order, never for want of one. Nothing shrinks.
VolumePlan plan_volume(const std::optional<api::VolumeOrder>& order, const VolumeView& seen);

struct VolumePlaces {
  std::string folder;                              // of the images
  std::string mount_point = api::kVolumePath;
};
// Looks, does what is due, tells. Blocks (a file system is made); idempotent after a death at any step. An image that is behind a loop device still, whoever has it mounted, is not deleted. While an image is there and not mounted, the empty place is made unwritable where its file system can do that (FS_IMMUTABLE_FL): what a pod wrote there would be in the way of each mount from then on.
api::VolumeState settle_volume(const VolumePlaces& places, const std::optional<api::VolumeOrder>& order);

// Does so on a thread of its own: nobody's heartbeat waits for a file system.
class VolumeKeeper {
 public:
  // What was there before is mounted, and its state known, before this returns, so that no pod finds the place empty and no cluster the node free. `changed`: called, from the thread, when the state is another.
  VolumeKeeper(VolumePlaces places, std::function<void()> changed);
  ~VolumeKeeper();
  // Tried again with each call until it is so.
  void ask(std::optional<api::VolumeOrder> order);
  // Of what was asked last; nothing: it is not known yet.
  std::optional<api::VolumeState> state() const;

 private:
  void run(const std::stop_token& stop);
  const VolumePlaces places_;
  const std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::optional<api::VolumeOrder> order_;
  bool asked_ = false;
  std::optional<api::VolumeState> state_;
  std::jthread thread_;
};

}  // namespace fairlead::agent
