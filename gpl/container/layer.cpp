// SPDX-License-Identifier: GPL-3.0-or-later
#include "layer.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "../jail_layout.h"

namespace fairlead::companion {

struct Unzip::State {
  ByteSource from;
  std::array<char, 64 << 10> in{};
  std::size_t have = 0, at = 0;
  z_stream zip{};
  bool begun = false, zipped = false, ended = false, inside = false;
  ~State() {
    if (zipped) ::inflateEnd(&zip);
  }
  // False: the end.
  Result<bool> more() {
    if (at < have) return true;
    auto got = from(in.data(), in.size());
    if (!got) return std::unexpected(std::move(got.error()));
    at = 0;
    have = *got;
    return have > 0;
  }
};

Unzip::Unzip(ByteSource from) : state_(new State) { state_->from = std::move(from); }
Unzip::Unzip(Unzip&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
Unzip::~Unzip() { delete state_; }

Result<std::size_t> Unzip::read(char* to, std::size_t room) {
  State& s = *state_;
  if (room == 0 || s.ended) return std::size_t{0};
  auto any = s.more();
  if (!any) return std::unexpected(std::move(any.error()));
  if (!s.begun) {
    s.begun = true;
    // Six bytes tell; a file system or a socket gives them in one piece, or in a few.
    while (*any && s.have < 6) {
      auto got = s.from(s.in.data() + s.have, s.in.size() - s.have);
      if (!got) return std::unexpected(std::move(got.error()));
      if (*got == 0) break;
      s.have += *got;
    }
    const std::string_view head(s.in.data(), s.have);
    if (head.starts_with("\x28\xb5\x2f\xfd")) return fail(Code::Unsupported, "a layer is compressed with zstd; gzip is known here (skopeo copy --dest-compress-format gzip makes it so)");
    if (head.starts_with("\xfd" "7zXZ") || head.starts_with("BZh")) return fail(Code::Unsupported, "a layer is compressed with xz or bzip2; gzip is known here");
    if (head.starts_with("\x1f\x8b")) {
      if (::inflateInit2(&s.zip, 16 + MAX_WBITS) != Z_OK) return fail(Code::Internal, "zlib does not start");
      s.zipped = s.inside = true;
    }
  }
  if (!s.zipped) {
    if (!*any) return std::size_t{0};
    const std::size_t size = std::min(room, s.have - s.at);
    std::memcpy(to, s.in.data() + s.at, size);
    s.at += size;
    return size;
  }
  s.zip.next_out = reinterpret_cast<Bytef*>(to);
  s.zip.avail_out = static_cast<uInt>(std::min<std::size_t>(room, 1 << 30));
  const auto before = s.zip.avail_out;
  while (s.zip.avail_out == before) {
    any = s.more();
    if (!any) return std::unexpected(std::move(any.error()));
    if (!*any) {
      if (s.inside) return fail(Code::Invalid, "a layer ends in the middle");
      s.ended = true;
      return std::size_t{0};
    }
    if (!s.inside) {
      // Another member, or zeros that pad the last.
      if (s.in[s.at] == '\0') {
        ++s.at;
        continue;
      }
      if (::inflateReset(&s.zip) != Z_OK) return fail(Code::Internal, "zlib does not go on");
      s.inside = true;
    }
    s.zip.next_in = reinterpret_cast<Bytef*>(s.in.data() + s.at);
    s.zip.avail_in = static_cast<uInt>(s.have - s.at);
    const int done = ::inflate(&s.zip, Z_NO_FLUSH);
    s.at = s.have - s.zip.avail_in;
    if (done == Z_STREAM_END) s.inside = false;
    else if (done != Z_OK && done != Z_BUF_ERROR) return fail(Code::Invalid, fmt::format("a layer's gzip is broken: {}", s.zip.msg ? s.zip.msg : "?"));
  }
  return static_cast<std::size_t>(before - s.zip.avail_out);
}

Result<void> DiskShare::take(std::uint64_t more) {
  if (more > limit || bytes > limit - more) return fail(Code::Exhausted, fmt::format("the image takes more than the {} MiB that images may take on this node", limit >> 20));
  bytes += more;
  if (look && bytes - looked_at >= (std::uint64_t{64} << 20)) {
    looked_at = bytes;
    return look();
  }
  return {};
}

namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kLongestHeader = 1 << 20;
constexpr std::uint64_t kEntryCost = 4096;
constexpr const char* kWhiteout = ".wh.";
constexpr const char* kOpaque = ".wh..wh..opq";

struct Entry {
  std::string path, link;
  char type = '0';
  mode_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t changed = 0;
};

std::unexpected<Error> broken(std::string_view why) { return fail(Code::Invalid, fmt::format("a layer is no tar archive that is known here: {}", why)); }

// Octal, or base 256 as GNU writes large numbers.
std::optional<std::uint64_t> number(std::string_view field) {
  if (!field.empty() && (static_cast<unsigned char>(field[0]) & 0x80)) {
    std::uint64_t out = static_cast<unsigned char>(field[0]) & 0x3f;  // negative ones are of no use here
    if (static_cast<unsigned char>(field[0]) & 0x40) return 0;
    for (const char c : field.substr(1)) {
      if (out >> 55) return std::nullopt;
      out = out << 8 | static_cast<unsigned char>(c);
    }
    return out;
  }
  std::uint64_t out = 0;
  for (const char c : field) {
    if (c == '\0' || (c == ' ' && out != 0)) break;
    if (c == ' ') continue;
    if (c < '0' || c > '7') return std::nullopt;
    out = out * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return out;
}

std::string_view until_null(std::string_view field) { return field.substr(0, field.find('\0')); }

// "a/b", without "." and empty parts; Invalid when ".." is one.
Result<std::string> clean(const std::string& path) {
  std::string out;
  for (std::size_t at = 0; at <= path.size();) {
    std::size_t end = path.find('/', at);
    if (end == std::string::npos) end = path.size();
    const std::string_view part = std::string_view(path).substr(at, end - at);
    if (part == "..") return fail(Code::Invalid, fmt::format("a layer names the path {}", path));
    if (part.size() > 255) return fail(Code::Invalid, "a layer has a name of more than 255 bytes");
    if (!part.empty() && part != ".") out.append(out.empty() ? "" : "/").append(part);
    at = end + 1;
  }
  return out;
}

class Tar {
 public:
  explicit Tar(const ByteSource& source) : source_(source) {}

  // The next entry; none: the end. What is left of the last one's content is skipped.
  Result<std::optional<Entry>> next() {
    if (auto skipped = skip(left_ + padding_); !skipped) return std::unexpected(std::move(skipped.error()));
    left_ = padding_ = 0;
    Entry out;
    std::string long_path, long_link;
    std::optional<std::uint64_t> pax_size;
    std::optional<std::int64_t> pax_changed;
    while (true) {
      std::array<char, kBlock> block;
      auto got = fill(block.data(), kBlock, true);
      if (!got) return std::unexpected(std::move(got.error()));
      if (!*got) return std::optional<Entry>();  // some writers leave the two empty blocks out
      const std::string_view bytes(block.data(), kBlock);
      if (bytes.find_first_not_of('\0') == std::string_view::npos) {
        // The rest is padding, but is read: the digest is of all of it.
        std::array<char, 4096> rest;
        for (std::size_t size = 1; size > 0;) {
          auto read = source_(rest.data(), rest.size());
          if (!read) return std::unexpected(std::move(read.error()));
          size = *read;
        }
        return std::optional<Entry>();
      }
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
      const auto said = number(bytes.substr(148, 8)), mode = number(bytes.substr(100, 8)), size = number(bytes.substr(124, 12)), changed = number(bytes.substr(136, 12));
      if (!said || *said != sum) return broken("a header's checksum is wrong");
      if (!size || !mode || !changed) return broken("a header's number is wrong");
      const char type = block[156];
      if (type == 'L' || type == 'K' || type == 'x' || type == 'g') {
        if (*size > kLongestHeader) return broken("a header is too long");
        std::string text(*size, '\0');
        auto whole = fill(text.data(), text.size(), false);
        if (!whole) return std::unexpected(std::move(whole.error()));
        if (auto skipped = skip((kBlock - *size % kBlock) % kBlock); !skipped) return std::unexpected(std::move(skipped.error()));
        if (type == 'L') long_path = until_null(text);
        else if (type == 'K') long_link = until_null(text);
        else if (type == 'x')
          if (auto read = pax(text, long_path, long_link, pax_size, pax_changed); !read) return std::unexpected(std::move(read.error()));
        continue;
      }
      out.type = type == '\0' || type == '7' ? '0' : type;
      out.mode = static_cast<mode_t>(*mode & 07777);
      out.size = pax_size.value_or(*size);
      out.changed = pax_changed.value_or(static_cast<std::int64_t>(*changed & INT64_MAX));
      out.path = until_null(bytes.substr(0, 100));
      out.link = until_null(bytes.substr(157, 100));
      // POSIX's prefix; GNU's own header has other things there.
      if (bytes.substr(257, 6) == std::string_view("ustar\0", 6))
        if (const auto prefix = until_null(bytes.substr(345, 155)); !prefix.empty()) out.path = std::string(prefix) + "/" + out.path;
      if (!long_path.empty()) out.path = long_path;
      if (!long_link.empty()) out.link = long_link;
      if (out.type == '0' && out.path.ends_with('/')) out.type = '5';  // before POSIX folders were files with a slash
      if (out.path.find('\0') != std::string::npos || out.link.find('\0') != std::string::npos) return broken("a name holds a null byte");
      if (out.type != '0') {
        // Only files have content, whatever the header says of links.
        if (out.type != '1' && out.type != '2' && out.size > 0 && out.type >= '3' && out.type <= '6') out.size = 0;
        if (out.type == '1' || out.type == '2') out.size = 0;
      }
      if (out.size > (std::uint64_t{1} << 50)) return broken("a file's size is wrong");
      left_ = out.size;
      padding_ = (kBlock - out.size % kBlock) % kBlock;
      return std::optional<Entry>(std::move(out));
    }
  }

  // Of the content of the last entry; 0: the end.
  Result<std::size_t> read(char* to, std::size_t room) {
    if (left_ == 0) return std::size_t{0};
    auto got = source_(to, std::min<std::uint64_t>(room, left_));
    if (!got) return got;
    if (*got == 0) return broken("it ends in the middle of a file");
    left_ -= *got;
    return got;
  }

 private:
  // False: the end, where that may be.
  Result<bool> fill(char* to, std::size_t size, bool may_end) {
    for (std::size_t at = 0; at < size;) {
      auto got = source_(to + at, size - at);
      if (!got) return std::unexpected(std::move(got.error()));
      if (*got == 0) {
        if (may_end && at == 0) return false;
        return broken("it ends in the middle");
      }
      at += *got;
    }
    return true;
  }
  Result<void> skip(std::uint64_t size) {
    std::array<char, 16384> waste;
    while (size > 0) {
      auto got = source_(waste.data(), std::min<std::uint64_t>(waste.size(), size));
      if (!got) return std::unexpected(std::move(got.error()));
      if (*got == 0) return broken("it ends in the middle");
      size -= *got;
    }
    return {};
  }
  static Result<void> pax(std::string_view text, std::string& path, std::string& link, std::optional<std::uint64_t>& size, std::optional<std::int64_t>& changed) {
    while (!text.empty()) {
      std::size_t length = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
      const auto digits = static_cast<std::size_t>(end - text.data());
      if (error != std::errc() || length > text.size() || length < digits + 3 || text[digits] != ' ' || text[length - 1] != '\n') return broken("an extended header is wrong");
      const std::string_view record = text.substr(digits + 1, length - digits - 2);
      text.remove_prefix(length);
      const auto equals = record.find('=');
      if (equals == std::string_view::npos) return broken("an extended header is wrong");
      const std::string_view name = record.substr(0, equals), value = record.substr(equals + 1);
      if (name == "path") path = value;
      else if (name == "linkpath") link = value;
      else if (name == "size") {
        std::uint64_t number = 0;
        const auto [last, bad] = std::from_chars(value.data(), value.data() + value.size(), number);
        if (bad != std::errc() || last != value.data() + value.size()) return broken("a file's size is wrong");
        size = number;
      } else if (name == "mtime") {
        std::int64_t number = 0;  // the fraction is left out
        if (std::from_chars(value.data(), value.data() + value.size(), number).ec != std::errc()) return broken("a file's time is wrong");
        changed = number;
      } else if (name.starts_with("GNU.sparse.")) {
        return fail(Code::Unsupported, "a layer holds a sparse file in a form that is not known here");
      }
    }
    return {};
  }

  const ByteSource& source_;
  std::uint64_t left_ = 0, padding_ = 0;
};

class Applier {
 public:
  Applier(int root, DiskShare& room) : root_(root), room_(room) {}

  Result<void> apply(const Entry& entry, Tar& tar) {
    auto path = clean(entry.path);
    if (!path) return std::unexpected(std::move(path.error()));
    ++report.entries;
    if (auto taken = room_.take(kEntryCost); !taken) return taken;
    if (path->empty()) return {};  // the root itself
    const auto slash = path->rfind('/');
    const std::string name = slash == std::string::npos ? *path : path->substr(slash + 1), folder = slash == std::string::npos ? "" : path->substr(0, slash);
    auto parent = folder_of(folder);
    if (!parent) return std::unexpected(std::move(parent.error()));
    if (name == kOpaque) return clear(*parent, folder);
    if (name.starts_with(kWhiteout)) {
      const std::string hidden = name.substr(4);
      if (hidden.empty() || hidden == "." || hidden == "..") return fail(Code::Invalid, fmt::format("a layer names the path {}", *path));
      if (added_.contains(folder.empty() ? hidden : folder + "/" + hidden)) return {};
      return remove(*parent, hidden);
    }
    if (entry.type == 'S') return fail(Code::Unsupported, "a layer holds a sparse file in a form that is not known here");
    auto put = place(entry, *parent, name, *path, tar);
    if (put)
      for (std::string_view at = *path; !at.empty() && added_.emplace(at).second;) at = at.substr(0, at.rfind('/') == std::string_view::npos ? 0 : at.rfind('/'));
    return put;
  }

  LayerReport report;

 private:
  static mode_t widened(mode_t mode) { return (mode & 01777) | ((mode >> 6) & 05); }

  Result<int> folder_of(const std::string& folder) {
    if (last_ && !stale_ && folder == last_folder_) return last_.get();
    auto opened = folder.empty() ? open_in_root(root_, "/", O_RDONLY | O_DIRECTORY) : open_in_root(root_, folder, O_RDONLY | O_DIRECTORY);
    if (!opened && !folder.empty() && opened.error().code == Code::NotFound) {
      // Some writers leave folders out.
      if (auto taken = room_.take(kEntryCost * static_cast<std::uint64_t>(std::count(folder.begin(), folder.end(), '/') + 1)); !taken) return std::unexpected(std::move(taken.error()));
      if (auto made = mount_point(root_, "/" + folder, Kind::Folder); !made) return pass(std::move(made.error()), "a layer");
      opened = open_in_root(root_, folder, O_RDONLY | O_DIRECTORY);
    }
    if (!opened) return pass(std::move(opened.error()), "a layer");
    last_ = std::move(*opened);
    last_folder_ = folder;
    stale_ = false;
    return last_.get();
  }

  Result<void> place(const Entry& entry, int parent, const std::string& name, const std::string& path, Tar& tar) {
    struct stat there{};
    const bool exists = ::fstatat(parent, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && !(entry.type == '5' && S_ISDIR(there.st_mode)))
      if (auto removed = remove(parent, name); !removed) return removed;
    switch (entry.type) {
      case '0': return file(entry, parent, name, path, tar);
      case '5':
        if (!(exists && S_ISDIR(there.st_mode)) && ::mkdirat(parent, name.c_str(), 0755) != 0) return fail_errno(errno, "make " + path);
        // Root passes every door; a folder that nobody may enter would only keep the image's user out.
        if (::fchmodat(parent, name.c_str(), widened(entry.mode), 0) != 0) return fail_errno(errno, "set the mode of " + path);
        return {};
      case '1': return hard_link(entry, parent, name, path);
      case '2': {
        if (::symlinkat(entry.link.c_str(), parent, name.c_str()) != 0) return fail_errno(errno, "link " + path);
        stale_ = true;
        return set_time(entry, parent, name);
      }
      case '6':
        if (::mkfifoat(parent, name.c_str(), widened(entry.mode)) != 0) return fail_errno(errno, "make " + path);
        return {};
      case '3':
      case '4': ++report.left_out; return {};
      default: return broken(fmt::format("{} is of an unknown type", path));
    }
  }

  Result<void> file(const Entry& entry, int parent, const std::string& name, const std::string& path, Tar& tar) {
    const Fd to(::openat(parent, name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!to) return fail_errno(errno, "make " + path);
    while (true) {
      auto got = tar.read(buffer_.data(), buffer_.size());
      if (!got) return std::unexpected(std::move(got.error()));
      if (*got == 0) break;
      if (auto taken = room_.take(*got); !taken) return taken;
      for (std::size_t at = 0; at < *got;) {
        const ssize_t written = ::write(to.get(), buffer_.data() + at, *got - at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(errno, "write " + path);
        at += static_cast<std::size_t>(written);
      }
    }
    if (::fchmod(to.get(), widened(entry.mode)) != 0) return fail_errno(errno, "set the mode of " + path);
    const timespec times[2] = {{entry.changed, 0}, {entry.changed, 0}};
    ::futimens(to.get(), times);  // a file system without such times does not matter
    return {};
  }

  Result<void> hard_link(const Entry& entry, int parent, const std::string& name, const std::string& path) {
    auto target = clean(entry.link);
    if (!target) return std::unexpected(std::move(target.error()));
    const auto slash = target->rfind('/');
    const std::string folder = slash == std::string::npos ? "/" : target->substr(0, slash), last = slash == std::string::npos ? *target : target->substr(slash + 1);
    auto from = open_in_root(root_, folder, O_RDONLY | O_DIRECTORY);
    if (!from) return pass(std::move(from.error()), "link " + path);
    if (::linkat(from->get(), last.c_str(), parent, name.c_str(), 0) != 0) return fail_errno(errno, fmt::format("link {} to {}", path, *target));
    return {};
  }

  static Result<void> set_time(const Entry& entry, int parent, const std::string& name) {
    const timespec times[2] = {{entry.changed, 0}, {entry.changed, 0}};
    ::utimensat(parent, name.c_str(), times, AT_SYMLINK_NOFOLLOW);
    return {};
  }

  // A tree, without following links. Deep trees take no stack: one descriptor and one frame a level, and the paths are of bounded length.
  Result<void> remove(int parent, const std::string& name) {
    if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return {};
    if (errno != EISDIR && errno != EPERM) return fail_errno(errno, "remove " + name);
    stale_ = true;
    const Fd folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder) return fail_errno(errno, "open " + name);
    auto names = names_in(folder.get());
    if (!names) return std::unexpected(std::move(names.error()));
    for (const auto& inner : *names)
      if (auto removed = remove(folder.get(), inner); !removed) return removed;
    if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) return fail_errno(errno, "remove " + name);
    return {};
  }

  // What lower layers brought into a folder goes; what this one did stays.
  Result<void> clear(int folder, const std::string& path) {
    auto names = names_in(folder);
    if (!names) return std::unexpected(std::move(names.error()));
    for (const auto& name : *names) {
      const std::string inner = path.empty() ? name : path + "/" + name;
      if (!added_.contains(inner)) {
        if (auto removed = remove(folder, name); !removed) return removed;
        continue;
      }
      const Fd below(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!below && (errno == ENOTDIR || errno == ELOOP)) continue;
      if (!below) return fail_errno(errno, "open " + inner);
      if (auto cleared = clear(below.get(), inner); !cleared) return cleared;
    }
    return {};
  }

  static Result<std::vector<std::string>> names_in(int folder) {
    const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0) return fail_errno(errno, "open a folder of the image");
    const std::unique_ptr<DIR, int (*)(DIR*)> list(::fdopendir(copy), ::closedir);
    if (!list) return fail_errno(errno, "read a folder of the image");
    std::vector<std::string> out;
    while (const dirent* entry = ::readdir(list.get()))
      if (const std::string_view name = entry->d_name; name != "." && name != "..") out.emplace_back(name);
    return out;
  }

  int root_;
  DiskShare& room_;
  std::set<std::string> added_;  // paths of this layer, with the folders on the way
  Fd last_;
  std::string last_folder_;
  bool stale_ = false;  // links or folders went or came: its path may lead elsewhere now. It stays open to who works in it
  std::array<char, 256 << 10> buffer_{};
};

}  // namespace

Result<LayerReport> apply_layer(int root, const ByteSource& source, DiskShare& room) {
  Tar tar(source);
  const auto applier = std::make_unique<Applier>(root, room);
  while (true) {
    auto entry = tar.next();
    if (!entry) return std::unexpected(std::move(entry.error()));
    if (!*entry) return applier->report;
    if (auto applied = applier->apply(**entry, tar); !applied) return std::unexpected(std::move(applied.error()));
  }
}

}  // namespace fairlead::companion
