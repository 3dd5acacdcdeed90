// SPDX-License-Identifier: GPL-3.0-or-later
// Where an image comes from: a layout on a file system, read with the rights of the user, or a registry by skopeo, which runs as the user.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cache.h"
#include "image.h"

namespace fairlead::companion {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string name, home;
};

// Opens beneath the root that `root` is, as that user; links of /proc that lead to what a process holds are not followed.
Result<Fd> open_as(const User& user, int root, const std::string& path, int flags);

struct Image {
  std::string hex;  // of its manifest
  ImageManifest manifest;
  ImageConfig config;
  OpenBlob open_blob;
};
// Reads all but the layers; the user can read these, too. `folder`: where skopeo puts what it fetches, the cache's. `environment`: the user's proxies and the like.
Result<Image> find_image(const ImageName& name, const User& user, const std::string& folder, const std::map<std::string, std::string>& environment);

}  // namespace fairlead::companion
