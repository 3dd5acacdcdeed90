// SPDX-License-Identifier: Apache-2.0
#include "ceph/cluster.h"

#include <fmt/format.h>
#include <rbd/librbd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace fairlead::ceph {
namespace {

constexpr const char* pool_object = "fairlead.pool";
constexpr const char* lock_name = "fairlead.owner";
constexpr std::size_t piece = 4 << 20;
// What is not left to ceph.conf, nor to the cluster's default.
constexpr std::pair<const char*, const char*> options[]{
    // Writes go straight to the OSDs: what is above caches. A copy's parent may be removed before the copy.
    {"rbd_cache", "false"}, {"rbd_default_clone_format", "2"}, {"rbd_move_parent_to_trash_on_remove", "true"}, {"rbd_move_to_trash_on_remove", "false"}, {"rbd_blocklist_on_break_lock", "true"}, {"client_mount_timeout", "20"}, {"admin_socket", ""},
    // A request goes from who calls to the network, and not by another thread; nothing gathers writes, as the kernel has.
    {"rbd_non_blocking_aio", "false"}, {"rbd_io_scheduler", "none"},
    // One thread that tells of ends, instead of two, is woken less often: an engine does nothing there that waits. One for the network, instead of three, and the last 20 words of a log that nobody reads, instead of 500: 1 MB for each process.
    {"librados_thread_count", "1"}, {"ms_async_op_threads", "1"}, {"log_max_recent", "20"}};

}  // namespace

std::unexpected<Error> fail_ceph(int error, const std::string& doing) {
  const int number = error < 0 ? -error : error;
  switch (number) {
    case ENOSPC:
    case EDQUOT: return fail(Code::Exhausted, fmt::format("{}: the Ceph pool has no room: {}", doing, std::strerror(number)));
    case ESHUTDOWN: return fail(Code::Unavailable, doing + ": Ceph has shut this client out (osd blocklist): another has taken its place");
    case EPERM:
    case EACCES: return fail(Code::Forbidden, doing + ": the Ceph user may not: mon 'profile rbd' and osd 'profile rbd pool=POOL namespace=NAMESPACE' are needed");
    case ETIMEDOUT: return fail(Code::Unavailable, doing + ": the Ceph cluster does not answer in time");
    default: return fail_errno(number, doing);
  }
}

std::string plain_address(std::string_view address) {
  if (address.starts_with("v1:") || address.starts_with("v2:")) address.remove_prefix(3);
  return std::string(address);
}

Result<std::unique_ptr<Cluster>> Cluster::connect(const Place& place) {
  rados_t handle = nullptr;
  if (const int error = rados_create2(&handle, "ceph", ("client." + place.user).c_str(), 0); error < 0) return fail_ceph(error, "begin with Ceph");
  std::unique_ptr<Cluster> out(new Cluster(handle, place));
  if (const int error = rados_conf_read_file(handle, place.conf.empty() ? nullptr : place.conf.c_str()); error < 0) return fail_ceph(error, "read " + (place.conf.empty() ? "ceph.conf" : place.conf));
  for (const auto& [key, value] : options)
    if (const int error = rados_conf_set(handle, key, value); error < 0) return fail_ceph(error, fmt::format("set Ceph's option {}", key));
  if (const int error = rados_connect(handle); error < 0) return fail_ceph(error, fmt::format("reach the Ceph cluster as client.{}", place.user));
  if (const int error = rados_ioctx_create(handle, place.pool.c_str(), &out->io_); error < 0) return fail_ceph(error, "open the Ceph pool " + place.pool);
  bool there = false;
  if (const int error = place.space.empty() ? 0 : rbd_namespace_exists(out->io_, place.space.c_str(), &there); error < 0) return fail_ceph(error, fmt::format("look for the namespace {} of the Ceph pool {}", place.space, place.pool));
  if (!place.space.empty() && !there) return fail(Code::NotFound, fmt::format("the Ceph pool {} has no namespace {}: make it by `rbd namespace create --pool {} --namespace {}`", place.pool, place.space, place.pool, place.space));
  rados_ioctx_set_namespace(out->io_, place.space.c_str());
  rados_set_pool_full_try(out->io_);  // an error, rather than to wait until somebody makes room
  return out;
}
Cluster::~Cluster() {
  if (io_ != nullptr) rados_ioctx_destroy(io_);
  if (cluster_ != nullptr) rados_shutdown(cluster_);
}

