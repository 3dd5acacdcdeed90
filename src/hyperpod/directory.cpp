// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/directory.h"

#include <mutex>

namespace fairlead::hyperpod {

void Directory::put_identity(const kube::Json& object) {
  auto read = std::make_shared<const Identity>(read_identity(object, site_));
  const std::unique_lock lock(mutex_);
  identities_[kube::name_of(object)] = std::move(read);
}

void Directory::drop_identity(std::string_view object) {
  const std::unique_lock lock(mutex_);
  if (const auto found = identities_.find(object); found != identities_.end()) identities_.erase(found);
}

void Directory::put_key(const kube::Json& secret) {
  auto key = api::identities::read_key(secret);
  const std::unique_lock lock(mutex_);
  if (key) keys_[kube::name_of(secret)] = std::move(*key);
  else keys_.erase(kube::name_of(secret));  // it was one, and is damaged now
}

void Directory::drop_key(std::string_view secret_name) {
  const std::unique_lock lock(mutex_);
  if (const auto found = keys_.find(secret_name); found != keys_.end()) keys_.erase(found);
}

std::optional<Directory::Found> Directory::key(std::string_view key_id) const {
  const std::string name = api::identities::key_object_name(key_id);
  const std::shared_lock lock(mutex_);
  const auto found = keys_.find(name);
  if (found == keys_.end() || found->second.id != key_id) return std::nullopt;
  const auto who = identities_.find(found->second.identity);
  const bool same = who != identities_.end() && who->second->uid == found->second.identity_uid;
  return Found{same ? who->second : nullptr, found->second.secret, found->second.active};
}

std::shared_ptr<const Identity> Directory::identity(std::string_view object) const {
  const std::shared_lock lock(mutex_);
  const auto found = identities_.find(object);
  return found == identities_.end() ? nullptr : found->second;
}

}  // namespace fairlead::hyperpod
