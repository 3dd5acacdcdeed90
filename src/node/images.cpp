// SPDX-License-Identifier: Apache-2.0
#include "node/images.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/files.h"
#include "kube/json.h"

namespace fairlead::node {
namespace {

bool plain_name(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; });
}

std::vector<std::string> texts(const kube::Json& list) {
  std::vector<std::string> out;
  for (const kube::Json& item : list.items()) out.push_back(item.string());
  return out;
}

std::string file_in(const std::string& root, const std::string& path) {
  auto fd = open_beneath(root, path, O_RDONLY);
  if (!fd) return {};
  auto text = read_file("/proc/self/fd/" + std::to_string(fd->get()), 1_MiB);
  return text ? *text : std::string();
}

}  // namespace

Result<ImageName> parse_image_name(const std::string& reference) {
  std::string rest = reference;
  if (rest.starts_with("localhost/")) rest.erase(0, 10);
  if (rest.find('@') != std::string::npos)
    return fail(Code::Invalid, fmt::format("image \"{}\": a digest cannot be asked for in the local store", reference));
  ImageName out;
  // Of a registry's image the last part is its name in the store; find_image makes sure that it is that very one.
  if (const auto slash = rest.find_last_of('/'); slash != std::string::npos) {
    const std::string_view registry = std::string_view(rest).substr(0, slash);
    for (const std::string& part : split(registry, '/'))
      if (!plain_name(part.substr(0, part.find(':')))) return fail(Code::Invalid, fmt::format("couldn't parse image name \"{}\"", reference));
    rest.erase(0, slash + 1);
    out.from_registry = true;
  }
  const auto colon = rest.find(':');
  out.name = rest.substr(0, colon);
  out.tag = colon == std::string::npos ? "latest" : rest.substr(colon + 1);
  if (!plain_name(out.name) || !plain_name(out.tag)) return fail(Code::Invalid, fmt::format("couldn't parse image name \"{}\"", reference));
  return out;
}

Result<ImageConfig> find_image(const std::string& images_dir, const std::string& reference) {
  auto name = parse_image_name(reference);
  if (!name) return std::unexpected(std::move(name.error()));
  const std::string folder = images_dir + "/" + name->name + "/" + name->tag;
  auto text = read_file(folder + "/image.json", 16_MiB);
  if (!text && text.error().code != Code::NotFound) return std::unexpected(std::move(text.error()));
  const auto missing = [&] {
    return fail(Code::NotFound,
                fmt::format("image \"{}\" is not in the local store {}; build it with `fairlead image build {}` or fetch it with `fairlead image import`", reference,
                            images_dir, name->name));
  };
  if (!text || !exists(folder + "/rootfs")) return missing();
  auto json = kube::parse_json(*text);
  if (!json) return pass(std::move(json.error()), "read " + folder + "/image.json");
  if (name->from_registry) {
    // An image of another registry may have the same last part.
    const auto references = texts((*json)["references"]);
    const std::string full = reference.find(':', reference.find_last_of('/')) == std::string::npos ? reference + ":latest" : reference;
    if (std::find(references.begin(), references.end(), full) == references.end()) return missing();
  }
  const kube::Json& config = (*json)["config"];
  return ImageConfig{.reference = reference,
                     .id = (*json)["digest"].string_or(name->name + ":" + name->tag),
                     .rootfs = folder + "/rootfs",
                     .entrypoint = texts(config["entrypoint"]),
                     .cmd = texts(config["cmd"]),
                     .env = texts(config["env"]),
                     .user = config["user"].string(),
                     .working_dir = config["working_dir"].string()};
}

Accounts image_accounts(const ImageConfig& image) {
  return {.passwd = file_in(image.rootfs, "etc/passwd"), .group = file_in(image.rootfs, "etc/group")};
}

}  // namespace fairlead::node