std::string Cluster::client() const { return fmt::format("client.{}", rados_get_instance_id(cluster_)); }
Result<std::string> Cluster::address() const {
  char* text = nullptr;
  if (const int error = rados_getaddrs(cluster_, &text); error < 0) return fail_ceph(error, "ask for this client's address");
  std::string out(text);
  rados_buffer_free(text);
  return out;
}

Result<std::string> Cluster::mon(const std::string& command) {
  const char* words = command.c_str();
  char *answer = nullptr, *status = nullptr;
  std::size_t size = 0, status_size = 0;
  const int error = rados_mon_command(cluster_, &words, 1, nullptr, 0, &answer, &size, &status, &status_size);
  std::string out(answer == nullptr ? "" : answer, size);
  rados_buffer_free(answer);
  rados_buffer_free(status);
  if (error < 0) return fail_ceph(error, "ask the Ceph monitors");
  return out;
}

Result<std::map<std::string, std::string>> Cluster::notes() { return omap(pool_object); }
Result<std::map<std::string, std::string>> Cluster::omap(const std::string& object) {
  std::map<std::string, std::string> out;
  std::string after;
  for (unsigned char more = 1; more != 0;) {
    rados_read_op_t op = rados_create_read_op();
    rados_omap_iter_t all = nullptr;
    int status = 0;
    rados_read_op_omap_get_vals2(op, after.c_str(), "", 1000, &all, &more, &status);
    int error = rados_read_op_operate(op, io_, object.c_str(), LIBRADOS_OPERATION_NOFLAG);
    if (error >= 0) error = status;
    char *key = nullptr, *value = nullptr;
    std::size_t key_size = 0, size = 0;
    while (error >= 0 && rados_omap_get_next2(all, &key, &value, &key_size, &size) >= 0 && key != nullptr) {
      after.assign(key, key_size);
      out[after] = std::string(value == nullptr ? "" : value, size);
    }
    if (all != nullptr) rados_omap_get_end(all);
    rados_release_read_op(op);
    if (error == -ENOENT) return out;
    if (error < 0) return fail_ceph(error, "read " + object + " in the Ceph pool");
  }
  return out;
}

namespace {
// As one: only while the note `other` says this. Conflict: `why`.
Result<void> change(rados_ioctx_t io, const std::string& key, const std::optional<std::string>& value, const char* other, const std::string& says, const char* why) {
  rados_write_op_t op = rados_create_write_op();
  int same = 0;
  rados_write_op_omap_cmp(op, other, LIBRADOS_CMPXATTR_OP_EQ, says.data(), says.size(), &same);
  const char* const keys[]{key.c_str()};
  const std::size_t key_sizes[]{key.size()};
  if (value) {
    const char* const values[]{value->c_str()};
    const std::size_t sizes[]{value->size()};
    rados_write_op_omap_set2(op, keys, values, key_sizes, sizes, 1);
  } else {
    rados_write_op_omap_rm_keys2(op, keys, key_sizes, 1);
  }
  const int error = rados_write_op_operate(op, io, pool_object, nullptr, LIBRADOS_OPERATION_NOFLAG);
  rados_release_write_op(op);
  if (error == -ECANCELED) return fail(Code::Conflict, why);
  return error < 0 ? Result<void>(fail_ceph(error, "note " + key)) : Result<void>();
}
constexpr const char* others = "the Ceph pool is another machine's by now";
}  // namespace
Result<void> Cluster::note(const std::string& key, const std::string& value, const std::string& host) { return change(io_, key, value, "owner", host, others); }
Result<void> Cluster::forget(const std::string& key, const std::string& host) { return change(io_, key, std::nullopt, "owner", host, others); }
Result<void> Cluster::note_if(const std::string& key, const std::string& value, const std::string& other, const std::string& says) { return change(io_, key, value, other.c_str(), says, "the pool's daemon has not asked for this attachment here, or not any more"); }

