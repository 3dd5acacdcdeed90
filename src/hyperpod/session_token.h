// SPDX-License-Identifier: Apache-2.0
// Temporary credentials without a store: what they stand for is sealed into the session token (AES-256-GCM), by a key that all servers of a site share. Any of them can read it, nobody else can make or change one.
// A role that is gone, disabled or made anew ends its sessions at once, since who asks is looked up at each call; a changed key ends all.
#pragma once
#include <array>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "hyperpod/sigv4.h"

namespace fairlead::hyperpod {

struct Session {
  std::string role;           // object of the Identity
  std::string role_id;        // "AROA...": of that one and no later one with its name
  std::string name;           // RoleSessionName
  std::string key_id, secret; // "ASIA..."
  std::vector<std::string> policies;  // given when it was assumed: they take away
  Instant issued, expires;
  std::vector<std::pair<std::string, std::string>> tags = {};  // aws:PrincipalTag/KEY of this session, before those of the role
  std::string provider = {};  // ARN of the identity provider that vouched for who assumed it; empty: none
  friend bool operator==(const Session&, const Session&) = default;
};

// Thread-safe.
class SessionSeal {
 public:
  // Keys of 32 bytes: the first seals, all open. Invalid: none, or another size.
  static Result<SessionSeal> make(std::vector<std::string> keys);
  SessionSeal(SessionSeal&& other) noexcept : keys_(std::move(other.keys_)) {}
  // Other keys from now on, if they are good.
  Result<void> rekey(std::vector<std::string> keys);
  // The token, base64. At most `most_token_bytes` long: Exhausted, if the policies are too large.
  Result<std::string> close(const Session& session) const;
  // Nothing: not ours, changed, or not whole. It may be expired.
  std::optional<Session> open(std::string_view token) const;
  static constexpr std::size_t most_token_bytes = 16 << 10;

 private:
  explicit SessionSeal(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  static Result<void> check(const std::vector<std::string>& keys);
  std::vector<std::string> keys() const;
  mutable std::shared_mutex mutex_;
  std::vector<std::string> keys_;
};

// Fills key_id and secret, from the kernel's randomness: "ASIA" and 16 of A-Z2-7.
void make_session_key(Session& session);

}  // namespace fairlead::hyperpod
