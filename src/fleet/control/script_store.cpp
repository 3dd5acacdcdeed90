// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/script_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"

namespace fairlead::fleet {
namespace {

constexpr int kDeepest = 20;

class Reader {
 public:
  explicit Reader(std::string bucket) : bucket_(std::move(bucket)) {}

  // `path`: of a folder, from the bucket; `below`: as the files are to be called.
  Result<void> folder(const std::string& path, const std::string& below, int depth) {
    if (depth > kDeepest) return fail(Code::Exhausted, fmt::format("folders are nested more than {} deep", kDeepest));
    auto fd = open_beneath(bucket_, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!fd) return std::unexpected(std::move(fd.error()));
    const int raw = ::dup(fd->get());
    DIR* const dir = raw < 0 ? nullptr : ::fdopendir(raw);
    if (dir == nullptr) return fail_errno(errno, "read " + path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(dir))
      if (const std::string_view name = entry->d_name; name != "." && name != ".." && name != ".git" && !name.starts_with(".fairlead-")) names.emplace_back(name);  // uploads that have not come to their end (hyperpod/buckets.h)
    const int error = errno;
    ::closedir(dir);
    if (error != 0) return fail_errno(error, "read " + path);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names)
      if (auto done = entry(path + "/" + name, below.empty() ? name : below + "/" + name, depth); !done) return done;
    return {};
  }
  ScriptFiles files;

 private:
  Result<void> entry(const std::string& path, const std::string& below, int depth) {
    if (below.find('\n') != std::string::npos) return fail(Code::Invalid, "the name of a file holds a line break");
    auto fd = open_beneath(bucket_, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (!fd && fd.error().code == Code::NotFound) return {};  // gone meanwhile
    if (!fd) return pass(std::move(fd.error()), below);
    struct stat about {};
    if (::fstat(fd->get(), &about) != 0) return fail_errno(errno, "look at " + below);
    if (S_ISDIR(about.st_mode)) return folder(path, below, depth + 1);
    if (!S_ISREG(about.st_mode)) return {};
    if (files.size() >= kMostScriptFiles) return fail(Code::Exhausted, fmt::format("there are more than {} files: give scripts a prefix of their own", kMostScriptFiles));
    std::string bytes;
    char buffer[64 << 10];
    for (;;) {
      const ssize_t got = ::read(fd->get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail_errno(errno, "read " + below);
      if (got == 0) break;
      bytes.append(buffer, static_cast<std::size_t>(got));
      total_ += static_cast<std::size_t>(got);
      if (total_ > kMostScriptBytes) return fail(Code::Exhausted, fmt::format("there are more than {} MiB: keep what is large elsewhere, and have the script fetch it", kMostScriptBytes >> 20));
    }
    files.emplace(below, std::move(bytes));
    return {};
  }

  const std::string bucket_;
  std::size_t total_ = 0;
};

}  // namespace

Result<ScriptFiles> ScriptFolder::read(const std::string& bucket, const std::string& prefix) const {
  const std::string where = folder_ + "/" + bucket, whole = where + (prefix.empty() ? "" : "/" + prefix);
  Reader reader(where);
  if (auto done = reader.folder(prefix.empty() ? "." : prefix, "", 0); !done) {
    if (done.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no folder {}: put the scripts there", whole));
    return std::unexpected(std::move(done.error()));
  }
  if (reader.files.empty()) return fail(Code::NotFound, fmt::format("folder {} is empty: put the scripts there", whole));
  return std::move(reader.files);
}

}  // namespace fairlead::fleet
