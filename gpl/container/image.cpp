// SPDX-License-Identifier: GPL-3.0-or-later
#include "image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/encoding.h"
#include "json.h"

namespace fairlead::companion {
namespace {

constexpr std::size_t kMostLayers = 512;

std::unexpected<Error> refuse(std::string_view text, std::string_view why) { return fail(Code::Invalid, fmt::format("--container-image={}: {}", text, why)); }

Result<ImageName> parse_layout(std::string_view all, std::string_view rest) {
  ImageName out{.kind = ImageName::Kind::Layout, .path = std::string(rest)};
  if (const auto colon = rest.rfind(':'); colon != std::string_view::npos && rest.find('/', colon) == std::string_view::npos) {
    out.path = rest.substr(0, colon);
    out.tag = rest.substr(colon + 1);
    if (out.tag.empty()) return refuse(all, "nothing stands after the last \":\"");
  }
  if (out.path.empty()) return refuse(all, "no folder is named");
  if (out.path.find('\0') != std::string::npos) return refuse(all, "a null byte");
  return out;
}

bool plain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == '/' || c == ':' || c == '@'; }

Result<ImagePart> descriptor(const JsonValue& from) {
  ImagePart out;
  out.media_type = from.text_of("mediaType");
  out.digest = from.text_of("digest");
  if (!out.digest.starts_with("sha256:") || out.digest.size() != 71 || out.digest.find_first_not_of("0123456789abcdef", 7) != std::string::npos)
    return fail(Code::Invalid, "a part of the image has no sha256 digest");
  const JsonValue* size = from.find("size");
  if (!size || size->kind != JsonValue::Kind::Number) return fail(Code::Invalid, "a part of the image has no size");
  const auto [end, error] = std::from_chars(size->text.data(), size->text.data() + size->text.size(), out.size);
  if (error != std::errc() || end != size->text.data() + size->text.size()) return fail(Code::Invalid, "a part of the image has no size");
  if (const JsonValue* platform = from.find("platform")) {
    out.os = platform->text_of("os");
    out.architecture = platform->text_of("architecture");
  }
  if (const JsonValue* annotations = from.find("annotations")) out.tag = annotations->text_of("org.opencontainers.image.ref.name");
  return out;
}

std::string platform_text(const std::string& os, const std::string& architecture) { return (os.empty() ? "?" : os) + "/" + (architecture.empty() ? "?" : architecture); }

}  // namespace

Result<ImageName> parse_image_name(std::string_view text) {
  if (text.empty()) return refuse(text, "no image is named");
  if (text.starts_with("oci:")) return parse_layout(text, text.substr(4));
  if (text.starts_with('/') || text.starts_with("./") || text.starts_with("../")) return parse_layout(text, text);
  std::string_view rest = text;
  if (rest.starts_with("docker://")) rest.remove_prefix(9);
  else if (rest.find("://") != std::string_view::npos) return refuse(text, "use oci:PATH, docker://IMAGE, or REGISTRY#IMAGE:TAG");
  std::string reference(rest);
  if (const auto hash = rest.find('#'); hash != std::string_view::npos) {
    const std::string_view registry = rest.substr(0, hash);
    if (registry.find('@') != std::string_view::npos) return refuse(text, "a user before \"@\" is not needed: \"skopeo login REGISTRY\" keeps the key of yours");
    if (registry.empty() || registry.find('/') != std::string_view::npos) return refuse(text, "no registry stands before \"#\"");
    reference[hash] = '/';
  }
  const auto bad = std::find_if(reference.begin(), reference.end(), [](char c) { return !plain(c); });
  if (reference.empty() || bad != reference.end() || reference.front() == '-' || reference.front() == '/' || reference.back() == '/') return refuse(text, "is no name of an image");
  if (const auto at = reference.find('@'); at != std::string::npos && reference.compare(at, 8, "@sha256:") != 0) return refuse(text, "only a digest (@sha256:...) may follow \"@\"");
  return ImageName{.kind = ImageName::Kind::Registry, .path = "", .tag = "", .reference = std::move(reference)};
}

Result<std::vector<MountSpec>> parse_mount_specs(std::string_view text) {
  std::vector<MountSpec> out;
  if (text.empty()) return out;
  for (const std::string& entry : split(text, ',')) {
    const auto bad = [&](std::string_view why) { return fail(Code::Invalid, fmt::format("--container-mounts: \"{}\" {}", entry, why)); };
    const auto fields = split(entry, ':');
    if (fields.size() > 3 || fields[0].empty() || (fields.size() > 1 && fields[1].empty())) return bad("is not SRC:DST[:FLAGS]");
    if (entry.find('\0') != std::string::npos) return bad("holds a null byte");
    MountSpec spec{.from = fields[0], .to = fields.size() > 1 ? fields[1] : fields[0]};
    if (spec.from[0] != '/' && spec.from[0] != '.') return bad("must name a path that begins with / or .");
    if (spec.to[0] != '/') return bad("must be mounted at an absolute path");
    if (spec.to.find_first_not_of('/') == std::string::npos) return bad("cannot be mounted over the whole image");
    if (fields.size() > 2)
      for (const std::string& flag : split(fields[2], '+')) {
        static const std::set<std::string> kAnyway = {"rw", "rbind", "nosuid", "nodev", "private", "rprivate", "slave", "rslave"};
        if (flag == "ro") spec.read_only = true;
        else if (flag == "noexec") spec.no_exec = true;
        else if (flag == "bind") spec.recursive = false;
        else if (!kAnyway.contains(flag)) return bad(fmt::format("has the flag \"{}\"; ro, rw, noexec, bind and rbind are known", flag));
      }
    out.push_back(std::move(spec));
  }
  return out;
}

