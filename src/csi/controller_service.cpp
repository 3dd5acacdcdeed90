// SPDX-License-Identifier: Apache-2.0
#include "csi/controller_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace fairlead::csi {

using kube::Json;
using namespace std::chrono_literals;
namespace resources = kube::resources;

namespace {

Status invalid(std::string why) { return refuse(StatusCode::INVALID_ARGUMENT, std::move(why)); }
Status busy(const std::string& id) { return refuse(StatusCode::ABORTED, fmt::format("another operation on {} is under way", id)); }

constexpr auto kFirstPause = 2ms;           // between two looks, where no change is told; doubled
constexpr auto kLongestPause = 100ms;       // and where changes are told, for a watch may be broken
constexpr std::int64_t kLeastOfAny = 4096;  // of a source that need not be looked at any more

bool is_there(const Json& volume) { return volume["status"]["phase"].string() == "Available" || volume["status"]["phase"].string() == "InUse"; }
bool is_failed(const std::string& phase) { return phase == "Failed" || phase == "Lost" || phase == "Unknown"; }

wire::VolumeCondition condition_of(const Json& volume) {
  wire::VolumeCondition out;
  const std::string& phase = volume["status"]["phase"].string();
  out.set_abnormal(is_failed(phase));
  out.set_message(is_failed(phase) ? fmt::format("{}: {}", phase, volume["status"]["message"].string()) : phase.empty() ? "it is being made" : phase);
  return out;
}

std::int64_t size_of(const Json& volume) {
  if (volume["status"].has("sizeBytes")) return volume["status"]["sizeBytes"].integer();
  const auto size = api::parse_volume_size(volume["spec"]["size"]);
  return size ? *size : 0;
}

void write_volume(const Json& volume, wire::Volume& out) {
  const Json& spec = volume["spec"];
  out.set_volume_id(kube::name_of(volume));
  out.set_capacity_bytes(size_of(volume));
  (*out.mutable_volume_context())["class"] = spec["class"].string_or(api::kLocalFast);
  if (const std::string& snapshot = spec["source"]["snapshot"].string(); !snapshot.empty()) out.mutable_content_source()->mutable_snapshot()->set_snapshot_id(snapshot);
  if (const std::string& from = spec["source"]["volume"].string(); !from.empty()) out.mutable_content_source()->mutable_volume()->set_volume_id(from);
  // Of nodes that reach its pool, as their first or a further one.
  const std::string& pool = spec["pool"].string();
  (*out.add_accessible_topology()->mutable_segments())[api::kPoolLabel] = pool;
  (*out.add_accessible_topology()->mutable_segments())[api::kFurtherPool + pool] = "true";
}

void write_snapshot(const Json& snapshot, wire::Snapshot& out) {
  const Json& status = snapshot["status"];
  out.set_snapshot_id(kube::name_of(snapshot));
  out.set_source_volume_id(snapshot["spec"]["volume"].string());
  out.set_size_bytes(status["sizeBytes"].integer());
  out.set_ready_to_use(status["phase"].string() == "Ready");
  const auto taken = parse_time(status.has("takenAt") ? status["takenAt"].string() : snapshot["metadata"]["creationTimestamp"].string());
  if (!taken) return;
  const std::int64_t nanos = taken->time_since_epoch().count();
  out.mutable_creation_time()->set_seconds(nanos / 1'000'000'000);
  out.mutable_creation_time()->set_nanos(static_cast<std::int32_t>(nanos % 1'000'000'000));
}

// The name of an object for what a client calls so.
void name_it(Json& object, const std::string& requested) {
  if (kube::name_of(object) != requested) object.child("metadata").child("annotations").set(api::kRequestedName, requested);
}
const std::string& requested_name(const Json& object) {
  const std::string& told = object["metadata"]["annotations"][api::kRequestedName].string();
  return told.empty() ? kube::name_of(object) : told;
}

std::vector<std::string> names_of(std::vector<Json>& objects) {
  std::sort(objects.begin(), objects.end(), [](const Json& a, const Json& b) { return kube::name_of(a) < kube::name_of(b); });
  std::vector<std::string> out;
  for (const Json& one : objects) out.push_back(kube::name_of(one));
  return out;
}

}  // namespace

ControllerService::ControllerService(kube::KubeApi& api, const Clock& clock, ControllerOptions options)
    : api_(api), clock_(clock), options_(std::move(options)), changes_(api, {api::kVolumes, api::kAttachments, api::kSnapshots}) {}

Status ControllerService::find(const kube::Resource& resource, const std::string& id, Json& out) {
  const char* const what = resource.kind == "Snapshot" ? "snapshot" : "volume";
  if (id.empty()) return invalid(fmt::format("{}_id: it is missing", what));
  if (!api::is_volume_name(id)) return refuse(StatusCode::NOT_FOUND, fmt::format("there is no {} {}", what, id.substr(0, 128)));
  auto got = api_.get(resource, {"", id});
  if (!got && got.error().code == Code::NotFound) return refuse(StatusCode::NOT_FOUND, fmt::format("there is no {} {}", what, id));
  if (!got) return status_of(got.error());
  out = std::move(*got);
  return Status::OK;
}

Status ControllerService::await(const kube::Resource& resource, const std::string& name, const std::function<bool(const Json&)>& done, bool made, Json& out) {
  auto waiter = changes_.waiter(resource, {"", name});
  const auto deadline = clock_.monotonic() + options_.patience;
  for (std::chrono::milliseconds pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    auto got = api_.get(resource, {"", name});
    if (!got) return got.error().code == Code::NotFound ? refuse(StatusCode::ABORTED, fmt::format("{} {} was deleted meanwhile", resource.kind, name)) : status_of(got.error());
    out = std::move(*got);
    if (done(out)) return Status::OK;
    const std::string &phase = out["status"]["phase"].string(), message = fmt::format("{} {}: {}", resource.kind, name, out["status"]["message"].string());
    if (is_failed(phase)) {
      // It would be tried for ever where it cannot be; the next call may choose otherwise.
      const bool never_was = phase == "Failed" && out["status"]["poolID"].string().empty();
      if (made || never_was) (void)api_.remove(resource, {"", name}, {.uid = kube::uid_of(out)});
      return refuse(message.find("may promise") != std::string::npos || message.find("No space left") != std::string::npos ? StatusCode::RESOURCE_EXHAUSTED : StatusCode::FAILED_PRECONDITION, message);
    }
    if (clock_.monotonic() > deadline) {
      const auto pool = api_.get(api::kVolumePools, {"", out["spec"]["pool"].string()});
      const auto heard = pool ? api::read_pool(*pool).heard : std::optional<Instant>();
      if (pool && (!heard || clock_.now() - *heard > api::kPoolSilence)) return refuse(StatusCode::UNAVAILABLE, fmt::format("pool {} is silent{}: {} {} waits for it", out["spec"]["pool"].string(), heard ? " since " + print_time(*heard) : "", resource.kind, name));
      return refuse(StatusCode::ABORTED, fmt::format("{} {} is {} still; it goes on", resource.kind, name, phase.empty() ? "waiting" : phase));
    }
    waiter.wait(changes_.synced() ? kLongestPause : pause);
  }
}

Status ControllerService::await_gone(const kube::Resource& resource, const std::string& name, const std::string& uid) {
  auto waiter = changes_.waiter(resource, {"", name});
  const auto begun = clock_.monotonic(), deadline = begun + options_.patience;
  std::optional<bool> told_before;
  for (std::chrono::milliseconds pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    const auto got = api_.get(resource, {"", name});
    if (!got && got.error().code == Code::NotFound) return Status::OK;
    if (!got) return status_of(got.error());
    if (kube::uid_of(*got) != uid) return Status::OK;
    const std::string& message = (*got)["status"]["message"].string();
    // What somebody uses will not go by waiting; all else that a detachment waits for may. What an earlier call was told may be past: the pool looks again each second.
    const bool used = (*got)["status"]["reason"].string() == "InUse";
    if (!told_before) told_before = used;
    if (used && (!*told_before || clock_.monotonic() - begun > 2s)) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("{} {}: {}", resource.kind, name, message));
    if (clock_.monotonic() > deadline) return refuse(StatusCode::ABORTED, fmt::format("{} {} is being deleted still{}{}", resource.kind, name, message.empty() ? "" : ": ", message));
    waiter.wait(changes_.synced() ? kLongestPause : pause);
  }
}

Result<std::vector<Json>> ControllerService::attachments_of(const std::string& volume) {
  auto all = api_.list(api::kAttachments, "");
  if (!all) return pass(std::move(all.error()), "list the attachments");
  std::vector<Json> out;
  for (Json& one : all->items)
    if (volume.empty() || one["spec"]["volume"].string() == volume) out.push_back(std::move(one));
  return out;
}

Status ControllerService::CreateVolume(Context*, const wire::CreateVolumeRequest* request, wire::CreateVolumeResponse* response) {
  if (auto status = check_name(request->name(), "name"); !status.ok()) return status;
  if (auto status = check_capabilities(request->volume_capabilities()); !status.ok()) return status;
  // Nobody could ever write to it.
  if (!request->has_volume_content_source() && std::all_of(request->volume_capabilities().begin(), request->volume_capabilities().end(), is_for_many)) return invalid("volume_capabilities: MULTI_NODE_READER_ONLY: an empty volume that nobody writes is of no use: say what it is to be a copy of (volume_content_source)");
  Parameters parameters;
  if (auto status = read_parameters(request->parameters(), parameters); !status.ok()) return status;
  if (auto status = read_mutable(request->mutable_parameters(), parameters); !status.ok()) return status;
  api::VolumeSpec spec{.pool = parameters.pool, .klass = parameters.klass, .size = 0, .from_volume = {}, .from_snapshot = {}, .iops = parameters.iops.value_or(0), .throughput = parameters.throughput.value_or(0), .encrypted = parameters.encrypted, .key = parameters.key};
  std::int64_t least = 0;
  std::string source_pool;
  if (request->has_volume_content_source()) {
    const auto& source = request->volume_content_source();
    if (source.type_case() == wire::VolumeContentSource::TYPE_NOT_SET) return invalid("volume_content_source: snapshot or volume is expected");
    Json object = Json::object();
    const bool snapshot = source.has_snapshot();
    const std::string& id = snapshot ? source.snapshot().snapshot_id() : source.volume().volume_id();
    // What was made of it before stays what it is, whatever became of the source.
    const auto before = api_.get(api::kVolumes, {"", api::name_for(request->name(), "vol-")});
    const Json& told = before ? (*before)["spec"]["source"][snapshot ? "snapshot" : "volume"] : Json();
    if (before && told.string() == id && (*before)["status"].has("sizeBytes")) {
      object.set("status", Json::object({{"sizeBytes", kLeastOfAny}})).set("spec", Json::object({{"pool", (*before)["spec"]["pool"]}}));
    } else if (auto status = find(snapshot ? api::kSnapshots : api::kVolumes, id, object); !status.ok()) {
      return status;
    }
    (snapshot ? spec.from_snapshot : spec.from_volume) = id;
    least = object["status"]["sizeBytes"].integer();
    source_pool = object["spec"]["pool"].string();
    if (least == 0) return refuse(StatusCode::UNAVAILABLE, fmt::format("{} is not ready yet", id));
  }
  if (auto status = choose_size(request->has_capacity_range() ? &request->capacity_range() : nullptr, least, spec.size); !status.ok()) return status;
  const std::string name = api::name_for(request->name(), "vol-");
  const auto turn = busy_.take(name);
  if (!turn) return busy(name);

  auto there = api_.get(api::kVolumes, {"", name});
  if (!there && there.error().code != Code::NotFound) return status_of(there.error());
  bool made = false;
  if (there) {
    const std::int64_t size = size_of(*there);
    const auto& range = request->capacity_range();
    const auto same = api::read_volume(*there);
    const bool fits = size >= range.required_bytes() && (range.limit_bytes() == 0 || size <= range.limit_bytes());
    if (requested_name(*there) != request->name() || !same || !fits || same->from_volume != spec.from_volume || same->from_snapshot != spec.from_snapshot || (!parameters.klass.empty() && same->klass != spec.klass) || same->encrypted != spec.encrypted || same->key != spec.key || (!parameters.pool.empty() && same->pool != parameters.pool))
      return refuse(StatusCode::ALREADY_EXISTS, fmt::format("volume {} is there, and is another: {}{}", name, print(Bytes{size}), same && !same->from_snapshot.empty() ? " of " + same->from_snapshot : ""));
    if (kube::deleting(*there)) return refuse(StatusCode::ABORTED, fmt::format("volume {} is being deleted", name));
    std::vector<std::vector<std::string>> preferred;
    std::vector<std::string> allowed;
    if (auto status = read_topology(request->accessibility_requirements(), preferred, allowed); !status.ok()) return status;
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), same->pool) == allowed.end()) return refuse(StatusCode::ALREADY_EXISTS, fmt::format("volume {} is in pool {}, which is not among those that are allowed now", name, same->pool));
  } else {
    std::vector<std::vector<std::string>> preferred;
    std::vector<std::string> allowed;
    if (auto status = read_topology(request->accessibility_requirements(), preferred, allowed); !status.ok()) return status;
    auto list = api_.list(api::kVolumePools, "");
    if (!list) return status_of(list.error());
    std::vector<api::PoolFacts> pools;
    for (const Json& one : list->items) pools.push_back(api::read_pool(one));
    // What is pinned first; then what the scheduler would rather have, in its order; then all that is allowed.
    std::vector<std::vector<std::string>> tries;
    const auto ok = [&](const std::string& pool) { return (allowed.empty() || std::find(allowed.begin(), allowed.end(), pool) != allowed.end()) && (source_pool.empty() || pool == source_pool) && (parameters.pool.empty() || pool == parameters.pool); };
    if (!source_pool.empty() && !ok(source_pool)) return refuse(StatusCode::RESOURCE_EXHAUSTED, fmt::format("what it is made of is in pool {}, which is not among those that are allowed", source_pool));
    if (!source_pool.empty()) tries.push_back({source_pool});
    else if (!parameters.pool.empty()) {
      if (!ok(parameters.pool)) return refuse(StatusCode::RESOURCE_EXHAUSTED, fmt::format("pool {} is not among those that are allowed", parameters.pool));
      tries.push_back({parameters.pool});
    } else {
      for (const auto& one : preferred) tries.push_back(one);
      tries.push_back(allowed);
    }
    Result<api::PoolAndClass> chosen = fail(Code::Exhausted, "no pool");
    for (const auto& one : tries)
      if (chosen = api::choose_pool_and_class(pools, {.size = spec.size, .klass = spec.klass, .pools = one, .node = {}}, parameters.engine(), clock_.now()); chosen) break;
    // Which pool there is may be another at the next try; none is no fault of the request.
    if (!chosen) return refuse(chosen.error().code == Code::Unavailable ? StatusCode::UNAVAILABLE : StatusCode::RESOURCE_EXHAUSTED, chosen.error().message);
    spec.pool = chosen->pool, spec.klass = chosen->klass;
    Json object = api::new_volume(name, spec);
    name_it(object, request->name());
    for (const auto& [key, value] : parameters.tags) object.child("spec").child("tags").set(key, value);
    auto created = api_.create(api::kVolumes, object);
    if (!created && created.error().code == Code::Exists) return busy(name);
    if (!created) return status_of(created.error());
    made = true;
  }
  Json now;
  if (auto status = await(api::kVolumes, name, is_there, made, now); !status.ok()) return status;
  write_volume(now, *response->mutable_volume());
  return Status::OK;
}

