// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/ec2.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "api/instance_volume.h"
#include "api/volume.h"
#include "base/encoding.h"
#include "base/units.h"
#include "hyperpod/key_policy.h"
#include "hyperpod/query_protocol.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::array actions{"CreateVolume", "CopyVolumes", "DescribeVolumes", "ModifyVolume", "DescribeVolumesModifications", "DeleteVolume", "CreateSnapshot", "DescribeSnapshots", "DeleteSnapshot", "DescribeAvailabilityZones"};
constexpr std::array types{"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"};
constexpr const char *type_note = "fairlead.dev/ec2-volume-type", *asked_note = "fairlead.dev/ec2-request";
constexpr std::size_t most_of_a_page = 1000;

std::unexpected<AwsError> wrong(const std::string& why) { return refuse("InvalidParameterValue", why); }
std::string element(std::string_view name, std::string_view text) { return xml_element(name, text); }
std::string gib_of(std::int64_t bytes) { return std::to_string((bytes + (std::int64_t{1} << 30) - 1) >> 30); }

struct Filter {
  std::string name;
  std::vector<std::string> values;
};

class Ec2 {
 public:
  Ec2(const http::Query& form, const Call& call, const Sources& sources) : form_(form), call_(call), sources_(sources) {}

  Answer<std::string> create_volume() {
    auto made = make_volume("CreateVolume", text("SnapshotId").empty() ? std::nullopt : std::optional(Origin{.snapshot = true, .id = text("SnapshotId")}));
    if (!made) return std::unexpected(made.error());
    return volume_xml(*made, {}, {});
  }
  // A copy at once, in the zone of what it is of.
  Answer<std::string> copy_volumes() {
    if (text("SourceVolumeId").empty()) return refuse("MissingParameter", "SourceVolumeId is expected");
    auto made = make_volume("CopyVolumes", Origin{.snapshot = false, .id = text("SourceVolumeId")});
    if (!made) return std::unexpected(made.error());
    return fmt::format("<volumeSet><item>{}</item></volumeSet>", volume_xml(*made, {}, {}));
  }

  Answer<std::string> describe_volumes() {
    if (auto done = call_.allow("ec2:DescribeVolumes", "*"); !done) return std::unexpected(done.error());
    auto volumes = by_ids(api::kVolumes, "vol-", "VolumeId", "InvalidVolume.NotFound", "volume");
    if (!volumes) return std::unexpected(volumes.error());
    const auto attachments = sources_.api.list(api::kAttachments, "");
    if (!attachments) return failed(attachments.error(), "DescribeVolumes");
    const auto instances = sources_.api.list(api::kInstances, "");
    if (!instances) return failed(instances.error(), "DescribeVolumes");
    const auto filters = read_filters();
    std::erase_if(*volumes, [&](const Json& one) {
      return !std::all_of(filters.begin(), filters.end(), [&](const Filter& filter) {
        if (filter.name == "status") return has(filter, volume_status(one));
        if (filter.name == "volume-id") return has(filter, api::ec2_id(kube::name_of(one), "vol-"));
        if (filter.name == "availability-zone") return has(filter, one["spec"]["pool"].string());
        if (filter.name == "snapshot-id") return has(filter, source_snapshot(one));
        return by_tag(filter, one);
      });
    });
    return page(*volumes, "volumeSet", [&](const Json& one) { return volume_xml(one, attachments->items, instances->items); });
  }

  struct Limits { std::optional<std::int64_t> iops, throughput; };
  Answer<Limits> read_limits() const {
    Limits out;
    for (const auto& [name, into] : {std::pair("Iops", &out.iops), {"Throughput", &out.throughput}}) {
      if (text(name).empty()) continue;
      auto read = into == &out.iops ? api::parse_iops(Json(text(name))) : api::parse_throughput(Json(text(name)));
      if (!read) return refuse("InvalidParameterValue", fmt::format("{}: {}", name, read.error().message));
      *into = *read;
    }
    return out;
  }

