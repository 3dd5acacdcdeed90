// SPDX-License-Identifier: Apache-2.0
#include "volumes/plan/decide.h"

#include <fmt/format.h>

#include "base/units.h"

namespace fairlead::volumes {

using kube::Json;
using Do = Task::Do;

namespace {

Task tell(std::string phase, std::string message = "", bool soon = false) { return {.what = Do::Nothing, .size = 0, .source = {}, .generation = 0, .phase = std::move(phase), .message = std::move(message), .soon = soon}; }
Task act(Do what, std::string phase = "", std::int64_t size = 0, std::string source = "", std::int64_t generation = 0) { return {.what = what, .size = size, .source = std::move(source), .generation = generation, .phase = std::move(phase), .message = {}, .soon = false}; }

// What holds for all three before anything else is looked at.
std::optional<Task> first_of_all(const Json& object, const Known& known) {
  const std::string& told = object["status"]["poolID"].string();
  if (!told.empty() && told != known.pool_id) return tell("Unknown", fmt::format("it was made in pool {}, and the pool of that name is {} now: nothing is done until that is back", told, known.pool_id));
  if (!kube::deleting(object) && !kube::has_finalizer(object, api::kVolumeFinalizer)) return act(Do::AddFinalizer);
  if (kube::deleting(object) && !kube::has_finalizer(object, api::kVolumeFinalizer)) return tell("Deleting");
  return std::nullopt;
}

// Of Volume and Snapshot, which are entries of their own.
std::optional<Task> of_entry(const Json& object, const Known& known, bool snapshot) {
  if (auto first = first_of_all(object, known)) return first;
  const bool own = known.entry && known.entry->owner == kube::uid_of(object);
  if (kube::deleting(object)) return own ? act(Do::Remove, "Deleting") : act(Do::DropFinalizer);
  if (known.entry && !own) {
    if (object["metadata"]["annotations"][api::kAdoptNote].string() == "true" && known.entry->snapshot == snapshot && known.entry->there) return act(Do::Adopt);
    return tell("Failed", fmt::format("the pool has {} {} already that is not of this object: choose another name{}", known.entry->snapshot ? "a snapshot" : "a volume", kube::name_of(object),
                                      known.entry->snapshot == snapshot ? fmt::format(", or take it over ({}: \"true\")", api::kAdoptNote) : ""));
  }
  if (!known.entry && !object["status"]["poolID"].string().empty()) return tell("Lost", "the pool has it no more, and makes nothing in its place");
  return std::nullopt;
}

// The object that is the source is there, and what the pool has under that name is its own.
std::optional<std::string> no_source(const Known& known, bool snapshot, const std::string& name) {
  if (!known.source || kube::deleting(*known.source)) return fmt::format("there is no {} {}", snapshot ? "snapshot" : "volume", name);
  if (!known.source_entry || !known.source_entry->there) return fmt::format("{} is not ready yet", name);
  if (known.source_entry->snapshot != snapshot || known.source_entry->owner != kube::uid_of(*known.source)) return fmt::format("what the pool has as {} is not of the object of that name", name);
  return std::nullopt;
}

}  // namespace

std::int64_t stall_milliseconds(std::int64_t extents) { return 1 + extents / 10; }

Task decide_volume(const Json& object, const Known& known) {
  if (auto first = of_entry(object, known, false)) return *first;
  const auto spec = api::read_volume(object);
  if (!spec) return tell("Failed", spec.error().message);
  if ((spec->klass == api::kDistributed) != known.distributed) return tell("Failed", known.distributed ? fmt::format("pool {} lies in Ceph: its volumes are of class {}, and of no other", spec->pool, api::kDistributed) : fmt::format("pool {} has no class {}: that is of pools in Ceph (fairlead volume pools)", spec->pool, api::kDistributed));
  const std::string source = spec->from_volume.empty() ? spec->from_snapshot : spec->from_volume;
  if (!known.entry || !known.entry->there) {
    // What has begun is gone on with by what it was.
    const std::int64_t size = known.entry ? known.entry->size : spec->size;
    if (!source.empty() && !known.entry)
      if (auto why = no_source(known, spec->from_volume.empty(), source)) return tell("Failed", *why, true);
    Task out = act(Do::Make, "Creating", size, source);
    if (known.entry ? known.entry->managed : spec->klass != api::kLocalFast) out.managed = known.entry ? known.entry->limits : Limits{.iops = spec->iops, .bytes_per_second = spec->throughput};
    if (known.entry ? !known.entry->key.empty() : spec->encrypted) out.key = known.entry ? known.entry->key : spec->key.empty() ? std::string(api::kServiceKey) : spec->key;
    return out;
  }
  if (known.entry->key.empty() && spec->encrypted) return tell("Failed", "the pool has it, and it is not encrypted");
  if (known.entry->managed != (spec->klass != api::kLocalFast)) return tell("Failed", fmt::format("the pool has it as one of class {}", known.entry->managed ? api::kLocalManaged : api::kLocalFast));
  // What has begun is gone on with, whatever is wished by now: a size is promised from the first moment and says nothing of whether it has come about, and limits may have been wished back.
  if (known.begun && known.begun->what == What::Grow) return act(Do::Grow, "Growing", known.begun->size);
  if (known.begun && known.begun->what == What::Limit) {
    Task out = act(Do::Limit, known.entry->attached() ? "InUse" : "Available");
    out.managed = known.begun->limits;
    return out;
  }
  if (const Limits limits{.iops = spec->iops, .bytes_per_second = spec->throughput}; known.entry->managed && limits != known.entry->limits) {
    Task out = act(Do::Limit, known.entry->attached() ? "InUse" : "Available");
    out.managed = limits;
    return out;
  }
  if (spec->size > known.entry->size) return act(Do::Grow, "Growing", spec->size);
  Task out = tell(known.entry->attached() ? "InUse" : "Available");
  if (spec->size < known.entry->size) out.message = fmt::format("a volume does not shrink: it has {}", print(Bytes{known.entry->size}));
  return out;
}

Task decide_snapshot(const Json& object, const Known& known) {
  if (auto first = of_entry(object, known, true)) return *first;
  const std::string& volume = object["spec"]["volume"].string();
  if (!api::is_volume_name(kube::name_of(object))) return tell("Failed", "metadata.name: 1 to 63 of a-z 0-9 and - are expected");
  if (known.entry && known.entry->there) return tell("Ready");
  if (!known.entry) {
    if (auto why = no_source(known, false, volume)) return tell("Failed", *why, true);
    if ((*known.source)["spec"]["pool"].string() != object["spec"]["pool"].string()) return tell("Failed", fmt::format("volume {} is in pool {}", volume, (*known.source)["spec"]["pool"].string()));
  }
  return act(Do::Make, "Taking", 0, volume);
}

Task decide_attachment(const Json& object, const Known& known) {
  if (auto first = first_of_all(object, known)) return *first;
  const std::string &volume = object["spec"]["volume"].string(), &node = object["spec"]["node"].string();
  const bool own = known.source && known.entry && known.entry->owner == kube::uid_of(*known.source);
  if (kube::deleting(object)) {
    if (!known.entry) return act(Do::DropFinalizer);
    const auto at = known.entry->nodes.find(node);
    const bool here = at != known.entry->nodes.end();
    // One of several that read it may be on its way in still; beside one that writes there is none.
    if (!here && known.entry->attached() && !known.entry->read_only) return act(Do::DropFinalizer);
    // Of a volume whose object is gone it is what was told that says so.
    const std::int64_t told = object["status"]["generation"].integer(), generation = here ? at->second : known.entry->generation;
    if (own || (told > 0 && told == generation)) return act(Do::Detach, "Detaching", 0, "", generation);
    return here ? tell("Unknown", fmt::format("the pool shows {} to this node for somebody else", volume)) : act(Do::DropFinalizer);
  }
  if (auto why = no_source(known, false, volume)) return tell(known.source && !kube::deleting(*known.source) ? "Attaching" : "Failed", *why, true);
  if (!own) return tell("Failed", fmt::format("what the pool has as {} is not of the object of that name", volume));
  if (!known.reached) return tell("Failed", fmt::format("node {} does not reach pool {}", node, object["spec"]["pool"].string()), true);
  return act(Do::Attach, "Attaching");
}

}  // namespace fairlead::volumes
