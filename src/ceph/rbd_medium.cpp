// SPDX-License-Identifier: Apache-2.0
#include "ceph/rbd_medium.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/fd.h"
#include "base/files.h"
#include "ceph/image_use.h"

namespace fairlead::ceph {
namespace {

constexpr std::int64_t most_at_once = 256 << 20;  // bytes that are zeroed by one call: as many objects are under way

class RbdMedium final : public disk::Medium {
 public:
  RbdMedium(Fd lock, std::unique_ptr<Cluster> cluster, OpenImage image, const EngineImage& about) : lock_(std::move(lock)), cluster_(std::move(cluster)), image_(std::move(image)), id_(about.id), generation_(about.generation), read_only_(about.read_only) {}
  ~RbdMedium() override { let_go_of_use(*cluster_, image_, generation_); }
  std::string name() const override { return "the image of " + id_; }
  bool is_remote() const override { return true; }
  Result<std::int64_t> size() override { return image_.size(); }
  int read(char* into, std::size_t size, std::int64_t at) override { return whole(rbd_read(image_.get(), static_cast<std::uint64_t>(at), size, into), size); }
  // Without its lock librbd would take it to write.
  int write(const char* from, std::size_t size, std::int64_t at) override { return read_only_ ? EROFS : whole(rbd_write(image_.get(), static_cast<std::uint64_t>(at), size, from), size); }
  // By the object map, or by asking for each object; pieces that are there are told in order.
  std::int64_t seek(std::int64_t at, int whence) override {
    const auto all = size();
    if (!all) return -EIO;
    if (at < 0 || at >= *all) return -ENXIO;
    struct Seen {
      std::int64_t at;
      bool data, found = false;
    } seen{at, whence == SEEK_DATA};
    const int error = rbd_diff_iterate2(image_.get(), nullptr, static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(*all - at), 1, 0, [](std::uint64_t from, std::size_t length, int exists, void* into) {
      Seen& now = *static_cast<Seen*>(into);
      if (exists == 0) return 0;
      const auto begin = static_cast<std::int64_t>(from), end = begin + static_cast<std::int64_t>(length);
      if (end <= now.at) return 0;
      if (now.data) now.at = std::max(now.at, begin);
      else if (begin <= now.at) return now.at = end, 0;
      now.found = true;
      return -ECANCELED;
    }, &seen);
    if (error < 0 && error != -ECANCELED) return error;
    if (seen.data && !seen.found) return -ENXIO;
    return std::min(seen.at, *all);
  }
  // Not a discard, which leaves what is smaller than its granularity.
  int zero(std::int64_t at, std::int64_t size, bool give_back) override {
    if (read_only_) return EROFS;
    while (size > 0) {
      const std::int64_t now = std::min(size, most_at_once);
      if (const int error = whole(rbd_write_zeroes(image_.get(), static_cast<std::uint64_t>(at), static_cast<std::size_t>(now), give_back ? 0 : RBD_WRITE_ZEROES_FLAG_THICK_PROVISION, 0), static_cast<std::size_t>(now)); error != 0) return error;
      at += now, size -= now;
    }
    return 0;
  }
  int sync() override { return read_only_ ? 0 : -rbd_flush(image_.get()); }
  // librbd's own thread tells of the end, which is one switch of threads less than to wait for it.
  bool is_async() const override { return true; }
  void read_async(char* into, std::size_t size, std::int64_t at, disk::Completion& completion) override {
    begin(completion, size, [&](rbd_completion_t to) { return rbd_aio_read(image_.get(), static_cast<std::uint64_t>(at), size, into, to); });
  }
  void write_async(const char* from, std::size_t size, std::int64_t at, disk::Completion& completion) override {
    if (read_only_) return completion.complete(EROFS);
    begin(completion, 0, [&](rbd_completion_t to) { return rbd_aio_write(image_.get(), static_cast<std::uint64_t>(at), size, from, to); });
  }

 private:
  struct Begun {
    Begun(disk::Completion& whom, std::size_t bytes) : completion(whom), reads(bytes) {}
    disk::Completion& completion;
    const std::size_t reads;  // bytes; 0: it writes
  };
  template <class Call>
  static void begin(disk::Completion& completion, std::size_t reads, const Call& call) {
    auto begun = std::make_unique<Begun>(completion, reads);
    rbd_completion_t to = nullptr;
    int error = rbd_aio_create_completion(begun.get(), ended, &to);
    if (error == 0) {
      Begun* const theirs = begun.release();
      if ((error = call(to)) >= 0) return;
      begun.reset(theirs);  // it was not begun: nobody else tells
      rbd_aio_release(to);
    }
    completion.complete(-error);
  }
  static void ended(rbd_completion_t done, void* with) {
    const std::unique_ptr<Begun> begun(static_cast<Begun*>(with));
    const ssize_t gave = rbd_aio_get_return_value(done);
    rbd_aio_release(done);
    begun->completion.complete(begun->reads > 0 ? whole(gave, begun->reads) : gave < 0 ? static_cast<int>(-gave) : 0);
  }
  static int whole(ssize_t done, std::size_t size) { return done < 0 ? static_cast<int>(-done) : static_cast<std::size_t>(done) == size ? 0 : EIO; }
  const Fd lock_;  // let go last
  const std::unique_ptr<Cluster> cluster_;
  const OpenImage image_;
  const std::string id_;
  const std::int64_t generation_;
  const bool read_only_;
};

}  // namespace

Result<std::unique_ptr<disk::Medium>> open_rbd_medium(const EngineImage& about) {
  const std::string path = engine_lock(about.pool_id, about.id);
  if (auto made = make_dirs(path.substr(0, path.rfind('/')), 0700); !made) return std::unexpected(std::move(made.error()));
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return fail_errno(errno, "open " + path);
  // The daemon holds it for a moment to see whether an engine lives.
  for (int tries = 0; ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, "lock " + path);
    if (tries == 20) return fail(Code::Conflict, about.id + " is served by another process");
    ::usleep(50'000);
  }
  auto cluster = Cluster::connect(about.place);
  if (!cluster) return std::unexpected(std::move(cluster.error()));
  auto image = OpenImage::open(**cluster, about.id, false);
  if (!image) return std::unexpected(std::move(image.error()));
  const auto mark = image->mark();
  if (!mark) return std::unexpected(mark.error());
  if (!*mark || (*mark)->id != about.id || (*mark)->snapshot) return fail(Code::Conflict, "the image " + about.id + " is not that of a volume of ours");
  if (auto done = take_image(**cluster, *image, about.host, about.id, about.generation, about.read_only ? Use::Reads : Use::Writes); !done) return std::unexpected(std::move(done.error()));
  return std::make_unique<RbdMedium>(std::move(lock), std::move(*cluster), std::move(*image), about);
}

}  // namespace fairlead::ceph
