// SPDX-License-Identifier: Apache-2.0
#include "csi/node_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/files.h"
#include "base/units.h"
#include "blocks/block_devices.h"
#include "blocks/staging.h"

namespace fairlead::csi {

using namespace blocks;

namespace {

Status invalid(std::string why) { return refuse(StatusCode::INVALID_ARGUMENT, std::move(why)); }
Status busy(const std::string& id) { return refuse(StatusCode::ABORTED, fmt::format("another operation on {} is under way", id)); }

Status check_id(const std::string& id) {
  if (id.empty()) return invalid("volume_id: it is missing");
  return api::is_volume_name(id) ? Status::OK : refuse(StatusCode::NOT_FOUND, fmt::format("there is no volume {}", id.substr(0, 128)));
}
Status check_path(const std::string& path, const char* field) {
  if (path.empty()) return invalid(fmt::format("{}: it is missing", field));
  const auto done = check_place(path);
  return done ? Status::OK : invalid(fmt::format("{}: {}", field, done.error().message));
}

// The device that shows it, on this machine: that which is mounted there already, else as the publish context tells.
template <class Request>
Status attached(const Request& request, const std::optional<MountEntry>& mounted, Device& out) {
  const std::string& id = request.volume_id();
  const auto told = request.publish_context().find("device");
  auto found = device_of(id, told == request.publish_context().end() ? std::string() : told->second, mounted ? &*mounted : nullptr);
  if (!found && found.error().code == Code::NotFound) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is not attached to this node's machine", id));
  if (!found) return status_of(found.error());
  out = std::move(*found);
  return Status::OK;
}

Result<void> make_file(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash > 0)
    if (auto made = make_dirs(path.substr(0, slash), 0750); !made) return made;
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640));
  return fd ? Result<void>() : Result<void>(fail_errno(errno, "make " + path));
}

wire::VolumeCondition fine() {
  wire::VolumeCondition out;
  out.set_abnormal(false);
  out.set_message("it is mounted");
  return out;
}

}  // namespace

Status NodeService::NodeStageVolume(Context*, const wire::NodeStageVolumeRequest* request, wire::NodeStageVolumeResponse*) {
  const std::string &id = request->volume_id(), &place = request->staging_target_path();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (auto status = check_path(place, "staging_target_path"); !status.ok()) return status;
  if (!request->has_volume_capability()) return invalid("volume_capability: it is missing");
  if (auto status = check_id(id); !status.ok()) return status;
  if (auto status = check_capability(request->volume_capability()); !status.ok()) return status;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  Device device;
  const auto before = mounts();
  if (!before) return status_of(before.error());
  if (auto status = attached(*request, mount_at(*before, place), device); !status.ok()) return status;
  if (request->volume_capability().has_block()) return Status::OK;  // the file of the device is made where it is published
  const auto& mount = request->volume_capability().mount();
  const auto done = stage({.volume = id, .place = place, .type = mount.fs_type(), .flags = {mount.mount_flags().begin(), mount.mount_flags().end()}, .read_only = is_read_only(request->volume_capability()), .device = device.path});
  return done ? Status::OK : done.error().code == Code::Conflict ? refuse(StatusCode::FAILED_PRECONDITION, done.error().message) : status_of(done.error());
}

Status NodeService::NodeUnstageVolume(Context*, const wire::NodeUnstageVolumeRequest* request, wire::NodeUnstageVolumeResponse*) {
  const std::string &id = request->volume_id(), &place = request->staging_target_path();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (auto status = check_path(place, "staging_target_path"); !status.ok()) return status;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  const auto done = unmount(place);
  return done ? Status::OK : done.error().code == Code::Conflict ? refuse(StatusCode::FAILED_PRECONDITION, done.error().message) : status_of(done.error());
}