Status ControllerService::DeleteVolume(Context*, const wire::DeleteVolumeRequest* request, wire::DeleteVolumeResponse*) {
  const std::string& id = request->volume_id();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (!api::is_volume_name(id)) return Status::OK;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  Json volume;
  if (auto status = find(api::kVolumes, id, volume); !status.ok()) return status.error_code() == StatusCode::NOT_FOUND ? Status::OK : status;
  const auto attachments = attachments_of(id);
  if (!attachments) return status_of(attachments.error());
  if (!attachments->empty()) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is attached to {}", id, attachments->front()["spec"]["node"].string()));
  if (auto done = api_.remove(api::kVolumes, {"", id}, {.uid = kube::uid_of(volume)}); !done && done.error().code != Code::NotFound) return status_of(done.error());
  return await_gone(api::kVolumes, id, kube::uid_of(volume));
}

Status ControllerService::ControllerPublishVolume(Context*, const wire::ControllerPublishVolumeRequest* request, wire::ControllerPublishVolumeResponse* response) {
  const std::string &id = request->volume_id(), &node = request->node_id();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (node.empty()) return invalid("node_id: it is missing");
  if (!request->has_volume_capability()) return invalid("volume_capability: it is missing");
  if (auto status = check_capability(request->volume_capability()); !status.ok()) return status;
  Json volume;
  if (auto status = find(api::kVolumes, id, volume); !status.ok()) return status;
  if (const auto there = api_.get(resources::nodes, {"", node}); !there) return there.error().code == Code::NotFound || there.error().code == Code::Invalid ? refuse(StatusCode::NOT_FOUND, fmt::format("there is no node {}", node.substr(0, 253))) : status_of(there.error());
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  const bool read_only = request->readonly() || is_read_only(request->volume_capability());
  const std::string name = api::attachment_name(id, node);
  const auto all = attachments_of("");
  if (!all) return status_of(all.error());
  bool made = true;
  int on_node = 0;
  for (const Json& one : *all) {
    const std::string& at = one["spec"]["node"].string();
    on_node += at == node ? 1 : 0;
    if (one["spec"]["volume"].string() != id) continue;
    const bool reads = one["spec"]["readOnly"].boolean();
    if (at != node && reads && read_only) continue;
    if (at != node) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is attached to {}{}: one node at a time has a volume, or several that all read it", id, at, reads ? ", read-only" : ""));
    if (one["spec"]["readOnly"].boolean() != read_only) return refuse(StatusCode::ALREADY_EXISTS, fmt::format("volume {} is attached to {} {}", id, node, read_only ? "for writing" : "read-only"));
    if (kube::deleting(one)) return refuse(StatusCode::ABORTED, fmt::format("volume {} is being detached from {}", id, node));
    made = false;
  }
  if (made && on_node >= options_.most_volumes_per_node) return refuse(StatusCode::RESOURCE_EXHAUSTED, fmt::format("node {} has {} volumes, the most that it may have", node, on_node));
  if (made) {
    Json attachment = api::new_attachment(id, volume["spec"]["pool"].string(), node, read_only, request->volume_capability().has_mount());
    attachment.child("metadata").set("labels", Json::object({{api::kForPods, "csi"}}));
    if (auto created = api_.create(api::kAttachments, attachment); !created) return created.error().code == Code::Exists ? busy(id) : status_of(created.error());
  }
  Json now;
  if (auto status = await(api::kAttachments, name, [](const Json& one) { return one["status"]["phase"].string() == "Attached"; }, made, now); !status.ok()) return status;
  (*response->mutable_publish_context())["device"] = now["status"]["device"].string();
  (*response->mutable_publish_context())["generation"] = std::to_string(now["status"]["generation"].integer());
  if (read_only) (*response->mutable_publish_context())["readOnly"] = "true";
  return Status::OK;
}

