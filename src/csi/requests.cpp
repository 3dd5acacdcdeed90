// SPDX-License-Identifier: Apache-2.0
#include "csi/requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace fairlead::csi {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20, block = 4096;
constexpr std::string_view token_begin = "after:";

Status invalid(std::string why) { return refuse(StatusCode::INVALID_ARGUMENT, std::move(why)); }

}  // namespace

Status status_of(const Error& error) {
  switch (error.code) {
    case Code::NotFound: return refuse(StatusCode::NOT_FOUND, error.message);
    case Code::Exists: return refuse(StatusCode::ALREADY_EXISTS, error.message);
    case Code::Conflict: return refuse(StatusCode::ABORTED, error.message);
    case Code::Invalid:
    case Code::Unsupported: return refuse(StatusCode::INVALID_ARGUMENT, error.message);
    case Code::Forbidden: return refuse(StatusCode::PERMISSION_DENIED, error.message);
    case Code::Unauthorized: return refuse(StatusCode::UNAUTHENTICATED, error.message);
    case Code::Exhausted: return refuse(StatusCode::RESOURCE_EXHAUSTED, error.message);
    case Code::Expired:
    case Code::Unavailable: return refuse(StatusCode::UNAVAILABLE, error.message);
    case Code::Internal: break;
  }
  return refuse(StatusCode::INTERNAL, error.message);
}

Status check_name(std::string_view name, std::string_view field) {
  if (name.empty()) return invalid(fmt::format("{}: it is missing", field));
  if (name.size() > 128) return invalid(fmt::format("{}: {} bytes are more than 128", field, name.size()));
  if (std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) return invalid(fmt::format("{}: a control character is in it", field));
  return Status::OK;
}

Status check_capability(const wire::VolumeCapability& capability) {
  using Mode = wire::VolumeCapability::AccessMode;
  if (capability.access_type_case() == wire::VolumeCapability::ACCESS_TYPE_NOT_SET) return invalid("volume_capability: block or mount is expected");
  switch (capability.access_mode().mode()) {
    case Mode::SINGLE_NODE_WRITER:
    case Mode::SINGLE_NODE_READER_ONLY:
    case Mode::SINGLE_NODE_SINGLE_WRITER:
    case Mode::SINGLE_NODE_MULTI_WRITER:
    case Mode::MULTI_NODE_READER_ONLY: break;
    case Mode::MULTI_NODE_SINGLE_WRITER:
    case Mode::MULTI_NODE_MULTI_WRITER: return invalid("volume_capability: one node at a time has a volume of this driver, or several that all read it (MULTI_NODE_READER_ONLY): give each node a clone (dataSource), or use a shared file system");
    default: return invalid("volume_capability: access_mode is missing");
  }
  if (capability.has_mount()) {
    const std::string& type = capability.mount().fs_type();
    if (!type.empty() && type != "ext4" && type != "xfs") return invalid(fmt::format("volume_capability: fs_type \"{}\": ext4 or xfs is expected", type.substr(0, 40)));
    for (const std::string& flag : capability.mount().mount_flags())
      if (flag.empty() || flag.size() > 256 || flag.find_first_of(", \t\n") != std::string::npos || flag.starts_with('-')) return invalid("volume_capability: mount_flags are single options");
  }
  return Status::OK;
}

bool same_kind(const wire::VolumeCapability& a, const wire::VolumeCapability& b) { return a.has_block() == b.has_block(); }
bool is_single_pod(const wire::VolumeCapability& capability) { return capability.access_mode().mode() == wire::VolumeCapability::AccessMode::SINGLE_NODE_SINGLE_WRITER; }
bool is_read_only(const wire::VolumeCapability& capability) {
  const auto mode = capability.access_mode().mode();
  return mode == wire::VolumeCapability::AccessMode::SINGLE_NODE_READER_ONLY || mode == wire::VolumeCapability::AccessMode::MULTI_NODE_READER_ONLY;
}
bool is_for_many(const wire::VolumeCapability& capability) { return capability.access_mode().mode() == wire::VolumeCapability::AccessMode::MULTI_NODE_READER_ONLY; }

Status choose_size(const wire::CapacityRange* range, std::int64_t least, std::int64_t& size) {
  const std::int64_t required = range == nullptr ? 0 : range->required_bytes(), limit = range == nullptr ? 0 : range->limit_bytes();
  if (required < 0 || limit < 0) return invalid("capacity_range: negative");
  if (range != nullptr && required == 0 && limit == 0) return invalid("capacity_range: required_bytes or limit_bytes is expected");
  if (limit > 0 && required > limit) return invalid("capacity_range: required_bytes are more than limit_bytes");
  if (required > 0 && required < least) return refuse(StatusCode::OUT_OF_RANGE, fmt::format("{} are too few: what it is made of has {}", print(Bytes{required}), print(Bytes{least})));
  const std::int64_t floor = std::max({required, least, api::kLeastVolume});
  if (floor > api::kMostVolume) return refuse(StatusCode::OUT_OF_RANGE, fmt::format("{} are more than {}, the most that a volume has", print(Bytes{floor}), print(Bytes{api::kMostVolume})));
  size = (floor + mebibyte - 1) / mebibyte * mebibyte;
  if (limit > 0 && size > limit) {
    // Objects have whole MiB: what does not fit between is out of range.
    if (floor % block != 0 || floor % mebibyte != 0 || floor > limit) return refuse(StatusCode::OUT_OF_RANGE, fmt::format("no size in whole MiB, of {} at least, is within {} bytes", print(Bytes{std::max(least, api::kLeastVolume)}), limit));
    size = floor;
  }
  return Status::OK;
}