  Answer<std::string> modify_volume() {
    const auto volume = one_by_id(api::kVolumes, "vol-", text("VolumeId"));
    if (auto done = allow("ec2:ModifyVolume", arn("volume", text("VolumeId")), {}, volume ? &*volume : nullptr); !done) return std::unexpected(done.error());
    if (!volume) return std::unexpected(volume.error());
    const auto limits = read_limits();
    if (!limits) return std::unexpected(limits.error());
    if (const std::string type = text("VolumeType"); !type.empty() && type != type_of(*volume)) return refuse("UnsupportedOperation", "VolumeType: a volume stays in its class");
    const bool limited = limits->iops || limits->throughput;
    if (text("Size").empty() && !limited) return refuse("MissingParameter", "Size, Iops or Throughput: what is to be changed is expected");
    if (limited && (*volume)["spec"]["class"].string_or(api::kLocalFast) == api::kLocalFast) return refuse("InvalidParameterCombination", fmt::format("volumes of class {} have no limits: make a copy with them from a snapshot", api::kLocalFast));
    std::optional<std::int64_t> size;
    if (!text("Size").empty()) {
      const auto read = read_size("Size");
      if (!read) return std::unexpected(read.error());
      size = *read;
    }
    if (text("DryRun") == "true") return dry_run();
    Json now = *volume;
    for (int attempt = 0;; ++attempt) {
      const auto before = api::parse_volume_size(now["spec"]["size"]);
      if (size && before && *size < *before) return wrong("New size cannot be smaller than existing size");
      const Json spec = now["spec"];
      if (size && (!before || *size != *before)) now.child("spec").set("size", api::print_volume_size(*size));
      if (limits->iops) now.child("spec").set("iops", *limits->iops);
      if (limits->throughput) now.child("spec").set("throughput", api::print_volume_size(*limits->throughput));
      if (now["spec"] == spec) break;
      auto done = sources_.api.update(api::kVolumes, now);
      if (done) {
        now = std::move(*done);
        break;
      }
      if (done.error().code != Code::Conflict || attempt >= 20) return failed(done.error(), "ModifyVolume");
      auto again = sources_.api.get(api::kVolumes, {"", kube::name_of(now)});
      if (!again) return failed(again.error(), "ModifyVolume");
      now = std::move(*again);
    }
    return fmt::format("<volumeModification>{}</volumeModification>", modification_xml(now));
  }

  Answer<std::string> describe_modifications() {
    if (auto done = call_.allow("ec2:DescribeVolumesModifications", "*"); !done) return std::unexpected(done.error());
    auto volumes = by_ids(api::kVolumes, "vol-", "VolumeId", "InvalidVolume.NotFound", "volume");
    if (!volumes) return std::unexpected(volumes.error());
    return page(*volumes, "volumeModificationSet", [&](const Json& one) { return modification_xml(one); });
  }

  Answer<std::string> delete_volume() {
    const auto volume = one_by_id(api::kVolumes, "vol-", text("VolumeId"));
    if (auto done = allow("ec2:DeleteVolume", arn("volume", text("VolumeId")), {}, volume ? &*volume : nullptr); !done) return std::unexpected(done.error());
    if (!volume) return std::unexpected(volume.error());
    const auto attachments = sources_.api.list(api::kAttachments, "");
    if (!attachments) return failed(attachments.error(), "DeleteVolume");
    for (const Json& one : attachments->items)
      if (one["spec"]["volume"].string() == kube::name_of(*volume)) return refuse("VolumeInUse", fmt::format("Volume {} is attached to node {}", text("VolumeId"), one["spec"]["node"].string()));
    return remove(api::kVolumes, *volume, "DeleteVolume");
  }

  Answer<std::string> create_snapshot() {
    auto tags = read_tag_specification("snapshot");
    if (!tags) return std::unexpected(tags.error());
    const auto volume = one_by_id(api::kVolumes, "vol-", text("VolumeId"));
    if (auto done = allow("ec2:CreateSnapshot", arn("snapshot", "*"), *tags); !done) return std::unexpected(done.error());
    if (auto done = allow("ec2:CreateSnapshot", arn("volume", text("VolumeId")), *tags, volume ? &*volume : nullptr); !done) return std::unexpected(done.error());
    if (auto done = allow_tags("CreateSnapshot", arn("snapshot", "*"), *tags); !done) return std::unexpected(done.error());
    if (!volume) return std::unexpected(volume.error());
    if (!volume_is_there(*volume)) return refuse("IncorrectState", fmt::format("Volume {} is {}", text("VolumeId"), volume_status(*volume)));
    if (text("DryRun") == "true") return dry_run();
    const std::string name = "snap-" + hex(sha256(fmt::format("{}\n{}", call_.who.arn, call_.once.empty() ? call_.request_id : call_.once))).substr(0, 17);
    Json object = api::new_snapshot(name, kube::name_of(*volume), (*volume)["spec"]["pool"].string());
    if (!tags->empty()) object.child("spec").set("tags", tag_object(*tags));
    note(object, description_note, cut(text("Description"), 255));
    note(object, maker_note, kube::print_json(as_context(call_)));
    auto made = sources_.api.create(api::kSnapshots, object);
    if (!made && made.error().code == Code::Exists) made = sources_.api.get(api::kSnapshots, {"", name});
    if (!made) return failed(made.error(), "CreateSnapshot");
    made->child("status").set("sizeBytes", (*volume)["status"]["sizeBytes"]);
    return snapshot_xml(*made);
  }

