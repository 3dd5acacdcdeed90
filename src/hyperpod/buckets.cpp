// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/buckets.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/encoding.h"
#include "base/files.h"
#include "base/rng.h"

namespace fairlead::hyperpod {
namespace {

constexpr const char* upload_prefix = ".fairlead-upload-";
constexpr std::size_t most_bytes = 64 << 20;
constexpr int deepest = 40;

ObjectInfo info_of(std::string key, const struct stat& about) {
  const Instant modified{std::chrono::seconds(about.st_mtim.tv_sec) + std::chrono::nanoseconds(about.st_mtim.tv_nsec)};
  return {std::move(key), static_cast<std::uint64_t>(about.st_size), modified, hex(sha256(fmt::format("{}/{}/{}.{}", about.st_ino, about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec))).substr(0, 32)};
}

Result<std::vector<std::string>> names_in(int folder) {
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const dir = own < 0 ? nullptr : ::fdopendir(own);
  if (dir == nullptr) return fail_errno(errno, "read a folder");
  std::vector<std::string> out;
  errno = 0;
  while (const dirent* entry = ::readdir(dir))
    if (const std::string_view name = entry->d_name; name != "." && name != ".." && !name.starts_with(upload_prefix)) out.emplace_back(name);
  const int error = errno;
  ::closedir(dir);
  if (error != 0) return fail_errno(error, "read a folder");
  return out;
}

std::pair<std::string, std::string> split_key(const std::string& key) {
  const auto slash = key.rfind('/');
  return slash == key.npos ? std::pair(std::string(), key) : std::pair(key.substr(0, slash), key.substr(slash + 1));
}

// The folder that holds an object, made where `make`: step by step and through no link.
Result<Fd> folder_of(const std::string& bucket, const std::string& path, bool make) {
  Fd at(::open(bucket.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!at) return fail(Code::NotFound, "there is no such bucket");
  if (path.empty()) return at;
  for (const std::string& part : split(path, '/')) {
    if (make && ::mkdirat(at.get(), part.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno(errno, "make a folder");
    Fd next(::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!next && (errno == ENOTDIR || errno == ELOOP)) return fail(Code::Conflict, fmt::format("\"{}\" is no folder", part));
    if (!next) return fail_errno(errno, "open a folder");
    at = std::move(next);
  }
  return at;
}

}  // namespace

bool is_object_key(std::string_view key) {
  if (key.empty() || key.size() > 1024 || std::any_of(key.begin(), key.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) return false;
  for (const std::string& part : split(key, '/'))
    if (part.empty() || part == "." || part == ".." || part.size() > 255 || part.starts_with(upload_prefix)) return false;
  return true;
}

Result<std::vector<std::pair<std::string, Instant>>> Buckets::list() const {
  std::vector<std::pair<std::string, Instant>> out;
  auto names = list_dir(folder_);
  if (!names && names.error().code == Code::NotFound) return out;
  if (!names) return std::unexpected(std::move(names.error()));
  for (const std::string& name : *names) {
    struct stat about {};
    if (is_bucket_name(name) && ::lstat((folder_ + "/" + name).c_str(), &about) == 0 && S_ISDIR(about.st_mode)) out.emplace_back(name, Instant{std::chrono::seconds(about.st_ctim.tv_sec)});
  }
  return out;
}

Result<std::vector<ObjectInfo>> Buckets::objects(const std::string& bucket, const std::string& prefix) const {
  const std::string root = folder_ + "/" + bucket;
  std::vector<ObjectInfo> out;
  const std::function<Result<void>(const std::string&, int)> walk = [&](const std::string& path, int depth) -> Result<void> {
    auto folder = open_beneath(root, path.empty() ? "." : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!folder) return std::unexpected(std::move(folder.error()));
    auto names = names_in(folder->get());
    if (!names) return std::unexpected(std::move(names.error()));
    for (const std::string& name : *names) {
      const std::string key = path.empty() ? name : path + "/" + name;
      const std::string below = key + "/";
      if (!key.starts_with(prefix) && !below.starts_with(prefix) && !prefix.starts_with(below)) continue;
      auto file = open_beneath(root, key, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
      struct stat about {};
      if (!file || ::fstat(file->get(), &about) != 0) continue;  // gone, or not for us
      if (S_ISDIR(about.st_mode) && depth < deepest) {
        if (auto done = walk(key, depth + 1); !done) return done;
      } else if (S_ISREG(about.st_mode) && key.starts_with(prefix) && is_object_key(key)) {
        if (out.size() >= most_objects) return fail(Code::Exhausted, fmt::format("more than {} objects", most_objects));
        out.push_back(info_of(key, about));
      }
    }
    return {};
  };
  if (auto done = walk("", 0); !done) return std::unexpected(std::move(done.error()));
  std::sort(out.begin(), out.end(), [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  return out;
}

Result<std::pair<ObjectInfo, std::string>> Buckets::read(const std::string& bucket, const std::string& key) const {
  auto file = open_beneath(folder_ + "/" + bucket, key, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (!file) return std::unexpected(std::move(file.error()));
  struct stat about {};
  if (::fstat(file->get(), &about) != 0) return fail_errno(errno, "look at " + key);
  if (!S_ISREG(about.st_mode)) return fail(Code::NotFound, "it is no file");
  std::string bytes;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t got = ::read(file->get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "read " + key);
    if (got == 0) break;
    bytes.append(buffer, static_cast<std::size_t>(got));
    if (bytes.size() > most_bytes) return fail(Code::Exhausted, fmt::format("it is larger than {} MiB", most_bytes >> 20));
  }
  ObjectInfo info = info_of(key, about);
  info.bytes = bytes.size();
  return std::pair(std::move(info), std::move(bytes));
}

Result<ObjectInfo> Buckets::write(const std::string& bucket, const std::string& key, std::string_view bytes) const {
  const auto [path, name] = split_key(key);
  auto folder = folder_of(folder_ + "/" + bucket, path, true);
  if (!folder) return std::unexpected(std::move(folder.error()));
  const std::string temporary = upload_prefix + random_uuid();
  const auto give_up = [&](int error, const char* doing) {
    ::unlinkat(folder->get(), temporary.c_str(), 0);
    return fail_errno(error, std::string(doing) + " " + key);
  };
  const Fd file(::openat(folder->get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return fail_errno(errno, "make " + key);
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t wrote = ::write(file.get(), rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return give_up(wrote == 0 ? ENOSPC : errno, "write");
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  struct stat about {};
  if (::fsync(file.get()) != 0 || ::fstat(file.get(), &about) != 0) return give_up(errno, "write");
  if (::renameat(folder->get(), temporary.c_str(), folder->get(), name.c_str()) != 0) {
    const int error = errno;
    if (error == EISDIR || error == ENOTEMPTY || error == EEXIST) {
      ::unlinkat(folder->get(), temporary.c_str(), 0);
      return fail(Code::Conflict, fmt::format("\"{}\" is a folder", key));
    }
    return give_up(error, "write");
  }
  if (::fsync(folder->get()) != 0) return fail_errno(errno, "write " + key);
  return info_of(key, about);
}

Result<void> Buckets::remove(const std::string& bucket, const std::string& key) const {
  const auto [path, name] = split_key(key);
  auto folder = folder_of(folder_ + "/" + bucket, path, false);
  if (!folder && folder.error().code == Code::NotFound && ::access((folder_ + "/" + bucket).c_str(), F_OK) == 0) return {};
  if (!folder && folder.error().code == Code::Conflict) return {};
  if (!folder) return std::unexpected(std::move(folder.error()));
  if (::unlinkat(folder->get(), name.c_str(), 0) != 0 && errno != ENOENT && errno != EISDIR && errno != EPERM) return fail_errno(errno, "remove " + key);
  // Folders are no objects: an empty one goes with its last.
  std::string left = path;
  while (!left.empty()) {
    const auto [above, last] = split_key(left);
    auto parent = folder_of(folder_ + "/" + bucket, above, false);
    if (!parent || ::unlinkat(parent->get(), last.c_str(), AT_REMOVEDIR) != 0) break;
    left = above;
  }
  return {};
}

Result<void> Buckets::make(const std::string& bucket) const {
  if (auto made = make_dirs(folder_, 0755); !made) return made;
  if (::mkdir((folder_ + "/" + bucket).c_str(), 0755) != 0) return errno == EEXIST ? Result<void>(fail(Code::Exists, "it is there")) : Result<void>(fail_errno(errno, "make bucket " + bucket));
  return {};
}

}  // namespace fairlead::hyperpod