Status ControllerService::ControllerUnpublishVolume(Context*, const wire::ControllerUnpublishVolumeRequest* request, wire::ControllerUnpublishVolumeResponse*) {
  const std::string &id = request->volume_id(), &node = request->node_id();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (!api::is_volume_name(id)) return Status::OK;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  const auto all = attachments_of(id);
  if (!all) return status_of(all.error());
  for (const Json& one : *all) {
    if (!node.empty() && one["spec"]["node"].string() != node) continue;
    if (auto done = api_.remove(api::kAttachments, kube::key_of(one), {.uid = kube::uid_of(one)}); !done && done.error().code != Code::NotFound) return status_of(done.error());
    if (auto status = await_gone(api::kAttachments, kube::name_of(one), kube::uid_of(one)); !status.ok()) return status;
  }
  return Status::OK;
}

Status ControllerService::ValidateVolumeCapabilities(Context*, const wire::ValidateVolumeCapabilitiesRequest* request, wire::ValidateVolumeCapabilitiesResponse* response) {
  if (request->volume_id().empty()) return invalid("volume_id: it is missing");
  if (request->volume_capabilities().empty()) return invalid("volume_capabilities: one at least is expected");
  Json volume;
  if (auto status = find(api::kVolumes, request->volume_id(), volume); !status.ok()) return status;
  Parameters parameters;
  for (const Status& status : {check_capabilities(request->volume_capabilities()), read_parameters(request->parameters(), parameters), read_mutable(request->mutable_parameters(), parameters)})
    if (!status.ok()) return response->set_message(status.error_message()), Status::OK;
  *response->mutable_confirmed()->mutable_volume_capabilities() = request->volume_capabilities();
  *response->mutable_confirmed()->mutable_volume_context() = request->volume_context();
  *response->mutable_confirmed()->mutable_parameters() = request->parameters();
  *response->mutable_confirmed()->mutable_mutable_parameters() = request->mutable_parameters();
  return Status::OK;
}

