// SPDX-License-Identifier: Apache-2.0
// A connection to one namespace of one pool of a Ceph cluster, and what is kept there beside images: the object `fairlead.pool`. Sources: librados.h of Ceph 16.2, docs.ceph.com (user management, RBD exclusive locks).
// Notes (omap of that object): `owner`: the host whose pool it is; `making.ID`: an image that is being made; `engine.ID`: HOST CLIENT ADDRESS of the engine that serves it alone, or has, `engine.ID.GENERATION` of one that reads it; `may.ID`: which on further machines may (ceph/image_use.h); `dead.HOST`: who has lost the pool, and whose engines are to be shut out still.
// Calls wait as long as the cluster does not answer: whoever cannot wait ends the process, and shuts it out.
#pragma once
#include <rados/librados.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"

namespace fairlead::ceph {

struct Place {
  std::string conf;              // ceph.conf, which names the monitors and the user's keyring; empty: as Ceph's own programs look for it
  std::string user = "fairlead"; // without "client."
  std::string pool;
  std::string space = "fairlead";  // namespace of the pool
};

// "v1:10.0.0.1:0/77", as lockers are told, is "10.0.0.1:0/77", as clients, watchers and owners of images are.
std::string plain_address(std::string_view address);

// `error`: negative, as Ceph gives them. ESHUTDOWN: this client has been shut out.
std::unexpected<Error> fail_ceph(int error, const std::string& doing);

class Cluster {
 public:
  // Unavailable: it does not answer within 20 seconds. NotFound: there is no such pool or namespace. Forbidden: the user may not.
  static Result<std::unique_ptr<Cluster>> connect(const Place& place);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  rados_ioctx_t io() const { return io_; }
  const Place& place() const { return place_; }
  std::string client() const;          // "client.4123"
  Result<std::string> address() const; // by which it can be shut out

  Result<std::string> mon(const std::string& command);  // JSON in, JSON out
  Result<std::map<std::string, std::string>> notes();
  Result<std::map<std::string, std::string>> omap(const std::string& object);  // all of it; nothing of an object that is not there
  // Conflict: the pool is not `host`'s (any more).
  Result<void> note(const std::string& key, const std::string& value, const std::string& host);
  Result<void> forget(const std::string& key, const std::string& host);
  Result<void> note_if(const std::string& key, const std::string& value, const std::string& other, const std::string& says);  // Conflict: that other note says something else
  // Nothing that it has sent and that was not done yet is ever done, when this returns: for an hour of one that is dead, for a year of one that may only be away.
  enum class State { Dead, MayBeAway };
  Result<void> shut_out(const std::string& address, State state);

  // The pool's id, made if it has none. This client has the pool from here on, as `host`'s. What `host` had it by before is shut out: the caller knows that it is dead.
  // Conflict: it is another host's; take_over: that one is shut out, with all its engines; those of further machines go on.
  Result<std::string> claim(const std::string& host, bool take_over);
  // The address of who has claimed it; nothing: nobody.
  Result<std::optional<std::string>> claimed_by();

  Result<std::optional<std::string>> read(const std::string& object);  // nothing: it is not there
  Result<void> write(const std::string& object, const std::string& bytes);  // all or nothing
  Result<void> append(const std::string& object, const std::string& bytes); // the same
  Result<void> cut(const std::string& object, std::size_t size);
  Result<void> remove(const std::string& object);
  // The id that RBD's directory has for this name (rbd_directory, cls_rbd); nothing: none.
  Result<std::optional<std::string>> listed_id(const std::string& name);

 private:
  Cluster(rados_t cluster, Place place) : cluster_(cluster), place_(std::move(place)) {}
  struct Locker {
    std::string client, cookie, address;
  };
  Result<std::optional<Locker>> locker();
  rados_t cluster_;
  rados_ioctx_t io_ = nullptr;
  const Place place_;
};

}  // namespace fairlead::ceph
