// SPDX-License-Identifier: GPL-3.0-or-later
#include "source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"
#include "../jail_layout.h"

namespace fairlead::companion {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLargestText = 8 << 20;

ByteSource source_of(Fd fd, const std::string& what) {
  auto shared = std::make_shared<Fd>(std::move(fd));
  return [shared, what](char* to, std::size_t room) -> Result<std::size_t> {
    while (true) {
      const ssize_t got = ::read(shared->get(), to, room);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) return fail_errno(errno, "read " + what);
    }
  };
}

// A regular file: a pipe that somebody put there would never end, and opening it never return.
Result<Fd> open_file(const User& user, int root, const std::string& path) {
  auto fd = open_as(user, root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) return fd;
  struct stat info{};
  if (::fstat(fd->get(), &info) != 0) return fail_errno(errno, "look at " + path);
  if (!S_ISREG(info.st_mode)) return fail(Code::Invalid, path + " is no file");
  return fd;
}

Result<std::string> read_text(const User& user, int root, const std::string& path) {
  auto fd = open_file(user, root, path);
  if (!fd) return std::unexpected(std::move(fd.error()));
  const ByteSource source = source_of(std::move(*fd), path);
  std::string out, piece(64 << 10, '\0');
  while (true) {
    auto got = source(piece.data(), piece.size());
    if (!got) return std::unexpected(std::move(got.error()));
    if (*got == 0) return out;
    out.append(piece, 0, *got);
    if (out.size() > kLargestText) return fail(Code::Exhausted, fmt::format("{} is larger than {} MiB", path, kLargestText >> 20));
  }
}

Result<Image> finish(ImagePart of_manifest, std::string bytes, OpenBlob open_blob) {
  auto manifest = parse_image_manifest(bytes);
  if (!manifest) return std::unexpected(std::move(manifest.error()));
  auto config_bytes = read_part(manifest->config, open_blob, kLargestText);
  if (!config_bytes) return std::unexpected(std::move(config_bytes.error()));
  auto config = parse_image_config(*config_bytes);
  if (!config) return std::unexpected(std::move(config.error()));
  if (auto right = fits(*config, own_platform()); !right) return std::unexpected(std::move(right.error()));
  return Image{.hex = of_manifest.hex(), .manifest = std::move(*manifest), .config = std::move(*config), .open_blob = std::move(open_blob)};
}