Status ControllerService::ListVolumes(Context*, const wire::ListVolumesRequest* request, wire::ListVolumesResponse* response) {
  auto all = api_.list(api::kVolumes, "");
  if (!all) return status_of(all.error());
  auto attachments = attachments_of("");
  if (!attachments) return status_of(attachments.error());
  Page page;
  if (auto status = page_of(names_of(all->items), request->max_entries(), request->starting_token(), page); !status.ok()) return status;
  for (std::size_t i = page.from; i < page.to; ++i) {
    const Json& volume = all->items[i];
    auto* entry = response->add_entries();
    write_volume(volume, *entry->mutable_volume());
    *entry->mutable_status()->mutable_volume_condition() = condition_of(volume);
    for (const Json& one : *attachments)
      if (one["spec"]["volume"].string() == kube::name_of(volume)) entry->mutable_status()->add_published_node_ids(one["spec"]["node"].string());
  }
  response->set_next_token(page.next);
  return Status::OK;
}

Status ControllerService::GetCapacity(Context*, const wire::GetCapacityRequest* request, wire::GetCapacityResponse* response) {
  Parameters parameters;
  if (auto status = read_parameters(request->parameters(), parameters); !status.ok()) return status;
  for (const auto& one : request->volume_capabilities())
    if (!check_capability(one).ok()) return response->set_available_capacity(0), Status::OK;
  auto list = api_.list(api::kVolumePools, "");
  if (!list) return status_of(list.error());
  std::vector<std::string> wanted;
  read_segments(request->accessible_topology(), wanted);
  const bool anywhere = request->accessible_topology().segments().empty();
  std::int64_t left = 0, largest = 0;
  for (const std::string& klass : parameters.klass.empty() ? api::meant_classes(parameters.engine()) : std::vector{parameters.klass}) {
    bool any = false;
    for (const Json& one : list->items) {
      const auto pool = api::read_pool(one);
      if ((!anywhere && std::find(wanted.begin(), wanted.end(), pool.name) == wanted.end()) || (!parameters.pool.empty() && parameters.pool != pool.name)) continue;
      if (std::find(pool.classes.begin(), pool.classes.end(), klass) == pool.classes.end()) continue;
      any = true;
      if (!pool.heard || clock_.now() - *pool.heard > api::kPoolSilence) continue;  // what is not known is not offered
      left += pool.left();
      largest = std::max(largest, pool.left());
    }
    if (any) break;
  }
  response->set_available_capacity(left);
  response->mutable_maximum_volume_size()->set_value(std::min(largest, api::kMostVolume));
  response->mutable_minimum_volume_size()->set_value(api::kLeastVolume);
  return Status::OK;
}

