// SPDX-License-Identifier: GPL-3.0-or-later
// Unpacked images of this node, in a folder of root's on its own disk:
//
//   sha256-HEX/rootfs/   an image, by the digest of its manifest, so that its content is determined whoever brought it
//   sha256-HEX/bytes     how much it takes
//   sha256-HEX/used/PID  by which task, with the time at which that process started
//   sha256-HEX.lock      held by whoever unpacks it, removes it, or takes it into use
//   sha256-HEX.tmp/      while it is being unpacked, or removed
//   fetch-PID/           what a task fetches from a registry
//
// Images may take half of the disk, and never its last 5 %; the one that was not used for the longest time goes first, and none that a living task uses.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "image.h"
#include "layer.h"

namespace fairlead::companion {

// The content of one part of an image, as the user may read it. Its digest is checked by who reads.
using OpenBlob = std::function<Result<ByteSource>(const ImagePart& part)>;

inline constexpr std::string_view kFetched = "fetch-";

struct CacheOptions {
  std::string folder;
  std::uint64_t limit = 0;                         // bytes; 0: half of the disk
  std::function<void()> before_unpack = nullptr;   // once it is known to be needed
  std::function<void()> on_step = nullptr;         // before each change on the disk; for tests
};

// The image is unpacked and in use by `user` when this returns its root. Blocks while another task unpacks the same image. Exhausted: no room, with the numbers; Invalid: a digest that is wrong, or no layer that is known here.
Result<std::string> provide_image(const CacheOptions& options, const std::string& hex, const ImageManifest& manifest, const OpenBlob& open_blob, const ProcessIdentity& user);

// All of a part in memory, its digest checked. Invalid: it is another; Exhausted: larger than `most`.
Result<std::string> read_part(const ImagePart& part, const OpenBlob& open_blob, std::uint64_t most);

}  // namespace fairlead::companion
