// SPDX-License-Identifier: Apache-2.0
// What fairlead-volumes does in a Ceph pool: its volumes and snapshots are images of one namespace, a journal and headers of encrypted volumes are objects beside them (docs/design/074-distributed-volumes.md).
//   image ID                  of a volume, a snapshot, or one that is half made (ceph/rbd_image.h: its mark)
//   image fairlead.left.X     of what is deleted, and is watched by nobody (OpenImage::is_watched)
//   fairlead.pool             the pool's id, its lock and its notes (ceph/cluster.h)
//   fairlead.journal, fairlead.luks.ID
// Thread-safe; of one id by one at a time. Each step is durable when it returns, and harmless when it is taken again. It waits as long as the cluster does not answer.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ceph/cluster.h"
#include "ceph/rbd_image.h"
#include "ceph/trashed.h"

namespace fairlead::ceph {

struct Claim {
  Place place;
  std::string host;              // who has the pool: stays the same when its process is another
  bool take_over = false;        // from another host that is dead
};
struct Image {
  enum class Kind { None, Foreign, Part, Volume, Snapshot };
  Kind kind = Kind::None;
  std::int64_t size = 0, born = 0;  // bytes of the image; nanoseconds since 1970
  bool luks = false;
};

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(const Claim& claim);
  const std::string& id() const { return id_; }

  using Alive = std::function<void()>;  // called now and then by what may take long
  Result<std::string> room();           // Ceph's `df` as JSON
  Result<Image> look(const std::string& id);
  Result<std::vector<std::string>> ids();
  // header: of an encrypted one; empty: it is not. Exhausted: no room. Exists: there is an image of that name.
  Result<void> make(const std::string& id, std::int64_t size, const std::string& header);
  // Of what the source holds now; size: at least the source's.
  Result<void> copy(const std::string& id, const std::string& source, std::int64_t size, const Alive& alive);
  Result<void> drop(const std::string& id, const Alive& alive);
  Result<void> publish(const std::string& id, bool snapshot);
  Result<void> remove(const std::string& id, const Alive& alive);
  Result<void> grow(const std::string& id, std::int64_t size, const Alive& alive);
  void sweep();                         // deletes what a death has kept from being deleted; may take long. Now and then, as an OSD that has kept it may be another by then
  Result<std::string> header(const std::string& id);               // NotFound: there is none
  Result<void> set_header(const std::string& id, const std::string& header);
  // Of volumes on further machines: the engine of that host, by that generation of its attachment, may take the image, alone or beside others that read it; it may not; what it has is taken from it: nothing that it has sent and that was not done is ever done; and it has ended, as its machine says.
  Result<void> allow(const std::string& id, const std::string& host, std::int64_t generation, Use use);
  Result<void> withdraw(const std::string& id, std::int64_t generation);
  Result<void> shut_out(const std::string& id, std::int64_t generation, Use use);
  Result<void> ended(const std::string& id, std::int64_t generation);
  Result<std::string> journal();
  Result<void> append(const std::string& bytes);                   // to the journal: all or nothing
  Result<void> cut(std::size_t size);
  Result<void> replace(const std::string& bytes);

 private:
  Store(std::unique_ptr<Cluster> cluster, std::string host, std::string id) : cluster_(std::move(cluster)), host_(std::move(host)), id_(std::move(id)) {}
  Result<void> remove_image(const std::string& name, const Alive& alive);
  Result<void> put_aside(const std::string& name);
  Result<void> end_move(const std::string& name);
  Result<std::set<std::string>> images();
  Result<bool> is_half_removed(const std::string& name);
  Result<std::map<std::string, Trashed>> trash();  // by the image's id
  const std::unique_ptr<Cluster> cluster_;
  const std::string host_, id_;
};

}  // namespace fairlead::ceph