  Answer<std::string> describe_snapshots() {
    if (auto done = call_.allow("ec2:DescribeSnapshots", "*"); !done) return std::unexpected(done.error());
    auto snapshots = by_ids(api::kSnapshots, "snap-", "SnapshotId", "InvalidSnapshot.NotFound", "snapshot");
    if (!snapshots) return std::unexpected(snapshots.error());
    const auto filters = read_filters();
    std::erase_if(*snapshots, [&](const Json& one) {
      return !std::all_of(filters.begin(), filters.end(), [&](const Filter& filter) {
        if (filter.name == "status") return has(filter, snapshot_status(one));
        if (filter.name == "snapshot-id") return has(filter, api::ec2_id(kube::name_of(one), "snap-"));
        if (filter.name == "volume-id") return has(filter, api::ec2_id(one["spec"]["volume"].string(), "vol-"));
        if (filter.name == "owner-id") return has(filter, call_.site.account);
        return by_tag(filter, one);
      });
    });
    return page(*snapshots, "snapshotSet", [&](const Json& one) { return snapshot_xml(one); });
  }

  Answer<std::string> delete_snapshot() {
    const auto snapshot = one_by_id(api::kSnapshots, "snap-", text("SnapshotId"));
    if (auto done = allow("ec2:DeleteSnapshot", arn("snapshot", text("SnapshotId")), {}, snapshot ? &*snapshot : nullptr); !done) return std::unexpected(done.error());
    if (!snapshot) return std::unexpected(snapshot.error());
    return remove(api::kSnapshots, *snapshot, "DeleteSnapshot");
  }

  Answer<std::string> describe_zones() {
    if (auto done = call_.allow("ec2:DescribeAvailabilityZones", "*"); !done) return std::unexpected(done.error());
    const auto pools = sources_.api.list(api::kVolumePools, "");
    if (!pools) return failed(pools.error(), "DescribeAvailabilityZones");
    std::vector<std::string> named = list("ZoneName");
    std::string out;
    for (const Json& one : pools->items) {
      const auto facts = api::read_pool(one);
      if (!named.empty() && std::find(named.begin(), named.end(), facts.name) == named.end()) continue;
      const bool heard = facts.heard && call_.now - *facts.heard <= api::kPoolSilence;
      out += "<item>" + element("zoneName", facts.name) + element("zoneId", facts.name) + element("zoneState", heard ? "available" : "impaired") + element("regionName", call_.site.region) + element("optInStatus", "opt-in-not-required") + element("zoneType", "availability-zone") + "</item>";
    }
    return fmt::format("<availabilityZoneInfo>{}</availabilityZoneInfo>", out);
  }

 private:
  // What a new volume begins with.
  struct Origin {
    bool snapshot = false;
    std::string id;
  };

