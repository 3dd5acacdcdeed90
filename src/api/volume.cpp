// SPDX-License-Identifier: Apache-2.0
#include "api/volume.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "api/crds.h"
#include "base/encoding.h"
#include "base/units.h"
#include "kube/selector.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr const char* kPoolCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumepools.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: volumepools, singular: volumepool, kind: VolumePool, listKind: VolumePoolList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .status.size}
    - {name: Promised, type: string, jsonPath: .status.promised}
    - {name: Limit, type: string, jsonPath: .status.limit}
    - {name: Volumes, type: integer, jsonPath: .status.volumes}
    - {name: Snapshots, type: integer, jsonPath: .status.snapshots}
    - {name: Nodes, type: string, priority: 1, jsonPath: ".status.nodes[*]"}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: Where volumes are kept, on one machine; made by fairlead-volumes there.
        x-kubernetes-validations:
        - {rule: "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", message: "metadata.name: 1 to 63 of a-z 0-9 and - are expected"}
        properties:
          spec:
            type: object
            properties:
              nodeSelector: {type: string, maxLength: 1000, description: "Labels of the Nodes that reach it, as kubectl -l takes them. Left out: the Node with the pool's name."}
          status:
            type: object
            properties:
              id: {type: string}
              size: {type: string, description: Of its file system.}
              free: {type: string}
              promised: {type: string, description: "To volumes and snapshots: each byte of theirs may be written."}
              limit: {type: string, description: That may be promised in all.}
              classes: {type: array, items: {type: string}}
              nodes: {type: array, items: {type: string}}
              volumes: {type: integer}
              snapshots: {type: integer}
              orphans: {type: array, description: Entries that no object stands for. They are left alone., items: {type: string}}
              heard: {type: string, format: date-time}
              message: {type: string}
)yaml";

constexpr const char* kVolumeCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumes.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: volumes, singular: volume, kind: Volume, listKind: VolumeList, shortNames: [vol]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Class, type: string, jsonPath: .spec.class}
    - {name: Pool, type: string, jsonPath: .spec.pool}
    - {name: Node, type: string, jsonPath: .status.node}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A block device's content, kept in a pool.
        required: [spec]
        x-kubernetes-validations:
        - {rule: "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", message: "metadata.name: 1 to 63 of a-z 0-9 and - are expected"}
        properties:
          spec:
            type: object
            required: [pool, size]
            x-kubernetes-validations:
            - {rule: "self.pool == oldSelf.pool && self.class == oldSelf.class", message: "a volume stays in its pool and its class: make another from a snapshot"}
            - {rule: "self.encrypted == oldSelf.encrypted && has(self.key) == has(oldSelf.key) && (!has(self.key) || self.key == oldSelf.key)", message: "whether a volume is encrypted, and by which key, does not change: make another"}
            - {rule: "has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)", message: "what a volume was made of does not change"}
            properties:
              pool: {type: string, minLength: 1, maxLength: 63}
              class: {type: string, enum: [local-fast, local-managed, distributed], default: local-fast, description: "local-fast: shown by the kernel alone. local-managed: by a process of its own, which holds it to its limits. distributed: the same, in a Ceph pool."}
              size: {x-kubernetes-int-or-string: true, description: "1Gi to 64Ti, in whole MiB. A larger one grows it while it is used; it never shrinks."}
              encrypted: {type: boolean, default: false, description: "Its data lies on disk encrypted (LUKS2, AES-256-XTS), by a key of its own. Of classes local-managed and distributed; what is made of an encrypted one is so, too."}
              key: {type: string, minLength: 1, maxLength: 63, description: "That opens its own key: a Secret in namespace fairlead-volume-keys. Left out: the service's."}
              iops: {type: integer, format: int64, minimum: 0, maximum: 10000000, description: "Operations of up to 256 KiB a second, of classes local-managed and distributed; 0: no limit. It can change while the volume is used."}
              throughput: {x-kubernetes-int-or-string: true, description: "MiB a second, or a quantity (125Mi), of classes local-managed and distributed; 0: no limit. It can change while the volume is used."}
              source:
                type: object
                description: Whose content it begins with.
                x-kubernetes-validations:
                - {rule: "has(self.volume) != has(self.snapshot)", message: "one of volume and snapshot is needed"}
                properties:
                  volume: {type: string, minLength: 1, maxLength: 63}
                  snapshot: {type: string, minLength: 1, maxLength: 63}
              tags: {type: object, maxProperties: 50, additionalProperties: {type: string, maxLength: 256}}
          status:
            type: object
            properties:
              phase: {type: string, description: "Creating, Available, InUse, Growing, Deleting, Failed, Lost, Unknown"}
              poolID: {type: string, description: Of the pool that made it.}
              sizeBytes: {type: integer, format: int64}
              allocatedBytes: {type: integer, format: int64, description: "That it takes up in the pool; what it shares with snapshots counts here too."}
              extents: {type: integer, format: int64}
              estimatedStallMilliseconds: {type: integer, format: int64, description: How long a snapshot taken now lets writers wait.}
              node: {type: string, description: "To which it is attached; several, with commas, where all of them read."}
              device: {type: string}
              iops: {type: integer, format: int64, description: The limits in force.}
              throughputBytes: {type: integer, format: int64}
              key: {type: string, description: By which it is encrypted.}
              message: {type: string}
)yaml";

