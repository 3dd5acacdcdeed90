// SPDX-License-Identifier: Apache-2.0
#include "node/volumes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fts.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "api/volume.h"
#include "base/encoding.h"
#include "base/files.h"
#include "blocks/block_devices.h"
#include "blocks/staging.h"
#include "kube/pod_claims.h"
#include "kube/selector.h"
#include "node/mounts.h"

namespace fairlead::node {
namespace {
using kube::Json;

// As a pod's persistentVolumeClaim says it; null: the volume is no claim. podUID: of one that is made for the pod.
Json claim_reference(const Json& pod, const Json& volume) {
  if (!kube::is_ephemeral(volume)) return volume["persistentVolumeClaim"];
  return Json::object({{"claimName", kube::claim_of(pod, volume)}, {"podUID", kube::uid_of(pod)}});
}

// Relative, no "..", no empty part, and not our own "..data".
bool safe_path(const std::string& path) {
  if (path.empty() || path[0] == '/') return false;
  for (const std::string& part : split(path, '/'))
    if (part.empty() || part == "." || part.starts_with("..")) return false;
  return path.find('\0') == std::string::npos;
}

Result<void> add_object(std::vector<VolumeFile>& out, const Json& source, bool secret, std::uint32_t mode, const EnvironmentSources& objects) {
  const std::string& name = source[secret && source.has("secretName") ? "secretName" : "name"].string();
  auto object = (secret ? objects.secret : objects.config_map)(name);
  if (!object) {
    if (source["optional"].boolean() && object.error().code == Code::NotFound) return {};
    return std::unexpected(std::move(object.error()));
  }
  std::map<std::string, std::string> data;
  for (const auto& [key, value] : (*object)["data"].members()) {
    if (!secret) {
      data[key] = value.string();
      continue;
    }
    auto bytes = parse_base64(value.string());
    if (!bytes) return pass(std::move(bytes.error()), "secret " + name);
    data[key] = std::move(*bytes);
  }
  for (const auto& [key, value] : (*object)["binaryData"].members()) {
    auto bytes = parse_base64(value.string());
    if (!bytes) return pass(std::move(bytes.error()), "config map " + name);
    data[key] = std::move(*bytes);
  }
  if (source["items"].items().empty()) {
    for (auto& [key, bytes] : data)
      if (safe_path(key)) out.push_back({.path = key, .bytes = std::move(bytes), .mode = mode});
    return {};
  }
  for (const Json& item : source["items"].items()) {
    const auto found = data.find(item["key"].string());
    if (found == data.end()) {
      if (source["optional"].boolean()) continue;
      return fail(Code::NotFound, fmt::format("references non-existent {} key: {}", secret ? "secret" : "config", item["key"].string()));
    }
    if (!safe_path(item["path"].string())) return fail(Code::Invalid, "volume item path \"" + item["path"].string() + "\" leads out of the volume");
    out.push_back({.path = item["path"].string(),
                   .bytes = found->second,
                   .mode = item["mode"].is_number() ? static_cast<std::uint32_t>(item["mode"].integer()) : mode});
  }
  return {};
}

Result<void> add_downward(std::vector<VolumeFile>& out, const Json& pod, const Json& source, std::uint32_t mode, const EnvironmentSources& objects) {
  for (const Json& item : source["items"].items()) {
    if (!safe_path(item["path"].string())) return fail(Code::Invalid, "volume item path \"" + item["path"].string() + "\" leads out of the volume");
    auto text = item["fieldRef"].is_object() ? field_value(pod, item["fieldRef"]["fieldPath"].string(), objects)
                                             : resource_value(pod, "", item["resourceFieldRef"], objects);
    if (!text) return std::unexpected(std::move(text.error()));
    out.push_back({.path = item["path"].string(),
                   .bytes = std::move(*text),
                   .mode = item["mode"].is_number() ? static_cast<std::uint32_t>(item["mode"].integer()) : mode});
  }
  return {};
}

// The user that every container of the pod runs as by its spec; nothing if they differ or one does not say.
std::optional<std::int64_t> only_user(const Json& pod) {
  std::optional<std::int64_t> out;
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : pod["spec"][list].items()) {
      const Json& own = container["securityContext"]["runAsUser"];
      const Json& user = own.is_null() ? pod["spec"]["securityContext"]["runAsUser"] : own;
      if (!user.is_number() || (out && *out != user.integer())) return std::nullopt;
      out = user.integer();
    }
  }
  return out;
}

