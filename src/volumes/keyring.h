// SPDX-License-Identifier: Apache-2.0
// Keys that open volumes' own keys. A volume's key lies beside its data, in a box that one of these opens, and is in memory only while the volume is served.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "api/volume.h"
#include "base/result.h"
#include "kube/kube_api.h"

namespace fairlead::volumes {

struct Wrapped {
  std::string key;            // by which it was closed
  std::int64_t version = 0;   // of it
  std::string box;            // bytes (base/box.h)
};

class Keyring {
 public:
  virtual ~Keyring() = default;
  // about: what it is of; the same is needed to open it. NotFound: there is no such key. Forbidden: it is disabled. Unavailable: it cannot be asked now.
  virtual Result<Wrapped> wrap(const std::string& key, const std::string& about, const std::string& secret) = 0;
  virtual Result<std::string> unwrap(const Wrapped& wrapped, const std::string& about) = 0;
  virtual Result<std::int64_t> current(const std::string& key) = 0;  // the version that closes now; of a disabled one, too
  // May the volume be served by this key? Forbidden: it asks for a grant, and there is none (api::is_granted).
  virtual Result<void> may_serve(const std::string& key, const std::string& volume) = 0;
};

inline constexpr const char* kKeySpace = api::kVolumeKeySpace;        // of their Secrets, for pools' daemons and administrators alone
using api::kServiceKey;
inline constexpr const char* kDisabledKey = "fairlead.dev/disabled";  // "true" as an annotation: nothing is opened by it any more, and what is open goes on

// Secrets in kKeySpace: data vN is version N, 32 bytes, and the highest closes. A VolumeKey of the same name (api/volume_key.h) says what may be done by it; its material is made, and rotated, when something is closed by it. Each call asks the
// API: who takes a key away takes it away.
std::unique_ptr<Keyring> api_keyring(kube::KubeApi& api);

}  // namespace fairlead::volumes
