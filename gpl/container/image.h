// SPDX-License-Identifier: GPL-3.0-or-later
// What a user asks for with --container-image and its companions, and what an OCI image says of itself. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct ImageName {
  enum class Kind { Layout, Registry } kind = Kind::Layout;
  std::string path, tag;   // of a layout: a folder; the tag may be empty when it holds one image
  std::string reference;   // of a registry, as skopeo names it: "REGISTRY/IMAGE:TAG"
  friend bool operator==(const ImageName&, const ImageName&) = default;
};
// "oci:PATH[:TAG]", "/PATH" and "./PATH": an OCI layout. "[docker://][REGISTRY#]IMAGE[:TAG|@sha256:...]": of a registry, as enroot and pyxis write it.
Result<ImageName> parse_image_name(std::string_view text);

struct MountSpec {
  std::string from, to;
  bool read_only = false, no_exec = false, recursive = true;
  friend bool operator==(const MountSpec&, const MountSpec&) = default;
};
// "SRC[:DST[:FLAG[+FLAG...]]],...". Flags: ro, rw, noexec, bind, rbind, and those that hold anyway (nosuid, nodev, private, rprivate, slave, rslave).
Result<std::vector<MountSpec>> parse_mount_specs(std::string_view text);

struct ImagePart {
  std::string media_type, digest;  // "sha256:" and 64 of 0-9a-f
  std::uint64_t size = 0;
  std::string os, architecture;    // may be empty
  std::string tag;
  std::string hex() const { return digest.substr(7); }
  friend bool operator==(const ImagePart&, const ImagePart&) = default;
};
struct ImageManifest {
  ImagePart config;
  std::vector<ImagePart> layers;  // the lowest first
};
struct ImageConfig {
  std::string os, architecture, working_directory;
  std::vector<std::string> environment;  // "NAME=VALUE"
};
bool is_index(std::string_view bytes);  // else it may be a manifest
Result<std::vector<ImagePart>> parse_index(std::string_view bytes);
Result<ImageManifest> parse_image_manifest(std::string_view bytes);
Result<ImageConfig> parse_image_config(std::string_view bytes);

struct Platform {
  std::string os, architecture;
};
Platform own_platform();
// The one of that tag (empty: of all), for this platform where they name one. NotFound with what there is instead.
Result<ImagePart> choose(const std::vector<ImagePart>& index, const std::string& tag, const Platform& platform);
Result<void> fits(const ImageConfig& config, const Platform& platform);

// The environment that an image brings: what it sets, but for the names that the user keeps (--container-env). Names that are none are left out.
std::vector<std::string> container_environment(const ImageConfig& config, const std::vector<std::string>& keep);

// /etc/passwd or /etc/group of the image, with the user's line at the end unless that name or number is known there.
std::string with_account(std::string_view file, std::string_view line);

}  // namespace fairlead::companion
