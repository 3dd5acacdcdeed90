// SPDX-License-Identifier: Apache-2.0
#include "fleet/site.h"

#include <filesystem>

#include "base/encoding.h"

namespace fairlead::fleet {

Site site_of(const std::string& state_dir) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(state_dir, error);
  if (error) path = std::filesystem::path(state_dir).lexically_normal();
  std::string text = path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return {.dir = text, .id = hex(sha256(text)).substr(0, 6)};
}

}  // namespace fairlead::fleet
