// SPDX-License-Identifier: Apache-2.0
// Which engine on a further machine may take a volume's image, and its end (Store::allow and what follows; docs/design/077-volumes-on-other-machines.md).
#include <fmt/format.h>

#include <cerrno>

#include "ceph/rbd_image.h"
#include "ceph/store.h"

namespace fairlead::ceph {

Result<void> Store::allow(const std::string& id, const std::string& host, std::int64_t generation) { return cluster_->note(allowance_of(id), fmt::format("{} {}", host, generation), host_); }
Result<void> Store::withdraw(const std::string& id) { return cluster_->forget(allowance_of(id), host_); }

Result<void> Store::shut_out(const std::string& id) {
  // First none may note itself any more: the one that has is the one there is.
  if (auto done = withdraw(id); !done) return done;
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  const auto engine = engine_of(*notes, id);
  if (!engine) return {};
  if (engine->host == host_) return fail(Code::Conflict, fmt::format("the engine of {} is this machine's own", id));
  // For a year: whether it is dead is not known.
  if (auto done = cluster_->shut_out(engine->address, Cluster::State::MayBeAway); !done) return done;
  const auto image = OpenImage::open(*cluster_, id, false);
  if (!image) return std::unexpected(image.error());
  const auto owner = image->owner();
  if (!owner) return std::unexpected(owner.error());
  if (*owner && **owner == engine->address)
    if (const int error = rbd_lock_break(image->get(), RBD_LOCK_MODE_EXCLUSIVE, engine->address.c_str()); error < 0 && error != -ENOENT) return fail_ceph(error, "take the lock of an image from an engine that is shut out");
  return cluster_->forget("engine." + id, host_);
}

}  // namespace fairlead::ceph