bool is_index(std::string_view bytes) {
  auto json = read_json(bytes);
  return json && json->find("manifests");
}

Result<std::vector<ImagePart>> parse_index(std::string_view bytes) {
  auto json = read_json(bytes);
  if (!json) return pass(std::move(json.error()), "the image's index");
  const JsonValue* list = json->find("manifests");
  if (!list || list->kind != JsonValue::Kind::List) return fail(Code::Invalid, "the image's index names no manifests");
  std::vector<ImagePart> out;
  for (const auto& item : list->items) {
    auto read = descriptor(item);
    if (!read) return pass(std::move(read.error()), "the image's index");
    out.push_back(std::move(*read));
  }
  return out;
}

Result<ImageManifest> parse_image_manifest(std::string_view bytes) {
  auto json = read_json(bytes);
  if (!json) return pass(std::move(json.error()), "the image's manifest");
  const JsonValue *config = json->find("config"), *layers = json->find("layers");
  if (!config || !layers || layers->kind != JsonValue::Kind::List) return fail(Code::Invalid, "the image's manifest is of a kind that is not known here (schema 2 is)");
  if (layers->items.size() > kMostLayers) return fail(Code::Invalid, fmt::format("the image has {} layers; {} are known here at most", layers->items.size(), kMostLayers));
  ImageManifest out;
  auto read = descriptor(*config);
  if (!read) return std::unexpected(std::move(read.error()));
  out.config = std::move(*read);
  for (const auto& item : layers->items) {
    auto layer = descriptor(item);
    if (!layer) return std::unexpected(std::move(layer.error()));
    out.layers.push_back(std::move(*layer));
  }
  return out;
}

Result<ImageConfig> parse_image_config(std::string_view bytes) {
  auto json = read_json(bytes);
  if (!json) return pass(std::move(json.error()), "the image's configuration");
  ImageConfig out;
  out.os = json->text_of("os");
  out.architecture = json->text_of("architecture");
  if (const JsonValue* config = json->find("config")) {
    out.working_directory = config->text_of("WorkingDir");
    if (const JsonValue* environment = config->find("Env"))
      for (const auto& item : environment->items)
        if (item.kind == JsonValue::Kind::Text) out.environment.push_back(item.text);
  }
  return out;
}

Platform own_platform() {
  utsname name{};
  ::uname(&name);
  const std::string machine = name.machine;
  return {"linux", machine == "x86_64" ? "amd64" : machine == "aarch64" ? "arm64" : machine};
}

Result<ImagePart> choose(const std::vector<ImagePart>& index, const std::string& tag, const Platform& platform) {
  std::vector<const ImagePart*> tagged;
  std::set<std::string> tags, platforms;
  for (const auto& one : index) {
    if (!one.tag.empty()) tags.insert(one.tag);
    if (tag.empty() || one.tag == tag) tagged.push_back(&one);
  }
  if (tagged.empty()) return fail(Code::NotFound, tags.empty() ? "it holds no image" : fmt::format("it has no tag \"{}\"; there are: {}", tag, fmt::join(tags, ", ")));
  if (tag.empty() && tags.size() > 1) return fail(Code::Invalid, fmt::format("it holds several images; name one of the tags: {}", fmt::join(tags, ", ")));
  // One that does not name its platform may be of this: its configuration tells.
  for (const ImagePart* one : tagged)
    if (one->os == platform.os && one->architecture == platform.architecture) return *one;
  for (const ImagePart* one : tagged)
    if (one->architecture.empty()) return *one;
  for (const ImagePart* one : tagged) platforms.insert(platform_text(one->os, one->architecture));
  return fail(Code::NotFound, fmt::format("it is for {}; this node is {}", fmt::join(platforms, ", "), platform_text(platform.os, platform.architecture)));
}

Result<void> fits(const ImageConfig& config, const Platform& platform) {
  if (config.os == platform.os && config.architecture == platform.architecture) return {};
  return fail(Code::Invalid, fmt::format("it is for {}; this node is {}", platform_text(config.os, config.architecture), platform_text(platform.os, platform.architecture)));
}

std::vector<std::string> container_environment(const ImageConfig& config, const std::vector<std::string>& keep) {
  std::vector<std::string> out;
  for (const auto& entry : config.environment) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || entry.find('\0') != std::string::npos) continue;
    // What tells a step who it is is not the image's to say.
    if (entry.starts_with("SLURM_") || entry.starts_with("PMI")) continue;
    if (std::find(keep.begin(), keep.end(), entry.substr(0, equals)) == keep.end()) out.push_back(entry);
  }
  return out;
}

std::string with_account(std::string_view file, std::string_view line) {
  std::string out(file);
  const auto wanted = split(line, ':');
  for (const auto& entry : split(file, '\n')) {
    const auto fields = split(entry, ':');
    if (fields.size() > 2 && wanted.size() > 2 && (fields[0] == wanted[0] || fields[2] == wanted[2])) return out;
  }
  if (!out.empty() && out.back() != '\n') out += '\n';
  return out.append(line) + "\n";
}

}  // namespace fairlead::companion
