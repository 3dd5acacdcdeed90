// SPDX-License-Identifier: Apache-2.0
#include "apiserver/root_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

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

// Each key by itself: whatever is sealed or open meanwhile, read() takes both while root.json is there.
Result<void> KeyFolder::convert(bool seal) const {
  std::vector<std::pair<std::string, std::string_view>> keys{{"secrets.key", "secrets"}, {"ca.key", "ca"}, {"tokens.key", "tokens"}};
  if (exists(folder_ + "/tokens-old")) {
    auto names = list_dir(folder_ + "/tokens-old");
    if (!names) return std::unexpected(std::move(names.error()));
    for (const std::string& name : *names) keys.emplace_back("tokens-old/" + name, "tokens");
  }
  const KeyFolder plain(folder_, "");
  for (const auto& [path, role] : keys) {
    if (!exists(folder_ + "/" + path)) continue;
    auto text = read_file(folder_ + "/" + path, 64_KiB);
    if (!text) return std::unexpected(std::move(text.error()));
    if (text->starts_with(kMark) == seal) continue;
    auto key = read(path, role);
    if (!key) return std::unexpected(std::move(key.error()));
    if (auto done = (seal ? *this : plain).write(path, role, *key); !done) return done;
  }
  return {};
}

Result<KeyFolder> KeyFolder::open(std::string folder, RootKey* now, RootKey* before) {
  const std::string file = folder + "/root.json";
  if (!exists(file)) {
    if (now == nullptr) return KeyFolder(std::move(folder), "");
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
  // By the one of now first: a change that had been made before a death is not made again.
  Result<std::string> sealing = now != nullptr ? now->unwrap(*wrapped) : before->unwrap(*wrapped);
  bool anew = now == nullptr;
  if (!sealing && now != nullptr && before != nullptr) {
    auto older = before->unwrap(*wrapped);
    if (!older) return fail(older.error().code, fmt::format("neither holds the root key: {}; {}", sealing.error().message, older.error().message));
    sealing = std::move(older), anew = true;
  }
  if (!sealing) return std::unexpected(std::move(sealing.error()));
  if (sealing->size() != kKeySize) return fail(Code::Invalid, "the root key's holder gave back no key of 32 bytes");
  KeyFolder out(folder, *sealing);
  if (now == nullptr) {
    if (auto done = out.convert(false); !done) return std::unexpected(std::move(done.error()));
    if (auto done = remove_file_durably(folder, file); !done) return std::unexpected(std::move(done.error()));
    log_info("the keys of this site are not sealed any more", {{"were by", before->name()}});
    return KeyFolder(std::move(folder), "");
  }
  // Nothing is wrapped anew that does not open what is there.
  if (auto done = out.convert(true); !done) return std::unexpected(std::move(done.error()));
  if (exists(folder + "/secrets.key"))
    if (auto key = out.read("secrets.key", "secrets"); !key) return std::unexpected(std::move(key.error()));
  if (anew) {
    auto again = wrap_and_try(*now, *sealing);
    if (!again) return std::unexpected(std::move(again.error()));
    if (auto done = write_root(file, *again); !done) return std::unexpected(std::move(done.error()));
    log_info("the root key was changed", {{"by", now->name()}, {"was by", before->name()}});
  }
  return out;
}

}  // namespace fairlead::apiserver
