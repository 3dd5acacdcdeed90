// SPDX-License-Identifier: Apache-2.0
#include "apiserver/root_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "apiserver/seal.h"
#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/rng.h"
#include "kube/json.h"

namespace fairlead::apiserver {

namespace {

constexpr std::size_t kKeySize = 32, kWrappedLimit = 64 << 10;
constexpr std::chrono::seconds kProgramLimit{60};
constexpr std::string_view kMark = "fairlead sealed key 1\n";

class ProgramRootKey final : public RootKey {
 public:
  explicit ProgramRootKey(std::string program) : program_(std::move(program)) {}
  std::string name() const override { return program_; }
  Result<std::string> wrap(std::string_view key) override {
    auto out = ask("wrap", base64(key) + "\n");
    if (!out) return out;
    for (const char c : *out)
      if (c < ' ' || c > '~') return fail(Code::Invalid, fmt::format("{} wrap prints what is not one line of text", program_));
    if (out->empty()) return fail(Code::Invalid, fmt::format("{} wrap prints nothing", program_));
    return out;
  }
  Result<std::string> unwrap(const std::string& wrapped) override {
    auto out = ask("unwrap", wrapped + "\n");
    if (!out) return out;
    auto key = parse_base64(*out);
    if (!key || key->size() != kKeySize) return fail(Code::Invalid, fmt::format("{} unwrap prints no key of {} bytes in base64", program_, kKeySize));
    return std::move(*key);
  }

 private:
  Result<std::string> ask(const char* what, std::string_view input) {
    auto done = run({.argv = {program_, what}, .environment = {}, .working_directory = "/"}, kProgramLimit, input, kWrappedLimit + 1);
    if (!done) return pass(std::move(done.error()), fmt::format("root key: {} {}", program_, what));
    if (done->exit.code != 0) {
      const std::string said(trim(done->err));
      return fail(Code::Unavailable, fmt::format("root key: {} {} ended with {} {}{}{}", program_, what, done->exit.signal != 0 ? "signal" : "status", done->exit.signal != 0 ? done->exit.signal : done->exit.code, said.empty() ? "" : ": ", said.size() > 500 ? said.substr(said.size() - 500) : said));
    }
    if (done->out.size() > kWrappedLimit) return fail(Code::Invalid, fmt::format("{} {} prints more than 64 KiB", program_, what));
    return std::string(trim(done->out));
  }
  std::string program_;
};

Result<void> remove_file_durably(const std::string& folder, const std::string& file) {
  if (::unlink(file.c_str()) != 0) return fail_errno(errno, "remove " + file);
  const Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || ::fsync(opened.get()) != 0) return fail_errno(errno, "sync " + folder);
  return {};
}

Result<void> write_root(const std::string& file, const std::string& wrapped) {
  return write_file_durably(file, kube::print_json_indented(kube::Json::object({{"version", 1}, {"wrapped", wrapped}})) + "\n", 0600);
}

Result<std::string> read_root(const std::string& file) {
  auto text = read_file(file, 256_KiB);
  if (!text) return text;
  auto json = kube::parse_json(*text);
  if (!json || (*json)["version"].integer() != 1 || (*json)["wrapped"].string().empty()) return fail(Code::Internal, fmt::format("{} is damaged, or of a newer Fairlead: put back a copy, without it nothing opens the keys of this site", file));
  return (*json)["wrapped"].string();
}

// A holder that gives back something else than it was given would cost the site its keys.
Result<std::string> wrap_and_try(RootKey& holder, const std::string& key) {
  auto wrapped = holder.wrap(key);
  if (!wrapped) return wrapped;
  auto again = holder.unwrap(*wrapped);
  if (!again) return pass(std::move(again.error()), "what was wrapped cannot be unwrapped");
  if (*again != key) return fail(Code::Invalid, fmt::format("{} unwraps another key than it has wrapped", holder.name()));
  if (*wrapped == key || *wrapped == base64(key)) return fail(Code::Invalid, fmt::format("{} wraps nothing: it gives the key back as it is", holder.name()));
  return wrapped;
}

}  // namespace

