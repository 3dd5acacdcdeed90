// SPDX-License-Identifier: Apache-2.0
#include "node/plan/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "api/volume.h"
#include "base/encoding.h"
#include "kube/object.h"

namespace fairlead::node {
namespace {
using kube::Json;

std::optional<std::int64_t> number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool requirement_holds(const Json& requirement, const std::string* value) {
  const std::string& op = requirement["operator"].string();
  const auto& values = requirement["values"].items();
  const bool listed = value != nullptr && std::any_of(values.begin(), values.end(), [&](const Json& one) { return one.string() == *value; });
  if (op == "In") return listed;
  if (op == "NotIn") return !listed;
  if (op == "Exists") return value != nullptr;
  if (op == "DoesNotExist") return value == nullptr;
  if ((op != "Gt" && op != "Lt") || value == nullptr || values.size() != 1) return false;
  const auto own = number(*value), bound = number(values[0].string());
  return own && bound && (op == "Gt" ? *own > *bound : *own < *bound);
}

bool term_holds(const Json& term, const Json& node) {
  const auto &expressions = term["matchExpressions"].items(), &fields = term["matchFields"].items();
  if (expressions.empty() && fields.empty()) return false;
  const auto label = [&](const Json& one) {
    const Json* value = node["metadata"]["labels"].find(one["key"].string());
    return requirement_holds(one, value == nullptr ? nullptr : &value->string());
  };
  const auto field = [&](const Json& one) { return one["key"].string() == "metadata.name" && requirement_holds(one, &kube::name_of(node)); };
  return std::all_of(expressions.begin(), expressions.end(), label) && std::all_of(fields.begin(), fields.end(), field);
}

// The members of a PersistentVolume's spec that are not its source.
constexpr std::string_view not_sources[] = {"accessModes",      "capacity", "claimRef",   "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
                                            "storageClassName", "volumeMode", "volumeAttributesClassName"};

std::string source_of(const Json& volume) {
  for (const auto& [name, value] : volume["spec"].members())
    if (value.is_object() && std::find(std::begin(not_sources), std::end(not_sources), name) == std::end(not_sources)) return name;
  return "nothing";
}

bool climbs(const std::string& path) {
  const auto parts = split(path, '/');
  return std::find(parts.begin(), parts.end(), "..") != parts.end();
}

}  // namespace

bool node_selector_holds(const Json& selector, const Json& node) {
  const auto& terms = selector["nodeSelectorTerms"].items();
  return std::any_of(terms.begin(), terms.end(), [&](const Json& term) { return term_holds(term, node); });
}

Result<std::string> volume_of_claim(const Json& claim) {
  const std::string& volume = claim["spec"]["volumeName"].string();
  if (claim["status"]["phase"].string() != "Bound" || volume.empty())
    return fail(Code::Unavailable, fmt::format("persistentvolumeclaim \"{}\" is not bound yet", kube::name_of(claim)));
  return volume;
}

Result<ClaimPlace> place_of_claim(const Json& claim, const Json& volume, const Json& node) {
  const Json &spec = volume["spec"], &reference = spec["claimRef"];
  const std::string& name = kube::name_of(volume);
  // The claim names the volume, but it is the volume that says whose it is: anybody may write a claim.
  if (reference["namespace"].string() != kube::space_of(claim) || reference["name"].string() != kube::name_of(claim) || reference["uid"].string() != kube::uid_of(claim))
    return fail(Code::Unavailable, fmt::format("persistentvolume \"{}\" is not bound to claim \"{}\"", name, kube::name_of(claim)));
  const bool block = spec["volumeMode"].string() == "Block";
  if (block && !spec["csi"].is_object()) return fail(Code::Unsupported, fmt::format("persistentvolume \"{}\" is a block device: of those this node knows csi volumes alone", name));
  if (const Json& required = spec["nodeAffinity"]["required"]; required.is_object() && !node_selector_holds(required, node))
    return fail(Code::Invalid, fmt::format("persistentvolume \"{}\" is not on node \"{}\": its nodeAffinity does not hold there", name, kube::name_of(node)));
  if (const Json& csi = spec["csi"]; csi.is_object()) {
    if (csi["driver"].string() != api::kVolumeDriver) return fail(Code::Unsupported, fmt::format("persistentvolume \"{}\" is of the driver {}: this node mounts those of {}", name, csi["driver"].string(), api::kVolumeDriver));
    ClaimPlace out{.path = {}, .type = {}, .local = true, .volume = csi["volumeHandle"].string(), .file_system = csi["fsType"].string(), .mount_options = {}, .read_only = api::is_read_only(volume), .block = block};
    if (!api::is_volume_name(out.volume)) return fail(Code::Invalid, fmt::format("persistentvolume \"{}\": \"{}\" is no volume", name, out.volume.substr(0, 80)));
    if (!out.file_system.empty() && out.file_system != "ext4" && out.file_system != "xfs") return fail(Code::Invalid, fmt::format("persistentvolume \"{}\": fsType {}: ext4 and xfs are mounted", name, out.file_system));
    for (const Json& one : spec["mountOptions"].items()) {
      if (one.string().empty() || one.string().find(',') != std::string::npos || one.string().starts_with('-')) return fail(Code::Invalid, fmt::format("persistentvolume \"{}\": mountOptions are single options", name));
      out.mount_options.push_back(one.string());
    }
    return out;
  }
  const bool local = spec["local"].is_object();
  if (!local && !spec["hostPath"].is_object())
    return fail(Code::Unsupported, fmt::format("persistentvolume \"{}\" is of a kind that this node does not mount ({}): hostPath, local and csi are", name, source_of(volume)));
  const Json& source = spec[local ? "local" : "hostPath"];
  ClaimPlace out{.path = source["path"].string(), .type = local ? "Directory" : source["type"].string(), .local = local, .volume = {}, .file_system = {}, .mount_options = {}, .read_only = false, .block = false};
  if (!out.path.starts_with('/') || climbs(out.path)) return fail(Code::Invalid, fmt::format("persistentvolume \"{}\": its path \"{}\" is not an absolute one without \"..\"", name, out.path));
  return out;
}

}  // namespace fairlead::node
