// SPDX-License-Identifier: GPL-3.0-or-later
// Images come from outside: their texts, their layers, and what users ask for.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/files.h"
#include "image.h"
#include "layer.h"

using namespace fairlead;
using namespace fairlead::companion;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)parse_image_manifest(text);
  (void)parse_index(text);
  if (auto config = parse_image_config(text))
    for (const auto& entry : container_environment(*config, {})) INVARIANT(entry.find('\0') == std::string::npos && entry.find('=') > 0);
  if (auto name = parse_image_name(text)) INVARIANT(name->kind == ImageName::Kind::Layout ? !name->path.empty() : name->reference.find_first_of(" \n\t'\"") == std::string::npos && name->reference[0] != '-');
  if (auto mounts = parse_mount_specs(text))
    for (const auto& mount : *mounts) INVARIANT(mount.to[0] == '/' && !mount.from.empty());
  (void)with_account(text, "a:x:1:1");
  // A folder beside the root: nothing may reach it.
  static const std::string folder = [] {
    char name[] = "/dev/shm/fairlead-fuzz-XXXXXX";
    return std::string(::mkdtemp(name));
  }();
  INVARIANT(write_file_atomically(folder + "/outside", "safe", 0600));
  INVARIANT(make_dirs(folder + "/root"));
  {
    const Fd root(::open((folder + "/root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DiskShare room{.limit = 1 << 20};
    std::size_t at = 0;
    Unzip unzip([&](char* to, std::size_t most) -> Result<std::size_t> {
      const std::size_t got = text.copy(to, most, at);
      at += got;
      return got;
    });
    (void)apply_layer(root.get(), [&](char* to, std::size_t most) { return unzip.read(to, most); }, room);
  }
  INVARIANT(read_file(folder + "/outside").value_or("") == "safe");
  INVARIANT(list_dir(folder)->size() == 2);
  (void)remove_tree(folder + "/root");
  return 0;
}