constexpr const char* kSnapshotCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: snapshots.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: snapshots, singular: snapshot, kind: Snapshot, listKind: SnapshotList, shortNames: [snap]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Volume, type: string, jsonPath: .spec.volume}
    - {name: Size, type: integer, jsonPath: .status.sizeBytes}
    - {name: Taken, type: date, jsonPath: .status.takenAt}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, priority: 1, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A volume's content at one moment, as after a power cut. It stays when the volume goes.
        required: [spec]
        x-kubernetes-validations:
        - {rule: "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", message: "metadata.name: 1 to 63 of a-z 0-9 and - are expected"}
        properties:
          spec:
            type: object
            required: [volume, pool]
            x-kubernetes-validations:
            - {rule: "self.volume == oldSelf.volume && self.pool == oldSelf.pool", message: "a snapshot stays that of its volume"}
            properties:
              volume: {type: string, minLength: 1, maxLength: 63}
              pool: {type: string, minLength: 1, maxLength: 63, description: The volume's.}
              tags: {type: object, maxProperties: 50, additionalProperties: {type: string, maxLength: 256}}
          status:
            type: object
            properties:
              phase: {type: string, description: "Taking, Ready, Deleting, Failed, Lost, Unknown"}
              poolID: {type: string}
              sizeBytes: {type: integer, format: int64}
              takenAt: {type: string, format: date-time}
              key: {type: string, description: By which it is encrypted.}
              stallMilliseconds: {type: integer, format: int64, description: How long it took; writers waited for so long at most.}
              message: {type: string}
)yaml";