Status NodeService::NodePublishVolume(Context*, const wire::NodePublishVolumeRequest* request, wire::NodePublishVolumeResponse*) {
  const std::string &id = request->volume_id(), &staging = request->staging_target_path(), &place = request->target_path();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (auto status = check_path(place, "target_path"); !status.ok()) return status;
  if (!request->has_volume_capability()) return invalid("volume_capability: it is missing");
  if (staging.empty()) return refuse(StatusCode::FAILED_PRECONDITION, "staging_target_path: it is missing: the volume is to be staged first");
  if (auto status = check_path(staging, "staging_target_path"); !status.ok()) return status;
  if (auto status = check_id(id); !status.ok()) return status;
  if (auto status = check_capability(request->volume_capability()); !status.ok()) return status;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  const auto all = mounts();
  if (!all) return status_of(all.error());
  Device device;
  if (auto status = attached(*request, mount_at(*all, staging), device); !status.ok()) return status;
  const bool block = request->volume_capability().has_block();
  const bool read_only = request->readonly() || device.read_only || is_read_only(request->volume_capability());
  if (const auto there = mount_at(*all, place)) {
    if (!shows(*there, device)) return refuse(StatusCode::INTERNAL, fmt::format("something else is mounted at {}", place));
    if (there->read_only != read_only && !block) return refuse(StatusCode::ALREADY_EXISTS, fmt::format("volume {} is at {} {}", id, place, there->read_only ? "read-only" : "for writing"));
    return Status::OK;
  }
  if (is_single_pod(request->volume_capability())) {
    const auto staged = mount_at(*all, staging);
    for (const MountEntry& one : *all)
      if (shows(one, device) && one.place != place && (!staged || one.place != staged->place)) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is for one pod alone, and is at {} already", id, one.place));
  }
  // The kernel lets who opens a device file write to it, however that is mounted.
  if (block && read_only && !device.read_only) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is attached for writing: a block device is read-only where it is attached so", id));
  std::string from = device.path;
  if (!block) {
    const auto staged = mount_at(*all, staging);
    if (!staged || !shows(*staged, device)) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is not staged at {}", id, staging));
    if (staged->read_only && !read_only) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is staged read-only", id));
    from = staging;
  }
  if (auto made = block ? make_file(place) : make_folder(place); !made) return status_of(made.error());
  const auto done = bind_mount(from, place, read_only);
  return done ? Status::OK : status_of(done.error());
}

Status NodeService::NodeUnpublishVolume(Context*, const wire::NodeUnpublishVolumeRequest* request, wire::NodeUnpublishVolumeResponse*) {
  const std::string &id = request->volume_id(), &place = request->target_path();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (auto status = check_path(place, "target_path"); !status.ok()) return status;
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  if (auto done = unmount(place); !done) return done.error().code == Code::Conflict ? refuse(StatusCode::FAILED_PRECONDITION, done.error().message) : status_of(done.error());
  // An empty folder, or an empty file where a device was: nothing else is taken away.
  struct stat about {};
  if (::lstat(place.c_str(), &about) != 0) return errno == ENOENT ? Status::OK : status_of(fail_errno(errno, "look at " + place).error());
  const int gone = S_ISDIR(about.st_mode) ? ::rmdir(place.c_str()) : S_ISREG(about.st_mode) && about.st_size == 0 ? ::unlink(place.c_str()) : (errno = ENOTEMPTY, -1);
  return gone == 0 || errno == ENOENT ? Status::OK : status_of(fail_errno(errno, "remove " + place).error());
}

Status NodeService::NodeGetVolumeStats(Context*, const wire::NodeGetVolumeStatsRequest* request, wire::NodeGetVolumeStatsResponse* response) {
  const std::string &id = request->volume_id(), &place = request->volume_path();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (place.empty()) return invalid("volume_path: it is missing");
  if (auto status = check_id(id); !status.ok()) return status;
  if (auto done = check_place(place); !done) return refuse(StatusCode::NOT_FOUND, fmt::format("volume_path: {}", done.error().message));
  struct stat about {};
  if (::lstat(place.c_str(), &about) != 0) return refuse(StatusCode::NOT_FOUND, fmt::format("volume {} is not at {}", id, place));
  const auto all = mounts();
  if (!all) return status_of(all.error());
  const auto there = mount_at(*all, place);
  const auto device = device_of(id, "", there ? &*there : nullptr);
  if (!device) return device.error().code == Code::NotFound ? refuse(StatusCode::NOT_FOUND, device.error().message) : status_of(device.error());
  if (!there || !shows(*there, *device)) return refuse(StatusCode::NOT_FOUND, fmt::format("volume {} is not at {}", id, place));
  *response->mutable_volume_condition() = fine();
  if (S_ISBLK(about.st_mode)) {
    const auto size = device_size(*device);
    if (!size) return status_of(size.error());
    auto* usage = response->add_usage();
    usage->set_unit(wire::VolumeUsage::BYTES);
    usage->set_total(*size);
    return Status::OK;
  }
  struct statvfs disk {};
  if (::statvfs(place.c_str(), &disk) != 0) {
    // A file system that has shut itself down answers so.
    if (errno != EIO) return status_of(fail_errno(errno, "look at " + place).error());
    response->mutable_volume_condition()->set_abnormal(true);
    response->mutable_volume_condition()->set_message("its file system gives input/output errors: unmount it, and check it");
    return Status::OK;
  }
  const auto unit = static_cast<std::int64_t>(disk.f_frsize);
  auto* bytes = response->add_usage();
  bytes->set_unit(wire::VolumeUsage::BYTES);
  bytes->set_total(static_cast<std::int64_t>(disk.f_blocks) * unit);
  bytes->set_available(static_cast<std::int64_t>(disk.f_bavail) * unit);
  bytes->set_used(static_cast<std::int64_t>(disk.f_blocks - disk.f_bfree) * unit);
  auto* files = response->add_usage();
  files->set_unit(wire::VolumeUsage::INODES);
  files->set_total(static_cast<std::int64_t>(disk.f_files));
  files->set_available(static_cast<std::int64_t>(disk.f_ffree));
  files->set_used(static_cast<std::int64_t>(disk.f_files - disk.f_ffree));
  return Status::OK;
}

