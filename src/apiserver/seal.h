// SPDX-License-Identifier: Apache-2.0
// Secrets at rest. The whole object is sealed (annotations of `kubectl apply` hold the data too), with AES-256-GCM under the site's key: a random nonce for each
// write, the store key as additional data, so that a box cannot be moved to another name. Plain in memory only.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "apiserver/store/store.h"
#include "base/box.h"

namespace fairlead::apiserver {

class Seal {
 public:
  // Invalid: the key is not 32 bytes. `random` gives nonces.
  static Result<Seal> make(std::string key, std::function<std::string(std::size_t)> random);
  // The stored form of canonical bytes: {"sealed":1,"metadata":{"resourceVersion":"N"},"box":"base64(nonce, ciphertext, tag)"}
  Template close(const std::string& store_key, const Template& plain) const;
  // The canonical bytes again. Internal: another key, another name, or damaged.
  Result<std::string> open(const std::string& store_key, std::string_view stored, Revision revision) const;

 private:
  Seal(std::string key, std::function<std::string(std::size_t)> random) : key_(std::move(key)), random_(std::move(random)) {}
  std::string key_;
  std::function<std::string(std::size_t)> random_;
};

}  // namespace fairlead::apiserver