Result<void> add_token(std::vector<VolumeFile>& out, const Json& pod, const Json& source, std::uint32_t mode, const VolumeSources& sources) {
  const std::string& path = source["path"].string();
  if (!safe_path(path)) return fail(Code::Invalid, "volume item path \"" + path + "\" leads out of the volume");
  if (!sources.token) return fail(Code::Unavailable, "no service account tokens here");
  auto token = sources.token(source["audience"].string(), source["expirationSeconds"].integer(3600));
  if (!token) return pass(std::move(token.error()), "service account token");
  // As the kubelet: for the only user of the pod, or (by publish_files) for its fsGroup; else all of the pod may read it, as the mode says.
  const auto user = only_user(pod);
  const bool narrow = user || pod["spec"]["securityContext"]["fsGroup"].is_number();
  out.push_back({.path = path, .bytes = std::move(*token), .mode = narrow ? 0600U : mode, .owner = user.value_or(0)});
  return {};
}

std::uint32_t default_mode(const Json& source) {
  return source["defaultMode"].is_number() ? static_cast<std::uint32_t>(source["defaultMode"].integer()) & 0777U : 0644U;
}

std::string print_files(const std::vector<VolumeFile>& files, std::int64_t group) {
  std::string out = std::to_string(group) + "\n";
  for (const VolumeFile& file : files) out += fmt::format("{} {:o} {} {} ", file.path, file.mode, file.owner, file.bytes.size()) + file.bytes + "\n";
  return hex(sha256(out));
}

Result<void> swap_link(const std::string& target, const std::string& link) {
  const std::string temporary = link + "_tmp";
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return fail_errno(errno, "make " + temporary);
  if (::rename(temporary.c_str(), link.c_str()) != 0) return fail_errno(errno, "rename to " + link);
  return {};
}

const Json* volume_named(const Json& pod, const std::string& name) {
  for (const Json& volume : pod["spec"]["volumes"].items())
    if (volume["name"].string() == name) return &volume;
  return nullptr;
}

// Unavailable: it is not, or that cannot be known.
// Gives the device by which its pool says that it is shown here.
Result<std::string> check_attached(const std::string& volume, const Json& pod, const VolumeSources& sources) {
  const auto attached = sources.attachment ? sources.attachment(volume) : Result<Json>(fail(Code::Unavailable, "attachments are not known here"));
  if (!attached && attached.error().code != Code::NotFound) return pass(attached.error(), "whether its volume is attached to this node");
  if (!attached || kube::deleting(*attached) || (*attached)["status"]["phase"].string() != "Attached") return fail(Code::Unavailable, fmt::format("volume {} is not attached to this node yet", volume));
  if (const std::string& holder = (*attached)["metadata"]["annotations"][api::kForPod].string(); !holder.empty() && holder != kube::uid_of(pod)) return fail(Code::Unavailable, fmt::format("volume {} uses the ReadWriteOncePod access mode and is already in use by another pod", volume));
  return (*attached)["status"]["device"].string();
}

std::int64_t fs_group(const Json& pod) { return pod["spec"]["securityContext"]["fsGroup"].integer(-1); }

std::int64_t disk_usage(const std::string& folder) {
  std::int64_t out = 0;
  char* roots[] = {const_cast<char*>(folder.c_str()), nullptr};
  // Never follows links or leaves the file system.
  const std::unique_ptr<FTS, int (*)(FTS*)> walk(::fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, nullptr), &::fts_close);
  if (!walk) return 0;
  while (const FTSENT* entry = ::fts_read(walk.get()))
    if (entry->fts_info == FTS_F) out += static_cast<std::int64_t>(entry->fts_statp->st_blocks) * 512;
  return out;
}