Status NodeService::NodeExpandVolume(Context*, const wire::NodeExpandVolumeRequest* request, wire::NodeExpandVolumeResponse* response) {
  const std::string &id = request->volume_id(), &place = request->volume_path();
  if (id.empty()) return invalid("volume_id: it is missing");
  if (place.empty()) return invalid("volume_path: it is missing");
  if (auto status = check_id(id); !status.ok()) return status;
  if (auto done = check_place(place); !done) return refuse(StatusCode::NOT_FOUND, fmt::format("volume_path: {}", done.error().message));
  const auto turn = busy_.take(id);
  if (!turn) return busy(id);
  const auto all = mounts();
  if (!all) return status_of(all.error());
  const auto there = mount_at(*all, place);
  const auto device = device_of(id, "", there ? &*there : nullptr);
  if (!device) return device.error().code == Code::NotFound ? refuse(StatusCode::NOT_FOUND, device.error().message) : status_of(device.error());
  if (!there || !shows(*there, *device)) return refuse(StatusCode::NOT_FOUND, fmt::format("volume {} is not at {}", id, place));
  const auto size = device_size(*device);
  if (!size) return status_of(size.error());
  if (request->has_capacity_range()) {
    if (request->capacity_range().required_bytes() > *size) return refuse(StatusCode::OUT_OF_RANGE, fmt::format("the device has {}: it is to grow first", print(Bytes{*size})));
    if (const std::int64_t limit = request->capacity_range().limit_bytes(); limit > 0 && limit < *size) return refuse(StatusCode::OUT_OF_RANGE, fmt::format("the device has {} already", print(Bytes{*size})));
  }
  response->set_capacity_bytes(*size);
  struct stat about {};
  if (request->volume_capability().has_block() || (::stat(place.c_str(), &about) == 0 && S_ISBLK(about.st_mode))) return Status::OK;
  if (there->read_only) return refuse(StatusCode::FAILED_PRECONDITION, fmt::format("volume {} is mounted read-only", id));
  if (auto done = grow_file_system(*device, there->type, place); !done) return done.error().code == Code::Unsupported ? refuse(StatusCode::FAILED_PRECONDITION, done.error().message) : status_of(done.error());
  return Status::OK;
}

Status NodeService::NodeGetCapabilities(Context*, const wire::NodeGetCapabilitiesRequest*, wire::NodeGetCapabilitiesResponse* response) {
  using Rpc = wire::NodeServiceCapability::RPC;
  for (const auto type : {Rpc::STAGE_UNSTAGE_VOLUME, Rpc::GET_VOLUME_STATS, Rpc::EXPAND_VOLUME, Rpc::VOLUME_CONDITION, Rpc::SINGLE_NODE_MULTI_WRITER}) response->add_capabilities()->mutable_rpc()->set_type(type);
  return Status::OK;
}

Status NodeService::NodeGetInfo(Context*, const wire::NodeGetInfoRequest*, wire::NodeGetInfoResponse* response) {
  response->set_node_id(options_.node);
  response->set_max_volumes_per_node(options_.most_volumes);
  if (options_.pools.empty()) return Status::OK;
  auto& segments = *response->mutable_accessible_topology()->mutable_segments();
  segments[api::kPoolLabel] = options_.pools.front();
  for (const std::string& pool : options_.pools)
    if (pool != options_.pools.front()) segments[api::kFurtherPool + pool] = "true";
  return Status::OK;
}

}  // namespace fairlead::csi
