// SPDX-License-Identifier: Apache-2.0
// The keys of a site at rest (docs/design/064). As they come, pki/*.key are as they are, for whoever reads the folder. Under a root key they are sealed by a key that only the holder of the root key
// can open: a TPM, a KMS, whatever a program speaks with. A disk that is carried away then opens nothing.
//   pki/root.json    {"version": 1, "wrapped": "..."}: the sealing key (32 bytes), as the root key's holder gave it back
//   pki/NAME.key     a line that says so, then base64(nonce, ciphertext, tag) of AES-256-GCM under the sealing key; the file's role is additional data, so that one cannot stand for another
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fairlead::apiserver {

// What holds the root key. Both calls may take seconds, and fail for a while (a KMS that is away).
class RootKey {
 public:
  virtual ~RootKey() = default;
  // One line of text, 64 KiB at most, that unwrap() knows again.
  virtual Result<std::string> wrap(std::string_view key) = 0;
  virtual Result<std::string> unwrap(const std::string& wrapped) = 0;
  virtual std::string name() const = 0;  // for errors
};

// A program, with its full path: `PROGRAM wrap` reads base64 of the key and a newline, and prints one line; `PROGRAM unwrap` reads that line, and prints base64 of the key. 60 s each. Forbidden: others
// than root and we could change it. Its stderr is told to the user, what it prints never.
Result<std::unique_ptr<RootKey>> program_root_key(const std::string& program);

class KeyFolder {
 public:
  // The folder's keys under `now` (nullptr: as they are), which were under `before` (nullptr: under `now`, or as they are): what is there is sealed, sealed anew or opened, durably, and a death at any
  // step is taken up by the next call with the same two. Invalid: sealed, and by nothing that was given. Otherwise the holder's errors.
  static Result<KeyFolder> open(std::string folder, RootKey* now, RootKey* before);
  // `path` below the folder; `role`: "secrets", "ca", "tokens". Internal: damaged, or another role's.
  Result<std::string> read(const std::string& path, std::string_view role) const;
  Result<void> write(const std::string& path, std::string_view role, std::string_view key) const;  // 0600, durable
  bool sealed() const { return !sealing_.empty(); }

 private:
  KeyFolder(std::string folder, std::string sealing) : folder_(std::move(folder)), sealing_(std::move(sealing)) {}
  Result<std::vector<std::pair<std::string, std::string_view>>> keys() const;  // path, role
  Result<void> prove() const;
  Result<void> convert(bool seal) const;
  Result<void> sweep() const;

  std::string folder_, sealing_;  // the sealing key; empty: there is none
};

}  // namespace fairlead::apiserver
