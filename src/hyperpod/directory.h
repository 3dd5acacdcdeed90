// SPDX-License-Identifier: Apache-2.0
// Identities and access keys, ready to be asked: what is kept fresh from the API's objects. Thread-safe; a look takes a shared lock and no I/O.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "hyperpod/identity.h"

namespace fairlead::hyperpod {

class Directory {
 public:
  explicit Directory(Site site) : site_(std::move(site)) {}

  void put_identity(const kube::Json& object);
  void drop_identity(std::string_view object);
  // Identities to which it is attached are read anew at once. O(those that have any).
  void put_policy(const kube::Json& object);
  void drop_policy(std::string_view object);
  // Secrets that hold no key are passed over.
  void put_key(const kube::Json& secret);
  void drop_key(std::string_view secret_name);

  struct Found {
    std::shared_ptr<const Identity> who;  // null: the identity is gone, or another one of its name is there
    std::string secret;
    bool active = false;
  };
  std::optional<Found> key(std::string_view key_id) const;
  std::shared_ptr<const Identity> identity(std::string_view object) const;  // null: there is none
  const Site& site() const { return site_; }

 private:
  std::shared_ptr<const Identity> read(const kube::Json& object) const;  // under mutex_
  void read_again(const std::string& arn);                                // under mutex_

  const Site site_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, kube::Json, std::less<>> attached_;                         // Identity objects that have attached policies, by name
  std::map<std::string, std::shared_ptr<const ManagedPolicy>, std::less<>> policies_;  // by ARN: those whose object is named as it has to be
  std::map<std::string, std::string, std::less<>> arns_;                            // of policies' objects
  std::map<std::string, std::shared_ptr<const Identity>, std::less<>> identities_;  // by object
  std::map<std::string, api::identities::AccessKey, std::less<>> keys_;             // by Secret: its name is made of the id
};

}  // namespace fairlead::hyperpod
