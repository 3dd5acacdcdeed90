// SPDX-License-Identifier: Apache-2.0
#include "volumes/rbd_engine.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "volumes/luks.h"

namespace fairlead::volumes {

using namespace std::chrono_literals;

Result<void> start_rbd_engine(const RbdEngine& engine, std::string key) {
  Command command{.argv = {engine.place.program, "serve"}, .environment = {}, .working_directory = {}, .before_exec = {}};
  const auto add = [&](std::vector<std::string> more) { command.argv.insert(command.argv.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end())); };
  add(engine.place.arguments());
  add({"--pool-id", engine.pool_id, "--image", engine.id, "--folder", engine.folder, "--name", engine.name, "--iops", std::to_string(engine.limits.iops), "--throughput", std::to_string(engine.limits.bytes_per_second)});
  if (engine.generation > 0) add({"--generation", std::to_string(engine.generation)});
  if (engine.read_only) add({"--read-only"});
  if (!key.empty()) add({"--begins", std::to_string(kLuksHeader), "--key-stdin"});
  auto started = run_checked(std::move(command), 60s, key);
  OPENSSL_cleanse(key.data(), key.size());
  return started ? Result<void>() : Result<void>(pass(std::move(started.error()), "start the engine of " + engine.id));
}

Result<HeaderFile> HeaderFile::make(const std::string& path, const std::string& bytes) {
  (void)::unlink(path.c_str());
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, "make " + path);
  HeaderFile out(path);
  // A block of data stands behind it: cryptsetup formats no file that is all header.
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) || ::ftruncate(fd.get(), 2 * kLuksHeader) != 0) return fail_errno(errno, "write " + path);
  return out;
}
HeaderFile::~HeaderFile() {
  if (!path_.empty()) (void)::unlink(path_.c_str());
}
Result<std::string> HeaderFile::bytes() const {
  auto out = read_file(path_);
  if (out) out->resize(static_cast<std::size_t>(kLuksHeader));
  return out;
}

}  // namespace fairlead::volumes
