// SPDX-License-Identifier: Apache-2.0
// Which engine on a further machine may take a volume's image, and its end (Store::allow and what follows; docs/design/077-volumes-on-other-machines.md).
#include <fmt/format.h>
#include <rbd/librbd.hpp>

#include <cerrno>

#include "ceph/image_use.h"
#include "ceph/store.h"

namespace fairlead::ceph {
namespace {

std::optional<Allowance> allowance_in(const std::map<std::string, std::string>& notes, const std::string& id) {
  const auto found = notes.find(allowance_of(id));
  return found == notes.end() ? std::nullopt : read_allowance(found->second);
}

}  // namespace

Result<void> Store::allow(const std::string& id, const std::string& host, std::int64_t generation, Use use) {
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  const std::string now = print(with(allowance_in(*notes, id), host, generation, use));
  if (const auto before = notes->find(allowance_of(id)); before != notes->end() && before->second == now) return {};
  return cluster_->note(allowance_of(id), now, host_);
}

Result<void> Store::withdraw(const std::string& id, std::int64_t generation) {
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  if (!notes->contains(allowance_of(id))) return {};
  const auto before = allowance_in(*notes, id);
  const auto after = without(before, generation);
  if (after && after == before) return {};
  return after ? cluster_->note(allowance_of(id), print(*after), host_) : cluster_->forget(allowance_of(id), host_);
}

Result<void> Store::shut_out(const std::string& id, std::int64_t generation, Use use) {
  // First it may not note itself any more: if it has not, it never will.
  if (auto done = withdraw(id, generation); !done) return done;
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  auto engine = use == Use::Reads ? reader_of(*notes, id, generation) : engine_of(*notes, id);
  if (!engine && use == Use::Writes) return {};
  const auto image = OpenImage::open(*cluster_, id, false);
  if (!image) return std::unexpected(image.error());
  const auto owner = image->owner();
  if (!owner) return std::unexpected(owner.error());
  std::string note = note_of(id, generation, use);
  // One that reads and was started by an older program has the image alone.
  if (!engine && *owner)
    if (auto older = engine_of(*notes, id); older && older->address == **owner) engine = std::move(older), note = note_of(id, generation, Use::Writes);
  // The last one here has ended, and none has noted itself there since.
  if (!engine || engine->host == host_) return {};
  // For a year: whether it is dead is not known.
  if (auto done = cluster_->shut_out(engine->address, Cluster::State::MayBeAway); !done) return done;
  if (*owner && **owner == engine->address)
    if (const int error = image->get().lock_break(RBD_LOCK_MODE_EXCLUSIVE, engine->address); error < 0 && error != -ENOENT) return fail_ceph(error, "take the lock of an image from an engine that is shut out");
  if (auto done = break_use(*cluster_, *image, engine->address); !done) return done;
  return cluster_->forget(note, host_);
}

Result<void> Store::ended(const std::string& id, std::int64_t generation) {
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  const auto image = OpenImage::open(*cluster_, id, false);
  if (!image) return std::unexpected(image.error());
  const auto users = users_of(*cluster_, *image);
  if (!users) return std::unexpected(users.error());
  // It died, or it would have let go itself.
  for (const User& user : *users) {
    if (user.cookie != std::to_string(generation)) continue;
    if (auto done = cluster_->shut_out(user.address, Cluster::State::Dead); !done) return done;
    if (auto done = break_use(*cluster_, *image, user.address); !done) return done;
  }
  const std::string note = note_of(id, generation, Use::Reads);
  return notes->contains(note) ? cluster_->forget(note, host_) : Result<void>();
}

}  // namespace fairlead::ceph
