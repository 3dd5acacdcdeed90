// SPDX-License-Identifier: Apache-2.0
#include "ceph/rbd_medium.h"

#include <fcntl.h>
#include <rbd/librbd.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

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
  Result<std::int64_t> size() override { return image_.size(); }
  // By the object map, or by asking for each object; pieces that are there are told in order.
  std::int64_t seek(std::int64_t at, int whence) override {
    const auto all = size();
    if (!all) return -EIO;
    if (at < 0 || at >= *all) return -ENXIO;
    struct Seen {
      std::int64_t at;
      bool data, found = false;
    } seen{at, whence == SEEK_DATA};
    const int error = image_.get().diff_iterate2(nullptr, static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(*all - at), true, false, [](std::uint64_t from, std::size_t length, int exists, void* into) {
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
      if (const int error = whole(image_.get().write_zeroes(static_cast<std::uint64_t>(at), static_cast<std::size_t>(now), give_back ? 0 : RBD_WRITE_ZEROES_FLAG_THICK_PROVISION, 0), static_cast<std::size_t>(now)); error != 0) return error;
      at += now, size -= now;
    }
    return 0;
  }
  int sync() override { return read_only_ ? 0 : -image_.get().flush(); }
  // What is read stays where librbd has it, and what is written is not copied by it (Image of librbd.hpp; what librbd.h has copies both).
  bool is_async() const override { return true; }
  void read_async(std::size_t size, std::int64_t at, disk::Completion& completion) override {
    auto* const begun = new Reads{.completion = completion, .size = size, .data = {}};
    auto* const end = new librbd::RBD::AioCompletion(begun, was_read);
    const int error = image_.get().aio_read(static_cast<std::uint64_t>(at), size, begun->data, end);
    if (error >= 0) return;
    end->release();  // it was not begun: nobody else tells
    delete begun;
    completion.complete(-error, {});
  }
  void write_async(const char* from, std::size_t size, std::int64_t at, disk::Completion& completion) override {
    if (read_only_) return completion.complete(EROFS, {});  // without its lock librbd would take it to write
    ::ceph::bufferlist data;
    if (size <= disk::kCopied) data.append(from, static_cast<unsigned>(size));
    else data.append(lent(from, size)), data.invalidate_crc();  // of what was there before, which it remembers
    auto* const end = new librbd::RBD::AioCompletion(&completion, was_written);
    const int error = image_.get().aio_write(static_cast<std::uint64_t>(at), size, data, end);
    if (error >= 0) return;
    end->release();
    completion.complete(-error, {});
  }
  bool is_held(const char* from) const override {
    const std::lock_guard lock(mutex_);
    const auto found = lent_.find(from);
    return found != lent_.end() && found->second.raw_nref() > 1;
  }

 private:
  struct Reads {
    disk::Completion& completion;
    const std::size_t size;
    ::ceph::bufferlist data;
  };
  // Its count of who looks at it is kept as long as the medium; messages are among them until they are sent, or their connection is gone.
  ::ceph::bufferptr lent(const char* from, std::size_t size) {
    const std::lock_guard lock(mutex_);
    ::ceph::bufferptr& all = lent_[from];
    if (all.length() < size) all = ::ceph::bufferptr(::ceph::buffer::create_static(static_cast<unsigned>(size), const_cast<char*>(from)));  // nobody looks there any more
    return {all, 0, static_cast<unsigned>(size)};
  }
  static void was_read(librbd::completion_t end, void* with) {
    const std::unique_ptr<Reads> begun(static_cast<Reads*>(with));
    const auto gave = result_of(end);
    std::vector<iovec> pieces;
    for (const auto& one : begun->data.buffers()) pieces.push_back({.iov_base = const_cast<char*>(one.c_str()), .iov_len = one.length()});
    begun->completion.complete(gave < 0 ? static_cast<int>(-gave) : begun->data.length() == begun->size ? 0 : EIO, pieces);
  }
  static void was_written(librbd::completion_t end, void* with) {
    const auto gave = result_of(end);
    static_cast<disk::Completion*>(with)->complete(gave < 0 ? static_cast<int>(-gave) : 0, {});
  }
  static ssize_t result_of(librbd::completion_t end) {
    auto* const completion = static_cast<librbd::RBD::AioCompletion*>(end);
    const ssize_t out = completion->get_return_value();
    completion->release();
    return out;
  }
  static int whole(ssize_t done, std::size_t size) { return done < 0 ? static_cast<int>(-done) : static_cast<std::size_t>(done) == size ? 0 : EIO; }
  const Fd lock_;  // let go last
  const std::unique_ptr<Cluster> cluster_;
  const OpenImage image_;
  mutable std::mutex mutex_;
  std::unordered_map<const char*, ::ceph::bufferptr> lent_;  // by where it lies
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
