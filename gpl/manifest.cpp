// SPDX-License-Identifier: GPL-3.0-or-later
#include "manifest.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include "base/encoding.h"
#include "base/fd.h"

namespace fairlead::companion {
namespace {

constexpr std::string_view kFirst = "fairlead-manifest 1", kTypes = "fdlcbp";
constexpr int kDeepest = 512;

// One word without white space; an empty one is "-".
std::string word(std::string_view text) {
  if (text.empty()) return "-";
  return text == "-" ? "%2d" : percent_encode(text, " ");
}

bool unescape(std::string_view text, std::string& out) {
  out.clear();
  if (text == "-") return true;
  auto plain = percent_decode(text);
  if (!plain || plain->find('\0') != plain->npos) return false;
  out = std::move(*plain);
  return true;
}

template <class T>
bool number(std::string_view text, T& out, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

// "/a/b": no empty part, none that leads elsewhere.
bool is_path(std::string_view path) {
  if (path.size() < 2 || path[0] != '/') return false;
  for (const auto& part : split(path.substr(1), '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

bool parse_line(std::string_view line, std::string& path, ManifestEntry& entry) {
  const auto words = split(line, ' ');
  std::string hash;
  if (words.size() != 10 || words[0].size() != 1 || kTypes.find(words[0][0]) == kTypes.npos) return false;
  entry.type = words[0][0];
  if (!number(words[1], entry.mode, 8) || entry.mode > 07777 || !number(words[2], entry.uid) || !number(words[3], entry.gid) || !number(words[4], entry.size) || !number(words[5], entry.mtime) || !number(words[6], entry.ctime)) return false;
  if (words[7] != "-") {
    if (words[7].size() != 64) return false;
    for (std::size_t i = 0; i < 64; i += 2) {
      unsigned byte = 0;
      if (!number(std::string_view(words[7]).substr(i, 2), byte, 16)) return false;
      hash += static_cast<char>(byte);
    }
  }
  entry.hash = std::move(hash);
  return unescape(words[8], entry.target) && unescape(words[9], path) && is_path(path);
}

std::int64_t nanoseconds(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) { INVARIANT(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1); }
  void add(const void* bytes, std::size_t size) { INVARIANT(EVP_DigestUpdate(context_.get(), bytes, size) == 1); }
  std::string take() {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    INVARIANT(EVP_DigestFinal_ex(context_.get(), out, &size) == 1);
    return std::string(reinterpret_cast<const char*>(out), size);
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

class Scanner {
 public:
  explicit Scanner(const ScanOptions& options) : options_(options) {}

  Result<void> folder(int at, const std::string& path, int depth) {
    if (depth > kDeepest) return fail(Code::Exhausted, path + ": too many folders in one another");
    Fd copy(::openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!copy) return fail_errno(errno, "open " + path);
    DIR* raw = ::fdopendir(copy.get());
    if (!raw) return fail_errno(errno, "read " + path);
    copy.release();
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(raw, &::closedir);
    while (true) {
      errno = 0;
      const dirent* one = ::readdir(dir.get());
      if (!one && errno != 0) return fail_errno(errno, "read " + path);
      if (!one) return {};
      const std::string name = one->d_name;
      if (name == "." || name == "..") continue;
      if (options_.on_entry) options_.on_entry();
      if (auto done = entry(at, name, path + "/" + name, depth); !done) return done;
    }
  }
  Manifest take() { return std::move(out_); }

 private:
  Result<void> entry(int at, const std::string& name, const std::string& path, int depth) {
    if (options_.leave_out.contains(path)) return {};
    struct stat info{};
    if (::fstatat(at, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? Result<void>{} : Result<void>(fail_errno(errno, "stat " + path));
    ManifestEntry entry{.mode = info.st_mode & 07777, .uid = info.st_uid, .gid = info.st_gid, .mtime = nanoseconds(info.st_mtim), .ctime = nanoseconds(info.st_ctim)};
    Fd inner;
    if (S_ISDIR(info.st_mode)) {
      entry.type = 'd';
      inner = Fd(::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
      if (!inner) return gone() ? Result<void>{} : Result<void>(fail_errno(errno, "open " + path));
      Digest digest;
      auto any = attributes(inner.get(), digest, path);
      if (!any) return std::unexpected(std::move(any.error()));
      if (*any) entry.hash = digest.take();
    } else if (S_ISREG(info.st_mode)) {
      entry.size = static_cast<std::uint64_t>(info.st_size);
      const bool known = is_known(path, entry);
      if (!known && options_.bytes && (info.st_nlink < 2 || counted_.emplace(info.st_dev, info.st_ino).second)) *options_.bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
      if (!known && options_.read)
        if (auto hashed = file(at, name, path, entry); !hashed) return gone() ? Result<void>{} : hashed;
    } else if (S_ISLNK(info.st_mode)) {
      entry.type = 'l';
      entry.mode = 0777;  // means nothing
      std::string target(4096, '\0');
      const ssize_t size = ::readlinkat(at, name.c_str(), target.data(), target.size());
      if (size < 0) return gone() ? Result<void>{} : Result<void>(fail_errno(errno, "read link " + path));
      entry.target = target.substr(0, static_cast<std::size_t>(size));
    } else if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode) || S_ISFIFO(info.st_mode)) {
      entry.type = S_ISCHR(info.st_mode) ? 'c' : S_ISBLK(info.st_mode) ? 'b' : 'p';
      entry.size = S_ISFIFO(info.st_mode) ? 0 : info.st_rdev;
    } else {
      return {};
    }
    out_[path] = std::move(entry);
    return inner ? folder(inner.get(), path, depth + 1) : Result<void>{};
  }

  // Somebody works there meanwhile: removed, or something else by now.
  static bool gone() { return errno == ENOENT || errno == ELOOP || errno == ENOTDIR; }

  // Takes its hash then.
  bool is_known(const std::string& path, ManifestEntry& entry) const {
    if (!options_.known) return false;
    const auto before = options_.known->find(path);
    if (before == options_.known->end()) return false;
    ManifestEntry would = entry;
    would.hash = before->second.hash;
    if (would != before->second) return false;
    entry.hash = would.hash;
    return true;
  }

  Result<void> file(int at, const std::string& name, const std::string& path, ManifestEntry& entry) {
    const Fd fd(::openat(at, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd) return fail_errno(errno, "open " + path);
    Digest digest;
    while (true) {
      const ssize_t size = ::read(fd.get(), buffer_.data(), buffer_.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return fail_errno(errno, "read " + path);
      if (size == 0) break;
      digest.add(buffer_.data(), static_cast<std::size_t>(size));
    }
    if (auto any = attributes(fd.get(), digest, path); !any) return std::unexpected(std::move(any.error()));
    entry.hash = digest.take();
    return {};
  }

  // Those that the copier copies, by name.
  static Result<bool> attributes(int fd, Digest& digest, const std::string& path) {
    char names[16 * 1024];
    const ssize_t size = ::flistxattr(fd, names, sizeof names);
    if (size < 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) return false;
    if (size < 0) return fail_errno(errno, "list attributes of " + path);
    std::set<std::string> sorted;
    for (const char* name = names; name < names + size; name += std::strlen(name) + 1)
      if (std::strncmp(name, "trusted.", 8) != 0 && std::strcmp(name, "security.selinux") != 0) sorted.insert(name);
    std::string value;
    for (const auto& name : sorted) {
      value.resize(64 * 1024);
      const ssize_t length = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
      if (length < 0) return fail_errno(errno, fmt::format("read {} of {}", name, path));
      const std::uint64_t count = static_cast<std::uint64_t>(length);
      digest.add(name.c_str(), name.size() + 1);
      digest.add(&count, sizeof count);
      digest.add(value.data(), count);
    }
    return !sorted.empty();
  }

  const ScanOptions& options_;
  Manifest out_;
  std::set<std::pair<dev_t, ino_t>> counted_;  // of several names
  std::vector<char> buffer_ = std::vector<char>(256 * 1024);
};

}  // namespace

bool same(const ManifestEntry& a, const ManifestEntry& b) {
  return a.type == b.type && a.mode == b.mode && a.uid == b.uid && a.gid == b.gid && a.size == b.size && a.hash == b.hash && a.target == b.target;
}

std::string print_manifest(const Manifest& manifest) {
  std::string out = std::string(kFirst) + "\n";
  for (const auto& [path, entry] : manifest)
    out += fmt::format("{} {:o} {} {} {} {} {} {} {} {}\n", entry.type, entry.mode, entry.uid, entry.gid, entry.size, entry.mtime, entry.ctime, entry.hash.empty() ? "-" : hex(entry.hash), word(entry.target), word(path));
  return out + fmt::format("end {}\n", manifest.size());
}

Result<Manifest> parse_manifest(std::string_view text) {
  Manifest out;
  std::size_t number_of_line = 0;
  bool ended = false;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == text.npos || ended) return fail(Code::Invalid, fmt::format("the manifest ends badly after line {}", number_of_line));
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (++number_of_line == 1) {
      if (line != kFirst) return fail(Code::Invalid, "this is no manifest that this version knows");
      continue;
    }
    if (line.starts_with("end ")) {
      std::size_t count = 0;
      if (!number(line.substr(4), count) || count != out.size()) return fail(Code::Invalid, fmt::format("the manifest has {} entries and says \"{}\"", out.size(), line.substr(0, 40)));
      ended = true;
      continue;
    }
    std::string path;
    ManifestEntry entry;
    if (!parse_line(line, path, entry) || !out.emplace(std::move(path), std::move(entry)).second) return fail(Code::Invalid, fmt::format("line {} of the manifest is not understood", number_of_line));
  }
  if (!ended) return fail(Code::Invalid, "the manifest is cut off");
  return out;
}

Result<Manifest> scan_tree(int root, const ScanOptions& options) {
  Scanner scanner(options);
  if (auto done = scanner.folder(root, "", 0); !done) return std::unexpected(std::move(done.error()));
  return scanner.take();
}

}  // namespace fairlead::companion