Result<Image> find_layout(const ImageName& name, const User& user) {
  auto root = std::make_shared<Fd>(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string at = name.path;
  if (at[0] != '/') {
    char here[4096];
    if (!::getcwd(here, sizeof here)) return fail_errno(errno, "find the folder of the job");
    at = std::string(here) + "/" + at;
  }
  if (auto folder = open_as(user, root->get(), at, O_PATH); !folder) return std::unexpected(std::move(folder.error()));
  if (auto folder = open_as(user, root->get(), at, O_PATH | O_DIRECTORY); !folder)
    return fail(Code::Invalid, fmt::format("{} is a file; an OCI layout is a folder (skopeo copy oci-archive:FILE oci:FOLDER, or docker-archive:FILE, makes one)", at));
  auto index_bytes = read_text(user, root->get(), at + "/index.json");
  if (!index_bytes && index_bytes.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("{} is no OCI layout: it holds no index.json", at));
  if (!index_bytes) return std::unexpected(std::move(index_bytes.error()));
  const OpenBlob open_blob = [root, at, user](const ImagePart& part) -> Result<ByteSource> {
    const std::string path = at + "/blobs/sha256/" + part.hex();
    auto fd = open_file(user, root->get(), path);
    if (!fd) return std::unexpected(std::move(fd.error()));
    return source_of(std::move(*fd), path);
  };
  std::string tag = name.tag;
  // An index may lead to one of several platforms.
  for (int depth = 0; depth < 4; ++depth) {
    auto index = parse_index(*index_bytes);
    if (!index) return std::unexpected(std::move(index.error()));
    auto chosen = choose(*index, tag, own_platform());
    if (!chosen) return std::unexpected(std::move(chosen.error()));
    auto bytes = read_part(*chosen, open_blob, kLargestText);
    if (!bytes) return std::unexpected(std::move(bytes.error()));
    if (!is_index(*bytes)) {
      auto image = finish(*chosen, std::move(*bytes), open_blob);
      // What is unpacked already is for those alone who could unpack it.
      if (image)
        for (const auto& layer : image->manifest.layers)
          if (auto opened = open_blob(layer); !opened) return std::unexpected(std::move(opened.error()));
      return image;
    }
    index_bytes = std::move(bytes);
    tag.clear();
  }
  return fail(Code::Invalid, "its index leads from one index to another");
}

// ---- registries

class Skopeo {
 public:
  Skopeo(const User& user, std::map<std::string, std::string> environment, std::string folder) : user_(user), environment_(std::move(environment)), folder_(std::move(folder)) {}
  ~Skopeo() {
    if (!fetched_.empty()) (void)remove_tree(fetched_);
  }

  Result<std::string> inspect(const std::string& reference, std::vector<std::string> options) {
    std::vector<std::string> argv = {"skopeo", "--insecure-policy", "inspect", "--raw"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.push_back("docker://" + reference);
    return call(std::move(argv), 5min);
  }

  Result<ByteSource> open(const std::string& reference, const ImagePart& part) {
    if (fetched_.empty()) {
      fetched_ = fmt::format("{}/{}{}", folder_, kFetched, ::getpid());
      if (auto made = make_dirs(folder_, 0711); !made) return std::unexpected(std::move(made.error()));
      (void)remove_tree(fetched_);
      if (auto made = make_dirs(fetched_, 0700); !made) return std::unexpected(std::move(made.error()));
      if (::chown(fetched_.c_str(), user_.uid, user_.gid) != 0) return fail_errno(errno, "give a folder to the user");
      auto copied = call({"skopeo", "--insecure-policy", "copy", "--quiet", "docker://" + reference, "dir:" + fetched_}, 24h);
      if (!copied) return std::unexpected(std::move(copied.error()));
    }
    // What the user's process put there: opened as the user, and checked like everything else.
    const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto fd = open_file(user_, root.get(), fetched_ + "/" + part.hex());
    if (!fd) return std::unexpected(std::move(fd.error()));
    return source_of(std::move(*fd), part.digest);
  }

 private:
  Result<std::string> call(std::vector<std::string> argv, std::chrono::milliseconds limit) {
    const User& user = user_;
    Command command{.argv = std::move(argv), .environment = environment_, .working_directory = "/", .die_with_parent = true};
    command.before_exec = [&user] {
      if (::setgroups(user.groups.size(), user.groups.data()) != 0 || ::setresgid(user.gid, user.gid, user.gid) != 0 || ::setresuid(user.uid, user.uid, user.uid) != 0) return errno;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // another identity makes the kernel forget it
      return 0;
    };
    auto done = run(std::move(command), limit);
    if (!done && done.error().code == Code::NotFound) return fail(Code::NotFound, "images of registries are fetched by skopeo, which this cluster's shared root does not have: \"apt-get install skopeo\" there, once");
    if (!done) return std::unexpected(std::move(done.error()));
    if (done->exit.code == 0) return std::move(done->out);
    const std::string said(trim(done->err));
    return fail(Code::Unavailable, fmt::format("skopeo: {}", said.substr(said.rfind('\n') + 1)));
  }

  User user_;
  std::map<std::string, std::string> environment_;
  std::string folder_, fetched_;
};

Result<Image> find_in_registry(const ImageName& name, const User& user, const std::string& folder, std::map<std::string, std::string> environment) {
  environment["PATH"] = "/usr/local/bin:/usr/bin:/bin";
  environment["HOME"] = user.home;
  auto skopeo = std::make_shared<Skopeo>(user, std::move(environment), folder);
  std::string reference = name.reference, repository = reference.substr(0, reference.find('@'));
  if (const auto colon = repository.rfind(':'); colon != std::string::npos && repository.find('/', colon) == std::string::npos && repository.find('/') != std::string::npos) repository.resize(colon);
  else if (colon != std::string::npos && repository.find('/') == std::string::npos) repository.resize(colon);
  auto bytes = skopeo->inspect(reference, {});
  if (!bytes) return std::unexpected(std::move(bytes.error()));
  for (int depth = 0; is_index(*bytes); ++depth) {
    if (depth == 4) return fail(Code::Invalid, "its index leads from one index to another");
    auto index = parse_index(*bytes);
    if (!index) return std::unexpected(std::move(index.error()));
    auto chosen = choose(*index, "", own_platform());
    if (!chosen) return std::unexpected(std::move(chosen.error()));
    reference = repository + "@" + chosen->digest;
    bytes = skopeo->inspect(reference, {});
    if (!bytes) return std::unexpected(std::move(bytes.error()));
  }
  const ImagePart manifest{.digest = "sha256:" + hex(sha256(*bytes)), .size = bytes->size()};
  // By its digest from here on: the tag may move meanwhile.
  reference = repository + "@" + manifest.digest;
  auto parsed = parse_image_manifest(*bytes);
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  auto config = skopeo->inspect(reference, {"--config"});
  if (!config) return std::unexpected(std::move(config.error()));
  const std::string config_digest = parsed->config.digest;
  return finish(manifest, std::move(*bytes), [skopeo, reference, config_digest, config = std::make_shared<const std::string>(std::move(*config))](const ImagePart& part) -> Result<ByteSource> {
    if (part.digest != config_digest) return skopeo->open(reference, part);
    return [config, rest = std::string_view(*config)](char* to, std::size_t room) mutable -> Result<std::size_t> {
      const std::size_t size = rest.copy(to, room);
      rest.remove_prefix(size);
      return size;
    };
  });
}

}  // namespace

Result<Fd> open_as(const User& user, int root, const std::string& path, int flags) {
  ::setfsgid(user.gid);
  ::setfsuid(user.uid);
  auto out = open_in_root(root, path, flags);
  ::setfsuid(0);
  ::setfsgid(0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // another identity makes the kernel forget it
  if (!out) return fail(out.error().code, fmt::format("{}: {}", path, out.error().message.substr(out.error().message.rfind(": ") + 2)));
  return out;
}

Result<Image> find_image(const ImageName& name, const User& user, const std::string& folder, const std::map<std::string, std::string>& environment) {
  return name.kind == ImageName::Kind::Layout ? find_layout(name, user) : find_in_registry(name, user, folder, environment);
}

}  // namespace fairlead::companion