Result<std::unique_ptr<RootKey>> program_root_key(const std::string& program) {
  if (program.empty() || program[0] != '/') return fail(Code::Invalid, fmt::format("root key: {}: the full path of a program is expected", program));
  struct stat about {};
  if (::stat(program.c_str(), &about) != 0) return fail_errno(errno, "root key: " + program);
  if (!S_ISREG(about.st_mode) || ::access(program.c_str(), X_OK) != 0) return fail(Code::Invalid, fmt::format("root key: {} is not a program that may be run", program));
  if ((about.st_mode & 0022) != 0 || (about.st_uid != 0 && about.st_uid != ::geteuid())) return fail(Code::Forbidden, fmt::format("root key: {} could be changed by others: it has to be root's, and writable for its owner alone (chown root, chmod go-w)", program));
  // Nor may others put another program in its place.
  std::error_code error;
  for (std::filesystem::path folder = std::filesystem::canonical(program, error).parent_path(); !error && !folder.empty(); folder = folder.parent_path()) {
    if (::stat(folder.c_str(), &about) != 0) return fail_errno(errno, "root key: " + folder.string());
    const bool others = (about.st_mode & 0022) != 0 && (about.st_mode & S_ISVTX) == 0;
    if (others || (about.st_uid != 0 && about.st_uid != ::geteuid())) return fail(Code::Forbidden, fmt::format("root key: {} could be exchanged by others, who may write to {}", program, folder.string()));
    if (folder == folder.parent_path()) break;
  }
  if (error) return fail(Code::Invalid, fmt::format("root key: {}: {}", program, error.message()));
  return std::make_unique<ProgramRootKey>(program);
}

Result<std::string> KeyFolder::read(const std::string& path, std::string_view role) const {
  const std::string file = folder_ + "/" + path;
  auto text = read_file(file, 64_KiB);
  if (!text || !text->starts_with(kMark)) return text;
  auto box = parse_base64(trim(std::string_view(*text).substr(kMark.size())));
  if (!box || sealing_.empty()) return fail(Code::Internal, fmt::format("{} {}", file, sealing_.empty() ? "is sealed, but there is no root.json beside it" : "is damaged"));
  auto key = open_box(sealing_, role, *box);
  if (!key) return fail(Code::Internal, fmt::format("{}: the root key does not fit, or the file was changed", file));
  return key;
}

Result<void> KeyFolder::write(const std::string& path, std::string_view role, std::string_view key) const {
  if (sealing_.empty()) return write_file_durably(folder_ + "/" + path, key, 0600);
  return write_file_durably(folder_ + "/" + path, std::string(kMark) + base64(close_box(sealing_, role, key, secret_bytes(kBoxNonce))) + "\n", 0600);
}

// What outlives a start, with the role of each.
Result<std::vector<std::pair<std::string, std::string_view>>> KeyFolder::keys() const {
  std::vector<std::pair<std::string, std::string_view>> out;
  for (const auto& [path, role] : {std::pair("secrets.key", "secrets"), {"ca.key", "ca"}, {"tokens.key", "tokens"}})
    if (exists(folder_ + "/" + path)) out.emplace_back(path, role);
  if (!exists(folder_ + "/tokens-old")) return out;
  auto names = list_dir(folder_ + "/tokens-old");
  if (!names) return std::unexpected(std::move(names.error()));
  for (const std::string& name : *names)
    if (!name.starts_with('.')) out.emplace_back("tokens-old/" + name, "tokens");
  return out;
}

// All that is sealed opens; Invalid: not by this key.
Result<void> KeyFolder::prove() const {
  auto all = keys();
  if (!all) return std::unexpected(std::move(all.error()));
  for (const auto& [path, role] : *all)
    if (auto key = read(path, role); !key) return std::unexpected(std::move(key.error()));
  return {};
}

