// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/directory.h"

#include <mutex>
#include <utility>

namespace fairlead::hyperpod {

std::shared_ptr<const Identity> Directory::read(const kube::Json& object) const {
  return std::make_shared<const Identity>(read_identity(object, site_, [&](const std::string& arn) {
    const auto found = policies_.find(arn);
    return found == policies_.end() ? nullptr : found->second;
  }));
}

void Directory::put_identity(const kube::Json& object) {
  const std::string& name = kube::name_of(object);
  const std::unique_lock lock(mutex_);
  if (object["spec"]["attachedPolicies"].items().empty()) attached_.erase(name);
  else attached_[name] = object;
  identities_[name] = read(object);
}

void Directory::read_again(const std::string& arn) {
  for (const auto& [name, object] : attached_)
    for (const kube::Json& one : object["spec"]["attachedPolicies"].items())
      if (one.string() == arn) {
        identities_[name] = read(object);
        break;
      }
}

void Directory::put_policy(const kube::Json& object) {
  auto policy = std::make_shared<const ManagedPolicy>(read_managed_policy(object, site_));
  // One that is named as another has to be does not speak for it, nor any more for what it was.
  if (policy->policy == nullptr && policy->object != api::identities::policy_object_name(policy->name)) return drop_policy(policy->object);
  const std::unique_lock lock(mutex_);
  const std::string before = std::exchange(arns_[policy->object], policy->arn);
  if (!before.empty() && before != policy->arn) {
    policies_.erase(before);
    read_again(before);
  }
  policies_[policy->arn] = policy;
  read_again(policy->arn);
}

void Directory::drop_policy(std::string_view object) {
  const std::unique_lock lock(mutex_);
  const auto found = arns_.find(object);
  if (found == arns_.end()) return;
  const std::string arn = found->second;
  arns_.erase(found);
  policies_.erase(arn);
  read_again(arn);
}

void Directory::drop_identity(std::string_view object) {
  const std::unique_lock lock(mutex_);
  if (const auto known = attached_.find(object); known != attached_.end()) attached_.erase(known);
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
