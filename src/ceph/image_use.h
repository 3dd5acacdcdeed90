// SPDX-License-Identifier: Apache-2.0
// Who uses a volume's image: one engine that writes it, or any number that read it, on whichever machines. Ceph itself holds them apart, by a lock of its own at the image's header, exclusive or shared (cls_lock; librados.h of Ceph 16.2). It is beside RBD's exclusive lock, which those who read do not have: the pool's daemon takes that for a moment, to make snapshots and to grow the image.
// And who may: the note `may.ID` says "HOST GENERATION" of the one further machine that may have it alone, or "read HOST GENERATION HOST GENERATION ..." of those that may read it.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ceph/rbd_image.h"

namespace fairlead::ceph {

// By host, and the generation of its attachment; sorted.
struct Allowance {
  Use use = Use::Writes;
  std::vector<std::pair<std::string, std::int64_t>> who;
  friend bool operator==(const Allowance&, const Allowance&) = default;
};
std::string print(const Allowance& allowance);
std::optional<Allowance> read_allowance(std::string_view text);  // nothing: it is none
// What is to be noted instead of `before`. A host has one engine, by its last attachment.
Allowance with(const std::optional<Allowance>& before, const std::string& host, std::int64_t generation, Use use);
std::optional<Allowance> without(const std::optional<Allowance>& before, std::int64_t generation);  // nothing: none may any more

struct User {
  std::string client, cookie, address;  // cookie: the generation of the attachment; 0: on the machine of the pool's daemon
};
Result<std::vector<User>> users_of(const Cluster& cluster, const OpenImage& image);
// From here on this client uses it, until let_go_of_use. dead: addresses of engines that are dead for certain, which are shut out and have it no more. Who is in the way and does not watch the image, for two seconds, is gone for long: he is shut out, too. Conflict: somebody else writes it, or reads what is to be written.
Result<void> take_use(Cluster& cluster, const OpenImage& image, const std::string& id, Use use, std::int64_t generation, const std::set<std::string>& dead);
void let_go_of_use(const Cluster& cluster, const OpenImage& image, std::int64_t generation);
// Of an engine that is shut out.
Result<void> break_use(const Cluster& cluster, const OpenImage& image, const std::string& address);

}  // namespace fairlead::ceph