  Answer<Json> make_volume(const char* action, const std::optional<Origin>& origin) {
    auto tags = read_tag_specification("volume");
    if (!tags) return std::unexpected(tags.error());
    const std::string permission = std::string("ec2:") + action;
    iam::Keys asked_for = tag_keys(*tags, {});
    asked_for.set("ec2:Encrypted", {text("Encrypted") == "true" ? "true" : "false"});
    asked_for.set("ec2:VolumeType", {text("VolumeType").empty() ? "gp3" : text("VolumeType")});
    if (!text("Size").empty()) asked_for.set("ec2:VolumeSize", {text("Size")});
    if (!text("Iops").empty()) asked_for.set("ec2:VolumeIops", {text("Iops")});
    if (!text("AvailabilityZone").empty()) asked_for.set("ec2:AvailabilityZone", {text("AvailabilityZone")});
    if (!text("KmsKeyId").empty()) asked_for.set("ec2:KmsKeyId", {text("KmsKeyId")});
    if (origin) asked_for.set(origin->snapshot ? "ec2:ParentSnapshot" : "ec2:ParentVolume", {arn(origin->snapshot ? "snapshot" : "volume", origin->id)});
    if (auto done = call_.allow(permission, arn("volume", "*"), asked_for); !done) return std::unexpected(done.error());
    if (auto done = allow_tags(action, arn("volume", "*"), *tags); !done) return std::unexpected(done.error());
    const std::string type = text("VolumeType").empty() ? "gp3" : text("VolumeType"), token = text("ClientToken");
    const auto limits = read_limits();
    if (!limits) return std::unexpected(limits.error());
    if (text("MultiAttachEnabled") == "true") return refuse("UnsupportedOperation", "MultiAttachEnabled: one node at a time has a volume");
    const bool encrypted = text("Encrypted") == "true";
    if (!text("KmsKeyId").empty() && !encrypted) return refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.");
    if (std::find(types.begin(), types.end(), type) == types.end()) return refuse("UnknownVolumeType", fmt::format("Unknown volume type '{}'", cut(type, 40)));
    const bool copies = origin && !origin->snapshot;
    if (text("AvailabilityZone").empty() && !copies) return refuse("MissingParameter", "AvailabilityZone: the name of a pool is expected (DescribeAvailabilityZones)");
    if (text("Size").empty() && !origin) return refuse("MissingParameter", "Size or SnapshotId is expected");
    // Whose limits are named is held to them.
    api::VolumeSpec spec{.pool = text("AvailabilityZone"), .klass = limits->iops || limits->throughput || encrypted ? api::kLocalManaged : api::kLocalFast, .size = 0, .from_volume = {}, .from_snapshot = {}, .iops = limits->iops.value_or(0), .throughput = limits->throughput.value_or(0), .encrypted = encrypted};
    std::optional<FoundKey> key;
    if (!text("KmsKeyId").empty()) {
      auto found = find_key(sources_.api, call_.site, text("KmsKeyId"));
      if (!found) return std::unexpected(found.error());
      key = std::move(*found);
      spec.key = key->service() ? "" : key->key.name;
    }
    if (origin)
      if (auto done = begin_with(spec, key, *origin, permission, *tags); !done) return std::unexpected(done.error());
    if (key && !origin)
      if (auto done = allow_new_volume(call_, *key); !done) return std::unexpected(done.error());
    if (key)
      if (const std::string why = api::why_closed(key->key); !why.empty()) return refuse("InvalidKMSKey.InvalidState", why);
    if (!text("Size").empty()) {
      const auto size = read_size("Size");
      if (!size) return std::unexpected(size.error());
      if (*size < spec.size) return wrong(fmt::format("Size: {} has {} GiB", origin->id, gib_of(spec.size)));
      spec.size = *size;
    }
    // Once for each token; without one, once for what an SDK sends again.
    const std::string once = !token.empty() ? "token " + token : "request " + (call_.once.empty() ? call_.request_id : call_.once);
    const std::string name = "vol-" + hex(sha256(fmt::format("{}\n{}", call_.who.arn, once))).substr(0, 17);
    const std::string asked = hex(sha256(fmt::format("{} {} {} {} {} {} {} {} {}", spec.pool, spec.size, spec.from_snapshot, spec.from_volume, spec.iops, spec.throughput, type, kube::print_json(tag_object(*tags)), spec.encrypted ? "key " + spec.key : ""))).substr(0, 16);
    if (text("DryRun") == "true") return dry_run();
    const auto facts = sources_.api.get(api::kVolumePools, {"", spec.pool});
    if (!facts && facts.error().code == Code::NotFound) return refuse("InvalidZone.NotFound", fmt::format("The zone '{}' does not exist: pools are zones here", cut(spec.pool, 63)));
    if (!facts) return failed(facts.error(), action);
    spec.klass = api::default_class(api::read_pool(*facts).classes, spec.klass != api::kLocalFast);
    if (api::read_pool(*facts).left() < spec.size && !sources_.api.get(api::kVolumes, {"", name})) return refuse("InsufficientVolumeCapacity", fmt::format("Pool {} has {} left", spec.pool, print(Bytes{api::read_pool(*facts).left()})));
    Json object = api::new_volume(name, spec);
    if (!tags->empty()) object.child("spec").set("tags", tag_object(*tags));
    note(object, type_note, type);
    note(object, asked_note, asked);
    note(object, maker_note, kube::print_json(as_context(call_)));
    auto made = sources_.api.create(api::kVolumes, object);
    if (!made && made.error().code == Code::Exists) {
      made = sources_.api.get(api::kVolumes, {"", name});
      if (made && (*made)["metadata"]["annotations"][asked_note].string() != asked) return refuse("IdempotentParameterMismatch", "The client token you have provided is associated with a resource that is already deleted or has other parameters.");
    }
    if (!made) return failed(made.error(), action);
    return std::move(*made);
  }