Status ControllerService::ControllerGetCapabilities(Context*, const wire::ControllerGetCapabilitiesRequest*, wire::ControllerGetCapabilitiesResponse* response) {
  using Rpc = wire::ControllerServiceCapability::RPC;
  for (const auto type : {Rpc::CREATE_DELETE_VOLUME, Rpc::PUBLISH_UNPUBLISH_VOLUME, Rpc::LIST_VOLUMES, Rpc::GET_CAPACITY, Rpc::CREATE_DELETE_SNAPSHOT, Rpc::LIST_SNAPSHOTS, Rpc::CLONE_VOLUME, Rpc::PUBLISH_READONLY, Rpc::EXPAND_VOLUME, Rpc::LIST_VOLUMES_PUBLISHED_NODES, Rpc::VOLUME_CONDITION, Rpc::GET_VOLUME, Rpc::SINGLE_NODE_MULTI_WRITER, Rpc::MODIFY_VOLUME, Rpc::GET_SNAPSHOT})
    response->add_capabilities()->mutable_rpc()->set_type(type);
  return Status::OK;
}

Status ControllerService::CreateSnapshot(Context*, const wire::CreateSnapshotRequest* request, wire::CreateSnapshotResponse* response) {
  if (auto status = check_name(request->name(), "name"); !status.ok()) return status;
  const std::string& id = request->source_volume_id();
  if (id.empty()) return invalid("source_volume_id: it is missing");
  for (const auto& [key, value] : request->parameters())
    if (!key.starts_with("csi.storage.k8s.io/")) return invalid(fmt::format("parameters: there is no \"{}\"", key.substr(0, 60)));
  const std::string name = api::name_for(request->name(), "snap-");
  const auto turn = busy_.take(name);
  if (!turn) return busy(name);
  auto there = api_.get(api::kSnapshots, {"", name});
  if (!there && there.error().code != Code::NotFound) return status_of(there.error());
  const bool made = !there;
  if (there) {
    if ((*there)["spec"]["volume"].string() != id || requested_name(*there) != request->name()) return refuse(StatusCode::ALREADY_EXISTS, fmt::format("snapshot {} is there, of volume {}", name, (*there)["spec"]["volume"].string()));
    if (kube::deleting(*there)) return refuse(StatusCode::ABORTED, fmt::format("snapshot {} is being deleted", name));
  } else {
    Json volume;
    if (auto status = find(api::kVolumes, id, volume); !status.ok()) return status;
    Json object = api::new_snapshot(name, id, volume["spec"]["pool"].string());
    name_it(object, request->name());
    if (auto created = api_.create(api::kSnapshots, object); !created) return created.error().code == Code::Exists ? busy(name) : status_of(created.error());
  }
  Json now;
  if (auto status = await(api::kSnapshots, name, [](const Json& one) { return one["status"]["phase"].string() == "Ready"; }, made, now); !status.ok()) return status;
  write_snapshot(now, *response->mutable_snapshot());
  return Status::OK;
}

