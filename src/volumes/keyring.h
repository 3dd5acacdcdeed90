// SPDX-License-Identifier: Apache-2.0
// Keys that open volumes' own keys. A volume's key lies beside its data, in a box that one of these opens, and is in memory only while the volume is served.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "kube/kube_api.h"
#include "volumes/plan/ledger.h"

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
};

inline constexpr const char* kKeySpace = "fairlead-volume-keys";    // namespace of their Secrets, for pools' daemons and administrators alone
inline constexpr const char* kDisabledKey = "fairlead.dev/disabled";  // "true" as an annotation: nothing is opened by it any more, and what is open goes on

// Secrets in kKeySpace: data vN is version N, 32 bytes, and the highest closes. Each call asks the API: who takes a key away takes it away.
std::unique_ptr<Keyring> api_keyring(kube::KubeApi& api);

}  // namespace fairlead::volumes