namespace {
// Is it one of the limits? Then it is read into `out`.
bool read_limit(const std::string& key, const std::string& value, Parameters& out, std::string& wrong) {
  if (key != "iops" && key != "throughput") return false;
  auto read = key == "iops" ? api::parse_iops(kube::Json(value)) : api::parse_throughput(kube::Json(value));
  if (read) (key == "iops" ? out.iops : out.throughput) = *read;
  else wrong = read.error().message;
  return true;
}
Status limits_fit(const Parameters& of, std::string_view where) {
  if (of.klass == api::kLocalFast && (of.iops.value_or(0) > 0 || of.throughput.value_or(0) > 0)) return invalid(fmt::format("{}: class {} limits nothing: iops and throughput are of class {}", where, api::kLocalFast, api::kLocalManaged));
  return Status::OK;
}
}  // namespace

Status read_parameters(const Map& parameters, Parameters& out) {
  std::string wrong;
  for (const auto& [key, value] : parameters) {
    if (key == "class") out.klass = value;
    else if (key == "pool") out.pool = value;
    else if (key == "key") out.key = value;
    else if (key == "encrypted") {
      if (value != "true" && value != "false") wrong = "encrypted: true or false is expected";
      out.encrypted = value == "true";
    } else if (read_limit(key, value, out, wrong)) {}
    // What the provisioner tells of the claim (--extra-create-metadata) is good to know where the volume is looked at.
    else if (key.starts_with("csi.storage.k8s.io/")) {
      if (const std::string name = key.substr(19); name == "pvc/name" || name == "pvc/namespace" || name == "pv/name") out.tags[name] = value.substr(0, 256);
    } else return invalid(fmt::format("parameters: there is no \"{}\"; class, pool, encrypted, key, iops and throughput are what there is", key.substr(0, 60)));
  }
  if (!out.klass.empty() && !api::is_volume_class(out.klass)) return invalid(fmt::format("parameters: there is no class \"{}\"; {} are what there is", out.klass.substr(0, 40), api::kVolumeClasses));
  if (!wrong.empty()) return invalid("parameters: " + wrong);
  if (auto status = limits_fit(out, "parameters"); !status.ok()) return status;
  if (out.encrypted && out.klass == api::kLocalFast) return invalid(fmt::format("parameters: encrypted: it is of class {}", api::kLocalManaged));
  if (!out.key.empty() && (!out.encrypted || !api::is_volume_name(out.key))) return invalid("parameters: key: the name of a key is expected, and encrypted: \"true\"");
  if (!out.pool.empty() && !api::is_volume_name(out.pool)) return invalid("parameters: pool: the name of a pool is expected");
  return Status::OK;
}

Status read_mutable(const Map& parameters, Parameters& out) {
  auto read = api::read_volume_change({parameters.begin(), parameters.end()}, out.klass);
  if (!read) return invalid("mutable_parameters: " + read.error().message);
  if (read->iops) out.iops = read->iops;
  if (read->throughput) out.throughput = read->throughput;
  for (auto& [key, value] : read->tags) out.tags[key] = std::move(value);
  return out.tags.size() > 40 ? invalid("mutable_parameters: 40 tags at most") : Status::OK;
}

void read_segments(const wire::Topology& topology, std::vector<std::string>& pools) {
  const std::map<std::string, std::string> segments(topology.segments().begin(), topology.segments().end());
  const auto add = [&](const std::string& pool) {
    if (std::find(pools.begin(), pools.end(), pool) == pools.end()) pools.push_back(pool);
  };
  if (const auto first = segments.find(api::kPoolLabel); first != segments.end()) add(first->second);
  for (const auto& [key, value] : segments)
    if (key.starts_with(api::kFurtherPool) && value == "true") add(key.substr(std::string_view(api::kFurtherPool).size()));
}

Status read_topology(const wire::TopologyRequirement& requirement, std::vector<std::vector<std::string>>& preferred, std::vector<std::string>& allowed) {
  for (const wire::Topology& one : requirement.requisite()) read_segments(one, allowed);
  if (allowed.empty() && requirement.requisite_size() > 0) return refuse(StatusCode::RESOURCE_EXHAUSTED, fmt::format("accessibility_requirements: none of them names a pool ({})", api::kPoolLabel));
  const bool any = allowed.empty();
  for (const wire::Topology& one : requirement.preferred()) {
    std::vector<std::string> pools;
    read_segments(one, pools);
    if (any) read_segments(one, allowed);
    std::erase_if(pools, [&](const std::string& pool) { return std::find(allowed.begin(), allowed.end(), pool) == allowed.end(); });
    if (!pools.empty()) preferred.push_back(std::move(pools));
  }
  return Status::OK;
}

Status page_of(const std::vector<std::string>& names, std::int32_t most, const std::string& token, Page& out) {
  if (most < 0) return invalid("max_entries: negative");
  out = {.from = 0, .to = names.size(), .next = {}};
  if (!token.empty()) {
    const std::string_view after = std::string_view(token).substr(std::min(token.size(), token_begin.size()));
    if (!token.starts_with(token_begin) || !api::is_volume_name(after)) return refuse(StatusCode::ABORTED, "starting_token: it is none of ours: begin anew");
    out.from = static_cast<std::size_t>(std::upper_bound(names.begin(), names.end(), after) - names.begin());
  }
  if (most > 0 && names.size() - out.from > static_cast<std::size_t>(most)) {
    out.to = out.from + static_cast<std::size_t>(most);
    out.next = std::string(token_begin) + names[out.to - 1];
  }
  return Status::OK;
}

}  // namespace fairlead::csi
