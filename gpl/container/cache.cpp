// SPDX-License-Identifier: GPL-3.0-or-later
#include "cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

// Adds up what goes through.
class Digest {
 public:
  Digest() : context_(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) { ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr); }
  void add(const char* bytes, std::size_t size) { ::EVP_DigestUpdate(context_.get(), bytes, size), size_ += size; }
  Result<void> check(const ImagePart& part) {
    unsigned char out[32];
    unsigned length = sizeof out;
    ::EVP_DigestFinal_ex(context_.get(), out, &length);
    if (size_ == part.size && hex({reinterpret_cast<const char*>(out), sizeof out}) == part.hex()) return {};
    return fail(Code::Invalid, fmt::format("the image is damaged: {} is not what its manifest says", part.digest));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  std::uint64_t size_ = 0;
};

class Cache {
 public:
  explicit Cache(const CacheOptions& options) : options_(options) {}

  Result<std::string> provide(const std::string& hex, const ImageManifest& manifest, const OpenBlob& open_blob, const ProcessIdentity& user) {
    if (auto made = make_dirs(options_.folder, 0711); !made) return std::unexpected(std::move(made.error()));
    auto limit = find_limit();
    if (!limit) return std::unexpected(std::move(limit.error()));
    limit_ = *limit;
    const std::string name = "sha256-" + hex;
    auto lock = lock_image(name, LOCK_EX);
    if (!lock) return std::unexpected(std::move(lock.error()));
    if (!exists(at(name) + "/rootfs")) {
      if (options_.before_unpack) options_.before_unpack();
      sweep(name);
      // Others that nobody uses give way, one after the other, until there is room.
      while (true) {
        auto unpacked = unpack(name, manifest, open_blob);
        if (unpacked) break;
        step();
        (void)remove_tree(at(name) + ".tmp");
        if (unpacked.error().code != Code::Exhausted || !drop_oldest(name)) return std::unexpected(std::move(unpacked.error()));
      }
    }
    step();
    if (auto made = make_dirs(at(name) + "/used", 0700); !made) return std::unexpected(std::move(made.error()));
    if (auto noted = write_file_atomically(fmt::format("{}/used/{}", at(name), user.pid), fmt::format("{}\n", user.start_ticks), 0600); !noted) return std::unexpected(std::move(noted.error()));
    lock->reset();
    // Older ones go now, while the task has its own.
    while (total() > limit_ && drop_oldest(name)) {
    }
    return at(name) + "/rootfs";
  }

 private:
  std::string at(const std::string& name) const { return options_.folder + "/" + name; }
  void step() const {
    if (options_.on_step) options_.on_step();
  }