constexpr const char* kAttachmentCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: attachments.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: attachments, singular: attachment, kind: Attachment, listKind: AttachmentList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Volume, type: string, jsonPath: .spec.volume}
    - {name: Node, type: string, jsonPath: .spec.node}
    - {name: Device, type: string, jsonPath: .status.device}
    - {name: Host, type: string, priority: 1, jsonPath: .status.host}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: That a node has a volume as a block device. Deleting it detaches the volume, once nobody uses the device.
        required: [spec]
        x-kubernetes-validations:
        - {rule: "self.metadata.name == self.spec.volume + '.' + self.spec.node", message: "metadata.name: VOLUME.NODE is expected"}
        properties:
          spec:
            type: object
            required: [volume, pool, node]
            x-kubernetes-validations:
            - {rule: "self == oldSelf", message: "an attachment does not change: make another"}
            properties:
              volume: {type: string, minLength: 1, maxLength: 63}
              pool: {type: string, minLength: 1, maxLength: 63, description: The volume's.}
              node: {type: string, minLength: 1, maxLength: 189}
              readOnly: {type: boolean, description: "It cannot be written to. Any number of nodes may have it so at once, and none that writes beside them."}
              replayLog: {type: boolean, description: "Of a read-only one, of which nobody has the volume yet: first the log of the file system on it is replayed, for who mounts it read-only cannot."}
              deviceName: {type: string, maxLength: 32, pattern: "^/dev/(xvd|sd)[a-z]$", description: "A name for the device on the machine of the node, a link to it."}
              grant:
                type: object
                description: "That the volume may be opened by its key in the issuer's name. Annotation fairlead.dev/grant-revoked: true takes it back; what is served goes on."
                required: [id, key]
                properties:
                  id: {type: string, pattern: "^[0-9a-f]{64}$"}
                  key: {type: string, minLength: 1, maxLength: 63}
                  operations: {type: array, maxItems: 20, items: {type: string, maxLength: 64}}
                  issuer: {type: string, maxLength: 2048, description: Whose ARN.}
          status:
            type: object
            properties:
              phase: {type: string, description: "Attaching, Attached, Detaching, Failed, Unknown"}
              reason: {type: string, description: "InUse: it is not detached, as somebody has it mounted or open. Absent: nothing that waiting does not settle."}
              poolID: {type: string}
              device: {type: string, description: "On the machine of the node."}
              host: {type: string, description: "Which that is (VolumeHost); left out: the pool's own."}
              generation: {type: integer, format: int64, description: Rises with each attachment of the volume.}
              message: {type: string}
)yaml";

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

Json new_object(const kube::Resource& resource, const std::string& name, Json spec) {
  return Json::object({{"apiVersion", resource.api_version()}, {"kind", resource.kind}, {"metadata", Json::object({{"name", name}, {"finalizers", Json::array({Json(kVolumeFinalizer)})}})}, {"spec", std::move(spec)}});
}

std::int64_t size_of(const Json& text) {
  const auto read = kube::Quantity::from_json(text);
  return read ? read->value() : 0;
}

}  // namespace

std::vector<Json> volume_crds() { return {parse_crd(kPoolCrd), parse_crd(kVolumeCrd), parse_crd(kSnapshotCrd), parse_crd(kAttachmentCrd)}; }

bool is_device_name(std::string_view name) {
  for (const std::string_view begin : {"/dev/xvd", "/dev/sd"})
    if (name.starts_with(begin) && name.size() == begin.size() + 1 && name.back() >= 'a' && name.back() <= 'z') return true;
  return false;
}

bool is_volume_name(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), plain) && name.front() != '-' && name.back() != '-';
}