  // Whether it may, and what the volume has from there: zone, size, and the key, which copies keep.
  Answer<void> begin_with(api::VolumeSpec& spec, std::optional<FoundKey>& key, const Origin& origin, const std::string& permission, const Tags& tags) {
    const auto from = origin.snapshot ? one_by_id(api::kSnapshots, "snap-", origin.id) : one_by_id(api::kVolumes, "vol-", origin.id);
    // Before anything is told of it.
    if (auto done = allow(permission.c_str(), arn(origin.snapshot ? "snapshot" : "volume", origin.id), tags, from ? &*from : nullptr); !done) return done;
    if (!from) return std::unexpected(from.error());
    const std::string pool = (*from)["spec"]["pool"].string(), its_key = (*from)["status"]["key"].string_or((*from)["spec"]["encrypted"].boolean() ? (*from)["spec"]["key"].string_or(api::kServiceKey) : "");
    if (spec.pool.empty()) spec.pool = pool;
    if (pool != spec.pool) return wrong(fmt::format("{} is in zone {}: volumes are made of it there", origin.id, pool));
    if (origin.snapshot ? (*from)["status"]["phase"].string() != "Ready" : !volume_is_there(*from)) return refuse("IncorrectState", fmt::format("{} {} is not {}", origin.snapshot ? "Snapshot" : "Volume", origin.id, origin.snapshot ? "completed" : "available"));
    (origin.snapshot ? spec.from_snapshot : spec.from_volume) = kube::name_of(*from);
    spec.size = (*from)["status"]["sizeBytes"].integer();
    if (its_key.empty()) {
      if (key) return refuse("UnsupportedOperation", fmt::format("KmsKeyId: {} is not encrypted, and a copy is as what it is of", origin.id));
      return {};
    }
    spec.klass = api::kLocalManaged, spec.encrypted = true;
    const std::string asked = key && key->service() ? "" : spec.key;
    spec.key = its_key == api::kServiceKey ? "" : its_key;
    if (key && asked != spec.key) return refuse("UnsupportedOperation", fmt::format("KmsKeyId: {} is encrypted by another key, and a copy keeps it", origin.id));
    if (spec.key.empty()) return {};
    auto its = named_key(sources_.api, spec.key);
    if (!its) return std::unexpected(its.error());
    key = std::move(*its);
    return key ? allow_copy(call_, *key) : Answer<void>();
  }