Result<void> Cluster::shut_out(const std::string& address, State state) {
  std::string text = address;
  if (const int error = rados_blocklist_add(cluster_, text.data(), state == State::Dead ? 3600 : 366 * 86'400); error < 0) return fail_ceph(error, "shut the client at " + address + " out");
  // From here on what we ask for carries the map that says so, and no OSD does it before it knows.
  const int error = rados_wait_for_latest_osdmap(cluster_);
  return error < 0 ? Result<void>(fail_ceph(error, "wait until the client at " + address + " is shut out")) : Result<void>();
}

Result<std::optional<Cluster::Locker>> Cluster::locker() {
  int exclusive = 0;
  std::vector<char> tag(256), clients(4096), cookies(4096), addresses(4096);
  std::size_t tag_size = tag.size(), clients_size = clients.size(), cookies_size = cookies.size(), addresses_size = addresses.size();
  const auto count = rados_list_lockers(io_, pool_object, lock_name, &exclusive, tag.data(), &tag_size, clients.data(), &clients_size, cookies.data(), &cookies_size, addresses.data(), &addresses_size);
  if (count == -ENOENT || count == 0) return std::nullopt;
  if (count < 0) return fail_ceph(static_cast<int>(count), "ask who has the Ceph pool");
  return Locker{.client = clients.data(), .cookie = cookies.data(), .address = plain_address(addresses.data())};
}
Result<std::optional<std::string>> Cluster::claimed_by() {
  auto one = locker();
  if (!one) return std::unexpected(std::move(one.error()));
  return *one ? std::optional((*one)->address) : std::nullopt;
}

Result<std::string> Cluster::claim(const std::string& host, bool take_over) {
  const std::string fresh = random_uuid() + "\n";
  rados_write_op_t op = rados_create_write_op();
  rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, nullptr);
  rados_write_op_write_full(op, fresh.data(), fresh.size());
  const int made = rados_write_op_operate(op, io_, pool_object, nullptr, LIBRADOS_OPERATION_NOFLAG);
  rados_release_write_op(op);
  if (made < 0 && made != -EEXIST) return fail_ceph(made, "make the pool's object");
  const auto other = [&](const std::string& who) {
    return fail(Code::Conflict, fmt::format("the namespace {} of the Ceph pool {} is the pool of another fairlead-volumes ({}). If that one is dead, or has stopped for good, make it this machine's by `fairlead-volumes take-over`: the other is shut out by Ceph first", place_.space, place_.pool, who));
  };
  std::set<std::string> lost;  // hosts
  for (int tries = 0;; ++tries) {
    const int error = rados_lock_exclusive(io_, pool_object, lock_name, host.c_str(), "fairlead-volumes", nullptr, 0);
    if (error >= 0) break;
    if ((error != -EBUSY && error != -EEXIST) || tries > 8) return fail_ceph(error, "claim the Ceph pool");
    auto held = locker();
    if (!held) return std::unexpected(std::move(held.error()));
    if (!*held) continue;
    if ((*held)->cookie != host && !take_over) return other("at " + (*held)->address);
    if ((*held)->cookie != host) lost.insert((*held)->cookie);
    if (auto done = shut_out((*held)->address, (*held)->cookie == host ? State::Dead : State::MayBeAway); !done) return std::unexpected(std::move(done.error()));
    if (const int broken = rados_break_lock(io_, pool_object, lock_name, (*held)->client.c_str(), (*held)->cookie.c_str()); broken < 0 && broken != -ENOENT) return fail_ceph(broken, "take the Ceph pool over");
  }
  auto known = notes();
  if (!known) return std::unexpected(std::move(known.error()));
  const std::string owner = known->contains("owner") ? known->at("owner") : "";
  if (!owner.empty() && owner != host) {
    if (!take_over) {
      (void)rados_unlock(io_, pool_object, lock_name, host.c_str());
      return other("host " + owner);
    }
    lost.insert(owner);
  }
  op = rados_create_write_op();
  const auto set = [&](const std::string& name, const std::string& text) {
    const char *const key[]{name.c_str()}, *const value[]{text.c_str()};
    const std::size_t key_size[]{name.size()}, size[]{text.size()};
    rados_write_op_omap_set2(op, key, value, key_size, size, 1);
  };
  set("owner", host);
  // With it, whose engines are to be shut out: a death before that leaves it noted.
  for (const std::string& one : lost) set("dead." + one, "-");
  const int noted = rados_write_op_operate(op, io_, pool_object, nullptr, LIBRADOS_OPERATION_NOFLAG);
  rados_release_write_op(op);
  if (noted < 0) return fail_ceph(noted, "note whose the Ceph pool is");
  // No engine of theirs can note itself any more: those that have are all there are.
  known = notes();
  if (!known) return std::unexpected(std::move(known.error()));
  for (const auto& [dead, nothing] : *known) {
    if (!dead.starts_with("dead.")) continue;
    const std::string who = dead.substr(5);
    for (const auto& [name, text] : *known) {
      if (who == host || !name.starts_with("engine.") || !text.starts_with(who + " ")) continue;
      if (auto done = shut_out(text.substr(text.rfind(' ') + 1), State::MayBeAway); !done) return std::unexpected(std::move(done.error()));
      if (auto done = forget(name, host); !done) return std::unexpected(std::move(done.error()));
    }
    if (auto done = forget(dead, host); !done) return std::unexpected(std::move(done.error()));
  }
  auto id = read(pool_object);
  if (!id) return std::unexpected(std::move(id.error()));
  std::string out = id->value_or("");
  while (out.ends_with('\n')) out.pop_back();
  if (out.size() != 36) return fail(Code::Invalid, fmt::format("the object {} of the Ceph pool {} holds no id of a pool", pool_object, place_.pool));
  return out;
}

Result<std::optional<std::string>> Cluster::read(const std::string& object) {
  std::string out;
  for (;;) {
    const std::size_t before = out.size();
    out.resize(before + piece);
    const int got = rados_read(io_, object.c_str(), out.data() + before, piece, before);
    if (got == -ENOENT) return std::nullopt;
    if (got < 0) return fail_ceph(got, "read the object " + object);
    out.resize(before + static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < piece) return out;
  }
}
Result<void> Cluster::write(const std::string& object, const std::string& bytes) {
  const int error = rados_write_full(io_, object.c_str(), bytes.data(), bytes.size());
  return error < 0 ? Result<void>(fail_ceph(error, "write the object " + object)) : Result<void>();
}
Result<void> Cluster::append(const std::string& object, const std::string& bytes) {
  const int error = rados_append(io_, object.c_str(), bytes.data(), bytes.size());
  return error < 0 ? Result<void>(fail_ceph(error, "write the object " + object)) : Result<void>();
}
Result<void> Cluster::cut(const std::string& object, std::size_t size) {
  const int error = rados_trunc(io_, object.c_str(), size);
  return error < 0 ? Result<void>(fail_ceph(error, "cut the object " + object)) : Result<void>();
}
Result<std::optional<std::string>> Cluster::listed_id(const std::string& name) {
  const std::string wanted = "name_" + name;
  const char* const keys[]{wanted.c_str()};
  const std::size_t sizes[]{wanted.size()};
  rados_read_op_t op = rados_create_read_op();
  rados_omap_iter_t all = nullptr;
  int status = 0;
  rados_read_op_omap_get_vals_by_keys2(op, keys, 1, sizes, &all, &status);
  int error = rados_read_op_operate(op, io_, "rbd_directory", LIBRADOS_OPERATION_NOFLAG);
  if (error >= 0) error = status;
  char *key = nullptr, *value = nullptr;
  std::size_t key_size = 0, size = 0;
  std::optional<std::string> out;
  // A length of 32 bits, then the id.
  if (error >= 0 && rados_omap_get_next2(all, &key, &value, &key_size, &size) >= 0 && key != nullptr && value != nullptr && size > 4) out.emplace(value + 4, size - 4);
  if (all != nullptr) rados_omap_get_end(all);
  rados_release_read_op(op);
  if (error < 0 && error != -ENOENT) return fail_ceph(error, "look for an image in the directory of the Ceph pool");
  return out;
}
Result<void> Cluster::remove(const std::string& object) {
  const int error = rados_remove(io_, object.c_str());
  return error < 0 && error != -ENOENT ? Result<void>(fail_ceph(error, "remove the object " + object)) : Result<void>();
}

}  // namespace fairlead::ceph