// Gives everything below the folder, and itself, to the group: readable and writable for it, folders hand it on. Never follows links and never leaves
// the file system. `descend` is false once only the folder itself is meant.
Result<void> give_tree_to_group(int parent, const char* name, gid_t group, dev_t device, int depth) {
  const Fd fd(::openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    return errno == ENOENT ? Result<void>() : Result<void>(fail_errno(errno, fmt::format("look at {}", name)));
  if (info.st_dev != device || S_ISLNK(info.st_mode)) return {};
  if (info.st_gid != group && ::fchownat(fd.get(), "", static_cast<uid_t>(-1), group, AT_EMPTY_PATH) != 0)
    return fail_errno(errno, fmt::format("give {} to its group", name));
  const mode_t wanted = (info.st_mode & 07777U) | (S_ISDIR(info.st_mode) ? 02770U : 0660U);
  if (wanted != (info.st_mode & 07777U) && ::chmod(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), wanted) != 0)
    return fail_errno(errno, fmt::format("change the mode of {}", name));
  if (!S_ISDIR(info.st_mode) || depth > 256) return {};
  const Fd folder(::openat(fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return fail_errno(errno, fmt::format("read {}", name));
  auto names = list_dir(fmt::format("/proc/self/fd/{}", folder.get()));
  if (!names) return std::unexpected(std::move(names.error()));
  for (const std::string& child : *names)
    if (auto given = give_tree_to_group(folder.get(), child.c_str(), group, device, depth + 1); !given) return given;
  return {};
}

// fsGroup on a claim. OnRootMismatch: nothing is done if the folder itself is already as it should be.
Result<void> give_claim_to_group(const std::string& folder, std::int64_t group, const std::string& policy) {
  struct stat info{};
  if (::stat(folder.c_str(), &info) != 0) return fail_errno(errno, "look at " + folder);
  const bool as_it_should = info.st_gid == static_cast<gid_t>(group) && (info.st_mode & 02070U) == 02070U;
  if (policy == "OnRootMismatch" && as_it_should) return {};
  return give_tree_to_group(AT_FDCWD, folder.c_str(), static_cast<gid_t>(group), info.st_dev, 0);
}

// Makes or checks what a hostPath of this type stands for.
Result<void> ensure_host_path(const std::string& path, const std::string& type) {
  struct stat info{};
  const bool there = ::stat(path.c_str(), &info) == 0;
  const auto wrong = [&](const char* what) { return fail(Code::Unavailable, fmt::format("hostPath type check failed: {} is not {}", path, what)); };
  if (type == "DirectoryOrCreate" && !there) return make_dirs(path, 0755);
  if (type == "FileOrCreate" && !there) return write_file_atomically(path, "", 0644);
  if (!there) return fail(Code::Unavailable, "hostPath " + path + " does not exist on this node");
  if (type.starts_with("Directory") && !S_ISDIR(info.st_mode)) return wrong("a directory");
  if (type.starts_with("File") && !S_ISREG(info.st_mode)) return wrong("a file");
  if (type == "Socket" && !S_ISSOCK(info.st_mode)) return wrong("a socket");
  if (type == "CharDevice" && !S_ISCHR(info.st_mode)) return wrong("a character device");
  if (type == "BlockDevice" && !S_ISBLK(info.st_mode)) return wrong("a block device");
  return {};
}

// Group and set-group-id for a volume that belongs to the pod alone.
Result<void> give_to_group(const std::string& folder, std::int64_t group, mode_t mode) {
  if (group < 0) return {};
  if (::chown(folder.c_str(), 0, static_cast<gid_t>(group)) != 0 || ::chmod(folder.c_str(), mode | S_ISGID) != 0)
    return fail_errno(errno, "give " + folder + " to its group");
  return {};
}

}  // namespace

bool made_of_objects(const Json& volume) {
  return volume["configMap"].is_object() || volume["secret"].is_object() || volume["downwardAPI"].is_object() || volume["projected"].is_object();
}

Result<std::vector<VolumeFile>> volume_files(const Json& pod, const Json& volume, const VolumeSources& sources) {
  std::vector<VolumeFile> out;
  const auto add = [&](const Json& source, std::uint32_t mode) -> Result<void> {
    for (const bool secret : {false, true})
      if (const Json& object = source[secret ? "secret" : "configMap"]; object.is_object())
        if (auto added = add_object(out, object, secret, mode, sources.objects); !added) return added;
    if (source["serviceAccountToken"].is_object()) return add_token(out, pod, source["serviceAccountToken"], mode, sources);
    if (source["downwardAPI"].is_object()) return add_downward(out, pod, source["downwardAPI"], mode, sources.objects);
    return {};
  };
  if (const Json& projected = volume["projected"]; projected.is_object()) {
    for (const Json& source : projected["sources"].items())
      if (auto added = add(source, default_mode(projected)); !added) return std::unexpected(std::move(added.error()));
  } else {
    const Json& source = volume["configMap"].is_object() ? volume["configMap"]
                         : volume["secret"].is_object()  ? volume["secret"]
                                                         : volume["downwardAPI"];
    if (auto added = add(volume, default_mode(source)); !added) return std::unexpected(std::move(added.error()));
  }
  // Of two sources for one path the later one wins.
  std::stable_sort(out.begin(), out.end(), [](const VolumeFile& a, const VolumeFile& b) { return a.path < b.path; });
  std::vector<VolumeFile> unique;
  for (VolumeFile& file : out) {
    if (!unique.empty() && unique.back().path == file.path)
      unique.back() = std::move(file);
    else
      unique.push_back(std::move(file));
  }
  return unique;
}

Result<bool> publish_files(const std::string& folder, const std::vector<VolumeFile>& files, std::int64_t group) {
  const std::string version = "..v-" + print_files(files, group).substr(0, 16);
  char now[128];
  const ssize_t size = ::readlink((folder + "/..data").c_str(), now, sizeof now);
  const std::string before = size > 0 ? std::string(now, static_cast<std::size_t>(size)) : "";
  if (before == version) return false;
  const std::string fresh = folder + "/" + version;
  if (auto removed = remove_tree(fresh); !removed) return std::unexpected(std::move(removed.error()));
  if (auto made = make_dirs(fresh, 0755); !made) return std::unexpected(std::move(made.error()));
  for (const VolumeFile& file : files) {
    const std::string path = fresh + "/" + file.path;
    if (auto made = make_dirs(path.substr(0, path.find_last_of('/')), 0755); !made) return std::unexpected(std::move(made.error()));
    // With an fsGroup its members can read, as Kubernetes does it.
    const std::uint32_t mode = group >= 0 ? file.mode | 0440U : file.mode;
    if (auto written = write_file_atomically(path, file.bytes, mode); !written) return std::unexpected(std::move(written.error()));
    if ((group >= 0 || file.owner != 0) && ::chown(path.c_str(), static_cast<uid_t>(file.owner), static_cast<gid_t>(std::max<std::int64_t>(group, 0))) != 0)
      return fail_errno(errno, "chown " + path);
  }
  if (auto swapped = swap_link(version, folder + "/..data"); !swapped) return std::unexpected(std::move(swapped.error()));
  std::vector<std::string> wanted;
  for (const VolumeFile& file : files) {
    const std::string first = file.path.substr(0, file.path.find('/'));
    if (!wanted.empty() && wanted.back() == first) continue;
    wanted.push_back(first);
    if (auto linked = swap_link("..data/" + first, folder + "/" + first); !linked) return std::unexpected(std::move(linked.error()));
  }
  auto names = list_dir(folder);
  if (!names) return std::unexpected(std::move(names.error()));
  for (const std::string& name : *names) {
    if (name == "..data" || name == version || std::find(wanted.begin(), wanted.end(), name) != wanted.end()) continue;
    if (auto removed = remove_tree(folder + "/" + name); !removed) return std::unexpected(std::move(removed.error()));
  }
  return true;
}

Result<void> Volumes::prepare_one(const Json& pod, const Json& volume, const VolumeSources& sources) const {
  const std::string& uid = kube::uid_of(pod);
  const std::string here = folder(uid, volume["name"].string());
  if (made_of_objects(volume)) {
    auto files = volume_files(pod, volume, sources);
    if (!files) return std::unexpected(std::move(files.error()));
    if (auto made = make_dirs(here, 0755); !made) return made;
    // Secrets never touch a disk.
    if (!volume["configMap"].is_object() && !volume["downwardAPI"].is_object()) {
      auto mounted = is_mount_point(here);
      if (!mounted) return std::unexpected(std::move(mounted.error()));
      if (!*mounted) {
        auto tmpfs = ScopedMount::make("tmpfs", "secret", here, MS_NOSUID | MS_NODEV, "mode=755,size=8m");
        if (!tmpfs) return std::unexpected(std::move(tmpfs.error()));
        std::move(*tmpfs).keep();
      }
    }
    auto published = publish_files(here, *files, fs_group(pod));
    if (!published) return std::unexpected(std::move(published.error()));
    return {};
  }
  if (const Json& empty = volume["emptyDir"]; empty.is_object()) {
    if (!exists(here)) {
      if (auto made = make_dirs(here, 0777); !made) return made;
      ::chmod(here.c_str(), 0777);
    }
    if (empty["medium"].string() == "Memory") {
      auto mounted = is_mount_point(here);
      if (!mounted) return std::unexpected(std::move(mounted.error()));
      if (!*mounted) {
        std::string options = "mode=777";
        if (!empty["sizeLimit"].is_null()) {
          auto limit = kube::Quantity::from_json(empty["sizeLimit"]);
          if (!limit) return pass(std::move(limit.error()), "emptyDir " + volume["name"].string());
          options += fmt::format(",size={}", std::max<std::int64_t>(limit->value(), 4096));
        }
        auto tmpfs = ScopedMount::make("tmpfs", "empty", here, MS_NOSUID | MS_NODEV, options);
        if (!tmpfs) return std::unexpected(std::move(tmpfs.error()));
        std::move(*tmpfs).keep();
      }
    }
    return give_to_group(here, fs_group(pod), 0777);
  }
  if (const Json& host = volume["hostPath"]; host.is_object()) {
    return ensure_host_path(host["path"].string(), host["type"].string());
  }
  const Json reference = claim_reference(pod, volume);
  auto place = place_of(reference, sources);
  if (!place) return std::unexpected(std::move(place.error()));
  const std::int64_t group = fs_group(pod);
  if (!place->volume.empty()) {
    const std::string doing = fmt::format("persistentvolumeclaim \"{}\"", reference["claimName"].string());
    if (place->block) {
      auto attached = check_attached(place->volume, pod, sources);
      if (!attached) return pass(std::move(attached.error()), doing);
      const auto device = blocks::device_of(place->volume, *attached, nullptr);
      return device ? Result<void>() : Result<void>(pass(device.error(), doing));
    }
    // Nodes of one machine see one another's devices: that it is there says nothing of whose it is.
    std::string told;
    if (const auto mounted = exists(here) ? is_mount_point(here) : Result<bool>(false); !mounted || !*mounted) {
      auto attached = check_attached(place->volume, pod, sources);
      if (!attached) return pass(std::move(attached.error()), doing);
      told = std::move(*attached);
    }
    // Mounted for each pod, at a place of its own: who goes takes his mount with him, and with the last one the device is free.
    if (auto done = blocks::stage({.volume = place->volume, .place = here, .type = place->file_system, .flags = place->mount_options, .read_only = place->read_only, .device = told}); !done) return pass(std::move(done.error()), doing);
    if (group >= 0 && !place->read_only && !reference["readOnly"].boolean()) return give_claim_to_group(here, group, pod["spec"]["securityContext"]["fsGroupChangePolicy"].string());
    return {};
  }
  if (auto there = ensure_host_path(place->path, place->type); !there)
    return pass(std::move(there.error()), fmt::format("persistentvolumeclaim \"{}\"", reference["claimName"].string()));
  // Another hostPath may be anything of the node's: that is not given away.
  if (group >= 0 && !reference["readOnly"].boolean() && (place->local || is_own(place->path)))
    return give_claim_to_group(place->path, group, pod["spec"]["securityContext"]["fsGroupChangePolicy"].string());
  return {};
}

Result<ClaimPlace> Volumes::place_of(const Json& reference, const VolumeSources& sources) const {
  const std::string& name = reference["claimName"].string();
  auto claim = sources.claim(name);
  if (!claim) return std::unexpected(std::move(claim.error()));
  // For a volume that is made for the pod: one of its name that somebody else has made is not it.
  if (const Json& owner = reference["podUID"]; owner.is_string() && !kube::is_for_pod(*claim, owner.string()))
    return fail(Code::Unavailable, fmt::format("persistentvolumeclaim \"{}\" was not made for this pod: rename the pod, or delete the claim", name));
  const auto volume_name = volume_of_claim(*claim);
  if (!volume_name) return std::unexpected(volume_name.error());
  const std::string doing = fmt::format("persistentvolumeclaim \"{}\"", name);
  auto volume = sources.volume(*volume_name);
  if (!volume) return pass(std::move(volume.error()), doing);
  auto node = sources.node();
  if (!node) return pass(std::move(node.error()), doing);
  auto place = place_of_claim(*claim, *volume, *node);
  if (!place) return pass(std::move(place.error()), doing);
  if (is_own(place->path))  // what users make in there, links too, must not lead out of it
    if (auto fd = open_beneath(volumes_dir_, place->path.substr(volumes_dir_.size() + 1), O_PATH | O_DIRECTORY); !fd) return pass(std::move(fd.error()), doing);
  return place;
}

Result<std::string> Volumes::source_of(const Json& pod, const Json& volume, const VolumeSources& sources) const {
  if (volume["hostPath"].is_object()) return volume["hostPath"]["path"].string();
  const Json reference = claim_reference(pod, volume);
  if (!reference.is_object()) return folder(kube::uid_of(pod), volume["name"].string());
  auto place = place_of(reference, sources);
  if (!place) return std::unexpected(std::move(place.error()));
  if (place->block) return fail(Code::Invalid, fmt::format("volume \"{}\" has volumeMode Block, but is specified in volumeMounts: name it in volumeDevices", volume["name"].string()));
  if (!place->volume.empty()) return folder(kube::uid_of(pod), volume["name"].string());
  return std::move(place->path);
}

Result<void> Volumes::prepare(const Json& pod, const VolumeSources& sources) const {
  for (const Json& volume : pod["spec"]["volumes"].items())
    if (auto prepared = prepare_one(pod, volume, sources); !prepared)
      return pass(std::move(prepared.error()), fmt::format("volume \"{}\"", volume["name"].string()));
  return {};
}

Result<void> Volumes::refresh(const Json& pod, const VolumeSources& sources) const {
  for (const Json& volume : pod["spec"]["volumes"].items()) {
    if (!made_of_objects(volume) || !exists(folder(kube::uid_of(pod), volume["name"].string()))) continue;
    auto files = volume_files(pod, volume, sources);
    if (!files) return pass(std::move(files.error()), fmt::format("volume \"{}\"", volume["name"].string()));
    auto published = publish_files(folder(kube::uid_of(pod), volume["name"].string()), *files, fs_group(pod));
    if (!published) return pass(std::move(published.error()), fmt::format("volume \"{}\"", volume["name"].string()));
  }
  return {};
}

Result<void> Volumes::grow(const Json& pod) {
  for (const Json& volume : pod["spec"]["volumes"].items()) {
    if (kube::claim_of(pod, volume).empty()) continue;
    const std::string here = folder(kube::uid_of(pod), volume["name"].string());
    const auto mounted = exists(here) ? is_mount_point(here) : Result<bool>(false);
    const std::lock_guard lock(mutex_);
    if (sizes_.size() > 1'000) std::erase_if(sizes_, [](const auto& one) { return !exists(one.first); });  // of pods that are gone
    if (!mounted || !*mounted) {
      sizes_.erase(here);
      continue;
    }
    if (auto done = blocks::grow_to_device(here, sizes_[here]); !done) return pass(std::move(done.error()), fmt::format("volume \"{}\"", volume["name"].string()));
  }
  return {};
}

std::string Volumes::over_limit(const Json& pod, const std::string& logs) const {
  const std::string& uid = kube::uid_of(pod);
  std::int64_t used_by_volumes = 0;
  const auto limit_of = [](const Json& container) { return kube::Quantity::from_json(container["resources"]["limits"]["ephemeral-storage"]); };
  const auto& containers = pod["spec"]["containers"].items();
  const bool all_limited = !containers.empty() && std::all_of(containers.begin(), containers.end(), [](const Json& container) {
    return !container["resources"]["limits"]["ephemeral-storage"].is_null();
  });
  for (const Json& volume : pod["spec"]["volumes"].items()) {
    const Json& empty = volume["emptyDir"];
    // In memory the file system itself holds the limit.
    if (!empty.is_object() || empty["medium"].string() == "Memory" || (empty["sizeLimit"].is_null() && !all_limited)) continue;
    const std::int64_t used = disk_usage(folder(uid, volume["name"].string()));
    used_by_volumes += used;
    const auto limit =
        empty["sizeLimit"].is_null() ? Result<kube::Quantity>(fail(Code::NotFound, "")) : kube::Quantity::from_json(empty["sizeLimit"]);
    if (limit && used > limit->value())
      return fmt::format("Usage of EmptyDir volume \"{}\" exceeds the limit \"{}\".", volume["name"].string(), limit->text());
  }
  std::int64_t together = used_by_volumes, allowed = 0;
  for (const Json& container : containers) {
    const std::string& name = container["name"].string();
    if (container["resources"]["limits"]["ephemeral-storage"].is_null()) continue;
    const auto limit = limit_of(container);
    if (!limit) continue;
    const std::int64_t used = disk_usage(fmt::format("{}/{}/containers/{}", pods_dir_, uid, name)) + disk_usage(logs + "/" + name);
    if (used > limit->value()) return fmt::format("Container {} exceeded its local ephemeral storage limit \"{}\".", name, limit->text());
    together += used;
    allowed += limit->value();
  }
  if (all_limited && together > allowed) return fmt::format("Pod ephemeral local storage usage exceeds the total limit of containers {}.", allowed);
  return {};
}

Result<std::vector<MountSpec>> Volumes::mounts(const Json& pod, const Json& container, const VolumeSources& sources,
                                               const std::vector<std::pair<std::string, std::string>>& variables) const {
  std::vector<MountSpec> out;
  int index = -1;
  for (const Json& mount : container["volumeMounts"].items()) {
    ++index;
    const Json* volume = volume_named(pod, mount["name"].string());
    if (volume == nullptr) return fail(Code::Invalid, "volume \"" + mount["name"].string() + "\" is not in the pod");
    auto source = source_of(pod, *volume, sources);
    if (!source) return std::unexpected(std::move(source.error()));
    std::string from = *source;
    const std::string& expression = mount["subPathExpr"].string();
    const std::string sub = expression.empty() ? mount["subPath"].string() : expand(expression, variables);
    if (sub.find("$(") != std::string::npos && !expression.empty())
      return fail(Code::Invalid, "subPathExpr \"" + expression + "\" names a variable that the container does not have");
    if (!sub.empty()) {
      if (made_of_objects(*volume) && from.find("..data") == std::string::npos) from += "/..data";
      const auto parts = split(sub, '/');
      if (sub[0] == '/' || std::find(parts.begin(), parts.end(), "..") != parts.end())
        return fail(Code::Invalid, "subPath \"" + sub + "\" leads out of its volume");
      // ..data is a link within the volume; a user's path must not leave what it points to.
      char resolved[4096];
      const std::string root = ::realpath(from.c_str(), resolved) != nullptr ? resolved : from;
      auto fd = open_beneath(root, sub, O_PATH);
      if (!fd && fd.error().code == Code::NotFound && !made_of_objects(*volume)) {
        std::string part;
        for (const std::string& name : split(sub, '/')) {
          if (name.empty()) continue;
          auto parent = open_beneath(root, part, O_PATH | O_DIRECTORY);
          if (!parent) return pass(std::move(parent.error()), "subPath");
          if (::mkdirat(parent->get(), name.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno(errno, "make subPath " + sub);
          if (fs_group(pod) >= 0) (void)::fchownat(parent->get(), name.c_str(), 0, static_cast<gid_t>(fs_group(pod)), AT_SYMLINK_NOFOLLOW);
          part += (part.empty() ? "" : "/") + name;
        }
        fd = open_beneath(root, sub, O_PATH);
      }
      if (!fd) return pass(std::move(fd.error()), "subPath");
      struct stat info{};
      if (::fstat(fd->get(), &info) != 0) return fail_errno(errno, "look at subPath " + sub);
      const std::string place = fmt::format("{}/{}/subpaths/{}/{}", pods_dir_, kube::uid_of(pod), container["name"].string(), index);
      auto mounted = is_mount_point(place);
      if (!mounted) return std::unexpected(std::move(mounted.error()));
      if (*mounted) {
        if (auto unmounted = unmount_below(place); !unmounted) return std::unexpected(std::move(unmounted.error()));
      }
      if (auto removed = remove_tree(place); !removed) return std::unexpected(std::move(removed.error()));
      if (auto made = make_dirs(S_ISDIR(info.st_mode) ? place : place.substr(0, place.find_last_of('/')), 0755); !made)
        return std::unexpected(std::move(made.error()));
      if (!S_ISDIR(info.st_mode))
        if (auto made = write_file_atomically(place, "", 0600); !made) return std::unexpected(std::move(made.error()));
      auto bound = ScopedMount::bind(*fd, place);
      if (!bound) return std::unexpected(std::move(bound.error()));
      std::move(*bound).keep();
      from = place;
    }
    const bool read_only = mount["readOnly"].boolean() || (*volume)["persistentVolumeClaim"]["readOnly"].boolean() || made_of_objects(*volume);
    const std::string& propagation = mount["mountPropagation"].string();
    std::string target = mount["mountPath"].string();
    if (target.empty() || target[0] != '/') target.insert(0, "/");
    out.push_back({.source = from,
                   .target = target,
                   .type = "bind",
                   .options = {"rbind", read_only ? "ro" : "rw",
                               propagation == "HostToContainer" ? "rslave"
                               : propagation == "Bidirectional" ? "rshared"
                                                                : "rprivate"}});
  }
  // Parents before children, whatever the order in the pod.
  std::stable_sort(out.begin(), out.end(), [](const MountSpec& a, const MountSpec& b) {
    return std::count(a.target.begin(), a.target.end(), '/') < std::count(b.target.begin(), b.target.end(), '/');
  });
  return out;
}

Result<std::vector<Device>> Volumes::devices(const Json& pod, const Json& container, const VolumeSources& sources, std::int64_t owner, std::int64_t group) const {
  std::vector<Device> out;
  for (const Json& one : container["volumeDevices"].items()) {
    const std::string& name = one["name"].string();
    const Json* volume = volume_named(pod, name);
    if (volume == nullptr) return fail(Code::Invalid, "volume \"" + name + "\" is not in the pod");
    const Json reference = claim_reference(pod, *volume);
    if (!reference.is_object()) return fail(Code::Invalid, fmt::format("volume \"{}\" is no claim: only such are block devices", name));
    const auto place = place_of(reference, sources);
    if (!place) return std::unexpected(place.error());
    if (!place->block) return fail(Code::Invalid, fmt::format("volume \"{}\" has volumeMode Filesystem, but is specified in volumeDevices: name it in volumeMounts", name));
    const std::string doing = fmt::format("volume \"{}\"", name);
    // Asked anew at each start: nothing is mounted that would have kept it here since the last.
    auto attached = check_attached(place->volume, pod, sources);
    if (!attached) return pass(std::move(attached.error()), doing);
    const auto device = blocks::device_of(place->volume, *attached, nullptr);
    if (!device) return pass(device.error(), doing);
    const bool read_only = device->read_only || place->read_only || reference["readOnly"].boolean();
    out.push_back({.path = one["devicePath"].string(), .type = 'b', .major = device->major, .minor = device->minor, .mode = read_only ? 0440U : 0660U, .uid = owner, .gid = group, .permissions = read_only ? "r" : "rw", .volume = place->volume});
  }
  return out;
}

std::string pod_hostname(const Json& pod, const std::string& domain) {
  const Json& spec = pod["spec"];
  const std::string name = spec["hostname"].string_or(kube::name_of(pod)).substr(0, 63), &subdomain = spec["subdomain"].string();
  if (!spec["setHostnameAsFQDN"].boolean() || subdomain.empty()) return name;
  return fmt::format("{}.{}.{}.svc.{}", name, subdomain, kube::space_of(pod), domain);
}

EtcFiles make_etc_files(const Json& pod, const std::string& pod_ip, const std::string& node_name, const DnsConfig& dns) {
  EtcFiles out;
  const Json& spec = pod["spec"];
  const bool host_network = spec["hostNetwork"].boolean();
  const std::string hostname = host_network ? node_name : pod_hostname(pod, dns.domain);
  out.hostname = hostname + "\n";
  out.hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
  if (!pod_ip.empty()) {
    const std::string& subdomain = spec["subdomain"].string();
    const std::string name = hostname.substr(0, hostname.find('.'));
    const std::string full =
        subdomain.empty() || host_network ? "" : fmt::format("{}.{}.{}.svc.{}\t", name, subdomain, kube::space_of(pod), dns.domain);
    for (const std::string& ip : split(pod_ip, ',')) out.hosts += ip + "\t" + full + (host_network ? hostname : name) + "\n";
  }
  for (const Json& alias : spec["hostAliases"].items()) {
    out.hosts += alias["ip"].string();
    for (const Json& name : alias["hostnames"].items()) out.hosts += "\t" + name.string();
    out.hosts += "\n";
  }
  std::vector<std::string> servers, searches, options;
  const std::string policy = spec["dnsPolicy"].string_or("ClusterFirst");
  if (policy == "Default" || (policy == "ClusterFirst" && host_network)) {
    for (const std::string& line : split(dns.node_resolv, '\n')) {
      const auto words = split(trim(line), ' ');
      if (words.size() < 2) continue;
      if (words[0] == "nameserver") servers.push_back(words[1]);
      if (words[0] == "search") searches.insert(searches.end(), words.begin() + 1, words.end());
      if (words[0] == "options") options.insert(options.end(), words.begin() + 1, words.end());
    }
  } else if (policy != "None") {
    servers = {dns.server};
    searches = {kube::space_of(pod) + ".svc." + dns.domain, "svc." + dns.domain, dns.domain};
    options = {"ndots:5"};
  }
  const Json& config = spec["dnsConfig"];
  for (const Json& item : config["nameservers"].items()) servers.push_back(item.string());
  for (const Json& item : config["searches"].items()) searches.push_back(item.string());
  for (const Json& item : config["options"].items()) {
    const std::string& name = item["name"].string();
    std::erase_if(options, [&](const std::string& old) { return old == name || old.starts_with(name + ":"); });
    options.push_back(item["value"].string().empty() ? name : name + ":" + item["value"].string());
  }
  for (const std::string& server : servers) out.resolv += "nameserver " + server + "\n";
  if (!searches.empty()) {
    out.resolv += "search";
    for (const std::string& name : searches) out.resolv += " " + name;
    out.resolv += "\n";
  }
  if (!options.empty()) {
    out.resolv += "options";
    for (const std::string& option : options) out.resolv += " " + option;
    out.resolv += "\n";
  }
  return out;
}

}  // namespace fairlead::node
