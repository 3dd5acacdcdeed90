// SPDX-License-Identifier: Apache-2.0
// The local image store, reading side: images_dir/NAME/TAG/{rootfs/, image.json}. `fairlead image build` writes it.
#pragma once
#include <string>

#include "base/result.h"
#include "node/plan/container_spec.h"

namespace fairlead::node {

// "localhost/slurm:22.05" and "slurm:22.05" name the same image; without a tag, "latest". "quay.io/x/slurm:22.05" names it if it was imported under that
// reference. Invalid: a digest, a bad name.
struct ImageName {
  std::string name, tag;
  bool from_registry = false;
  friend bool operator==(const ImageName&, const ImageName&) = default;
};
Result<ImageName> parse_image_name(const std::string& reference);

// NotFound: not in the store; the message says how to build it.
Result<ImageConfig> find_image(const std::string& images_dir, const std::string& reference);
// /etc/passwd and /etc/group of the image; missing files are empty.
Accounts image_accounts(const ImageConfig& image);

}  // namespace fairlead::node