Status ControllerService::DeleteSnapshot(Context*, const wire::DeleteSnapshotRequest* request, wire::DeleteSnapshotResponse*) {
  const std::string& id = request->snapshot_id();
  if (id.empty()) return invalid("snapshot_id: it is missing");
  if (!api::is_volume_name(id)) return Status::OK;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  Json snapshot;
  if (auto status = find(api::kSnapshots, id, snapshot); !status.ok()) return status.error_code() == StatusCode::NOT_FOUND ? Status::OK : status;
  if (auto done = api_.remove(api::kSnapshots, {"", id}, {.uid = kube::uid_of(snapshot)}); !done && done.error().code != Code::NotFound) return status_of(done.error());
  return await_gone(api::kSnapshots, id, kube::uid_of(snapshot));
}

Status ControllerService::ListSnapshots(Context*, const wire::ListSnapshotsRequest* request, wire::ListSnapshotsResponse* response) {
  auto all = api_.list(api::kSnapshots, "");
  if (!all) return status_of(all.error());
  std::erase_if(all->items, [&](const Json& one) { return (!request->snapshot_id().empty() && kube::name_of(one) != request->snapshot_id()) || (!request->source_volume_id().empty() && one["spec"]["volume"].string() != request->source_volume_id()); });
  Page page;
  if (auto status = page_of(names_of(all->items), request->max_entries(), request->starting_token(), page); !status.ok()) return status;
  for (std::size_t i = page.from; i < page.to; ++i) write_snapshot(all->items[i], *response->add_entries()->mutable_snapshot());
  response->set_next_token(page.next);
  return Status::OK;
}