// Each key by itself: whatever is sealed or open meanwhile, read() takes both while root.json is there.
Result<void> KeyFolder::convert(bool seal) const {
  auto all = keys();
  if (!all) return std::unexpected(std::move(all.error()));
  const KeyFolder plain(folder_, "");
  for (const auto& [path, role] : *all) {
    auto text = read_file(folder_ + "/" + path, 64_KiB);
    if (!text) return std::unexpected(std::move(text.error()));
    if (text->starts_with(kMark) == seal) continue;
    auto key = read(path, role);
    if (!key) return std::unexpected(std::move(key.error()));
    if (auto done = (seal ? *this : plain).write(path, role, *key); !done) return done;
  }
  return {};
}

// What a death in the middle of a write left: it may be a key in the open.
Result<void> KeyFolder::sweep() const {
  for (const std::string& folder : {folder_, folder_ + "/tokens-old"}) {
    if (!exists(folder)) continue;
    auto names = list_dir(folder);
    if (!names) return std::unexpected(std::move(names.error()));
    for (const std::string& name : *names)
      if (name.starts_with(".tmp-") && ::unlink((folder + "/" + name).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + folder + "/" + name);
  }
  return {};
}

Result<KeyFolder> KeyFolder::open(std::string folder, RootKey* now, RootKey* before) {
  const std::string file = folder + "/root.json";
  if (auto done = KeyFolder(folder, "").sweep(); !done) return std::unexpected(std::move(done.error()));
  if (!exists(file)) {
    KeyFolder plain(folder, "");
    if (now == nullptr) return plain;
    if (auto done = plain.prove(); !done) return std::unexpected(std::move(done.error()));  // one is sealed: its root.json is lost, and is not to be covered by another
    const std::string sealing = secret_bytes(kKeySize);
    auto wrapped = wrap_and_try(*now, sealing);
    if (!wrapped) return std::unexpected(std::move(wrapped.error()));
    if (auto done = write_root(file, *wrapped); !done) return std::unexpected(std::move(done.error()));
    KeyFolder out(std::move(folder), sealing);
    if (auto done = out.convert(true); !done) return std::unexpected(std::move(done.error()));
    log_info("the keys of this site are sealed", {{"by", now->name()}});
    return out;
  }
  auto wrapped = read_root(file);
  if (!wrapped) return std::unexpected(std::move(wrapped.error()));
  if (now == nullptr && before == nullptr) return fail(Code::Invalid, fmt::format("the keys in {} are sealed under a root key: say by --root-key-command what holds it", folder));
  // A holder is believed when what is sealed opens by what it gives; nothing is written before that.
  const auto opened_by = [&](RootKey& holder) -> Result<KeyFolder> {
    auto sealing = holder.unwrap(*wrapped);
    if (!sealing) return std::unexpected(std::move(sealing.error()));
    if (sealing->size() != kKeySize) return fail(Code::Invalid, fmt::format("{} gave back no key of {} bytes", holder.name(), kKeySize));
    KeyFolder out(folder, std::move(*sealing));
    if (auto done = out.prove(); !done) return std::unexpected(std::move(done.error()));
    return out;
  };
  // By the one of now first: a change that had been made before a death is not made again.
  auto out = opened_by(now != nullptr ? *now : *before);
  bool anew = false;
  if (!out && now != nullptr && before != nullptr) {
    auto older = opened_by(*before);
    if (!older) return fail(older.error().code, fmt::format("neither holds the root key: {}; {}", out.error().message, older.error().message));
    out = std::move(older), anew = true;
  }
  if (!out) return out;
  if (now == nullptr) {
    if (auto done = out->convert(false); !done) return std::unexpected(std::move(done.error()));
    if (auto done = remove_file_durably(folder, file); !done) return std::unexpected(std::move(done.error()));
    log_info("the keys of this site are not sealed any more", {{"were by", before->name()}});
    return KeyFolder(std::move(folder), "");
  }
  if (auto done = out->convert(true); !done) return std::unexpected(std::move(done.error()));
  if (anew) {
    auto again = wrap_and_try(*now, out->sealing_);
    if (!again) return std::unexpected(std::move(again.error()));
    if (auto done = write_root(file, *again); !done) return std::unexpected(std::move(done.error()));
    log_info("the root key was changed", {{"by", now->name()}, {"was by", before->name()}});
  }
  return out;
}

}  // namespace fairlead::apiserver