  Result<Fd> lock_image(const std::string& name, int how) {
    Fd lock(::open((at(name) + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock) return fail_errno(errno, "open the lock of an image");
    while (::flock(lock.get(), how) != 0)
      if (errno != EINTR) return fail_errno(errno, "lock an image");
    return lock;
  }

  Result<std::uint64_t> find_limit() const {
    if (options_.limit) return options_.limit;
    struct statvfs disk{};
    if (::statvfs(options_.folder.c_str(), &disk) != 0) return fail_errno(errno, "look at the disk of images");
    return std::uint64_t{disk.f_blocks} * disk.f_frsize / 2;
  }
  Result<void> disk_has_room() const {
    struct statvfs disk{};
    if (::statvfs(options_.folder.c_str(), &disk) != 0) return fail_errno(errno, "look at the disk of images");
    if (disk.f_bavail >= disk.f_blocks / 20) return {};
    return fail(Code::Exhausted, fmt::format("no room for the image on this node: {} MiB of {} MiB are free on the disk of {}", (std::uint64_t{disk.f_bavail} * disk.f_frsize) >> 20, (std::uint64_t{disk.f_blocks} * disk.f_frsize) >> 20, options_.folder));
  }

  Result<void> unpack(const std::string& name, const ImageManifest& manifest, const OpenBlob& open_blob) {
    const std::string temporary = at(name) + ".tmp", root = temporary + "/rootfs";
    step();
    if (auto removed = remove_tree(temporary); !removed && exists(temporary)) return removed;
    if (auto room = disk_has_room(); !room) return room;
    // Nobody but root enters; what is mounted from here does not ask for it.
    if (auto made = make_dirs(temporary, 0700); !made) return made;
    if (auto made = make_dirs(root, 0755); !made) return made;
    const Fd folder(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return fail_errno(errno, "open " + root);
    DiskShare room{.limit = limit_, .look = [this] { return disk_has_room(); }};
    for (const auto& layer : manifest.layers) {
      step();
      auto from = open_blob(layer);
      if (!from) return std::unexpected(std::move(from.error()));
      Digest digest;
      // The digest is of what is compressed, and of all of it.
      const ByteSource counted = [&](char* to, std::size_t most) -> Result<std::size_t> {
        auto got = (*from)(to, most);
        if (got) digest.add(to, *got);
        return got;
      };
      Unzip unzip(counted);
      if (auto applied = apply_layer(folder.get(), [&](char* to, std::size_t most) { return unzip.read(to, most); }, room); !applied) return std::unexpected(std::move(applied.error()));
      std::string rest(64 << 10, '\0');
      for (std::size_t size = 1; size > 0;) {
        auto got = counted(rest.data(), rest.size());
        if (!got) return std::unexpected(std::move(got.error()));
        size = *got;
      }
      if (auto same = digest.check(layer); !same) return same;
    }
    if (auto made = make_dirs(temporary + "/used", 0700); !made) return made;
    if (auto noted = write_file_atomically(temporary + "/bytes", fmt::format("{}\n", room.bytes), 0600); !noted) return noted;
    step();
    if (::syncfs(folder.get()) != 0) return fail_errno(errno, "write the image to the disk");
    step();
    if (::rename(temporary.c_str(), at(name).c_str()) != 0) return fail_errno(errno, "put the image in its place");
    return {};
  }

  // What killed tasks left half done.
  void sweep(const std::string& but) {
    auto names = list_dir(options_.folder);
    if (!names) return;
    for (const auto& left : *names) {
      if (left.starts_with(kFetched)) {
        pid_t pid = 0;
        const auto [end, error] = std::from_chars(left.data() + kFetched.size(), left.data() + left.size(), pid);
        if (error != std::errc() || end != left.data() + left.size()) continue;
        if (auto now = identify(pid); now || now.error().code != Code::NotFound) continue;
        (void)remove_tree(at(left));
      } else if (left.starts_with("sha256-") && left.ends_with(".tmp")) {
        const std::string name = left.substr(0, left.size() - 4);
        if (name == but) continue;
        if (auto lock = lock_image(name, LOCK_EX | LOCK_NB); lock) (void)remove_tree(at(left));
      }
    }
  }

  static std::uint64_t number_in(const std::string& path) {
    auto text = read_file(path, 64_KiB);
    std::uint64_t out = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), out);
    return out;
  }

  std::vector<std::string> images() const {
    auto names = list_dir(options_.folder);
    if (!names) return {};
    std::erase_if(*names, [](const std::string& name) { return !name.starts_with("sha256-") || name.find('.') != std::string::npos; });
    return std::move(*names);
  }
  std::uint64_t total() const {
    std::uint64_t out = 0;
    for (const auto& name : images()) out += number_in(at(name) + "/bytes");
    return out;
  }

  // Unknown is in use.
  bool in_use(const std::string& name) const {
    auto users = list_dir(at(name) + "/used");
    if (!users) return users.error().code != Code::NotFound;
    for (const auto& user : *users) {
      pid_t pid = 0;
      const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), pid);
      if (error != std::errc() || end != user.data() + user.size()) continue;  // a name that is being written
      auto now = identify(pid);
      if (!now && now.error().code != Code::NotFound) return true;
      if (now && now->start_ticks == number_in(at(name) + "/used/" + user)) return true;
      ::unlink((at(name) + "/used/" + user).c_str());
    }
    return false;
  }

  // False: there is none that may go.
  bool drop_oldest(const std::string& but) {
    auto names = images();
    std::vector<std::pair<std::int64_t, std::string>> by_age;
    for (const auto& name : names) {
      struct stat info{};
      if (name != but && ::stat((at(name) + "/used").c_str(), &info) == 0) by_age.emplace_back(info.st_mtim.tv_sec, name);
    }
    std::sort(by_age.begin(), by_age.end());
    for (const auto& [age, name] : by_age) {
      auto lock = lock_image(name, LOCK_EX | LOCK_NB);
      if (!lock || in_use(name)) continue;
      step();
      // Renamed first: half of it is never taken for the whole.
      if (::rename(at(name).c_str(), (at(name) + ".tmp").c_str()) != 0) continue;
      step();
      (void)remove_tree(at(name) + ".tmp");
      return true;
    }
    return false;
  }

  const CacheOptions& options_;
  std::uint64_t limit_ = 0;
};

}  // namespace

Result<std::string> provide_image(const CacheOptions& options, const std::string& hex, const ImageManifest& manifest, const OpenBlob& open_blob, const ProcessIdentity& user) {
  return Cache(options).provide(hex, manifest, open_blob, user);
}

Result<std::string> read_part(const ImagePart& part, const OpenBlob& open_blob, std::uint64_t most) {
  if (part.size > most) return fail(Code::Exhausted, fmt::format("{} of the image has {} bytes, more than {}", part.digest, part.size, most));
  auto from = open_blob(part);
  if (!from) return std::unexpected(std::move(from.error()));
  std::string out;
  std::string piece(64 << 10, '\0');
  Digest digest;
  while (true) {
    auto got = (*from)(piece.data(), piece.size());
    if (!got) return std::unexpected(std::move(got.error()));
    if (*got == 0) break;
    if (out.size() + *got > most) return fail(Code::Exhausted, fmt::format("{} of the image is larger than {} bytes", part.digest, most));
    digest.add(piece.data(), *got);
    out.append(piece, 0, *got);
  }
  if (auto same = digest.check(part); !same) return std::unexpected(std::move(same.error()));
  return out;
}

}  // namespace fairlead::companion