Status ControllerService::GetSnapshot(Context*, const wire::GetSnapshotRequest* request, wire::GetSnapshotResponse* response) {
  Json snapshot;
  if (auto status = find(api::kSnapshots, request->snapshot_id(), snapshot); !status.ok()) return status;
  write_snapshot(snapshot, *response->mutable_snapshot());
  return Status::OK;
}

// Who was overtaken reads it again.
Status ControllerService::change(const std::string& id, const std::function<Status(Json&)>& edit, Json& out) {
  for (int turn = 0; turn < 10; ++turn) {
    if (auto status = find(api::kVolumes, id, out); !status.ok()) return status;
    const Json before = out;
    if (auto status = edit(out); !status.ok() || out == before) return status;
    auto done = api_.update(api::kVolumes, out);
    if (done) return out = std::move(*done), Status::OK;
    if (done.error().code != Code::Conflict) return status_of(done.error());
  }
  return busy(id);
}

Status ControllerService::ControllerExpandVolume(Context*, const wire::ControllerExpandVolumeRequest* request, wire::ControllerExpandVolumeResponse* response) {
  const std::string& id = request->volume_id();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (!request->has_capacity_range()) return invalid("capacity_range: it is missing");
  if (request->has_volume_capability())
    if (auto status = check_capability(request->volume_capability()); !status.ok()) return status;
  Json volume;
  if (auto status = find(api::kVolumes, id, volume); !status.ok()) return status;
  std::int64_t size = 0;
  if (auto status = choose_size(&request->capacity_range(), 0, size); !status.ok()) return status;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  const std::int64_t before = size_of(volume), limit = request->capacity_range().limit_bytes();
  if (limit > 0 && before > limit) return refuse(StatusCode::OUT_OF_RANGE, fmt::format("volume {} has {}: it does not shrink", id, print(Bytes{before})));
  if (auto status = change(id, [&](Json& object) -> Status {
        const auto now = api::parse_volume_size(object["spec"]["size"]);
        if (!now || *now < size) object.child("spec").set("size", api::print_volume_size(size));
        return Status::OK;
      }, volume);
      !status.ok())
    return status;
  Json now;
  // A message of before may be there still: the pool has a second to think of it anew.
  const auto asked = clock_.monotonic();
  auto status = await(api::kVolumes, id, [&](const Json& one) { return is_there(one) && (one["status"]["sizeBytes"].integer() >= size || (clock_.monotonic() - asked > 1s && one["status"]["message"].string().find("may promise") != std::string::npos)); }, false, now);
  if (!status.ok()) return status;
  if (now["status"]["sizeBytes"].integer() < size) {
    // The pool has no room: the volume stays as it is, and is not left asking for more.
    const std::string why = now["status"]["message"].string();
    Json ignored;
    (void)change(id, [&](Json& object) -> Status {
      // Only what this call has asked for: another may have asked for more, and have it.
      const auto wanted = api::parse_volume_size(object["spec"]["size"]);
      if (wanted && *wanted == size && object["status"]["sizeBytes"].integer() < size) object.child("spec").set("size", api::print_volume_size(object["status"]["sizeBytes"].integer()));
      return Status::OK;
    }, ignored);
    return refuse(StatusCode::RESOURCE_EXHAUSTED, why);
  }
  response->set_capacity_bytes(now["status"]["sizeBytes"].integer());
  response->set_node_expansion_required(!request->volume_capability().has_block());
  return Status::OK;
}