std::string pool_name_for(std::string_view node) {
  std::string out(node);
  for (char& c : out) c = c == '.' || c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string name_for(std::string_view requested, std::string_view prefix) {
  return is_volume_name(requested) ? std::string(requested) : std::string(prefix) + hex(sha256(std::string(requested))).substr(0, 17);
}

std::string ec2_id(std::string_view name, std::string_view prefix) {
  const bool is_id = name.starts_with(prefix) && (name.size() == prefix.size() + 8 || name.size() == prefix.size() + 17) && name.find_first_not_of("0123456789abcdef", prefix.size()) == name.npos;
  return is_id ? std::string(name) : std::string(prefix) + hex(sha256(std::string(name))).substr(0, 17);
}

Result<std::int64_t> parse_volume_size(const Json& value) {
  const auto read = kube::Quantity::from_json(value);
  if (!read) return fail(Code::Invalid, fmt::format("size: \"{}\" is no quantity, such as 10Gi", value.is_string() ? value.string().substr(0, 40) : kube::print_json(value).substr(0, 40)));
  const std::int64_t bytes = read->value();
  if (bytes > kMostVolume) return fail(Code::Invalid, fmt::format("size: {} is more than {}, the most that a volume has", print(Bytes{bytes}), print(Bytes{kMostVolume})));
  const std::int64_t whole = bytes <= 0 ? 0 : (bytes + mebibyte - 1) / mebibyte * mebibyte;
  if (whole < kLeastVolume) return fail(Code::Invalid, fmt::format("size: {} is less than {}, the least that a volume has", read->text(), print(Bytes{kLeastVolume})));
  return whole;
}

std::string print_volume_size(std::int64_t bytes) {
  for (const auto& [unit, shift] : {std::pair("Ti", 40), {"Gi", 30}, {"Mi", 20}, {"Ki", 10}})
    if (bytes != 0 && bytes % (std::int64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  return std::to_string(bytes);
}

bool is_volume_class(std::string_view name) { return name == kLocalFast || name == kLocalManaged || name == kDistributed; }
std::string default_class(const std::vector<std::string>& classes, bool engine) {
  if (std::find(classes.begin(), classes.end(), kDistributed) != classes.end()) return kDistributed;
  return engine ? kLocalManaged : kLocalFast;
}

Result<std::int64_t> parse_iops(const Json& value) {
  if (value.is_null()) return 0;
  std::int64_t out = value.is_string() ? -1 : value.integer();
  if (value.is_string()) {
    const std::string& text = value.string();
    if (const auto read = std::from_chars(text.data(), text.data() + text.size(), out); read.ec != std::errc() || read.ptr != text.data() + text.size()) out = -1;
  }
  if (out != 0 && (out < kLeastIops || out > kMostIops)) return fail(Code::Invalid, fmt::format("iops: {} to {} are expected, or 0 for no limit", kLeastIops, kMostIops));
  return out;
}

Result<std::int64_t> parse_throughput(const Json& value) {
  if (value.is_null()) return 0;
  const std::string text = value.is_string() ? value.string() : kube::print_json(value);
  const bool plain = !text.empty() && text.size() <= 12 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const auto read = kube::Quantity::parse(plain ? text + "Mi" : text);
  const std::int64_t out = read ? read->value() : -1;
  if (out != 0 && (out < kLeastThroughput || out > kMostThroughput)) return fail(Code::Invalid, fmt::format("throughput: \"{}\": MiB a second are expected, or a quantity such as 125Mi; 0 for no limit", text.substr(0, 40)));
  return out;
}

Result<VolumeChange> read_volume_change(const std::map<std::string, std::string>& parameters, std::string_view klass) {
  VolumeChange out;
  for (const auto& [key, value] : parameters) {
    if (key == "iops" || key == "throughput") {
      auto limit = key == "iops" ? parse_iops(Json(value)) : parse_throughput(Json(value));
      if (!limit) return std::unexpected(std::move(limit.error()));
      (key == "iops" ? out.iops : out.throughput) = *limit;
      continue;
    }
    const std::size_t at = value.find('=');
    if (!key.starts_with("tagSpecification_")) return fail(Code::Invalid, fmt::format("there is no \"{}\"; iops, throughput and tagSpecification_N (KEY=VALUE) are what there is", key.substr(0, 60)));
    if (at == std::string::npos || at == 0 || value.size() - at > 257) return fail(Code::Invalid, fmt::format("{}: KEY=VALUE is expected", key));
    out.tags[value.substr(0, at)] = value.substr(at + 1);
  }
  if (out.tags.size() > 40) return fail(Code::Invalid, "40 tags at most");
  if (klass == kLocalFast && (out.iops.value_or(0) > 0 || out.throughput.value_or(0) > 0)) return fail(Code::Invalid, fmt::format("class {} limits nothing: iops and throughput are of class {}", kLocalFast, kLocalManaged));
  return out;
}

void apply(const VolumeChange& change, Json& volume) {
  if (change.iops) volume.child("spec").set("iops", *change.iops);
  if (change.throughput) volume.child("spec").set("throughput", print_volume_size(*change.throughput));
  for (const auto& [key, value] : change.tags) volume.child("spec").child("tags").set(key, value);
}

Result<VolumeSpec> read_volume(const Json& object) {
  const Json& spec = object["spec"];
  VolumeSpec out{.pool = spec["pool"].string(), .klass = spec["class"].string_or(kLocalFast), .size = 0, .from_volume = spec["source"]["volume"].string(), .from_snapshot = spec["source"]["snapshot"].string()};
  if (!is_volume_name(kube::name_of(object))) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a volume: 1 to 63 of a-z 0-9 and - are expected", kube::name_of(object).substr(0, 80)));
  if (!is_volume_name(out.pool)) return fail(Code::Invalid, "spec.pool: the name of a pool is expected (fairlead volume pools)");
  if (!is_volume_class(out.klass)) return fail(Code::Invalid, fmt::format("spec.class: there is no class \"{}\"; {} are what there is", out.klass.substr(0, 40), kVolumeClasses));
  const auto iops = parse_iops(spec["iops"]), throughput = parse_throughput(spec["throughput"]);
  if (!iops) return fail(Code::Invalid, "spec." + iops.error().message);
  if (!throughput) return fail(Code::Invalid, "spec." + throughput.error().message);
  if (out.klass == kLocalFast && (*iops > 0 || *throughput > 0)) return fail(Code::Invalid, fmt::format("spec.class: {} limits nothing: iops and throughput are of class {}", kLocalFast, kLocalManaged));
  out.iops = *iops, out.throughput = *throughput;
  out.encrypted = spec["encrypted"].boolean(), out.key = spec["key"].string();
  if (out.encrypted && out.klass == kLocalFast) return fail(Code::Invalid, fmt::format("spec.encrypted: class {} encrypts nothing: it is of class {}", kLocalFast, kLocalManaged));
  if (!out.key.empty() && (!out.encrypted || !is_volume_name(out.key))) return fail(Code::Invalid, out.encrypted ? "spec.key: the name of a key is expected" : "spec.key: of what is encrypted (spec.encrypted)");
  if (!out.from_volume.empty() && !out.from_snapshot.empty()) return fail(Code::Invalid, "spec.source: one of volume and snapshot is expected");
  for (const std::string& source : {out.from_volume, out.from_snapshot})
    if (!source.empty() && !is_volume_name(source)) return fail(Code::Invalid, "spec.source: a name is expected");
  auto size = parse_volume_size(spec["size"]);
  if (!size) return fail(Code::Invalid, "spec." + size.error().message);
  out.size = *size;
  return out;
}

bool limits_in_force(const Json& volume) {
  const auto iops = parse_iops(volume["spec"]["iops"]), throughput = parse_throughput(volume["spec"]["throughput"]);
  return iops && throughput && volume["status"]["iops"].integer() == *iops && volume["status"]["throughputBytes"].integer() == *throughput;
}

Json new_volume(const std::string& name, const VolumeSpec& spec) {
  Json body = Json::object({{"pool", spec.pool}, {"class", spec.klass}, {"size", print_volume_size(spec.size)}});
  if (!spec.from_volume.empty()) body.set("source", Json::object({{"volume", spec.from_volume}}));
  if (!spec.from_snapshot.empty()) body.set("source", Json::object({{"snapshot", spec.from_snapshot}}));
  if (spec.iops > 0) body.set("iops", spec.iops);
  if (spec.encrypted) body.set("encrypted", true);
  if (!spec.key.empty()) body.set("key", spec.key);
  if (spec.throughput > 0) body.set("throughput", print_volume_size(spec.throughput));
  return new_object(kVolumes, name, std::move(body));
}

Json new_snapshot(const std::string& name, const std::string& volume, const std::string& pool) { return new_object(kSnapshots, name, Json::object({{"volume", volume}, {"pool", pool}})); }

bool is_read_only(const Json& persistent) {
  const auto& modes = persistent["spec"]["accessModes"].items();
  return persistent["spec"]["csi"]["readOnly"].boolean() || (!modes.empty() && std::all_of(modes.begin(), modes.end(), [](const Json& one) { return one.string() == "ReadOnlyMany"; }));
}

std::string attachment_name(std::string_view volume, std::string_view node) { return fmt::format("{}.{}", volume, node); }

Json new_attachment(const std::string& volume, const std::string& pool, const std::string& node, bool read_only, bool replay_log) {
  Json spec = Json::object({{"volume", volume}, {"pool", pool}, {"node", node}});
  if (read_only) spec.set("readOnly", true);
  if (read_only && replay_log) spec.set("replayLog", true);
  return new_object(kAttachments, attachment_name(volume, node), std::move(spec));
}

bool PoolFacts::reaches(std::string_view node) const { return std::binary_search(nodes.begin(), nodes.end(), node); }

PoolFacts read_pool(const Json& object) {
  const Json& status = object["status"];
  PoolFacts out{.name = kube::name_of(object), .id = status["id"].string(), .size = size_of(status["size"]), .promised = size_of(status["promised"]), .limit = size_of(status["limit"]), .free = size_of(status["free"]), .classes = {}, .nodes = {}, .heard = {}};
  for (const Json& one : status["classes"].items()) out.classes.push_back(one.string());
  for (const Json& one : status["nodes"].items()) out.nodes.push_back(one.string());
  std::sort(out.nodes.begin(), out.nodes.end());
  if (const auto heard = parse_time(status["heard"].string())) out.heard = *heard;
  return out;
}

Json reaches_pool(const std::string& pool) {
  Json terms = Json::array({});
  for (const auto& [key, value] : {std::pair(std::string(kPoolLabel), pool), std::pair(kFurtherPool + pool, std::string("true"))})
    terms.push(Json::object({{"matchExpressions", Json::array({Json::object({{"key", key}, {"operator", "In"}, {"values", Json::array({Json(value)})}})})}}));
  return Json::object({{"nodeSelectorTerms", std::move(terms)}});
}

Result<std::string> choose_pool(const std::vector<PoolFacts>& pools, const PoolWish& wish, Instant now) {
  const PoolFacts* best = nullptr;
  std::string why;
  Code code = Code::NotFound;
  const auto refuse = [&](Code as, std::string text) {
    why += (why.empty() ? "" : "; ") + std::move(text);
    if (code == Code::NotFound || as == Code::Unavailable) code = as;
  };
  for (const PoolFacts& one : pools) {
    if (!wish.pools.empty() && std::find(wish.pools.begin(), wish.pools.end(), one.name) == wish.pools.end()) continue;
    if (!wish.node.empty() && !one.reaches(wish.node)) refuse(Code::NotFound, fmt::format("{} is not reached by node {}", one.name, wish.node));
    else if (std::find(one.classes.begin(), one.classes.end(), wish.klass) == one.classes.end()) refuse(Code::NotFound, fmt::format("{} has no class {}", one.name, wish.klass));
    else if (!one.heard || now - *one.heard > kPoolSilence) refuse(Code::Unavailable, fmt::format("{} is silent{}", one.name, one.heard ? " since " + print_time(*one.heard) : ""));
    else if (one.left() < wish.size) refuse(Code::Exhausted, fmt::format("{} has {} left", one.name, print(Bytes{one.left()})));
    else if (best == nullptr || one.left() > best->left() || (one.left() == best->left() && one.name < best->name)) best = &one;
  }
  if (best != nullptr) return best->name;
  if (pools.empty()) return fail(Code::NotFound, "there is no pool: start fairlead-volumes on a machine with an XFS folder, or on a Ceph pool (docs/volumes.md)");
  if (why.empty()) return fail(Code::NotFound, "there is no such pool: see `fairlead volume pools`");
  return fail(code, fmt::format("no pool takes a volume of {}: {}", print(Bytes{wish.size}), why));
}

std::vector<std::string> meant_classes(bool engine) { return {engine ? kLocalManaged : kLocalFast, kDistributed}; }

Result<PoolAndClass> choose_pool_and_class(const std::vector<PoolFacts>& pools, PoolWish wish, bool engine, Instant now) {
  const std::vector<std::string> classes = wish.klass.empty() ? meant_classes(engine) : std::vector{wish.klass};
  std::optional<Error> first;
  for (const std::string& klass : classes) {
    wish.klass = klass;
    auto chosen = choose_pool(pools, wish, now);
    if (chosen) return PoolAndClass{std::move(*chosen), klass};
    const bool none = chosen.error().code == Code::NotFound;
    if (!first) first = std::move(chosen.error());
    if (!none) break;
  }
  return std::unexpected(std::move(*first));
}

}  // namespace fairlead::api