  std::string text(std::string_view name) const { return std::string(http::find(form_, name)); }
  std::vector<std::string> list(std::string_view name) const {
    std::vector<std::string> out;
    for (int i = 1; i <= 1000; ++i) {
      const std::string value = text(fmt::format("{}.{}", name, i));
      if (value.empty()) break;
      out.push_back(value);
    }
    return out;
  }
  // Those of snapshots name no account, as in AWS (Service Authorization Reference, EC2).
  std::string arn(std::string_view kind, std::string_view id) const { return fmt::format("arn:aws:ec2:{}:{}:{}/{}", call_.site.region, kind == "snapshot" ? "" : call_.site.account, kind, id); }
  static std::unexpected<AwsError> failed(const Error& error, const char* action) { return std::unexpected(aws_error(error, action)); }
  static std::unexpected<AwsError> dry_run() { return std::unexpected(AwsError{"DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412}); }

  // Tags that are given at once are a permission of their own.
  Answer<void> allow_tags(const char* creates, const std::string& resource, const Tags& tags) const {
    if (tags.empty()) return {};
    iam::Keys keys = tag_keys(tags, {});
    keys.set("ec2:CreateAction", {creates});
    return call_.allow("ec2:CreateTags", resource, keys);
  }
  // With the tags that are asked for and those of what is there.
  Answer<void> allow(const char* action, const std::string& resource, const Tags& asked, const Json* there = nullptr) const {
    iam::Keys keys = tag_keys(asked, {});
    if (there != nullptr)
      for (const auto& [key, value] : (*there)["spec"]["tags"].members())
        for (const char* const family : {"aws:ResourceTag/", "ec2:ResourceTag/"}) keys.set(family + key, {value.string()});
    return call_.allow(action, resource, keys);
  }

  Answer<Tags> read_tag_specification(std::string_view kind) const {
    Tags out;
    for (int i = 1; i <= 20; ++i) {
      const std::string begin = fmt::format("TagSpecification.{}.", i), of = text(begin + "ResourceType");
      if (of.empty()) break;
      if (of != kind) return wrong(fmt::format("TagSpecification.{}.ResourceType: {} is expected", i, kind));
      for (int j = 1; j <= 51; ++j) {
        const std::string key = text(fmt::format("{}Tag.{}.Key", begin, j)), value = text(fmt::format("{}Tag.{}.Value", begin, j));
        if (key.empty()) break;
        if (key.size() > 128 || value.size() > 256) return refuse("InvalidTagKey.Malformed", "a tag's key has 128 characters at most, its value 256");
        if (key.starts_with("aws:")) return refuse("InvalidParameterValue", fmt::format("Tag keys starting with 'aws:' are reserved: {}", cut(key, 40)));
        if (!out.emplace(key, value).second) return refuse("InvalidParameterValue", fmt::format("Duplicate tag key '{}'", cut(key, 40)));
      }
    }
    if (out.size() > 50) return refuse("TagLimitExceeded", "50 tags at most");
    return out;
  }
  static Json tag_object(const Tags& tags) {
    Json out = Json::object();
    for (const auto& [key, value] : tags) out.set(key, value);
    return out;
  }
  Answer<std::int64_t> read_size(const char* name) const {
    const std::string given = text(name);
    std::int64_t gib = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), gib);
    if (error != std::errc() || end != given.data() + given.size() || gib < 1 || gib > (api::kMostVolume >> 30)) return wrong(fmt::format("{}: 1 to {} GiB are expected", name, api::kMostVolume >> 30));
    return gib << 30;
  }
  std::vector<Filter> read_filters() const {
    std::vector<Filter> out;
    for (int i = 1; i <= 100; ++i) {
      const std::string begin = fmt::format("Filter.{}.", i);
      if (text(begin + "Name").empty()) break;
      out.push_back({text(begin + "Name"), list(begin + "Value")});
      if (out.back().values.size() > 200) out.back().values.resize(200);  // as many as EC2 takes
    }
    return out;
  }
  // * and ? stand for any characters, and for one.
  // Going back to the last star alone: O(pattern * value).
  static bool matches(std::string_view pattern, std::string_view value) {
    std::size_t p = 0, v = 0, star = std::string_view::npos, from = 0;
    while (v < value.size()) {
      if (p < pattern.size() && pattern[p] == '*') star = p++, from = v;
      else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == value[v])) ++p, ++v;
      else if (star != std::string_view::npos) p = star + 1, v = ++from;
      else return false;
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
  }
  static bool has(const Filter& filter, const std::string& value) {
    return std::any_of(filter.values.begin(), filter.values.end(), [&](const std::string& one) { return matches(one, value); });
  }
  // What no filter of ours is matches nothing: an answer without it would say more than was asked for.
  static bool by_tag(const Filter& filter, const Json& object) {
    const Json& tags = object["spec"]["tags"];
    if (filter.name.starts_with("tag:")) return tags.has(filter.name.substr(4)) && has(filter, tags[filter.name.substr(4)].string());
    if (filter.name != "tag-key") return false;
    const auto& all = tags.members();
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return has(filter, one.first); });
  }

  Answer<std::vector<Json>> by_ids(const kube::Resource& resource, const char* prefix, const char* parameter, const char* code, const char* what) const {
    auto all = sources_.api.list(resource, "");
    if (!all) return std::unexpected(aws_error(all.error(), what));
    std::sort(all->items.begin(), all->items.end(), [](const Json& a, const Json& b) { return kube::name_of(a) < kube::name_of(b); });
    const auto ids = list(parameter);
    if (ids.empty()) return std::move(all->items);
    std::vector<Json> out;
    for (const std::string& id : ids) {
      const auto found = std::find_if(all->items.begin(), all->items.end(), [&](const Json& one) { return api::ec2_id(kube::name_of(one), prefix) == id; });
      if (found == all->items.end()) return refuse(code, fmt::format("The {} '{}' does not exist.", what, cut(id, 40)));
      out.push_back(*found);
    }
    return out;
  }
  Answer<Json> one_by_id(const kube::Resource& resource, const char* prefix, const std::string& id) const {
    const bool snapshot = resource.kind == "Snapshot";
    if (id.empty()) return refuse("MissingParameter", fmt::format("{}Id is expected", resource.kind));
    const auto all = sources_.api.list(resource, "");
    if (!all) return std::unexpected(aws_error(all.error(), "EC2"));
    for (const Json& one : all->items)
      if (api::ec2_id(kube::name_of(one), prefix) == id) return one;
    return refuse(snapshot ? "InvalidSnapshot.NotFound" : "InvalidVolume.NotFound", fmt::format("The {} '{}' does not exist.", snapshot ? "snapshot" : "volume", cut(id, 40)));
  }
  Answer<std::string> remove(const kube::Resource& resource, const Json& object, const char* action) const {
    if (text("DryRun") == "true") return dry_run();
    const auto done = sources_.api.remove(resource, {"", kube::name_of(object)}, {.grace_seconds = {}, .uid = kube::uid_of(object), .resource_version = {}});
    if (!done && done.error().code != Code::NotFound) return failed(done.error(), action);
    return element("return", "true");
  }
  Answer<std::string> page(const std::vector<Json>& all, const char* set, const std::function<std::string(const Json&)>& print) const {
    std::size_t most = most_of_a_page, from = 0;
    if (const std::string given = text("MaxResults"); !given.empty()) {
      const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), most);
      if (error != std::errc() || end != given.data() + given.size() || most < 1) return wrong("MaxResults: 5 to 1000 are expected");
      most = std::min(most, most_of_a_page);
    }
    // Behind the name that the token holds, whatever came and went meanwhile.
    if (const std::string token = text("NextToken"); !token.empty()) {
      if (!api::is_volume_name(token)) return wrong("NextToken: it is none of ours");
      while (from < all.size() && kube::name_of(all[from]) <= token) ++from;
    }
    std::string out;
    const std::size_t to = std::min(all.size(), from + most);
    for (std::size_t i = from; i < to; ++i) out += "<item>" + print(all[i]) + "</item>";
    out = fmt::format("<{0}>{1}</{0}>", set, out);
    if (to < all.size()) out += element("nextToken", kube::name_of(all[to - 1]));
    return out;
  }

  static bool volume_is_there(const Json& one) { return one["status"]["phase"].string() == "Available" || one["status"]["phase"].string() == "InUse"; }
  static std::string volume_status(const Json& one) {
    const std::string& phase = one["status"]["phase"].string();
    if (kube::deleting(one)) return "deleting";
    if (phase == "InUse" || phase == "Growing") return one["status"]["node"].string().empty() ? "available" : "in-use";
    return phase == "Available" ? "available" : phase == "Failed" || phase == "Lost" || phase == "Unknown" ? "error" : "creating";
  }
  static std::string snapshot_status(const Json& one) {
    const std::string& phase = one["status"]["phase"].string();
    return phase == "Ready" ? "completed" : phase == "Failed" || phase == "Lost" || phase == "Unknown" ? "error" : "pending";
  }
  static std::string type_of(const Json& one) { return one["metadata"]["annotations"][type_note].string_or("gp3"); }
  static std::string source_snapshot(const Json& one) {
    const std::string& from = one["spec"]["source"]["snapshot"].string();
    return from.empty() ? "" : api::ec2_id(from, "snap-");
  }
  static std::string tags_xml(const Json& object) {
    std::string out;
    for (const auto& [key, value] : object["spec"]["tags"].members()) out += "<item>" + element("key", key) + element("value", value.string()) + "</item>";
    return out.empty() ? "" : "<tagSet>" + out + "</tagSet>";
  }
  static std::int64_t size_of(const Json& volume) {
    if (volume["status"].has("sizeBytes")) return volume["status"]["sizeBytes"].integer();
    const auto size = api::parse_volume_size(volume["spec"]["size"]);
    return size ? *size : 0;
  }
  std::string volume_xml(const Json& volume, const std::vector<Json>& attachments, const std::vector<Json>& instances) const {
    const std::string id = api::ec2_id(kube::name_of(volume), "vol-");
    std::string attached;
    for (const Json& one : attachments) {
      if (one["spec"]["volume"].string() != kube::name_of(volume)) continue;
      const std::string& node = one["spec"]["node"].string();
      const auto of = std::find_if(instances.begin(), instances.end(), [&](const Json& instance) { return instance["status"]["node"].string() == node; });
      const std::string holder = of == instances.end() ? node : fmt::format("{}-{}", arn_of(call_.site, "cluster", entity_id((*of)["spec"]["clusterUid"].string())), kube::name_of(*of));
      attached += "<item>" + element("volumeId", id) + element("associatedResource", holder) + element("device", one["spec"]["deviceName"].string_or(one["status"]["device"].string())) +
                  element("status", kube::deleting(one) ? "detaching" : one["status"]["phase"].string() == "Attached" ? "attached" : "attaching") + element("attachTime", one["metadata"]["creationTimestamp"].string()) + element("deleteOnTermination", one["metadata"]["labels"].has(api::kInstanceVolume) ? "true" : "false") + "</item>";
    }
    return element("volumeId", id) + element("size", gib_of(size_of(volume))) + element("snapshotId", source_snapshot(volume)) + element("availabilityZone", volume["spec"]["pool"].string()) + element("status", volume_status(volume)) +
           element("createTime", volume["metadata"]["creationTimestamp"].string()) + "<attachmentSet>" + attached + "</attachmentSet>" + tags_xml(volume) + limits_xml(volume, "iops", "throughput") + element("volumeType", type_of(volume)) + element("encrypted", is_encrypted(volume) ? "true" : "false") + key_xml(is_encrypted(volume), volume["status"]["key"].string_or(volume["spec"]["key"].string())) + element("multiAttachEnabled", "false");
  }
  std::string snapshot_xml(const Json& one) const {
    const std::string status = snapshot_status(one);
    return element("snapshotId", api::ec2_id(kube::name_of(one), "snap-")) + element("volumeId", api::ec2_id(one["spec"]["volume"].string(), "vol-")) + element("status", status) + element("startTime", one["status"].has("takenAt") ? one["status"]["takenAt"].string() : one["metadata"]["creationTimestamp"].string()) +
           element("progress", status == "completed" ? "100%" : "0%") + element("ownerId", call_.site.account) + element("volumeSize", gib_of(one["status"]["sizeBytes"].integer())) + element("description", one["metadata"]["annotations"][description_note].string()) + element("encrypted", one["status"]["key"].string().empty() ? "false" : "true") + key_xml(!one["status"]["key"].string().empty(), one["status"]["key"].string()) + tags_xml(one) +
           element("storageTier", "standard");
  }
  std::string key_xml(bool encrypted, const std::string& name) const { return encrypted ? element("kmsKeyId", key_arn(call_.site, name.empty() ? api::kServiceKey : name)) : ""; }
  static bool is_encrypted(const Json& volume) { return volume["spec"]["encrypted"].boolean() || !volume["status"]["key"].string().empty(); }
  // Throughput in MiB a second.
  static std::string limits_xml(const Json& volume, const char* iops_name, const char* throughput_name) {
    const auto iops = api::parse_iops(volume["spec"]["iops"]), throughput = api::parse_throughput(volume["spec"]["throughput"]);
    return (iops && *iops > 0 ? element(iops_name, std::to_string(*iops)) : "") + (throughput && *throughput > 0 ? element(throughput_name, std::to_string(*throughput >> 20)) : "");
  }
  std::string modification_xml(const Json& volume) const {
    const auto target = api::parse_volume_size(volume["spec"]["size"]);
    const std::int64_t now = size_of(volume), wanted = target ? *target : now;
    const bool done = now >= wanted && api::limits_in_force(volume);
    return element("volumeId", api::ec2_id(kube::name_of(volume), "vol-")) + element("modificationState", done ? "completed" : "modifying") + element("statusMessage", volume["status"]["message"].string()) + element("targetSize", gib_of(wanted)) + element("originalSize", gib_of(now)) +
           limits_xml(volume, "targetIops", "targetThroughput") + element("targetVolumeType", type_of(volume)) + element("originalVolumeType", type_of(volume)) + element("progress", done ? "100" : "0") + element("startTime", print_time(std::chrono::floor<std::chrono::seconds>(call_.now)));
  }

  const http::Query& form_;
  const Call& call_;
  const Sources& sources_;
};

}  // namespace

bool is_ec2_action(std::string_view action) { return std::find(actions.begin(), actions.end(), action) != actions.end(); }

Answer<std::string> answer_ec2(const std::string& action, const http::Query& form, const Call& call, const Sources& sources) {
  Ec2 ec2(form, call, sources);
  if (action == "CreateVolume") return ec2.create_volume();
  if (action == "CopyVolumes") return ec2.copy_volumes();
  if (action == "DescribeVolumes") return ec2.describe_volumes();
  if (action == "ModifyVolume") return ec2.modify_volume();
  if (action == "DescribeVolumesModifications") return ec2.describe_modifications();
  if (action == "DeleteVolume") return ec2.delete_volume();
  if (action == "CreateSnapshot") return ec2.create_snapshot();
  if (action == "DescribeSnapshots") return ec2.describe_snapshots();
  if (action == "DeleteSnapshot") return ec2.delete_snapshot();
  if (action == "DescribeAvailabilityZones") return ec2.describe_zones();
  return refuse("UnknownOperationException", fmt::format("The action {} is not served here: of EC2 what is about volumes and snapshots is", cut(action, 60)));
}

}  // namespace fairlead::hyperpod
