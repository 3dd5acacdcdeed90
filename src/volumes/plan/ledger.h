// SPDX-License-Identifier: Apache-2.0
// What is known of a pool's volumes, and what may be done with them. Pure: requests in, intents or refusals out; records of the journal in, the same ledger out (docs/design/069-volume-pool.md).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "blocks/disk_control.h"
#include "kube/json.h"

namespace fairlead::volumes {

using Limits = blocks::DiskLimits;

inline constexpr std::int64_t kBlock = 4096;                            // sizes are whole ones
inline constexpr std::int64_t kMostBytes = std::int64_t{64} << 40;      // of one volume

enum class What { Create, Snapshot, Grow, Remove, Attach, Detach, Limit, Leave };  // Leave: of one that several nodes of a machine read, for a node that is not the last there
std::string_view text(What what);

// What is going to be done. It follows from it and from what is seen how it goes on, after a death too.
struct Intent {
  std::int64_t number = 0;
  What what = What::Create;
  std::string id;
  std::int64_t size = 0;            // of Create, Snapshot, Grow
  std::int64_t before = 0;          // of Grow: what it had
  std::string source;               // of Snapshot; of Create: whose content it begins with; empty: zeros
  bool of_snapshot = false;         // what the source is
  std::string node;                 // of Attach, Detach, Leave
  std::string owner;                // of Create, Snapshot: for whom, in words of those who ask (the uid of an object)
  bool read_only = false;           // of Attach
  std::int64_t generation = 0;      // of Attach: the one that it will be
  bool managed = false;             // it is shown by an engine of its own; of Create: it is to be
  Limits limits;                    // of Create, Attach, Limit
  std::string key;                  // of Create, Snapshot: by which it is encrypted; empty: it is not
  std::string host{};               // of Attach: the further machine that is to show it (plan/hosts.h); empty: the pool's own
  friend bool operator==(const Intent&, const Intent&) = default;
};

// Where a volume is shown, on one machine: by one engine and one device, whichever nodes there have it.
struct Place {
  std::int64_t shown = 0;           // on a further machine: the generation of the attachment by which it was shown first, which those who read it too share; 0 on the pool's own
  std::string device;
  friend bool operator==(const Place&, const Place&) = default;
};

struct Entry {
  bool snapshot = false;
  std::int64_t size = 0;
  std::string source;               // empty: it began with zeros
  std::map<std::string, std::int64_t> nodes;  // that have it, each by the generation of its attachment: one, or any number that read it
  std::map<std::string, std::string> hosts;   // of these the ones that are on further machines, by node
  std::map<std::string, Place> places;        // by machine; empty: the pool's own. Several: all of them read
  std::string owner;                // for whom it is there
  bool read_only = false;           // as it is attached
  std::int64_t generation = 0;      // the last that an attachment was given
  bool managed = false;             // shown by an engine of its own, which holds the limits
  Limits limits;
  std::string key;                  // by which its own key is wrapped; empty: it is not encrypted
  bool there = false;               // false: it is being made
  bool attached() const { return !nodes.empty(); }
  std::string host_of(const std::string& node) const;           // of one that has it; empty: the pool's own
  std::set<std::string> nodes_on(const std::string& host) const;
  std::string holders() const;      // their names, with commas
  std::string holders(const std::string& host) const;           // of those on one machine
  friend bool operator==(const Entry&, const Entry&) = default;
};

bool is_volume_id(std::string_view id);  // 1 to 63 of a-z 0-9 -, beginning and ending with none of -

class Ledger {
 public:
  explicit Ledger(std::string pool) : pool_(std::move(pool)) {}

  // Records: of an intent, of its end, and of all that is known at once (the first of a journal that was written anew). Internal: it does not follow from those before.
  Result<void> apply(const kube::Json& record);
  kube::Json snapshot() const;

  // An intent; or nothing: it is so already. Invalid, Exists (it is another), NotFound, Conflict (something else is under way, another node has it, the generation is old), Exhausted, Unsupported. `limit`: bytes that may be promised in all.
  using Begun = Result<std::optional<Intent>>;
  // key: it is encrypted; what is made of an encrypted one is so by the same key, and of a plain one is plain.
  // managed: what a volume has that is shown by an engine; none: it is shown as it is, and has no limits.
  Begun create(const std::string& id, std::int64_t size, const std::string& source, const std::string& owner, std::int64_t limit, const std::optional<Limits>& managed = {}, const std::string& key = "") const;
  Begun take_snapshot(const std::string& id, const std::string& of, const std::string& owner, std::int64_t limit) const;
  Begun grow(const std::string& id, std::int64_t size, std::int64_t limit) const;
  Begun remove(const std::string& id, const std::string& owner) const;  // owner: empty: whoever's
  // One node that writes, or any number that read, on however many machines. `shown`: is there a device that shows it on the node's machine? After a reboot there is none: the same attachment is made anew, where it was.
  Begun attach(const std::string& id, const std::string& node, bool read_only, bool shown, const std::string& host = "") const;
  Begun detach(const std::string& id, const std::string& node, std::int64_t generation) const;
  // Of one that is shut out where it is shown: whatever else is under way goes on without that machine. NotFound: the node does not have it.
  Result<Intent> detach_by_force(const std::string& id, const std::string& node) const;
  Begun set_limits(const std::string& id, const Limits& limits) const;

  static kube::Json record_of(const Intent& intent);
  // It is another's from here on. NotFound.
  Result<kube::Json> give(const std::string& id, const std::string& owner) const;
  static kube::Json end_of(const Intent& intent, bool undone, const std::string& device = "");

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::int64_t, Intent>& under_way() const { return under_way_; }
  std::int64_t promised() const;    // bytes
  const std::string& pool() const { return pool_; }

 private:
  std::string host_of(const Intent& intent) const;  // of Attach, Detach and Leave: the machine
  // What is under way with this id: the same is gone on with, another is in its way, unless both are of machines that read it, and of different ones.
  Begun unless_under_way(Intent intent) const;
  Result<const Entry*> find(const std::string& id, bool snapshot) const;
  Result<void> check_room(std::int64_t more, std::int64_t limit) const;

  std::string pool_;
  std::map<std::string, Entry> entries_;
  std::map<std::int64_t, Intent> under_way_;  // by number
  std::int64_t last_ = 0;                     // number that was given out
};

}  // namespace fairlead::volumes