Status ControllerService::ControllerGetVolume(Context*, const wire::ControllerGetVolumeRequest* request, wire::ControllerGetVolumeResponse* response) {
  Json volume;
  if (auto status = find(api::kVolumes, request->volume_id(), volume); !status.ok()) return status;
  const auto attachments = attachments_of(request->volume_id());
  if (!attachments) return status_of(attachments.error());
  write_volume(volume, *response->mutable_volume());
  *response->mutable_status()->mutable_volume_condition() = condition_of(volume);
  for (const Json& one : *attachments) response->mutable_status()->add_published_node_ids(one["spec"]["node"].string());
  return Status::OK;
}

Status ControllerService::ControllerModifyVolume(Context*, const wire::ControllerModifyVolumeRequest* request, wire::ControllerModifyVolumeResponse*) {
  if (request->volume_id().empty()) return invalid("volume_id: it is missing");
  if (request->mutable_parameters().empty()) return invalid("mutable_parameters: they are missing");
  Parameters wanted;
  Json volume;
  if (auto status = find(api::kVolumes, request->volume_id(), volume); !status.ok()) return status;
  wanted.klass = volume["spec"]["class"].string_or(api::kLocalFast);
  if (auto status = read_mutable(request->mutable_parameters(), wanted); !status.ok()) return status;
  const auto turn = busy_.take(request->volume_id());
  if (!turn) return busy(request->volume_id());
  auto status = change(request->volume_id(), [&](Json& object) -> Status {
    api::apply({.iops = wanted.iops, .throughput = wanted.throughput, .tags = wanted.tags}, object);
    return Status::OK;
  }, volume);
  if (!status.ok() || (!wanted.iops && !wanted.throughput)) return status;
  Json now;
  return await(api::kVolumes, request->volume_id(), api::limits_in_force, false, now);
}

}  // namespace fairlead::csi
